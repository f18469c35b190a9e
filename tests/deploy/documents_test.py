"""Every command line of `seedzero` in the documents is one that `seedzero` takes."""

from __future__ import annotations

import pathlib
import re
import shlex

import deploy_files
import pytest

from seedzero.core import errors

FEWEST = {
    "README.md": 11,
    "docs/guide.md": 11,
    "docs/deploy.md": 11,
    "docs/environments.md": 5,
    "docs/tuning.md": 3,
    "docs/troubleshooting.md": 1,
    "examples/javascript/README.md": 1,
}
"""Documents -> least number of command lines in them."""


def _commands(text: str) -> list[list[str]]:
    """Returns the words after `seedzero` of each line of a block that calls it, but of shortened ones (...)."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [match[1] for line in lines if (match := re.search(r"(?:^| -- | exec learner )\s*seedzero (.*)", line))]
    return [words for words in (shlex.split(line, comments=True) for line in found) if "..." not in words]


@pytest.mark.parametrize("name", FEWEST)
def test_seedzero_takes_the_command_lines(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (deploy_files.ROOT / name).read_text(encoding="utf-8")
    for module in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        (tmp_path / "my_module.py").write_text(module, encoding="utf-8")  # which the commands below it name
    commands = _commands(text)
    assert len(commands) >= FEWEST[name]
    for words in commands:
        try:
            deploy_files.check_command([word for word in words if not word.startswith("--tls.")])
        except errors.UsageError as error:
            pytest.fail(f"seedzero {shlex.join(words)}: {error}")


def test_git_and_so_cloud_build_leave_out_what_the_documents_have_made() -> None:
    text = (deploy_files.ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    made = set(re.findall(r"(?:-keyout |-out |src=| > )([a-z_]+(?:\.[a-z]+)?)(?![/\w])", text))
    assert {"token", "ca.key", "key.pem", "pip.conf", "my_cluster.yaml"} <= made
    ignored = (deploy_files.ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {f"/{name}" for name in made} <= set(ignored)


@pytest.mark.parametrize("name", ["README.md", "docs/guide.md"])
def test_the_command_seedzero_is_there_before_it_is_used(name: str) -> None:
    text = (deploy_files.ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    block = next(block for block in blocks if "seedzero train " in block)
    assert block.startswith(". .venv/bin/activate ")
    if name == "README.md":
        assert text.index("git clone ") < text.index("./run_local.sh catch ") < text.index(". .venv/bin/activate")


@pytest.mark.parametrize(
    "line", ["seedzero train --preset=ataris", "seedzero worker --serve=learner:7777", "seedzero stats --run_dir=runs"]
)
def test_a_misspelt_word_is_seen(line: str) -> None:
    (words,) = _commands(f"```\n{line}   # a remark\n```\n")
    with pytest.raises(errors.UsageError):
        deploy_files.check_command(words)


@pytest.mark.parametrize(
    "text",
    [
        "has numbers that are not finite; the learner refuses them",
        "some rewards are not finite",
        "expected finite numbers",
        "which networks rely on; correct the space",
        "; if episodes never end, give ",
        "no episode has ended in ",
        "there is no return yet",
        "nothing to score",
        "compilation and a first batch come before the first update",
    ],
)
def test_messages_that_troubleshooting_explains_are_the_program_s(text: str) -> None:
    assert text in (deploy_files.ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    files = (deploy_files.ROOT / "seedzero").rglob("*.py")
    assert any(text in re.sub(r'"\n\s*f?"', "", file.read_text(encoding="utf-8")) for file in files)


_SPEED = re.compile(r"(?!0 )\d[\d.,]*(?: to [\d.,]+)?(?: thousand)? (?:frames|updates|steps)/s")


def _speeds(name: str) -> set[str]:
    text = (deploy_files.ROOT / name).read_text(encoding="utf-8")
    return set(_SPEED.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)))


@pytest.mark.parametrize(
    "name",
    ["README.md", *(f"docs/{path.name}" for path in sorted((deploy_files.ROOT / "docs").glob("*.md")))],
)
def test_a_speed_is_one_that_the_results_have(name: str) -> None:
    assert _speeds(name) <= _speeds("docs/results.md")
    assert {"52 to 64 thousand frames/s", "67 to 78 updates/s"} <= _speeds("docs/results.md")
