"""Saved agents as actors: one agent acts for all rows, or each seat has a policy of its own.

Shape letters: E rows of environments, S seats of a game.
"""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from seedzero.acting.actors import acting_program, actor, agent_choice, remote_players, saved_agents
from seedzero.config import configs, seats_config
from seedzero.core import errors, opponents, types
from seedzero.device import acting


class SavedActor:
    """A saved agent that acts for E rows. Its draws depend only on the seed and the number of the call.

    Attributes:
      memory: what the rows remember, [E, ...]; a caller may keep it, and put it back to undo calls.
      num_calls: number of calls so far.
    """

    def __init__(self, saved: saved_agents.SavedAgent, num_rows: int, seed: int) -> None:
        self._saved, self._seed = saved, seed
        self._program = acting_program.ActingProgram(saved.agent, saved.spec)
        self.memory: acting.Carried = acting.initial(saved.agent, saved.spec, num_rows)
        self.num_calls = 0

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions, [E] int32 or [E, D] float32, like `actor.Actor.act`."""
        actions: np.ndarray = self.look(step, first, acting_program.ACTIONS)["action"]
        return actions

    def look(
        self, step: types.EnvStep, first: np.ndarray, findings: acting_program.Findings = acting_program.NUMBERS
    ) -> dict[str, Any]:
        """Acts, and returns the actions with findings, [E, ...] by name as in `acting_program.look`."""
        saved = self._saved
        seen = acting_program.seen(saved.spec, step, first, saved.mode, saved.update)
        written = None if step.shown is None else np.where(step.shown, seen.slot, np.int32(acting_program.NOWHERE))
        rows = saved.params, self.memory, seen, self._seed, self.num_calls
        self.memory, found = self._program(*rows, written=written, findings=findings)
        self.num_calls += 1
        return acting_program.on_host(found)


class SeatActors:
    """Acts for seats with policies of their own; row g * S + s is seat s of game g."""

    def __init__(self, of_seats: list[saved_agents.SavedAgent], num_rows: int, seed: int) -> None:
        """Takes one agent for each seat, [S]; seats with the same object act together in one call."""
        seats = np.arange(num_rows) % len(of_seats)
        self._parts = list[tuple[np.ndarray, SavedActor]]()
        for number, saved in enumerate({saved.player: saved for saved in of_seats}.values()):
            mine = [seat for seat, other in enumerate(of_seats) if other is saved]
            rows = np.flatnonzero(np.isin(seats, mine))
            own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) >> 1
            self._parts.append((rows, SavedActor(saved, len(rows), own)))

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions of all rows, like `actor.Actor.act`."""
        parts = [(rows, actor.act(step.those(rows), first[rows])) for rows, actor in self._parts]
        found = np.zeros((len(first), *parts[0][1].shape[1:]), parts[0][1].dtype)
        for rows, actions in parts:
            found[rows] = actions
        return found


class RunAgents(NamedTuple):
    """The saved agents that play in a run's environments.

    Attributes:
      saved: the agent; if there are several policies, the first one without its name.
      actor: (number of rows, seed) -> an actor for that many rows.
    """

    saved: saved_agents.SavedAgent
    actor: Callable[[int, int], SavedActor | SeatActors]


def load(choice: agent_choice.AgentChoice, config: configs.Config, spec: types.EnvSpec) -> RunAgents:
    """Returns the agent of a run, or all of its policies, for environments with the given spec.

    Errors: see `saved_agents.load`.
    """
    policies = seats_config.policies(config, spec.seats)
    if not policies:
        saved = saved_agents.load(choice, config, spec)
        return RunAgents(saved, lambda rows, seed: SavedActor(saved, rows, seed))
    if choice.player is not None:
        raise errors.UsageError(
            f"--player={choice.player}: in episodes of {choice.path} all of its policies play, "
            f"{', '.join(dict.fromkeys(policies))}; omit it"
        )
    by_name = {name: saved_agents.load(choice.of(name), config, spec) for name in dict.fromkeys(policies)}
    of_seats = [by_name[name] for name in policies]
    return RunAgents(of_seats[0]._replace(player=""), lambda rows, seed: SeatActors(of_seats, rows, seed))


Player: TypeAlias = saved_agents.SavedAgent | remote_players.RemotePlayer
Loadable: TypeAlias = remote_players.Served | tuple[agent_choice.AgentChoice, configs.Config]
Chosen: TypeAlias = Loadable | str
Named: TypeAlias = agent_choice.AgentChoice | str | remote_players.Served
"""A player of a run, another run's directory, an opponent as in `opponents.parse`, or a policy server's player."""


def choose_player(one: Named, mine: agent_choice.AgentChoice, config: configs.Config) -> Chosen:
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
            player = load_player(one, spec, undo)
            told.append(player.to_json())
            actors.append(act(player, own_seed))
    return told, actors


def load_player(
    chosen: remote_players.Served | tuple[agent_choice.AgentChoice, configs.Config],
    spec: types.EnvSpec,
    undo: contextlib.ExitStack,
) -> Player:
    """Returns a player; `undo` closes its sessions with a policy server."""
    if isinstance(chosen, remote_players.Served):
        return undo.enter_context(contextlib.closing(remote_players.RemotePlayer(chosen, spec)))
    return saved_agents.load(*chosen, spec)


def actor_of(player: Player, num_rows: int, seed: int) -> actor.Actor:
    """Lets a player act for a number of rows. seed: for a saved agent's draws."""
    if isinstance(player, remote_players.RemotePlayer):
        return player.actor(num_rows)
    return SavedActor(player, num_rows, seed)
