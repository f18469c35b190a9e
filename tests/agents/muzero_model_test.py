"""What acting and learning of MuZero share: numbers as logits, the discount's sign, extras, the optimizer."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases  # beside this file: see conftest.py
import numpy as np
import optax
import pytest

from seedzero.agents import base, muzero, muzero_loss, muzero_model, muzero_search
from seedzero.config import configs, shared
from seedzero.core import types
from seedzero.networks import actor_critic, observations
from seedzero.replay import ring_store, sources, windowing


@pytest.mark.parametrize(("num_players", "expected"), [(1, 0.5), (2, -0.5)])
def test_a_value_changes_its_sign_between_two_players(num_players: int, expected: float) -> None:
    parts = cases.hand_model(cases.make_config(reward__discount=0.5))
    parts = parts._replace(spec=dataclasses.replace(parts.spec, num_players=num_players))
    assert muzero_model.signed_discount(parts) == expected


@pytest.mark.thorough
def test_probabilities_stand_for_the_numbers_that_their_logits_mean() -> None:
    parts = cases.hand_model(cases.make_config())
    x = jnp.array([[-20.0, -1.0, 0.0], [0.3, 5.5, 20.0]])
    encoded = muzero_model.encode(parts, x)
    assert encoded.shape == (2, 3, 11)
    np.testing.assert_allclose(encoded.sum(axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_allclose(muzero_model.decode(parts, jnp.log(encoded + 1e-12)), x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("weight", "has_projection"), [(0.0, False), (1.0, True)])
@pytest.mark.parametrize("value_prefix", [False, True])
def test_the_network_has_the_extras_that_are_configured(
    weight: float, has_projection: bool, value_prefix: bool
) -> None:
    config = cases.make_config(muzero__consistency_weight=weight, muzero__value_prefix=value_prefix)
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    assert (parts.network.projection is not None, parts.network.prefix is not None) == (has_projection, value_prefix)
    params = jax.eval_shape(parts.network.init, jax.random.key(0))
    assert ("projector" in params) == has_projection


# The optimizer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, {0: 1.0, 10: 1.0, 1000: 1.0}),
        ("constant", 4, {0: 0.25, 1: 0.5, 3: 1.0, 4: 1.0}),
        ("cosine", 4, {0: 0.25, 4: 1.0, 54: 0.55, 104: 0.1, 500: 0.1}),
        ("cosine", 1, {0: 1.0, 1: 1.0, 51: 0.55}),
        ("exponential", 0, {0: 1.0, 100: 0.1, 200: 0.01}),
        ("exponential", 4, {0: 0.25, 3: 1.0, 4: 1.0, 104: 0.1}),
        ("linear", 0, {0: 1.0, 50: 0.55, 100: 0.1, 500: 0.1}),
        ("linear", 4, {0: 0.25, 4: 1.0, 54: 0.55, 104: 0.1}),
    ],
)
def test_the_learning_rate_follows_its_schedule(schedule: str, warmup: int, expected: dict[int, float]) -> None:
    config = shared.OptimizerConfig(
        learning_rate=2.0, schedule=schedule, warmup_updates=warmup, decay_updates=100, decay_rate=0.1
    )
    rate = jax.jit(muzero_model.make_schedule(config))
    for num_updates, share in expected.items():
        np.testing.assert_allclose(rate(num_updates), 2.0 * share, rtol=1e-5)


def test_the_optimizer_is_adamw_that_decays_kernels_only() -> None:
    config = shared.OptimizerConfig(learning_rate=0.1, clip_norm=0.0)
    params = {"kernel": jnp.array([[5000.0, -10_000.0]]), "bias": jnp.array([3.0, 4.0])}
    gradients = {"kernel": jnp.array([[0.3, 0.1]]), "bias": jnp.array([-0.2, 0.4])}
    optimizer = muzero_model.make_optimizer(config)
    directions, _ = optimizer.update(gradients, optimizer.init(params), params)
    # Adam's first direction is the gradient's sign; a kernel's 0.0001th part is added.
    np.testing.assert_allclose(directions["kernel"], [[1.0 + 0.5, 1.0 - 1.0]], atol=1e-5)
    np.testing.assert_allclose(directions["bias"], [-1.0, 1.0], atol=1e-5)


def test_gradients_are_clipped_to_the_global_norm() -> None:
    def moments(clip_norm: float) -> Any:
        optimizer = muzero_model.make_optimizer(shared.OptimizerConfig(clip_norm=clip_norm))
        params = {"w": jnp.zeros(2)}
        _, state = optimizer.update({"w": jnp.array([30.0, 40.0])}, optimizer.init(params), params)
        return optax.tree_utils.tree_get(state, "mu")["w"]

    # Adam's first moment is a tenth of the gradient; its norm 50 is cut to 5.
    np.testing.assert_allclose(moments(5.0), [0.3, 0.4], rtol=1e-5)
    np.testing.assert_allclose(moments(0.0), [3.0, 4.0], rtol=1e-5)


EVERY = 4
NUM_ROWS, LENGTH, BURN_IN = 40, 28, 5
FIRST = (0, 2, 9, 10, 26, 33)
"""Rows that begin an episode. One has a single row, another one more rows than a burn-in."""
SLOTS = 2


def make_config(memory: str = "lstm", **changes: Any) -> configs.Config:
    usual = dict(muzero__memory=memory, muzero__memory_width=6, muzero__burn_in=BURN_IN, search__gumbel_scale=0.0)
    return cases.make_config(**{**usual, **changes})


@functools.cache
def parts_of(config: configs.Config, spec: types.EnvSpec = cases.SPEC) -> muzero_model.Parts:
    return muzero_model.make_parts(config, spec, "cpu")


@functools.cache
def _first_params(config: configs.Config, spec: types.EnvSpec) -> Any:
    return jax.jit(functools.partial(muzero_model.init, parts_of(config, spec)))(jax.random.key(0))


@functools.cache
def params_of(config: configs.Config, seed: int, spec: types.EnvSpec = cases.SPEC) -> Any:
    """Parameters in which every layer matters, the last ones too; the statistics are those before the first update."""
    first = _first_params(config, spec)
    random = np.random.default_rng(seed)

    def draw(x: jax.Array) -> np.ndarray:
        return random.normal(0, 0.4, x.shape).astype(np.float32)

    counted = (observations.MOMENTS, muzero_model.REWARD_SIZE)
    return {name: tree if name in counted else jax.tree.map(draw, tree) for name, tree in first.items()}


class History(NamedTuple):
    """All rows of two environments, and the rings that hold the newest of them."""

    observation: np.ndarray  # [S, NUM_ROWS, 4]
    reward: np.ndarray  # [S, NUM_ROWS]
    first: np.ndarray  # [NUM_ROWS]
    action: np.ndarray  # [S, NUM_ROWS, ...] as stored
    state: np.ndarray  # [S, NUM_ROWS, N] before each row
    rings: ring_store.Rings


@functools.cache
def play(memory: str = "lstm", spec: types.EnvSpec = cases.SPEC) -> History:
    """Acts with the parameters of seed 1. Settings of learning change nothing here."""
    config = make_config(memory)
    agent, params = muzero.make(config, spec, "cpu"), params_of(config, 1, spec)
    random = np.random.default_rng(9)
    observation = random.normal(size=(SLOTS, NUM_ROWS, 4)).astype(np.float32)
    reward = random.normal(size=(SLOTS, NUM_ROWS)).astype(np.float32)
    first = np.isin(np.arange(NUM_ROWS), FIRST)
    version = sources.Stored((), np.dtype(np.int32))
    versions = {ring_store.VERSION: version, ring_store.TARGET_VERSION: version}
    rings = ring_store.create(spec, {**agent.stored, **versions}, SLOTS, LENGTH)
    memory, act, slot = agent.initial_memory(SLOTS), jax.jit(agent.act), jnp.arange(SLOTS, dtype=jnp.int32)
    write = jax.jit(lambda rings, row: ring_store.write(rings, slot, row, jnp.int32(0), agent.num_kept))
    actions, states = [], []
    for t in range(NUM_ROWS):
        begins = jnp.full(SLOTS, first[t])
        inputs = agent_cases.inputs(observation[:, t], reward=jnp.asarray(reward[:, t]), first=begins)
        memory, outputs = act(params, memory, inputs, jax.random.key(t))
        stored = {**outputs.stored, **dict.fromkeys(versions, jnp.zeros(SLOTS, jnp.int32))}
        actions.append(outputs.stored["action"])
        states.append(outputs.stored[muzero_model.STATE])
        final = jnp.full(SLOTS, t + 1 < NUM_ROWS and first[t + 1])
        row = ring_store.Row(observation[:, t], reward[:, t], final, jnp.zeros_like(final), begins, stored)
        rings = write(rings, row)
    return History(observation, reward, first, np.stack(actions, 1), np.stack(states, 1), rings)


def hidden_by_loop(
    parts: muzero_model.Parts, params: Any, played: History, slot: int, start: int, state: Any, end: int
) -> tuple[jax.Array, jax.Array]:
    """Returns the hidden state [...] of row `end`, and the core's behind it, row by row from `start` on."""
    network = parts.network.memory
    assert network is not None
    step, state = jax.jit(network.unroll), np.asarray(state)[None]
    for t in range(start, end + 1):
        if played.first[t]:
            state = np.zeros(state.shape, np.float32)
        before = played.action[slot, max(t - 1, 0)]
        steps = actor_critic.Steps(
            {types.OBSERVATION: played.observation[slot, t][None, None]},
            np.asarray(played.first[t])[None, None],
            np.asarray(played.reward[slot, t])[None, None],
            np.asarray(before)[None, None],
        )
        state, hidden = step(params, state, steps)
    return hidden[0, 0], state[0]


