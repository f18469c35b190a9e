"""Saving and restoring: everything bit for bit, whatever happens to the originals, the disk, or the process."""

import errno
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.checkpoints import checkpoint, durable, segments, trees
from seedzero.checkpoints import files as checkpoint_files
from seedzero.config import config
from seedzero.core import errors, types
from seedzero.replay import rings as rings_lib

LENGTH = 8
EXTRAS = {"action": ((), np.dtype(np.int32)), "policy": ((3,), np.dtype(np.float32))}


class Optimizer(NamedTuple):
    mu: dict[str, jax.Array]
    nothing: tuple[()]


def make_state(seed: int = 0) -> dict[str, Any]:
    """A state with what is awkward to save: random keys, bfloat16, scalars, empty arrays and empty containers."""
    key = jax.random.key(seed)
    return {
        "params": {"dense": {"kernel": jax.random.normal(key, (4, 5)), "bias": jnp.arange(5, dtype=jnp.bfloat16)}},
        "train": (Optimizer({"a/b": jnp.full(3, jnp.nan)}, ()), jnp.int32(seed), jnp.zeros((0, 2))),
        "keys": {"one": key, "batch": jax.random.split(key, 3)},
    }


def make_rings(
    num_slots: int = 4, length: int = LENGTH, size: int = 6, *, prioritized: bool = False
) -> rings_lib.Rings:
    spec = types.EnvSpec(observation_shape=(size,), observation_dtype="uint8", num_actions=3)
    create = jax.jit(lambda: rings_lib.create(spec, EXTRAS, num_slots, length, prioritized=prioritized))
    rings: rings_lib.Rings = create()
    return rings


write_rows = jax.jit(rings_lib.write, static_argnames="stack", donate_argnums=0)
increment = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)


def go_on(rings: rings_lib.Rings, rng: np.random.Generator, steps: int) -> rings_lib.Rings:
    """Writes random rows; every call writes slot 0, others half of the time."""
    num_slots = rings.cursor.shape[0]
    for _ in range(steps):
        written = rng.random(num_slots) < 0.5
        written[0] = True
        row = rings_lib.Row(
            observation=jnp.asarray(rng.integers(0, 256, (num_slots, *rings.observation.shape[2:])), jnp.uint8),
            reward=jnp.asarray(rng.random(num_slots), jnp.float32),
            terminated=jnp.asarray(rng.random(num_slots) < 0.2),
            truncated=jnp.zeros(num_slots, bool),
            first=jnp.zeros(num_slots, bool),
            extras={
                "action": jnp.asarray(rng.integers(0, 3, num_slots), jnp.int32),
                "policy": jnp.asarray(rng.random((num_slots, 3)), jnp.float32),
            },
        )
        slot = jnp.asarray(np.where(written, np.arange(num_slots), num_slots))
        rings = write_rows(rings, slot, row, jnp.int32(7), stack=2)
    return rings


def on_host(tree: Any) -> Any:
    """Returns copies as numpy arrays, random keys as integers."""
    return jax.tree.map(np.array, trees.copy(tree))


def assert_same(a: Any, b: Any) -> None:
    """Asserts equality bit for bit, with the same structure and dtypes."""
    assert str(jax.tree.structure(a)) == str(jax.tree.structure(b))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert x.tobytes() == y.tobytes()


class Events:
    """What a checkpointer reports."""

    def __init__(self) -> None:
        self.durable: list[int] = []
        self.errors: list[str] = []


Open = Callable[..., checkpoint.Checkpointer]


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def reopen(tmp_path: pathlib.Path, events: Events) -> Iterator[Open]:
    """Opens the directory as a new process would."""
    opened: list[checkpoint.Checkpointer] = []

    def open_one(**settings: Any) -> checkpoint.Checkpointer:
        limit = settings.pop("max_copy_bytes", checkpoint.MAX_COPY_BYTES)
        for one in opened:
            one.close()
        opened[:] = [
            checkpoint.Checkpointer(
                tmp_path,
                config.CheckpointConfig(**settings),
                on_durable=events.durable.append,
                on_error=events.errors.append,
                max_copy_bytes=limit,
                clock=lambda: 1.5,
            )
        ]
        return opened[0]

    yield open_one
    for one in opened:
        one.close()


def restore(checkpointer: checkpoint.Checkpointer, state: Any, rings: Any = None, step: Any = "last") -> Any:
    like = None if rings is None else trees.abstract(rings)
    return checkpointer.restore(trees.abstract(state), like, step)


def segment_names(directory: pathlib.Path) -> set[str]:
    return {path.name for path in (directory / checkpoint_files.SEGMENTS).iterdir()}


def test_an_empty_directory_holds_nothing_to_restore(reopen: Open) -> None:
    assert restore(reopen(), make_state()) is None


