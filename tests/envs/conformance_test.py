"""What every environment family promises (envs/env_base.py), run by each of them."""

import contextlib
import functools
import importlib.util

import envpool_standin
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors, packing, types
from seedzero.envs import envpool_env, registry

NUM_ENVS = 3
SEEDS = (11, 12, 13)


class Robot(gymnasium.Env):
    """Observations of several parts; an episode ends at any step by chance."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            camera=spaces.Box(0, 255, (8, 6, 3), np.uint8),
            arm=spaces.Dict(angle=spaces.Box(-1, 1, (3,), np.float64), gear=spaces.Discrete(3)),
            seen=spaces.Tuple([spaces.MultiBinary(4), spaces.Box(-5, 5, (), np.int32)]),
        )
        self.action_space = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        ends = self.np_random.random() < 0.1
        return self.observation_space.sample(), float(action.sum()), ends, False, {}


gymnasium.register("SeedzeroTest/Robot-v0", Robot)

HAS_BOX2D = importlib.util.find_spec("Box2D") is not None


def with_package(package, *values, name):
    """Returns a row that is skipped where its package is missing."""
    missing = importlib.util.find_spec(package) is None
    return pytest.param(*values, id=name, marks=pytest.mark.skipif(missing, reason=f"needs {package}"))


@pytest.fixture(autouse=True)
def _stand_in(request, monkeypatch):
    """Rows whose settings say so run on the stand-in of EnvPool."""
    if "standin" in request.node.name:
        monkeypatch.setattr(envpool_env, "PACKAGE", envpool_standin.__name__)


# (id, settings and role, steps in which every environment ends an episode under random actions)
SEEDED = [
    pytest.param("catch", {}, 30, id="catch"),
    pytest.param("gym:CartPole-v1", {}, 150, id="cartpole"),
    pytest.param("gym:Acrobot-v1", {}, 510, id="acrobot"),
    pytest.param("gym:Pendulum-v1", {}, 210, id="pendulum"),
    pytest.param("gym:FrozenLake-v1", {}, 120, id="one-hot"),
    pytest.param("gym:SeedzeroTest/Robot-v0", {}, 100, id="named-arrays"),
    pytest.param(
        "gym:LunarLander-v3", {}, 250, id="lunarlander", marks=pytest.mark.skipif(not HAS_BOX2D, reason="needs box2d")
    ),
    pytest.param(
        "python:gymnasium.envs.classic_control.cartpole:CartPoleEnv",
        dict(kwargs='{"sutton_barto_reward": true}', max_episode_steps=20),
        60,
        id="function",
    ),
    pytest.param("gym:MinAtar/Breakout-v1", {}, 150, id="minatar-breakout"),
    pytest.param("gym:MinAtar/SpaceInvaders-v1", {}, 400, id="minatar-space-invaders"),
    pytest.param("atari:Pong", dict(max_episode_steps=22), 60, id="atari-truncated"),
    pytest.param("atari:Breakout", dict(life_loss=True, frame_size=84), 200, id="atari-lives"),
    pytest.param("dmlab:rooms_watermaze", {}, 25, id="lab"),
    pytest.param("dmlab:dmlab30", {}, 25, id="lab-30"),
    pytest.param("memory:tmaze-3", {}, 90, id="t-maze"),
    pytest.param("memory:repeat-2", {}, 40, id="repeat"),
    pytest.param("memory:cartpole", {}, 150, id="cartpole-positions"),
    pytest.param(f"envpool:{envpool_standin.GRID}", {}, 50, id="standin-named-arrays"),
    pytest.param(f"envpool:{envpool_standin.BUTTONS}", {}, 50, id="standin-images"),
    pytest.param(f"envpool:{envpool_standin.LIMBS}", {}, 50, id="standin-continuous"),
    pytest.param("football:academy_empty_goal", dict(checkpoint_rewards=True), 50, id="standin-football"),
    with_package("mujoco", "gym:HalfCheetah-v5", dict(max_episode_steps=20), 50, name="gym-mujoco"),
    with_package(
        "minigrid",
        "gym:minigrid:MiniGrid-Empty-Random-5x5-v0",
        dict(wrappers='[{"FilterObservation": {"filter_keys": ["image", "direction"]}}]'),
        250,
        name="gym-minigrid",
    ),
    with_package("popgym", "popgym:RepeatPreviousEasy-v0", {}, 60, name="popgym-numbers"),
    with_package("popgym", "popgym:BattleshipEasy-v0", dict(max_episode_steps=20), 30, name="popgym-pairs"),
    with_package(
        "popgym", "popgym:PositionOnlyPendulumEasy-v0", dict(max_episode_steps=20), 50, name="popgym-vectors"
    ),
    with_package("envpool", "envpool:CartPole-v1", {}, 150, name="envpool-cartpole"),
    with_package("envpool", "envpool:MiniGrid-Empty-Random-5x5-v0", {}, 250, name="envpool-minigrid"),
    with_package("envpool", "envpool:HalfCheetah-v5", dict(max_episode_steps=20), 50, name="envpool-mujoco"),
    with_package("envpool", "envpool:CheetahRun-v1", dict(max_episode_steps=20), 50, name="envpool-dm-control"),
    with_package("envpool", "envpool:Basic-v1", dict(max_episode_steps=20), 50, name="envpool-vizdoom"),
    with_package("envpool", "envpool:Pong-v5", dict(max_episode_steps=22, noop_max=30), 60, name="envpool-atari"),
    with_package("envpool", "envpool:Breakout-v5", dict(life_loss=True), 200, name="envpool-lives"),
    with_package("envpool", "football:academy_empty_goal", dict(max_episode_steps=20), 50, name="football"),
    pytest.param("spiel:tic_tac_toe", dict(role=types.Role.EVALUATE), 40, id="tic-tac-toe-random"),
    pytest.param("spiel:connect_four", dict(role=types.Role.EVALUATE), 80, id="connect-four-random"),
    pytest.param("spiel:leduc_poker", dict(role=types.Role.EVALUATE), 40, id="seat-against-random"),
    pytest.param("spiel:goofspiel(num_cards=4)", dict(role=types.Role.EVALUATE), 40, id="seat-of-simultaneous-moves"),
]
SELF_PLAY = [
    pytest.param("spiel:tic_tac_toe", {}, 40, id="tic-tac-toe"),
    pytest.param("spiel:connect_four(rows=4,columns=5)", {}, 60, id="connect-four-small"),
    pytest.param("spiel:oware", {}, 500, id="vector-game"),
]
"""Nothing is left to chance, so seeds change nothing."""
SEATS = [
    pytest.param("spiel:kuhn_poker(players=3)", {}, 40, id="three-seats"),
    pytest.param("spiel:pig(players=3)", {}, 500, id="three-seats-of-a-race"),
    with_package("pettingzoo", "pettingzoo:own_agents:Herd", {}, 60, name="agents"),
    with_package(
        "pettingzoo",
        "pettingzoo:own_agents:Herd",
        dict(kwargs='{"unequal": true, "masks": true, "late": true}'),
        60,
        name="agents-unequal",
    ),
    with_package("pettingzoo", "pettingzoo:own_agents:Round", {}, 60, name="agents-by-turns"),
    with_package("mpe2", "pettingzoo:mpe2.simple_spread_v3", {}, 60, name="agents-spread"),
    with_package(
        "mpe2",
        "pettingzoo:mpe2.simple_spread_v3",
        dict(kwargs='{"continuous_actions": true}'),
        60,
        name="agents-continuous",
    ),
]
"""The rows are those of one game, which follows the seed of its first row."""
FAMILIES = [*SEEDED, *SELF_PLAY, *SEATS]
EVERY = [
    *FAMILIES,
    with_package(
        "vizdoom",
        "gym:vizdoom.gymnasium_wrapper:VizdoomBasic-v1",
        dict(
            kwargs='{"frame_skip": 4}',
            wrappers='[{"SelectObservation": {"key": "screen"}}, {"MaxAndSkipObservation": {"skip": 4}}]',
            max_episode_steps=20,
        ),
        50,
        name="gym-vizdoom",
    ),
]
"""VizDoom's own environments do not repeat every step under a seed."""


