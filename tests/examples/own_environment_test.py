"""The tutorial of an own environment, followed command by command, from a file to a film and answers by HTTP."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator

import e2e_harness as harness
import pytest

PAGE = (harness.ROOT / "docs" / "tutorials" / "own_environment.md").read_text(encoding="utf-8")
TEXT = PAGE.partition("\n## A family of levels\n")[0]  # `treasure_test` follows the rest
FILES = ("own_environment.py", "orchard.py")
BUDGET = ("--max_updates=2", "--evaluation.every_updates=1", "--evaluation.episodes=4", "--workers=1")
SMALL = {
    "own_environment": ("--replay.min_steps=64", "--worker.envs_per_group=4", "--evaluation.num_envs=4"),
    "orchard": ("--ppo.unroll_length=16", "--ppo.num_minibatches=4", "--worker.envs_per_group=4"),
}
COMMANDS = [shlex.split(line) for line in re.findall(r"^   (seedzero .*)$", TEXT, re.MULTILINE)]
(SCRIPT,) = (block for block in re.findall(r"^   ```python\n(.*?)^   ```", TEXT, re.M | re.S) if "urlopen" in block)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Host]:
    found = harness.Host(tmp_path_factory.mktemp("own"))
    for name in FILES:
        shutil.copy(harness.ROOT / "examples" / name, found.directory)
    yield found
    found.end()


@pytest.mark.thorough
def test_the_tutorial_is_followed(host: harness.Host) -> None:
    kinds = [words[1] for words in COMMANDS]
    shared = ["evaluate", "play"]
    assert kinds == ["check-env", "train", "plot", *shared, "check-env", "train", *shared, "serve"]
    for number, words in enumerate(COMMANDS):
        given = words[1:]
        if given[0] == "train":
            given += [*BUDGET, *next(SMALL[name] for name in SMALL if f"python:{name}:" in shlex.join(words))]
        if given[0] == "serve":
            break
        ended = host.start(host.command(*given), f"{number}-{given[0]}").wait()
        assert ended.code == 0, ended.out + ended.err
        if given[0] == "check-env" and number:
            assert "6 discrete, some not always legal" in ended.out and "info['action_mask']" in ended.out
        if given[0] == "evaluate" and number > 4:
            assert 0 <= ended.json["info"]["picked"] <= 3
    assert {path.suffix for path in host.directory.iterdir()} >= {".png", ".mp4"}
    assert (host.directory / "orchard.mp4").stat().st_size > 0
    served = [re.sub(r"(port)=\d+", r"\1=0", word) for word in given]
    server = host.start(host.command(*served), "serve")
    address = server.says(r"actions by HTTP: http://(\S+)/act")[1]
    server.says("serving main ")
    script = re.sub("^   ", "", SCRIPT, flags=re.M).replace("127.0.0.1:8080", address)
    ended = host.start([sys.executable, "-c", script], "script").wait()
    assert ended.code == 0 and re.fullmatch(r"picked [0-3] of 3\n", ended.out), ended.out + ended.err
    server.send(signal.SIGTERM)
    assert server.wait().json["requests"] >= 1
