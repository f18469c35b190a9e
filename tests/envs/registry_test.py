import pytest

from seedzero.core import config, errors
from seedzero.envs import atari, catch, gym_env, registry


@pytest.mark.parametrize(
    "env_id",
    ["catch", "remote", "gym:CartPole-v1", "gym:CartPole", "gym:somebody:Their-v0", "atari:Pong", "atari:ms_pacman"],
)
def test_right_ids_are_known(env_id):
    registry.check_id(env_id)


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [
        ("", "catch | gym:ID | gym:module:ID | atari:GAME | remote"),
        ("cathc", "did you mean catch"),
        ("catch:1", "did you mean catch"),
        ("Gym:CartPole-v1", "did you mean gym:ID"),
        ("gym:", "gym:CartPole-v1"),
        ("gym:CartPol-v1", "Did you mean: `CartPole`"),
        ("gym:CartPole-v7", "`v1`"),
        ("gym::CartPole-v1", "gym:MODULE:ID"),
        ("gym:module:", "gym:MODULE:ID"),
        ("atari", "atari:GAME"),
        ("atari:Breakot", "did you mean breakout"),
        ("atari:Chess960", "video_chess|pong"),
        ("CartPole-v1", "gym:ID"),
        ("remot", "did you mean remote"),
    ],
)
def test_wrong_ids_are_refused_with_the_nearest_right_one(env_id, hint):
    with pytest.raises(errors.ConfigError) as error:
        registry.check_id(env_id)
    assert any(text in str(error.value) for text in (hint.split("|") if "video" in hint else [hint]))


def test_make_finds_the_family():
    settings = config.EnvConfig()
    assert isinstance(registry.make("catch", settings, 2), catch.Catch)
    assert isinstance(registry.make("gym:CartPole-v1", settings, 2), gym_env.GymVectorEnv)
    assert isinstance(registry.make("atari:Pong", settings, 1), atari.Atari)


@pytest.mark.parametrize(
    ("env_id", "hint"), [("chess", "expected catch"), ("gym:", "gym:ID"), ("atari:", "atari:GAME"), ("remote", "own")]
)
def test_make_refuses_what_it_cannot_make(env_id, hint):
    with pytest.raises(errors.EnvironmentFailure, match=hint):
        registry.make(env_id, config.EnvConfig(), 1)
