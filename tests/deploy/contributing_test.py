"""CONTRIBUTING.md, followed in a copy of the package, adds an agent, a family, a setting and a metric."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the package after all commands that write files."""
    path = tmp_path_factory.mktemp("contributing")
    shutil.copytree(ROOT / "seedzero", path / "seedzero", ignore=shutil.ignore_patterns("__pycache__"))
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for language, block in re.findall(r"^   ```(\w*)\n(.*?)^   ```$", text, re.DOTALL | re.MULTILINE):
        content = re.sub(r"^   ", "", block, flags=re.MULTILINE)
        if language == "python":
            (path / "seedzero" / "envs" / "coin.py").write_text(content, encoding="utf-8")
        for command in (line for line in content.splitlines() if line.startswith("sed ")):
            before = _sources(path)
            subprocess.run(["bash", "-c", command], cwd=path, check=True)
            assert _sources(path) != before, command
    return path


def _sources(path: pathlib.Path) -> dict[str, str]:
    return {file.as_posix(): file.read_text(encoding="utf-8") for file in path.rglob("*.py")}


def _seedzero(path: pathlib.Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "seedzero.cli", *words]
    return subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_agent_and_its_setting_are_listed(copy: pathlib.Path) -> None:
    assert "\ntoy: " in _seedzero(copy, "agents")
    assert "toy.bonus=0" in _seedzero(copy, "config", "--preset=catch", "--agent=toy")


def test_the_family_is_listed_and_plays(copy: pathlib.Path) -> None:
    assert "guess the side that is shown" in _seedzero(copy, "envs")
    assert "2 discrete" in _seedzero(copy, "check-env", "coin", "--steps=50")


def test_the_metric_is_returned_by_the_loss(copy: pathlib.Path) -> None:
    source = (copy / "seedzero" / "agents" / "toy.py").read_text(encoding="utf-8")
    assert '"q_max": jnp.max(q)' in source and "reward = reward + config.bonus" in source
    compile(source, "toy.py", "exec")
