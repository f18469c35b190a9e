"""seedzero's torso for acting alone: the convolutions of `small_network.py`; Ape-X adds the hidden layer and heads."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax


class Torso(nn.Module):
    """Maps frames [B, 84, 84, 4], 0 to 1, to features [B, 1936]."""

    @nn.compact
    def __call__(self, x: jax.Array, *others: Any) -> jax.Array:
        for size, stride in ((8, 4), (4, 2), (3, 1)):
            x = nn.relu(nn.Conv(16, (size, size), stride)(x))
        return x.reshape(x.shape[0], -1)


def make(spec: Any, settings: Any) -> Torso:
    """For --network.module=acting_torso:make."""
    return Torso()
