"""Writes checkpoints while training continues.

    device loop thread                          checkpoint thread
    save: copies on the device  ------------->  replay rows: to the host, compressed, into segments
          (the originals may be                 the rest: arrays, manifest, fsync, rename
          donated right afterwards)             run in a bucket: upload
                                                older ones are deleted, then `on_durable`

A failed save is reported and leaves nothing behind; the next save writes its rows too.

`freeze` queues a frozen player for the checkpoint thread; the next save names it or drops it.

`save_state` is for a process that may soon be killed: it writes the small state, and keeps the last save's replay.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import pathlib
import secrets
import threading
import time
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from seedzero.config import sections
from seedzero.core import errors
from seedzero.replay import ring_store
from seedzero.storage.checkpoints import (
    checkpoint,
    checkpoint_dir,
    durable,
    player_files,
    saved_files,
    segments,
    trees,
)

# The thread that writes checkpoints. Waiting for it ends if the disk does not answer.
PATIENCE_SECONDS = 300.0
"""Longest time for one step of a save: a segment of the replay, the arrays of a checkpoint, or a frozen player."""
HURRIED_SECONDS = 30.0
"""The same limit once the run was interrupted."""
_LOOK_SECONDS = 0.5


class SaveThread(concurrent.futures.ThreadPoolExecutor):
    """Runs the steps of saves in order. Any thread may call `hurry` and `check`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, look_seconds: float = _LOOK_SECONDS) -> None:
        super().__init__(1, thread_name_prefix="checkpoint")
        self._clock, self._look_seconds = clock, look_seconds
        self._limit_seconds, self._began = PATIENCE_SECONDS, None

    _began: float | None  # when the present step began to write; None between two steps, and during uploads

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """On this thread: limits the time of what runs within."""
        self._began = self._clock()
        try:
            yield
        finally:
            self._began = None

    def hurry(self) -> None:
        """Waits less from now on, because the run was interrupted."""
        self._limit_seconds = HURRIED_SECONDS

    def check(self) -> None:
        """Raises CheckpointError if the present step takes too long."""
        began = self._began
        if began is not None and (seconds := self._clock() - began) > self._limit_seconds:
            raise errors.CheckpointError(
                f"the checkpoint in progress is not written after {seconds:.0f} s: the disk does not answer, or other "
                "programs take all processor time. Earlier checkpoints are kept; see whether the run directory can be "
                "written"
            )

    def wait(self, *pending: concurrent.futures.Future[Any] | None) -> None:
        """Waits for futures and raises their exceptions. Raises CheckpointError as `check` does."""
        for one in pending:
            while one is not None and not concurrent.futures.wait([one], self._look_seconds).done:
                self.check()
            if one is not None:
                one.result()

    @contextlib.contextmanager
    def holding(self, lock: threading.RLock) -> Iterator[None]:
        """Holds a lock that this thread may have. Raises CheckpointError as `check` does."""
        while not lock.acquire(timeout=self._look_seconds):
            self.check()
        try:
            yield
        finally:
            lock.release()


def trim_heap() -> None:
    """Returns freed memory to the system; does nothing without glibc.

    Writing a checkpoint frees hundreds of megabytes in small pieces, which glibc would keep in the thread's heap.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


_FAILURES = (OSError, ValueError, RuntimeError, errors.Error)
"""What tensorstore, the disk and the device raise when a write fails."""

MAX_FREEZES = 4
"""Most frozen players that wait for the disk, because each has a copy of its parameters on the device."""


class Uploader(Protocol):
    """Keeps a run's checkpoints in a bucket."""

    def upload(self, step: int) -> None:
        """Uploads a checkpoint, and returns once it is stored durably."""

    def prune(self, newest: int) -> None:
        """Deletes checkpoints from the bucket that are no longer kept."""


class Peers(Protocol):
    """The run's other hosts, which save their own parts of the same checkpoints."""

    def settle(self, step: int, problem: str) -> str:
        """Reports why this host lacks its part, or "". Waits for all and returns which hosts lack theirs, or ""."""


@dataclasses.dataclass
class _Save:
    """A save in progress; `error` is its first failure."""

    step: int
    name: str
    counters: Mapping[str, Any]
    parts: dict[str, trees.Tree] = dataclasses.field(default_factory=dict)
    observation: tuple[trees.TreeLeaf, ...] = ()
    replay: segments.SavedReplay | None = None
    written: list[segments.Segment] = dataclasses.field(default_factory=list)
    frozen: Collection[str] = ()
    given_up: Collection[str] = ()  # frozen players that it does not name, of those known when it began
    error: BaseException | None = None


