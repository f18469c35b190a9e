"""Checks the promises that an agent makes to the runtime: shapes, determinism, masks, updates and resumes.

    conformance.check_agent(AGENT.make, config, [types.EnvSpec((4,), "float32", 2)])

Shape letters: B rows, A actions.
"""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base, own
from seedzero.config import configs
from seedzero.core import packing, types
from seedzero.device import acting, batches
from seedzero.replay import ring_store, sources, windowing
from seedzero.storage.checkpoints import trees

SLOTS, ROWS, EPISODE = 8, 24, 7
"""Number of environments, the fewest steps to play in each, and the length of their episodes."""
_NOT_LEARNED = {"target_params", "num_updates", "num_rejected"}
"""Parts of a train state that a refused update may change: target networks may continue towards the parameters."""


class AgentCase(NamedTuple):
    """An agent with its functions jitted, its first state, and windows of its own play."""

    config: configs.Config
    spec: types.EnvSpec
    agent: base.Agent
    act: Any
    update: Any
    state: base.TrainState
    windows: windowing.Windows

    @property
    def params(self) -> base.Params:
        return self.agent.acting(self.state)

    def inputs(self, seed: int = 0, **changes: Any) -> base.Inputs:
        """Returns rows in the middle of their episodes or at a beginning; by default they train."""
        random = np.random.default_rng(seed)
        usual = {
            "observation": jax.tree.map(jnp.asarray, _observations(random, self.spec, self.agent.stack)),
            "action_mask": _masks(random, self.spec),
            "first": jnp.asarray(random.random(SLOTS) < 0.3),
        }
        return own.first_inputs(self.agent, self.spec, SLOTS)._replace(**{**usual, **changes})

    def step(self, inputs: base.Inputs, seed: int = 0) -> Any:
        """Returns the memory and the outputs of rows that have no past."""
        return self.act(self.params, self.agent.initial_memory(SLOTS), inputs, jax.random.key(seed))

    def action(self, inputs: base.Inputs, seed: int = 0) -> np.ndarray:
        """Returns the actions of rows that have no past."""
        return np.asarray(self.step(inputs, seed)[1].action)


def check_agent(
    make: Callable[[Any, Any, str], base.Agent], config: configs.Config, specs: Iterable[types.EnvSpec]
) -> None:
    """Checks an agent in environments of each spec.

    Args:
      make: (configuration, spec, "cpu") -> the agent, as of `own_agents.OwnAgent`.
      config: with small networks and batches: every program is compiled.
      specs: of environments that the agent plays.

    Raises:
      AssertionError: with the broken promise.
    """
    for spec in specs:
        found = case(make, config, spec)
        for name, check in CHECKS.items():
            try:
                check(found)
            except AssertionError as error:
                raise AssertionError(f"{name}, in {spec}: {error}") from error


def case(make: Callable[[Any, Any, str], base.Agent], config: configs.Config, spec: types.EnvSpec) -> AgentCase:
    """Returns an agent and its own play."""
    agent = make(config, spec, "cpu")
    state, act = jax.jit(agent.init)(jax.random.key(0)), jax.jit(agent.act)
    windows = _windows(agent, spec, *_play(agent._replace(act=act), spec, agent.acting(state)))
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))
    return AgentCase(config, spec, agent, act, update, state, windows)


# Play ---------------------------------------------------------------------------------------------------------------


def _masks(random: np.random.Generator, spec: types.EnvSpec) -> jax.Array:
    """Returns masks [B, A] with one to all actions legal; all of them if the spec has no mask."""
    if spec.is_continuous:
        return jnp.ones((SLOTS, 0), bool)
    mask = random.random((SLOTS, spec.num_actions)) < 0.5
    mask[np.arange(SLOTS), random.integers(0, spec.num_actions, SLOTS)] = True
    return jnp.asarray(mask | (not spec.has_action_mask))


