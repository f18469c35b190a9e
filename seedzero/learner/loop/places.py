"""A place holds what a set of players shares, from devices and compiled programs to rings and environments' memory.

Most runs have one place. The device loop's thread owns it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seedzero.agents import base
from seedzero.device import acting, batches, device_programs, setups, states, steps, strategies
from seedzero.replay import ring_store


@dataclasses.dataclass(eq=False)
class Place:
    """What the players that learn here share; a slot's place is that of the player at home in it.

    Every call of any player donates the rings, an acting call the memory too.
    """

    number: int  # from 0; evaluations play in the first place
    setup: setups.Setup  # with the mesh and the layout of the place
    programs: device_programs.Programs
    strategy: strategies.Strategy  # how the place's devices share the work
    rings: ring_store.Rings  # the stored rows of slots here; frames may lie elsewhere
    carried: acting.Carried  # the memory of environments here
    lanes: Sequence[int] = (0,)
    """Lanes of calls in flight: of acting, and at the end of updates; they may be the same (`Dispatcher`)."""

    @property
    def acting(self) -> int:
        """The lane of acting."""
        return self.lanes[0]

    @property
    def updating(self) -> int:
        """The lane of updates."""
        return self.lanes[-1]

    @functools.cached_property
    def make_train(self) -> Callable[[np.int32], base.TrainState]:
        """The program of `states.train_maker`, compiled once: a league's builder adds and resets players all along."""
        return states.train_maker(self.setup)

    def run_act(
        self, seed: int, params: base.Params, mine: np.ndarray | None, batch: batches.Batch, counters: steps.Counters
    ) -> Any:
        """Acts on a batch; returns the results of `acting.make_act` for its rows. mine: as in `Player`."""
        if not self.strategy.holds_frames:
            self.strategy.keep(batch)
        act, actor = self.programs.act(len(batch.slot)), acting.ActorState(self.carried, self.rings_of(mine))
        (self.carried, self.rings), actions = act(np.int32(seed), params, actor, batch, counters)
        return actions

    def rings_of(self, mine: np.ndarray | None) -> ring_store.Rings:
        """Returns the rings from which a player's slots are drawn. mine: as in `Player`."""
        own = None if mine is None or self.setup.num_players == 1 else self.setup.layout.own(mine)
        return self.rings._replace(mine=own)

    def forget(self, slots: np.ndarray | None) -> None:
        """Makes sure that the steps so far of some slots, [S] bool, are never drawn; None: of all slots."""
        own = None if slots is None else self.setup.layout.own(slots)
        if own is None or own.any():
            self.rings = self.strategy.begin(states.forget(self.rings._replace(mine=own)))

    def num_rows(self, slots: np.ndarray) -> np.ndarray:
        """Returns how many rows [B] were ever written for slots [B] here, after waiting for the calls in flight."""
        found: np.ndarray = np.asarray(self.rings.cursor)[self.setup.layout.ring(slots)]
        return found

    def forget_environments(self) -> None:
        """Restarts the memory of all environments."""
        self.carried = states.init_carried(self.setup, begins=False)

    def close(self) -> None:
        """Stops preparing further calls."""
        self.programs.close()
        self.strategy.close()


def whole(here: Sequence[Place]) -> ring_store.Replay | None:
    """Returns the replay of all places with its frames, for a checkpoint; None for a queue, which keeps none."""
    if not here[0].setup.agent.samples:
        return None
    return ring_store.together([place.strategy.whole(place.rings) for place in here])


def to_json(here: Sequence[Place]) -> dict[str, list[int]]:
    """Returns the part of a checkpoint's counters: with several places, their numbers of devices."""
    return {ring_store.PLACES: [place.setup.layout.num_shards for place in here]} if len(here) > 1 else {}
