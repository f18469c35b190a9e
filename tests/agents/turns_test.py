"""Two players in turn: signs of discounts, and returns through rows of others, by numbers worked by hand."""

from __future__ import annotations

import agent_cases  # beside this file: see conftest.py
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import agent_table, turns
from seedzero.config import configs
from seedzero.core import types
from seedzero.ops import gae, vtrace
from seedzero.replay import ring_store, windowing

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
    discount = turns.discounts(TWO, windows, 1.0)
    course = turns.course(windows, VALUE, windows.reward[:, 1:], discount, trace_decay=trace_decay)
    found = gae.advantages(
        course.value, windows.reward[:, 1:], discount, course.is_step, trace_decay=course.trace_decay
    )
    return found[0].tolist(), course.learned[0].tolist()


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
    discount = turns.discounts(TWO, windows, 1.0)
    course = turns.course(windows, VALUE, windows.reward[:, 1:], discount, trace_decay=1.0)
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
    assert turns.discounts(again, windows, 0.9)[0].tolist() == pytest.approx([0.9, -0.9, 0.9, 0.0])
    array = types.ArraySpec("board", (2,), "float32")
    named = types.EnvSpec.of_arrays([array], num_actions=3, num_players=2, moves_again=True)
    boards = windows._replace(observation={"board": agent_cases.shown(windows)})
    assert turns.discounts(named, boards, 0.9)[0].tolist() == pytest.approx([0.9, -0.9, 0.9, 0.0])
    alone = types.EnvSpec((2,), "float32", 3)
    assert turns.discounts(alone, windows, 0.9)[0].tolist() == pytest.approx([0.9, 0.9, 0.9, 0.0])


@pytest.mark.parametrize("agent", ["ppo", "vtrace"])
def test_own_rows_are_marked_in_a_league_of_turns_alone(agent: str) -> None:
    chairs = ("first", "second")
    seated = types.EnvSpec((2,), "float32", 3, has_action_mask=True, tasks=chairs, seats=chairs)
    for freeze_every, spec, is_marked in ((0, TWO, False), (100, TWO, True), (100, seated, False)):
        config = configs.override(configs.Config(), {"run.agent": agent, "league.freeze_every": freeze_every})
        assert (ring_store.OWN in agent_table.make(config, spec, "cpu").stored) is is_marked
