"""Writes the *_rlax.json beside this file: random steps, and what rlax computes of them.

    pip install rlax==0.1.9 && python tests/ops/rlax_reference.py

rlax clips traces of V-trace at 1, has no steps at which nothing is done, and shortens Q-learning's returns at the end
of its arrays.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import rlax  # type: ignore[import-not-found]

NUM_STEPS, NUM_ACTIONS = 6, 3


def _plain(numbers: dict[str, Any], round_: Callable[[float], float]) -> dict[str, Any]:
    return {name: np.vectorize(round_)(np.asarray(x, np.float64)).tolist() for name, x in numbers.items()}


def _digits(number: int) -> Callable[[float], float]:
    return lambda x: float(f"{x:.{number}g}")


def _steps(random: np.random.Generator, before: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns arrays of steps, a few of them the last ones of episodes."""
    discount = {"discount": np.where(random.random(NUM_STEPS) < 0.25, 0.0, random.uniform(0.8, 1.0, NUM_STEPS))}
    return {name: np.round(array, 4).astype(np.float32) for name, array in {**before, **discount}.items()}


def _values(random: np.random.Generator) -> dict[str, np.ndarray]:
    before = {"value": random.normal(size=NUM_STEPS + 1), "reward": random.normal(size=NUM_STEPS)}
    return _steps(random, before)


def gae(random: np.random.Generator, trace_decay: float) -> dict[str, Any]:
    given = _values(random)
    found = rlax.truncated_generalized_advantage_estimation(
        given["reward"], given["discount"], trace_decay, given["value"]
    )
    return {"trace_decay": trace_decay, **_plain({**given, "advantage": found}, _digits(6))}


def vtrace(random: np.random.Generator, trace_decay: float, clip_rho: float) -> dict[str, Any]:
    given = _values(random)
    given["log_rho"] = np.round(random.normal(size=NUM_STEPS), 4).astype(np.float32)
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
    return {"trace_decay": trace_decay, "clip_rho": clip_rho, **_plain(numbers, _digits(6))}


def q_learning(random: np.random.Generator, n_step: int, rescale: bool) -> dict[str, Any]:
    shape = (NUM_STEPS + 1, NUM_ACTIONS)
    before = {name: random.normal(size=shape, scale=3) for name in ("online", "target")}
    given = _steps(random, {**before, "reward": random.normal(size=NUM_STEPS)})
    action = random.integers(0, NUM_ACTIONS, NUM_STEPS)
    error = rlax.transformed_n_step_q_learning(
        given["online"][:-1],
        action,
        given["target"][1:],
        np.argmax(given["online"][1:], axis=1),
        given["reward"],
        given["discount"],
        n_step,
        tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR if rescale else rlax.IDENTITY_PAIR,
    )
    numbers = _plain({**given, "error": error}, lambda x: round(x, 5))
    return {"n_step": n_step, "rescale": rescale, "action": action.tolist(), **numbers}


def _cases(function: Callable[..., Any], random: np.random.Generator, number: int, *settings: Any) -> list[Any]:
    """Returns so many random cases of each combination of settings."""
    return [function(random, *values) for *values, _ in itertools.product(*settings, range(number))]


def main() -> None:
    warnings.simplefilter("ignore")  # rlax recommends its successors
    listed = {
        "gae": _cases(gae, np.random.default_rng(0), 2, (1.0, 0.95, 0.5, 0.0)),
        "vtrace": _cases(vtrace, np.random.default_rng(0), 2, (1.0, 0.9, 0.0), (0.5, 1.0, 1.7)),
        "q_learning": _cases(q_learning, np.random.default_rng(0), 2, (1, 3, 5), (False, True)),
    }
    texts = {name: "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]" for name, cases in listed.items()}
    for name, text in texts.items():
        (pathlib.Path(__file__).parent / f"{name}_rlax.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
