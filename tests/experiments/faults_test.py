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


def test_a_row_counts_the_cases_of_its_tests_alone() -> None:
    mine = [
        _case("tests.learner.loop.step_accounting_test", "test_sums[1]"),
        _case("tests.storage.bucket.lease_test.TestX", "test_y", "skipped"),
    ]
    others = [
        _case("tests.learner.loop.step_accounting_test", "test_sums_of_others"),
        _case("tests.storage.bucketed_test", "test_z"),
    ]
    found = [case for case in [*mine, *others] if faults._is_of(case, ROW.tests)]
    assert found == mine
    assert faults._result(ROW, found) == (ROW, True, "1 test, 3 s, 1 skipped")


@pytest.mark.parametrize("outcome", ["failure", "error"])
def test_a_row_fails_with_a_case_or_without_any(outcome: str) -> None:
    failed = faults._result(
        ROW, [_case("tests.storage.bucket.x_test", "test_x"), _case("tests.storage.bucket.x_test", "test_y", outcome)]
    )
    assert not failed.passed and failed.figure == "failed: test_y"
    assert not faults._result(ROW, []).passed
    assert "| a | a fault | a promise | failed: test_y | **no** |" in faults.table([failed])


def test_a_row_without_its_package_is_named_and_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = faults.Row("cluster-x", "a fault", "a promise", ("tests/storage/bucket",), needs="no_such_package")
    monkeypatch.setattr(faults, "ROWS", (row,))
    monkeypatch.setattr("sys.argv", ["faults.py"])
    assert faults.main() == 0
    assert "not run cluster-x" in (shown := capsys.readouterr().out) and "no_such_package" in shown
    assert "| needs the package no_such_package | not run |" in faults.table(
        [faults.Result(row, None, "needs the package no_such_package")]
    )


def test_tests_of_a_file_run_in_its_order() -> None:
    file = "tests/e2e/running_learner_test.py::"
    tests = [test for row in faults.ROWS for test in row.tests if test.startswith(file)]
    assert sorted(tests, key=faults._place)[-1] == file + "test_a_second_ctrl_c_leaves_at_once"
    assert faults._place("tests/storage/bucket") == ("tests/storage/bucket", 0)


def test_a_figure_that_a_test_recorded_is_its_row_s() -> None:
    case = _case("tests.storage.bucket.x_test", "test_x")
    properties = ElementTree.SubElement(case, "properties")
    for name in ("a", "b"):
        ElementTree.SubElement(properties, "property", name=name, value=f"{name}: 3 s")
    assert faults._result(ROW, [case]) == (ROW, True, "a: 3 s")


def test_a_step_that_does_not_follow_is_answered_as_wrong() -> None:
    answers = fault_probes.Answers()
    steps = [(1, 0), (1, 1), (2, 0), (1, 1), (1, 3), (2, 1)]
    found = [int(answers(fault_probes.observation(life, number))[0]) for life, number in steps]
    assert found == [0, 1, 0, fault_probes.WRONG, fault_probes.WRONG, 1]


def test_a_probe_that_breaks_its_promise_is_a_row_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(fault_probes.promised, False, "p99 of 3 s"))
        return ""

    row = faults.Row("load-1", "a fault", "a promise")
    monkeypatch.setattr(fault_probes, "PROBES", {"load-1": lambda: asyncio.run(fails())})
    assert faults._probed(row) == (row, False, "p99 of 3 s")
