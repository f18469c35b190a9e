import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors
from seedzero.envs import atari

FIRE = np.array([1], np.int32)
NOOP = np.array([0], np.int32)


def make(game="breakout", num_envs=1, **settings):
    return atari.Atari(game, sections.EnvConfig(**settings), num_envs, threads=1)


@pytest.mark.thorough
@pytest.mark.parametrize("frame_skip", [1, 4, 5])
def test_a_step_emulates_exactly_frame_skip_frames(frame_skip):
    env = make("pong", num_envs=2, frame_skip=frame_skip)
    env.reset([0, 1])
    assert env.spec.frames_per_step == frame_skip
    assert env.frame_numbers.tolist() == [0, 0]
    for number in range(1, 6):
        env.step(np.zeros(2, np.int32))
        assert env.frame_numbers.tolist() == [number * frame_skip] * 2


@pytest.mark.parametrize("noop_max", [0, 30])
def test_episodes_are_truncated_after_their_steps_and_begin_anew(noop_max):
    env = make("pong", max_episode_steps=10, noop_max=noop_max)
    first = env.reset([3])
    assert bool(env.frame_numbers[0]) == bool(noop_max)
    truncated = [bool(env.step(NOOP).truncated[0]) for _ in range(10)]
    assert truncated == [False] * 9 + [True]
    again = env.step(NOOP)
    assert not again.truncated[0]
    assert noop_max or np.array_equal(first.observation, again.observation)
    assert [bool(env.step(NOOP).truncated[0]) for _ in range(10)] == truncated


def test_only_the_truncated_environment_is_reset():
    env = make("breakout", num_envs=2)
    env.reset([3, 4])
    env._frame_limit = np.array([40, 108_000])
    for _ in range(10):
        step = env.step(np.zeros(2, np.int32))
    assert step.truncated.tolist() == [True, False]
    before = env.frame_numbers.copy()
    step = env.step(np.zeros(2, np.int32))
    assert step.truncated.tolist() == [False, False]
    assert (env.frame_numbers - before)[1] == 4


def test_a_truncated_episode_shows_its_newest_frame():
    limited, endless = make(max_episode_steps=10), make()
    limited.reset([3])
    endless.reset([3])
    for _ in range(10):
        step, expected = limited.step(FIRE), endless.step(FIRE)
        np.testing.assert_array_equal(step.observation, expected.observation)
    assert step.truncated[0]


def test_a_lost_life_ends_the_episode_only_where_asked_and_the_game_goes_on():
    lives, whole = make(life_loss=True, sticky_actions=0.0), make(sticky_actions=0.0)
    new_game = lives.reset([0]).observation
    whole.reset([0])
    final, new_games, game_ends = False, [], []
    for number in range(140):
        step = lives.step(FIRE)
        if final:
            new_games.append(np.array_equal(step.observation, new_game))
        final = bool(step.terminated[0])
        if whole.step(FIRE).terminated[0]:
            game_ends.append(number)
    # Breakout has five lives: the fifth's end is the game's.
    assert new_games[:5] == [False] * 4 + [True]
    assert len(game_ends) == 1


@pytest.mark.thorough
def test_sticky_actions_come_from_the_configuration():
    def frames(sticky):
        env = make("pong", num_envs=2, sticky_actions=sticky)
        env.reset(range(2))
        for number in range(60):
            step = env.step(np.full(2, 3 + number // 5 % 2, np.int32))
        return step.observation

    certain, sticky = frames(0.0), frames(0.25)
    assert np.all(certain == certain[0])
    assert not np.all(sticky == sticky[0])


def test_rewards_are_not_clipped():
    env = make("ms_pacman")
    env.reset([0])
    rewards = [env.step(np.array([4], np.int32)).reward[0] for _ in range(120)]
    assert np.max(rewards) >= 10


@pytest.mark.thorough
def test_noop_starts_have_at_most_noop_max_frames():
    env = make("pong", num_envs=6, noop_max=1)
    env.reset(range(6))
    assert set(env.frame_numbers.tolist()) == {0, 1}


@pytest.mark.parametrize(("full", "expected"), [(True, 18), (False, 4)])
def test_action_set_comes_from_the_configuration(full, expected):
    spec = make("breakout", full_action_space=full).spec
    assert spec.num_actions == expected and spec.action_names[:4] == (
        ("NOOP", "FIRE", "UP", "RIGHT") if full else ("NOOP", "FIRE", "RIGHT", "LEFT")
    )


def test_frames_have_the_configured_size():
    env = make("pong", frame_size=84)
    assert env.spec.observation_shape == (84, 84, 1)
    assert env.reset([0]).observation.shape == (1, 84, 84, 1)


def script_ends(env, *ends):
    """Has a single game end, or go on, step by step, with a reward of 7; returns a list of the actions from now on."""
    script, actions_taken, real = iter(ends), [], env._envs.step

    def step(actions):
        actions_taken.append(int(actions[0]))
        observation, _, _, truncated, info = real(actions)
        return observation, np.array([7]), np.array([next(script)]), truncated, info

    env._envs.step = step
    return actions_taken


@pytest.mark.parametrize(
    ("settings", "ends", "terminated", "truncated"),
    [
        (dict(life_loss=True), [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]),  # below a first observation: a step later
        (dict(max_episode_steps=2), [0, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]),  # after the limit: not at all
    ],
)
def test_an_end_that_no_step_of_the_episode_shows(settings, ends, terminated, truncated):
    env = make(**settings)
    env.reset([0])
    done = script_ends(env, *map(bool, ends))
    seen = [env.step(FIRE) for _ in range(4)]
    assert [bool(step.terminated[0]) for step in seen] == [bool(end) for end in terminated]
    assert [bool(step.truncated[0]) for step in seen] == [bool(end) for end in truncated]
    firsts = [False, *(bool(step.final[0]) for step in seen[:-1])]
    assert [float(step.reward[0]) for step in seen] == [0.0 if first else 7.0 for first in firsts]
    assert done == [atari.NOOP if first else FIRE[0] for first in firsts]


@pytest.mark.parametrize(
    ("name", "found"),
    [*((name, "pong") for name in ("Pong", "PONG")), *((name, "ms_pacman") for name in ("MsPacman", "ms_pacman"))],
)
def test_games_are_found_in_any_case_and_in_camel_and_snake_case(name, found):
    assert atari.rom_name(name) == atari.rom_name(found) == found


def test_an_unknown_game_is_refused_with_the_nearest():
    with pytest.raises(errors.EnvironmentFailure, match=r"'Breakot'; .*breakout"):
        make("Breakot")


def test_the_colour_picture_follows_the_grayscale_game_over_episodes():
    settings = sections.EnvConfig(frame_size=210, max_episode_steps=15)
    env = atari.Atari("pong", settings, 2, threads=1, render=True)
    env.reset([7, 8])
    rng = np.random.default_rng(0)
    luminance = np.array([0.2989, 0.587, 0.114])
    for _ in range(40):
        step = env.step(rng.integers(0, 18, 2).astype(np.int32))
        # The frame is 210 wide, the picture 160: means of a row agree but for rounding.
        np.testing.assert_allclose(
            (env.render() @ luminance).mean(axis=1), step.observation[0, :, :, 0].mean(axis=1), atol=1.0
        )


def test_rendering_must_be_asked_for():
    env = make("pong")
    env.reset([0])
    with pytest.raises(errors.EnvironmentFailure, match="render=True"):
        env.render()
