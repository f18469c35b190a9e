"""Numbers of an environment's own: names, and the numbers of chosen rows."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.core import errors, infos

INFO = {"depth": np.array([2.5, np.nan, -1], np.float32), "success": np.array([0, 1, np.nan], np.float32)}


def test_numbers_of_a_row_leave_out_what_it_lacks() -> None:
    assert [infos.of(INFO, row) for row in range(3)] == [
        {"depth": 2.5, "success": 0.0},
        {"success": 1.0},
        {"depth": -1},
    ]
    assert infos.of(None, 0) == {}


def test_rows_are_chosen_by_mask_or_number() -> None:
    for chosen in (np.array([True, False, False]), np.array([0])):
        found = infos.those(INFO, chosen)
        assert found is not None and infos.of(found, 0) == {"depth": 2.5, "success": 0.0}
    assert infos.those(None, np.array([0])) is None


@pytest.mark.parametrize(
    ("name", "is_one"), [("a b", True), ("", False), ("a" * 64, True), ("a" * 65, False), (3, False)]
)
def test_names_are_short_printable_texts(name: object, is_one: bool) -> None:
    assert infos.is_name(name) is is_one


def test_keys_are_separated_by_commas() -> None:
    assert infos.keys(" a, b c,,") == ("a", "b c") and infos.keys("") == ()
    with pytest.raises(errors.ConfigError, match="info_keys"):
        infos.keys("a\tb")
