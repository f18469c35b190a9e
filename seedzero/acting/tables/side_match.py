"""Plays matches between two players at a table of seats, or of agents on two sides; players change sides in turn.

Shape letters: E rows, the seats or agents of a few games at a time, S of a game.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from seedzero.acting.actors import actor, agent_choice, match_players, saved_agents
from seedzero.acting.tables import match, run_games, table
from seedzero.config import configs, league_rules
from seedzero.core import errors, opponents, types
from seedzero.device import patience
from seedzero.envs import env_base
from seedzero.league import matches
from seedzero.storage.checkpoints import spec_file

_MAX_ROWS = 64
"""Rows in one compiled call of an agent, unless two games have more."""


def sides_of(choice: agent_choice.AgentChoice, config: configs.Config) -> tuple[int, ...]:
    """Returns the sides of a run's agents, as `league_rules.sides`."""
    spec = spec_file.read(choice.path)
    return () if spec is None else league_rules.sides(config, spec)


def between(
    choice: agent_choice.AgentChoice,
    config: configs.Config,
    sides: Sequence[int],
    named: Sequence[match_players.Named],
    num_games: int,
) -> tuple[list[dict[str, Any]], list[match.FinishedGame]]:
    """Plays matches between two players; between sides they draw their moves unless the choice says otherwise.

    sides: of the agents; () in a game of two seats. Returns the fields that name each checkpoint, and the first
    player's results. Errors are those of `scoring.evaluate`.
    """
    size = len(sides) or run_games.NUM_SEATS
    choice = dataclasses.replace(choice.or_last(), policy=choice.policy or ("sample" if sides else None))
    num_rows = size * max(1, min(num_games, _MAX_ROWS // size) // 2 * 2)
    for one in named:
        if isinstance(one, str) and one != opponents.RANDOM:
            match.refuse_seeing(choice, one)
    chosen = [match_players.choose(one, choice, config) for one in named]
    with contextlib.ExitStack() as undo:
        env = table.made(config, num_rows, types.Role.EVALUATE if sides else types.Role.TRAIN)
        undo.enter_context(env_base.closing(env))
        undo.enter_context(patience.telling(lambda: "playing the games"))
        env.reset(saved_agents.seeds(choice.seed, num_rows))  # completes the spec
        told, actors = match_players.load_all(
            chosen,
            env.spec,
            choice.seed,
            undo,
            act=lambda player, seed: match_players.act(player, num_rows, seed),
            bot=lambda name, seed: actor.RandomActor(env.spec.num_actions, seed),
        )
        return told, play(env, sides, actors, num_games, choice.seed)


def play(
    env: env_base.VectorEnv, sides: Sequence[int], actors: Sequence[actor.Actor], num_games: int, seed: int
) -> list[match.FinishedGame]:
    """Plays games in E rows, equally many in each place to within one; returns the first player's results.

    It has the first side or chair in the first game of places 0, 2, 4 ..., and the other one in the next game. Raises
    EnvironmentFailure if more games than that end without a result.
    """
    size, number, played_at = len(sides) or run_games.NUM_SEATS, env.num_envs, table.Table(env)
    slots, num_places = np.arange(number), env.num_envs // size
    left = [num_games // num_places + (place < num_games % num_places) for place in range(num_places)]
    boards, found = matches.Boards.empty(number, has_seats=True, sides=tuple(sides)), list[match.FinishedGame]()
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
        np.add.at(length, rows[~seen.final] // size, 1)
        for row in np.flatnonzero(moves.ended).tolist():
            place = rows[row] // size
            if left[place]:
                left[place] -= 1
                result = float(moves.total[row]), int(length[place]), int(moves.outcome[row])
                found.append(match.FinishedGame(bool(moves.side[row] == 0), *result))
            length[place] = 0
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
