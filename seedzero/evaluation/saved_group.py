"""Loads the agents for a run's environments: one agent for all rows, or one policy for each seat."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seedzero.config import configs, seats_config
from seedzero.core import errors, types
from seedzero.evaluation import agent_choice, greedy


class SavedGroup(NamedTuple):
    """The saved agents that play in a run's environments.

    Attributes:
      saved: the agent; if there are several policies, the first one without its name.
      player: (number of rows, seed) -> a player for that many rows.
    """

    saved: greedy.SavedAgent
    player: Callable[[int, int], greedy.GroupPlayer | SeatPlayers]


def load(choice: agent_choice.AgentChoice, config: configs.Config, spec: types.EnvSpec) -> SavedGroup:
    """Returns the agent of a run, or all of its policies, for environments with the given spec.

    Errors: see `greedy.load`.
    """
    policies = seats_config.policies(config, spec.seats)
    if not policies:
        saved = greedy.load(choice, config, spec)
        return SavedGroup(saved, lambda rows, seed: greedy.GroupPlayer(saved, rows, seed))
    if choice.player is not None:
        raise errors.UsageError(
            f"--player={choice.player}: in episodes of {choice.path} all of its policies play, "
            f"{', '.join(dict.fromkeys(policies))}; omit it"
        )
    by_name = {name: greedy.load(choice.of(name), config, spec) for name in dict.fromkeys(policies)}
    of_seats = [by_name[name] for name in policies]
    return SavedGroup(of_seats[0]._replace(player=""), lambda rows, seed: SeatPlayers(of_seats, rows, seed))


class SeatPlayers:
    """Acts for seats with policies of their own; row g * S + s is seat s of game g."""

    def __init__(self, of_seats: list[greedy.SavedAgent], num_rows: int, seed: int) -> None:
        """Takes one agent for each seat, [S]; seats with the same object act together in one call."""
        seats = np.arange(num_rows) % len(of_seats)
        self._parts = list[tuple[np.ndarray, greedy.GroupPlayer]]()
        for number, saved in enumerate({saved.player: saved for saved in of_seats}.values()):
            mine = [seat for seat, other in enumerate(of_seats) if other is saved]
            rows = np.flatnonzero(np.isin(seats, mine))
            own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) >> 1
            self._parts.append((rows, greedy.GroupPlayer(saved, len(rows), own)))

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions of all rows, like `GroupPlayer.act`."""
        parts = [(rows, player.act(step.those(rows), first[rows])) for rows, player in self._parts]
        found = np.zeros((len(first), *parts[0][1].shape[1:]), parts[0][1].dtype)
        for rows, actions in parts:
            found[rows] = actions
        return found
