"""The table and figure of leagues judged exactly, from made up runs."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

import pytest
import saved_league

from seedzero.api import exploitability


@pytest.fixture
def league_nash() -> Any:
    pytest.importorskip("pyspiel")
    return importlib.import_module("league_nash")


@pytest.mark.thorough
def test_a_run_has_a_point_for_each_snapshot(league_nash: Any, tmp_path: pathlib.Path) -> None:
    path = saved_league.make_seats(tmp_path / "run")
    (first, second), weights = league_nash.judged(path, 0.5)
    assert (first["frames"], second["frames"]) == (2_000, 4_000)  # twice the training steps of the snapshots
    assert first["mixture"] == first["alike"] == first["late"] == first["last"] > 0
    assert second["late"] == second["last"] != first["last"] and second["mixture"] > 0
    judged = exploitability.judge(path, "").mixtures
    assert second["alike"] == pytest.approx(judged["uniform"].nash_conv)
    assert [one["frames"] for one in weights] == [2_000, 4_000]
    assert [sum(one[seat] for one in weights) for seat in ("first", "second")] == pytest.approx([1.0, 1.0])


def test_the_table_has_medians_and_ranges_over_seeds(league_nash: Any, tmp_path: pathlib.Path) -> None:
    def result(name: str, seed: int, *values: float) -> dict[str, Any]:
        points = [{"frames": 100.0 * at, **dict.fromkeys(league_nash.COLUMNS, x)} for at, x in enumerate(values)]
        weights = [{"frames": 0.0, "first": 0.25, "second": 1.0}, {"frames": 100.0, "first": 0.75, "second": 0.0}]
        return {"run": name, "seed": seed, "points": points, "weights": weights}

    results = [result("league", 1, 0.9, 0.1), result("league", 2, 0.8, 0.3), result("league", 3, 0.7, 0.2)]
    results.append(result("self-play", 1, 0.9, 0.5))
    lines = league_nash.table(results).splitlines()
    assert lines[2].startswith("| league | 3 | 0.200 (0.100 to 0.300) |") and "| self-play | 1 | 0.500" in lines[3]
    assert len(lines) == 4
    panels = league_nash.panels(results)
    assert [point["nash_conv"] for point in panels[0].curves["league"]] == [0.8, 0.2]
    assert [point["weight"] for point in panels[-1].curves["first seat"]] == [0.25, 0.75]
    league_nash.runs.plot(tmp_path / "kuhn.svg", panels, title="NashConv, kuhn")
    assert (tmp_path / "kuhn.svg").stat().st_size > 1_000
