"""Every command line of `seedzero` in the documents is one that `seedzero` takes."""

from __future__ import annotations

import pathlib
import re
import shlex
import shutil

import deploy_files
import pytest

import seedzero
from seedzero.api import environment
from seedzero.cli import main as commands
from seedzero.config import configs, presets, sections
from seedzero.core import errors

ROOT = deploy_files.ROOT
NOTES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "experiments" / "notes").glob("*.md"))]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "tests/README.md", "examples/javascript/README.md", *NOTES] + [
    path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))
]
FEWEST = {
    "docs/README.md": 4,
    "docs/running.md": 11,
    "docs/deploy.md": 5,
    "docs/clusters.md": 3,
    "docs/environments.md": 5,
    "docs/speed.md": 3,
}
"""Documents -> least number of command lines in them."""


def _blocks(text: str) -> list[tuple[str, str]]:
    """Returns language and content of the fenced blocks, without their indentation."""
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    return [(language, re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)) for indent, language, block in found]


def _lines(text: str) -> list[str]:
    """Returns the lines of blocks of commands, long ones joined."""
    joined = [block.replace("\\\n", " ") for language, block in _blocks(text) if language in ("", "bash", "sh")]
    return [line for block in joined for line in block.splitlines()]


def _commands(text: str) -> list[list[str]]:
    """Returns the words after `seedzero` of each line of a block, without shortened ones (...) and shell variables."""
    found = [
        match[1] for line in _lines(text) if (match := re.search(r"(?:^| -- | exec learner )\s*seedzero (.*)", line))
    ]
    return [
        words
        for words in (shlex.split(line, comments=True) for line in found)
        if words and not {"...", "|"} & {*words}
    ]


@pytest.fixture
def _pgx_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this process make the games of Pgx: others would import JAX, and compile rules as users' do."""
    is_of_user = environment._is_of_user

    def is_elsewhere(settings: sections.EnvConfig) -> bool:
        return not settings.id.startswith("pgx:") and is_of_user(settings)

    monkeypatch.setattr(environment, "_is_of_user", is_elsewhere)


