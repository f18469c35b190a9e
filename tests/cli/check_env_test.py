"""`seedzero check-env`, in this process."""

from __future__ import annotations

import json
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import own_agents
import pytest
from gymnasium import spaces

from seedzero.api import environment, request
from seedzero.cli import check_env
from seedzero.cli import main as commands
from seedzero.monitoring import random_play


class Robot(gymnasium.Env[Any, Any]):
    """A camera beside numbers; `scale` is that of rewards."""

    def __init__(self, scale: float = 1.0, last: float = 0.0) -> None:
        self.observation_space = spaces.Dict(
            camera=spaces.Box(0, 255, (12, 12, 3), np.uint8), speed=spaces.Box(-1, 1, (2,), np.float64)
        )
        self.action_space = spaces.MultiDiscrete([3, 2])
        self._scale, self._last = scale, last

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        is_last = bool(self.np_random.random() < 0.1)
        return self.observation_space.sample(), self._last if is_last else self._scale, is_last, False, {}


gymnasium.register("SeedzeroTest/CheckedRobot-v0", Robot)
ROBOT = "gym:SeedzeroTest/CheckedRobot-v0"


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the ids above tried here: a new process, which others are asked of, does not know them."""
    monkeypatch.setattr(environment, "_registered_here", lambda settings: "")


def _check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = commands.main(["check-env", *words, "--steps=100", "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


class Raising(Robot):
    def step(self, action: Any) -> Any:
        raise ValueError("the arm is stuck")


gymnasium.register("SeedzeroTest/Raising-v0", Raising)
_RAISING = """
from gymnasium.envs.classic_control import CartPoleEnv

class Raising(CartPoleEnv):
    def step(self, action):
        raise ValueError("the arm is stuck")
