"""The mapping of EnvPool, on a stand-in of the package; with the package itself, what only that can show."""

import json

import envpool_standin
import numpy as np
import pytest

from seedzero.config import sections
from seedzero.core import errors, packages
from seedzero.envs import atari, envpool_env, registry

SEEDS = (3, 4)


@pytest.fixture
def standin(monkeypatch):
    monkeypatch.setattr(envpool_env, "PACKAGE", envpool_standin.__name__)


def make(name, num_envs=2, *, render=False, **settings):
    return envpool_env.EnvPool(name, num_envs, sections.EnvConfig(**settings), render=render)


def refusal(name, **settings):
    with pytest.raises(errors.EnvironmentFailure) as caught:
        make(name, **settings)
    return str(caught.value)


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr(envpool_env, "PACKAGE", "no_such_pool")
    assert "package no_such_pool" in refusal("Pong-v5")
    assert packages.install_command("envpool") in refusal("Pong-v5")
    registry.check_id("envpool:Pong-v5")  # a learner without the package leaves the id to its workers


@pytest.mark.usefixtures("standin")
@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        ("grid-empty-9x9-v0", {}, envpool_standin.GRID),
        ("?", {}, "it has"),
        (envpool_standin.BROKEN, {}, "install libxyz"),  # a reason of the library
        (envpool_standin.PAIR, {}, "2 players"),
        (envpool_standin.GRID, {"sise": 5}, "size?"),
        (envpool_standin.GRID, {"num_envs": 5}, "num_envs"),
        (envpool_standin.GRID, [1], "must be a JSON object"),
    ],
)
def test_what_no_pool_can_be_made_of_is_named(name, kwargs, said):
    assert said in refusal(name, kwargs=json.dumps(kwargs))


@pytest.mark.usefixtures("standin")
def test_an_unknown_id_is_answered_with_the_nearest_ones():
    with pytest.raises(errors.ConfigError, match=envpool_standin.GRID):
        registry.check_id("envpool:Grid-Emty-8x8-v0")


@pytest.mark.usefixtures("standin")
def test_qt_is_there_before_the_package_is_imported_and_only_procgen_needs_it(monkeypatch):
    asked = []
    monkeypatch.setattr(envpool_env, "load_qt", lambda: asked.append("load"))
    monkeypatch.setattr(envpool_env, "check_qt", asked.append)
    make(envpool_standin.GRID).close()
    assert set(asked) == {"load"}
    monkeypatch.setitem(envpool_standin.registration.registry.specs, envpool_standin.GRID, ("envpool.procgen", "", {}))
    make(envpool_standin.GRID).close()
    assert asked[0] == "load" and envpool_standin.GRID in asked


@pytest.mark.usefixtures("standin")
def test_kwargs_and_the_limit_of_steps_reach_the_pool():
    env = make(envpool_standin.BUTTONS, kwargs='{"stack_num": 2}', max_episode_steps=1)
    assert env.spec.observation_shape == (48, 40, 6)
    env.reset(SEEDS)
    assert env.step(np.zeros(2, np.int32)).truncated.all()


@pytest.mark.usefixtures("standin")
def test_images_have_their_channels_last_and_one_frame():
    env = make(envpool_standin.BUTTONS)
    assert env.spec.observation_shape == (48, 40, 3)
    assert env.spec.frames_per_step == 4
    assert env.spec.num_actions == 6
    raw = envpool_standin.make_gymnasium(
        envpool_standin.BUTTONS, seed=[3, 4], num_envs=2, num_threads=1, stack_num=1, use_combined_action=True
    ).reset()[0]
    np.testing.assert_array_equal(env.reset(SEEDS).observation, np.moveaxis(raw, 1, -1))


@pytest.mark.usefixtures("standin")
def test_frames_of_a_step_are_chosen():
    assert make(envpool_standin.BUTTONS, frame_skip=7).spec.frames_per_step == 7
    assert make(envpool_standin.BUTTONS, kwargs='{"frame_skip": 2}').spec.frames_per_step == 2


@pytest.mark.usefixtures("standin")
def test_ids_that_differ_in_their_letters_size_alone_are_two(monkeypatch):
    names = ["Highway-v0", "highway-v0"]
    monkeypatch.setattr(envpool_standin, "list_all_envs", lambda: names)
    for name in names:
        envpool_env.check_id(name)
    with pytest.raises(errors.EnvironmentFailure, match=r"'HIGHWAY-v0'; .*highway-v0"):
        envpool_env.check_id("HIGHWAY-v0")


