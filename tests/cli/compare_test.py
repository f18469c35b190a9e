"""Tables of settings and scores, and the same as JSON."""

from __future__ import annotations

import json
import pathlib

import pytest
import saved_run

from seedzero.cli import main as commands


@pytest.fixture
def runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    saved_run.make(
        tmp_path / "runs" / "a", (0.0, 3.0, 2.0), run__seed=1, optimizer__learning_rate=0.1, finished="done"
    )
    saved_run.make(tmp_path / "runs" / "b", (2.0, 3.0), run__seed=2, optimizer__learning_rate=0.1, run__max_updates=9)
    saved_run.make(tmp_path / "runs" / "c", (), run__seed=1, optimizer__learning_rate=0.2)
    return tmp_path


_HEAD = "run group seed state steps updates seconds steps/s last episodes best at step"
_A = "a 1 1 finished 2,000 20 4 500 2 +- 0.1 10 3 +- 0.1 1,000"
_B = "b 1 2 stopped 1,000 10 2 500 3 +- 0.1 10 3 +- 0.1 1,000"
_C = "c 2 1 stopped 0 0 0 - - - - -"
_GROUPS = "group settings runs last: mean last: interval last: median best: mean best: interval best: median"


@pytest.mark.parametrize(
    ("args", "tables"),
    [
        (
            ["runs"],
            [
                [_HEAD, _A, _B, _C],
                [
                    _GROUPS,
                    "1 optimizer.learning_rate=0.1 2 2.5 -3.853 to 8.853 2.5 3 3 to 3 3",
                    "2 optimizer.learning_rate=0.2 1 - - - - - -",
                ],
                ["setting 1 2", "max_updates 0 | 9* 0", "optimizer.learning_rate 0.1* 0.2*"],
            ],
        ),
        (["runs/a", "runs/c"], [[_HEAD, _A, _C], ["setting 1 2", "optimizer.learning_rate 0.1* 0.2*"]]),
        (
            ["runs/a", "runs/b", "--by="],
            [
                [_HEAD, _A, _B],
                [_GROUPS, "1 - 2 2.5 -3.853 to 8.853 2.5 3 3 to 3 3"],
                ["setting 1", "max_updates 0 | 9*"],
            ],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else "",
)
def test_tables_are_for_people(
    args: list[str], tables: list[list[str]], runs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["compare", *args]) == 0
    parts = [part.splitlines() for part in capsys.readouterr().out.split("\n\n")]
    assert [[" ".join(row.split()) for row in rows] for _title, *rows in parts] == tables


def test_json_has_settings_runs_and_groups(runs: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["compare", "runs", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["settings"] == [
        {"name": "max_updates", "values": ["0 | 9", "0"], "given": [True, False]},
        {"name": "optimizer.learning_rate", "values": ["0.1", "0.2"], "given": [True, True]},
    ]
    first, second, third = found["runs"]
    assert (first["group"], first["seed"], first["state"], first["last"]["mean"]) == (1, 1, "finished", 2.0)
    best = {"mean": 3.0, "stderr": 0.1, "episodes": 10, "update": 10, "env_steps": 1_000}
    assert first["best"] == pytest.approx(best)
    assert (second["state"], third["last"], third["group"]) == ("stopped", None, 2)
    assert found["groups"][0]["last"]["mean"] == 2.5 and found["groups"][1]["last"] is None
    assert found["notes"] == []


def test_runs_of_different_environments_are_compared_with_a_note(
    runs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved_run.make(runs / "other", preset="cartpole")
    assert commands.main(["compare", "runs/a", "other"]) == 0
    assert "catch and gym:CartPole-v1" in capsys.readouterr().out.splitlines()[0]
    assert commands.main(["compare", "runs/a", "other", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["notes"]) == 1


def test_settings_that_only_some_agents_have_are_shown_if_asked_for(
    runs: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved_run.make(runs / "other", run__agent="vtrace", optimizer__learning_rate=0.1, run__seed=1)

    def compared(*flags: str) -> str:
        assert commands.main(["compare", "runs/a", "other", *flags]) == 0
        return capsys.readouterr().out

    few, all_of_them = compared(), compared("--all")
    assert "ppo.num_epochs" not in few and "agent" in few and few.splitlines()[-1].endswith(": --all shows them")
    assert "ppo.num_epochs" in all_of_them and "--all" not in all_of_them
