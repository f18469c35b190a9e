"""Records on the page: listed, read in bounded pieces, and refused by name if damaged, hostile or gone."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np
import page_client
import page_records
import pytest

from seedzero.acting.tables import records
from seedzero.core import host_names, types
from seedzero.interfaces.page import app, catalogue, recordings

EVIL = "<img src=x onerror=alert(1)>"


def _get(client: page_client.Client, path: str, code: int = 200, **parameters: Any) -> Any:
    answer = client.get(path, params={"run": "a", "record": "episode-000000.npz", **parameters})
    assert answer.status_code == code, answer.text
    return answer.json()


def _write(
    root: pathlib.Path, *parts: dict[str, np.ndarray], spec: types.EnvSpec = page_records.SPEC, **header: Any
) -> None:
    """Writes the record that `_get` asks for, with the arrays of all parts."""
    path = root / "a" / "records" / "episode-000000.npz"
    path.parent.mkdir(exist_ok=True)
    joined = {name: array for part in parts for name, array in part.items()}
    records.write(path, {"spec": dataclasses.asdict(spec), **header}, joined)


def test_records_are_listed_with_their_facts(client: page_client.Client, root: pathlib.Path) -> None:
    assert _get(client, "/api/records")["records"] == []
    page_records.write(root / "a", policy="sample", task=EVIL, seed=[1])
    page_records.write(root / "a", "later/episode-000001.npz", 3)
    (root / "a" / "records" / "episode-000002.npz").write_bytes(b"no record")
    (root / "a" / "records" / "notes.txt").write_text("no record")
    (root / "a" / "records" / "link.npz").symlink_to(root / "a" / "config.json")
    found = {row["record"]: row for row in _get(client, "/api/records")["records"]}
    assert list(found) == ["episode-000000.npz", "episode-000002.npz", "later/episode-000001.npz", "link.npz"]
    first = found["episode-000000.npz"]
    assert (first["steps"], first["return"], first["step"], first["policy"]) == (5, 10.0, 7, "sample")
    assert first["task"] == EVIL and first["seed"] is None
    assert found["later/episode-000001.npz"]["steps"] == 3
    assert "not a whole record" in found["episode-000002.npz"]["error"] and "link.npz" in found["link.npz"]["error"]


def test_a_record_has_facts_arrays_and_curves(client: page_client.Client, root: pathlib.Path) -> None:
    page_records.write(root / "a")
    found = _get(client, "/api/record")
    assert (found["steps"], found["has_choices"], found["searches"], found["env"]) == (5, True, True, "catch")
    shown = {
        "name": "observation",
        "dtype": "uint8",
        "shape": [4, 4, 1],
        "low": 0,
        "high": 255,
        "text": False,
        "acting_only": False,
        "training_only": False,
    }
    assert found["arrays"] == [shown]
    assert found["series"]["value"] == {"x": [0, 1, 2, 3, 4], "y": [0, 0.5, 1, 1.5, 2]}
    assert found["series"]["network_value"]["y"] == [None] * 5


def test_what_the_environment_draws_comes_first(client: page_client.Client, root: pathlib.Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (6, 40, 30, 3), np.uint8)
    _write(root, page_records.arrays(), {"render": pictures})
    shown = _get(client, "/api/record")["arrays"]
    assert [(one["name"], one["shape"]) for one in shown] == [("render", [40, 30, 3]), ("observation", [4, 4, 1])]
    first, other = _get(client, "/api/steps", first=5)["steps"][0]["observation"]
    assert base64.b64decode(first) == pictures[5].tobytes() and base64.b64decode(other) == bytes([5] * 16)
    for wrong in (pictures[1:], pictures[..., 0], pictures.astype(np.int32)):
        _write(root, page_records.arrays(), {"render": wrong})
        assert "render is" in _get(client, "/api/record", 409)["error"]


def test_steps_have_observation_action_and_findings(client: page_client.Client, root: pathlib.Path) -> None:
    page_records.write(root / "a")
    found = _get(client, "/api/steps", first=3, count=9)
    assert found["first"] == 3 and len(found["steps"]) == 3  # the last observation has no action
    one, _, last = found["steps"]
    assert last.keys() == {"observation"} and base64.b64decode(last["observation"][0]) == bytes([5] * 16)
    assert base64.b64decode(one["observation"][0]) == bytes([3] * 16)
    assert (one["action"], one["name"], one["reward"], one["terminated"]) == (0, "left", 3.0, False)
    assert (one["value"], one["network_value"]) == (1.5, None)
    assert [(row["name"], row["is_taken"], row["is_legal"]) for row in one["choices"]] == [
        ("stay", False, True),
        ("left", True, True),
        ("right", False, False),
    ]
    assert one["choices"][0]["visits"] == 3 and one["choices"][2]["q_value"] is None


def test_a_game_has_moves_and_players(client: page_client.Client, root: pathlib.Path) -> None:
    moves = {"mover": np.int8([0, 1]), "move": np.array(["x(0,0)", EVIL])}
    _write(root, page_records.arrays(2), moves)
    steps = _get(client, "/api/steps", count=2)["steps"]
    assert [(one["mover"], one["name"]) for one in steps] == [(0, "x(0,0)"), (1, EVIL)]


def test_curves_of_a_game_are_of_one_player(client: page_client.Client, root: pathlib.Path) -> None:
    _write(root, page_records.arrays(), {"mover": np.int8([0, 1, 0, 1, 0])})
    found = _get(client, "/api/record")
    assert found["has_movers"] and found["series"]["value"]["y"] == [0, -0.5, 1, -1.5, 2]
    assert found["series"]["reward"]["y"] == [0, -1, 2, -3, 4]


def test_vectors_are_named_by_their_numbers(client: page_client.Client, root: pathlib.Path) -> None:
    spec = types.EnvSpec((2,), "float32", 0, action_low=(-1.0, -1.0), action_high=(1.0, 1.0))
    one = {
        name: array for name, array in page_records.arrays(1).items() if name in ("reward", "terminated", "truncated")
    }
    one |= {"observation": np.float32([[1, 2], [3, np.inf]]), "action": np.float32([[0.5, -0.25]])}
    _write(root, one, spec=spec, actions=None)
    assert _get(client, "/api/record")["has_choices"] is False
    steps = _get(client, "/api/steps")["steps"]
    assert steps[0]["name"] == "0.5 -0.25" and "choices" not in steps[0]
    sampled = {"sampled": np.float32([[[0, 0], [0.5, -0.25]]]), "policy": np.float32([[0.75, 0.25]])}
    _write(root, one, sampled, spec=spec, actions=None)
    choices = _get(client, "/api/steps")["steps"][0]["choices"]
    assert [(row["name"], row["is_taken"]) for row in choices] == [("0 0", False), ("0.5 -0.25", True)]


def test_answers_are_bounded(client: page_client.Client, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = page_records.write(root / "a", num_steps=200)
    assert len(_get(client, "/api/steps", count=recordings.MAX_STEPS)["steps"]) == 64
    for name, value in {"first": 201, "count": 65}.items():
        assert name in _get(client, "/api/steps", 400, **{name: value})["error"]
    monkeypatch.setattr(recordings, "MAX_ANSWER_BYTES", 40)
    assert len(_get(client, "/api/steps", count=9)["steps"]) == 2
    monkeypatch.setattr(recordings, "MAX_STEP_BYTES", 15)
    error = _get(client, "/api/steps", 409)["error"]
    assert " has 16 bytes; " in error and " at most 15" in error
    monkeypatch.setattr(recordings, "MAX_RECORD_BYTES", 1000)
    path.touch()
    assert "expected at most 1000" in _get(client, "/api/steps", 409)["error"]
    monkeypatch.setattr(catalogue, "MAX_FILES", 1)
    page_records.write(root / "a", "episode-000001.npz")
    assert len(_get(client, "/api/records")["records"]) == 1


def test_many_actions_are_the_likeliest_and_the_taken_one(client: page_client.Client, root: pathlib.Path) -> None:
    spec = types.EnvSpec((4, 4, 1), "uint8", 100)
    arrays = {name: array for name, array in page_records.arrays(1).items() if not array.shape[1:] or "obs" in name}
    arrays |= {"policy": np.linspace(0, 1, 100, dtype=np.float32)[None]}
    _write(root, arrays, spec=spec)
    choices = _get(client, "/api/steps")["steps"][0]["choices"]
    assert len(choices) == recordings.MAX_CHOICES + 1 and choices[0]["number"] == 99 and choices[-1]["is_taken"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../config.npz",
        "../../a/records/episode-000000.npz",
        "a/b/c.npz",
        "episode-000000",
        "/etc/x.npz",
        "x\0.npz",
    ],
)
def test_no_name_leads_out_of_the_records(client: page_client.Client, root: pathlib.Path, name: str) -> None:
    page_records.write(root / "a")
    assert "not the name of a record" in _get(client, "/api/steps", 404, record=name)["error"]


def test_links_are_not_followed(client: page_client.Client, root: pathlib.Path, tmp_path: pathlib.Path) -> None:
    page_records.write(tmp_path / "outside")
    (root / "a" / "records").symlink_to(tmp_path / "outside" / "records")
    assert _get(client, "/api/records")["records"] == []
    assert "link" in _get(client, "/api/steps", 404)["error"]


def test_a_run_or_a_record_may_be_deleted_meanwhile(client: page_client.Client, root: pathlib.Path) -> None:
    path = page_records.write(root / "a")
    _get(client, "/api/steps")
    path.unlink()
    assert "cannot be read" in _get(client, "/api/steps", 404)["error"]
    shutil.rmtree(root / "a")
    for name in ("records", "record", "steps"):
        assert "there is no run" in _get(client, f"/api/{name}", 404)["error"]


def test_a_changed_record_is_read_anew(client: page_client.Client, root: pathlib.Path) -> None:
    page_records.write(root / "a", num_steps=2)
    assert _get(client, "/api/record")["steps"] == 2
    page_records.write(root / "a", num_steps=4)
    assert _get(client, "/api/record")["steps"] == 4


def test_records_in_memory_are_bounded(
    client: page_client.Client, page: app.Page, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[pathlib.Path] = []
    read = records.read
    monkeypatch.setattr(records, "read", lambda file, path, size: reads.append(path) or read(file, path, size))
    for name in "abc":
        page_records.write(root / "a", f"{name}.npz", 200)
    for name in "aabba":
        _get(client, "/api/steps", record=f"{name}.npz")
    assert [path.stem for path in reads] == ["a", "b"]
    monkeypatch.setattr(recordings, "MAX_RECORD_BYTES", 30_000)
    for name in "cac":
        _get(client, "/api/steps", record=f"{name}.npz")
    assert [path.stem for path in reads] == ["a", "b", "c", "a", "c"] and len(page.recordings._kept) == 1


def test_nothing_in_an_answer_is_no_json(client: page_client.Client, root: pathlib.Path) -> None:
    none = {"reward": np.full(5, np.nan, np.float32), "policy": np.full((5, 3), np.nan, np.float32)}
    _write(root, page_records.arrays(), none, **{"return": float("nan"), "step": 10**400, "actions": {"x": 1}})
    for name in ("records", "record", "steps"):
        text = json.dumps(_get(client, f"/api/{name}"))
        assert "NaN" not in text and "Infinity" not in text


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
    monkeypatch.setattr(recordings, "LOG_BYTES", 10)
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
    monkeypatch.setattr(recordings, "PIECE_BYTES", 4)
    (root / "a" / "play.mp4").write_bytes(b"0123456789")
    answer = client.get("/api/video", params={"run": "a", "file": "play.mp4"}, headers={b"range": asked.encode()})
    assert (answer.status_code, answer.content, answer.headers.get("content-range")) == (code, content, place)
    assert answer.headers["accept-ranges"] == "bytes"
    assert code == 416 or answer.headers["content-type"] == "video/mp4"


def test_a_large_video_is_sent_in_pieces_alone(
    client: page_client.Client, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recordings, "MAX_WHOLE_BYTES", 4)
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
