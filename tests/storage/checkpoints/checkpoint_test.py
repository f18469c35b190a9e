"""Restoring: everything bit for bit, or a refusal that names the reason; the bytes that a checkpoint takes."""

import dataclasses
import os
import pathlib
import re
import shutil
from typing import Any

import checkpoint_harness as harness
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors
from seedzero.replay import ring_store, sampling, sources, windowing
from seedzero.storage.checkpoints import checkpoint, checkpoint_dir, manifest, saved_files, segments, trees


def test_an_empty_directory_holds_nothing_to_restore(disk: harness.Disk) -> None:
    assert harness.restore(disk.open(), harness.make_state()) is None


def test_everything_comes_back_bit_for_bit(disk: harness.Disk) -> None:
    state = harness.make_state(3)
    rings = harness.filled(5)
    checkpointer = disk.open()
    disk.save(12, state, {"steps": 40, "by_reason": {"worker_lost": 2}}, rings)
    assert (disk.durable, disk.errors, checkpointer.busy) == ([12], [], False)
    restored = harness.restore(disk.open(), harness.make_state(), rings)
    assert (restored.step, restored.losses) == (12, [])
    assert restored.counters == {"steps": 40, "by_reason": {"worker_lost": 2}}
    harness.assert_same(restored.state, state)
    harness.assert_same(restored.rings, rings)
    assert jax.random.key_impl(restored.state["keys"]["one"]) == jax.random.key_impl(state["keys"]["one"])
    assert jax.random.uniform(restored.state["keys"]["one"]) == jax.random.uniform(state["keys"]["one"])


@pytest.mark.thorough
def test_a_resumed_run_samples_by_the_same_priorities(disk: harness.Disk) -> None:
    how = sources.Prioritization(alpha=0.6, beta=0.4, epsilon=1e-3)
    replay = sources.Replay(length=3, observe=(0,), prioritization=how)
    prioritize = jax.jit(sampling.prioritize, static_argnames="prioritization", donate_argnums=0)
    rng = np.random.default_rng(0)

    @jax.jit
    def draw(rings: ring_store.Rings, key: int) -> windowing.Windows:
        drawn = sampling.sample(
            rings, jax.random.key(key), 6, replay, stack=2, num_inserts=jnp.int32(9), capacity=100, beta=how.beta
        )
        return windowing.read(rings, drawn)

    def step(rings: ring_store.Rings, key: int) -> tuple[ring_store.Rings, windowing.Windows]:
        drawn = draw(rings, key)
        return prioritize(rings, drawn.slot, drawn.time, 1.5 + drawn.reward[:, 0], prioritization=how), drawn

    rings, _ = step(harness.go_on(harness.make_rings(prioritized=True), rng, 6), 0)
    disk.open()
    disk.save(1, harness.make_state(), {}, rings)
    restored = harness.restore(disk.open(), harness.make_state(), rings).rings
    assert disk.errors == []
    assert restored.max_weight[0] > 1
    for key in range(1, 4):
        state = rng.bit_generator.state
        rings, drawn = step(harness.go_on(rings, rng, 1), key)
        rng.bit_generator.state = state
        restored, again = step(harness.go_on(restored, rng, 1), key)
        harness.assert_same(again, drawn)
    harness.assert_same(restored, rings)


def test_restored_arrays_can_be_donated(disk: harness.Disk) -> None:
    state = {"params": {"w": jnp.arange(10.0)}}
    checkpointer = disk.open()
    disk.save(1, state, {}, harness.make_rings())
    restored = harness.restore(checkpointer, state, harness.make_rings())
    harness.increment(restored.state)
    assert restored.state["params"]["w"].is_deleted()
    harness.go_on(restored.rings, np.random.default_rng(0), 1)
    assert restored.rings.observation.is_deleted()