def _observations(random: np.random.Generator, spec: types.EnvSpec, stack: int = 1) -> dict[str, np.ndarray]:
    found = {}
    for array in spec.arrays:
        shape = (SLOTS, *array.shape[:-1], array.shape[-1] * stack)
        numbers = random.normal(size=shape) if array.dtype == "float32" else random.integers(0, 2, shape)
        found[array.name] = numbers.astype(array.dtype)
    return found


def _play(agent: base.Agent, spec: types.EnvSpec, params: base.Params) -> tuple[ring_store.Rings, int]:
    """Plays a few environments and returns their rings, with terminal states and cuts in turn, and a stride.

    agent: with its acting jitted, for SLOTS rows.
    """
    random = np.random.default_rng(0)
    version = sources.Stored((), np.dtype(np.int32))
    versions = {ring_store.VERSION: version, ring_store.TARGET_VERSION: version}
    stride = agent.data.stride if isinstance(agent.data, sources.Replay) else 1
    step = stride if stride > 1 else 3
    num_rows = max(ROWS, 2 * step + sources.num_positions(agent.data) + 2)
    length = ring_store.slot_length(num_rows, 1, agent.num_kept, agent.ring_multiple)
    rings = ring_store.create(spec, {**agent.stored, **versions}, SLOTS, length)
    carried, slot = acting.initial(agent, spec, SLOTS), jnp.arange(SLOTS, dtype=jnp.int32)

    @jax.jit
    def write(rings: Any, seen: batches.Batch, final: tuple[jax.Array, jax.Array], stored: Any) -> Any:
        stored = {**stored, **dict.fromkeys(versions, jnp.zeros(SLOTS, jnp.int32))}
        row = ring_store.Row(seen.observation, seen.reward, *final, seen.first, stored)
        return ring_store.write(rings, slot, row, jnp.int32(0), agent.num_kept)

    for t in range(num_rows):
        place = (t + np.arange(SLOTS)) % EPISODE
        first, final = (place == 0) | (t == 0), place == EPISODE - 1
        is_truncated = (np.arange(SLOTS) + t // EPISODE) % 2 == 0
        shown = _observations(random, spec)  # as a worker sends them
        seen = batches.Batch(
            observation=jnp.asarray(packing.pack(spec.packed, shown) if spec.packed else shown[types.OBSERVATION]),
            reward=jnp.asarray(np.where(first, 0, random.normal(size=SLOTS)), jnp.float32),
            first=jnp.asarray(first),
            action_mask=_masks(random, spec),
            action_mode=jnp.full(SLOTS, types.EXPLORE),
            slot=slot,
        )
        ends = (jnp.asarray(final & ~is_truncated), jnp.asarray(final & is_truncated))
        carried, outputs = acting.act(agent, spec, SLOTS, params, carried, seen, jax.random.key(t))
        rings = write(rings, seen, ends, dict(outputs.stored))
    return rings, step


def _windows(agent: base.Agent, spec: types.EnvSpec, rings: ring_store.Rings, step: int) -> windowing.Windows:
    """Returns one window of each slot, where no episode ends at the first rows."""
    slot, time = jnp.arange(SLOTS, dtype=jnp.int32), jnp.full(SLOTS, step, jnp.int32).at[3].set(2 * step)
    begun = jax.jit(lambda rings: windowing.from_data(rings, slot, time, agent.data, agent.stack))(rings)
    found: windowing.Windows = jax.jit(lambda rings, begun: windowing.read(rings, begun, spec.packed))(rings, begun)
    return found


# Checks -------------------------------------------------------------------------------------------------------------


def layout(tree: Any) -> Any:
    """Returns the shapes and dtypes of a tree."""
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def equal(a: Any, b: Any) -> bool:
    """Returns whether two trees have the same leaves, bit for bit."""
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def _hold(holds: Any, *came: Any) -> None:
    if not holds:
        raise AssertionError(f"came {came[0]!r}; expected {came[1]!r}" if came else "it does not hold")


def _same(came: Any, expected: Any) -> None:
    _hold(came == expected, came, expected)


def _finite(tree: Any) -> None:
    _hold(all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree)))


