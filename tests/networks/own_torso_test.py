"""Torsos of a user's own, for every agent that takes one."""

from __future__ import annotations

import pathlib
from typing import Any

import golden
import jax
import numpy as np
import pytest

from seedzero.agents import base
from seedzero.agents import table as agents
from seedzero.config import config as configs
from seedzero.core import errors, types, user_code

DISCRETE = types.EnvSpec((4,), "float32", 3)
CONTINUOUS = types.EnvSpec((4,), "float32", 0, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
_MODULE = """
import flax.linen as nn

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
"""
AGENTS = [name.partition(".")[0] for name in user_code.NETWORKS if name != "network.module"]


@pytest.fixture(autouse=True)
def _modules(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "torsos_of_a_user.py").write_text(_MODULE)


def _config(agent: str, function: str) -> configs.Config:
    values = {"run.agent": agent, f"{agent}.module": f"torsos_of_a_user:{function}", f"{agent}.width": 10}
    return configs.override(configs.Config(), values)


def _kernels(params: Any) -> list[tuple[int, ...]]:
    found = jax.tree_util.tree_leaves_with_path(params)
    return [leaf.shape for path, leaf in found if "mine" in str(path) and "kernel" in str(path)]


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_takes_a_torso(agent: str, said: golden.Said) -> None:
    spec = CONTINUOUS if agent == "sac" else DISCRETE
    made = agents.make(_config(agent, "torso"), spec, "cpu")
    state = jax.eval_shape(made.init, jax.random.key(0))
    assert _kernels(made.acting(state)) == [(4, 5)]
    assert len(_kernels(state.params)) == (2 if agent == "sac" else 1)  # of the actor, and of both critics
    assert "_Torso" not in str(jax.tree.structure(state.params))
    with pytest.raises(errors.ConfigError, match=rf"{agent}\.module=torsos_of_a_user:none .*NoneType") as raised:
        agents.make(_config(agent, "none"), spec, "cpu")
    said(raised.value, agent)


def test_sac_shows_images_to_it() -> None:
    spec = types.EnvSpec((6, 6, 2), "uint8", 0, action_low=(-1.0,), action_high=(1.0,))
    made = agents.make(_config("sac", "torso"), spec, "cpu")
    state = jax.jit(made.init)(jax.random.key(0))
    assert _kernels(made.acting(state)) == [(72, 5)]
    number, flag = np.zeros(8, np.float32), np.zeros(8, bool)
    observation = {types.OBSERVATION: np.ones((8, 6, 6, 2), np.uint8)}
    mode, slot = np.zeros(8, np.int8), np.arange(8, dtype=np.int32)
    shown = base.Inputs(observation, number, flag, flag, np.ones((8, 0), bool), mode, slot, 8, slot)
    _, outputs = jax.jit(made.act)(made.acting(state), made.initial_memory(8), shown, jax.random.key(0))
    assert outputs.action.shape == (8, 1) and np.all(np.isfinite(outputs.action))
