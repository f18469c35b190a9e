"""MuZero's targets against numbers worked by hand: one window of five positions, discount 1/2, two-step returns."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.ops import nstep

REWARD = [9.0, 1.0, 2.0, 4.0, 8.0]
VALUE = [10.0, 20.0, 30.0, 40.0, 50.0]
NEVER = -1
X = float("nan")
"""A value or reward that is not trained."""


@functools.cache
def _n_step_targets(discount: float, n: int, num_positions: int) -> Any:
    """Returns the jitted function: cases differ in its arguments."""
    return jax.jit(functools.partial(nstep.n_step_targets, discount=discount, n=n, num_positions=num_positions))


def _make_targets(
    num_valid: int = 5, terminated_at: int = NEVER, truncated_at: int = NEVER, n: int = 2, discount: float = 0.5
) -> nstep.Targets:
    positions = np.arange(5)
    ends = (positions == terminated_at)[None], (positions == truncated_at)[None]
    seen = nstep.Experience(np.float32([REWARD]), np.float32([VALUE]), *ends, (positions < num_valid)[None])
    targets: nstep.Targets = jax.tree.map(lambda x: np.asarray(x[0]), _n_step_targets(discount, n, 3)(seen))
    return targets


def _assert_values(targets: nstep.Targets, expected: list[float]) -> None:
    np.testing.assert_array_equal(targets.value_mask, ~np.isnan(expected))
    np.testing.assert_allclose(np.where(targets.value_mask, targets.value, X), expected)


@pytest.mark.thorough
def test_targets_are_the_same_without_jit() -> None:
    no = np.zeros((1, 5), bool)
    seen = nstep.Experience(jnp.array([REWARD]), jnp.array([VALUE]), no, no, ~no)
    eager, jitted = nstep.n_step_targets(seen, discount=0.5, n=2, num_positions=3), _make_targets()
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[0], y), eager, jitted)


@pytest.mark.parametrize(
    ("ends", "value", "reward", "policy_mask"),
    [
        # 1 + 2/2 + 30/4, 2 + 4/2 + 40/4, 4 + 8/2 + 50/4. A reward is that of the edge that leads to its position.
        ({}, [9.5, 14.0, 20.5], [1.0, 2.0], [True] * 3),
        # 1 + 2/2 + 30/4; 2 + 4/2 + 0; 4 + 0: nothing bootstraps from a terminated position
        ({"num_valid": 4, "terminated_at": 3}, [9.5, 4.0, 4.0], [1.0, 2.0], [True] * 3),
        # 2 + 4/2 + 40/4; 4 + 40/2, one step only
        ({"num_valid": 4, "truncated_at": 3}, [9.5, 14.0, 24.0], [1.0, 2.0], [True] * 3),
        # Positions behind a termination are absorbing.
        ({"num_valid": 2, "terminated_at": 1}, [1.0, 0.0, 0.0], [1.0, 0.0], [True, False, False]),
        # 1 + 20/2. Nothing is trained behind a truncation or a cut, but the policy before a cut is.
        ({"num_valid": 2, "truncated_at": 1}, [11.0, X, X], [1.0, X], [True, False, False]),
        ({"num_valid": 2}, [11.0, X, X], [1.0, X], [True, True, False]),
    ],
    ids=str,
)
def test_returns_sum_discounted_rewards_and_bootstrap_after_n_steps_or_at_an_end(
    ends: dict[str, int], value: list[float], reward: list[float], policy_mask: list[bool]
) -> None:
    targets = _make_targets(**ends)
    _assert_values(targets, value)
    np.testing.assert_array_equal(targets.reward_mask, ~np.isnan(reward))
    np.testing.assert_array_equal(np.where(targets.reward_mask, targets.reward, X), reward)
    np.testing.assert_array_equal(targets.policy_mask, policy_mask)


def test_the_reward_of_the_sampled_position_itself_plays_no_part() -> None:
    # A one-step return of position 0 is the next reward and the next value: 1 + 20/2.
    np.testing.assert_allclose(_make_targets(n=1).value[0], 11.0)


def test_what_lies_behind_the_last_position_has_no_influence() -> None:
    # Position 4 is another episode's; with it the return of position 2 would be 20.5.
    np.testing.assert_allclose(_make_targets(num_valid=4).value[2], 24.0)


@pytest.mark.thorough
def test_targets_stay_finite_where_invalid_positions_hold_no_numbers() -> None:
    invalid = jnp.array([[True, True, False]])
    nan = jnp.where(invalid, 1.0, jnp.nan)
    no = jnp.zeros((1, 3), bool)
    targets = nstep.n_step_targets(nstep.Experience(nan, nan, no, no, invalid), discount=0.5, n=1, num_positions=2)
    assert np.isfinite(targets.value).all()


def _game(reward: list[float], num_valid: int, *, ends: bool, discount: float, n: int) -> nstep.Targets:
    """Targets of all positions of one game; two players, so the discount is negative. Values are 0.5, 1.5, ..."""
    positions = np.arange(len(reward), dtype=np.float32)[None]
    is_end = (positions == num_valid - 1) & ends
    seen = nstep.Experience(
        np.float32([reward]), positions + 0.5, is_end, np.zeros_like(is_end), positions < num_valid
    )
    targets: nstep.Targets = jax.tree.map(lambda x: np.asarray(x[0]), _n_step_targets(-discount, n, len(reward))(seen))
    return targets


@pytest.mark.parametrize("discount", [1.0, 0.5])
def test_the_winner_s_moves_count_as_won_the_loser_s_as_lost(discount: float) -> None:
    # X 0, O 3, X 1, O 4, X 2: X has a row with its third move, the fifth. Position 5 shows that, 6 is behind it.
    x_wins = _game([0, 0, 0, 0, 0, 1, 0], 6, ends=True, discount=discount, n=9)
    d = discount
    np.testing.assert_allclose(x_wins.value, [d**4, -(d**3), d**2, -d, 1, 0, 0])
    assert x_wins.value_mask.all()
    np.testing.assert_array_equal(x_wins.policy_mask, [True] * 5 + [False] * 2)
    # X 0, O 3, X 1, O 4, X 8, O 5: O has one with the sixth move.
    o_wins = _game([0, 0, 0, 0, 0, 0, 1], 7, ends=True, discount=discount, n=9)
    np.testing.assert_allclose(o_wins.value, [-(d**5), d**4, -(d**3), d**2, -d, 1, 0])


def test_a_game_that_is_cut_off_bootstraps_with_the_sign_of_whoever_moves_there() -> None:
    # Three moves are known, and the value 3.5 of O, who has the fourth.
    cut = _game([0, 0, 0, 0, 0, 1, 0], 4, ends=False, discount=0.5, n=9)
    np.testing.assert_allclose(cut.value[:3], [-3.5 / 8, 3.5 / 4, -3.5 / 2])
    np.testing.assert_array_equal(cut.value_mask, [True] * 3 + [False] * 4)


def test_n_steps_ahead_the_sign_is_that_of_n_moves() -> None:
    two = _game([0, 0, 0, 0, 0, 1, 0], 6, ends=True, discount=0.5, n=2)
    # O at 3 sees X's win at 5, O at 1 the value 3.5 of O at 3.
    np.testing.assert_allclose(two.value[[1, 3, 4]], [3.5 / 4, -0.5, 1.0])
    three = _game([0, 0, 0, 0, 0, 1, 0], 6, ends=True, discount=0.5, n=3)
    np.testing.assert_allclose(three.value[[0, 1]], [-3.5 / 8, -4.5 / 8])


# Corrected by V-trace ------------------------------------------------------------------------------------------------


_corrected_targets = jax.jit(functools.partial(nstep.corrected_targets, discount=0.5, num_positions=3))


def _corrected(ratio: list[float], num_valid: int = 5, *, terminated: bool = False) -> nstep.Targets:
    """Returns the corrected targets of the window, which may end with its last valid position."""
    positions = np.arange(5)
    ends = ((positions == num_valid - 1) & terminated)[None], np.zeros((1, 5), bool)
    seen = nstep.Experience(np.float32([REWARD]), np.float32([VALUE]), *ends, (positions < num_valid)[None])
    found: nstep.Targets = jax.tree.map(
        lambda x: np.asarray(x[0]), _corrected_targets(seen, np.log(np.float32([ratio])))
    )
    return found


def test_an_action_s_own_ratio_is_in_the_value_and_not_in_its_estimate() -> None:
    found = _corrected([0.5, 0.1, 1.0, 3.0, 1.0])
    # From position 3 on 8 + 50/2 = 33; from 2 on 4 + 33/2 = 20.5.
    # Position 1: 2 + 20.5/2, 20 + 0.1 (12.25 - 20); position 0: 1 + 19.225/2, 10 + 0.5 (10.6125 - 10).
    np.testing.assert_allclose(found.q_estimate, [10.6125, 12.25, 20.5], rtol=1e-6)
    np.testing.assert_allclose(found.value, [10.30625, 19.225, 20.5], rtol=1e-6)


@pytest.mark.parametrize(("terminated", "behind"), [(True, 0.0), (False, 30.0)])
def test_estimates_of_actions_end_where_returns_do(terminated: bool, behind: float) -> None:
    found = _corrected([0.5, 0.1, 1.0, 1.0, 1.0], 3, terminated=terminated)
    np.testing.assert_allclose(found.q_estimate[1], 2 + behind / 2)
    short = _corrected([0.5, 0.1, 1.0, 1.0, 1.0], 2, terminated=terminated)
    np.testing.assert_allclose(short.q_estimate[[0, 2]], [1 + (0.0 if terminated else 20 / 2), 0.0])


def test_without_a_correction_an_estimate_is_the_return() -> None:
    found = _make_targets(num_valid=4, terminated_at=3)
    np.testing.assert_array_equal(found.q_estimate, found.value)


@pytest.mark.parametrize("jit", [False, True])
def test_scale_gradient_changes_the_gradient_and_nothing_else(jit: bool) -> None:
    def f(x: jax.Array) -> jax.Array:
        return jnp.square(nstep.scale_gradient(x, 0.5))

    value, gradient = (jax.jit(jax.value_and_grad(f)) if jit else jax.value_and_grad(f))(3.0)
    assert value == 9.0
    assert gradient == 3.0


def _brute_force(reward: np.ndarray, value: np.ndarray, last: int, terminated: bool, num_rewards: int) -> list[float]:
    """Returns of positions 0 .. 2 of one window, with discount 0.9; 0 behind the last position."""
    returns_ = []
    for k in range(3):
        total, discount, at = 0.0, 1.0, k
        while at < last and at < k + num_rewards:
            at += 1
            total += discount * reward[at]
            discount *= 0.9
        is_end = terminated and at == last
        returns_.append(0.0 if k > last else total + (0.0 if is_end else discount * value[at]))
    return returns_


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_returns_of_random_windows_are_those_of_a_loop(n: int) -> None:
    random = np.random.default_rng(0)
    size, num_positions = 60, 3 + 4
    reward, value = random.normal(size=(2, size, num_positions)).astype(np.float32)
    last = random.integers(0, num_positions, size)
    terminated = random.random(size) < 0.5
    positions = np.arange(num_positions)
    targets = jax.jit(functools.partial(nstep.n_step_targets, discount=0.9, n=n, num_positions=3))(
        nstep.Experience(
            reward,
            value,
            terminated[:, None] & (positions == last[:, None]),
            np.zeros((size, num_positions), bool),
            positions <= last[:, None],
        )
    )
    expected = [_brute_force(*window, n) for window in zip(reward, value, last, terminated, strict=True)]
    np.testing.assert_allclose(targets.value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("horizon", "expected"),
    [(1, [1, 2, 4, 8, 16]), (2, [1, 3, 4, 12, 16]), (3, [1, 3, 7, 8, 24]), (5, [1, 3, 7, 15, 31])],
)
def test_value_prefixes_are_sums_that_begin_anew_every_horizon(horizon: int, expected: list[float]) -> None:
    reward = jnp.array([[1.0, 2.0, 4.0, 8.0, 16.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(nstep.value_prefixes(reward, horizon), [expected, [0] * 5])


def test_rewards_are_scaled_then_clipped() -> None:
    given = np.array([-30.0, 2.0, 30.0], np.float32)
    assert nstep.scaled_reward(given, 0.5, 0.0).tolist() == [-15.0, 1.0, 15.0]
    assert nstep.scaled_reward(given, 0.1, 1.0).tolist() == pytest.approx([-1.0, 0.2, 1.0])


# Games against others ------------------------------------------------------------------------------------------------

OTHERS_REWARD = [9.0, 1.0, 2.0, 4.0, 8.0, 16.0]
OTHERS_VALUE = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
IN_TURN = [True, False, True, False, True, True]
"""Whose move each of six positions is; the last row of a game is the player's own."""


