"""Numbers of an environment's own, in the info of an episode's last step."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seedzero.core import errors, infos, types
from seedzero.envs import gym_env, gym_infos


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
    found = gym_infos.read({"metrics": {"a": math.nan, "b": np.True_, "c": np.ones((1, 1), np.int8)}}, ())
    assert math.isnan(found.pop("a")) and found == {"b": 1.0, "c": 1.0}
    assert gym_infos.read({"terminal": 3}, ()) == {}


@pytest.mark.parametrize(
    ("info", "keys", "named"),
    [
        ({"metrics": 3}, (), "int"),
        ({"metrics": {"a": "text"}}, (), "text"),
        ({"metrics": {"a": [1, 2]}}, (), "1, 2"),
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
        gym_infos.read(info, keys)


def test_a_wrong_info_names_the_environment_and_the_step() -> None:
    with pytest.raises(
        errors.EnvironmentFailure, match=r"'<lambda>'.*\b1\b.*'success'.*--metrics\.info_keys.*--env=python"
    ):
        _env(lambda number, step: {"left": 1}, info_keys=("success",)).step(np.zeros(2, np.int32))


def test_environments_may_not_have_ever_new_names() -> None:
    infos = [{f"{number}-{name}": 1.0 for name in range(20)} for number in range(2)]
    with pytest.raises(errors.EnvironmentFailure, match=r"'mine'.*40 names.*\b0\b.*\b0\b.*\b32\b"):
        gym_infos.together("mine", infos)
