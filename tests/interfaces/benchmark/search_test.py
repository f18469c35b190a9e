"""The benchmark measures what it says, row by row; how fast is for a quiet machine to say."""

from __future__ import annotations

import math
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seedzero import search as mcts
from seedzero.cli import benchmark
from seedzero.core import errors
from seedzero.interfaces.benchmark import search

SECONDS = 0.02
MEASURED = {
    "milliseconds": float,
    "mctx_milliseconds": float,
    "network_milliseconds": float,
    "ratio_to_mctx": float,
    "ratio_to_network": float,
    "tree_bytes": int,
}


def _fixed_times(programs: Any, seconds: float) -> dict[str, list[float]]:
    return {"search": [2.0], "mctx": [6.0], "network": [1.0]}


@pytest.mark.thorough
def test_a_row_has_its_case_and_its_figures() -> None:
    reported: list[search.subjects.Row] = []
    figures = search.run(
        policy=["gumbel"], network=["free"], batch=[2], considered={2: 2}, seconds=SECONDS, report=reported.append
    )
    assert figures.keys() == {"platform", "device", "cores", "jax", "mctx", "rows"}
    assert figures["rows"] == reported
    (row,) = reported
    case = {"policy": "gumbel", "network": "free", "batch": 2, "simulations": 2, "considered": 2, "actions": 18}
    assert row.keys() == case.keys() | MEASURED.keys() and row.items() >= case.items()
    for name, kind in MEASURED.items():
        figure = row[name]
        assert type(figure) is kind and math.isfinite(figure) and figure > 0


def test_the_ratio_to_mctx_is_a_speed_and_that_to_the_network_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search.subjects, "interleave", _fixed_times)
    monkeypatch.setattr(search, "_compile", lambda cases, *args: {case: {} for case in cases})
    (row,) = search.run(policy=["puct"], network=["free"], batch=[2], considered={3: 2})["rows"]
    assert (row["milliseconds"], row["mctx_milliseconds"], row["network_milliseconds"]) == (2e3, 6e3, 1e3)
    assert (row["ratio_to_mctx"], row["ratio_to_network"]) == (3.0, 2.0)
    assert (row["simulations"], row["considered"]) == (3, 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("platform", "batches", "networks"),
    [("cpu", (8, 32, 128), ("free", "small")), ("gpu", (8, 32, 128, 512), ("free", "small", "middle"))],
)
def test_by_default_a_cpu_is_spared_the_largest_rows(
    platform: str, batches: tuple[int, ...], networks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search.subjects, "interleave", _fixed_times)
    monkeypatch.setattr(search, "_compile", lambda cases, *args: {case: {} for case in cases})
    monkeypatch.setattr(search, "_model", lambda network: search._table_model())
    device = type("Device", (), {"platform": platform, "device_kind": "any"})
    monkeypatch.setattr(search.jax, "devices", lambda: [device])
    rows = search.run()["rows"]
    assert tuple(dict.fromkeys(row["batch"] for row in rows)) == batches
    assert tuple(dict.fromkeys(row["network"] for row in rows)) == networks
    cases = {tuple(row[name] for name in search.Case._fields) for row in rows}
    assert len(cases) == len(rows) == len(batches) * len(networks) * 2 * 2
    assert {(x["policy"], x["simulations"], x["considered"]) for x in rows} == {
        ("gumbel", 16, 8), ("gumbel", 50, 16), ("puct", 16, 0), ("puct", 50, 0)
    }  # fmt: skip


def test_the_command_line_knows_the_same_rows() -> None:
    assert benchmark.ROWS == {"batch": search.BATCHES, "network": search.NETWORKS, "policy": search.POLICIES}


@pytest.mark.thorough
@pytest.mark.parametrize("policy", search.POLICIES)
def test_mctx_and_the_search_get_the_same_budget(policy: str) -> None:
    calls: list[int] = []
    model = search._model("free")

    def step(params: Any, action: jax.Array, state: jax.Array) -> Any:
        jax.debug.callback(lambda: calls.append(len(action)))
        return model.step(params, action, state)

    config = search._config(search.Case(policy, "free", 2, 6, 4 if policy == "gumbel" else 0))
    root, key = model.roots(2), jax.random.key(0)

    def rows_evaluated(function: Any, *settings: Any) -> int:
        calls.clear()
        jax.block_until_ready(jax.jit(lambda params, root: function(*settings, params, root, key))(model.params, root))
        jax.effects_barrier()
        return sum(calls)

    assert rows_evaluated(search._mctx, step, config) == 2 * 6
    assert rows_evaluated(search._search, step, config) == 2 * 6
    assert rows_evaluated(search._network, step, config) == 2 * 6


def test_the_network_alone_makes_the_search_s_calls_in_a_chain() -> None:
    def step(params: jax.Array, action: jax.Array, state: jax.Array) -> tuple[mcts.Prediction, jax.Array]:
        return mcts.Prediction(state, state, state, action), state + params

    config = search._config(search.Case("gumbel", "free", 2, 16, 8))
    root = mcts.Root(jnp.zeros((2, 18)), jnp.zeros(2), jnp.array([0, 100]))
    found = search._network(step, config, jnp.int32(1), root, jax.random.key(0))
    widths = [states.shape for states, *_ in found]
    assert widths == [(1, 16), (1, 8), (2, 4)]  # (8, 4, 2, 2) of two roots
    np.testing.assert_array_equal(found[0].reward[0], [0, 100] * 8)
    np.testing.assert_array_equal(found[2].reward, [[2, 102] * 2, [3, 103] * 2])
    np.testing.assert_array_equal(found[0].value[0], range(16))


def test_the_free_model_never_tells_two_paths_alike() -> None:
    model = search._model("free")
    states = [model.roots(8).embedding]
    for action in range(18):
        prediction, state = model.step(model.params, jnp.full(8, action, jnp.int32), states[0])
        states.append(state)
    assert len(set(np.concatenate(states).tolist())) == 8 * 19
    assert prediction.prior_logits.shape == (8, 18) and np.std(prediction.value) > 0.1
    np.testing.assert_array_equal(prediction.discount, np.full(8, 0.997, np.float32))


@pytest.mark.thorough
def test_the_networks_are_those_of_atari_and_tell_states_apart() -> None:
    model = search._model("small")
    root = model.roots(2)
    assert root.embedding.shape == (2, 6, 6, 64) and root.embedding.dtype == jnp.float32
    prediction, hidden = jax.jit(model.step)(model.params, jnp.array([0, 17]), root.embedding)
    assert hidden.shape == root.embedding.shape
    for array in (root.prior_logits, root.value, prediction.prior_logits, prediction.value, prediction.reward):
        assert np.isfinite(array).all() and not np.isclose(array[0], array[1], atol=1e-4).all()


def test_without_mctx_the_next_step_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mctx", None)
    with pytest.raises(errors.UsageError, match=r"mctx.*-m pip install 'mctx<"):
        search.run(batch=[2])
