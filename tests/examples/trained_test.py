"""The agents of examples/trained are whole, small and named in the table, and each plays."""

from __future__ import annotations

import pathlib
import re

import e2e_harness as harness
import pytest

import seedzero
from seedzero.storage.checkpoints import run_dirs, saved_files

FOLDER = harness.ROOT / "examples" / "trained"
AGENTS = sorted(path for path in FOLDER.iterdir() if path.is_dir())
MOST_BYTES = 16_000_000
"""Of all agents together, because every clone has them."""
MOST_STEPS = 200
"""Of an episode here, because some games are long."""
NAMES = [path.name for path in AGENTS]


def test_all_agents_together_are_small() -> None:
    assert AGENTS
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) <= MOST_BYTES


def test_the_table_names_each_agent_once() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(\1\) \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(rows) == NAMES


@pytest.mark.parametrize("path", AGENTS, ids=NAMES)
def test_an_agent_has_what_acting_needs_and_nothing_else(path: pathlib.Path) -> None:
    checkpoint, found, skipped = saved_files.find(path / "checkpoints", "last")  # compares checksums
    assert not skipped and list(found.arrays) == [saved_files.PARAMS]
    files = {file for file in path.rglob("*") if file.is_file() and path / "records" not in file.parents}
    assert files == {
        *(path / name for name in ("config.json", "spec.json")),
        *(checkpoint / name for name in ("manifest.json", *found.files)),
    }


@pytest.mark.thorough
@pytest.mark.parametrize("path", AGENTS, ids=NAMES)
def test_an_agent_plays_a_game_and_asks_for_no_consent(path: pathlib.Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    spec = run_dirs.read_spec(path)
    assert spec is not None
    limit = None if spec.num_players == 2 else MOST_STEPS
    result = seedzero.evaluate(path, 1, max_episode_steps=limit)
    assert result.chosen == "last" and result.episodes == 1 and result.mean_length > 0
    assert before == {file: file.stat().st_mtime_ns for file in path.rglob("*")}


@pytest.mark.thorough
def test_the_first_agent_balances_its_pole() -> None:
    path = FOLDER / "cartpole"
    assert run_dirs.read_saved(path).config.env.id == "gym:CartPole-v1"
    assert seedzero.evaluate(path, 4, max_episode_steps=MOST_STEPS).min_return == MOST_STEPS
