from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import types
import warnings
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from scripted import Scripted

from seedzero.config import sections
from seedzero.core import errors, user_code
from seedzero.envs import gym_env

ROOT = pathlib.Path(__file__).parents[2]


def wrap(observation_space, action_space=None, observation=None, num_envs=2):
    return gym_env.GymVectorEnv.from_factory(lambda: Scripted(observation_space, action_space, observation), num_envs)


def box(low, high, dtype, shape=(2, 3)):
    return spaces.Box(low, high, shape, dtype)


@pytest.mark.parametrize(
    ("space", "dtype", "low", "high"),
    [
        (box(-1, 1, np.float32), "float32", -1, 1),
        (box(-1, 1, np.float64), "float32", -1, 1),
        (box(-np.inf, np.inf, np.float16), "float32", -np.inf, np.inf),
        (box(0, 255, np.uint8), "uint8", 0, 255),
        (box(0, 1, np.bool_), "uint8", 0, 1),
        (box(-5, 5, np.int8), "int32", -5, 5),
        (box(-5, 5, np.int64), "int32", -5, 5),
        (box(0, 2**40, np.int64), "float32", 0, 2**40),
        (box(0, 2**32 - 2, np.uint32), "float32", 0, 2**32 - 2),
        # Unbounded ones have the limits of their type, which are no scale.
        (box(-np.inf, np.inf, np.int16), "int32", -np.inf, np.inf),
        (box(0, np.inf, np.int32), "int32", 0, np.inf),
        (box(-(2**31), 2**31 - 1, np.int32), "int32", -np.inf, np.inf),
        (box(-np.inf, np.inf, np.int64), "float32", -np.inf, np.inf),
        (box(0, 2**32 - 1, np.uint32), "float32", 0, np.inf),
        (box(0, 2**16 - 1, np.uint16), "int32", 0, 2**16 - 1),
    ],
)
def test_box_observations_travel_in_a_supported_dtype(space, dtype, low, high):
    value = space.sample()
    env = wrap(space, observation=value)
    spec = env.spec
    assert (spec.observation_shape, spec.observation_dtype) == ((2, 3), dtype)
    assert (spec.observation_low, spec.observation_high) == (low, high)
    step = env.reset([0, 1])
    assert step.observation.dtype == dtype
    np.testing.assert_allclose(step.observation[1], value.astype(dtype))


@pytest.mark.parametrize(
    ("space", "value", "shown"),
    [(spaces.Box(0, 9, (), np.float32), np.float32(4), [4]), (spaces.Discrete(4, start=10), 12, [0, 0, 1, 0])],
)
def test_a_single_number_is_a_vector_of_one_and_a_discrete_one_is_one_hot(space, value, shown):
    env = wrap(space, observation=value)
    assert env.spec.observation_shape == (len(shown),)
    assert env.reset([0, 1]).observation.tolist() == [shown] * 2


@pytest.mark.parametrize("start", [-1, 2**31 - 2, 2**40])
def test_actions_count_from_the_spaces_start(start):
    space = spaces.Discrete(3, start=start)
    env = wrap(box(0, 1, np.float32), space)
    assert env.spec.num_actions == 3
    env.reset([0, 1])
    env.step(np.array([0, 2], np.int32))
    got = [inner.unwrapped.actions for inner in env._envs.envs]
    assert got == [[start], [start + 2]] and all(space.contains(actions[0]) for actions in got)


@pytest.mark.parametrize(
    "space",
    [
        *(spaces.Discrete(3, dtype=dtype) for dtype in (np.int8, np.uint8, np.int32, np.uint64)),
        spaces.Box(np.array([-1, 5]), np.array([1, 7]), dtype=np.int32),
        spaces.Box(0, 8, (1,), np.uint8),
        spaces.Box(0, 255, (1,), np.uint8),
        spaces.Box(-128, 127, (1,), np.int8),
    ],
    ids=str,
)
def test_whole_numbers_are_in_their_space_whatever_its_dtype(space):
    env = wrap(box(0, 1, np.float32), space, num_envs=3)
    assert env.spec.num_actions in (3, 9, 256)
    env.reset([0, 1, 2])
    env.step(np.array([0, 1, env.spec.num_actions - 1], np.int32))
    got = [inner.unwrapped.actions[0] for inner in env._envs.envs]
    assert all(map(space.contains, got)) and len({str(action) for action in got}) == 3


