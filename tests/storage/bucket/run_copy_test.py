"""Commands that read a run in a bucket: they fetch what they need, and leave nothing behind."""

import json
import pathlib
from typing import Any

import fake_gcs
import jax
import numpy as np
import pytest

from seedzero.cli import main as commands
from seedzero.config import configs, sections
from seedzero.core import errors
from seedzero.monitoring import status
from seedzero.storage.bucket import bucket, lease, run_copy
from seedzero.storage.checkpoints import checkpoint_dir, checkpointers, player_files, run_dirs, saved_files, trees

URL = "gs://runs/team/one"
PREFIX = "team/one"
LIKE = {"w": jax.ShapeDtypeStruct((300,), np.float32)}


def _params(step: int) -> dict[str, Any]:
    return {"w": np.full(300, step, np.float32)}


@pytest.fixture
def run(gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path) -> pathlib.Path:
    """A run directory with checkpoints 10 and 20 and the best one of 15, copied into the bucket."""
    path = tmp_path / "run"
    with run_dirs.open_run_dir(path, configs.Config(), preset="catch", given={"seed": 3}) as opened:
        saver = checkpointers.Checkpointer(
            opened.checkpoints, sections.CheckpointConfig(), on_durable=lambda step: None, on_error=pytest.fail
        )
        for step in (10, 20):
            saver.save(step, {"params": trees.copy(_params(step)), "rest": trees.copy(_params(0))}, {}, None)
        saver.save_best(15, {"params": trees.copy(_params(15))}, {})
        saver.close()
        opened.write_status({"updates": 20})
    _upload(gcs, path)
    return path


def _upload(gcs: fake_gcs.FakeGcs, run: pathlib.Path, but: str = "") -> None:
    """Copies a run directory into the bucket, without files of this end of a name."""
    for file in run.rglob("*"):
        if file.is_file() and not (but and file.as_posix().endswith(but)):
            gcs.put("runs", f"{PREFIX}/{file.relative_to(run).as_posix()}", file.read_bytes())


def _params_key(gcs: fake_gcs.FakeGcs, step: str) -> str:
    """Returns the largest object of a checkpoint's parameters."""
    found = gcs.names("runs", f"{PREFIX}/checkpoints/{step}/params/")
    return max(found, key=lambda name: len(gcs.content("runs", name)))


def test_a_directory_is_used_as_it_is(tmp_path: pathlib.Path) -> None:
    with run_copy.local(str(tmp_path), pytest.fail) as path:
        assert path == tmp_path


def test_an_empty_name_is_not_the_current_directory() -> None:
    with pytest.raises(errors.ResumeError, match="is empty; expected DIR or gs://BUCKET/PATH"), run_copy.local(""):
        pytest.fail("it was taken")


