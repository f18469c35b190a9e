"""Writes checkpoints while training continues.

    device loop thread                          checkpoint thread
    save: copies on the device  ------------->  replay rows: to the host, compressed, into segments
          (the originals may be                 the rest: arrays, manifest, fsync, rename
          donated right afterwards)             run in a bucket: upload
                                                older ones are deleted, then `on_durable`

A failed save is reported and leaves nothing behind; the next save writes its rows too.

`freeze` has a player's parameters written on the checkpoint thread; the next save names it, or gives it up.

`save_state` serves a process that may soon be killed: it writes the small state beside the replay of the last save.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import ctypes
import dataclasses
import errno
import pathlib
import secrets
import time
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from seedzero.checkpoints import checkpoint, checkpoint_dir, durable, saved_files, segments, trees
from seedzero.config import sections
from seedzero.core import errors
from seedzero.replay import ring_store

_FAILURES = (OSError, ValueError, RuntimeError, errors.Error)
"""Raised by tensorstore, the disk and the device when a write fails."""

MAX_FREEZES = 4
"""Most frozen players that wait for the disk, each a copy of its parameters on the device."""


class Uploader(Protocol):
    """The bucket of a run."""

    def upload(self, step: int) -> None:
        """Uploads a checkpoint; returns after durable storage."""

    def prune(self, newest: int) -> None:
        """Deletes expired checkpoints in the bucket."""


class Peers(Protocol):
    """The run's other hosts, which save their parts of the same checkpoints."""

    def settle(self, step: int, problem: str) -> str:
        """Tells why this host lacks its part, or ""; returns which hosts lack theirs, or "", once all have told."""


@dataclasses.dataclass
class _Save:
    """A save in progress; `error`: the first failure."""

    step: int
    name: str
    counters: Mapping[str, Any]
    parts: dict[str, trees.Tree] = dataclasses.field(default_factory=dict)
    observation: tuple[trees.TreeLeaf, ...] = ()
    replay: segments.SavedReplay | None = None
    written: list[segments.Segment] = dataclasses.field(default_factory=list)
    frozen: Collection[str] = ()
    given_up: Collection[str] = ()  # frozen players known at its beginning that it does not name
    error: BaseException | None = None


class _Abandoned(errors.Error):
    """The error of a save ended by `abandon_save`."""


