"""What the runtime knows of an agent: pure functions, and what they need from replay.

Shape letters: B batch (rows of one acting call), A actions, S slots. An agent holds no arrays; its state is
`TrainState` (what learns) and a memory with one row for each environment (what it carries besides its history).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from seedzero.replay import rings

Params: TypeAlias = Any
"""A pytree of float32 arrays."""

Memory: TypeAlias = Any
"""A pytree of arrays [S, ...]; an empty tuple where an agent carries nothing."""

Metrics: TypeAlias = dict[str, jax.Array]
"""Scalars, float32."""


class ActInputs(NamedTuple):
    """What B environments show. Padding rows may hold anything finite.

    Attributes:
      observation: [B, *observation_shape] of the spec's dtype: the newest frame.
      first: [B] bool, true: the first observation of an episode or of a run.
      action_mask: [B, A] bool, true: legal; not read where the spec has no mask. A row without a legal action gets an
        arbitrary one.
      explore: [B] bool, true: act with training noise; false: greedily.
    """

    observation: jax.Array
    first: jax.Array
    action_mask: jax.Array
    explore: jax.Array


class ActOutputs(NamedTuple):
    """What acting found.

    Attributes:
      action: [B] int32, or [B, D] float32 within the spec's bounds where actions are vectors.
      extras: {name: [B, ...]} what replay stores beside the observation, with the shapes and dtypes of `Agent.extras`.
    """

    action: jax.Array
    extras: dict[str, jax.Array]


class TrainState(NamedTuple):
    """What learns.

    Attributes:
      params: newest parameters.
      target_params: parameters of the target network; an empty tuple where there is none.
      opt_state: of the optimizer.
      num_updates: scalar int32, updates done, refused ones included.
      num_rejected: scalar int32, refused updates in a row: their loss or gradient was not finite.
    """

    params: Params
    target_params: Params
    opt_state: Any
    num_updates: jax.Array
    num_rejected: jax.Array


class Agent(NamedTuple):
    """An algorithm as pure functions; the caller jits them.

    Attributes:
      extras: {name: (shape, dtype)} of what `act` leaves in replay for each step, without the runtime's versions.
      future: positions after the sampled one that a window needs.
      offsets: positions of a window whose observations are needed, 0 first.
      stack: newest frames that the network sees.
      init: key -> TrainState.
      initial_memory: num_slots -> memory [S, ...].
      act: (params, memory rows [B, ...], ActInputs, key) -> (memory rows, ActOutputs).
      reanalyse: (params, observation [B, *shape with the frames of the stack on the last axis], action mask [B, A]
        bool or None where the spec has none, key) -> the extras that are targets, "policy" [B, A] and "value" [B], as
        these parameters find them; never the action, which was taken. Where there are masks and positions are
        reanalysed, `extras` has "legal" ([A] bool), the mask that was acted with. None: nothing is reanalysed.
      prioritization: how its windows are preferred; None: they are sampled uniformly.
      update: (state, windows, key, axis_name) -> (state, priority [B] of the windows, metrics). Priorities are at
        least 0, or not finite where nothing is known. With an axis name, gradients and metrics are averaged over that
        mapped axis; metrics hold at least "loss", "grad_norm" and "num_rejected".
    """

    extras: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    future: int
    offsets: tuple[int, ...]
    stack: int
    prioritization: rings.Prioritization | None
    init: Callable[[jax.Array], TrainState]
    initial_memory: Callable[[int], Memory]
    act: Callable[[Params, Memory, ActInputs, jax.Array], tuple[Memory, ActOutputs]]
    reanalyse: Callable[[Params, jax.Array, jax.Array | None, jax.Array], dict[str, jax.Array]] | None
    update: Callable[[TrainState, rings.Windows, jax.Array, str | None], tuple[TrainState, jax.Array, Metrics]]
