"""Whole sentences that users see stand in one file, messages.txt, by the test that provokes each.

A test asserts an error's type and the name in its message, and `said` compares the whole text with the file:

    def test_a_missing_bucket_is_named(said: golden.Said) -> None:
        with said.raises(errors.BucketError, "gs://nobody"):
            open_store("gs://nobody")

`pytest --update-messages [tests]` writes the file anew from the tests that run, in one process or several; review its
difference. Paths, ports, processes' numbers and the like are normalized. A text is superfluous if its test is gone, or
passes in all its cases without the text: that fails a run, and an update removes it.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import pathlib
import re
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping

import pytest

TESTS = pathlib.Path(__file__).parent
FILE = TESTS / "messages.txt"
HEAD = (
    "# What users are told, by test. Written by `pytest --update-messages` (docs/testing.md): review the difference.\n"
)

Key = tuple[str, str, str]
"""The file of a test below tests/, its name without test_, and a label among the texts of one test, often ""."""

Function = tuple[str, str]
"""The file and the name of a key."""

_SAME = {
    r"(?:/private)?/[^\s'\":,;()]*/pytest-of-[^/]+/pytest-\d+/(?:popen-gw\d+/)?[^/\s'\":,;()]+": "TMP",
    re.escape(tempfile.gettempdir()) + r"/(?:tmp|seedzero-)[a-z0-9_]{6,}": "TMP",
    re.escape(sys.executable): "PYTHON",
    re.escape(str(TESTS.parent)): "REPO",
    r"(?<= on )" + re.escape(socket.gethostname()) + r"\b": "HOST",
    r"(?<=127\.0\.0\.1:)\d+|(?<=localhost:)\d+|(?<=\[::1\]:)\d+": "PORT",
    r"(?<=\bpid )\d+": "PID",
    r"\b0x[0-9a-f]{6,}": "ADDRESS",
    r"(?<=\bline )\d+|(?<=\.c:)\d+": "LINE",
}
"""Differs between machines, runs or edits, and the word for it."""


def normalized(text: str, replace: Mapping[str, str] | None = None) -> str:
    """Returns a text as it is on every machine.

    Args:
        text: of an error, or printed.
        replace: a test's own random parts, and a word for each.
    """
    for part, word in (replace or {}).items():
        text = text.replace(part, word)
    for pattern, word in _SAME.items():
        text = re.sub(pattern, word, text)
    lines = text.strip("\n").splitlines()
    return "\n".join(line.rstrip().encode("utf-8", "backslashreplace").decode() for line in lines)


def read(text: str) -> dict[Key, str]:
    """Returns the texts of the file: tests' files are indented by 0, their tests by 2, texts by 4."""
    found: dict[Key, list[str]] = {}
    file, lines = "", list[str]()
    for line in text.splitlines():
        if line.startswith("    ") or not line:
            lines.append(line[4:])
        elif line.startswith("  "):
            name, _, label = line.strip().partition(" ")
            lines = found[file, name, label[1:-1]] = []
        elif not line.startswith("#"):
            file = line
    return {key: "\n".join(lines).strip("\n") for key, lines in found.items()}


def written(texts: Mapping[Key, str]) -> str:
    """Returns the file's content, sorted."""
    lines, previous = [HEAD], ""
    for (file, name, label), text in sorted(texts.items()):
        if file != previous:
            lines.append(file + "\n")
            previous = file
        lines.append(f"  {name} [{label}]" if label else f"  {name}")
        lines += [f"    {line}" if line else "" for line in text.splitlines()]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


