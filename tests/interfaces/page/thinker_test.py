"""The process that thinks: one question at a time, a bounded life, and sentences for its failures."""

from __future__ import annotations

import json
import pathlib
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import page_client
import page_records
import pytest

from seedzero.interfaces.page import app, thinker
from seedzero.learner.processes import programs
from seedzero.storage.checkpoints import player_files

_ECHO = r"""
import json, os, sys
for line in sys.stdin:
    question = json.loads(line)
    print("said by a network")
    print("\x1e" + json.dumps({**question, "process": os.getpid()}), flush=True)
"""
_SILENT = "import sys, time; sys.stdin.readline(); print('asleep', flush=True); time.sleep(60)"
_DYING = "import sys; sys.stdin.readline(); print('no memory left'); sys.exit(3)"
_GARBAGE = r"import sys; sys.stdin.readline(); print('\x1e{', flush=True); sys.stdin.readline()"


def _launcher(script: str) -> Callable[[Sequence[str]], programs.Process]:
    return lambda command: programs.launch([sys.executable, "-c", script])


@pytest.fixture
def made() -> Iterator[list[thinker.Thinker]]:
    """Yields a list of Thinkers, which are closed in the end."""
    found: list[thinker.Thinker] = []
    yield found
    for one in found:
        one.close()


def _thinker(made: list[thinker.Thinker], script: str, **options: Any) -> thinker.Thinker:
    made.append(thinker.Thinker(launch=_launcher(script), **options))
    return made[-1]


def test_one_process_answers_all_questions(made: list[thinker.Thinker]) -> None:
    asked = _thinker(made, _ECHO)
    first, second = asked.ask({"x": 1}), asked.ask({"x": "<b>"})
    assert first["process"] == second["process"] and (first["x"], second["x"]) == (1, "<b>")


def test_the_process_ends_after_a_pause_and_starts_anew(made: list[thinker.Thinker]) -> None:
    asked = _thinker(made, _ECHO, idle_seconds=0.05)
    first = asked.ask({})["process"]
    process = asked._process
    assert process is not None and process.pid == first
    process.wait(600)
    assert asked.ask({})["process"] != first


@pytest.mark.parametrize(
    ("script", "match"), [(_DYING, "exit code 3: no memory left; ask again"), (_GARBAGE, "has ended")]
)
def test_a_crash_is_a_sentence(made: list[thinker.Thinker], script: str, match: str) -> None:
    asked = _thinker(made, script)
    with pytest.raises(thinker.ThinkingFailure, match=match):
        asked.ask({})
    assert asked._process is None


def test_a_silent_process_is_ended(made: list[thinker.Thinker]) -> None:
    asked = _thinker(made, _SILENT, answer_seconds=0.2)
    with pytest.raises(thinker.ThinkingFailure, match=r"within.*\b0\.2\b"):
        asked.ask({})


def test_few_questions_wait(made: list[thinker.Thinker], monkeypatch: pytest.MonkeyPatch) -> None:
    asked, arrived = _thinker(made, _ECHO), threading.Semaphore(0)
    acquire = asked._places.acquire

    def counted(**options: bool) -> bool:
        found = acquire(**options)
        arrived.release()
        return found

    monkeypatch.setattr(asked._places, "acquire", counted)
    answers = queue.SimpleQueue[int]()
    threads = [
        threading.Thread(target=lambda number=number: answers.put(asked.ask({"number": number})["number"]))
        for number in range(1 + thinker.MAX_WAITING)
    ]
    with asked._turn:
        for thread in threads:
            thread.start()
            assert arrived.acquire(timeout=600)
        with pytest.raises(thinker.ThinkingFailure, match=r"\b5\b.*wait already"):
            asked.ask({})
    assert sorted(answers.get(timeout=600) for _ in threads) == [0, 1, 2, 3, 4]
    asked.close()
    with pytest.raises(thinker.ThinkingFailure, match="the page ends"):
        asked.ask({})


