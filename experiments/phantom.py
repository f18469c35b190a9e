"""Computes the exact NashConv of phantom tic-tac-toe, which has far too many histories to visit each.

A seat tries to place a stone on an empty cell. If the other seat has a stone there, it learns that and tries another
cell. It sees only its own tries. So the stones of both seats in their order, a *line* of play, decide everything but
the failed tries. A seat may fail at any stone that the other one placed before, so in a given line the tries of one
seat do not depend on the other's. The sum over all histories (2e10) is therefore a sum over lines (5e5) of products of
two sums, each over the tries of one seat.

Shape letters: C cells, N information states of a seat ("nodes"), P pairs of a line and a node, R rows, A = C actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from seedzero.acting.actors import acting_program
from seedzero.agents import base
from seedzero.core import types
from seedzero.device import acting
from seedzero.envs import seats

_NONE = -1
_THREE = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
NAMES = (
    "phantom_ttt()",
    "phantom_ttt(gameversion=classical)",
    "phantom_ttt(obstype=reveal-nothing)",
    "phantom_ttt(gameversion=classical,obstype=reveal-nothing)",
)
"""Games with these rules, as OpenSpiel writes them: after a failed try, of which nobody else learns, comes another."""
_EMPTY, _STONES = 0, (2, 1)
"""Planes of an observation: empty cells, and the stones of each seat."""
_ROWS = 8192
"""R, rows of a compiled call."""
_MOST_PAIRS = 2_000_000
"""Most pairs in a state; larger states are halved by lines."""


class Board(NamedTuple):
    """A board of C cells. wins: [2, 2^C] bool by seat and mask of its stones."""

    num_cells: int
    wins: np.ndarray


def rules_of(game: Any) -> Board | None:
    """Returns the rules of a pyspiel.Game that this module can solve, or None."""
    if str(game) not in NAMES:
        return None
    masks, keys = np.arange(1 << 9), [sum(1 << cell for cell in line) for line in _THREE]
    wins = np.any([(masks & key) == key for key in keys], axis=0)
    return Board(9, np.stack([wins, wins]))


def nash_conv(rules: Board, agent: base.Agent, game: seats.SeatGame, params: base.Params) -> float:
    """Returns the NashConv of an agent that has a `policy` and no memory; it takes minutes and 3 GB."""
    both = (nodes(rules, 0), nodes(rules, 1))
    ask = _asking(agent, game)
    return sum(best_response(rules, seat, both, ask(params, rules, both[1 - seat], 1 - seat)) for seat in (0, 1))


def observations(rules: Board, found: Nodes, rows: np.ndarray, seat: int) -> np.ndarray:
    """Returns OpenSpiel's information state tensors [R, 3 C + C^2] for some of a seat's nodes, [R]."""
    cells, bits = rules.num_cells, np.arange(rules.num_cells)
    own, known = ((masks[rows][:, None] >> bits & 1).astype(bool) for masks in (found.own, found.known))
    planes = np.zeros((len(rows), 3, cells), np.float32)
    planes[:, _EMPTY], planes[:, _STONES[seat]], planes[:, _STONES[1 - seat]] = ~(own | known), own, known
    tries = found.tries[rows][:, :, None] == bits
    return np.concatenate([planes.reshape(len(rows), -1), tries.reshape(len(rows), -1)], axis=1, dtype=np.float32)


def _asking(agent: base.Agent, game: seats.SeatGame) -> Callable[[base.Params, Board, Nodes, int], np.ndarray]:
    """Returns a function that evaluates an agent's policy [N, A] in all nodes of a seat."""
    spec, program, memory = (
        game.spec,
        acting_program.ActingProgram(agent, game.spec),
        acting.initial(agent, game.spec, _ROWS),
    )
    assert agent.policy is not None

    def ask(params: base.Params, rules: Board, found: Nodes, seat: int) -> np.ndarray:
        parts: list[np.ndarray] = []
        for begin in range(0, len(found.own), _ROWS):
            # the last row is repeated as padding
            rows = np.minimum(np.arange(begin, begin + _ROWS), len(found.own) - 1)
            legal = ((found.own | found.known)[rows][:, None] >> np.arange(rules.num_cells) & 1) == 0
            step = types.EnvStep.first(observations(rules, found, rows, seat))
            step = step._replace(action_mask=legal, task=np.full(_ROWS, seat, np.int32))
            seen = acting_program.seen(spec, step, rows == 0)
            parts.append(np.asarray(program(params, memory, seen, 0, 0, findings=acting_program.NUMBERS)[1]["policy"]))
        policy = np.concatenate(parts)[: len(found.own)].astype(np.float64)
        return np.asarray(policy / policy.sum(axis=1, keepdims=True))

    return ask


