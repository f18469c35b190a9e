"""Measures a MuZero run's exploitability in connect four on a small board: exact bounds of a best response per side.

    python experiments/best_response.py RUN_DIR [--step=best|last|N] [--threshold=0.001] [--batch_size=256]

Prints a line of JSON for two policies without noise: `sampled`, moves drawn from the search's policy, and `greedy`,
moves as in `seedzero evaluate`. `exploitability` is the best response's mean return over both sides, given as two
bounds; a perfect policy has 0. Positions that the policy itself reaches with a probability below --threshold are not
searched. With 0 the bounds meet, after about 15 minutes on one core for 4 rows and 5 columns; with 0.001 they differ
by about 0.01, after one minute. Shape letters: N positions of one ply, B of a batch, A actions (columns).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from seedzero.envs import spiel

Policy: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Observations [B, H, W, C] float32 as of `spiel.Game.observe`, masks [B, A] bool, true: legal -> [B, A]
probabilities.

A position may be asked for more than once, and must get the same answer.
"""

Play: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Takes the same arguments; returns legal actions [B] int."""

_MOST_BITS = 31
"""Number of bits for one player's stones; a key has those of both players."""


@dataclasses.dataclass(frozen=True)
class ConnectFour:
    """The rules on positions given as keys [N] int64: the first player's stones, and above them the second's.

    Each cell is a bit, column after column from the bottom, each with one empty bit on top.
    """

    rows: int = 6
    columns: int = 7
    in_row: int = 4

    def __post_init__(self) -> None:
        if self.columns * (self.rows + 1) > _MOST_BITS:
            raise ValueError(f"a board of {self.rows}x{self.columns} is too large to play every position")

    @classmethod
    def of(cls, name: str) -> ConnectFour:
        """Returns the rules for the name of OpenSpiel's game, such as "connect_four(rows=4,columns=5)"."""
        match = re.fullmatch(r"connect_four(?:\((.*)\))?", name)
        if match is None:
            raise ValueError(f"game {name!r} is not connect_four(rows=H,columns=W)")
        given = dict(pair.split("=") for pair in (match[1] or "").split(",") if pair)
        return cls(**{{"x_in_row": "in_row"}.get(key, key): int(value) for key, value in given.items()})

    @property
    def num_cells(self) -> int:
        """Number of cells, which is the number of plies in the longest game."""
        return self.rows * self.columns

    def legal(self, keys: np.ndarray) -> np.ndarray:
        """Returns [N, A] bool, true: legal."""
        top = 1 << (np.arange(self.columns) * (self.rows + 1) + self.rows - 1)
        return (self._occupied(keys)[:, None] & top) == 0

    def moved(self, keys: np.ndarray, column: int, mover: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the keys after legal moves of one player, and which of them win [N] bool."""
        bottom = 1 << (column * (self.rows + 1))
        occupied = self._occupied(keys)
        stone = (occupied + bottom) & ~occupied & (bottom * ((1 << self.rows) - 1))
        after = keys | (stone << (mover * _MOST_BITS))
        stones = (after >> (mover * _MOST_BITS)) & ((1 << _MOST_BITS) - 1)
        wins = np.zeros(len(keys), bool)
        for step in (1, self.rows, self.rows + 1, self.rows + 2):
            line = stones
            for length in range(1, self.in_row):
                line = line & (stones >> (length * step))
            wins |= line != 0
        return after, wins

    def observe(self, keys: np.ndarray, mover: int) -> np.ndarray:
        """Returns the observations [N, H, W, 4] of the player to move."""
        cells = np.arange(self.rows)[:, None] + np.arange(self.columns) * (self.rows + 1)
        stones = [(keys[:, None, None] >> (player * _MOST_BITS + cells)) & 1 for player in (0, 1)]
        planes = [*stones, 1 - stones[0] - stones[1], np.full_like(stones[0], mover)]
        return np.stack(planes, axis=-1).astype(np.float32)

    def keys(self, observations: np.ndarray) -> np.ndarray:
        """Returns the keys of observations [N, H, W, 4]."""
        bits = 1 << (np.arange(self.rows)[:, None] + np.arange(self.columns) * (self.rows + 1))
        first, second = (np.sum(observations[..., player].astype(np.int64) * bits, axis=(1, 2)) for player in (0, 1))
        return first | (second << _MOST_BITS)

    def _occupied(self, keys: np.ndarray) -> np.ndarray:
        return (keys | (keys >> _MOST_BITS)) & ((1 << _MOST_BITS) - 1)


class Ply(NamedTuple):
    """Positions after the same number of moves, with the actions that the mover may take."""

    keys: np.ndarray  # [N] int64, sorted
    after: (
        np.ndarray
    )  # [N, A] int32, index of the next position in the next ply; -1: the move ends the game, or is not allowed
    wins: np.ndarray  # [N, A] bool, true: the move wins
    allowed: np.ndarray  # [N, A] bool

    def values(self, following: np.ndarray, *, sign: float) -> np.ndarray:
        """Returns the actions' values [N, A] float64; -inf for actions that are not allowed.

        following: [M] values of the next ply's positions. sign: value of a win for the mover.
        """
        padded = np.append(following, 0.0)  # a move that fills the board is a draw
        return np.where(self.allowed, np.where(self.wins, sign, padded[self.after]), -np.inf)


def plies(game: ConnectFour, allow: Callable[[int, np.ndarray], np.ndarray]) -> Iterator[Ply]:
    """Yields all positions that allowed actions reach; allow: (ply, keys [N]) -> [N, A] bool, only legal actions."""
    keys = np.zeros(1, np.int64)
    for number in range(game.num_cells):
        allowed = allow(number, keys)
        next_keys, wins = np.full(allowed.shape, -1, np.int64), np.zeros(allowed.shape, bool)
        for column in range(game.columns):
            moving = np.flatnonzero(allowed[:, column])
            after, wins[moving, column] = game.moved(keys[moving], column, number % 2)
            next_keys[moving, column] = np.where(wins[moving, column], -1, after)
        goes_on = (next_keys >= 0) & (number + 1 < game.num_cells)
        following, place = np.unique(next_keys[goes_on], return_inverse=True)
        next_place = np.full(allowed.shape, -1, np.int32)
        next_place[goes_on] = place
        yield Ply(keys, next_place, wins, allowed)
        if not len(following):
            break
        keys = following


class Perfect:
    """Perfect play: all positions with their values for the player to move, and the optimal moves."""

    def __init__(self, game: ConnectFour) -> None:
        self._game = game
        found = [*plies(game, lambda number, keys: game.legal(keys))]
        self.num_positions = sum(len(ply.keys) for ply in found)
        """Number of positions in which a move must be made."""
        self._keys = [ply.keys for ply in found]
        self._values: list[np.ndarray] = []
        self._best: list[np.ndarray] = []
        following = np.zeros(0)
        for ply in reversed(found):
            values = ply.values(0.0 - following, sign=1.0)
            following = values.max(axis=1)
            self._values.insert(0, following.astype(np.int8))
            self._best.insert(0, values == following[:, None])
        self.value = float(following[0])

    def values(self, number: int, keys: np.ndarray) -> np.ndarray:
        """Returns the values [N] int8 of positions after a number of moves, for the player to move."""
        values: np.ndarray = self._values[number][np.searchsorted(self._keys[number], keys)]
        return values

    def keeps(self, observations: np.ndarray) -> np.ndarray:
        """Returns the optimal moves [B, A] bool."""
        keys, number = self._game.keys(observations), observations[..., :2].sum(axis=(1, 2, 3)).astype(int)
        found = np.zeros((len(keys), self._game.columns), bool)
        for ply in np.unique(number):
            chosen = number == ply
            found[chosen] = self._best[ply][np.searchsorted(self._keys[ply], keys[chosen])]
        return found

    def policy(self, observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Returns equal probabilities for all optimal moves; a `Policy`."""
        return uniform(observations, self.keeps(observations))


class BestResponse(NamedTuple):
    """Bounds of best responses' returns, by the policy's side, and how often the policy was asked."""

    to_first: tuple[float, float]
    to_second: tuple[float, float]
    num_positions: int

    @property
    def exploitability(self) -> tuple[float, float]:
        """Mean of both."""
        low, high = ((first + second) / 2 for first, second in zip(self.to_first, self.to_second, strict=True))
        return low, high


def best_response(
    game: ConnectFour,
    policy: Policy,
    *,
    threshold: float = 0.0,
    batch_size: int = 4096,
    perfect: Perfect | None = None,
) -> BestResponse:
    """Returns bounds of the best response.

    Raises ValueError if a policy's probabilities are invalid or for illegal actions.

    The policy is asked only in positions that it reaches itself with at least the probability `threshold`, counting
    its own moves on the likeliest way; with 0 the bounds meet. Elsewhere the response returns at least the value of
    perfect play, and at most a win. Where the policy is lost under perfect play, it need not be asked.

    perfect: of this game, to solve it only once for several policies.
    """
    exact = perfect or Perfect(game)
    found = [_response(game, policy, side, threshold, batch_size, exact) for side in (0, 1)]
    return BestResponse(found[0][0], found[1][0], found[0][1] + found[1][1])


def _response(
    game: ConnectFour, policy: Policy, side: int, threshold: float, batch_size: int, exact: Perfect
) -> tuple[tuple[float, float], int]:
    """Returns bounds of the response's return against the policy on one side, and the number of positions asked."""
    found: list[Ply] = []
    # reach: [N] probability with which the policy plays towards each position of the next ply
    reach, num_asked = np.ones(1), 0
    probabilities: list[np.ndarray] = []
    leaves: list[np.ndarray] = []  # [N] bool, true: no more moves are played
    least: list[np.ndarray] = []  # [N] the response's return under perfect play

    def allow(number: int, keys: np.ndarray) -> np.ndarray:
        nonlocal num_asked
        least.append(exact.values(number, keys) * (-1.0 if number % 2 == side else 1.0))
        leaves.append((least[-1] == 1.0) | (reach < threshold))
        allowed, asked = game.legal(keys) & ~leaves[-1][:, None], np.flatnonzero(~leaves[-1])
        probabilities.append(allowed.astype(np.float64))
        if number % 2 == side and len(asked):
            batches = _observations(game, keys[asked], allowed[asked], side, batch_size)
            probabilities[-1][asked] = np.concatenate([_checked(policy(*batch), batch[1]) for batch in batches])
            num_asked += len(asked)
        return probabilities[-1] > 0

    for ply in plies(game, allow):
        found.append(ply)
        goes_on, before = ply.after >= 0, reach[:, None] * probabilities[-1]
        reach = np.zeros(ply.after.max() + 1)
        np.maximum.at(reach, ply.after[goes_on], before[goes_on])

    def bound(most: float) -> float:
        following = np.zeros(0)
        for number, ply in reversed([*enumerate(found)]):
            values = ply.values(following, sign=-1.0 if number % 2 == side else 1.0)
            if number % 2 == side:
                following = np.sum(probabilities[number] * np.where(ply.allowed, values, 0.0), axis=1)
            else:
                following = values.max(axis=1)
            following = np.where(leaves[number], np.maximum(least[number], most), following)
        return float(following[0])

    return (bound(-1.0), bound(1.0)), num_asked


def _observations(
    game: ConnectFour, keys: np.ndarray, legal: np.ndarray, mover: int, batch_size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for begin in range(0, len(keys), batch_size):
        part = slice(begin, begin + batch_size)
        yield game.observe(keys[part], mover), legal[part]


def _checked(probabilities: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Returns a policy's probabilities [B, A] float64, scaled to sum to exactly 1."""
    found = np.asarray(probabilities, np.float64)
    if found.shape != masks.shape:
        raise ValueError(f"the policy's probabilities have the shape {found.shape}; expected {masks.shape}")
    sums = found.sum(axis=1)
    if not (np.all(found >= 0) and np.all(np.abs(sums - 1) < 1e-3) and np.all(found[~masks] == 0)):
        row = int(np.argmin(np.all(found >= 0, axis=1) & (np.abs(sums - 1) < 1e-3) & ~np.any(found * ~masks, axis=1)))
        raise ValueError(
            f"the policy's probabilities are {found[row].tolist()} where {masks[row].tolist()} are legal; expected "
            "numbers of sum 1, and 0 of illegal actions"
        )
    return found / sums[:, None]


def uniform(observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Returns the probabilities of random play."""
    return masks / masks.sum(axis=1, keepdims=True)


def deterministic(play: Play) -> Policy:
    """Turns a player that chooses actions into a policy."""

    def policy(observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        return np.eye(masks.shape[1])[play(observations, masks)]

    return policy


class Searching(NamedTuple):
    """A run's game, and its search without noise: once with moves drawn from its policy, once greedy."""

    game: spiel.Game
    sampled: Policy
    greedy: Play


def searching(run_dir: pathlib.Path, step: Any, rows: int, player: str | None = None) -> Searching:
    """Returns the players of a checkpoint; step, player as in `seedzero evaluate`. rows: size of the compiled call."""
    from seedzero.acting.actors import acting_program, agent_choice, saved_agents
    from seedzero.acting.tables import table
    from seedzero.core import types
    from seedzero.device import acting
    from seedzero.storage.checkpoints import run_dirs

    config = run_dirs.read_saved(run_dir).config
    game = table.game_of(config)
    if game is None:
        raise SystemExit(f"{run_dir} was trained in no game of two players")
    saved = saved_agents.load(agent_choice.AgentChoice(run_dir, step, player), config, game.spec)
    program = acting_program.ActingProgram(saved.agent, game.spec)
    carried = acting.initial(saved.agent, game.spec, rows)

    def find_batch(observations: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        number = len(observations)
        padding = ((0, rows - number), *[(0, 0)] * (observations.ndim - 1))
        frames, legal = np.pad(observations, padding), np.pad(masks, padding[:2], constant_values=True)
        step = types.EnvStep.first(frames)._replace(action_mask=legal)
        seen = acting_program.seen(game.spec, step, np.ones(rows, bool))
        _, found = program(saved.params, carried, seen, 0, 0, findings=acting_program.NUMBERS)
        return np.asarray(found["policy"])[:number], np.asarray(found["action"])[:number]

    def find(observations: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, ...]:
        parts = [slice(begin, begin + rows) for begin in range(0, len(observations), rows)]
        found = [find_batch(observations[part], masks[part]) for part in parts]
        return tuple(map(np.concatenate, zip(*found, strict=True)))

    def sampled(observations: np.ndarray, masks: np.ndarray) -> np.ndarray:
        return np.where(masks, find(observations, masks)[0], 0.0)

    return Searching(game, sampled, lambda *seen: find(*seen)[1])


def main() -> None:
    """Reads the command line and prints both policies' exploitability."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--step", default=None)
    parser.add_argument("--threshold", type=float, default=0.001)
    parser.add_argument("--batch_size", type=int, default=256)
    arguments = parser.parse_args()
    step = int(arguments.step) if arguments.step and arguments.step.isdecimal() else arguments.step
    found = searching(arguments.run_dir, step, arguments.batch_size)
    rules = ConnectFour.of(found.game.name)
    perfect, report = Perfect(rules), dict[str, Any](game=found.game.name)
    for kind, policy in {"greedy": deterministic(found.greedy), "sampled": found.sampled}.items():
        began = time.perf_counter()
        response = best_response(
            rules, policy, threshold=arguments.threshold, batch_size=arguments.batch_size, perfect=perfect
        )
        seconds = round(time.perf_counter() - began, 1)
        report[kind] = {"exploitability": response.exploitability, **response._asdict(), "seconds": seconds}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
