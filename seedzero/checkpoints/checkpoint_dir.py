"""The directory of a run's checkpoints, for a single writer: new checkpoints in, old checkpoints out."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import threading
from collections.abc import Callable, Mapping
from typing import Any

from seedzero.checkpoints import checkpoint, durable, manifest, segments, trees
from seedzero.checkpoints import files as saved_files
from seedzero.config import sections
from seedzero.core import errors

REPLAY_COUNTERS = ("stored_per_shard",)
"""Counters of the replay's content; they are saved and restored together with it."""


class CheckpointDir:
    """Writes whole checkpoints into a directory, `path`; thread-safe, and every call waits for the disk.

    `newest` is the newest checkpoint with all rows of its replay; the next one builds on it.
    """

    def __init__(self, path: pathlib.Path, config: sections.CheckpointConfig, clock: Callable[[], float]) -> None:
        """Makes the directory and deletes the leftovers of a crash. Raises CheckpointError as `files.prepare`."""
        saved_files.prepare(path)
        self.path = path
        self.newest = checkpoint.Newest(
            ordinal=max((found.ordinal for found in saved_files.manifests(path)), default=0)
        )
        self._config = config
        self._clock = clock
        self._lock = threading.RLock()  # over steps/: `write_state` runs beside a long `write` and `prune`
        self._last_state = -1

    def write(
        self,
        step: int,
        parts: Mapping[str, trees.Tree],
        host: Mapping[str, Any],
        observation: tuple[trees.TreeLeaf, ...],
        replay: segments.SavedReplay | None,
    ) -> None:
        """Writes a checkpoint; raises OSError, ValueError, RuntimeError, CheckpointError.

        step, host: as in `Checkpointer.save`. parts: of the training state and the replay, by name. observation: the
        replay's; `replay`: its segments, on the disk already; None: a checkpoint without replay.
        """
        with self._lock:
            saved_files.check_segments(self.path, _files_of(replay), content=False)  # earlier ones may have vanished
            every = self._config.keep_every
            ordinal = self.newest.ordinal + (step != self.newest.step)  # the same one, saved again, stays the Nth
            described = manifest.Manifest(
                step,
                self._clock(),
                ordinal,
                kept_for_good=bool(every) and ordinal % every == 0,
                arrays={checkpoint.OBSERVATION: observation},
                host=host,
                segments=_files_of(replay),
                has_replay=replay is not None,
            )
            _write(saved_files.step_directory(self.path, step), parts, described)
            unusable = self.newest.unusable - {step}  # an earlier one of this step was damaged; this one is whole
            self.newest = self.newest._replace(step=step, ordinal=ordinal, replay=replay, unusable=unusable)

    def check_newest(self) -> str:
        """Forgets a newest replay with a missing segment: the next save is complete. Returns the segment, or ""."""
        with self._lock:
            try:
                saved_files.check_segments(self.path, _files_of(self.newest.replay), content=False)
            except errors.CheckpointError as error:
                self.newest = self.newest._replace(replay=None)
                return str(error)
        return ""

    def write_state(self, step: int, parts: Mapping[str, trees.Tree], host: Mapping[str, Any]) -> None:
        """Writes a checkpoint with the newest checkpoint's replay, if any. Arguments and errors: as `write`."""
        with self._lock:
            described = manifest.Manifest(step, self._clock(), self.newest.ordinal + 1, host=host)
            replay_from = None
            self.check_newest()
            if self.newest.step is not None:
                path = saved_files.step_directory(self.path, self.newest.step)
                last = manifest.read(path)
                if last.has_replay and self.newest.replay is not None:
                    replay_from = path
                    described = dataclasses.replace(
                        described,
                        arrays={name: last.arrays[name] for name in (saved_files.REPLAY, checkpoint.OBSERVATION)},
                        host={**host, **{name: last.host[name] for name in REPLAY_COUNTERS if name in last.host}},
                        segments=last.segments,
                        has_replay=True,
                    )
            _write(saved_files.step_directory(self.path, step), parts, described, replay_from)
            self.newest = self.newest._replace(unusable=self.newest.unusable - {step})
            self._last_state = step

    def write_best(self, step: int, params: trees.Tree, info: Mapping[str, Any]) -> None:
        """Writes parameters as the best, in place of all others. Errors: as `write`."""
        root = self.path / saved_files.BEST
        # Later ones go first: they belong to an abandoned past, and the latest one counts.
        for other in saved_files.finished(root):
            if other > step:
                durable.remove(root / f"{other:012d}")
        described = manifest.Manifest(step, self._clock(), 0, host=info)
        _write(root / f"{step:012d}", {saved_files.PARAMS: {saved_files.PARAMS: params}}, described)
        for other in saved_files.finished(root)[:-1]:
            durable.remove(root / f"{other:012d}")

    def prune(self) -> None:
        """Deletes the checkpoints and segments that are not kept; after an error the next call deletes the rest.

        Raises OSError if the disk cannot be written, CheckpointError if a manifest cannot be read.
        """
        with self._lock:
            steps = saved_files.finished(self.path / saved_files.STEPS)
            kept = saved_files.kept_steps(
                steps,
                for_good={found.step for found in saved_files.manifests(self.path) if found.kept_for_good},
                keep=self._config.keep,
                newest=max(self.newest.step or 0, self._last_state),
                unusable=self.newest.unusable,
            )
            for step in steps:
                if step not in kept and step != self.newest.step:  # the next one builds on the newest
                    durable.remove(saved_files.step_directory(self.path, step))
            saved_files.remove_unreferenced(self.path)


def _files_of(replay: segments.SavedReplay | None) -> dict[str, manifest.Files]:
    return {segment.name: segment.files for segment in replay.segments} if replay else {}


def _write(
    directory: pathlib.Path,
    parts: Mapping[str, trees.Tree],
    described: manifest.Manifest,
    replay_from: pathlib.Path | None = None,
) -> None:
    """Writes parts and their manifest into a new directory, durably, and copies the replay part of another one."""
    with durable.new_directory(directory) as temporary:
        if replay_from is not None:
            shutil.copytree(replay_from / saved_files.REPLAY, temporary / saved_files.REPLAY)
        for name, part in parts.items():
            trees.save(temporary / name, part)
        arrays = {**described.arrays, **{name: trees.describe(part) for name, part in parts.items()}}
        manifest.write(temporary, dataclasses.replace(described, arrays=arrays, files=durable.checksums(temporary)))
