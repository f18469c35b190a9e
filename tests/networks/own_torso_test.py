"""Networks and torsos of the user's own, named in a setting: shapes, parameters, refusals."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import jax
import numpy as np
import pytest

from seedzero.agents import agent_table, base
from seedzero.config import configs, shared
from seedzero.core import errors, types
from seedzero.networks import actor_critic, muzero_net

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
DISCRETE = types.EnvSpec((4,), "float32", 3)
CONTINUOUS = types.EnvSpec((4,), "float32", 0, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
_MODULE = """
import flax.linen as nn
import own_network

class Torso(nn.Module):
    width: int

    @nn.compact
    def __call__(self, *given):
        x = given[0].reshape(given[0].shape[0], -1)
        return nn.relu(nn.Dense(self.width, name="mine")(x)).reshape(x.shape[0], self.width, 1)

def torso(spec, config):
    return Torso(config.width // 2)

def none(spec, config):
    return None

class Lacking(nn.Module):
    def represent(self, observation):
        return observation

def lacking(spec, config):
    return Lacking()

def wide(spec, config):
    return own_network.Network(8, spec.num_actions + 1, config.num_bins)

def coarse(spec, config):
    return own_network.Network(8, spec.num_actions, config.num_bins - 1)

class Convolved(nn.Module):
    @nn.compact
    def __call__(self, *given):
        x = nn.relu(nn.Conv(4, (3, 3), strides=2)(given[0]))
        x = nn.relu(nn.Conv(4, (3, 3), padding=((1, 0), (0, 1)), use_bias=False)(x))
        return nn.Conv(2, (2, 2), kernel_dilation=2)(x)

def convolved(spec, config):
    return Convolved()
"""
AGENTS = ("vtrace", "apex", "r2d2", "ppo", "sac")


@pytest.fixture(autouse=True)
def _modules(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "networks_of_a_user.py").write_text(_MODULE)


# Torsos -------------------------------------------------------------------------------------------------------------


def _config(agent: str, function: str) -> configs.Config:
    values = {"run.agent": agent, "network.module": f"networks_of_a_user:{function}", "network.width": 10}
    return configs.override(configs.Config(), values)


def _kernels(params: Any) -> list[tuple[int, ...]]:
    found = jax.tree_util.tree_leaves_with_path(params)
    return [leaf.shape for path, leaf in found if "mine" in str(path) and "kernel" in str(path)]


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_takes_a_torso(agent: str) -> None:
    spec = CONTINUOUS if agent == "sac" else DISCRETE
    made = agent_table.make(_config(agent, "torso"), spec, "cpu")
    state = jax.eval_shape(made.init, jax.random.key(0))
    assert _kernels(made.acting(state)) == [(4, 5)]
    assert len(_kernels(state.params)) == (2 if agent == "sac" else 1)  # of the actor, and of both critics
    assert "_Torso" not in str(jax.tree.structure(state.params))
    with pytest.raises(errors.ConfigError, match=r"network\.module=networks_of_a_user:none .*NoneType"):
        agent_table.make(_config(agent, "none"), spec, "cpu")


@pytest.mark.thorough
def test_sac_shows_images_to_it() -> None:
    spec = types.EnvSpec((6, 6, 2), "uint8", 0, action_low=(-1.0,), action_high=(1.0,))
    made = agent_table.make(_config("sac", "torso"), spec, "cpu")
    state = jax.jit(made.init)(jax.random.key(0))
    assert _kernels(made.acting(state)) == [(72, 5)]
    number, flag = np.zeros(8, np.float32), np.zeros(8, bool)
    observation = {types.OBSERVATION: np.ones((8, 6, 6, 2), np.uint8)}
    mode, slot = np.zeros(8, np.int8), np.arange(8, dtype=np.int32)
    shown = base.Inputs(observation, number, flag, flag, np.ones((8, 0), bool), mode, slot, 8, slot)
    _, outputs = jax.jit(made.act)(made.acting(state), made.initial_memory(8), shown, jax.random.key(0))
    assert outputs.action.shape == (8, 1) and np.all(np.isfinite(outputs.action))


@pytest.mark.parametrize(("platform", "num_convolutions"), [("cpu", 1), ("gpu", 3)])
def test_plain_convolutions_of_a_torso_are_products_in_a_loop_on_a_cpu(platform: str, num_convolutions: int) -> None:
    spec, batch, length = types.EnvSpec((9, 7, 2), "uint8", 3, observation_low=0, observation_high=255), 2, 3
    layers = dataclasses.replace(_config("ppo", "convolved").network, normalize_observations=False)
    network = actor_critic.ppo(layers, spec, platform, initial_std=1.0)
    params, rows = network.init(jax.random.key(0)), np.zeros((batch, length))
    frames = np.random.default_rng(0).integers(0, 256, (batch, length, 9, 7, 2), np.uint8)
    steps = actor_critic.Steps({types.OBSERVATION: frames}, rows > 0, rows, rows.astype(np.int32))
    given = params, network.initial_state(batch), steps
    for plain, looped in zip(
        *(jax.tree.leaves(unroll(*given)) for unroll in (network.unroll, network.unroll_in_loop)), strict=True
    ):
        np.testing.assert_allclose(plain, looped, rtol=1e-4, atol=1e-5)
    program = str(jax.make_jaxpr(network.unroll_in_loop)(*given))
    assert program.count("conv_general_dilated[") == num_convolutions  # the dilated one stays Flax's


# MuZero's three functions -------------------------------------------------------------------------------------------


def _muzero_config(module: str, **changes: Any) -> shared.NetworkConfig:
    return dataclasses.replace(shared.NetworkConfig(num_bins=21, width=8, module=module), **changes)


@pytest.mark.thorough
def test_the_example_has_the_interface_of_a_network() -> None:
    network = muzero_net.make(_muzero_config("own_network:make", frame_stack=2), DISCRETE, "cpu")

    @jax.jit
    def outputs(key: jax.Array) -> Any:
        params = network.cast(network.init(key))
        hidden = network.represent(params, {types.OBSERVATION: np.ones((2, 8), np.float32)})
        return params, hidden, network.predict(params, hidden), network.dynamics(params, hidden, np.array([0, 2]))

    params, hidden, (policy, value), (after, reward) = outputs(jax.random.key(0))
    assert {"encoder", "gate", "policy"} < params.keys()
    assert hidden.shape == after.shape == (2, 8) and policy.shape == (2, 3)
    assert value.shape == reward.shape == (2, 21)
    assert (after[0] != after[1]).any() and not policy.any()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "no function 'nothing'; it has Torso, torso, none, "),
        ("none", r"network\.module=networks_of_a_user:none .*NoneType"),
        ("lacking", "Lacking.* represent, predict, dynamics"),
        ("wide", r"predict.* policy .*\[1, 4\].*\[1, 3\]"),
        ("coarse", r"predict.* value .*\[1, 20\].*\[1, 21\]"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(function: str, message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        muzero_net.make(_muzero_config(f"networks_of_a_user:{function}"), DISCRETE, "cpu")
