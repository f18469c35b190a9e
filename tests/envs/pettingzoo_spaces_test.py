import numpy as np
import pytest
from gymnasium import spaces

from seedzero.core import errors
from seedzero.envs import pettingzoo_spaces


def box(size, low=-1.0, high=1.0, dtype=np.float32):
    return spaces.Box(low, high, (size,), dtype)


def masked(size, num_actions):
    return spaces.Dict(observation=box(size), action_mask=spaces.Box(0, 1, (num_actions,), np.int8))


def share(masks=True, **found):
    own = {agent: pettingzoo_spaces.Spaces(*pair) for agent, pair in found.items()}
    return pettingzoo_spaces.share("zoo", own, masks=masks)


def test_equal_spaces_are_those_of_each_agent():
    shared = share(ant=(box(3), spaces.Discrete(4, start=2)), bee=(box(3), spaces.Discrete(4, start=2)))
    spec = shared.spec
    assert (spec.seats, spec.tasks, spec.fixed_seats) == (("ant", "bee"), ("ant", "bee"), True)
    assert (spec.observation_shape, spec.num_actions, spec.has_action_mask) == ((3,), 4, False)
    assert (spec.observation_low, spec.observation_high) == (-1, 1)
    seen = np.array([0.5, -0.5, 1], np.float32)
    for seat in shared.seats:
        assert seat.padded(seen) is seen and not seat.has_mask_part
        assert seat.cut(shared.decode(np.array([0, 3]))[1]) == 5
    assert "Discrete" in spec.spaces


def test_a_single_agent_is_no_seat():
    spec = share(ant=(box(3), spaces.Discrete(4))).spec
    assert (spec.seats, spec.tasks, spec.fixed_seats) == ((), (), False)


def test_flat_observations_are_padded_with_zeros_and_the_bounds_hold_them():
    shared = share(ant=(box(1, 2, 3), spaces.Discrete(2)), bee=(box(3, 4, 9), spaces.Discrete(2)))
    assert shared.spec.observation_shape == (3,) and not shared.spec.has_action_mask
    assert (shared.spec.observation_low, shared.spec.observation_high) == (0, 9)
    np.testing.assert_array_equal(shared.seats[0].padded(np.array([2.5], np.float32)), [2.5, 0, 0])
    np.testing.assert_array_equal(shared.seats[1].padded(np.array([4, 5, 6], np.float32)), [4, 5, 6])
    unbounded = share(ant=(box(1, -np.inf, np.inf), spaces.Discrete(2)), bee=(box(2, 0, 1), spaces.Discrete(2))).spec
    assert (unbounded.observation_low, unbounded.observation_high) == (-np.inf, np.inf)


def test_of_other_dtypes_the_wider_holds_both():
    shared = share(ant=(box(1, 0, 9, np.uint8), spaces.Discrete(2)), bee=(box(2), spaces.Discrete(2)))
    assert shared.spec.observation_dtype == "float32"
    assert shared.seats[0].padded(np.array([7], np.uint8)).dtype == np.float32


def test_numbers_of_other_sizes_are_shown_one_hot_and_further_actions_are_masked():
    shared = share(ant=(spaces.Discrete(2), spaces.Discrete(5)), bee=(spaces.Discrete(4), spaces.Discrete(3)))
    assert (shared.spec.num_states, shared.spec.num_actions, shared.spec.has_action_mask) == (4, 5, True)
    assert [seat.sizes for seat in shared.seats] == [[5], [3]]
    assert share(masks=False, ant=(box(2), spaces.Discrete(5)), bee=(box(2), spaces.Discrete(3))).spec.has_action_mask


def test_masks_among_observations_are_left_out_of_them():
    pair = (masked(3, 2), spaces.Discrete(2))
    alike = share(ant=pair, bee=pair)
    assert alike.spec.observation_shape == (3,) and alike.spec.has_action_mask and alike.seats[0].has_mask_part
    apart = share(ant=pair, bee=(masked(5, 4), spaces.Discrete(4)))
    assert (apart.spec.observation_shape, apart.spec.num_actions, apart.spec.has_action_mask) == ((5,), 4, True)
    shown = {"observation": np.array([1, 1, 1], np.float32), "action_mask": np.array([0, 1], np.int8)}
    np.testing.assert_array_equal(apart.seats[0].padded(shown), [1, 1, 1, 0, 0])
    seen = share(masks=False, ant=pair, bee=pair).spec
    assert not seen.has_action_mask and [array.name for array in seen.packed] == ["observation", "action_mask"]


def test_shorter_continuous_actions_are_the_first_numbers():
    shared = share(
        ant=(box(3), box(1, 0, 2)), bee=(box(3), box(2, np.array([0, -1], np.float32), np.array([2, 1], np.float32)))
    )
    np.testing.assert_array_equal(shared.spec.action_bounds, [[0, -1], [2, 1]])
    batch = shared.decode(np.array([[0.5, 1], [2, -1]], np.float32))
    assert [shared.seats[row].cut(batch[row]).tolist() for row in range(2)] == [[0.5], [2, -1]]
    assert not shared.spec.has_action_mask


@pytest.mark.parametrize(
    "of_cat",
    [
        (spaces.Box(0, 1, (2, 2), np.float32), spaces.Discrete(2)),
        (box(3), box(2)),
        (spaces.Discrete(3), spaces.Discrete(2)),
        (box(3), spaces.Discrete(2, start=1)),
        (box(3), spaces.MultiDiscrete([2, 2])),
    ],
    ids=str,
)
def test_spaces_that_cannot_be_padded_are_refused_with_all_groups(of_cat):
    pair = (box(3), spaces.Discrete(2))
    with pytest.raises(errors.EnvironmentFailure, match=r"ant, bee: .* and actions Discrete\(2\); cat: "):
        share(ant=pair, bee=pair, cat=of_cat)


def test_the_refusal_says_what_would_do():
    with pytest.raises(errors.EnvironmentFailure, match=r"'zoo'.*\b1\.0\b.*\b1\.0\b.*\b3\b"):
        share(ant=(box(3), box(2)), bee=(box(3), box(3, -2, 1)))


def test_names_of_agents_are_told_apart():
    own = pettingzoo_spaces.Spaces(box(3), spaces.Discrete(2))
    with pytest.raises(errors.SpecMismatch, match="each once"):
        pettingzoo_spaces.share("zoo", {1: own, "1": own}, masks=True)
