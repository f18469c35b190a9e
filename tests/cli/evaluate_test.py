from __future__ import annotations

import re

import pytest

from seedzero.cli import evaluate
from seedzero.core import types


@pytest.mark.parametrize(
    ("tasks", "played", "told"),
    [
        (("a", "b", "c"), ("a", "b"), "2 of the 3 tasks, .*--episodes=3 "),
        (("a", "b", "c"), ("a", "b", "c"), "^$"),
        ((), (), "^$"),
    ],
)
def test_tasks_without_an_episode_are_told(tasks: tuple[str, ...], played: tuple[str, ...], told: str) -> None:
    spec = types.EnvSpec((4,), "float32", 2, tasks=tasks)
    result = {"episodes": 2, **({"task_returns": dict.fromkeys(played, 1.0)} if played else {})}
    message = evaluate._unplayed(spec, result)
    assert re.search(told, message)
