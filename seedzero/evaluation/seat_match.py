"""Games of two seats between two saved agents, which take turns in the chairs.

Shape letters: B games at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from seedzero.core import types
from seedzero.envs import seats
from seedzero.evaluation import greedy, match, remote_players

SeatPlayer: TypeAlias = greedy.SavedAgent | remote_players.RemotePlayer
Group: TypeAlias = greedy.GroupPlayer | remote_players.RemoteGroup
NUM_SEATS = 2
_BATCH_SIZE = 64
"""B at most: rows of an agent's compiled call."""


@dataclasses.dataclass
class Table:
    """A game under way; lists are by chair."""

    chair: int  # of the first agent
    generator: np.random.Generator  # of chance
    state: Any
    paid: list[float | None] = dataclasses.field(
        default_factory=lambda: [None] * NUM_SEATS
    )  # rewards seen; None: no turn
    length: int = 0  # moves


def play(
    game: seats.SeatGame, one: SeatPlayer, other: SeatPlayer, num_games: int, seed: int
) -> list[match.FinishedGame]:
    """Plays games in which the first agent has the first chair in games 0, 2, 4 ..., the second one in the others.

    Moves are drawn from the agents' policies, or their best ones, by their `mode`; draws and chance follow from the
    seed. Games are independent of each other. Returns the results of the first agent.
    """
    size, begun = min(num_games, _BATCH_SIZE), list[Table]()
    for number in range(num_games):
        generator = np.random.default_rng([seed, number])
        begun.append(Table(number % NUM_SEATS, generator, game.initial(generator)))
    players = [
        _group(player, size, own) for player, own in zip((one, other), greedy.seeds(seed, NUM_SEATS), strict=True)
    ]
    for begin in range(0, num_games, size):
        _play(game, players, begun[begin : begin + size], size)
    return [_finished(table, game.returns(table.state)) for table in begun]


def _group(player: SeatPlayer, size: int, seed: int) -> Group:
    if isinstance(player, remote_players.RemotePlayer):
        return player.group(size)
    return greedy.GroupPlayer(player, size, seed)


def _finished(table: Table, returns: Sequence[float]) -> match.FinishedGame:
    """Returns the first agent's result; returns: [2] by chair."""
    total, other = returns[table.chair], returns[1 - table.chair]
    return match.FinishedGame(not table.chair, total, table.length, (total > other) - (total < other))


def _play(game: seats.SeatGame, players: Sequence[Group], tables: Sequence[Table], size: int) -> None:
    """Plays at most B = `size` games to their ends."""
    while any(game.movers(table.state) for table in tables):
        chosen: list[dict[int, int]] = [{} for _ in tables]
        for place, player in enumerate(players):
            chairs = [table.chair if place == 0 else 1 - table.chair for table in tables]
            turns, step, first = shown_to(game, tables, chairs, size)
            if turns:
                actions = player.act(step, first).tolist()
                for row in turns:
                    chosen[row][chairs[row]] = actions[row]
        for table, moves in zip(tables, chosen, strict=True):
            if moves:
                table.state, table.length = game.apply(table.state, moves, table.generator), table.length + len(moves)


def shown_to(
    game: seats.SeatGame, tables: Sequence[Table], chairs: Sequence[int], size: int
) -> tuple[list[int], types.EnvStep, np.ndarray]:
    """Returns the tables at which a chair has a turn, their step, and [B] bool, true: the chair's first turn."""
    spec, none = game.spec, np.zeros(size, bool)
    observation, mask = np.zeros((size, *spec.observation_shape), np.float32), np.ones((size, spec.num_actions), bool)
    reward, task, shown, first = np.zeros(size, np.float32), np.zeros(size, np.int32), none.copy(), none.copy()
    for row, (table, chair) in enumerate(zip(tables, chairs, strict=True)):
        if chair in game.movers(table.state):
            so_far, before = game.returns(table.state)[chair], table.paid[chair]
            shown[row], task[row], first[row] = True, chair, before is None
            observation[row], mask[row] = game.observe(table.state, chair), game.legal_mask(table.state, chair)
            reward[row] = 0.0 if before is None else so_far - before
            table.paid[chair] = 0.0 if before is None else so_far
    step = types.EnvStep(observation, reward, none, none, mask, task, shown)
    return np.flatnonzero(shown).tolist(), step, first
