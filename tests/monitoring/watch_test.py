"""The console tells each symptom once."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from seedzero.config import configs
from seedzero.core import types
from seedzero.monitoring import watch

_SPEC = types.EnvSpec((4,), "float32", 2)
_COLLAPSED: dict[str, Any] = {"loss": 1.0, "policy_entropy": 0.001, "policy_kl": 0.0, "num_rejected": 0}


def _watch(path: pathlib.Path) -> tuple[watch.Watch, list[str]]:
    told: list[str] = []
    config = configs.override(configs.Config(), {"run.agent": "ppo"})
    return watch.Watch(config, path, told.append), told


def _rows(*returns: float) -> list[dict[str, Any]]:
    return [{**_COLLAPSED, "update": 10 * n, "episode_return": x} for n, x in enumerate(returns, 1)]


def test_a_symptom_is_told_once_with_the_setting_to_change(tmp_path: pathlib.Path) -> None:
    watched, told = _watch(tmp_path)
    for row in _rows(9.0, 9.0, 9.0, 9.0):
        watched.see(row, _SPEC)
    (text,) = told
    assert "policy_entropy" in text and "--optimizer.learning_rate (now 0.00025)" in text
    watched.see({**_rows(9.0)[0], "update": 50, "policy_kl": 40.0}, _SPEC)
    assert len(told) == 2 and "--ppo.num_epochs" in told[1], "another symptom is told too"


def test_a_decided_policy_that_has_risen_is_healthy_after_a_resume_too(tmp_path: pathlib.Path) -> None:
    """The rows of before count: to this process the return has fallen."""
    for has_earlier in (True, False):
        watched, told = _watch(tmp_path)
        lines = map(json.dumps, _rows(9.0, 200.0, 500.0, 500.0))
        (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n" if has_earlier else "")
        watched.begin()
        for row in _rows(500.0, 350.0, 350.0, 350.0):
            watched.see({**row, "update": 100}, _SPEC)
            watched.begin()
        assert bool(told) != has_earlier


def test_a_file_that_cannot_be_read_ends_no_training(tmp_path: pathlib.Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    watched, told = _watch(tmp_path)
    watched.begin()
    watched.see(_rows(9.0)[0], None)
    assert not told


@pytest.mark.parametrize("update", ["inf", "nan", 10**400], ids=["inf", "nan", "huge"])
def test_an_unexpected_row_is_told_once_and_ends_no_training(tmp_path: pathlib.Path, update: Any) -> None:
    watched, told = _watch(tmp_path)
    for row in ({**_COLLAPSED, "update": update}, {**_COLLAPSED, "update": update}, *_rows(9.0, 9.0, 9.0)):
        watched.begin()
        watched.see(row, _SPEC)
    (text,) = told
    assert "seedzero diagnose" in text
