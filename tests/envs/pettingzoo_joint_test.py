"""The joint observation: a row has those of all agents of its copy, or the environment's state."""

import numpy as np
import own_agents
import pytest
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors, packing
from seedzero.envs import pettingzoo_env, registry

HERD, ROUND = "pettingzoo:own_agents:Herd", "pettingzoo:own_agents:Round"


def made(env_id=HERD, num_rows=6, **settings):
    return registry.make(env_id, sections.EnvConfig(id=env_id, joint_observation=True, **settings), num_rows)


def parts(env, step):
    found = packing.unpack(env.spec.packed, step.observation)
    return found["observation"], found["joint_observation"]


def test_a_row_has_the_newest_observations_of_its_copy_and_zeros_of_dead_agents():
    env, plain, random = made(), registry.make(HERD, sections.EnvConfig(id=HERD), 6), np.random.default_rng(0)
    step, alone, num_out = env.reset(range(6)), plain.reset(range(6)), 0
    assert packing.without_training_only(env.spec) == plain.spec
    was_final = np.zeros(6, bool)
    for _ in range(60):
        own, joint = parts(env, step)
        np.testing.assert_array_equal(own[step.shown], alone.observation[alone.shown])
        for copy in (slice(0, 3), slice(3, 6)):
            expected = np.where(step.shown[copy, None], own[copy], 0.0).reshape(-1)
            np.testing.assert_array_equal(joint[copy], np.tile(expected, (3, 1)))
        num_out += int((~step.shown).sum())
        was_final |= step.final
        actions = random.integers(2, size=6).astype(np.int32)
        step, alone = env.step(actions), plain.step(actions)
    assert num_out > 10 and was_final.all()


def test_agents_by_turns_are_seen_as_they_were_at_their_last_turn():
    env, random = made(ROUND, 3), np.random.default_rng(0)
    step, last = env.reset(range(3)), np.zeros((3, 2))
    for _ in range(4):
        if step.final.any():
            break
        own, joint = parts(env, step)
        last[step.shown] = own[step.shown]
        np.testing.assert_array_equal(joint[step.shown][0], last.reshape(-1))
        step = env.step(random.integers(2, size=3).astype(np.int32))
    assert np.count_nonzero(last.any(axis=1)) >= 2


class Stated(own_agents.Herd):
    """It has a state of its own."""

    state_space = spaces.Box(0, 100, (2, 2), np.float32)

    def state(self):
        return np.full((2, 2 + (self._age == 5)), self._age, np.float32)


def test_an_environments_own_state_is_taken_and_its_size_checked():
    env = pettingzoo_env.PettingZoo("stated", Stated, 3, joint=True)
    step = env.reset(range(3))
    assert [array.shape for array in env.spec.arrays] == [(2,), (4,)] and env.spec.arrays[1].high == 100
    for age in range(3):
        assert (parts(env, step)[1] == age).all()
        step = env.step(np.ones(3, np.int32))
    step = env.step(np.ones(3, np.int32))
    with pytest.raises(errors.EnvironmentFailure, match=r"state\(\) of 6 numbers; expected 4"):
        env.step(np.ones(3, np.int32))


class Several(own_agents.Herd):
    """Its agents see two arrays."""

    def observation_space(self, agent):
        return spaces.Dict(a=spaces.Box(0, 1, (1,), np.float32), b=spaces.Box(0, 1, (2,), np.float32))


def test_several_arrays_without_a_state_are_named():
    with pytest.raises(errors.EnvironmentFailure, match=r"'several'.*no state_space.*--ppo\.central_value=false"):
        pettingzoo_env.PettingZoo("several", Several, 3, joint=True)