@pytest.mark.thorough
@pytest.mark.usefixtures("_pgx_here")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_seedzero_takes_the_command_lines(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text(encoding="utf-8")
    for language, module in _blocks(text):
        if language == "python" and re.search(r"^(?:class|def) ", module, re.MULTILINE):
            (tmp_path / "my_module.py").write_text(module, encoding="utf-8")  # which the commands below it name
    for module in (
        "own_environment.py",
        "orchard.py",
        "track.py",
        "count_bonus/count_bonus.py",
        "treasure/treasure.py",
        "treasure/treasure.preset",
    ):
        shutil.copy(ROOT / "examples" / module, tmp_path)
    (tmp_path / "my_env.py").write_text("from own_environment import Corridor as MyEnv\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    commands = _commands(text)
    assert len(commands) >= FEWEST.get(name, 0)
    for words in commands:
        if any(word in ("--agent=toy", "--env=coin", "coin", "--help", "--preset=cartpole.preset") for word in words):
            continue  # the reader has just made these
        if any(word.startswith("--env=openenv:") for word in words):
            continue  # a server has to be there
        words = [re.sub(r"\$\w+$", "1", word) for word in words]
        try:
            deploy_files.check_command([word for word in words if not word.startswith(("--tls.", "--init_from="))])
        except errors.UsageError as error:
            pytest.fail(f"seedzero {shlex.join(words)}: {error}")


def test_git_and_so_cloud_build_leave_out_what_the_documents_have_made() -> None:
    text = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("deploy.md", "clusters.md"))
    made = set(re.findall(r"(?:-keyout |-out |src=| > )([a-z_]+(?:\.[a-z]+)?)(?![/\w])", text))
    assert {"token", "ca.key", "key.pem", "pip.conf", "my_cluster.yaml"} <= made
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {f"/{name}" for name in made} <= set(ignored)


def test_the_command_seedzero_is_there_before_it_is_used() -> None:
    block = next(
        block for _, block in _blocks((ROOT / "docs" / "README.md").read_text()) if "seedzero train " in block
    )
    assert block.startswith(". .venv/bin/activate ")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index("git clone ") < text.index("./run_local.sh catch ") < text.index("source .venv/bin/activate")


_SCRIPT = re.compile(
    r"\s*(?:\w+=\S+ )*(?:python (?:\.\./)?)?((?:\./)?(?:(?:experiments|scripts|gcp|docker)/|run_\w+\.sh)\S*)(.*)"
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_scripts_take_the_command_lines(name: str) -> None:
    games = (ROOT / "run_local.sh").read_text(encoding="utf-8")
    for line in _lines((ROOT / name).read_text(encoding="utf-8")):
        match = _SCRIPT.match(line)
        if match is None or "..." in line:
            continue
        script = ROOT / match[1]
        assert script.is_file(), line
        words = shlex.split(match[2], comments=True)
        source = script.read_text(encoding="utf-8")
        if script.name == "run_local.sh" and words:
            assert words[0].partition(":")[0] in games, line
        elif script.suffix == ".py":
            flags = [word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--")]
            shared = (ROOT / "experiments" / "runs.py").read_text(encoding="utf-8")
            assert all("." in flag or f'"{flag}"' in source or f"--{flag}" in source + shared for flag in flags), line


@pytest.mark.parametrize("name", DOCUMENTS)
def test_python_in_documents_compiles(name: str) -> None:
    for language, block in _blocks((ROOT / name).read_text(encoding="utf-8")):
        if language == "python":
            compile(block, name, "exec")
            for word in re.findall(r"\bseedzero\.(\w+)\(", block):
                assert hasattr(seedzero, word), word


def _anchors(path: pathlib.Path) -> set[str]:
    """Returns the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w -]", "", re.sub(r"\[(.+?)\]\(.*?\)", r"\1", heading).lower()).replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("name", [*DOCUMENTS, "CHANGELOG.md"])
def test_links_lead_to_files_and_headings(name: str) -> None:
    document = ROOT / name
    text = re.sub(
        r"^ *```.*?^ *```$|`[^`\n]+`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http:", "https:")):
            continue
        place, _, anchor = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in _anchors(target), link


def test_documents_are_for_a_reader_in_a_hurry() -> None:
    lengths = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in DOCUMENTS}
    assert not {name: length for name, length in lengths.items() if length > 350}
    assert lengths["README.md"] <= 90 and lengths["docs/results.md"] <= 200
    assert max(map(len, (ROOT / "README.md").read_text(encoding="utf-8").splitlines())) <= 110
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert not [line for line in changes if len(line) > 150 or line.startswith("  ")], "one line for each change"
    assert (ROOT / "docs" / "play.gif").stat().st_size <= 2_000_000


def test_the_index_has_every_command_and_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    table = index.partition("| command | for |")[2]
    assert {*re.findall(r"`([\w-]+)`", table)} == {*commands.COMMANDS}
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    groups = re.split(r"^  - (\w+):\n", site, flags=re.MULTILINE)
    pages = {name: re.findall(r"(docs/\S+\.md)", text) for name, text in zip(groups[1::2], groups[2::2], strict=True)}
    assert list(pages) == ["Start", "Guides", "Platforms", "Reference", "Contributing"]
    users = [page for name, group in pages.items() if name != "Contributing" for page in group]
    assert len(users) <= 35 and {*users, *pages["Contributing"]} == {name for name in DOCUMENTS if "docs/" in name}
    linked = {(ROOT / "docs" / link).resolve() for link in re.findall(r"\]\(([^)#\s]+)", index)}
    assert not [page for page in users if ROOT / page not in {*linked, ROOT / "docs" / "README.md"}]


def test_the_table_of_presets_has_them_all() -> None:
    _, _, table = (ROOT / "docs" / "running.md").read_text(encoding="utf-8").partition("## Presets")
    assert [name for name in presets.PRESETS if f"`{name}`" not in table] == []


def test_messages_that_troubleshooting_explains_are_the_program_s() -> None:
    table = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").partition("| message |")[2]
    rows = table.partition("\n\n")[0].splitlines()[2:]
    messages = [message for row in rows for message in re.findall("`(.+?)`", row.split("|")[1])]
    messages = [re.sub("the observation|has nan in its observation", "X", message) for message in messages]
    parts = [part for message in messages for part in re.findall(r"(?:\b[a-z]+,? ){3,}[a-z]+\b", message)]
    files = (ROOT / "seedzero").rglob("*.py")
    program = "\n".join(re.sub(r'"\n\s*f?"', "", file.read_text(encoding="utf-8")) for file in files)
    assert len(rows) <= len(parts) and [part for part in parts if part not in program] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_example_has_as_many_lines_as_its_page_says(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for link, number in re.findall(r"\]\(([^)\s]+\.(?:py|js))\)[^.]{0,120}?(\d+)\s+lines", text):
        length = len(((ROOT / name).parent / link).read_text(encoding="utf-8").splitlines())
        assert abs(length - int(number)) <= 0.1 * length, f"{link}: {length} lines"


def test_exit_codes_are_those_of_the_program() -> None:
    codes = {str(code) for name, code in vars(errors).items() if name.isupper() and isinstance(code, int)}
    table = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "running.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert {*table} == codes == {*re.findall(r"\b(?:\d|65|66|75|130)\b", commands.__doc__.split("\n\n")[1])}


def test_results_name_their_versions() -> None:
    for name in ("docs/results.md", "docs/speed.md"):
        assert "today" not in (ROOT / name).read_text(encoding="utf-8").lower(), name


def test_the_league_s_settings_name_its_agents() -> None:
    section = (
        (ROOT / "docs" / "settings.md").read_text(encoding="utf-8").partition("## League")[2].partition("\n\n<")[0]
    )
    for name, settings in configs.agent_sections().items():
        title = (ROOT / "docs" / "agents" / f"{name}.md").read_text(encoding="utf-8").splitlines()[0][2:]
        assert (title in section) == ("league" in settings.SECTIONS), name


_SPEED = re.compile(r"(?!0 )\d[\d.,]*(?: to [\d.,]+)?(?: thousand)? (?:frames|updates|steps)/s")


def _speeds(name: str) -> set[str]:
    text = (ROOT / name).read_text(encoding="utf-8")
    return set(_SPEED.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)))


@pytest.mark.parametrize(
    "name",
    DOCUMENTS,
)
def test_a_speed_is_one_that_the_results_have(name: str) -> None:
    measured = [_speeds(page) for page in ("docs/results.md", "docs/speed.md", *NOTES)]
    assert _speeds(name) <= set().union(*measured)
    assert "52 to 64 thousand frames/s" in measured[0] and "67 to 78 updates/s" in measured[1]
