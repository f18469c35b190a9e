"""JSON that is no object."""

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