class Said:
    """Compares texts with the file, for one test."""

    def __init__(self, function: Function, texts: Mapping[Key, str], update: bool) -> None:
        self.heard: dict[Key, str] = {}
        self._function, self._texts, self._update = function, texts, update

    def __call__(self, message: object, label: object = "", replace: Mapping[str, str] | None = None) -> None:
        """Checks a whole text.

        Args:
            message: an exception, whose type belongs to the text, or a text.
            label: tells the texts of one test apart, as a parameter of the test, which may be a regular expression,
                or several.
            replace: random parts of the text, and a word for each.

        Raises:
            AssertionError: the file has another text or none, or the test said another text by this label.
        """
        text = f"{type(message).__name__}: {message}" if isinstance(message, BaseException) else str(message)
        text = normalized(text, replace)
        assert text, "nothing was said"
        words = " ".join(map(str, label)) if isinstance(label, list | tuple) else str(label)
        plain = re.sub(r"\\(?=\W)", "", normalized(words)).replace(".*", " ")
        key = (*self._function, " ".join(plain.encode("unicode_escape").decode().split()))
        assert self.heard.setdefault(key, text) == text, "two texts of one test need two labels"
        if not self._update:
            assert text == self._texts.get(key), "meant so? `pytest --update-messages` with this test, and review"

    @contextlib.contextmanager
    def raises(
        self,
        error: type[BaseException],
        match: str | None = None,
        label: object = "",
        replace: Mapping[str, str] | None = None,
    ) -> Iterator[None]:
        """Checks the whole text of the error that the block raises; label, replace: as of a call.

        Args:
            error: the expected type.
            match: a regular expression that the text has to contain.
        """
        with pytest.raises(error, match=match) as raised:
            yield
        self(raised.value, label, replace)


class Texts:
    """A plugin: the file during a session, in each of pytest's processes."""

    def __init__(self, update: bool) -> None:
        self.texts = _stored()
        self._update = update
        self._heard: dict[Key, str] = {}
        self._cases: collections.Counter[Function] = collections.Counter()
        """The cases of each test function that says something, whether or not they run."""
        self._passed: collections.Counter[Function] = collections.Counter()
        self._superfluous: list[Key] = []

    @pytest.fixture
    def said(self, request: pytest.FixtureRequest) -> Said:
        """The comparison of a test's texts with the file."""
        return Said(_function(request.node), self.texts, self._update)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Keeps the texts of a test that passes."""
        yield
        if isinstance(said := getattr(item, "funcargs", {}).get("said"), Said):
            other = [key for key, text in said.heard.items() if self._heard.get(key, text) != text]
            assert not other, "two cases of one test say two texts: give them labels"
            self._passed[_function(item)] += 1
            self._heard |= said.heard

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        """Counts the cases that do not run."""
        self._cases.update(_function(item) for item in items)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Counts the cases that run; where the command line names single cases, there are more."""
        self._cases.update(_function(item) for item in session.items)
        if any("[" in arg for arg in session.config.args):
            self._cases.update(_function(item) for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Takes over the texts from one of xdist's processes, all of which collect the same tests."""
        heard, cases, passed = getattr(node, "workeroutput", {}).get("texts", ([], [], []))
        self._heard |= {tuple(key): text for key, text in heard}
        self._cases |= collections.Counter({tuple(function): count for function, count in cases})
        self._passed.update({tuple(function): count for function, count in passed})

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hands the texts over to xdist's first process; there, writes the file, or fails by superfluous texts."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["texts"] = [list(found.items()) for found in (self._heard, self._cases, self._passed)]
            return
        whole = {function for function, count in self._passed.items() if count == self._cases[function]}
        silent = [key for key in self.texts if key not in self._heard]
        self._superfluous = [key for key in silent if key[:2] in whole or key[1] not in _tests(key[0])]
        if self._update:
            stored = _stored()  # by now, another run may have written
            kept = {key: text for key, text in stored.items() if key not in self._superfluous}
            FILE.write_text(written(kept | self._heard), encoding="utf-8")
        elif self._superfluous and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names the superfluous texts."""
        for file, name, label in self._superfluous:
            verb = "removed" if self._update else "no test says this any more; remove it by `pytest --update-messages`"
            terminalreporter.line(f"{FILE.name}: {file}: {name} [{label}]: {verb}", red=not self._update)


def _stored() -> dict[Key, str]:
    return read(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def _function(item: pytest.Item) -> Function:
    return os.path.relpath(item.path, TESTS), getattr(item, "originalname", item.name).removeprefix("test_")


@functools.cache
def _tests(file: str) -> set[str]:
    """Returns the tests in a file that say something."""
    path = TESTS / file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return set(re.findall(r"^ *(?:async )?def test_(\w+)\([^)]*\bsaid\b", text, re.MULTILINE))
