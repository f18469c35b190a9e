"""Adds checkpoints to a run's directory and deletes old ones; there is only one writer."""

from __future__ import annotations

import dataclasses
import errno
import math
import pathlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import jax

from seedzero.config import sections
from seedzero.core import errors
from seedzero.storage.checkpoints import checkpoint, durable, manifest, player_files, saved_files, segments, trees

REPLAY_COUNTERS = ("stored_per_shard", "stored_per_slot")
"""Counters that describe the replay's content and are saved and restored with it."""


def _with_replay_counters(counters: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the counters with the replay's counters of an earlier checkpoint, for each player.

    A player that began later has no rows in that replay: its environments' rows there are another player's.
    """
    found = {**counters, **{name: last[name] for name in REPLAY_COUNTERS if name in last}}
    if now := counters.get(saved_files.PLAYERS):
        before = last.get(saved_files.PLAYERS) or {next(iter(now)): last}  # the first player was alone then
        found[saved_files.PLAYERS] = {
            name: _with_replay_counters(own, before.get(name) or _no_rows(own)) for name, own in now.items()
        }
    return found


def _no_rows(counters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the replay's counters of a player without rows."""
    return {name: [0] * len(counters[name]) for name in REPLAY_COUNTERS if name in counters}


class CheckpointDir:
    """Writes whole checkpoints into the directory `path`. It is thread-safe, and every call waits for the disk.

    `newest` is the newest checkpoint with all rows of its replay, on which the next one builds.
    """

    def __init__(
        self,
        path: pathlib.Path,
        config: sections.CheckpointConfig,
        clock: Callable[[], float],
        host: int | None = None,
    ) -> None:
        """Makes the directory and deletes the leftovers of a crash. Errors are those of `saved_files.prepare`.

        host: this host's number if a run has several; only host 0 writes the state, and every host writes its digest.
        """
        saved_files.prepare(path)
        self.path = path
        self.newest = checkpoint.Newest(
            ordinal=max((found.ordinal for found in saved_files.manifests(path)), default=0)
        )
        self._config = config
        self._clock = clock
        self._host = host
        self.lock = threading.RLock()  # guards steps/, because `write_state` may run during a long `write` or `prune`
        self._last_state = -1
        # The frozen players of the next checkpoint by name: their files, or what is still to be written.
        self._frozen: dict[str, manifest.Files | player_files.Frozen] = {}

    def continue_from(self, restored: checkpoint.Restored) -> None:
        """Lets the next checkpoint build on a restored one and its frozen players."""
        self.newest = restored.newest
        self._frozen = dict(restored.frozen)

    def frozen_names(self) -> set[str]:
        """Returns the names of frozen players that the next checkpoint may refer to."""
        return set(self._frozen)

    def num_unwritten(self) -> int:
        """Returns how many frozen players are not on the disk yet."""
        return sum(isinstance(found, player_files.Frozen) for found in list(self._frozen.values()))

    def add_frozen(self, name: str, frozen: player_files.Frozen) -> None:
        """Accepts a frozen player, with own copies of its arrays, for `write_frozen`, without waiting for the disk.

        Raises CheckpointError if a checkpoint that counts has another frozen player of this name.
        """
        is_taken = name in self._frozen
        # most likely from a past that a resume has abandoned
        if not is_taken and (self.path / saved_files.FROZEN / name).exists():
            newest = math.inf if self.newest.step is None else max(self.newest.step, self._last_state)
            steps = [found for found in saved_files.manifests(self.path) if found.step <= newest]
            counting = [found for found in steps if found.step not in self.newest.unusable]
            is_taken = any(name in found.frozen for found in counting)
        if is_taken:
            raise errors.CheckpointError(
                f"the frozen player {name} is in {self.path} already, and a checkpoint needs it; take another name"
            )
        self._frozen[name] = frozen

    def write_frozen(self, name: str) -> None:
        """Writes a frozen player unless it is written or given up. Errors are those of `player_files.write`."""
        with self.lock:
            found = self._frozen.get(name)
            if not isinstance(found, player_files.Frozen):
                return
            # Frees the device's memory, even if the disk turns out to be full.
            params, scales = jax.device_get((found.params, found.scales))
            self._frozen[name] = found._replace(params=params, scales=scales)
            given = (name, found.step, params, found.info)
            self._frozen[name] = player_files.write(self.path, *given, scales=scales, time=self._clock())

    def write(
        self,
        step: int,
        parts: Mapping[str, trees.Tree],
        counters: Mapping[str, Any],
        observation: tuple[trees.TreeLeaf, ...],
        replay: segments.SavedReplay | None,
        frozen: Collection[str] = (),
    ) -> list[str]:
        """Writes a checkpoint, and returns a sentence for each frozen player whose files have disappeared.

        The checkpoint still names these players.

        Args:
          step, counters, frozen: as in `Checkpointer.save`.
          parts: parts of the training state and of the replay, by name.
          observation: describes the replay's observations.
          replay: the replay's segments, which are already on the disk; None for a checkpoint without a replay.

        Raises OSError, ValueError, RuntimeError or CheckpointError.
        """
        with self.lock:
            files, problems = self._files_of_frozen(frozen)
            # earlier ones may have been deleted
            saved_files.check_segments(self.path, _files_of(replay), content=False)
            every = self._config.keep_every
            # saving the same step again does not count twice
            ordinal = self.newest.ordinal + (step != self.newest.step)
            described = manifest.Manifest(
                step,
                self._clock(),
                ordinal,
                kept_for_good=bool(every) and ordinal % every == 0,
                arrays={checkpoint.OBSERVATION: observation},
                counters=counters,
                segments=_files_of(replay),
                has_replay=replay is not None,
                frozen=files,
            )
            manifest.write_directory(saved_files.step_directory(self.path, step), *self._shared(parts, described))
            unusable = self.newest.unusable - {step}  # this whole checkpoint replaces a damaged one of the same step
            self.newest = self.newest._replace(step=step, ordinal=ordinal, replay=replay, unusable=unusable)
        return problems

    def _shared(
        self, parts: Mapping[str, trees.Tree], described: manifest.Manifest
    ) -> tuple[Mapping[str, trees.Tree], manifest.Manifest]:
        """Returns the parts that this host writes, and the manifest; of several hosts, with the state's digest."""
        if self._host is None:
            return parts, described
        own = {name: part for name, part in parts.items() if name == saved_files.REPLAY}
        digest = trees.digest({name: part for name, part in parts.items() if name not in own})
        return own if self._host else parts, dataclasses.replace(described, state_sha256=digest)

    def _files_of_frozen(self, names: Collection[str]) -> tuple[dict[str, manifest.Files], list[str]]:
        """Returns the files of frozen players, and a sentence for each lost one; first writes those that failed."""
        found: dict[str, manifest.Files] = {}
        for name in names:
            self.write_frozen(name)
            files = self._frozen.get(name)
            if files is None or isinstance(files, player_files.Frozen):
                raise errors.CheckpointError(
                    f"the frozen player {name} is unknown; expected one of this run, or of its restored checkpoint"
                )
            found[name] = files
        return found, player_files.usable(self.path, found, content=False)[1]

    def give_up(self, names: Collection[str]) -> None:
        """Forgets frozen players that no later checkpoint needs; `prune` deletes those that none names."""
        with self.lock:
            for name in names:
                self._frozen.pop(name, None)

    def check_newest(self) -> str:
        """Checks the newest replay's segments.

        If one is missing, the next save writes all rows; returns the error or "".
        """
        with self.lock:
            try:
                saved_files.check_segments(self.path, _files_of(self.newest.replay), content=False)
            except errors.CheckpointError as error:
                self.newest = self.newest._replace(replay=None)
                return str(error)
        return ""

    def write_state(
        self, step: int, parts: Mapping[str, trees.Tree], counters: Mapping[str, Any], frozen: Collection[str] = ()
    ) -> list[str]:
        """Writes a checkpoint that reuses the newest checkpoint's replay, if it has one; otherwise like `write`."""
        with self.lock:
            files, problems = self._files_of_frozen(frozen)
            described = manifest.Manifest(
                step, self._clock(), self.newest.ordinal + 1, counters=counters, frozen=files
            )
            kept: dict[str, pathlib.Path] = {}
            self.check_newest()
            if self.newest.step is not None:
                newest = saved_files.step_directory(self.path, self.newest.step)
                last = manifest.read(newest)
                if last.has_replay and self.newest.replay is not None:
                    kept[saved_files.REPLAY] = newest / saved_files.REPLAY
                    described = dataclasses.replace(
                        described,
                        arrays={name: last.arrays[name] for name in (saved_files.REPLAY, checkpoint.OBSERVATION)},
                        counters=_with_replay_counters(counters, last.counters),
                        segments=last.segments,
                        has_replay=True,
                    )
            path = saved_files.step_directory(self.path, step)
            manifest.write_directory(path, *self._shared(parts, described), kept)
            self.newest = self.newest._replace(unusable=self.newest.unusable - {step})
            self._last_state = step
        return problems

    def disown(self, steps: Iterable[int], after: int = -1) -> None:
        """Marks checkpoints later than `after` as unusable, because another host lacks them; `prune` deletes them."""
        with self.lock:
            found = {step for step in steps if step > after}
            self.newest = self.newest._replace(unusable=self.newest.unusable | found)

    def write_best(self, step: int, parts: Mapping[str, Mapping[str, trees.Tree]], info: Mapping[str, Any]) -> None:
        """Writes parameters as the best checkpoint, replacing earlier ones. Errors are those of `write`."""
        root = self.path / saved_files.BEST
        described = manifest.Manifest(step, self._clock(), 0, counters=info)
        manifest.write_directory(root / f"{step:012d}", parts, described)
        for other in saved_files.finished(root):  # later ones, too: they belong to an abandoned past
            if other != step:
                durable.remove(root / f"{other:012d}")

    def prune(self) -> None:
        """Deletes checkpoints, segments and frozen players that are not kept.

        After an error, call it again to continue.

        Raises OSError if the disk cannot be written, CheckpointError if a manifest cannot be read.
        """
        with self.lock:
            steps = saved_files.finished(self.path / saved_files.STEPS)
            kept = saved_files.kept_steps(
                steps,
                for_good={found.step for found in saved_files.manifests(self.path) if found.kept_for_good},
                keep=self._config.keep,
                newest=max(self.newest.step or 0, self._last_state),
                unusable=self.newest.unusable,
            )
            for step in steps:
                if step not in kept and step != self.newest.step:  # the next checkpoint builds on the newest one
                    durable.remove(saved_files.step_directory(self.path, step))
            saved_files.remove_unreferenced(self.path, self.frozen_names())

    def failure(self, subject: str, error: BaseException) -> str:
        """Returns a sentence about a failed write. subject: what could not be written."""
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space there" if full or "No space left" in str(error) else "see whether it can be written"
        if "Too many open files" in str(error):
            advice = "raise the limit of open files (ulimit -n), or see what holds them"
        newest = self.newest.step
        kept = "there is no earlier one" if newest is None else f"{newest} is kept"
        return (
            f"{subject} could not be written to {self.path}: {reason(error)}; {advice}; {kept}; "
            f"training continues, and the next checkpoint is tried as planned"
        )


def reason(error: BaseException) -> str:
    """Describes an error without the settings that tensorstore adds."""
    return str(error).partition(" [tensorstore_spec=")[0] or type(error).__name__


def _files_of(replay: segments.SavedReplay | None) -> dict[str, manifest.Files]:
    return {segment.name: segment.files for segment in replay.segments} if replay else {}
