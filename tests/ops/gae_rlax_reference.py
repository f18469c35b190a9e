"""Writes gae_rlax.json: random steps, and their advantages as rlax computes them.

    pip install rlax==0.1.9 && python tests/ops/gae_rlax_reference.py

rlax has no steps at which nothing is done.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import rlax  # type: ignore[import-not-found]

PATH = pathlib.Path(__file__).parent / "gae_rlax.json"
NUM_STEPS = 6
TRACE_DECAYS = (1.0, 0.95, 0.5, 0.0)
CASES_OF_EACH = 2


def _case(random: np.random.Generator, trace_decay: float) -> dict[str, Any]:
    given = {
        "value": random.normal(size=NUM_STEPS + 1),
        "reward": random.normal(size=NUM_STEPS),
        "discount": np.where(random.random(NUM_STEPS) < 0.25, 0.0, random.uniform(0.8, 1.0, NUM_STEPS)),
    }
    given = {name: np.round(array, 4).astype(np.float32) for name, array in given.items()}
    found = rlax.truncated_generalized_advantage_estimation(
        given["reward"], given["discount"], trace_decay, given["value"]
    )
    numbers = {**given, "advantage": found}
    return {
        "trace_decay": trace_decay,
        **{name: [float(f"{number:.6g}") for number in np.asarray(array)] for name, array in numbers.items()},
    }


def main() -> None:
    random = np.random.default_rng(0)
    cases = [_case(random, trace_decay) for trace_decay in TRACE_DECAYS for _ in range(CASES_OF_EACH)]
    PATH.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