@pytest.mark.parametrize(
    ("end", "n", "expected"),
    [
        # Position 4 sees 16 - 60/2. Two before the next own position: 1 - 2/2 + 30/4, 4 - 8/2 + 50/4.
        ("truncated", 1, [X, X, X, X, -14.0, X]),
        ("truncated", 2, [7.5, X, 12.5, X, -14.0, X]),
        ("truncated", 3, [7.5, X, 4 - 8 / 2 + 16 / 4 - 60 / 8, X, -14.0, X]),
        ("terminated", 1, [X, X, X, X, 16.0, 0.0]),
        ("terminated", 2, [7.5, X, 12.5, X, 16.0, 0.0]),
        ("terminated", 3, [7.5, X, 4 - 8 / 2 + 16 / 4, X, 16.0, 0.0]),
        ("terminated", 5, [1 - 2 / 2 + 4 / 4 - 8 / 8 + 16 / 16, X, 4.0, X, 16.0, 0.0]),
        ("", 2, [7.5, X, 12.5, X, -14.0, X]),
    ],
)
def test_a_return_bootstraps_at_the_last_own_position_within_n_steps(end: str, n: int, expected: list[float]) -> None:
    seen = nstep.Experience(
        np.float32([OTHERS_REWARD]),
        np.float32([OTHERS_VALUE]),
        *((np.arange(6) == 5)[None] & (end == kind) for kind in ("terminated", "truncated")),
        valid=np.ones((1, 6), bool),
        own=np.array([IN_TURN]),
    )
    targets = jax.tree.map(lambda x: np.asarray(x[0]), _n_step_targets(-0.5, n, 6)(seen))
    _assert_values(targets, expected)
    np.testing.assert_array_equal(targets.policy_mask, [*IN_TURN[:5], not end])
    np.testing.assert_array_equal(targets.reward, OTHERS_REWARD[1:])  # the model learns from all moves
    assert targets.reward_mask.all()
    np.testing.assert_array_equal(targets.q_estimate, targets.value)