@pytest.mark.usefixtures("standin")
def test_unbounded_actions_need_bounds():
    buttons = '{"use_combined_action": false}'
    assert "BoundAction" in refusal(envpool_standin.BUTTONS, kwargs=buttons)
    bounds = '[{"BoundAction": {"low": 0, "high": 1}}]'
    env = make(envpool_standin.BUTTONS, kwargs=buttons, wrappers=bounds)
    np.testing.assert_array_equal(env.spec.action_bounds, [[0, 0, 0], [1, 1, 1]])
    env.reset(SEEDS)
    env.step(np.ones((2, 3), np.float32))


@pytest.mark.usefixtures("standin")
def test_pictures_are_the_pools_and_mujocos_are_refused():
    env = make(envpool_standin.GRID, render=True)
    env.reset(SEEDS)
    env.step(np.zeros(2, np.int32))
    np.testing.assert_array_equal(env.render(), np.ones((8, 8, 3), np.uint8))
    with pytest.raises(errors.EnvironmentFailure, match="gym:ID"):
        make(envpool_standin.LIMBS, render=True)


# With EnvPool itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def pool():
    pytest.importorskip("envpool")


def both(game, num_envs=1, **settings):
    """Returns a game by ALE's vector environment and by EnvPool, without chance, EnvPool's one no-op frame ahead."""
    chosen = sections.EnvConfig(**{"sticky_actions": 0.0, **settings})
    return atari.Atari(game, chosen, num_envs), envpool_env.EnvPool(f"{game}-v5", num_envs, chosen)


def rewarded(env, num_steps, action=0):
    """Returns the numbers of the steps with a reward, under one action."""
    env.reset((3,))
    rewards = [env.step(np.array([action], np.int32)).reward[0] for _ in range(num_steps)]
    return np.flatnonzero(rewards)


@pytest.mark.usefixtures("pool")
def test_atari_by_envpool_is_the_same_game_as_by_ale_frame_by_frame():
    ale, pool = both("Pong", frame_skip=1)
    assert ale.spec == pool.spec
    ale.reset((3,))
    step, other = ale.step(np.zeros(1, np.int32)), pool.reset((3,))
    actions = np.random.default_rng(0).integers(ale.spec.num_actions, size=(300, 1)).astype(np.int32)
    for action in actions:
        np.testing.assert_array_equal(step.observation, other.observation)
        np.testing.assert_array_equal(step.reward, other.reward)
        step, other = ale.step(action), pool.step(action)


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("frame_skip", [3, 4])
def test_both_take_the_same_emulator_frames_a_step(frame_skip):
    ale, pool = (rewarded(env, 400) for env in both("Pong", frame_skip=frame_skip))
    assert len(ale) == len(pool) > 5
    assert np.abs(ale - pool).max() <= 1  # the no-op frame


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize(("sticky_actions", "sticks"), [(0.0, False), (1.0, True)])
def test_both_repeat_the_previous_action_of_the_emulator_alike(sticky_actions, sticks):
    for env in both("Pong", num_envs=2, sticky_actions=sticky_actions):
        env.reset((3, 3))
        for _ in range(60):
            step = env.step(np.array([2, 3], np.int32))  # UP, RIGHT: the paddle moves up, or down
        assert np.array_equal(*step.observation) == sticks


@pytest.mark.usefixtures("pool")
def test_sticky_actions_are_drawn_for_each_emulator_frame_in_both():
    """A new action is taken after p / (1 - p) = 1 frame on average; no-ops are no-ops, repeated or not."""
    means = []
    for env in both("Pong", num_envs=48, sticky_actions=0.5, frame_skip=1):
        seen = {}
        for action in (0, 2):
            env.reset(range(48))
            for _ in range(20):
                env.step(np.zeros(48, np.int32))
            seen[action] = [env.step(np.full(48, action, np.int32)).observation for _ in range(15)]
        differs = [(up != still).any(axis=(1, 2, 3)) for still, up in zip(seen[0], seen[2], strict=True)]
        means.append(np.mean(np.argmax(differs, axis=0)))
    assert means[0] - means[1] == pytest.approx(0, abs=0.5)


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("life_loss", [False, True])
def test_both_end_episodes_by_lives_alike(life_loss):
    ends = []
    for env in both("Breakout", life_loss=life_loss, full_action_space=False):
        env.reset((3,))
        flags = [env.step(np.array([number % 2], np.int32)).terminated[0] for number in range(170)]
        ends.append(np.flatnonzero(flags))
    ale, pool = ends
    assert len(ale) == len(pool) == (6 if life_loss else 1)
    assert np.abs(ale - pool).max() <= 8  # EnvPool waits for a frame or two more behind each lost life


@pytest.mark.usefixtures("pool")
def test_envpool_is_imported_without_jax():
    import subprocess
    import sys

    code = "import sys; from seedzero.envs import envpool_env; envpool_env.load(); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
