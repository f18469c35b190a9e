"""The directory of a run's checkpoints, for a single writer: new checkpoints in, old checkpoints out."""

from __future__ import annotations

import dataclasses
import math
import pathlib
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import jax

from seedzero.checkpoints import checkpoint, durable, manifest, player_files, saved_files, segments, trees
from seedzero.config import sections
from seedzero.core import errors

REPLAY_COUNTERS = ("stored_per_shard", "stored_per_slot")
"""Counters of the replay's content; they are saved and restored together with it."""


def _with_replay_counters(counters: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    """Returns counters with the replay's of an earlier checkpoint; of several players, each one's."""
    found = {**counters, **{name: last[name] for name in REPLAY_COUNTERS if name in last}}
    if saved_files.PLAYERS in counters:
        before = last.get(saved_files.PLAYERS, {})
        found[saved_files.PLAYERS] = {
            name: _with_replay_counters(own, before.get(name, {}))
            for name, own in counters[saved_files.PLAYERS].items()
        }
    return found


@dataclasses.dataclass(eq=False)
class _Frozen:
    """A frozen player that the next checkpoint may name; its parameters stay until its files are on the disk."""

    files: manifest.Files | None = None
    step: int = 0
    params: trees.Tree = None
    scales: trees.Tree = None
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class CheckpointDir:
    """Writes whole checkpoints into a directory, `path`; thread-safe, and every call waits for the disk.

    `newest` is the newest checkpoint with all rows of its replay; the next one builds on it.
    """

    def __init__(
        self,
        path: pathlib.Path,
        config: sections.CheckpointConfig,
        clock: Callable[[], float],
        host: int | None = None,
    ) -> None:
        """Makes the directory and deletes the leftovers of a crash. Raises CheckpointError as `files.prepare`.

        host: number of a host among several; host 0 alone writes the state, and all write its digest.
        """
        saved_files.prepare(path)
        self.path = path
        self.newest = checkpoint.Newest(
            ordinal=max((found.ordinal for found in saved_files.manifests(path)), default=0)
        )
        self._config = config
        self._clock = clock
        self._host = host
        self._lock = threading.RLock()  # over steps/: `write_state` runs beside a long `write` and `prune`
        self._last_state = -1
        self._frozen: dict[str, _Frozen] = {}  # by name; every change of it is atomic, and needs no lock

    def continue_from(self, restored: checkpoint.Restored) -> None:
        """Builds the next checkpoint on a restored one, with its frozen players."""
        self.newest = restored.newest
        self._frozen = {name: _Frozen(files) for name, files in restored.frozen.items()}

    def frozen_names(self) -> set[str]:
        """Returns the frozen players that the next checkpoint may name."""
        return set(self._frozen)

    def num_unwritten(self) -> int:
        """Returns the number of frozen players that are not on the disk so far."""
        return sum(found.files is None for found in list(self._frozen.values()))

    def add_frozen(
        self, name: str, step: int, params: trees.Tree, scales: trees.Tree, info: Mapping[str, Any]
    ) -> None:
        """Takes a frozen player for `write_frozen`; waits for no other write.

        params, scales: of the player's own, from `trees.copy`. Raises CheckpointError if a checkpoint that counts has
        another one of this name.
        """
        is_taken = name in self._frozen
        if not is_taken and (self.path / saved_files.FROZEN / name).exists():  # of an abandoned past, most likely
            newest = math.inf if self.newest.step is None else max(self.newest.step, self._last_state)
            steps = [found for found in saved_files.manifests(self.path) if found.step <= newest]
            counting = [found for found in steps if found.step not in self.newest.unusable]
            is_taken = any(name in found.frozen for found in counting)
        if is_taken:
            raise errors.CheckpointError(
                f"the frozen player {name} is in {self.path} already, and a checkpoint needs it; take another name"
            )
        self._frozen[name] = _Frozen(None, step, params, scales, info)

    def write_frozen(self, name: str) -> None:
        """Writes a frozen player, unless it is on the disk or given up; errors as of `player_files.write`."""
        with self._lock:
            found = self._frozen.get(name)
            if found is None or found.files is not None:
                return
            # The device's memory is free, even if the disk is full.
            found.params, found.scales = jax.device_get((found.params, found.scales))
            given = (name, found.step, found.params, found.info)
            found.files = player_files.write(self.path, *given, scales=found.scales, time=self._clock())
            found.params = found.scales = None

    def write(
        self,
        step: int,
        parts: Mapping[str, trees.Tree],
        counters: Mapping[str, Any],
        observation: tuple[trees.TreeLeaf, ...],
        replay: segments.SavedReplay | None,
        frozen: Collection[str] = (),
    ) -> list[str]:
        """Writes a checkpoint; raises OSError, ValueError, RuntimeError, CheckpointError.

        step, counters, frozen: as in `Checkpointer.save`. parts: of the training state and the replay, by name.
        observation: the replay's; `replay`: its segments, on the disk already; None: a checkpoint without replay.

        Returns a sentence for each frozen player that has vanished from the disk; the checkpoint names it still.
        """
        with self._lock:
            files, problems = self._files_of_frozen(frozen)
            saved_files.check_segments(self.path, _files_of(replay), content=False)  # earlier ones may have vanished
            every = self._config.keep_every
            ordinal = self.newest.ordinal + (step != self.newest.step)  # the same one, saved again, stays the Nth
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
            unusable = self.newest.unusable - {step}  # an earlier one of this step was damaged; this one is whole
            self.newest = self.newest._replace(step=step, ordinal=ordinal, replay=replay, unusable=unusable)
        return problems

    def _shared(
        self, parts: Mapping[str, trees.Tree], described: manifest.Manifest
    ) -> tuple[Mapping[str, trees.Tree], manifest.Manifest]:
        """Returns the parts that are this host's to write, and the manifest with the digest of the state."""
        if self._host is None:
            return parts, described
        own = {name: part for name, part in parts.items() if name == saved_files.REPLAY}
        digest = trees.digest({name: part for name, part in parts.items() if name not in own})
        return own if self._host else parts, dataclasses.replace(described, state_sha256=digest)

    def _files_of_frozen(self, names: Collection[str]) -> tuple[dict[str, manifest.Files], list[str]]:
        """Returns the files of frozen players, and sentences for vanished players; writes those that failed before."""
        found: dict[str, manifest.Files] = {}
        for name in names:
            self.write_frozen(name)
            known = self._frozen.get(name)
            if known is None or known.files is None:
                raise errors.CheckpointError(
                    f"the frozen player {name} is unknown; expected one of this run, or of its restored checkpoint"
                )
            found[name] = known.files
        return found, player_files.usable(self.path, found, content=False)[1]

    def give_up(self, names: Collection[str]) -> None:
        """Forgets frozen players that later checkpoints do not name; `prune` deletes them once none does."""
        for name in names:
            self._frozen.pop(name, None)

    def check_newest(self) -> str:
        """Forgets a newest replay with a missing segment: the next save is complete. Returns the segment, or ""."""
        with self._lock:
            try:
                saved_files.check_segments(self.path, _files_of(self.newest.replay), content=False)
            except errors.CheckpointError as error:
                self.newest = self.newest._replace(replay=None)
                return str(error)
        return ""

    def write_state(
        self, step: int, parts: Mapping[str, trees.Tree], counters: Mapping[str, Any], frozen: Collection[str] = ()
    ) -> list[str]:
        """Writes a checkpoint with the newest checkpoint's replay, if any. The rest: as `write`."""
        with self._lock:
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
        """Has checkpoints later than `after` not count, since another host lacks them; `prune` will delete them."""
        with self._lock:
            found = {step for step in steps if step > after}
            self.newest = self.newest._replace(unusable=self.newest.unusable | found)

    def write_best(self, step: int, parts: Mapping[str, Mapping[str, trees.Tree]], info: Mapping[str, Any]) -> None:
        """Writes the parts of parameters as the best, replacing all others. Errors: as `write`."""
        root = self.path / saved_files.BEST
        # Later ones go first: they belong to an abandoned past, and the latest one counts.
        for other in saved_files.finished(root):
            if other > step:
                durable.remove(root / f"{other:012d}")
        described = manifest.Manifest(step, self._clock(), 0, counters=info)
        manifest.write_directory(root / f"{step:012d}", parts, described)
        for other in saved_files.finished(root)[:-1]:
            durable.remove(root / f"{other:012d}")

    def prune(self) -> None:
        """Deletes checkpoints, segments and frozen players that are not kept; after an error the next call continues.

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
            saved_files.remove_unreferenced(self.path, self.frozen_names())


def _files_of(replay: segments.SavedReplay | None) -> dict[str, manifest.Files]:
    return {segment.name: segment.files for segment in replay.segments} if replay else {}
