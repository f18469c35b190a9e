"""Recorded episodes: the numbers of evaluation and search, both sides of a game, and limits."""

from __future__ import annotations

import functools
import json
import os
import pathlib
from typing import Any

import numpy as np
import policies
import pytest

import seedzero
from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.acting.tables import recording, table
from seedzero.agents import agent_table
from seedzero.config import configs, presets
from seedzero.core import errors, types
from seedzero.envs import catch, registry
from seedzero.storage.checkpoints import run_dirs

_SMALL = {"network.width": 8, "network.head_width": 8, "network.num_bins": 11, "search.num_simulations": 3}


@functools.cache
def _saved(env: str, agent: str = "muzero", mode: np.int8 = types.GREEDY) -> saved_agents.SavedAgent:
    changes = {"env.id": env, "env.random_opening": 0, **_SMALL}
    config = configs.override(presets.get("catch" if env == "catch" else "tictactoe", agent), changes)
    made = registry.make(env, config.env, 2)
    made.close()
    return policies.saved(made.spec, run__agent=agent)._replace(config=config, mode=mode)


@pytest.fixture
def run_path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that makes the run directory of an environment and agent."""

    def make(env: str, agent: str = "muzero", **given: Any) -> pathlib.Path:
        saved = _saved(env, agent, **given)
        monkeypatch.setattr(saved_agents, "load", lambda *args: saved)
        with run_dirs.open_run_dir(tmp_path / "run", saved.config, preset="catch", given={}) as opened:
            return opened.path

    return make


@pytest.mark.thorough
def test_episodes_are_those_of_an_evaluation(tmp_path: pathlib.Path, run_path: Any) -> None:
    path, told = run_path("catch"), list[recording.RecordedEpisode]()
    result = recording.record(agent_choice.AgentChoice(path, seed=5), tmp_path / "out", 3, recorded=told.append)
    assert result == {"step": 7, "chosen": "given", "out": str(tmp_path / "out"), "episodes": 3, "steps": 27}
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == [episode.file for episode in told]
    saved = _saved("catch")
    player = table.RunTable(agent_choice.AgentChoice(path, seed=5), saved.config, 1, types.Role.EVALUATE)
    for number, file in enumerate(files):
        found = seedzero.read_record(file)
        arrays, header = found.arrays, found.header
        assert (header["episode"], header["seed"], header["run"], header["env"]) == (number, 5, "run", "catch")
        assert header["num_simulations"] == 3 and header["policy"] == "greedy" and header["actions"] == [0, 1, 2]
        assert header["action_names"] == ["left", "stay", "right"]
        assert found.num_steps == 9 and arrays["terminated"].tolist() == [False] * 8 + [True]
        assert header["return"] == arrays["reward"].sum() == told[number].total
        for row in range(9):
            np.testing.assert_array_equal(arrays["observation"][row], player.step.observation[0])
            assert arrays["visits"][row].sum() == 3
            np.testing.assert_array_equal(arrays["render"][row], player.env.render()[::2, ::2])
            player.advance()
            assert arrays["reward"][row] == player.step.reward[0]
        np.testing.assert_array_equal(arrays["observation"][9], player.step.observation[0])
        player.advance()  # the next episode's first observation


def test_pictures_are_left_out_where_there_are_none_or_too_many(
    tmp_path: pathlib.Path, run_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = run_path("catch"), []
    made = catch.Catch.render

    def render(self: catch.Catch) -> np.ndarray:
        if monkeypatched == "fails" and self._ball_row[0] == 3:
            raise errors.EnvironmentFailure("no screen")
        return made(self)[:, : 20 + int(self._ball_row[0])] if monkeypatched == "grows" else made(self)

    monkeypatch.setattr(catch.Catch, "render", render)
    for monkeypatched in ("works", "fails", "grows", "large"):
        monkeypatch.setattr(recording, "MAX_PICTURES_BYTES", 1000 if monkeypatched == "large" else 10**9)
        recording.record(agent_choice.AgentChoice(path, seed=5), tmp_path / monkeypatched, 1)
        arrays = seedzero.read_record(tmp_path / monkeypatched / "episode-000000.npz").arrays
        kept.append((monkeypatched, "render" in arrays, len(arrays["observation"])))
    assert kept == [("works", True, 10), ("fails", False, 10), ("grows", False, 10), ("large", False, 10)]


def test_pictures_that_are_drawn_into_the_same_array_are_all_kept(
    tmp_path: pathlib.Path, run_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    canvas = np.zeros((8, 8, 3), np.uint8)

    def render(self: catch.Catch) -> np.ndarray:
        canvas[:] = self._ball_row[0]
        return canvas

    monkeypatch.setattr(catch.Catch, "render", render)
    recording.record(agent_choice.AgentChoice(run_path("catch"), seed=5), tmp_path / "out", 1)
    found = seedzero.read_record(tmp_path / "out" / "episode-000000.npz").arrays["render"]
    assert found[:, 0, 0, 0].tolist() == list(range(10))


def test_an_environment_that_cannot_be_made_with_pictures_is_recorded_without(
    tmp_path: pathlib.Path, run_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = registry.make

    def no_screen(*args: Any, render: bool = False, **options: Any) -> Any:
        if render:
            raise errors.EnvironmentFailure("render_mode: unexpected")
        return make(*args, **options)

    path = run_path("catch")
    monkeypatch.setattr(registry, "make", no_screen)
    assert recording.record(agent_choice.AgentChoice(path, seed=5), tmp_path / "out", 1)["episodes"] == 1


@pytest.mark.thorough
def test_a_game_of_two_players_has_the_moves_of_both(tmp_path: pathlib.Path, run_path: Any) -> None:
    pytest.importorskip("pyspiel")
    path = run_path("spiel:tic_tac_toe", mode=types.SAMPLE)
    recording.record(agent_choice.AgentChoice(path), tmp_path / "out", 4)
    games = [seedzero.read_record(file) for file in sorted((tmp_path / "out").iterdir())]
    assert len({tuple(game.arrays["action"].tolist()) for game in games}) > 1
    for game in games:
        arrays = game.arrays
        assert arrays["mover"].tolist() == [row % 2 for row in range(game.num_steps)]
        assert [name[0] for name in arrays["move"].tolist()] == ["xo"[row % 2] for row in range(game.num_steps)]
        assert len(set(arrays["action"].tolist())) == game.num_steps and 5 <= game.num_steps <= 9
        assert arrays["action_mask"].sum(axis=1).tolist() == [9 - row for row in range(game.num_steps)]
        assert (arrays["policy"][~arrays["action_mask"]] == 0).all() and game.header["policy"] == "sample"
        signs = np.where(arrays["mover"] == 0, 1, -1)
        assert game.header["return"] == (arrays["reward"] * signs).sum()


@pytest.mark.thorough
def test_players_of_pgx_alternate_and_have_opposite_values(tmp_path: pathlib.Path, run_path: Any) -> None:
    pytest.importorskip("pgx")
    path = run_path("pgx:tic_tac_toe", mode=types.SAMPLE)
    recording.record(agent_choice.AgentChoice(path), tmp_path / "out", 3)
    for file in sorted((tmp_path / "out").iterdir()):
        game = seedzero.read_record(file)
        assert game.arrays["mover"].tolist() == [row % 2 for row in range(game.num_steps)]
        assert "move" not in game.arrays
        assert game.header["return"] == (game.arrays["reward"] * np.where(game.arrays["mover"] == 0, 1, -1)).sum()


def test_equal_games_are_announced(tmp_path: pathlib.Path, run_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspiel")
    recording.record(agent_choice.AgentChoice(run_path("spiel:tic_tac_toe")), tmp_path / "out", 2)
    assert "--policy=sample" in capsys.readouterr().err
    one, two = (seedzero.read_record(file).arrays["action"].tolist() for file in sorted((tmp_path / "out").iterdir()))
    assert one == two


def test_a_game_of_seats_has_one_seat_s_turns(tmp_path: pathlib.Path, run_path: Any) -> None:
    pytest.importorskip("pyspiel")
    recording.record(
        agent_choice.AgentChoice(run_path("spiel:kuhn_poker", "ppo", mode=types.SAMPLE)), tmp_path / "out", 4
    )
    found = [seedzero.read_record(file) for file in sorted((tmp_path / "out").iterdir())]
    assert [record.header["task"] for record in found] == ["first", "second"] * 2
    assert all(1 <= record.num_steps <= 2 and "mover" not in record.arrays for record in found)


@pytest.mark.thorough
@pytest.mark.parametrize(("agent", "has_policy"), [("ppo", True), ("apex", False)])
def test_an_agent_without_a_search_has_no_arrays_of_one(
    agent: str, has_policy: bool, tmp_path: pathlib.Path, run_path: Any
) -> None:
    path = run_path("catch", agent)
    recording.record(agent_choice.AgentChoice(path), tmp_path / "out", 1)
    found = seedzero.read_record(tmp_path / "out" / recording.file_name(0))
    assert ("policy" in found.arrays) is has_policy and not {"visits", "prior", "value"} & found.arrays.keys()
    assert found.header["num_simulations"] is None
    with pytest.raises(errors.UsageError, match=f"agent {agent} "):
        recording.record(agent_choice.AgentChoice(path, simulations=4), tmp_path / "other", 1)


@pytest.mark.thorough
def test_a_longer_search_is_made_and_kept(
    tmp_path: pathlib.Path, run_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, path = _saved("catch"), run_path("catch")
    monkeypatch.setattr(saved_agents, "load", lambda _, *given: saved._replace(agent=agent_table.make(*given, "cpu")))
    recording.record(agent_choice.AgentChoice(path, max_steps=2, simulations=5), tmp_path / "out", 1)
    found = seedzero.read_record(tmp_path / "out" / recording.file_name(0))
    assert found.arrays["visits"].sum(axis=1).tolist() == [5, 5] and found.header["num_simulations"] == 5


def test_a_limit_of_steps_ends_episodes_and_others_begin(tmp_path: pathlib.Path, run_path: Any) -> None:
    recording.record(agent_choice.AgentChoice(run_path("catch"), max_steps=4), tmp_path / "out", 3)
    found = [seedzero.read_record(file) for file in sorted((tmp_path / "out").iterdir())]
    assert [(record.num_steps, record.header["cut_off"]) for record in found] == [(4, True)] * 3
    assert not any(record.arrays["truncated"].any() or record.arrays["terminated"].any() for record in found)
    assert all(record.arrays["observation"][0, 0].any() for record in found)  # the ball is at the top again
    assert not any(record.arrays["observation"][1:, 0].any() for record in found)


def test_equal_seeds_give_equal_files(tmp_path: pathlib.Path, run_path: Any) -> None:
    path = run_path("catch")
    for name in ("a", "b"):
        recording.record(agent_choice.AgentChoice(path, seed=3), tmp_path / name, 2)
    for number in range(2):
        one, two = (seedzero.read_record(tmp_path / name / recording.file_name(number)) for name in ("a", "b"))
        assert json.dumps(one.header) == json.dumps(two.header)
        assert all(np.array_equal(one.arrays[name], two.arrays[name]) for name in one.arrays)


def test_a_stop_leaves_the_finished_files(tmp_path: pathlib.Path, run_path: Any) -> None:
    def stop(episode: recording.RecordedEpisode) -> None:
        if episode.file == recording.file_name(1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recording.record(agent_choice.AgentChoice(run_path("catch")), tmp_path / "out", 5, recorded=stop)
    files = sorted((tmp_path / "out").iterdir())
    assert [seedzero.read_record(file).header["episode"] for file in files] == [0, 1]


def test_earlier_episodes_and_files_are_kept(tmp_path: pathlib.Path, run_path: Any) -> None:
    path = run_path("catch")
    recording.record(agent_choice.AgentChoice(path), tmp_path / "out", 1)
    with pytest.raises(errors.UsageError, match=r"--out=.*episode-000000\.npz"):
        recording.record(agent_choice.AgentChoice(path), tmp_path / "out", 1)
    (tmp_path / "file").touch()
    with pytest.raises(errors.UsageError, match=r"--out=.*/file cannot be written: File exists"):
        recording.record(agent_choice.AgentChoice(path), tmp_path / "file", 1)


def test_two_processes_do_not_record_into_one_directory(tmp_path: pathlib.Path, run_path: Any) -> None:
    path, out, told = run_path("catch"), tmp_path / "out", rf"/out is in use .* pid {os.getpid()}; .*another --out"

    def again(episode: recording.RecordedEpisode) -> None:
        with pytest.raises(errors.Occupied, match=told):
            recording.record(agent_choice.AgentChoice(path, seed=6), out, 1)

    out.mkdir()
    with recording._alone(out), pytest.raises(errors.Occupied):  # before it has an episode
        recording.record(agent_choice.AgentChoice(path, seed=5), out, 1)
    recording.record(agent_choice.AgentChoice(path, seed=5), out, 2, recorded=again)
    assert [file.name for file in sorted(out.iterdir())] == ["episode-000000.npz", "episode-000001.npz"]
    assert {seedzero.read_record(file).header["seed"] for file in out.iterdir()} == {5}
