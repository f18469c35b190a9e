"""The list of environments' families."""

from __future__ import annotations

import pytest

from seedzero.cli import main
from seedzero.envs import envpool_env, families


def test_every_family_has_its_example_and_what_is_missing_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = families.Family("other:ID", "others", "other:one", "no_such_module", "no-such", "pip install no-such")
    present = families.Family("more:ID", "more", "more:one", "numpy", "numpy", "pip install numpy")
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, missing, present))
    assert main.main(["envs"]) == 0
    shown = capsys.readouterr().out
    for family in families.FAMILIES:
        assert f"seedzero train --env={family.example}" in shown
    assert "not installed: pip install no-such" in shown
    assert "installed: numpy 2" in shown
    assert all(len(line) <= 120 for line in shown.splitlines())


def test_the_help_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    assert "  envs " in capsys.readouterr().out


def test_a_pool_is_installed_by_the_command_that_its_error_names() -> None:
    assert {family.install for family in families.FAMILIES if family.module == "envpool"} == {envpool_env.INSTALL}
