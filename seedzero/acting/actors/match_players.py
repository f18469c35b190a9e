"""Players of matches: saved agents of runs, and players of policy servers."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from seedzero.acting.actors import actor, agent_choice, remote_players, saved_actors, saved_agents
from seedzero.config import configs
from seedzero.core import errors, opponents, types

Player: TypeAlias = saved_agents.SavedAgent | remote_players.RemotePlayer
Loadable: TypeAlias = remote_players.Served | tuple[agent_choice.AgentChoice, configs.Config]
Chosen: TypeAlias = Loadable | str
Named: TypeAlias = agent_choice.AgentChoice | str | remote_players.Served
"""A player of a run, another run's directory, an opponent as in `opponents.parse`, or a policy server's player."""


def choose(one: Named, mine: agent_choice.AgentChoice, config: configs.Config) -> Chosen:
    """Returns what to load for a player; an opponent by name is its name.

    mine: of the run, whose step, policy and trust all of its players have; another run's last checkpoint plays. Raises
    UsageError if another run is of another game.
    """
    if isinstance(one, remote_players.Served):
        return one
    if isinstance(one, agent_choice.AgentChoice):
        return mine.of(one.player), config
    if opponents.is_known(one):
        return one
    path = pathlib.Path(one).absolute()
    found = agent_choice.AgentChoice(path, "last", policy=mine.policy, trusted=mine.trusted)
    other = found.config()
    if other.env.id != config.env.id:
        raise errors.UsageError(
            f"--opponent={path} was trained with --env={other.env.id}, this run with --env={config.env.id}; give a "
            f"run of the same game, or --opponent={opponents.RANDOM}"
        )
    return found, other


def load_all(
    chosen: Sequence[Chosen],
    spec: types.EnvSpec,
    seed: int,
    undo: contextlib.ExitStack,
    *,
    act: Callable[[Player, int], actor.Actor],
    bot: Callable[[str, int], actor.Actor],
) -> tuple[list[dict[str, Any]], list[actor.Actor]]:
    """Returns the fields of a result that name each player, and the players as actors, which draw apart.

    act: (player, seed) -> its actor. bot: the same for an opponent by name. `undo` closes sessions of policy servers.
    """
    told, actors = list[dict[str, Any]](), list[actor.Actor]()
    for one, own_seed in zip(chosen, saved_agents.seeds(seed, len(chosen)), strict=True):
        if isinstance(one, str):
            told.append({"step": None})
            actors.append(bot(one, own_seed))
        else:
            player = load(one, spec, undo)
            told.append(player.to_json())
            actors.append(act(player, own_seed))
    return told, actors


def load(
    chosen: remote_players.Served | tuple[agent_choice.AgentChoice, configs.Config],
    spec: types.EnvSpec,
    undo: contextlib.ExitStack,
) -> Player:
    """Returns a player; `undo` closes its sessions with a policy server."""
    if isinstance(chosen, remote_players.Served):
        return undo.enter_context(contextlib.closing(remote_players.RemotePlayer(chosen, spec)))
    return saved_agents.load(*chosen, spec)


def act(player: Player, num_rows: int, seed: int) -> actor.Actor:
    """Lets a player act for a number of rows. seed: for a saved agent's draws."""
    if isinstance(player, remote_players.RemotePlayer):
        return player.actor(num_rows)
    return saved_actors.SavedActor(player, num_rows, seed)
