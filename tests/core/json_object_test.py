"""JSON: objects, and numbers of every kind."""

import json
import math

import numpy as np
import pytest

from seedzero.core import json_object


def test_an_object_is_returned() -> None:
    assert json_object.parse(b'{"a": [1, null]}') == {"a": [1, None]}


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("null", "null"),
        ("[1]", "holds list"),
        ("5", "holds int"),
        ('{"a": ' * 100_000, "nested"),
        ("[" * 100_000, "nested"),
        (b"\xff\xfe\xfd", "can't decode"),
        ("{", "Expecting"),
        ("1" * 10_000, "Exceeds the limit"),
    ],
)
def test_anything_else_is_a_value_error(content: str | bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        json_object.parse(content)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.5, 1.5), (3, 3), (1 / 3, 0.3333333), (math.nan, None), (-math.inf, None), (10**400, None), ("1", None)],
)
def test_a_number_is_one_to_a_browser(value: object, shown: float | None) -> None:
    assert json_object.number(value, 7) == shown


@pytest.mark.parametrize("value", [math.nan, np.float32(math.inf), {"a": [-math.inf, np.int64(3)]}])
def test_a_text_is_strict_whatever_the_numbers(value: object) -> None:
    json.loads(json_object.encode(value), parse_constant=pytest.fail)