def test_everything_comes_back_bit_for_bit(reopen: Open, events: Events) -> None:
    state = make_state(3)
    rings = go_on(make_rings(), np.random.default_rng(0), 5)
    checkpointer = reopen()
    checkpointer.save(12, state, {"steps": 40, "by_reason": {"worker_lost": 2}}, rings)
    checkpointer.wait()
    assert (events.durable, events.errors, checkpointer.busy) == ([12], [], False)
    restored = restore(reopen(), make_state(), rings)
    assert (restored.step, restored.skipped) == (12, [])
    assert restored.host == {"steps": 40, "by_reason": {"worker_lost": 2}}
    assert_same(on_host(restored.state), on_host(state))
    assert_same(on_host(restored.rings), on_host(rings))
    assert jax.random.key_impl(restored.state["keys"]["one"]) == jax.random.key_impl(state["keys"]["one"])
    assert jax.random.uniform(restored.state["keys"]["one"]) == jax.random.uniform(state["keys"]["one"])


def test_a_resumed_run_samples_by_the_same_priorities(reopen: Open, events: Events) -> None:
    how = rings_lib.Prioritization(alpha=0.6, beta=0.4, beta_updates=0, epsilon=1e-3)
    prioritize = jax.jit(rings_lib.prioritize, static_argnames="how", donate_argnums=0)
    rng = np.random.default_rng(0)

    def step(rings: rings_lib.Rings, key: int) -> tuple[rings_lib.Rings, rings_lib.Windows]:
        drawn = rings_lib.sample(
            rings,
            jax.random.key(key),
            6,
            num_inserts=jnp.int32(9),
            capacity=100,
            future=2,
            offsets=(0,),
            stack=2,
            beta=how.beta,
        )
        return prioritize(rings, drawn.slot, drawn.time, 1.5 + drawn.reward[:, 0], how=how), drawn

    rings, _ = step(go_on(make_rings(prioritized=True), rng, 6), 0)
    checkpointer = reopen()
    checkpointer.save(1, make_state(), {}, rings)
    checkpointer.wait()
    restored = restore(reopen(), make_state(), rings).rings
    assert events.errors == []
    assert restored.max_weight[0] > 1
    for key in range(1, 4):
        state = rng.bit_generator.state
        rings, drawn = step(go_on(rings, rng, 1), key)
        rng.bit_generator.state = state
        restored, again = step(go_on(restored, rng, 1), key)
        assert_same(on_host(again), on_host(drawn))
    assert_same(on_host(restored), on_host(rings))


def test_copies_share_no_memory_with_the_originals() -> None:
    original = jnp.arange(1000.0)
    assert trees.copy(original).unsafe_buffer_pointer() != original.unsafe_buffer_pointer()


