"""A worker's choice among the hosts of a run, which are the addresses of its --server; most runs have one host.

order     a worker sorts the list by a hash of its name and the address: workers begin evenly on all hosts, and a
          dead host's workers go evenly to the others, wherever they stand in the list
full      the host that the refusal names, if the list has it and this round has not asked it yet; else the next
no answer the same host for as long as it would keep a session, for workers that have none yet as well, since all
          may start together; then the next at once, until one gives an assignment
round     every host once, a tenth of a second apart; between rounds a pause that doubles
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from seedzero.transport import security

_FIRST_BACKOFF_SECONDS = 0.1
_COMPLAINT_SECONDS = 30.0
_MOST_LETTERS = 100
_logger = logging.getLogger(__name__)


class Trouble(NamedTuple):
    """How a stream, or an attempt, ended, after which a worker tries again."""

    text: str
    is_full: bool = False
    elsewhere: str = ""  # the address that the host names, untrusted, or ""


class Hosts:
    """The hosts in a worker's order, pauses, and complaints without repetition. `present`: the host to connect to."""

    def __init__(self, listed: Sequence[security.ClientSecurity], worker_id: str, max_backoff_seconds: float) -> None:
        def place(host: security.ClientSecurity) -> bytes:
            return hashlib.sha256(f"{worker_id} {host.address}".encode(errors="surrogateescape")).digest()

        self._order, self._max_backoff_seconds = sorted(listed, key=place), max_backoff_seconds
        self.present = self._order[0]
        self._asked: set[str] = set()  # addresses, in this round
        self._backoff_seconds = _FIRST_BACKOFF_SECONDS
        self._complaints: dict[str, tuple[str, float]] = {}  # the last one about each address, and its time

    def retry(self, trouble: Trouble, release: Callable[[bool], bool]) -> float:
        """Chooses the host of the next attempt, and returns the pause before it in seconds.

        release: takes the trouble's is_full and returns whether another host may follow.
        """
        here, goal, text, hint = self.present.address, "again", trouble.text, trouble.elsewhere
        if hint and all(hint != host.address for host in self._order):
            text += f"; it names {hint[:_MOST_LETTERS]!r}, which --server does not: ignored"
        pause_seconds, is_new_round = self._backoff_seconds, True
        if len(self._order) > 1 and release(trouble.is_full):
            is_new_round = self._move(hint)
            goal = self.present.address
        if is_new_round:
            self._backoff_seconds = min(2 * self._backoff_seconds, self._max_backoff_seconds)
        else:
            pause_seconds = _FIRST_BACKOFF_SECONDS
        self._complain(here, text, goal)
        return pause_seconds * random.uniform(0.5, 1.0)

    def heard(self, kind: str | None) -> None:
        """Notes a message: an Assign ends complaints and the round, and Actions end the doubling."""
        if kind == "assign":
            self._asked.clear()
            if self._complaints:
                self._complaints.clear()
                _logger.info("learner at %s: connected", self.present.address)
        elif kind == "actions":
            self._backoff_seconds = _FIRST_BACKOFF_SECONDS

    def _move(self, hint: str) -> bool:
        """Goes to another host, if possible the one of the hint; returns whether a new round begins."""
        place = self._order.index(self.present)
        others = self._order[place + 1 :] + self._order[:place]
        self._asked.add(self.present.address)
        new = [host for host in others if host.address not in self._asked]
        if not new:
            self._asked.clear()
        self.present = next((host for host in new or others if host.address == hint), (new or others)[0])
        return not new

    def _complain(self, here: str, trouble: str, goal: str) -> None:
        kind, now = f"{trouble.partition(':')[0]} {goal}", time.monotonic()
        last, at = self._complaints.get(here, ("", 0.0))
        if kind != last or now - at >= _COMPLAINT_SECONDS:
            self._complaints[here] = (kind, now)
            _logger.warning("learner at %s: %s; trying %s", here, trouble, goal)
