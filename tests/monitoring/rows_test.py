from __future__ import annotations

import json
import math
import pathlib

import pytest

from seedzero.core import errors
from seedzero.monitoring import rows


@pytest.mark.parametrize("value", [1, -2.5, 1e-320, 2**64, 10**400, math.inf, "é", None, [1], {"a": {}}, True])
def test_a_row_is_what_json_reads(value: object) -> None:
    line = json.dumps({"update": 1, "x": value}).encode()
    assert rows.parse(line) == {"update": 1, "x": value} and rows.parse(line + b"\n") == rows.parse(line)


def test_what_is_no_number_stays_none() -> None:
    assert math.isnan(rows.parse(b'{"x": NaN}')["x"])


@pytest.mark.parametrize("line", [b"", b"[]", b"1", b'{"a": 1', b"{}, {}", b"[" * 9999, b'{"a":' * 9999, b"\xff{}"])
def test_a_line_without_a_row_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        rows.parse(line)


def test_lines_without_a_row_are_counted_but_for_an_unfinished_last_one(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "metrics.jsonl"
    assert list(rows.read(file)) == []
    file.write_bytes(b'{"a": 1}\nnothing\n{"a": 2}\n{"a": 3')
    found = rows.read(file)
    assert list(found) == [{"a": 1}, {"a": 2}] and found.num_damaged == 1
    assert list(rows.read(file, 12)) == [{"a": 1}]


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.ResumeError, match=str(tmp_path)):
        list(rows.read(tmp_path))
