"""The scorecard of faults names tests that exist, and counts them right."""

from __future__ import annotations

import asyncio
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import fault_probes
import faults
import pytest

ROOT = pathlib.Path(__file__).parents[2]
ROW = faults.Row(
    "a", "a fault", "a promise", ("tests/learner/loop/step_accounting_test.py::test_sums", "tests/storage/bucket")
)


def _case(classname: str, name: str, outcome: str = "") -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=classname, name=name, time="1.5")
    if outcome:
        ElementTree.SubElement(case, outcome)
    return case


def test_every_row_has_a_probe_or_tests_that_exist() -> None:
    for row in faults.ROWS:
        assert bool(row.tests) != (row.name in fault_probes.PROBES), row.name
        for test in row.tests:
            file, _, name = test.partition("::")
            name = name.rpartition("::")[2]
            assert (ROOT / file).exists(), test
            assert not name or re.search(rf"def {name}\(", (ROOT / file).read_text()), test
    assert fault_probes.PROBES.keys() <= {row.name for row in faults.ROWS}


@pytest.mark.parametrize("outcome", ["failure", "error"])
def test_a_row_fails_with_a_case_or_without_any(outcome: str) -> None:
    failed = faults._result(
        ROW, [_case("tests.storage.bucket.x_test", "test_x"), _case("tests.storage.bucket.x_test", "test_y", outcome)]
    )
    assert not failed.passed and failed.figure == "failed: test_y"
    assert not faults._result(ROW, []).passed
    assert "| a | a fault | a promise | failed: test_y | **no** |" in faults.table([failed])


def test_a_probe_that_breaks_its_promise_is_a_row_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(fault_probes.promised, False, "p99 of 3 s"))
        return ""

    row = faults.Row("load-1", "a fault", "a promise")
    monkeypatch.setattr(fault_probes, "PROBES", {"load-1": lambda: asyncio.run(fails())})
    assert faults._probed(row) == (row, False, "p99 of 3 s")