def make(env_id, settings, **kwargs):
    settings = dict(settings)
    role = settings.pop("role", types.Role.TRAIN)
    return registry.make(env_id, sections.EnvConfig(**settings), NUM_ENVS, role=role, **kwargs)


def shown(step):
    """Returns [E] bool, true: the row has a new observation."""
    return np.ones(NUM_ENVS, bool) if step.shown is None else step.shown


def legal(spec, step):
    """Returns [E, A] bool, true: legal."""
    return np.ones((len(step.reward), spec.num_actions), bool) if step.action_mask is None else step.action_mask


def last_legal(env, step):
    """Returns [E] int32, the legal action with the highest number; [E, D], the highest vectors."""
    if env.spec.is_continuous:
        return np.tile(env.spec.action_bounds[1], (NUM_ENVS, 1))
    return (env.spec.num_actions - 1 - legal(env.spec, step)[:, ::-1].argmax(axis=1)).astype(np.int32)


@pytest.fixture(scope="module")
def played():
    """Returns the function that plays a row's environments from their making, once for all tests."""

    @functools.cache
    def play_row(env_id, given, num_steps):
        with contextlib.closing(make(env_id, dict(given))) as env:
            return play(env, num_steps), env.spec

    return lambda env_id, settings, num_steps: play_row(env_id, tuple(settings.items()), num_steps)


