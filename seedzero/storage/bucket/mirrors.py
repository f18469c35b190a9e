"""Mirrors a run in a bucket: the learner writes a local copy like any other run, and uploads follow.

start    lease acquired --> local copy filled from the bucket --> training resumes as usual
while    checkpoint on the disk --> new segments, its files, metrics and logs, its manifest last --> durable
         --> checkpoints that are not kept are deleted
end      last checkpoint, files, lease released
"""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Callable, Iterable

from seedzero.config import sections
from seedzero.core import errors
from seedzero.storage.bucket import bucket, lease, local_copy, remote
from seedzero.storage.checkpoints import manifest, saved_files

# Uploads a run from its local copy, and deletes old objects in the bucket.
_PROGRESS_SECONDS = 2.0


class Uploads:
    """Uploads checkpoints and files, and deletes checkpoints that are not kept.

    Only one thread may call `upload` and `prune`; any thread may call `send_files`.
    """

    def __init__(
        self,
        store: bucket.Store,
        path: pathlib.Path,
        held: lease.Lease,
        objects: remote.Checkpoints,
        *,
        keep: int,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._path, self._lease = store, path, held
        self._objects, self._keep = objects, keep
        self._report, self._clock = report, clock
        self._reports_progress = False
        self._sent: dict[str, tuple[int, int]] = {}
        self._damaged: set[str] = set()  # the reported prefixes
        self._sending = threading.Lock()

    def report_progress(self) -> None:
        """Any thread: reports the progress of uploads from now on, because the user waits for them."""
        self._reports_progress = True

    def upload(self, step: int | None) -> None:
        """Uploads a checkpoint, the best one, and earlier permanent checkpoints that the bucket lacks.

        After an error, the next call uploads what is missing. Without a step, only the best one is uploaded. A damaged
        local copy of another checkpoint than the step's is reported once and left out. Raises BucketError if an upload
        fails; OSError or CheckpointError if the local copy of the step's cannot be read.
        """
        local = self._path / "checkpoints"
        best = [remote.best_prefix(found) for found in saved_files.finished(local / saved_files.BEST)[-1:]]
        steps: list[int] = []
        if step is not None:
            earlier = [found for found in saved_files.manifests(local) if found.kept_for_good and found.step < step]
            uploaded = self._objects.steps()
            steps = [step, *(found.step for found in earlier if found.step not in uploaded)]
        for prefix in [*best, *map(remote.step_prefix, steps)]:  # the best before the counters that know its return
            try:
                content = (self._path / prefix / manifest.NAME).read_bytes()
                known = self._objects.manifests.get(prefix)
                if known is None or known.content != content:
                    self._upload(prefix, remote.Known(content, manifest.parse(content, remote.number(prefix))))
            except (OSError, errors.CheckpointError) as error:
                if step is not None and prefix == remote.step_prefix(step):
                    raise
                if prefix not in self._damaged:
                    self._damaged.add(prefix)
                    damaged = f"{self._path / prefix} cannot be uploaded: {error}"
                    self._report(f"{damaged}; the other checkpoints are uploaded, and you may delete this one")
        if step is not None and self._reports_progress:
            self._report(f"checkpoint {step} is in {self._store.url}")

    def _upload(self, prefix: str, known: remote.Known) -> None:
        self._lease.check()
        # The replay is first, because it takes longest; until it is uploaded, an older version of this step counts.
        self._send([key for key in remote.segment_keys(known.manifest) if key not in self._objects.keys], prefix)
        self._send(self._new_frozen(known.manifest), prefix)
        self._lease.check()
        # That version counts until its own files change. These are few, because large files have new names.
        keys = remote.own_keys(prefix, known.manifest)
        replaced = self._objects.manifests.get(prefix)
        changed = set(remote.own_keys(prefix, replaced.manifest)) if replaced else set()
        self._send([key for key in keys if key not in changed], prefix)
        self._lease.check()
        # Checkpoints that this one replaces, and best ones of an abandoned past, must not count instead of it.
        self._delete_checkpoints(self._objects.replaced_by(prefix))
        self._send([key for key in keys if key in changed], prefix)
        self.send_files()  # a checkpoint records the length of metrics.jsonl
        self._lease.check()
        self._put(f"{prefix}/{manifest.NAME}", known.content)
        self._objects.add(prefix, known)

    def _new_frozen(self, found: manifest.Manifest) -> list[str]:
        """Returns the keys of a checkpoint's frozen players that the bucket lacks, or has with different content."""
        keys, there = self._objects.keys, [known.manifest for known in self._objects.manifests.values()]
        whole = {item for one in there for item in remote.frozen_objects(one).items() if item[0] in keys}
        new = [key for key, file in remote.frozen_objects(found).items() if (key, file) not in whole]
        lost = [key for key in new if not (self._path / key).is_file()]
        for key in lost:
            self._report(f"{key} is missing here and in {self._store.url}: its frozen player cannot be used")
        return [key for key in new if key not in lost]

    def _send(self, keys: list[str], prefix: str) -> None:
        """Uploads files of a checkpoint; those uploaded before an error are not uploaded again."""
        total = sum((self._path / key).stat().st_size for key in keys)
        done, reported = 0, self._clock()

        def send(key: str) -> int:
            content = (self._path / key).read_bytes()
            self._put(key, content)
            return len(content)

        for num_bytes in bucket.in_parallel(send, keys):
            done += num_bytes
            if self._reports_progress and self._clock() - reported >= _PROGRESS_SECONDS:
                reported = self._clock()
                self._report(f"uploading {self._store.url}/{prefix}: {done / 2**20:.1f} of {total / 2**20:.1f} MB")

    def _put(self, key: str, content: bytes) -> None:
        self._store.write(key, content)
        self._objects.keys.add(key)

    def prune(self, newest: int) -> None:
        """Deletes checkpoints that are not kept. A failure is reported, and the next call tries again."""
        try:
            self._delete_checkpoints(self._objects.superfluous(self._keep, newest))
            self.delete_unreferenced()
        except errors.BucketError as error:
            self._report(f"old checkpoints stay in {self._store.url}: {error}")

    def delete_unreferenced(self) -> None:
        """Deletes the objects that no checkpoint needs. Raises BucketError."""
        self._delete(self._objects.unreferenced())

    def _delete_checkpoints(self, prefixes: Iterable[str]) -> None:
        """Deletes the manifests of checkpoints, so that all their other objects become unreferenced."""
        for prefix in prefixes:
            self._delete([f"{prefix}/{manifest.NAME}"])
            del self._objects.manifests[prefix]

    def _delete(self, keys: list[str]) -> None:
        def delete(key: str) -> None:
            self._store.delete(key)
            self._objects.keys.discard(key)

        list(bucket.in_parallel(delete, keys))

    def send_files(self) -> None:
        """Uploads metrics, logs and similar files if they have changed. Raises BucketError, OSError."""
        self._lease.check()
        with self._sending:
            for key in local_copy.file_keys(self._path):
                file = self._path / key
                with contextlib.suppress(FileNotFoundError):  # a log that was just renamed is uploaded the next time
                    found = file.stat()
                    if self._sent.get(key) != (found.st_mtime_ns, found.st_size):
                        self._store.write(key, file.read_bytes())
                        self._sent[key] = (found.st_mtime_ns, found.st_size)


class Mirror:
    """A run's bucket. One thread calls `fill`, `begin` and `finish`, which releases the lease, in this order."""

    uploads: Uploads  # set by `fill`; after `begin`, only the checkpoint thread uploads checkpoints

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
        token = local_copy.copy_token(self.path)
        held = lease.Lease(store, token, self._config.lease_seconds, report=self._report)
        self._report(f"{self.url} is written in the local copy {self.path}, and uploaded")
        is_newest = held.acquire()
        self._lease = held
        if not is_newest:
            local_copy.keep_token(self.path, "")
        self._start("bucket-lease", held.renew_seconds, held.renew)
        keys = self._store.list(proof=lease.NAME)
        objects, self._ahead = local_copy.fill(
            self._store, self.path, keys, keep=is_newest, report=self._report, step=self._step
        )
        local_copy.keep_token(self.path, token)
        self.uploads = Uploads(self._store, self.path, held, objects, keep=self._keep, report=self._report)

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
