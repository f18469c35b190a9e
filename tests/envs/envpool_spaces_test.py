"""EnvPool's declarations, repaired."""

import numpy as np
import pytest
from gymnasium import spaces

from seedzero.core import errors, packing
from seedzero.envs import envpool_env, gym_wrappers

FLOATS = np.finfo(np.float64)
UNBOUNDED = dict(low=FLOATS.tiny, high=FLOATS.max, dtype=np.float64)
MINIGRID = spaces.Dict(
    direction=spaces.Discrete(4),
    image=spaces.Box(0, 255, (7, 7, 3), np.uint8),
    mission=spaces.Box(0, 255, (96,), np.uint8),
)
ACTIONS = spaces.Discrete(3)


def read(observation, action=ACTIONS, wrappers=""):
    return envpool_env.read("Game-v1", observation, action, gym_wrappers.parse(wrappers))


def shown(spec):
    return [(array.name, array.shape, array.low, array.high) for array in spec.arrays]


def test_the_smallest_and_largest_numbers_are_no_bounds_and_others_are():
    count = spaces.Box(-(2**31), 2**31 - 1, (1,), np.int32)
    parts = dict(speed=spaces.Box(shape=(2,), **UNBOUNDED), angle=spaces.Box(-1.0, 1.0, (1,)), count=count)
    spec, _, _ = read(spaces.Dict(parts))
    none = (-np.inf, np.inf)
    assert shown(spec) == [("angle", (1,), -1, 1), ("count", (1,), *none), ("speed", (2,), *none)]


def test_minigrid_has_numbers_up_to_10_and_no_text():
    spec, encode, _ = read(MINIGRID)
    assert shown(spec) == [("direction", (4,), 0, 1), ("image", (7, 7, 3), 0, 10)]
    batch = {key: np.stack([part.sample()] * 2) for key, part in MINIGRID.spaces.items()}
    found = packing.unpack(spec.packed, encode(batch))
    np.testing.assert_array_equal(found["image"], batch["image"])
    np.testing.assert_array_equal(found["direction"].argmax(axis=1), batch["direction"])


def test_text_is_shown_where_a_filter_names_it():
    spec, encode, _ = read(MINIGRID, wrappers='[{"FilterObservation": {"filter_keys": ["image", "mission"]}}]')
    assert [(array.name, array.text) for array in spec.packed] == [("image", False), ("mission", True)]
    mission = np.arange(192, dtype=np.uint8).reshape(2, 96)
    batch = {"image": np.zeros((2, 7, 7, 3), np.uint8), "direction": np.zeros(2, np.int32), "mission": mission}
    np.testing.assert_array_equal(packing.unpack(spec.packed, encode(batch))["mission"], mission)


def test_text_alone_is_refused():
    with pytest.raises(errors.EnvironmentFailure, match=r"'Game-v1' .*mission"):
        read(MINIGRID, wrappers='[{"FilterObservation": {"filter_keys": ["mission"]}}]')


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((3, 48, 40), (48, 40, 3)),
        ((48, 40, 3), (48, 40, 3)),
        ((3, 7, 7), (3, 7, 7)),  # no image: too small
        ((40, 40, 40), (40, 40, 40)),
    ],
)
def test_images_with_channels_first_have_them_last(shape, expected):
    spec, encode, _ = read(spaces.Box(0, 255, shape, np.uint8))
    assert spec.observation_shape == expected
    batch = np.random.default_rng(0).integers(256, size=(2, *shape)).astype(np.uint8)
    np.testing.assert_array_equal(encode(batch), batch if shape == expected else batch.transpose(0, 2, 3, 1))


def test_bounds_of_the_users_own_are_those_of_the_actions():
    unbounded = spaces.Box(shape=(2,), **UNBOUNDED)
    spec, _, decode = read(ACTIONS_SEEN, unbounded, '[{"BoundAction": {"low": [0, -1], "high": 1}}]')
    np.testing.assert_array_equal(spec.action_bounds, [[0, -1], [1, 1]])
    decoded = decode(np.array([[1, -1]], np.float32))
    assert decoded.dtype == np.float64 and decoded.tolist() == [[1, -1]]
    with pytest.raises(errors.EnvironmentFailure, match="--env"):
        read(ACTIONS_SEEN, unbounded)


ACTIONS_SEEN = spaces.Box(-1.0, 1.0, (3,))


@pytest.mark.parametrize(
    ("wrappers", "said"),
    [
        ('["GrayscaleObservation"]', "only BoundAction and FilterObservation"),
        ('[{"BoundAction": {"low": 0, "high": 1}}]', "BoundAction"),
        ('[{"BoundAction": {"lowest": 0}}]', "lowest"),
        ('[{"FilterObservation": {"filter_keys": ["picture"]}}]', "direction, image"),
    ],
)
def test_wrappers_that_do_not_go_with_a_pool_are_refused(wrappers, said):
    with pytest.raises(errors.EnvironmentFailure, match=said):
        read(MINIGRID, wrappers=wrappers)