class _Abandoned(errors.Error):
    """Ends a save that `abandon_save` has cancelled."""


class Checkpointer:
    """Writes the checkpoints of a run. One thread calls all methods but `abandon_save`."""

    def __init__(
        self,
        directory: pathlib.Path,
        config: sections.CheckpointConfig,
        *,
        on_durable: Callable[[int], None],
        on_error: Callable[[str], None],
        uploader: Uploader | None = None,
        peers: Peers | None = None,
        host: int | None = None,
        max_copy_bytes: int = checkpoint.MAX_COPY_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepares the directory and deletes the leftovers of a crash.

        Args:
          directory: directory of the checkpoints, made if missing. Only this object may write to it.
          on_durable: called with each step once it would survive a crash, on the checkpoint thread.
          on_error: called with a sentence about each failed save, damaged replay, or failed deletion of old
            checkpoints, on either thread; training may continue. `on_durable` follows if the save succeeds.
          uploader: the bucket, if the run has one; a checkpoint is then durable once it is uploaded.
          peers: the other hosts, if any; a checkpoint is durable once all have their parts. All save the same steps.
          host: as in `CheckpointDir`.
          max_copy_bytes: limit of copied replay rows that wait for the disk.
          clock: returns seconds since the epoch.

        Raises CheckpointError if the directory cannot be written, or a manifest in it cannot be read.
        """
        self._directory = checkpoint_dir.CheckpointDir(directory, config, clock, host)
        self._on_durable = on_durable
        self._on_error = on_error
        self._uploader, self._peers = uploader, peers
        self._whole: int | None = None  # the newest step of which every host has its part
        self._max_copy_bytes = max_copy_bytes
        self._thread = SaveThread()
        self.hurry, self.check = self._thread.hurry, self._thread.check
        self._copying: _Save | None = None
        self._saving: concurrent.futures.Future[Any] | None = None
        self._saving_best: concurrent.futures.Future[None] | None = None
        # (step, parts, info) of the best checkpoint that waits; a later one replaces it.
        self._best: collections.deque[tuple[int, Any, Mapping[str, Any]]] = collections.deque(maxlen=1)
        self._unwritten: tuple[int, Any, Mapping[str, Any]] | None = None  # the one that could not be written
        self._freezing: collections.deque[concurrent.futures.Future[None]] = collections.deque()

    @property
    def busy(self) -> bool:
        """Whether a save or its upload is in progress."""
        return self._saving is not None and not self._saving.done()

    def continue_from(self, restored: checkpoint.Restored) -> None:
        """Lets the next save build on a restored checkpoint."""
        self._directory.continue_from(restored)
        self._whole = restored.step
        if self._peers is not None:  # another host lacks its part of later ones
            self._directory.disown(saved_files.finished(self._directory.path / saved_files.STEPS), after=restored.step)

    def save(
        self,
        step: int,
        state: Mapping[str, trees.Tree],
        counters: Mapping[str, Any],
        rings: ring_store.Replay | None,
        frozen: Collection[str] = (),
    ) -> None:
        """Begins to write a checkpoint of update `step`, after any save in progress has ended.

        Args:
          state: parts by name; "params" can be read without the others.
          counters: a JSON object.
          rings: the replay, or None to save none.
          frozen: names of all frozen players that the run still needs, from earlier calls of `freeze` or from the
            restored checkpoint. The others are deleted once no checkpoint needs them.
        """
        self._thread.wait(self._saving, self._saving_best)
        name, given_up = f"{step:012d}-{secrets.token_hex(4)}", self._directory.frozen_names().difference(frozen)
        self._copying = save = _Save(step, name, counters, frozen=tuple(frozen), given_up=given_up)
        try:
            # The replay is copied first, because reading its cursors waits for all earlier work of the device.
            if rings is not None:
                self._copy_replay(save, rings)
            save.parts |= checkpoint.parts_of(trees.copy(dict(state)))
        except (OSError, RuntimeError) as error:
            save.error = error
        self._copying = None
        self._saving = self._thread.submit(self._finish, save)

    def confirm(self, step: int) -> None:
        """Begins to report to the other hosts that this one already has a checkpoint."""
        self._thread.wait(self._saving)
        self._saving = self._thread.submit(_settle, self._peers, step, "", self._on_error)

    def abandon_save(self) -> bool:
        """Any thread: cancels a `save` that waits for the disk, without a message; returns whether there was one."""
        save = self._copying
        if save is None or save.error is not None:
            return False
        save.error = _Abandoned("given up, since the run ends")
        return True

    def _copy_replay(self, save: _Save, rings: ring_store.Replay) -> None:
        """Copies the rings' small arrays and new observations, which the checkpoint thread writes at the same time."""
        each = ring_store.each(rings)
        small = [trees.copy(checkpoint.all_but_observation(one)) for one in each]
        save.parts[saved_files.REPLAY] = checkpoint.by_place(small)
        save.observation = trees.describe(checkpoint.described(rings))
        # This is the only wait for the device: its cursors determine the new rows.
        cursor, length = checkpoint.cursors(small), each[0].weight.shape[1]
        with self._thread.holding(self._directory.lock):
            gone = self._directory.check_newest()
        if gone:
            self._on_error(f"the saved replay is damaged: {gone}; checkpoint {save.step} will hold all of it again")
        built_on = segments.base(self._directory.newest.replay, cursor, length)
        save.replay = segments.SavedReplay(cursor, built_on.segments)
        rows = segments.new_rows(built_on, cursor, length)
        waiting: collections.deque[tuple[int, concurrent.futures.Future[None]]] = collections.deque()
        for observation, chunk, runs in segments.portions([one.observation for one in each], rows):
            if save.error is not None:
                return
            copied = segments.gather(observation, chunk)
            waiting.append((copied.nbytes, self._thread.submit(self._write_segment, save, copied, chunk.used, runs)))
            del copied
            while len(waiting) > 1 and sum(num_bytes for num_bytes, _ in waiting) > self._max_copy_bytes:
                self._thread.wait(waiting.popleft()[1])

    def save_state(
        self, step: int, state: Mapping[str, trees.Tree], counters: Mapping[str, Any], frozen: Collection[str] = ()
    ) -> None:
        """Writes a checkpoint without new rows of the replay; returns once it is durable or has failed.

        It reuses the replay of the newest checkpoint, if that has one. A save in progress continues, and the next save
        of the same step replaces this checkpoint. Arguments are those of `save`.
        """
        try:
            with self._thread.holding(self._directory.lock):
                lost = self._directory.write_state(
                    step, checkpoint.parts_of(trees.copy(dict(state))), counters, frozen
                )
        except _FAILURES as error:
            self._on_error(self._directory.failure(f"checkpoint {step} without its replay", error))
            return
        for sentence in lost:
            self._on_error(sentence)
        # Only the checkpoint thread may upload.
        problem = self._uploader and self._thread.submit(_upload, self._uploader, step, self._on_error).result()
        if not problem and self._peers is None:
            self._on_durable(step)

    def save_best(
        self, step: int, params: Mapping[str, trees.Tree], info: Mapping[str, Any]
    ) -> concurrent.futures.Future[None]:
        """Begins to write parameters, as `by_player` returns them, as the best so far; they replace earlier ones.

        Returns a future that is done once these or later best parameters are written, or a failure is reported. The
        next checkpoint uploads them, because evaluations may be a hundred times as frequent. info: a JSON object.
        """
        self._best.append((step, checkpoint.parts_of(trees.copy(dict(params))), info))
        self._saving_best = self._thread.submit(self._write_best)
        return self._saving_best

    def freeze(
        self,
        name: str,
        step: int,
        params: trees.Tree,
        info: Mapping[str, Any],
        scales: Mapping[str, trees.Tree] = types.MappingProxyType({}),
    ) -> bool:
        """Begins to write a frozen player, which the next save should name; returns whether it was accepted.

        It waits while MAX_FREEZES others wait for the disk. If these cannot be written, it rejects the player with a
        message. A player that could not be written is written again by the next save.

        Args:
          name: as in `player_files.write`.
          step: updates of the player.
          params: its acting parameters, which may be donated right afterwards.
          info: a JSON object.
          scales: statistics that the parameters depend on, by name.

        Raises CheckpointError if a checkpoint that counts has another frozen player of this name.
        """
        while self._freezing and (self._freezing[0].done() or self._directory.num_unwritten() >= MAX_FREEZES):
            self._thread.wait(self._freezing.popleft())
        try:
            if self._directory.num_unwritten() >= MAX_FREEZES:
                raise errors.CheckpointError(f"{MAX_FREEZES} others wait for the disk")
            frozen = player_files.Frozen(trees.copy(params), trees.copy(dict(scales)), step, info)
        except (RuntimeError, errors.CheckpointError) as error:
            self._on_error(self._directory.failure(f"the frozen player {name}", error))
            return False
        try:
            self._directory.add_frozen(name, frozen)
        except OSError as error:
            self._on_error(self._directory.failure(f"the frozen player {name}", error))
            return False
        self._freezing.append(self._thread.submit(self._write_frozen, name))
        return True

    def wait(self) -> None:
        """Waits until no save or freeze is in progress. Raises CheckpointError if the disk does not answer."""
        self._thread.wait(self._saving, self._saving_best, *self._freezing)

    def close(self) -> None:
        """Waits as `wait` does, and ends the thread, unless it is stuck."""
        try:
            self.wait()
        finally:
            self._thread.shutdown(wait=False)

    # The following methods run on the checkpoint thread.

    def _write_segment(
        self, save: _Save, copied: jax.Array | np.ndarray, used: np.ndarray, runs: segments.Runs
    ) -> None:
        if save.error is not None:
            return
        name = f"{save.name}-{len(save.written):04d}"
        root = self._directory.path / saved_files.SEGMENTS
        try:
            with self._thread.writing():
                save.written.append(segments.write(root, name, segments.to_host(copied, used), runs))
        except _FAILURES as error:
            save.error = error
        except Exception as error:  # for example MemoryError: the checkpoint lacks rows in any case, so it must fail
            save.error = errors.CheckpointError(f"{type(error).__name__}: {error}")

    def _finish(self, save: _Save) -> None:
        """Completes a save whose segments are written, or deletes them; reports to the other hosts in both cases."""
        self._write_best()  # before the counters that know its return
        replay = save.replay and save.replay._replace(segments=(*save.replay.segments, *save.written))
        try:
            if save.error is not None:
                raise save.error
            with self._thread.writing():
                described = save.counters, save.observation, replay, save.frozen
                lost = self._directory.write(save.step, save.parts, *described)
        except _FAILURES as error:
            for segment in save.written:
                with contextlib.suppress(OSError):  # the next start deletes what remains
                    durable.remove(self._directory.path / saved_files.SEGMENTS / segment.name)
            if not isinstance(error, _Abandoned):
                self._on_error(self._directory.failure(f"checkpoint {save.step}", error))
            _settle(self._peers, save.step, checkpoint_dir.reason(error), self._on_error)
            return
        for sentence in lost:
            self._on_error(sentence)
        self._directory.give_up(save.given_up)
        problem = _upload(self._uploader, save.step, self._on_error)
        if is_durable := _settle(self._peers, save.step, problem, self._on_error):
            self._whole = save.step
        elif self._peers is not None and save.step != self._whole:
            self._directory.disown([save.step])
        try:
            with self._thread.writing():
                self._directory.prune()
        except (OSError, errors.CheckpointError) as error:
            self._on_error(f"old checkpoints in {self._directory.path} could not be deleted: {error}")
        if is_durable:
            self._on_durable(save.step)  # after reports of other failures, because this save succeeded
            if self._uploader is not None:
                self._uploader.prune(save.step)
        trim_heap()

    def _write_best(self) -> None:
        self._unwritten = self._best.pop() if self._best else self._unwritten
        if self._unwritten is None:  # it is written already, or a later one that has replaced it
            return
        step, parts, info = self._unwritten
        try:
            with self._thread.writing():
                self._directory.write_best(step, parts, info)
            self._unwritten = None
        except _FAILURES as error:  # the next save tries again
            self._on_error(self._directory.failure(f"the best checkpoint, {step},", error))

    def _write_frozen(self, name: str) -> None:
        try:
            with self._thread.writing():
                self._directory.write_frozen(name)
        except Exception as error:  # for example MemoryError: in any case the next save writes the player, or fails
            self._on_error(self._directory.failure(f"the frozen player {name}", error))


def _upload(uploader: Uploader | None, step: int, report: Callable[[str], None]) -> str:
    """Uploads a checkpoint if the run is in a bucket. Returns why that failed, or ""."""
    try:
        if uploader is not None:
            uploader.upload(step)
    except _FAILURES as error:
        report(
            f"checkpoint {step} could not be uploaded: {error}; it is kept on this machine, "
            f"training continues, and the next checkpoint brings what is missing"
        )
        return checkpoint_dir.reason(error)
    return ""


def _settle(peers: Peers | None, step: int, problem: str, report: Callable[[str], None]) -> bool:
    """Reports this host's result to the other hosts; returns whether the checkpoint counts, because all have it."""
    if peers is None:
        return not problem
    missing = peers.settle(step, problem)
    if missing and not problem:  # otherwise it has been reported already
        report(f"{missing}, so it does not count; training continues, and all hosts try the next one")
    return not missing