def test_originals_may_be_donated_right_after_save(reopen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    # The disk waits until the originals are gone.
    gone = threading.Event()
    real = trees.save

    def late(directory: pathlib.Path, tree: Any) -> None:
        assert gone.wait(30)
        real(directory, tree)

    monkeypatch.setattr(trees, "save", late)
    state = {"params": {"w": jnp.arange(1000.0)}}
    rng = np.random.default_rng(1)
    rings = go_on(make_rings(), rng, 6)
    expected_state, expected_rings = on_host(state), on_host(rings)
    checkpointer = reopen()
    checkpointer.save(1, state, {}, rings)
    after = increment(state)
    assert state["params"]["w"].is_deleted()
    rings = go_on(rings, rng, 2 * LENGTH)
    jax.block_until_ready((after, rings))
    assert checkpointer.busy
    gone.set()
    checkpointer.wait()
    restored = restore(reopen(), after, rings)
    assert_same(on_host(restored.state), expected_state)
    assert_same(on_host(restored.rings), expected_rings)


def test_restored_arrays_can_be_donated(reopen: Open) -> None:
    state = {"params": {"w": jnp.arange(10.0)}}
    checkpointer = reopen()
    checkpointer.save(1, state, {}, make_rings())
    checkpointer.wait()
    restored = restore(checkpointer, state, make_rings())
    increment(restored.state)
    assert restored.state["params"]["w"].is_deleted()
    go_on(restored.rings, np.random.default_rng(0), 1)
    assert restored.rings.observation.is_deleted()


@pytest.mark.parametrize("seed", range(3))
def test_replay_survives_wrapping_saving_resuming_and_deleting(
    reopen: Open, events: Events, tmp_path: pathlib.Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "CHUNK_BYTES", 10 * 6)  # several segments a save
    rng = np.random.default_rng(seed)
    rings, state = make_rings(), {"params": jnp.zeros(1)}
    checkpointer = reopen(keep=2, max_copy_bytes=60)
    saved: dict[int, Any] = {}
    for step in range(1, 9):
        rings = go_on(rings, rng, int(rng.integers(1, LENGTH + 4)))
        checkpointer.save(step, state, {}, rings)
        saved[step] = on_host(rings)
        if rng.random() < 0.4:
            back = step - int(rng.random() < 0.5 and step > 1)
            checkpointer.wait()
            checkpointer = reopen(keep=2, max_copy_bytes=60)
            restored = restore(checkpointer, state, rings, back)
            assert_same(on_host(restored.rings), saved[back])
            rings = restored.rings
    checkpointer.wait()
    assert events.errors == []
    for step in (7, 8):
        assert_same(on_host(restore(reopen(keep=2), state, rings, step).rings), saved[step])
    kept = [checkpoint_files.verified(tmp_path, checkpoint_files.step_directory(tmp_path, step)) for step in (7, 8)]
    assert segment_names(tmp_path) == {name for found in kept for name in found.segments}


def test_a_save_writes_only_rows_since_the_last_durable_one(reopen: Open, tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    state, rings = {"params": jnp.zeros(1)}, go_on(make_rings(num_slots=1), rng, 5)
    checkpointer = reopen()
    checkpointer.save(1, state, {}, rings)
    checkpointer.wait()
    before = segment_names(tmp_path)
    rings = go_on(rings, rng, 2)
    checkpointer.save(2, state, {}, rings)
    checkpointer.wait()
    (new,) = segment_names(tmp_path) - before
    runs = segments.read_index(tmp_path / checkpoint_files.SEGMENTS, new, {}).runs
    assert [column.tolist() for column in runs] == [[0], [5], [2]]


def test_segments_whose_rows_are_all_overwritten_are_deleted(reopen: Open, tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    state, rings = {"params": jnp.zeros(1)}, go_on(make_rings(num_slots=1), rng, 3)
    checkpointer = reopen(keep=1)
    checkpointer.save(1, state, {}, rings)
    checkpointer.wait()
    old = segment_names(tmp_path)
    for step in (2, 3):
        rings = go_on(rings, rng, 4)
        checkpointer.save(step, state, {}, rings)
        checkpointer.wait()
    assert not old & segment_names(tmp_path)


def test_a_slot_that_is_rarely_written_does_not_keep_dead_rows_of_others(reopen: Open) -> None:
    rings, state = make_rings(num_slots=2), {"params": jnp.zeros(1)}
    row = rings_lib.Row(
        jnp.ones((1, 6), jnp.uint8),
        jnp.zeros(1),
        jnp.zeros(1, bool),
        jnp.zeros(1, bool),
        jnp.zeros(1, bool),
        {"action": jnp.zeros(1, jnp.int32), "policy": jnp.zeros((1, 3))},
    )
    checkpointer = reopen(keep=1)
    listed = []
    for step in range(1, 12):
        for slot in (*[0] * LENGTH, 1):
            rings = write_rows(rings, jnp.array([slot]), row, jnp.int32(0), stack=2)
        checkpointer.save(step, state, {}, rings)
        checkpointer.wait()
        on_disk = checkpointer._on_disk
        assert on_disk is not None
        listed.append(sum(segment.runs.num_rows for segment in on_disk.segments))
    # Without starting anew: eight segments of nine rows each.
    assert max(listed) <= 3 * 2 * LENGTH
    assert_same(on_host(restore(checkpointer, state, rings).rings), on_host(rings))


@pytest.mark.parametrize("num_devices", [2, 4])
def test_rings_and_state_on_several_devices_come_back_to_their_places(reopen: Open, num_devices: int) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ("devices",))
    sharded = jax.NamedSharding(mesh, jax.P("devices"))
    whole = jax.NamedSharding(mesh, jax.P())
    plain = go_on(make_rings(num_slots=8), np.random.default_rng(0), 5)
    rings = jax.device_put(plain, sharded)
    state = jax.device_put({"params": {"w": jnp.arange(8.0)}, "key": jax.random.key(1)}, whole)
    checkpointer = reopen()
    checkpointer.save(1, state, {}, rings)
    plain = go_on(plain, np.random.default_rng(1), 2 * LENGTH)
    rings = jax.device_put(plain, sharded)
    checkpointer.save(2, state, {}, rings)
    checkpointer.wait()
    restored = restore(reopen(), state, rings)
    assert_same(on_host(restored.rings), on_host(plain))
    assert_same(on_host(restored.state), on_host(state))
    for leaf in jax.tree.leaves(restored.rings):
        assert leaf.sharding.is_equivalent_to(sharded, leaf.ndim)
    for leaf in jax.tree.leaves(restored.state):
        assert leaf.sharding.is_equivalent_to(whole, leaf.ndim)
    # The same checkpoint on one device.
    assert_same(on_host(restore(reopen(), state, plain).rings), on_host(plain))


def test_without_replay_there_are_no_rings_to_restore(reopen: Open) -> None:
    state = make_state()
    checkpointer = reopen()
    checkpointer.save(1, state, {}, None)
    checkpointer.wait()
    restored = restore(checkpointer, state, make_rings())
    assert restored.rings is None
    # Rings that were not restored are written whole by the next save.
    rings = go_on(make_rings(), np.random.default_rng(0), 4)
    checkpointer.save(2, state, {}, rings)
    checkpointer.wait()
    assert_same(on_host(restore(checkpointer, state, rings).rings), on_host(rings))


def test_a_state_without_new_rows_is_saved_beside_the_replay_as_it_was(reopen: Open, events: Events) -> None:
    rng = np.random.default_rng(0)
    rings = go_on(make_rings(), rng, 5)
    checkpointer = reopen()
    checkpointer.save(3, make_state(3), {"stored_per_shard": [5], "num_updates": 3}, rings)
    checkpointer.wait()
    before = on_host(rings)
    rings = go_on(rings, rng, 5)
    checkpointer.save_state(9, make_state(9), {"stored_per_shard": [10], "num_updates": 9})
    assert (events.durable, events.errors) == ([3, 9], [])
    checkpointer = reopen()
    restored = restore(checkpointer, make_state(), rings)
    assert (restored.step, restored.skipped) == (9, [])
    assert restored.host == {"stored_per_shard": [5], "num_updates": 9}
    assert_same(on_host(restored.state), on_host(make_state(9)))
    assert_same(on_host(restored.rings), before)
    # A save of the same step, from what was restored, takes its place.
    rings = go_on(restored.rings, rng, 2)
    after = on_host(rings)
    checkpointer.save(9, make_state(9), {"num_updates": 9}, rings)
    assert_same(on_host(restore(reopen(), make_state(), rings).rings), after)
    assert events.errors == []


def test_a_state_that_is_saved_first_of_all_has_no_replay(reopen: Open, events: Events) -> None:
    rings = go_on(make_rings(), np.random.default_rng(0), 5)
    reopen().save_state(4, make_state(4), {})
    restored = restore(reopen(), make_state(), rings)
    assert (restored.step, restored.rings, events.errors) == (4, None, [])
    assert_same(on_host(restored.state), on_host(make_state(4)))


def test_a_state_is_saved_while_a_long_save_goes_on_and_outlives_its_end(
    reopen: Open, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rings = go_on(make_rings(), rng, 5)
    checkpointer = reopen(keep=1)
    checkpointer.save(1, make_state(1), {}, rings)
    checkpointer.wait()
    before = on_host(rings)
    rings = go_on(rings, rng, 2)
    disk, write = threading.Event(), segments.write

    def slow(*args: Any) -> segments.Segment:
        assert disk.wait(60)
        return write(*args)

    monkeypatch.setattr(segments, "write", slow)
    checkpointer.save(2, make_state(2), {}, rings)
    checkpointer.save_state(3, make_state(3), {})
    assert events.durable == [1, 3] and checkpointer.busy
    disk.set()
    checkpointer.wait()
    assert (events.durable, events.errors) == ([1, 3, 2], [])
    restored = restore(reopen(), make_state(), rings)
    assert (restored.step, restored.skipped) == (3, [])
    assert_same(on_host(restored.state), on_host(make_state(3)))
    assert_same(on_host(restored.rings), before)


def test_a_save_that_waits_for_the_disk_is_given_up_in_a_hurry(
    reopen: Open, events: Events, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "CHUNK_BYTES", 10 * 6)  # several segments a save
    disk, writing, write = threading.Event(), threading.Event(), segments.write

    def slow(*args: Any) -> segments.Segment:
        writing.set()
        assert disk.wait(60)
        return write(*args)

    monkeypatch.setattr(segments, "write", slow)
    rings = go_on(make_rings(), np.random.default_rng(0), LENGTH)
    checkpointer = reopen(max_copy_bytes=60)
    saving = threading.Thread(target=checkpointer.save, args=(1, make_state(1), {}, rings))
    saving.start()
    assert writing.wait(60)  # the others wait behind this one, and the save for them
    checkpointer.hurry()
    disk.set()
    saving.join(60)
    assert not saving.is_alive()
    checkpointer.wait()
    assert (events.durable, events.errors, segment_names(tmp_path)) == ([], [], set())
    checkpointer.save(1, make_state(1), {}, rings)
    assert_same(on_host(restore(reopen(), make_state(), rings).rings), on_host(rings))
    checkpointer.hurry()  # nothing is being saved


def test_a_state_that_cannot_be_saved_is_reported(
    reopen: Open, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    checkpointer = reopen()
    monkeypatch.setattr(trees, "save", full)
    checkpointer.save_state(3, make_state(), {})
    assert events.durable == []
    assert "checkpoint 3 without its replay could not be written" in events.errors[0]


def test_the_newest_and_every_so_many_are_kept(reopen: Open, tmp_path: pathlib.Path) -> None:
    state = {"params": jnp.zeros(1)}
    checkpointer = reopen(keep=2, keep_every=3)
    for step in range(10, 80, 10):
        checkpointer.save(step, state, {}, None)
        if step == 40:
            checkpointer = reopen(keep=2, keep_every=3)
            restore(checkpointer, state)
    checkpointer.wait()
    rows = checkpoint_files.list_steps(tmp_path)
    assert [(row["step"], row["kept_for_good"]) for row in rows] == [(30, True), (60, True), (70, False)]


def test_an_abandoned_future_goes_away(reopen: Open, tmp_path: pathlib.Path) -> None:
    state = {"params": jnp.zeros(1)}
    checkpointer = reopen()
    for step in (1, 2, 3):
        checkpointer.save(step, state, {}, None)
    checkpointer.wait()
    checkpointer = reopen()
    restore(checkpointer, state, step=1)
    checkpointer.save(2, {"params": jnp.ones(1)}, {}, None)
    checkpointer.wait()
    assert checkpoint_files.finished(tmp_path / "steps") == [1, 2]
    assert restore(checkpointer, state).state["params"].tolist() == [1.0]


def all_files(directory: pathlib.Path) -> list[str]:
    """Returns the kinds of files of the newest step, one path for each."""
    step = checkpoint_files.finished(directory / "steps")[-1]
    newest = checkpoint_files.step_directory(directory, step)
    found = checkpoint_files.verified(directory, newest)
    # A segment that only the newest one has.
    older = checkpoint_files.verified(directory, checkpoint_files.step_directory(directory, step - 1))
    own = [directory / "segments" / name for name in found.segments if name not in older.segments]
    paths = [path for root in (newest, *own) for path in root.rglob("*") if path.is_file() and path.stat().st_size]
    return [str(path.relative_to(directory)) for path in sorted(paths)]


@pytest.fixture
def two_steps(reopen: Open) -> tuple[Any, Any, list[Any]]:
    """Two durable steps with replay; returns templates and what they held."""
    rng = np.random.default_rng(0)
    state, rings = make_state(1), go_on(make_rings(), rng, 5)
    checkpointer = reopen()
    held = []
    for step in (1, 2):
        checkpointer.save(step, state, {"step": step}, rings)
        held.append((on_host(state), on_host(rings)))
        state, rings = make_state(2), go_on(rings, rng, 3)
    checkpointer.wait()
    return state, rings, held


def test_a_flipped_bit_in_any_file_steps_back_and_says_so(
    reopen: Open, two_steps: tuple[Any, Any, list[Any]], tmp_path: pathlib.Path
) -> None:
    rng = np.random.default_rng(5)
    files = all_files(tmp_path)
    kinds = ("manifest.json", "params/", "state/", "replay/", "index.json", "rows/")
    assert all(any(kind in path for path in files) for kind in kinds)
    for name in files:
        content = bytearray((tmp_path / name).read_bytes())
        good = bytes(content)
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        (tmp_path / name).write_bytes(content)
        found, skipped = checkpoint_files.newest_verified(tmp_path)
        assert found is not None
        assert (found.step, list(skipped)) == (1, [2]), name
        assert name.rpartition("/")[2] in skipped[2]
        assert "damaged" in skipped[2] or "format" in skipped[2]
        (tmp_path / name).write_bytes(good)
    (tmp_path / files[-1]).write_bytes(b"")
    state, rings, held = two_steps
    restored = restore(reopen(), state, rings)
    assert (restored.step, restored.host) == (1, {"step": 1})
    assert len(restored.skipped) == 1
    assert "checkpoint 2 is skipped" in restored.skipped[0]
    assert_same(on_host(restored.state), held[0][0])
    assert_same(on_host(restored.rings), held[0][1])


@pytest.mark.parametrize("name", ["manifest.json", "state/_METADATA", "params/manifest.ocdbt", "replay/_METADATA"])
def test_a_missing_file_steps_back(
    reopen: Open, two_steps: tuple[Any, Any, list[Any]], tmp_path: pathlib.Path, name: str
) -> None:
    (checkpoint_files.step_directory(tmp_path, 2) / name).unlink()
    restored = restore(reopen(), two_steps[0])
    assert restored.step == 1
    assert "No such file" in restored.skipped[0]


def test_a_truncated_manifest_steps_back(
    reopen: Open, two_steps: tuple[Any, Any, list[Any]], tmp_path: pathlib.Path
) -> None:
    path = checkpoint_files.step_directory(tmp_path, 2) / "manifest.json"
    path.write_bytes(path.read_bytes()[:100])
    assert restore(reopen(), two_steps[0]).step == 1


def test_damaged_steps_push_no_good_one_out(
    reopen: Open, two_steps: tuple[Any, Any, list[Any]], tmp_path: pathlib.Path
) -> None:
    (checkpoint_files.step_directory(tmp_path, 2) / "manifest.json").unlink()
    checkpointer = reopen(keep=2)
    state = two_steps[0]
    restore(checkpointer, state)
    checkpointer.save(3, state, {}, None)
    checkpointer.wait()
    assert [row["step"] for row in checkpoint_files.verify(tmp_path) if row["ok"]] == [1, 3]
    assert checkpoint_files.finished(tmp_path / "steps") == [1, 3]


def test_when_nothing_can_be_used_every_reason_is_named(
    reopen: Open, two_steps: tuple[Any, Any, list[Any]], tmp_path: pathlib.Path
) -> None:
    for step in (1, 2):
        (checkpoint_files.step_directory(tmp_path, step) / "manifest.json").write_bytes(b"{")
    with pytest.raises(errors.CheckpointError, match=r"checkpoint 2 is skipped.*checkpoint 1 is skipped"):
        restore(reopen(), two_steps[0])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"params": jnp.zeros(3)}, r"'params' is float32\[2\], this configuration needs float32\[3\]"),
        ({"params": jnp.zeros(2, jnp.int32)}, r"'params' is float32\[2\].*int32\[2\]"),
        ({"params": jnp.zeros(2), "more": jnp.zeros(1)}, r"'more' is absent"),
        ({}, r"'params' is float32\[2\].*needs absent"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(reopen: Open, state: Any, message: str) -> None:
    checkpointer = reopen()
    checkpointer.save(1, {"params": jnp.zeros(2)}, {}, None)
    checkpointer.wait()
    with pytest.raises(errors.ResumeError, match=message):
        restore(checkpointer, state)


def test_rings_of_another_size_are_refused_by_name(reopen: Open) -> None:
    state = {"params": jnp.zeros(2)}
    checkpointer = reopen()
    checkpointer.save(1, state, {}, make_rings(num_slots=4))
    checkpointer.wait()
    with pytest.raises(errors.ResumeError, match=r"observation.*uint8\[4, 8, 6\].*uint8\[5, 8, 6\]"):
        restore(checkpointer, state, make_rings(num_slots=5))
    with pytest.raises(errors.ResumeError, match=r"observation.*uint8\[4, 8, 6\].*uint8\[4, 8, 7\]"):
        restore(checkpointer, state, make_rings(size=7))


def files_below(directory: pathlib.Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_a_full_disk_is_reported_and_the_next_save_succeeds(
    reopen: Open, events: Events, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    state, rings = make_state(1), go_on(make_rings(), rng, 4)
    checkpointer = reopen()
    checkpointer.save(1, state, {}, rings)
    checkpointer.wait()
    before = files_below(tmp_path)

    def full(path: pathlib.Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    # The last flush of a step, of the manifest's directory; the segments were written already.
    flush_tree = durable.flush_tree
    monkeypatch.setattr(durable, "flush_tree", lambda path: (flush_tree if "segments" in str(path) else full)(path))
    rings = go_on(rings, rng, 3)
    checkpointer.save(2, state, {}, rings)
    checkpointer.wait()
    assert events.durable == [1]
    (message,) = events.errors
    for part in ("checkpoint 2", str(tmp_path), "No space left", "free some space", "1 is kept", "training goes on"):
        assert part in message
    assert files_below(tmp_path) == before
    monkeypatch.undo()
    rings = go_on(rings, rng, 3)
    checkpointer.save(3, state, {}, rings)
    checkpointer.wait()
    assert events.durable == [1, 3]
    assert_same(on_host(restore(reopen(), state, rings).rings), on_host(rings))


@pytest.mark.parametrize("part", ["replay", "params"])
def test_a_write_that_the_system_refuses_is_reported(
    reopen: Open, events: Events, tmp_path: pathlib.Path, part: str
) -> None:
    rng = np.random.default_rng(0)
    size = 200_000 if part == "replay" else 10
    values = rng.random(10 if part == "replay" else 200_000)
    state = {"params": jnp.asarray(values)}
    rings = go_on(make_rings(num_slots=2, size=size), rng, 3)
    checkpointer = reopen()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        checkpointer.save(1, state, {}, rings)
        checkpointer.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert events.durable == []
    assert "checkpoint 1 could not be written" in events.errors[0]
    assert segment_names(tmp_path) == set()
    assert list((tmp_path / "steps").iterdir()) == []
    checkpointer.save(2, state, {}, rings)
    checkpointer.wait()
    assert events.durable == [2]


def test_a_directory_that_cannot_be_written_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.CheckpointError, match=r"file/checkpoints cannot be written: Not a directory; make it"):
        checkpoint.Checkpointer(
            tmp_path / "file" / "checkpoints", config.CheckpointConfig(), on_durable=print, on_error=print
        )


def test_leftovers_of_a_crash_are_deleted_at_the_start(
    reopen: Open, two_steps: tuple[Any, Any, list[Any]], tmp_path: pathlib.Path
) -> None:
    before = files_below(tmp_path)
    for name in ("steps/000000000003.12345678.tmp/params", "steps/000000000001.1.trash", "segments/unreferenced"):
        (tmp_path / name).mkdir(parents=True)
    reopen()
    assert files_below(tmp_path) == before


def test_a_step_is_durable_only_when_the_rename_is_flushed(reopen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
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
    checkpointer = reopen()
    checkpointer._on_durable = lambda step: order.append(f"durable {step}")
    order.clear()
    checkpointer.save(5, {"params": jnp.zeros(1)}, {}, None)
    checkpointer.wait()
    renamed = order.index("rename to 000000000005")
    assert order[renamed + 1 : renamed + 3] == ["flush steps", "durable 5"]
    assert "flush manifest.json" in order[:renamed]


def test_parameters_alone_come_back_without_a_template(
    two_steps: tuple[Any, Any, list[Any]], tmp_path: pathlib.Path
) -> None:
    _, _, held = two_steps
    for step, index in (("last", 1), (1, 0), (2, 1)):
        params, info = checkpoint_files.restore_params(tmp_path, step)  # type: ignore[arg-type]
        assert_same(on_host(params), held[index][0]["params"])
        assert (info["step"], info["host"]) == (index + 1, {"step": index + 1})


def test_parameters_alone_need_nothing_else_to_be_whole(
    two_steps: tuple[Any, Any, list[Any]], tmp_path: pathlib.Path
) -> None:
    newest = checkpoint_files.step_directory(tmp_path, 2)
    (newest / "state" / "_METADATA").unlink()
    assert checkpoint_files.restore_params(tmp_path, "last")[1]["step"] == 2
    (newest / "params" / "_METADATA").unlink()
    assert checkpoint_files.restore_params(tmp_path, "last")[1]["step"] == 1
    with pytest.raises(errors.CheckpointError, match=r"checkpoint 2 in .* cannot be used.*params/_METADATA"):
        checkpoint_files.restore_params(tmp_path, 2)


def test_parameters_alone_fit_a_template(tmp_path: pathlib.Path, reopen: Open) -> None:
    class Params(NamedTuple):
        layers: list[jax.Array]

    params = Params([jnp.arange(3.0), jnp.ones(2)])
    checkpointer = reopen()
    checkpointer.save(1, {"params": params}, {}, None)
    checkpointer.wait()
    restored, _ = checkpoint_files.restore_params(tmp_path, "last", trees.abstract(params))
    assert_same(on_host(restored), on_host(params))
    with pytest.raises(errors.ResumeError, match="params/layers/0"):
        checkpoint_files.restore_params(tmp_path, "last", Params([jnp.zeros(9), jnp.ones(2)]))


def test_one_best_is_kept_and_read_alone(reopen: Open, tmp_path: pathlib.Path) -> None:
    checkpointer = reopen()
    for step, mean_return in ((7, 1.0), (20, 3.0), (9, 4.0)):
        checkpointer.save_best(step, {"w": jnp.full(2, mean_return)}, {"mean_return": mean_return})
        checkpointer.wait()
    params, info = checkpoint_files.restore_params(tmp_path, "best")
    assert (info["step"], info["host"]) == (9, {"mean_return": 4.0})
    assert params["w"].tolist() == [4.0, 4.0]
    assert checkpoint_files.finished(tmp_path / "best") == [9]
    (row,) = checkpoint_files.verify(tmp_path)
    assert (row["step"], row["best"], row["ok"], row["has_replay"]) == (9, True, True, False)


def test_only_the_newest_waiting_best_is_written(
    reopen: Open, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, written = threading.Event(), []
    real = trees.save

    def late(directory: pathlib.Path, tree: Any) -> None:
        assert go.wait(30)
        written.append(directory.parent.name[:12])
        real(directory, tree)

    monkeypatch.setattr(trees, "save", late)
    checkpointer = reopen()
    checkpointer.save(1, {"params": jnp.zeros(1)}, {}, None)
    for step in (1, 2, 3):
        checkpointer.save_best(step, {"w": jnp.zeros(1)}, {})
    go.set()
    checkpointer.wait()
    assert sorted(set(written)) == ["000000000001", "000000000003"]


@pytest.mark.parametrize("step", [5, "best", "last"])
def test_a_checkpoint_that_is_not_there_is_named(reopen: Open, tmp_path: pathlib.Path, step: Any) -> None:
    reopen()
    with pytest.raises(errors.CheckpointError, match=r"no (usable )?checkpoint"):
        checkpoint_files.restore_params(tmp_path, step)


def test_verify_names_the_damage_and_list_reads_no_content(
    two_steps: tuple[Any, Any, list[Any]], tmp_path: pathlib.Path
) -> None:
    path = next((checkpoint_files.step_directory(tmp_path, 2) / "params" / "d").iterdir())
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert [row["ok"] for row in checkpoint_files.list_steps(tmp_path)] == [True, True]
    good, bad = checkpoint_files.verify(tmp_path)
    assert good | {"bytes": 0} == {
        "step": 1,
        "best": False,
        "ok": True,
        "reason": None,
        "bytes": 0,
        "time": 1.5,
        "has_replay": True,
        "kept_for_good": False,
    }
    assert (bad["step"], bad["ok"]) == (2, False)
    assert f"params/d/{path.name} is damaged" in bad["reason"]


def test_the_copies_on_the_device_are_bounded(reopen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
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
    rings = go_on(make_rings(num_slots=1), np.random.default_rng(0), LENGTH)
    checkpointer = reopen(max_copy_bytes=12)
    checkpointer.save(1, {"params": jnp.zeros(1)}, {}, rings)
    checkpointer.wait()
    assert most <= 3
    assert_same(on_host(restore(checkpointer, {"params": jnp.zeros(1)}, rings).rings), on_host(rings))


def test_memory_is_counted_for_the_replay_and_for_copies_of_state_and_rows() -> None:
    state, rings = {"params": jnp.zeros(10)}, make_rings(num_slots=2)
    small = sum(x.nbytes for x in jax.tree.leaves(rings)) - rings.observation.nbytes
    frames = 2 * LENGTH * 6
    assert checkpoint.needed_bytes(state, rings, is_saved=False) == (frames, small, 0, 0, 40)
    like = trees.abstract(state), trees.abstract(rings)
    assert checkpoint.needed_bytes(*like) == (frames, small, frames, small, 40)
    huge = rings._replace(observation=jax.ShapeDtypeStruct((1000, 1000, 96, 96), jnp.uint8))  # type: ignore[no-untyped-call]
    copied = checkpoint.MAX_COPY_BYTES + segments.CHUNK_BYTES
    assert checkpoint.needed_bytes(state, huge) == (96 * 96 * 10**6, small, copied, small, 40)


def _kept_by_the_host(rings: rings_lib.Rings) -> rings_lib.Rings:
    return rings._replace(observation=np.array(rings.observation))


@pytest.mark.parametrize("onto_host", [True, False])
def test_a_replay_comes_back_wherever_its_frames_were_and_shall_be(
    reopen: Open, events: Events, onto_host: bool
) -> None:
    rng, state, checkpointer = np.random.default_rng(2), make_state(), reopen()
    rings = make_rings(length=64)
    for step, num_rows in enumerate((0, 5, 100)):  # segments of several saves, past the rings' ends
        rings = go_on(rings, rng, num_rows)
        checkpointer.save(step, state, {}, rings if onto_host else _kept_by_the_host(rings))
        checkpointer.wait()
    template = trees.abstract(rings)
    if onto_host:
        template = template._replace(observation=np.zeros_like(np.asarray(rings.observation)))
    restored = reopen().restore(trees.abstract(state), template)
    assert restored is not None and restored.rings is not None
    assert isinstance(restored.rings.observation, np.ndarray) == onto_host
    assert_same(on_host(restored.rings), on_host(rings))
    assert not events.errors


def test_rows_of_the_host_are_copied_before_a_save_returns(reopen: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpointer, state = reopen(), make_state()
    rings = _kept_by_the_host(go_on(make_rings(), np.random.default_rng(3), 6))
    expected, may_write, write = rings.observation.copy(), threading.Event(), segments.write

    def write_later(*args: Any) -> segments.Segment:
        assert may_write.wait(60)
        return write(*args)

    monkeypatch.setattr(segments, "write", write_later)
    checkpointer.save(1, state, {}, rings)
    rings.observation[:] = 0  # acting goes on
    may_write.set()
    checkpointer.wait()
    restored = restore(reopen(), state, _kept_by_the_host(rings)._replace(observation=jnp.asarray(expected)))
    np.testing.assert_array_equal(np.asarray(restored.rings.observation), expected)


def test_replay_is_saved_up_to_a_size_unless_told_otherwise() -> None:
    auto = config.CheckpointConfig(replay_limit_bytes=10)
    assert checkpoint.saves_replay(auto, 10)
    assert not checkpoint.saves_replay(auto, 11)
    assert checkpoint.saves_replay(config.CheckpointConfig(replay="on", replay_limit_bytes=10), 11)
    assert not checkpoint.saves_replay(config.CheckpointConfig(replay="off"), 1)


SAVE_FOR_EVER = """
import pathlib, sys
import jax, jax.numpy as jnp, numpy as np
from seedzero.config import config
from seedzero.core import types
from seedzero.replay import rings as rings_lib
from seedzero.checkpoints import checkpoint, trees

spec = types.EnvSpec(observation_shape=(50,), observation_dtype="uint8", num_actions=2)
rings = jax.jit(lambda: rings_lib.create(spec, {}, 2, 16))()
write = jax.jit(rings_lib.write, static_argnames="stack", donate_argnums=0)
state = {"params": {"w": jnp.zeros(1000)}}
checkpointer = checkpoint.Checkpointer(
    pathlib.Path(sys.argv[1]), config.CheckpointConfig(keep=2),
    on_durable=lambda step: print(step, flush=True), on_error=lambda text: sys.exit(text),
)
restored = checkpointer.restore(trees.abstract(state), trees.abstract(rings))
step = 0
if restored is not None:
    step, state, rings = restored.step, restored.state, restored.rings
    assert not restored.skipped, restored.skipped
    assert (np.asarray(state["params"]["w"]) == step).all()
    cursor = int(rings.cursor[0])
    assert cursor == 3 * step
    expected = np.zeros(16, np.uint8)
    for n in range(max(0, cursor - 16), cursor):
        expected[n % 16] = n % 256
    assert (np.asarray(rings.observation) == expected[None, :, None]).all()
print("restored", step, flush=True)
while True:
    for _ in range(3):
        n = int(rings.cursor[0])
        row = rings_lib.Row(
            jnp.full((2, 50), n % 256, jnp.uint8), jnp.zeros(2), jnp.zeros(2, bool), jnp.zeros(2, bool),
            jnp.zeros(2, bool), {},
        )
        rings = write(rings, jnp.arange(2), row, jnp.int32(0), stack=1)
    step += 1
    state = {"params": {"w": jnp.full(1000, step, jnp.float32)}}
    checkpointer.save(step, state, {"step": step}, rings)
"""


def test_killed_at_any_moment_it_goes_on_at_or_after_the_last_durable_step(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng()
    durable_step = 0
    for _ in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOR_EVER, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline().split()
        assert first[:1] == ["restored"], process.stderr.read()
        assert int(first[1]) >= durable_step
        durable_step = int(process.stdout.readline())
        # Any moment of the saves that follow; what is a random wait here is no synchronisation.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(rng.random() * 0.8)
        process.send_signal(signal.SIGKILL)
        for line in process.stdout.read().splitlines():
            durable_step = int(line)
        process.communicate()
    found, skipped = checkpoint_files.newest_verified(tmp_path)
    assert found is not None
    assert not skipped
    assert found.step >= durable_step >= 5
