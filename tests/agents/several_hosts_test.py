"""Updates over the devices of several hosts equal those of one host with the same windows, for every agent."""

from __future__ import annotations

import functools
from typing import Any

import conformance_cases as cases  # beside this file: see conftest.py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero.agents import agent_table, base, ppo
from seedzero.api import conformance
from seedzero.config import configs
from seedzero.device import meshes, steps
from seedzero.replay import windowing

NUM_WINDOWS = conformance.SLOTS
FULL, UNEVEN = np.ones(NUM_WINDOWS, np.float32), np.array([1, 1, 1, 1, 0, 1, 0, 0], np.float32)
"""With UNEVEN the second of two hosts has one window, and padding."""
CASES = {
    "muzero with a policy gradient": "masked",
    "vtrace": "masked",
    "vtrace with everything": "text",
    "apex": "masked",
    "r2d2": "masked",
    "ppo": "masked",
    "sac": "continuous",
}
"""The cases of `conformance_test.py`, whose play is made once."""
ONE_GO = {"ppo.num_epochs": 1, "ppo.num_minibatches": 1}
"""The parts of minibatches are drawn by each device."""


def _agent(variant: str, num_hosts: int) -> base.Agent:
    """Returns a host's agent, with its share of the batch."""
    values = {**cases.VARIANTS[variant], "cluster.num_hosts": num_hosts}
    agent = str(values["run.agent"])
    if agent in ("vtrace", "ppo"):
        values[f"{agent}.batch_size"] = NUM_WINDOWS // num_hosts
    config = configs.override(configs.Config(), {**values, **(ONE_GO if agent == "ppo" else {})})
    return agent_table.make(config, cases.SPECS[CASES[variant]], "cpu")


@functools.cache
def _update(variant: str, num_hosts: int) -> Any:
    """Returns the jitted update of hosts of a device each: windows -> train state, metrics."""
    case, agent = cases.case(variant, CASES[variant]), _agent(variant, num_hosts)

    def update(windows: windowing.Windows) -> tuple[Any, Any]:
        shared = steps._shared(windows.weight) if not agent.samples else windows.weight
        windows = windows._replace(weight=shared, counted=windows.weight > 0)
        state, _, metrics = agent.update(case.state, windows, jax.random.key(0), meshes.AXIS)
        return state, metrics

    specs = (meshes.SHARDED,), (meshes.REPLICATED, meshes.REPLICATED)
    return meshes.over_devices(update, meshes.make(num_hosts), *specs)


def _learned(variant: str, num_hosts: int, weight: np.ndarray) -> dict[str, np.ndarray]:
    """Returns what the hosts have learned: metrics, and the optimizer's averages of the gradients."""
    windows = cases.case(variant, CASES[variant]).windows._replace(weight=weight)
    state, metrics = _update(variant, num_hosts)(jax.tree.map(np.asarray, windows))
    # Adam makes steps of rounding errors where a gradient is 0: its averages tell the gradient.
    kept = {name: x for name, x in state._asdict().items() if name not in ("params", "target_params")}
    leaves = jax.tree_util.tree_leaves_with_path({"metrics": metrics, **kept})
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


@pytest.mark.thorough
@pytest.mark.parametrize("weight", [FULL, UNEVEN], ids=["full", "uneven"])
@pytest.mark.parametrize("variant", CASES)
def test_gradients_of_hosts_are_those_of_one_host_with_the_same_windows(
    variant: str, weight: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases.case(variant, CASES[variant])
    for name in ("normal", "gumbel", "uniform"):  # noise is each device's own
        monkeypatch.setattr(jax.random, name, lambda key, shape=(), *_, **__: jnp.zeros(shape))
    alone, together = (_learned(variant, num_hosts, weight) for num_hosts in (1, 2))
    assert alone.keys() == together.keys() and alone["['metrics']['grad_norm']"] > 1e-3
    for name, expected in alone.items():
        np.testing.assert_allclose(together[name], expected, rtol=2e-4, atol=1e-6, err_msg=name)


def test_advantages_are_normalized_with_fewer_steps_than_devices() -> None:
    config = configs.override(configs.Config(), {"run.agent": "ppo"})
    step = np.array([[3.0], [5.0], [7.0], [9.0]], np.float32)
    counted = np.array([[0.0], [1.0], [0.0], [0.0]], np.float32)

    def normalized(advantage: jax.Array, counted: jax.Array) -> jax.Array:
        batch = ppo._Steps(*[None] * len(ppo._Steps._fields))._replace(advantage=advantage, counted=counted)
        return ppo._normalized(config.ppo, batch, meshes.AXIS).advantage

    run = meshes.over_devices(normalized, meshes.make(4), (meshes.SHARDED,) * 2, meshes.SHARDED)
    assert np.asarray(run(step, counted))[1] == 0.0  # a single step is its own mean
