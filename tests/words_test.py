"""Docstrings say things by name: few vague words, in every room."""

import ast
import pathlib
import re

import pytest

from seedzero.cli import main as commands
from seedzero.config import configs

PACKAGE = pathlib.Path(__file__).parents[1] / "seedzero"
MOST_VAGUE = 0.3
"""Words per 100 of a room's first paragraphs."""
MOST_VAGUE_OF_DOCUMENTS = 0.7
"""Words per 100 of a document, and of all help texts."""
DOCUMENTS = [path.relative_to(PACKAGE.parent).as_posix() for path in sorted((PACKAGE.parent / "docs").rglob("*.md"))]
_VAGUE = re.compile(r"\b(?:what|where|who|whose|those|ones)\b", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_OPENINGS = re.compile(r"(?:What|Where|Who)\b")


def share(texts: list[str]) -> float:
    """Returns the number of vague words in 100 words of the first paragraphs of docstrings."""
    first = [text.strip().split("\n\n")[0] for text in texts]
    num_words = sum(len(_WORD.findall(text)) for text in first)
    return 100 * sum(len(_VAGUE.findall(text)) for text in first) / max(1, num_words)


def docstrings(source: str) -> list[str]:
    """Returns the docstrings of a file's module, classes and functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))
    return [text for text in found if text]


def prose(text: str) -> str:
    """Returns a document as one paragraph, without blocks, code and links' targets."""
    kept = re.sub(r"^ *```.*?^ *```$|`[^`\n]+`|\]\([^)]*\)", "", text, flags=re.DOTALL | re.MULTILINE)
    return " ".join(kept.split())


def _rooms() -> dict[str, list[str]]:
    rooms: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if "_pb2" not in path.name and path.parent != PACKAGE:
            rooms.setdefault(path.relative_to(PACKAGE).parts[0], []).extend(docstrings(path.read_text()))
    return rooms


def test_no_room_has_many_vague_words() -> None:
    found = {room: share(texts) for room, texts in _rooms().items()}
    too_many = {room: round(value, 2) for room, value in found.items() if value > MOST_VAGUE}
    assert not too_many, "say it with nouns: name the thing in place of what, where, who, those"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_have_few_vague_words(name: str) -> None:
    text = (PACKAGE.parent / name).read_text(encoding="utf-8")
    assert share([prose(text)]) <= MOST_VAGUE_OF_DOCUMENTS


def test_help_texts_have_few_vague_words() -> None:
    helps = [field.metadata["help"] for field in configs.fields().values()]
    helps += [text for command in commands.COMMANDS.values() for text in command.flags.values()]
    assert share(helps) <= MOST_VAGUE_OF_DOCUMENTS


def test_no_docstring_opens_with_a_question() -> None:
    found = [text.splitlines()[0] for texts in _rooms().values() for text in texts if _OPENINGS.match(text.strip())]
    assert not found, "a function's first line begins with a verb, a class's with the name of its thing"


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
