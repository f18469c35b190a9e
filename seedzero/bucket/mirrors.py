"""Mirrors a run in a bucket: the learner writes a local copy like any other run, and uploads follow.

start    lease acquired --> local copy filled from the bucket --> training resumes as usual
while    checkpoint on the disk --> new segments, its files, metrics and logs, its manifest last --> durable
         --> checkpoints that are not kept are deleted
end      last checkpoint, files, lease released
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from seedzero.bucket import bucket, bucket_uploads, lease, local_copy
from seedzero.config import sections
from seedzero.core import errors


class Mirror:
    """A run's bucket. One thread calls `fill`, `begin` and `finish`, which releases the lease, in this order."""

    uploads: bucket_uploads.Uploads  # set by `fill`; after `begin`, only the checkpoint thread uploads checkpoints

    def __init__(
        self,
        url: bucket.Url,
        config: sections.BucketConfig,
        checkpoints: sections.CheckpointConfig,
        *,
        report: Callable[[str], None],
        step: int | None = None,
    ) -> None:
        """report: takes sentences for the user. step: as in `local_copy.fill`."""
        self.url, self.path = url, bucket.scratch(url)  # the path of the local copy
        self._config, self._keep, self._step = config, checkpoints.keep, step
        self._report = self._on_lost = report
        self._store = bucket.open_store(url, config.retry_seconds)
        self._lease: lease.Lease | None = None
        self._ahead: int | None = None
        self._has_begun = False
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def fill(self) -> None:
        """Acquires the lease, keeps renewing it, and fills the local copy, which the caller has locked.

        Raises Occupied if another learner uses the bucket's run; other errors are those of `local_copy.fill`.
        """
        # The lease repeats its requests only briefly, so that a missing bucket is reported soon.
        store = bucket.open_store(self.url, self._config.lease_seconds / 3)
        token = local_copy.token(self.path)
        held = lease.Lease(store, token, self._config.lease_seconds, report=self._report)
        self._report(f"{self.url} is written in the local copy {self.path}, and uploaded")
        is_newest = held.acquire()
        self._lease = held
        self._start("bucket-lease", held.renew_seconds, held.renew)
        keys = self._store.list(proof=lease.NAME)
        objects, self._ahead = local_copy.fill(
            self._store, self.path, keys, keep=is_newest, report=self._report, step=self._step
        )
        self.uploads = bucket_uploads.Uploads(
            self._store, self.path, held, objects, keep=self._keep, report=self._report
        )

    def begin(self, on_lost: Callable[[str], None]) -> None:
        """Uploads what only the local copy has, and begins to upload metrics and logs at intervals.

        on_lost: called on another thread with the reason why this learner must stop. Raises BucketError if the bucket
        cannot be written, or another learner has taken it.
        """
        assert self._lease is not None
        self._on_lost = on_lost
        self._lease.check()  # the lease may have expired during a long fetch
        self._has_begun = True
        self.uploads.delete_unreferenced()
        self.uploads.upload(self._ahead)
        self.uploads.send_files()
        self._start("bucket-files", self._config.every_seconds, self.uploads.send_files)

    def finish(self) -> None:
        """Uploads the last metrics, logs and status, and releases the lease; further calls do nothing."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        held, self._lease = self._lease, None
        if held is None:
            return
        try:
            if self._has_begun:
                held.check()
                self.uploads.send_files()
            held.release()
        except (errors.BucketError, OSError) as error:
            self._report(f"{error}; the last metrics may be missing there, and the next learner has to wait")

    def _start(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Starts a thread with this name that calls `action` at fixed intervals, in seconds, until `finish`."""
        self._threads.append(threading.Thread(target=self._repeat, args=(seconds, action), name=name))
        self._threads[-1].start()

    def _repeat(self, seconds: float, action: Callable[[], None]) -> None:
        """Reports failures; the next call tries again."""
        failing = False
        while not self._stopped.wait(seconds):
            try:
                action()
            except errors.LeaseLost as error:
                self._on_lost(str(error))
                return
            except (errors.BucketError, OSError) as error:
                if not failing:
                    self._report(f"{error}; training continues, and it is tried again every {seconds:g} s")
                failing = True
            else:
                if failing:
                    self._report(f"{self.url} answers again")
                failing = False
