"""Which checkpoint is used unless one is named: one rule for all that loads an agent."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import play_runs
import pytest

import seedzero
from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.acting.tables import human_table, recording, scoring
from seedzero.config import configs, presets
from seedzero.core import types
from seedzero.interfaces.serving import followers
from seedzero.storage.checkpoints import checkpoint_dir, run_dirs, saved_files

BEST, LAST = 60, 90
KUHN, TIC_TAC_TOE, CATCH = "spiel:kuhn_poker", "spiel:tic_tac_toe", "catch"
TWO = dict(seats=("a", "b"), tasks=("a", "b"), fixed_seats=True)


@functools.cache
def _run(env_id: str) -> pathlib.Path:
    """Returns a run whose checkpoint of update 60 is the best by evaluation, and that of 90 the last."""
    path = play_runs.make(pathlib.Path(tempfile.mkdtemp(prefix="seedzero-")), env_id, "ppo")
    config, spec = run_dirs.read_saved(path).config, run_dirs.read_spec(path)
    assert spec is not None
    params = play_runs.params_of(config, spec)
    files = checkpoint_dir.CheckpointDir(path / "checkpoints", config.checkpoint, lambda: 0.0)
    files.write_best(BEST, {"params": {"params": params}}, {"update": BEST, "mean_return": 1.0})
    assert saved_files.finished(path / "checkpoints" / "best") == [BEST]
    return path


def _recorded(path: pathlib.Path) -> Any:
    out = tempfile.mkdtemp(prefix="seedzero-") + "/records"
    return recording.record(agent_choice.AgentChoice(path), out, 1)["step"]


def _served(path: pathlib.Path) -> int:
    return followers.load(agent_choice.AgentChoice(path), ()).players["main"].update


def _engine(path: pathlib.Path) -> int:
    loaded, load = list[saved_agents.SavedAgent](), saved_agents.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_agents, "load", lambda *given: loaded.append(load(*given)) or loaded[-1])
        scoring.engine(agent_choice.AgentChoice(path))
    return loaded[-1].update


DOORS: dict[str, Callable[[pathlib.Path], Any]] = {
    "load": lambda path: seedzero.load(path).step,
    "evaluate": lambda path: seedzero.evaluate(path, 1).step,
    "export": lambda path: seedzero.export(path, tempfile.mkdtemp(prefix="seedzero-"))["step"],
    "record": _recorded,
    "serve": _served,
}
OF_GAMES: dict[str, Callable[[pathlib.Path], Any]] = {
    "play --human": lambda path: human_table.HumanTable(agent_choice.AgentChoice(path)).saved.update,
}
OF_TURNS: dict[str, Callable[[pathlib.Path], Any]] = {
    "gtp": _engine,
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("env_id", "step", "doors"),
    [
        (CATCH, BEST, DOORS),
        (KUHN, LAST, DOORS | OF_GAMES),
        (TIC_TAC_TOE, LAST, DOORS | OF_GAMES | OF_TURNS),
    ],
)
def test_every_door_loads_the_same_checkpoint(
    env_id: str, step: int, doors: dict[str, Callable[[pathlib.Path], Any]]
) -> None:
    assert {name: door(_run(env_id)) for name, door in doors.items()} == dict.fromkeys(doors, step)


@pytest.mark.parametrize(("asked", "expected"), [(None, "sample"), ("greedy", None)])
def test_a_saved_agent_acts_as_the_evaluations_of_its_run(
    asked: Any, expected: str | None, tmp_path: pathlib.Path
) -> None:
    path = play_runs.make(tmp_path / "run", CATCH, "ppo", evaluation__policy="sample")
    assert seedzero.evaluate(path, 1, policy=asked).policy == expected


@pytest.mark.parametrize(
    ("fields", "changes", "expected"),
    [
        ({}, {}, False),
        (dict(num_players=2), {}, True),
        (dict(seats=("a", "b", "c"), tasks=("a", "b", "c")), {}, True),
        (TWO, {}, False),  # such as two robots that work together
        (TWO, {"league.freeze_every": 1_000}, True),
    ],
)
def test_a_contest_is_a_game_in_turn_of_seats_that_change_or_a_league_of_sides(
    fields: dict[str, Any], changes: dict[str, Any], *, expected: bool
) -> None:
    config = configs.override(presets.get("cartpole", "ppo"), {"env.id": "pettingzoo:m:f", **changes})
    assert agent_choice.is_contest(config, types.EnvSpec((4,), "float32", 2, **fields)) is expected
