"""Football's rewards and pictures by hand, its family on a stand-in, and what they rest on with EnvPool itself."""

import envpool_standin
import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import envpool_env, football, registry

SCENARIO = "football:academy_empty_goal"
RIGHT = 5


def ball_at(column, row=36):
    """Returns a plane [1, 72, 96]; None: without a ball."""
    plane = np.zeros((1, 72, 96), np.uint8)
    if column is not None:
        plane[0, row, column] = 255
    return plane


def bonus(column, *, row=36, owned=True, score=0.0, collected=0):
    reward, total = football.checkpoint_rewards(
        ball_at(column, row), np.array([owned]), np.array([score]), np.array([collected])
    )
    assert reward.dtype == np.float32
    return pytest.approx(float(reward[0])), int(total[0])


def test_the_first_checkpoint_is_a_distance_of_99_hundredths_the_last_one_19():
    # Column 47 ends at the middle line: its cell is 1.0104 away from the goal, the next one 0.9896.
    assert bonus(47) == (0.0, 0)
    assert bonus(48) == (0.1, 1)
    assert bonus(53) == (0.1 * 2, 2)  # 0.885, beyond 0.99 - 0.8 / 9 = 0.901
    assert bonus(85) == (0.1 * 9, 9)  # 0.219
    assert bonus(87) == (0.1 * 10, 10)  # 0.177
    assert bonus(95) == (0.1 * 10, 10)


def test_the_distance_counts_rows_in_the_units_of_columns():
    # Row 0 is 0.438 off the middle: hypot(0.177, 0.438) = 0.473, between the sixth (0.546) and the seventh (0.457).
    assert bonus(87, row=0) == (0.1 * 6, 6)


def test_a_checkpoint_counts_once_and_only_for_the_own_team():
    assert bonus(60, collected=4) == (0.0, 4)
    assert bonus(53, collected=1) == (0.1, 2)
    assert bonus(90, owned=False, collected=3) == (0.0, 3)
    assert bonus(None, collected=3) == (0.0, 3)


def test_a_goal_pays_what_is_left_and_one_against_nothing():
    assert bonus(48, owned=False, score=1.0, collected=4) == (0.1 * 6, 10)
    assert bonus(48, owned=False, score=-1.0, collected=4) == (0.0, 4)


@pytest.fixture
def standin(monkeypatch):
    monkeypatch.setattr(envpool_env, "PACKAGE", envpool_standin.__name__)


def returns(role=types.Role.TRAIN, **settings):
    """Returns the return of one whole episode of running right, and that of the next one's first step."""
    chosen = sections.EnvConfig(max_episode_steps=100, **settings)
    env = registry.make(SCENARIO, chosen if role is types.Role.TRAIN else chosen.of_evaluation, 2, role=role)
    env.reset((1, 2))
    total = np.zeros(2)
    for _ in range(48):
        step = env.step(np.full(2, RIGHT, np.int32))
        total += step.reward
    assert step.terminated.all()
    first = env.step(np.full(2, RIGHT, np.int32))
    assert not first.reward.any()
    return total.tolist(), env.step(np.full(2, RIGHT, np.int32)).reward.tolist()


@pytest.mark.usefixtures("standin")
def test_an_episode_with_a_goal_returns_one_and_with_checkpoints_two():
    assert returns() == ([1.0, 1.0], [0.0, 0.0])
    total, next_reward = returns(checkpoint_rewards=True)
    assert total == pytest.approx([2.0, 2.0])
    assert next_reward == pytest.approx([0.1, 0.1])  # the next episode has its own


@pytest.mark.usefixtures("standin")
def test_a_first_observation_has_no_reward_even_if_the_team_has_the_ball(monkeypatch):
    info = envpool_standin._Football._info
    monkeypatch.setattr(
        envpool_standin._Football, "_info", lambda pool: {**info(pool), "ball_owned_team": np.zeros(2, np.int32)}
    )
    total, next_reward = returns(checkpoint_rewards=True)
    assert total == pytest.approx([2.0, 2.0]) and next_reward == pytest.approx([0.1, 0.1])


@pytest.mark.usefixtures("standin")
def test_evaluation_counts_goals_alone():
    assert returns(types.Role.EVALUATE, checkpoint_rewards=True) == ([1.0, 1.0], [0.0, 0.0])


@pytest.mark.usefixtures("standin")
def test_the_picture_shows_the_newest_ball_on_the_pitch():
    env = registry.make(SCENARIO, sections.EnvConfig(), 1, render=True)
    env.reset((1,))
    env.step(np.array([RIGHT], np.int32))
    before = env.render()
    env.step(np.array([RIGHT], np.int32))
    after = env.render()
    assert before.shape == after.shape == (72 * 5, 96 * 8, 3)
    assert before.dtype == np.uint8
    assert np.any(before != after)


def test_a_picture_has_every_side_in_its_colour_with_the_ball_on_top():
    planes = np.zeros((72, 96, 4), np.uint8)
    planes[10, 20, football.LEFT] = planes[10, 20, football.BALL] = planes[0, 95, football.RIGHT] = 255
    picture = football.draw(planes)
    assert picture[52, 164].tolist() == [255, 255, 255]
    assert picture[52, 169].tolist() == [255, 213, 79]
    assert picture[2, 764].tolist() == [33, 33, 120]


def test_an_unknown_scenario_is_answered_with_the_nearest():
    with pytest.raises(errors.ConfigError, match="academy_empty_goal"):
        registry.check_id("football:academy_empty_gaol")
    with pytest.raises(errors.EnvironmentFailure, match="academy_empty_goal"):
        football.check_id("?")


# With EnvPool itself ------------------------------------------------------------------------------------------------


def test_the_scenarios_are_envpools():
    envpool = pytest.importorskip("envpool")
    names = {f"gfootball/{name}-v1" for name in football.SCENARIOS}
    assert names == {name for name in envpool.list_all_envs() if name.startswith("gfootball/")}


def test_the_third_plane_is_the_ball_which_its_owner_takes_to_the_goal():
    """What checkpoint rewards rest on: the ball's plane, the owner's team, and both units of the map."""
    pytest.importorskip("envpool")
    pool = envpool_env.EnvPool("gfootball/academy_pass_and_shoot_with_keeper-v1", 1, sections.EnvConfig())
    planes = pool.reset((1,)).observation[0]
    # The scenario's ball lies at (0.7, -0.28); its players stand at (-1, 0), (0.7, 0) and (0.7, -0.3).
    assert np.argwhere(planes[..., football.BALL]).tolist() == [[13, 81]]
    assert np.argwhere(planes[..., football.LEFT]).tolist() == [[11, 81], [36, 0], [36, 81]]
    env = registry.make(SCENARIO, sections.EnvConfig(checkpoint_rewards=True), 1)
    env.reset((1,))
    columns, rewards, steps = [], [], 0
    while not (step := env.step(np.array([RIGHT], np.int32))).final.any():
        balls = np.argwhere(step.observation[0, :, :, football.BALL])
        assert len(balls) == 1
        columns.append(int(balls[0, 1]))
        rewards.append(float(step.reward[0]))
        steps += 1
    assert columns == sorted(columns) and columns[-1] == 95
    assert step.terminated.all() and step.reward[0] == 1
    assert sum(rewards) == pytest.approx(1.0) and np.count_nonzero(rewards) == 10
