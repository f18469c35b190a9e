"""DeepMind Lab's adapter against a stand-in with Lab's documented interface (stand_ins/deepmind_lab.py)."""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any

import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, packing, types
from seedzero.envs import dmlab, registry
from seedzero.monitoring.metrics import episodes

LEVEL = "explore_goal_locations_small"
STRAFE_LEFT, STRAFE_RIGHT, LOOK_LEFT = 2, 3, 4
STEPS = 20
"""Of an episode: 80 frames, 4 an action."""


@pytest.fixture
def lab() -> Any:
    """The stand-in, imported anew."""
    return importlib.import_module("deepmind_lab")


def _make(name: str = LEVEL, num_envs: int = 2, **changes: Any) -> dmlab.DMLab:
    settings = {
        key: changes.pop(key) for key in ("kwargs", "level_cache", "level_seeds", "frame_skip") if key in changes
    }
    return dmlab.DMLab(name, sections.EnvConfig(**settings), num_envs, **changes)


def _arrays(env: dmlab.DMLab, step: types.EnvStep) -> tuple[np.ndarray, list[str]]:
    """Returns images and instructions."""
    found = packing.unpack(env.spec.packed, step.observation)
    return found["image"], [bytes(row).rstrip(b"\0").decode() for row in found["instruction"]]


def _act(env: dmlab.DMLab, action: int) -> types.EnvStep:
    return env.step(np.full(env.num_envs, action, np.int32))


def test_observations_are_lab_s_image_and_its_instruction(lab: Any) -> None:
    env = _make()
    assert [(array.name, array.shape, array.text) for array in env.spec.packed] == [
        ("image", (72, 96, 3), False), ("instruction", (128,), True),
    ]  # fmt: skip
    images, instructions = _arrays(env, env.reset([0, 1]))
    assert images.dtype == np.uint8 and images.shape == (2, 72, 96, 3)
    for index, made in enumerate(lab.made):
        shown = made.observations()
        assert np.array_equal(images[index], shown["RGB_INTERLEAVED"]) and instructions[index] == shown["INSTR"]


def test_each_action_is_seed_rl_s_and_held_for_four_frames(lab: Any) -> None:
    env = _make(num_envs=1)
    env.reset([0])
    for action in range(9):
        _act(env, action)
    assert env.spec.num_actions == 9 and env.spec.frames_per_step == 4
    forward, backward, left, right, look_left, look_right, *turning, fire = lab.made[0].actions
    assert (forward, backward) == ([0, 0, 0, 1, 0, 0, 0], [0, 0, 0, -1, 0, 0, 0])
    assert (left, right) == ([0, 0, -1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0])
    assert (look_left, look_right) == ([-20, 0, 0, 0, 0, 0, 0], [20, 0, 0, 0, 0, 0, 0])
    assert turning == [[-20, 0, 0, 1, 0, 0, 0], [20, 0, 0, 1, 0, 0, 0]] and fire == [0, 0, 0, 0, 1, 0, 0]
    assert lab.made[0].num_steps() == 9 * 4


def test_rewards_are_sums_over_the_frames_of_an_action(lab: Any) -> None:
    env = _make()
    _, instructions = _arrays(env, env.reset([0, 3]))
    signs = [1.0 if text == lab.RIGHT else -1.0 for text in instructions]
    assert _act(env, STRAFE_RIGHT).reward.tolist() == [4 * sign for sign in signs]
    assert _act(env, LOOK_LEFT).reward.tolist() == [0.0, 0.0]


def test_an_end_is_terminal_repeats_the_last_picture_and_another_level_follows(lab: Any) -> None:
    env = _make()
    step = env.reset([0, 1])
    for _ in range(STEPS - 1):
        before, step = step, _act(env, LOOK_LEFT)
        assert not step.final.any() and not np.array_equal(step.observation, before.observation)
    last = _act(env, STRAFE_LEFT)
    assert last.terminated.all() and not last.truncated.any() and np.array_equal(last.observation, step.observation)
    assert np.abs(last.reward).tolist() == [4.0, 4.0]
    first = _act(env, STRAFE_LEFT)  # ignored
    assert not first.final.any() and not first.reward.any()
    assert [made.num_steps() for made in lab.made] == [0, 0]
    assert all(len(set(made.seeds)) == 2 for made in lab.made)


def test_the_same_seeds_give_the_same_levels_in_every_order(lab: Any) -> None:
    env = _make()
    first, again = env.reset([5, 6]), env.reset([6, 5])
    assert np.array_equal(first.observation, again.observation[::-1])
    assert len(lab.made) == 2  # engines are kept


def test_so_many_seeds_are_used_as_the_settings_say(lab: Any) -> None:
    env = _make(level_seeds=3)
    for seed in range(20):
        env.reset([seed, seed + 100])
    assert set(lab.made[0].seeds) | set(lab.made[1].seeds) == {0, 1, 2}


