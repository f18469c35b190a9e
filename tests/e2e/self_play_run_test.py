"""A game of two players by the command line: train against oneself, then everything that one does with the run."""

from __future__ import annotations

import pathlib
from typing import Any

import e2e_harness as harness
import pytest
import run_state

from seedzero.api import leagues

pytestmark = pytest.mark.thorough

SMALL = (
    *harness.TINY,
    "--env=spiel:tic_tac_toe",
    "--preset=tictactoe",
    "--max_updates=30",
    "--muzero.n_step=9",
    "--evaluation.every_updates=10",
    "--evaluation.episodes=8",
    "--evaluation.num_envs=4",
    "--batcher.max_batch=8",
)


@pytest.fixture(scope="module")
def run(module_host: harness.Host) -> pathlib.Path:
    pytest.importorskip("pyspiel")
    path = module_host.directory / "tictactoe"
    ended = module_host.train(path, *SMALL).wait().ok()
    assert "finished: --max_updates=30 reached" in ended.err
    return path


def test_the_first_mover_s_return_stands_for_games_against_oneself(run: pathlib.Path) -> None:
    rows = harness.metrics_rows(run)
    returns = [row["first_mover_return"] for row in rows if "first_mover_return" in row]
    assert returns and all(-1 <= value <= 1 for value in returns)
    # Whole games have five to nine moves; the preset's random openings take up to six of them away.
    lengths = [row["episode_length"] for row in rows if "episode_length" in row]
    assert lengths and all(1 <= length <= 9 for length in lengths)
    assert not any("episode_return" in row for row in rows)
    evaluated = [row for row in rows if row.get("kind") == "evaluation"]
    assert evaluated and all(-1 <= row["evaluation_mean_return"] <= 1 for row in evaluated)
    assert all(row["evaluation_mean_length"] <= 5 for row in evaluated)  # its own moves alone


def test_the_run_is_evaluated_against_each_kind_of_opponent(host: harness.Host, run: pathlib.Path) -> None:
    def evaluate(*opponent: str) -> dict[str, Any]:
        ended = host.seedzero("evaluate", f"--run_dir={run}", *opponent).ok()
        found: dict[str, Any] = ended.json
        for name in ("wins", "draws", "losses"):
            assert found[name] == found["first"][name] + found["second"][name]
        assert found["wins"] + found["draws"] + found["losses"] == found["episodes"]
        return found

    by_chance = evaluate("--episodes=6")
    assert by_chance["opponent"] == "random"
    assert sum(by_chance["first"].values()) == sum(by_chance["second"].values()) == 3
    lines = evaluate("--opponent=exhaustive")
    assert (lines["opponent"], lines["episodes"] > 300) == ("exhaustive", True)
    itself = evaluate("--episodes=6", f"--opponent={run}")
    assert itself["opponent"] == str(run)
    # What one side wins after an opening, the other one loses.
    assert itself["first"]["wins"] == itself["second"]["losses"]


def test_the_run_can_be_watched(host: harness.Host, run: pathlib.Path, tmp_path: pathlib.Path) -> None:
    played = host.seedzero("play", f"--run_dir={run}", f"--video={tmp_path / 'one.gif'}").ok()
    assert 5 <= played.json["length"] <= 9 and played.json["frames"] == played.json["length"] + 1
    assert played.json["return"] in (-1.0, 0.0, 1.0)


def test_ppo_plays_itself_and_its_past_and_a_killed_run_repeats_its_bits(host: harness.Host) -> None:
    pytest.importorskip("pyspiel")
    words = (
        "--preset=league-tictactoe",
        "--agent=ppo",
        *harness.lock_step(24, 8),
        "--seed=3",
        "--league.freeze_every=300",
        "--league.redraw=16",
        "--league.members=random",
        "--network.width=8",
        "--worker.envs_per_group=4",
        "--ppo.unroll_length=8",
        "--ppo.batch_size=8",
        "--ppo.num_minibatches=2",
        "--evaluation.every_updates=0",
        "--metrics.tensorboard=false",
    )
    whole = host.directory / "whole"
    host.train(whole, *words).wait().ok()
    assert run_state.state(run_state.killed_and_resumed(host, *words)) == run_state.state(whole)
    league = leagues.read(whole, "")
    kinds = league.payoff.num_matches()
    assert len(league.pool.frozen) >= 3 and kinds["self_play"] > 0 and kinds["past"] + kinds["scripted"] > 0
    ended = host.seedzero("evaluate", f"--run_dir={whole}", "--opponent=exhaustive")
    assert ended.code == 0 and ended.json["episodes"] > 300