@pytest.mark.thorough
@pytest.mark.parametrize("num_devices", [2, 4])
def test_rings_and_state_on_several_devices_come_back_to_their_places(disk: harness.Disk, num_devices: int) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ("devices",))
    sharded = jax.NamedSharding(mesh, jax.P("devices"))
    whole = jax.NamedSharding(mesh, jax.P())
    plain = harness.filled(5, num_slots=8)
    rings = jax.device_put(plain, sharded)
    state = jax.device_put({"params": {"w": jnp.arange(8.0)}, "key": jax.random.key(1)}, whole)
    checkpointer = disk.open()
    checkpointer.save(1, state, {}, rings)
    plain = harness.go_on(plain, np.random.default_rng(1), 2 * harness.LENGTH)
    rings = jax.device_put(plain, sharded)
    disk.save(2, state, {}, rings)
    restored = harness.restore(disk.open(), state, rings)
    harness.assert_same(restored.rings, plain)
    harness.assert_same(restored.state, state)
    for leaf in jax.tree.leaves(restored.rings):
        assert leaf.sharding.is_equivalent_to(sharded, leaf.ndim)
    for leaf in jax.tree.leaves(restored.state):
        assert leaf.sharding.is_equivalent_to(whole, leaf.ndim)
    # The same checkpoint on one device.
    harness.assert_same(harness.restore(disk.open(), state, plain).rings, plain)


class InPlaces:
    """A replay and two players' states on three devices, in two places, one of which has two."""

    def __init__(self) -> None:
        meshes = [jax.sharding.Mesh(np.array(jax.devices()[a:b]), ("devices",)) for a, b in ((0, 2), (2, 3))]
        self._sharded = [jax.NamedSharding(mesh, jax.P("devices")) for mesh in meshes]
        self.plain = [harness.filled(5, num_slots=8), harness.filled(3, seed=1, num_slots=6)]
        self.state = {
            f"players/{name}/params": jax.device_put({"w": jnp.full(3, at)}, jax.NamedSharding(mesh, jax.P()))
            for at, (name, mesh) in enumerate(zip(("main", "other"), meshes, strict=True))
        }

    @property
    def rings(self) -> tuple[ring_store.Rings, ...]:
        return tuple(jax.device_put(*one) for one in zip(self.plain, self._sharded, strict=True))

    def go_on(self, *steps: int) -> None:
        rng = np.random.default_rng(1)
        self.plain = [harness.go_on(one, rng, number) for one, number in zip(self.plain, steps, strict=True)]

    def restore(self, disk: harness.Disk, places: list[int]) -> checkpoint.Restored:
        like = harness.abstract(self.state), tuple(map(harness.abstract, self.rings))
        restored = checkpoint.restore(disk.path, *like, places=places)
        assert restored is not None
        return restored


@pytest.mark.thorough
def test_the_replay_of_several_places_comes_back_to_each(disk: harness.Disk) -> None:
    run, counters = InPlaces(), {ring_store.PLACES: [2, 1]}
    disk.open()
    disk.save(1, run.state, counters, run.rings)
    first = disk.segments()
    run.go_on(2, 1)
    disk.save(2, run.state, counters, run.rings)
    assert len(disk.segments()) == 4 and first < disk.segments()  # new rows of each place alone are written
    for _ in range(2):
        restored = run.restore(disk, [2, 1])
        assert isinstance(restored.rings, tuple) and restored.losses == []
        harness.assert_same(restored.rings, tuple(run.plain))
        harness.assert_same(restored.state, run.state)
        for found, wanted in zip(restored.rings, run.rings, strict=True):
            assert found.observation.sharding.is_equivalent_to(wanted.observation.sharding, 2)
        disk.open().continue_from(restored)
        run.go_on(harness.LENGTH + 2, 0)  # one place's rings are written anew, and nothing of the other
        disk.save(3, run.state, counters, run.rings)
    assert disk.errors == []


def test_players_dealt_over_other_devices_begin_with_an_empty_replay(disk: harness.Disk) -> None:
    run = InPlaces()
    disk.open()
    disk.save(1, run.state, {ring_store.PLACES: [2, 1]}, run.rings)
    restored = run.restore(disk, [1, 1])
    assert restored.rings is None
    harness.assert_same(restored.state, run.state)
    assert "checkpoint 1 lies in 2 place(s) of devices, and now there are 2 of other sizes" in restored.losses[0]
    alone = checkpoint.restore(disk.path, harness.abstract(run.state), harness.abstract(run.plain[0]))
    assert alone is not None and alone.rings is None
    assert "in 2 place(s) of devices, and now there are 1:" in alone.losses[0]