def play(env, num_steps, seeds=SEEDS):
    """Returns the first step and `num_steps` more under random actions that are always the same."""
    rng = np.random.default_rng(0)
    steps = [env.reset(seeds)]
    if env.spec.is_continuous:
        shape = (num_steps, NUM_ENVS, *env.spec.action_shape)
        vectors = rng.uniform(*env.spec.action_bounds, shape).astype(np.float32)
        return steps + [env.step(actions) for actions in vectors]
    for preference in rng.random((num_steps, NUM_ENVS, env.spec.num_actions)):
        actions = np.where(legal(env.spec, steps[-1]), preference, -1).argmax(axis=1)
        steps.append(env.step(actions.astype(np.int32)))
    return steps


@pytest.mark.thorough
@pytest.mark.parametrize(("env_id", "settings", "num_steps"), EVERY)
def test_every_step_has_the_shapes_dtypes_and_bounds_of_the_spec(env_id, settings, num_steps, played):
    steps, spec = played(env_id, settings, num_steps)
    assert isinstance(spec, types.EnvSpec)
    for step in steps:
        assert step.observation.shape == (NUM_ENVS, *spec.observation_shape)
        assert step.observation.dtype == spec.observation_dtype
        assert np.all(np.isfinite(step.observation))
        assert np.all((step.observation >= spec.observation_low) & (step.observation <= spec.observation_high))
        if spec.packed:
            for array, seen in zip(spec.packed, packing.unpack(spec.packed, step.observation).values(), strict=True):
                assert np.all(np.isfinite(seen) & (seen >= array.low) & (seen <= array.high))
        assert step.reward.shape == step.terminated.shape == step.truncated.shape == (NUM_ENVS,)
        assert step.reward.dtype == np.float32
        assert step.terminated.dtype == step.truncated.dtype == bool
        assert np.all(np.isfinite(step.reward))
        if not spec.has_action_mask:
            assert step.action_mask is None
            continue
        assert step.action_mask.shape == (NUM_ENVS, spec.num_actions)
        assert step.action_mask.dtype == bool
        assert np.all(np.any(step.action_mask, axis=1) | ~shown(step))
        assert np.all(step.action_mask[step.terminated])  # any action is taken there, and ignored


