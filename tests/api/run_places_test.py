from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import time

import fake_gcs
import pytest
import saved_run

from seedzero.api import run_places
from seedzero.core import errors
from seedzero.monitoring import series
from seedzero.storage.bucket import lease


def _find(*places: str) -> list[str]:
    return run_places.find(places, lambda text: None)


def test_runs_are_found_by_directory_tree_and_pattern(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/2", "a/1", "b"):
        saved_run.make(tmp_path / name)
    shutil.copytree("b", "a/1/inner")  # below a run nothing is looked for
    pathlib.Path("link").symlink_to("b")
    assert _find("b") == ["b"]
    assert _find("a") == ["a/1", "a/2"]
    assert _find("a/*", "b", "link", "a/1") == ["a/1", "a/2", "b"]
    assert _find("?") == ["a/1", "a/2", "b"]
    assert _find("gs://runs/one", "b") == ["gs://runs/one", "b"]


def test_other_programs_files_below_a_directory_are_told(tmp_path: pathlib.Path) -> None:
    run = saved_run.make(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    told: list[str] = []
    assert run_places.find([str(tmp_path)], told.append) == [str(run)]
    assert len(told) == 1 and "other" in told[0]


@pytest.mark.parametrize("name", ["nowhere", "no*", "empty"])
def test_a_place_without_a_run_is_named(name: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.ResumeError, match=name.replace("*", r"\*")):
        _find(str(tmp_path / name))


def test_a_run_has_settings_series_and_state(tmp_path: pathlib.Path) -> None:
    path = saved_run.make(tmp_path / "run", finished="--max_updates=20", frames_per_step=4, run__seed=7)
    found = run_places.read(str(path), (series.EVALUATION,))
    assert (found.saved.config.run.seed, found.frames_per_step, len(found.series.values)) == (7, 4, 3)
    assert (found.state, found.finished) == (run_places.FINISHED, "--max_updates=20")
    other = run_places.read(str(saved_run.make(tmp_path / "other")), (series.EVALUATION,))
    assert (other.state, other.finished) == (run_places.STOPPED, "")


def test_of_several_runs_an_unreadable_one_is_left_out_with_a_message(tmp_path: pathlib.Path) -> None:
    run, broken, told = saved_run.make(tmp_path / "run"), saved_run.make(tmp_path / "broken"), list[str]()
    (broken / "config.json").write_text("{")
    found = run_places.read_all([str(broken), str(run)], (series.EVALUATION,), told.append)
    assert [one.place for one in found] == [str(run)] and len(told) == 1 and "broken" in told[0]
    with pytest.raises(errors.ResumeError, match="broken"):
        run_places.read_all([str(broken)], (series.EVALUATION,), told.append)


def test_a_run_in_a_bucket_is_read_from_there(tmp_path: pathlib.Path, gcs: fake_gcs.FakeGcs) -> None:
    path = saved_run.make(tmp_path / "run")
    for file in path.glob("*.json*"):
        gcs.put("runs", f"one/{file.name}", file.read_bytes())
    found = run_places.read("gs://runs/one", (series.EVALUATION,))
    assert (found.place, found.state, len(found.series.values)) == ("gs://runs/one", run_places.STOPPED, 3)


@pytest.mark.parametrize(("age", "state"), [(1.0, run_places.TRAINING), (3600.0, run_places.STOPPED)])
def test_a_run_in_a_bucket_is_training_while_its_lease_is_renewed(
    tmp_path: pathlib.Path, gcs: fake_gcs.FakeGcs, age: float, state: str
) -> None:
    path = saved_run.make(tmp_path / "run")
    (path / "status.json").write_text('{"alive": true}')  # also where the learner was killed
    holder = lease.Holder("copy", "process", "host", 1, time.time() - age, 60.0, released=False)
    (path / lease.NAME).write_text(json.dumps(dataclasses.asdict(holder)))
    for file in path.glob("*.json*"):
        gcs.put("runs", f"one/{file.name}", file.read_bytes())
    assert run_places.read("gs://runs/one", (series.EVALUATION,)).state == state


def test_names_are_shown_without_the_directories_they_share() -> None:
    assert run_places.short_names(["runs/x/a", "runs/x/b"]) == ["a", "b"]
    assert run_places.short_names(["runs/x/a", "runs/y/a"]) == ["x/a", "y/a"]
    assert run_places.short_names(["runs/x"]) == ["x"]
    assert run_places.short_names(["x", "x/y"]) == ["x", "x/y"]
