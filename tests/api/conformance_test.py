"""The promises of an agent: one outside the package keeps them, and a broken one is told."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

from seedzero.agents import agent_table, base
from seedzero.api import conformance
from seedzero.config import configs
from seedzero.core import types

pytestmark = pytest.mark.thorough

PQN = pathlib.Path(__file__).parents[2] / "examples" / "pqn"
SPECS = [types.EnvSpec((3,), "float32", 4, has_action_mask=True), types.EnvSpec((4, 5, 1), "uint8", 3)]


def test_the_agent_of_the_example_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PQN))
    values = {"agent": "pqn_agent:AGENT", "pqn.width": 8, "pqn.unroll_length": 4, "pqn.num_minibatches": 4}
    config = configs.override(configs.Config(), {**values, "pqn.batch_size": 4})
    conformance.check_agent(agent_table.make, config, SPECS)


def _blind(memory: base.Memory, outputs: base.Outputs) -> tuple[base.Memory, base.Outputs]:
    return memory, outputs._replace(action=jnp.zeros_like(outputs.action))


def _forgetful(memory: base.Memory, outputs: base.Outputs) -> tuple[base.Memory, base.Outputs]:
    return memory[:1], outputs


@pytest.mark.parametrize(
    ("change", "promise"), [(_blind, "training explores"), (_forgetful, "as declared")], ids=["blind", "forgetful"]
)
def test_a_broken_promise_is_told(change: Callable[..., Any], promise: str) -> None:
    def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
        agent = agent_table.make(config, spec, platform)
        return agent._replace(act=lambda *values: change(*agent.act(*values)))

    config = configs.override(configs.Config(), {"agent": "apex", "network.width": 8})
    with pytest.raises(AssertionError, match=promise):
        conformance.check_agent(make, config, SPECS[:1])
