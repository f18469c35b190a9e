"""Runs at Weights & Biases: against a module that records the calls, and in its offline mode where it is installed."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import threading
import types as python_types
from collections.abc import Iterator
from typing import Any

import pytest

from seedzero.core import errors
from seedzero.monitoring import wandb_run

ROW = {"update": 3, "env_steps": 640, "time": "today", "loss": 0.5, "evaluation_mean_return": None}


class Fake(python_types.ModuleType):
    """The part of wandb that is used."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
        self.errors = python_types.SimpleNamespace(CommError=type("CommError", (Exception,), {}))
        self.Settings = dict
        self.calls: list[Any] = []
        self.inits: list[dict[str, Any]] = []
        self.logged_in = True
        self.init_error: Exception | None = None
        self.log_error: Exception | None = None
        self.finish_error: Exception | None = None
        self.go_on = threading.Event()
        self.go_on.set()

    def login(self, *, prompt: bool, verify: bool) -> bool:
        assert not prompt and not verify
        return self.logged_in

    def teardown(self) -> None:
        self.calls.append("teardown")

    def init(self, **given: Any) -> Fake:
        self.go_on.wait(60)
        self.inits.append(given)
        if self.init_error and "mode" not in given:
            raise self.init_error
        self.offline = given.get("mode") == "offline"
        self.url = "https://wandb.example/run"
        self.settings = python_types.SimpleNamespace(sync_dir="DIR")
        return self

    def define_metric(self, name: str, step_metric: str) -> None:
        self.calls.append((name, step_metric))

    def log(self, values: dict[str, float]) -> None:
        if self.log_error:
            raise self.log_error
        self.calls.append(values)

    def finish(self) -> None:
        self.calls.append("finish")
        if self.finish_error:
            raise self.finish_error


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    fake = Fake()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield fake
    fake.go_on.set()


def _open(path: pathlib.Path, project: str = "team/games") -> tuple[wandb_run.WandbRun, list[str]]:
    reports: list[str] = []
    return wandb_run.WandbRun(project, path, {"run.seed": 7}, reports.append), reports


def _sent(path: pathlib.Path, num_rows: int = 1) -> list[str]:
    """Sends rows and ends the run; returns what the user was told."""
    run, reports = _open(path)
    for _ in range(num_rows):
        run.write(ROW)
    run.close()
    return reports


def test_numbers_of_a_row_go_to_the_run_in_groups_over_environment_steps(wandb: Fake, tmp_path: pathlib.Path) -> None:
    reports = _sent(tmp_path)
    (given,) = wandb.inits
    assert (given["project"], given["entity"], given["name"]) == ("games", "team", tmp_path.name)
    assert (given["config"], given["dir"]) == ({"run.seed": 7}, tmp_path)
    values = {"time/update": 3, "time/env_steps": 640, "train/loss": 0.5}
    assert wandb.calls == [("*", "time/env_steps"), values, "finish"]
    assert reports == ["Weights & Biases: https://wandb.example/run"]


def test_a_resume_goes_on_with_the_same_run_of_the_project(wandb: Fake, tmp_path: pathlib.Path) -> None:
    for project in ("games", "games", "other"):
        _open(tmp_path, project)[0].close()
    first, second, other = (given["id"] for given in wandb.inits)
    assert first == second != other
    assert {given["resume"] for given in wandb.inits} == {"allow"}
    assert json.loads((tmp_path / "wandb.json").read_text()) == {"project": "other", "id": other}


def test_without_a_network_the_rows_are_kept_on_the_disk(wandb: Fake, tmp_path: pathlib.Path) -> None:
    wandb.init_error = wandb.errors.CommError("no route\nto the host")
    reports = _sent(tmp_path)
    assert [given.get("mode") for given in wandb.inits] == [None, "offline"]
    assert wandb.calls[0] == "teardown" and len(wandb.calls) == 4
    assert "(no route)" in reports[0]
    assert "wandb sync DIR" in reports[1]


def test_a_slow_network_delays_neither_rows_nor_the_end(
    wandb: Fake, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb_run, "MAX_WAITING", 3)
    monkeypatch.setattr(wandb_run, "CLOSE_SECONDS", 0.01)
    wandb.go_on.clear()
    run, reports = _open(tmp_path)
    for _ in range(2):
        run.write(ROW)
    run.close()
    (told,) = reports
    assert "does not answer; " in told and "metrics.jsonl" in told
    for _ in range(5):
        run.write(ROW)  # nobody waits
    wandb.go_on.set()


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        ({"log_error": ConnectionResetError("Connection lost")}, ("Connection lost", "2 rows ")),
        ({"finish_error": TimeoutError()}, ("wandb sync DIR",)),
        ({"finish_error": ConnectionResetError("Connection lost")}, (": Connection lost",)),
    ],
    ids=["a service that ends", "an upload that takes too long", "a service that fails at the end"],
)
def test_a_failure_ends_no_training_and_is_told_once(
    wandb: Fake,
    tmp_path: pathlib.Path,
    failure: dict[str, Exception],
    told: tuple[str, ...],
    request: pytest.FixtureRequest,
) -> None:
    vars(wandb).update(failure)
    _, *reports = _sent(tmp_path, 3)
    assert [part in text for part, text in zip(told, reports, strict=True)] == [True] * len(told)
    assert "log_error" in failure or wandb.calls[-1] == "finish"


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(errors.ConfigError, match=r"-m pip install 'wandb<"):
        wandb_run.check()


def test_a_login_is_needed_unless_the_mode_needs_none(wandb: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb_run.check()
    wandb.logged_in = False
    with pytest.raises(
        errors.ConfigError, match=r"--metrics\.wandb.*`wandb login`, .*WANDB_API_KEY, .*WANDB_MODE=offline"
    ):
        wandb_run.check()
    monkeypatch.setenv("WANDB_MODE", "offline")
    wandb_run.check()


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
def test_the_offline_mode_of_wandb_keeps_the_rows(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for _ in range(2):
        reports = _sent(tmp_path)
        assert len(reports) == 1 and "wandb sync" in reports[0]
    files = list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert files and all(b"train/loss" in file.read_bytes() for file in files)
