"""The command line of `seedzero page`: mistakes are named before anything is served."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import fake_gcs
import pytest

from seedzero.cli import main as commands
from seedzero.interfaces.page import serve


def test_a_run_in_a_bucket_is_copied_while_the_page_is_served(
    gcs: fake_gcs.FakeGcs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[pathlib.Path] = []

    def serve_once(root: pathlib.Path, *others: Any, trusted: bool, proxy: tuple[str, str]) -> None:
        names = sorted(file.name for file in root.iterdir())
        assert names == ["config.json", "metrics.jsonl", "status.json"] and not trusted and proxy == ("", "")
        served.append(root)

    monkeypatch.setattr(serve, "serve", serve_once)
    assert commands.main(["page", "--run_dir=gs://runs/team/one"]) == 2
    err = capsys.readouterr().err
    assert "gs://runs/team/one is not a run: config.json or the bucket is missing" in err
    assert "give gs://BUCKET/PATH" in err
    for name, content in {"config.json": b"{}", "metrics.jsonl": b"", "status.json": b"{}"}.items():
        gcs.put("runs", f"team/one/{name}", content)
    assert commands.main(["page", "--run_dir=gs://runs/team/one"]) == 0
    (root,) = served
    assert root.name == "one" and not root.exists()


def test_an_address_may_have_the_brackets_of_a_url(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts: list[str] = []
    monkeypatch.setattr(serve, "serve", lambda root, host, *others, **named: hosts.append(host))
    for host in ("[::1]", "::1"):
        assert commands.main(["page", f"--run_dir={tmp_path}", f"--host={host}"]) == 0
    assert hosts == ["::1", "::1"]


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
