"""What an environment returns, against its spaces and Gymnasium's interface."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seedzero.core import errors, infos, types
from seedzero.envs import gym_env, gym_protocol

PARTS = spaces.Dict(board=spaces.Box(0, 1, (2, 2)), hand=spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3)]))
ZERO = np.zeros(2, np.float32)


class _Env(gymnasium.Env[Any, Any]):
    """Answers reset and step with what it was given."""

    def __init__(self, reset: Any, step: Any, space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self._reset, self._step = reset, step

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._reset

    def step(self, action: Any) -> Any:
        return self._step


def _check(reset: Any, step: Any, space: spaces.Space[Any] | None = None) -> None:
    gym_protocol.check("mine", _Env(reset, step, space or spaces.Box(-1, 1, (2,))))


@pytest.mark.parametrize("reward", [1, 1.0, np.float64(1), np.ones(1), [1.0], True])
@pytest.mark.parametrize("ends", [False, np.False_, 0])
def test_numbers_of_any_kind_are_rewards_and_ends(reward: Any, ends: Any) -> None:
    _check((ZERO, {}), (ZERO, reward, ends, ends, {}))


def test_parts_may_have_more_than_their_space() -> None:
    shown = {"board": np.zeros((2, 2)), "hand": (0, np.int64(2)), "more": 1}
    _check((shown, {}), (shown, 0.0, False, False, {}), PARTS)


BYTES = spaces.Box(0, 255, (2,), np.uint8)


@pytest.mark.parametrize(
    ("space", "shown"),
    [
        (BYTES, np.zeros(2, np.uint64)),
        (BYTES, np.zeros(2, bool)),
        (spaces.Box(-1, 1, (2,)), [0, 1]),
        (spaces.Discrete(3), 2),
        (spaces.MultiBinary(2), np.zeros(2, bool)),
    ],
)
def test_dtypes_that_gymnasium_casts_are_the_space_s(space: spaces.Space[Any], shown: Any) -> None:
    env = gym_env.GymVectorEnv.from_factory(lambda: _Env((shown, {}), (shown, 0.0, False, False, {}), space), 2)
    env.try_out()
    env.reset([0, 1])


VECTOR = spaces.Box(-1, 1, (2,))
RAGGED = [[1.0], [1.0, 2.0]]
UNREADABLE = r" \(ValueError: .*inhomogeneous.*\)"
WRONG: list[tuple[spaces.Space[Any], Any, Any, str]] = [
    (VECTOR, ZERO, None, r"'mine' .*reset .*float32\[2\]; .*\(observation, info\)"),
    (VECTOR, (np.zeros(3), {}), None, r"reset .*\[3\]; .*\[2\]"),
    (VECTOR, (ZERO, {}), None, "step .*None; .*observation, reward, terminated, truncated, info"),
    (VECTOR, (ZERO, {}), (ZERO, 0.0, False, {}), "step .*4 values"),
    (VECTOR, (ZERO, {}), (ZERO, np.zeros(2), False, False, {}), r"step .*float64\[2\] .*reward"),
    (VECTOR, (ZERO, {}), (ZERO, None, False, False, {}), "step .*None .*reward"),
    (VECTOR, (ZERO, {}), (ZERO, 0.0, False, {}, {}), "step .*dict .*truncated"),
    (VECTOR, (ZERO, {}), (np.zeros(()), 0.0, False, False, {}), r"step .*observation .*\[\]"),
    (PARTS, ({"board": np.zeros((2, 2))}, {}), None, "dict with board as .* board, hand"),
    (PARTS, ({}, {}), None, "dict with nothing as .* board, hand"),
    (VECTOR, (None, {}), None, r"reset None as the observation; .*Box\(-1.0, 1.0, \(2,\)"),
    (spaces.Discrete(3), ({"cell": 1}, {}), None, r"reset a dict as the observation; .*Discrete\(3\)"),
    (PARTS, ({"board": np.zeros((2, 2)), "hand": (0,)}, {}), None, "1 .*'hand'; .* 0, 1"),
    (PARTS, ({"board": np.zeros(4), "hand": (0, 0)}, {}), None, r"'board' .*\[4\]; .*\[2, 2\]"),
    (PARTS, ({"board": RAGGED, "hand": (0, 0)}, {}), None, "'board'"),
    (BYTES, (np.zeros(2), {}), None, "reset .*float64; .*uint8"),
    (BYTES, ([0, 1], {}), None, "reset .*int64; .*uint8"),
    (spaces.Dict(a=spaces.Discrete(3)), ({"a": 1.0}, {}), None, "reset .*'a' .*float64; .*int64"),
    (VECTOR, (np.array([None, 1]), {}), None, "reset .*object; .*float32"),
    (VECTOR, (RAGGED, {}), None, "'mine' .*reset .*observation.*" + UNREADABLE),
    (VECTOR, (ZERO, {}), (RAGGED, 0.0, False, False, {}), "step .*observation.*" + UNREADABLE),
    (VECTOR, (ZERO, {}), (ZERO, RAGGED, False, False, {}), "step .*reward.*" + UNREADABLE),
]


@pytest.mark.parametrize(("space", "reset", "step", "message"), WRONG)
def test_what_is_wrong_is_named_with_a_remedy(space: spaces.Space[Any], reset: Any, step: Any, message: str) -> None:
    with pytest.raises(errors.EnvironmentFailure, match=rf"{message}.*--env=python:MODULE:FUNCTION"):
        _check(reset, step, space)


def test_a_wrapper_that_got_too_few_values_is_understood() -> None:
    env = gymnasium.wrappers.TimeLimit(_Env((ZERO, {}), (ZERO, 0.0, False, {}), spaces.Box(-1, 1, (2,))), 5)
    with pytest.raises(errors.EnvironmentFailure, match=r"'mine'.*step .*\(.*got 4\).*--env=python"):
        gym_protocol.check("mine", env)


class _Unpacking(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A user's own code, which awaits another number of values, as a helper or an old interface returns them."""

    def step(self, action: Any) -> Any:
        observation, done = self.env.step(action)
        return observation, 0.0, done, False, {}


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_user_s_own_unpacking_is_told_with_its_line(is_inside: bool) -> None:
    env: Any = _Unpacking(_Env((ZERO, {}), (ZERO, 0.0, False, False, {}), spaces.Box(-1, 1, (2,))))
    env = gymnasium.wrappers.TimeLimit(env, 5) if is_inside else env
    told = (
        r"raised in step: ValueError: too many values to unpack .* \(envs/gym_protocol_test\.py, line \d+, in step\)$"
    )
    with pytest.raises(errors.EnvironmentFailure, match=told):
        gym_protocol.check("mine", env)


