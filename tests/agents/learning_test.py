"""Steps of learning that agents share, on MuZero's update: target networks, minibatches, devices."""

from __future__ import annotations

from typing import Any

import agent_cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import muzero_cases as cases
import numpy as np
import optax
import pytest

from seedzero.agents import agent_table, base, learning, muzero_loss
from seedzero.config import configs, shared
from seedzero.core import types
from seedzero.ops import gae, vtrace
from seedzero.replay import ring_store, windowing


@pytest.mark.thorough
def test_the_target_network_is_a_copy_every_so_many_updates() -> None:
    config = cases.make_config(muzero__target_network_updates=2)
    state = cases.init(config)
    initial = state.params
    assert agent_cases.equal(state.target_params, initial)
    windows = cases.make_windows(config, num_observations=4)
    state, _, _ = cases.update(config, state, windows)
    assert agent_cases.equal(state.target_params, initial)
    assert not agent_cases.equal(state.params, initial)
    state, _, _ = cases.update(config, state, windows)
    assert agent_cases.equal(state.target_params, state.params)


def test_without_a_target_network_the_state_holds_none() -> None:
    assert cases.init(cases.make_config()).target_params == ()


def test_minibatches_are_learned_one_after_the_other_or_refused_together() -> None:
    """The loss pulls a number towards the mean of a minibatch; one without steps is left out."""

    def learn(numbers: Any) -> Any:
        state = learning.init({"w": jnp.zeros(())}, optax.identity())
        rows = jnp.array([[0, 1], [2, -1], [-1, -1]])

        def minibatch(rows: jax.Array) -> tuple[Any, jax.Array]:
            counted = (rows >= 0).astype(jnp.float32)
            return (jnp.asarray(numbers)[rows], counted), jnp.sum(counted)

        def loss(params: Any, batch: Any, num_steps: jax.Array) -> tuple[jax.Array, base.Metrics]:
            error = jnp.sum(batch[1] * jnp.square(params["w"] - batch[0])) / jnp.maximum(num_steps, 1.0)
            return error, {"loss": error}

        rate = jnp.float32(0.25)
        return learning.learn_in_minibatches(
            state, rows, minibatch, loss, optimizer=optax.identity(), learning_rate=rate, axis_name=None
        )

    state, accepted, metrics = jax.jit(learn)(np.array([1.0, 3.0, 5.0], np.float32))
    # 0 -> 2 / 2 -> 1 + 4 / 2
    assert accepted and state.params["w"] == 3.0 and state.num_updates == 1 and state.num_rejected == 0
    assert metrics.keys() == {"loss", "grad_norm", "learning_rate", "num_rejected"} and metrics["loss"] == 10.5
    state, accepted, metrics = jax.jit(learn)(np.array([1.0, 3.0, np.nan], np.float32))
    assert not accepted and state.params["w"] == 0.0 and state.num_updates == 1 and metrics["num_rejected"] == 1


def test_the_target_network_copies_no_moments_of_a_refused_update() -> None:
    config = cases.make_config(muzero__target_network_updates=2)
    windows = cases.make_windows(config, num_observations=4)
    state, _, _ = cases.update(config, cases.init(config), windows)
    before = state.params
    bad = agent_cases.show(windows, 9.0 + np.asarray(agent_cases.shown(windows)))
    state, _, _ = cases.update(config, state, bad._replace(reward=bad.reward.at[0, 1].set(jnp.nan)))
    assert int(state.num_rejected) == 1
    assert agent_cases.equal(state.params, before)
    assert agent_cases.equal(state.target_params, before)


_EVERYTHING = dict(
    muzero__policy_gradient_weight=0.5,
    muzero__search_value_age=10,
    muzero__off_policy_correction=True,
    muzero__target_network_updates=3,
)