@pytest.mark.parametrize(("before", "after"), [(4, 2), (1, 4)])
def test_other_numbers_of_devices_share_the_same_rings(disk: harness.Disk, before: int, after: int) -> None:
    """The largest weight lies once on each device."""
    plain = harness.filled(5, num_slots=8)

    def on(num_devices: int) -> Any:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:num_devices]), ("devices",))
        rings = plain._replace(max_weight=jnp.full(num_devices, 3.0))
        return jax.device_put(rings, jax.NamedSharding(mesh, jax.P("devices")))

    state, expected = harness.make_state(), on(after)
    disk.open()
    disk.save(1, state, {}, on(before))
    restored = harness.restore(disk.open(), state, expected).rings
    harness.assert_same(restored, expected)
    assert restored.max_weight.sharding.is_equivalent_to(expected.max_weight.sharding, 1)


def test_without_replay_there_are_no_rings_to_restore(disk: harness.Disk) -> None:
    state = harness.make_state()
    checkpointer = disk.open()
    disk.save(1, state, {}, None)
    restored = harness.restore(checkpointer, state, harness.make_rings())
    assert restored.rings is None
    # Rings that were not restored are written whole by the next save.
    rings = harness.filled(4)
    disk.save(2, state, {}, rings)
    harness.assert_same(harness.restore(checkpointer, state, rings).rings, rings)


def all_files(directory: pathlib.Path) -> list[str]:
    """Returns the kinds of files of the newest step, one path for each."""
    step = saved_files.finished(directory / "steps")[-1]
    newest = saved_files.step_directory(directory, step)
    found = saved_files.verified(directory, newest)
    # A segment that only the newest one has.
    older = saved_files.verified(directory, saved_files.step_directory(directory, step - 1))
    own = [directory / "segments" / name for name in found.segments if name not in older.segments]
    paths = [path for root in (newest, *own) for path in root.rglob("*") if path.is_file() and path.stat().st_size]
    return [str(path.relative_to(directory)) for path in sorted(paths)]


def test_a_flipped_bit_in_any_file_steps_back_and_says_so(disk: harness.Disk, two_steps: harness.Steps) -> None:
    rng = np.random.default_rng(5)
    files = all_files(disk.path)
    kinds = ("manifest.json", "params/", "state/", "replay/", "index.json", "rows/")
    assert all(any(kind in path for path in files) for kind in kinds)
    for name in files:
        content = bytearray((disk.path / name).read_bytes())
        good = bytes(content)
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
        (disk.path / name).write_bytes(content)
        found, skipped = saved_files.newest_verified(disk.path)
        assert found is not None
        assert (found.step, list(skipped)) == (1, [2]), name
        assert name.rpartition("/")[2] in skipped[2]
        assert "damaged" in skipped[2] or "format" in skipped[2]
        (disk.path / name).write_bytes(good)
    (disk.step(2) / "params" / "manifest.ocdbt").write_bytes(b"")
    state, rings, held = two_steps
    restored = harness.restore(disk.open(), state, rings)
    assert (restored.step, restored.counters) == (1, {"step": 1})
    assert len(restored.losses) == 1
    assert "checkpoint 2 " in restored.losses[0] and "manifest.ocdbt" in restored.losses[0]
    harness.assert_same(restored.state, held[0][0])
    harness.assert_same(restored.rings, held[0][1])


@pytest.mark.thorough
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("damage", ["flipped", "missing", "index.json", "replay/manifest.ocdbt"])
def test_a_damaged_replay_costs_no_update(
    disk: harness.Disk, two_steps: harness.Steps, damage: str, shared: bool
) -> None:
    newest = disk.step(2)
    of_step = [saved_files.verified(disk.path, disk.step(step)) for step in (1, 2)]
    name = next(name for name in of_step[1].segments if (name in of_step[0].segments) == shared)
    segment = disk.path / "segments" / name
    if damage == "flipped":
        path = max(segment.rglob("*"), key=lambda file: file.stat().st_size if file.is_file() else 0)
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    elif damage == "missing":
        shutil.rmtree(segment)
    else:
        (newest / damage if "/" in damage else segment / damage).unlink()
    state, rings, held = two_steps
    checkpointer = disk.open()
    restored = harness.restore(checkpointer, state, rings)
    assert (restored.step, restored.rings) == (2, None)
    assert len(restored.losses) == 1 and re.match("the replay of checkpoint 2 .*:", restored.losses[0])
    harness.assert_same(restored.state, held[1][0])
    # Without its replay, the checkpoint is as good as ever.
    assert harness.restore(checkpointer, state).losses == []
    # The next save does not build on it.
    disk.save(3, state, {}, rings)
    assert disk.errors == []
    again = harness.restore(disk.open(), state, rings)
    assert (again.step, again.losses) == (3, [])
    harness.assert_same(again.rings, rings)


