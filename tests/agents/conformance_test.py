"""The agent interface, as every agent of the table keeps it: shapes, determinism, masks, updates, refusals."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.agents import table as agents
from seedzero.config import config as configs
from seedzero.config import options
from seedzero.core import errors, packing, types
from seedzero.device import acting
from seedzero.networks import inputs as network_inputs
from seedzero.ops import statistics
from seedzero.replay import data as sources
from seedzero.replay import rings as ring_store
from seedzero.replay import windows as windowing

_MUZERO: Mapping[str, options.Value] = {
    "run.agent": "muzero",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 3,
    "muzero.unroll_steps": 2,
    "muzero.n_step": 2,
}
_VTRACE: Mapping[str, options.Value] = {
    "run.agent": "vtrace",
    "vtrace.width": 8,
    "vtrace.unroll_length": 4,
    "vtrace.batch_size": 4,
}
_APEX: Mapping[str, options.Value] = {"run.agent": "apex", "apex.width": 8}
_R2D2: Mapping[str, options.Value] = {
    "run.agent": "r2d2",
    "r2d2.width": 8,
    "r2d2.lstm_width": 6,
    "r2d2.burn_in": 2,
    "r2d2.sequence_length": 4,
    "r2d2.period": 3,
    "r2d2.n_step": 2,
}
_PPO: Mapping[str, options.Value] = {
    "run.agent": "ppo",
    "ppo.width": 8,
    "ppo.unroll_length": 4,
    "ppo.batch_size": 4,
    "ppo.num_epochs": 2,
}
_SAC: Mapping[str, options.Value] = {"run.agent": "sac", "sac.width": 8}
VARIANTS: Mapping[str, Mapping[str, options.Value]] = {
    "muzero": _MUZERO,
    "muzero with everything": {
        **_MUZERO,
        "network.frame_stack": 3,
        "network.normalize_pixels": True,
        "muzero.target_network_updates": 5,
        "muzero.consistency_weight": 1.0,
        "muzero.value_prefix": True,
        "explore.epsilon": 0.3,
        "explore.first_steps": 6,
        "reanalyse.per_insert": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "muzero with a policy gradient": {**_MUZERO, "muzero.policy_gradient_weight": 0.5},
    "vtrace": _VTRACE,
    "vtrace with everything": {
        **_VTRACE,
        "vtrace.frame_stack": 3,
        "vtrace.normalize_pixels": True,
        "vtrace.lstm_width": 6,
        "vtrace.clip_reward": 1.0,
        "vtrace.popart": True,
    },
    "apex": _APEX,
    "apex with everything": {
        **_APEX,
        "apex.frame_stack": 3,
        "apex.normalize_pixels": True,
        "apex.rescale_values": True,
        "apex.clip_reward": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "r2d2": _R2D2,
    "r2d2 with everything": {
        **_R2D2,
        "r2d2.frame_stack": 3,
        "r2d2.normalize_pixels": True,
        "r2d2.clip_reward": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "ppo": _PPO,
    "ppo with everything": {
        **_PPO,
        "ppo.frame_stack": 3,
        "ppo.normalize_pixels": True,
        "ppo.lstm_width": 6,
        "ppo.clip_value": 0.2,
        "ppo.clip_reward": 1.0,
        "ppo.decay_updates": 100,
        "ppo.decay_clip": True,
    },
    "sac": _SAC,
    "sac with everything": {**_SAC, "sac.frame_stack": 3, "sac.clip_norm": 1.0},
}
"""Each agent at its plainest, and with all that changes the shapes of what it stores, carries or looks at."""
_ARRAYS = [types.ArraySpec("image", (4, 5, 1), "uint8", 0, 1), types.ArraySpec("vector", (3,), "float32")]
_TEXT = types.ArraySpec("text", (12,), "uint8", 0, 255, text=True)
_VECTORS: Mapping[str, tuple[float, ...]] = {"action_low": (-2.0, 0.0), "action_high": (2.0, 1.0)}
SPECS: Mapping[str, types.EnvSpec] = {
    "vector": types.EnvSpec((3,), "float32", 4),
    "image and vector": types.EnvSpec.of_arrays(_ARRAYS, num_actions=3),
    "text": types.EnvSpec.of_arrays([*_ARRAYS, _TEXT], num_actions=3),
    "masked": types.EnvSpec((3,), "float32", 4, has_action_mask=True),
    "continuous": types.EnvSpec((3,), "float32", 0, **_VECTORS),
    "image and vector, continuous": types.EnvSpec.of_arrays(_ARRAYS, num_actions=0, **_VECTORS),
}
_SPECS_OF = {
    "vtrace with everything": ("text",),
    "ppo": ("masked", "continuous"),
    "ppo with everything": ("text",),
    "sac": ("continuous",),
    "sac with everything": ("image and vector, continuous",),
}
"""Sampled MuZero has tests of its own: `sampled_test.py`."""
CASES = [
    pytest.param(variant, spec, id=f"{variant}, {spec}")
    for variant in VARIANTS
    for spec in _SPECS_OF.get(variant, ("image and vector",) if variant.endswith("everything") else ("masked",))
]
"""Each agent at its plainest sees vectors with a mask; with everything it sees images beside vectors, and no mask."""
SLOTS, ROWS, EPISODE = 8, 24, 7

every_case = pytest.mark.parametrize(("variant", "spec_name"), CASES)


class _Case(NamedTuple):
    """An agent, its functions jitted, its first state, and windows of its own play."""

    spec: types.EnvSpec
    agent: base.Agent
    act: Any
    update: Any
    state: base.TrainState
    windows: windowing.Windows


def _config(variant: str) -> configs.Config:
    return configs.override(configs.Config(), VARIANTS[variant])


@functools.cache
def _case(variant: str, spec_name: str) -> _Case:
    spec = SPECS[spec_name]
    agent = agents.make(_config(variant), spec, "cpu")
    state = jax.jit(agent.init)(jax.random.key(0))
    act = jax.jit(agent.act)
    windows = _windows(agent, spec, _play(agent._replace(act=act), spec, agent.acting(state)))
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))
    return _Case(spec, agent, act, update, state, windows)


def _masks(random: np.random.Generator, spec: types.EnvSpec, size: int) -> jax.Array:
    """Returns masks [B, A] with one to all actions legal; all of them where the spec has no mask."""
    if spec.is_continuous:
        return jnp.ones((size, 0), bool)
    mask = random.random((size, spec.num_actions)) < 0.5
    mask[np.arange(size), random.integers(0, spec.num_actions, size)] = True
    return jnp.asarray(mask | (not spec.has_action_mask))


def _observations(
    random: np.random.Generator, spec: types.EnvSpec, size: int, stack: int = 1
) -> dict[str, np.ndarray]:
    found = {}
    for array in spec.arrays:
        shape = (size, *array.shape[:-1], array.shape[-1] * stack)
        numbers = random.normal(size=shape) if array.dtype == "float32" else random.integers(0, 2, shape)
        found[array.name] = numbers.astype(array.dtype)
    return found


def _frame(random: np.random.Generator, spec: types.EnvSpec) -> jax.Array:
    """Returns observations as a worker sends them."""
    shown = _observations(random, spec, SLOTS)
    return jnp.asarray(packing.pack(spec.packed, shown) if spec.packed else shown[types.OBSERVATION])


def _play(agent: base.Agent, spec: types.EnvSpec, params: base.Params) -> ring_store.Rings:
    """Returns the rings of a few environments whose episodes end in turn by a terminal state and a cut.

    agent: with its acting jitted, for SLOTS rows.
    """
    random = np.random.default_rng(0)
    version = sources.Stored((), np.dtype(np.int32))
    versions = {ring_store.VERSION: version, ring_store.TARGET_VERSION: version}
    stride = agent.data.stride if isinstance(agent.data, sources.Replay) else 1
    length = ring_store.slot_length(ROWS, 1, agent.stack, stride)
    rings = ring_store.create(spec, {**agent.stored, **versions}, SLOTS, length)
    carried, slot = acting.initial(agent, spec, SLOTS), jnp.arange(SLOTS, dtype=jnp.int32)

    @jax.jit
    def write(rings: Any, seen: acting.Seen, final: tuple[jax.Array, jax.Array], stored: Any) -> Any:
        stored = {**stored, **dict.fromkeys(versions, jnp.zeros(SLOTS, jnp.int32))}
        row = ring_store.Row(seen.frame, seen.reward, *final, seen.first, stored)
        return ring_store.write(rings, slot, row, jnp.int32(0), agent.stack)

    for t in range(ROWS):
        place = (t + np.arange(SLOTS)) % EPISODE
        first, final = (place == 0) | (t == 0), place == EPISODE - 1
        is_truncated = (np.arange(SLOTS) + t // EPISODE) % 2 == 0
        seen = acting.Seen(
            frame=_frame(random, spec),
            reward=jnp.asarray(np.where(first, 0, random.normal(size=SLOTS)), jnp.float32),
            first=jnp.asarray(first),
            action_mask=_masks(random, spec, SLOTS),
            explore=jnp.full(SLOTS, types.EXPLORE),
            slot=slot,
        )
        ends = (jnp.asarray(final & ~is_truncated), jnp.asarray(final & is_truncated))
        carried, outputs = acting.act(agent, spec, SLOTS, params, carried, seen, jax.random.key(t))
        rings = write(rings, seen, ends, dict(outputs.stored))
    return rings


def _windows(agent: base.Agent, spec: types.EnvSpec, rings: ring_store.Rings) -> windowing.Windows:
    """Returns one window of each slot; they begin at the fourth row, where no episode ends."""
    slot, time = jnp.arange(SLOTS, dtype=jnp.int32), jnp.full(SLOTS, 3, jnp.int32).at[3].set(6)

    @jax.jit
    def read(rings: ring_store.Rings) -> windowing.Windows:
        windows = windowing.from_data(rings, slot, time, agent.data, agent.stack)
        return windowing.read(rings, windows, spec.packed)

    return read(rings)


def _inputs(case: _Case, size: int, seed: int = 0, **changes: Any) -> base.Inputs:
    random = np.random.default_rng(seed)
    observation = _observations(random, case.spec, size, case.agent.stack)
    usual = {"action_mask": _masks(random, case.spec, size), "first": jnp.asarray(random.random(size) < 0.3)}
    return agent_cases.inputs(observation, case.spec.num_actions, **{**usual, **changes})


def _layout(tree: Any) -> Any:
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def _assert_finite(tree: Any) -> None:
    for leaf in jax.tree.leaves(tree):
        assert np.all(np.isfinite(leaf))


def test_every_agent_of_the_table_is_here() -> None:
    assert {str(values["run.agent"]) for values in VARIANTS.values()} == set(agents.AGENTS)
    assert set(agents.AGENTS) == set(configs.agent_names())


# Acting -------------------------------------------------------------------------------------------------------------


@every_case
def test_acting_stores_what_the_agent_declares(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    params = case.agent.acting(case.state)
    _, outputs = case.act(params, case.agent.initial_memory(SLOTS), _inputs(case, SLOTS), jax.random.key(0))
    expected = {name: ((8, *kept.shape), kept.dtype) for name, kept in case.agent.stored.items()}
    assert _layout(dict(outputs.stored)) == expected
    dtype = jnp.float32 if case.spec.is_continuous else jnp.int32
    assert _layout(outputs.action) == ((8, *case.spec.action_shape), dtype)
    assert not {ring_store.VERSION, ring_store.TARGET_VERSION} & set(case.agent.stored)
    if outputs.priority is not None:
        assert outputs.priority.shape == (8,)


@every_case
def test_memory_keeps_its_shapes_and_has_one_row_for_each_environment(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    before = case.agent.initial_memory(SLOTS)
    after, _ = case.act(case.agent.acting(case.state), before, _inputs(case, SLOTS), jax.random.key(0))
    assert jax.tree.structure(before) == jax.tree.structure(after)
    assert _layout(before) == _layout(after)
    assert all(len(leaf) == 8 for leaf in jax.tree.leaves(before))


@every_case
def test_greedy_actions_depend_on_the_inputs_alone(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    params, memory = case.agent.acting(case.state), case.agent.initial_memory(SLOTS)
    inputs = _inputs(case, SLOTS, explore=jnp.zeros(8, bool))
    actions = [case.act(params, memory, inputs, jax.random.key(seed))[1].action for seed in range(4)]
    for other in actions[1:]:
        np.testing.assert_array_equal(other, actions[0])
    # Rows don't see each other, nor which of them explore.
    mixed = inputs._replace(explore=jnp.tile(jnp.array([types.EXPLORE, types.GREEDY]), 4))
    np.testing.assert_array_equal(case.act(params, memory, mixed, jax.random.key(9))[1].action[1::2], actions[0][1::2])
    rows = ("observation", "action_mask", "first")
    turned = inputs._replace(**{name: jax.tree.map(lambda x: x[::-1], getattr(inputs, name)) for name in rows})
    np.testing.assert_array_equal(case.act(params, memory, turned, jax.random.key(0))[1].action[::-1], actions[0])


@every_case
def test_rows_of_all_modes_mix_in_one_batch(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    params, memory = case.agent.acting(case.state), case.agent.initial_memory(SLOTS)
    inputs, modes = _inputs(case, SLOTS), (types.GREEDY, types.SAMPLE, types.EXPLORE)

    def act(explore: np.ndarray, seed: int) -> np.ndarray:
        shown = inputs._replace(explore=jnp.asarray(explore))
        return np.asarray(case.act(params, memory, shown, jax.random.key(seed))[1].action)

    for seed in range(4):
        alike = np.stack([act(np.full(SLOTS, mode), seed) for mode in modes])
        for turn in range(3):
            mixed = (np.arange(SLOTS, dtype=np.int8) + turn) % 3
            np.testing.assert_array_equal(act(mixed, seed), alike[mixed, np.arange(SLOTS)])
        if case.agent.policy is not None:
            np.testing.assert_array_equal(alike[types.SAMPLE], alike[types.EXPLORE])
        if not case.agent.has_policy:
            np.testing.assert_array_equal(alike[types.SAMPLE], alike[types.GREEDY])


@every_case
def test_actions_are_drawn_by_an_agent_with_a_policy_alone(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    params, memory = case.agent.acting(case.state), case.agent.initial_memory(SLOTS)
    inputs = _inputs(case, SLOTS, explore=jnp.full(SLOTS, types.SAMPLE))
    actions = [np.asarray(case.act(params, memory, inputs, jax.random.key(seed))[1].action) for seed in range(8)]
    assert (len(np.unique(actions, axis=0)) > 1) == case.agent.has_policy


@every_case
def test_a_policy_has_the_probabilities_of_samples_and_its_best_action_is_greedy(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    actor_critic = variant.startswith(("vtrace", "ppo")) and not case.spec.is_continuous
    assert (case.agent.policy is not None) == actor_critic
    if case.agent.policy is None:
        return
    params, memory = case.agent.acting(case.state), case.agent.initial_memory(SLOTS)
    memory, _ = case.act(params, memory, _inputs(case, SLOTS, 1), jax.random.key(0))  # of an LSTM, no longer zeros
    inputs = _inputs(case, SLOTS, explore=jnp.full(SLOTS, types.SAMPLE))
    policy = np.asarray(jax.jit(case.agent.policy)(params, memory, inputs))
    assert _layout(policy) == ((SLOTS, case.spec.num_actions), np.float32)
    np.testing.assert_allclose(policy.sum(axis=-1), 1.0, rtol=1e-6)
    assert np.all(policy[~np.asarray(inputs.action_mask)] == 0)
    greedy = inputs._replace(explore=jnp.full(SLOTS, types.GREEDY))
    _, outputs = case.act(params, memory, greedy, jax.random.key(0))
    np.testing.assert_array_equal(outputs.action, policy.argmax(axis=-1))
    keys = jax.random.split(jax.random.key(0), 4000)
    actions = np.asarray(jax.jit(jax.vmap(lambda key: case.agent.act(params, memory, inputs, key)[1].action))(keys))
    shares = np.mean(actions[:, :, None] == np.arange(case.spec.num_actions), axis=0)
    np.testing.assert_allclose(shares, policy, atol=0.04)  # five deviations


@every_case
def test_training_explores(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    inputs = _inputs(case, SLOTS)
    params, memory = case.agent.acting(case.state), case.agent.initial_memory(SLOTS)
    actions = np.stack([case.act(params, memory, inputs, jax.random.key(seed))[1].action for seed in range(40)])
    assert len(np.unique(actions, axis=0)) > 3


@every_case
def test_only_actions_that_are_legal_or_within_the_bounds_are_chosen(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    params, memory = case.agent.acting(case.state), case.agent.initial_memory(SLOTS)
    for seed in range(12):
        inputs = _inputs(case, SLOTS, seed, explore=jnp.arange(8) < 5)
        memory, outputs = case.act(params, memory, inputs, jax.random.key(seed))
        action = np.asarray(outputs.action)
        if case.spec.is_continuous:
            low, high = case.spec.action_bounds
            assert np.all((low <= action) & (action <= high))
        else:
            assert np.asarray(inputs.action_mask)[np.arange(8), action].all()


@every_case
def test_padding_rows_are_finite_and_disturb_no_other(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    params, memory = case.agent.acting(case.state), case.agent.initial_memory(SLOTS)
    inputs = _inputs(case, SLOTS, explore=jnp.zeros(8, bool))
    is_padding = np.arange(8) >= 5

    def pad(x: jax.Array, value: float) -> jax.Array:
        return jnp.where(is_padding.reshape(-1, *[1] * (x.ndim - 1)), jnp.asarray(value, x.dtype), x)

    padded = inputs._replace(
        observation=jax.tree.map(lambda x: pad(x, 0), inputs.observation),
        reward=pad(inputs.reward, 0),
        first=pad(inputs.first, True),
        action_mask=pad(inputs.action_mask, True),
        slot=pad(inputs.slot, 2**20),
    )
    after, outputs = case.act(params, memory, padded, jax.random.key(0))
    _assert_finite((after, outputs.action, outputs.stored))
    expected = case.act(params, memory, inputs, jax.random.key(0))[1].action
    np.testing.assert_array_equal(outputs.action[:5], expected[:5])


# Learning -----------------------------------------------------------------------------------------------------------


@every_case
def test_an_update_on_the_agents_own_data_is_finite_and_counts(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    state, priority, metrics = case.update(case.state, case.windows, jax.random.key(1))
    assert {"loss", "grad_norm", "num_rejected"} <= set(metrics)
    assert all(layout == ((), jnp.float32) for layout in map(_layout, metrics.values()))
    _assert_finite((metrics, state))
    assert (int(state.num_updates), int(state.num_rejected), float(metrics["num_rejected"])) == (1, 0, 0.0)
    assert float(metrics["grad_norm"]) > 0
    assert not agent_cases.equal(state.params, case.state.params)
    assert _layout(state) == _layout(case.state)
    if priority is not None:
        assert _layout(priority) == ((SLOTS,), jnp.float32)
        assert np.all(priority >= 0)
    is_prioritized = isinstance(case.agent.data, sources.Replay) and case.agent.data.prioritization is not None
    assert priority is not None or not is_prioritized
    again, _, _ = case.update(case.state, case.windows, jax.random.key(1))
    assert agent_cases.equal(again, state)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name.endswith("everything") and "sac" not in name])
def test_an_update_counts_the_pixels_that_it_saw(variant: str) -> None:
    case = _case(variant, "text" if variant.startswith(("vtrace", "ppo")) else "image and vector")

    def of_image(state: Any) -> statistics.Moments:
        found = getattr(state, "moments", None) or state.params[network_inputs.MOMENTS]
        moments: statistics.Moments = found["image"]
        return moments

    assert float(of_image(case.state).weight) == 0
    state, _, _ = case.update(case.state, case.windows, jax.random.key(1))
    moments = of_image(state)
    assert float(moments.weight) >= SLOTS
    assert np.any(moments.mean > 0) and np.all(moments.variance <= 0.25)  # of numbers 0 and 1


@every_case
def test_an_update_that_is_not_finite_changes_nothing_that_learns_and_is_counted(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    broken = case.windows._replace(reward=case.windows.reward.at[0, 1].set(jnp.nan))
    state, _, metrics = case.update(case.state, broken, jax.random.key(1))
    # Target networks may go on towards the parameters.
    for name in set(state._fields) - {"target_params", "num_updates", "num_rejected"}:
        assert agent_cases.equal(getattr(state, name), getattr(case.state, name)), name
    assert (int(state.num_updates), int(state.num_rejected), float(metrics["num_rejected"])) == (1, 1, 1.0)
    state, _, _ = case.update(state, broken, jax.random.key(2))
    assert (int(state.num_updates), int(state.num_rejected)) == (2, 2)
    state, _, _ = case.update(state, case.windows, jax.random.key(3))
    assert (int(state.num_updates), int(state.num_rejected)) == (3, 0)
    assert not agent_cases.equal(state.params, case.state.params)


@every_case
def test_windows_of_weight_0_do_not_count(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    windows = case.windows._replace(weight=jnp.repeat(jnp.array([2.0, 0.0]), SLOTS // 2))
    half = SLOTS // 2
    other = jax.tree.map(lambda x: np.concatenate([np.asarray(x)[:half]] * 2), windows)._replace(weight=windows.weight)
    states = [case.update(case.state, each, jax.random.key(1))[0] for each in (windows, other)]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), *(s.params for s in states))
    whole, _, _ = case.update(case.state, case.windows, jax.random.key(1))
    assert not agent_cases.equal(whole.params, states[0].params)


@every_case
def test_the_acting_parameters_follow_the_updates(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    state, _, _ = case.update(case.state, case.windows, jax.random.key(1))
    before, after = case.agent.acting(case.state), case.agent.acting(state)
    assert _layout(before) == _layout(after)
    assert not agent_cases.equal(before, after)
    _, outputs = case.act(after, case.agent.initial_memory(SLOTS), _inputs(case, SLOTS), jax.random.key(0))
    _assert_finite(outputs.stored)
    # A resume asks for them of shapes alone.
    shapes = jax.eval_shape(case.agent.init, jax.random.key(0))
    assert _layout(case.agent.acting(shapes)) == _layout(before)


@every_case
def test_two_seeds_differ_and_one_repeats(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    init = jax.jit(case.agent.init)
    assert agent_cases.equal(init(jax.random.key(0)), case.state)
    other = init(jax.random.key(1))
    assert not agent_cases.equal(other.params, case.state.params)
    assert _layout(other) == _layout(case.state)


@every_case
def test_a_refresh_renews_stored_arrays(variant: str, spec_name: str) -> None:
    case = _case(variant, spec_name)
    refresh = case.agent.refresh
    assert (refresh is not None) == (_config(variant).reanalyse.per_insert > 0 and variant.startswith("muzero"))
    if refresh is None:
        return
    assert refresh.observe[0] == 0 and refresh.observe[-1] < refresh.length
    observation = jax.tree.map(lambda x: x[:, : len(refresh.observe)], case.windows.observation)
    part = case.windows._replace(observation=observation)
    compute = jax.jit(refresh.compute)
    fresh, changes = compute(case.agent.acting(case.state), part, jax.random.key(0))
    assert fresh
    for name, array in fresh.items():
        assert _layout(array) == ((SLOTS, *case.agent.stored[name].shape), case.agent.stored[name].dtype)
    assert all(change.shape == (SLOTS,) for change in changes.values())
    _assert_finite((fresh, changes))


# Environments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", agents.AGENTS)
@pytest.mark.parametrize(
    ("changes", "described"),
    [
        ({"num_players": 2}, "2 players"),
        ({"num_players": 3}, "3 players"),
        ({"num_actions": 0, "action_low": (-1.0,), "action_high": (1.0,)}, "continuous actions"),
        ({}, "discrete actions"),
    ],
    ids=["two players", "three players", "continuous", "discrete"],
)
def test_unsuitable_environments_are_refused_by_name_and_others_are_played(
    name: str, changes: dict[str, Any], described: str
) -> None:
    config = _config(name)
    spec = dataclasses.replace(SPECS["vector"], **changes)
    has_actions = config.agent.PLAYS_CONTINUOUS if spec.is_continuous else config.agent.PLAYS_DISCRETE
    if spec.num_players <= config.agent.MAX_PLAYERS and has_actions:
        agent = agents.make(config, spec, "cpu")
        state = jax.eval_shape(agent.init, jax.random.key(0))
        inputs = agent_cases.inputs(jnp.ones((8, 3)), spec.num_actions)
        memory, key = agent.initial_memory(SLOTS), jax.random.key(0)
        _, outputs = jax.eval_shape(agent.act, agent.acting(state), memory, inputs, key)
        assert outputs.action.shape == (8, *spec.action_shape)
        return
    with pytest.raises(errors.ConfigError, match=rf"agent {name} .*{described}"):
        agents.make(config, spec, "cpu")


def test_a_refusal_names_an_agent_that_can(said: golden.Said) -> None:
    two = dataclasses.replace(SPECS["vector"], num_players=2)
    with pytest.raises(errors.ConfigError, match=r"vtrace .*--env=\S+ .*--agent=muzero") as raised:
        agents.make(_config("vtrace"), two, "cpu")
    said(raised.value)
    three = dataclasses.replace(two, num_players=3)
    with pytest.raises(errors.ConfigError, match=r"muzero .* 3 players"):
        agents.make(_config("muzero"), three, "cpu")
