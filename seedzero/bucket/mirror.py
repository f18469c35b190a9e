"""A run in a bucket: written in a local copy as every run is, and mirrored.

    start    lease taken --> what the bucket has and the local copy lacks is fetched --> training resumes as ever
    while    a checkpoint is on the disk --> new segments, its files, metrics and logs, its manifest last --> durable
             --> what is not kept any more is deleted
    end      the last checkpoint, the files, the lease given back

A checkpoint without manifest is none, so an upload may break off anywhere. The bucket is the truth: what it lacks is
deleted from the local copy, unless that copy was the last one that wrote there.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType

from seedzero.bucket import bucket, lease, remote
from seedzero.checkpoints import durable, manifest, run_dir
from seedzero.checkpoints import files as checkpoint_files
from seedzero.config import config as config_lib
from seedzero.core import errors

_OWN = "copy.json"
"""In the local copy: the token by which the lease knows it."""
_TELL_SECONDS = 2.0


class Mirror:
    """The bucket's side of a run; a context manager, which gives the lease back.

    `fill` and `begin` come first, on one thread; then `upload` and `tidy` are for the checkpoint thread alone.
    """

    def __init__(
        self,
        url: bucket.Url,
        config: config_lib.BucketConfig,
        checkpoints: config_lib.CheckpointConfig,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        open_store: Callable[[bucket.Url, float], bucket.Store] = bucket.open_store,
    ) -> None:
        """
        Args:
          url: of the run.
          config: how often, how long.
          checkpoints: which ones are kept.
          say: tells the user.
          clock: monotonic seconds.
          open_store: returns the store behind a URL; takes the seconds for which requests are repeated.
        """
        self.url = url
        self.path = bucket.scratch(url)
        self._config, self._checkpoints = config, checkpoints
        self._say, self._clock, self._open_store = say, clock, open_store
        self._store = open_store(url, config.retry_seconds)
        self._lease: lease.Lease | None = None
        self._objects = remote.Checkpoints({}, {}, set())
        self._unusable: set[int] = set()
        self._ahead: int | None = None
        self._sent: dict[str, tuple[int, int]] = {}
        self._sending = threading.Lock()
        self._narrates = False
        self._on_lost = say
        self._began = False
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    # ------------------------------------------------------------------------------------ start

    def fill(self) -> None:
        """Takes the lease, keeps it, and makes the local copy, which the caller has locked, what the bucket holds.

        Raises:
          Occupied: another learner uses the bucket's run.
          BucketError: the bucket cannot be used.
          CheckpointError: there are checkpoints, but none can be used.
        """
        # A bucket that is not there at all should be told soon, so the lease's requests are not repeated for long.
        store = self._open_store(self.url, self._config.lease_seconds / 3)
        held = lease.Lease(store, _token(self.path), self._config.lease_seconds, say=self._say, clock=self._clock)
        self._say(f"{self.url} is written in the local copy {self.path}, and uploaded")
        is_newest = held.acquire()
        self._lease = held
        self._repeat("bucket-lease", held.renew_seconds, held.renew)
        keys = self._store.list(proof=lease.NAME)
        self._objects = remote.read_checkpoints(self._store, keys)
        for prefix, problem in self._objects.damaged.items():
            self._say(f"{self.url}/{prefix} is skipped: {problem}")
        if not is_newest:
            self._forget(keys)
        self._fetch_files(keys, keep=is_newest)
        self._fetch_newest()
        self._fetch_best(keep=is_newest)
        held.check()
        self._delete(self._objects.unreferenced())

    def _forget(self, keys: set[str]) -> None:
        """Deletes from the local copy what the bucket has not, or has otherwise."""
        gone = []
        for directory in _checkpoints(self.path):
            known = self._objects.manifests.get(directory.relative_to(self.path).as_posix())
            if known is None or known.content != _read(directory / manifest.NAME):
                durable.remove(directory)
                gone.append(directory.name.lstrip("0"))
        for file in _files(self.path):
            if file.relative_to(self.path).as_posix() not in keys:
                file.unlink()
        if gone:
            self._say(f"deleted from the local copy {self.path}, because {self.url} has them not: {', '.join(gone)}")

    def _fetch_files(self, keys: set[str], *, keep: bool) -> None:
        wanted = [key for key in keys if _is_file(key) and not (keep and (self.path / key).exists())]

        def fetch(key: str) -> None:
            remote.download(self._store, key, self.path / key)

        for _ in bucket.in_parallel(fetch, wanted):
            pass

    def _fetch_newest(self) -> None:
        """Fetches the newest checkpoint that is whole, unless the local copy has it, or a newer one."""
        here, _ = checkpoint_files.newest_verified(self._local_checkpoints)
        for step in sorted(self._objects.steps(), reverse=True):
            if here is not None and here.step >= step:
                break
            try:
                self._fetch(remote.step_prefix(step))
            except errors.CheckpointError as error:
                self._say(f"checkpoint {step} in {self.url} is skipped: {error}")
                self._unusable.add(step)
            else:
                return
        self._ahead = None if here is None else here.step
        if here is None and any(prefix.startswith(remote.STEPS) for prefix in self._objects.prefixes()):
            raise errors.CheckpointError(
                f"none of the checkpoints in {self.url} can be used, see above; start with another --run_dir"
            )

    def _fetch_best(self, *, keep: bool) -> None:
        best = sorted(self._objects.bests())
        if not best or (keep and checkpoint_files.finished(self._local_checkpoints / checkpoint_files.BEST)):
            return
        try:
            self._fetch(remote.best_prefix(best[-1]))
        except errors.CheckpointError as error:
            self._say(f"the best checkpoint in {self.url} is skipped: {error}")

    def _fetch(self, prefix: str) -> None:
        """Makes a checkpoint in the local copy what it is in the bucket."""
        known = self._objects.manifests[prefix]
        num_bytes = known.manifest.num_bytes
        self._say(f"fetching {self.url}/{prefix}: {num_bytes / 2**20:.1f} MB, less what is here already")
        remote.fetch(self._store, self.path, prefix, known)

    @property
    def _local_checkpoints(self) -> pathlib.Path:
        return self.path / "checkpoints"

    def begin(self, on_lost: Callable[[str], None]) -> None:
        """Uploads what only the local copy has, and begins to upload metrics and logs every now and then.

        Args:
          on_lost: told, on another thread, why this learner may not go on.

        Raises:
          BucketError: the bucket cannot be written, or another learner has taken it.
        """
        assert self._lease is not None
        self._began, self._on_lost = True, on_lost
        self._lease.check()  # it may have been lost while much was fetched
        self.upload(self._ahead)
        self._send_files()
        self._repeat("bucket-files", self._config.every_seconds, self._send_files)

    def _repeat(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        """Does something again and again on a thread of its own until the end."""

        def run() -> None:
            failing = False
            while not self._ended.wait(seconds):
                try:
                    action()
                except errors.LeaseLost as error:
                    self._on_lost(str(error))
                    return
                except (errors.BucketError, OSError) as error:
                    if not failing:
                        self._say(f"{error}; training goes on, and it is tried again every {seconds:g} s")
                    failing = True
                else:
                    if failing:
                        self._say(f"{self.url} answers again")
                    failing = False

        thread = threading.Thread(target=run, name=name)
        self._threads.append(thread)
        thread.start()

    # ------------------------------------------------------------------------------------ while it trains

    def narrate(self) -> None:
        """From now on the user is told how far uploads are: somebody waits for them."""
        self._narrates = True

    def upload(self, step: int | None = None) -> None:
        """Uploads a checkpoint, those kept for good that the bucket lacks, and the best one.

        After an error nothing is lost: the next call uploads what is missing then.

        Args:
          step: updates done at the checkpoint; None: the best one alone.

        Raises:
          BucketError: it could not be uploaded.
          OSError, CheckpointError: the local copy cannot be read.
        """
        local = self._local_checkpoints
        best = [remote.best_prefix(found) for found in checkpoint_files.finished(local / checkpoint_files.BEST)[-1:]]
        steps = [] if step is None else [remote.step_prefix(step), *map(remote.step_prefix, self._for_good(step))]
        for prefix in [*steps, *best]:
            content = (self.path / prefix / manifest.NAME).read_bytes()
            known = self._objects.manifests.get(prefix)
            if known is None or known.content != content:
                self._upload(prefix, remote.Known(content, manifest.parse(content)))
        if step is not None and self._narrates:
            self._say(f"checkpoint {step} is in {self.url}")

    def _for_good(self, newest: int) -> list[int]:
        """Returns the earlier local checkpoints that are kept for good and not in the bucket."""
        there = self._objects.steps()
        found = checkpoint_files.manifests(self._local_checkpoints)
        return [one.step for one in found if one.kept_for_good and one.step < newest and one.step not in there]

    def _upload(self, prefix: str, known: remote.Known) -> None:
        assert self._lease is not None
        self._lease.check()
        # Neither the checkpoint that this one replaces nor a best one of a past that was given up may win over it.
        for replaced in self._objects.replaced_by(prefix):
            self._delete([f"{replaced}/{manifest.NAME}"])
            del self._objects.manifests[replaced]
        new = [key for key in remote.segment_keys(known.manifest) if key not in self._objects.keys]
        keys = [*new, *remote.own_keys(prefix, known.manifest)]
        self._send({key: self.path / key for key in keys}, prefix)
        self._send_files()  # a checkpoint says how long metrics.jsonl is
        self._lease.check()
        self._put(f"{prefix}/{manifest.NAME}", known.content)
        self._objects.manifests[prefix] = known

    def _send(self, files: Mapping[str, pathlib.Path], prefix: str) -> None:
        """Uploads files of checkpoints; those that arrived are known even if others fail."""
        total = sum(path.stat().st_size for path in files.values())
        done, told = 0, self._clock()

        def send(key: str) -> int:
            content = files[key].read_bytes()
            self._put(key, content)
            return len(content)

        for num_bytes in bucket.in_parallel(send, files):
            done += num_bytes
            if self._narrates and self._clock() - told >= _TELL_SECONDS:
                told = self._clock()
                self._say(f"uploading {self.url}/{prefix}: {done / 2**20:.1f} of {total / 2**20:.1f} MB")

    def _put(self, key: str, content: bytes) -> None:
        self._store.write(key, content)
        self._objects.keys.add(key)

    def _delete(self, keys: list[str]) -> None:
        def delete(key: str) -> None:
            self._store.delete(key)
            self._objects.keys.discard(key)

        for _ in bucket.in_parallel(delete, keys):
            pass

    def tidy(self, newest: int) -> None:
        """Deletes the checkpoints that are not kept; what fails is reported and tried again the next time.

        Args:
          newest: the checkpoint uploaded last.
        """
        try:
            for prefix in self._objects.superfluous(self._checkpoints.keep, newest, self._unusable):
                self._delete([f"{prefix}/{manifest.NAME}"])
                del self._objects.manifests[prefix]
            self._delete(self._objects.unreferenced())
        except errors.BucketError as error:
            self._say(f"old checkpoints stay in {self.url}: {error}")

    def _send_files(self) -> None:
        """Uploads metrics, logs and the like, those that changed."""
        with self._sending:
            for file in _files(self.path):
                key = file.relative_to(self.path).as_posix()
                with contextlib.suppress(FileNotFoundError):  # a log that was just renamed comes the next time
                    found = file.stat()
                    if self._sent.get(key) != (found.st_mtime_ns, found.st_size):
                        self._store.write(key, file.read_bytes())
                        self._sent[key] = (found.st_mtime_ns, found.st_size)

    # ------------------------------------------------------------------------------------ end

    def finish(self) -> None:
        """Uploads the last metrics, logs and status, and gives the lease back; again does nothing."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        held, self._lease = self._lease, None
        if held is None:
            return
        try:
            if self._began:
                held.check()
                self._send_files()
            held.release()
        except (errors.BucketError, OSError) as error:
            self._say(f"{error}; the last metrics may be missing there, and the next learner has to wait")

    def __enter__(self) -> Mirror:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()


