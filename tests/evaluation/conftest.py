"""Makes policies.py importable, which lies beside this file, and compiles what an agent does once."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seedzero.core import types
from seedzero.evaluation import greedy
from seedzero.recordings import recording

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def _programs_are_shared() -> Iterator[None]:
    """JAX finds the programs of a function by the function: those of the same agent are the same here."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(greedy, "functions", _once(greedy.functions))
        patched.setattr(recording, "_decide", _once(recording._decide))
        yield


def _once(make: Callable[[Any, types.EnvSpec], Any]) -> Callable[[Any, types.EnvSpec], Any]:
    made: dict[tuple[int, types.EnvSpec], tuple[Any, Any]] = {}

    def found(agent: Any, spec: types.EnvSpec) -> Any:
        key = id(agent), spec
        if key not in made:
            made[key] = agent, make(agent, spec)  # with the agent, no other one gets its identity
        return made[key][1]

    return found
