"""Copies parts of a run from a bucket to a temporary directory, for commands that only read.

A run directory on a disk is read in place. The learner's own local copy is never read, because it may be ahead of the
bucket, or half written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from typing import Any

from seedzero.core import errors, plain_files, printable
from seedzero.storage.bucket import bucket, remote
from seedzero.storage.checkpoints import durable, manifest, run_dirs, saved_files

RETRY_SECONDS = 15.0
"""How long a failed request is repeated, while a user waits at a terminal."""

_SMALL = ("config.json", "spec.json", "status.json")


class Copy:
    """A temporary copy at `path` of parts of a run in a bucket. Its methods raise BucketError."""

    def __init__(self, url: bucket.Url, store: bucket.Store, path: pathlib.Path) -> None:
        """Raises ResumeError if there is no run."""
        self.path, self._store = path, store
        remote.download_all(store, path, _SMALL)
        if not (path / run_dirs.CONFIG_FILE).exists():
            missing = f"{run_dirs.CONFIG_FILE} or the bucket is missing"
            raise errors.ResumeError(f"{url} is not a run directory: {missing}; give --run_dir of a training run")

    def fetch(self, name: str) -> None:
        """Fetches a file of the run, such as metrics.jsonl, if it exists."""
        remote.download_all(self._store, self.path, (name,))

    def manifests(self) -> remote.Checkpoints:
        """Fetches the manifests of all checkpoints."""
        # The keys of checkpoints sort before this one.
        found = remote.read_checkpoints(self._store, self._store.list(proof=run_dirs.CONFIG_FILE))
        for prefix, known in found.manifests.items():
            (self.path / prefix).mkdir(parents=True)
            (self.path / prefix / manifest.NAME).write_bytes(known.content)
        remote.download_all(self._store, self.path, [f"{prefix}/{manifest.NAME}" for prefix in found.damaged])
        return found

    def fetch_params(self, step: saved_files.Step | None) -> None:
        """Fetches the parameters of a checkpoint; if step is None, those of the best and of the last one."""
        while not self._fetch_params(step, self.manifests()):
            shutil.rmtree(self.path / remote.ROOT)

    def _fetch_params(self, step: saved_files.Step | None, found: remote.Checkpoints) -> bool:
        """Returns False if the learner has replaced the best checkpoint in the meantime."""
        bests, steps = found.bests(), found.steps()
        wanted = max(bests, default=None) if step in (None, "best") else step
        if wanted in bests and step not in steps:
            prefix = remote.best_prefix(wanted)
            if not self._fetch(prefix, found) and self._is_gone(prefix, found):
                return False
        if isinstance(step, int) and step in steps:
            self._fetch(remote.step_prefix(step), found)
        if step in (None, "last"):
            any(self._fetch(remote.step_prefix(number), found) for number in sorted(steps, reverse=True))
        return True

    def _is_gone(self, prefix: str, found: remote.Checkpoints) -> bool:
        """Returns whether a checkpoint was replaced or deleted."""
        return self._store.read(f"{prefix}/{manifest.NAME}").content != found.manifests[prefix].content

    def fetch_state(self) -> None:
        """Fetches the newest whole checkpoint, without its replay."""
        found = self.manifests()
        any(self._fetch(remote.step_prefix(step), found, "state") for step in sorted(found.steps(), reverse=True))

    def _fetch(self, prefix: str, found: remote.Checkpoints, scope: saved_files.Scope = "params") -> bool:
        """Fetches parameters, and returns whether all files are whole; the code that reads them reports damage."""
        try:
            remote.fetch(self._store, self.path, prefix, found.manifests[prefix], scope)
        except errors.CheckpointError:
            return False
        return True

    def fetch_player(self, *names: str) -> None:
        """Fetches those of the frozen players that exist, and makes a directory for every frozen player.

        The code that reads them reports damage.
        """
        players: dict[str, list[str]] = {}
        for key in self._store.list(proof=run_dirs.CONFIG_FILE):
            if key.startswith(remote.frozen_directory("")) and not {"", ".", ".."} & set(key.split("/")):
                players.setdefault(key.split("/")[2], []).append(key)
        for player in players:
            (self.path / remote.frozen_directory(player)).mkdir(parents=True, exist_ok=True)
        remote.download_all(self._store, self.path, [key for name in names for key in players.get(name, [])])

    def refresh(self, frozen: Collection[str] | None) -> None:
        """Fetches the parameters of the newest whole checkpoint, unless they are here, and deletes older ones.

        frozen: names of the frozen players to fetch, too; None means all that the checkpoint needs. Raises
        CheckpointError if no newer checkpoint is whole.
        """
        directory = self.path / remote.ROOT
        here = saved_files.finished(directory / saved_files.STEPS)
        newest = remote.step_prefix(max(here, default=-1))
        keys = self._store.list(proof=run_dirs.CONFIG_FILE)
        # "0" sorts after the "/" in this checkpoint's keys
        newer = {key for key in keys if f"{newest}0" < key and key.startswith(remote.STEPS)}
        if newer or not any(key.startswith(f"{newest}/") for key in keys):
            self.fetch(run_dirs.CONFIG_FILE)  # another run may be there now
        found = remote.read_checkpoints(self._store, newer)
        steps = found.steps()
        whole = next(
            (step for step in sorted(steps, reverse=True) if self._fetch(remote.step_prefix(step), found)), None
        )
        if whole is None:
            if damaged := (*found.manifests, *found.damaged):
                raise errors.CheckpointError(f"{self._store.url}/{max(damaged)} is damaged, and no other one is newer")
            return
        needed = steps[whole].manifest
        wanted = {name: files for name, files in needed.frozen.items() if frozen is None or name in frozen}
        for problem in remote.fetch_frozen(self._store, self.path, dataclasses.replace(needed, frozen=wanted)):
            printable.say(problem)
        for step in here:
            durable.remove(saved_files.step_directory(directory, step))
        saved_files.remove_unreferenced(directory)

    def fetch_all(self) -> None:
        """Fetches every file of every checkpoint."""
        found = self.manifests()
        keys = {prefix: remote.all_keys(prefix, known.manifest) for prefix, known in found.manifests.items()}
        remote.download_all(self._store, self.path, set().union(*keys.values()))
        for prefix in found.manifests:
            is_whole = all((self.path / key).exists() for key in keys[prefix])
            if not is_whole and self._is_gone(prefix, found):
                shutil.rmtree(self.path / prefix)  # the learner has deleted it in the meantime

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of `saved_files.list_steps`, but checks only whether objects exist."""
        found = self.manifests()

        def check(path: pathlib.Path) -> None:
            prefix = path.relative_to(self.path).as_posix()
            if missing := remote.all_keys(prefix, found.manifests[prefix].manifest) - found.keys:
                raise errors.CheckpointError(f"{min(missing)} is missing")

        return saved_files.list_steps(self.path / "checkpoints", check=check)