def begin_of(row: int) -> int:
    """Returns the row where the burn-in of a sampled row begins: at a stored state, or with its episode."""
    return max(max(f for f in FIRST if f <= row), (row - BURN_IN) // EVERY * EVERY)


def sampled_rows(played: History) -> list[tuple[int, int]]:
    """Returns slot and number of all rows that can be drawn."""
    weight = np.asarray(played.rings.weight)
    return [(s, t) for s in range(SLOTS) for t in range(NUM_ROWS - LENGTH, NUM_ROWS) if weight[s, t % LENGTH] > 0]


@functools.cache
def windows_of(config: configs.Config, spec: types.EnvSpec = cases.SPEC) -> windowing.Windows:
    """Returns the windows of all rows that can be drawn."""
    agent, played = muzero.make(config, spec, "cpu"), play(config.muzero.memory, spec)
    slot, time = np.array(sampled_rows(played)).T
    look = jax.jit(
        lambda rings: windowing.read(rings, windowing.from_data(rings, slot, time % LENGTH, agent.data, agent.stack))
    )
    found: windowing.Windows = look(played.rings)
    return found


CONTINUOUS = types.EnvSpec((4,), "float32", 0, action_low=(-2.0, -1.0), action_high=(2.0, 1.0))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("memory", "spec"),
    [("lstm", cases.SPEC), ("gru", cases.SPEC), ("lstm", CONTINUOUS)],
    ids=["lstm", "gru", "vectors"],
)
def test_a_state_behind_a_burn_in_is_that_of_a_loop_from_the_stored_state(memory: str, spec: types.EnvSpec) -> None:
    config = make_config(memory, muzero__target_network_updates=1)
    parts, new = parts_of(config, spec), params_of(config, 2, spec)
    played, windows = play(memory, spec), windows_of(config, spec)
    num_positions = config.muzero.unroll_steps + config.muzero.n_step + 1
    represent = jax.jit(lambda params, windows: muzero_model.represent(parts, params, windows, slice(None)))
    found, valid = represent(new, windows), np.asarray(windows.valid)
    assert found.shape[:2] == (len(valid), num_positions)
    loop = functools.cache(functools.partial(hidden_by_loop, parts, new, played))
    for number, (slot, row) in enumerate(sampled_rows(played)):
        begin = begin_of(row)
        for position in np.flatnonzero(valid[number]):
            state = tuple(played.state[slot, begin])
            expected, _ = loop(slot, begin, state, row + int(position))
            np.testing.assert_allclose(found[number, position], expected, atol=2e-5)
    # Most burn-ins begin within an episode, some with it.
    covered = [begin_of(row) in FIRST for _, row in sampled_rows(played)]
    assert 4 < sum(covered) < len(covered) - 4


