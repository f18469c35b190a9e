"""Uploads a run from its local copy, and deletes old objects in the bucket.

A checkpoint exists in the bucket once its manifest does. The manifest is written last, so an upload may be interrupted
at any point.
"""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Callable, Iterable

from seedzero.bucket import bucket, lease, local_copy, remote
from seedzero.checkpoints import manifest, saved_files
from seedzero.core import errors

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
        self._sending = threading.Lock()

    def report_progress(self) -> None:
        """Any thread: reports the progress of uploads from now on, because the user waits for them."""
        self._reports_progress = True

    def upload(self, step: int | None) -> None:
        """Uploads a checkpoint, the best one, and earlier permanent checkpoints that the bucket lacks.

        After an error, the next call uploads what is missing. Without a step, only the best one is uploaded. Raises
        BucketError if an upload fails; OSError or CheckpointError if the local copy cannot be read.
        """
        local = self._path / "checkpoints"
        best = [remote.best_prefix(found) for found in saved_files.finished(local / saved_files.BEST)[-1:]]
        steps: list[int] = []
        if step is not None:
            earlier = [found for found in saved_files.manifests(local) if found.kept_for_good and found.step < step]
            uploaded = self._objects.steps()
            steps = [step, *(found.step for found in earlier if found.step not in uploaded)]
        for prefix in [*map(remote.step_prefix, steps), *best]:
            content = (self._path / prefix / manifest.NAME).read_bytes()
            known = self._objects.manifests.get(prefix)
            if known is None or known.content != content:
                self._upload(prefix, remote.Known(content, manifest.parse(content, remote.number(prefix))))
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
        with self._sending:
            for key in local_copy.file_keys(self._path):
                file = self._path / key
                with contextlib.suppress(FileNotFoundError):  # a log that was just renamed is uploaded the next time
                    found = file.stat()
                    if self._sent.get(key) != (found.st_mtime_ns, found.st_size):
                        self._store.write(key, file.read_bytes())
                        self._sent[key] = (found.st_mtime_ns, found.st_size)