@contextlib.contextmanager
def local(place: str, fetch: Callable[[Copy], object] = lambda copy: None) -> Iterator[pathlib.Path]:
    """Yields a run directory on this disk: `place` itself, or a copy of a URL that `fetch` fills.

    The path is absolute, because an environment may change the working directory. Raises UsageError for a malformed
    URL, ResumeError if there is no run, BucketError if the bucket cannot be read.
    """
    if not place:  # pathlib would take it for the current directory
        raise errors.ResumeError("the run directory is empty; expected DIR or gs://BUCKET/PATH of a training run")
    url = bucket.parse(place)
    if url is None:
        path = pathlib.Path(place).absolute()
        plain_files.check_name(path)
        yield path
        return
    # A download that a stopping policy server leaves behind may still write there.
    directory = tempfile.TemporaryDirectory(prefix="seedzero-", ignore_cleanup_errors=True)
    with directory as name, bucket.naming(pathlib.Path(name), url):
        copy = Copy(url, bucket.open_store(url, RETRY_SECONDS), pathlib.Path(name))
        fetch(copy)
        yield copy.path


@contextlib.contextmanager
def followed(place: str, frozen: Collection[str] | None) -> Iterator[tuple[pathlib.Path, Callable[[], None]]]:
    """Yields a run directory as `local` does, with the newest parameters, and a function that fetches newer ones.

    frozen: as in `Copy.refresh`. For a directory on a disk, the function does nothing.
    """
    refreshes: list[Callable[[], None]] = []

    def fetch(copy: Copy) -> None:
        copy.refresh(frozen)
        refreshes.append(functools.partial(copy.refresh, frozen))

    with local(place, fetch) as path:
        yield path, refreshes[0] if refreshes else lambda: None


def checkpoint_rows(place: str, *, content: bool) -> list[dict[str, Any]]:
    """Returns a row for each checkpoint, as `saved_files.list_steps` does. Errors are those of `local`.

    content: whether to read every file. If false, no file is read, and in a bucket objects are only listed.
    """
    if bucket.parse(place) is not None and not content:
        rows: list[dict[str, Any]] = []
        with local(place, lambda copy: rows.extend(copy.rows())):
            return rows
    with local(place, Copy.fetch_all) as path:
        run_dirs.read_saved(path)
        return saved_files.list_steps(path / "checkpoints", content=content)
