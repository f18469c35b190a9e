"""Names of Pgx's games are read without JAX, and a machine without JAX or Pgx says so."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from seedzero import envs
from seedzero.core import errors, types
from seedzero.envs import pgx_ids, pgx_maker, registry
from seedzero.worker import worker


def _printed(script: str) -> str:
    """Returns the output of a script in a process of its own, whose JAX is free to choose its devices."""
    free = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=free, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_name_is_checked_before_jax_is_there_and_leaves_its_devices_alone() -> None:
    script = """
        import os, sys
        from seedzero.envs import registry
        registry.check_id("pgx:hex(size=5)")
        print("jax" in sys.modules, os.environ.get("JAX_PLATFORMS"))
    """
    assert _printed(script) == "False None"


@pytest.mark.thorough
def test_rules_on_the_learner_leave_its_devices_alone() -> None:
    script = """
        import os
        from seedzero.envs import pgx_rules
        print(os.environ.get("JAX_PLATFORMS"))
    """
    assert _printed(script) == "None"


def test_a_machine_without_jax_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "seedzero.envs.pgx_env", raising=False)
    monkeypatch.delattr(envs, "pgx_env", raising=False)
    monkeypatch.setitem(sys.modules, "jax", None)  # import of it fails then
    from seedzero.config import sections

    with pytest.raises(errors.EnvironmentFailure, match=r"'hex'.*needs the missing package.*\b3\b.*\b2\.6\b"):
        pgx_maker.make("hex", sections.EnvConfig(id="pgx:hex"), 2)


@pytest.mark.parametrize(("env", "expected"), [("pgx:hex", "cpu"), ("catch", None)])
def test_a_worker_of_such_games_keeps_off_the_accelerator(
    env: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(registry, "make", lambda *_, **__: os.environ.get("JAX_PLATFORMS"))
    groups = worker._Groups(None, 1, 1.0)
    given = types.Assignment("session", types.Role.TRAIN, env, "{}", 1, 2, (0, 1))
    assert groups._make_group(given, 0) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("hex", ("hex", {})), ("hex(size=5)", ("hex", {"size": 5})), ("rules:GAME", ("rules:GAME", {}))],
)
def test_a_name_may_have_arguments(name: str, expected: tuple[str, dict[str, object]]) -> None:
    assert pgx_ids.parsed(name) == expected
