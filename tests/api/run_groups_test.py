from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import time
from typing import Any

import fake_gcs
import pytest
import saved_run

from seedzero.api import run_groups
from seedzero.core import errors
from seedzero.monitoring import series
from seedzero.storage.bucket import lease


def _runs(tmp_path: pathlib.Path, *settings: dict[str, Any]) -> list[run_groups.RunRecord]:
    paths = [saved_run.make(tmp_path / str(number), **given) for number, given in enumerate(settings)]
    return [run_groups.read_run(str(path), (series.EVALUATION,)) for path in paths]


def _shown(groups: list[run_groups.RunGroup]) -> dict[str, int]:
    return {group.label: len(group.runs) for group in groups}


def test_runs_that_differ_in_their_seed_are_a_group(tmp_path: pathlib.Path) -> None:
    runs = _runs(
        tmp_path,
        dict(run__seed=1, optimizer__learning_rate=1e-3),
        dict(run__seed=2, optimizer__learning_rate="0.001"),
        dict(run__seed=1, optimizer__learning_rate=1e-4),
    )
    groups = run_groups.group(runs)
    assert _shown(groups) == {"optimizer.learning_rate=0.0001": 1, "optimizer.learning_rate=0.001": 2}
    assert groups[1].settings == {"optimizer.learning_rate": 0.001}
    assert _shown(run_groups.group(runs[:2])) == {"": 2}


def test_ends_files_and_choices_of_the_machine_part_no_runs(tmp_path: pathlib.Path) -> None:
    runs = _runs(
        tmp_path,
        dict(run__max_updates=5, metrics__every_seconds=1),
        dict(run__max_seconds=9, evaluation__episodes=3, checkpoint__keep=9),
    )
    assert _shown(run_groups.group(runs)) == {"": 2}
    # A choice of each start parts them where it was given.
    runs += _runs(tmp_path / "more", dict(worker__envs_per_group=8))
    assert _shown(run_groups.group(runs)) == {"worker.envs_per_group=8": 1, "worker.envs_per_group=16": 2}


def test_a_label_has_given_settings_and_not_their_consequences(tmp_path: pathlib.Path) -> None:
    runs = _runs(tmp_path, dict(run__agent="ppo"), dict(run__agent="vtrace"))
    assert len(run_groups.different([run_groups.values(run) for run in runs])) > 10
    assert _shown(run_groups.group(runs)) == {"agent=ppo": 1, "agent=vtrace": 1}
    runs = _runs(tmp_path / "presets", {}, dict(preset="cartpole"))
    assert _shown(run_groups.group(runs)) == {"preset=cartpole": 1, "preset=catch": 1}


def test_given_names_part_runs_and_other_differences_are_hidden(tmp_path: pathlib.Path) -> None:
    runs = _runs(
        tmp_path,
        dict(run__agent="ppo", optimizer__learning_rate=1e-3),
        dict(run__agent="ppo", optimizer__learning_rate=1e-4),
        dict(run__agent="vtrace"),
    )
    groups = run_groups.group(runs, ["run.agent"])
    assert _shown(groups) == {"agent=ppo": 2, "agent=vtrace": 1}
    assert groups[0].hidden == ("optimizer.learning_rate",)
    assert _shown(run_groups.group(runs, ["run.agent", "optimizer.learning_rate"])) == {
        "agent=ppo, optimizer.learning_rate=0.0001": 1,
        "agent=ppo, optimizer.learning_rate=0.001": 1,
        "agent=vtrace, optimizer.learning_rate=0.002": 1,
    }


def test_names_of_settings_may_be_short() -> None:
    assert run_groups.read_names("agent, optimizer.learning_rate,preset,", []) == [
        "run.agent",
        "optimizer.learning_rate",
        "preset",
    ]
    assert run_groups.read_names("", []) == []


@pytest.mark.parametrize("text", ["ppo.learning_rat", "agent,seed"])
def test_an_unknown_name_and_the_seed_are_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match=f"--by={text}"):
        run_groups.read_names(text, [])


def test_settings_of_own_agents_are_names(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[2] / "examples" / "pqn"))
    agent = "pqn_agent:AGENT"
    runs = _runs(tmp_path, *(dict(run__agent=agent, pqn__num_epochs=epochs) for epochs in (2, 4)))
    by = run_groups.read_names("pqn.num_epochs", runs)
    assert _shown(run_groups.group(runs, by)) == {"pqn.num_epochs=2": 1, "pqn.num_epochs=4": 1}
    with pytest.raises(errors.UsageError, match=r"did you mean --pqn\.num_epochs"):
        run_groups.read_names("pqn.num_epoch", runs)


def _find(*places: str) -> list[str]:
    return run_groups.find_runs(places, lambda text: None)


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
    assert run_groups.find_runs([str(tmp_path)], told.append) == [str(run)]
    assert len(told) == 1 and "other" in told[0]


@pytest.mark.parametrize("name", ["nowhere", "no*", "empty"])
def test_a_place_without_a_run_is_named(name: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.ResumeError, match=name.replace("*", r"\*")):
        _find(str(tmp_path / name))


def test_a_run_has_settings_series_and_state(tmp_path: pathlib.Path) -> None:
    path = saved_run.make(tmp_path / "run", finished="--max_updates=20", frames_per_step=4, run__seed=7)
    found = run_groups.read_run(str(path), (series.EVALUATION,))
    assert (found.saved.config.run.seed, found.frames_per_step, len(found.series.values)) == (7, 4, 3)
    assert (found.state, found.finished) == (run_groups.FINISHED, "--max_updates=20")
    other = run_groups.read_run(str(saved_run.make(tmp_path / "other")), (series.EVALUATION,))
    assert (other.state, other.finished) == (run_groups.STOPPED, "")