def _token(path: pathlib.Path) -> str:
    """Returns the token of a local copy, made if it has none."""
    file = path / _OWN
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["copy"])
    except FileNotFoundError:
        token = secrets.token_hex(8)
        run_dir.write_json_atomic(file, {"copy": token})
        return token
    except (ValueError, KeyError, TypeError) as error:
        raise errors.ResumeError(f"{file} is damaged ({error!r}); delete {path}, which is only a copy") from None


def _checkpoints(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the directories of the checkpoints in a local copy."""
    for kind in (checkpoint_files.STEPS, checkpoint_files.BEST):
        parent = path / "checkpoints" / kind
        yield from (parent / f"{step:012d}" for step in checkpoint_files.finished(parent))


def _files(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the files in a local copy that are mirrored besides checkpoints."""
    for pattern in ("*", *(f"{directory}/*" for directory in remote.DIRECTORIES)):
        for file in sorted(path.glob(pattern)):
            if _is_file(file.relative_to(path).as_posix()) and file.is_file():
                yield file


def _is_file(key: str) -> bool:
    """Returns whether a key is that of a mirrored file besides checkpoints; others are not ours."""
    directory, _, name = key.rpartition("/")
    return key in remote.FILES or (directory in remote.DIRECTORIES and name not in ("", ".", ".."))


def _read(file: pathlib.Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
