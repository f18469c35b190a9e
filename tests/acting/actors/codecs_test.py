"""A policy's way between an environment's own values and the agent's, for every kind of space."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import policies
import pytest
from gymnasium import spaces
from gymnasium.vector import utils as batches

from seedzero.acting.actors import acting_policy, codecs
from seedzero.core import errors, types
from seedzero.envs import envpool_env, gym_env, gym_spaces

SHOWN: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-1.0, 1.0, (3,)),
    "float64": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    "scalar": spaces.Box(0.0, 5.0, ()),
    "unbounded": spaces.Box(-np.inf, np.array([np.inf, 1.0], np.float32), (2,)),
    "bytes": spaces.Box(0, 255, (4, 5, 3), np.uint8),
    "int16": spaces.Box(-7, 9, (2,), np.int16),
    "bool": spaces.Box(0, 1, (3,), np.bool_),
    "discrete": spaces.Discrete(5),
    "start": spaces.Discrete(5, start=-2),
    "many": spaces.Discrete(5000, start=3),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "multi_discrete_2d": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi_binary": spaces.MultiBinary([2, 2]),
    "dict": spaces.Dict(
        camera=spaces.Box(0, 255, (4, 4, 1), np.uint8),
        robot=spaces.Dict(arm=spaces.Box(-1.0, 2.0, (2,), np.float64), gear=spaces.Discrete(3, start=-1)),
        more=spaces.Tuple([spaces.MultiBinary(3), spaces.MultiDiscrete([2, 3])]),
        alone=spaces.Box(0, 9, (), np.int64),
    ),
    "tuple": spaces.Tuple([spaces.Discrete(3, start=1), spaces.Box(-1.0, 1.0, (2,)), spaces.Box(0, 1, ())]),
}
TAKEN: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4),
    "start": spaces.Discrete(3, start=5),
    "int8": spaces.Discrete(3, start=-1, dtype=np.int8),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "multi_discrete_2d": spaces.MultiDiscrete([[2, 3]]),
    "multi_binary": spaces.MultiBinary(3),
    "whole_scalar": spaces.Box(-3, 3, (), np.int64),
    "whole_box": spaces.Box(np.array([-1, 3]), np.array([1, 5]), dtype=np.int32),
    "box": spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 7.0], np.float32)),
    "matrix": spaces.Box(-2.0, 2.0, (2, 2), np.float64),
    "scalar": spaces.Box(-1.0, 1.0, ()),
}


class _Env(gymnasium.Env[Any, Any]):
    """Draws observations of its space, and refuses actions outside its own."""

    def __init__(self, shown: spaces.Space[Any], taken: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = shown, taken
        self.shown: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        self.shown = self.observation_space.sample()
        return self.shown, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.shown = self.observation_space.sample()
        return self.shown, 0.0, False, False, {}


def _spec(shown: spaces.Space[Any], taken: spaces.Space[Any]) -> types.EnvSpec:
    return gym_spaces.read("mine", shown, taken)[0]


def _codec(shown: spaces.Space[Any], taken: spaces.Space[Any] = TAKEN["discrete"]) -> codecs.Codec:
    return codecs.of(_spec(shown, taken))


PAIRS = [(shown, taken) for shown, taken in zip(SHOWN, [*TAKEN, *list(TAKEN)[:4]], strict=True)]


@pytest.mark.thorough
@pytest.mark.parametrize(("shown", "taken"), PAIRS)
def test_an_environment_steps_by_its_own_observations_and_the_policy_s_actions(shown: str, taken: str) -> None:
    env = _Env(SHOWN[shown], TAKEN[taken])
    spec = _spec(SHOWN[shown], TAKEN[taken])
    small = {"run__agent": "ppo", "network__width": 4}
    policy = acting_policy.Policy(policies.saved(spec, **small))
    observation, _ = env.reset(seed=0)
    for _ in range(2):
        observation, *_ = env.step(policy(observation, explore=True))
    policy.reset()
    group = gymnasium.vector.SyncVectorEnv([lambda: _Env(SHOWN[shown], TAKEN[taken])] * 3)
    observations, _ = group.reset(seed=[1, 2, 3])
    actions = policy(observations)
    assert group.action_space.contains(actions)
    policy.reset()
    one = policy(env.reset(seed=1)[0])
    np.testing.assert_allclose(one, np.asarray(actions)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shown", SHOWN)
def test_rows_are_those_of_training(shown: str) -> None:
    space = SHOWN[shown]
    training = gym_env.GymVectorEnv.from_factory(lambda: _Env(space, TAKEN["discrete"]), 2)
    rows = training.reset([7, 8]).observation
    codec, envs = codecs.of(training.spec), [_Env(space, TAKEN["discrete"]) for _ in range(2)]
    seen = [env.reset(seed=seed)[0] for env, seed in zip(envs, (7, 8), strict=True)]
    for row, each in zip(rows, seen, strict=True):
        found, is_single = codec.encode(each)
        assert is_single and found.dtype == rows.dtype
        np.testing.assert_array_equal(found, row[np.newaxis])
    together = batches.concatenate(space, seen, batches.create_empty_array(space, 2))
    for batch in (together, seen):  # as of a vector environment, and a list of observations
        found, is_single = codec.encode(batch)
        assert not is_single
        np.testing.assert_array_equal(found, rows)


@pytest.mark.parametrize("taken", TAKEN)
def test_every_action_is_of_its_space(taken: str) -> None:
    space = TAKEN[taken]
    spec = _spec(SHOWN["box"], space)
    codec = codecs.of(spec)
    codes = spec.action_bounds if spec.is_continuous else np.arange(spec.num_actions, dtype=np.int32)
    decoded = codec.decode(codes, is_single=False)
    assert batches.batch_space(space, len(codes)).contains(decoded)
    ones = [codec.decode(codes[index : index + 1], is_single=True) for index in range(len(codes))]
    assert all(map(space.contains, ones)) and len({np.asarray(one).tobytes() for one in ones}) == len(ones)
    np.testing.assert_array_equal(np.stack(ones), decoded)  # type: ignore[arg-type]


def test_a_part_action_mask_is_observed_by_runs_without_masks() -> None:
    parts = spaces.Dict(seen=spaces.Box(-9.0, 9.0, (2,)), action_mask=spaces.Box(0, 1, (3,), np.int8))
    for masks in (False, True):
        spec, _, _ = gym_spaces.read("mine", parts, spaces.Discrete(3), masks=masks)
        codec = codecs.of(spec)
        rows, is_single = codec.encode({"seen": np.zeros(2), "action_mask": [0, 1, 1]})
        assert is_single and rows.shape == (1, *spec.observation_shape)
        assert spec.has_action_mask == masks == ("action_mask" not in [array.name for array in spec.arrays])
        assert codec.observation_space == parts


@pytest.mark.thorough
def test_actions_are_listed_in_the_order_of_masks() -> None:
    spec = _spec(SHOWN["box"], spaces.MultiDiscrete([2, 2], start=[5, 0]))
    policy = acting_policy.Policy(policies.saved(spec))
    assert policy.actions.tolist() == [[5, 0], [5, 1], [6, 0], [6, 1]]
    found = policy.search(SHOWN["box"].sample())
    assert found.action.tolist() == policy.actions[found.policy.argmax()].tolist()


@pytest.mark.parametrize(
    ("space", "value", "row"),
    [
        *((spaces.Discrete(4, start=1), x, [0, 0, 1, 0]) for x in (np.int8(3), 3, np.array(3), np.int64(3))),
        (SHOWN["box"], [0, 0.5, 1], [0.0, 0.5, 1.0]),
        (
            spaces.Dict([(("a", 1), spaces.Discrete(3)), ("b", spaces.Discrete(2))]),
            {("a", 1): 2, "b": 0},
            [0, 0, 1, 1, 0],
        ),
    ],
)
def test_values_of_python_and_numpy_are_the_same(space: spaces.Space[Any], value: Any, row: list[float]) -> None:
    found, is_single = _codec(space).encode(value)
    assert is_single and found.tolist() == [row] and (space is not SHOWN["box"] or found.dtype == np.float32)


WRONG: list[tuple[str, Any]] = [
    ("discrete", 5),
    ("start", 3),
    ("discrete", 1.0),
    ("discrete", "1"),
    ("multi_discrete", [3, 0]),
    ("multi_binary", [[0, 2], [0, 0]]),
    ("bytes", np.full((4, 5, 3), 256)),
    ("bytes", np.zeros((4, 5, 3))),
    ("box", [0.0, np.nan, 0.0]),
    ("box", np.zeros(4)),
    ("box", [[0.0], [0.0, 1.0]]),
    ("box", None),
    ("box", [1e300, 0.0, 0.0]),
    ("box", np.zeros((0, 3))),
    ("tuple", (1, np.zeros(2))),
    ("tuple", (4, np.zeros(2), 0.0)),
    ("tuple", (1, np.zeros((2, 2)), 0.0)),
    ("dict", {"camera": 0}),
    ("dict", np.zeros(3)),
]


@pytest.mark.parametrize(("shown", "value"), WRONG)
def test_other_values_are_refused_by_their_space(shown: str, value: Any) -> None:
    with pytest.raises(errors.UsageError, match=r"space|numbers of rows"):
        _codec(SHOWN[shown]).encode(value)


def test_the_wrong_part_is_named() -> None:
    value = SHOWN["dict"].sample()
    value["robot"]["gear"] = 2
    with pytest.raises(errors.UsageError, match=r"'robot' at 'gear' .* 2,.*Discrete\(3, start=-1\)"):
        _codec(SHOWN["dict"]).encode(value)


def test_a_list_of_as_many_tuples_as_parts_is_read_by_its_values_or_refused() -> None:
    pair = spaces.Tuple([spaces.Discrete(3), spaces.Discrete(2)])
    codec = _codec(spaces.Tuple([pair, pair]))
    one, is_single = codec.encode(((2, 1), (0, 0)))
    assert is_single
    found, is_single = codec.encode([(2, 1), (0, 0)])
    np.testing.assert_array_equal(found, one)
    assert is_single
    several = _codec(spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3)]))
    found, is_single = several.encode([(2, 1), (0, 1)])
    np.testing.assert_array_equal(found, np.concatenate([several.encode(each)[0] for each in ((2, 1), (0, 1))]))
    assert not is_single
    either = _codec(spaces.Tuple([spaces.MultiDiscrete([2, 2]), spaces.Discrete(2)]))
    for value in ([(0, 1), (1, 0)], [(0, 2), (1, 0)]):
        with pytest.raises(errors.UsageError, match="2 tuples"):
            either.encode(value)


def test_pools_take_their_own_pictures() -> None:
    space = spaces.Box(0, 255, (3, 40, 50), np.uint8)
    spec, encode, _ = envpool_env.read("mine", space, spaces.Discrete(2), ())
    value = space.sample()[np.newaxis]
    row, is_single = codecs.of(spec).encode(value)
    assert not is_single and spec.observation_shape == (40, 50, 3)
    np.testing.assert_array_equal(row, encode(value))


@pytest.mark.parametrize(
    "text",
    [
        '{"observation":{"kind":"Box"},"action":{}}',
        '{"observation":{"kind":"Graph"},"action":{"kind":"Discrete","n":4,"start":0,"dtype":"int64"}}',
        '{"observation":{"kind":"MultiBinary","shape":[99999999999]},"action":{}}',
        '{"observation":' + '{"kind":"Tuple","parts":[' * 150 + "]}" * 150 + ',"action":{}}',
        _spec(SHOWN["discrete"], TAKEN["discrete"]).spaces,  # of another environment
    ],
)
def test_damaged_spaces_are_refused_by_name(text: str) -> None:
    spec = types.EnvSpec((3,), "float32", 4, spaces=text)
    with pytest.raises(errors.ResumeError, match=r"spec\.json"):
        codecs.of(spec)


def test_a_spec_without_spaces_takes_its_arrays() -> None:
    arrays = [types.ArraySpec("a/b", (2,), "int32", 0, 9), types.ArraySpec("c", (1,), "uint8", 0, 255, text=True)]
    codec = codecs.of(types.EnvSpec.of_arrays(arrays, num_actions=3))
    row, is_single = codec.encode({"a/b": [1, 2], "c": [65]})
    assert is_single and row.tolist() == [[1, 0, 0, 0, 2, 0, 0, 0, 65]]
    assert codec.decode(np.array([2]), is_single=True) == 2