@pytest.mark.parametrize("changes", [pytest.param({}, marks=pytest.mark.slow), _EVERYTHING], ids=["plain", "all"])
def test_two_devices_take_the_step_that_one_takes(changes: dict[str, Any]) -> None:
    spec = jax.sharding.PartitionSpec
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("devices",))
    config = cases.make_config(**changes)
    agent, _ = cases.agent(config)
    state, windows = cases.init(config), cases.make_windows(config, len(agent.data.observe))  # type: ignore[union-attr]
    # The first device's windows have the larger returns, and an end; the second one's are older.
    windows = windows._replace(
        reward=windows.reward.at[:2].multiply(30.0), truncated=windows.truncated.at[0, 2].set(True)
    )
    chance = jnp.full(windows.valid.shape, 0.5)
    windows = cases.aged(agent_cases.store(windows, **{muzero_loss.PROBABILITY: chance}), [0, 0, -20, -20])
    whole, priority, metrics = cases.update(config, state, windows)
    mapped = jax.shard_map(
        lambda state, windows: agent.update(state, windows, jax.random.key(1), "devices"),
        mesh=mesh,
        check_vma=False,  # as in device/meshes.py
        in_specs=(spec(), spec("devices")),
        out_specs=(spec(), spec("devices"), spec()),
    )
    sharded, sharded_priority, sharded_metrics = jax.jit(mapped)(state, windows)
    np.testing.assert_allclose(sharded_priority, priority, rtol=1e-5)
    for name, value in metrics.items():
        np.testing.assert_allclose(sharded_metrics[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(sharded.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_q_learning_divides_gradients_by_their_size_or_deviation() -> None:
    gradient = np.array([3.0, -4.0], np.float32)

    def first_step(kind: str, clip_norm: float) -> np.ndarray:
        chain = learning.optimizer(
            shared.OptimizerConfig(kind, 1.0, clip_norm, rmsprop_decay=0.9, epsilon=1e-3), is_centered=True
        )
        return np.asarray(jax.jit(lambda g: chain.update(g, chain.init(g))[0])(gradient))

    np.testing.assert_allclose(first_step("adam", 0.0), [1.0, -1.0], rtol=1e-2)
    # mean 0.1 g, mean square 0.1 g^2: g / sqrt(0.1 g^2 - 0.01 g^2 + epsilon)
    np.testing.assert_allclose(first_step("rmsprop", 0.0), [3.333, -3.333], rtol=2e-2)
    clipped = first_step("rmsprop", 0.05)  # to 0.03 and -0.04
    np.testing.assert_allclose(clipped, gradient / 100 / np.sqrt(0.09 * (gradient / 100) ** 2 + 1e-3), rtol=1e-2)


def test_rmsprop_goes_on_where_gradients_stay_as_they_are() -> None:
    settings = shared.OptimizerConfig("rmsprop", 1.0, 0.0, rmsprop_decay=0.95, epsilon=1.5e-7)
    chain = learning.optimizer(settings, is_centered=True)
    gradient = jnp.linspace(0.5, 40.0, 2000)

    @jax.jit
    def steps(gradient: jax.Array) -> jax.Array:
        def step(state: Any, _: None) -> tuple[Any, jax.Array]:
            direction, state = chain.update(gradient, state)
            return state, direction

        return jax.lax.scan(step, chain.init(gradient), length=400)[1]

    found = np.asarray(steps(gradient))
    assert np.all(np.isfinite(found)) and np.all(found > 0)


TWO = types.EnvSpec((2,), "float32", 3, num_players=2, has_action_mask=True)
VALUE = jnp.array([[0.2, -0.4, 0.6, 0.1, 0.0]])


def _windows(*, own: tuple[bool, ...] = (), end: int = 4, cut: bool = False) -> windowing.Windows:
    """Returns five rows of a game that ends at a row, by a win of the mover before, or is cut off there."""
    is_end = np.arange(5)[None] == end
    return agent_cases.windows(
        np.zeros((1, 5, 2), np.float32),
        reward=np.where(is_end & (not cut), 1.0, 0.0).astype(np.float32),
        terminated=is_end & (not cut),
        truncated=is_end & cut,
        first=np.zeros((1, 5), bool),
        stored={"action": np.zeros((1, 5), np.int32), **({ring_store.OWN: np.array([own])} if own else {})},
    )


def _advantages(windows: windowing.Windows, trace_decay: float) -> tuple[list[float], list[bool]]:
    discount = learning.turn_discounts(TWO, windows, 1.0)
    course = learning.turn_course(windows, VALUE, windows.reward[:, 1:], discount, trace_decay=trace_decay)
    found = gae.advantages(
        course.value, windows.reward[:, 1:], discount, course.is_step, trace_decay=course.trace_decay
    )
    return found[0].tolist(), course.learned[0].tolist()


@pytest.mark.thorough
def test_advantages_of_both_players_in_one_row_change_their_sign_with_each_move() -> None:
    # The last mover wins: 1 - 0.1 = 0.9; before: -0.1 - 0.6 = -0.7, less half of 0.9; -0.6 + 0.4 = -0.2, plus half of
    # 1.15; 0.4 - 0.2 = 0.2, less half of 0.375.
    found, learned = _advantages(_windows(), 0.5)
    assert found == pytest.approx([0.0125, 0.375, -1.15, 0.9]) and all(learned)


def test_returns_run_through_moves_of_others_as_if_these_were_the_environments() -> None:
    # The other one wins behind row 2: -1 - 0.6 = -1.6. From row 0 to row 2: 0.6 - 0.2 = 0.4, and half of -1.6.
    found, learned = _advantages(_windows(own=(True, False, True, False, False)), 0.5)
    assert learned == [True, False, True, False]
    assert (found[0], found[2]) == pytest.approx((-0.4, -1.6))


@pytest.mark.parametrize("cut", [False, True], ids=["window", "episode"])
def test_nothing_is_learned_from_a_move_after_which_only_another_one_s_row_is_known(cut: bool) -> None:
    # Row 4, of the other one, is the last of the window, or of an episode that a limit ends. Row 1 still has row 3.
    windows = _windows(own=(False, True, False, True, False), end=4 if cut else 9, cut=True)
    found, learned = _advantages(windows, 0.5)
    assert learned == [False, True, False, False]
    assert found[1] == pytest.approx(0.1 + 0.4)


def test_targets_of_vtrace_run_through_moves_of_others() -> None:
    windows = _windows(own=(True, False, True, False, False))
    discount = learning.turn_discounts(TWO, windows, 1.0)
    course = learning.turn_course(windows, VALUE, windows.reward[:, 1:], discount, trace_decay=1.0)
    found = vtrace.targets(
        course.value,
        windows.reward[:, 1:],
        discount,
        jnp.zeros((1, 4)),
        course.is_step,
        trace_decay=course.trace_decay,
    )
    assert (found.value[0, 0], found.value[0, 2]) == pytest.approx((-1.0, -1.0))  # the game is lost
    assert (found.advantage[0, 0], found.advantage[0, 2]) == pytest.approx((-1.2, -1.6))


def test_a_player_who_moves_again_keeps_the_sign() -> None:
    again = types.EnvSpec((2,), "float32", 3, num_players=2, has_action_mask=True, moves_again=True)
    windows = _windows()
    movers = np.array([[0, 0, 1, 1, 0]], np.float32)
    windows = agent_cases.show(windows, np.stack([np.zeros_like(movers), movers], axis=-1))
    assert learning.turn_discounts(again, windows, 0.9)[0].tolist() == pytest.approx([0.9, -0.9, 0.9, 0.0])
    array = types.ArraySpec("board", (2,), "float32")
    named = types.EnvSpec.of_arrays([array], num_actions=3, num_players=2, moves_again=True)
    boards = windows._replace(observation={"board": agent_cases.shown(windows)})
    assert learning.turn_discounts(named, boards, 0.9)[0].tolist() == pytest.approx([0.9, -0.9, 0.9, 0.0])
    alone = types.EnvSpec((2,), "float32", 3)
    assert learning.turn_discounts(alone, windows, 0.9)[0].tolist() == pytest.approx([0.9, 0.9, 0.9, 0.0])


@pytest.mark.parametrize("agent", ["ppo", "vtrace"])
def test_own_rows_are_marked_in_a_league_of_turns_alone(agent: str) -> None:
    chairs = ("first", "second")
    seated = types.EnvSpec((2,), "float32", 3, has_action_mask=True, tasks=chairs, seats=chairs)
    for freeze_every, spec, is_marked in ((0, TWO, False), (100, TWO, True), (100, seated, False)):
        config = configs.override(configs.Config(), {"run.agent": agent, "league.freeze_every": freeze_every})
        assert (ring_store.OWN in agent_table.make(config, spec, "cpu").stored) is is_marked
