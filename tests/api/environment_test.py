"""What an environment shows, asked before training."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from seedzero.api import environment
from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import registry

_MODULE = """
import atexit
import os
import sys
import threading
import gymnasium
import numpy
from gymnasium import spaces

class Talking(gymnasium.Env):
    observation_space, action_space = spaces.Box(-float("inf"), 1, (4,)), spaces.Box(-1, 1, (2,))
    def __init__(self):
        print("a banner")
        print("a warning", file=sys.stderr)
    reset = lambda self, **kwargs: (numpy.zeros(4, numpy.float32), {})
    step = lambda self, action: (numpy.zeros(4, numpy.float32), 0.0, False, False, {})

class Threaded(Talking):
    def __init__(self):
        threading.Thread(target=threading.Event().wait).start()

class Crashing(Talking):
    def __init__(self):
        print("out of licences", file=sys.stderr, flush=True)
        os._exit(3)

class Aborting(Talking):
    def reset(self, **kwargs):
        os.abort()

class Parting(Talking):
    def __init__(self):
        atexit.register(lambda: (print("goodbye"), print("closing", file=sys.stderr)))

class OfTwoRewards(Parting):
    def step(self, action):
        return numpy.zeros(4, numpy.float32), numpy.zeros(2), False, False, {}

class Stuck(Talking):
    def reset(self, **kwargs):
        raise RuntimeError("no simulator")
    def close(self):
        raise AttributeError("no socket")

class RealTime(Talking):
    def reset(self, **kwargs):
        os.kill(os.getpid(), 40)

class Leaving(Talking):
    def __init__(self):
        import subprocess
        code = "import time; left = open('left', 'w'); print('x', file=left, flush=True); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code])

class Hanging(Talking):
    def __init__(self):
        threading.Event().wait()

class Hidden(Talking):
    def __init__(self):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "", "an accelerator"
        assert os.environ["JAX_PLATFORMS"] == "cpu"

class Holding(Talking):
    def __init__(self):
        with open("alive", "w") as alive:
            print(os.getpid(), file=alive, flush=True)
            import ctypes
            ctypes.PyDLL(None).sleep(600)  # keeps Python's lock

class Waiting(Talking):
    def __init__(self):
        with open("alive", "w") as alive:
            print(os.getpid(), file=alive, flush=True)
            threading.Event().wait()

class Simulating(Talking):
    def __init__(self):
        import subprocess
        code = "import time; held = open('left', 'w'); print('x', file=held, flush=True); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code])
        threading.Event().wait()

class Configured(Talking):
    def __init__(self, secret):
        assert secret not in " ".join(sys.orig_argv), "whoever asks ps can read it"

class Later(Talking):
    def __init__(self, deed):
        self.deed, self.num_steps = deed, 0
    step = lambda self, action: self.late() or (numpy.zeros(4, numpy.float32), 0.0, self.num_steps % 9 == 0, False, {})
    def late(self):
        self.num_steps += 1
        if self.num_steps > 20 and self.deed == "exit":
            os._exit(7)
        if self.num_steps > 20 and self.deed == "crash":
            os.kill(os.getpid(), 11)
        if self.num_steps > 20 and self.deed == "hang":
            open("hangs", "w").close()
            threading.Event().wait()

kinds = Talking, Threaded, Crashing, Aborting, Parting, OfTwoRewards, Stuck, RealTime, Leaving
kinds = *kinds, Holding, Hanging, Hidden, Waiting, Simulating, Configured, Later
for kind in kinds:
    gymnasium.register(f"{kind.__name__}-v0", entry_point=kind, reward_threshold=12.5)
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talking_envs.py").write_text(_MODULE)


def _show(kind: str, **given: Any) -> environment.Shown | None:
    settings = {name: given.pop(name) for name in ("kwargs",) if name in given}
    return environment.show(sections.EnvConfig(id=f"gym:talking_envs:{kind}-v0", **settings), **given)


def test_a_user_s_module_shows_its_spec_whatever_it_prints() -> None:
    found = _show("Talking")
    assert found is not None and "Box" in found.spec.spaces and found.reward_threshold == 12.5
    shown = dataclasses.replace(found.spec, spaces="")
    assert shown == types.EnvSpec((4,), "float32", 0, observation_high=1, action_low=(-1, -1), action_high=(1, 1))


