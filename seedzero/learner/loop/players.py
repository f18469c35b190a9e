"""A player has every part of a run that exists once for each set of learning parameters.

The device loop's thread owns it. Calls return at once, with arrays that are still being computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.agents import base
from seedzero.config import configs
from seedzero.core import types
from seedzero.device import meshes, setups, states, steps, strategies
from seedzero.learner.loop import places, queue_rate, rate_limiting, replay_rate, step_accounting
from seedzero.monitoring.metrics import counts
from seedzero.replay import ring_store, sources

_PLAYER = 7
"""Second number of the random keys of learning players."""


@dataclasses.dataclass(eq=False)
class Player:
    """A player's train state, acting parameters, counters, pace and accounting."""

    name: str  # in checkpoints of several players
    seed: int  # seeds everything random on the devices, including the first parameters
    place: places.Place  # where it learns, and where the rows of groups at home with it are stored
    train: base.TrainState
    rate_limiter: rate_limiting.RateLimiter  # decides when it acts and learns
    accounting: step_accounting.StepAccounting  # accounts for the steps of groups at home with it
    num_updates: int = 0  # submitted since the run began, including before resumes
    num_reanalyses: int = 0  # submitted likewise
    version: int = 0  # updates that the acting parameters have seen
    mine: np.ndarray | None = None  # [S] bool, slots at home here; None: all are

    def __post_init__(self) -> None:
        self.params = self.copy_params()  # the parameters that act

    @property
    def rings(self) -> ring_store.Rings:
        """The rings, from which only slots at home here are drawn."""
        return self.place.rings_of(self.mine)

    # ------------------------------------------------------------------------------------ parameters that act

    def copy_params(self) -> base.Params:
        """Returns a copy of the newest parameters for acting, on the devices that act."""
        return self.place.strategy.copy(self._newest.params)

    @property
    def _newest(self) -> strategies.Acting:
        return strategies.Acting(self.place.setup.agent.acting(self.train), self.num_updates)

    @property
    def _acting(self) -> strategies.Acting:
        return strategies.Acting(self.params, self.version)

    def publish(self) -> None:
        """Makes acting use the newest parameters from now on.

        If learners are apart, once the parameters have arrived.
        """
        self.params, self.version = self.place.strategy.publish(self._newest) or self._acting

    def receive(self) -> None:
        """Makes acting use the newest published parameters available without waiting."""
        self.params, self.version = self.place.strategy.receive() or self._acting

    # ------------------------------------------------------------------------------------ calls

    @property
    def env_steps(self) -> int:
        """The training steps stored so far."""
        return self.accounting.ledger.counts.stored

    @property
    def counts(self) -> dict[str, Any]:
        """The counts of a `members.Member`."""
        return {"version": self.num_updates, "env_steps": self.env_steps}

    @property
    def num_inserts(self) -> int:
        """The steps stored so far, for sampling; a queue does not need them."""
        return self.env_steps if self.place.setup.agent.samples else 0

    @property
    def can_update(self) -> bool:
        """Whether an update is compiled and has data, and no frames are being read for it."""
        return self.place.programs.update.done() and self.place.strategy.is_ready and self.accounting.can_sample

    def run_update(self, now: float) -> jax.Array:
        """Learns from the windows that the pace supplies; returns metrics [M], `Training.metric_names`."""
        feed, run = self.rate_limiter.feed(self.num_inserts, now), self.place.programs.update.result().functions
        given = np.int32(self.seed), self.train, self.rings
        self.train, self.place.rings, values = self.place.strategy.run_update(run, given, feed, self.num_updates)
        self.num_updates += 1
        return values

    def run_reanalyse(self) -> jax.Array:
        """Reanalyses stored targets; returns metrics [M], `Training.metric_names`."""
        params, version = self.place.strategy.reanalysing(self._newest, self._acting)
        counters = steps.counters(self.num_inserts, version, self.num_reanalyses)
        run = self.place.programs.reanalyse.result().functions
        given = np.int32(self.seed), params, self.rings
        self.place.rings, values = self.place.strategy.run_reanalyse(run, given, counters)
        self.num_reanalyses += 1
        return values

    # ------------------------------------------------------------------------------------ checkpoints

    def state(self) -> dict[str, base.Params]:
        """Returns the parts of the train state."""
        return states.parts(self.place.setup.agent, meshes.own(self.train))

    def to_json(self) -> dict[str, Any]:
        """Returns the player's part of a checkpoint's counters."""
        counters = {"num_updates": self.num_updates, "num_reanalyses": self.num_reanalyses}  # the name in checkpoints
        if self.place.setup.layout.numbers is not None:
            counters[PLACE] = self.place.number
        return {**counters, **self.accounting.to_json(), **self.rate_limiter.to_json()}

    def restore(self, saved: Mapping[str, Any], *, has_replay: bool) -> None:
        """Restores a checkpoint's counters; without its replay, updates wait until new steps are stored."""
        self.num_updates = saved["num_updates"]
        self.num_reanalyses = saved["num_reanalyses"]
        self.params, self.version = self.copy_params(), self.num_updates
        self.accounting.restore(saved, has_replay=has_replay)
        self.rate_limiter.restore(saved)


