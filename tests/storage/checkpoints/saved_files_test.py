"""Finding, checking and listing checkpoints, and parameters alone."""

import dataclasses
import pathlib
import shutil
from typing import Any, NamedTuple

import checkpoint_harness as harness
import jax
import jax.numpy as jnp
import pytest

from seedzero.core import errors
from seedzero.storage.checkpoints import manifest, saved_files

LIKE = harness.abstract(harness.make_state()["params"])


def test_parameters_come_back_alone(two_steps: harness.Steps, disk: harness.Disk) -> None:
    _, _, held = two_steps
    for step, index in (("last", 1), (1, 0), (2, 1)):
        params, found = saved_files.restore_params(disk.path, step, LIKE)  # type: ignore[arg-type]
        harness.assert_same(params, held[index][0]["params"])
        assert (found.step, found.counters) == (index + 1, {"step": index + 1})


def test_parameters_alone_need_nothing_else_to_be_whole(two_steps: harness.Steps, disk: harness.Disk) -> None:
    newest = disk.step(2)
    (newest / "state" / "manifest.ocdbt").unlink()
    assert saved_files.restore_params(disk.path, "last", LIKE)[1].step == 2
    (newest / "params" / "manifest.ocdbt").unlink()
    assert saved_files.restore_params(disk.path, "last", LIKE)[1].step == 1
    with pytest.raises(errors.CheckpointError, match=r"checkpoint 2 .*params/manifest.ocdbt"):
        saved_files.restore_params(disk.path, 2, LIKE)


def test_the_part_of_a_host_has_no_parameters_and_says_so(disk: harness.Disk) -> None:
    disk.open(host=1)
    disk.save(1, harness.make_state(), {}, None)
    path = disk.path / "run" / "hosts" / "1" / "checkpoints"
    shutil.copytree(disk.path / "steps", path / "steps")
    for step in ("last", 1):
        with pytest.raises(errors.ResumeError, match=r"run/hosts/1 is the part .* directory of host 0"):
            saved_files.restore_params(path, step, LIKE)  # type: ignore[arg-type]
    assert [row["ok"] for row in saved_files.list_steps(path, content=True)] == [True]


def test_parameters_alone_fit_a_template(disk: harness.Disk) -> None:
    class Params(NamedTuple):
        layers: list[jax.Array]

    params = Params([jnp.arange(3.0), jnp.ones(2)])
    disk.open()
    disk.save(1, {"params": params}, {}, None)
    restored, _ = saved_files.restore_params(disk.path, "last", harness.abstract(params))
    harness.assert_same(restored, params)
    with pytest.raises(errors.ResumeError, match="params/layers/0"):
        saved_files.restore_params(disk.path, "last", Params([jnp.zeros(9), jnp.ones(2)]))


@pytest.mark.parametrize("step", [5, "best", "last"])
def test_a_checkpoint_that_is_not_there_is_named(disk: harness.Disk, step: Any) -> None:
    disk.open()
    with pytest.raises(errors.CheckpointError, match=r"no (usable )?checkpoint"):
        saved_files.restore_params(disk.path, step, LIKE)


def test_verify_names_the_damage_and_list_reads_no_content(two_steps: harness.Steps, disk: harness.Disk) -> None:
    path = next((disk.step(2) / "params" / "d").iterdir())
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert [row["ok"] for row in saved_files.list_steps(disk.path)] == [True, True]
    good, bad = saved_files.list_steps(disk.path, content=True)
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


def test_a_checkpoint_that_a_running_learner_deletes_meanwhile_is_not_damaged(
    two_steps: harness.Steps, disk: harness.Disk
) -> None:
    def check(path: pathlib.Path) -> None:
        shutil.rmtree(disk.step(1), ignore_errors=True)
        saved_files.verified(disk.path, path)

    assert [(row["step"], row["ok"]) for row in saved_files.list_steps(disk.path, check=check)] == [(2, True)]


def test_the_best_may_be_replaced_while_it_is_read(
    two_steps: harness.Steps, disk: harness.Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    bests = disk.path / saved_files.BEST
    shutil.copytree(disk.step(1), bests / f"{1:012d}")
    read = manifest.read

    def read_late(path: pathlib.Path) -> manifest.Manifest:
        if path.name == f"{1:012d}":
            better = bests / f"{2:012d}"
            path.rename(better)  # the learner writes a better one and deletes this
            manifest.write(
                better, dataclasses.replace(manifest.parse((better / manifest.NAME).read_bytes(), 1), step=2)
            )
        return read(path)

    monkeypatch.setattr(manifest, "read", read_late)
    path, _, _ = saved_files.find(disk.path, "best", "params")
    assert path.name == f"{2:012d}"
