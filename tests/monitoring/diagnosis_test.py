"""The table of symptoms: as the document shows it, and on recorded runs, healthy and broken."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from seedzero.config import configs
from seedzero.core import types
from seedzero.monitoring import diagnosis, learning_curves, symptoms

ROOT = pathlib.Path(__file__).parents[2]
RECORDED = json.loads((pathlib.Path(__file__).parent / "recorded_runs.json").read_text())
"""Rows of short runs with every column that a rule reads, some updates or seconds apart; their settings and spec."""
_SPEC = types.EnvSpec((4,), "float32", 2)


def _case(*rows: dict[str, Any], agent: str = "ppo", **settings: Any) -> symptoms.RunCase:
    curve = learning_curves.LearningCurve()
    for row in rows:
        curve = curve.after(row)
    return symptoms.RunCase(configs.override(configs.Config(), {"run.agent": agent, **settings}), _SPEC, curve)


def _told(run: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Returns the names of the rules that the console tells of a run, and of those that its end does not fit."""
    config, spec = configs.override(configs.Config(), run["settings"]), types.EnvSpec(**run["spec"])
    curve, told = learning_curves.LearningCurve(), set()
    for row in run["rows"]:
        curve = curve.after(row)
        told |= {name for name, _ in diagnosis.warnings(symptoms.RunCase(config, spec, curve))}
    found = diagnosis.verdicts(symptoms.RunCase(config, spec, curve))
    return told, {verdict.rule.name for verdict in found if verdict.state == diagnosis.UNHEALTHY}


def test_the_document_has_the_table() -> None:
    """After a change of a rule: put `diagnosis.table()` in the place of the first table below "Metrics"."""
    document = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    shown = document.partition("\n## Metrics\n")[2].partition("|---|---|---|\n")[2].partition("\n\n")[0]
    assert shown.splitlines() == diagnosis.table().splitlines()


def test_rules_are_rows_of_their_own_for_agents_that_there_are() -> None:
    assert len({rule.name for rule in diagnosis.RULES}) == len(diagnosis.RULES)
    assert {agent for rule in diagnosis.RULES for agent in rule.agents} <= set(configs.agent_names())


@pytest.mark.parametrize("agent", configs.agent_names())
def test_every_agent_has_rules_for_values_policy_or_errors_and_for_gradients(agent: str) -> None:
    clipped = {"optimizer.clip_norm": 1.0}
    config = configs.override(configs.Config(), {"run.agent": agent, **clipped})
    names = {rule.name for rule in diagnosis.rules(config)}
    assert names >= {"updates", "refused updates", "rewards", "gradients", "greedy play"}
    assert names & {"values", "Q values"} and names & {"value loss", "clipped targets"}
    without = configs.override(config, dict.fromkeys(clipped, 0.0))
    assert names - {rule.name for rule in diagnosis.rules(without)} == {"gradients"}


@pytest.mark.parametrize("run", [run for run in RECORDED if not run["symptoms"]], ids=lambda run: run["name"])
def test_a_healthy_run_is_never_told_otherwise(run: dict[str, Any]) -> None:
    assert _told(run) == (set(), set())


@pytest.mark.parametrize("run", [run for run in RECORDED if run["symptoms"]], ids=lambda run: run["name"])
def test_a_broken_run_is_found_while_it_trains_and_at_its_end(run: dict[str, Any]) -> None:
    told, last = _told(run)
    assert set(run["symptoms"]) == told
    assert last


_COLUMNS = ("update", "episode_return", "policy_entropy", "value_mean", "value_target_mean", "importance_mean")
_DOCUMENTED = {
    "healthy, MuZero": (
        ("muzero", {"optimizer.learning_rate": 2e-3}),
        ((60, -0.9, 1.099, -0.19, -0.36, 1), (250, -0.6, 1.018, -0.59, -0.63, 1), (500, -0.4, 0.943, -0.55, -0.56, 1)),
        set(),
    ),
    "healthy, V-trace": (
        ("vtrace", {"reward.scale": 0.05}),
        ((100, 72, 0.604, 2.37, 2.43, 1), (500, 167, 0.529, 4.52, 4.56, 1), (1000, 321, 0.552, 4.34, 4.33, 1)),
        set(),
    ),
    "no entropy bonus": (
        ("vtrace", {"reward.scale": 0.05}),
        ((260, 38, 0.558, 1.37, 1.27, 1), *((n, 9.4, 0.0, 0.27, 0.25, 1) for n in (500, 600, 700))),
        {"certain policy"},
    ),
    "lag": (
        ("vtrace", {"reward.scale": 0.05}),
        ((60, 21, 0.69, 0.6, 0.8, 1), *((n, 18, 0.046, 15.2, 5.1, 0.85) for n in (500, 540, 560))),
        {"certain policy", "values", "old steps"},
    ),
    "support": (
        ("muzero", {"network.support_limit": 2.0}),
        tuple((n, n / 7, 0.608, 7.2, 18.0, 1) for n in (400, 450, 500)),
        {"values"},
    ),
    "learning rate times 300": (
        ("muzero", {"optimizer.learning_rate": 0.6}),
        (
            (187, 20, 0.58, 9, 11, 1),
            (430, 21, 0.691, 11, 14, 1),
            (800, 20, 0.69, 12, 15, 1),
            (1000, 20, 0.69, 12, 15, 1),
        ),
        {"values", "undecided policy"},
    ),
}
"""Rows of experiments/notes/curves.md, some repeated where a run stood still; and the rules that they break."""


@pytest.mark.parametrize("name", _DOCUMENTED)
def test_the_runs_of_the_document_are_told_apart(name: str) -> None:
    (agent, settings), documented, expected = _DOCUMENTED[name]
    shared = {"loss": 0.1, "loss_value": 0.1, "policy_lag": 5.0, "episodes": 50}
    rows = [{**shared, **dict(zip(_COLUMNS, row, strict=True))} for row in documented]
    found = diagnosis.verdicts(_case(*rows, agent=agent, **settings))
    assert {verdict.rule.name for verdict in found if verdict.state == diagnosis.UNHEALTHY} == expected


def test_what_is_missing_or_too_early_is_said() -> None:
    def states(*rows: dict[str, Any]) -> dict[str, str]:
        return {found.rule.name: found.state for found in diagnosis.verdicts(_case(*rows))}

    row = {"update": 1, "loss": 1.0, "num_rejected": 0.0, "policy_entropy": 0.5}
    assert states(row)["values"] == diagnosis.TOO_EARLY and states(row)["refused updates"] == diagnosis.HEALTHY
    later = [{**row, "update": 1_000}] * 3
    assert states(*later)["values"] == states(*later)["certain policy"] == diagnosis.NOT_RECORDED
    (missing,) = [found.seen for found in diagnosis.verdicts(_case(*later)) if found.rule.name == "certain policy"]
    assert missing == "episode_return"
    assert states({"update": 0})["updates"] == diagnosis.HEALTHY
    assert states(*[{"update": 0}] * 3)["updates"] == diagnosis.UNHEALTHY


def test_the_advice_names_the_settings_of_the_agent_with_the_runs_values() -> None:
    rows = [{"update": 9, "loss": 1.0, "num_rejected": 1.0}]
    for agent, name in (("ppo", "optimizer.learning_rate"), ("muzero", "optimizer.learning_rate")):
        ((_, text),) = diagnosis.warnings(_case(*rows, agent=agent, **{name: 0.5}))
        assert f"--{name} (now 0.5)" in text and "{" not in text and "`" not in text
