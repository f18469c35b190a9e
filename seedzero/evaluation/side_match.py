"""Plays matches between two players in an environment of agents on two sides, which the players change in turn.

Shape letters: E rows, the agents of a few copies of the environment, S agents of a copy.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from seedzero.checkpoints import spec_file
from seedzero.config import configs, league_rules
from seedzero.core import errors, opponents, types
from seedzero.device import patience
from seedzero.envs import env_base, registry
from seedzero.evaluation import agent_choice, greedy, match, remote_players, seat_match
from seedzero.league import matches

_MAX_ROWS = 64
"""Rows in one compiled call of an agent, unless two copies have more."""

Player: TypeAlias = agent_choice.AgentChoice | str | remote_players.Served
"""A player of a run's league, a run's directory, `opponents.RANDOM`, or a policy server's player."""


def sides_of(choice: agent_choice.AgentChoice, config: configs.Config) -> tuple[int, ...]:
    """Returns the sides of a run's agents, as `league_rules.sides`."""
    spec = spec_file.read(choice.path)
    return () if spec is None else league_rules.sides(config, spec)


class RandomGroup:
    """Draws legal actions, all equally likely."""

    def __init__(self, num_actions: int, seed: int) -> None:
        self._num_actions, self._generator = num_actions, np.random.default_rng(seed)

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions, [E] int32, like `greedy.GroupPlayer.act`."""
        drawn = self._generator.random((len(first), self._num_actions))
        best = drawn if step.action_mask is None else np.where(step.action_mask, drawn, -1.0)
        found: np.ndarray = best.argmax(axis=1).astype(np.int32)
        return found


Group: TypeAlias = seat_match.Group | RandomGroup


def between(
    choice: agent_choice.AgentChoice,
    config: configs.Config,
    sides: Sequence[int],
    players: Sequence[Player],
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
        env.reset(greedy.seeds(choice.seed, env.num_envs))  # completes the spec
        groups, told = list[Group](), list[dict[str, Any]]()
        for one, seed in zip(players, greedy.seeds(choice.seed, len(players)), strict=True):
            if one == opponents.RANDOM:
                groups.append(RandomGroup(env.spec.num_actions, seed))
                told.append({"step": None})
                continue
            if isinstance(one, agent_choice.AgentChoice):
                rival: seat_match.Rival = dataclasses.replace(choice, player=one.player), config
            else:
                seat_match.refuse_seeing(choice, one)
                rival = seat_match.rival(choice, config, one)
            player = seat_match.load(rival, env.spec, undo)
            groups.append(seat_match.group(player, env.num_envs, seed))
            told.append(player.to_json())
        return told, play(env, sides, groups, num_games, choice.seed)


def play(
    env: env_base.VectorEnv, sides: Sequence[int], players: Sequence[Group], num_games: int, seed: int
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
    step, first, length = env.reset(greedy.seeds(seed, number)), np.ones(number, bool), np.zeros(copies, int)
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
        parts = zip(players, (mine, shown & ~mine), strict=True)
        actions = [np.where(own, player.act(step._replace(shown=own), first), 0) for player, own in parts]
        first = np.where(shown, step.final, first)
        step = env.step(np.sum(actions, axis=0).astype(np.int32))
    return found
