"""Networks of the user's own, named in a setting: shapes, parameters, refusals."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import golden
import jax
import numpy as np
import pytest

from seedzero.agents import table as agents
from seedzero.config import config as configs
from seedzero.config import muzero as muzero_config
from seedzero.core import errors, types
from seedzero.networks import muzero as muzero_net

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
SPEC = types.EnvSpec((4,), "float32", 3)
_MODULE = """
import flax.linen as nn
import own_network

class Lacking(nn.Module):
    def represent(self, observation):
        return observation

def lacking(spec, config):
    return Lacking()

def wide(spec, config):
    return own_network.Network(8, spec.num_actions + 1, config.num_bins)

def coarse(spec, config):
    return own_network.Network(8, spec.num_actions, config.num_bins - 1)

class Torso(nn.Module):
    @nn.compact
    def __call__(self, observation):
        return nn.relu(nn.Dense(5, name="mine")(observation))

def torso(spec, config):
    return Torso()

def none(spec, config):
    return None
"""


@pytest.fixture(autouse=True)
def _modules(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "networks_of_a_user.py").write_text(_MODULE)


def _config(module: str, **changes: Any) -> muzero_config.NetworkConfig:
    return dataclasses.replace(muzero_config.NetworkConfig(num_bins=21, width=8, module=module), **changes)


def test_the_example_has_the_interface_of_a_network() -> None:
    network = muzero_net.make(_config("own_network:make", frame_stack=2), SPEC, "cpu")

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
        ("nothing", "'nothing'"),
        ("none", r"network\.module=networks_of_a_user:none .*NoneType"),
        ("lacking", "Lacking.* represent, predict, dynamics"),
        ("wide", r"predict.* policy .*\[1, 4\].*\[1, 3\]"),
        ("coarse", r"predict.* value .*\[1, 20\].*\[1, 21\]"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(function: str, message: str, said: golden.Said) -> None:
    with pytest.raises(errors.ConfigError, match=message) as raised:
        muzero_net.make(_config(f"networks_of_a_user:{function}"), SPEC, "cpu")
    said(raised.value, function)


def test_losses_that_need_more_than_three_functions_are_refused(said: golden.Said) -> None:
    for more in (dict(has_projection=True), dict(has_prefix=True), dict(has_ends=True)):
        with pytest.raises(errors.ConfigError, match="own_network:make ") as raised:
            muzero_net.make(_config("own_network:make"), SPEC, "cpu", **more)
        said(raised.value)


def test_an_actor_critic_takes_a_torso() -> None:
    values = {"run.agent": "vtrace", "vtrace.module": "networks_of_a_user:torso"}
    agent = agents.make(configs.override(configs.Config(), values), SPEC, "cpu")
    params = jax.eval_shape(lambda: agent.acting(agent.init(jax.random.key(0))))
    assert params["own_torso"]["mine"]["kernel"].shape == (4, 5)
    assert not [name for name in params if name.startswith("_Torso")]
    with pytest.raises(errors.ConfigError, match=r"vtrace\.module=networks_of_a_user:none .*NoneType"):
        values["vtrace.module"] = "networks_of_a_user:none"
        agents.make(configs.override(configs.Config(), values), SPEC, "cpu")