class Named(Scripted):
    names: tuple[object, ...] = ()

    def get_action_meanings(self):
        return self.names


@pytest.mark.parametrize(
    ("names", "found"),
    [(("stay", "go"), ("stay", "go")), (("stay",), ()), (("go", "go"), ()), (("a\nb", "go"), ()), (3, ())],
)
def test_actions_have_the_names_that_the_environment_gives_if_they_fit(names, found, monkeypatch):
    monkeypatch.setattr(Named, "names", names)
    env = gym_env.GymVectorEnv.from_factory(lambda: Named(box(0, 1, np.float32), spaces.Discrete(2)), 1)
    assert env.spec.action_names == found


def test_the_action_on_a_final_observation_is_ignored():
    env = wrap(box(0, 1, np.float32), num_envs=1)
    env.reset([0])
    ends = [bool(env.step(np.array([1], np.int32)).terminated[0]) for _ in range(5)]
    assert ends == [False, False, True, False, False]
    assert len(env._envs.envs[0].unwrapped.actions) == 4


FROZEN_LAKE = dict(kwargs='{"map_name": "8x8", "is_slippery": false}', max_episode_steps=3)


@pytest.mark.parametrize(
    ("env_id", "settings", "limit", "shape"),
    [
        ("Acrobot-v1", {}, 500, (6,)),
        ("MinAtar/Freeway-v1", {}, 3, (10, 10, 7)),
        ("FrozenLake-v1", FROZEN_LAKE, 3, (64,)),  # arguments reach the environment
    ],
)
def test_time_limits_truncate_and_do_not_terminate(env_id, settings, limit, shape, monkeypatch):
    monkeypatch.setattr(gym_env, "MAX_STEPS", 3)
    env = gym_env.make(env_id, sections.EnvConfig(**settings), 1)
    assert env.spec.observation_shape == shape
    env.reset([0])
    steps = [env.step(np.zeros(1, np.int32)) for _ in range(limit + 1)]
    assert not any(step.terminated[0] for step in steps)
    assert [step.truncated[0] for step in steps] == [False] * (limit - 1) + [True, False]
    env.close()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(np.array([[-1, 0.1], [0, 0]]), np.array([[1, 0.7], [0.3, 9]]), dtype=np.float64),
        spaces.Box(-2, 2, ()),
    ],
    ids=["matrix-float64", "number"],
)
def test_box_actions_arrive_in_the_environments_shape_dtype_and_bounds(space):
    env = wrap(box(0, 1, np.float32), space)
    assert env.spec.num_actions == 0
    np.testing.assert_array_equal(env.spec.action_low, np.asarray(space.low, np.float32).reshape(-1))
    env.reset([0, 1])
    for bound in env.spec.action_bounds:
        env.step(np.stack([bound, env.spec.action_bounds.mean(axis=0)]))
    received = env._envs.envs[0].actions
    assert all(action.dtype == space.dtype and space.contains(np.asarray(action)) for action in received)
    np.testing.assert_allclose(received, [space.low, space.high], rtol=1e-6)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(2, np.int32), r"int32\[2\]; .*float32 .*\[2, 1\]"),
        (np.zeros((2, 1)), r"float64\[2, 1\]; expected float32"),
        (np.array([[0], [1.5]], np.float32), r"\[1.5\] .* 1 .* 0 "),
        (np.full((2, 1), np.nan, np.float32), "nan. for environment 0"),
    ],
)
def test_wrong_continuous_actions_are_refused(actions, message):
    env = wrap(box(0, 1, np.float32), spaces.Box(0, 1))
    env.reset([0, 1])
    with pytest.raises(errors.InvalidMessage, match=message):
        env.step(actions)


TOWER = {"their_pkg.py": "import gymnasium\ngymnasium.register('Their/Tower-v0', entry_point='their_pkg:Tower')"}


