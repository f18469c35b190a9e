"""Two processes share a level cache while one after the other is killed: is every level that can be seen whole?

`python tests/envs/level_cache_kills.py DIRECTORY NUM_KILLS` prints how many levels were seen whole and torn; with
`direct` behind it, levels are written to their places at once, which shows that torn ones are found. The module is its
children's program, too.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

from seedzero.envs import dmlab

LEVEL_BYTES = 4_000_000


class Seen(NamedTuple):
    """Levels that the parent read after a kill, and what the children reported of those that they fetched."""

    whole: int
    torn: int
    failures: list[str]


def run(directory: pathlib.Path, num_kills: int, *, direct: bool = False) -> Seen:
    """Kills children in the middle of their writes; returns what was seen."""
    whole = torn = 0
    failures: list[str] = []
    words = [sys.executable, __file__, str(directory), "child", *(["direct"] if direct else [])]
    children = [_start(words) for _ in range(2)]
    for kill in range(num_kills):
        child = children[kill % 2]
        assert child.stdout is not None
        for _ in range(1 + kill % 3):  # lines before writes: the kill falls into one
            child.stdout.readline()
        child.kill()
        child.communicate()  # which closes its pipes
        for file in directory.glob("*/*.pk3"):
            if _is_whole(file.read_bytes()):
                whole += 1
            else:
                torn += 1
            file.unlink(missing_ok=True)
        children[kill % 2] = _start(words)
    for child in children:
        found = child.poll()
        child.kill()
        _, text = child.communicate()
        if found is not None:
            failures.append(text)
    return Seen(whole, torn, failures)


def _start(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Direct(dmlab.Folder):
    """Writes to the place of a level at once."""

    def write(self, name: str, content: bytes) -> None:
        file = self._file(name)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)


def write_for_ever(directory: pathlib.Path, *, direct: bool) -> None:
    """Writes and fetches levels; ends with an error where a fetched one is torn."""
    folder = (Direct if direct else dmlab.Folder)(directory)
    cache = dmlab.LevelCache(folder.read, folder.write, str(directory))
    with tempfile.TemporaryDirectory() as scratch:
        own, fetched = pathlib.Path(scratch) / "own.pk3", pathlib.Path(scratch) / "fetched.pk3"
        for number in itertools.count():
            key = f"level {number % 5}"
            own.write_bytes(_level(key))
            print(key, flush=True)
            cache.write(key, str(own))
            if cache.fetch(key, str(fetched)):
                assert _is_whole(fetched.read_bytes()), f"{key} is torn"


def _level(key: str) -> bytes:
    """Returns a level whose last bytes prove that it is whole."""
    content = key.encode() * (LEVEL_BYTES // len(key))
    return content + hashlib.sha256(content).digest()


def _is_whole(content: bytes) -> bool:
    return hashlib.sha256(content[:-32]).digest() == content[-32:]


if __name__ == "__main__":
    place, what, *rest = sys.argv[1:]
    if what == "child":
        write_for_ever(pathlib.Path(place), direct="direct" in rest)
    print(json.dumps(run(pathlib.Path(place), int(what), direct="direct" in rest)._asdict()))
