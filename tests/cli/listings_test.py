"""The lists of agents and of environments' families."""

from __future__ import annotations

import pytest

from seedzero.cli import main as commands
from seedzero.config import configs, families
from seedzero.core import packages


def test_every_agent_tells_what_it_plays_and_where_to_choose_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["agents"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{name}" in f"\n{shown}" for name in configs.agent_names())
    for name in configs.agent_names():
        summary = getattr(configs.Config(), name).SUMMARY
        assert summary and summary in shown
    assert "alphazero: plans by the rules" in shown and "tuned for connect_four, pgx, hex, othello, go9\n" in shown
    assert "plays continuous actions; learns from a replay\n    tuned for continuous, mujoco\n" in shown
    assert "--agent=MODULE:OBJECT" in shown and "seedzero config --preset=PRESET --agent=NAME" in shown
    assert all(len(line) <= 120 for line in shown.splitlines())


def test_every_family_has_its_example_and_what_is_missing_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = families.Offer("others", "other:one", "no_such_module", "no-such", ("no-such",))
    present = families.Offer("more", "other:two", "numpy", "numpy", ("numpy",))
    other = families.Family("other:ID", (missing, present))
    monkeypatch.setattr(families, "LISTED", (*families.LISTED, other))
    assert commands.main(["envs"]) == 0
    shown = capsys.readouterr().out
    for offer in (offer for family in (*families.FAMILIES, other) for offer in family.offers):
        assert f"seedzero train --env={offer.example}" in shown
    assert f"not installed: {packages.install_command('no-such')}\n" in shown
    assert "installed: numpy 2" in shown
    assert all(len(line) <= 120 for line in shown.splitlines() if "not installed" not in line)


def test_the_help_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["--help"]) == 0
    assert "  envs " in capsys.readouterr().out
