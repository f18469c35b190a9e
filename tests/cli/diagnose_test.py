"""The verdicts on a run as text and as JSON, and the exit code."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from seedzero.cli import main as commands
from seedzero.config import presets
from seedzero.core import types
from seedzero.monitoring import diagnosis, metrics_log, random_play
from seedzero.storage.checkpoints import run_dirs

_ROW: dict[str, Any] = {
    "env_steps": 5_000,
    "episode_return": 9.0,
    "episodes": 50,
    "loss": 0.1,
    "loss_value": 0.1,
    "num_rejected": 0.0,
    "policy_entropy": 0.6,
    "policy_kl": 0.01,
    "value_mean": 3.0,
    "value_target_mean": 3.1,
    "grad_norm": 0.1,
    "grad_clipped": 0.0,
}


@pytest.fixture
def run_path(tmp_path: pathlib.Path) -> pathlib.Path:
    config = presets.get("cartpole", "ppo")
    with run_dirs.open_run_dir(tmp_path / "run", config, preset="cartpole", given={}) as opened:
        run_dirs.write_spec(opened.path, types.EnvSpec((4,), "float32", 2))
        return opened.path


@pytest.fixture(autouse=True)
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # without returns of random actions of the user's


def _write(path: pathlib.Path, *rows: dict[str, Any], end: str = "\n") -> None:
    lines = [json.dumps({**_ROW, "update": 100 * n, **row}) for n, row in enumerate(rows, 1)]
    (path / metrics_log.METRICS_FILE).write_text("\n".join(lines) + end)


def _states(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() == {"run_dir", "agent", "update", "env_steps", "rows", "healthy", "verdicts"}
    assert answer["healthy"] == (diagnosis.UNHEALTHY not in [found["state"] for found in answer["verdicts"]])
    return {found["name"]: found["state"] for found in answer["verdicts"]}


def test_self_play_is_not_called_healthy_by_rules_that_cannot_tell(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = presets.get("tictactoe")
    with run_dirs.open_run_dir(tmp_path / "run", config, preset="tictactoe", given={}) as opened:
        path = opened.path
    run_dirs.write_spec(path, types.EnvSpec((3, 3, 4), "float32", 9, num_players=2, has_action_mask=True))
    row = {"first_mover_return": 0.1, "loss_policy": 1.0, "loss": 1.0, "targets_clipped": 0.0, **_ROW}
    del row["episode_return"]
    lines = [json.dumps({**row, "update": 1_000 * number}) for number in (1, 2, 3)]
    (path / metrics_log.METRICS_FILE).write_text("\n".join(lines) + "\n")
    assert commands.main(["diagnose", str(path)]) == 0
    head, *rows, verdict = capsys.readouterr().out.splitlines()
    assert head == f"{path}: muzero, update 3,000, 5,000 steps, 3 rows"
    assert "  clipped targets   healthy" in rows and "read evaluations" in rows[2]
    assert verdict.startswith("healthy, but for rewards, return, undecided policy, greedy play, ")
    assert commands.main(["diagnose", str(path), "--json"]) == 0
    states = _states(capsys)
    unchecked = {name for name, state in states.items() if state == diagnosis.NOT_CHECKED}
    assert unchecked == {"rewards", "return", "undecided policy", "greedy play"}
    assert states["certain policy"] == diagnosis.HEALTHY and diagnosis.NOT_RECORDED not in states.values()


def test_a_healthy_run_ends_with_0(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(run_path, *({"episode_return": x, "env_steps": 60_000} for x in (9.0, 90.0, 200.0)))
    assert commands.main(["diagnose", str(run_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ppo, update 300, 60,000 steps, 3 rows" in lines[0] and lines[-1] == "healthy"
    assert commands.main(["diagnose", str(run_path), "--json"]) == 0
    assert set(_states(capsys).values()) == {diagnosis.HEALTHY}


def test_a_collapsed_policy_ends_with_1_and_the_setting_to_change(
    run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"update": 1, "evaluation_mean_return": 9.4}
    _write(run_path, first, *({"policy_entropy": 0.001, "episode_return": x} for x in (9.3, 9.2, 9.4)))
    assert commands.main(["diagnose", str(run_path)]) == 1
    output = capsys.readouterr().out
    assert "--optimizer.learning_rate (now 0.001)" in output and output.splitlines()[-1].startswith(
        "not healthy: certain policy"
    )
    assert commands.main(["diagnose", str(run_path), "--json"]) == 1
    assert _states(capsys)["certain policy"] == diagnosis.UNHEALTHY


def test_metrics_of_other_versions_and_a_running_learners_last_line_are_no_errors(
    run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(run_path, *[{"episode_return": 9.0 + n} for n in range(3)], end='\n{"update": 4, "lo')
    path = run_path / metrics_log.METRICS_FILE
    path.write_text(path.read_text().replace("grad_clipped", "earlier").replace("policy_kl", "other"))
    assert commands.main(["diagnose", str(run_path), "--json"]) == 0
    states = _states(capsys)
    assert states["gradients"] == states["policy steps"] == diagnosis.NOT_RECORDED
    (run_path / "spec.json").unlink()
    assert commands.main(["diagnose", str(run_path)]) == 0
    path.write_text("damaged\n" + path.read_text())
    capsys.readouterr()
    assert commands.main(["diagnose", str(run_path)]) == 0
    assert "metrics.jsonl that are left out: 1" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "", '{"upd', '{"update": 1, "evaluation_mean_return": 3.0}\n'])
def test_a_run_without_rows_says_so(
    run_path: pathlib.Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (run_path / metrics_log.METRICS_FILE).write_text(content)
    assert commands.main(["diagnose", str(run_path)]) == 2
    assert "no rows" in capsys.readouterr().err


def test_a_return_no_better_than_that_of_random_actions_is_named(
    run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(run_path, *({"episode_return": x, "env_steps": 60_000} for x in (10.0, 16.0, 20.0)))
    assert commands.main(["diagnose", str(run_path), "--json"]) == 0
    assert _states(capsys)["return"] == diagnosis.HEALTHY
    random_play.remember(run_dirs.read_saved(run_path).config.env, [20.0, 22.0, 24.0])
    assert commands.main(["diagnose", str(run_path)]) == 1
    (told,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  return "))
    assert " return 15.33 after 60,000 steps " in told and " 22 of random actions" in told
