"""R2D2: its targets, priorities, burn-in and resets, by hand on a model whose memory is a running sum.

The model: the state is the sum of the observations of an episode so far, c, and Q(a) = c w[a], with w = 1 and 2 online
and w = 3 and 1 in the target network. By hand: discount 1/2, n = 2, a burn-in of 2 and 3 learned steps.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seedzero.agents import learning, r2d2
from seedzero.config import configs, options, shared
from seedzero.core import types
from seedzero.networks import actor_critic
from seedzero.ops import q_learning
from seedzero.replay import sources, windowing

SPEC = types.EnvSpec((1,), "float32", 2)
MASKED = types.EnvSpec((1,), "float32", 2, has_action_mask=True)
SMALL: dict[str, options.Value] = {
    "run.agent": "r2d2",
    "reward.discount": 0.5,
    "r2d2.n_step": 2,
    "r2d2.burn_in": 2,
    "r2d2.sequence_length": 3,
    "r2d2.period": 3,
    "network.width": 8,
    "network.lstm_width": 6,
    "r2d2.rescale_values": False,
}


class Params(NamedTuple):
    """Q(a) = c w[a]; `gain` is the factor of an observation in the sum c."""

    w: Any
    gain: Any


ONLINE = Params(np.array([1.0, 2.0], np.float32), np.ones((), np.float32))
TARGET = Params(np.array([3.0, 1.0], np.float32), np.ones((), np.float32))


def _config(**changes: options.Value) -> configs.Config:
    return configs.override(configs.Config(), {**SMALL, **agent_cases.named("r2d2", changes)})


def _parts(config: configs.Config, spec: types.EnvSpec = SPEC) -> r2d2._Parts:
    """Returns the parts of an agent with the summing model in place of its network."""

    def unroll(params: Params, state: jax.Array, steps: actor_critic.Steps) -> tuple[jax.Array, jax.Array]:
        def step(total: jax.Array, shown: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            observation, first = shown
            total = jnp.where(first[:, None], 0.0, total) + params.gain * observation
            return total, total

        shown = (jnp.moveaxis(steps.observation[types.OBSERVATION], 1, 0), steps.first.T)
        total, totals = jax.lax.scan(step, state, shown)
        return total, jnp.moveaxis(totals, 0, 1) * params.w

    network = actor_critic.RecurrentNetwork(
        lambda key: ONLINE, lambda num_rows: jnp.zeros((num_rows, 1)), unroll, unroll
    )
    scale = q_learning.scale(rescale=config.r2d2.rescale_values)
    return r2d2._Parts(
        config.r2d2, config.reward, spec, network, optax.identity(), config.optimizer.learning_rate, scale, 0
    )


def _windows(**changes: Any) -> windowing.Windows:
    """Returns one window in the middle of an episode: sums 11, 12, 13, 14, 15, 16 from a stored state of 10."""
    usual = agent_cases.windows(
        np.ones((1, 6, 1)),
        reward=np.array([[99.0, 99.0, 99.0, 10.0, 20.0, 40.0]]),
        stored={
            "action": np.array([[1, 1, 0, 1, 0, 1]]),
            "last_action": np.zeros((1, 2), np.int32),
            "state": np.array([[[10.0], [777.0]]]),
        },
    )
    return usual._replace(**changes)


@functools.cache
def _update(config: configs.Config, spec: types.EnvSpec = SPEC) -> Any:
    parts = _parts(config, spec)

    def update(windows: windowing.Windows, online: Params) -> Any:
        state = learning.init(jax.tree.map(jnp.asarray, online), parts.optimizer, has_target=True)
        state = state._replace(target_params=jax.tree.map(jnp.asarray, TARGET))
        return r2d2._update(parts, state, windows, None)

    return jax.jit(update)


def _priority_and_loss(windows: windowing.Windows, config: configs.Config | None = None) -> tuple[float, float]:
    _, priority, metrics = _update(config or _config())(windows, ONLINE)
    return float(priority[0]), float(metrics["loss"])


def _at(*positions: int) -> jax.Array:
    return jnp.asarray(np.isin(np.arange(6), positions)[None])


def _of(errors: list[float]) -> tuple[float, float]:
    """Returns the priority and the loss of a window's three errors; NaN: no step."""
    known = np.abs([error for error in errors if not np.isnan(error)])
    return 0.9 * known.max() + 0.1 * known.mean(), 0.5 * np.sum(known**2)


