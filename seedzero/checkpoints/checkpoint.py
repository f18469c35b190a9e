"""Writes checkpoints while training goes on, and reads the newest good one back.

    device loop thread                          checkpoint thread
    save: copies on the device  ------------->  replay rows: to the host, compressed, into segments
          (the originals may be                 the rest: by Orbax, manifest, fsync, rename
          donated right afterwards)             where the run is in a bucket: the upload
                                                then `on_durable`, and older checkpoints are deleted

A failed save is reported and leaves nothing behind; the next one writes what it would have written too.

`save_state` is for a process that may soon be killed: it writes what is small, beside the replay as it was last saved.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import errno
import pathlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from seedzero.checkpoints import durable, manifest, memory, segments, trees
from seedzero.checkpoints import files as checkpoint_files
from seedzero.config import config
from seedzero.core import errors
from seedzero.replay import rings as rings_lib

OF_REPLAY = ("stored_per_shard",)
"""Names of what the counters say of the replay's content: they stay with it."""

MAX_COPY_BYTES = 2**30
"""Most bytes of replay rows that are copied but not written yet; a save that has more waits for the disk."""

_STATE = "state"
_REPLAY = "replay"
_OBSERVATION = "observation"
_FAILURES = (OSError, ValueError, RuntimeError, errors.Error)
"""What Orbax, tensorstore, the disk and the device raise when something cannot be written."""


class Needed(NamedTuple):
    """Bytes of a replay and of what saving it takes, over all devices, and of the training state, on each.

    Attributes:
      frames: the replay's observations.
      rest: all else in the replay.
      frame_copies: observations that wait for the disk while a checkpoint is written.
      rest_copies: all else in the replay, while a checkpoint is written.
      state_copies: the training state, while a checkpoint is written.
    """

    frames: int
    rest: int
    frame_copies: int
    rest_copies: int
    state_copies: int


class Uploader(Protocol):
    """The bucket's side of a run."""

    def upload(self, step: int) -> None:
        """Uploads a checkpoint; returns once it is durable there."""

    def tidy(self, newest: int) -> None:
        """Deletes the checkpoints there that are not kept any more."""


class Restored(NamedTuple):
    """What a checkpoint held.

    Attributes:
      step: updates done.
      state: parts as given to `save`.
      host: counters as given to `save`.
      rings: the replay; None where it was not saved or not asked for.
      skipped: newer checkpoints that could not be used, and why, in sentences.
    """

    step: int
    state: dict[str, trees.Tree]
    host: Mapping[str, Any]
    rings: rings_lib.Rings | None
    skipped: list[str]


@dataclasses.dataclass
class _Job:
    """One save on its way. `error` is the first thing that went wrong."""

    step: int
    name: str
    parts: dict[str, trees.Tree]
    host: Mapping[str, Any]
    observation: tuple[trees.Leaf, ...] = ()
    replay: segments.Saved | None = None
    written: list[segments.Segment] = dataclasses.field(default_factory=list)
    error: BaseException | None = None


class _GivenUp(errors.Error):
    """A save that `hurry` has ended."""


class _Best(NamedTuple):
    step: int
    parts: dict[str, trees.Tree]
    info: Mapping[str, Any]


