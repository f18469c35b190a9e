"""Numbers of lines with the same keys: equal to a parser's, and other lines are left alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from seedzero.page import number_lines

_VALUES = [0, 1, -3, 0.1, -0.25, 25044.99, 1e-5, -2.5e-11, 1e22, 0.30000000000000004, 123456789012345, 1 / 3]
_NUM_LINES = 20


def _read(lines: list[bytes]) -> list[number_lines.Read]:
    """Reads lines before a last one, which is left alone."""
    text = np.frombuffer(b"\n".join([*lines, b"another line of a file"]), np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    return number_lines.read(text, np.concatenate([[0], ends[:-1] + 1]), ends)


def _row(number: int, **others: Any) -> dict[str, Any]:
    return {"update": number, "time": "2026-11-26T18:11:22+00:00", "é/1": _VALUES[number % len(_VALUES)], **others}


def _lines(*rows: dict[str, Any]) -> list[bytes]:
    return [json.dumps(row, ensure_ascii=False).encode() for row in rows]


def test_numbers_are_those_of_a_parser() -> None:
    rng = np.random.default_rng(0)
    rows = [_row(number, loss=float(rng.normal() * 10.0 ** rng.integers(-9, 19))) for number in range(400)]
    (found,) = _read(_lines(*rows))
    assert found.places.tolist() == list(range(400)) and found.columns.keys() == {"update", "é/1", "loss"}
    for name, column in found.columns.items():
        np.testing.assert_allclose(column, [row[name] for row in rows], rtol=1e-9, atol=0)
    assert found.columns["update"].tolist() == list(range(400))


def test_lines_are_read_by_their_keys() -> None:
    rows = [_row(number, **({"loss": 0.5} if number % 2 else {})) for number in range(2 * _NUM_LINES)]
    others = [{"update": number, "time": "", "xy": 1} for number in range(3)]  # as many quotes as half of the rows
    one, other = _read(_lines(*rows, *others))
    assert one.places.tolist() == list(range(0, 2 * _NUM_LINES, 2)) and "loss" not in one.columns
    assert other.places.tolist() == list(range(1, 2 * _NUM_LINES, 2)) and set(other.columns["loss"]) == {0.5}


def test_few_lines_are_left_alone() -> None:
    assert _read(_lines(*map(_row, range(number_lines.LEAST - 1)))) == []


@pytest.mark.parametrize("value", [True, None, [1], {"a": 1}, "nan"])
def test_values_that_are_no_numbers_are_left_to_a_parser(value: Any) -> None:
    rows = [_row(number, loss=value) for number in range(_NUM_LINES)]
    for found in _read(_lines(*rows)):
        assert "loss" not in found.columns
    assert _read(_lines(*(_row(number, loss=1.0) for number in range(_NUM_LINES)), _row(9, loss=value)))[1:] == []


@pytest.mark.parametrize(
    ("good", "damaged"),
    [
        (b'"time"', b'"tame"'),
        (b'{"update"', b' "update"'),
        (b"}", b"]"),
        (b", ", b"; "),
        (b": ", b"= "),
        (b'"time": "', b'"time: " "'),
        (b"}", b""),
        (b'"update"', b'"' + b"x" * 999 + b'"'),
    ],
)
def test_damaged_lines_are_left_alone(good: bytes, damaged: bytes) -> None:
    lines = _lines(*map(_row, range(_NUM_LINES)))
    (found,) = _read([*lines, lines[1].replace(good, damaged, 1)])
    assert found.places.tolist() == list(range(_NUM_LINES))


@pytest.mark.parametrize("value", [b"1.2.3", b"", b"-", b"1-2", b"1x", b"1" * 20 + b"x"])
def test_a_damaged_number_is_left_to_a_parser(value: bytes) -> None:
    lines = _lines(*map(_row, range(_NUM_LINES)))
    assert _read([*lines, b'{"update": ' + value + lines[0].removeprefix(b'{"update": 0')]) == []
