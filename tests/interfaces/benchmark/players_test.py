"""The price of several players."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from seedzero.config import options
from seedzero.core import errors
from seedzero.device import acting
from seedzero.interfaces.benchmark import players, subjects

TINY: Mapping[str, options.Value] = {
    "search.num_simulations": 2,
    "network.kind": "mlp",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "muzero.unroll_steps": 1,
    "muzero.n_step": 2,
    "replay.capacity": 512,
    "replay.batch_size": 16,
    "evaluation.num_envs": 4,
}


@pytest.mark.thorough
def test_every_player_acts_in_its_part_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    make_act = acting.make_act

    def counting(setup: Any) -> Any:
        act = make_act(setup)

        def call(seed: Any, params: Any, actor: Any, batch: Any, counters: Any) -> Any:
            calls.append(len(batch.slot))
            return act(seed, params, actor, batch, counters)

        return call

    def interleave(programs: Mapping[str, subjects.Program], *, seconds: float) -> subjects.Slices:
        for name, program in programs.items():
            del calls[:]
            number = 1 if name == "one" else int(name.split()[0])
            found = program()
            assert len(found) == number and calls == [8 // number] * number
            assert all(np.asarray(action).shape == (8 // number,) for action in found)
        return {name: [1e-3 if name == "one" else 4e-3] * 3 for name in programs}

    monkeypatch.setattr(acting, "make_act", counting)
    monkeypatch.setattr(subjects, "interleave", interleave)
    told: list[subjects.Row] = []
    figures = players.run("catch", {**TINY, "run.agent": "ppo"}, players=(1, 2, 4), rows=(8,), report=told.append)
    assert figures["rows"] == told and figures["preset"] == "catch"
    assert [(row["agent"], row["rows"], row["players"]) for row in told] == [("ppo", 8, n) for n in (1, 2, 4)]
    assert told[1]["rows_per_second"] == pytest.approx(2_000) and told[1]["ratio_to_one"] == pytest.approx(0.25)


@pytest.mark.slow
def test_without_an_agent_all_that_the_preset_suits_are_measured() -> None:
    figures = players.run("catch", TINY, players=(2,), rows=(8,), seconds=0.02)
    assert [row["agent"] for row in figures["rows"]] == ["muzero", "ppo"]
    assert all(row["rows_per_second"] > 0 and row["ratio_to_one"] > 0 for row in figures["rows"])


def test_another_agent_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="--agent=vtrace: muzero and ppo"):
        subjects.make("catch", {"run.agent": "vtrace"}, players.AGENTS)
