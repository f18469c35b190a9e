"""Makes and checks a user's own agent: `--agent=MODULE:OBJECT`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from seedzero.agents import base
from seedzero.config import configs, own_agents
from seedzero.core import errors, types, user_code
from seedzero.networks import observations
from seedzero.replay import sources


def make(config: configs.Config, spec: types.EnvSpec, platform: str) -> base.Agent:
    """Returns the agent, after showing its functions a first observation as shapes.

    Raises:
      ConfigError: with file and line, if a function raises, does not return, or returns something unexpected.
    """
    own = own_agents.load(config.run.agent)
    module = config.run.agent.partition(":")[0]
    what, seconds = f"--agent={config.run.agent}", own_agents.SECONDS
    agent = user_code.call(own.make, config, spec, platform, seconds=seconds, what=f"{what}: make", module=module)
    problem = None
    if not isinstance(agent, base.Agent):
        problem = f"returns {type(agent).__name__}; expected seedzero.agents.base.Agent"
    else:
        functions: Any = {
            name: user_code.telling(getattr(agent, name), f"{what}: {name}", at=own.make, module=module)
            for name in _FUNCTIONS
        }
        agent = agent._replace(**functions)
        shown = user_code.call(_shapes, agent, spec, seconds=seconds, what=f"{what}: the agent", module=module)
        problem = mismatch(config, agent) or _misfit(agent, spec, *shown)
    if problem:
        raise errors.ConfigError(f"{what} ({user_code.place_of(own.make)}): make {problem}")
    made: base.Agent = agent
    return made


_FUNCTIONS = ("init", "acting", "initial_memory", "act", "update")


def mismatch(config: configs.Config, agent: base.Agent) -> str | None:
    """Describes how an agent's data contradict its settings; None if they agree."""
    settings, data = config.agent, agent.data
    if agent.samples != settings.SAMPLES:
        return (
            f"returns an agent with {type(data).__name__} as data, but its settings have SAMPLES={settings.SAMPLES}; "
            "expected SAMPLES=True for a Replay, False for a Queue"
        )
    shared = settings.shared(config)
    size = data.batch_size if isinstance(data, sources.Queue) else config.replay.batch_size
    if size not in shared.values():
        return f"returns an agent with batches of {size}, which `shared` of its settings does not name: {shared}"
    return None


def first_inputs(agent: base.Agent, spec: types.EnvSpec, num_rows: int) -> base.Inputs:
    """Returns rows of training in the middle of episodes, with zeros as observations and all actions legal."""
    flag, slot = jnp.zeros(num_rows, bool), jnp.arange(num_rows, dtype=jnp.int32)
    return base.Inputs(
        observation=observations.zeros(spec, agent.stack, num_rows),
        reward=jnp.zeros(num_rows),
        first=flag,
        terminated=flag,
        action_mask=jnp.ones((num_rows, spec.num_actions), bool),
        action_mode=jnp.full(num_rows, types.EXPLORE),
        slot=slot,
        num_slots=num_rows,
        task=jnp.zeros_like(slot),
    )


def _shapes(agent: base.Agent, spec: types.EnvSpec) -> tuple[Any, Any, Any]:
    """Returns the shapes of memory, of the memory after a first observation, and of `act`'s outputs."""
    inputs = first_inputs(agent, spec, 1)

    def play(key: jax.Array) -> tuple[Any, Any, base.Outputs]:
        memory = agent.initial_memory(1)
        return memory, *agent.act(agent.acting(agent.init(key)), memory, inputs, key)

    found: tuple[Any, Any, Any] = jax.eval_shape(play, jax.random.key(0))
    return found


def _misfit(agent: base.Agent, spec: types.EnvSpec, before: Any, after: Any, outputs: Any) -> str | None:
    """Describes how a step's shapes differ from what the agent declares; None if they agree."""

    def layout(tree: Any) -> Any:
        return jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree)

    stored = {name: f"{array.dtype}{[1, *array.shape]}" for name, array in agent.stored.items()}
    action = f"{'float32' if spec.is_continuous else 'int32'}{[1, *spec.action_shape]}"
    for name, came, expected in (
        ("memory", layout(after), layout(before)),
        ("stored arrays", layout(dict(outputs.stored)), stored),
        ("actions", layout(outputs.action), action),
    ):
        if came != expected:
            return f"returns an agent whose `act` gives the {name} {came} for one row; expected {expected}"
    return None
