"""Docstrings say things by name: what, where and who become fewer in each room, never more."""

import ast
import pathlib
import re

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "seedzero"
MOST = 0.3
"""Words per 100 in a room that the table does not name."""
CEILINGS = {
    "agents": 2.58,
    "api": 2.20,
    "benchmark": 1.16,
    "bucket": 0.60,
    "checkpoints": 1.19,
    "cli": 1.94,
    "config": 2.20,
    "core": 1.75,
    "device": 1.58,
    "envs": 1.81,
    "evaluation": 1.04,
    "launch": 1.50,
    "learner": 1.67,
    "monitoring": 0.92,
    "networks": 1.04,
    "ops": 0.92,
    "processes": 0.41,
    "replay": 2.33,
    "search": 1.30,
    "transport": 0.70,
}
"""Words per 100 that the rooms had when they were counted last; lower a number when its room has fewer."""
_VAGUE = re.compile(r"\b(?:what|where|who|whose|those|ones)\b", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")


def share(texts: list[str]) -> float:
    """Returns the vague words in 100 words of the first paragraphs of docstrings."""
    first = [text.strip().split("\n\n")[0] for text in texts]
    num_words = sum(len(_WORD.findall(text)) for text in first)
    return 100 * sum(len(_VAGUE.findall(text)) for text in first) / max(1, num_words)


def docstrings(source: str) -> list[str]:
    """Returns the docstrings of a file's module, classes and functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))
    return [text for text in found if text]


def _shares() -> dict[str, float]:
    rooms: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "_pb2" not in path.name and path.parent != PACKAGE:
            rooms.setdefault(path.relative_to(PACKAGE).parts[0], []).extend(docstrings(path.read_text()))
    return {room: share(texts) for room, texts in rooms.items()}


def test_no_room_has_more_vague_words_than_it_had() -> None:
    found = _shares()
    assert not sorted(CEILINGS.keys() - found.keys()), "delete the rows of rooms that are gone"
    too_many = {room: round(value, 2) for room, value in found.items() if value > CEILINGS.get(room, MOST)}
    assert not too_many, "say it with nouns: name the thing in place of what, where, who, whose, those, ones"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Returns what is there."""', 25.0),
        ('"""Ones who know.\n\nWhat where those."""', 100 * 2 / 3),
        ('def f():\n  """Returns the targets."""\n  return "what"', 0.0),
        ('class A:\n  """Holds whatever somewhere."""', 0.0),
    ],
)
def test_vague_words_of_first_paragraphs_are_counted(source: str, expected: float) -> None:
    assert share(docstrings(source)) == pytest.approx(expected)
