"""What `seedzero.train` makes of its arguments; whole trainings are in tests/e2e."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys
import threading
from typing import Any

import gymnasium
import numpy as np
import pytest

import seedzero
from seedzero.api import request, training
from seedzero.config import options, own_agents, page_options
from seedzero.core import errors
from seedzero.learner import endings, entry


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the learner is called with, instead of learning."""
    seen: list[dict[str, Any]] = []

    def fake(asked: Any, path: pathlib.Path, command: str, caller: Any, **options: Any) -> endings.Result:
        seen.append({**vars(asked), **vars(caller), "path": path, "command": command, **options})
        return endings.Result(str(path), True, "--max_updates=1 reached")

    monkeypatch.setattr(entry, "train", fake)
    return seen


def test_arguments_are_the_flags_of_the_command_line(calls: list[dict[str, Any]], tmp_path: pathlib.Path) -> None:
    settings: dict[str, Any] = {"search.num_simulations": 3, "deterministic": True, "optimizer.learning_rate": 1e-3}
    ended = seedzero.train("catch", run_dir=tmp_path / "run", seed=5, **settings)
    assert ended == seedzero.Result(str(tmp_path / "run"), True, "--max_updates=1 reached")
    (call,) = calls
    assert (call["preset"], call["path"], call["handles_signals"]) == ("catch", tmp_path / "run", True)
    assert call["given"] == {
        "env.id": "catch",
        "run.seed": "5",
        "search.num_simulations": "3",
        "run.deterministic": "true",
        "optimizer.learning_rate": "0.001",
    }
    config = call["config"]
    assert (config.search.num_simulations, config.run.deterministic, config.run.seed) == (3, True, 5)
    assert call["command"].endswith(f"train --run_dir={tmp_path / 'run'}")


def test_a_page_is_asked_for_by_its_port(
    calls: list[dict[str, Any]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page in (None, 0, 8000):
        seedzero.train("catch", run_dir=tmp_path / "run", page=page)
    assert [call["page"] for call in calls] == [None, page_options.PagePlace(0, ""), page_options.PagePlace(8000, "")]
    for wrong, message in ((65536, "at most 65535"), (-1, "at least 0"), (True, "page=True"), ("x", "page=x")):
        with pytest.raises(errors.UsageError, match=message):
            seedzero.train("catch", run_dir=tmp_path / "new", page=wrong)  # type: ignore[arg-type]
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    with pytest.raises(errors.UsageError, match="--page needs the extra page, but uvicorn is not installed"):
        seedzero.train("catch", run_dir=tmp_path / "new", page=0)
    assert len(calls) == 3 and not (tmp_path / "new").exists()


@pytest.mark.parametrize("has_state", [False, True])
def test_the_command_that_resumes_trusts_code_that_cannot_be_remembered(
    calls: list[dict[str, Any]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, has_state: bool
) -> None:
    if not has_state:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_a_user.py").write_text("import gymnasium\nmake = lambda: gymnasium.make('CartPole-v1')\n")
    seedzero.train("python:of_a_user:make", run_dir="run")
    flag = "" if has_state else " --trust_run_dir"
    assert calls[0]["command"].endswith(f"train --run_dir={tmp_path / 'run'}{flag}")


@pytest.mark.parametrize(
    ("settings", "num_actions"),
    [({"env": "catch"}, 3), ({"env": "remote", "worker.num": 0, "listen": "localhost:0"}, None)],
)
def test_the_learner_is_told_the_spec_that_this_machine_knows(
    settings: dict[str, Any], num_actions: int | None, calls: list[dict[str, Any]], tmp_path: pathlib.Path
) -> None:
    seedzero.train(preset="catch", run_dir=tmp_path / "run", **settings)
    (call,) = calls
    assert (None if call["spec"] is None else call["spec"].num_actions) == num_actions


def test_functions_of_the_caller_reach_the_learner(calls: list[dict[str, Any]], tmp_path: pathlib.Path) -> None:
    seedzero.train("catch", run_dir=tmp_path / "run", on_row=print)
    assert calls[0]["functions"] == {"on_row": print}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"on_row": 5}, "on_row=5"), ({"on_evaluation": print, "cluster.num_hosts": 2}, "--cluster.num_hosts=2")],
)
def test_what_cannot_be_called_is_refused(arguments: dict[str, Any], named: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.UsageError, match=named):
        seedzero.train("catch", run_dir=tmp_path / "run", **arguments)


