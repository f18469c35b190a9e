"""A temporary copy of parts of a run in a bucket, for commands that only read.

A run directory on a disk is used directly. The learner's own local copy is never used: it may be ahead of the bucket,
or half written.
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
"""Time for which requests are repeated while a user waits at a terminal."""

_SMALL = ("config.json", "spec.json", "status.json")


class Copy:
    """A temporary copy of parts of a run in a bucket. Methods raise BucketError if the bucket cannot be read.

    Attributes:
      path: of the copy; checkpoints are fetched on demand.
    """

    def __init__(self, url: bucket.Url, store: bucket.Store, path: pathlib.Path) -> None:
        """
        Raises:
          ResumeError: there is no run.
          BucketError: the bucket cannot be read.
        """
        self.path = path
        self._store = store
        remote.download_all(store, path, _SMALL)
        if not (path / run_dir.CONFIG_FILE).exists():
            raise errors.ResumeError(
                f"{url} is no run directory: {run_dir.CONFIG_FILE} is missing, or the bucket is; give --run_dir of a "
                f"training run"
            )
        self._found: remote.Checkpoints | None = None

    def manifests(self) -> remote.Checkpoints:
        """Fetches the manifests of all checkpoints."""
        if self._found is None:
            # Keys of checkpoints sort before this one.
            self._found = remote.read_checkpoints(self._store, self._store.list(proof=run_dir.CONFIG_FILE))
            for prefix, known in self._found.manifests.items():
                (self.path / prefix).mkdir(parents=True)
                (self.path / prefix / manifest.NAME).write_bytes(known.content)
            for prefix in self._found.damaged:
                remote.download(self._store, f"{prefix}/{manifest.NAME}", self.path / prefix / manifest.NAME)
        return self._found

    def fetch_params(self, step: checkpoint_files.Step | None) -> None:
        """Fetches the parameters of a checkpoint; None: of the best one and of the last."""
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
        """Fetches parameters; returns whether they are whole: their reader reports the damage."""
        try:
            remote.fetch(self._store, self.path, prefix, self.manifests().manifests[prefix], params_only=True)
        except errors.CheckpointError:
            return False
        return True

    def fetch_all(self) -> None:
        """Fetches every file of every checkpoint."""
        found = self.manifests()
        wanted = {key for prefix, known in found.manifests.items() for key in remote.all_keys(prefix, known.manifest)}
        remote.download_all(self._store, self.path, wanted)
        for prefix, known in found.manifests.items():
            if self._is_gone(prefix, known):  # its learner deleted it meanwhile
                shutil.rmtree(self.path / prefix)

    def _is_gone(self, prefix: str, known: remote.Known) -> bool:
        if all((self.path / key).exists() for key in remote.all_keys(prefix, known.manifest)):
            return False
        return self._store.read(f"{prefix}/{manifest.NAME}").content != known.content

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of `checkpoint_files.list_steps` from the objects' names alone."""
        found = self.manifests()

        def check(path: pathlib.Path) -> None:
            prefix = path.relative_to(self.path).as_posix()
            missing = remote.all_keys(prefix, found.manifests[prefix].manifest) - found.keys
            if missing:
                raise errors.CheckpointError(f"{min(missing)} is missing")

        return checkpoint_files.rows(self.path / "checkpoints", check)


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
      UsageError: a malformed URL, or no run.
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
      content: true: read every file; false: none; in a bucket, list the objects.

    Raises:
      UsageError, BucketError: as `local`.
    """
    url = bucket.parse(place)
    if url is not None and not content:
        with _copied(url) as copy:
            return copy.rows()
    with local(place, Copy.fetch_all) as path:
        run_dir.read_saved(path)
        return checkpoint_files.list_steps(path / "checkpoints", content=content)