def make_pacer(config: configs.Config, setup: setups.Setup) -> rate_limiting.RateLimiter:
    """Returns the rate limiter for the agent's kind of data."""
    data, lock_step = setup.agent.data, config.run.deterministic
    if isinstance(data, sources.Queue):
        return queue_rate.QueueRateLimiter(data, setup.layout, setup.slot_length, lock_step=lock_step)
    band = replay_rate.make_band(config.replay, setup.agent.reanalyse, setup.max_rows, lock_step=lock_step)
    return replay_rate.ReplayRateLimiter(band, config.replay)


def seed_of(run_seed: int, number: int) -> int:
    """Returns the seed of a learning player, below 2^31; the first player's is the run's."""
    if number == 0:
        return run_seed
    return int(np.random.SeedSequence([run_seed, _PLAYER, number]).generate_state(1)[0]) >> 1


def make(
    config: configs.Config,
    spec: types.EnvSpec,
    gathered: counts.Aggregator,
    own_seed: int,
    name: str,
    number: int,
    place: places.Place,
    state: base.TrainState | None = None,
) -> Player:
    """Returns a learning player.

    own_seed: this host's. number: as in `members.Member`. state: None if it is new.
    """
    seed, rate_limiter = seed_of(own_seed, number), make_pacer(config, place.setup)
    changes = config.league.homes_change
    accounting = step_accounting.StepAccounting(place.setup.layout, rate_limiter, gathered, spec, changes)
    train = place.make_train(np.int32(seed)) if state is None else state
    return Player(name, seed, place, train, rate_limiter=rate_limiter, accounting=accounting)


def snapshot(player: Player) -> states.PlayerSnapshot:
    """Copies a player's newest parameters for acting, with their statistics, to the devices that act."""
    return states.PlayerSnapshot(*player.place.strategy.copy(states.snapshot(player.place.setup.agent, player.train)))


