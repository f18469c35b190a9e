"""Writes q_learning_rlax.json: random steps, and the n-step double-Q targets that rlax computes for them.

    pip install rlax==0.1.9 && python tests/ops/q_learning_rlax_reference.py

rlax knows no observations without a step, and shortens returns at the end of its arrays.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import Any

import numpy as np
import rlax  # type: ignore[import-not-found]

PATH = pathlib.Path(__file__).parent / "q_learning_rlax.json"
NUM_STEPS, NUM_ACTIONS = 6, 3
N_STEPS = (1, 3, 5)
CASES_OF_EACH = 2


def _case(random: np.random.Generator, n_step: int, rescale: bool) -> dict[str, Any]:
    given = {
        "online": random.normal(size=(NUM_STEPS + 1, NUM_ACTIONS), scale=3),
        "target": random.normal(size=(NUM_STEPS + 1, NUM_ACTIONS), scale=3),
        "reward": random.normal(size=NUM_STEPS),
        "discount": np.where(random.random(NUM_STEPS) < 0.25, 0.0, random.uniform(0.8, 1.0, NUM_STEPS)),
    }
    given = {name: np.round(array, 4).astype(np.float32) for name, array in given.items()}
    action = random.integers(0, NUM_ACTIONS, NUM_STEPS)
    pair = rlax.SIGNED_HYPERBOLIC_PAIR if rescale else rlax.IDENTITY_PAIR
    error = rlax.transformed_n_step_q_learning(
        given["online"][:-1],
        action,
        given["target"][1:],
        np.argmax(given["online"][1:], axis=1),
        given["reward"],
        given["discount"],
        n_step,
        tx_pair=pair,
    )
    numbers = {**given, "error": error}
    return {
        "n_step": n_step,
        "rescale": rescale,
        "action": action.tolist(),
        **{name: np.round(np.asarray(array, np.float64), 5).tolist() for name, array in numbers.items()},
    }


def main() -> None:
    random = np.random.default_rng(0)
    settings = itertools.product(N_STEPS, (False, True), range(CASES_OF_EACH))
    cases = [_case(random, n_step, rescale) for n_step, rescale, _ in settings]
    PATH.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