@pytest.mark.parametrize(
    ("modules", "wanted", "message"),
    [
        (TOWER, "their_pkg:Tower-v0", "'Tower-v0' .*gym:their_pkg:Their/Tower-v0"),
        (TOWER, "their_pkg:x", "'x' .*Their/Tower-v0$"),
        (
            {"their_pkg/__init__.py": "", "their_pkg/envs.py": ""},
            "their_pkg:Cave-v0",
            "try gym:their_pkg.envs:Cave-v0",
        ),
        ({"their_pkg.py": ""}, "their_pkg:Cave-v0", "nor another; .*--env=python:MODULE:FUNCTION"),
        ({"their_pkg.py": "class Cave: pass"}, "their_pkg:Cave", r"did you mean python:their_pkg:Cave\?$"),
    ],
)
def test_a_module_that_registers_no_such_id_is_told_what_it_registers(modules, wanted, message, tmp_path, monkeypatch):
    for name, text in modules.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(errors.EnvironmentFailure, match=message):
            gym_env.make(wanted, sections.EnvConfig(), 1)
    finally:
        gymnasium.registry.pop("Their/Tower-v0", None)
        for name in [name for name in sys.modules if name.partition(".")[0] == "their_pkg"]:
            del sys.modules[name]


def test_a_missing_package_is_named_with_what_to_install_and_may_be_elsewhere(monkeypatch):
    def missing(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(errors.EnvironmentFailure, match=r"Box2D.* -m pip install 'gymnasium\[box2d\]<"):
        gym_env.make("LunarLander-v3", sections.EnvConfig(), 1)
    gym_env.check_id("LunarLander-v3")


@pytest.mark.parametrize(
    ("wanted", "hidden", "message"),
    [
        ("minigrid:MiniGrid-Empty-8x8-v0", ["minigrid"], r"minigrid, .* -m pip install 'minigrid<"),
        (
            "vizdoom.gymnasium_wrapper:V-v0",
            ["vizdoom", "vizdoom.gymnasium_wrapper"],
            r"vizdoom, .* -m pip install 'vizdoom<",
        ),
        (
            "MinAtar/Breakout-v1",
            ["minatar", "minatar.gym"],
            r"'MinAtar/Breakout-v1' needs .*minatar.* -m pip install 'MinAtar<2",
        ),
        ("no_such_module:Mine-v0", [], r"'no_such_module' .*/"),
    ],
)
def test_a_missing_package_or_module_is_named_with_its_remedy(wanted, hidden, message, monkeypatch):
    for name in [name for name in gymnasium.registry if name.startswith("MinAtar/")]:
        monkeypatch.delitem(gymnasium.registry, name)
    for name in hidden:
        monkeypatch.setitem(sys.modules, name, None)
    makers = [lambda: gym_env.make(wanted, sections.EnvConfig(), 1)]
    makers += [lambda: gym_env.check_id(wanted)] * wanted.startswith("MinAtar/")
    for make in makers:
        with pytest.raises(errors.EnvironmentFailure, match=message):
            make()


def test_minatars_games_are_bits_with_the_actions_that_matter():
    env = gym_env.make("MinAtar/Breakout-v1", sections.EnvConfig(), 2)
    assert (env.spec.observation_shape, env.spec.observation_dtype) == ((10, 10, 4), "uint8")
    assert (env.spec.num_actions, env.spec.observation_low, env.spec.observation_high) == (3, 0, 1)
    game = env._envs.envs[0].unwrapped.game
    assert game.sticky_action_prob == 0.1
    first = env.reset([0, 2**40 + 1])  # its own seeds have 32 bits
    bricks = first.observation[0, ..., 3]
    assert bricks[1:4].all()
    assert bricks.sum() == 30


def test_a_reset_of_minatar_forgets_the_last_action():
    env = gym_env.make("MinAtar/Breakout-v1", sections.EnvConfig(), 64)
    stay, left = np.zeros(64, np.int32), np.ones(64, np.int32)
    env.reset(range(64))
    fresh = env.step(stay).observation
    env.step(left)
    env.reset(range(64))
    np.testing.assert_array_equal(env.step(stay).observation, fresh)


def test_minatar_loads_no_plotting_and_leaves_logging_and_standard_error_alone():
    script = """
        import logging, sys
        from seedzero.config import sections
        from seedzero.envs import gym_env

        gym_env.check_id("MinAtar/Breakout-v1")
        assert not {"matplotlib", "seaborn", "pandas"} & sys.modules.keys()
        assert not logging.root.handlers and not logging.root.filters
        print(gym_env.make("MinAtar/Breakout-v1", sections.EnvConfig(), 1, render=True).spec.num_actions)
    """
    _print("3\n", "-W", "error", "-c", textwrap.dedent(script), cwd=ROOT)


def _print(expected, *words, **options):
    """Asserts what a Python process prints, and that it says nothing else."""
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=600, **options
    )
    assert (done.stdout, done.stderr) == (expected, "")


