"""The tutorial of an own agent, followed step by step outside the package, with a small budget."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import e2e_harness as harness
import pytest

PAGE = (harness.ROOT / "docs" / "tutorials" / "own_agent.md").read_text(encoding="utf-8")
TEXT = PAGE.partition("\n## Your own exploration bonus\n")[0]
SMALL = ("--workers=1", "--worker.envs_per_group=4")
BUDGET = ("--max_updates=6", "--evaluation.episodes=4", "--evaluation.num_envs=4", *SMALL)


def _blocks(language: str) -> list[str]:
    """Returns the blocks of the numbered steps."""
    found = re.findall(rf"^   ```{language}\n(.*?)^   ```$", TEXT, re.DOTALL | re.MULTILINE)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) for block in found]


def _command(start: str) -> list[str]:
    (words,) = {line for block in _blocks("") for line in block.splitlines() if line.startswith(start)}
    return words.split()[1:]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Host]:
    root = tmp_path_factory.mktemp("tutorial")
    (root / "examples").symlink_to(harness.ROOT / "examples")
    subprocess.run(["bash", "-ec", _blocks("")[0]], cwd=root, check=True)
    found = harness.Host(root / "my_agent")
    yield found
    found.end()


def _run(host: harness.Host, *words: str) -> harness.Ended:
    ended = host.start(host.command(*words), "command").wait()
    assert ended.code == 0, ended.out + ended.err
    return ended


@pytest.mark.thorough
def test_the_copy_is_changed_and_trains(host: harness.Host) -> None:
    assert "toy.trace_decay" in _run(host, *_command("seedzero config ")).out
    before = (host.directory / "toy_agent.py").read_text()
    (change,) = _blocks("diff")
    subprocess.run(["git", "apply", "-"], cwd=host.directory, input=change, text=True, check=True)
    assert (host.directory / "toy_agent.py").read_text() != before
    _run(host, *_command("seedzero train --preset=cartpole.preset --run_dir=runs/sarsa"), *BUDGET)
    assert _run(host, *_command("seedzero evaluate "), "--episodes=2").json["mean_return"] > 0
