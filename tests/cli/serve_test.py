"""`seedzero serve`: from a run directory to an answer, until a signal; and mistakes."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import threading
import urllib.request
from typing import Any

import numpy as np
import play_runs
import pytest

import seedzero
from seedzero.cli import main as commands
from seedzero.cli import output
from seedzero.core import errors, printable
from seedzero.interfaces.serving import acting_engine
from seedzero.transport import probe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return play_runs.make(tmp_path_factory.mktemp("runs") / "kuhn", "spiel:kuhn_poker")


@pytest.mark.thorough
def test_it_answers_clients_and_stops_by_a_signal(
    run: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    found: dict[str, Any] = {}

    def ask(address: str) -> None:
        try:
            with seedzero.connect(address) as policy:
                observation = np.zeros((3, *policy.spec.observation_shape), np.float32)
                found["actions"] = policy(observation, action_mask=np.ones((3, 2), bool)).tolist()
                found["offer"] = policy.offer
            found["health"] = probe.health(address)
            url = next(text.rpartition(" ")[2] for text in told if text.startswith("metrics"))
            with urllib.request.urlopen(url) as answer:
                found["metrics"] = answer.read().decode()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def say(text: str) -> None:
        told.append(text)
        if served := re.match(r"serving .* at (\S+) ", text):
            threading.Thread(target=ask, args=(served[1],)).start()

    monkeypatch.setattr(output, "say", say)
    flags = ["--policy=greedy", "--max_rows=8", "--max_batch=4", "--metrics_port=0", "--follow"]
    assert commands.main(["serve", str(run), *flags]) == 0
    assert len(found["actions"]) == 3 and found["health"] == probe.SERVING
    assert found["offer"].players == {"main": 90} and found["offer"].max_rows == 8 and not found["offer"].draws
    assert "seedzero_policy_rows_total 3.0" in found["metrics"]
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert result == {"requests": 1, "rows": 3, "calls": 1, "changes": 0}
    (serving,) = (text for text in told if text.startswith("serving "))
    assert serving.startswith("serving main of update 90 at 127.0.0.1:") and "Ctrl-C" in serving
    assert told[-1] == "stopping" and any(
        re.search(r"Prometheus: http://127\.0\.0\.1:\d+/metrics$", text) for text in told
    )


def test_a_failed_call_ends_the_server_with_a_message(
    run: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found: list[Exception] = []
    threads: list[threading.Thread] = []

    def fails(*arguments: object) -> None:
        raise RuntimeError("the device is lost")

    def ask(address: str) -> None:
        with pytest.raises(errors.ProtocolError) as raised, seedzero.connect(address) as policy:
            policy(np.zeros((1, *policy.spec.observation_shape), np.float32), action_mask=np.ones((1, 2), bool))
        found.append(raised.value)

    def say(text: str) -> None:
        printable.say(text)
        if served := re.match(r"serving .* at (\S+) ", text):
            threads.append(threading.Thread(target=ask, args=(served[1],)))
            threads[-1].start()

    monkeypatch.setattr(output, "say", say)
    monkeypatch.setattr(acting_engine.ActingEngine, "_found", fails)
    assert commands.main(["serve", str(run)]) == 1
    text = capfd.readouterr().err
    threads[0].join()
    assert len(found) == 1 and "no policy server answers" in str(found[0])
    assert "error: a call of player main failed (RuntimeError: the device is lost); start the server again" in text


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--follow", "--step=90"], "--step=90: --follow serves the newest"),
        (["--host=0.0.0.0"], "--host=0.0.0.0 can be reached"),
        (["--host=::"], "--host=:: can be reached"),
        (["--host="], "--host is empty; give 127.0.0.1"),
        (["--metrics_port=0", "--metrics_host="], "--metrics_host is empty; give 127.0.0.1"),
        (["--simulations=4"], "--simulations=4: agent ppo does not search"),
        (["--player=random"], "player=random: a scripted member"),
    ],
)
def test_mistakes_are_named(
    flags: list[str], part: str, run: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["serve", str(run), *flags]) == 2
    text = capsys.readouterr().err
    assert part in text