class Checkpointer:
    """Writes the checkpoints of a run; all methods but `abandon_save` belong to one thread."""

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
        """Deletes the leftovers of a crash.

        Args:
          directory: of the checkpoints; made if missing. Only this object writes to it.
          on_durable: receives each step that survives a crash from now on, on the checkpoint thread.
          on_error: receives a sentence about each failed save, damaged replay, or deletion of old checkpoints that
            failed, on either thread; training may continue. Where the save succeeds, `on_durable` comes later.
          uploader: of a run in a bucket; a checkpoint there is durable once it is uploaded.
          peers: the other hosts; a checkpoint is durable once all have their parts. All save the same steps in order.
          host: as of `CheckpointDir`.
          max_copy_bytes: bound of the copied replay rows that wait for the disk.
          clock: seconds since the epoch.

        Raises CheckpointError if the directory cannot be written, or a manifest in it cannot be read.
        """
        self._directory = checkpoint_dir.CheckpointDir(directory, config, clock, host)
        self._on_durable = on_durable
        self._on_error = on_error
        self._uploader, self._peers = uploader, peers
        self._whole: int | None = None  # the newest step that every host has
        self._max_copy_bytes = max_copy_bytes
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._copying: _Save | None = None
        self._saving: concurrent.futures.Future[Any] | None = None
        self._saving_best: concurrent.futures.Future[None] | None = None
        # (step, parts, info) of the best checkpoint that waits: a later one replaces it.
        self._best: collections.deque[tuple[int, Any, Mapping[str, Any]]] = collections.deque(maxlen=1)
        self._freezing: collections.deque[concurrent.futures.Future[None]] = collections.deque()

    @property
    def busy(self) -> bool:
        """Whether a save or its upload is in progress."""
        return self._saving is not None and not self._saving.done()

    def continue_from(self, restored: checkpoint.Restored) -> None:
        """Builds the next save on a restored checkpoint."""
        self._directory.continue_from(restored)
        self._whole = restored.step
        if self._peers is not None:  # later ones lack the part of another host
            self._directory.disown(saved_files.finished(self._directory.path / saved_files.STEPS), after=restored.step)

    def save(
        self,
        step: int,
        state: Mapping[str, trees.Tree],
        counters: Mapping[str, Any],
        rings: ring_store.Replay | None,
        frozen: Collection[str] = (),
    ) -> None:
        """Starts writing a checkpoint of update `step`, after the end of a save in progress.

        Args:
          state: parts by name; "params" can be read alone.
          counters: a JSON object.
          rings: the replay, if saved.
          frozen: names of all frozen players that the run needs from here on, of earlier `freeze`s and of the restored
            checkpoint; the others are deleted once no checkpoint needs them.
        """
        _wait_for(self._saving, self._saving_best)
        name, given_up = f"{step:012d}-{secrets.token_hex(4)}", self._directory.frozen_names().difference(frozen)
        self._copying = save = _Save(step, name, counters, frozen=tuple(frozen), given_up=given_up)
        try:
            # The replay first: its cursors wait for all earlier work of the device.
            if rings is not None:
                self._copy_replay(save, rings)
            save.parts |= checkpoint.parts_of(trees.copy(dict(state)))
        except RuntimeError as error:
            save.error = error
        self._copying = None
        self._saving = self._thread.submit(self._finish, save)

    def confirm(self, step: int) -> None:
        """Starts to tell the other hosts that this one has a checkpoint already."""
        _wait_for(self._saving)
        self._saving = self._thread.submit(_settle, self._peers, step, "", self._on_error)

    def abandon_save(self) -> bool:
        """Any thread: ends a `save` waiting for the disk, without a report; returns whether there was one."""
        save = self._copying
        if save is None or save.error is not None:
            return False
        save.error = _Abandoned("given up, since the run ends")
        return True

    def _copy_replay(self, save: _Save, rings: ring_store.Replay) -> None:
        """Copies the rings' small arrays and new observations; the thread writes the observations meanwhile."""
        each = ring_store.each(rings)
        small = [trees.copy(checkpoint.all_but_observation(one)) for one in each]
        save.parts[saved_files.REPLAY] = checkpoint.by_place(small)
        save.observation = trees.describe(checkpoint.described(rings))
        # The only wait for the device: its cursors tell the new rows.
        cursor, length = checkpoint.cursors(small), each[0].weight.shape[1]
        if gone := self._directory.check_newest():
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
                concurrent.futures.wait([waiting.popleft()[1]])

    def save_state(
        self, step: int, state: Mapping[str, trees.Tree], counters: Mapping[str, Any], frozen: Collection[str] = ()
    ) -> None:
        """Writes a checkpoint without new rows of the replay; returns once it is durable or has failed.

        It holds the replay of the newest checkpoint on the disk, if that has one. A save in progress continues. The
        next save of the same step replaces it. Arguments: as `save`.
        """
        try:
            lost = self._directory.write_state(step, checkpoint.parts_of(trees.copy(dict(state))), counters, frozen)
        except _FAILURES as error:
            self._on_error(_failure(self._directory, f"checkpoint {step} without its replay", error))
            return
        for sentence in lost:
            self._on_error(sentence)
        # Only the checkpoint thread uploads.
        problem = self._uploader and self._thread.submit(_upload, self._uploader, step, self._on_error).result()
        if not problem and self._peers is None:
            self._on_durable(step)

    def save_best(
        self, step: int, params: Mapping[str, trees.Tree], info: Mapping[str, Any]
    ) -> concurrent.futures.Future[None]:
        """Starts writing parameters, as of `by_player`, as the best so far, replacing earlier ones; info: JSON.

        Returns what is done once they, or later ones in their place, are written, or a failure is reported. The next
        checkpoint takes them into the bucket: evaluations may be a hundred times as frequent.
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
        """Starts writing a frozen player, which the next save is to name; returns whether it was taken.

        It waits while MAX_FREEZES others wait for the disk, and refuses, with a report, if these cannot be written.
        The next save writes a player again that could not be written.

        Args:
          name: as of `player_files.write`.
          step: updates of the player.
          params: its acting parameters; they may be donated right afterwards.
          info: a JSON object.
          scales: statistics that the values of the parameters count in, by name.

        Raises CheckpointError if a checkpoint that counts has another frozen player of this name.
        """
        while self._freezing and (self._freezing[0].done() or self._directory.num_unwritten() >= MAX_FREEZES):
            self._freezing.popleft().result()
        try:
            if self._directory.num_unwritten() >= MAX_FREEZES:
                raise errors.CheckpointError(f"{MAX_FREEZES} others wait for the disk")
            copied = trees.copy(params), trees.copy(dict(scales))
        except (RuntimeError, errors.CheckpointError) as error:
            self._on_error(_failure(self._directory, f"the frozen player {name}", error))
            return False
        self._directory.add_frozen(name, step, *copied, info)
        self._freezing.append(self._thread.submit(self._write_frozen, name))
        return True

    def wait(self) -> None:
        """Returns when no save or freeze is in progress."""
        _wait_for(self._saving, self._saving_best, *self._freezing)

    def close(self) -> None:
        """Waits, and ends the thread."""
        self.wait()
        self._thread.shutdown()

    # On the checkpoint thread

    def _write_segment(
        self, save: _Save, copied: jax.Array | np.ndarray, used: np.ndarray, runs: segments.Runs
    ) -> None:
        if save.error is not None:
            return
        name = f"{save.name}-{len(save.written):04d}"
        root = self._directory.path / saved_files.SEGMENTS
        try:
            save.written.append(segments.write(root, name, segments.to_host(copied, used), runs))
        except _FAILURES as error:
            save.error = error
        except Exception as error:  # such as MemoryError: whatever it is, the checkpoint lacks rows, and must fail
            save.error = errors.CheckpointError(f"{type(error).__name__}: {error}")

    def _finish(self, save: _Save) -> None:
        """Completes a save with written segments, or deletes the segments; the other hosts hear of it either way."""
        replay = save.replay and save.replay._replace(segments=(*save.replay.segments, *save.written))
        try:
            if save.error is not None:
                raise save.error
            lost = self._directory.write(save.step, save.parts, save.counters, save.observation, replay, save.frozen)
        except _FAILURES as error:
            for segment in save.written:
                with contextlib.suppress(OSError):  # the next start deletes the rest
                    durable.remove(self._directory.path / saved_files.SEGMENTS / segment.name)
            if not isinstance(error, _Abandoned):
                self._on_error(_failure(self._directory, f"checkpoint {save.step}", error))
            _settle(self._peers, save.step, _reason(error), self._on_error)
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
            self._directory.prune()
        except (OSError, errors.CheckpointError) as error:
            self._on_error(f"old checkpoints in {self._directory.path} could not be deleted: {error}")
        if is_durable:
            self._on_durable(save.step)  # after what went wrong with others: this one is saved
            if self._uploader is not None:
                self._uploader.prune(save.step)
        _trim_heap()

    def _write_best(self) -> None:
        if not self._best:  # an earlier call has written a later one
            return
        step, parts, info = self._best.pop()
        try:
            self._directory.write_best(step, parts, info)
        except _FAILURES as error:
            self._on_error(_failure(self._directory, f"the best checkpoint, {step},", error))

    def _write_frozen(self, name: str) -> None:
        try:
            self._directory.write_frozen(name)
        except Exception as error:  # such as MemoryError: whatever it is, the next save writes the player, or fails
            self._on_error(_failure(self._directory, f"the frozen player {name}", error))


def _upload(uploader: Uploader | None, step: int, report: Callable[[str], None]) -> str:
    """Uploads a checkpoint if the run is in a bucket; returns why it could not be uploaded, or ""."""
    try:
        if uploader is not None:
            uploader.upload(step)
    except _FAILURES as error:
        report(
            f"checkpoint {step} could not be uploaded: {error}; it is kept on this machine, "
            f"training continues, and the next checkpoint brings what is missing"
        )
        return _reason(error)
    return ""


def _settle(peers: Peers | None, step: int, problem: str, report: Callable[[str], None]) -> bool:
    """Tells the other hosts how a checkpoint went here; returns whether it counts, on all hosts."""
    if peers is None:
        return not problem
    missing = peers.settle(step, problem)
    if missing and not problem:  # else it has been reported
        report(f"{missing}, so it does not count; training continues, and all hosts try the next one")
    return not missing


def _wait_for(*pending: concurrent.futures.Future[Any] | None) -> None:
    for one in pending:
        if one is not None:
            one.result()


def _failure(directory: checkpoint_dir.CheckpointDir, subject: str, error: BaseException) -> str:
    """Returns the sentence about a failed save."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "free some space there" if full or "No space left" in str(error) else "see whether it can be written"
    newest = directory.newest.step
    kept = "there is no earlier one" if newest is None else f"{newest} is kept"
    return (
        f"{subject} could not be written to {directory.path}: {_reason(error)}; {advice}; {kept}; "
        f"training continues, and the next checkpoint is tried as planned"
    )


def _reason(error: BaseException) -> str:
    """Returns the reason of a failure, without the settings that tensorstore adds."""
    return str(error).partition(" [tensorstore_spec=")[0] or type(error).__name__


def _trim_heap() -> None:
    """Returns freed memory to the system; no effect without glibc.

    Writing a checkpoint frees hundreds of megabytes in pieces, and glibc would keep them in the thread's own heap.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