@pytest.mark.thorough
def test_with_the_parameters_that_acted_all_states_are_acting_s() -> None:
    config = make_config()
    parts, params, played = parts_of(config), params_of(config, 1), play()
    found = jax.jit(lambda windows: muzero_model.represent(parts, params, windows, slice(1)))(windows_of(config))
    for number, (slot, row) in enumerate(sampled_rows(played)):
        begin = max(f for f in FIRST if f <= row)
        expected, _ = hidden_by_loop(parts, params, played, slot, begin, np.zeros(12, np.float32), row)
        np.testing.assert_allclose(found[number, 0], expected, atol=2e-5)
    # And what acting stored is what the loop carries.
    _, state = hidden_by_loop(parts, params, played, 1, 10, np.zeros(12, np.float32), 19)
    np.testing.assert_allclose(played.state[1, 20], state, atol=2e-5)
    assert not played.state[:, list(FIRST)].any()


@pytest.mark.thorough
def test_gradients_go_through_the_burn_in_and_stop_at_the_stored_state() -> None:
    config = make_config()
    parts, params, played = parts_of(config), params_of(config, 2), play()
    number = sampled_rows(played).index((1, 24))
    windows = agent_cases.part(windows_of(config), slice(number, number + 1))
    towards = jnp.linspace(-1, 1, 8)

    def by_windows(params: Any) -> jax.Array:
        return jnp.sum(muzero_model.represent(parts, params, windows, slice(1))[0, 0] * towards)

    def by_loop(params: Any) -> jax.Array:
        begin = begin_of(24)
        return jnp.sum(hidden_by_loop(parts, params, played, 1, begin, played.state[1, begin], 24)[0] * towards)

    assert begin_of(24) == 16
    one, other = jax.jit(jax.grad(by_windows))(params), jax.grad(by_loop)(params)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4), one, other)