def test_a_replay_whose_segments_lack_rows_is_lost_and_not_filled_with_zeros(
    disk: harness.Disk, two_steps: harness.Steps
) -> None:
    newest = disk.step(2)
    found = manifest.read(newest)
    first, *others = found.segments
    manifest.write(newest, dataclasses.replace(found, segments={name: found.segments[name] for name in others}))
    state, rings, held = two_steps
    restored = harness.restore(disk.open(), state, rings)
    num_rows = segments.read_index(disk.path / "segments", first, {}).runs.num_rows
    (loss,) = restored.losses
    assert "checkpoint 2 " in loss and f" {num_rows} " in loss
    assert restored.rings is None
    harness.assert_same(restored.state, held[1][0])


def test_where_the_replay_is_needed_an_older_whole_checkpoint_is_taken(
    disk: harness.Disk, two_steps: harness.Steps
) -> None:
    state, rings, held = two_steps
    of_step = [saved_files.verified(disk.path, disk.step(step)) for step in (1, 2)]
    shutil.rmtree(disk.path / "segments" / next(iter(of_step[1].segments.keys() - of_step[0].segments.keys())))
    like = harness.abstract(state), harness.abstract(rings)
    restored = checkpoint.restore(disk.path, *like, needs_replay=True)
    assert restored is not None and restored.step == 1
    assert "checkpoint 2 " in restored.losses[0]
    harness.assert_same(restored.rings, held[0][1])


@pytest.mark.parametrize(
    ("name", "size", "reason"),
    [
        *((name, None, "No such file") for name in ("manifest.json", "state/manifest.ocdbt", "params/manifest.ocdbt")),
        ("manifest.json", 100, "is damaged"),
    ],
)
def test_a_missing_or_truncated_file_steps_back(
    disk: harness.Disk, two_steps: harness.Steps, name: str, size: int | None, reason: str
) -> None:
    path = disk.step(2) / name
    path.unlink() if size is None else os.truncate(path, size)
    restored = harness.restore(disk.open(), two_steps[0])
    assert restored.step == 1
    assert reason in restored.losses[0]


