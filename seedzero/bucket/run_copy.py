"""What commands that only read need of a run in a bucket: fetched into a temporary directory, and gone afterwards.

A run directory on a disk is used as it is. The learner's own local copy is never touched: it may hold what is not in
the bucket, or be in the middle of something.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from seedzero.bucket import bucket, remote
from seedzero.checkpoints import files as checkpoint_files
from seedzero.checkpoints import manifest, run_dir
from seedzero.core import errors

RETRY_SECONDS = 15.0
"""How long requests are repeated while somebody waits before a terminal."""

_SMALL = ("config.json", "spec.json", "status.json")


class Copy:
    """A temporary copy of parts of a run in a bucket.

    Attributes:
      path: of the copy, which has no checkpoints until some are fetched.
    """

    def __init__(self, url: bucket.Url, store: bucket.Store, path: pathlib.Path) -> None:
        """
        Raises:
          ResumeError: no run is there.
          BucketError: the bucket cannot be read.
        """
        self.path = path
        self._store = store
        for key in _SMALL:
            remote.download(store, key, path / key)
        if not (path / run_dir.CONFIG_FILE).exists():
            raise errors.ResumeError(
                f"{url} is no run directory: {run_dir.CONFIG_FILE} is missing, or the bucket is; give --run_dir of a "
                f"training run"
            )
        self._found: remote.Checkpoints | None = None

    def manifests(self) -> remote.Checkpoints:
        """Fetches the manifests of all checkpoints.

        Raises:
          BucketError: the bucket cannot be read.
        """
        if self._found is None:
            # Keys of checkpoints sort before this one.
            self._found = remote.read_checkpoints(self._store, self._store.list(proof=run_dir.CONFIG_FILE))
            for prefix, known in self._found.manifests.items():
                (self.path / prefix).mkdir(parents=True)
                (self.path / prefix / manifest.NAME).write_bytes(known.content)
            for prefix in self._found.damaged:
                remote.download(self._store, f"{prefix}/{manifest.NAME}", self.path / prefix / manifest.NAME)
        return self._found

    def params(self, step: checkpoint_files.Step | None) -> None:
        """Fetches the parameters of a checkpoint; without a step those of the best one and of the last.

        Raises:
          BucketError: the bucket cannot be read.
        """
        found = self.manifests()
        bests, steps = found.bests(), found.steps()
        if bests and step in (None, "best"):
            self._fetch(remote.best_prefix(max(bests)))
        if isinstance(step, int) and step in steps:
            self._fetch(remote.step_prefix(step))
        if step in (None, "last"):
            newest = sorted(steps, reverse=True)
            while newest and not self._fetch(remote.step_prefix(newest.pop(0))):
                pass

    def _fetch(self, prefix: str) -> bool:
        """Returns whether the parameters are whole; whoever reads them finds and says what they lack."""
        try:
            remote.fetch(self._store, self.path, prefix, self.manifests().manifests[prefix], params_only=True)
        except errors.CheckpointError:
            return False
        return True

    def everything(self) -> None:
        """Fetches every file of every checkpoint, for whoever verifies them.

        Raises:
          BucketError: the bucket cannot be read.
        """
        found = self.manifests()
        wanted = {key for prefix, known in found.manifests.items() for key in remote.own_keys(prefix, known.manifest)}
        wanted |= {key for known in found.manifests.values() for key in remote.segment_keys(known.manifest)}

        def fetch(key: str) -> None:
            remote.download(self._store, key, self.path / key)

        for _ in bucket.in_parallel(fetch, wanted):
            pass
        for prefix, known in found.manifests.items():
            if self._is_gone(prefix, known):  # its learner made room meanwhile
                shutil.rmtree(self.path / prefix)

    def _is_gone(self, prefix: str, known: remote.Known) -> bool:
        needed = [*remote.own_keys(prefix, known.manifest), *remote.segment_keys(known.manifest)]
        if all((self.path / key).exists() for key in needed):
            return False
        return self._store.read(f"{prefix}/{manifest.NAME}").content != known.content

    def rows(self) -> list[dict[str, Any]]:
        """Returns what `checkpoint_files.list_steps` does, by the names of the objects alone."""
        found = self.manifests()
        root = self.path / "checkpoints"

        def missing(name: str) -> list[str]:
            prefix = f"{root.name}/{name}"
            known = found.manifests[prefix].manifest
            needed = [*remote.own_keys(prefix, known), *remote.segment_keys(known)]
            return [key for key in needed if key not in found.keys]

        return checkpoint_files.list_manifests(root, missing)


@contextlib.contextmanager
def _copied(url: bucket.Url) -> Iterator[Copy]:
    with tempfile.TemporaryDirectory(prefix="seedzero-") as name:
        path = pathlib.Path(name)
        with bucket.naming(path, url):
            yield Copy(url, bucket.open_store(url, RETRY_SECONDS), path)


@contextlib.contextmanager
def local(place: str, fetch: Callable[[Copy], object] = lambda copy: None) -> Iterator[pathlib.Path]:
    """Yields a run directory on this disk.

    Args:
      place: a directory, or the URL of a run in a bucket.
      fetch: called with the copy of a run in a bucket.

    Raises:
      UsageError: an impossible URL, or no run is there.
      BucketError: the bucket cannot be read.
    """
    url = bucket.parse(place)
    if url is None:
        yield pathlib.Path(place)
        return
    with _copied(url) as copy:
        fetch(copy)
        yield copy.path


def checkpoint_rows(place: str, *, content: bool) -> list[dict[str, Any]]:
    """Returns a row for each checkpoint, oldest first, the best one last.

    Args:
      place: a run directory, or the URL of one.
      content: true: every file is read; false: none is, of a run in a bucket its objects are listed.

    Raises:
      UsageError, BucketError: as `local`.
    """
    url = bucket.parse(place)
    if url is not None and not content:
        with _copied(url) as copy:
            return copy.rows()
    with local(place, Copy.everything) as path:
        run_dir.read_saved(path)
        return (checkpoint_files.verify if content else checkpoint_files.list_steps)(path / "checkpoints")