@pytest.mark.thorough
def test_a_search_begins_with_what_acting_remembers() -> None:
    config = make_config()
    agent, params, played = muzero.make(config, cases.SPEC, "cpu"), params_of(config, 1), play()
    inputs = agent_cases.inputs(played.observation[:, 20], reward=jnp.asarray(played.reward[:, 20]))
    memory = muzero_model.MuZeroMemory(jnp.asarray(played.state[:, 20]), jnp.asarray(played.action[:, 19]), ())
    assert agent.search is not None
    key, search = jax.random.key(20), jax.jit(agent.search, static_argnums=4)
    found = search(params, memory, inputs, key, False)
    _, outputs = jax.jit(agent.act)(params, memory, inputs, key)
    np.testing.assert_allclose(found.value, outputs.stored["value"], rtol=1e-5)
    np.testing.assert_array_equal(found.action, played.action[:, 20])
    forgetful = memory._replace(state=jnp.zeros_like(memory.state))
    assert not np.allclose(search(params, forgetful, inputs, key, False).value, found.value)


def _searched(config: configs.Config, params: Any, hidden: np.ndarray, key: jax.Array) -> dict[str, jax.Array]:
    """Returns the findings of an exploring search from hidden states [B, ...]."""
    parts, nothing = parts_of(config), {types.OBSERVATION: jnp.zeros((len(hidden), 4))}
    mode = jnp.full(len(hidden), types.EXPLORE)
    search = jax.jit(
        lambda hidden: muzero_search.stored(
            parts, muzero_search.find(parts, params, nothing, None, mode, key, hidden=hidden)
        )
    )
    found: dict[str, jax.Array] = search(hidden)
    return found


@pytest.mark.thorough
def test_reanalysed_positions_are_searched_from_their_burnt_in_states() -> None:
    config = make_config(reanalyse__per_insert=1.0)
    agent, params, played = muzero.make(config, cases.SPEC, "cpu"), params_of(config, 2), play()
    wanted, rows = agent.reanalyse, sampled_rows(played)
    assert wanted is not None and wanted.before == BURN_IN + EVERY - 1
    slot, time = np.array(rows).T
    options = {"length": wanted.length, "observe": wanted.observe, "before": wanted.before}
    windows = jax.jit(
        lambda rings: windowing.read(rings, windowing.at(rings, slot, time % LENGTH, stack=1, **options))
    )(played.rings)
    fresh, _ = jax.jit(wanted.compute)(params, windows, jax.random.key(3))
    begun = [(slot, begin_of(row), played.state[slot, begin_of(row)], row) for slot, row in rows]
    hidden = np.stack([hidden_by_loop(parts_of(config), params, played, *each)[0] for each in begun])
    expected = _searched(config, params, hidden, jax.random.key(3))
    for name in ("policy", "value"):
        np.testing.assert_allclose(fresh[name], expected[name], atol=1e-4)