@pytest.mark.thorough
def test_the_steps_behind_the_burn_in_have_n_step_double_q_targets() -> None:
    # Sums 13 to 16; online action 1 is best, worth 1 x the sum to the target network: 13, 14, 15, 16.
    # Targets: 10 + 20/2 + 15/4, 20 + 40/2 + 16/4, and 40 + 16/2, where the window ends. Predictions: 13, 28, 15.
    np.testing.assert_allclose(_priority_and_loss(_windows()), _of([23.75 - 13, 44 - 28, 48 - 15]), rtol=1e-6)


def test_targets_and_predictions_are_squashed_if_told() -> None:
    squash, expand = q_learning.scale(rescale=True)
    last, before = (float(expand(np.float32(x))) for x in (16.0, 15.0))
    targets = [float(squash(np.float32(x))) for x in (20 + before / 4, 40 + last / 4, 40 + last / 2)]
    errors = [target - prediction for target, prediction in zip(targets, (13, 28, 15), strict=True)]
    found = _priority_and_loss(_windows(), _config(rescale_values=True))
    np.testing.assert_allclose(found, _of(errors), rtol=1e-5)


def test_a_terminal_state_ends_returns_and_the_memory_begins_anew_behind_it() -> None:
    windows = _windows(terminated=_at(3), first=_at(4))
    # Sums 13, 14, then 1 and 2 of the next episode. Targets: 10; no step; 40 + 2/2. Predictions: 13, -, 1.
    np.testing.assert_allclose(_priority_and_loss(windows), _of([10 - 13, np.nan, 41 - 1]), rtol=1e-6)


def test_a_truncated_end_bootstraps_from_its_own_observation() -> None:
    windows = _windows(truncated=_at(3), first=_at(4))
    # Targets: 10 + 14/2; no step; 40 + 2/2.
    np.testing.assert_allclose(_priority_and_loss(windows), _of([17 - 13, np.nan, 41 - 1]), rtol=1e-6)


def test_an_episode_that_begins_within_the_burn_in_forgets_the_stored_state() -> None:
    windows = _windows(terminated=_at(0), first=_at(1))
    # Sums 1, then 2 to 5. Targets: 20 + 4/4, 40 + 5/4, 40 + 5/2. Predictions: 2, 6, 4.
    np.testing.assert_allclose(_priority_and_loss(windows), _of([21 - 2, 41.25 - 6, 42.5 - 4]), rtol=1e-6)


def test_nothing_behind_a_cut_or_the_newest_row_counts() -> None:
    valid = ~_at(4, 5)
    # Targets: 10 + 14/2, and two positions that are not steps.
    found = _priority_and_loss(_windows(valid=valid, reward=jnp.array([[0.0, 0.0, 0.0, 10.0, 1e6, 1e6]])))
    np.testing.assert_allclose(found, _of([17 - 13, np.nan, np.nan]), rtol=1e-6)
    priority, loss = _priority_and_loss(_windows(valid=~_at(3, 4, 5)))
    assert priority == 0 and loss == 0  # only beside a cut: other rows wait until there is something to learn


def test_means_of_predictions_and_targets_are_those_of_the_learned_steps() -> None:
    windows = _windows(valid=~_at(5), terminated=_at(4), first=_at(5))
    windows = agent_cases.show(windows, np.where(np.arange(6) < 5, 1.0, 1e6)[None, :, None])
    _, _, metrics = _update(_config())(windows, ONLINE)
    # Targets: 10 + 20/2, and 20. Predictions: 13 and 28. Behind them, an end and another session's row.
    found = metrics["q_mean"], metrics["q_target_mean"]
    np.testing.assert_allclose(found, ((13 + 28) / 2, (20 + 20) / 2), rtol=1e-6)


def test_no_gradient_goes_through_the_burn_in() -> None:
    after, _, _ = _update(_config(learning_rate=1.0))(_windows(), ONLINE)
    # Of the sums 13, 14, 15 only the observations behind the burn-in depend on the gain here: 1, 2 and 3 of them.
    errors, w = np.array([23.75 - 13, 44 - 28, 48 - 15]), np.array([1.0, 2.0, 1.0])
    np.testing.assert_allclose(after.params.gain, 1 + np.sum(errors * w * [1, 2, 3]), rtol=1e-5)
    by_action = [errors[0] * 13 + errors[2] * 15, errors[1] * 14]
    np.testing.assert_allclose(after.params.w, ONLINE.w + np.array(by_action), rtol=1e-5)


