"""Moves of scripted members: uniform ones by their keys, bots by their numbers."""

from __future__ import annotations

import collections

import numpy as np

from seedzero.device import batches
from seedzero.learner.league_play import league_seating

SLOTS = np.array([3, 0, 5], np.int32)
MASK = np.array([[True, False, True, True], [False, True, False, False], [True, True, True, True]])
ROWS = batches.Batch(SLOTS, np.zeros(3), np.zeros(3, bool), action_mask=MASK)


def _make() -> league_seating.Scripts:
    return league_seating.Scripts(("mcts-9", "a:b"), 7, 8, 4)


def _random(moves: league_seating.Scripts, mine: list[bool], rows: batches.Batch = ROWS) -> list[int]:
    given = moves.hand("random", rows, np.array(mine)).given
    assert given is not None and given.dtype == np.int32
    return given.tolist()


def test_the_legal_actions_share_the_numbers_drawn() -> None:
    """Worked by hand: of n legal actions, the one of rank k has the numbers from k / n to below (k + 1) / n."""
    drawn = np.array([0.0, 0.34, 0.999])
    assert league_seating.uniform(MASK[[0, 0, 0]], drawn).tolist() == [0, 2, 3]
    assert league_seating.uniform(MASK[[1, 1, 1]], drawn).tolist() == [1, 1, 1]
    assert league_seating.uniform(MASK[[2, 2, 2]], np.array([0.24, 0.25, 0.75])).tolist() == [0, 1, 3]


def test_uniform_moves_are_equally_likely_and_follow_from_their_keys() -> None:
    moves, again = _make(), _make()
    found = [_random(moves, [True, True, True]) for _ in range(3000)]
    assert [_random(again, [True, True, True]) for _ in range(50)] == found[:50]
    for at, legal in enumerate(([0, 2, 3], [1], [0, 1, 2, 3])):
        counts = collections.Counter(actions[at] for actions in found)
        assert sorted(counts) == legal and max(abs(n - 3000 / len(legal)) for n in counts.values()) < 130
    again.reset(0)
    assert [_random(again, [True, True, True]) for _ in range(50)] == found[:50]
    again.reset(9)  # the next epoch of the environments
    assert [_random(again, [True, True, True]) for _ in range(50)] != found[:50]


def test_the_moves_of_a_slot_depend_on_no_other_slot() -> None:
    together, alone = _make(), _make()
    found = [_random(together, [True, True, True])[2] for _ in range(20)]
    assert [_random(alone, [False, False, True])[0] for _ in range(20)] == found


def test_a_game_without_masks_has_all_actions() -> None:
    moves, rows = _make(), ROWS._replace(action_mask=None)
    assert {action for _ in range(60) for action in _random(moves, [True, True, True], rows)} == {0, 1, 2, 3}


def test_bots_are_moved_by_their_numbers() -> None:
    hands = [_make().hand(name, ROWS, np.array([True, False, True])) for name in ("mcts-9", "a:b")]
    assert [hand.bot for hand in hands] == [1, 2] and all(hand.given is None for hand in hands)
    assert all(hand.is_scripted and not hand.own and hand.params is None for hand in hands)
