"""Makes sure that only one learner writes to a run in a bucket, by a lease.

The lease is an object that names the learner and changes at every renewal. The clocks of two machines are never
compared: a waiting learner watches the object, and if it has not changed for `lease_seconds`, its holder counts as
dead.
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

from seedzero.core import errors, json_object
from seedzero.storage.bucket import bucket

NAME = "lease.json"
# On Linux this clock, unlike the monotonic one, counts on while the machine is suspended, as other machines' do.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _seconds() -> float:
    return time.clock_gettime(_CLOCK)


@dataclasses.dataclass(frozen=True)
class Holder:
    """The learner that the lease names."""

    copy: str  # token of its local copy
    process: str  # token of its process
    host: str
    pid: int
    renewed: float  # seconds since the epoch, by the holder's clock
    seconds: float  # after this time without a renewal it counts as dead
    released: bool  # whether it has ended

    def is_fresh(self, now: float) -> bool:
        """Returns whether the learner runs, if this machine's clock, in seconds since the epoch, agrees with its."""
        return not self.released and now - self.renewed <= self.seconds


def parse(content: bytes, url: bucket.Url) -> Holder:
    """Parses the lease's content. Raises BucketError if it is damaged."""
    try:
        found = Holder(**json_object.parse(content))
        if not isinstance(found.seconds, int | float) or not found.seconds > 0:  # NaN is never over
            raise ValueError(f"seconds is {found.seconds}; expected a positive number")
        return found
    except (ValueError, TypeError) as error:
        raise errors.BucketError(f"{url}/{NAME} is damaged ({error}); delete it if no learner uses {url}") from None


class Lease:
    """This process's claim to a run in a bucket. Call `acquire` first; afterwards it is thread-safe."""

    def __init__(
        self,
        store: bucket.Store,
        copy: str,
        seconds: float,
        *,
        report: Callable[[str], None],
        clock: Callable[[], float] = _seconds,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """copy: token of the local copy, which the caller has locked, so that its last user is dead.

        seconds: after this time without a renewal others may take the lease. report: takes sentences for the user.
        """
        self._store = store
        self._mine = Holder(copy, secrets.token_hex(8), socket.gethostname(), os.getpid(), 0.0, seconds, False)
        self._report, self._clock, self._wait = report, clock, wait
        self._lock = threading.Lock()
        self._generation = b""
        self._renewed = 0.0
        self._lost = ""

    @property
    def renew_seconds(self) -> float:
        """The time between renewals."""
        return self._mine.seconds / 3

    def acquire(self) -> bool:
        """Takes the lease, and returns whether the local copy was its last holder.

        Waits for a learner that may be dead or about to end. Raises Occupied if another learner is alive, BucketError
        if the bucket cannot be used.
        """
        began = changed = self._clock()
        seen: bytes | None = None
        unused = False
        while True:
            holder, generation = self._read()
            if holder is not None and holder.process == self._mine.process:
                self._generation, self._renewed = generation, self._clock()
                return unused  # the answer to our write was lost, and the repeated write failed
            same_copy = holder is not None and holder.copy == self._mine.copy
            is_free = holder is None or holder.released or same_copy
            if generation != seen:
                renewals = seen is not None
                seen, changed = generation, self._clock()
                if holder is not None and not is_free:
                    self._refuse_or_wait(holder, renews=renewals and self._clock() - began > self._mine.seconds)
            if holder is None or is_free or self._clock() - changed >= holder.seconds:
                unused = same_copy
                if self._write(self._mine, generation):
                    return unused
            else:
                self._wait(min(1.0, self._mine.seconds / 10))

    def _refuse_or_wait(self, holder: Holder, *, renews: bool) -> None:
        """Raises Occupied if the holder is alive, otherwise reports that this learner waits."""
        used = f"{self._store.url} is in use by the learner with pid {holder.pid} on {holder.host}"
        if renews:
            raise errors.Occupied(f"{used}, which lives; end that one or give another --run_dir")
        self._report(f"{used}; waiting until it ends or has been silent for {holder.seconds:g} s")

    def _read(self) -> tuple[Holder | None, bytes]:
        """Returns the holder, or None without a lease, and the object's generation."""
        found = self._store.read(NAME)
        return None if found.content is None else parse(found.content, self._store.url), found.generation

    def _write(self, holder: Holder, if_equal: bytes) -> bool:
        asked = self._clock()
        content = json.dumps(dataclasses.asdict(dataclasses.replace(holder, renewed=time.time())))
        generation = self._store.write(NAME, content.encode(), if_equal=if_equal)
        if generation is None:
            return False
        self._generation, self._renewed = generation, asked
        return True

    def renew(self) -> None:
        """Renews the lease.

        Raises LeaseLost if another learner has taken it. After a BucketError it is unknown whether the lease was
        renewed.
        """
        with self._lock:
            if self._lost:
                raise errors.LeaseLost(self._lost)
            is_ours, holder = self._replace(self._mine)
            if is_ours:
                return
            user = f"the learner with pid {holder.pid} on {holder.host}" if holder else "nobody: its lease was deleted"
            self._lost = (
                f"{self._store.url} belongs to {user}; this learner has not renewed its lease for "
                f"{self._clock() - self._renewed:.0f} s and no longer writes there; end one of the two"
            )
            raise errors.LeaseLost(self._lost)

    def _replace(self, mine: Holder) -> tuple[bool, Holder | None]:
        """Writes this learner's lease; returns whether it still was this learner's, and otherwise its holder."""
        if self._write(mine, self._generation):
            return True, mine
        holder, generation = self._read()
        # If the answer to a write was lost, the repeated write, or the next one, fails although the lease is ours.
        is_ours = holder is not None and holder.process == mine.process
        return is_ours and self._write(mine, generation), holder

    def check(self) -> None:
        """Renews the lease unless it was renewed recently. Errors are those of `renew`."""
        if self._lost or self._clock() - self._renewed > self._mine.seconds / 2:
            self.renew()

    def release(self) -> None:
        """Releases the lease, so that others need not wait. After a BucketError they wait until it expires."""
        with self._lock:
            self._replace(dataclasses.replace(self._mine, released=True))
