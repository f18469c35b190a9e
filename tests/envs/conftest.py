"""Makes importable what lies beside this file, and within tests the stand-ins for packages that are not installed."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests of other rooms in the same process must not find them installed."""
    directory = HERE.parent / "stand_ins"
    monkeypatch.syspath_prepend(str(directory))
    yield
    for file in directory.glob("*.py"):
        sys.modules.pop(file.stem, None)
