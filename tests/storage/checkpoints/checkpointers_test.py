"""Saving: everything bit for bit, whatever happens to the originals, the disk, or the process."""

from __future__ import annotations

import ctypes
import pathlib
import resource
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import checkpoint_harness as harness
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors
from seedzero.replay import ring_store
from seedzero.storage.checkpoints import checkpoint, checkpointers, durable, saved_files, segments, trees


def test_copies_share_no_memory_with_the_originals() -> None:
    original = jnp.arange(1000.0)
    assert trees.copy(original).unsafe_buffer_pointer() != original.unsafe_buffer_pointer()


def test_originals_may_be_donated_right_after_save(disk: harness.Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = harness.Gate(monkeypatch, trees, "save")  # the disk waits until the originals are gone
    state = {"params": {"w": jnp.arange(1000.0)}}
    rng = np.random.default_rng(1)
    rings = harness.go_on(harness.make_rings(), rng, 6)
    expected_state, expected_rings = harness.on_host(state), harness.on_host(rings)
    checkpointer = disk.open()
    checkpointer.save(1, state, {}, rings)
    after = harness.increment(state)
    assert state["params"]["w"].is_deleted()
    rings = harness.go_on(rings, rng, 2 * harness.LENGTH)
    jax.block_until_ready((after, rings))
    assert checkpointer.busy
    gone.open()
    checkpointer.wait()
    restored = harness.restore(disk.open(), after, rings)
    harness.assert_same(restored.state, expected_state)
    harness.assert_same(restored.rings, expected_rings)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_replay_survives_wrapping_saving_resuming_and_deleting(
    disk: harness.Disk, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "CHUNK_BYTES", 10 * 6)  # several segments a save
    rng = np.random.default_rng(seed)
    rings, state = harness.make_rings(), {"params": jnp.zeros(1)}
    checkpointer = disk.open(keep=2, max_copy_bytes=60)
    saved: dict[int, Any] = {}
    for step in range(1, 9):
        rings = harness.go_on(rings, rng, int(rng.integers(1, harness.LENGTH + 4)))
        checkpointer.save(step, state, {}, rings)
        saved[step] = harness.on_host(rings)
        if rng.random() < 0.4:
            back = step - int(rng.random() < 0.5 and step > 1)
            checkpointer.wait()
            checkpointer = disk.open(keep=2, max_copy_bytes=60)
            restored = harness.restore(checkpointer, state, rings, back)
            harness.assert_same(restored.rings, saved[back])
            rings = restored.rings
    checkpointer.wait()
    assert disk.errors == []
    for step in (7, 8):
        harness.assert_same(harness.restore(disk.open(keep=2), state, rings, step).rings, saved[step])
    kept = [saved_files.verified(disk.path, disk.step(step)) for step in (7, 8)]
    assert disk.segments() == {name for found in kept for name in found.segments}


def test_a_save_writes_new_rows_alone_and_deletes_segments_of_overwritten_ones(disk: harness.Disk) -> None:
    rng = np.random.default_rng(0)
    state, rings = {"params": jnp.zeros(1)}, harness.go_on(harness.make_rings(num_slots=1), rng, 5)
    disk.open(keep=1)
    disk.save(1, state, {}, rings)
    before = disk.segments()
    rings = harness.go_on(rings, rng, 2)
    disk.save(2, state, {}, rings)
    (new,) = disk.segments() - before
    runs = segments.read_index(disk.path / saved_files.SEGMENTS, new, {}).runs
    assert [column.tolist() for column in runs] == [[0], [5], [2]] and before < disk.segments()
    rings = harness.go_on(rings, rng, harness.LENGTH - 2)
    disk.save(3, state, {}, rings)
    assert new in disk.segments() and not before & disk.segments()


@pytest.mark.parametrize("noticed", [True, False])
def test_a_segment_that_vanishes_is_noticed_and_the_replay_is_written_again(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch, noticed: bool
) -> None:
    rng = np.random.default_rng(0)
    state, rings = harness.make_state(), harness.go_on(harness.make_rings(), rng, 3)
    checkpointer = disk.open()
    disk.save(1, state, {}, rings)
    (name,) = disk.segments()
    shutil.rmtree(disk.path / "segments" / name)
    rings = harness.go_on(rings, rng, 1)
    if not noticed:  # as if it vanished while the next save was being written
        with monkeypatch.context() as patched:
            patched.setattr(checkpointer._directory, "check_newest", lambda: "")
            disk.save(2, state, {}, rings)
        assert disk.durable == [1] and "checkpoint 2 " in disk.errors.pop()
    disk.save(3, state, {}, rings)
    assert disk.durable == [1, 3]
    assert len(disk.errors) == 1 and f"{name}/index.json" in disk.errors[0]
    restored = harness.restore(disk.open(), state, rings)
    assert (restored.step, restored.losses) == (3, [])
    harness.assert_same(restored.rings, rings)


def test_a_state_of_a_stop_is_saved_without_a_replay_that_has_vanished(disk: harness.Disk) -> None:
    state, rings = harness.make_state(), harness.filled(3)
    checkpointer = disk.open()
    disk.save(1, state, {}, rings)
    shutil.rmtree(disk.path / "segments" / disk.segments().pop())
    checkpointer.save_state(2, state, {})
    assert disk.durable == [1, 2]
    restored = harness.restore(disk.open(), state, rings)
    assert (restored.step, restored.rings, restored.losses) == (2, None, [])


def test_a_slot_that_is_rarely_written_does_not_keep_dead_rows_of_others(disk: harness.Disk) -> None:
    rings, state = harness.make_rings(num_slots=2), {"params": jnp.zeros(1)}
    row = ring_store.Row(
        jnp.ones((1, 6), jnp.uint8),
        jnp.zeros(1),
        jnp.zeros(1, bool),
        jnp.zeros(1, bool),
        jnp.zeros(1, bool),
        {"action": jnp.zeros(1, jnp.int32), "policy": jnp.zeros((1, 3))},
    )
    checkpointer = disk.open(keep=1)
    listed = []
    for step in range(1, 12):
        for slot in (*[0] * harness.LENGTH, 1):
            rings = harness.write_rows(rings, jnp.array([slot]), row, jnp.int32(0), stack=2)
        disk.save(step, state, {}, rings)
        on_disk = checkpointer._directory.newest.replay
        assert on_disk is not None
        listed.append(sum(segment.runs.num_rows for segment in on_disk.segments))
    # Without starting anew: eight segments of nine rows each.
    assert max(listed) <= 3 * 2 * harness.LENGTH
    harness.assert_same(harness.restore(checkpointer, state, rings).rings, rings)


def test_a_state_without_new_rows_is_saved_beside_the_replay_as_it_was(disk: harness.Disk) -> None:
    rng = np.random.default_rng(0)
    rings = harness.go_on(harness.make_rings(), rng, 5)
    checkpointer = disk.open()
    disk.save(3, harness.make_state(3), {"stored_per_shard": [5], "num_updates": 3}, rings)
    before = harness.on_host(rings)
    rings = harness.go_on(rings, rng, 5)
    checkpointer.save_state(9, harness.make_state(9), {"stored_per_shard": [10], "num_updates": 9})
    assert (disk.durable, disk.errors) == ([3, 9], [])
    checkpointer = disk.open()
    restored = harness.restore(checkpointer, harness.make_state(), rings)
    assert (restored.step, restored.losses) == (9, [])
    assert restored.counters == {"stored_per_shard": [5], "num_updates": 9}
    harness.assert_same(restored.state, harness.make_state(9))
    harness.assert_same(restored.rings, before)
    # A save of the same step, from what was restored, takes its place.
    rings = harness.go_on(restored.rings, rng, 2)
    after = harness.on_host(rings)
    checkpointer.save(9, harness.make_state(9), {"num_updates": 9}, rings)
    harness.assert_same(harness.restore(disk.open(), harness.make_state(), rings).rings, after)
    assert disk.errors == []


def test_a_player_that_began_after_the_saved_replay_has_no_rows_in_it(disk: harness.Disk) -> None:
    rings, now = harness.filled(5), {"stored_per_shard": [7], "stored_per_slot": [0, 3, 4]}
    alone = {"stored_per_shard": [5], "stored_per_slot": [2, 2, 1], "num_updates": 3}
    first = {"stored_per_shard": [9], "stored_per_slot": [9, 0, 0]}
    checkpointer = disk.open()
    disk.save(3, harness.make_state(3), alone, rings)
    checkpointer.save_state(9, harness.make_state(9), {**first, "players": {"main": first, "main_1": now}})
    found = harness.restore(disk.open(), harness.make_state(), rings).counters["players"]
    zeros = {"stored_per_shard": [0], "stored_per_slot": [0, 0, 0]}
    assert found == {"main": {"stored_per_shard": [5], "stored_per_slot": [2, 2, 1]}, "main_1": zeros}
    checkpointer = disk.open()
    disk.save(10, harness.make_state(3), {**first, "players": {"main": first, "main_1": now}}, rings)
    three = {"main": now, "main_1": first, "main_2": now}
    checkpointer.save_state(11, harness.make_state(9), {**now, "players": three})
    found = harness.restore(disk.open(), harness.make_state(), rings).counters["players"]
    assert found == {"main": first, "main_1": now, "main_2": zeros}


def test_a_host_among_several_saves_its_replay_and_names_the_state_of_all(disk: harness.Disk) -> None:
    state, rings = harness.make_state(1), harness.filled(5)
    plain = {**state, "keys": jnp.zeros(2)}
    for host in (1, 0):  # the same directory: host 0 replaces what host 1 wrote
        checkpointer = disk.open(host=host)
        disk.save(1, plain, {"num_acts": 3}, rings)
        checkpointer.save_state(2, state, {"num_acts": 4})
        first, second = (saved_files.verified(disk.path, path) for path in sorted((disk.path / "steps").iterdir()))
        for found, saved in ((first, plain), (second, state)):
            assert found.state_sha256 == checkpoint.digest(harness.on_host(saved)) and found.has_replay
            assert found.has_state == (host == 0)
            assert ({"params", "state"} <= {path.split("/")[0] for path in found.files}) == (host == 0)
        restored = checkpoint.restore(disk.path, None, harness.abstract(rings), 1)
        assert restored is not None and restored.state == {} and restored.state_sha256 == first.state_sha256
        harness.assert_same(restored.rings, rings)
    assert disk.errors == []


def test_the_part_of_a_host_is_no_checkpoint_of_a_run_of_one(disk: harness.Disk) -> None:
    checkpointer, state = disk.open(host=1), harness.make_state()
    disk.save(1, state, {}, None)
    with pytest.raises(errors.ResumeError, match="host 0"):
        harness.restore(checkpointer, state)


def test_a_state_that_is_saved_first_of_all_has_no_replay(disk: harness.Disk) -> None:
    rings = harness.filled(5)
    disk.open().save_state(4, harness.make_state(4), {})
    restored = harness.restore(disk.open(), harness.make_state(), rings)
    assert (restored.step, restored.rings, disk.errors) == (4, None, [])
    harness.assert_same(restored.state, harness.make_state(4))


def test_a_state_is_saved_while_a_long_save_goes_on_and_outlives_its_end(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rings = harness.go_on(harness.make_rings(), rng, 5)
    checkpointer = disk.open(keep=1)
    disk.save(1, harness.make_state(1), {}, rings)
    before = harness.on_host(rings)
    rings = harness.go_on(rings, rng, 2)
    writing = harness.Gate(monkeypatch, segments, "write")
    checkpointer.save(2, harness.make_state(2), {}, rings)
    checkpointer.save_state(3, harness.make_state(3), {})
    assert disk.durable == [1, 3] and checkpointer.busy
    writing.open()
    checkpointer.wait()
    assert (disk.durable, disk.errors) == ([1, 3, 2], [])
    restored = harness.restore(disk.open(), harness.make_state(), rings)
    assert (restored.step, restored.losses) == (3, [])
    harness.assert_same(restored.state, harness.make_state(3))
    harness.assert_same(restored.rings, before)


def test_a_save_that_waits_for_the_disk_can_be_abandoned(disk: harness.Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "CHUNK_BYTES", 10 * 6)  # several segments a save
    writing = harness.Gate(monkeypatch, segments, "write")
    rings = harness.filled(harness.LENGTH)
    peers = harness.Peers()
    checkpointer = disk.open(max_copy_bytes=60, peers=peers)
    saving = threading.Thread(target=checkpointer.save, args=(1, harness.make_state(1), {}, rings))
    saving.start()
    assert writing.begun.wait(60)  # the others wait behind this one, and the save for them
    assert checkpointer.abandon_save()
    writing.open()
    saving.join(60)
    assert not saving.is_alive()
    checkpointer.wait()
    assert (disk.durable, disk.errors, disk.segments()) == ([], [], set())
    assert peers.told == [(1, "given up, since the run ends")]  # or they would wait for it for ever
    checkpointer.save(1, harness.make_state(1), {}, rings)
    harness.assert_same(harness.restore(disk.open(), harness.make_state(), rings).rings, rings)
    assert not checkpointer.abandon_save()  # nothing is being saved


@pytest.mark.parametrize("way", ["a/../b", "link"])
def test_a_directory_may_be_named_by_a_way_through_others(tmp_path: pathlib.Path, way: str) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("b")
    rings = harness.filled(5)
    saver = checkpointers.Checkpointer(
        tmp_path / way, sections.CheckpointConfig(), on_durable=lambda step: None, on_error=pytest.fail
    )
    saver.save(1, harness.make_state(1), {}, rings)
    saver.close()
    restored = harness.restore(saver, harness.make_state(), rings)
    assert restored.step == 1 and (tmp_path / "b" / "segments").exists()
    harness.assert_same(restored.rings, rings)


def test_a_state_that_cannot_be_saved_is_reported(disk: harness.Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointer = disk.open()
    monkeypatch.setattr(trees, "save", harness.full)
    checkpointer.save_state(3, harness.make_state(), {})
    assert disk.durable == []
    assert f"checkpoint 3 without its replay could not be written to {disk.path}: " in disk.errors[0]
    assert "No space left" in disk.errors[0] and "there is no earlier one" in disk.errors[0]


def test_other_hosts_are_told_of_a_part_that_cannot_be_written_and_of_the_next_one(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = harness.Peers()
    checkpointer = disk.open(peers=peers)
    with monkeypatch.context() as patched:
        patched.setattr(trees, "save", harness.full)
        disk.save(1, harness.make_state(), {}, None)
    assert len(disk.errors) == 1
    checkpointer.save(2, harness.make_state(), {}, None)
    checkpointer.confirm(2)
    checkpointer.wait()
    assert peers.told == [(1, "[Errno 28] No space left on device"), (2, ""), (2, "")]
    assert disk.durable == [2]


def test_a_checkpoint_that_another_host_lacks_takes_no_place_of_one_that_counts(disk: harness.Disk) -> None:
    def saved(step: int) -> list[int]:
        disk.save(step, harness.make_state(), {}, rings)
        return disk.steps()

    peers, rings = harness.Peers(), harness.filled(5)
    checkpointer = disk.open(keep=1, peers=peers)
    assert saved(1) == [1]
    peers.missing = "host 1 is full"
    assert [saved(step) for step in (1, 2, 3)] == [[1], [1, 2], [1, 3]]  # saved again, the first one counts as before
    assert disk.durable == [1] and len(disk.errors) == 3 and "host 1 is full" in disk.errors[0]
    assert harness.restore(disk.open(keep=1), harness.make_state(), rings, 1).losses == []
    checkpointer = disk.open(keep=1, peers=peers)
    harness.restore(checkpointer, harness.make_state(), rings, 1)
    assert saved(4) == [1, 4]
    peers.missing = ""
    assert saved(5) == [5] and disk.durable == [1, 5]


def test_a_full_disk_is_reported_and_the_next_save_succeeds(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    state, rings = harness.make_state(1), harness.go_on(harness.make_rings(), rng, 4)
    disk.open()
    disk.save(1, state, {}, rings)
    before = harness.files_below(disk.path)

    # The last flush of a step, of the manifest's directory; the segments were written already.
    harness.fill_disk(monkeypatch, saved_files.STEPS)
    rings = harness.go_on(rings, rng, 3)
    disk.save(2, state, {}, rings)
    assert disk.durable == [1]
    (message,) = disk.errors
    assert "checkpoint 2 " in message and str(disk.path) in message and "No space left" in message
    assert "; 1 is kept; training continues" in message
    assert harness.files_below(disk.path) == before
    monkeypatch.undo()
    rings = harness.go_on(rings, rng, 3)
    disk.save(3, state, {}, rings)
    assert disk.durable == [1, 3]
    harness.assert_same(harness.restore(disk.open(), state, rings).rings, rings)


@pytest.mark.parametrize("error", [MemoryError("no 64 MiB"), KeyError("rows")], ids=["memory", "any"])
def test_whatever_a_segment_fails_of_fails_its_save_and_the_next_one_writes_its_rows(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(segments, "CHUNK_BYTES", 10 * 6)  # several segments a save
    rng = np.random.default_rng(0)
    state, rings = harness.make_state(1), harness.go_on(harness.make_rings(), rng, 6)
    outcomes, to_host = iter([None, error]), segments.to_host

    def fail_once(*args: Any) -> np.ndarray:
        if (failure := next(outcomes, None)) is not None:
            raise failure
        return to_host(*args)

    monkeypatch.setattr(segments, "to_host", fail_once)
    disk.open()
    disk.save(1, state, {}, rings)
    assert (disk.durable, disk.segments()) == ([], set())
    (message,) = disk.errors
    assert "checkpoint 1 " in message and f"{type(error).__name__}: {error}" in message
    rings = harness.go_on(rings, rng, 2)
    disk.save(2, state, {}, rings)
    assert disk.durable == [2]
    harness.assert_same(harness.restore(disk.open(), state, rings).rings, rings)


@pytest.mark.thorough
@pytest.mark.parametrize("part", ["replay", "params"])
def test_a_write_that_the_system_refuses_is_reported(disk: harness.Disk, part: str) -> None:
    rng = np.random.default_rng(0)
    size = 200_000 if part == "replay" else 10
    values = rng.random(10 if part == "replay" else 200_000)
    state = {"params": jnp.asarray(values)}
    rings = harness.go_on(harness.make_rings(num_slots=2, size=size), rng, 3)
    disk.open()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        disk.save(1, state, {}, rings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert disk.durable == []
    assert "checkpoint 1 " in disk.errors[0]
    assert disk.segments() == set()
    assert list((disk.path / "steps").iterdir()) == []
    disk.save(2, state, {}, rings)
    assert disk.durable == [2]


def test_a_step_is_durable_only_when_the_rename_is_flushed(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = harness.changes(monkeypatch)
    checkpointer = disk.open()
    checkpointer._on_durable = lambda step: order.append(f"durable {step}")
    order.clear()
    disk.save(5, {"params": jnp.zeros(1)}, {}, None)
    renamed = order.index("rename to 000000000005")
    assert order[renamed + 1 : renamed + 3] == ["flush steps", "durable 5"]
    assert "flush manifest.json" in order[:renamed]


def test_one_best_is_kept_and_read_alone(disk: harness.Disk) -> None:
    checkpointer = disk.open()
    for step, mean_return in ((7, 1.0), (20, 3.0), (9, 4.0)):
        checkpointer.save_best(step, {"params": {"w": jnp.full(2, mean_return)}}, {"mean_return": mean_return}).result(
            60
        )
        assert saved_files.restore_params(disk.path, "best", {"w": jnp.zeros(2)})[1].step == step
    params, found = saved_files.restore_params(disk.path, "best", {"w": jnp.zeros(2)})
    assert (found.step, found.counters) == (9, {"mean_return": 4.0})
    assert params["w"].tolist() == [4.0, 4.0]
    assert saved_files.finished(disk.path / "best") == [9]
    (row,) = saved_files.list_steps(disk.path, content=True)
    assert (row["step"], row["best"], row["ok"], row["has_replay"]) == (9, True, True, False)


@pytest.mark.parametrize("earlier", [5, 9])  # 9: of a past that a resume has abandoned
def test_a_best_that_a_full_disk_did_not_take_is_written_with_the_next_checkpoint(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch, earlier: int
) -> None:
    checkpointer = disk.open()
    checkpointer.save_best(earlier, {"params": {"w": jnp.zeros(1)}}, {}).result(60)
    with monkeypatch.context() as full:
        harness.fill_disk(full, "best")
        checkpointer.save_best(7, {"params": {"w": jnp.ones(1)}}, {}).result(60)
        assert saved_files.finished(disk.path / "best") == [earlier] and len(disk.errors) == 1
    disk.save(8, {"params": jnp.zeros(1)}, {}, None)
    assert saved_files.finished(disk.path / "best") == [7] and len(disk.errors) == 1
    assert saved_files.restore_params(disk.path, "best", {"w": jnp.zeros(1)})[0]["w"].tolist() == [1.0]


def test_only_the_newest_waiting_best_is_written(disk: harness.Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    writing = harness.Gate(monkeypatch, trees, "save")
    checkpointer = disk.open()
    checkpointer.save(1, {"params": jnp.zeros(1)}, {}, None)
    for step in (1, 2, 3):
        checkpointer.save_best(step, {"params": {"w": jnp.zeros(1)}}, {})
    writing.open()
    checkpointer.wait()
    assert {directory.parent.name[:12] for directory, _ in writing.calls} == {"000000000001", "000000000003"}


def test_the_copies_on_the_device_are_bounded(disk: harness.Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "CHUNK_BYTES", 6)  # one row a segment
    alive, most = 0, 0
    gather, write = segments.gather, segments.write

    def counted_gather(*args: Any) -> Any:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        return gather(*args)

    def counted_write(*args: Any) -> Any:
        nonlocal alive
        written = write(*args)
        alive -= 1
        return written

    monkeypatch.setattr(segments, "gather", counted_gather)
    monkeypatch.setattr(segments, "write", counted_write)
    rings = harness.filled(harness.LENGTH, num_slots=1)
    checkpointer = disk.open(max_copy_bytes=12)
    disk.save(1, {"params": jnp.zeros(1)}, {}, rings)
    assert most <= 3
    harness.assert_same(harness.restore(checkpointer, {"params": jnp.zeros(1)}, rings).rings, rings)


def test_rows_of_the_host_are_copied_before_a_save_returns(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointer, state = disk.open(), harness.make_state()
    rings = harness.kept_by_the_host(harness.filled(6, seed=3))
    expected, writing = rings.observation.copy(), harness.Gate(monkeypatch, segments, "write")
    checkpointer.save(1, state, {}, rings)
    rings.observation[:] = 0  # acting goes on
    writing.open()
    checkpointer.wait()
    restored = harness.restore(
        disk.open(), state, harness.kept_by_the_host(rings)._replace(observation=jnp.asarray(expected))
    )
    np.testing.assert_array_equal(np.asarray(restored.rings.observation), expected)


def test_without_free_descriptors_a_save_is_reported_and_the_next_one_counts(disk: harness.Disk) -> None:
    state, rings = harness.make_state(), harness.filled(3)
    checkpointer = disk.open()
    disk.save(1, state, {}, rings)
    rings = harness.go_on(rings, np.random.default_rng(1), 1)
    with harness.no_descriptors():
        checkpointer.save(2, state, {}, rings)
        checkpointer.wait()
    assert disk.durable == [1]
    assert "checkpoint 2 could not be written" in disk.errors[0] and "(ulimit -n)" in disk.errors[0]
    disk.save(3, state, {}, rings)
    assert disk.durable == [1, 3]
    harness.assert_same(harness.restore(disk.open(), state, rings).rings, rings)


def test_an_interrupted_run_leaves_a_disk_that_does_not_answer(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, checkpointer = harness.make_state(), disk.open()
    monkeypatch.setattr(checkpointers, "HURRIED_SECONDS", 0.0)
    gate = harness.Gate(monkeypatch, durable, "flush_tree")
    checkpointer.save(1, state, {}, None)
    assert gate.begun.wait(60)
    checkpointer.hurry()
    checkpointer.save_state(1, state, {})  # which needs what the stuck thread holds
    assert "checkpoint 1 without its replay could not be written" in disk.errors[0]
    for wait in (checkpointer.wait, checkpointer.close):
        with pytest.raises(errors.CheckpointError, match="the disk does not answer, or"):
            wait()
    gate.open()


class Stuck:
    """A thread whose disk does not answer until `answers` is set, at a time that the test sets."""

    def __init__(self) -> None:
        self.seconds, self.answers, self.begun = 0.0, threading.Event(), threading.Event()
        self.lock = threading.RLock()
        self.thread = checkpointers.SaveThread(lambda: self.seconds, look_seconds=0.001)

    def write(self) -> None:
        with self.lock, self.thread.writing():
            self.begun.set()
            assert self.answers.wait(60)

    def upload(self) -> None:
        self.begun.set()
        assert self.answers.wait(60)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.answers.set()
    made.thread.shutdown()


def test_waiting_ends_if_the_disk_does_not_answer_and_sooner_after_an_interrupt(stuck: Stuck) -> None:
    pending = stuck.thread.submit(stuck.write)
    assert stuck.begun.wait(60)
    stuck.seconds = checkpointers.HURRIED_SECONDS + 1
    stuck.thread.check()  # a slow disk is not a reason
    stuck.thread.hurry()
    for wait in (stuck.thread.check, lambda: stuck.thread.wait(None, pending)):
        with pytest.raises(errors.CheckpointError, match="is not written after 31 s"):
            wait()
    with pytest.raises(errors.CheckpointError, match="31 s"), stuck.thread.holding(stuck.lock):
        pass
    stuck.seconds = 0.0  # else a look before the thread has noticed the answer would find it late
    stuck.answers.set()
    stuck.thread.wait(pending)
    stuck.thread.check()
    with stuck.thread.holding(stuck.lock):
        pass


def test_an_upload_has_limits_of_its_own_and_an_error_reaches_who_waits(stuck: Stuck) -> None:
    pending = stuck.thread.submit(stuck.upload)
    assert stuck.begun.wait(60)
    stuck.seconds = 1e9
    stuck.thread.check()
    stuck.answers.set()
    stuck.thread.wait(pending)
    with pytest.raises(ZeroDivisionError):
        stuck.thread.wait(stuck.thread.submit(lambda: 1 // 0))


def test_the_heap_is_trimmed_by_the_c_library_and_another_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        trimmed = 0

        def malloc_trim(self, pad: int) -> int:
            self.trimmed += 1
            return pad

    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    checkpointers.trim_heap()
    assert library.trimmed == 1
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    checkpointers.trim_heap()
