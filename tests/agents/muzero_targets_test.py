"""MuZero's targets: bootstrapping from stored values or a target network, by age, and between two players."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import pytest

from seedzero.agents import learning, muzero, muzero_loss, muzero_model
from seedzero.config import configs, options
from seedzero.ops import nstep
from seedzero.replay import windowing


@pytest.mark.parametrize(
    ("last", "shown", "expected"),
    [
        # Rewards are 1, discount 1/2, n = 2: returns are 1.5 + v/4 where two steps are left, 1 + v/2 where one is.
        (4, [8.0, 12.0, 16.0], [1.5 + 8 / 4, 1.5 + 12 / 4, 1.5 + 16 / 4]),
        (3, [8.0, 12.0, 12.0], [1.5 + 8 / 4, 1.5 + 12 / 4, 1.0 + 12 / 2]),
        (1, [4.0, 4.0, 4.0], [1.0 + 4 / 2]),
    ],
)
def test_the_target_network_values_the_position_that_each_return_bootstraps_from(
    last: int, shown: list[float], expected: list[float]
) -> None:
    config = cases.make_config(muzero__target_network_updates=10)
    windows = cases.make_windows(config)
    observation = np.array([99.0, *shown], np.float32)[None, :, None].repeat(cases.BATCH, axis=0)
    windows = agent_cases.show(windows, observation)._replace(
        reward=np.ones(windows.reward.shape, np.float32),
        valid=np.broadcast_to(np.arange(5) <= last, windows.valid.shape),
    )
    targets = _targets_of_observations(config)({"offset": 0.0}, windows)
    np.testing.assert_allclose(np.asarray(targets.value)[0, : len(expected)], expected, rtol=1e-4)
    raised = _targets_of_observations(config)({"offset": 1.0}, windows)
    assert (np.asarray(raised.value)[0, : len(expected)] > np.array(expected)).all()


@functools.cache
def _targets_of_observations(config: configs.Config) -> Any:
    return jax.jit(functools.partial(muzero_loss.make_targets, cases.value_of_observation(config)))


def test_only_a_target_network_needs_the_observations_it_looks_at() -> None:
    agent, _ = cases.agent(cases.make_config())
    assert agent.data.observe == (0,)
    assert agent.data.length == 5
    with_target, _ = cases.agent(cases.make_config(muzero__target_network_updates=3))
    assert with_target.data.observe == (0, 2, 3, 4)


def test_consistency_does_not_move_what_the_target_network_looks_at() -> None:
    config = cases.make_config(muzero__target_network_updates=10, muzero__n_step=3)
    observation = np.tile(np.arange(4, dtype=np.float32)[None, :, None], (cases.BATCH, 1, 1))
    windows = agent_cases.show(cases.make_windows(config), observation)
    # Positions 0 | 3, 4, 5 become 0, 1 | 3, 4, 5.
    more = agent_cases.show(windows, np.insert(observation, 1, 99.0, axis=1))
    consistency = {"muzero.consistency_weight": 1.0, "muzero.consistency_steps": 1}

    def values(config: configs.Config, windows: windowing.Windows) -> jax.Array:
        value: jax.Array = _targets_of_observations(config)({"offset": 0.0}, windows).value
        return value

    np.testing.assert_array_equal(values(configs.override(config, consistency), more), values(config, windows))


@pytest.mark.parametrize(
    ("changes", "offsets"),
    [
        ({"consistency_weight": 1.0}, (0, 1, 2)),
        ({"consistency_steps": 2}, (0,)),
        ({"consistency_weight": 1.0, "consistency_steps": 1}, (0, 1)),
        ({"consistency_weight": 1.0, "target_network_updates": 5}, (0, 1, 2, 3, 4)),
        (
            {"consistency_weight": 1.0, "consistency_steps": 1, "target_network_updates": 5, "n_step": 3},
            (0, 1, 3, 4, 5),
        ),
    ],
)
def test_each_observation_that_consistency_and_bootstraps_need_comes_once(
    changes: dict[str, options.Value], offsets: tuple[int, ...]
) -> None:
    config = configs.override(cases.make_config(), {f"muzero.{name}": value for name, value in changes.items()})
    assert muzero.make(config, cases.SPEC, "cpu").data.observe == offsets


# The age of a step ---------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize(("start", "num_old"), [(50, 2), (51, 0)])
def test_old_windows_learn_the_searchs_value_once_the_model_is_trusted(start: int, num_old: int) -> None:
    config = cases.make_config(muzero__search_value_age=10, muzero__search_value_start=start)
    parts, params = cases.hand_model(config), {"p": jnp.float32(0.5), "q": jnp.float32(2.0)}
    windows = cases.aged(cases.hand_model_windows(config), [50, 41, 40, 0])
    # Returns are 0.
    value = jnp.zeros_like(windows.reward).at[:, 0].set(8.0)
    windows = agent_cases.store(windows, value=value)._replace(reward=jnp.zeros_like(windows.reward))
    state = learning.TrainState(params, (), parts.optimizer.init(params), jnp.int32(50), jnp.int32(0))
    update = jax.jit(lambda state, key: muzero._update(parts, state, windows, key, None))
    _, priority, metrics = update(state, jax.random.key(0))
    np.testing.assert_allclose(metrics["value_target_mean"], 8.0 * num_old / cases.BATCH, rtol=1e-6)
    # The network says 0, as the return does: as without the switch.
    np.testing.assert_allclose(priority, np.zeros(cases.BATCH), atol=1e-6)


def test_searched_positions_of_old_windows_get_the_searchs_value() -> None:
    config = cases.make_config(muzero__search_value_age=10)
    value = np.tile(np.array([1.0, 2.0, 3.0, 4.0, 5.0], np.float32), (cases.BATCH, 1))
    windows = agent_cases.store(cases.aged(cases.make_windows(config), [0, 0, 50, 41]), value=value)
    windows = windows._replace(
        valid=windows.valid.at[0, 2:].set(False), terminated=windows.terminated.at[1, 1].set(True)
    )
    targets = nstep.Targets(*(np.zeros((cases.BATCH, 3), np.float32) for _ in nstep.Targets._fields))
    mixed = jax.jit(functools.partial(muzero_loss.mix_search_values, cases.hand_model(config)))(
        windows, targets, np.int32(50)
    )
    np.testing.assert_array_equal(mixed.value, [[1, 2, 0], [1, 0, 3], [0, 0, 0], [0, 0, 0]])
    assert agent_cases.equal(mixed._replace(value=targets.value), targets)


# Two players ---------------------------------------------------------------------------------------------------------


def test_between_two_players_targets_change_their_sign_with_the_mover() -> None:
    parts = cases.hand_model(cases.make_config())
    parts = parts._replace(spec=dataclasses.replace(parts.spec, num_players=2))
    reward = np.tile(np.array([9.0, 1.0, 2.0, 4.0, 8.0], np.float32), (cases.BATCH, 1))
    values = np.tile(np.array([10.0, 20.0, 30.0, 40.0, 50.0], np.float32), (cases.BATCH, 1))
    windows = agent_cases.store(cases.make_windows(cases.make_config()), value=values)._replace(reward=reward)
    targets = jax.jit(functools.partial(muzero_loss.make_targets, parts, ()))(windows)
    # Discount 1/2, n = 2: 1 - 2/2 + 30/4, 2 - 4/2 + 40/4, 4 - 8/2 + 50/4
    np.testing.assert_allclose(np.asarray(targets.value)[0], [7.5, 10.0, 12.5])


@pytest.mark.thorough
def test_values_of_the_target_network_change_their_sign_likewise() -> None:
    config = cases.make_config(muzero__target_network_updates=5)
    parts = muzero_model.make_parts(config, cases.SPEC, "cpu")
    windows = cases.make_windows(config, num_observations=4)
    # As initialized, the heads say 0.
    params = jax.tree.map(
        lambda x: np.asarray(x) + 0.5 * np.arange(x.size, dtype=np.float32).reshape(x.shape) / x.size,
        cases.init(config).params,
    )
    windows = windows._replace(reward=np.zeros(windows.reward.shape, np.float32))
    alone = jax.jit(functools.partial(muzero_loss.make_targets, parts))(params, windows)
    parts = parts._replace(spec=dataclasses.replace(cases.SPEC, num_players=2))

    def of_two_players(n: int) -> np.ndarray:
        changed = parts._replace(config=cases.make_config(muzero__target_network_updates=5, muzero__n_step=n))
        names = ("reward", "terminated", "truncated", "valid")
        part = windows._replace(**{name: np.asarray(getattr(windows, name))[:, : n + 3] for name in names})
        return np.asarray(jax.jit(functools.partial(muzero_loss.make_targets, changed))(params, part).value)

    assert np.abs(alone.value).min() > 0.01
    np.testing.assert_allclose(of_two_players(2), alone.value, rtol=1e-6)  # two steps ahead the same one moves
    np.testing.assert_allclose(of_two_players(1), -2 * alone.value, rtol=1e-6)  # and (-1/2)^1 in place of (1/2)^2
