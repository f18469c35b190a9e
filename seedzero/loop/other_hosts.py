"""A run's other hosts, present and gone, as the device loop sees them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from seedzero.loop import agreement
from seedzero.metrics import counts


class Alone:
    """Keeps the parameters of all hosts equal (`learner/alike.py`); a host without others has nothing to compare."""

    def after_update(self) -> None:
        """Device loop's thread, after each update of all hosts."""

    def now(self) -> None:
        """Device loop's thread: compares and aligns at once."""


ALONE = Alone()


class OtherHosts:
    """The other hosts as one host sees them; with `agreed` None it is alone."""

    def __init__(self, agreed: agreement.Agreed | None = None) -> None:
        self._agreed = agreed
        self._gone = counts.Counts()

    def counts(self) -> dict[str, counts.Counts]:
        """Any thread: returns their counters by index, and the sum over all hosts that have left the run."""
        now = {} if self._agreed is None else {str(index): found for index, found in self._agreed.others.items()}
        return now if self._gone == counts.Counts() else {**now, counts.GONE: self._gone}

    def to_json(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's counters; {} without other hosts."""
        found = {name: dataclasses.asdict(each) for name, each in self.counts().items()}
        return {counts.OTHER_HOSTS: found} if found else {}

    def restore(self, saved: Mapping[str, Any], parts: Collection[int] = ()) -> None:
        """Restores a checkpoint's counters. parts: the hosts that resume from their own parts of it."""
        found = {name: counts.Counts(**each) for name, each in saved.get(counts.OTHER_HOSTS, {}).items()}
        if self._agreed is not None:
            self._agreed.others = {index: found.pop(str(index)) for index in parts if str(index) in found}
        self._gone = counts.total(list(found.values()))