@pytest.mark.thorough
def test_a_user_s_game_shows_its_spec_and_what_seats_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pathlib.Path(__file__).parents[1] / "envs")
    monkeypatch.delitem(sys.modules, "own_spiel_games", raising=False)
    found = environment.show(sections.EnvConfig(id="spiel:own_spiel_games:my_cards"))
    assert found is not None and len(found.spec.seats) == 2 and found.seated_by == "chance and hidden information"
    assert "own_spiel_games" not in sys.modules
    look = environment.look(sections.EnvConfig(id="spiel:own_spiel_games:my_board"), 20, 10.0)
    assert look.spec.num_players == 2 and look.findings.num_steps == 20


def test_a_game_of_chance_alone_is_known_as_such() -> None:
    found = environment.show(sections.EnvConfig(id="spiel:pig"))
    assert found is not None and found.seated_by == "chance"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("talking_envs:Crashing", ".* 3 .*: out of licences"),
        ("talking_envs:Aborting", ".*SIGABRT"),
        ("talking_envs:RealTime", ".* 40 "),  # a signal without a name
        ("talking_envs:OfTwoRewards", r".*float64\[2\]"),  # behind which last words follow
        ("talking_envs:Stuck", r".*reset: RuntimeError: no simulator \("),  # not the one in close
        ("no_module:X", ".*'no_module'"),
    ],
)
def test_one_that_fails_is_named_with_its_last_words(env: str, message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.ConfigError, match=f"^--env=gym:{env}-v0: {message}"):
        environment.show(sections.EnvConfig(id=f"gym:{env}-v0"))


def test_last_words_do_not_hide_the_spec() -> None:
    assert _show("Parting")


@pytest.mark.thorough
@pytest.mark.parametrize("env", ["python:unguarded:make", "gym:unguarded:Mine-v0", "python:lazy:make"])
def test_a_script_whose_probe_would_train_is_told_of_the_guard(env: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "unguarded.py").write_text(
        f"import gymnasium, seedzero\nmake = lambda: gymnasium.make('CartPole-v1')\nseedzero.train({env!r})\n"
    )
    (tmp_path / "lazy.py").write_text("def make():\n    import unguarded\n")
    with pytest.raises(errors.ConfigError, match=r'seedzero\.train .*`if __name__ == "__main__":`'):
        environment.show(sections.EnvConfig(id=env), limit_seconds=100)


def test_one_that_hangs_is_named_after_the_limit() -> None:
    message = r"^--env=gym:.*Hanging-v0: .* 1 s, .*--transport\.step_seconds"
    with pytest.raises(errors.ConfigError, match=message):  # the place of a process that is so young differs
        _show("Hanging", limit_seconds=1.0)


def test_the_last_words_of_one_that_hangs_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for printed, told in (("a banner\n", "waiting for port 5000"), ("", "nothing")):
        complaints = "waiting for port 5000\n\n" if printed else ""
        monkeypatch.setattr(environment, "_output", lambda *args, found=(None, printed, complaints): found)
        with pytest.raises(errors.ConfigError, match=rf"--transport\.step_seconds, .*; .*{told}$"):
            environment.show(sections.EnvConfig(id="python:a:b"), limit_seconds=1.0)


def test_an_answer_counts_though_the_process_hangs_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = types.EnvSpec((4,), "float32", 2)
    for answer in ({"spec": dataclasses.asdict(spec), "reward_threshold": None}, {"error": "no simulator"}):
        found = (None, json.dumps(answer), "")
        monkeypatch.setattr(environment, "_output", lambda *args, found=found: found)
        if "spec" in answer:
            assert environment.show(sections.EnvConfig(id="python:a:b")) == environment.Shown(spec)
        else:
            with pytest.raises(errors.ConfigError, match=r"^--env=python:a:b: no simulator$"):
                environment.show(sections.EnvConfig(id="python:a:b"))


def test_a_thread_of_an_environment_that_never_ends_holds_nothing_up() -> None:
    assert _show("Threaded", limit_seconds=120.0)


