"""Which rows go into which segment, by hand."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.core import errors
from seedzero.storage.checkpoints import segments


def runs(*rows: tuple[int, int, int]) -> segments.Runs:
    """Runs from (slot, first number, length)."""
    return segments.Runs(*np.array(rows, np.int64).reshape(-1, 3).T)


def saved(cursor: list[int], *contents: segments.Runs) -> segments.SavedReplay:
    return segments.SavedReplay(
        np.array(cursor), tuple(segments.Segment(str(i), {}, c) for i, c in enumerate(contents))
    )


def test_new_rows_are_those_since_the_last_save_that_are_still_there() -> None:
    rows = segments.new_rows(saved([3, 5, 0, 2]), np.array([5, 5, 1, 20]), 4)
    assert rows.slot.tolist() == [0, 0, 2, 3, 3, 3, 3]
    assert rows.number.tolist() == [3, 4, 0, 16, 17, 18, 19]


def test_runs_and_rows_are_the_same_thing() -> None:
    packed = runs((0, 3, 2), (0, 9, 1), (1, 10, 3))
    rows = segments.expand(packed)
    assert rows.slot.tolist() == [0, 0, 0, 1, 1, 1]
    assert rows.number.tolist() == [3, 4, 9, 10, 11, 12]
    for column, again in zip(packed, segments.compress(rows), strict=True):
        assert column.tolist() == again.tolist()


def test_a_segment_is_needed_while_one_of_its_rows_is_in_the_rings() -> None:
    on_disk = saved([8, 8], runs((0, 0, 4), (1, 0, 2)), runs((0, 4, 4), (1, 2, 6)))
    assert [s.name for s in segments.needed(on_disk, np.array([11, 9]), 8)] == ["0", "1"]
    assert [s.name for s in segments.needed(on_disk, np.array([12, 10]), 8)] == ["1"]
    assert [s.name for s in segments.needed(on_disk, np.array([12, 9]), 8)] == ["0", "1"]
    assert segments.needed(on_disk, np.array([16, 16]), 8) == ()


def test_missing_rows_are_counted_among_those_still_in_the_rings() -> None:
    first, second = runs((0, 0, 4), (1, 0, 2)), runs((0, 4, 7), (1, 2, 1))
    assert segments.num_missing(saved([11, 3], first, second), 8) == 0
    assert segments.num_missing(saved([11, 3], first), 8) == 8  # it has row 3 of slot 0, and two of slot 1
    assert segments.num_missing(saved([11, 3], second), 8) == 3
    assert segments.num_missing(saved([11, 3]), 8) == 11


def test_a_save_builds_on_nothing_once_most_of_the_rows_on_disk_are_dead() -> None:
    on_disk = saved([8], runs((0, 0, 8)))
    assert segments.base(None, np.array([8]), 8).segments == ()
    assert len(segments.base(on_disk, np.array([12]), 8).segments) == 1
    dead = segments.base(on_disk, np.array([13]), 8)
    assert (dead.segments, dead.cursor.tolist()) == ((), [0])


def test_rows_are_copied_in_a_few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    template = jax.eval_shape(lambda: jnp.zeros((4, 100_000, 3), jnp.float32))
    monkeypatch.setattr(segments, "CHUNK_BYTES", 12 * 5_000)
    assert segments.sizes(template) == (256, 2048, 5000)
    rows = segments.expand(runs((1, 10, 5_100), (3, 99_990, 20)))
    first, second = segments.chunks(template, rows)
    assert (len(first.slot), len(second.slot)) == (5000, 256)
    assert (first.used.tolist(), second.used.tolist()) == ([5000], [120])
    assert np.concatenate([first.source, second.source]).tolist() == list(range(5_120))
    # Numbers wrap around; padding lies past the last slot.
    assert second.time[100:120].tolist() == [*range(99_990, 100_000), *range(10)]
    assert set(second.slot[120:].tolist()) == {4}


def test_each_shard_copies_its_own_slots() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("devices",))
    rings = jax.device_put(
        jnp.arange(4 * 10, dtype=jnp.int32).reshape(4, 10), jax.NamedSharding(mesh, jax.P("devices"))
    )
    assert segments.sizes(rings) == (20,)
    rows = segments.Rows(np.array([3, 0, 1]), np.array([12, 4, 5]))
    (chunk,) = segments.chunks(rings, rows)
    assert chunk.used.tolist() == [2, 1]
    assert chunk.source.tolist() == [1, 2, 0]
    copied = segments.to_host(segments.gather(rings, chunk), chunk.used)
    assert copied.tolist() == [4, 15, 32]
    changed = segments.scatter(rings, chunk, copied + 1000)
    expected = np.arange(40).reshape(4, 10)
    expected[0, 4], expected[1, 5], expected[3, 2] = 1004, 1015, 1032
    assert np.asarray(changed).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
def test_written_rows_are_read_bit_for_bit(
    tmp_path: pathlib.Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_FILE_BYTES", 64)
    (tmp_path / "segments").mkdir()
    rows = np.random.default_rng(0).integers(0, 256, (9, 3 * np.dtype(dtype).itemsize), np.uint8).view(dtype)
    rows[1] = -0.0 if dtype == "float32" else 0
    written = segments.write(tmp_path / "segments", "one", rows, runs((0, 0, 9)))
    index = segments.read_index(tmp_path / "segments", "one", written.files)
    assert segments.read_rows(tmp_path / "segments", index).tobytes() == rows.tobytes()
    assert index.runs.num_rows == 9
    num_files = 1 if dtype == "uint8" else 2
    assert set(written.files) == {"index.json", "rows/.zarray", *(f"rows/{i}.0" for i in range(num_files))}


def test_a_segment_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.CheckpointError, match=r"segments/gone/index\.json .*\b2\b"):
        segments.read_index(tmp_path, "gone", {})
    with pytest.raises(errors.CheckpointError, match="segments/gone "):
        segments.read_rows(tmp_path, segments.Segment("gone", {}, runs((0, 0, 1))))
