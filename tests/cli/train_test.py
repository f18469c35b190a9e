from __future__ import annotations

import json
import math
import pathlib
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from seedzero.checkpoints import run_dir
from seedzero.cli import main, parse, train
from seedzero.config import config, presets
from seedzero.core import errors, exit_codes
from seedzero.learner import learner
from seedzero.networks import observations as networks
from seedzero.processes import signals

_MODULE = """
import gymnasium
from gymnasium import spaces

print("a module may print")

class Images(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 255, (64, 64, 3), "uint8"), spaces.Discrete(2)

class Parts(Images):
    observation_space = spaces.Dict(a=spaces.Discrete(2))

class Broken(Images):
    def __init__(self):
        raise ValueError("no licence")

for kind in (Images, Parts, Broken):
    gymnasium.register(f"{kind.__name__}-v0", entry_point=kind)
"""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the learner is called with, instead of learning."""
    seen: list[dict[str, Any]] = []

    def fake(values: config.Config, path: pathlib.Path, command: str, *, preset: str, given: Mapping[str, str]) -> int:
        seen.append(dict(config=values, path=path, command=command, preset=preset, given=given))
        return 0

    monkeypatch.setattr(learner, "train", fake)
    return seen


def _read(*args: str) -> parse.Arguments:
    return parse.read("train", train.COMMAND, args)


def test_preset_then_command_line_then_machine(calls: list[dict[str, Any]], tmp_path: pathlib.Path) -> None:
    args = ["train", "--preset=atari", f"--run_dir={tmp_path}", "--env=atari:Breakout", "--replay.batch_size=24"]
    assert main.main(args) == 0
    values = calls[0]["config"]
    assert values.env.id == "atari:Breakout"
    assert values.replay.batch_size == 24
    assert values.network.kind == "auto"
    assert values.worker.envs_per_group == presets.PRESETS["atari"].on_cpu["worker.envs_per_group"]
    assert values.replay.num_slots == 2 * values.worker.envs_per_group
    assert calls[0]["given"] == {"env.id": "atari:Breakout", "replay.batch_size": "24"}
    assert calls[0]["preset"] == "atari"


def test_the_preset_follows_the_spaces_that_the_arguments_make(calls: list[dict[str, Any]]) -> None:
    args = [
        "train",
        "--env=gym:CartPole-v1",
        '--env.kwargs={"sutton_barto_reward": true}',
        "--env.max_episode_steps=9",
    ]
    assert main.main(args) == 0
    assert calls[0]["preset"] == "vector"
    assert calls[0]["config"].env.max_episode_steps == 9


@pytest.mark.parametrize(
    "args, message",
    [
        (["--env=atari:Pong", "--env.kwargs={}"], "--env.kwargs={} is for environments gym:ID"),
        (["--env=gym:CartPole-v1", "--env.kwargs={1}"], "--env.kwargs={1} is no JSON object"),
        (["--env=gym:CartPole-v1", '--env.kwargs={"x": 1}'], "unexpected keyword argument 'x'"),
        ([], "--env=ENV, as in `seedzero train --env=gym:CartPole-v1`"),
        (["--seed=3"], "--env=ENV"),
        (["--env=pixels"], "--env=pixels names a preset, not an environment; give --preset=pixels"),
    ],
)
def test_one_sentence_says_what_is_missing(
    args: list[str], message: str, calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["train", *args]) == exit_codes.BAD_USAGE
    shown = capsys.readouterr().err
    assert message in shown and len(shown.splitlines()) == 1 and not calls


def test_without_run_dir_a_new_one_is_made_and_the_way_to_go_on_is_told(
    calls: list[dict[str, Any]],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["train", "--preset=catch", "--seed=3"]) == 0
    assert main.main(["train", "--preset=catch", "--seed=3"]) == 0
    first, second = (call["path"] for call in calls)
    assert first != second and first.is_dir()
    assert first.parent.name == "runs" and first.name.startswith("catch-20")
    assert calls[0]["command"] in capsys.readouterr().err


def test_the_command_that_goes_on_asks_for_the_same_run(calls: list[dict[str, Any]], tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "my run"
    args = ["train", "--env", "gym:CartPole-v1", "--deterministic", "--search.num_simulations=7", "--run_dir"]
    main.main([*args, str(directory)])
    words = shlex.split(calls[0]["command"])
    main.main(words[words.index("train") :])
    assert {**calls[0], "command": ""} == {**calls[1], "command": ""}
    assert calls[1]["command"] == calls[0]["command"]


def test_a_program_that_the_path_finds_is_called_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    program = tmp_path / "seedzero"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "train"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert train.resume_command(tmp_path / "r", _read("--preset=catch")).startswith(f"{program} train --preset=catch")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert train.resume_command(tmp_path / "r", _read("--preset=catch")).startswith("seedzero train --preset=catch")


def test_a_run_directory_alone_brings_its_preset_and_settings(tmp_path: pathlib.Path) -> None:
    given = {"env.id": "gym:Acrobot-v1", "run.seed": "5"}
    asked = train.request({"preset": "vector"}, given)
    with run_dir.open_run_dir(tmp_path, asked.config, preset="vector", given=given):
        pass
    again = train.request({"run_dir": str(tmp_path)}, {"run.max_updates": "9"})
    assert (again.preset, again.given) == ("vector", {**given, "run.max_updates": "9"})
    assert again.config == config.override(asked.config, {"run.max_updates": 9})


def test_an_environment_alone_chooses_the_preset_and_says_so() -> None:
    asked = train.request({}, {"env.id": "gym:Acrobot-v1"})
    assert asked.preset == "vector"
    assert any(note.startswith("--env=gym:Acrobot-v1 shows vectors of 6: preset vector") for note in asked.notes)


@pytest.mark.parametrize(
    ("env", "preset"),
    [
        ("gym:Pendulum-v1", "continuous"),
        ("gym:MountainCarContinuous-v0", "continuous"),
        ("gym:MountainCar-v0", "vector"),
        ("gym:Nowhere-v0", "vector"),
    ],
)
def test_an_environment_of_continuous_actions_chooses_their_preset(env: str, preset: str) -> None:
    asked = train.request({}, {"env.id": env})
    assert asked.preset == preset
    assert math.isfinite(asked.config.run.stop_at_return) == (env == "gym:Pendulum-v1")


def test_another_environment_does_not_stop_at_the_preset_s_return() -> None:
    asked = train.request({"preset": "cartpole"}, {"env.id": "gym:Acrobot-v1"})
    assert math.isinf(asked.config.run.stop_at_return)


def test_an_impossible_environment_is_refused_before_a_run_directory_is_made(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["train", "--env=gym:"]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ("Broken", "cannot be made, mend this first: ValueError: no licence"),
        ("Parts", "has the observation space Dict"),
        ("Unknown", "Gymnasium does not know"),
    ],
)
def test_what_a_user_s_module_cannot_make_is_one_message_and_leaves_nothing(
    env: str, reason: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_envs.py").write_text(_MODULE)
    assert main.main(["train", f"--env=gym:their_envs:{env}-v0"]) == exit_codes.BAD_USAGE
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(f"seedzero: error: --env=gym:their_envs:{env}-v0: ") and reason in message
    assert {path.name for path in tmp_path.iterdir()} <= {"their_envs.py", "__pycache__"}
    assert "their_envs" not in sys.modules


def test_a_user_s_images_choose_preset_and_network(
    calls: list[dict[str, Any]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_envs.py").write_text(_MODULE)
    asked = train.check_early(train.request({}, {"env.id": "gym:their_envs:Images-v0"}))
    assert asked.preset == "pixels" and asked.spec is not None and asked.spec.observation_shape == (64, 64, 3)
    assert asked.notes[0].startswith("--env=gym:their_envs:Images-v0 shows images of 64x64x3: preset pixels")
    assert networks.choose_kind("network.kind", asked.config.network.kind, asked.spec.observation_shape) == "resnet"


def test_a_network_that_does_not_fit_is_refused_before_a_run_directory_is_made(
    calls: list[dict[str, Any]], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--preset=cartpole", "--network.kind=resnet", f"--run_dir={tmp_path / 'run'}"]
    assert main.main(["train", *words]) == exit_codes.BAD_USAGE
    assert "network.kind=resnet needs observations of shape" in capsys.readouterr().err
    assert not calls and not (tmp_path / "run").exists()


def test_a_named_preset_for_images_leaves_vectors_the_network_that_fits(calls: list[dict[str, Any]]) -> None:
    settings = {"env.id": "gym:CartPole-v1", "run.agent": "vtrace"}
    asked = train.check_early(train.request({"preset": "pixels"}, settings))
    assert asked.fixed == {"env.id", "run.agent", "vtrace.torso"}
    assert train._resolve(asked)[0].vtrace.torso == "auto"


def test_values_that_only_a_cpu_can_take_are_not_refused_early() -> None:
    asked = train.request({"preset": "atari"}, {"replay.capacity": "4000"})  # 256 slots on an accelerator, 16 here
    train.check_early(asked)
    with pytest.raises(errors.ConfigError, match=r"--replay.capacity=100 leaves 0 steps to each of 256 env"):
        train.check_early(train.request({"preset": "atari"}, {"replay.capacity": "100", "replay.min_steps": "10"}))


def test_an_agent_brings_its_part_of_the_preset_and_its_settings() -> None:
    asked = train.request({"preset": "catch"}, {"run.agent": "vtrace", "vtrace.max_lag": "3"})
    assert asked.config.run.agent == "vtrace"
    assert (asked.config.vtrace.optimizer, asked.config.vtrace.max_lag) == ("adam", 3)
    assert asked.notes == ()
    train.check_early(asked)


def test_an_agent_without_a_part_is_told_that_its_defaults_hold() -> None:
    asked = train.request({"preset": "spiel"}, {"run.agent": "vtrace", "env.id": "catch"})
    assert "preset spiel has no part for agent vtrace: its defaults hold" in asked.notes
    assert asked.config.vtrace == config.Config().vtrace


def test_a_run_directory_brings_its_agent(tmp_path: pathlib.Path) -> None:
    given = {"run.agent": "vtrace", "vtrace.batch_size": "8"}
    asked = train.request({"preset": "catch"}, given)
    with run_dir.open_run_dir(tmp_path, asked.config, preset="catch", given=given):
        pass
    again = train.request({"run_dir": str(tmp_path)}, {"run.max_updates": "9"})
    assert again.config == config.override(asked.config, {"run.max_updates": 9})


def test_the_agent_chooses_its_part_of_the_preset_that_suits_an_environment() -> None:
    asked = train.request({}, {"env.id": "gym:MinAtar/Breakout-v1", "run.agent": "vtrace"})
    assert (asked.preset, asked.config.vtrace.width) == ("minatar", 128)


def test_environments_whose_facts_a_worker_knows_are_not_refused_early() -> None:
    settings = {"run.agent": "vtrace", "worker.num": "0", "evaluation.every_updates": "0"}
    for env in ("remote", "gym:my_module:MyEnv-v0"):
        assert train.check_early(train.request({"preset": "vector"}, {**settings, "env.id": env})).spec is None


def test_an_environment_that_cannot_be_made_is_refused_where_it_would_run() -> None:
    for settings in ({}, {"worker.num": "0"}):  # a local worker evaluates
        asked = train.request({"preset": "vector"}, {**settings, "env.id": "gym:my_module:MyEnv-v0"})
        with pytest.raises(errors.ConfigError, match="there is no module 'my_module'"):
            train.check_early(asked)
        assert train.check_early(asked, has_environments=False).spec is None
    with pytest.raises(errors.ConfigError, match="expected gym:MODULE:ID"):
        train.check_early(train.request({"preset": "vector"}, {"env.id": "gym::X"}), has_environments=False)


def test_a_damaged_run_directory_is_a_mistake_in_usage(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"preset": "catch"}))
    assert main.main(["train", f"--run_dir={tmp_path}"]) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_training_began_leaves_with_success(number: signal.Signals, tmp_path: pathlib.Path) -> None:
    code = (
        "import os, signal\n"
        "from seedzero.cli import stopping\n"
        "with stopping.leaving_at_once('training'):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    signal.pause()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert "before training began" in done.stderr


def test_whoever_supervises_learns_from_the_exit_code_that_another_learner_uses_the_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = []

    def occupied(*args: Any, **options: Any) -> int:
        raise errors.Occupied("in use by the learner with pid 7")

    monkeypatch.setattr(learner, "train", occupied)
    monkeypatch.setattr(signals, "terminate_with_input", lambda: watched.append(True))
    args = ["train", "--preset=catch", f"--run_dir={tmp_path}"]
    assert main.main(args) == exit_codes.BAD_USAGE and not watched
    assert main.main([*args, "--supervised"]) == exit_codes.TRY_LATER and watched
    assert capsys.readouterr().err.count("seedzero: error: in use by the learner with pid 7\n") == 2


def test_the_way_to_go_on_is_told_to_people_not_to_whoever_supervises(
    calls: list[dict[str, Any]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "terminate_with_input", lambda: None)
    assert main.main(["train", "--preset=catch", f"--run_dir={tmp_path}", "--supervised"]) == 0
    assert "--supervised" not in calls[0]["command"]
