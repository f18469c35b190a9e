"""Plays matches between two players in games in turn, of seats, or of agents on two sides.

Shape letters: B games.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from seedzero.acting.actors import actor, agent_choice, remote_players, saved_actors, saved_agents
from seedzero.acting.tables import table
from seedzero.config import configs, league_rules
from seedzero.core import errors, opponents, types
from seedzero.device import patience
from seedzero.envs import bots, env_base, turn_games
from seedzero.league import matches
from seedzero.monitoring.metrics import episodes
from seedzero.storage.checkpoints import run_dirs

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


# Plays matches between two players at a table of seats, or of agents on two sides; players change sides in turn.
#
# Shape letters: E rows, the seats or agents of a few games at a time, S of a game.
_MAX_ROWS = 64
"""Rows in one compiled call of an agent, unless two games have more."""


def sides_of(choice: agent_choice.AgentChoice, config: configs.Config) -> tuple[int, ...]:
    """Returns the sides of a run's agents, as `league_rules.sides`."""
    spec = run_dirs.read_spec(choice.path)
    return () if spec is None else league_rules.sides(config, spec)


def between_sides(
    choice: agent_choice.AgentChoice,
    config: configs.Config,
    sides: Sequence[int],
    named: Sequence[saved_actors.Named],
    num_games: int,
) -> tuple[list[dict[str, Any]], list[FinishedGame]]:
    """Plays matches between two players; between sides they draw their moves unless the choice says otherwise.

    sides: of the agents; () in a game of two seats. Returns the fields that name each checkpoint, and the first
    player's results. Errors are those of `scoring.evaluate`.
    """
    size = len(sides) or table.NUM_SEATS
    choice = dataclasses.replace(choice.or_last(), policy=choice.policy or ("sample" if sides else None))
    num_rows = size * max(1, min(num_games, _MAX_ROWS // size) // 2 * 2)
    for one in named:
        if isinstance(one, str) and one != opponents.RANDOM:
            refuse_seeing(choice, one)
    chosen = [saved_actors.choose_player(one, choice, config) for one in named]
    with contextlib.ExitStack() as undo:
        env = table.made(config, num_rows, types.Role.EVALUATE if sides else types.Role.TRAIN)
        undo.enter_context(env_base.closing(env))
        undo.enter_context(patience.telling(lambda: "playing the games"))
        env.reset(saved_agents.seeds(choice.seed, num_rows))  # completes the spec
        told, actors = saved_actors.load_all(
            chosen,
            env.spec,
            choice.seed,
            undo,
            act=lambda player, seed: saved_actors.actor_of(player, num_rows, seed),
            bot=lambda name, seed: actor.RandomActor(env.spec.num_actions, seed),
        )
        return told, play_sides(env, sides, actors, num_games, choice.seed)


def play_sides(
    env: env_base.VectorEnv, sides: Sequence[int], actors: Sequence[actor.Actor], num_games: int, seed: int
) -> list[FinishedGame]:
    """Plays games in E rows, equally many in each place to within one; returns the first player's results.

    It has the first side or chair in the first game of places 0, 2, 4 ..., and the other one in the next game. Raises
    EnvironmentFailure if more games than that end without a result.
    """
    size, number, played_at = len(sides) or table.NUM_SEATS, env.num_envs, table.Table(env)
    slots, num_places = np.arange(number), env.num_envs // size
    left = [num_games // num_places + (place < num_games % num_places) for place in range(num_places)]
    boards, found = matches.Boards.empty(number, has_seats=True, sides=tuple(sides)), list[FinishedGame]()
    cancelled, length = 0, np.zeros(num_places, int)
    played_at.begin(saved_agents.seeds(seed, number))
    while any(left):
        shown = actor.shown(played_at.step)
        rows, seen = slots[shown], played_at.step.those(shown)
        boards, moves = boards.advance(
            rows,
            reward=seen.reward,
            first=played_at.first[shown],
            terminated=seen.terminated,
            truncated=seen.truncated,
            game=rows // size * size,
            chair=rows % size if sides else seen.tasks,
        )
        length[rows[moves.begins] // size] = 0
        np.add.at(length, rows[~seen.final] // size, 1)
        for row in np.flatnonzero(moves.ended).tolist():
            place = rows[row] // size
            if left[place]:
                left[place] -= 1
                result = float(moves.total[row]), int(length[place]), int(moves.outcome[row])
                found.append(FinishedGame(bool(moves.side[row] == 0), *result))
        cancelled += int(np.sum(moves.void))
        if cancelled > num_games:
            raise errors.EnvironmentFailure(
                f"{cancelled} games ended without a result, because agents of both sides never moved in them; let "
                "every agent of the environment move at least once in each game"
            )
        mine = np.zeros(number, bool)
        mine[rows] = moves.home
        played_at.play(list(zip((mine, shown & ~mine), actors, strict=True)))
    return found