def _env_with(num_envs, **methods):
    """Returns a group of scripted environments with other methods; `{"self": number}` tells them apart."""
    numbers = iter(range(num_envs))
    kind = type("Special", (Scripted,), methods)

    def make():
        env = kind(spaces.Discrete(2), observation=0)
        env.number = next(numbers)
        return env

    return gym_env.GymVectorEnv.from_factory(make, num_envs)


def _fail(*words, **options):
    raise RuntimeError("the cart\nhas no wheels")


def _fail_in_silence(*words, **options):
    raise AssertionError


def _fail_behind(*words, **options):
    try:
        _fail()
    except RuntimeError as error:
        raise KeyError("no reset") from error


@pytest.mark.parametrize(
    ("call", "function", "told"),
    [
        ("step", _fail, r"RuntimeError: the cart has no wheels \(envs/gym_env_test.py, line \d+, in _fail\)$"),
        ("reset", _fail_in_silence, r"AssertionError \(envs/gym_env_test.py, line \d+, in _fail_in_silence\)$"),
        ("reset", _fail_behind, r"KeyError: 'no reset' \(.*, in _fail\)$"),  # the place of the first exception
    ],
)
def test_what_an_environment_raises_is_told_with_its_place(call, function, told):
    env = _env_with(1, **{call: function})
    with pytest.raises(errors.EnvironmentFailure, match=f"{call}: {told}"):
        env.reset([0])
        env.step(np.zeros(1, np.int32))


@pytest.mark.parametrize(
    ("given", "chosen"), [({}, "egl"), ({"MUJOCO_GL": "osmesa"}, "osmesa"), ({"DISPLAY": ":0"}, None)]
)
def test_pictures_need_no_display(given, chosen, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "environ", given)
    assert gym_env.drawing() == {"render_mode": "rgb_array"}
    assert given["SDL_VIDEODRIVER"] == "dummy" and given.get("MUJOCO_GL") == chosen


def test_an_environment_without_pictures_says_so():
    modes = MappingProxyType({"render_modes": ["ansi"]})
    env = _env_with(1, metadata=modes, render=lambda self: "a picture in letters")
    env.reset([0])
    with pytest.raises(errors.EnvironmentFailure, match=r"'make'.* str, .* rgb_array, .* ansi"):
        env.render()


@pytest.mark.parametrize(("value", "shown"), [(0.5, 128), (1, 255), (True, 255)])
def test_pictures_of_0_to_1_are_not_black(value, shown):
    env = _env_with(1, render=lambda self: np.full((4, 6), value))
    env.reset([0])
    np.testing.assert_array_equal(env.render(), np.full((4, 6, 3), shown, np.uint8))


def test_an_environment_that_cannot_be_made_to_draw_says_so(monkeypatch):
    def made(*args, **kwargs):
        assert kwargs.get("render_mode") in (None, "human")

    monkeypatch.setattr(gymnasium, "make", made)
    with pytest.raises(
        errors.EnvironmentFailure,
        match=r"'Mine-v0'.*render_mode='rgb_array', .*: AssertionError.*'human'.*'rgb_array'",
    ):
        gym_env.make("Mine-v0", sections.EnvConfig(), 1, render=True)


def test_gymnasiums_warnings_are_neither_errors_nor_noise():
    class Chatty(Scripted):
        def __init__(self):
            gymnasium.logger.warn("this version is out of date")
            super().__init__(spaces.Discrete(2))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gym_env.GymVectorEnv.from_factory(Chatty, 1)
    assert not caught


@pytest.mark.parametrize(
    ("kwargs", "message"), [("[1]", "JSON"), ("{continuous: true}", "property name"), ("{", "JSON")]
)
def test_arguments_that_are_no_object_are_refused(kwargs: str, message: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=message) as caught:
        gym_env.arguments(sections.EnvConfig(kwargs=kwargs))
    assert "--env.kwargs='{" in str(caught.value)


def test_arguments_that_the_environment_lacks_are_refused() -> None:
    with pytest.raises(errors.EnvironmentFailure, match="'nonsense'"):
        gym_env.make("CartPole-v1", sections.EnvConfig(kwargs='{"nonsense": 1}'), 1)


