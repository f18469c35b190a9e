"""Finds the checkpoints and unneeded objects of a run in a bucket, and fetches them.

Keys are paths in the run directory, such as checkpoints/steps/000000001000/manifest.json. A checkpoint exists if its
manifest does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Mapping

from seedzero.core import errors
from seedzero.storage.bucket import bucket
from seedzero.storage.checkpoints import durable, manifest, saved_files

FILES = ("config.json", "spec.json", "metrics.jsonl", "league.jsonl", "status.json", "wandb.json")
PROGRAMS = "xla"
"""Directory of XLA's cache, which saves a resumed run on a machine of the same kind from compiling again."""
DIRECTORIES = ("tensorboard", "logs", PROGRAMS)
"""Directories that are mirrored in addition to checkpoints."""

ROOT = "checkpoints"
STEPS = f"{ROOT}/{saved_files.STEPS}/"
BESTS = f"{ROOT}/{saved_files.BEST}/"
"""Prefixes of the keys of all checkpoints, and of best ones."""
_SHARED = f"{ROOT}/(?:{saved_files.SEGMENTS}|{saved_files.FROZEN})/"
_OURS = re.compile(rf"(?:(?:{STEPS}|{BESTS})[0-9]{{12,18}}|{_SHARED}[^/]+)/.+", re.DOTALL)
_MANIFEST = re.compile(rf"((?:{STEPS}|{BESTS})[0-9]{{12,18}})/{re.escape(manifest.NAME)}")


@dataclasses.dataclass(frozen=True)
class Known:
    """A manifest in the bucket, as bytes and parsed."""

    content: bytes
    manifest: manifest.Manifest


@dataclasses.dataclass
class Checkpoints:
    """The objects below checkpoints/ in the bucket."""

    manifests: dict[str, Known]  # by the prefix of the checkpoint's keys
    damaged: dict[str, str]  # errors of unreadable manifests, by the same prefix
    keys: set[str]  # keys of all objects
    unusable: set[int] = dataclasses.field(default_factory=set)  # steps found to have damaged files

    def add(self, prefix: str, known: Known) -> None:
        """Adds a whole checkpoint, which may replace a damaged one of the same step."""
        self.manifests[prefix] = known
        if prefix.startswith(STEPS):
            self.unusable.discard(number(prefix))

    def steps(self) -> dict[int, Known]:
        """Returns the checkpoints by number of updates, without the best ones."""
        return {number(prefix): known for prefix, known in self.manifests.items() if prefix.startswith(STEPS)}

    def bests(self) -> dict[int, Known]:
        """Returns the best checkpoints by number of updates; the last one counts."""
        return {number(prefix): known for prefix, known in self.manifests.items() if prefix.startswith(BESTS)}

    def replaced_by(self, prefix: str) -> list[str]:
        """Returns the prefixes to delete before a checkpoint is written: its own, and later best ones'."""
        step = number(prefix)
        later = [best_prefix(other) for other in self.bests() if other > step] if prefix == best_prefix(step) else []
        return [*later, *([prefix] if prefix in self.manifests else [])]

    def superfluous(self, keep: int, newest: int) -> list[str]:
        """Returns the prefixes of checkpoints that are not kept. Arguments are as in `saved_files.kept_steps`."""
        steps, bests = self.steps(), self.bests()
        for_good = [step for step, known in steps.items() if known.manifest.kept_for_good]
        kept = saved_files.kept_steps(steps, for_good=for_good, keep=keep, newest=newest, unusable=self.unusable)
        return [*map(best_prefix, sorted(bests)[:-1]), *(step_prefix(step) for step in steps if step not in kept)]

    def unreferenced(self) -> list[str]:
        """Returns the keys that no checkpoint needs, left over from deletions and interrupted uploads."""
        needed = (all_keys(prefix, known.manifest) for prefix, known in self.manifests.items())
        return sorted(self.keys.difference((f"{prefix}/{manifest.NAME}" for prefix in self.manifests), *needed))


def step_prefix(step: int) -> str:
    """Returns the prefix of a checkpoint's keys."""
    return f"{STEPS}{step:012d}"


def best_prefix(step: int) -> str:
    """Returns the prefix of a best checkpoint's keys."""
    return f"{BESTS}{step:012d}"


def number(prefix: str) -> int:
    """Returns the step in a checkpoint's prefix."""
    return int(prefix.rpartition("/")[2])


def segment_keys(found: manifest.Manifest) -> list[str]:
    """Returns the keys of a checkpoint's segments, which are immutable and shared with other checkpoints."""
    root = f"{ROOT}/{saved_files.SEGMENTS}"
    return [f"{root}/{segment}/{name}" for segment, files in found.segments.items() for name in files]


def frozen_directory(name: str) -> str:
    """Returns the prefix of a frozen player's keys."""
    return f"{ROOT}/{saved_files.FROZEN}/{name}"


def frozen_objects(found: manifest.Manifest) -> dict[str, durable.Checksum]:
    """Returns the checksums of a checkpoint's frozen players by key.

    A player that was replaced after a resume keeps some of its keys.
    """
    directories = {frozen_directory(name): files for name, files in found.frozen.items()}
    return {f"{prefix}/{name}": file for prefix, files in directories.items() for name, file in files.items()}


def own_keys(prefix: str, found: manifest.Manifest) -> list[str]:
    """Returns the keys of a checkpoint's own files, without its manifest."""
    return [f"{prefix}/{name}" for name in found.files]


