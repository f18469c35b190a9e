import importlib

import numpy as np
import pytest

from seedzero.config import families, sections
from seedzero.core import errors, types
from seedzero.envs import atari, catch, gym_env, registry, spiel


@pytest.mark.parametrize(
    "env_id",
    [
        *(family.offers[0].example for family in families.FAMILIES),
        "gym:CartPole",
        "gym:somebody:Their-v0",
        "atari:ms_pacman",
        "gym:MinAtar/Breakout-v1",
        "gym:MinAtar/Seaquest",
        "spiel:connect_four(rows=4,columns=5)",
        "dmlab:dmlab30",
        "dmlab:rooms_collect_good_objects_test",
        "dmlab:lt_chasm",
        "dmlab:mine/maze",
        "memory:repeat-4",
        "memory:cartpole",
    ],
)
def test_right_ids_are_known(env_id):
    registry.check_id(env_id)


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [
        ("", families.FORMS),
        ("python:my_module", "environment 'python:my_module': 'my_module' is not complete; expected MODULE:FUNCTION"),
        ("cathc", "did you mean catch"),
        ("catch:1", "did you mean catch"),
        ("Gym:CartPole-v1", "did you mean gym:ID"),
        ("gym:", "gym:CartPole-v1"),
        ("gym:CartPol-v1", "Did you mean: `CartPole`"),
        ("gym:CartPole-v7", "Gymnasium does not know 'CartPole-v7'; did you mean gym:CartPole-v1?"),
        ("gym:MyEnv", "for your own write python:MODULE:CLASS, or gym:MODULE:ID if MODULE registers ID"),
        ("gym::CartPole-v1", "gym:MODULE:ID"),
        ("gym:module:", "gym:MODULE:ID"),
        ("gym:minatar/Breakout-v1", "Did you mean: `MinAtar`"),
        ("gym:MinAtar/Brekout-v1", "Did you mean: `Breakout`"),
        ("atari", "atari:GAME"),
        ("atari:Breakot", "did you mean breakout"),
        ("atari:Chess960", "video_chess|pong"),
        ("spiel", "did you mean spiel:GAME, as in spiel:tic_tac_toe"),
        ("spiel:tictactoe", "'spiel:tictactoe': OpenSpiel has no game 'tictactoe'; did you mean tic_tac_toe"),
        ("spiel:hanabi", "it has hidden information"),
        ("CartPole-v1", "unknown environment 'CartPole-v1'; did you mean gym:CartPole-v1? `seedzero envs` lists all"),
        ("cartpole", "did you mean gym:CartPole-v1?"),
        ("Pong", "did you mean atari:Pong?"),
        ("ALE/MsPacman-v5", "did you mean atari:MsPacman?"),
        ("gym:ALE/MsPacman-v4", "did you mean atari:MsPacman (Atari"),
        ("gym:Pong-v5", "did you mean atari:Pong "),
        ("MinAtar/Breakout-v1", "did you mean gym:MinAtar/Breakout-v1?"),
        ("my_module:MyEnv-v0", "did you mean gym:my_module:MyEnv-v0?"),
        ("my_module:MyEnv", "did you mean python:my_module:MyEnv?"),
        ("./envs/my_module.py:MyEnv", "did you mean python:envs.my_module:MyEnv?"),
        ("nonsense", "football:SCENARIO | pettingzoo:module | pettingzoo:module:function | openenv:URL | remote"),
        ("dmlab", "did you mean dmlab:LEVEL, as in dmlab:rooms_watermaze"),
        ("dmlab:watermaze", "'dmlab:watermaze': DeepMind Lab has no game 'watermaze'; did you mean rooms_watermaze"),
        ("memory", "did you mean memory:TASK, as in memory:tmaze-20"),
        ("memory:tmaze", "tmaze-LENGTH, repeat-LAG (numbers from 1 to 1000) or cartpole"),
        ("memory:repeat-1001", "no memory task 'repeat-1001'"),
        ("envpool", "did you mean envpool:ID, as in envpool:MiniGrid-Empty-8x8-v0"),
        ("football", "did you mean football:SCENARIO, as in football:academy_empty_goal"),
        ("football:academy_empty", "did you mean academy_empty_goal"),
        ("remot", "did you mean remote"),
    ],
)
def test_wrong_ids_are_refused_with_the_nearest_right_one(env_id, hint):
    with pytest.raises(errors.ConfigError) as error:
        registry.check_id(env_id)
    assert any(text in str(error.value) for text in (hint.split("|") if "video" in hint else [hint]))


