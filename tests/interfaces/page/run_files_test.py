"""Logs and videos of runs: bounded pieces of files inside the run directory, and nothing for a stranger."""

from __future__ import annotations

import os
import pathlib

import page_client
import pytest

from seedzero.core import host_names
from seedzero.interfaces.page import app, catalogue, run_files

HOSTILE = [
    "../outside.log", "..%2foutside.log", "logs/../../outside.log", "/etc/passwd", "config.json", "logs/link.log",
    "elsewhere/outside.log", "a/b/c.log", "logs", "logs/gone.log", "x\0.log", "logs\\worker-0.log", "./train.log",
]  # fmt: skip


@pytest.fixture
def logs(root: pathlib.Path) -> pathlib.Path:
    """The logs of a run, beside files that lie outside of it."""
    (root / "outside.log").write_text("secret")
    (root / "outside.mp4").write_bytes(b"secret")
    (root / "a" / "elsewhere").symlink_to(root)
    folder = root / "a" / "logs"
    folder.mkdir()
    (folder / "link.log").symlink_to(root / "outside.log")
    (folder / "link.mp4").symlink_to(root / "outside.mp4")
    (folder / "worker-0.log").write_text("older\n")
    os.utime(folder / "worker-0.log", (1, 1))
    return folder


def test_the_newest_log_is_shown_unless_another_is_asked_for(client: page_client.Client, logs: pathlib.Path) -> None:
    (logs.parent / "train.log").write_text("one\rtwo\r\n\x1b[31mthree\n")
    found = client.get("/api/log", params={"run": "a"}).json()
    assert (found["files"], found["file"], found["bytes"]) == (["logs/worker-0.log", "train.log"], "train.log", 20)
    assert found["text"] == "one\ntwo\n\\x1b[31mthree\n"
    assert client.get("/api/log", params={"run": "a", "file": "logs/worker-0.log"}).json()["text"] == "older\n"


def test_a_run_may_have_no_log(client: page_client.Client) -> None:
    assert client.get("/api/log", params={"run": "a"}).json() == {"files": [], "file": "", "text": "", "bytes": 0}


def test_of_a_long_log_whole_lines_of_the_end_are_sent(
    client: page_client.Client, logs: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "LOG_BYTES", 10)
    (logs / "worker-1.log").write_text("first\nsecond\nthird\n")
    found = client.get("/api/log", params={"run": "a"}).json()
    assert (found["text"], found["bytes"]) == ("third\n", 19)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize(("path", "ending"), [("/api/log", ".log"), ("/api/video", ".mp4")])
def test_no_name_leads_out_of_the_run(
    client: page_client.Client, logs: pathlib.Path, path: str, ending: str, name: str
) -> None:
    answer = client.get(path, params={"run": "a", "file": name.replace(".log", ending)})
    assert answer.status_code == 404 and "error" in answer.json() and "secret" not in answer.text


@pytest.mark.parametrize("path", ["/api/log", "/api/video", "/api/curves", "/api/runs"])
def test_nothing_is_read_for_a_stranger(page: app.Page, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("locate", "find"):
        monkeypatch.setattr(catalogue, name, lambda *arguments: calls.append(arguments))
    stranger = page_client.Client(app.make(page, hosts=host_names.HostNames("127.0.0.1"), token="0123456789abcdef"))
    assert stranger.get(path, params={"run": "a", "file": "logs/worker-0.log"}).status_code == 401
    assert calls == []


@pytest.mark.parametrize(
    ("asked", "code", "content", "place"),
    [
        ("", 200, b"0123456789", None),
        ("bytes=0-", 206, b"0123", "bytes 0-3/10"),
        ("bytes=2-3", 206, b"23", "bytes 2-3/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-9", 206, b"1234", "bytes 1-4/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=3-2", 416, b"", "bytes */10"),
        ("bytes=-0", 416, b"", "bytes */10"),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("bytes=٣-", 200, b"0123456789", None),
    ],
)
def test_a_video_is_sent_in_pieces(
    client: page_client.Client, root: pathlib.Path, asked: str, code: int, content: bytes, place: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(run_files, "PIECE_BYTES", 4)
    (root / "a" / "play.mp4").write_bytes(b"0123456789")
    answer = client.get("/api/video", params={"run": "a", "file": "play.mp4"}, headers={b"range": asked.encode()})
    assert (answer.status_code, answer.content, answer.headers.get("content-range")) == (code, content, place)
    assert answer.headers["accept-ranges"] == "bytes"
    assert code == 416 or answer.headers["content-type"] == "video/mp4"


def test_a_large_video_is_sent_in_pieces_alone(
    client: page_client.Client, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_files, "MAX_WHOLE_BYTES", 4)
    (root / "a" / "videos").mkdir()
    (root / "a" / "videos" / "play.gif").write_bytes(b"GIF89a")
    asked = {"run": "a", "file": "videos/play.gif"}
    answer = client.get("/api/video", params=asked)
    assert answer.status_code == 400 and "6 bytes" in answer.json()["error"]
    assert client.get("/api/video", params=asked, headers={"range": "bytes=0-5"}).content == b"GIF89a"


def test_the_videos_of_a_run_are_listed_the_newest_first(client: page_client.Client, logs: pathlib.Path) -> None:
    for number, name in enumerate(("play.mp4", "logs/later.gif")):
        (logs.parent / name).write_bytes(b"x")
        os.utime(logs.parent / name, (number, number))
    found = client.get("/api/records", params={"run": "a"}).json()["videos"]
    assert found == [
        {"file": "logs/later.gif", "bytes": 1, "changed": 1.0},
        {"file": "play.mp4", "bytes": 1, "changed": 0.0},
    ]
