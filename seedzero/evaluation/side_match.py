"""Plays matches between two players in an environment of agents on two sides, which the players change in turn.

Shape letters: E rows, the agents of a few copies of the environment, S agents of a copy.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from seedzero.actors import actor, agent_choice, match_players, remote_players, saved_agents
from seedzero.checkpoints import spec_file
from seedzero.config import configs, league_rules
from seedzero.core import errors, opponents, types
from seedzero.device import patience
from seedzero.envs import env_base, registry
from seedzero.evaluation import match
from seedzero.league import matches

_MAX_ROWS = 64
"""Rows in one compiled call of an agent, unless two copies have more."""

Player: TypeAlias = agent_choice.AgentChoice | str | remote_players.Served
"""A player of a run's league, a run's directory, `opponents.RANDOM`, or a policy server's player."""


def sides_of(choice: agent_choice.AgentChoice, config: configs.Config) -> tuple[int, ...]:
    """Returns the sides of a run's agents, as `league_rules.sides`."""
    spec = spec_file.read(choice.path)
    return () if spec is None else league_rules.sides(config, spec)


def between(
    choice: agent_choice.AgentChoice,
    config: configs.Config,
    sides: Sequence[int],
    named: Sequence[Player],
    num_games: int,
) -> tuple[list[dict[str, Any]], list[match.FinishedGame]]:
    """Plays matches between two players, which draw their moves unless the choice says otherwise.

    Returns the fields that name each checkpoint, and the first player's results. Errors are those of
    `scoring.evaluate`.
    """
    choice = dataclasses.replace(choice.or_last(), policy=choice.policy or "sample")
    settings = dataclasses.replace(config.env.of_evaluation, joint_observation=False)
    copies = max(1, min(num_games, _MAX_ROWS // len(sides)) // 2 * 2)
    with contextlib.ExitStack() as undo:
        env = registry.make(config.env.id, settings, copies * len(sides), role=types.Role.EVALUATE)
        undo.enter_context(env_base.closing(env))
        undo.enter_context(patience.telling(lambda: "playing the games"))
        env.reset(saved_agents.seeds(choice.seed, env.num_envs))  # completes the spec
        actors, told = list[actor.Actor](), list[dict[str, Any]]()
        for one, seed in zip(named, saved_agents.seeds(choice.seed, len(named)), strict=True):
            if one == opponents.RANDOM:
                actors.append(actor.RandomActor(env.spec.num_actions, seed))
                told.append({"step": None})
                continue
            if isinstance(one, agent_choice.AgentChoice):
                chosen: match_players.Chosen = dataclasses.replace(choice, player=one.player), config
            else:
                match.refuse_seeing(choice, one)
                chosen = match_players.opponent(choice, config, one)
            player = match_players.load(chosen, env.spec, undo)
            actors.append(match_players.act(player, env.num_envs, seed))
            told.append(player.to_json())
        return told, play(env, sides, actors, num_games, choice.seed)


def play(
    env: env_base.VectorEnv, sides: Sequence[int], actors: Sequence[actor.Actor], num_games: int, seed: int
) -> list[match.FinishedGame]:
    """Plays games in E rows, equally many in each copy to within one; returns the first player's results.

    It has the first side in the first game of copies 0, 2, 4 ..., and the other side in the next one. Raises
    EnvironmentFailure if more games than that end without a result.
    """
    size, number = len(sides), env.num_envs
    slots, chair = np.arange(number), np.arange(number) % size
    copies = number // size
    left = [num_games // copies + (copy < num_games % copies) for copy in range(copies)]
    boards, found = matches.Boards.empty(number, has_seats=True, sides=tuple(sides)), list[match.FinishedGame]()
    cancelled = 0
    step, first, length = env.reset(saved_agents.seeds(seed, number)), np.ones(number, bool), np.zeros(copies, int)
    while any(left):
        shown = np.ones(number, bool) if step.shown is None else step.shown
        rows, seen = slots[shown], step.those(shown)
        boards, moves = boards.advance(
            rows,
            reward=seen.reward,
            first=first[shown],
            terminated=seen.terminated,
            truncated=seen.truncated,
            game=rows - chair[rows],
            chair=chair[rows],
        )
        np.add.at(length, rows[~seen.final] // size, 1)
        for row in np.flatnonzero(moves.ended).tolist():
            copy = rows[row] // size
            if left[copy]:
                left[copy] -= 1
                result = float(moves.total[row]), int(length[copy]), int(moves.outcome[row])
                found.append(match.FinishedGame(bool(moves.side[row] == 0), *result))
            length[copy] = 0
        cancelled += int(np.sum(moves.void))
        if cancelled > num_games:
            raise errors.EnvironmentFailure(
                f"{cancelled} games ended without a result, because agents of both sides never moved in them; let "
                "every agent of the environment move at least once in each game"
            )
        mine = np.zeros(number, bool)
        mine[rows] = moves.home
        parts = zip(actors, (mine, shown & ~mine), strict=True)
        actions = [np.where(own, one.act(step._replace(shown=own), first), 0) for one, own in parts]
        first = np.where(shown, step.final, first)
        step = env.step(np.sum(actions, axis=0).astype(np.int32))
    return found