def test_the_burn_in_runs_with_the_newest_parameters() -> None:
    online = ONLINE._replace(gain=np.float32(2.0))
    _, priority, _ = _update(_config())(_windows(), online)
    # Online sums 16, 18, 20 from 10 + 2 x 2: predictions 16, 36, 20; targets as before, by the target network's sums.
    np.testing.assert_allclose(priority[0], _of([23.75 - 16, 44 - 36, 48 - 20])[0], rtol=1e-6)


def test_the_best_action_behind_a_return_is_a_legal_one() -> None:
    legal = jnp.ones((1, 6, 2), bool).at[0, 4:, 1].set(False)
    _, priority, _ = _update(_config(), MASKED)(agent_cases.store(_windows(), legal=legal), ONLINE)
    # Action 0 is worth 3 x 15 and 3 x 16: 20 + 45/4, 40 + 48/4, 40 + 48/2.
    np.testing.assert_allclose(priority[0], _of([31.25 - 13, 52 - 28, 64 - 15])[0], rtol=1e-6)


# Acting -------------------------------------------------------------------------------------------------------------


def test_acting_carries_the_state_and_the_last_action_and_stores_those_before() -> None:
    parts = _parts(_config(epsilon=0.0))
    memory = actor_critic.Past(jnp.array([[10.0], [10.0]]), jnp.array([1, 1], jnp.int32))
    inputs = agent_cases.inputs(np.array([[-30.0], [5.0]], np.float32), 2, first=np.array([False, True]))
    act = jax.jit(lambda: r2d2._act(parts, ONLINE, memory, inputs, jax.random.key(0)))
    after, outputs = act()
    assert after.state.tolist() == [[-20.0], [5.0]]
    assert outputs.action.tolist() == after.action.tolist() == [0, 1]  # Q: -20, -40; 5, 10
    # The second one begins an episode: what was before is none of its own.
    assert outputs.stored["state"].tolist() == [[10.0], [0.0]]
    assert outputs.stored["last_action"].tolist() == [1, 0]
    assert outputs.priority is None


def test_the_agent_is_as_configured() -> None:
    agent = r2d2.make(_config(frame_stack=2), MASKED, "cpu")
    # Whole sequences: a priority of the first steps alone would stay, low where the errors lie at the end.
    assert agent.data == sources.Replay(6, (0, 1, 2, 3, 4, 5), stride=3, following=5, crosses_episodes=True)
    assert agent.stack == 2 and agent.reanalyse is None
    assert set(agent.stored) == {"action", "last_action", "state", "legal"}
    assert {name for name, kept in agent.stored.items() if kept.every == 3} == {"last_action", "state"}
    memory = agent.initial_memory(5)
    assert (memory.state.shape, memory.action.shape) == ((5, 12), (5,))


@pytest.mark.thorough
def test_unrolling_from_a_stored_state_repeats_what_acting_saw() -> None:
    config = _config()
    agent = r2d2.make(config, SPEC, "cpu")
    parts = _parts(config)._replace(
        network=actor_critic.dueling(shared.NetworkConfig(width=8, lstm_width=6), SPEC, "cpu")
    )
    state = jax.jit(agent.init)(jax.random.key(0))
    random = np.random.default_rng(0)
    observation, reward = (random.normal(size=(1, 9, *shape)).astype(np.float32) for shape in ((1,), ()))
    first = np.isin(np.arange(9), [0, 6])[None]
    act, memory, rows = jax.jit(agent.act), agent.initial_memory(1), []
    for t in range(9):
        inputs = agent_cases.inputs(observation[:, t], 2, first=first[:, t], reward=reward[:, t])
        memory, outputs = act(state.params, memory, inputs, jax.random.key(t))
        rows.append(outputs.stored)
    stored = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
    windows = _windows(reward=reward[:, 3:], first=first[:, 3:])
    windows = agent_cases.show(windows, observation[:, 3:])._replace(
        stored={name: x[:, 3::3] if name != "action" else x[:, 3:] for name, x in stored.items()}
    )
    q = jax.jit(functools.partial(r2d2._unroll, parts))(state.params, windows)
    steps = actor_critic.Steps({types.OBSERVATION: observation}, first, reward, stored["last_action"])
    _, expected = jax.jit(parts.network.unroll)(state.params, np.zeros((1, 12), np.float32), steps)
    np.testing.assert_allclose(q, expected[:, 5:], atol=1e-6)
    assert q.shape == (1, 4, 2)