@pytest.mark.parametrize(
    ("env_id", "num_players", "shape"),
    [
        ("catch", 1, (10, 5, 1)),
        ("atari:Pong", 1, (84, 84, 1)),
        ("gym:CartPole-v1", 1, (4,)),
        ("gym:Pendulum-v1", 1, (3,)),
        ("gym:MinAtar/Breakout-v1", 1, (10, 10, 4)),
        ("spiel:tic_tac_toe", 2, (3, 3, 4)),
    ],
)
def test_a_spec_decides_agent_preset_and_network(env_id, num_players, shape):
    spec = registry.spec(sections.EnvConfig(id=env_id, frame_size=84))
    assert (spec.num_players, spec.is_continuous) == (num_players, "Pendulum" in env_id)
    assert spec.observation_shape == shape


@pytest.mark.parametrize(
    ("env_id", "threshold"),
    [
        ("gym:CartPole-v1", 475.0),
        ("gym:CartPole", 475.0),
        ("gym:Pendulum-v1", None),
        ("gym:Nothing", None),
        ("catch", None),
    ],
)
def test_the_threshold_is_that_of_the_newest_version(env_id: str, threshold: float | None) -> None:
    assert registry.reward_threshold(sections.EnvConfig(id=env_id)) == threshold


def test_an_environment_that_cannot_be_made_has_no_spec():
    with pytest.raises(errors.EnvironmentFailure, match=r"ClipAction\(\) "):
        registry.spec(sections.EnvConfig(id="gym:CartPole-v1", wrappers='["ClipAction"]'))


def test_blackjacks_three_numbers_are_three_arrays():
    spec = registry.spec(sections.EnvConfig(id="gym:Blackjack-v1"))
    assert [(array.name, array.shape) for array in spec.arrays] == [("0", (32,)), ("1", (11,)), ("2", (2,))]


def test_make_finds_the_family():
    settings = sections.EnvConfig()
    assert isinstance(registry.make("catch", settings, 2), catch.Catch)
    assert isinstance(registry.make("gym:CartPole-v1", settings, 2), gym_env.GymVectorEnv)
    assert isinstance(registry.make("atari:Pong", settings, 1), atari.Atari)
    assert isinstance(registry.make("spiel:tic_tac_toe", settings, 1), spiel.Games)


def test_games_are_played_against_random_moves_where_they_are_evaluated():
    settings = sections.EnvConfig()
    training = registry.make("spiel:tic_tac_toe", settings, 2)
    evaluation = registry.make("spiel:tic_tac_toe", settings, 2, role=types.Role.EVALUATE)
    assert training.reset([0, 0]).action_mask.sum(axis=1).tolist() == [9, 9]
    assert evaluation.reset([0, 0]).action_mask.sum(axis=1).tolist() == [9, 8]
    assert training.spec == evaluation.spec


@pytest.mark.parametrize(
    ("env_id", "other"),
    [
        ("gym:ALE/MsPacman-v5", "--env=atari:MsPacman"),
        ("gym:ALE/MsPacman", "--env=atari:MsPacman"),
        ("gym:PongNoFrameskip-v4", "--env=atari:Pong"),
        ("gym:ALE/Nothing-v5", ""),
        ("gym:CartPole-v1", ""),
        ("atari:Pong", ""),
    ],
)
def test_advice_names_the_id_with_the_usual_preprocessing(env_id, other):
    advice = registry.advice(env_id)
    assert other in advice if other else advice == ""


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [
        ("chess", "expected catch"),
        ("gym:", "gym:ID"),
        ("atari:", "atari:GAME"),
        ("spiel:", "spiel:GAME"),
        ("remote", "own"),
    ],
)
def test_make_refuses_what_it_cannot_make(env_id, hint):
    with pytest.raises(errors.EnvironmentFailure, match=hint):
        registry.make(env_id, sections.EnvConfig(), 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "module", "listing", "least"),
    [("spiel", "pyspiel", "registered_names", 80), ("pgx", "pgx", "available_envs", 14)],
)
def test_every_game_of_a_library_plays_or_is_rejected_in_one_line(kind, module, listing, least):
    names = getattr(importlib.import_module(module), listing)()
    random, played = np.random.default_rng(0), []
    for name in names:
        settings = sections.EnvConfig(id=f"{kind}:{name}")
        try:
            num_rows = max(1, registry.spec(settings).num_seats(types.Role.TRAIN))
            env = registry.make(settings.id, settings, num_rows)
            step = env.reset(range(num_rows))
            for _ in range(5):
                mask = (
                    np.ones((num_rows, env.spec.num_actions), bool) if step.action_mask is None else step.action_mask
                )
                step = env.step(np.where(mask, random.random(mask.shape), -1).argmax(axis=1).astype(np.int32))
            played.append(name)
        except errors.EnvironmentFailure as refusal:
            assert name in str(refusal) and "\n" not in str(refusal)
    assert len(names) > len(played) >= least
