"""`seedzero.train` with functions of the caller: they see rows and evaluations, and end the run."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from typing import Any

import e2e_harness as harness
import pytest

_SCRIPT = """
import json, sys, time
import seedzero
from seedzero.core import errors

rows, evaluations = [], []

def on_row(row):
    rows.append(row)
    {row}

def on_evaluation(evaluation):
    evaluations.append(evaluation)
    {evaluation}

settings = dict(json.loads(sys.argv[2]))
try:
    ended = vars(seedzero.train(run_dir=sys.argv[1], on_row=on_row, on_evaluation=on_evaluation, **settings))
except errors.CallbackError as error:
    ended = {{"error": str(error)}}
print(json.dumps({{"ended": ended, "rows": rows, "evaluations": evaluations}}))
"""
_SETTINGS = dict(flag.removeprefix("--").split("=", 1) for flag in harness.TINY) | {
    "evaluation.every_updates": "10",
    "evaluation.episodes": "4",
    "evaluation.num_envs": "4",
    "max_updates": "100000",
    "metrics.console": "loss,batch_fil",
}


def _train(host: harness.Host, name: str, row: str = "pass", evaluation: str = "pass", **settings: str) -> Any:
    script = host.directory / f"{name}.py"
    script.write_text(textwrap.dedent(_SCRIPT).format(row=row, evaluation=evaluation))
    command = [sys.executable, str(script), str(host.directory / name), json.dumps({**_SETTINGS, **settings})]
    ended = host.start(command, name).wait().ok()
    return json.loads(ended.out.splitlines()[-1]), ended.err


@pytest.mark.slow  # tests/learner/callbacks_test.py and reports_test.py have texts and evaluations within a process
def test_a_text_of_an_evaluation_ends_the_run_with_this_reason(host: harness.Host) -> None:
    text = "return 'seen enough' if evaluation['update'] >= 10 else None"
    found, err = _train(host, "told", evaluation=text)
    assert found["ended"]["reason"] == "seen enough" and found["ended"]["is_finished"]
    assert found["ended"]["num_updates"] >= 10
    assert found["rows"] == harness.metrics_rows(host.directory / "told")
    kinds = [row for row in found["rows"] if row.get("kind") == "evaluation"]
    assert [row["evaluation_mean_return"] for row in kinds] == [each["mean_return"] for each in found["evaluations"]]
    assert "finished: seen enough" in err and re.search(r"saved \d+  loss \d", err)
    assert "--metrics.console=loss,batch_fil: no metric 'batch_fil' so far; did you mean batch_fill?" in err


@pytest.mark.parametrize("hangs", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_function_that_fails_loses_nothing_and_one_that_hangs_holds_nothing_up(
    host: harness.Host, hangs: bool
) -> None:
    name = "hangs" if hangs else "raises"
    statement = "time.sleep(1000)" if hangs else "row['update'] > 5 and rows[0]['no such name']"
    settings = {"max_updates": "40"} if hangs else {}
    found, err = _train(host, name, row=statement, **settings)
    saved, updates = harness.saved_steps(host.directory / name), found["ended"].get("num_updates", 0)
    if hangs:
        assert updates == 40 and saved[-1] == 40 and "on_row has not returned 10 s" in err and f"{name}.py:" in err
        assert len(harness.metrics_rows(host.directory / name)) > 1
    else:
        assert f"on_row raised KeyError: 'no such name', at {host.directory / name}.py:" in found["ended"]["error"]
        assert saved and saved[-1] > 5
