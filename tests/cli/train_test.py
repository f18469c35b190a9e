from __future__ import annotations

import gc
import json
import logging
import os
import pathlib
import resource
import shlex
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from seedzero.cli import main as commands
from seedzero.cli import parse, train
from seedzero.config import configs, page_options, presets
from seedzero.core import errors
from seedzero.learner import callbacks, endings, entry
from seedzero.learner.processes import signals

_MODULE = """
import gymnasium
from gymnasium import spaces

print("a module may print")

class Images(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 255, (64, 64, 3), "uint8"), spaces.Discrete(2)

class Parts(Images):
    observation_space = spaces.Dict(a=spaces.Text(5))

class Broken(Images):
    def __init__(self):
        raise ValueError("no licence")

class Failing(Images):
    def reset(self, **kwargs):
        return self.observation_space.sample(), {}
    def step(self, action):
        raise OSError("the engine is gone")

for kind in (Images, Parts, Broken, Failing):
    gymnasium.register(f"{kind.__name__}-v0", entry_point=kind)
"""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> list[dict[str, Any]]:
    """What the learner is called with, instead of learning; new run directories are made within `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    seen: list[dict[str, Any]] = []

    def fake(asked: Any, path: pathlib.Path, command: str, caller: Any, **options: Any) -> endings.Result:
        seen.append({**vars(asked), "path": path, "command": command, "caller": caller, **options})
        return endings.Result(str(path), True, "--max_updates=1 reached")

    monkeypatch.setattr(entry, "train", fake)
    return seen


def _read(*args: str) -> parse.Arguments:
    return parse.read("train", train.COMMAND, args)


def test_preset_then_command_line_then_machine(calls: list[dict[str, Any]], tmp_path: pathlib.Path) -> None:
    args = ["train", "--preset=atari", f"--run_dir={tmp_path}", "--env=atari:Breakout", "--replay.batch_size=24"]
    assert commands.main(args) == 0
    values = calls[0]["config"]
    assert values.env.id == "atari:Breakout"
    assert values.replay.batch_size == 24
    on_cpu = presets.cpu_values("atari", "muzero", explicit=set())
    assert values.network.kind == on_cpu["network.kind"] == "conv"
    assert values.worker.envs_per_group == on_cpu["worker.envs_per_group"]
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
    assert commands.main(args) == 0
    assert calls[0]["preset"] == "vector"
    assert calls[0]["config"].env.max_episode_steps == 9


def test_too_few_addresses_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (2 * 10**9, resource.RLIM_INFINITY))
    with pytest.raises(errors.UsageError, match=r"\b2\b.*ulimit -v.*\b3\b.*`ulimit -v unlimited`"):
        train.run(parse.read("train", train.COMMAND, ["--preset=catch"]))


def test_without_run_dir_a_new_one_is_made_and_the_way_to_go_on_is_told(
    calls: list[dict[str, Any]],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.main(["train", "--preset=catch", "--seed=3"]) == 0
    assert commands.main(["train", "--preset=catch", "--seed=3"]) == 0
    first, second = (call["path"] for call in calls)
    assert first != second and first.is_dir()
    assert first.parent.name == "runs" and first.name.startswith("catch-muzero-20")
    assert calls[0]["command"] in capsys.readouterr().err


def test_the_command_that_goes_on_asks_for_the_same_run(calls: list[dict[str, Any]], tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "my run"
    args = ["train", "--env", "gym:CartPole-v1", "--deterministic", "--search.num_simulations=7", "--run_dir"]
    commands.main([*args, str(directory)])
    words = shlex.split(calls[0]["command"])
    commands.main(words[words.index("train") :])
    first, again = ({**call, "command": "", "caller": None} for call in calls)
    assert first == again
    assert calls[1]["command"] == calls[0]["command"]


def test_a_program_that_the_path_finds_is_called_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    program = tmp_path / "seedzero"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "train"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert train.resume_command("r", _read("--preset=catch")).startswith(f"{program} train --preset=catch")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert train.resume_command("r", _read("--preset=catch")).startswith("seedzero train --preset=catch")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ("Broken", "cannot be made, fix this first: ValueError: no licence ("),
        ("Parts", " at 'a'; expected Box, Discrete, MultiDiscrete, "),
        ("Failing", " step: OSError: the engine is gone ("),
        ("Unknown", "registers no 'Unknown-v0' with Gymnasium; did you mean gym:their_envs:Broken-v0?"),
    ],
)
def test_what_a_user_s_module_cannot_make_is_one_message_and_leaves_nothing(
    env: str,
    reason: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_envs.py").write_text(_MODULE)
    assert commands.main(["train", f"--env=gym:their_envs:{env}-v0"]) == errors.BAD_USAGE
    *_, message = capsys.readouterr().err.splitlines()  # a busy machine is told before that it takes long
    assert message.startswith(f"seedzero: error: --env=gym:their_envs:{env}-v0: ") and reason in message
    assert {path.name for path in tmp_path.iterdir()} <= {"their_envs.py", "__pycache__"}
    assert "their_envs" not in sys.modules


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--preset=catch --metrics.wandb=games", "-m pip install 'wandb<"),
        ("--preset=cartpole --network.kind=resnet", "network.kind=resnet "),
    ],
)
def test_what_cannot_be_built_is_refused_before_a_run_directory_is_made(
    words: str,
    told: str,
    calls: list[dict[str, Any]],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert commands.main(["train", *words.split(), f"--run_dir={tmp_path / 'run'}"]) == errors.BAD_USAGE
    assert told in capsys.readouterr().err
    assert not calls and not (tmp_path / "run").exists()


def test_a_damaged_run_directory_is_a_mistake_in_usage(tmp_path: pathlib.Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"preset": "catch"}))
    assert commands.main(["train", f"--run_dir={tmp_path}"]) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_training_began_leaves_with_success(number: signal.Signals, tmp_path: pathlib.Path) -> None:
    code = (
        "import os, signal\n"
        "from seedzero.cli import stopping\n"
        "with stopping.leaving_at_once('training'):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    signal.pause()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0
    assert "training" in done.stderr


@pytest.mark.parametrize(("num_signals", "expected"), [(1, 5), (2, errors.INTERRUPTED)])
def test_a_signal_after_training_keeps_the_exit_code_a_second_ends_it(num_signals: int, expected: int) -> None:
    code = (
        "import os, signal, sys\n"
        "from seedzero.cli import stopping\n"
        "from seedzero.learner.processes import signals\n"
        "with stopping.leaving_at_once('training'):\n"
        "    with signals.StopSignals(lambda: None, say=print, cleanup=lambda: None):\n"
        "        pass\n"
        f"    for _ in range({num_signals}):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    sys.exit(5)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (expected, "")


def test_the_exit_code_tells_a_supervisor_of_another_learner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = []

    def occupied(*args: Any, **options: Any) -> int:
        raise errors.Occupied("in use by the learner with pid 7")

    monkeypatch.setattr(entry, "train", occupied)
    monkeypatch.setattr(signals, "terminate_with_input", lambda: watched.append(True))
    args = ["train", "--preset=catch", f"--run_dir={tmp_path}"]
    assert commands.main(args) == errors.BAD_USAGE and not watched
    assert commands.main([*args, "--supervised"]) == errors.TRY_LATER and watched
    assert capsys.readouterr().err.count("seedzero: error: in use by the learner with pid 7\n") == 2


@pytest.mark.parametrize("setting", ["--listen=127.0.0.1:{}", "--metrics.port={}"])
def test_a_port_that_is_in_use_is_refused_and_leaves_no_run_directory(
    setting: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").touch()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        for path in (tmp_path / "run", mine):
            words = ["--preset=catch", "--agent=ppo", setting.format(busy.getsockname()[1])]
            assert commands.main(["train", *words, f"--run_dir={path}"]) == errors.BAD_USAGE
            assert "in use" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
    assert [file.name for file in mine.iterdir()] == ["notes.txt"]


def test_the_way_to_go_on_is_told_to_people_not_to_whoever_supervises(
    calls: list[dict[str, Any]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "terminate_with_input", lambda: None)
    assert commands.main(["train", "--preset=catch", f"--run_dir={tmp_path}", "--supervised"]) == 0
    assert "--supervised" not in calls[0]["command"]


def test_a_page_is_asked_for_by_its_port(calls: list[dict[str, Any]], tmp_path: pathlib.Path) -> None:
    assert commands.main(["train", "--preset=catch", f"--run_dir={tmp_path}", "--page=8000"]) == 0
    assert commands.main(["train", "--preset=catch", f"--run_dir={tmp_path}"]) == 0
    assert [call["page"] for call in calls] == [page_options.PagePlace(8000, ""), None]
    assert "--page=8000" in calls[0]["command"]


def test_a_supervised_host_shows_the_command_that_starts_all() -> None:
    words = [
        "--preset=catch",
        "--supervised",
        "--cluster.num_hosts=2",
        "--cluster.index=0",
        "--cluster.coordinator=127.0.0.1:1",
    ]
    shown = train.resume_command("runs/two", parse.read("train", train.COMMAND, words))
    assert shown.endswith("train --preset=catch --run_dir=runs/two --cluster.num_hosts=2")
    alone = train.resume_command("runs/two", parse.read("train", train.COMMAND, [words[0], *words[2:]]))
    assert "--cluster.index=0" in alone and "--cluster.coordinator=127.0.0.1:1" in alone


def test_garbage_is_collected_as_usual_once_the_networks_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual, seen = gc.get_threshold(), []

    def start(flags: object, settings: object, resume_command: object, caller: callbacks.Caller) -> None:
        seen.append(gc.get_threshold())
        caller.has_built()
        seen.append(gc.get_threshold())
        gc.set_threshold(1_000_000)
        raise errors.UsageError("refused")

    monkeypatch.setattr("seedzero.api.training.start", start)
    try:
        assert commands.main(["train", "--preset=catch"]) == errors.BAD_USAGE
        assert min(seen[0]) > 0 and seen[0][0] > usual[0], "rarely, but not never"
        assert seen[1] == gc.get_threshold() == usual
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*usual)


def test_a_debugged_run_waits_for_its_environments_and_evaluates_nothing(calls: list[dict[str, Any]]) -> None:
    assert commands.main(["train", "--preset=cartpole", "--agent=ppo", "--debug"]) == 0
    saved, caller = calls[0]["config"], calls[0]["caller"]
    config = configs.override(saved, caller.unsaved)
    assert (config.worker.num, config.worker.num_groups, config.evaluation.every_updates) == (1, 1, 0)
    assert config.transport.limit_seconds == config.run.stop_at_return == float("inf")
    assert saved.evaluation.every_updates > 0 and saved.run.stop_at_return < config.run.stop_at_return
    assert saved.worker.num_groups == 2 and "worker.num_groups" not in calls[0]["given"]
    assert saved.replay.num_slots == saved.worker.num_envs  # room for a resume without --debug
    assert commands.main(["train", "--preset=cartpole", "--agent=ppo", "--debug", "--worker.num_groups=3"]) == 0
    assert configs.override(calls[1]["config"], calls[1]["caller"].unsaved).worker.num_groups == 3


@pytest.mark.parametrize("flag", ["--workers=2", "--cluster.num_hosts=2"])
def test_a_debugged_run_has_one_process(flag: str, calls: list[dict[str, Any]], capsys: Any) -> None:
    assert commands.main(["train", "--preset=cartpole", "--debug", flag]) == 2
    assert flag in capsys.readouterr().err and not calls


def test_a_quiet_run_prints_a_line_of_json(calls: list[dict[str, Any]], capsys: Any, tmp_path: pathlib.Path) -> None:
    assert commands.main(["train", "--preset=catch", "--quiet", f"--run_dir={tmp_path}"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "" and json.loads(printed.out)["run_dir"] == str(tmp_path)


_DEBUGGED = """
import os
from gymnasium.envs.classic_control import CartPoleEnv

