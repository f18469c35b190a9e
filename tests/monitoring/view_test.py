"""What a run's views tell, from the values that others fill."""

from __future__ import annotations

import pathlib
from typing import Any, cast

import pytest

from seedzero.checkpoints import run_dir
from seedzero.config import config as config_lib
from seedzero.core import types
from seedzero.monitoring import background, metrics, view


class Screen:
    """Keeps the messages that a console would print."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


@pytest.mark.parametrize("share, num_messages", [(0.0, 0), (view.CLIPPED_SHARE / 2, 0), (0.25, 1)])
def test_clipped_targets_are_reported_once(tmp_path: pathlib.Path, share: float, num_messages: int) -> None:
    screen, gathered = Screen(), metrics.Aggregator()
    directory: Any = cast(run_dir.RunDir, type("Directory", (), {"path": tmp_path}))
    config = config_lib.override(config_lib.Config(), {"metrics.tensorboard": False, "network.support_limit": 7.0})
    shown = view.View(config, directory, cast(background.Console, screen), list, gathered, lambda: 0.0)
    for _ in range(3):
        gathered.add_means({types.TARGETS_CLIPPED: share})
        shown.write_row({})
    assert len(screen.messages) == num_messages
    assert all("25.0%" in text and "--network.support_limit=7 " in text for text in screen.messages)
