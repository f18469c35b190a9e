"""Frozen players: whole or named, in every checkpoint that needs them, and gone once none does."""

import dataclasses
import os
import pathlib
import secrets
import shutil
import threading
from collections.abc import Callable, Collection
from typing import Any

import checkpoint_harness as harness
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorstore

from seedzero.config import sections
from seedzero.core import errors
from seedzero.replay import ring_store
from seedzero.storage.checkpoints import (
    checkpoint,
    checkpointers,
    durable,
    manifest,
    player_files,
    saved_files,
    segments,
    trees,
)

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


def flip(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


League = dict[str, manifest.Files]


@pytest.fixture
def league(disk: harness.Disk) -> League:
    """Two durable steps with a replay: the first needs one frozen player, the second one more."""
    checkpointer, rings = disk.open(), harness.filled(5)
    for step, name in ((1, ONE), (2, TWO)):
        checkpointer.freeze(name, step, params(step), {"parent": "main"})
        checkpointer.save(step, STATE, {"step": step}, rings, [ONE, TWO][:step])
    checkpointer.wait()
    return dict(manifest.read(disk.step(2)).frozen)


# ------------------------------------------------------------------------------------ files


def test_a_player_comes_back_bit_for_bit(tmp_path: pathlib.Path) -> None:
    original = harness.make_state()["params"]
    files = player_files.write(tmp_path, ONE, 7, trees.copy(original), {"parent": None}, time=1.5)
    found = player_files.read(tmp_path, ONE, harness.abstract(original))
    harness.assert_same(found.params, original)
    assert (found.step, found.info) == (7, {"parent": None})
    assert files == durable.checksums(tmp_path / "frozen" / ONE) and manifest.NAME in files
    assert player_files.names(tmp_path) == [ONE]
    with pytest.raises(errors.ResumeError, match="params/w"):
        player_files.read(tmp_path, ONE, LIKE)


def test_statistics_come_back_where_there_are_some(tmp_path: pathlib.Path) -> None:
    scales = {"returns": {"mean": np.arange(2, dtype=np.float32)}}
    player_files.write(tmp_path, ONE, 7, params(1), {}, time=0.0, scales=scales)
    player_files.write(tmp_path, TWO, 7, params(1), {}, time=0.0)  # as an agent without statistics does
    found = [player_files.read(tmp_path, name, LIKE, scales).scales for name in (ONE, TWO)]
    harness.assert_same(found[0], scales)
    assert found[1] == {} == player_files.read(tmp_path, ONE, LIKE).scales


@pytest.mark.parametrize("name", ["main", "../steps-0123456789ab", "main-0123456789AB", "a/b-0123456789ab", ""])
def test_another_name_is_refused(name: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CheckpointError, match="PLAYER-0123456789ab"):
        player_files.write(tmp_path, name, 7, params(1), {}, time=0.0)
    with pytest.raises(errors.CheckpointError, match="is not there"):
        player_files.read(tmp_path, name, LIKE)
    assert list(tmp_path.iterdir()) == []


def test_a_player_is_durable_once_its_rename_is_flushed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = harness.changes(monkeypatch)
    player_files.write(tmp_path, ONE, 7, params(1), {}, time=0.0)
    assert order[0] == f"flush {tmp_path.name}" and "flush manifest.json" in order
    assert order[-2:] == [f"rename to {ONE}", "flush frozen"]


def test_a_full_disk_leaves_the_other_players_and_no_rest(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player_files.write(tmp_path, ONE, 7, params(1), {}, time=0.0)
    before = harness.files_below(tmp_path)
    harness.fill_disk(monkeypatch, "frozen")
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


@pytest.mark.parametrize(
    ("damage", "read", "found"),
    [
        ("shorter", "manifest.json is damaged: it lacks 'body'", "manifest.json is damaged: 2 bytes, expected "),
        ("missing", "params/manifest.ocdbt cannot be read: No such file", "params/manifest.ocdbt cannot be read"),
        ("gone", "it is not there", "manifest.json cannot be read: No such file"),
        ("another", f"manifest.json is that of {TWO}", ""),
    ],
)
def test_a_damaged_player_is_named_with_the_finding_and_the_next_step(
    damage: str, read: str, found: str, tmp_path: pathlib.Path
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
    with pytest.raises(errors.CheckpointError, match=f"{ONE} in .*{read}.*; others there: {TWO}$"):
        player_files.read(tmp_path, ONE, LIKE)
    for content in (False, True):
        whole, problems = player_files.usable(tmp_path, frozen, content=content)
        assert whole == {TWO: frozen[TWO]} and len(problems) == 1
        assert f"{ONE} cannot be used: {ONE}/{found}" in problems[0] and f" into {path} " in problems[0]


# ------------------------------------------------------------------------------------ in checkpoints


def test_a_frozen_player_is_written_beside_training_and_named_by_the_next_checkpoint(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = harness.Gate(monkeypatch, player_files, "write")
    checkpointer, original = disk.open(), params(1)
    assert checkpointer.freeze(ONE, 7, original, {"parent": "main"})  # does not wait for the disk
    after = harness.increment(original)
    assert original["w"].is_deleted() and player_files.names(disk.path) == []
    gone.open()
    disk.save(9, STATE, {}, None, [ONE])
    assert (disk.durable, disk.errors) == ([9], []) and float(after["w"][0]) == 2
    found = manifest.read(disk.step(9))
    assert found.frozen == {ONE: durable.checksums(disk.path / "frozen" / ONE)}
    restored = restore(disk.open())
    assert list(restored.frozen) == [ONE] and restored.losses == []
    assert value_of(disk.path, ONE) == 1 and player_files.read(disk.path, ONE, LIKE).info == {"parent": "main"}


def test_a_run_without_frozen_players_has_neither_directory_nor_field(disk: harness.Disk) -> None:
    checkpointer = disk.open()
    checkpointer.save(1, STATE, {}, None)
    checkpointer.save_state(2, STATE, {})
    checkpointer.wait()
    disk.open()
    assert not (disk.path / "frozen").exists()
    written = [path.read_text() for path in disk.path.rglob(manifest.NAME)]
    assert len(written) == 2 and not any("frozen" in text for text in written)


def test_a_start_deletes_players_that_no_checkpoint_needs_and_nothing_else(disk: harness.Disk, league: League) -> None:
    (disk.path / "frozen" / "mine").mkdir()
    before = harness.files_below(disk.path)
    checkpointer = disk.open()
    checkpointer.freeze(THREE, 3, params(3), {})
    checkpointer.wait()
    shutil.copytree(disk.path / "frozen" / THREE, disk.path / "frozen" / f"{THREE}.12345678.tmp")
    checkpointer = disk.open()
    assert harness.files_below(disk.path) == before
    assert restore(checkpointer).frozen == league


def test_a_start_that_cannot_read_a_manifest_deletes_nothing_and_is_refused(
    disk: harness.Disk, league: League, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, rings = harness.files_below(disk.path), harness.filled(5)
    with monkeypatch.context() as patched:
        harness.unreadable_manifests(patched)
        with pytest.raises(errors.CheckpointError, match=r"0001/manifest\.json .*Input/output error"):
            disk.open()
    assert harness.files_below(disk.path) == before
    restored = harness.restore(disk.open(), STATE, rings)
    assert (restored.losses, restored.frozen) == ([], league)
    harness.assert_same(restored.rings, rings)


def test_a_player_stays_until_the_last_checkpoint_that_needs_it_goes(disk: harness.Disk) -> None:
    checkpointer = disk.open(keep=2, keep_every=3)
    there = []
    for step in range(1, 7):
        name = f"main-{step:012d}"
        checkpointer.freeze(name, step, params(step), {})
        disk.save(step, STATE, {}, None, [name])
        there.append([int(name[-1]) for name in player_files.names(disk.path)])
    assert there == [[1], [1, 2], [2, 3], [3, 4], [3, 4, 5], [3, 5, 6]]  # as the steps
    restore(disk.open(keep=2))
    assert player_files.names(disk.path) == [f"main-{step:012d}" for step in (3, 5, 6)]


def test_a_player_that_the_best_checkpoint_names_stays(disk: harness.Disk) -> None:
    checkpointer = disk.open(keep=1)
    checkpointer.freeze(ONE, 1, params(1), {})
    checkpointer.save(1, STATE, {}, None, [ONE])
    checkpointer.save_best(1, {"params": params(1)}, {})
    checkpointer.wait()
    best, step = disk.path / "best" / f"{1:012d}", disk.step(1)
    manifest.write(best, dataclasses.replace(manifest.read(best), frozen=manifest.read(step).frozen))
    disk.save(2, STATE, {}, None)
    assert player_files.names(disk.path) == [ONE] and disk.steps() == [2]


def test_a_player_that_is_frozen_while_a_save_goes_on_is_kept_for_the_next(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = harness.Gate(monkeypatch, trees, "save", lambda path, tree: path.parent.parent.name == "frozen")
    checkpointer = disk.open(keep=1)
    checkpointer.freeze(ONE, 1, params(1), {})
    checkpointer.save(1, STATE, {}, None, [])  # gives the first one up, and knows nothing of the second
    checkpointer.freeze(TWO, 2, params(2), {})
    saving.open()
    checkpointer.save(2, STATE, {}, None, [])  # gives that up, too; the third is frozen meanwhile
    checkpointer.freeze(THREE, 3, params(3), {})
    checkpointer.wait()
    assert player_files.names(disk.path) == [THREE]
    disk.save(3, STATE, {}, None, [THREE])
    assert disk.errors == [] and list(restore(disk.open()).frozen) == [THREE]


def test_a_name_that_a_save_does_not_know_fails_it_by_name(disk: harness.Disk, league: League) -> None:
    checkpointer = disk.open()
    restore(checkpointer)
    disk.save(3, STATE, {}, None, [ONE, THREE])
    checkpointer.save_state(3, STATE, {}, [ONE, THREE])
    assert disk.durable == [1, 2] and len(disk.errors) == 2
    assert all("checkpoint 3 " in text and f"player {THREE} is unknown" in text for text in disk.errors)
    disk.save(3, STATE, {}, None, [ONE, TWO])
    assert disk.durable == [1, 2, 3] and restore(disk.open()).frozen == league


def test_a_state_of_a_stop_has_the_players_that_wait_behind_a_long_save(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = harness.Gate(monkeypatch, segments, "write")
    rings, checkpointer = harness.filled(5), disk.open(keep=1)
    checkpointer.save(1, STATE, {}, rings)
    checkpointer.freeze(ONE, 2, params(2), {})
    checkpointer.save_state(2, STATE, {}, [ONE])
    assert disk.durable == [2] and checkpointer.busy and value_of(disk.path, ONE) == 2
    writing.open()
    checkpointer.wait()
    assert (disk.durable, disk.errors) == ([2, 1], [])
    restored = restore(disk.open())
    assert (restored.step, list(restored.frozen), restored.losses) == (2, [ONE], [])


def test_players_that_wait_for_the_disk_are_bounded(disk: harness.Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write, real = threading.Semaphore(0), player_files.write

    def slow(*args: Any, **options: Any) -> manifest.Files:
        assert may_write.acquire(timeout=30)
        return real(*args, **options)

    monkeypatch.setattr(player_files, "write", slow)
    checkpointer, names = disk.open(), [f"main-{number:012x}" for number in range(checkpointers.MAX_FREEZES + 1)]
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
    assert player_files.names(disk.path) == sorted(names) and checkpointer._directory.num_unwritten() == 0


# ------------------------------------------------------------------------------------ failures


def test_a_player_that_a_full_disk_refuses_is_written_with_the_next_checkpoint(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer = disk.open()
    checkpointer.freeze(ONE, 1, params(1), {})
    disk.save(1, STATE, {}, None, [ONE])
    before = harness.files_below(disk.path)
    with monkeypatch.context() as patched:
        harness.fill_disk(patched, "frozen")
        assert checkpointer.freeze(TWO, 2, params(2), {})
        checkpointer.wait()
        (told,) = disk.errors
        assert f"player {TWO} " in told and str(disk.path) in told and "No space left" in told
        disk.save(2, STATE, {}, None, [ONE, TWO])
        assert "checkpoint 2 " in disk.errors[1] and "No space left" in disk.errors[1]
        assert harness.files_below(disk.path) == before and disk.durable == [1]
        for number in range(checkpointers.MAX_FREEZES):
            taken = checkpointer.freeze(f"more-{number:012d}", 2, params(2), {})
            assert taken == (number < checkpointers.MAX_FREEZES - 1)
        assert f"more-{number:012d} " in disk.errors[-1] and ": 4 others wait for the disk" in disk.errors[-1]
    disk.save(3, STATE, {}, None, [ONE, TWO])
    assert disk.durable == [1, 3] and list(restore(disk.open()).frozen) == [ONE, TWO]
    assert (value_of(disk.path, ONE), value_of(disk.path, TWO)) == (1, 2)
    assert player_files.names(disk.path) == [ONE, TWO]


def test_a_player_whose_checkpoint_cannot_be_written_waits_for_the_next(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer = disk.open()
    disk.save(1, STATE, {}, None)
    checkpointer.freeze(ONE, 1, params(1), {})
    with monkeypatch.context() as patched:
        harness.fill_disk(patched, "steps")
        disk.save(2, STATE, {}, None, [ONE])
    assert disk.durable == [1] and player_files.names(disk.path) == [ONE]
    disk.save(3, STATE, {}, None, [ONE])
    assert disk.durable == [1, 3] and list(restore(disk.open()).frozen) == [ONE]


def test_any_failure_of_a_write_is_told_and_the_device_s_failure_refuses(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> Callable[..., Any]:
        def raise_it(*args: Any, **options: Any) -> Any:
            raise error

        return raise_it

    checkpointer = disk.open()
    with monkeypatch.context() as patched:
        patched.setattr(player_files, "write", fail(MemoryError("no 64 MiB")))
        assert checkpointer.freeze(ONE, 1, params(1), {})
        checkpointer.wait()
    with monkeypatch.context() as patched:
        patched.setattr(trees, "copy", fail(RuntimeError("out of memory on the device")))
        assert not checkpointer.freeze(TWO, 1, params(1), {})
    assert [ONE in disk.errors[0], TWO in disk.errors[1]] == [True, True]
    disk.save(1, STATE, {}, None, [ONE])
    assert len(disk.errors) == 2 and player_files.names(disk.path) == [ONE]


@pytest.mark.parametrize("damage", ["flipped", "missing", "gone"])
def test_a_damaged_player_costs_nothing_else(damage: str, disk: harness.Disk, league: League) -> None:
    path = disk.path / "frozen" / TWO
    if damage == "gone":
        shutil.rmtree(path)
    else:
        flip(path / manifest.NAME) if damage == "flipped" else (path / manifest.NAME).unlink()
    checkpointer, rings = disk.open(), harness.filled(5)
    restored = harness.restore(checkpointer, STATE, rings)
    assert (restored.step, restored.frozen) == (2, {ONE: league[ONE]})
    harness.assert_same(restored.rings, rings)
    (loss,) = restored.losses
    assert f"player {TWO} " in loss and str(path) in loss
    rows = saved_files.list_steps(disk.path, content=True)
    assert [row["ok"] for row in rows] == [True, False] and TWO in rows[1]["reason"]
    # Where the run must be the same, an earlier checkpoint without the player is taken.
    earlier = checkpoint.restore(disk.path, harness.abstract(STATE), None, needs_replay=True)
    assert earlier is not None and earlier.step == 1 and TWO in earlier.losses[0]
    with pytest.raises(errors.CheckpointError, match=TWO):
        saved_files.find(disk.path, 2)
    # The run goes on without it.
    for step in (3, 4, 5):
        checkpointer.save(step, STATE, {}, None, list(restored.frozen))
    checkpointer.wait()
    assert disk.errors == [] and player_files.names(disk.path) == [ONE]
    assert restore(disk.open()).losses == []


def test_a_player_that_vanishes_from_a_running_league_is_named_at_each_checkpoint(
    disk: harness.Disk, league: League
) -> None:
    checkpointer = disk.open()
    restore(checkpointer)
    away = shutil.move(disk.path / "frozen" / TWO, disk.path / "away")
    disk.save(3, STATE, {}, None, [ONE, TWO])
    checkpointer.save_state(4, STATE, {}, [ONE, TWO])
    assert disk.durable == [1, 2, 3, 4] and len(disk.errors) == 2 and disk.errors[0] == disk.errors[1]
    assert f"{TWO} cannot be used: {TWO}/manifest.json cannot be read: No such file" in disk.errors[0]
    assert f" into {disk.path}/frozen/{TWO} " in disk.errors[0]
    assert restore(checkpointer).frozen == {ONE: league[ONE]}
    shutil.move(away, disk.path / "frozen" / TWO)
    assert restore(disk.open()).frozen == league


# ------------------------------------------------------------------------------------ after a resume


@pytest.mark.parametrize("part", ["manifest.json", "params/manifest.ocdbt"])
def test_after_a_resume_from_an_earlier_checkpoint_a_derived_name_is_taken_anew(
    part: str, disk: harness.Disk, league: League
) -> None:
    (disk.step(2) / part).unlink()
    checkpointer = disk.open()
    restored = restore(checkpointer)
    assert (restored.step, list(restored.frozen)) == (1, [ONE])
    with pytest.raises(errors.CheckpointError, match=ONE):
        checkpointer.freeze(ONE, 2, params(9), {})
    assert checkpointer.freeze(TWO, 2, params(9), {})
    disk.save(2, STATE, {}, None, [ONE, TWO])
    assert disk.errors == [] and restore(disk.open()).step == 2
    assert (value_of(disk.path, ONE), value_of(disk.path, TWO)) == (1, 9)


def test_a_name_that_an_older_checkpoint_needs_is_refused_by_name(disk: harness.Disk, league: League) -> None:
    checkpointer = disk.open()
    with pytest.raises(errors.CheckpointError, match=ONE):  # before the newest is known, all count
        checkpointer.freeze(ONE, 2, params(9), {})
    restore(checkpointer)
    checkpointer.save(3, STATE, {}, None, [TWO])  # gives the first one up, which the second checkpoint needs
    checkpointer.wait()
    assert disk.steps() == [1, 2, 3]
    for name in (ONE, TWO):
        with pytest.raises(errors.CheckpointError, match=f"{name} is in .*take another name"):
            checkpointer.freeze(name, 3, params(9), {})
    assert (value_of(disk.path, ONE), value_of(disk.path, TWO)) == (1, 2)


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
            checkpointer.save(step, {"params": jnp.full(1, step)}, {"pool": pool}, rings_of(step), pool)
        checkpointer.wait()
    finally:
        checkpointer._thread.shutdown()


def rings_of(step: int) -> ring_store.Rings:
    """Returns the replay at a step, which has gone round its rings at the third one."""
    return harness.filled(3 * step)


def pool_of(step: int) -> list[str]:
    return [f"main-{number:012d}" for number in range(max(1, step - 1), step + 1)]


def assert_whole(directory: pathlib.Path, durable_steps: list[int]) -> None:
    """Asserts that a start finds the last durable point, its replay, each player of its pool, and nothing else."""
    checkpointer = checkpointers.Checkpointer(
        directory, sections.CheckpointConfig(keep=1), on_durable=durable_steps.append, on_error=pytest.fail
    )
    like = harness.abstract({"params": jnp.full(1, 0)}), harness.abstract(rings_of(0))
    restored = checkpoint.restore(directory, *like)
    needed: set[str] = set()
    if restored is None:
        assert not durable_steps
    else:
        checkpointer.continue_from(restored)
        assert restored.losses == [] and restored.step >= max(durable_steps, default=0)
        assert list(restored.frozen) == restored.counters["pool"] == pool_of(restored.step)
        assert restored.state["params"].tolist() == [restored.step]
        harness.assert_same(restored.rings, rings_of(restored.step))
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
        checkpointer.save(step, {"params": jnp.full(1, step)}, {"pool": pool}, rings_of(step), pool)
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


def test_pools_of_random_saves_and_resumes_are_always_whole(disk: harness.Disk) -> None:
    rng = np.random.default_rng(3)
    checkpointer, pool, pools = disk.open(keep=2), dict[str, float](), dict[int, dict[str, float]]()
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
            checkpointer = disk.open(keep=2)
            assert set(restore(checkpointer).frozen) == set(pool)
            _assert_named(disk.path, pools)
    checkpointer.wait()
    _assert_named(disk.path, pools)


def _assert_named(directory: pathlib.Path, pools: dict[int, dict[str, float]]) -> None:
    kept: Collection[int] = saved_files.finished(directory / "steps")
    expected = {name: value for step in kept for name, value in pools[step].items()}
    assert player_files.names(directory) == sorted(expected)
    assert {name: value_of(directory, name) for name in expected} == expected