def test_a_group_tries_its_first_environment() -> None:
    env = gym_env.GymVectorEnv.from_factory(lambda: _Env((ZERO, {}), None, spaces.Box(-1, 1, (2,))), 2)
    with pytest.raises(errors.EnvironmentFailure, match=r"step .*None"):
        env.try_out()


def test_the_steps_are_independent_of_the_environment_s_own_numbers() -> None:
    guessed = []

    class Secrets(_Env):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            gymnasium.Env.reset(self, seed=seed)
            return self._reset

        def step(self, action: Any) -> Any:
            guessed.append(action == self.np_random.integers(1000))
            return self._step

    env = Secrets((ZERO, {}), (ZERO, 0.0, False, False, {}), spaces.Box(-1, 1, (2,)))
    env.action_space = spaces.Discrete(1000)
    gym_protocol.check("mine", env, 10)
    assert len(guessed) == 10 and sum(guessed) < 5


class _Late(gymnasium.Env[Any, Any]):
    """Is as its spaces say for two steps, and then returns what it was given."""

    def __init__(self, space: spaces.Space[Any], **late: Any) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self._late, self._num_steps = late, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self._num_steps += 1
        right = dict(
            observation=self.observation_space.sample(), reward=0.0, terminated=False, truncated=False, info={}
        )
        return tuple((right | (self._late if self._num_steps > 2 else {})).values())