def _acting_and_data_are_as_declared(case: AgentCase) -> None:
    _same(own.mismatch(case.config, case.agent), None)
    memory, outputs = case.step(case.inputs())
    _same(layout(dict(outputs.stored)), {name: ((SLOTS, *x.shape), x.dtype) for name, x in case.agent.stored.items()})
    dtype = np.dtype(np.float32 if case.spec.is_continuous else np.int32)
    _same(layout(outputs.action), ((SLOTS, *case.spec.action_shape), dtype))
    _hold(not {ring_store.VERSION, ring_store.TARGET_VERSION} & set(case.agent.stored))
    _hold(outputs.priority is None or outputs.priority.shape == (SLOTS,))
    before = case.agent.initial_memory(SLOTS)
    _same(jax.tree.structure(before), jax.tree.structure(memory))
    _same(layout(before), layout(memory))
    _hold(all(len(leaf) == SLOTS for leaf in jax.tree.leaves(before)))


def _greedy_actions_depend_on_the_inputs_alone(case: AgentCase) -> None:
    inputs = case.inputs(action_mode=jnp.full(SLOTS, types.GREEDY))
    expected = case.action(inputs)
    for seed in range(1, 4):
        np.testing.assert_array_equal(case.action(inputs, seed), expected)
    # Rows do not see each other; `_rows_of_all_modes_mix_in_one_batch` adds: nor which of them explore.
    rows = ("observation", "action_mask", "first")
    turned = inputs._replace(**{name: jax.tree.map(lambda x: x[::-1], getattr(inputs, name)) for name in rows})
    np.testing.assert_array_equal(case.action(turned)[::-1], expected)


def _rows_of_all_modes_mix_in_one_batch(case: AgentCase) -> None:
    inputs, modes = case.inputs(), (types.GREEDY, types.SAMPLE, types.EXPLORE)
    for seed in range(4):
        alike = np.stack([case.action(inputs._replace(action_mode=jnp.full(SLOTS, mode)), seed) for mode in modes])
        for turn in range(3):
            mixed = (np.arange(SLOTS, dtype=np.int8) + turn) % 3
            shown = inputs._replace(action_mode=jnp.asarray(mixed))
            np.testing.assert_array_equal(case.action(shown, seed), alike[mixed, np.arange(SLOTS)])
        if case.agent.policy is not None:
            np.testing.assert_array_equal(alike[types.SAMPLE], alike[types.EXPLORE])
        if not case.agent.has_policy:
            np.testing.assert_array_equal(alike[types.SAMPLE], alike[types.GREEDY])


def _an_agent_with_a_policy_draws_and_training_explores(case: AgentCase) -> None:
    inputs = case.inputs(action_mode=jnp.full(SLOTS, types.SAMPLE))
    drawn = [case.action(inputs, seed) for seed in range(8)]
    _same(len(np.unique(drawn, axis=0)) > 1, case.agent.has_policy)
    _hold(len(np.unique([case.action(case.inputs(), seed) for seed in range(40)], axis=0)) > 3)


def _a_policy_has_the_probabilities_of_samples_and_its_best_action_is_greedy(case: AgentCase) -> None:
    if case.agent.policy is None:
        return
    memory, _ = case.step(case.inputs(1))  # of an LSTM, which are no longer zeros
    inputs = case.inputs(action_mode=jnp.full(SLOTS, types.SAMPLE))
    policy = np.asarray(jax.jit(case.agent.policy)(case.params, memory, inputs))
    _same(layout(policy), ((SLOTS, case.spec.num_actions), np.dtype(np.float32)))
    np.testing.assert_allclose(policy.sum(axis=-1), 1.0, rtol=1e-6)
    _hold(np.all(policy[~np.asarray(inputs.action_mask)] == 0))
    greedy = inputs._replace(action_mode=jnp.full(SLOTS, types.GREEDY))
    _, outputs = case.act(case.params, memory, greedy, jax.random.key(0))
    np.testing.assert_array_equal(outputs.action, policy.argmax(axis=-1))
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = jax.vmap(lambda key: case.agent.act(case.params, memory, inputs, key)[1].action)
    shares = np.mean(np.asarray(jax.jit(draw)(keys))[:, :, None] == np.arange(case.spec.num_actions), axis=0)
    np.testing.assert_allclose(shares, policy, atol=0.04)  # five deviations


