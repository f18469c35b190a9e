"""Writes vtrace_rlax.json: random steps, and V-trace's errors and advantages as rlax computes them.

    pip install rlax==0.1.9 && python tests/ops/vtrace_rlax_reference.py

rlax clips traces at 1, and has no steps at which nothing is done.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import Any

import numpy as np
import rlax  # type: ignore[import-not-found]

PATH = pathlib.Path(__file__).parent / "vtrace_rlax.json"
NUM_STEPS = 6
TRACE_DECAYS = (1.0, 0.9, 0.0)
CLIPS = (0.5, 1.0, 1.7)
CASES_OF_EACH = 2


def _case(random: np.random.Generator, trace_decay: float, clip_rho: float) -> dict[str, Any]:
    given = {
        "value": random.normal(size=NUM_STEPS + 1),
        "reward": random.normal(size=NUM_STEPS),
        "discount": np.where(random.random(NUM_STEPS) < 0.25, 0.0, random.uniform(0.8, 1.0, NUM_STEPS)),
        "log_rho": random.normal(size=NUM_STEPS),
    }
    given = {name: np.round(array, 4).astype(np.float32) for name, array in given.items()}
    found = rlax.vtrace_td_error_and_advantage(
        given["value"][:-1],
        given["value"][1:],
        given["reward"],
        given["discount"],
        np.exp(given["log_rho"]),
        lambda_=trace_decay,
        clip_rho_threshold=clip_rho,
        clip_pg_rho_threshold=clip_rho,
    )
    numbers = {**given, "error": found.errors, "advantage": found.pg_advantage}
    return {
        "trace_decay": trace_decay,
        "clip_rho": clip_rho,
        **{name: [float(f"{number:.6g}") for number in np.asarray(array)] for name, array in numbers.items()},
    }


def main() -> None:
    random = np.random.default_rng(0)
    settings = itertools.product(TRACE_DECAYS, CLIPS, range(CASES_OF_EACH))
    cases = [_case(random, trace_decay, clip_rho) for trace_decay, clip_rho, _ in settings]
    PATH.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
