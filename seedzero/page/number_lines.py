"""Numbers of metrics' lines that have the same keys, read without a parser of JSON: three times as fast.

Almost all lines of a run have the keys of their neighbours, in equal order. So a key's place follows from the quotes
of its line, and the numbers of all lines are read together, a letter of each at a time. Other lines are left alone.

Shape letters: L lines, Q quotes of a line, K keys, N numbers, W letters.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.core import json_object

LEAST = 16
"""Lines with as many quotes that are read together; fewer are left alone."""
_WIDTH = 16
"""Letters that are read of a number: 15 digits of a fraction."""
_QUOTE, _MINUS, _POINT, _ZERO, _EXPONENT = b'"-.0e'
_BLOCK = 4096
"""Numbers that are read at once; more would leave the processor's cache."""
_POWERS = 10.0 ** np.arange(_WIDTH)


class Read(NamedTuple):
    """Lines with the same keys: their places [L] int64, and by key the values [L], here float64."""

    places: np.ndarray
    columns: Mapping[str, np.ndarray | Sequence[Any]]


def read(text: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> list[Read]:
    """Returns the numbers of lines of JSON objects in groups of the same keys; lines without a group are left out.

    text: uint8. starts, ends: [L] of neighbouring lines in it, at least one; the last line of a text is left out.
    """
    quotes = np.flatnonzero(text[starts[0] : ends[-1]] == _QUOTE) + starts[0]
    first, last = np.searchsorted(quotes, starts), np.searchsorted(quotes, ends)
    counts = np.where(ends <= len(text) - _WIDTH, last - first, 0)
    found = []
    for count in np.unique(counts).tolist():
        places = np.flatnonzero(counts == count)
        if count and len(places) >= LEAST:
            of_lines = quotes[first[places] + np.arange(count)[:, None]]
            group = _group(text, starts[places], ends[places], of_lines)
            found += [Read(places[group.places], group.columns)] if group else []
    return found


def _group(text: np.ndarray, starts: np.ndarray, ends: np.ndarray, quotes: np.ndarray) -> Read | None:
    """Returns the numbers of the lines with the keys of the first one, whose places [L] begin with 0.

    starts, ends: [L] of the lines in the text; quotes: [Q, L].
    """
    try:
        row: Mapping[str, object] = json_object.parse(text[starts[0] : ends[0]].tobytes())
    except ValueError:
        return None
    # Of each key the number of its first quote in the line: two of the key, and two of a text before it.
    *at, num_quotes = [0, *itertools.accumulate(2 + 2 * isinstance(value, str) for value in row.values())]
    if num_quotes != len(quotes) or not all(isinstance(value, str | int | float) for value in row.values()):
        return None
    fits = (starts == quotes[0] - 1) & (text[ends - 1] == ord("}"))
    for key, place in zip(row, at, strict=True):
        expected = b'%s"%s": ' % (b", " if place else b"{", key.encode())
        windows = _windows(text, len(expected))
        found = windows[np.minimum(quotes[place] - (2 if place else 1), len(windows) - 1)]
        if found.tobytes() != expected * len(found):
            fits &= found == np.void(expected)
    places = np.flatnonzero(fits)
    numeric = [number for number, value in enumerate(row.values()) if not isinstance(value, str)]
    after = np.concatenate([quotes[at[1:]] - 2, ends[None] - 1])  # [K, L]: ends of the values
    begins, after = quotes[[at[number] + 1 for number in numeric]] + 3, after[numeric]
    begins, after = begins[:, places].ravel(), after[:, places].ravel()
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(begins), _BLOCK)]
    try:
        numbers = np.concatenate([_numbers(text, begins[block], after[block]) for block in blocks])
    except ValueError:
        return None
    names = list(row)
    columns = zip((names[number] for number in numeric), numbers.reshape(len(numeric), -1), strict=True)
    return Read(places, dict(columns))


def _windows(text: np.ndarray, width: int) -> np.ndarray:
    """Returns the `width` letters from each place on, as a view."""
    return np.ndarray((len(text) - width + 1,), f"V{width}", text, strides=(1,))


def _numbers(text: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns the numbers [N] float64 in parts of a text. Raises ValueError if a part is none."""
    lengths = np.minimum(ends - starts, _WIDTH).astype(np.uint8)
    letters = _windows(text, _WIDTH)[starts].view(np.uint8).reshape(-1, _WIDTH).T.copy()  # [W, N]
    inside = np.arange(_WIDTH, dtype=np.uint8)[:, None] < lengths
    digits = letters - np.uint8(_ZERO)
    is_digit, is_point = (digits < 10) & inside, (letters == _POINT) & inside
    is_negative = letters[0] == _MINUS
    num_points = is_point.sum(axis=0, dtype=np.uint8)
    num_digits = is_digit.sum(axis=0, dtype=np.uint8)
    is_read = (num_digits + num_points + is_negative == lengths) & (num_points <= 1) & (num_digits > 0)
    is_read &= (num_points == 1) | (ends - starts <= _WIDTH)
    is_read &= (text[ends - 4] != _EXPONENT) & (text[ends - 5] != _EXPONENT)
    whole = np.zeros(len(starts))
    for number in range(int(lengths.max(initial=0))):
        whole = np.where(is_digit[number], 10.0 * whole + digits[number], whole)
    point = (is_point * np.arange(_WIDTH, dtype=np.uint8)[:, None]).sum(axis=0, dtype=np.uint8)
    found: np.ndarray = whole / _POWERS[np.where(num_points == 1, lengths - 1 - point, 0) % _WIDTH]
    found[is_negative] *= -1
    for number in np.flatnonzero(~is_read).tolist():  # exponents, and 17 digits without a point
        found[number] = float(text.data[starts[number] : ends[number]])
    return found