"""


@pytest.mark.parametrize("name", ["gym:SeedzeroTest/Raising-v0", "python:raising_arm:Raising"])
def test_the_traceback_of_an_environment_is_shown(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raising_arm.py").write_text(_RAISING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    assert commands.main(["check-env", name, "--steps=100"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "raised in step: ValueError: the arm is stuck" in lines[1]
    assert lines[2] == "Traceback (most recent call last):" and lines[-1] == "ValueError: the arm is stuck"
    assert "  ... frames of seedzero" in lines and lines.count('    raise ValueError("the arm is stuck")') <= 1


def test_it_tells_what_training_would_make_of_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = _check(capsys, ROBOT)
    assert code == 0
    camera, speed = found["observations"]
    assert (camera["name"], camera["shape"], camera["dtype"], camera["high"]) == ("camera", [12, 12, 3], "uint8", 255)
    assert -1 <= speed["seen_low"] < speed["seen_high"] <= 1
    assert found["actions"] == {"num_actions": 6, "has_mask": False}
    assert (found["preset"], found["agent"], found["network"]) == ("vector", "muzero", "network.kind=conv")
    assert found["episodes"] > 0 and found["length"][0] <= found["length"][1] <= found["length"][2]
    assert found["errors"] == found["warnings"] == []
    assert _check(capsys, ROBOT, "--preset=minatar")[1]["preset"] == "minatar"


def test_the_return_of_random_actions_is_kept_for_diagnose(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _, found = _check(capsys, ROBOT, "--env.max_episode_steps=5")
    trained = request.make({}, {"env.id": ROBOT, "env.max_episode_steps": "5", "run.agent": "ppo"}).config
    assert random_play.recall(trained.env) == pytest.approx(found["return"][1])


def test_the_text_has_a_line_for_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--agent=vtrace", "--env.max_episode_steps=9"]
    assert commands.main(["check-env", ROBOT, *given, "--preset=vector", "--steps=50"]) == 0
    printed = capsys.readouterr().out
    for part in (
        "camera: uint8 12x12x3, 0 to 255",
        " 6 ",
        "preset vector, agent vtrace",
        "note: ",
        "float64",
    ):
        assert part in printed
    assert "suits" not in printed, "the agent was chosen"
    *_, last = printed.splitlines()
    train, *words = shlex.split(last.removeprefix("train it: "))  # to be pasted: with all flags
    assert train == "seedzero" and words == [
        "train",
        f"--env={ROBOT}",
        "--preset=vector",
        "--agent=vtrace",
        "--env.max_episode_steps=9",
    ]


def test_the_environment_may_be_a_word_or_a_flag_as_in_other_commands(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    code, report = _check(capsys, f"--env={ROBOT}")
    assert code == 0 and report["env"] == ROBOT
    file = tmp_path / "robot.preset"
    file.write_text(f"--preset=pixels\n--env={ROBOT}\n")
    assert _check(capsys, f"--preset={file}")[1]["env"] == ROBOT
    assert commands.main(["check-env", "--json"]) == 2
    assert "no environment is named; usage: seedzero check-env ENV|--env=ENV" in capsys.readouterr().err
    assert commands.main(["check-env", "catch", f"--env={ROBOT}"]) == 2
    assert f"catch follows check-env, so leave --env={ROBOT} out" in capsys.readouterr().err


def test_settings_of_the_environment_count(capsys: pytest.CaptureFixture[str]) -> None:
    wrappers = json.dumps([{"FilterObservation": {"filter_keys": ["speed"]}}])
    code, found = _check(capsys, ROBOT, f"--env.wrappers={wrappers}", "--env.max_episode_steps=5")
    assert code == 0 and [array["name"] for array in found["observations"]] == ["observation"]
    assert found["length"][2] <= 5 and found["network"] == "network.kind=mlp"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["gym:CartPol-v1"], "did you mean|Did you mean"),
        (["gym:Pendulum-v1", "--agent=vtrace"], "cannot play environments with continuous actions"),
        ([ROBOT, "--network.kind=resnet", "--env.kwargs={"], "must be a JSON object"),
        ([ROBOT, '--env.kwargs={"scale": NaN}'], "rewards are not finite"),
        (["gym:CartPole-v1", "--network.kind=conv"], "use --network.kind=mlp"),
    ],
)
def test_what_training_would_refuse_is_an_error(
    capsys: pytest.CaptureFixture[str], words: list[str], error: str
) -> None:
    code, found = _check(capsys, *words)
    assert code == 1 and len(found["errors"]) == 1
    assert any(part in found["errors"][0] for part in error.split("|"))


def test_returns_that_values_cannot_show_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    huge = '--env.kwargs={"scale": 0.001, "last": 100000.0}'
    code, found = _check(capsys, ROBOT, huge, "--reward.normalize=false")
    assert code == 0 and "give --network.support_limit=" in found["warnings"][0]
    assert _check(capsys, ROBOT, huge)[1]["warnings"] == []


def test_jax_is_not_loaded() -> None:
    script = "import sys; from seedzero.cli import main; assert main.main(['check-env', 'catch', '--steps=9']) == 0; "
    done = subprocess.run(
        [sys.executable, "-c", script + "assert 'jax' not in sys.modules"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_slow_environment_is_left_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_env, "MAX_SECONDS", 0.0)
    assert commands.main(["check-env", ROBOT, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["steps"] == 1 and "--steps=1000 " in found["warnings"][0]
    assert commands.main(["check-env", ROBOT, "--steps=7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 7


def test_ctrl_c_shows_where_an_environment_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt(" in step, at robot.py, line 7")

    monkeypatch.setattr(environment, "look", interrupted)
    assert commands.main(["check-env", ROBOT]) == 130
    assert "in step, at robot.py, line 7" in capsys.readouterr().err


def test_where_no_network_fits_the_rest_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["check-env", "gym:CartPole-v1", "--network.kind=conv"]) == 1
    printed = capsys.readouterr().out
    assert "observation  observation: float32 4, " in printed and "no network.kind fits" in printed
    assert "error: network.kind=conv needs" in printed and "train it" not in printed


def test_it_tells_the_seats_of_a_game(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = _check(capsys, "spiel:kuhn_poker", "--agent=ppo")
    assert code == 0 and found["seats"] == ["first", "second"]
    assert found["episodes"] > 10 and found["length"][2] <= 2
    assert commands.main(["check-env", "spiel:kuhn_poker", "--agent=ppo", "--steps=100"]) == 0
    assert re.search(r"seats +2 \(first, second\), ", capsys.readouterr().out)


@pytest.mark.thorough
def test_it_tells_the_agents_of_an_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(pathlib.Path(own_agents.__file__).parent)
    code, found = _check(capsys, "pettingzoo:own_agents:Herd", '--env.kwargs={"masks": true}')
    assert code == 0 and found["seats"] == [*own_agents.NAMES] and found["preset"] == "agents"
    assert found["actions"] == {"num_actions": 2, "has_mask": True}
    assert found["episodes"] > 9 and found["length"][0] == 1 and found["length"][2] <= 15
    assert not any("padded" in note for note in found["notes"])
    _, found = _check(capsys, "pettingzoo:own_agents:Herd", '--env.kwargs={"unequal": true}')
    assert "ant: Box(" in found["notes"][0] and "padded" in found["notes"][0]
    assert commands.main(["check-env", "pettingzoo:own_agents:Round", "--steps=100"]) == 0
    assert re.search(r"agents +3 \(ant, bee, cat\), each a row of its own", capsys.readouterr().out)