class Checkpointer:
    """Owns the checkpoints of a run. `save`, `save_best`, `wait` and `restore` are for one thread."""

    def __init__(
        self,
        directory: pathlib.Path,
        config: config.CheckpointConfig,
        *,
        on_durable: Callable[[int], None],
        on_error: Callable[[str], None],
        uploader: Uploader | None = None,
        max_copy_bytes: int = MAX_COPY_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Cleans up after a crash.

        Args:
          directory: of the checkpoints; made if it is not there. Nobody else may write to it.
          config: what is kept.
          on_durable: called with a step that survives whatever happens now, on the checkpoint thread.
          on_error: called with a sentence about a save that failed, on either thread; training may go on.
          uploader: of a run in a bucket; a checkpoint is durable once it is there.
          max_copy_bytes: bound of the copied replay rows that wait for the disk.
          clock: seconds since the epoch.

        Raises:
          CheckpointError: the directory cannot be written.
        """
        self._directory = directory
        self._config = config
        self._on_durable = on_durable
        self._on_error = on_error
        self._uploader = uploader
        self._max_copy_bytes = max_copy_bytes
        self._clock = clock
        checkpoint_files.prepare(directory)
        self._ordinal = max((found.ordinal for found in checkpoint_files.manifests(directory)), default=0)
        self._durable_step: int | None = None
        self._written_step: int | None = None  # on this disk; with a bucket it may be ahead of the durable one
        self._on_disk: segments.Saved | None = None
        self._unusable: set[int] = set()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._copying: _Job | None = None
        self._saving: concurrent.futures.Future[None] | None = None
        self._saving_best: concurrent.futures.Future[None] | None = None
        self._best: _Best | None = None
        self._best_lock = threading.Lock()
        self._steps_lock = threading.Lock()  # over what is in steps/: of both threads, where `save_state` is called
        self._newest_step = -1

    @property
    def busy(self) -> bool:
        """Whether a save is still on its way, to the bucket where the run is in one."""
        return self._saving is not None and not self._saving.done()

    def save(
        self, step: int, state: Mapping[str, trees.Tree], host: Mapping[str, Any], rings: rings_lib.Rings | None
    ) -> None:
        """Starts writing a checkpoint; waits for one that is still on its way.

        Args:
          step: updates done.
          state: parts by name; the part "params" can be read alone.
          host: counters; a JSON object.
          rings: the replay; None: a checkpoint without it.
        """
        self.wait()
        job = _Job(step, f"{step:012d}-{durable.token()}", {}, host)
        self._copying = job
        try:
            # The replay first: it waits for its cursors, which come after whatever else the device was given.
            if rings is not None:
                self._copy_replay(job, rings)
            job.parts |= _parts(trees.copy(dict(state)))
        except RuntimeError as error:
            job.error = error
        self._copying = None
        self._saving = self._thread.submit(self._finish, job)

    def hurry(self) -> None:
        """Any thread: has a `save` return soon that waits for the disk; it is given up without a word."""
        job = self._copying
        if job is not None and job.error is None:
            job.error = _GivenUp()

    def _copy_replay(self, job: _Job, rings: rings_lib.Rings) -> None:
        """Copies the rings' small arrays and new observations, and has the latter written meanwhile."""
        small = trees.copy(_small(rings))
        job.parts[_REPLAY] = small
        job.observation = trees.describe({_OBSERVATION: rings.observation})
        # The only wait for the device: which rows are new follows from how far the calls in flight have come.
        cursor = np.asarray(small["cursor"]).astype(np.int64)
        length = rings.weight.shape[1]
        built_on = segments.base(self._on_disk, cursor, length)
        job.replay = segments.Saved(cursor, built_on.segments)
        rows = segments.new_rows(built_on, cursor, length)
        waiting: collections.deque[tuple[int, concurrent.futures.Future[None]]] = collections.deque()
        for chunk in segments.chunks(rings.observation, rows):
            if job.error is not None:
                return
            copied = segments.gather(rings.observation, chunk.slot, chunk.time)
            runs = segments.compress(segments.Rows(rows.slot[chunk.source], rows.number[chunk.source]))
            waiting.append((copied.nbytes, self._thread.submit(self._write_segment, job, copied, chunk.used, runs)))
            del copied
            while len(waiting) > 1 and sum(num_bytes for num_bytes, _ in waiting) > self._max_copy_bytes:
                concurrent.futures.wait([waiting.popleft()[1]])

    def save_state(self, step: int, state: Mapping[str, trees.Tree], host: Mapping[str, Any]) -> None:
        """Writes a checkpoint without new rows of the replay, at once, and returns when it is durable or has failed.

        It holds the replay of the newest checkpoint on the disk, if that has one. A save that is on its way goes on.
        The next save of the same step takes its place.

        Args:
          step: updates done.
          state: parts as given to `save`.
          host: counters; a JSON object.
        """
        try:
            parts = _parts(trees.copy(dict(state)))
            with self._steps_lock:
                self._write_state(step, parts, host)
        except _FAILURES as error:
            self._on_error(self._failure(f"checkpoint {step} without its replay", error))
            return
        # Uploads are the checkpoint thread's.
        if self._uploader is None or self._thread.submit(self._upload, step).result():
            self._on_durable(step)

    def _write_state(self, step: int, parts: dict[str, trees.Tree], host: Mapping[str, Any]) -> None:
        """Raises what writing raises."""
        described = manifest.Manifest(
            step=step,
            time=self._clock(),
            ordinal=self._ordinal + 1,
            kept_for_good=False,
            arrays={},
            host=host,
            files={},
            segments={},
            has_replay=False,
        )
        replay = None
        if self._written_step is not None:
            path = checkpoint_files.step_directory(self._directory, self._written_step)
            last = manifest.read(path)
            if last.has_replay:
                replay = path / _REPLAY
                described = dataclasses.replace(
                    described,
                    arrays={name: last.arrays[name] for name in (_REPLAY, _OBSERVATION)},
                    host={**host, **{name: last.host[name] for name in OF_REPLAY if name in last.host}},
                    segments=last.segments,
                    has_replay=True,
                )
        _write(checkpoint_files.step_directory(self._directory, step), parts, described, replay)
        self._newest_step = step

    def save_best(self, step: int, params: trees.Tree, info: Mapping[str, Any]) -> None:
        """Starts writing parameters as the best so far, in place of the ones before.

        They come into the bucket with the next checkpoint: evaluations may be a hundred times as frequent.

        Args:
          step: updates done.
          params: the parameters.
          info: about them; a JSON object.
        """
        with self._best_lock:
            # One that still waits behind a save is not the best any more.
            self._best = _Best(step, {checkpoint_files.PARAMS: trees.copy({checkpoint_files.PARAMS: params})}, info)
        self._saving_best = self._thread.submit(self._write_best)

    def wait(self) -> None:
        """Returns when nothing is on its way."""
        for pending in (self._saving, self._saving_best):
            if pending is not None:
                pending.result()

    def close(self) -> None:
        """Waits, and ends the thread."""
        self.wait()
        self._thread.shutdown()

    def _write_segment(self, job: _Job, copied: jax.Array | np.ndarray, used: np.ndarray, runs: segments.Runs) -> None:
        if job.error is not None:
            return
        name = f"{job.name}-{len(job.written):04d}"
        root = self._directory / checkpoint_files.SEGMENTS
        try:
            job.written.append(segments.write(root, name, segments.to_host(copied, used), runs))
        except _FAILURES as error:
            job.error = error

    def _finish(self, job: _Job) -> None:
        """Completes a save whose segments are written, or gives it up."""
        try:
            if job.error is not None:
                raise job.error
            with self._steps_lock:
                self._write_step(job)
                self._written_step = job.step
                self._ordinal += 1
        except _FAILURES as error:
            for segment in job.written:
                _remove_quietly(self._directory / checkpoint_files.SEGMENTS / segment.name)
            if not isinstance(error, _GivenUp):
                self._on_error(self._failure(f"checkpoint {job.step}", error))
            return
        self._on_disk = job.replay and job.replay._replace(segments=(*job.replay.segments, *job.written))
        uploaded = self._upload(job.step)
        if uploaded:
            self._durable_step = job.step
            self._on_durable(job.step)
        try:
            with self._steps_lock:
                newest = max(job.step, self._newest_step)
                checkpoint_files.make_room(
                    self._directory, keep=self._config.keep, newest=newest, unusable=self._unusable
                )
        except OSError as error:
            self._on_error(f"old checkpoints in {self._directory} could not be deleted: {error}")
        if self._uploader is not None and uploaded:
            self._uploader.tidy(job.step)
        memory.give_back()

    def _upload(self, step: int) -> bool:
        """Uploads a checkpoint, if the run is in a bucket; returns whether it is as durable as it gets."""
        if self._uploader is None:
            return True
        try:
            self._uploader.upload(step)
        except _FAILURES as error:
            self._on_error(
                f"checkpoint {step} could not be uploaded: {error}; it is kept on this machine, "
                f"training goes on and the next checkpoint brings what is missing"
            )
            return False
        return True

    def _write_step(self, job: _Job) -> None:
        replay = (*job.replay.segments, *job.written) if job.replay else ()
        ordinal = self._ordinal + 1
        described = manifest.Manifest(
            step=job.step,
            time=self._clock(),
            ordinal=ordinal,
            kept_for_good=bool(self._config.keep_every) and ordinal % self._config.keep_every == 0,
            arrays={_OBSERVATION: job.observation},
            host=job.host,
            files={},
            segments={segment.name: segment.files for segment in replay},
            has_replay=job.replay is not None,
        )
        _write(checkpoint_files.step_directory(self._directory, job.step), job.parts, described)

    def _write_best(self) -> None:
        with self._best_lock:
            best, self._best = self._best, None
        if best is None:
            return
        described = manifest.Manifest(
            step=best.step,
            time=self._clock(),
            ordinal=0,
            kept_for_good=False,
            arrays={},
            host=best.info,
            files={},
            segments={},
            has_replay=False,
        )
        root = self._directory / checkpoint_files.BEST
        try:
            # Others go first where they are later: an abandoned past must not win over this one.
            for step in checkpoint_files.finished(root):
                if step > best.step:
                    durable.remove(root / f"{step:012d}")
            _write(root / f"{best.step:012d}", best.parts, described)
            for step in checkpoint_files.finished(root)[:-1]:
                durable.remove(root / f"{step:012d}")
        except _FAILURES as error:
            self._on_error(self._failure(f"the best checkpoint, {best.step},", error))

    def _failure(self, what: str, error: BaseException) -> str:
        """Returns the sentence about a failed save."""
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space there" if full or "No space left" in str(error) else "see whether it can be written"
        durable_step = "there is no earlier one" if self._durable_step is None else f"{self._durable_step} is kept"
        return (
            f"{what} could not be written to {self._directory}: {error}; {advice}; {durable_step}; "
            f"training goes on and the next checkpoint is tried as planned"
        )

    def restore(
        self, like: Mapping[str, trees.Tree], rings_like: rings_lib.Rings | None, step: checkpoint_files.Step = "last"
    ) -> Restored | None:
        """Returns a checkpoint, and goes on from it; None where there is none at all.

        Args:
          like: parts as `save` was given; arrays, or `trees.abstract` of them, which frees their memory.
          rings_like: the same for the replay; None: it is not wanted.
          step: updates done, or "last": the newest that is whole.

        Raises:
          CheckpointError: there are checkpoints, but none can be used.
          ResumeError: the checkpoint does not fit.
        """
        skipped: dict[int, str] = {}
        if step == "last":
            found, skipped = checkpoint_files.newest_verified(self._directory)
            if found is None and not skipped:
                return None
            if found is None:
                raise errors.CheckpointError(
                    f"none of the checkpoints in {self._directory} can be used: {'; '.join(skipped.values())}; "
                    f"start in a new run directory"
                )
            path = checkpoint_files.step_directory(self._directory, found.step)
        else:
            path, found = checkpoint_files.find(self._directory, step)
        state = _load(path, found, dict(like), (checkpoint_files.PARAMS, _STATE))
        rings = self._load_replay(path, found, rings_like) if rings_like is not None and found.has_replay else None
        self._durable_step, self._written_step = found.step, found.step
        self._ordinal, self._unusable = found.ordinal, set(skipped)
        return Restored(found.step, state, found.host, rings, list(skipped.values()))

    def _load_replay(self, path: pathlib.Path, found: manifest.Manifest, like: rings_lib.Rings) -> rings_lib.Rings:
        trees.check_fits(found.arrays[_OBSERVATION], {_OBSERVATION: like.observation})
        small = _load(path, found, _small(like), (_REPLAY,))
        root = self._directory / checkpoint_files.SEGMENTS
        on_disk = segments.Saved(
            np.asarray(small["cursor"]).astype(np.int64),
            tuple(segments.read_index(root, name, files) for name, files in found.segments.items()),
        )
        observation = segments.restore(root, on_disk, like.observation)
        self._on_disk = on_disk
        return rings_lib.Rings(observation=observation, **small)


def needed_bytes(
    state: Mapping[str, trees.Tree],
    rings: rings_lib.Rings,
    *,
    is_saved: bool = True,
    max_copy_bytes: int = MAX_COPY_BYTES,
) -> Needed:
    """Returns the memory that the replay takes, and saving besides the originals.

    Args:
      state: parts as given to `save`; shapes and dtypes are enough.
      rings: the same for the replay.
      is_saved: whether checkpoints include the replay.
      max_copy_bytes: as given to `Checkpointer`.
    """
    frames, rest, state_bytes = map(trees.num_bytes, (rings.observation, _small(rings), dict(state)))
    if not is_saved:
        return Needed(frames, rest, 0, 0, state_bytes)
    copied = min(frames, max_copy_bytes + max(segments.CHUNK_BYTES, segments.row_bytes(rings.observation)))
    return Needed(frames, rest, copied, rest, state_bytes)


def saves_replay(config: config.CheckpointConfig, rings_bytes: int) -> bool:
    """Returns whether checkpoints include a replay of this size."""
    return config.replay == "on" or (config.replay == "auto" and rings_bytes <= config.replay_limit_bytes)


def _small(rings: rings_lib.Rings) -> dict[str, Any]:
    """Returns all arrays of the rings but the observations."""
    fields = rings._asdict()
    del fields["observation"]
    return fields


def _parts(state: Mapping[str, trees.Tree]) -> dict[str, trees.Tree]:
    """Returns the state as what lies in one Orbax directory each: parameters alone, and the rest."""
    rest = {name: part for name, part in state.items() if name != checkpoint_files.PARAMS}
    parts = {_STATE: rest}
    if checkpoint_files.PARAMS in state:
        parts[checkpoint_files.PARAMS] = {checkpoint_files.PARAMS: state[checkpoint_files.PARAMS]}
    return parts


def _write(
    directory: pathlib.Path,
    parts: Mapping[str, trees.Tree],
    described: manifest.Manifest,
    replay: pathlib.Path | None = None,
) -> None:
    """Writes a checkpoint's own files, durably. replay: that part's directory in another checkpoint, to be copied."""
    with durable.new_directory(directory) as temporary:
        if replay is not None:
            shutil.copytree(replay, temporary / _REPLAY)
        for name, part in parts.items():
            trees.save(temporary / name, part)
        described = dataclasses.replace(
            described,
            arrays={**described.arrays, **{name: trees.describe(part) for name, part in parts.items()}},
            files=durable.checksums(temporary),
        )
        manifest.write(temporary, described)


def _load(
    path: pathlib.Path, found: manifest.Manifest, like: dict[str, trees.Tree], names: tuple[str, ...]
) -> dict[str, trees.Tree]:
    """Returns the arrays of some parts of a checkpoint as a tree like the template."""
    saved = [(name, leaf) for name in names for leaf in found.arrays.get(name, ())]
    trees.check_fits([leaf for _, leaf in saved], like)
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        leaves = found.arrays.get(name, ())
        arrays |= {leaf.name: array for leaf, array in zip(leaves, trees.load(path / name, leaves), strict=True)}
    ordered = [arrays[leaf.name] for leaf in trees.describe(like)]
    placed: dict[str, trees.Tree] = trees.place(ordered, like)
    return placed


def _remove_quietly(path: pathlib.Path) -> None:
    """Deletes a directory of a failed save; what cannot be deleted now is at the next start."""
    try:
        durable.remove(path)
    except OSError:
        return