def _actions_are_legal_or_within_the_bounds(case: AgentCase) -> None:
    memory = case.agent.initial_memory(SLOTS)
    for seed in range(12):
        modes = jnp.where(jnp.arange(SLOTS) < 5, types.EXPLORE, types.GREEDY)
        inputs = case.inputs(seed, action_mode=modes)
        memory, outputs = case.act(case.params, memory, inputs, jax.random.key(seed))
        action = np.asarray(outputs.action)
        if case.spec.is_continuous:
            low, high = case.spec.action_bounds
            _hold(np.all((low <= action) & (action <= high)), action, (low, high))
        else:
            _hold(np.asarray(inputs.action_mask)[np.arange(SLOTS), action].all(), action, inputs.action_mask)


def _padding_rows_are_finite_and_disturb_no_other(case: AgentCase) -> None:
    inputs = case.inputs(action_mode=jnp.full(SLOTS, types.GREEDY))
    is_padding = np.arange(SLOTS) >= 5

    def pad(x: jax.Array, value: float) -> jax.Array:
        return jnp.where(is_padding.reshape(-1, *[1] * (x.ndim - 1)), jnp.asarray(value, x.dtype), x)

    padded = inputs._replace(
        observation=jax.tree.map(lambda x: pad(x, 0), inputs.observation),
        reward=pad(inputs.reward, 0),
        first=pad(inputs.first, True),
        action_mask=pad(inputs.action_mask, True),
        slot=pad(inputs.slot, 2**20),
    )
    after, outputs = case.step(padded)
    _finite((after, outputs.action, outputs.stored))
    np.testing.assert_array_equal(outputs.action[:5], case.action(inputs)[:5])


def _an_update_on_its_own_data_is_finite_counts_and_repeats(case: AgentCase) -> None:
    state, priority, metrics = case.update(case.state, case.windows, jax.random.key(1))
    _hold({"loss", "grad_norm", "num_rejected"} <= set(metrics), sorted(metrics), "loss, grad_norm, num_rejected")
    _hold(all(layout(x) == ((), np.dtype(np.float32)) for x in metrics.values()), layout(metrics), "float32 scalars")
    _finite((metrics, state))
    _same((int(state.num_updates), int(state.num_rejected), float(metrics["num_rejected"])), (1, 0, 0.0))
    _hold(float(metrics["grad_norm"]) > 0 and not equal(state.params, case.state.params))
    _same(layout(state), layout(case.state))
    if priority is not None:
        _same(layout(priority), ((SLOTS,), np.dtype(np.float32)))
        _hold(np.all(np.asarray(priority) >= 0))
    is_prioritized = isinstance(case.agent.data, sources.Replay) and case.agent.data.prioritization is not None
    _hold(priority is not None or not is_prioritized)
    _hold(equal(case.update(case.state, case.windows, jax.random.key(1))[0], state))


def _an_update_that_is_not_finite_changes_nothing_that_learns_and_is_counted(case: AgentCase) -> None:
    broken = case.windows._replace(reward=case.windows.reward.at[0, 1].set(jnp.nan))
    state, _, metrics = case.update(case.state, broken, jax.random.key(1))
    for name in set(state._fields) - _NOT_LEARNED:
        _hold(equal(getattr(state, name), getattr(case.state, name)), f"another {name}", "that of before")
    _same((int(state.num_updates), int(state.num_rejected), float(metrics["num_rejected"])), (1, 1, 1.0))
    state, _, _ = case.update(state, broken, jax.random.key(2))
    _same((int(state.num_updates), int(state.num_rejected)), (2, 2))
    state, _, _ = case.update(state, case.windows, jax.random.key(3))
    _same((int(state.num_updates), int(state.num_rejected)), (3, 0))
    _hold(not equal(state.params, case.state.params))


