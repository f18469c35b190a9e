"""Texts of strangers on the screen."""

import pytest

from seedzero.core import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a worker's name, π ± 1", "a worker's name, π ± 1"),
        ("bye\nfinished: 100 updates", "bye\\nfinished: 100 updates"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\r\x9b2J", "\\r\\x9b2J"),
        ("left\u202egnp.exe", "left\\u202egnp.exe"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, shown: str) -> None:
    assert printable.escape(text) == shown
