"""Evaluation in one process: a player carries frames and memory from step to step, greedily."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import select
import signal
import subprocess
import sys
import types as builtin_types
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import imageio.v3 as imageio
import jax
import jax.numpy as jnp
import numpy as np
import policies
import pytest

from seedzero.acting.actors import acting_policy, agent_choice, saved_agents
from seedzero.acting.tables import scoring, table, videos
from seedzero.agents import agent_table, base
from seedzero.config import configs, presets
from seedzero.core import errors, types
from seedzero.device import compilation_cache, patience
from seedzero.envs import catch, registry
from seedzero.storage.checkpoints import run_dirs, saved_files

Run: TypeAlias = Callable[..., pathlib.Path]


def _counting_agent() -> base.Agent:
    """Remembers the steps since an episode began; its action is 2, or 0 where it is told to explore."""

    def act(params: Any, memory: jax.Array, inputs: base.Inputs, key: jax.Array) -> tuple[jax.Array, base.Outputs]:
        memory = jnp.where(inputs.first, 0, memory + 1)
        stacked = inputs.observation[types.OBSERVATION]
        seen = {"stacked": stacked, "reward": inputs.reward}
        return memory, base.Outputs(jnp.where(inputs.explores, 0, 2).astype(jnp.int32), seen)

    return policies.stub(act, stack=2)


def _saved(update: int = 0) -> saved_agents.SavedAgent:
    """Counts the steps of Catch."""
    return saved_agents.SavedAgent(_counting_agent(), (), update, "last", presets.get("catch"), catch.Catch(1).spec)


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    """Returns a function that makes the directory of a run of Catch: (agent, settings) -> its path."""

    def make(agent: str = "muzero", **changes: Any) -> pathlib.Path:
        config = configs.override(presets.get("catch", agent), changes)
        with run_dirs.open_run_dir(tmp_path / "run", config, preset="catch", given={}) as opened:
            return opened.path

    return make


def test_a_player_carries_memory_and_frames_and_begins_anew(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = _saved()
    monkeypatch.setattr(saved_agents, "load", lambda *args: saved)
    player = table.RunTable(agent_choice.AgentChoice(run()), saved.config, 3, types.Role.TRAIN)
    since, before = 0, None
    for _ in range(25):
        first, frame = player.first.copy(), player.step.observation.copy()
        since = 0 if first.all() else since + 1
        assert first.all() or not first.any()  # episodes of Catch have one length
        player.advance()
        assert player._actor.memory.memory.tolist() == [since] * 3
        np.testing.assert_array_equal(player._actor.memory.past[types.OBSERVATION], frame)
        assert before is None or first.all() or not np.array_equal(before, frame)
        before = frame
    player.env.close()


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["muzero", "vtrace"])
def test_agents_of_either_kind_play_whole_episodes(agent: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"network.width": 8, "search.num_simulations": 2, "network.lstm_width": 6, "network.frame_stack": 2}
    path = run(agent, **changes)

    def initial(directory: pathlib.Path, step: str, template: base.Params, player: str) -> tuple[base.Params, Any]:
        parameters = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), template)
        return parameters, builtin_types.SimpleNamespace(step=7)

    monkeypatch.setattr(saved_files, "restore_params", initial)
    monkeypatch.setattr(compilation_cache, "enable", lambda: None)
    states: list[tuple[str, str]] = []

    @contextlib.contextmanager
    def telling(state: Callable[[], str]) -> Iterator[None]:
        before = state()
        yield
        states.append((before, state()))

    monkeypatch.setattr(patience, "telling", telling)
    found = scoring.evaluate(agent_choice.AgentChoice(path), 5)
    loading, compiling, episodes = states  # no part of it is silent
    assert loading == ("loading the agent",) * 2 and compiling == ("compiling the agent",) * 2
    assert episodes == ("", "evaluating: 5 of 5 episodes")
    assert (found["step"], found["chosen"]) == (7, "last")
    assert (found["episodes"], found["mean_length"]) == (5, 9.0)
    assert -1.0 <= found["mean_return"] <= 1.0 and "cut_off" not in found
    assert found["stderr_return"] == pytest.approx(found["std_return"] / 2.0)


def test_a_choice_of_simulations_replaces_those_of_training(run: Run) -> None:
    path = run("muzero")
    assert agent_choice.AgentChoice(path, simulations=9).config().search.num_simulations == 9
    assert agent_choice.AgentChoice(path).config() == run_dirs.read_saved(path).config
    with pytest.raises(errors.UsageError, match="--simulations=9: agent vtrace does not search"):
        scoring.evaluate(agent_choice.AgentChoice(run("vtrace"), simulations=9), 5)


@pytest.mark.thorough
def test_drawn_episodes_repeat_by_their_seed_and_are_named(
    tmp_path: pathlib.Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run("ppo", **{"network.width": 8})
    config, spec = run_dirs.read_saved(path).config, catch.Catch(1).spec
    agent = agent_table.make(config, spec, "cpu")
    params = agent.acting(agent.init(jax.random.key(0)))
    saved = saved_agents.SavedAgent(agent, params, 7, "last", config, spec, mode=types.SAMPLE)
    asked: list[Any] = []
    monkeypatch.setattr(saved_agents, "load", lambda *args: asked.append(args[0].policy) or saved)
    choice = agent_choice.AgentChoice(path, policy="sample", seed=5)
    drawn = scoring.evaluate(choice, 32)
    assert drawn["policy"] == "sample" and drawn == scoring.evaluate(choice, 32)
    assert drawn != scoring.evaluate(dataclasses.replace(choice, seed=6), 32)
    videos_of = [videos.play(choice, tmp_path / "a.gif") for _ in range(2)]
    assert videos_of[0] == videos_of[1] and videos_of[0]["policy"] == "sample"
    assert asked == ["sample"] * 5


@pytest.mark.parametrize(("changes", "max_steps"), [({"evaluation.max_episode_steps": 4}, None), ({}, 4)])
def test_episodes_that_do_not_end_are_cut_off(
    changes: dict[str, int], max_steps: int | None, tmp_path: pathlib.Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, told = _saved(), list[tuple[int, int]]()
    monkeypatch.setattr(saved_agents, "load", lambda *args: saved)
    choice = agent_choice.AgentChoice(run(**changes), max_steps=max_steps)
    found = scoring.evaluate(choice, 5, None, lambda *numbers: told.append(numbers))
    assert (found["episodes"], found["cut_off"], found["mean_length"]) == (5, 5, 4.0)  # of 9 steps
    assert told == [(0, 5)] * 3 + [(5, 5)]  # one batch: all end at once
    played = videos.play(choice, tmp_path / "play.gif")
    assert (played["cut_off"], played["frames"], played["length"]) == (1, 5, 4)


def test_a_film_is_small_and_names_the_steps_before_its_checkpoint(
    tmp_path: pathlib.Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run()
    saved = builtin_types.SimpleNamespace(step=7, counters={"ledger": {"stored": 640}})
    monkeypatch.setattr(saved_files, "find", lambda *args: (path, saved, {}))
    monkeypatch.setattr(saved_agents, "load", lambda choice, *args: _saved(choice.step))
    found = videos.film(path, tmp_path / "film.gif", 4, 20)
    assert (found["step"], found["ledger"], found["frames"]) == (7, {"stored": 640}, 5)
    assert max(imageio.imread(tmp_path / "film.gif").shape[1:3]) <= 20


_FILMS_FOR_EVER = """
import runpy, subprocess, sys, threading
from seedzero.acting.tables import videos