LATE: list[tuple[spaces.Space[Any], dict[str, Any], str]] = [
    (spaces.Discrete(4), {"observation": 4}, r"\b4; .*Discrete\(4\)"),
    (spaces.Discrete(4, start=2), {"observation": 1}, r"\b1; .*start=2"),
    (spaces.MultiDiscrete([2, 3]), {"observation": np.array([1, 3])}, r"\b3; "),
    (spaces.MultiBinary(2), {"observation": np.array([0, 2])}, r"\b2; "),
    (spaces.Box(0, 9, (2,), np.uint8), {"observation": np.array([0, 300], np.uint16)}, "300"),
    (spaces.Dict(a=spaces.Discrete(3), b=VECTOR), {"observation": {"a": 3, "b": ZERO}}, r"'a' .*\b3; "),
    (VECTOR, {"observation": np.zeros(3)}, r"\[3\].*\[2\]"),
    (VECTOR, {"terminated": "no"}, "str as terminated"),
    (VECTOR, {"truncated": None}, "None as truncated"),
    (VECTOR, {"terminated": 2}, "2 as terminated"),
    (VECTOR, {"terminated": 0.5}, "0.5 as terminated"),
    (VECTOR, {"terminated": np.zeros(2, bool)}, r"bool\[2\] as terminated"),
    (VECTOR, {"reward": np.zeros(2)}, r"float64\[2\] as reward"),
    (VECTOR, {"reward": "1.0"}, "str as reward"),
    (VECTOR, {"reward": None}, "None as reward"),
    (VECTOR, {"info": None}, "None as info"),
]


@pytest.mark.parametrize(("space", "late", "message"), LATE)
def test_later_values_outside_their_space_are_named_with_their_step(
    space: spaces.Space[Any], late: dict[str, Any], message: str
) -> None:
    env = gym_env.GymVectorEnv.from_factory(lambda: _Late(space, **late), 2)
    env.reset([0, 1])
    for _ in range(2):
        env.step(np.zeros(2, np.int32))
    with pytest.raises(errors.EnvironmentFailure, match=rf"'<lambda>' .*number 3.*{message}"):
        env.step(np.zeros(2, np.int32))


def _growing() -> gymnasium.Env[Any, Any]:
    _growing.size += 1  # type: ignore[attr-defined]
    return _Late(spaces.Box(-1, 1, (_growing.size,)))  # type: ignore[attr-defined]


@pytest.mark.parametrize("num_envs", [1, 2])
def test_spaces_that_differ_between_instances_are_found_by_two(num_envs: int) -> None:
    _growing.size = 1  # type: ignore[attr-defined]
    with pytest.raises(errors.EnvironmentFailure, match=r"'_growing' .*\(2,\).*\(3,\)"):
        gym_env.GymVectorEnv.from_factory(_growing, num_envs).check_another()


def test_one_object_given_twice_is_found_and_left_open() -> None:
    only = _Late(VECTOR)
    closed = []
    only.close = lambda: closed.append(1)  # type: ignore[method-assign, assignment]
    with pytest.raises(errors.EnvironmentFailure, match="same object"):
        gym_env.GymVectorEnv.from_factory(lambda: only, 1).check_another()
    assert not closed


def test_an_environment_of_which_there_is_only_one_passes() -> None:
    makers = iter([lambda: _Late(VECTOR)])
    gym_env.GymVectorEnv.from_factory(lambda: next(makers)(), 1).check_another()