def all_keys(prefix: str, found: manifest.Manifest) -> set[str]:
    """Returns all keys that a checkpoint needs, without its manifest."""
    return {*own_keys(prefix, found), *segment_keys(found), *frozen_objects(found)}


def foreign(keys: Collection[str]) -> list[str]:
    """Returns the keys in a run's own directories that are not the run's, so that their objects would be deleted."""
    return sorted(key for key in keys if key.startswith(f"{ROOT}/") and not _OURS.fullmatch(key))


def read_checkpoints(store: bucket.Store, keys: Collection[str]) -> Checkpoints:
    """Reads the manifests of the checkpoints among these keys. Raises BucketError."""
    found = Checkpoints({}, {}, {key for key in keys if key.startswith(f"{ROOT}/")})
    prefixes = [matched[1] for key in found.keys if (matched := _MANIFEST.fullmatch(key))]

    def read(prefix: str) -> tuple[str, bytes | None]:
        return prefix, store.read(f"{prefix}/{manifest.NAME}").content

    for prefix, content in bucket.in_parallel(read, prefixes):
        if content is None:
            continue  # it was deleted in the meantime
        try:
            known = Known(content, manifest.parse(content, number(prefix)))
        except errors.CheckpointError as error:
            found.damaged[prefix] = str(error)
        else:
            found.manifests[prefix] = known
    return found


def fetch(
    store: bucket.Store, path: pathlib.Path, prefix: str, known: Known, scope: saved_files.Scope = "all"
) -> None:
    """Fetches a checkpoint without its frozen players into a local run directory; whole files there are kept.

    scope: which files are fetched besides the manifest. Raises CheckpointError if a file in the bucket is missing or
    damaged, and BucketError or OSError from the bucket or the local disk.
    """
    directories: dict[str, manifest.Files] = {prefix: saved_files.own_files(known.manifest, scope)}
    if scope in ("all", "replay"):
        root = f"{ROOT}/{saved_files.SEGMENTS}"
        directories |= {f"{root}/{name}": part for name, part in known.manifest.segments.items()}
    _fetch_directories(store, path, directories, known)


def fetch_frozen(store: bucket.Store, path: pathlib.Path, found: manifest.Manifest) -> list[str]:
    """Fetches a checkpoint's frozen players, and returns a sentence for each missing or damaged one.

    Raises BucketError or OSError from the bucket or the local disk.
    """
    problems = []
    for name, files in found.frozen.items():
        try:
            _fetch_directories(store, path, {frozen_directory(name): files})
        except errors.CheckpointError as error:
            problems.append(f"the frozen player {name} in {store.url} cannot be fetched: {error}")
    return problems


def _fetch_directories(
    store: bucket.Store, path: pathlib.Path, directories: Mapping[str, manifest.Files], known: Known | None = None
) -> None:
    """Fetches directories by prefix, with a manifest for the first one. Errors are those of `fetch`."""
    jobs: dict[str, tuple[pathlib.Path, durable.Checksum]] = {}

    def fetch_file(key: str) -> None:
        target, expected = jobs[key]
        download(store, key, target)
        if not target.exists():
            raise errors.CheckpointError(f"{key} is missing")
        if durable.checksum(target) != expected:
            raise errors.CheckpointError(f"{key} is damaged: its checksum does not fit")

    # The checkpoint's own directory is entered first, so it is renamed last, after its segments.
    with contextlib.ExitStack() as appearing:
        for directory, wanted in directories.items():
            jobs |= _prepare(path / directory, directory, wanted, known, appearing)
            known = None
        list(bucket.in_parallel(fetch_file, jobs))


def _prepare(
    directory: pathlib.Path, prefix: str, wanted: manifest.Files, known: Known | None, appearing: contextlib.ExitStack
) -> dict[str, tuple[pathlib.Path, durable.Checksum]]:
    """Links the whole files of the old directory into a new one; returns path and checksum of all others, by key."""
    whole = {name for name, expected in wanted.items() if _matches(directory / name, expected)}
    marked = known is None or has_content(directory / manifest.NAME, known.content)
    if whole == wanted.keys() and marked:
        return {}
    temporary = appearing.enter_context(durable.new_directory(directory))
    for name in wanted:
        (temporary / name).parent.mkdir(parents=True, exist_ok=True)
    for name in whole:
        os.link(directory / name, temporary / name)
    if known is not None:
        (temporary / manifest.NAME).write_bytes(known.content)
    return {f"{prefix}/{name}": (temporary / name, wanted[name]) for name in wanted.keys() - whole}


def _matches(file: pathlib.Path, expected: durable.Checksum) -> bool:
    return file.is_file() and file.stat().st_size == expected.num_bytes and durable.checksum(file) == expected


def has_content(file: pathlib.Path, content: bytes) -> bool:
    """Returns whether a file exists with this content."""
    return file.is_file() and file.read_bytes() == content


def download(store: bucket.Store, key: str, target: pathlib.Path) -> None:
    """Writes an object to a file, completely or not at all; without an object there is no file.

    Errors: see `fetch`.
    """
    if (content := store.read(key).content) is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        durable.write_whole(target, content)


def download_all(store: bucket.Store, path: pathlib.Path, keys: Iterable[str]) -> None:
    """Writes objects to files below a local run directory, as `download` does."""
    list(bucket.in_parallel(lambda key: download(store, key, path / key), keys))
