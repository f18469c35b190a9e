"""Documents, help texts, messages and docstrings read easily: short paragraphs, and no phrase of the old voice."""

from __future__ import annotations

import ast
import importlib.util
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator, Mapping

import pytest

from seedzero.cli import main as commands
from seedzero.config import configs

ROOT = pathlib.Path(__file__).parents[1]
MOST_LETTERS = 100
"""Of a line of a document, outside code and tables."""
MOST_LINES = 5
"""Of a paragraph; an item of a list is one."""
OLD_PHRASES = {
    "a line says": "the learner prints a message",
    "says so": "prints a message",
    "say so": "print a message",
    "is told": "is reported; who reports it to whom",
    "are told": "are reported",
    "unless told": "by default",
    "told by": "reported by",
    "refused by name": "rejected with an error that names it",
    "goes on": "continues, resumes",
    "go on": "continue, resume",
    "parts runs": "groups runs",
    "part runs by": "group runs by",
    "parts none": "never splits a group",
    "part none": "never split a group",
    "vector actions": "continuous actions",
    "plays vectors": "plays continuous actions",
    "numbers or vectors": "discrete or continuous actions",
    "are vectors": "are continuous (actions); are one-dimensional",
    "the exact value": "are optimal",
    "judged": "scored by exact exploitability; measured",
    "as ever": "as usual, or nothing",
    "of yours": "your own",
    "mend": "fix",
    "sees to it": "makes sure",
    "all else": "anything else",
    "so many": "N, this many",
    "anew": "again",
    "speaking name": "descriptive name",
    "need none": "do not need it",
    "in place of": "instead of",
    "stands in": "is in",
    "by turns": "in turn",
    "a stranger's": "someone else's",
    "to its end": "until it ends",
    "to their end": "until they end",
    "left behind": "abandoned",
    "hitherto": "so far",
    "at last": "finally, or nothing",
    "void": "cancel, disable",
    "the other one's": "the other player's",
}
"""Phrases that puzzled readers, and what to write instead."""
PAGES = [
    *(
        "README.md",
        "CONTRIBUTING.md",
        "tests/README.md",
        "examples/javascript/README.md",
        "examples/trained/README.md",
    ),
    *(
        path.relative_to(ROOT).as_posix()
        for folder in ("docs", "experiments/notes")
        for path in sorted((ROOT / folder).rglob("*.md"))
    ),
]
_PHRASES = re.compile(rf"\b(?:{'|'.join(OLD_PHRASES)})\b", re.IGNORECASE)
_FENCE = re.compile(r" *```")
_ITEM = re.compile(r" *(?:[-*]|\d+\.) ")


def old_phrases(text: str) -> set[str]:
    """Returns the phrases of the old voice in a text; code and the targets of links may have them."""
    prose = re.sub(r"`[^`\n]+`|\]\([^)]*\)", "", text)
    return {phrase.lower() for phrase in _PHRASES.findall(" ".join(prose.split()))}


def paragraphs(text: str) -> Iterator[list[str]]:
    """Yields the lines of each paragraph, heading and item of a list, without code and tables."""
    lines: list[str] = []
    is_code = False
    for line in [*text.splitlines(), ""]:
        is_fence = _FENCE.match(line) is not None
        is_prose = bool(line.strip()) and not (is_code or is_fence or line.lstrip().startswith("|"))
        if lines and (not is_prose or _ITEM.match(line) or line.startswith("#") or lines[0].startswith("#")):
            yield lines
            lines = []
        if is_prose:
            lines.append(line)
        is_code ^= is_fence


def faults(text: str) -> list[str]:
    """Returns what keeps a document from being easy to read."""
    found = list(paragraphs(text))
    long_lines = [
        f"over {MOST_LETTERS} characters: {line}" for part in found for line in part if len(line) > MOST_LETTERS
    ]
    long_parts = [f"over {MOST_LINES} lines: {part[0]} ..." for part in found if len(part) > MOST_LINES]
    without_code = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return (
        long_lines
        + long_parts
        + [f"{phrase}: write {OLD_PHRASES[phrase]}" for phrase in sorted(old_phrases(without_code))]
    )


def _helps() -> dict[str, str]:
    helps: dict[str, list[str]] = {}
    for name, field in configs.fields().items():
        helps.setdefault(name.partition(".")[0], []).append(field.metadata["help"])
    for name, command in commands.COMMANDS.items():
        helps.setdefault(f"seedzero {name}", []).extend(command.flags.values())
    return {name: "\n".join(texts) for name, texts in helps.items()}


def _messages() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return {f"{found.place}:{found.line}": found.text for found in module.messages()}


def docstrings(source: str) -> str:
    """Returns the docstrings of a module, those of its attributes and its comments."""
    bodies = [body for node in ast.walk(ast.parse(source)) if isinstance(body := getattr(node, "body", None), list)]
    values = [node.value for body in bodies for node in body if isinstance(node, ast.Expr)]
    texts = [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join([*texts, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def _check(found: Mapping[str, object]) -> None:
    faulty = [f"{name}: {fault}" for name, fault in found.items() if fault]
    assert not faulty, "\n".join(faulty)


def _own_text(page: str) -> str:
    """Returns the text of a page without tables of settings: their words are the help texts'."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"^<!-- settings .*?^<!-- end -->$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_documents_are_easy_to_read() -> None:
    _check({page: faults(_own_text(page)) for page in PAGES})


def test_help_texts_have_no_old_phrase() -> None:
    _check({name: old_phrases(text) for name, text in _helps().items()})


def test_messages_have_no_old_phrase() -> None:
    _check({name: old_phrases(text) for name, text in _messages().items()})


def test_the_newest_changes_have_no_old_phrase() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## [")[1]
    assert changes.startswith("Unreleased]") and not old_phrases(changes)


def test_docstrings_and_comments_have_no_old_phrase() -> None:
    files = [path for path in (ROOT / "seedzero").rglob("*.py") if "_pb2" not in path.name]
    _check({str(path): old_phrases(docstrings(path.read_text(encoding="utf-8"))) for path in files})


def test_old_phrases_are_found_in_docstrings_and_comments() -> None:
    source = '''"""A run
goes on."""

X = 1
"""Judged by the other side."""


class A:
    """Starts anew."""

    def b(self) -> str:
        return "as ever"  # void
'''
    assert old_phrases(docstrings(source)) == {"goes on", "judged", "anew", "void"}


def test_there_are_forty_old_phrases() -> None:
    assert len(OLD_PHRASES) == 40


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A run goes\non.", {"goes on"}),
        ("`goes on`, [a](as ever.md), forgo on", set()),
        ("Judged anew", {"judged", "anew"}),
    ],
)
def test_old_phrases_are_found_in_prose(text: str, expected: set[str]) -> None:
    assert old_phrases(text) == expected


@pytest.mark.parametrize(
    ("text", "num_faults"),
    [
        ("x" * 100, 0),
        ("x" * 101, 1),
        ("| " + "x" * 101, 0),
        ("```\n" + "x" * 101 + "\n```\n", 0),
        ("one\n" * 5, 0),
        ("one\n" * 6, 1),
        ("- one\n" * 6, 0),
        ("- one\n" + "  more\n" * 5, 1),
        ("# head\n" + "one\n" * 5, 0),
        ("one\n" * 3 + "\n" + "one\n" * 3, 0),
        ("1. one\n\n   ```\n   goes on\n   ```\n", 0),
    ],
)
def test_long_lines_and_paragraphs_are_found(text: str, num_faults: int) -> None:
    assert len(faults(text)) == num_faults