def film(*_):
    code = "import sys, time; held = open(sys.argv[1], 'w'); time.sleep(600)"
    subprocess.Popen([sys.executable, "-S", "-c", code, sys.argv[1]])
    threading.Event().wait()

videos.film = film
runpy.run_module("seedzero.acting.tables", run_name="__main__")
"""


@pytest.mark.thorough
def test_what_filmed_environments_started_ends_with_the_process(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "left")
    command = [sys.executable, "-c", _FILMS_FOR_EVER, str(tmp_path / "left"), str(tmp_path / "film.gif")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as child:
        try:
            with open(tmp_path / "left", "rb", buffering=0) as left:  # once the simulator has opened it
                assert child.stdin is not None
                child.stdin.close()
                assert select.select([left], [], [], 60.0)[0] and left.read(1) == b""
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def test_an_environment_may_change_the_directory_of_its_process(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with run_dirs.open_run_dir("run", presets.get("catch"), preset="catch", given={}):
        pass
    (tmp_path / "assets").mkdir()
    make, saved, read = registry.make, _saved(), []

    def make_there(*args: Any, **options: Any) -> Any:
        os.chdir(tmp_path / "assets")
        return make(*args, **options)

    def load(choice: agent_choice.AgentChoice, *args: Any) -> saved_agents.SavedAgent:
        read.append((choice.path / "config.json").exists())
        return saved

    monkeypatch.setattr(registry, "make", make_there)
    monkeypatch.setattr(saved_agents, "load", load)
    scoring.evaluate(agent_choice.AgentChoice("run"), 2)
    monkeypatch.chdir(tmp_path)
    assert videos.play(agent_choice.AgentChoice("run"), "play.gif")["video"] == "play.gif"
    assert (tmp_path / "play.gif").exists() and read == [True, True]


@pytest.mark.parametrize(("settings", "expected"), [({}, 32), ({"worker.envs_per_group": 3}, 5)])
def test_no_more_environments_play_than_a_run_has_elsewhere(settings: dict[str, int], expected: int) -> None:
    few = {"evaluation.num_envs": 5, "worker.envs_per_group": 40, **settings}
    assert scoring._num_envs(configs.override(presets.get("catch"), few), None, 100) == expected


def test_games_of_two_players_with_chance_are_played_against_random_moves(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pgx")
    path = run("alphazero", **{"env.id": "pgx:backgammon"})
    run_dirs.write_spec(path, types.EnvSpec((35,), "int32", 156, num_players=2, moves_again=True, has_chance=True))
    monkeypatch.setattr(scoring, "_evaluate_alone", lambda *arguments: {"mean_return": 1.4})
    assert scoring.evaluate(agent_choice.AgentChoice(path), 1, "random") == {"mean_return": 1.4}
    with pytest.raises(errors.UsageError, match=r"--opponent=mcts-10: .* chance, .* random moves; omit it"):
        scoring.evaluate(agent_choice.AgentChoice(path), 1, "mcts-10")


def test_each_task_has_an_environment_if_there_are_episodes_for_all() -> None:
    spec = types.EnvSpec((4,), "float32", 2, tasks=tuple(map(str, range(30))))
    few = configs.override(presets.get("catch"), {"worker.envs_per_group": 4, "evaluation.num_envs": 5})
    assert [scoring._num_envs(few, spec, number) for number in (5, 30, 100)] == [5, 30, 30]


def test_agents_of_an_environment_play_together() -> None:
    agents = types.EnvSpec((4,), "float32", 2, tasks=("a", "b", "c"), seats=("a", "b", "c"), fixed_seats=True)
    few = configs.override(presets.get("agents"), {"worker.envs_per_group": 9, "evaluation.num_envs": 9})
    assert [scoring._num_envs(few, agents, number) for number in (1, 3, 8, 100)] == [3, 3, 6, 9]


def test_the_parameters_before_any_update_are_a_choice_too(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def load(path: pathlib.Path, template: Any, step: Any, player: None, *, by_seat: bool) -> None:
        asked.append(step)
        raise errors.CheckpointError("enough")

    monkeypatch.setattr(saved_agents, "_load", load)
    with run_dirs.open_run_dir(tmp_path / "run", presets.get("tictactoe"), preset="tictactoe", given={}) as opened:
        path = opened.path
        run_dirs.write_spec(path, registry.spec(opened.config.env))
    for step in (0, None):
        with pytest.raises(errors.CheckpointError, match="enough"):
            scoring.evaluate(agent_choice.AgentChoice(path, step), 1)
        with pytest.raises(errors.CheckpointError, match="enough"):
            acting_policy.load(agent_choice.AgentChoice(path, step))  # as `play`, `record` and `export`
    assert asked == [0, 0, "last", "last"]


@pytest.mark.parametrize(("declared", "expected"), [(12.5, 12.5), (None, 5)])
def test_a_video_has_the_speed_that_the_environment_declares_or_its_family_s(
    declared: float | None, expected: float, tmp_path: pathlib.Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    def write_video(target: object, frames: Iterator[np.ndarray], fps: float) -> int:
        told.append(fps)
        return len(list(frames))

    monkeypatch.setattr(saved_agents, "load", lambda *args: _saved())
    monkeypatch.setattr(catch.Catch, "frames_per_second", declared, raising=False)
    monkeypatch.setattr(videos, "write_video", write_video)
    assert videos.play(agent_choice.AgentChoice(run()), tmp_path / "play.gif")["frames"] == 10 and told == [expected]


def test_a_run_without_checkpoint_leaves_no_environments(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(catch.Catch, "close", lambda self: closed.append(True))
    monkeypatch.setattr(compilation_cache, "enable", lambda: None)
    with pytest.raises(errors.CheckpointError, match="checkpoints"):
        scoring.evaluate(agent_choice.AgentChoice(run()), 5)
    assert closed == [True]