def _random_windows(num_positions: int = 8) -> nstep.Experience:
    """Returns 200 windows."""
    random = np.random.default_rng(0)
    size, positions = 200, np.arange(num_positions)
    last, kind = random.integers(0, num_positions, size)[:, None], random.integers(0, 3, size)[:, None]
    reward, value = random.normal(size=(2, size, num_positions)).astype(np.float32)
    seen = nstep.Experience(
        reward,
        value,
        terminated=(positions == last) & (kind == 1) | (positions > last) & (random.random(reward.shape) < 0.3),
        truncated=(positions == last) & (kind == 2),
        valid=positions <= last,
        own=random.random(reward.shape) < 0.6,
    )
    found: nstep.Experience = jax.tree.map(jnp.asarray, seen)
    return found


def _slow(reward: Any, value: Any, terminated: Any, truncated: Any, valid: Any, own: Any, num: int) -> list[Any]:
    """Returns (value or NaN, whether the policy is trained) of four positions of one window."""
    last, found = int(np.flatnonzero(valid)[-1]), []
    ends = bool(terminated[last])
    for k in range(4):
        if k > last or (k == last and ends):
            found.append((0.0 if ends else X, False))
            continue
        stops = [j for j in range(k + 1, min(k + num, last) + 1) if own[j] or (ends and j == last)]
        total = X
        if own[k] and stops:
            total = 0.0 if ends and stops[-1] == last else float(value[stops[-1]])
            for j in range(stops[-1], k, -1):
                total = reward[j] - 0.9 * total
        found.append((total, bool(own[k] and not truncated[k])))
    return found


