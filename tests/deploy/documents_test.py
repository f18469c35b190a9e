"""Every command line of `seedzero` in the documents is one that `seedzero` takes."""

from __future__ import annotations

import pathlib
import re
import shlex

import deploy_files
import pytest

from seedzero.core import errors

DOCUMENTS = [deploy_files.ROOT / name for name in ("README.md", "docs/guide.md", "docs/deploy.md")]


def _commands(text: str) -> list[list[str]]:
    """Returns the words after `seedzero` of each line of a block that calls it, but of shortened ones (...)."""
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [match[1] for line in lines if (match := re.search(r"(?:^| -- | exec learner )\s*seedzero (.*)", line))]
    return [words for words in (shlex.split(line, comments=True) for line in found) if "..." not in words]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_seedzero_takes_the_command_lines(
    path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = _commands(path.read_text(encoding="utf-8"))
    assert len(commands) > 10
    for words in commands:
        try:
            deploy_files.check_command([word for word in words if not word.startswith("--tls.")])
        except errors.UsageError as error:
            pytest.fail(f"seedzero {shlex.join(words)}: {error}")


@pytest.mark.parametrize(
    "line", ["seedzero train --preset=ataris", "seedzero worker --serve=learner:7777", "seedzero stats --run_dir=runs"]
)
def test_a_misspelt_word_is_seen(line: str) -> None:
    (words,) = _commands(f"```\n{line}   # a remark\n```\n")
    with pytest.raises(errors.UsageError):
        deploy_files.check_command(words)
