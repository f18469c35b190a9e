"""The tutorial of an own family, followed step by step outside the package, with a small budget."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator

import e2e_harness as harness
import pytest

PAGE = (harness.ROOT / "docs" / "tutorials" / "own_environment.md").read_text(encoding="utf-8")
TEXT = PAGE.partition("\n## A family of levels\n")[2]
BUDGET = ("--max_updates=2", "--ppo.unroll_length=16", "--ppo.num_minibatches=4", "--evaluation.episodes=4")
SMALL = ("--workers=1", "--worker.envs_per_group=4", "--evaluation.num_envs=4")
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^   (seedzero .*)$", TEXT, re.MULTILINE)]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Host]:
    root = tmp_path_factory.mktemp("family")
    shutil.copytree(harness.ROOT / "examples" / "treasure", root / "my_family")
    found = harness.Host(root / "my_family")
    yield found
    found.end()


@pytest.mark.thorough
def test_the_tutorial_is_followed(host: harness.Host) -> None:
    assert [words[0] for words in COMMANDS] == ["check-env", *["train"] * 3, "evaluate", "play", "compare"]
    outputs = []
    for words in COMMANDS:
        ended = host.start(host.command(*words, *((*BUDGET, *SMALL) if words[0] == "train" else ())), words[0]).wait()
        assert ended.code == 0, ended.out + ended.err
        outputs.append(ended)
    assert "preset vector, agent ppo, network.kind=conv" in outputs[0].out and "info['action_mask']" in outputs[0].out
    assert "threshold" not in outputs[3].err and "return" in outputs[4].out
    assert (host.directory / "maze.mp4").stat().st_size > 0
    for level in ("Room-v0", "Maze-v0"):
        assert f"gym:treasure:{level}" in outputs[6].out
    ended = host.start(host.command(*COMMANDS[0][:-1], "--env=gym:treasure:Room-v0"), "twice").wait()
    assert ended.code == 2 and "leave --env=gym:treasure:Room-v0 out" in ended.err


def test_a_wrong_level_gets_the_nearest(host: harness.Host) -> None:
    ended = host.start(host.command("check-env", "gym:treasure:Maze-v1"), "wrong").wait()
    assert ended.code == 1 and "did you mean gym:treasure:Maze-v0?" in ended.out + ended.err
