"""A run in a bucket: a learner writes a local copy, as it writes every run, and mirrors it.

start    lease acquired --> local copy filled from the bucket --> training resumes as usual
while    checkpoint on the disk --> new segments, its files, metrics and logs, its manifest last --> durable
         --> checkpoints that are not kept are deleted
end      last checkpoint, files, lease released
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from seedzero.bucket import bucket, lease, local_copy, remote, uploads
from seedzero.config import sections
from seedzero.core import errors


class Mirror:
    """The bucket of a run; a context manager, which releases the lease.

    One thread calls `fill`, then `begin`; from then on only the checkpoint thread calls `upload` and `prune`.

    Attributes:
      url: of the run.
      path: of its local copy.
    """

    def __init__(
        self,
        url: bucket.Url,
        config: sections.BucketConfig,
        checkpoints: sections.CheckpointConfig,
        *,
        report: Callable[[str], None],
    ) -> None:
        """
        Args:
          url: of the run.
          config: intervals and time limits.
          checkpoints: number of kept ones.
          report: receives sentences for the user.
        """
        self.url = url
        self.path = bucket.scratch(url)
        self._config, self._keep = config, checkpoints.keep
        self._report = report
        self._store = bucket.open_store(url, config.retry_seconds)
        self._lease: lease.Lease | None = None
        self._objects = remote.Checkpoints({}, {}, set())
        self._ahead: int | None = None
        self._uploads: uploads.Uploads | None = None
        self._repeater = _Repeater(url, report)

    def fill(self) -> None:
        """Acquires the lease, keeps it renewed, and fills the local copy, which the caller has locked.

        Raises:
          Occupied: another learner uses the bucket's run.
          BucketError: the bucket cannot be used.
          CheckpointError: there are checkpoints, but none can be used.
        """
        # The lease repeats its requests for a short time only: a missing bucket is an error soon.
        store = bucket.open_store(self.url, self._config.lease_seconds / 3)
        token = local_copy.token(self.path)
        held = lease.Lease(store, token, self._config.lease_seconds, report=self._report)
        self._report(f"{self.url} is written in the local copy {self.path}, and uploaded")
        is_newest = held.acquire()
        self._lease = held
        self._repeater.start("bucket-lease", held.renew_seconds, held.renew)
        keys = self._store.list(proof=lease.NAME)
        filled = local_copy.fill(self._store, self.path, keys, keep=is_newest, report=self._report)
        self._objects, self._ahead = filled

    def begin(self, on_lost: Callable[[str], None]) -> None:
        """Uploads the local copy's additions, and starts to upload metrics and logs at intervals.

        Args:
          on_lost: receives, on another thread, the reason why this learner must stop.

        Raises:
          BucketError: the bucket cannot be written, or another learner has taken it.
        """
        assert self._lease is not None
        self._repeater.on_lost = on_lost
        self._lease.check()  # a long fetch may have lost it
        self._uploads = uploads.Uploads(
            self._store, self.path, self._lease, self._objects, keep=self._keep, report=self._report
        )
        self._uploads.delete_unreferenced()
        self._uploads.upload(self._ahead)
        self._uploads.send_files()
        self._repeater.start("bucket-files", self._config.every_seconds, self._uploads.send_files)

    def upload(self, step: int | None = None) -> None:
        """Uploads a checkpoint and the best one; see `Uploads.upload`."""
        assert self._uploads is not None
        self._uploads.upload(step)

    def prune(self, newest: int) -> None:
        """Deletes the checkpoints that are not kept; see `Uploads.prune`."""
        assert self._uploads is not None
        self._uploads.prune(newest)

    def report_progress(self) -> None:
        """Reports the progress of uploads from now on, because the user waits for them."""
        assert self._uploads is not None
        self._uploads.reports_progress = True

    def finish(self) -> None:
        """Uploads the last metrics, logs and status, and releases the lease; a second call does nothing."""
        self._repeater.stop()
        held, self._lease = self._lease, None
        if held is None:
            return
        try:
            if self._uploads is not None:
                held.check()
                self._uploads.send_files()
            held.release()
        except (errors.BucketError, OSError) as error:
            self._report(f"{error}; the last metrics may be missing there, and the next learner has to wait")

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, *exception: object) -> None:
        self.finish()


class _Repeater:
    """Repeats actions, each on a thread of its own, until `stop`; failures are reported and tried again.

    Attributes:
      on_lost: receives, on another thread, the reason why this learner must stop.
    """

    def __init__(self, url: bucket.Url, report: Callable[[str], None]) -> None:
        self.on_lost = report
        self._url = url
        self._report = report
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Starts a thread of this name that calls `action` every so many seconds."""
        thread = threading.Thread(target=self._repeat, args=(seconds, action), name=name)
        self._threads.append(thread)
        thread.start()

    def _repeat(self, seconds: float, action: Callable[[], None]) -> None:
        failing = False
        while not self._stopped.wait(seconds):
            try:
                action()
            except errors.LeaseLost as error:
                self.on_lost(str(error))
                return
            except (errors.BucketError, OSError) as error:
                if not failing:
                    self._report(f"{error}; training goes on, and it is tried again every {seconds:g} s")
                failing = True
            else:
                if failing:
                    self._report(f"{self._url} answers again")
                failing = False

    def stop(self) -> None:
        """Ends the threads and waits for them."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
