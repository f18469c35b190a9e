"""Tables: an environment made as workers make it, what its rows show, and the actors that move in them.

Shape letters: E rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import numpy as np

from seedzero.acting.actors import actor, agent_choice, saved_actors, saved_agents
from seedzero.config import configs
from seedzero.core import env_ids, errors, types
from seedzero.envs import env_base, pgx_games, pgx_rules, registry, spiel, spiel_seats, turn_games

# Finds out which game a run was trained in, and whether this machine can make it.
NUM_SEATS = 2
"""Seats of the games in which two players can meet."""


def read_config(choice: agent_choice.AgentChoice, remedy: str) -> configs.Config:
    """Returns a run's configuration, and asks for consent to exactly these settings.

    remedy: what the error advises if the environments come from workers and cannot be made here.
    """
    config = choice.config()
    if config.env.id == env_ids.REMOTE:
        raise errors.UsageError(
            f"{choice.path} was trained with --env=remote, so its environment comes with a worker; {remedy}"
        )
    return config


def game_of(config: configs.Config) -> turn_games.TurnGame | None:
    """Returns the run's game if two players move in turn, else None; games by seats have `has_two_seats`."""
    kind, _, name = config.env.id.partition(":")
    if kind == "pgx":
        found = pgx_rules.game(name)
        is_known = found.num_players == 2 and not found.has_chance
        return pgx_games.PgxGame(name, has_state=config.env.game_state) if is_known else None
    if kind != "spiel" or spiel_seats.has_seats(spiel.load(name), by_turns=config.env.by_turns):
        return None
    game = spiel.Game(name)
    return game if game.num_players == 2 else None


def has_two_seats(config: configs.Config) -> bool:
    """Returns whether two seats play the run's game."""
    kind, _, name = config.env.id.partition(":")
    if kind != "spiel" or not spiel_seats.has_seats(found := spiel.load(name), by_turns=config.env.by_turns):
        return False
    return int(found.num_players()) == NUM_SEATS


def made(config: configs.Config, num_rows: int, role: types.Role, *, render: bool = False) -> env_base.VectorEnv:
    """Returns a run's environment for evaluations, without random openings; arrays for training alone are left out.

    role: with TRAIN, actors play all sides of a game; with EVALUATE, the environment moves for opponents.
    """
    settings = dataclasses.replace(config.env.of_evaluation, random_opening=0, joint_observation=False)
    return registry.make(config.env.id, settings, num_rows, role=role, render=render)


class Table:
    """E rows of an environment.

    Attributes:
      env: the environment, which only the table resets and steps.
      step: what the rows show now.
      first: [E] bool, true where the newest observation of a row begins an episode, or the next one will.
    """

    step: types.EnvStep
    first: np.ndarray

    def __init__(self, env: env_base.VectorEnv) -> None:
        """env: it shows nothing until `begin`."""
        self.env = env

    def begin(self, seeds: Sequence[int]) -> None:
        """Begins an episode in all rows; seeds: [E]."""
        self.step, self.first = self.env.reset(seeds), np.ones(self.env.num_envs, bool)

    def take(self, actions: np.ndarray) -> None:
        """Steps with the actions of all rows, [E] or [E, D]; those of rows without a turn are ignored."""
        self.first = np.where(actor.shown(self.step), self.step.final, self.first)
        self.step = self.env.step(actions)

    def play(self, actors: Sequence[tuple[np.ndarray, actor.Actor]]) -> None:
        """Steps with the actions of actors, each for its rows, [E] bool; the other rows have action 0."""
        actions = np.zeros(self.env.num_envs, np.int32)
        for rows, one in actors:
            if np.any(rows):
                actions = np.where(rows, one.act(self.step._replace(shown=rows), self.first), actions)
        self.take(actions)


class RunTable(Table):
    """A run's environment and its agents, which act in all rows.

    Attributes:
      saved: the agent, as in `saved_actors.RunAgents`.
    """

    def __init__(
        self,
        choice: agent_choice.AgentChoice,
        config: configs.Config,
        num_rows: int,
        role: types.Role,
        *,
        render: bool = False,
    ) -> None:
        """Makes the environment, and loads the agents; for role and errors see `made` and `saved_actors.load`."""
        super().__init__(made(config, num_rows, role, render=render))
        with contextlib.ExitStack() as undo:
            undo.callback(self.env.close)
            self.begin(saved_agents.seeds(choice.seed, num_rows))  # The first reset completes the spec.
            self.saved, act_for = saved_actors.load(choice, config, self.env.spec)
            self._actor = act_for(num_rows, choice.seed)
            undo.pop_all()

    def advance(self) -> None:
        """Takes one step in every row."""
        self.take(self._actor.act(self.step, self.first))