@pytest.mark.parametrize(("env_id", "settings", "num_steps"), EVERY)
def test_the_step_after_a_final_one_is_a_first_one_without_reward_and_flags(env_id, settings, num_steps, played):
    ends = np.zeros(NUM_ENVS, int)
    final = np.zeros(NUM_ENVS, bool)
    for step in played(env_id, settings, num_steps)[0]:
        assert not np.any(step.reward[final])
        assert not np.any(step.terminated[final] | step.truncated[final])
        assert not np.any(step.terminated & step.truncated)
        ends += step.final
        final = np.where(shown(step), step.final, final)
    assert np.all(ends >= 1)


@pytest.mark.thorough
@pytest.mark.parametrize(("env_id", "settings", "num_steps"), FAMILIES)
def test_seeds_reproduce_every_step_in_new_and_in_used_environments(env_id, settings, num_steps, played):
    with contextlib.closing(make(env_id, settings, threads=1)) as env:
        play(env, num_steps // 3)
        again = play(env, num_steps)
    for first, second in zip(played(env_id, settings, num_steps)[0], again, strict=True):
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.thorough
@pytest.mark.parametrize(("env_id", "settings", "num_steps"), SEEDED)
def test_each_environment_follows_its_own_seed(env_id, settings, num_steps, played):
    with contextlib.closing(make(env_id, settings)) as env:
        swapped = play(env, num_steps, (SEEDS[0], 99, 98))
    same = [
        np.all(a.observation == b.observation, axis=tuple(range(1, a.observation.ndim)))
        for a, b in zip(played(env_id, settings, num_steps)[0], swapped, strict=True)
    ]
    assert np.all([row[0] for row in same])
    assert not np.all([row[1:] for row in same])


WRONG_ACTIONS = (
    np.zeros(NUM_ENVS - 1, np.int32),
    np.full(NUM_ENVS, -1, np.int32),
    np.full(NUM_ENVS, 999, np.int32),
    np.zeros(NUM_ENVS, np.float32),
)


@pytest.mark.thorough
@pytest.mark.parametrize(("env_id", "settings", "num_steps"), EVERY)
def test_steps_share_no_memory_and_what_is_wrong_is_refused_and_harms_nothing(env_id, settings, num_steps):
    env = make(env_id, settings)
    assert env.num_envs == NUM_ENVS
    for seeds in ((1, 2), (1, 2, -3)):
        with pytest.raises(errors.InvalidMessage, match="seeds"):
            env.reset(seeds)
    first = env.reset(SEEDS)
    kept = [None if field is None else field.copy() for field in first]
    for actions in WRONG_ACTIONS:
        with pytest.raises(errors.InvalidMessage, match="expected"):
            env.step(actions)
    second = env.step(last_legal(env, first))
    env.step(last_legal(env, second))
    for field, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(field, copy)
    assert not np.shares_memory(first.observation, second.observation)
    env.close()


@pytest.mark.parametrize(
    "env_id",
    ["catch", "gym:CartPole-v1", "gym:Acrobot-v1", "gym:MinAtar/Breakout-v1", "atari:Pong", "spiel:tic_tac_toe"],
)
def test_render_shows_environment_0_in_colour(env_id):
    if env_id.startswith("gym:"):
        pytest.importorskip("pygame")
    env = registry.make(env_id, sections.EnvConfig(), 1, render=True)
    step = env.reset([5])
    before = env.render().copy()
    for _ in range(6):
        step = env.step(last_legal(env, step))
    after = env.render()
    assert before.shape == after.shape
    assert before.shape[2] == 3
    assert before.dtype == after.dtype == np.uint8
    assert np.any(before != after)
    env.close()
