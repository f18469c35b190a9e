"""Keeps the parameters of a run's hosts equal, whatever their processors compute.

Every host applies the same gradients to the same parameters, so equal processors always have equal bits. Others round
differently, and their parameters differ from the first update on. So the hosts compare a checksum of their train
states now and then, on the devices, and all take host 0's state if they differ. Updates happen at the same numbers on
all hosts (`agreement`), and so do these comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from seedzero.config import configs
from seedzero.core import errors
from seedzero.device import across
from seedzero.learner import together
from seedzero.learner.loop import agreement, dispatchers, in_flight_calls

EVERY_UPDATES = 100
"""Updates between two comparisons, which bounds how long parameters can drift apart."""
RESYNCED = "hosts_resynced"
"""Name of the metric: comparisons since the last row that found a difference."""


class Alike(agreement.Alone):
    """Compares and aligns the train states of all hosts, on the device loop's thread."""

    def __init__(
        self,
        dispatcher: dispatchers.Dispatcher,
        processors: Sequence[str],
        report: Callable[[str], None],
        leave: Callable[[], object],
        *,
        deterministic: bool,
    ) -> None:
        """processors: names by host. report: shows the user a message, from any thread.

        leave: ends with the other hosts.
        """
        self._dispatcher, self._processors, self._report = dispatcher, processors, report
        self._leave, self._deterministic = leave, deterministic
        (self._player,) = dispatcher.players
        self._aligned = self._player.num_updates
        self._is_told = False

    def after_update(self) -> None:
        """Compares if it is time, without waiting, after the update has been submitted."""
        if self._player.num_updates % EVERY_UPDATES == 0:
            checksums = self._align()
            if checksums is not None:
                self._dispatcher.in_flight.add(lambda: self._note(checksums), in_flight_calls.UPDATING)

    def now(self) -> None:
        """Makes all hosts continue from the same state after the same update. Raises ConfigError as `_note` does."""
        checksums = self._align()
        if checksums is not None:
            self._note(checksums)

    def _align(self) -> jax.Array | None:
        """Submits a comparison, unless this state has had one, and returns the checksums [D] of all devices."""
        player = self._player
        if self._aligned == player.num_updates:
            return None
        self._aligned = player.num_updates
        place = player.place
        assert isinstance(place.strategy, across.AcrossHosts)
        run = place.programs.update.result().functions
        player.train, checksums = place.strategy.align(run, player.train)
        return checksums

    def _note(self, checksums: jax.Array) -> None:
        """Waits for a comparison. Counts and reports a difference, or raises ConfigError in a deterministic run."""
        by_host = np.asarray(checksums).reshape(len(self._processors), -1)
        found = [index for index, own in enumerate(by_host) if np.any(own != by_host[0, 0])]
        if not found:
            return
        names = ", ".join(f"host {index} ({self._processors[index]})" for index in found)
        differs = f"{names} computes different bits from host 0 ({self._processors[0]})"
        if self._deterministic:
            self._leave()  # all hosts have found it, so none blames the end of another one
            raise errors.ConfigError(
                f"{differs}, so this run cannot be repeated bit for bit; give all hosts the same processors and "
                "XLA_FLAGS, or start a new run without --deterministic"
            )
        self._dispatcher.gathered.add_totals({RESYNCED: 1})
        if not self._is_told:
            self._is_told = True
            self._report(
                f"{differs}, so their parameters drift apart; all hosts take host 0's every {EVERY_UPDATES} updates "
                f"and at each checkpoint, which {RESYNCED} counts. The same processors and XLA_FLAGS avoid that"
            )


def between(
    config: configs.Config,
    dispatcher: dispatchers.Dispatcher,
    hosts: together.Together,
    report: Callable[[str], None],
) -> Alike:
    """Returns the object that compares states with the run's other hosts."""
    kinds = {device.process_index: device.device_kind for device in jax.devices() if device.platform != "cpu"}
    named = [kinds.get(index, name) for index, name in enumerate(hosts.processors)]
    return Alike(dispatcher, named, report, hosts.link.leave, deterministic=config.run.deterministic)
