import numpy as np

from seedzero.envs import catch


def columns(step):
    """Returns the columns of ball and paddle; the ball must not be in the last row."""
    boards = step.observation[..., 0]
    return boards[:, :-1].max(axis=1).argmax(axis=1), boards[:, -1].argmax(axis=1)


def test_a_board_shows_ball_and_paddle_as_lit_cells():
    env = catch.Catch(4)
    step = env.reset([0, 1, 2, 3])
    boards = step.observation[..., 0]
    assert boards.shape == (4, 10, 5)
    assert np.all(boards[:, 0].max(axis=1) == 255)
    assert np.all(boards[:, 9, 2] == 255)
    assert np.all((boards == 255).sum(axis=(1, 2)) == 2)


def test_the_ball_falls_a_row_a_step_and_the_episode_ends_after_nine():
    env = catch.Catch(1)
    ball, _ = columns(env.reset([0]))
    for row in range(1, 9):
        step = env.step(np.array([catch.STAY], np.int32))
        assert step.observation[0, row, ball[0], 0] == catch.LIT
        assert not step.terminated[0]
        assert step.reward[0] == 0
    step = env.step(np.array([catch.STAY], np.int32))
    assert step.terminated[0]
    assert not step.truncated[0]
    assert abs(step.reward[0]) == 1


def test_actions_move_the_paddle_and_stop_at_the_walls():
    env = catch.Catch(3)
    env.reset([0, 0, 0])
    positions = [columns(env.step(np.array([0, 1, 2], np.int32)))[1].tolist() for _ in range(4)]
    assert positions == [[1, 2, 3], [0, 2, 4], [0, 2, 4], [0, 2, 4]]


def test_following_the_ball_wins_and_fleeing_it_loses():
    env = catch.Catch(32)
    step = env.reset(range(32))
    ball, paddle = columns(step)
    flee = np.where(ball < 2, catch.RIGHT, catch.LEFT)
    follow = np.arange(32) < 16
    for _ in range(9):
        action = np.where(follow, np.sign(ball - paddle) + 1, flee)
        step = env.step(action.astype(np.int32))
        paddle = columns(step)[1] if not step.terminated.any() else paddle
    np.testing.assert_array_equal(step.reward, np.where(follow, 1, -1))
    assert step.terminated.all()


def test_balls_fall_in_every_column():
    env = catch.Catch(64)
    ball, _ = columns(env.reset(range(64)))
    assert set(ball.tolist()) == {0, 1, 2, 3, 4}
