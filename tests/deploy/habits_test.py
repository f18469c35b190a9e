"""The files of habits: the workflow, the hook before a commit, the citation."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import yaml

import seedzero

ROOT = pathlib.Path(__file__).parents[2]


WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


@pytest.mark.parametrize(
    ("schema", "path"), [("github-workflows", WORKFLOW), ("citation-file-format", ROOT / "CITATION.cff")]
)
def test_files_are_of_their_schema(schema: str, path: pathlib.Path) -> None:
    pytest.importorskip("check_jsonschema", reason="it comes with the extra clouds")
    command = ["check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True)


def test_the_workflow_runs_the_commands_of_developers() -> None:
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert "./run_tests.sh --clouds --all" in commands and "scripts/docs" in commands
    assert all(os.access(ROOT / name, os.X_OK) for name in ("run_tests.sh", "scripts/docs"))


def test_the_hook_runs_the_lint_of_developers() -> None:
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [hook["entry"] for hook in repo["hooks"]] == ["scripts/lint"]


def test_the_citation_is_of_this_version_and_the_changelog_has_it() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == seedzero.__version__
    assert f"## [{seedzero.__version__}] - {citation['date-released']}" in (ROOT / "CHANGELOG.md").read_text()
