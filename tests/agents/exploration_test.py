"""Random actions: with a probability of each environment's own, and repeated for a while."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import base, exploration, muzero
from seedzero.config import config as config_lib
from seedzero.config import muzero as muzero_config
from seedzero.config import options
from seedzero.core import errors, types

ACTIONS = 4
OWN = 7
"""What the agent would do, here. No random action is this one."""


def _apply(
    *,
    rows: int,
    state: exploration.Repetition | None = None,
    config: muzero_config.ExploreConfig,
    **changes: Any,
) -> tuple[exploration.Repetition, np.ndarray]:
    """One step of so many training environments in the middle of their episodes; every action is legal."""
    usual = {
        "first": np.zeros(rows, bool),
        "explore": np.ones(rows, bool),
        "valid_actions": np.ones((rows, ACTIONS), bool),
    }
    own = np.full(rows, OWN, np.int32)
    before = state or jax.jit(exploration.initial, static_argnums=0)(rows)
    state, action = _jitted(config)(jax.random.key(rows), before, own, **{**usual, **changes})
    return state, np.asarray(action)


@functools.cache
def _jitted(config: muzero_config.ExploreConfig) -> Any:
    return jax.jit(functools.partial(exploration.apply, config=config))


def _repetition(action: list[int], left: list[int]) -> exploration.Repetition:
    return exploration.Repetition(jnp.asarray(np.array(action, np.int32)), jnp.asarray(np.array(left, np.int32)))


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


@pytest.mark.parametrize("name", ["first", "explore"])
def test_it_ends_with_the_episode_and_with_training(name: str) -> None:
    state = _repetition([1, 1], [9, 9])
    change = {name: np.array([name == "first", name != "first"])}
    state, taken = _apply(rows=2, state=state, config=muzero_config.ExploreConfig(epsilon=0.0), **change)
    assert taken.tolist() == [OWN, 1]
    assert state.left.tolist() == [0, 8]


def test_it_ends_where_its_action_is_not_legal() -> None:
    state = _repetition([1, 2], [9, 9])
    legal = np.tile(np.array([True, False, True, True]), (2, 1))
    state, taken = _apply(rows=2, state=state, config=muzero_config.ExploreConfig(epsilon=0.0), valid_actions=legal)
    assert taken.tolist() == [OWN, 2]
    assert state.left.tolist() == [0, 8]


def test_illegal_actions_never_begin() -> None:
    legal = np.tile(np.array([False, True, False, True]), (400, 1))
    _, taken = _apply(rows=400, config=muzero_config.ExploreConfig(epsilon=1.0), valid_actions=legal)
    assert set(np.unique(taken)) == {1, 3}


# In the agent --------------------------------------------------------------------------------------------------------

SPEC = types.EnvSpec((4,), "float32", 3)
SMALL: dict[str, options.Value] = {
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 4,
    "search.gumbel_scale": 0.0,
}


def _act(epsilon: float, *, explore: bool = True) -> tuple[Any, base.Outputs]:
    config = config_lib.override(config_lib.Config(), {**SMALL, "explore.epsilon": epsilon})
    agent = muzero.make(config, SPEC, "cpu")
    inputs = agent_cases.inputs(
        np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32),
        action_mask=np.zeros((64, 3), bool),  # not read: this environment has no mask
        explore=np.full(64, explore),
    )
    params = jax.jit(agent.init)(jax.random.key(0)).params
    memory, outputs = jax.jit(agent.act)(params, agent.initial_memory(64), inputs, jax.random.key(2))
    return memory, outputs


def test_what_is_repeated_is_stored_as_the_action_and_changes_nothing_else() -> None:
    memory, outputs = _act(0.5)
    _, usual = _act(0.0)
    np.testing.assert_array_equal(outputs.action, outputs.stored["action"])
    differs = np.asarray(outputs.action) != np.asarray(usual.action)
    assert 10 < differs.sum() < 40  # two thirds of one half
    for name in ("policy", "value"):
        np.testing.assert_array_equal(outputs.stored[name], usual.stored[name])
    assert np.asarray(memory.left).max() > 0


def test_evaluation_never_repeats() -> None:
    memory, outputs = _act(1.0, explore=False)
    _, usual = _act(0.0, explore=False)
    np.testing.assert_array_equal(outputs.action, usual.action)
    assert not np.asarray(memory.left).any()


@pytest.mark.parametrize(
    ("spec", "setting", "message"),
    [
        (types.EnvSpec((4,), "float32", 0, action_low=(-1.0,), action_high=(1.0,)), "explore.epsilon", "vectors"),
        (dataclasses.replace(SPEC, num_players=2), "explore.epsilon", "two take turns; .* --env.random_opening"),
        (dataclasses.replace(SPEC, has_action_mask=True), "muzero.entropy_weight", "not legal here; set it to 0"),
    ],
)
def test_what_does_not_fit_the_environment_is_refused_by_name(spec: types.EnvSpec, setting: str, message: str) -> None:
    config = config_lib.override(config_lib.Config(), {**SMALL, setting: 0.1})
    with pytest.raises(errors.ConfigError, match=rf"{setting}=0.1 .*{message}"):
        muzero.make(config, spec, "cpu")


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
    action = exploration.epsilon_greedy(
        jax.random.key(0),
        jnp.full(4000, 3, jnp.int32),
        jnp.where(jnp.arange(4000) < 3000, 0.9, 0.0),
        jnp.asarray(valid),
    )
    shares = np.bincount(action[:3000], minlength=4) / 3000
    np.testing.assert_allclose(shares, [0.3, 0.0, 0.3, 0.4], atol=0.03)
    assert (action[3000:] == 3).all()