def test_what_it_started_neither_holds_it_up_nor_lives_on() -> None:
    os.mkfifo("left")
    with open(os.open("left", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as left:
        assert _show("Leaving", limit_seconds=120.0)
        told = b"x"
        while told:
            assert select.select([left], [], [], 60.0)[0]
            told = left.read(8)


def test_it_sees_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    assert _show("Hidden")


def test_its_process_ends_with_the_one_that_asks() -> None:
    os.mkfifo("alive")
    asks = "environment.show(sections.EnvConfig(id='gym:talking_envs:Waiting-v0'))"
    code = f"from seedzero.api import environment; from seedzero.config import sections; {asks}"
    with subprocess.Popen([sys.executable, "-c", code]) as asking, open("alive", encoding="utf-8") as alive:
        pid = int(alive.readline())
        asking.kill()
        try:
            assert select.select([alive], [], [], 60.0)[0] and alive.read() == ""
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            raise


@pytest.fixture
def _hears_hangups() -> Iterator[None]:
    """Processes inherit an ignored SIGHUP, as of tests under nohup, and then ignore it, too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.thorough
@pytest.mark.usefixtures("_hears_hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_that_keeps_pythons_lock_ends_with_a_stopped_command(number: signal.Signals) -> None:
    os.mkfifo("alive")
    words = ["train", "--env=gym:talking_envs:Holding-v0", "--run_dir=run"]
    command = [sys.executable, "-m", "seedzero.cli", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as asking, open("alive") as alive:
        pid = int(alive.readline())
        asking.send_signal(number)
        complaint = asking.communicate(timeout=600)[1]
        try:
            assert select.select([alive], [], [], 60.0)[0] and alive.read() == ""
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            raise
    assert asking.returncode == 0
    assert re.search(r"stopped before training began in __init__, at .*talking_envs\.py, line \d+$", complaint.strip())


def test_what_it_started_ends_with_the_one_that_asks() -> None:
    os.mkfifo("left")
    asks = "environment.show(sections.EnvConfig(id='gym:talking_envs:Simulating-v0'))"
    code = f"from seedzero.api import environment; from seedzero.config import sections; {asks}"
    with (
        open(os.open("left", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as left,
        subprocess.Popen([sys.executable, "-c", code]) as asking,
    ):
        assert select.select([left], [], [], 60.0)[0] and left.read(8)
        asking.kill()
        assert select.select([left], [], [], 60.0)[0] and left.read(8) == b""


def test_settings_may_be_long_and_are_no_argument_of_its_process() -> None:
    kwargs = json.dumps({"secret": "x" * 200_000})
    assert _show("Configured", kwargs=kwargs)


def _later(deed: str) -> sections.EnvConfig:
    return sections.EnvConfig(id="gym:talking_envs:Later-v0", kwargs=json.dumps({"deed": deed}))


def test_a_look_is_the_same_from_a_process_of_its_own() -> None:
    found = environment.look(_later("nothing"), 40, 600.0)
    assert found.spec.observation_low == -np.inf and found.findings.num_steps == 40
    assert len(found.findings.episodes) > 1 and found.findings.arrays["observation"].is_constant
    assert re.search(r"observation never changed; .*--env\.wrappers", found.warnings.warnings[0])
    assert environment.look(sections.EnvConfig(id="catch"), 9, 600.0).findings.num_steps == 9


@pytest.mark.parametrize(
    ("deed", "message"),
    [("exit", "Later-v0: .* 7 "), ("crash", r"Later-v0: .*SIGSEGV .*step, at .*talking_envs\.py, line \d+")],
)
def test_a_look_at_one_that_ends_its_process_names_it(deed: str, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        environment.look(_later(deed), 40, 600.0)


def test_a_step_that_hangs_is_told_while_it_does_and_named_when_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "_FIRST_SECONDS", 0.1)
    monkeypatch.setattr(environment, "_PROGRESS_SECONDS", 0.1)

    def interrupt(text: str) -> None:
        assert "gym:talking_envs:Later-v0" in text and "Ctrl-C" in text
        if pathlib.Path("hangs").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"step, at .*talking_envs\.py, line \d+$"):
        environment.look(_later("hang"), 40, 600.0, say=interrupt)


def test_a_constructor_that_takes_its_time_is_told_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_FIRST_SECONDS", 0.1)
    said: list[str] = []
    with pytest.raises(errors.ConfigError, match=r"--transport\.step_seconds"):
        environment.show(sections.EnvConfig(id="gym:talking_envs:Hanging-v0"), limit_seconds=0.5, say=said.append)
    assert "gym:talking_envs:Hanging-v0" in said[0]


def test_one_of_this_process_that_takes_its_time_is_told_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_FIRST_SECONDS", 0.01)
    told, said = threading.Event(), []

    def make(settings: sections.EnvConfig) -> types.EnvSpec:
        assert told.wait(600.0)
        return types.EnvSpec((4,), "float32", 2)

    monkeypatch.setattr(registry, "spec", make)
    found = environment.show(sections.EnvConfig(id="catch"), say=lambda text: (said.append(text), told.set())[1])
    assert found is not None and "catch" in said[0]


def test_the_place_of_a_hang_is_told_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [f'  File "{threading.__file__}", line 9 in wait', '  File "/mine/robot.py", line 7 in move']
    crash = "\n".join(["a warning", "Fatal Python error: Aborted", *frames, '  File "/mine/robot.py", line 3 in step'])
    monkeypatch.setattr(environment, "_output", lambda *args: (None, "", crash))
    with pytest.raises(
        errors.ConfigError,
        match=r"--env=python:a:b: .* 6 s, .*--transport\.step_seconds.*at /mine/robot\.py, line 7; .*: a warning$",
    ):
        environment.look(sections.EnvConfig(id="python:a:b"), 9, 5.0, limit_seconds=1.0)


def test_environments_of_this_package_are_asked_here_and_remote_ones_not_at_all() -> None:
    assert environment.show(sections.EnvConfig(id="remote")) is None
    found = environment.show(sections.EnvConfig(id="catch"))
    assert found is not None and found.spec.num_actions == 3
    with pytest.raises(errors.ConfigError, match=r"--env=gym:CartPole-v1: .*ClipAction\(\) cannot wrap"):
        environment.show(sections.EnvConfig(id="gym:CartPole-v1", wrappers='["ClipAction"]'))


@pytest.fixture
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)


def _register(env_id: str, entry: object) -> None:
    with warnings.catch_warnings(action="ignore"):  # one takes the place of Gymnasium's own
        gymnasium.register(env_id, entry_point=entry)  # type: ignore[arg-type]


class _Mine(gymnasium.Env[np.ndarray, int]):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)


@pytest.mark.thorough
@pytest.mark.usefixtures("_registry")
@pytest.mark.parametrize(
    ("env_id", "entry", "module"),
    [
        ("Mine", _Mine, __name__),
        ("mine/Own-v3", "talking_envs:Talking", "talking_envs"),
        ("CartPole-v1", _Mine, __name__),
    ],
)
def test_an_id_that_this_process_alone_has_registered_is_refused(env_id: str, entry: object, module: str) -> None:
    _register(env_id if env_id != "Mine" else "Mine-v7", entry)
    with pytest.raises(errors.ConfigError, match=rf"--env=gym:{env_id}: .* --env=gym:{module}:{env_id}, "):
        environment.show(sections.EnvConfig(id=f"gym:{env_id}"))


@pytest.mark.usefixtures("_registry")
def test_check_env_refuses_it_too() -> None:
    _register("Mine-v0", lambda: _Mine())
    with pytest.raises(errors.ConfigError, match=rf"--env=gym:{__name__}:Mine-v0, "):
        environment.look(sections.EnvConfig(id="gym:Mine-v0"), 2, 10.0)


@pytest.mark.parametrize("env", ["python:__main__:make", "gym:__main__:Mine-v0"])
def test_the_started_script_is_refused_without_a_process(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_output", lambda *args: pytest.fail("asked"))
    with pytest.raises(errors.ConfigError, match="__main__ is another module in every process"):
        environment.show(sections.EnvConfig(id=env))