class _Counts(gymnasium.Env[Any, Any]):
    """Environment number N ends after N + 1 steps, and tells what it is given, by its number and step."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)
    made = 0

    def __init__(self, infos: Any) -> None:
        self.number, self._infos, self._steps = _Counts.made, infos, 0
        _Counts.made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps = 0
        return np.zeros(1, np.float32), {"is_success": True}

    def step(self, action: Any) -> Any:
        self._steps += 1
        is_cut = self._steps > self.number
        return np.zeros(1, np.float32), 1.0, False, is_cut, self._infos(self.number, self._steps)


def _env(infos: Any, num_envs: int = 2, **options: Any) -> gym_env.GymVectorEnv:
    _Counts.made = 0
    env = gym_env.GymVectorEnv.from_factory(lambda: _Counts(infos), num_envs, **options)
    env.reset([0] * num_envs)
    return env


def test_the_last_info_of_an_episode_counts_and_no_other() -> None:
    env = _env(lambda number, step: {"is_success": number == 1, "metrics": {"depth": 10 * number + step}})
    steps = [env.step(np.zeros(2, np.int32)) for _ in range(4)]
    # Environment 0 ends at steps 1 and 3 (2 is a reset), environment 1 at step 2.
    depths = [None if step.info is None else step.info["depth"].tolist() for step in steps]
    assert str(depths) == "[[1.0, nan], [nan, 12.0], [1.0, nan], None]"
    assert steps[1].info is not None and steps[1].info["is_success"].dtype == np.float32
    assert infos.of(steps[1].info, 1) == {"depth": 12.0, "is_success": 1.0} and infos.of(steps[1].info, 0) == {}


def test_keys_that_the_user_names_are_taken_too() -> None:
    env = _env(lambda number, step: {"left": np.array([step]), "other": "text"}, info_keys=("left",))
    step = env.step(np.zeros(2, np.int32))
    assert step.info is not None and step.info.keys() == {"left"} and step.info["left"][0] == 1.0


def test_a_row_keeps_its_numbers_where_rows_are_chosen() -> None:
    nothing = np.zeros(2, bool)
    step = types.EnvStep(np.zeros((2, 1)), np.zeros(2, np.float32), nothing, nothing)
    assert step.those(np.array([False, True])).info is None
    step = step._replace(info={"depth": np.array([1.0, 2.0], np.float32)})
    assert infos.of(step.those(np.array([False, True])).info, 0) == {"depth": 2.0}


def test_no_number_is_none_and_numbers_of_any_kind_are_taken() -> None:
    found = gym_protocol.read_infos({"metrics": {"a": math.nan, "b": np.True_, "c": np.ones((1, 1), np.int8)}}, ())
    assert math.isnan(found.pop("a")) and found == {"b": 1.0, "c": 1.0}
    assert gym_protocol.read_infos({"terminal": 3}, ()) == {}


@pytest.mark.parametrize(
    ("info", "keys", "named"),
    [
        ({"metrics": 3}, (), "int"),
        ({"metrics": {"a": "text"}}, (), "text"),
        ({"metrics": {"a": [1, 2]}}, (), "1, 2"),
        ({"metrics": {"a": [[1], [1, 2]]}}, (), "^a list as 'a' in its info, which numpy cannot read"),
        ({"metrics": {"a": math.inf}}, (), "inf"),
        ({"metrics": {"a": 1e300}}, (), "1e.300"),
        ({"metrics": {"": 1}}, (), "name ''"),
        ({"metrics": {"a\n": 1}}, (), "printable"),
        ({"metrics": {"a" * 65: 1}}, (), "1 to 64"),
        ({"metrics": {3: 1}}, (), "name '3'"),
        ({"metrics": dict.fromkeys(map(str, range(33)), 1)}, (), "33"),
        ({"left": 1}, ("lefd",), "'lefd'.*left"),
    ],
)
def test_anything_else_is_refused(info: dict[str, Any], keys: tuple[str, ...], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        gym_protocol.read_infos(info, keys)


def test_a_wrong_info_names_the_environment_and_the_step() -> None:
    with pytest.raises(
        errors.EnvironmentFailure, match=r"'<lambda>'.*\b1\b.*'success'.*--metrics\.info_keys.*--env=python"
    ):
        _env(lambda number, step: {"left": 1}, info_keys=("success",)).step(np.zeros(2, np.int32))


def test_environments_may_not_have_ever_new_names() -> None:
    infos = [{f"{number}-{name}": 1.0 for name in range(20)} for number in range(2)]
    with pytest.raises(errors.EnvironmentFailure, match=r"'mine'.*40 names.*\b0\b.*\b0\b.*\b32\b"):
        gym_protocol.join_infos("mine", infos)