class Nodes(NamedTuple):
    """A seat's information states, earlier ones before later ones. A sequence is node * C + cell."""

    own: np.ndarray  # [N] int32, mask of the seat's stones
    known: np.ndarray  # [N] int32, mask of the other seat's stones at which it has failed
    tries: np.ndarray  # [N, C] int8, cells of its tries in order, then -1
    # [N, C] int32, node of its next turn after it placed a stone; -1 if there is none, or the try is illegal
    placed: np.ndarray
    failed: np.ndarray  # [N, C] int32, node after a failed try; -1 if illegal
    begins: np.ndarray  # [L + 1] int64, first node with each number of tries


def nodes(rules: Board, seat: int, *, most_tries: int | None = None) -> Nodes:
    """Returns a seat's information states: all of them, or only those after at most `most_tries` tries."""
    cells, bits = rules.num_cells, 1 << np.arange(rules.num_cells)
    own, known, tries = (np.zeros(1, np.int32), np.zeros(1, np.int32), np.full((1, cells), _NONE, np.int8))
    begins, levels, links = [0, 1], [(own, known, tries)], list[tuple[np.ndarray, np.ndarray]]()
    while len(own):
        number, empty = begins[-1], ((own | known)[:, None] & bits) == 0
        stones = _count(own)
        other = stones + seat  # number of the other seat's stones at this turn
        may_fail = empty & (_count(known) < other)[:, None] & ~rules.wins[1 - seat][known[:, None] | bits]
        # It has a next turn if both seats have placed one more stone and a cell is free.
        after = own[:, None] | bits
        goes_on = empty & ~rules.wins[seat][after] & (2 * stones + 2 + seat < cells)[:, None]
        if len(links) == most_tries:
            goes_on, may_fail = np.zeros_like(goes_on), np.zeros_like(may_fail)
        found = []
        for chosen in (goes_on, may_fail):
            link = np.full(chosen.shape, _NONE, np.int32)
            link[chosen] = number + np.arange(np.count_nonzero(chosen))
            number += int(np.count_nonzero(chosen))
            found.append(link)
        links.append((found[0], found[1]))
        parts = []
        for chosen, is_failed in ((goes_on, False), (may_fail, True)):
            row, cell = np.nonzero(chosen)
            seen = tries[row]
            seen[np.arange(len(row)), len(levels) - 1] = cell
            bit = bits[cell].astype(np.int32)
            masks = (own[row], known[row] | bit) if is_failed else (own[row] | bit, known[row])
            parts.append((*masks, seen))
        own, known, tries = (np.concatenate(pair) for pair in zip(*parts, strict=True))
        levels.append((own, known, tries))
        begins.append(number)
    own, known, tries = (np.concatenate(arrays) for arrays in zip(*levels, strict=True))
    placed, failed = (np.concatenate(arrays) for arrays in zip(*links, strict=True))
    return Nodes(own, known, tries, placed, failed, np.array(begins[:-1]))


def _count(masks: np.ndarray) -> np.ndarray:
    return np.asarray(np.bitwise_count(masks), np.int64)


class _Pairs(NamedTuple):
    """Pairs of a line and the tries of one seat that are possible in it, [P] each."""

    line: np.ndarray  # int32
    sequence: np.ndarray  # int64, the seat's newest sequence, or -1
    weight: np.ndarray  # probability of the seat's own choices, or 1 if its policy is not fixed

    def those(self, chosen: np.ndarray) -> _Pairs:
        return _Pairs(*(array[chosen] for array in self))


class _State(NamedTuple):
    """K unfinished lines of equal length; seats are in the order (responding, fixed)."""

    stones: np.ndarray  # [2, K] int32, masks of stones
    pairs: tuple[_Pairs, _Pairs]


def best_response(rules: Board, seat: int, both: tuple[Nodes, Nodes], policy: np.ndarray) -> float:
    """Returns a seat's largest return (a win is 1, a loss -1) against the other seat's fixed policy [N, C].

    both: each seat's information states.
    """
    walk = _Walk(rules, seat, both, policy)
    none = _Pairs(np.zeros(1, np.int32), np.full(1, _NONE, np.int64), np.ones(1))
    walk.play(_State(np.zeros((2, 1), np.int32), (none, none)), 0)
    mine = both[seat]
    gains, values = walk.gains[:-1].reshape(-1, rules.num_cells), np.zeros(len(mine.own) + 1)
    bits = 1 << np.arange(rules.num_cells)
    for begin, end in reversed(list(zip(mine.begins[:-1], mine.begins[1:], strict=True))):
        chosen = slice(begin, end)
        legal = ((mine.own[chosen] | mine.known[chosen])[:, None] & bits) == 0
        # index -1 is the last value, which is 0
        after = gains[chosen] + values[mine.placed[chosen]] + values[mine.failed[chosen]]
        values[chosen] = np.where(legal, after, -np.inf).max(axis=1)
    return float(values[0] + walk.gains[-1])


