"""A recurrent core that runs over the steps of a sequence and restarts with each episode.

Shape letters: B batch, T steps, F features, K numbers of a continuous action.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from seedzero.networks import mlp

_NUM_PARTS = {"lstm": 2, "gru": 1}
"""Arrays of `units` numbers in a state; an LSTM has a cell and a hidden state (Hochreiter and Schmidhuber 1997)."""


def state_width(kind: str, units: int) -> int:
    """Returns the size of the state of a core, "lstm" or "gru"."""
    return _NUM_PARTS[kind] * units


def with_past(
    x: jax.Array, first: jax.Array, reward: jax.Array, last_action: jax.Array, *, num_actions: int
) -> jax.Array:
    """Appends the last reward, clipped to [-1, 1], and the last action to features [B, T, F].

    Both are 0 where an episode begins.

    Args:
      first: [B, T] bool, true: an episode begins.
      reward: [B, T], received on the way to the step.
      last_action: [B, T] int32 of the step before, or [B, T, K] if continuous.
      num_actions: 0 for continuous actions.
    """
    action = jax.nn.one_hot(last_action, num_actions) if num_actions else last_action
    reward = jnp.clip(reward, -1.0, 1.0)[..., None]
    past = jnp.concatenate([reward.astype(x.dtype), action.astype(x.dtype)], axis=-1)
    return jnp.concatenate([x, jnp.where(first[..., None], 0, past)], axis=-1)


class Recurrence(nn.Module):
    """An LSTM or a GRU (Cho et al. 2014) over T steps, reset at the start of each episode."""

    kind: str  # "lstm" or "gru"
    units: int
    dtype: Any

    @nn.compact
    def __call__(
        self, state: jax.Array, x: jax.Array, first: jax.Array, begins: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the state [B, `state_width`] float32 after the steps, and outputs [B, T, units].

        Args:
          state: [B, `state_width`] before them.
          x: [B, T, F].
          first: [B, T] bool, true: an episode begins.
          begins: [B, T] bool, true: `state` is the state before this step, and earlier steps do not count; None: it is
            the state before the first step.
        """
        before = tuple(jnp.split(state, _NUM_PARTS[self.kind], axis=-1))

        def step(cell: nn.Module, carry: Any, inputs: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
            x, first, *begins = inputs
            if begins:
                carry = jax.tree.map(lambda leaf, given: jnp.where(begins[0][:, None], given, leaf), carry, before)
            carry = jax.tree.map(lambda leaf: jnp.where(first[:, None], 0.0, leaf), carry)
            new, out = cell(carry if self.kind == "lstm" else carry[0], x)
            new = new if self.kind == "lstm" else (new,)
            return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), new), out

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1)
        cell = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}[self.kind](self.units, dtype=self.dtype)
        carry, out = scan(cell, before, (x, first) if begins is None else (x, first, begins))
        return jnp.concatenate(carry, axis=-1), out


class HiddenCore(nn.Module):
    """A core after a representation: turns hidden states of single observations into those of all observations so far.

    The memory is added to the hidden state, so that it costs nothing where an observation shows everything. The core
    also reads the last action and reward, as those of IMPALA and R2D2 do.
    """

    kind: str  # "lstm" or "gru"
    units: int
    num_actions: int  # 0: continuous
    dtype: Any

    @nn.compact
    def __call__(
        self,
        hidden: jax.Array,
        state: jax.Array,
        first: jax.Array,
        reward: jax.Array,
        last_action: jax.Array,
        begins: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the state after T steps, and hidden states [B, T, ...]; arguments as in `Recurrence`."""
        batch_shape, channels = hidden.shape[:2], hidden.shape[-1]
        x = hidden.reshape(*batch_shape, -1).astype(self.dtype)
        x = with_past(x, first, reward, last_action, num_actions=self.num_actions)
        state, out = Recurrence(self.kind, self.units, self.dtype)(state, x, first, begins)
        remembered = nn.Dense(channels, dtype=self.dtype)(out)
        remembered = remembered.reshape(*batch_shape, *[1] * (hidden.ndim - 3), channels)  # the same at all positions
        joined = (hidden + remembered).reshape(-1, *hidden.shape[2:])
        return state, mlp.normalize(joined).reshape(hidden.shape)
