"""Keeps the local copy of a run in a bucket, which the learner fills from the bucket, writes, and uploads.

The bucket decides what counts: a local copy loses everything that the bucket lacks, unless it was the last one that
wrote to the bucket.
"""

from __future__ import annotations

import dataclasses
import pathlib
import secrets
from collections.abc import Callable, Iterator

from seedzero.core import errors, json_object, plain_files
from seedzero.storage.bucket import bucket, remote
from seedzero.storage.checkpoints import durable, manifest, run_dirs, saved_files

_TOKEN_FILE = "copy.json"


def copy_token(path: pathlib.Path) -> str:
    """Returns the local copy's name in the lease, a new one for a copy that is not whole. Raises ResumeError."""
    file = path / _TOKEN_FILE
    try:
        return str(json_object.parse(plain_files.read(file))["copy"])
    except FileNotFoundError:
        return secrets.token_hex(8)
    except (ValueError, KeyError, TypeError) as error:
        raise errors.ResumeError(f"{file} is damaged ({error!r}); delete {path}, which is only a copy") from None


def keep_token(path: pathlib.Path, token: str) -> None:
    """Keeps the name of a local copy that is whole; "" forgets it, because the copy is behind and must be filled."""
    if token:
        run_dirs.write_json_atomic(path / _TOKEN_FILE, {"copy": token})
    else:
        (path / _TOKEN_FILE).unlink(missing_ok=True)


def fill(
    store: bucket.Store,
    path: pathlib.Path,
    keys: set[str],
    *,
    keep: bool,
    report: Callable[[str], None],
    step: int | None = None,
) -> tuple[remote.Checkpoints, int | None]:
    """Fetches a run's files, its newest and its best checkpoint from a bucket, which has these `keys`.

    Returns the checkpoints in the bucket, and the step of a checkpoint that only the local copy has, or None.

    Args:
      keep: whether the local copy, which the caller has locked, was the last one to write to the bucket; then its own
        files and checkpoints are kept.
      step: the only checkpoint that counts, if the bucket has it; None: the newest one counts.

    Raises BucketError if the bucket cannot be read; ResumeError if it has other content below checkpoints/, which a
    run would delete; CheckpointError if there are checkpoints but none can be used.
    """
    if foreign := remote.foreign(keys):
        found = f"it has {foreign[0]}, and a run would delete that"
        raise errors.ResumeError(f"{store.url} is not a run directory: {found}; give a new --run_dir")
    objects = remote.read_checkpoints(store, keys)
    for prefix, problem in objects.damaged.items():
        report(f"{store.url}/{prefix} is skipped: {problem}")
    copy = _LocalCopy(store, path, objects, report)
    if not keep:
        copy.delete_unknown(keys)
    here = saved_files.finished(path / "checkpoints" / saved_files.STEPS)
    keep = keep and max(here, default=-1) >= max(objects.steps(), default=-1)  # less: the copy comes from a backup
    remote.download_all(store, path, [key for key in keys if _is_file(key) and not (keep and (path / key).exists())])
    ahead = copy.fetch_newest(step)
    if not (keep and saved_files.finished(path / "checkpoints" / saved_files.BEST)):
        copy.fetch_best()
    return objects, ahead


@dataclasses.dataclass(frozen=True)
class _LocalCopy:
    """A local copy, and the checkpoints in the bucket."""

    store: bucket.Store
    path: pathlib.Path
    objects: remote.Checkpoints
    report: Callable[[str], None]

    def delete_unknown(self, keys: set[str]) -> None:
        """Deletes checkpoints and files that the bucket lacks, or has with different content."""
        deleted = []
        for kind in (saved_files.STEPS, saved_files.BEST):
            parent = self.path / "checkpoints" / kind
            for step in saved_files.finished(parent):
                directory = parent / f"{step:012d}"
                known = self.objects.manifests.get(directory.relative_to(self.path).as_posix())
                if known is None or not remote.has_content(directory / manifest.NAME, known.content):
                    durable.remove(directory)
                    deleted.append(str(step))
        for key in file_keys(self.path):
            if key not in keys:
                (self.path / key).unlink()
        # kept, so that they need not be fetched again
        shared = {key.split("/")[2] for key in keys if key.count("/") > 2}
        saved_files.remove_unreferenced(self.path / "checkpoints", shared)
        if deleted:
            self.report(
                f"deleted from the local copy {self.path}, because {self.store.url} has them not: {', '.join(deleted)}"
            )

    def fetch_newest(self, only: int | None = None) -> int | None:
        """Fetches the newest whole checkpoint. If the local copy's is at least as new, returns its step instead.

        only: as `step` in `fill`.
        """
        if only is not None:
            if only in self.objects.steps() and not self._fetch_usable(only):
                raise errors.CheckpointError(f"checkpoint {only} in {self.store.url} cannot be used, see above")
            return None
        local, _ = saved_files.newest_verified(self.path / "checkpoints", "replay")
        for step in sorted(self.objects.steps(), reverse=True):
            if local is not None and local.step >= step:
                break
            if self._fetch_usable(step):
                return None
            self.objects.unusable.add(step)
        if local is not None:
            self._fetch_frozen(local)
            return local.step
        if any(prefix.startswith(remote.STEPS) for prefix in (*self.objects.manifests, *self.objects.damaged)):
            raise errors.CheckpointError(
                f"none of the checkpoints in {self.store.url} can be used, see above; start with another --run_dir"
            )
        return None

    def _fetch_usable(self, step: int) -> bool:
        """Fetches a checkpoint, if necessary without its damaged replay.

        Returns whether its state could be fetched.
        """
        self._fetch_frozen(self.objects.steps()[step].manifest)
        outcomes: dict[saved_files.Scope, str] = {"replay": "is fetched without its replay", "state": "is skipped"}
        for scope, outcome in outcomes.items():
            try:
                self._fetch(remote.step_prefix(step), scope)
                return True
            except errors.CheckpointError as error:
                self.report(f"checkpoint {step} in {self.store.url} {outcome}: {error}")
        return False

    def _fetch_frozen(self, found: manifest.Manifest) -> None:
        """Fetches the frozen players that a checkpoint needs.

        Reports damaged ones, without which the run can continue.
        """
        for problem in remote.fetch_frozen(self.store, self.path, found):
            self.report(problem)

    def fetch_best(self) -> None:
        """Fetches the best checkpoint, if there is one; reports damage."""
        if bests := self.objects.bests():
            try:
                self._fetch(remote.best_prefix(max(bests)))
            except errors.CheckpointError as error:
                self.report(f"the best checkpoint in {self.store.url} is skipped: {error}")

    def _fetch(self, prefix: str, scope: saved_files.Scope = "all") -> None:
        known = self.objects.manifests[prefix]
        size = f"{known.manifest.num_bytes / 2**20:.1f} MB"
        self.report(f"fetching {self.store.url}/{prefix}: {size}, less what is here already")
        remote.fetch(self.store, self.path, prefix, known, scope)


def file_keys(path: pathlib.Path) -> Iterator[str]:
    """Yields the keys of mirrored files in a local copy: metrics, logs and the like, without checkpoints."""
    for pattern in ("*", *(f"{directory}/*" for directory in remote.DIRECTORIES)):
        for file in sorted(path.glob(pattern)):
            key = file.relative_to(path).as_posix()
            if _is_file(key) and file.is_file():
                yield key


def _is_file(key: str) -> bool:
    directory, _, name = key.rpartition("/")
    return key in remote.FILES or (directory in remote.DIRECTORIES and name not in ("", ".", ".."))
