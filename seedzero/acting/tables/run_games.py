"""Finds out which game a run was trained in, and whether this machine can make it."""

from __future__ import annotations

from seedzero.acting.actors import agent_choice
from seedzero.config import configs
from seedzero.core import env_ids, errors
from seedzero.envs import pgx_games, pgx_rules, spiel, spiel_seats, turn_games

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
