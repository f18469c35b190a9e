"""Random actions: with a probability of each environment's own, and repeated for a while."""

from __future__ import annotations

import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base, exploration, muzero
from seedzero.config import configs, muzero_config, options
from seedzero.core import types

SPEC = types.EnvSpec((4,), "float32", 3)
VECTORS = types.EnvSpec((4,), "float32", 0, action_low=(-2.0, 0.0), action_high=(2.0, 3.0))
ACTIONS = 4
OWN = 7
"""What the agent would do, here. No random action is this one."""


def _apply(
    *,
    rows: int,
    state: exploration.Repetition | None = None,
    config: muzero_config.ExploreConfig,
    num_slots: int = 0,
    own: Any = None,
    valid_actions: Any = True,
    key: int = 0,
    **changes: Any,
) -> tuple[exploration.Repetition, np.ndarray]:
    """One step of so many training environments in the middle of their episodes; every action is legal."""
    before = state or exploration.initial(rows, SPEC, config.first_steps)
    valid = None if valid_actions is None else jnp.broadcast_to(jnp.asarray(valid_actions), (rows, ACTIONS))
    own = np.full(rows, OWN, np.int32) if own is None else own
    run = _jitted(exploration.apply, config, num_slots or rows)
    state, action = run(jax.random.key(key), before, own, _inputs(rows, **changes), valid_actions=valid)
    return state, np.asarray(action)


def _inputs(rows: int, **changes: Any) -> base.Inputs:
    return agent_cases.inputs(np.zeros((rows, 4), np.float32), ACTIONS, **changes)


@functools.cache
def _jitted(function: Any, config: muzero_config.ExploreConfig, num_slots: int) -> Any:
    return jax.jit(functools.partial(function, config=config, num_slots=num_slots))


def _repetition(action: list[int], left: list[int]) -> exploration.Repetition:
    return exploration.Repetition(*(jnp.asarray(np.array(x, np.int32)) for x in (action, left, [0] * len(left))))


@pytest.mark.thorough
def test_every_action_and_each_length_has_its_share() -> None:
    config = muzero_config.ExploreConfig(epsilon=0.25, exponent=2.0, max_length=5)
    state, taken = _apply(rows=40_000, config=config)
    shares = np.bincount(taken, minlength=OWN + 1) / taken.size
    np.testing.assert_allclose(shares[:ACTIONS], 0.25 / ACTIONS, atol=0.006)
    assert shares[OWN] == pytest.approx(0.75, abs=0.01)
    lengths = 1 + np.asarray(state.left)[taken != OWN]  # this step is the first of them
    weights = np.array([1, 1 / 4, 1 / 9, 1 / 16, 1 / 25])  # n ^ -2
    np.testing.assert_allclose(np.bincount(lengths)[1:] / lengths.size, weights / weights.sum(), atol=0.02)


def test_an_action_is_repeated_to_its_end_and_then_the_agent_acts() -> None:
    """Nobody begins anew here: epsilon is 0."""
    config = muzero_config.ExploreConfig(epsilon=0.0)
    state = _repetition([2, 1, 3], [3, 0, 1])
    taken = []
    for _ in range(4):
        state, action = _apply(rows=3, state=state, config=config)
        taken.append(action.tolist())
    assert taken == [[2, OWN, 3], [2, OWN, OWN], [2, OWN, OWN], [OWN, OWN, OWN]]


@pytest.mark.parametrize("name", ["first", "action_mode"])
def test_it_ends_with_the_episode_and_with_training(name: str) -> None:
    state = _repetition([1, 1], [9, 9])
    change = {name: np.array([name == "first", name != "first"])}
    state, taken = _apply(rows=2, state=state, config=muzero_config.ExploreConfig(epsilon=0.0), **change)
    assert taken.tolist() == [OWN, 1]
    assert state.left.tolist() == [0, 8]