def test_of_several_runs_an_unreadable_one_is_left_out_with_a_message(tmp_path: pathlib.Path) -> None:
    run, broken, told = saved_run.make(tmp_path / "run"), saved_run.make(tmp_path / "broken"), list[str]()
    (broken / "config.json").write_text("{")
    found = run_groups.read_runs([str(broken), str(run)], (series.EVALUATION,), told.append)
    assert [one.place for one in found] == [str(run)] and len(told) == 1 and "broken" in told[0]
    with pytest.raises(errors.ResumeError, match="broken"):
        run_groups.read_runs([str(broken)], (series.EVALUATION,), told.append)


def test_a_run_in_a_bucket_is_read_from_there(tmp_path: pathlib.Path, gcs: fake_gcs.FakeGcs) -> None:
    path = saved_run.make(tmp_path / "run")
    for file in path.glob("*.json*"):
        gcs.put("runs", f"one/{file.name}", file.read_bytes())
    found = run_groups.read_run("gs://runs/one", (series.EVALUATION,))
    assert (found.place, found.state, len(found.series.values)) == ("gs://runs/one", run_groups.STOPPED, 3)


@pytest.mark.parametrize(("age", "state"), [(1.0, run_groups.TRAINING), (3600.0, run_groups.STOPPED)])
def test_a_run_in_a_bucket_is_training_while_its_lease_is_renewed(
    tmp_path: pathlib.Path, gcs: fake_gcs.FakeGcs, age: float, state: str
) -> None:
    path = saved_run.make(tmp_path / "run")
    (path / "status.json").write_text('{"alive": true}')  # also where the learner was killed
    holder = lease.Holder("copy", "process", "host", 1, time.time() - age, 60.0, released=False)
    (path / lease.NAME).write_text(json.dumps(dataclasses.asdict(holder)))
    for file in path.glob("*.json*"):
        gcs.put("runs", f"one/{file.name}", file.read_bytes())
    assert run_groups.read_run("gs://runs/one", (series.EVALUATION,)).state == state


def test_names_are_shown_without_the_directories_they_share() -> None:
    assert run_groups.short_names(["runs/x/a", "runs/x/b"]) == ["a", "b"]
    assert run_groups.short_names(["runs/x/a", "runs/y/a"]) == ["x/a", "y/a"]
    assert run_groups.short_names(["runs/x"]) == ["x"]
    assert run_groups.short_names(["x", "x/y"]) == ["x", "x/y"]


def _read(path: pathlib.Path) -> run_groups.RunRecord:
    return run_groups.read_run(str(path), run_groups.METRICS)


def test_last_and_best_have_standard_errors(tmp_path: pathlib.Path) -> None:
    run = _read(saved_run.make(tmp_path / "run", (9.0, 2.0, 5.0, 5.0, 1.0)))
    # std 0.3 of 10 episodes: 0.3 / sqrt(9); the first evaluation is a baseline
    assert run_groups.last(run) == pytest.approx((1.0, 0.1, 10, 40, 4_000))
    assert run_groups.best(run) == pytest.approx((5.0, 0.1, 10, 20, 2_000))
    found = run_groups.score_of_run(run)
    assert (found["env_steps"], found["updates"], found["seconds"]) == (4_000, 40, 8.0)
    assert (found["env_steps_per_second"], found["state"], found["finished"]) == (500.0, "stopped", None)


def test_the_best_is_no_other_where_the_baseline_was_cut_short(tmp_path: pathlib.Path) -> None:
    path = saved_run.make(tmp_path / "run", (9.0, 5.0, 1.0), evaluation__every_updates=10)
    file, score = path / "metrics.jsonl", '"evaluation_mean_return": 9.0'
    file.write_text(file.read_text().replace(score, f'{score}, "evaluation_unfinished": 3'))
    assert run_groups.best(_read(path)) == pytest.approx((5.0, 0.1, 10, 10, 1_000))


def test_a_run_without_evaluations_has_no_score(tmp_path: pathlib.Path) -> None:
    found = run_groups.score_of_run(_read(saved_run.make(tmp_path / "run", ())))
    assert (found["last"], found["best"], found["env_steps_per_second"]) == (None, None, None)
    first = _read(saved_run.make(tmp_path / "first", (1.0,)))
    assert run_groups.last(first) is not None and run_groups.best(first) is None


def test_a_group_has_mean_interval_and_median_over_seeds(tmp_path: pathlib.Path) -> None:
    ends = [(0.0, 1.0), (0.0, 2.0), (0.0, 6.0), ()]
    runs = [_read(saved_run.make(tmp_path / str(seed), end, run__seed=seed)) for seed, end in enumerate(ends)]
    (group,) = run_groups.group(runs)
    found = run_groups.score_of_group(group)["last"]
    assert (found["runs"], found["mean"], found["median"]) == (3, 3.0, 2.0)
    assert (found["low"], found["high"]) == pytest.approx((3 - 6.5725, 3 + 6.5725), abs=1e-3)  # as in bands_test.py


def test_differences_are_by_group_and_tell_given_settings(tmp_path: pathlib.Path) -> None:
    runs = [
        _read(saved_run.make(tmp_path / "1", run__seed=1, run__agent="ppo", run__max_updates=5)),
        _read(saved_run.make(tmp_path / "2", run__seed=2, run__agent="ppo", run__max_updates=6)),
        _read(saved_run.make(tmp_path / "3", run__seed=1, run__agent="vtrace")),
    ]
    found = {each.name: each for each in run_groups.differences(run_groups.group(runs))}
    assert "seed" not in found
    assert found["agent"] == ("agent", ("ppo", "vtrace"), (True, True))
    assert found["max_updates"] == ("max_updates", ("5 | 6", "0"), (True, False))
    assert found["vtrace.max_lag"].values[0] is None