def test_infos_that_differ_between_environments_do_no_harm():
    def reset(self, *, seed=None, options=None):
        return 0, {"legal": np.arange(self.number), "winner": None if self.number else 1, "hash": 2**70}

    def step(self, action):
        self.actions.append(action)
        info = {"legal": np.arange(len(self.actions) + self.number), "winner": "me" if self.number else 1}
        return 0, 1.0, len(self.actions) % 3 == self.number, False, info

    env = _env_with(3, reset=reset, step=step)
    env.reset([0, 1, 2])
    ends = [env.step(np.zeros(3, np.int32)).terminated.tolist() for _ in range(3)]
    assert ends == [[False, True, False], [False, False, True], [True, False, False]]
    env.close()


def test_numbers_in_arrays_and_lists_of_one_are_numbers():
    def step(self, action):
        return 0, [2.5] if self.number else np.full(1, 2.5), np.zeros(1, bool), np.full((), True), {}

    env = _env_with(2, step=step)
    env.reset([0, 1])
    shown = env.step(np.zeros(2, np.int32))
    assert (shown.reward.tolist(), shown.terminated.tolist(), shown.truncated.tolist()) == (
        [2.5] * 2,
        [False] * 2,
        [True] * 2,
    )
    env.close()


def test_all_environments_are_closed_though_one_raises():
    closed = []

    def close(self):
        closed.append(self.number)
        if self.number == 0:
            raise RuntimeError("no socket")

    env = _env_with(3, close=close)
    with pytest.raises(RuntimeError, match="no socket"):
        env.close()
    assert sorted(closed) == [0, 1, 2]


@pytest.mark.parametrize("limit", [0, 2])
def test_a_user_s_reset_without_options_will_do(limit, monkeypatch):
    class Simple(Scripted):
        def reset(self, seed=None):
            return self._observation, {}

    monkeypatch.setattr(user_code, "load", lambda name: lambda: Simple(spaces.Discrete(2)))
    env = gym_env.from_user_code("a:b", sections.EnvConfig(max_episode_steps=limit), 2)
    env.try_out()
    env.reset([0, 1])
    assert env.frames_per_second is None


@pytest.mark.parametrize(("declared", "found"), [(7, 7.0), (None, None), (0, None), ("fast", None)])
def test_pictures_have_the_declared_speed(declared, found):
    env = wrap(box(0, 1, np.float32))
    env._first.metadata = {"render_fps": declared}
    assert env.frames_per_second == found


def test_one_environment_is_not_taken_for_several():
    shared = Scripted(spaces.Discrete(2))
    for make in (lambda: shared, lambda: gymnasium.wrappers.TimeLimit(shared, 5)):
        with pytest.raises(errors.EnvironmentFailure, match=r"'<lambda>' is the same object .*make a new one"):
            gym_env.GymVectorEnv.from_factory(make, 2)
        gym_env.GymVectorEnv.from_factory(make, 1)


def test_environments_that_were_made_are_closed_when_a_later_one_cannot_be():
    made, closed = [], []

    class Simulator(Scripted):
        def __init__(self):
            if len(made) == 2:
                raise RuntimeError("port 2000 is in use")
            super().__init__(spaces.Discrete(2))
            made.append(self)

        def close(self):
            closed.append(self)
            raise OSError("the simulator is gone")

    with pytest.raises(errors.EnvironmentFailure, match="RuntimeError: port 2000 is in use"):
        gym_env.GymVectorEnv.from_factory(Simulator, 3)
    assert sorted(map(id, closed)) == sorted(map(id, made)) and len(made) == 2


def _of(package: str, **attributes: Any) -> Any:
    """Returns an object of a user's class, whose base is of a package."""
    base = type("Env", (), {"__module__": f"{package}.core", **attributes})
    return type("Mine", (base,), {"__module__": "my_module"})()