def test_it_ends_where_its_action_is_not_legal() -> None:
    state = _repetition([1, 2], [9, 9])
    legal = [True, False, True, True]
    state, taken = _apply(rows=2, state=state, config=muzero_config.ExploreConfig(epsilon=0.0), valid_actions=legal)
    assert taken.tolist() == [OWN, 2]
    assert state.left.tolist() == [0, 8]


def test_illegal_actions_never_begin() -> None:
    config = muzero_config.ExploreConfig(epsilon=1.0)
    _, taken = _apply(rows=400, config=config, valid_actions=[False, True, False, True])
    assert set(np.unique(taken)) == {1, 3}


def test_environments_may_differ_in_how_often_they_begin() -> None:
    """Of 2 environments of a geometric mean of 0.25, one has 1/2 and the other 1/8; one alone has it itself."""
    config = muzero_config.ExploreConfig(epsilon=0.25, spread=True, max_length=1)
    slot = np.arange(40_000) % 2
    _, taken = _apply(rows=slot.size, config=config, num_slots=2, slot=slot)
    begun = taken != OWN
    assert begun[slot == 0].mean() == pytest.approx(0.5, abs=0.015)
    assert begun[slot == 1].mean() == pytest.approx(0.125, abs=0.015)
    np.testing.assert_allclose(exploration.spread(np.array([0, 2**20]), 1, 0.02), 0.02, rtol=1e-6)
    np.testing.assert_allclose(
        exploration.spread(np.arange(4), 4, 0.01), [10**-0.5, 10**-1.5, 10**-2.5, 10**-3.5], rtol=1e-5
    )
    assert np.isfinite(exploration.spread(np.arange(3), 0, 0.01)).all()


def test_the_random_start_ends_with_a_reward_or_a_terminal_state() -> None:
    """Rows: nothing happens, or at the third step an end, nobody explores, a time limit, a good reward, a bad one."""
    config = muzero_config.ExploreConfig(first_steps=5, max_length=1)
    state, explores = None, []
    for t in range(7):
        third = np.full(6, t == 2)
        state, action = _apply(
            rows=6,
            state=state,
            config=config,
            key=t,
            reward=np.where(third, [-1.0, 0.0, 0.0, -1.0, 0.1, -9.0], -1.0),
            first=third & [False, True, False, True, False, False],
            terminated=third & [False, True, False, False, False, False],
            action_mode=np.array([True, True, False, True, True, True]),
        )
        explores.append((action != OWN).tolist())
    expected = np.ones((7, 6), bool)
    expected[5:] = False
    expected[2:, [1, 4]] = False
    expected[:, 2] = False
    np.testing.assert_array_equal(explores, expected)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("left", "first_left", "repeated", "explores", "expected"),
    [
        # 0.25 of the draws are random, a third of these each; of the rest, the agent's draw.
        (0, 0, 0, True, [0.25 / 3 + 0.75 * 0.1, 0.25 / 3 + 0.75 * 0.7, 0.25 / 3 + 0.75 * 0.2]),
        (0, 9, 0, True, [1 / 3, 1 / 3, 1 / 3]),  # at the start all are
        (5, 0, 2, True, [0.0, 0.0, 1.0]),
        (5, 0, 3, True, [0.1, 0.7, 0.2]),  # what was repeated is not legal here
        (5, 9, 2, False, [0.1, 0.7, 0.2]),
    ],
)
def test_the_probability_of_an_action_is_how_often_it_is_taken(
    left: int, first_left: int, repeated: int, explores: bool, expected: list[float]
) -> None:
    config, rows = muzero_config.ExploreConfig(epsilon=0.25), 20_000
    state = exploration.Repetition(*(jnp.full(rows, x, jnp.int32) for x in (repeated, left, first_left)))
    shown, valid = {"action_mode": np.full(rows, explores)}, jnp.tile(jnp.array([True, True, True, False]), (rows, 1))
    own = np.random.default_rng(0).choice(3, rows, p=[0.1, 0.7, 0.2]).astype(np.int32)
    _, taken = _apply(rows=rows, state=state, config=config, own=own, valid_actions=valid, key=1, **shown)
    np.testing.assert_allclose(np.bincount(taken, minlength=3) / rows, expected, atol=0.012)
    weights = jnp.tile(jnp.array([0.1, 0.7, 0.2, 0.0]), (rows, 1))
    probability = _jitted(exploration.probability, config, rows)
    found = probability(state, taken, weights, _inputs(rows, **shown), valid_actions=valid)
    np.testing.assert_allclose(found, np.array(expected)[taken], rtol=1e-5)