class Retired(NamedTuple):
    """Summed counters of the players that no longer learn, so that a run's own counters never fall."""

    num_updates: int = 0
    num_reanalyses: int = 0
    num_samples: int = 0  # windows or steps that they learned from
    steps: counts.Counts = counts.Counts()  # training steps

    def plus(self, player: Player) -> Retired:
        """Adds another player to the sums, once its groups have left it."""
        stored = player.accounting.ledger.counts
        return Retired(
            self.num_updates + player.num_updates,
            self.num_reanalyses + player.num_reanalyses,
            self.num_samples + player.rate_limiter.num_samples(player.num_updates, stored.stored),
            counts.total([self.steps, stored]),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the content for a checkpoint."""
        return {**self._asdict(), "steps": dataclasses.asdict(self.steps)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Retired:
        """Restores the sums of a checkpoint."""
        return cls(**{**saved, "steps": counts.Counts(**saved["steps"])})


class Everyone(NamedTuple):
    """The players of a run: all that learn, and the sums of all that have retired."""

    learning: tuple[Player, ...]
    retired: Retired = Retired()

    @property
    def num_updates(self) -> int:
        return self.retired.num_updates + sum(player.num_updates for player in self.learning)

    @property
    def num_reanalyses(self) -> int:
        return self.retired.num_reanalyses + sum(player.num_reanalyses for player in self.learning)

    def counts(self) -> tuple[counts.Counts, ...]:
        """Returns the counters of training steps of each player, and of the retired ones together."""
        return (*(player.accounting.ledger.counts for player in self.learning), self.retired.steps)

    def after(self, learning: tuple[Player, ...]) -> Everyone:
        """Returns the players once others learn; groups have left those that retired."""
        retired = self.retired
        for player in self.learning:
            if player not in learning:
                retired = retired.plus(player)
        return Everyone(learning, retired)


_SAME = -2
"""Instead of an index of players: the slot keeps its home."""


def change_homes(before: Sequence[Player], after: Sequence[Player], mine: Sequence[np.ndarray]) -> np.ndarray:
    """Gives slots another home, and returns which changed, [S] bool.

    mine: the players' slots afterwards, as in `Player`.

    The steps that the former homes stored there belong to nobody any more, like slots of a place without players.
    """
    was, now = _table([player.mine for player in before if player.mine is not None]), _table(mine)
    for at, to in sorted(set(zip(was.tolist(), now.tolist(), strict=True))):
        old, new = before[at] if at >= 0 else None, after[to] if to >= 0 else None
        slots = np.flatnonzero((was == at) & (now == to))
        if old is new:
            was[slots] = now[slots] = _SAME
            continue
        if old is not None:
            old.accounting.leave(slots)
        if new is not None and old is not None:
            new.accounting.take(slots, old.accounting)
        elif new is not None:
            new.accounting.rate_limiter.take(slots, new.place.num_rows(slots))
    for new, own in zip(after, mine, strict=True):
        new.mine = own
    moved: np.ndarray = was != _SAME
    for place in {id(player.place): player.place for player in (*before, *after)}.values():
        place.forget(moved)
    return moved


def _table(mine: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the index [S] of each slot's player, or -1 for nobody's."""
    found = np.full(len(mine[0]), -1)
    for at, own in enumerate(mine):
        found[own] = at
    return found


def restore_homes(learning: Sequence[Player], mine: Sequence[np.ndarray]) -> None:
    """Lets a checkpoint's players draw from their slots. mine: the slots of each, as in `Player`.

    A checkpoint may have been saved with the replay of an earlier one, whose slots had other homes. Steps in slots
    that have moved since do not count, and are not drawn; in other checkpoints there are none.
    """
    for player, own in zip(learning, mine, strict=True):
        player.mine = own
        player.place.forget(player.accounting.restrict(own))


PLACE = "place"
"""In the counters of a player that learns in one of several places: the place's number."""
_PLAYERS, _RETIRED = "players", "retired"
"""In a checkpoint's counters: those of several players by name, beside the sums over all; and sums of retired ones."""


def to_json(everyone: Everyone) -> dict[str, Any]:
    """Returns the players' part of a checkpoint's counters; with several, sums over all and each player's own."""
    learning, retired = everyone
    by_name = {player.name: player.to_json() for player in learning}
    first = by_name[learning[0].name]
    if len(learning) == 1 and retired == Retired():
        return first
    names = ("num_updates", "num_reanalyses")
    sums = {name: getattr(everyone, name) for name in names}
    ledgers = counts.total(everyone.counts())
    found = {**first, **sums, "ledger": dataclasses.asdict(ledgers), _PLAYERS: by_name}
    return found if retired == Retired() else {**found, _RETIRED: retired.to_json()}


def restore(learning: tuple[Player, ...], saved: Mapping[str, Any], *, has_replay: bool) -> Everyone:
    """Restores the counters of `to_json`. has_replay: as in `Player.restore`."""
    for player in learning:
        own = saved[_PLAYERS][player.name] if _PLAYERS in saved else saved
        player.restore(own, has_replay=has_replay)
    return Everyone(learning, Retired.from_json(saved[_RETIRED]) if _RETIRED in saved else Retired())
