"""`seedzero.train` with functions of the caller: they fail, or hang."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import Any

import e2e_harness as harness
import pytest

_SCRIPT = """
import json, sys, time
import seedzero
from seedzero.core import errors

rows = []

def on_row(row):
    rows.append(row)
    {row}

settings = dict(json.loads(sys.argv[2]))
try:
    ended = vars(seedzero.train(run_dir=sys.argv[1], on_row=on_row, **settings))
except errors.CallbackError as error:
    ended = {{"error": str(error)}}
print(json.dumps({{"ended": ended}}))
"""
_SETTINGS = dict(flag.removeprefix("--").split("=", 1) for flag in harness.TINY) | {
    "max_updates": "100000",
}


def _train(host: harness.Host, name: str, row: str, **settings: str) -> Any:
    script = host.directory / f"{name}.py"
    script.write_text(textwrap.dedent(_SCRIPT).format(row=row))
    command = [sys.executable, str(script), str(host.directory / name), json.dumps({**_SETTINGS, **settings})]
    ended = host.start(command, name).wait().ok()
    return json.loads(ended.out.splitlines()[-1])["ended"], ended.err


@pytest.mark.parametrize("hangs", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_function_that_fails_loses_nothing_and_one_that_hangs_holds_nothing_up(
    host: harness.Host, hangs: bool
) -> None:
    name = "hangs" if hangs else "raises"
    statement = "time.sleep(1000)" if hangs else "row['update'] > 5 and rows[0]['no such name']"
    settings = {"max_updates": "40"} if hangs else {}
    ended, err = _train(host, name, row=statement, **settings)
    saved, updates = harness.saved_steps(host.directory / name), ended.get("num_updates", 0)
    if hangs:
        assert updates == 40 and saved[-1] == 40 and "on_row has not returned 10 s" in err and f"{name}.py:" in err
        assert len(harness.metrics_rows(host.directory / name)) > 1
    else:
        assert f"on_row raised KeyError: 'no such name', at {host.directory / name}.py:" in ended["error"]
        assert saved and saved[-1] > 5