def test_when_nothing_can_be_used_every_reason_is_named(disk: harness.Disk, two_steps: harness.Steps) -> None:
    for step in (1, 2):
        (disk.step(step) / "manifest.json").write_bytes(b"{")
    with pytest.raises(
        errors.CheckpointError, match=r"checkpoint 2 .*checkpoint 1 .*manifest\.json.*\b2\b.*--run_dir"
    ):
        harness.restore(disk.open(), two_steps[0])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"params": jnp.zeros(3)}, r"'params' .*float32\[2\].*float32\[3\]"),
        ({"params": jnp.zeros(2, jnp.int32)}, r"'params' is float32\[2\].*int32\[2\]"),
        ({"params": jnp.zeros(2), "more": jnp.zeros(1)}, "'more'"),
        ({}, r"'params' .*float32\[2\]"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(disk: harness.Disk, state: Any, message: str) -> None:
    checkpointer = disk.open()
    disk.save(1, {"params": jnp.zeros(2)}, {}, None)
    with pytest.raises(errors.ResumeError, match=message):
        harness.restore(checkpointer, state)


def test_rings_of_another_size_are_refused_by_name(disk: harness.Disk) -> None:
    state = {"params": jnp.zeros(2)}
    checkpointer = disk.open()
    disk.save(1, state, {}, harness.make_rings(num_slots=4))
    with pytest.raises(errors.ResumeError, match=r"observation.*uint8\[4, 8, 6\].*uint8\[5, 8, 6\]"):
        harness.restore(checkpointer, state, harness.make_rings(num_slots=5))
    with pytest.raises(errors.ResumeError, match=r"observation.*uint8\[4, 8, 6\].*uint8\[4, 8, 7\]"):
        harness.restore(checkpointer, state, harness.make_rings(size=7))


def test_memory_is_counted_for_the_replay_and_for_copies_of_state_and_rows() -> None:
    state, rings = {"params": jnp.zeros(10)}, harness.make_rings(num_slots=2)
    small = sum(x.nbytes for x in jax.tree.leaves(rings)) - rings.observation.nbytes
    frames = 2 * harness.LENGTH * 6
    assert checkpoint.needed_bytes(state, rings, is_saved=False) == (frames, small, 0, 0, 40)
    like = harness.abstract(state), harness.abstract(rings)
    assert checkpoint.needed_bytes(*like) == (frames, small, frames, small, 40)
    huge = rings._replace(observation=jax.ShapeDtypeStruct((1000, 1000, 96, 96), jnp.uint8))  # type: ignore[no-untyped-call]
    copied = checkpoint.MAX_COPY_BYTES + segments.CHUNK_BYTES
    assert checkpoint.needed_bytes(state, huge) == (96 * 96 * 10**6, small, copied, small, 40)


@pytest.mark.thorough
@pytest.mark.parametrize("size", [6, 1030])  # of small frames, and of tiled ones
@pytest.mark.parametrize("onto_host", [True, False])
def test_a_replay_comes_back_wherever_its_frames_were_and_shall_be(
    disk: harness.Disk, onto_host: bool, size: int
) -> None:
    rng, state = np.random.default_rng(2), harness.make_state()
    disk.open()
    rings = harness.make_rings(length=64, size=size)
    for step, num_rows in enumerate((0, 5, 100)):  # segments of several saves, past the rings' ends
        rings = harness.go_on(rings, rng, num_rows)
        disk.save(step, state, {}, rings if onto_host else harness.kept_by_the_host(rings))
    template = harness.abstract(rings)
    if onto_host:
        template = template._replace(observation=np.zeros_like(harness.frames(rings)))
    restored = checkpoint.restore(disk.open()._directory.path, harness.abstract(state), template)
    assert restored is not None and restored.rings is not None
    assert isinstance(restored.rings.observation, np.ndarray) == onto_host
    expected, found = map(harness.kept_by_the_host, (rings, restored.rings))
    harness.assert_same(found, expected)
    # Files have the environment's shapes.
    directory = disk.open()._directory.path
    assert saved_files.find(directory, "last", "all")[1].arrays[checkpoint.OBSERVATION][0].shape == [4, 64, size]
    assert restored.newest.replay is not None
    for segment in restored.newest.replay.segments:
        rows = segments.read_rows(directory / saved_files.SEGMENTS, segment)
        assert rows.shape == (segment.runs.num_rows, size)
    assert not disk.errors


def test_replay_is_saved_up_to_a_size_unless_told_otherwise() -> None:
    auto, limit = sections.CheckpointConfig(), 4 * 2**30
    assert checkpoint.saves_replay(auto, limit)
    assert not checkpoint.saves_replay(auto, limit + 1)
    assert checkpoint.saves_replay(sections.CheckpointConfig(replay="on"), limit + 1)
    assert not checkpoint.saves_replay(sections.CheckpointConfig(replay="off"), 1)


def test_several_players_have_directories_of_their_own_and_one_keeps_the_old_names(tmp_path: pathlib.Path) -> None:
    one, two = ({"params": {"w": jnp.full(2, number)}, "step": jnp.int32(number)} for number in (1, 2))
    assert checkpoint.by_player({"main": one}) == one
    assert checkpoint.of_player(one, "main") == one
    state = checkpoint.by_player({"main": one, "exploiter": two})
    assert list(checkpoint.parts_of(one)) == ["params", "state"]
    names = [f"players/{player}/{part}" for player in ("main", "exploiter") for part in ("params", "state")]
    assert list(checkpoint.parts_of(state)) == names
    writer = checkpoint_dir.CheckpointDir(tmp_path, sections.CheckpointConfig(), lambda: 0.0)
    writer.write(7, checkpoint.parts_of(trees.copy(state)), {}, (), None)
    path = saved_files.step_directory(tmp_path, 7)
    assert {file.relative_to(path).parts[0] for file in path.iterdir()} == {"manifest.json", "players"}
    kept = saved_files.own_files(manifest.read(path), "params")
    assert kept and all("/params/" in name for name in kept)
    restored = checkpoint.restore(tmp_path, state, None)
    assert restored is not None
    for name, saved in (("main", one), ("exploiter", two)):
        jax.tree.map(np.testing.assert_array_equal, checkpoint.of_player(restored.state, name), saved)