@pytest.mark.thorough
def test_a_fresh_share_is_searched_from_its_burnt_in_states() -> None:
    config = make_config(reanalyse__fresh_share=0.5)
    parts, params, played = parts_of(config), params_of(config, 2), play()
    windows, rows, key = windows_of(config), sampled_rows(play()), jax.random.key(4)
    fresh = jax.jit(lambda windows: muzero._freshen(parts, params, windows, key))(windows)
    num_fresh, num_positions = -(-len(rows) // 2), 1 + config.muzero.unroll_steps
    represent = jax.jit(lambda windows: muzero_model.represent(parts, params, windows, slice(num_positions)))
    hidden = np.asarray(represent(windows))[:num_fresh]  # those of the first test
    expected = _searched(config, params, hidden.reshape(-1, hidden.shape[-1]), key)
    slot, row = rows[0]
    by_loop, _ = hidden_by_loop(parts, params, played, slot, begin_of(row), played.state[slot, begin_of(row)], row)
    np.testing.assert_allclose(hidden[0, 0], by_loop, atol=2e-5)
    for name in ("policy", "value"):
        found = np.asarray(fresh.stored[name])[:num_fresh, :num_positions]
        np.testing.assert_allclose(found.reshape(expected[name].shape), expected[name], atol=1e-4)
        np.testing.assert_array_equal(fresh.stored[name][num_fresh:], windows.stored[name][num_fresh:])


@pytest.mark.thorough
def test_returns_bootstrap_from_remembering_states_to_an_episode_s_last_row() -> None:
    config = make_config(muzero__target_network_updates=1)
    parts, params, played = parts_of(config), params_of(config, 2), play()
    windows = windows_of(config)
    values, _ = jax.jit(lambda windows: muzero_loss._network_opinions(parts, params, windows))(windows)
    number = sampled_rows(played).index((0, 31))  # row 32 ends the episode, before the window does
    assert windows.valid[number].tolist() == [True, True, False, False, False]
    begin = begin_of(31)
    hidden, _ = hidden_by_loop(parts, params, played, 0, begin, played.state[0, begin], 32)
    _, logits = parts.network.predict(params, hidden[None])
    expected = muzero_model.unit(params) * muzero_model.decode(parts, logits)
    np.testing.assert_allclose(values[number, 1], expected[0], rtol=1e-4)


@pytest.mark.thorough
def test_the_consistency_loss_compares_with_later_states_and_teaches_them_nothing() -> None:
    config = make_config(muzero__consistency_weight=1.0)
    parts, params, played = parts_of(config), params_of(config, 2), play()
    projector, windows, num_steps = parts.network.projection, windows_of(config), config.muzero.unroll_steps
    assert projector is not None
    random = np.random.default_rng(0)
    imagined = jnp.asarray(random.normal(size=(len(windows.weight), num_steps + 1, 8)), jnp.float32)

    def consistency(params: Any) -> jax.Array:
        return muzero_loss._consistency(parts, projector, params, imagined, windows)[0]

    loss, gradient = jax.jit(jax.value_and_grad(consistency))(params)
    seen = np.asarray(jax.jit(lambda w: muzero_model.represent(parts, params, w, slice(1, 1 + num_steps)))(windows))
    slot, row = sampled_rows(played)[0]
    later, _ = hidden_by_loop(parts, params, played, slot, begin_of(row), played.state[slot, begin_of(row)], row + 1)
    np.testing.assert_allclose(seen[0, 0], later, atol=2e-5)
    target = np.asarray(projector.project(params, jnp.asarray(seen.reshape(-1, 8))))
    predicted = np.asarray(projector.predict(params, projector.project(params, imagined[:, 1:].reshape(-1, 8))))
    cosine = np.sum(target * predicted, -1) / np.linalg.norm(target, axis=-1) / np.linalg.norm(predicted, axis=-1)
    reached = np.asarray(windows.valid)[:, 1 : 1 + num_steps]
    expected = -np.mean(np.sum(cosine.reshape(reached.shape) * reached, axis=1)) / num_steps
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    for name in ("core", "representation"):
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient[name])), name


@pytest.mark.thorough
def test_an_update_teaches_the_core_what_to_keep() -> None:
    config = make_config()
    agent, windows = muzero.make(config, cases.SPEC, "cpu"), windows_of(config)
    state = jax.jit(agent.init)(jax.random.key(0))
    state = state._replace(params=params_of(config, 2))
    after, _, metrics = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None))(
        state, windows, jax.random.key(0)
    )
    assert np.isfinite(metrics["loss"]) and metrics["num_rejected"] == 0
    assert not agent_cases.equal(after.params["core"], state.params["core"])


def test_without_a_memory_nothing_is_carried_stored_or_brought_along() -> None:
    agent: base.Agent = muzero.make(cases.make_config(), cases.SPEC, "cpu")
    assert agent.initial_memory(3) == () and not agent.reads_reward
    assert agent.num_kept == 1 and agent.ring_multiple == 1
    assert set(agent.stored) == {"action", "policy", "value"}


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_a_memory_takes_one_stored_state_in_four_rows(memory: str) -> None:
    agent = muzero.make(make_config(memory), cases.SPEC, "cpu")
    kept = agent.stored[muzero_model.STATE]
    assert (kept.shape, kept.every) == (((12,) if memory == "lstm" else (6,)), EVERY)
    assert agent.ring_multiple == EVERY and agent.num_kept == 1 + BURN_IN + EVERY - 1
    assert agent.reads_reward and agent.model is not None and agent.model.remembers
