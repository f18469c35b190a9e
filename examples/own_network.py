"""Trains MuZero with a network of one's own: a function that returns a Flax module.

    cd examples && python own_network.py [RUN_DIR]

The module has three methods; hidden states are arrays [B, ...] of any shape. The name `own_network:make` is kept in
the run directory: resumes, evaluations and `seedzero.load(...)` import it again, on this machine without a flag. The
variable MAX_UPDATES limits the training.
"""

import os
import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

import seedzero


class Network(nn.Module):
    """Two layers for each function, and a gate in the dynamics."""

    width: int
    num_actions: int
    num_bins: int

    def setup(self) -> None:
        self.encoder = nn.Sequential([nn.Dense(self.width), nn.LayerNorm(), nn.relu, nn.Dense(self.width), nn.tanh])
        self.gate = nn.Sequential([nn.Dense(self.width), nn.sigmoid])
        self.candidate = nn.Sequential([nn.Dense(self.width), nn.tanh])
        # Zeros: an untrained network knows nothing, so it should say so.
        self.policy, self.value, self.reward = (
            nn.Sequential([nn.Dense(self.width), nn.relu, nn.Dense(size, kernel_init=nn.initializers.zeros)])
            for size in (self.num_actions, self.num_bins, self.num_bins)
        )

    def represent(self, observation: jax.Array) -> jax.Array:
        """Observations [B, ...] float32 -> hidden states."""
        return self.encoder(observation.reshape(observation.shape[0], -1))

    def predict(self, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Hidden states -> policy logits [B, A] and value logits [B, bins]."""
        return self.policy(hidden), self.value(hidden)

    def dynamics(self, hidden: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Hidden states, actions [B] int32 -> next hidden states and reward logits [B, bins] on the way to them."""
        x = jnp.concatenate([hidden, jax.nn.one_hot(action, self.num_actions)], axis=-1)
        gate = self.gate(x)
        after = gate * hidden + (1 - gate) * self.candidate(x)
        return after, self.reward(after)


def make(spec: Any, config: Any) -> Network:
    """Returns the network for an environment's spec (seedzero.core.types.EnvSpec) and the settings `network`."""
    return Network(config.width, spec.num_actions, config.num_bins)


if __name__ == "__main__":
    ended = seedzero.train(
        preset="cartpole",
        run_dir=sys.argv[1] if len(sys.argv) > 1 else "runs/own_network",
        max_updates=int(os.environ.get("MAX_UPDATES", "3000")),
        **{"network.module": "own_network:make"},
    )
    print(f"{ended.reason}: {ended.num_env_steps} steps, best return {ended.best_return}")
