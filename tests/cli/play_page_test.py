"""`seedzero play --page`: the record, its address, and a browser where there is one."""

from __future__ import annotations

import json
import os
import pathlib
import re
import webbrowser
from typing import Any

import pytest

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import recording
from seedzero.cli import main as commands
from seedzero.cli import play_page
from seedzero.interfaces.page import serve


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns what is recorded, served and opened."""
    found: list[Any] = []

    def record(choice: agent_choice.AgentChoice, out: pathlib.Path, num_episodes: int) -> dict[str, Any]:
        found.append((choice, out, num_episodes))
        return {"step": 7, "out": str(out)}

    def served(root: pathlib.Path, host: str, port: int, token: str, ready: Any, *, trusted: bool) -> None:
        found.append((root, host, port, token, trusted))
        ready("http://127.0.0.1:1234/")

    monkeypatch.setattr(recording, "record", record)
    monkeypatch.setattr(serve, "serve", served)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return found


def test_the_episode_is_recorded_and_shown(
    calls: list[Any], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--page", "--seed=3", "--step=120", "--max_episode_steps=9", "--policy=sample", "--trust_run_dir"]
    assert commands.main(["play", f"--run_dir={tmp_path}", *flags]) == 0
    recorded, shown = calls
    choice = agent_choice.AgentChoice(tmp_path, 120, policy="sample", trusted=True, seed=3, max_steps=9)
    assert (recorded[0], recorded[2]) == (choice, 1)
    folder = recorded[1].relative_to(tmp_path / "records").as_posix()
    assert re.fullmatch(r"played-\d{8}-\d{6}", folder)
    assert shown == (tmp_path.resolve(), "127.0.0.1", 0, "", True)
    output = capsys.readouterr()
    assert json.loads(output.out)["step"] == 7
    assert f"playing {tmp_path} into records/{folder}" in output.err
    assert f":1234/#/record?run=.&record={folder}%2Fepisode-000000.npz" in output.err


def test_the_page_has_the_port_of_the_flag_which_needs_the_page(
    calls: list[Any], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["play", f"--run_dir={tmp_path}", "--page", "--port=8123"]) == 0
    assert calls[1][2] == 8123
    assert commands.main(["play", f"--run_dir={tmp_path}", "--port=8123"]) == 2
    assert "--port=8123" in capsys.readouterr().err and len(calls) == 2


def test_a_directory_that_cannot_be_written_is_copied(
    calls: list[Any],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_dir = tmp_path / "run"
    for name in ("params", "replay"):
        (run_dir / "checkpoints" / name).mkdir(parents=True)
    (run_dir / "lock").touch()
    run_dir.chmod(0o500)
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (run_dir, os.W_OK))  # root may write anywhere

    def record(choice: agent_choice.AgentChoice, out: pathlib.Path, num_episodes: int) -> dict[str, Any]:
        copied = sorted(path.relative_to(choice.path).as_posix() for path in choice.path.rglob("*"))
        assert copied == ["checkpoints", "checkpoints/params"]
        out.mkdir(parents=True)
        calls.append(choice.path)
        return {}

    monkeypatch.setattr(recording, "record", record)
    assert commands.main(["play", str(run_dir), "--page"]) == 0
    copy, shown = calls
    assert copy.name == "run" and shown[0] == copy.resolve() and not copy.exists()
    assert sorted(path.name for path in run_dir.iterdir()) == ["checkpoints", "lock"]
    text = capsys.readouterr().err
    assert f"cannot write to {run_dir}; the record is in a copy, {copy}, " in text


def test_only_a_browser_with_a_window_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(play_page.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    play_page.open_browser("a", found.append)
    monkeypatch.setenv("DISPLAY", ":0")
    play_page.open_browser("b", found.append)

    def fails(url: str) -> None:
        raise webbrowser.Error("no runnable browser")

    play_page.open_browser("c", fails)
    assert found == ["b"]