def test_the_30_levels_are_spread_over_the_places_of_the_environments(lab: Any) -> None:
    env = _make("dmlab30", 4, indices=(28, 29, 30, 31))
    assert env.spec.tasks == dmlab.LEVELS and len(env.spec.tasks) == 30
    step = env.reset([0, 1, 2, 3])
    assert step.task is not None and step.task.tolist() == [28, 29, 0, 1]
    assert [made.level for made in lab.made] == [
        f"contributed/dmlab30/{dmlab.LEVELS[task]}" for task in (28, 29, 0, 1)
    ]
    assert _act(env, 0).tasks.tolist() == [28, 29, 0, 1]


def test_the_levels_are_those_with_published_scores() -> None:
    assert tuple(episodes.DMLAB_SCORES) == dmlab.LEVELS


def test_a_level_alone_is_no_task(lab: Any) -> None:
    env = _make("lt_chasm", 1, indices=(7,))
    assert env.spec.tasks == () and env.reset([0]).task is None
    assert lab.made[0].level == "lt_chasm"


def test_evaluation_holds_out_seeds_and_levels(lab: Any) -> None:
    _make("dmlab30", 2).reset([0, 1])
    _make("dmlab30", 2, role=types.Role.EVALUATE).reset([0, 1])
    training, _, first, second = lab.made
    assert "mixerSeed" not in training.config and "allowHoldOutLevels" not in training.config
    assert first.level == "contributed/dmlab30/rooms_collect_good_objects_test"
    assert first.config["allowHoldOutLevels"] == "true"
    assert first.config["mixerSeed"] == second.config["mixerSeed"] == str(0x600D5EED)


def test_lab_s_config_and_renderer_come_from_the_settings(lab: Any) -> None:
    env = _make(
        num_envs=1,
        kwargs='{"renderer": "hardware", "width": 128, "datasetPath": "/images", "hud": true}',
        frame_skip=8,
    )
    env.reset([0])
    made = lab.made[0]
    assert made.renderer == "hardware" and "renderer" not in made.config
    assert (made.config["width"], made.config["height"], made.config["datasetPath"]) == ("128", "72", "/images")
    assert made.config["hud"] == "true"
    assert env.spec.packed[0].shape == (72, 128, 3) and env.spec.frames_per_step == 8
    with pytest.raises(errors.EnvironmentFailure, match=r"--env\.kwargs"):
        _make(kwargs="[1]")


def test_engines_start_with_the_first_episode_and_end_with_the_environments(lab: Any) -> None:
    env = _make()
    assert lab.made == []
    env.reset([0, 1])
    env.close()
    assert len(lab.made) == 2 and all(made.is_closed for made in lab.made)


def test_engines_end_though_another_cannot_start_or_end(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env, make = _make(num_envs=3), lab.Lab

    def two(*args: Any, **kwargs: Any) -> Any:
        if len(lab.made) == 2:
            raise RuntimeError("no memory")
        return make(*args, **kwargs)

    def fail() -> None:
        raise RuntimeError("stuck")

    monkeypatch.setattr(lab, "Lab", two)
    with pytest.raises(errors.EnvironmentFailure, match="no memory"):
        env.reset([0, 1, 2])
    lab.made[0].close = fail
    with pytest.raises(RuntimeError, match="stuck"):
        env.close()
    assert lab.made[1].is_closed


def test_the_picture_is_the_image_enlarged(lab: Any) -> None:
    env = _make()
    images, _ = _arrays(env, env.reset([0, 1]))
    picture = env.render()
    assert picture.shape == (288, 384, 3) and np.array_equal(picture[::4, ::4], images[0])


def test_what_was_compiled_once_is_not_compiled_again(lab: Any, tmp_path: pathlib.Path) -> None:
    first = _make(level_cache=str(tmp_path / "levels"), level_seeds=4)
    for seed in range(20):
        first.reset([seed, seed])
    assert lab.num_compiled == 4
    second = _make(level_cache=str(tmp_path / "levels"), level_seeds=4)  # another worker, or another run
    second.reset([0, 1])
    assert lab.num_compiled == 4
    without = _make(level_seeds=4)
    without.reset([0, 1])
    assert lab.num_compiled == 6


def test_a_missing_lab_is_explained_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepmind_lab", None)
    with pytest.raises(errors.EnvironmentFailure) as error:
        registry.make("dmlab:dmlab30", sections.EnvConfig(), 1)
    text = str(error.value)
    assert "github.com/google-deepmind/lab" in text and "docker/worker-dmlab.Dockerfile" in text
    assert "pip install" not in text and "\n" not in text


def test_what_lab_refuses_is_named(lab: Any) -> None:
    env = _make("mine/unknown", 1)
    with pytest.raises(errors.EnvironmentFailure, match=r"'mine/unknown' .*: RuntimeE"):
        env.reset([0])
    with pytest.raises(errors.EnvironmentFailure, match=r"'room_watermaze'.*rooms_watermaze"):
        _make("room_watermaze")
