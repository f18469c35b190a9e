"""Masks of legal actions as Gymnasium environments show them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors
from seedzero.envs import check, gym_env, gym_masks

BOX = spaces.Box(0, 9, (1,), np.float32)
LEGAL = [np.array(mask, np.int8) for mask in ([0, 1, 1], [1, 0, 0], [0, 1, 0])]
PLACES = ("info", "method", "part")


class _Masked(gymnasium.Env[Any, Any]):
    """Raises for actions that its script of masks does not allow; an episode ends with the script."""

    def __init__(self, place: str = "info", masks: Any = LEGAL, taken: Any = None, is_cut: bool = False) -> None:
        self.action_space = taken or spaces.Discrete(3, start=5)
        self.observation_space: spaces.Space[Any] = BOX
        if place == "part":
            mask = spaces.Box(0, 1, masks[0].shape, np.int8)
            self.observation_space = spaces.Dict(observation=BOX, action_mask=mask)
        self._place, self._masks, self._now, self._is_cut = place, masks, 0, is_cut
        self.taken: list[Any] = []
        if place == "method":
            self.action_masks = self._mask

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._now = 0
        return self._show()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if isinstance(self.action_space, spaces.Discrete) and not self._is_legal(action):
            raise ValueError(f"illegal: {action}")
        self.taken.append(action)
        self._now += 1
        observation, info = self._show()
        is_over = self._now == len(self._masks) - 1
        return observation, 0.0, is_over and not self._is_cut, is_over and self._is_cut, info

    def _mask(self) -> Any:
        mask = self._masks[self._now]
        if isinstance(mask, Exception):
            raise mask
        return mask

    def _is_legal(self, action: Any) -> bool:
        mask = self._masks[self._now]
        return mask is None or bool(mask[action - 5])

    def _show(self) -> tuple[Any, dict[str, Any]]:
        mask, observation = self._masks[self._now], np.array([self._now], np.float32)
        if self._place == "part":
            return {"observation": observation, "action_mask": mask}, {}
        return observation, {"action_mask": mask} if self._place == "info" and mask is not None else {}


def _group(num_envs: int = 1, **arguments: Any) -> gym_env.GymVectorEnv:
    return gym_env.GymVectorEnv("mine", [lambda: _Masked(**arguments)] * num_envs)


@pytest.mark.parametrize("place", PLACES)
def test_each_place_gives_the_mask_beside_the_observation(place: str) -> None:
    env = _group(2, place=place)
    step = env.reset([0, 1])
    assert env.spec.has_action_mask and env.spec.num_actions == 3 and env.spec.observation_shape == (1,)
    assert step.action_mask is not None and step.action_mask.dtype == bool
    assert step.action_mask.tolist() == [[False, True, True]] * 2 and step.observation.tolist() == [[0], [0]]
    step = env.step(np.array([1, 2]))
    assert step.action_mask is not None and step.action_mask.tolist() == [[True, False, False]] * 2
    final = env.step(np.array([0, 0]))
    assert final.terminated.all() and final.action_mask is not None
    first = env.step(np.array([0, 0]))  # ignored, though illegal
    assert first.action_mask is not None and first.action_mask.tolist() == [[False, True, True]] * 2
    with pytest.raises(errors.EnvironmentFailure, match="illegal: 5"):
        env.step(np.array([0, 1]))


@pytest.mark.parametrize("place", PLACES)
def test_random_steps_before_training_are_legal(place: str) -> None:
    env = _group(place=place)
    env.try_out(20)
    assert env.spec.has_action_mask
    assert check.explore(env, 50).num_steps == 50


@pytest.mark.parametrize(
    ("place", "last"),
    [
        *((place, mask) for place in ("info", "method") for mask in (np.zeros(3), None, np.ones(4), np.full(3, 2))),
        ("method", LookupError("nobody asks here")),
        ("part", np.zeros(3, np.int8)),
    ],
)
def test_no_mask_is_read_in_a_terminal_state(place: str, last: Any) -> None:
    env = _group(place=place, masks=[np.ones(3, np.int8), last])
    env.reset([0])
    step = env.step(np.array([0]))
    assert step.terminated.all() and step.action_mask is not None and step.action_mask.all()


@pytest.mark.parametrize("place", PLACES)
def test_a_truncated_state_shows_its_mask(place: str) -> None:
    env = _group(place=place, masks=LEGAL[:2], is_cut=True)
    env.reset([0])
    step = env.step(np.array([1]))
    assert step.truncated.all() and step.action_mask is not None
    assert step.action_mask.tolist() == [[True, False, False]]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (np.zeros(3), "'mine' returned in step .*without a legal action, .*only truncated"),
        (
            LookupError("nobody asks here"),
            "'mine' raised in action_masks.*only truncated.*LookupError: nobody asks here",
        ),
    ],
    ids=["empty", "raises"],
)
def test_a_truncated_state_needs_a_mask(last: Any, told: str) -> None:
    env = _group(place="method", masks=[np.ones(3), last], is_cut=True)
    env.reset([0])
    with pytest.raises(errors.EnvironmentFailure, match=told):
        env.step(np.array([0]))


@pytest.mark.parametrize("size", ["joined", "tuple"])
def test_masks_of_several_numbers_allow_combinations_of_legal_ones(size: str) -> None:
    parts = np.array([1, 0], bool), np.array([0, 1, 1], bool)
    mask: Any = parts if size == "tuple" else np.concatenate(parts)
    env = _group(masks=[mask, mask, mask], taken=spaces.MultiDiscrete([2, 3], start=[1, 10]))
    step = env.reset([0])
    assert step.action_mask is not None and step.action_mask[0].tolist() == [False, True, True, *[False] * 3]
    env.step(np.array([2]))
    (taken,) = env.originals[0].taken
    assert taken.tolist() == [1, 12]


def test_several_rows_are_combined_at_once() -> None:
    rows = np.array([[True, False, True, True], [False, True, True, False]])
    expected = [[True, True, False, False], [False, False, True, False]]
    assert gym_masks.joint(rows, [2, 2]).tolist() == expected
    assert gym_masks.joint(rows, [4]) is not None and gym_masks.joint(rows, [4]).tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ([np.zeros(3)], "in reset an action_mask without a legal action"),
        ([np.ones(3), np.zeros(3), np.ones(3)], r"in step \(number 1 .*without a legal action"),
        ([np.ones(4)], r"in reset an action_mask of shape \[4\]; expected \[3\]"),
        ([np.ones(3), np.ones((1, 3)), np.ones(3)], r"in step \(number 1 .*shape \[1, 3\]"),
        ([np.array([1, 0.5, 0])], r"in reset .* the value 0\.5"),
        ([np.array([0, -np.inf, 1])], "in reset .* the value -inf"),
        ([np.array(["a", "b", "c"])], "in reset .* dtype <U1"),
        ([np.ones(3), None, np.ones(3)], r"in step \(number 1 .*no info\['action_mask'\], which its first reset had"),
        ([None, np.ones(3), np.ones(3)], r"in step \(number 1 .*info\['action_mask'\], which its first reset had not"),
    ],
)
def test_a_wrong_mask_is_named_with_environment_and_step(masks: Any, message: str) -> None:
    env = _group(masks=masks)
    with pytest.raises(errors.EnvironmentFailure, match=f"'mine' returned {message}"):
        env.reset([0])
        env.step(np.array([0]))


def test_masks_of_some_environments_alone_are_refused() -> None:
    makers = [lambda: _Masked(), lambda: _Masked(masks=[None] * 3)]
    with pytest.raises(errors.EnvironmentFailure, match=r"'mine'.*'action_mask'.*not each time it is made.*\b1\b"):
        gym_env.GymVectorEnv("mine", makers).reset([0, 1])


def test_a_part_of_another_length_is_refused_or_observed() -> None:
    with pytest.raises(errors.EnvironmentFailure, match=r"'mine'.*\[4\].*--env\.action_mask=false.*--env=python"):
        _group(place="part", masks=[np.ones(4, np.int8)]).reset([0])


@pytest.mark.parametrize("place", PLACES)
def test_masks_are_ignored_on_request(place: str) -> None:
    env = gym_env.GymVectorEnv("mine", [lambda: _Masked(place)], masks=False)
    assert env.reset([0]).action_mask is None and not env.spec.has_action_mask
    assert ("action_mask" in [array.name for array in env.spec.arrays]) == (place == "part")


def test_vectors_have_no_masks() -> None:
    env = _group(taken=spaces.Box(-1, 1, (2,)))
    assert env.reset([0]).action_mask is None and not env.spec.has_action_mask


def test_a_look_tells_where_masks_are_shown() -> None:
    settings = sections.EnvConfig(id="gym:Taxi-v4")
    found = check.look(settings, 20, 10.0)
    assert found.spec.has_action_mask and found.warnings.notes[0].startswith("info['action_mask'] ")