def test_the_first_steps_spend_the_same_share_of_steps_on_every_length() -> None:
    config = muzero_config.ExploreConfig(first_steps=1, exponent=7.0, max_length=4)
    state, taken = _apply(rows=40_000, config=config)
    assert (taken != OWN).all()
    lengths = 1 + np.asarray(state.left)
    weights = np.array([1, 1 / 2, 1 / 3, 1 / 4])
    np.testing.assert_allclose(np.bincount(lengths)[1:] / lengths.size, weights / weights.sum(), atol=0.01)


def test_vectors_are_drawn_evenly_and_repeated_as_they_are() -> None:
    config = muzero_config.ExploreConfig(epsilon=1.0, exponent=0.0, max_length=3)
    rows, own = 10_000, np.full((10_000, 2), 7.0, np.float32)
    step = functools.partial(_apply, rows=rows, config=config, own=own, valid_actions=None)
    step = functools.partial(step, action_mode=np.arange(rows) > 0)
    state, taken = exploration.initial(rows, VECTORS, 0), []
    for t in range(3):
        state, action = step(state=state, key=t)
        taken.append(action)
    assert np.all(taken[0][0] == 7.0) and int(state.left[0]) == 0  # this row does not explore
    drawn = np.stack(taken)[:, 1:]
    assert abs(drawn).max() <= 1 and abs(drawn.mean()) < 0.02 and drawn.std() == pytest.approx(3**-0.5, abs=0.01)
    same = np.all(drawn[1:] == drawn[:-1], axis=-1)
    # Lengths 1, 2 and 3 are equally likely: the second step repeats the first one in two of three rows.
    assert same[0].mean() == pytest.approx(2 / 3, abs=0.02)
    _, after = step(state=state, key=9, first=np.full(rows, True))  # a new episode ends what was repeated
    assert not np.any(np.all(after[1:] == drawn[-1], axis=-1))


# In the agent --------------------------------------------------------------------------------------------------------

SMALL: dict[str, options.Value] = {
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 3,
    "search.gumbel_scale": 0.0,
}


def _agent(spec: types.EnvSpec = SPEC, **settings: options.Value) -> base.Agent:
    return muzero.make(configs.override(configs.Config(), {**SMALL, **settings}), spec, "cpu")


@functools.cache
def _made(epsilon: float) -> tuple[base.Agent, Any, Any]:
    """Returns an agent, its jitted acting, and first parameters."""
    agent = _agent(**{"explore.epsilon": epsilon})
    return agent, jax.jit(agent.act), jax.jit(agent.init)(jax.random.key(0)).params


def _act(epsilon: float, *, explore: bool = True) -> tuple[Any, base.Outputs]:
    agent, act, params = _made(epsilon)
    inputs = agent_cases.inputs(
        np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32),
        action_mask=np.zeros((64, 3), bool),  # not read: this environment has no mask
        action_mode=np.full(64, explore),
    )
    memory, outputs = act(params, agent.initial_memory(64), inputs, jax.random.key(2))
    return memory, outputs


@pytest.mark.thorough
def test_what_is_repeated_is_stored_as_the_action_and_changes_nothing_else() -> None:
    memory, outputs = _act(0.5)
    _, usual = _act(0.0)
    np.testing.assert_array_equal(outputs.action, outputs.stored["action"])
    differs = np.asarray(outputs.action) != np.asarray(usual.action)
    assert 10 < differs.sum() < 40  # two thirds of one half
    for name in ("policy", "value"):
        np.testing.assert_array_equal(outputs.stored[name], usual.stored[name])
    assert np.asarray(memory.left).max() > 0


