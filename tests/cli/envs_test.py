"""The list of environments' families."""

from __future__ import annotations

import pytest

from seedzero.cli import main as commands
from seedzero.core import packages
from seedzero.envs import families


def test_every_family_has_its_example_and_what_is_missing_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = families.Family("other:ID", "others", "other:one", "no_such_module", "no-such", ("no-such",))
    present = families.Family("more:ID", "more", "more:one", "numpy", "numpy", ("numpy",))
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, missing, present))
    assert commands.main(["envs"]) == 0
    shown = capsys.readouterr().out
    for family in families.FAMILIES:
        assert f"seedzero train --env={family.example}" in shown
    assert f"not installed: {packages.install_command('no-such')}\n" in shown
    assert "installed: numpy 2" in shown
    assert all(len(line) <= 120 for line in shown.splitlines() if "not installed" not in line)


def test_the_help_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["--help"]) == 0
    assert "  envs " in capsys.readouterr().out
