"""The generated parts of the documents are those that `scripts/reference.py` writes today; messages are short."""

from __future__ import annotations

import ast
import importlib.util
import pathlib
import re
import types

import pytest

import seedzero
from seedzero.cli import main as commands
from seedzero.config import configs

ROOT = pathlib.Path(__file__).parents[1]
COMMAND = "write them by `.venv/bin/python scripts/reference.py`, and review `git diff docs`"

MOST_LETTERS = 200
"""Of a message, where a placeholder counts as its two braces."""


@pytest.fixture(scope="module")
def reference() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_parts_are_new(reference: types.ModuleType) -> None:
    documents = reference.documents()
    assert len(documents) >= 9
    old = [path.name for path, text in documents.items() if path.read_text(encoding="utf-8") != text]
    assert not old, COMMAND


def test_every_setting_has_a_row(reference: types.ModuleType) -> None:
    text = "".join(reference.documents().values())
    flags = [line.partition("#")[0].split() for line in text.splitlines() if line.startswith("--")]
    rows = {flag.partition("=")[0] for line in flags for flag in line}
    rows |= {line.split("`")[1] for line in text.splitlines() if line.startswith("| `--")}
    assert not [name for name in configs.fields() if configs.flag(name) not in rows]
    for agent in configs.agent_names():
        page = (ROOT / "docs" / "agents" / f"{agent}.md").read_text(encoding="utf-8")
        assert f"<!-- settings {agent} -->" in page


def test_every_public_name_has_an_entry() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^(?:seedzero\.|<!-- ::: seedzero\.(?:core\.)?)(\w+)", page, re.MULTILINE))
    assert not {*seedzero.__all__} - named


def test_signatures_have_the_names_that_users_import() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    shown = re.sub(r"^<!-- .*$", "", page, flags=re.MULTILINE)
    assert "seedzero.search.Result" in shown and "-> seedzero.Policy" in shown
    assert not re.findall(r"search\.(?:types|engine)|\b(?:RunDir|Step|Mode|Setting|SearchSection)\b", shown)


def test_help_texts_name_flags_that_there_are() -> None:
    long = [name for name in configs.ALIASES.values() if f"--{name}" != configs.flag(name)]
    texts = {name: field.metadata["help"] for name, field in configs.fields().items()}
    texts |= {
        name: f"{command.details} {' '.join(command.flags.values())}" for name, command in commands.COMMANDS.items()
    }
    assert not [name for name, text in texts.items() if re.search(rf"\b(?:{'|'.join(map(re.escape, long))})\b", text)]


def test_an_agent_s_page_has_its_defaults_and_choices(reference: types.ModuleType) -> None:
    lines = reference.settings("apex").splitlines()
    assert "### `replay`" not in lines and "### `apex`" in lines
    assert {"--optimizer.kind=rmsprop", "--network.width=512"} < {*lines}
    (line,) = [line for line in lines if line.startswith("--network.kind=auto ")]
    assert line.partition("# ")[2] == "auto, mlp, conv, nature, deep"
    (row,) = [row for row in reference.settings("run").splitlines() if row.startswith("| `--seed`")]
    assert row.split(" | ")[1:3] == ["`0` \\*", ""]
    (row,) = [row for row in reference.settings("shared").splitlines() if row.startswith("| `--search.num_sim")]
    assert row.split(" | ")[1] == "1 to 10,000 **start here**"
    (row,) = [row for row in reference.settings("shared").splitlines() if row.startswith("| `--network.kind`")]
    assert "`patches`" in row and "`resnet`" in row
    assert reference.settings("batcher") == "```\n--batcher.max_batch=0\n```"


def test_signs_of_markup_are_escaped_outside_code(reference: types.ModuleType) -> None:
    assert reference._cell("a*b | `c*d|e` <f>") == "a\\*b \\| `c*d\\|e` \\<f>"


def test_a_part_is_replaced_and_the_text_around_it_stays(reference: types.ModuleType) -> None:
    text = "before\n\n<!-- settings tls -->\nold\n<!-- end -->\n\nafter\n"
    new = reference.written(text)
    assert new.startswith("before\n\n<!-- settings tls -->\n\n| setting |") and new.endswith("-->\n\nafter\n")
    assert "\nold\n" not in new and reference.written(new) == new


def test_no_message_is_longer_than_a_reader_takes_in_at_once(reference: types.ModuleType) -> None:
    messages = reference.messages()
    assert len(messages) > 1_000
    long = {found.place: found.text for found in messages if found.num_letters > MOST_LETTERS}
    assert not long


def test_messages_name_settings_that_there_are(reference: types.ModuleType) -> None:
    known = {*configs.fields(), *configs.ALIASES}
    known |= {flag.partition("=")[0] for command in commands.COMMANDS.values() for flag in command.flags}
    text = "\n".join(re.sub(r"\{[^{}]*\}", "", found.text) for found in reference.messages())
    named = set(re.findall(r"--([a-z_]+\.[a-z_0-9]+)\b(?!\.)", text))
    sections = {name.partition(".")[0] for name in known if "." in name}
    named |= {name for name in re.findall(r"(?<![\w./-])(\w+\.\w+)=", text) if name.partition(".")[0] in sections}
    assert len(named) > 60 and not named - known


def test_messages_are_read_from_sources(reference: types.ModuleType) -> None:
    source = """
class A:
    def b(self, name):
        text = f"{name}: no such file"
        if name:
            raise errors.UsageError(f"--run_dir={name!r} is {'odd' if name else {}}" + self.c)
        self._report(text if name else "nothing to see")
        raise ValueError(name)
        say("one")
        other("not a message")
"""
    found = list(reference.messages_of("a.py", ast.parse(source)))
    assert [(message.line, message.text, message.num_letters) for message in found] == [
        (6, "--run_dir={name} is {'odd' if name else }{self.c}", 20),
        (7, "{name}: no such file", 16),
        (7, "nothing to see", 14),
    ]
    assert {message.place for message in found} == {"a.py A.b"}
