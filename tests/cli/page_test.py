"""The command line of `seedzero page`: mistakes are named before anything is served."""

from __future__ import annotations

import importlib.util
import pathlib

import golden
import pytest

from seedzero.cli import main as commands


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "--run_dir"),
        (["--run_dir=nowhere"], "nowhere"),
        (["--run_dir=gs://bucket/run"], "gs://bucket/run"),
        (["--run_dir=.", "--port=65536"], "--port=65536"),
        (["--run_dir=.", "--port=-1"], "--port=-1"),
        (["--run_dir=.", "--host="], "--host"),
        (["--run_dir=.", "--host=0.0.0.0"], "--host=0.0.0.0"),
        (["--run_dir=.", "--token_file=nowhere"], "--token_file=nowhere"),
    ],
)
def test_mistakes_are_named(
    words: list[str],
    part: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: golden.Said,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert commands.main(["page", *words]) == 2
    text = capsys.readouterr().err
    assert part in text
    said(text, " ".join(words) or "nothing")


def test_a_missing_package_is_named_with_the_extra(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    assert commands.main(["page", f"--run_dir={tmp_path}"]) == 2
    text = capsys.readouterr().err
    assert "extra page" in text and "uvicorn is not installed" in text and "install" in text


def test_the_help_says_how_to_open_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["page", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(flag in text for flag in ("--run_dir", "--port", "--host", "--token_file", "ssh -L", "docs/page.md"))
