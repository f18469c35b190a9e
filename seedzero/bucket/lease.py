"""The lease of a run in a bucket: at most one learner writes there.

An object says who the learner is and changes whenever it is renewed. Clocks of two machines are never compared: who
wants the lease watches the object, and one that did not change for `lease_seconds` belongs to nobody alive.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

from seedzero.bucket import bucket
from seedzero.core import errors

NAME = "lease.json"


@dataclasses.dataclass(frozen=True)
class Holder:
    """What the object says.

    Attributes:
      copy: token of the local copy that the learner writes.
      process: token of the learner's process.
      host: name of its machine.
      pid: of its process.
      renewed: seconds since the epoch, by its clock.
      seconds: it is dead if it has not renewed for so long.
      released: it has ended and needs the lease no more.
    """

    copy: str
    process: str
    host: str
    pid: int
    renewed: float
    seconds: float
    released: bool


def parse(content: bytes, url: bucket.Url) -> Holder:
    """Returns what the object says.

    Raises:
      BucketError: it is damaged.
    """
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise errors.BucketError(f"{url}/{NAME} is damaged ({error}); delete it if no learner uses {url}") from None


class Lease:
    """This process's claim to a run in a bucket; `acquire` first, then thread-safe."""

    def __init__(
        self,
        store: bucket.Store,
        copy: str,
        seconds: float,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """
        Args:
          store: of the run.
          copy: token of the local copy; whoever calls has locked that, so its last user is dead.
          seconds: without a renewal, after which others may take the lease.
          say: tells the user.
          clock: monotonic seconds.
          wait: does nothing for so many seconds; None: by the clock of this machine.
        """
        self._store = store
        self._mine = Holder(copy, secrets.token_hex(8), socket.gethostname(), os.getpid(), 0.0, seconds, False)
        self._say, self._clock, self._wait = say, clock, wait or threading.Event().wait
        self._lock = threading.Lock()
        self._generation = b""
        self._renewed = 0.0
        self._lost = ""

    @property
    def renew_seconds(self) -> float:
        """How often it should be renewed."""
        return self._mine.seconds / 3

    def acquire(self) -> bool:
        """Takes the lease; returns whether nobody had it since this local copy was used last.

        Waits for a learner that may be dead, and for one that is about to end.

        Raises:
          Occupied: another learner lives.
          BucketError: the bucket cannot be used.
        """
        began = changed = self._clock()
        seen: bytes | None = None
        unused = False
        while True:
            found = self._store.read(NAME)
            holder = None if found.content is None else parse(found.content, self._store.url)
            if holder is not None and holder.process == self._mine.process:
                self._generation, self._renewed = found.generation, self._clock()
                return unused  # our write whose answer was lost, and that failed on itself when it was repeated
            same_copy = holder is not None and holder.copy == self._mine.copy
            if found.generation != seen:
                renewals = seen is not None
                seen, changed = found.generation, self._clock()
                if holder is not None and not (holder.released or same_copy):
                    self._tell(holder, renews=renewals and self._clock() - began > self._mine.seconds)
            silent = holder is None or self._clock() - changed >= holder.seconds
            if holder is None or holder.released or same_copy or silent:
                unused = same_copy
                if self._write(self._mine, found.generation):
                    return unused
                continue
            self._wait(min(1.0, self._mine.seconds / 10))

    def _tell(self, holder: Holder, *, renews: bool) -> None:
        who = f"{self._store.url} is in use by the learner with pid {holder.pid} on {holder.host}"
        if renews:
            raise errors.Occupied(f"{who}, which lives; end that one or give another --run_dir")
        self._say(f"{who}; waiting until it ends or has been silent for {holder.seconds:g} s")

    def _write(self, holder: Holder, if_equal: bytes) -> bool:
        asked = self._clock()
        content = json.dumps(dataclasses.asdict(dataclasses.replace(holder, renewed=time.time())))
        generation = self._store.write(NAME, content.encode(), if_equal=if_equal)
        if generation is None:
            return False
        self._generation, self._renewed = generation, asked
        return True

    def renew(self) -> None:
        """Says that this learner lives.

        Raises:
          LeaseLost: another learner has taken the lease.
          BucketError: the bucket cannot be used; the lease may still be held.
        """
        with self._lock:
            if self._lost:
                raise errors.LeaseLost(self._lost)
            if self._write(self._mine, self._generation):
                return
            found = self._store.read(NAME)
            holder = None if found.content is None else parse(found.content, self._store.url)
            # A write whose answer was lost and that was repeated fails on itself.
            ours = holder is not None and holder.process == self._mine.process
            if ours and self._write(self._mine, found.generation):
                return
            who = f"the learner with pid {holder.pid} on {holder.host}" if holder else "nobody: its lease was deleted"
            self._lost = (
                f"{self._store.url} belongs to {who}; this learner has not renewed its lease for "
                f"{self._clock() - self._renewed:.0f} s and writes there no more; end one of the two"
            )
            raise errors.LeaseLost(self._lost)

    def check(self) -> None:
        """Raises what `renew` does, unless the lease was renewed lately."""
        if self._lost or self._clock() - self._renewed > self._mine.seconds / 2:
            self.renew()

    def release(self) -> None:
        """Lets others take the lease at once.

        Raises:
          BucketError: the bucket cannot be used; others have to wait.
        """
        with self._lock:
            self._write(dataclasses.replace(self._mine, released=True), self._generation)