def _windows_of_weight_0_do_not_count(case: AgentCase) -> None:
    half = SLOTS // 2
    windows = case.windows._replace(weight=jnp.repeat(jnp.array([2.0, 0.0]), half))
    other = jax.tree.map(lambda x: x.at[half:].set(x[:half]), windows)._replace(weight=windows.weight)
    states = [case.update(case.state, each, jax.random.key(1))[0] for each in (windows, other)]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), *(s.params for s in states))
    _hold(not equal(case.update(case.state, case.windows, jax.random.key(1))[0].params, states[0].params))


def _the_acting_parameters_follow_the_updates(case: AgentCase) -> None:
    after = case.agent.acting(case.update(case.state, case.windows, jax.random.key(1))[0])
    _same(layout(case.params), layout(after))
    _hold(not equal(case.params, after))
    _finite(case.act(after, case.agent.initial_memory(SLOTS), case.inputs(), jax.random.key(0))[1].stored)
    # A resume asks for these with shapes alone.
    _same(layout(case.agent.acting(jax.eval_shape(case.agent.init, jax.random.key(0)))), layout(case.params))


def _two_seeds_differ_and_one_repeats(case: AgentCase) -> None:
    init = jax.jit(case.agent.init)
    _hold(equal(init(jax.random.key(0)), case.state))
    other = init(jax.random.key(1))
    _hold(not equal(other.params, case.state.params))
    _same(layout(other), layout(case.state))


def _a_resume_goes_on_bit_for_bit(case: AgentCase) -> None:
    state, _, _ = case.update(case.state, case.windows, jax.random.key(1))
    with tempfile.TemporaryDirectory() as directory:
        saved = pathlib.Path(directory) / "state"
        trees.save(saved, trees.copy(state))
        restored = trees.place(trees.load(saved, trees.describe(case.state)), state)
    _hold(equal(restored, state))
    on_host = jax.tree.map(np.asarray, restored)  # not bound to a device, which would be another program to compile
    ways = [case.update(each, case.windows, jax.random.key(2))[0] for each in (state, on_host)]
    _hold(equal(*ways))


def _a_reanalyse_renews_stored_arrays(case: AgentCase) -> None:
    reanalyse = case.agent.reanalyse
    if reanalyse is None:
        return
    _hold(reanalyse.observe[0] == 0 and reanalyse.observe[-1] < reanalyse.length)
    observation = jax.tree.map(lambda x: x[:, : len(reanalyse.observe)], case.windows.observation)
    part = case.windows._replace(observation=observation)
    fresh, changes = jax.jit(reanalyse.compute)(case.params, part, jax.random.key(0))
    declared = {name: ((SLOTS, *x.shape), x.dtype) for name, x in case.agent.stored.items() if name in fresh}
    _same(layout(fresh), declared)
    _hold(all(change.shape == (SLOTS,) for change in changes.values()))
    _finite((fresh, changes))


CHECKS: Mapping[str, Callable[[AgentCase], None]] = {
    check.__name__.replace("_", " ").strip(): check
    for check in (
        _acting_and_data_are_as_declared,
        _greedy_actions_depend_on_the_inputs_alone,
        _rows_of_all_modes_mix_in_one_batch,
        _an_agent_with_a_policy_draws_and_training_explores,
        _a_policy_has_the_probabilities_of_samples_and_its_best_action_is_greedy,
        _actions_are_legal_or_within_the_bounds,
        _padding_rows_are_finite_and_disturb_no_other,
        _an_update_on_its_own_data_is_finite_counts_and_repeats,
        _an_update_that_is_not_finite_changes_nothing_that_learns_and_is_counted,
        _windows_of_weight_0_do_not_count,
        _the_acting_parameters_follow_the_updates,
        _two_seeds_differ_and_one_repeats,
        _a_resume_goes_on_bit_for_bit,
        _a_reanalyse_renews_stored_arrays,
    )
}
"""The promises by name."""
