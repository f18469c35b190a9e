"""Frozen players: whole or named, in every checkpoint that needs them, and gone once none does."""

import dataclasses
import errno
import os
import pathlib
import secrets
import shutil
import threading
from collections.abc import Callable, Collection
from typing import Any

import checkpoint_harness as harness
import golden
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorstore

from seedzero.checkpoints import checkpoint, durable, manifest, player_files, segments, trees
from seedzero.checkpoints import checkpointer as checkpointers
from seedzero.checkpoints import files as saved_files
from seedzero.config import sections
from seedzero.core import errors

ONE, TWO, THREE = (f"main-{digit * 12}" for digit in "123")
LIKE = {"w": jax.ShapeDtypeStruct((3,), np.float32)}
STATE = {"params": jnp.zeros(1)}


def params(value: float) -> dict[str, jax.Array]:
    return {"w": jnp.full(3, value, jnp.float32)}


def value_of(directory: pathlib.Path, name: str) -> float:
    return float(player_files.read(directory, name, LIKE).params["w"][2])


def restore(checkpointer: checkpointers.Checkpointer, **options: bool) -> checkpoint.Restored:
    """Restores as a learner at its start."""
    restored = checkpoint.restore(checkpointer._directory.path, harness.abstract(STATE), None, **options)
    assert restored is not None
    checkpointer.continue_from(restored)
    return restored


