"""Texts of strangers, safe to show."""

from __future__ import annotations


def escape(text: str) -> str:
    """Returns a text as one line without control characters: those that are not printable as backslash escapes.

    A name or a reason of another machine could otherwise move the cursor, or imitate a line of ours.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
