"""The program with which a saved agent looks at observations, wherever it acts outside of training.

Evaluations, matches, records, thoughts, policy servers, exports and judges use it.

Shape letters: B rows of a call, S slots of memory.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from seedzero.agents import base
from seedzero.core import types
from seedzero.device import acting, batches, compilation_cache, patience

Findings: TypeAlias = Literal["actions", "numbers", "tree", "stored"]
"""What a look returns besides actions: nothing; the fields of `base.Searched`, without or with `tree`, or `policy`
alone if the agent does not search; or what it stores in training."""
ACTIONS: Findings = "actions"
NUMBERS: Findings = "numbers"
TREE: Findings = "tree"
STORED: Findings = "stored"

NOWHERE = np.iinfo(np.int32).max
"""The slot that a row writes if its memory stays as it is."""


def seen(
    spec: types.EnvSpec,
    step: types.EnvStep,
    first: np.ndarray,
    mode: np.int8 = types.GREEDY,
    num_updates: int = 0,
) -> batches.Batch:
    """Returns the rows [B] of a step; without a mask every action is legal.

    first: [B] bool, true at an episode's first observation. num_updates: of the parameters.
    """
    num_rows = len(first)
    return batches.Batch(
        observation=step.observation,
        reward=step.reward,
        first=first,
        action_mask=np.ones((num_rows, spec.num_actions), bool) if step.action_mask is None else step.action_mask,
        action_mode=np.full(num_rows, mode),
        slot=np.arange(num_rows, dtype=np.int32),
        task=step.tasks,
        num_updates=np.int32(num_updates),
    )


def key_of(seed: Any, call: Any) -> jax.Array:
    """Returns the key of a call."""
    return jax.random.fold_in(jax.random.key(seed), call)


def look(
    agent: base.Agent,
    spec: types.EnvSpec,
    params: base.Params,
    carried: acting.Carried,
    seen: batches.Batch,
    key: jax.Array,
    findings: Findings = ACTIONS,
) -> tuple[acting.Carried, dict[str, Any]]:
    """Returns what B rows carry afterwards, and arrays [B, ...] by name: `action`, and the findings."""
    num_rows = seen.slot.shape[0]  # any number in exported programs
    past, inputs = acting.look(agent, spec, num_rows, carried, seen)
    if agent.search is None or findings in (ACTIONS, STORED):
        memory, outputs = agent.act(params, carried.memory, inputs, key)
        found = {**outputs.stored} if findings == STORED else {}
        if agent.policy is not None and findings in (NUMBERS, TREE):
            found["policy"] = agent.policy(params, carried.memory, inputs)
        return acting.Carried(past, memory), {**found, "action": outputs.action}
    memory = carried.memory
    if jax.tree.leaves(memory):
        memory, _ = agent.act(params, memory, inputs, key)
    searched = agent.search(params, carried.memory, inputs, key, findings == TREE)
    named = {name: values for name, values in searched._asdict().items() if values is not None}
    return acting.Carried(past, memory), named


class ActingProgram:
    """An agent's jitted program; it depends only on the spec of the environments.

    It is compiled for each number of rows and kind of findings.
    """

    def __init__(self, agent: base.Agent, spec: types.EnvSpec, *, donates: bool = False) -> None:
        """donates: whether a call consumes the memory that it gets."""
        run = functools.partial(_run, agent, spec)
        self._jitted: Any = jax.jit(run, static_argnames="findings", donate_argnums=1 if donates else ())
        self._compiled: set[tuple[int, Findings]] = set()

    def __call__(
        self,
        params: base.Params,
        memory: acting.Carried,
        seen: batches.Batch,
        seed: int,
        call: int,
        *,
        slots: np.ndarray | None = None,
        written: np.ndarray | None = None,
        findings: Findings = ACTIONS,
    ) -> tuple[acting.Carried, dict[str, Any]]:
        """Returns the memory after a call, and the arrays of `look`; draws depend only on seed, call and row.

        Args:
          memory: [S, ...].
          call: number of the call.
          slots: [B] int32, slots of the rows; None: row i has slot i.
          written: [B] int32, slots whose memory changes, or NOWHERE; None: `slots`.
        """
        rows = params, memory, seen, np.uint32(seed), np.uint32(call), slots, written
        kind = len(seen.slot), findings
        if kind in self._compiled:
            found: tuple[acting.Carried, dict[str, Any]] = self._jitted(*rows, findings=findings)
            return found
        with patience.telling(lambda: "compiling the agent"), compilation_cache.without_alarm():
            found = self._jitted(*rows, findings=findings)
        self._compiled.add(kind)
        return found

    def compile(self, params: base.Params, memory: acting.Carried, seen: batches.Batch, findings: Findings) -> Any:
        """Returns the compiled program for as many rows as `seen` has.

        It takes (params, memory, seen, seed, call, slots, written), all as arrays.
        """
        shapes, slots = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), memory), seen.slot
        rows = params, shapes, seen, np.uint32(0), np.uint32(0), slots, slots
        return self._jitted.lower(*rows, findings=findings).compile()


def _run(
    agent: base.Agent,
    spec: types.EnvSpec,
    params: base.Params,
    memory: acting.Carried,
    seen: batches.Batch,
    seed: jax.Array,
    call: jax.Array,
    slots: jax.Array | None,
    written: jax.Array | None,
    *,
    findings: Findings,
) -> tuple[acting.Carried, dict[str, Any]]:
    slots = seen.slot if slots is None else slots
    written = slots if written is None else written
    carried = jax.tree.map(lambda x: x.at[slots].get(mode="clip"), memory)
    after, found = look(agent, spec, params, carried, seen, key_of(seed, call), findings)
    return jax.tree.map(lambda x, new: x.at[written].set(new, mode="drop"), memory, after), found


def on_host(found: dict[str, Any], number: int | None = None) -> dict[str, Any]:
    """Returns the arrays as numpy arrays; number: of the first rows, None means all."""
    arrays: dict[str, Any] = jax.tree.map(lambda x: np.asarray(x)[:number], found)
    return arrays