def test_a_run_in_a_bucket_is_diagnosed(
    gcs: fake_gcs.FakeGcs, run: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["diagnose", URL]) == 2 and "no rows" in capsys.readouterr().err
    rows = [{"update": update, "env_steps": 9, "loss": 1.0, "num_rejected": 1.0} for update in (1, 2)]
    gcs.put("runs", f"{PREFIX}/metrics.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    assert commands.main(["diagnose", URL, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["run_dir"], answer["rows"], answer["healthy"]) == (URL, 2, False)


@pytest.mark.parametrize(("step", "expected"), [("last", 20), ("best", 15), (10, 10), (15, 15)])
def test_the_parameters_of_one_checkpoint_are_fetched_and_nothing_else(
    gcs: fake_gcs.FakeGcs, run: pathlib.Path, step: saved_files.Step, expected: int
) -> None:
    read = gcs.recorded("read")
    with run_copy.local(URL, lambda copy: copy.fetch_params(step)) as path:
        params, _ = saved_files.restore_params(path / "checkpoints", step, LIKE)
        assert params["w"].tolist() == [expected] * 300
        assert run_dirs.read_saved(path).given == {"run.seed": "3"}
    assert not path.exists()
    content = [name for name in read if "/checkpoints/" in name and not name.endswith("manifest.json")]
    assert content and all(f"{expected:012d}/params/" in name for name in content)


def test_frozen_players_are_fetched_by_name_and_another_name_is_answered_with_all(
    gcs: fake_gcs.FakeGcs, run: pathlib.Path
) -> None:
    one, two = ("main-111111111111", "main-222222222222")
    for step, name in ((10, one), (20, two)):
        player_files.write(run / "checkpoints", name, step, _params(step), {}, time=0.0)
        for file in (run / "checkpoints/frozen" / name).rglob("*"):
            if file.is_file():
                gcs.put("runs", f"{PREFIX}/{file.relative_to(run).as_posix()}", file.read_bytes())
    gcs.put("runs", f"{PREFIX}/checkpoints/frozen/{two}/../../../config.json", b"of another")
    read = gcs.recorded("read")
    with run_copy.local(URL, lambda copy: copy.fetch_player(two)) as path:
        assert run_dirs.read_saved(path).given == {"run.seed": "3"}
        found = player_files.read(path / "checkpoints", two, LIKE)
    assert found.step == 20 and found.params["w"].tolist() == [20] * 300
    content = [name for name in read if "/checkpoints/" in name]
    assert content and all(f"/frozen/{two}/" in name for name in content)
    with run_copy.local(URL, lambda copy: copy.fetch_player(one, two)) as path:
        assert [player_files.read(path / "checkpoints", name, LIKE).step for name in (one, two)] == [10, 20]
    with (
        pytest.raises(errors.CheckpointError, match=f"main in {URL}/checkpoints .*: {one}, {two}$"),
        run_copy.local(URL, lambda copy: copy.fetch_player("main")) as path,
    ):
        player_files.read(path / "checkpoints", "main", LIKE)


def test_a_best_one_that_is_replaced_while_it_is_read_is_read_anew(
    gcs: fake_gcs.FakeGcs, run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    old, new = (f"{PREFIX}/checkpoints/best/{step:012d}/" for step in (15, 20))
    step_20 = f"{PREFIX}/checkpoints/steps/000000000020/"

    def replace(request: fake_gcs.Request) -> None:
        if request.kind == "read" and request.name.startswith(f"{old}params"):
            for name in gcs.names("runs", step_20):
                gcs.put("runs", name.replace(step_20, new), gcs.content("runs", name))
            for name in gcs.names("runs", old):
                gcs.remove("runs", name)

    gcs.fault = replace
    with run_copy.local(URL, lambda copy: copy.fetch_params(None)) as path:
        params, found = saved_files.restore_params(path / "checkpoints", "best", LIKE)
    assert found.step == 20 and params["w"].tolist() == [20] * 300


def test_the_last_one_that_is_whole_is_taken(gcs: fake_gcs.FakeGcs, run: pathlib.Path) -> None:
    gcs.put("runs", _params_key(gcs, "steps/000000000020"), b"damaged")
    with run_copy.local(URL, lambda copy: copy.fetch_params("last")) as path:
        _, found = saved_files.restore_params(path / "checkpoints", "last", LIKE)
    assert found.step == 10


def test_newer_parameters_replace_older_ones_once_they_are_whole(gcs: fake_gcs.FakeGcs, run: pathlib.Path) -> None:
    one, two = ("main-111111111111", "main-222222222222")
    files = checkpoint_dir.CheckpointDir(run / "checkpoints", sections.CheckpointConfig(), lambda: 0.0)
    for name in (one, two):
        files.add_frozen(name, player_files.Frozen(trees.copy(_params(20)), {}, 20, {}))
        files.write_frozen(name)

    def write(step: int, *frozen: str) -> None:
        parts = {"params": {"params": _params(step)}, "state": {"state": _params(0)}}
        files.write(step, parts, {}, (), None, frozen=frozen)

    read = gcs.recorded("read")
    with run_copy.followed(URL, None) as (path, refresh):
        assert _here(path) == ([20], [])
        content = [name for name in read if "/checkpoints/" in name and not name.endswith("manifest.json")]
        assert content and all("steps/000000000020/params/" in name for name in content)
        write(30, one, two)
        _upload(gcs, run, "000000000030/manifest.json")
        refresh()
        assert _here(path) == ([20], [])  # it has no manifest yet
        _upload(gcs, run)
        read.clear()
        refresh()
        assert _here(path) == ([30], [one, two])
        assert saved_files.restore_params(path / "checkpoints", "last", LIKE)[0]["w"].tolist() == [30] * 300
        assert not [name for name in read if "/state/" in name or "/steps/000000000020/" in name]
        read.clear()
        refresh()
        assert read == []
        write(40, two)
        write(50, two)
        _upload(gcs, run)
        damaged = _params_key(gcs, "steps/000000000050")
        gcs.put("runs", damaged, b"damaged")
        refresh()
        assert _here(path) == ([40], [two])
        with pytest.raises(errors.CheckpointError, match=f"{URL}/checkpoints/steps/000000000050 is damaged"):
            refresh()
        assert _here(path) == ([40], [two])
    with run_copy.followed(URL, (one,)) as (path, _):
        assert _here(path) == ([40], [])  # it needs another one
    with run_copy.followed(str(run), ()) as (path, refresh):
        refresh()
        assert path == run


def _here(path: pathlib.Path) -> tuple[list[int], list[str]]:
    """Returns the steps and the frozen players of a local copy."""
    return saved_files.finished(path / "checkpoints/steps"), player_files.names(path / "checkpoints")


def test_a_checkpoint_that_is_not_there_is_named_with_those_that_are(gcs: fake_gcs.FakeGcs, run: pathlib.Path) -> None:
    with (
        pytest.raises(errors.CheckpointError, match=rf"{URL}/checkpoints; .*: 10, 20$"),
        run_copy.local(URL, lambda copy: copy.fetch_params(7)) as path,
    ):
        saved_files.restore_params(path / "checkpoints", 7, LIKE)


def test_no_run_and_no_bucket_are_told(gcs: fake_gcs.FakeGcs) -> None:
    for url in ("gs://runs/nothing", "gs://no-such-bucket/one"):
        with (
            pytest.raises(errors.ResumeError, match=rf"{url} .*config.json or the bucket is missing; give --run_dir"),
            run_copy.local(url),
        ):
            pass


def _rows(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_checkpoints_are_listed_without_reading_them_and_verified_by_every_byte(
    gcs: fake_gcs.FakeGcs, run: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["checkpoint", "list", "--json", f"--run_dir={run}"]) == 0
    local = _rows(capsys)
    read = gcs.recorded("read")
    assert commands.main(["checkpoint", "list", "--json", f"--run_dir={URL}"]) == 0
    assert _rows(capsys) == local
    assert not [name for name in read if "/params/" in name]
    assert commands.main(["checkpoint", "verify", "--json", f"--run_dir={URL}"]) == 0
    assert _rows(capsys) == local

    damaged = _params_key(gcs, "steps/000000000010")
    content = gcs.content("runs", damaged)
    gcs.put("runs", damaged, content[:-1] + bytes([content[-1] ^ 1]))
    assert commands.main(["checkpoint", "verify", "--json", f"--run_dir={URL}"]) == 1
    assert [row["ok"] for row in _rows(capsys)] == [False, True, True]
    assert commands.main(["checkpoint", "list", "--json", f"--run_dir={URL}"]) == 0
    capsys.readouterr()
    gcs.remove("runs", damaged)
    assert commands.main(["checkpoint", "list", "--json", f"--run_dir={URL}"]) == 1
    rows = _rows(capsys)
    assert [row["ok"] for row in rows] == [False, True, True]
    assert rows[0]["reason"] == f"{damaged.removeprefix(PREFIX + '/')} is missing"


def test_a_checkpoint_that_is_deleted_while_it_is_read_is_not_damaged(
    gcs: fake_gcs.FakeGcs, run: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def delete(request: fake_gcs.Request) -> None:
        if request.kind == "read" and "000000000010/params" in request.name:
            for name in gcs.names("runs", f"{PREFIX}/checkpoints/steps/000000000010/"):
                gcs.remove("runs", name)

    gcs.fault = delete
    assert commands.main(["checkpoint", "verify", "--json", f"--run_dir={URL}"]) == 0
    assert [row["step"] for row in _rows(capsys)] == [20, 15]


def _holder(**changes: Any) -> bytes:
    values = dict(copy="a", process="b", host="vm-1", pid=1, renewed=100.0, seconds=30.0, released=False)
    return json.dumps({**values, **changes}).encode()


@pytest.mark.parametrize(
    ("holder", "alive"), [(_holder(), True), (_holder(renewed=60.0), False), (_holder(released=True), False)]
)
def test_a_status_tells_whether_the_learner_renews_its_lease(
    gcs: fake_gcs.FakeGcs, run: pathlib.Path, holder: bytes, alive: bool
) -> None:
    url = bucket.parse(URL)
    assert url is not None
    store = bucket.open_store(url, 1.0)
    assert status.from_bucket(url, store) == {"updates": 20, "alive": False}
    gcs.put("runs", f"{PREFIX}/{lease.NAME}", holder)
    found = status.from_bucket(url, store, clock=lambda: 101.0)
    age = 101.0 - json.loads(holder)["renewed"]
    assert found == {"updates": 20, "alive": alive, "host": "vm-1", "renewed_seconds_ago": age}


def test_a_status_that_is_not_there_says_why(gcs: fake_gcs.FakeGcs, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["status", "--run_dir=gs://runs/nothing"]) == 2
    text = capsys.readouterr().err
    assert "gs://runs/nothing holds no run" in text and "give --run_dir" in text
    gcs.put("runs", f"{PREFIX}/config.json", b"{}")
    assert commands.main(["status", f"--run_dir={URL}"]) == 2
    text = capsys.readouterr().err
    assert f"{URL} " in text and "status.json" in text


def test_training_goes_on_by_the_url_alone(gcs: fake_gcs.FakeGcs, run: pathlib.Path) -> None:
    from seedzero.api import request

    asked = request.make({"run_dir": URL}, {})
    assert asked.preset == "catch" and asked.given == {"run.seed": "3"}
