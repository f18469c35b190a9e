"""Random actions that are repeated for a while."""

from __future__ import annotations

import dataclasses
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
    **changes: jax.Array,
) -> tuple[exploration.Repetition, np.ndarray]:
    """One step of so many training environments in the middle of their episodes; every action is legal."""
    usual = {
        "first": jnp.zeros(rows, bool),
        "explore": jnp.ones(rows, bool),
        "valid_actions": jnp.ones((rows, ACTIONS), bool),
    }
    state, action = exploration.apply(
        jax.random.key(rows),
        state or exploration.initial(rows),
        jnp.full(rows, OWN, jnp.int32),
        config=config,
        **{**usual, **changes},
    )
    return state, np.asarray(action)


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
    state = exploration.Repetition(jnp.array([2, 1, 3], jnp.int32), jnp.array([3, 0, 1], jnp.int32))
    taken = []
    for _ in range(4):
        state, action = _apply(rows=3, state=state, config=config)
        taken.append(action.tolist())
    assert taken == [[2, OWN, 3], [2, OWN, OWN], [2, OWN, OWN], [OWN, OWN, OWN]]


@pytest.mark.parametrize("name", ["first", "explore"])
def test_it_ends_with_the_episode_and_with_training(name: str) -> None:
    state = exploration.Repetition(jnp.full(2, 1, jnp.int32), jnp.full(2, 9, jnp.int32))
    change = {name: jnp.array([name == "first", name != "first"])}
    state, taken = _apply(rows=2, state=state, config=muzero_config.ExploreConfig(epsilon=0.0), **change)
    assert taken.tolist() == [OWN, 1]
    assert state.left.tolist() == [0, 8]


def test_it_ends_where_its_action_is_not_legal() -> None:
    state = exploration.Repetition(jnp.array([1, 2], jnp.int32), jnp.full(2, 9, jnp.int32))
    legal = jnp.tile(jnp.array([True, False, True, True]), (2, 1))
    state, taken = _apply(rows=2, state=state, config=muzero_config.ExploreConfig(epsilon=0.0), valid_actions=legal)
    assert taken.tolist() == [OWN, 2]
    assert state.left.tolist() == [0, 8]


def test_illegal_actions_never_begin() -> None:
    legal = jnp.tile(jnp.array([False, True, False, True]), (400, 1))
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
        jax.random.normal(jax.random.key(1), (64, 4)),
        action_mask=jnp.zeros((64, 3), bool),  # not read: this environment has no mask
        explore=jnp.full(64, explore),
    )
    params = agent.init(jax.random.key(0)).params
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
    assert memory.left.max() > 0


def test_evaluation_never_repeats() -> None:
    memory, outputs = _act(1.0, explore=False)
    _, usual = _act(0.0, explore=False)
    np.testing.assert_array_equal(outputs.action, usual.action)
    assert not memory.left.any()


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