@pytest.mark.thorough
def test_repeated_vectors_are_stored_normalized_and_taken_in_units() -> None:
    agent = _agent(VECTORS, **{"explore.epsilon": 1.0, "explore.exponent": 0.0})
    params, act, memory = jax.jit(agent.init)(jax.random.key(0)).params, jax.jit(agent.act), agent.initial_memory(8)
    inputs = agent_cases.inputs(np.ones((8, 4), np.float32), 0, first=np.zeros(8, bool), action_mode=np.arange(8) > 0)
    taken = []
    for t in range(2):
        memory, outputs = act(params, memory, inputs, jax.random.key(t))
        expected = np.asarray(outputs.stored["action"]) * [2, 1.5] + [0, 1.5]
        np.testing.assert_allclose(outputs.action, expected, atol=1e-6)
        taken.append(np.asarray(outputs.action))
    repeats = np.all(taken[0] == taken[1], axis=1)
    assert repeats[1:].sum() >= 6  # 1 of 100 lengths is 1
    assert abs(np.asarray(outputs.stored["action"])).max() <= 1


def test_the_random_start_is_of_the_run_and_not_of_its_policy() -> None:
    agent = _agent(**{"explore.first_steps": 5})
    assert agent.first_memory is not None
    assert agent.first_memory(2).first_left.tolist() == [5, 5]
    assert agent.initial_memory(2).first_left.tolist() == [0, 0]


@pytest.mark.thorough
def test_rings_that_wait_for_workers_are_no_environments_to_explore_in() -> None:
    explore = {"explore.epsilon": 0.25, "explore.spread": True, "explore.exponent": 0.0}
    agent = _agent(**explore, **{"replay.num_slots": 4, "replay.num_envs": 2})
    shown = agent_cases.inputs(np.ones((2_000, 4), np.float32), action_mode=np.ones(2_000, bool), num_slots=4)
    shown = shown._replace(slot=np.ones(2_000, np.int32))
    params = jax.jit(agent.init)(jax.random.key(0)).params
    memory, _ = jax.jit(agent.act)(params, agent.initial_memory(2_000), shown, jax.random.key(1))
    assert abs((np.asarray(memory.left) > 0).mean() - 0.99 * 0.25**1.5) < 0.03  # of 4 environments: 0.35


def test_epsilons_fall_from_environment_to_environment() -> None:
    def epsilons(slot: list[int], num_slots: int) -> np.ndarray:
        return np.asarray(exploration.epsilons(np.array(slot, np.int32), num_slots, base=0.4, exponent=7.0))

    # 0.4 ^ (1 + 7 i / 4)
    np.testing.assert_allclose(epsilons([0, 1, 2, 4], 5), [0.4, 0.0805, 0.0162, 0.000655], rtol=5e-3)
    # Padding and evaluation lie behind the last slot; one environment alone explores the most.
    np.testing.assert_allclose(epsilons([2**20], 5), epsilons([4], 5))
    np.testing.assert_allclose(epsilons([0], 1), [0.4])
    assert np.isfinite(epsilons([0, 3], 0)).all()


def test_random_actions_are_valid_and_equally_likely() -> None:
    valid = np.tile(np.array([True, False, True, True]), (4000, 1))
    action = jax.jit(exploration.epsilon_greedy)(
        jax.random.key(0),
        jnp.full(4000, 3, jnp.int32),
        jnp.where(jnp.arange(4000) < 3000, 0.9, 0.0),
        jnp.asarray(valid),
    )
    shares = np.bincount(action[:3000], minlength=4) / 3000
    np.testing.assert_allclose(shares, [0.3, 0.0, 0.3, 0.4], atol=0.03)
    assert (action[3000:] == 3).all()
