"""The directory of checkpoints: which ones stay, and its state after a crash."""

import pathlib
from collections.abc import Sequence

import checkpoint_harness as harness
import jax.numpy as jnp
import pytest

from seedzero.config import sections
from seedzero.core import errors
from seedzero.storage.checkpoints import checkpointers, saved_files


@pytest.mark.parametrize(
    ("steps", "keep", "every", "kept"),
    [
        (range(10, 80, 10), 2, 3, {30: True, 60: True, 70: False}),
        ((1, 2, 2, 3, 4), 1, 2, {2: True, 4: True}),  # one that is kept for good stays so where it is saved again
    ],
)
def test_the_newest_and_every_so_many_are_kept(
    disk: harness.Disk, steps: Sequence[int], keep: int, every: int, kept: dict[int, bool]
) -> None:
    state = {"params": jnp.zeros(1)}
    disk.open(keep=keep, keep_every=every)
    for step in steps:
        disk.save(step, state, {}, None)
        if step == 40:
            harness.restore(disk.open(keep=keep, keep_every=every), state)
    assert {row["step"]: row["kept_for_good"] for row in saved_files.list_steps(disk.path)} == kept


def test_an_abandoned_future_goes_away(disk: harness.Disk) -> None:
    state = {"params": jnp.zeros(1)}
    checkpointer = disk.open()
    for step in (1, 2, 3):
        checkpointer.save(step, state, {}, None)
    checkpointer.wait()
    checkpointer = disk.open()
    harness.restore(checkpointer, state, step=1)
    disk.save(2, {"params": jnp.ones(1)}, {}, None)
    assert disk.steps() == [1, 2]
    assert harness.restore(checkpointer, state).state["params"].tolist() == [1.0]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_resumed_run_keeps_its_best_and_a_new_one_has_none_of_a_dead_run(
    disk: harness.Disk, is_resumed: bool
) -> None:
    checkpointer = disk.open()
    if is_resumed:
        disk.save(1, {"params": jnp.ones(1)}, {}, None)
    checkpointer.save_best(2, {"params": jnp.ones(1)}, {"update": 2})
    disk.open()
    assert saved_files.finished(disk.path / "best") == [2] * is_resumed


@pytest.mark.thorough
def test_damaged_steps_push_no_good_one_out(disk: harness.Disk, two_steps: harness.Steps) -> None:
    (disk.step(2) / "manifest.json").unlink()
    checkpointer = disk.open(keep=2)
    state = two_steps[0]
    harness.restore(checkpointer, state)
    disk.save(3, state, {}, None)
    assert [row["step"] for row in saved_files.list_steps(disk.path, content=True) if row["ok"]] == [1, 3]
    assert disk.steps() == [1, 3]


@pytest.mark.parametrize("in_haste", [False, True])
def test_a_step_that_was_damaged_stays_once_it_is_written_anew(
    in_haste: bool, disk: harness.Disk, two_steps: harness.Steps
) -> None:
    (disk.step(2) / "manifest.json").unlink()
    checkpointer, state = disk.open(keep=2), two_steps[0]
    harness.restore(checkpointer, state)
    if in_haste:
        checkpointer.save_state(2, state, {})
        checkpointer.save(1, state, {}, None)  # one that was under way
    else:
        checkpointer.save(2, state, {}, None)
    checkpointer.wait()
    assert disk.steps() == [1, 2] and disk.durable[-1] == (1 if in_haste else 2)
    disk.save(3, state, {}, None)
    assert disk.steps() == [2, 3]
    assert harness.restore(checkpointer, state, step=2).step == 2


def test_the_one_that_the_next_builds_on_stays_beside_a_newer_state(
    disk: harness.Disk, two_steps: harness.Steps
) -> None:
    state, rings, _ = two_steps
    checkpointer = disk.open(keep=1)
    harness.restore(checkpointer, state, rings)
    checkpointer.save_state(9, state, {})
    checkpointer.save(5, state, {}, rings)  # as one that was under way when the state was saved in haste
    checkpointer.wait()
    assert disk.steps() == [5, 9]
    disk.save(9, state, {}, rings)
    assert disk.steps() == [9] and not disk.errors


def test_a_directory_that_cannot_be_written_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.CheckpointError, match=r"file/checkpoints .*Not a directory.*--run_dir"):
        checkpointers.Checkpointer(
            tmp_path / "file" / "checkpoints", sections.CheckpointConfig(), on_durable=print, on_error=print
        )


def test_leftovers_of_a_crash_are_deleted_at_the_start(disk: harness.Disk, two_steps: harness.Steps) -> None:
    before = harness.files_below(disk.path)
    for name in (
        "steps/000000000003.12345678.tmp/params",
        "steps/000000000001.1.trash",
        "segments/000000000003-12345678-0000",
    ):
        (disk.path / name).mkdir(parents=True)
    disk.open()
    assert harness.files_below(disk.path) == before


@pytest.mark.parametrize(
    "name", ["steps", "segments", "best", "frozen", "segments/000000000003-12345678-0000", "frozen/main-0123456789ab"]
)
def test_a_link_is_refused_before_anything_is_deleted(name: str, tmp_path: pathlib.Path) -> None:
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "checkpoints"
    (elsewhere / "000000000001-12345678-0000").mkdir(parents=True)
    (directory / name).parent.mkdir(parents=True)
    (directory / name).symlink_to(elsewhere)
    with pytest.raises(errors.CheckpointError, match=f"{directory / name} "):
        saved_files.prepare(directory)
    assert len(list(elsewhere.iterdir())) == 1


def test_what_others_put_beside_checkpoints_stays(disk: harness.Disk) -> None:
    mine = [
        disk.path / name for name in ("steps/mine", "segments/mine", "best/mine", "frozen/mine", "best/backup.tmp")
    ]
    for path in mine:
        path.mkdir(parents=True)
    disk.open()
    assert all(path.is_dir() for path in mine)


def test_while_a_manifest_cannot_be_read_no_old_checkpoint_is_deleted(
    disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"params": jnp.zeros(1)}
    checkpointer = disk.open(keep=1, keep_every=2)  # the second is kept for good
    for step in (1, 2):
        checkpointer.save(step, state, {}, None)
    checkpointer.wait()
    with monkeypatch.context() as patched:
        harness.unreadable_manifests(patched)
        disk.save(3, state, {}, None)
    (told,) = disk.errors
    assert str(disk.path) in told and "Input/output error" in told
    assert disk.steps() == [2, 3]
    disk.save(4, state, {}, None)
    assert disk.steps() == [2, 4]
    assert disk.durable == [1, 2, 3, 4] and len(disk.errors) == 1


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_missing_or_damaged_manifest_keeps_no_segment(
    disk: harness.Disk, two_steps: harness.Steps, damage: str
) -> None:
    whole = saved_files.verified(disk.path, disk.step(1))
    bad = disk.step(2) / "manifest.json"
    bad.unlink() if damage == "missing" else bad.write_bytes(b"{")
    disk.open()
    assert disk.segments() == whole.segments.keys()
