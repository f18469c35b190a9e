"""Plays games of two seats between two saved agents, which swap chairs from game to game.

Shape letters: B games at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from seedzero.actors import actor, match_players, saved_agents
from seedzero.core import types
from seedzero.envs import seats
from seedzero.evaluation import match

NUM_SEATS = 2
_BATCH_SIZE = 64
"""Largest B: rows in one compiled call of an agent."""


@dataclasses.dataclass
class Table:
    """A game in progress; lists have one entry for each chair."""

    chair: int  # chair of the first agent
    generator: np.random.Generator  # draws the outcomes of chance
    state: Any
    paid: list[float | None] = dataclasses.field(
        default_factory=lambda: [None] * NUM_SEATS
    )  # rewards already given to the agent; None before its first turn
    length: int = 0  # number of moves


def play(
    game: seats.SeatGame, one: match_players.Player, other: match_players.Player, num_games: int, seed: int
) -> list[match.FinishedGame]:
    """Plays games in which the first agent has the first chair in games 0, 2, 4 ..., and the second one in the others.

    Each agent draws its moves or takes the best ones, depending on its `mode`. Drawn moves and chance depend only on
    the seed, and games are independent of each other. Returns the first agent's results.
    """
    size, begun = min(num_games, _BATCH_SIZE), list[Table]()
    for number in range(num_games):
        generator = np.random.default_rng([seed, number])
        begun.append(Table(number % NUM_SEATS, generator, game.initial(generator)))
    seeds = saved_agents.seeds(seed, NUM_SEATS)
    actors = [match_players.act(player, size, own) for player, own in zip((one, other), seeds, strict=True)]
    for begin in range(0, num_games, size):
        _play(game, actors, begun[begin : begin + size], size)
    return [_finished(table, game.returns(table.state)) for table in begun]


def _finished(table: Table, returns: Sequence[float]) -> match.FinishedGame:
    """Returns the first agent's result; `returns` has one entry for each chair."""
    total, other = returns[table.chair], returns[1 - table.chair]
    return match.FinishedGame(not table.chair, total, table.length, (total > other) - (total < other))


def _play(game: seats.SeatGame, actors: Sequence[actor.Actor], tables: Sequence[Table], size: int) -> None:
    """Plays at most `size` games until they end."""
    while any(game.movers(table.state) for table in tables):
        chosen: list[dict[int, int]] = [{} for _ in tables]
        for place, one in enumerate(actors):
            chairs = [table.chair if place == 0 else 1 - table.chair for table in tables]
            turns, step, first = shown_to(game, tables, chairs, size)
            if turns:
                actions = one.act(step, first).tolist()
                for row in turns:
                    chosen[row][chairs[row]] = actions[row]
        for table, moves in zip(tables, chosen, strict=True):
            if moves:
                table.state, table.length = game.apply(table.state, moves, table.generator), table.length + len(moves)


def shown_to(
    game: seats.SeatGame, tables: Sequence[Table], chairs: Sequence[int], size: int
) -> tuple[list[int], types.EnvStep, np.ndarray]:
    """Returns the tables whose chair has a turn, their step, and [B] bool that is true at a chair's first turn."""
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