OTHERS: dict[str, tuple[Any, str]] = {
    "old gym": (
        _of("gym", observation_space=spaces.Discrete(2)),
        "is my_module.Mine, of the package gym; .*shimmy.GymV26",
    ),
    "pettingzoo": (
        _of("pettingzoo"),
        "is my_module.Mine, of the package pettingzoo; .*--env=pettingzoo:MODULE:FUNCTION",
    ),
    "dm_env": (_of("dm_env"), "is my_module.Mine, of the package dm_env; .*shimmy.DmControl"),
    "vector": (
        gymnasium.make_vec("CartPole-v1", 2),
        r"is gymnasium\..*VectorEnv, of the package gymnasium; .*envs_per_group",
    ),
    "a vector of others": (_of("stable_baselines3", num_envs=2), "is .*package my_module; .*single environment"),
    "unknown": (_of("simulators"), "is my_module.Mine, of the package my_module; .*gymnasium.Env"),
    "no return": (None, "is None; .*`return env`"),
    "a class": (gymnasium.Env, r"is the class gymnasium\.core\.Env itself; .*Env\(\)"),
    "a tuple": ((1, 2), "is a tuple; .*gymnasium.Env"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_gymnasium_environment_is_named(other: str) -> None:
    made, message = OTHERS[other]
    with pytest.raises(errors.EnvironmentFailure, match=f"'make' {message}"):
        gym_env.GymVectorEnv("make", [lambda: made])


@pytest.mark.parametrize("given", [{}, {"max_episode_steps": 5}, {"wrappers": '["FlattenObservation"]'}], ids=str)
def test_a_user_s_function_is_told_before_wrappers_fail(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("of_a_user")
    module.make = lambda: None
    monkeypatch.setitem(sys.modules, "of_a_user", module)
    with pytest.raises(errors.EnvironmentFailure, match=r"'python:of_a_user:make' is None"):
        gym_env.from_user_code("of_a_user:make", sections.EnvConfig(**given), 1)


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ("", r"--env.kwargs=\{\}: .*make\(\) missing 1 .* 'size'; give .*--env.kwargs='\{\"name\": value\}'$"),
        ('{"sizes": 1}', r"--env.kwargs=\{\"sizes\": 1\}: .*make\(\) got .* 'sizes'; give "),
        ('{"size": "one"}', r"^(?!.*--env.kwargs).*TypeError: .*\(envs/gym_env_test.py, line \d+, in make\)"),
    ],
)
def test_arguments_that_do_not_fit_a_users_function_are_told(
    kwargs: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(size: int) -> gymnasium.Env[Any, Any]:
        return Scripted(spaces.Discrete(size + 1))

    module: Any = types.ModuleType("of_a_user")
    module.make = make
    monkeypatch.setitem(sys.modules, "of_a_user", module)
    with pytest.raises(errors.EnvironmentFailure, match=reason):
        gym_env.from_user_code("of_a_user:make", sections.EnvConfig(kwargs=kwargs), 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("of_nobody:make", "there is no module 'of_nobody' .* start in the module's directory"),
        ("seedzero.envs.catch:nothing", "module 'seedzero.envs.catch' has no function 'nothing'"),
    ],
)
def test_a_function_that_is_not_found_is_named_once(name: str, reason: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=f"^environment 'python:{name}': {reason}"):
        gym_env.from_user_code(name, sections.EnvConfig(), 1)


@pytest.mark.parametrize("place", ["observation_space", "action_space"])
@pytest.mark.parametrize("space", [None, _of("gym")], ids=["none", "old"])
def test_a_space_that_is_not_gymnasium_s_is_named(place: str, space: Any) -> None:
    env = gymnasium.make("CartPole-v1").unwrapped
    setattr(env, place, space)
    with pytest.raises(errors.EnvironmentFailure, match=rf"has (no {place}|the {place} my_module.Mine, .*); "):
        gym_env.checked("mine", env)


@pytest.mark.parametrize(("version", "wrapper"), [("0.21.0", "GymV21"), ("0.26.2", "GymV26")])
def test_an_id_of_the_old_gym_is_told(version: str, wrapper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"Old-v0": object()}
    registry: Any = types.SimpleNamespace(env_specs=known) if wrapper == "GymV21" else known
    for name, attributes in (("gym", {"__version__": version}), ("gym.envs.registration", {"registry": registry})):
        module = types.ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "of_a_user", types.ModuleType("of_a_user"))
    with pytest.raises(errors.EnvironmentFailure, match=rf"'Old-v0' with the old .*shimmy\.{wrapper}"):
        gym_env.make("of_a_user:Old-v0", sections.EnvConfig(), 1)
    with pytest.raises(errors.EnvironmentFailure, match="registers no 'Other-v0' with Gymnasium"):
        gym_env.make("of_a_user:Other-v0", sections.EnvConfig(), 1)