@pytest.mark.parametrize("n", [1, 2, 3])
def test_targets_against_others_are_those_of_a_loop_over_their_positions(n: int) -> None:
    seen = _random_windows()
    targets = jax.jit(functools.partial(nstep.n_step_targets, discount=-0.9, n=n, num_positions=4))(seen)
    expected = np.array([_slow(*window, n) for window in zip(*map(np.asarray, seen), strict=True)])
    np.testing.assert_array_equal(targets.value_mask, ~np.isnan(expected[..., 0]))
    np.testing.assert_array_equal(targets.policy_mask, expected[..., 1] == 1)
    found = np.where(targets.value_mask, targets.value, X)
    np.testing.assert_allclose(found, expected[..., 0], rtol=1e-5, atol=1e-6)
    assert 100 < targets.value_mask.sum() < 600 and np.isfinite(targets.value).all()


def test_with_others_windows_from_own_rows_are_learned_whole_alone() -> None:
    seen = _random_windows()
    make = jax.jit(
        functools.partial(nstep.n_step_targets, discount=-0.9, n=3, num_positions=4), static_argnames="learns_others"
    )
    found, alone, every = make(seen, learns_others=True), make(seen), make(seen._replace(own=None))
    begins = np.asarray(seen.own)[:, 0]
    assert np.asarray(found.policy_mask)[begins].sum() > np.asarray(alone.policy_mask)[begins].sum() > 0
    np.testing.assert_array_equal(found.policy_mask, every.policy_mask & begins[:, None])
    np.testing.assert_array_equal(found.value, alone.value)
    # An own row is learned as ever where its window begins with one, another's if an own one or the end follows it.
    own = np.asarray(seen.own)[:, :4] & begins[:, None]
    np.testing.assert_array_equal(np.asarray(found.value_mask)[own], np.asarray(alone.value_mask)[own])