class _Walk:
    """Plays all lines and sums the responding seat's gains by sequence, [N * C + 1].

    The last one is for no sequence.
    """

    def __init__(self, rules: Board, seat: int, both: tuple[Nodes, Nodes], policy: np.ndarray) -> None:
        self._rules, self._seat, self._policy = rules, seat, policy
        self._nodes = (both[seat], both[1 - seat])
        self.gains = np.zeros(len(both[seat].own) * rules.num_cells + 1)

    def play(self, state: _State, length: int) -> None:
        """Plays lines of this length until they end."""
        num_lines = state.stones.shape[1]
        if not num_lines:
            return
        if num_lines > 1 and sum(len(pairs.line) for pairs in state.pairs) > _MOST_PAIRS:
            for chosen in np.array_split(np.arange(num_lines), 2):
                self.play(_kept(state, chosen), length)
            return
        role = (length + self._seat) % 2  # 0 if the responding seat moves
        moving = self._tried(state, role)
        cells, free = self._rules.num_cells, state.stones[0] | state.stones[1]
        line, cell = np.nonzero((free[:, None] & (1 << np.arange(cells))) == 0)
        number = np.full((num_lines, cells), _NONE, np.int32)
        number[line, cell] = np.arange(len(line))
        stones = state.stones[:, line].copy()
        stones[role] |= (1 << cell).astype(np.int32)
        placed, waiting = self._branched(moving, number, role), self._waiting(state.pairs[1 - role], number)
        after = _State(stones, (placed, waiting) if role == 0 else (waiting, placed))
        won = self._rules.wins[length % 2][stones[role]]
        over = won | (length + 1 == cells)
        self._end(after, won, 1.0 if role == 0 else -1.0)
        self.play(_kept(after, np.flatnonzero(~over)), length + 1)

    def _tried(self, state: _State, role: int) -> _Pairs:
        """Returns the moving seat's pairs after any number of failed tries, with nodes instead of sequences."""
        nodes, pairs, cells = self._nodes[role], state.pairs[role], self._rules.num_cells
        node = np.where(pairs.sequence == _NONE, 0, nodes.placed.reshape(-1)[pairs.sequence])
        found = [newest := pairs._replace(sequence=node)]
        while len(newest.line):
            other = state.stones[1 - role][newest.line]
            row, cell = np.nonzero(((other & ~nodes.known[newest.sequence])[:, None] & (1 << np.arange(cells))) > 0)
            before = newest.those(row)
            weight = before.weight * self._policy[before.sequence, cell] if role == 1 else before.weight
            newest = _Pairs(before.line, nodes.failed[before.sequence, cell].astype(np.int64), weight)
            found.append(newest)
        return _Pairs(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))

    def _branched(self, pairs: _Pairs, number: np.ndarray, role: int) -> _Pairs:
        """Returns the moving seat's pairs, given by nodes, after it placed a stone at each free cell."""
        row, cell = np.nonzero(number[pairs.line] != _NONE)
        before = pairs.those(row)
        weight = before.weight * self._policy[before.sequence, cell] if role == 1 else before.weight
        return _Pairs(number[before.line, cell], before.sequence * self._rules.num_cells + cell, weight)

    def _waiting(self, pairs: _Pairs, number: np.ndarray) -> _Pairs:
        """Returns the waiting seat's pairs in the lines that are one stone longer."""
        row, cell = np.nonzero(number[pairs.line] != _NONE)
        before = pairs.those(row)
        return before._replace(line=number[before.line, cell])

    def _end(self, state: _State, won: np.ndarray, value: float) -> None:
        """Adds the gains of lines that the moving seat has won; a full board without a winner has none."""
        mine, theirs = state.pairs
        reach = np.bincount(theirs.line, theirs.weight, state.stones.shape[1])
        mine = mine.those(won[mine.line])
        np.add.at(self.gains, mine.sequence, value * reach[mine.line])  # sequence -1 is the last place


def _kept(state: _State, lines: np.ndarray) -> _State:
    """Returns the state with only these lines."""
    number = np.full(state.stones.shape[1], _NONE, np.int32)
    number[lines] = np.arange(len(lines))

    def kept(pairs: _Pairs) -> _Pairs:
        pairs = pairs.those(number[pairs.line] != _NONE)
        return pairs._replace(line=number[pairs.line])

    one, other = state.pairs
    return _State(state.stones[:, lines], (kept(one), kept(other)))
