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


DOCUMENTS = ("CONTRIBUTING.md",)
_EDITED_TESTS = ("tests/agents/conformance_cases.py",)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the package after all commands and changes that write files."""
    path = tmp_path_factory.mktemp("contributing")
    shutil.copytree(ROOT / "seedzero", path / "seedzero", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _EDITED_TESTS:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, path / name)
    for document in DOCUMENTS:
        for language, content in _blocks(document):
            if language == "python":
                (path / "seedzero" / "envs" / "coin.py").write_text(content, encoding="utf-8")
            elif language == "diff":
                apply = ["git", "apply", "--verbose", "-"]
                done = subprocess.run(apply, cwd=path, input=content, capture_output=True, text=True, check=False)
                assert done.returncode == 0 and "Skipped" not in done.stderr, f"{done.stderr}\n{content}"
            for command in (line for line in content.splitlines() if line.startswith("sed ")):
                subprocess.run(["bash", "-c", command], cwd=path, check=True)
    return path


def _blocks(document: str) -> list[tuple[str, str]]:
    """Returns the language and the text of each block of a document's numbered steps."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = re.findall(r"^   ```(\w*)\n(.*?)^   ```$", text, re.DOTALL | re.MULTILINE)
    return [(language, re.sub(r"^   ", "", block, flags=re.MULTILINE)) for language, block in found]


def test_no_command_edits_a_file_in_place() -> None:
    for document in DOCUMENTS:
        blocks = _blocks(document)
        assert any(language == "diff" for language, _ in blocks)
        assert not [block for _, block in blocks if "sed -i" in block], "show a diff"


def test_the_variant_is_there(copy: pathlib.Path) -> None:
    assert '"toy with stacked frames": {' in (copy / _EDITED_TESTS[0]).read_text(encoding="utf-8")


def _seedzero(path: pathlib.Path, *words: str) -> str:
    return _python(path, "-m", "seedzero.cli", *words)


def _python(path: pathlib.Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.thorough
def test_the_agent_and_its_setting_are_listed(copy: pathlib.Path) -> None:
    assert "\ntoy: " in _seedzero(copy, "agents")
    assert "toy.bonus=0" in _seedzero(copy, "config", "--preset=catch", "--agent=toy")


@pytest.mark.thorough
def test_the_family_is_listed_and_plays(copy: pathlib.Path) -> None:
    assert "guess the side that is shown" in _seedzero(copy, "envs")
    assert "2 discrete" in _seedzero(copy, "check-env", "coin", "--steps=50")


@pytest.mark.thorough
def test_the_metric_is_returned_by_the_loss(copy: pathlib.Path) -> None:
    source = (copy / "seedzero" / "agents" / "toy.py").read_text(encoding="utf-8")
    assert '"q_max": jnp.max(q)' in source and "reward = reward + parts.config.bonus" in source
    _python(copy, "-c", "from seedzero.agents import toy; toy.make")
