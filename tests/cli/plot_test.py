"""Curves of runs as JSON, as a file, and the messages about them."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

import pytest
import saved_run

from seedzero.cli import main as commands
from seedzero.monitoring import metrics_log


@pytest.fixture
def runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Two seeds with one learning rate, and a run with another; the working directory."""
    monkeypatch.chdir(tmp_path)
    saved_run.make(
        tmp_path / "runs" / "a", (0.0, 1.0, 2.0), run__seed=1, optimizer__learning_rate=0.1, frames_per_step=4
    )
    saved_run.make(tmp_path / "runs" / "b", (2.0, 3.0), run__seed=2, optimizer__learning_rate=0.1, frames_per_step=4)
    saved_run.make(tmp_path / "runs" / "c", (5.0, 6.0), run__seed=1, optimizer__learning_rate=0.2, frames_per_step=4)
    return tmp_path


def _json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert commands.main(["plot", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_groups_have_means_and_intervals_without_matplotlib(
    runs: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = _json(capsys, "runs")
    assert (found["x"], found["y"], found["smooth"], found["by"], found["out"]) == (
        "steps",
        "evaluation",
        1,
        None,
        None,
    )
    two, one = found["groups"]
    assert two["settings"] == {"optimizer.learning_rate": 0.1} and two["runs"] == ["runs/a", "runs/b"]
    assert (two["x"], two["mean"], two["longest"]) == ([0, 1_000], [1, 2], 2_000)
    assert two["high"] == pytest.approx([1 + 12.7062, 2 + 12.7062], abs=1e-3)  # 12.706 sqrt(2) / sqrt(2)
    assert (one["mean"], one["low"], one["high"]) == ([5, 6], None, None)
    assert not (runs / "plot.png").exists()
    assert commands.main(["plot", "runs"]) == 2
    assert "matplotlib" in capsys.readouterr().err


def test_axes_metrics_and_smoothing_are_chosen(runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    for x, last in (("steps", 2_000), ("updates", 20), ("seconds", 4.0), ("frames", 8_000)):
        assert _json(capsys, "runs/a", f"--x={x}")["groups"][0]["x"][-1] == last
    assert _json(capsys, "runs/a", "--y=training")["groups"][0]["mean"] == pytest.approx([-0.1, 0.9, 1.9])
    assert _json(capsys, "runs/a", "--y=loss")["groups"][0]["mean"] == [0.5, 0.5, 0.5]
    assert _json(capsys, "runs/a", "--smooth=2")["groups"][0]["mean"] == [0.0, 0.5, 1.5]
    (together,) = _json(capsys, "runs", "--by=agent")["groups"]
    assert together["settings"] == {} and len(together["runs"]) == 3


@pytest.mark.parametrize("flags", [[], ["--out=a.svg", "--x=seconds"]], ids=["png", "svg"])
def test_a_file_is_written_and_all_that_it_hides_is_told(
    flags: list[str], runs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert commands.main(["plot", "runs", "--by=env", *flags]) == 0
    err = capsys.readouterr().err
    ends = (
        "2 seconds of training, with the shortest of its 3 runs; the longest has 4"
        if flags
        else ("1,000 environment steps, with the shortest of its 3 runs; the longest has 2,000")
    )
    assert f"the curve ends at {ends}\n" in err and "differ in optimizer.learning_rate too" in err
    assert f"wrote {'a.svg' if flags else 'plot.png'}: 1 curve(s) of 3 run(s)" in err
    assert (runs / ("a.svg" if flags else "plot.png")).stat().st_size > 1_000


def test_a_run_without_the_metric_is_left_out(runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "runs" / "c" / metrics_log.METRICS_FILE).unlink()
    assert _json(capsys, "runs")["left_out"] == ["runs/c"]


def test_resumed_and_damaged_rows_are_told(runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = runs / "runs" / "a" / metrics_log.METRICS_FILE
    file.write_text("damaged\n" + file.read_text() + '{"upd')
    assert commands.main(["plot", "runs/a", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "runs/a that are left out: 1" in err and json.loads(out)["groups"][0]["mean"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("runs --y=los", "--y=los: none of 3 runs has metric los; there are env_steps, episode_return, "),
        ("runs/a --y=training_loss", "--y=training_loss: runs/a has no metric training_loss; there are env_steps, "),
        ("runs --y=", "--y= is empty; expected evaluation or training"),
        ("runs --x=time", "--x=time: expected one of steps, updates, seconds, frames"),
        ("runs --smooth=0", "--smooth=0: expected at least 1"),
        ("runs --by=lr", "--by=lr: there is no setting lr; did you mean --optimizer.learning_rate?"),
        ("runs --out=a.gif", "--out=a.gif: the name must end in .png, .svg, .pdf"),
        ("runs --out=nowhere/a.png", "--out=nowhere/a.png cannot be written: No such file"),
    ],
    ids=lambda text: text,
)
def test_mistakes_are_refused(flags: str, told: str, runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert commands.main(["plot", *flags.split()]) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert out == "" and not list(runs.glob("*.*"))


def test_runs_without_a_row_and_without_a_common_place_are_refused(
    runs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved_run.make(runs / "empty", ())
    assert commands.main(["plot", "empty", "--json"]) == 2
    assert "--y=evaluation: empty has no evaluation yet" in capsys.readouterr().err
    row = {"update": 9, "env_steps": 90_000, "seconds": 1, "kind": "evaluation", "evaluation_mean_return": 1}
    (runs / "runs" / "b" / metrics_log.METRICS_FILE).write_text(json.dumps(row) + "\n")
    assert commands.main(["plot", "runs/a", "runs/b", "--json"]) == 2
    err = capsys.readouterr().err
    assert "its 2 runs have no environment steps in common" in err and "give --x, or fewer runs" in err


def test_a_metric_is_found_by_the_end_of_its_name(runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = runs / "runs" / "a" / metrics_log.METRICS_FILE
    row = {"update": 30, "env_steps": 3_000, "seconds": 9.0, "info/is_success": 0.5}
    file.write_text(f"{file.read_text()}{json.dumps(row)}\n")
    assert commands.main(["plot", "runs/a", "--y=is_success", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[-1])["groups"][0]["mean"] == [0.5]
    assert "--y=is_success: drawing info/is_success" in told.err