def test_the_end_of_the_page_ends_a_thought(made: list[thinker.Thinker]) -> None:
    started = threading.Event()

    def launch(command: Sequence[str]) -> programs.Process:
        process = programs.launch([sys.executable, "-c", _SILENT])
        started.set()
        return process

    asked, failures = thinker.Thinker(launch=launch), queue.SimpleQueue[Exception]()

    def ask() -> None:
        try:
            asked.ask({})
        except thinker.ThinkingFailure as error:
            failures.put(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert started.wait(600)
    while asked._process is None:
        thread.join(0.01)
    asked.close()
    assert "has ended" in str(failures.get(timeout=600))


class _Asked:
    """A Thinker that keeps the questions."""

    def __init__(self) -> None:
        self.questions: list[Any] = []
        self.answer: dict[str, Any] = {"nodes": []}

    def ask(self, question: Any) -> dict[str, Any]:
        self.questions.append(question)
        return self.answer


@pytest.fixture
def asked(page: app.Page) -> _Asked:
    asked = _Asked()
    page.thoughts = thinker.ThoughtAnswers(page.root, asked, trusted=True)  # type: ignore[arg-type]
    return asked


def test_a_question_names_run_record_step_and_checkpoint(
    asked: _Asked, client: page_client.Client, root: pathlib.Path
) -> None:
    record = page_records.write(root / "a")
    query = {"run": "a", "record": record.name, "step": 3, "checkpoint": "50", "simulations": 9}
    assert client.get("/api/thought", params=query).json() == {"nodes": []}
    assert asked.questions == [
        {
            "run_dir": str(root / "a"),
            "record": str(record),
            "number": 3,
            "step": 50,
            "player": None,
            "trusted": True,
            "num_simulations": 9,
        }
    ]
    client.get("/api/thought", params={"run": "a", "record": record.name, "checkpoint": "best"})
    assert asked.questions[1]["step"] == "best" and asked.questions[1]["num_simulations"] is None
    client.get("/api/thought", params={"run": "a", "record": record.name, "checkpoint": "main-0123456789ab"})
    assert (asked.questions[2]["step"], asked.questions[2]["player"]) == (None, "main-0123456789ab")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"checkpoint": "../5"}, 400),
        ({"checkpoint": "-1"}, 400),
        ({"checkpoint": "main"}, 400),
        ({"checkpoint": "../main-0123456789ab"}, 400),
        ({"simulations": "1000000"}, 400),
        ({"step": "x"}, 400),
        ({"record": "../config.npz"}, 404),
        ({"run": "../else"}, 404),
    ],
)
def test_other_questions_are_not_asked(
    asked: _Asked, client: page_client.Client, query: dict[str, str], code: int
) -> None:
    answer = client.get("/api/thought", params={"run": "a", "record": "x.npz", **query})
    assert answer.status_code == code and not asked.questions, answer.text


def test_the_reason_of_no_thought_is_told(asked: _Asked, client: page_client.Client) -> None:
    asked.answer = {"error": "no\x07 checkpoint"}
    answer = client.get("/api/thought", params={"run": "a", "record": "x.npz"})
    assert answer.status_code == 409 and json.loads(answer.text) == {"error": "no\\x07 checkpoint"}


def test_checkpoints_are_listed(client: page_client.Client, root: pathlib.Path) -> None:
    empty = {"steps": [], "best": None, "players": []}
    assert client.get("/api/checkpoints", params={"run": "a"}).json() == empty
    directory = root / "a" / "checkpoints"
    for name in ("steps/000000000010", "steps/000000000020", "best/000000000015"):
        (directory / name).mkdir(parents=True)
        (directory / name / "manifest.json").write_text("{}")
    for name, step in (("main-00000000000a", 5), ("main-00000000000b", 9), ("main-00000000000c", 7)):
        player_files.write(directory, name, step, {"w": np.zeros(1, np.float32)}, {}, time=0.0)
    (directory / "frozen" / "main-00000000000c" / "manifest.json").write_text("{")
    found = client.get("/api/checkpoints", params={"run": "a"}).json()
    assert (found["steps"], found["best"]) == ([10, 20], 15)
    assert found["players"] == [{"name": "main-00000000000b", "step": 9}, {"name": "main-00000000000a", "step": 5}]