class Failing(CartPoleEnv):
    def step(self, action):
        print("stepped in", os.getpid())
        self.fail()

    def fail(self):
        if os.environ["IS_DEBUGGED"] == str(os.getpid()):
            raise KeyError("seat")
"""


@pytest.mark.thorough
def test_a_debugged_environment_is_in_this_process_and_raises_its_own_exception(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = _DEBUGGED.replace("self.fail()", "self.fail()\n        return super().step(action)", 1)
    (tmp_path / "debugged_env.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("IS_DEBUGGED", str(os.getpid()))
    run = ["train", "--env=python:debugged_env:Failing", "--agent=ppo", "--debug", "--worker.envs_per_group=1"]
    with pytest.raises(KeyError, match="seat") as raised:
        commands.main([*run, f"--run_dir={tmp_path / 'run'}", "--quiet"])
    frames = [frame.name for frame in raised.traceback]
    assert frames[-2:] == ["step", "fail"] and "_serve" not in frames
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert saved["evaluation.every_updates"] > 0 and saved["transport.step_seconds"] > 0  # of a resume without --debug
    assert saved["worker.num_groups"] == 2
    assert "local-0 joined with 1 environments" in (tmp_path / "run" / "logs" / "learner.log").read_text()  # one group
    assert f"stepped in {os.getpid()}" in capfd.readouterr().out
    assert logging.getLogger("seedzero.worker.worker").isEnabledFor(logging.ERROR)  # for whatever comes next
