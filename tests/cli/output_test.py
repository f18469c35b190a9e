"""What commands print."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from seedzero.acting.tables import recording, scoring, videos
from seedzero.api import environment, leagues
from seedzero.cli import main as commands
from seedzero.cli import output
from seedzero.core import errors
from seedzero.interfaces.page import serve


def test_progress_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    tell = output.progress("episodes", clock=lambda: now[0])
    for seconds, done in [(1.0, 1), (10.0, 4), (11.0, 5), (19.9, 6), (20.0, 7)]:
        now[0] = 100.0 + seconds
        tell(done, 200)
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("seedzero: ") and line.endswith("episodes") for line in lines] == [True, True]
    assert [re.findall(r"\d+", line) for line in lines] == [["4", "200"], ["7", "200"]]


def test_what_is_not_printable_is_escaped_in_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("two\nlines \x1b[31m", "seedzero train --run_dir=\x1b[2J\udcff")
    assert capsys.readouterr().err == ("seedzero: two\nlines \\x1b[31m seedzero train --run_dir=\\x1b[2J\\udcff\n")


def test_a_table_has_texts_on_the_left_and_numbers_on_the_right() -> None:
    rows = [{"name": "a", "games": 1_234, "rate": 0.5}, {"name": "longer", "games": 5, "rate": None}]
    assert output.table(rows) == "name    games   rate\na        1234  0.500\nlonger      5      -"
    assert output.table([{"name": True, "\x1b": "\x1b"}], num_left=2) == "name  \x1b\nyes   \\x1b"
    assert output.table([]) == ""


@pytest.mark.parametrize(
    ("words", "code", "out"),
    [
        (["-m", "seedzero.cli", "train"], 2, ""),
        (["-c", "from seedzero.cli import output; output.say('a'); output.say('b'); print('on')"], 0, "on\n"),
    ],
    ids=["a mistake", "a message"],
)
def test_messages_that_nobody_reads_change_nothing(words: list[str], code: int, out: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=writer, text=True, check=False, timeout=600
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stdout) == (code, out)


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (scoring, "evaluate", ["evaluate", "--run_dir=r"]),
        (videos, "play", ["play", "--run_dir=r", "--video=a.gif"]),
        (recording, "record", ["play", "--run_dir=r", "--page"]),
        (recording, "record", ["record", "--run_dir=r", "--json"]),
        (leagues, "play", ["league", "match", "main", "a", "--run_dir=r", "--json"]),
        (environment, "look", ["check-env", "catch", "--json"]),
    ],
)
def test_json_is_the_last_line_whatever_an_environment_prints(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    module: Any,
    name: str,
    words: Sequence[str],
) -> None:
    def noisy(*args: Any, **names: Any) -> dict[str, Any]:
        print("of Python", end="")
        ctypes.CDLL(None).printf(b"of C")
        os.write(1, b"of a child")
        if module is environment:
            raise errors.EnvironmentFailure("it broke")
        spread = {f"{name}_return": 1.0 for name in ("mean", "std", "min", "max")}
        found = {"step": 7, "chosen": "best", "episodes": 1, "mean_length": 9.0, **spread}
        return {**found, "steps": 3} if module is recording else found

    monkeypatch.setattr(module, name, noisy)
    monkeypatch.setattr(serve, "serve", lambda *args, **names: None)
    assert commands.main(words) == (module is environment)
    ctypes.CDLL(None).fflush(None)
    out, err = capfd.readouterr()
    (line,) = out.splitlines()
    assert json.loads(line) and all(f"of {who}" in err for who in ("Python", "C", "a child"))
