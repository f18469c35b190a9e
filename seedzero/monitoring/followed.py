"""Copies a run from a bucket to this machine, and follows it: settings, status, metrics, and a league's checkpoint.

Files that only grow are extended, so that their readers continue where they were.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import threading
import time
from collections.abc import Callable

from seedzero.core import errors
from seedzero.monitoring import league_log, metrics_log, status
from seedzero.storage.bucket import bucket, remote, run_copy
from seedzero.storage.checkpoints import durable, run_dirs

EVERY_SECONDS = 15.0
"""Time between two looks; longer if a look takes more than a tenth of it."""
_END_SECONDS = 5.0
FOLLOWED = "followed"
"""Key of the copy's status which tells readers to trust "alive", because no lock shows whether a learner works."""
_GROWING = (metrics_log.METRICS_FILE, league_log.LEAGUE_FILE)


class Followed:
    """A copy of a run in another directory; a thread keeps it up to date between `start` and `close`."""

    def __init__(
        self,
        url: bucket.Url,
        path: pathlib.Path,
        *,
        report: Callable[[str], object],
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        """report: receives a message if the bucket cannot be read. Raises UsageError for an impossible name."""
        self.url, self.path = url, path
        self._store = bucket.open_store(url, run_copy.RETRY_SECONDS)
        self._report, self._every_seconds = report, every_seconds
        self._generations: dict[str, bytes] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="bucket-follow", daemon=True)

    def refresh(self) -> None:
        """Downloads what has changed. Raises BucketError, ResumeError if there is no run, OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in (run_dirs.CONFIG_FILE, *_GROWING):
            self._fetch(name)
        if not (self.path / run_dirs.CONFIG_FILE).exists():
            raise errors.ResumeError(
                f"{self.url} is not a run: {run_dirs.CONFIG_FILE} or the bucket is missing; give gs://BUCKET/PATH of "
                "one training run"
            )
        with contextlib.suppress(errors.ResumeError):  # there is no status yet
            told = status.from_bucket(self.url, self._store)
            run_dirs.write_json_atomic(self.path / run_dirs.STATUS_FILE, {**told, FOLLOWED: True})
        if (self.path / league_log.LEAGUE_FILE).exists():
            self._fetch_checkpoint()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stops following, and waits a moment for a look in progress."""
        self._stopped.set()
        self._thread.join(_END_SECONDS)

    def _follow(self) -> None:
        is_told, pause = False, self._every_seconds
        while not self._stopped.wait(pause):
            began = time.monotonic()
            try:
                self.refresh()
                is_told = False
            except (errors.Error, OSError) as error:
                if not is_told:
                    self._report(f"{error}; the page continues with the state before, and tries again")
                is_told = True
            pause = max(self._every_seconds, 10 * (time.monotonic() - began))

    def _fetch(self, name: str) -> None:
        found = self._store.read_if_new(name, self._generations.get(name))
        if found is None:
            return
        if found.content is not None:
            _write(self.path / name, found.content)
        self._generations[name] = found.generation

    def _fetch_checkpoint(self) -> None:
        """Downloads the parameters of the newest checkpoint in exchange for an older one."""
        steps = remote.read_checkpoints(self._store, self._store.list(proof=run_dirs.CONFIG_FILE)).steps()
        if steps:
            prefix = remote.step_prefix(max(steps))
            remote.fetch(self._store, self.path, prefix, steps[max(steps)], "params")
            for other in (self.path / prefix).parent.iterdir():
                if other.name != (self.path / prefix).name:
                    shutil.rmtree(other, ignore_errors=True)


def _write(file: pathlib.Path, content: bytes) -> None:
    """Writes a file, or extends it if the content begins with it."""
    with contextlib.suppress(FileNotFoundError):
        size = file.stat().st_size
        if file.name in _GROWING and size <= len(content) and file.read_bytes() == content[:size]:
            with file.open("ab") as stream:
                stream.write(content[size:])
            return
    durable.write_whole(file, content)
