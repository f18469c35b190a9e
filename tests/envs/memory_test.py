import numpy as np
import pytest

from seedzero.core import errors
from seedzero.envs import memory

SEEDS = tuple(range(20))


def _maze(length=3):
    """Returns twenty T-mazes, their first step, and the turns [20] that their cues ask for."""
    env = memory.make(f"tmaze-{length}", len(SEEDS))
    step = env.reset(SEEDS)
    return env, step, np.where(step.observation[:, 0] == 1, memory.UP, memory.DOWN)


def _all(action):
    return np.full(len(SEEDS), action, np.int32)


def test_the_cue_of_a_t_maze_is_shown_at_the_start_alone_and_differs():
    env, step, turns = _maze()
    assert set(turns.tolist()) == {memory.UP, memory.DOWN}
    assert np.all(step.observation.sum(axis=1) == 1)
    seen = [env.step(_all(memory.FORWARD)).observation for _ in range(3)]
    assert np.argmax(seen, axis=2).tolist() == [[2] * 20, [2] * 20, [3] * 20]


def test_a_turn_ends_the_episode_with_the_reward_of_the_cue():
    env, _, turns = _maze()
    for _ in range(3):
        step = env.step(_all(memory.FORWARD))
        assert not step.reward.any() and not step.terminated.any()
    step = env.step(np.where(np.arange(20) < 10, turns, memory.UP + memory.DOWN - turns).astype(np.int32))
    assert step.reward.tolist() == [1.0] * 10 + [-1.0] * 10
    assert step.terminated.all() and not step.truncated.any()
    following = env.step(_all(memory.FORWARD))
    assert np.all(following.observation[:, :2].sum(axis=1) == 1) and not following.reward.any()
    assert np.argmax(env.step(_all(memory.FORWARD)).observation, axis=1).tolist() == [2] * 20


def test_standing_still_costs_and_the_episode_is_truncated():
    env, _, _ = _maze()
    for _ in range(39):
        step = env.step(_all(memory.UP))
        np.testing.assert_allclose(step.reward, -0.1)
        assert not step.truncated.any()
    step = env.step(_all(memory.DOWN))
    assert step.truncated.all() and not step.terminated.any()


def test_forward_at_the_junction_stands_still():
    env, _, turns = _maze(1)
    env.step(_all(memory.FORWARD))
    np.testing.assert_allclose(env.step(_all(memory.FORWARD)).reward, -0.1)
    assert env.step(turns.astype(np.int32)).reward.tolist() == [1.0] * 20


@pytest.mark.parametrize("lag", [1, 4])
def test_repeating_the_symbol_of_lag_steps_ago_earns_every_reward(lag):
    env = memory.make(f"repeat-{lag}", len(SEEDS))
    step, total = env.reset(SEEDS), np.zeros(len(SEEDS))
    seen, num_steps = [step.observation.argmax(axis=1)], 0
    while not step.truncated.any():
        step = env.step(seen[max(0, num_steps - lag)].astype(np.int32))
        seen.append(step.observation.argmax(axis=1))
        total, num_steps = total + step.reward, num_steps + 1
    assert step.truncated.all() and not step.terminated.any()
    assert num_steps == lag + memory.NUM_SCORED
    assert total.tolist() == [memory.NUM_SCORED] * len(SEEDS)
    assert set(np.ravel(seen).tolist()) == set(range(memory.NUM_SYMBOLS))
    following = env.step(_all(0))
    assert not following.reward.any() and not following.truncated.any()


def test_a_wrong_symbol_earns_nothing():
    env = memory.make("repeat-1", len(SEEDS))
    before = env.reset(SEEDS).observation.argmax(axis=1)
    env.step(_all(0))
    after = (before + 1) % memory.NUM_SYMBOLS
    assert not env.step(after.astype(np.int32)).reward.any()


def test_cartpole_shows_positions_alone():
    env = memory.make("cartpole", 2)
    step = env.reset((1, 2))
    assert step.observation.shape == (2, 2)
    assert env.spec.observation_shape == (2,) and env.spec.num_actions == 2
    following = env.step(np.zeros(2, np.int32))
    assert np.abs(following.observation - step.observation).max() < 0.01  # velocities jump by 0.2
    env.close()


def test_pictures_follow_the_task():
    for name in ("tmaze-3", "repeat-1"):
        env = memory.make(name, 1)
        env.reset((5,))
        pictures = [env.render()]
        for _ in range(3):
            env.step(np.zeros(1, np.int32))
            pictures.append(env.render())
        assert pictures[0].dtype == np.uint8 and pictures[0].shape[2] == 3
        assert any(np.any(picture != pictures[0]) for picture in pictures[1:])


@pytest.mark.parametrize("name", ["", "tmaze", "tmaze-0", "tmaze-1001", "repeat--1", "repeat-2x", "Cartpole"])
def test_other_tasks_are_refused(name):
    with pytest.raises(errors.EnvironmentFailure, match=r"tmaze-LENGTH.*\b1\b.*\b1000\b"):
        memory.make(name, 1)