def fill_disk(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Fails the last flush of every new directory of a kind."""
    flush_tree = durable.flush_tree

    def full(path: pathlib.Path) -> None:
        if path.parent.name == kind:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush_tree(path)

    monkeypatch.setattr(durable, "flush_tree", full)


def flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture
def league(reopen: harness.Open, tmp_path: pathlib.Path) -> dict[str, manifest.Files]:
    """Two durable steps with a replay: the first needs one frozen player, the second one more."""
    checkpointer, rings = reopen(), harness.go_on(harness.make_rings(), np.random.default_rng(0), 5)
    for step, name in ((1, ONE), (2, TWO)):
        checkpointer.freeze(name, step, params(step), {"parent": "main"})
        checkpointer.save(step, STATE, {"step": step}, rings, [ONE, TWO][:step])
    checkpointer.wait()
    return dict(manifest.read(saved_files.step_directory(tmp_path, 2)).frozen)


# ------------------------------------------------------------------------------------ files


def test_a_player_comes_back_bit_for_bit(tmp_path: pathlib.Path) -> None:
    original = harness.make_state()["params"]
    files = player_files.write(tmp_path, ONE, 7, trees.copy(original), {"parent": None}, time=1.5)
    found = player_files.read(tmp_path, ONE, harness.abstract(original))
    harness.assert_same(found.params, harness.on_host(original))
    assert (found.step, found.info) == (7, {"parent": None})
    assert files == durable.checksums(tmp_path / "frozen" / ONE) and manifest.NAME in files
    assert player_files.names(tmp_path) == [ONE]
    with pytest.raises(errors.ResumeError, match="params/w"):
        player_files.read(tmp_path, ONE, LIKE)


def test_statistics_come_back_where_there_are_some(tmp_path: pathlib.Path) -> None:
    scales = {"returns": {"mean": np.arange(2, dtype=np.float32)}}
    player_files.write(tmp_path, ONE, 7, params(1), {}, time=0.0, scales=scales)
    player_files.write(tmp_path, TWO, 7, params(1), {}, time=0.0)  # as an earlier version did
    found = [player_files.read(tmp_path, name, LIKE, scales).scales for name in (ONE, TWO)]
    harness.assert_same(found[0], scales)
    assert found[1] == {} == player_files.read(tmp_path, ONE, LIKE).scales


@pytest.mark.parametrize("name", ["main", "../steps-0123456789ab", "main-0123456789AB", "a/b-0123456789ab", ""])
def test_another_name_is_refused(name: str, tmp_path: pathlib.Path, said: golden.Said) -> None:
    with said.raises(errors.CheckpointError, "PLAYER-0123456789ab", replace={repr(name): "NAME"}):
        player_files.write(tmp_path, name, 7, params(1), {}, time=0.0)
    with pytest.raises(errors.CheckpointError, match="is not there"):
        player_files.read(tmp_path, name, LIKE)
    assert list(tmp_path.iterdir()) == []


def test_a_player_is_durable_once_its_rename_is_flushed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    flush, rename = durable.flush, pathlib.Path.rename

    def noted_flush(path: pathlib.Path) -> None:
        order.append(f"flush {path.name}")
        flush(path)

    def noted_rename(path: pathlib.Path, to: pathlib.Path) -> pathlib.Path:
        order.append(f"rename to {to.name}")
        return rename(path, to)

    monkeypatch.setattr(durable, "flush", noted_flush)
    monkeypatch.setattr(pathlib.Path, "rename", noted_rename)
    player_files.write(tmp_path, ONE, 7, params(1), {}, time=0.0)
    assert order[0] == f"flush {tmp_path.name}" and "flush manifest.json" in order
    assert order[-2:] == [f"rename to {ONE}", "flush frozen"]


def test_a_full_disk_leaves_the_other_players_and_no_rest(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player_files.write(tmp_path, ONE, 7, params(1), {}, time=0.0)
    before = harness.files_below(tmp_path)
    fill_disk(monkeypatch, "frozen")
    for name in (ONE, TWO):
        with pytest.raises(OSError, match="No space left"):
            player_files.write(tmp_path, name, 8, params(2), {}, time=0.0)
    assert harness.files_below(tmp_path) == before and value_of(tmp_path, ONE) == 1


def test_a_flipped_bit_in_any_file_names_player_and_file(tmp_path: pathlib.Path) -> None:
    frozen = {name: player_files.write(tmp_path, name, 7, params(1), {}, time=0.0) for name in (ONE, TWO)}
    for file in frozen[ONE]:
        path = tmp_path / "frozen" / ONE / file
        good = path.read_bytes()
        flip(path)
        with pytest.raises(errors.CheckpointError, match=ONE) as raised:
            player_files.read(tmp_path, ONE, LIKE)
        assert file in str(raised.value) and f"others there: {TWO}" in str(raised.value)
        whole, problems = player_files.usable(tmp_path, frozen)
        assert whole == {TWO: frozen[TWO]}
        assert len(problems) == 1 and f"{ONE}/{file} is damaged" in problems[0]
        path.write_bytes(good)
    assert player_files.usable(tmp_path, frozen) == (frozen, [])


@pytest.mark.parametrize("damage", ["shorter", "missing", "gone", "another"])
def test_a_damaged_player_is_named_with_the_finding_and_the_next_step(
    damage: str, tmp_path: pathlib.Path, said: golden.Said
) -> None:
    path = tmp_path / "frozen" / ONE
    frozen = {name: player_files.write(tmp_path, name, 7, params(1), {}, time=0.0) for name in (ONE, TWO)}
    if damage == "shorter":
        (path / manifest.NAME).write_bytes(b"{}")
    elif damage == "missing":
        (path / "params" / "manifest.ocdbt").unlink()
    else:
        shutil.rmtree(path)
        if damage == "another":
            shutil.copytree(tmp_path / "frozen" / TWO, path)
    with said.raises(errors.CheckpointError, ONE, damage):
        player_files.read(tmp_path, ONE, LIKE)
    for content in (False, True):
        whole, problems = player_files.usable(tmp_path, frozen, content=content)
        assert whole == {TWO: frozen[TWO]} and len(problems) == 1 and ONE in problems[0]
    size = str(frozen[ONE][manifest.NAME].num_bytes)
    said("\n".join(problems), f"usable {damage}", replace={size: "SIZE"})


# ------------------------------------------------------------------------------------ in checkpoints


def test_a_frozen_player_is_written_beside_training_and_named_by_the_next_checkpoint(
    reopen: harness.Open, events: harness.Events, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, real = threading.Event(), player_files.write

    def late(*args: Any, **options: Any) -> manifest.Files:
        assert gone.wait(30)
        return real(*args, **options)

    monkeypatch.setattr(player_files, "write", late)
    checkpointer, original = reopen(), params(1)
    assert checkpointer.freeze(ONE, 7, original, {"parent": "main"})  # does not wait for the disk
    after = harness.increment(original)
    assert original["w"].is_deleted() and player_files.names(tmp_path) == []
    gone.set()
    checkpointer.save(9, STATE, {}, None, [ONE])
    checkpointer.wait()
    assert (events.durable, events.errors) == ([9], []) and float(after["w"][0]) == 2
    found = manifest.read(saved_files.step_directory(tmp_path, 9))
    assert found.frozen == {ONE: durable.checksums(tmp_path / "frozen" / ONE)}
    restored = restore(reopen())
    assert list(restored.frozen) == [ONE] and restored.losses == []
    assert value_of(tmp_path, ONE) == 1 and player_files.read(tmp_path, ONE, LIKE).info == {"parent": "main"}


def test_a_run_without_frozen_players_has_neither_directory_nor_field(
    reopen: harness.Open, tmp_path: pathlib.Path
) -> None:
    checkpointer = reopen()
    checkpointer.save(1, STATE, {}, None)
    checkpointer.save_state(2, STATE, {})
    checkpointer.wait()
    reopen()
    assert not (tmp_path / "frozen").exists()
    written = [path.read_text() for path in tmp_path.rglob(manifest.NAME)]
    assert len(written) == 2 and not any("frozen" in text for text in written)


def test_a_start_deletes_players_that_no_checkpoint_needs_and_nothing_else(
    reopen: harness.Open, league: dict[str, manifest.Files], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "frozen" / "mine").mkdir()
    before = harness.files_below(tmp_path)
    checkpointer = reopen()
    checkpointer.freeze(THREE, 3, params(3), {})
    checkpointer.wait()
    shutil.copytree(tmp_path / "frozen" / THREE, tmp_path / "frozen" / f"{THREE}.12345678.tmp")
    checkpointer = reopen()
    assert harness.files_below(tmp_path) == before
    assert restore(checkpointer).frozen == league


def test_a_start_that_cannot_read_a_manifest_deletes_no_player(
    reopen: harness.Open, league: dict[str, manifest.Files], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        harness.unreadable_manifests(patched)
        with pytest.raises(errors.CheckpointError, match="Input/output error"):
            reopen()
    assert player_files.names(tmp_path) == [ONE, TWO]
    assert restore(reopen()).frozen == league


def test_a_player_stays_until_the_last_checkpoint_that_needs_it_goes(
    reopen: harness.Open, tmp_path: pathlib.Path
) -> None:
    checkpointer = reopen(keep=2, keep_every=3)
    there = []
    for step in range(1, 7):
        name = f"main-{step:012d}"
        checkpointer.freeze(name, step, params(step), {})
        checkpointer.save(step, STATE, {}, None, [name])
        checkpointer.wait()
        there.append([int(name[-1]) for name in player_files.names(tmp_path)])
    assert there == [[1], [1, 2], [2, 3], [3, 4], [3, 4, 5], [3, 5, 6]]  # as the steps
    restore(reopen(keep=2))
    assert player_files.names(tmp_path) == [f"main-{step:012d}" for step in (3, 5, 6)]


def test_a_player_that_the_best_checkpoint_names_stays(reopen: harness.Open, tmp_path: pathlib.Path) -> None:
    checkpointer = reopen(keep=1)
    checkpointer.freeze(ONE, 1, params(1), {})
    checkpointer.save(1, STATE, {}, None, [ONE])
    checkpointer.save_best(1, params(1), {})
    checkpointer.wait()
    best, step = tmp_path / "best" / f"{1:012d}", saved_files.step_directory(tmp_path, 1)
    manifest.write(best, dataclasses.replace(manifest.read(best), frozen=manifest.read(step).frozen))
    checkpointer.save(2, STATE, {}, None)
    checkpointer.wait()
    assert player_files.names(tmp_path) == [ONE] and saved_files.finished(tmp_path / "steps") == [2]


def test_a_player_that_is_frozen_while_a_save_goes_on_is_kept_for_the_next(
    reopen: harness.Open, events: harness.Events, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, real = threading.Event(), trees.save

    def slow(directory: pathlib.Path, tree: Any) -> None:
        assert directory.parent.parent.name == "frozen" or disk.wait(30)
        real(directory, tree)

    monkeypatch.setattr(trees, "save", slow)
    checkpointer = reopen(keep=1)
    checkpointer.freeze(ONE, 1, params(1), {})
    checkpointer.save(1, STATE, {}, None, [])  # gives the first one up, and knows nothing of the second
    checkpointer.freeze(TWO, 2, params(2), {})
    disk.set()
    checkpointer.save(2, STATE, {}, None, [])  # gives that up, too; the third is frozen meanwhile
    checkpointer.freeze(THREE, 3, params(3), {})
    checkpointer.wait()
    assert player_files.names(tmp_path) == [THREE]
    checkpointer.save(3, STATE, {}, None, [THREE])
    checkpointer.wait()
    assert events.errors == [] and list(restore(reopen()).frozen) == [THREE]


def test_a_name_that_a_save_does_not_know_fails_it_by_name(
    reopen: harness.Open,
    league: dict[str, manifest.Files],
    events: harness.Events,
    tmp_path: pathlib.Path,
    said: golden.Said,
) -> None:
    checkpointer = reopen()
    restore(checkpointer)
    checkpointer.save(3, STATE, {}, None, [ONE, THREE])
    checkpointer.wait()
    checkpointer.save_state(3, STATE, {}, [ONE, THREE])
    assert events.durable == [1, 2] and len(events.errors) == 2
    assert all("checkpoint 3 " in text and f"player {THREE} is unknown" in text for text in events.errors)
    said(events.errors[0])
    checkpointer.save(3, STATE, {}, None, [ONE, TWO])
    checkpointer.wait()
    assert events.durable == [1, 2, 3] and restore(reopen()).frozen == league


def test_a_state_of_a_stop_has_the_players_that_wait_behind_a_long_save(
    reopen: harness.Open, events: harness.Events, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, write = threading.Event(), segments.write

    def slow(*args: Any) -> segments.Segment:
        assert disk.wait(60)
        return write(*args)

    monkeypatch.setattr(segments, "write", slow)
    rings, checkpointer = harness.go_on(harness.make_rings(), np.random.default_rng(0), 5), reopen(keep=1)
    checkpointer.save(1, STATE, {}, rings)
    checkpointer.freeze(ONE, 2, params(2), {})
    checkpointer.save_state(2, STATE, {}, [ONE])
    assert events.durable == [2] and checkpointer.busy and value_of(tmp_path, ONE) == 2
    disk.set()
    checkpointer.wait()
    assert (events.durable, events.errors) == ([2, 1], [])
    restored = restore(reopen())
    assert (restored.step, list(restored.frozen), restored.losses) == (2, [ONE], [])


def test_players_that_wait_for_the_disk_are_bounded(
    reopen: harness.Open, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, real = threading.Semaphore(0), player_files.write

    def slow(*args: Any, **options: Any) -> manifest.Files:
        assert may_write.acquire(timeout=30)
        return real(*args, **options)

    monkeypatch.setattr(player_files, "write", slow)
    checkpointer, names = reopen(), [f"main-{number:012x}" for number in range(checkpointers.MAX_FREEZES + 1)]
    *first, last = names
    for name in first:
        assert checkpointer.freeze(name, 1, params(1), {})
    assert checkpointer._directory.num_unwritten() == checkpointers.MAX_FREEZES
    ended = threading.Event()
    freezing = threading.Thread(target=lambda: checkpointer.freeze(last, 1, params(1), {}) and ended.set())
    freezing.start()
    assert not ended.wait(0.2)
    may_write.release()
    assert ended.wait(30)
    freezing.join()
    for _ in first:
        may_write.release()
    checkpointer.wait()
    assert player_files.names(tmp_path) == sorted(names) and checkpointer._directory.num_unwritten() == 0


# ------------------------------------------------------------------------------------ failures


def test_a_player_that_a_full_disk_refuses_is_written_with_the_next_checkpoint(
    reopen: harness.Open,
    events: harness.Events,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    said: golden.Said,
) -> None:
    checkpointer = reopen()
    checkpointer.freeze(ONE, 1, params(1), {})
    checkpointer.save(1, STATE, {}, None, [ONE])
    checkpointer.wait()
    before = harness.files_below(tmp_path)
    with monkeypatch.context() as patched:
        fill_disk(patched, "frozen")
        assert checkpointer.freeze(TWO, 2, params(2), {})
        checkpointer.wait()
        (told,) = events.errors
        assert f"player {TWO} " in told and str(tmp_path) in told and "No space left" in told
        said(told, "freeze")
        checkpointer.save(2, STATE, {}, None, [ONE, TWO])
        checkpointer.wait()
        assert "checkpoint 2 " in events.errors[1] and "No space left" in events.errors[1]
        assert harness.files_below(tmp_path) == before and events.durable == [1]
        for number in range(checkpointers.MAX_FREEZES):
            taken = checkpointer.freeze(f"more-{number:012d}", 2, params(2), {})
            assert taken == (number < checkpointers.MAX_FREEZES - 1)
        said(events.errors[-1], "too many")
    checkpointer.save(3, STATE, {}, None, [ONE, TWO])
    checkpointer.wait()
    assert events.durable == [1, 3] and list(restore(reopen()).frozen) == [ONE, TWO]
    assert (value_of(tmp_path, ONE), value_of(tmp_path, TWO)) == (1, 2)
    assert player_files.names(tmp_path) == [ONE, TWO]


def test_a_player_whose_checkpoint_cannot_be_written_waits_for_the_next(
    reopen: harness.Open, events: harness.Events, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer = reopen()
    checkpointer.save(1, STATE, {}, None)
    checkpointer.wait()
    checkpointer.freeze(ONE, 1, params(1), {})
    with monkeypatch.context() as patched:
        fill_disk(patched, "steps")
        checkpointer.save(2, STATE, {}, None, [ONE])
        checkpointer.wait()
    assert events.durable == [1] and player_files.names(tmp_path) == [ONE]
    checkpointer.save(3, STATE, {}, None, [ONE])
    checkpointer.wait()
    assert events.durable == [1, 3] and list(restore(reopen()).frozen) == [ONE]


def test_any_failure_of_a_write_is_told_and_the_device_s_failure_refuses(
    reopen: harness.Open, events: harness.Events, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> Callable[..., Any]:
        def raise_it(*args: Any, **options: Any) -> Any:
            raise error

        return raise_it

    checkpointer = reopen()
    with monkeypatch.context() as patched:
        patched.setattr(player_files, "write", fail(MemoryError("no 64 MiB")))
        assert checkpointer.freeze(ONE, 1, params(1), {})
        checkpointer.wait()
    with monkeypatch.context() as patched:
        patched.setattr(trees, "copy", fail(RuntimeError("out of memory on the device")))
        assert not checkpointer.freeze(TWO, 1, params(1), {})
    assert [ONE in events.errors[0], TWO in events.errors[1]] == [True, True]
    checkpointer.save(1, STATE, {}, None, [ONE])
    checkpointer.wait()
    assert len(events.errors) == 2 and player_files.names(tmp_path) == [ONE]


@pytest.mark.parametrize("damage", ["flipped", "missing", "gone"])
def test_a_damaged_player_costs_nothing_else(
    damage: str,
    reopen: harness.Open,
    league: dict[str, manifest.Files],
    events: harness.Events,
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "frozen" / TWO
    if damage == "gone":
        shutil.rmtree(path)
    else:
        flip(path / manifest.NAME) if damage == "flipped" else (path / manifest.NAME).unlink()
    checkpointer, rings = reopen(), harness.go_on(harness.make_rings(), np.random.default_rng(0), 5)
    restored = harness.restore(checkpointer, STATE, rings)
    assert (restored.step, restored.frozen) == (2, {ONE: league[ONE]})
    harness.assert_same(harness.on_host(restored.rings), harness.on_host(rings))
    (loss,) = restored.losses
    assert f"player {TWO} " in loss and str(path) in loss
    rows = saved_files.list_steps(tmp_path, content=True)
    assert [row["ok"] for row in rows] == [True, False] and TWO in rows[1]["reason"]
    # Where the run must be the same, an earlier checkpoint without the player is taken.
    earlier = checkpoint.restore(tmp_path, harness.abstract(STATE), None, needs_replay=True)
    assert earlier is not None and earlier.step == 1 and TWO in earlier.losses[0]
    with pytest.raises(errors.CheckpointError, match=TWO):
        saved_files.find(tmp_path, 2)
    # The run goes on without it.
    for step in (3, 4, 5):
        checkpointer.save(step, STATE, {}, None, list(restored.frozen))
    checkpointer.wait()
    assert events.errors == [] and player_files.names(tmp_path) == [ONE]
    assert restore(reopen()).losses == []


def test_a_player_that_vanishes_from_a_running_league_is_named_at_each_checkpoint(
    reopen: harness.Open,
    league: dict[str, manifest.Files],
    events: harness.Events,
    tmp_path: pathlib.Path,
    said: golden.Said,
) -> None:
    checkpointer = reopen()
    restore(checkpointer)
    away = shutil.move(tmp_path / "frozen" / TWO, tmp_path / "away")
    checkpointer.save(3, STATE, {}, None, [ONE, TWO])
    checkpointer.wait()
    checkpointer.save_state(4, STATE, {}, [ONE, TWO])
    assert events.durable == [1, 2, 3, 4] and len(events.errors) == 2 and events.errors[0] == events.errors[1]
    said(events.errors[0])
    assert restore(checkpointer).frozen == {ONE: league[ONE]}
    shutil.move(away, tmp_path / "frozen" / TWO)
    assert restore(reopen()).frozen == league


# ------------------------------------------------------------------------------------ after a resume


@pytest.mark.parametrize("part", ["manifest.json", "params/manifest.ocdbt"])
def test_after_a_resume_from_an_earlier_checkpoint_a_derived_name_is_taken_anew(
    part: str, reopen: harness.Open, league: dict[str, manifest.Files], events: harness.Events, tmp_path: pathlib.Path
) -> None:
    (saved_files.step_directory(tmp_path, 2) / part).unlink()
    checkpointer = reopen()
    restored = restore(checkpointer)
    assert (restored.step, list(restored.frozen)) == (1, [ONE])
    with pytest.raises(errors.CheckpointError, match=ONE):
        checkpointer.freeze(ONE, 2, params(9), {})
    assert checkpointer.freeze(TWO, 2, params(9), {})
    checkpointer.save(2, STATE, {}, None, [ONE, TWO])
    checkpointer.wait()
    assert events.errors == [] and restore(reopen()).step == 2
    assert (value_of(tmp_path, ONE), value_of(tmp_path, TWO)) == (1, 9)


def test_a_name_that_an_older_checkpoint_needs_is_refused_by_name(
    reopen: harness.Open, league: dict[str, manifest.Files], tmp_path: pathlib.Path, said: golden.Said
) -> None:
    checkpointer = reopen()
    with pytest.raises(errors.CheckpointError, match=ONE):  # before the newest is known, all count
        checkpointer.freeze(ONE, 2, params(9), {})
    restore(checkpointer)
    checkpointer.save(3, STATE, {}, None, [TWO])  # gives the first one up, which the second checkpoint needs
    checkpointer.wait()
    assert saved_files.finished(tmp_path / "steps") == [1, 2, 3]
    for name in (ONE, TWO):
        with pytest.raises(errors.CheckpointError, match=name) as raised:
            checkpointer.freeze(name, 3, params(9), {})
    said(raised.value)
    assert (value_of(tmp_path, ONE), value_of(tmp_path, TWO)) == (1, 2)


# ------------------------------------------------------------------------------------ kills


class Killed(BaseException): ...


class Process:
    """A process that dies at its Nth change of the disk: that change and all later changes are not made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.num_changes, self._last = 0, last
        changes = [(durable, name) for name in ("flush", "flush_tree", "_exchange")]
        for place, name in (*changes, (pathlib.Path, "rename"), (shutil, "rmtree")):
            monkeypatch.setattr(place, name, self._counted(getattr(place, name)))

    @property
    def is_dead(self) -> bool:
        return self.num_changes > self._last

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.num_changes += 1
            if self.is_dead:
                raise Killed
            return change(*args, **options)

        return counted


def run_until_killed(directory: pathlib.Path, durable_steps: list[int]) -> None:
    """A league of four checkpoints: a player more at each, and without the oldest from the third on."""
    checkpointer = checkpointers.Checkpointer(
        directory, sections.CheckpointConfig(keep=1), on_durable=durable_steps.append, on_error=pytest.fail
    )
    try:
        for step in range(1, 5):
            pool = pool_of(step)
            checkpointer.freeze(pool[-1], step, params(step), {})
            checkpointer.save(step, {"params": jnp.full(1, step)}, {"pool": pool}, None, pool)
        checkpointer.wait()
    finally:
        checkpointer._thread.shutdown()


def pool_of(step: int) -> list[str]:
    return [f"main-{number:012d}" for number in range(max(1, step - 1), step + 1)]


def assert_whole(directory: pathlib.Path, durable_steps: list[int]) -> None:
    """Asserts that a start finds the last durable point, each player of its pool, and nothing else."""
    checkpointer = checkpointers.Checkpointer(
        directory, sections.CheckpointConfig(keep=1), on_durable=durable_steps.append, on_error=pytest.fail
    )
    restored = checkpoint.restore(directory, harness.abstract({"params": jnp.full(1, 0)}), None)
    needed: set[str] = set()
    if restored is None:
        assert not durable_steps
    else:
        checkpointer.continue_from(restored)
        assert restored.losses == [] and restored.step >= max(durable_steps, default=0)
        assert list(restored.frozen) == restored.host["pool"] == pool_of(restored.step)
        assert restored.state["params"].tolist() == [restored.step]
        needed = {name for found in saved_files.manifests(directory) for name in found.frozen}
    root = directory / "frozen"
    assert {path.name for path in root.iterdir()} == needed if root.exists() else not needed
    for name in needed:
        assert value_of(directory, name) == int(name.rpartition("-")[2])
    assert all(row["ok"] for row in saved_files.list_steps(directory, content=True))
    # Names that follow from the seed come again.
    for step in range(1 if restored is None else restored.step + 1, 6):
        pool = pool_of(step)
        assert checkpointer.freeze(pool[-1], step, params(step), {})
        checkpointer.save(step, {"params": jnp.full(1, step)}, {"pool": pool}, None, pool)
    checkpointer.close()
    assert player_files.names(directory) == pool_of(5)


@pytest.mark.parametrize("stride", [pytest.param(4, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_a_kill_between_any_two_changes_of_the_disk_loses_no_player_and_leaves_none(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    context = tensorstore.Context({"file_io_sync": False})  # a kill loses no write that was made
    monkeypatch.setattr(tensorstore, "Context", lambda: context)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    with monkeypatch.context() as patched:
        process = Process(patched, 10_000)
        run_until_killed(tmp_path / "whole", [])
    assert process.num_changes > 40
    for last in range(0, process.num_changes, stride):
        directory, durable_steps = tmp_path / str(last), list[int]()
        with monkeypatch.context() as patched:
            process = Process(patched, last)
            with pytest.raises(Killed):
                run_until_killed(directory, durable_steps)
            assert process.is_dead
        assert_whole(directory, durable_steps)


def test_pools_of_random_saves_and_resumes_are_always_whole(reopen: harness.Open, tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(3)
    checkpointer, pool, pools = reopen(keep=2), dict[str, float](), dict[int, dict[str, float]]()
    for step in range(1, 25):
        for _ in range(int(rng.integers(0, 3))):
            name = f"main-{secrets.token_hex(6)}"
            checkpointer.freeze(name, step, params(step), {})
            pool[name] = step
        pool = {name: pool[name] for name in pool if rng.random() < 0.8}
        checkpointer.save(step, STATE, {}, None, list(pool))
        pools[step] = dict(pool)
        if rng.random() < 0.3:
            checkpointer.freeze(f"lost-{secrets.token_hex(6)}", step, params(step), {})
            checkpointer = reopen(keep=2)
            assert set(restore(checkpointer).frozen) == set(pool)
            _assert_named(tmp_path, pools)
    checkpointer.wait()
    _assert_named(tmp_path, pools)


def _assert_named(directory: pathlib.Path, pools: dict[int, dict[str, float]]) -> None:
    kept: Collection[int] = saved_files.finished(directory / "steps")
    expected = {name: value for step in kept for name, value in pools[step].items()}
    assert player_files.names(directory) == sorted(expected)
    assert {name: value_of(directory, name) for name in expected} == expected
