"""Bytes to arrays: lengths and flags are checked."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.core import errors
from seedzero.transport import arrays


@pytest.mark.parametrize("mask", [[], [False], [True], [True, False], [True, True]])
def test_any_and_all_are_numpys(mask: list[bool]) -> None:
    array = np.array(mask, bool)
    assert (arrays.any_true(array), arrays.all_true(array)) == (array.any(), array.all())


def test_flags_are_bytes_of_0_and_1() -> None:
    assert arrays.flags("first", 0, b"\0\1\1", 3).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\1", "first of group 7 has 2 bytes; expected 3"),
        (b"\1\2\0", "first of group 7 has a byte 2; expected 0 or"),
    ],
)
def test_wrong_flags_are_refused_with_their_name(data: bytes, message: str) -> None:
    with pytest.raises(errors.InvalidMessage, match=message):
        arrays.flags("first", 7, data, 3)


def test_an_action_mask_has_the_asked_shape() -> None:
    found = arrays.action_mask(0, b"\1\0\0\1", (2, 2))
    assert found is not None and found.tolist() == [[True, False], [False, True]]
    assert arrays.action_mask(0, b"", None) is None
    with pytest.raises(errors.InvalidMessage, match="action_mask of group 3 has 1 bytes; expected 0"):
        arrays.action_mask(3, b"\1", None)


def test_an_array_at_an_odd_place_is_copied() -> None:
    odd = np.frombuffer(b"\0\1\2\3\4\5\6\7\x08", np.uint8)[1:].view(arrays.INTEGER)
    assert not odd.flags.aligned
    even = arrays.aligned(odd)
    assert even.flags.aligned and even.tolist() == odd.tolist()
    assert arrays.aligned(even) is even
