"""Plays games in turn between two players: an agent against random moves, a bot, every move, or another agent.

Shape letters: B games.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from seedzero.acting.actors import actor, agent_choice, remote_players
from seedzero.acting.tables import table
from seedzero.core import errors, opponents
from seedzero.envs import bots, turn_games
from seedzero.monitoring.metrics import episodes

Player: TypeAlias = Callable[[Sequence[turn_games.State]], np.ndarray]
"""Maps states [B], none of them terminal, to legal actions [B] int64."""

MAX_POSITIONS = 1_000_000
"""Most positions that `every_line` plays."""

OPENING_MOVES = 2
"""Random moves that open a game between two agents; without them all games would be equal."""

EXHAUSTIVE = "exhaustive"
"""Opponent that tries every legal move, see `every_line`."""


class FinishedGame(NamedTuple):
    """A finished game: whether the agent moved first, its return, the moves of both sides, and its outcome.

    outcome: 1, 0 or -1 if the agent's return is larger than, equal to or smaller than the opponent's. None: it is the
    sign of `total`, because both returns sum to zero.
    """

    is_first: bool
    total: float
    length: int
    outcome: int | None = None


def of_actor(game: turn_games.TurnGame, one: actor.Actor) -> Player:
    """Returns an actor for any number of rows as a player, to whom each state is the beginning of a game."""
    return lambda states: one.act(turn_games.shown(game, states), np.ones(len(states), bool)).astype(np.int64)


def refuse_seeing(choice: agent_choice.AgentChoice, opponent: str | remote_players.Served) -> None:
    """Raises UsageError for an opponent that looks at the whole state of a game."""
    if opponent == EXHAUSTIVE or opponents.is_known(str(opponent)):
        raise errors.UsageError(
            f"--opponent={opponent}: {choice.path} was trained in a game of seats, where nobody sees the other's part "
            f"of the state, and that opponent looks at all of it; give --opponent={opponents.RANDOM} or "
            "--opponent=RUN_DIR"
        )


def play_games(positions: turn_games.Positions, agent: actor.Actor, opponent: actor.Actor) -> list[FinishedGame]:
    """Plays games from given positions, none of them terminal; in games 0, 2, 4 ... the agent is the first mover.

    If chance decides who begins, player 0 counts as the first mover.
    """
    game, played_at = positions.game, table.Table(positions)
    is_first = np.arange(positions.num_envs) % 2 == 0
    side = np.where(is_first, game.first_mover, 1 - game.first_mover)
    played_at.begin(())
    while np.any(running := ~positions.is_over):
        mine = running & (np.array([game.mover(state) for state in positions.states]) == side)
        played_at.play(((mine, agent), (running & ~mine, opponent)))
    return [_finished(game, state, first) for state, first in zip(positions.states, is_first.tolist(), strict=True)]


def from_the_start(game: turn_games.TurnGame, num_games: int, generator: np.random.Generator) -> turn_games.Positions:
    """Returns games at their beginning. generator: draws chance."""
    return turn_games.Positions(game, [game.initial(generator) for _ in range(num_games)], generator)


def in_pairs(game: turn_games.TurnGame, num_games: int, seed: int) -> turn_games.Positions:
    """Returns games after random openings, which are equal in games 0 and 1, 2 and 3 ..., one for each side."""
    generator = np.random.default_rng(seed)
    begun = [opening(game, generator) for _ in range(-(-num_games // 2))]
    return turn_games.Positions(game, [begun[index // 2] for index in range(num_games)], generator)


def opening(
    game: turn_games.TurnGame, generator: np.random.Generator, num_moves: int = OPENING_MOVES
) -> turn_games.State:
    """Returns the state after some random moves, or the one before a move that would end the game."""
    state = game.initial(generator)
    for _ in range(num_moves):
        after = game.apply(state, bots.random_move(state, generator), generator)
        if game.is_terminal(after):
            break
        state = after
    return state


def every_line(game: turn_games.TurnGame, agent: Player, *, max_positions: int = MAX_POSITIONS) -> list[FinishedGame]:
    """Plays all possible games against an agent: its opponent tries every legal move.

    The agent must depend only on the state. Raises UsageError if there are more than `max_positions` positions with
    both colours together, where a position counts once for each path to it.
    """
    if game.has_chance:
        raise errors.UsageError(
            f"game {game.name!r} has chance, and no move makes a line; give --opponent={opponents.FORMS} or "
            "--opponent=RUN_DIR"
        )
    finished, num_positions = [], 0
    for is_first in (True, False):
        states = [game.initial()]
        while states:
            turns = [_has_turn(game, state, is_first) for state in states]
            mine = [state for state, turn in zip(states, turns, strict=True) if turn]
            answers = iter(agent(mine) if mine else ())
            moves = [
                [int(next(answers))] if turn else state.legal_actions()
                for state, turn in zip(states, turns, strict=True)
            ]
            num_positions += sum(map(len, moves))
            if num_positions > max_positions:
                raise errors.UsageError(
                    f"game {game.name!r} is too large to play every line: {num_positions} positions after "
                    f"{states[0].move_number() + 1} moves, at most {max_positions} are played; give "
                    f"--opponent={opponents.FORMS} or --opponent=RUN_DIR"
                )
            after = [game.apply(state, move) for state, part in zip(states, moves, strict=True) for move in part]
            finished += [_finished(game, state, is_first) for state in after if game.is_terminal(state)]
            states = [state for state in after if not game.is_terminal(state)]
    return finished


def _has_turn(game: turn_games.TurnGame, state: turn_games.State, is_first: bool) -> bool:
    return (game.mover(state) == game.first_mover) is is_first


def _finished(game: turn_games.TurnGame, state: turn_games.State, is_first: bool) -> FinishedGame:
    player = game.first_mover if is_first else 1 - game.first_mover
    length = sum(move.player >= 0 for move in state.full_history()) if game.has_chance else int(state.move_number())
    return FinishedGame(is_first, game.returns(state)[player], length)


def summary(games: Sequence[FinishedGame]) -> dict[str, Any]:
    """Returns the statistics of at least one game, with wins, draws and losses by colour."""
    return {
        **episodes.summarize(games).to_json(),
        **_score(games),
        "first": _score([game for game in games if game.is_first]),
        "second": _score([game for game in games if not game.is_first]),
    }


def _score(games: Sequence[FinishedGame]) -> dict[str, int]:
    signs = [np.sign(game.total) if game.outcome is None else game.outcome for game in games]
    return {name: signs.count(sign) for name, sign in (("wins", 1), ("draws", 0), ("losses", -1))}
