"""Caches levels that DeepMind Lab has compiled, for later episodes, other workers and other runs.

Lab asks a cache for a level before it compiles it, and hands over what it has compiled: `fetch` and `write`, by Lab's
key. Levels are stored in a folder or in a bucket. A level appears as a whole or not at all, whichever process is
killed meanwhile: in a folder it is written under another name and renamed, and in a bucket objects appear as a whole.
A cache never ends an episode: failures are reported once, and count as missing levels.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator

from seedzero.bucket import bucket
from seedzero.core import errors, packages

REPORT_EVERY = 100
"""Number of requested levels between two messages about the hit rate."""
RETRY_SECONDS = 5.0
"""How long requests to a bucket are repeated if they fail, before Lab compiles the level."""
_ABANDONED_SECONDS = 3600.0
"""An unfinished file older than this belongs to a process that was killed."""
_UNFINISHED = ".unfinished-"

_logger = logging.getLogger(__name__)


class LevelCache:
    """Implements Lab's interface for caches: `Lab(..., level_cache=LevelCache(read, write, place))`."""

    def __init__(self, read: Callable[[str], bytes | None], write: Callable[[str, bytes], object], place: str) -> None:
        """Prepares the cache.

        read: returns None for a missing level; it and `write` may raise OSError or BucketError. place: for reports.
        """
        self._read, self._write, self._place = read, write, place
        self._has_failed = False
        self.num_hits = self.num_fetches = 0

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copies the level with a key to a path; returns whether it was cached."""
        is_there = False
        with self._reported("read"):
            if (content := self._read(_name(key))) is not None:
                pathlib.Path(pk3_path).write_bytes(content)
                is_there = True
        self.num_fetches += 1
        self.num_hits += is_there
        if self.num_fetches % REPORT_EVERY == 0:
            self.report()
        return is_there

    def write(self, key: str, pk3_path: str) -> None:
        with self._reported("written"):
            self._write(_name(key), pathlib.Path(pk3_path).read_bytes())

    def report(self) -> None:
        """Logs the hit rate."""
        if self.num_fetches:
            hits, fetches = self.num_hits, self.num_fetches
            _logger.info("level cache %s: %d of %d levels (%.0f%%)", self._place, hits, fetches, 100 * hits / fetches)

    @contextlib.contextmanager
    def _reported(self, action: str) -> Iterator[None]:
        """Suppresses failures of the place while the context is entered, and logs the first one."""
        try:
            yield
        except (OSError, errors.BucketError) as error:
            if not self._has_failed:
                _logger.warning(
                    "level cache %s cannot be %s: %s; levels are compiled again", self._place, action, error
                )
            self._has_failed = True


class Folder:
    """Levels in a folder, which any number of processes and machines may share."""

    def __init__(self, path: pathlib.Path) -> None:
        """Makes the folder if it is missing, and deletes what killed processes left. Raises OSError."""
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        for file in path.glob(f"*/{_UNFINISHED}*"):
            with contextlib.suppress(FileNotFoundError):  # another process deleted it first
                if time.time() - file.stat().st_mtime > _ABANDONED_SECONDS:
                    file.unlink()

    def read(self, name: str) -> bytes | None:
        try:
            return self._file(name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        file = self._file(name)
        if file.exists():
            return
        file.parent.mkdir(exist_ok=True)
        unfinished = file.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
        try:
            with unfinished.open("xb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())  # otherwise a crash of the machine may leave the name without the bytes
            unfinished.rename(file)
        finally:
            unfinished.unlink(missing_ok=True)

    def _file(self, name: str) -> pathlib.Path:
        return self._path / name[:2] / name


def make(place: str) -> LevelCache:
    """Returns the cache in a folder, or in a bucket: gs://BUCKET/PATH, s3://BUCKET/PATH.

    Raises UsageError for another URL, and EnvironmentFailure if the folder cannot be made, or tensorstore is missing,
    which reads buckets.
    """
    try:
        url = bucket.parse(place, flag="dmlab.level_cache")
        if url is None:
            folder = Folder(pathlib.Path(place))
            return LevelCache(folder.read, folder.write, place)
        store = bucket.open_store(url, RETRY_SECONDS, "dmlab.level_cache")
        return LevelCache(lambda name: store.read(name).content, store.write, place)
    except OSError as error:
        raise errors.EnvironmentFailure(
            f"--dmlab.level_cache={place}: {error.strerror}; give a folder that can be written, or gs://BUCKET/PATH"
        ) from None
    except ModuleNotFoundError:
        raise errors.EnvironmentFailure(
            f"--dmlab.level_cache={place} is in a bucket, which needs a missing package: "
            f"{packages.install_command('tensorstore')}"
        ) from None


def _name(key: str) -> str:
    return f"{hashlib.sha256(key.encode()).hexdigest()}.pk3"
