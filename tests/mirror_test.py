"""Tests mirror the package: what has no test of its own stands in the table of tests/README.md, with the reason."""

from __future__ import annotations

import fnmatch
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "seedzero"
NOT_MIRRORED = {"__init__", "__main__"}
"""Nothing but imports and a call."""


def _table() -> dict[str, str]:
    """Returns the reason of each file or pattern that tests/README.md excuses: | `ops/a.py`, ... | reason |."""
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\S+\.py`(?:, `\S+\.py`)*) \| (.+) \|$", text, re.MULTILINE)
    return {file: reason for files, reason in rows for file in re.findall(r"`(.+?)`", files)}


def _excused(files: set[str]) -> dict[str, set[str]]:
    """Returns the files that each row's pattern names."""
    return {pattern: set(fnmatch.filter(files, pattern)) for pattern in _table()}


def _files() -> set[str]:
    """Returns the package's files, relative to it; generated ones are left out."""
    found = (file for file in PACKAGE.rglob("*.py") if file.stem not in NOT_MIRRORED)
    return {file.relative_to(PACKAGE).as_posix() for file in found if not file.stem.endswith(("_pb2", "_pb2_grpc"))}


def _test_of(file: str) -> pathlib.Path:
    return (ROOT / "tests" / file).with_name(f"{pathlib.Path(file).stem}_test.py")


def test_every_file_has_a_test_of_its_own_or_a_reason() -> None:
    without = {file for file in _files() if not _test_of(file).is_file()}
    missing = sorted(without - set().union(*_excused(without).values()))
    assert not missing, "write tests/X/Y_test.py, or a row in tests/README.md"


def test_the_table_names_files_that_exist() -> None:
    nothing = sorted(pattern for pattern, files in _excused(_files()).items() if not files)
    assert not nothing, "delete their rows in tests/README.md"


def test_files_of_the_table_have_no_test_of_their_own() -> None:
    assert not sorted(file for file in _table() if _test_of(file).is_file()), "delete their rows in tests/README.md"


def test_tests_that_the_table_names_exist() -> None:
    named = {name for reason in _table().values() for name in re.findall(r"`(\S+_test\.py)`", reason)}
    assert named and not sorted(name for name in named if not (ROOT / "tests" / name).is_file())