def test_another_thread_leaves_signals_alone(calls: list[dict[str, Any]], tmp_path: pathlib.Path) -> None:
    thread = threading.Thread(target=lambda: seedzero.train(preset="catch", run_dir=tmp_path))
    thread.start()
    thread.join()
    assert [call["handles_signals"] for call in calls] == [False]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 1e-3}, r"--lr=0\.001; .*--optimizer\.learning_rate"),
        ({"max_updates": "many"}, "max_updates=many: "),
        ({"search.num_simulations": [3]}, r"--search\.num_simulations=\[3\]: "),
    ],
)
def test_wrong_settings_get_the_command_line_s_suggestions(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        seedzero.train(preset="catch", **settings)


def test_nothing_to_train_on_is_an_error_and_so_is_a_directory_without_a_run(tmp_path: pathlib.Path) -> None:
    with pytest.raises(seedzero.errors.UsageError, match=None):
        seedzero.train(seed=3)
    for place in (tmp_path, tmp_path / "new"):
        with pytest.raises(seedzero.errors.ResumeError, match=rf"{place} .*--env=ENV .*--preset=NAME"):
            seedzero.train(run_dir=place)


def test_a_new_run_s_directory_has_the_names_of_environment_and_agent(
    calls: list[dict[str, Any]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seedzero.train("gym:CartPole-v1", agent="ppo")
    (call,) = calls
    assert call["path"].name.startswith("CartPole-v1-ppo-") and call["preset"] == "vector"
    assert call["config"].run.stop_at_return == 475.0


@pytest.mark.parametrize("run_dir", ["run", pathlib.Path("run"), None])
def test_a_program_may_change_its_directory_while_its_settings_are_resolved(
    run_dir: str | pathlib.Path | None,
    calls: list[dict[str, Any]],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve = request.resolve

    def resolve_elsewhere(asked: request.Request) -> Any:
        monkeypatch.chdir("/")
        return resolve(asked)

    monkeypatch.setattr(request, "resolve", resolve_elsewhere)
    monkeypatch.chdir(tmp_path)
    seedzero.train(preset="catch", run_dir=run_dir)
    (path,) = [call["path"] for call in calls]
    assert path == tmp_path / "run" if run_dir else path.parent == tmp_path / "runs"


@pytest.mark.parametrize("preset", [3, ["catch"], b"catch"])
def test_a_preset_of_another_type_is_named(preset: Any) -> None:
    with pytest.raises(errors.UsageError, match=rf"^preset={re.escape(repr(preset))}: expected a text"):
        seedzero.train("catch", preset=preset)


def test_two_names_of_one_setting_are_refused() -> None:
    with pytest.raises(errors.ConfigError, match=r"--run\.seed=9 and --run\.seed=8 are one setting; give it once"):
        training.texts({"seed": 8, "run.seed": 9})


def test_a_path_is_a_text() -> None:
    assert training.texts({"token_file": pathlib.Path("a/b")}) == {"transport.token_file": "a/b"}


def test_a_number_of_numpy_is_a_number() -> None:
    given = {"seed": np.int64(3), "stop_at_return": np.float32(0.5), "run.deterministic": np.bool_(True)}
    found = {"run.seed": "3", "run.stop_at_return": "0.5", "run.deterministic": "true"}
    assert training.texts(given) == found


def test_settings_of_json_take_its_values() -> None:
    wrappers = ["ClipReward", {"ResizeObservation": {"shape": (64, 64)}}]
    given = {"env.kwargs": {"continuous": True}, "league.builder_args": {"every": 100}, "env.wrappers": wrappers}
    assert training.texts(given) == {
        "env.kwargs": '{"continuous": true}',
        "league.builder_args": '{"every": 100}',
        "env.wrappers": '["ClipReward", {"ResizeObservation": {"shape": [64, 64]}}]',
    }


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("env.wrappers", [gymnasium.wrappers.ClipReward], "expected a value of JSON"),
        ("env.kwargs", {"size": float("nan")}, "expected a value of JSON"),
        ("metrics.console", ["loss"], "expected a text"),
        ("callbacks", [print], "on_row=.* on_evaluation="),
        ("callback", print, "on_row=.* on_evaluation="),
    ],
)
def test_values_beyond_a_setting_are_refused(setting: str, value: Any, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=rf"{setting}=.*{message}"):
        training.texts({setting: value})


class _Env:
    pass


def _make(config: Any, spec: Any, platform: str) -> Any:
    return None


_AGENT = own_agents.OwnAgent("mine", options.AgentSection, _make)


@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_a_preset_of_a_file_is_changed_by_the_call(
    kind: type[str] | type[pathlib.Path], calls: list[dict[str, Any]], tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "mine.preset"
    file.write_text("--preset=catch\n--agent=ppo\n--seed=3\n--network.width=32\n")
    seedzero.train(preset=kind(file), run_dir=tmp_path / "run", seed=4)
    (call,) = calls
    assert call["preset"] == "catch"
    assert call["given"] == {"run.agent": "ppo", "run.seed": "4", "network.width": "32"}


@pytest.mark.parametrize(
    ("setting", "value", "name"),
    [
        ("env", _Env, f"python:{__name__}:_Env$"),
        ("env.id", _Env(), f"python:{__name__}:_Env$"),
        ("env", lambda: None, "python:my_module:make"),
        ("env", gymnasium.make("CartPole-v1"), "gym:CartPole-v1$"),
        ("network.module", training.texts, ": seedzero.api.training:texts$"),
        ("league.builder", training.texts, ": seedzero.api.training:texts$"),
        ("agent", _AGENT, f"{__name__}:_AGENT$"),
        ("seed", _Env, "expected a text, a number, true or false$"),
    ],
)
def test_an_object_in_place_of_a_name_is_refused_with_its_name(setting: str, value: Any, name: str) -> None:
    with pytest.raises(errors.ConfigError, match=rf"--{setting}=.*{name}"):
        training.texts({setting: value})


def test_an_id_of_this_program_alone_is_refused_before_a_directory_is_made(
    calls: list[dict[str, Any]], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = dict(gymnasium.registry)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", registry)
    monkeypatch.setattr(gymnasium, "registry", registry)
    monkeypatch.chdir(tmp_path)
    gymnasium.register("Mine-v0", entry_point=lambda: gymnasium.make("CartPole-v1"))
    for preset in ({}, {"preset": "vector"}):
        with pytest.raises(errors.ConfigError, match=f"--env=gym:{__name__}:Mine-v0"):
            seedzero.train("gym:Mine-v0", run_dir="run", **preset)
    assert not calls and not list(tmp_path.iterdir())


def test_the_package_loads_nothing_before_it_is_asked_for() -> None:
    script = (
        "import sys, seedzero; heavy = {'jax', 'flax', 'grpc', 'gymnasium', 'numpy'};"
        "assert not heavy & set(sys.modules);"
        "dir(seedzero), seedzero.errors.Error, seedzero.train, seedzero.load, seedzero.evaluate;"
        "print(heavy & set(sys.modules) - {'numpy'})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "set()\n"), done.stderr


def test_every_public_name_is_there_and_others_are_not() -> None:
    assert all(getattr(seedzero, name) is not None for name in seedzero.__all__)
    assert set(seedzero.__all__) <= set(dir(seedzero))
    with pytest.raises(AttributeError, match="'trian'"):
        getattr(seedzero, "trian")  # noqa: B009
