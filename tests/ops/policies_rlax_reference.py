"""Writes policies_rlax.json: rlax's clipped objective (PPO) and densities of actions (PPO and SAC) at random numbers.

    pip install rlax==0.1.9 tfp-nightly && python tests/ops/policies_rlax_reference.py

rlax squashes the mean and the deviation of its squashed normal distribution too: the file has them as they are then.
"""

from __future__ import annotations

import json
import pathlib
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import rlax  # type: ignore[import-not-found]

PATH = pathlib.Path(__file__).parent / "policies_rlax.json"
NUM_STEPS, NUM_DIMENSIONS, CASES_OF_EACH = 6, 3, 3
CLIPS = (0.1, 0.2, 0.5)


def _plain(numbers: dict[str, Any]) -> dict[str, Any]:
    return {name: np.vectorize(lambda x: float(f"{x:.7g}"))(np.asarray(x)).tolist() for name, x in numbers.items()}


def _objective(random: np.random.Generator, clip: float) -> dict[str, Any]:
    ratio = np.round(np.exp(random.normal(size=NUM_STEPS, scale=0.4)), 4).astype(np.float32)
    advantage = np.round(random.normal(size=NUM_STEPS), 4).astype(np.float32)
    loss = rlax.clipped_surrogate_pg_loss(jnp.asarray(ratio), jnp.asarray(advantage), clip)
    return _plain({"clip": clip, "ratio": ratio, "advantage": advantage, "loss": loss})


def _densities(random: np.random.Generator) -> dict[str, Any]:
    """Returns log densities at x of a normal distribution, and at tanh(x) of its image under tanh."""
    mean, sigma = (np.round(random.normal(size=NUM_DIMENSIONS), 4).astype(np.float32) for _ in range(2))
    x = np.round(random.normal(size=(NUM_STEPS, NUM_DIMENSIONS)), 4).astype(np.float32)
    own_mean, own_std = jnp.tanh(mean), jnp.exp(-4.0 + 2.0 * (jnp.tanh(sigma) + 1.0))
    squashed, normal = rlax.squashed_gaussian(-4.0, 0.0), rlax.gaussian_diagonal()
    return _plain(
        {
            "x": x,
            "mean": own_mean,
            "log_std": jnp.log(own_std),
            "log_density": [normal.logprob(row, own_mean, own_std) for row in x],
            "entropy": normal.entropy(own_mean, own_std),
            "log_squashed": [squashed.logprob(jnp.tanh(row), mean, sigma, None) for row in x],
        }
    )


def main() -> None:
    warnings.simplefilter("ignore")  # rlax recommends its successors
    random = np.random.default_rng(0)
    found = {
        "objective": [_objective(random, clip) for clip in CLIPS for _ in range(CASES_OF_EACH)],
        "densities": [_densities(random) for _ in range(CASES_OF_EACH)],
    }
    PATH.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
