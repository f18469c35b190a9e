"""Small saved agents with random parameters, for tests of policies and exports."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from seedzero.acting.actors import acting_policy, acting_program, saved_agents
from seedzero.agents import agent_table, base
from seedzero.config import configs, options
from seedzero.core import types

SMALL: dict[str, options.Value] = {
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 3,
}


@functools.cache
def saved(spec: types.EnvSpec, **changes: options.Value) -> saved_agents.SavedAgent:
    """Heads included: as initialized they would say 0. changes: SECTION__KEY=value."""
    values = {name.replace("__", "."): value for name, value in changes.items()}
    config = configs.override(configs.Config(), {**SMALL, **values})
    agent = agent_table.make(config, spec, "cpu")
    shapes = jax.eval_shape(lambda: agent.acting(agent.init(jax.random.key(0))))
    random = np.random.default_rng(0)

    def number(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        name = path[0].name if isinstance(path[0], jax.tree_util.GetAttrKey) else path[0].key
        is_statistic = name in ("moments", "reward_size")  # nothing counted yet
        return (np.zeros(leaf.shape) if is_statistic else random.normal(size=leaf.shape) / 2).astype(leaf.dtype)

    params = jax.tree_util.tree_map_with_path(number, shapes)
    return saved_agents.SavedAgent(agent, params, 7, "given", config, spec)


def stub(act: Any, stack: int = 1) -> base.Agent:
    """An agent that only acts, with a number for each environment as its memory."""
    unused: Any = None
    functions = dict(init=lambda key: (), acting=lambda state: (), update=lambda *args: ((), None, {}))
    memory = lambda num_slots: jax.numpy.full(num_slots, 99, np.int32)  # noqa: E731
    return base.Agent(unused, stack, {}, initial_memory=memory, act=act, **functions)


def policy(spec: types.EnvSpec, *, seed: int = 0, **changes: options.Value) -> acting_policy.Policy:
    """A policy without memories; the compiled functions are those of all policies of the same agent."""
    return acting_policy.Policy(saved(spec, **changes), seed=seed)


@pytest.fixture(autouse=True, scope="session")
def programs_are_shared() -> Iterator[None]:
    """JAX finds the programs of a function by the function: those of the same agent are the same here."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(acting_program, "ActingProgram", _once(acting_program.ActingProgram))
        yield


def _once(make: Callable[..., Any]) -> Callable[..., Any]:
    made: dict[Any, tuple[Any, Any]] = {}

    def found(agent: Any, spec: types.EnvSpec, **options: bool) -> Any:
        key = id(agent), spec, *options.items()
        if key not in made:
            made[key] = agent, make(agent, spec, **options)  # with the agent, no other one gets its identity
        return made[key][1]

    return found
