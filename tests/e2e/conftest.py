"""Fixtures of the end-to-end tests: no process is left behind."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import e2e_harness  # beside this file, which only the line above makes importable


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Iterator[e2e_harness.Host]:
    """Starts programs in the test's own directory."""
    found = e2e_harness.Host(tmp_path)
    yield found
    found.end()


@pytest.fixture(scope="module")
def module_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[e2e_harness.Host]:
    """The same for runs that several tests of a module look at."""
    found = e2e_harness.Host(tmp_path_factory.mktemp("host"))
    yield found
    found.end()
