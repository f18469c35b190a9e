"""The list of agents."""

from __future__ import annotations

import pytest

from seedzero.cli import main as commands
from seedzero.config import config as configs


def test_every_agent_tells_what_it_plays_and_where_to_choose_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["agents"]) == 0
    shown = capsys.readouterr().out
    assert "muzero (the default): " in shown and "games of one or two players" in shown
    for name in configs.agent_names():
        summary = getattr(configs.Config(), name).SUMMARY
        assert summary and summary in shown
    assert shown.count("learns from a replay") == 4
    assert shown.count("plays continuous actions") == 1  # sac alone plays no discrete ones
    assert all(len(line) <= 120 for line in shown.splitlines())