def test_another_s_move_is_worth_the_reward_and_the_own_value_behind_it() -> None:
    own = np.array([[True, False, True, False, True], [False, True, False, True, False]])
    no = np.zeros_like(own)
    reward, value = (np.tile(np.array(x, np.float32), (2, 1)) for x in (REWARD, VALUE))
    seen = nstep.Experience(reward, value, no, no, ~no, own)  # type: ignore[arg-type]
    make = functools.partial(nstep.n_step_targets, discount=-0.5, n=2, num_positions=3, learns_others=True)
    found = jax.jit(make)(seen)
    # 1 - 2/2 + 30/4; another's: 2 - 30/2, in place of 2 - 4/2 + 40/4; 4 - 8/2 + 50/4.
    np.testing.assert_allclose(found.value[0], [7.5, -13.0, 12.5])
    np.testing.assert_array_equal(found.value_mask, [[True] * 3, [False] * 3])
    np.testing.assert_array_equal(found.policy_mask, [[True] * 3, [False] * 3])


def test_where_all_positions_are_own_targets_are_the_same_bits() -> None:
    seen = _random_windows()
    make = jax.jit(functools.partial(nstep.n_step_targets, discount=-0.9, n=3, num_positions=4))
    own, nothing = (seen._replace(own=own) for own in (jnp.ones_like(seen.valid), None))
    for one, other in zip(make(own), make(nothing), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_the_first_number_under_a_mask_is_found_or_none() -> None:
    mask = jnp.array([[False, True, True], [True, False, True], [False] * 3])
    found = nstep.at_first(jnp.array([[1.0, 2.0, 3.0]] * 3), mask)
    np.testing.assert_array_equal(found, [2.0, 1.0, np.nan])


def test_where_a_player_moves_twice_returns_are_player_0_s_and_then_the_mover_s() -> None:
    mover, no = jnp.array([[0, 1, 1, 0, 1]]), jnp.zeros((1, 5), bool)
    seen = nstep.of_player(nstep.Experience(jnp.array([REWARD]), jnp.array([VALUE]), no, no, ~no), mover)
    np.testing.assert_allclose(seen.reward, [[9.0, 1.0, -2.0, -4.0, 8.0]])  # of who moved before
    np.testing.assert_allclose(seen.value, [[10.0, -20.0, -30.0, 40.0, -50.0]])  # of who moves there
    found = nstep.of_movers(_n_step_targets(0.5, 2, 3)(seen), mover)
    # 1 - 2/2 - 30/4; -(-2 - 4/2 + 40/4); -(-4 + 8/2 - 50/4)
    np.testing.assert_allclose(found.value, [[-7.5, -6.0, 12.5]])
    np.testing.assert_allclose(found.reward, [[1.0, 2.0]])
