"""The file of users' messages: its form, and when a run fails or writes it."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import golden
import pytest

from seedzero.cli import main as commands
from seedzero.config import configs

CONFTEST = """
import golden

def pytest_addoption(parser):
    parser.addoption("--update-messages", action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(golden.Texts(config.getoption("update_messages")))
"""
TESTS = """
import pytest

@pytest.mark.parametrize("name", ["a", "b"])
def test_names_are_checked(name, said):
    said(ValueError(f"{name}: TEXT"), name)

def test_other(said):
    said("one\\n\\n  two")
"""
A, B = ("it_test.py", "names_are_checked", "a"), ("it_test.py", "names_are_checked", "b")
OTHER = ("it_test.py", "other", "")
WRITTEN = {A: "ValueError: a: TEXT", B: "ValueError: b: TEXT", OTHER: "one\n\n  two"}


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    """Tests of which each has a text in the file."""
    shutil.copy(golden.__file__, tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "it_test.py").write_text(TESTS)
    (tmp_path / "messages.txt").write_text(golden.written(WRITTEN))
    return tmp_path


def run(directory: pathlib.Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests in a directory."""
    command = [sys.executable, "-m", "pytest", "-q", "-c/dev/null", "-pxdist", f"--rootdir={directory}", *args]
    command += [] if any("_test.py" in arg for arg in args) else ["it_test.py"]
    environment = {"PYTHONPATH": str(directory), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)


def texts(directory: pathlib.Path) -> dict[golden.Key, str]:
    return golden.read((directory / "messages.txt").read_text())


def edit(directory: pathlib.Path, old: str, new: str) -> None:
    """Changes the tests."""
    path = directory / "it_test.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_a_run_compares_texts_and_an_update_writes_them(directory: pathlib.Path, processes: str) -> None:
    assert run(directory, processes).returncode == 0
    edit(directory, "TEXT", "WORD")
    assert "2 failed, 1 passed" in run(directory, processes).stdout
    assert run(directory, processes, "--update-messages").returncode == 0
    assert texts(directory) == WRITTEN | {A: "ValueError: a: WORD", B: "ValueError: b: WORD"}


@pytest.mark.parametrize("processes", ["-n0", "-n2"])
def test_superfluous_texts_fail_a_run_and_an_update_removes_them(directory: pathlib.Path, processes: str) -> None:
    edit(directory, '["a", "b"]', '["a"]')
    edit(directory, "def test_other(said)", "def test_another()")
    edit(directory, 'said("one', 'str("one')
    done = run(directory, processes)
    assert (done.returncode, "failed" in done.stdout) == (1, False)
    assert all(": ".join(key[:2]) in done.stdout for key in (B, OTHER))
    assert run(directory, processes, "--update-messages").returncode == 0
    assert texts(directory).keys() == {A}


@pytest.mark.parametrize("args", [["it_test.py::test_names_are_checked[a]"], ["-k", "a and not b"]])
def test_a_run_of_some_cases_leaves_the_texts_of_others(directory: pathlib.Path, args: list[str]) -> None:
    assert run(directory, *args).returncode == 0
    assert run(directory, *args, "--update-messages").returncode == 0
    assert texts(directory) == WRITTEN


def test_a_failed_test_leaves_its_texts(directory: pathlib.Path) -> None:
    edit(directory, "TEXT", "WORD{1 / 0}")
    assert run(directory, "--update-messages").returncode == 1
    assert texts(directory) == WRITTEN


def test_the_file_is_read_as_it_is_written() -> None:
    found = {
        ("a/b_test.py", "x", "--flag=[1]"): "one\n\n    two",
        ("a_test.py", "y", ""): "# three",
        ("c", "y", "z"): "4",
    }
    assert golden.read(golden.written(found)) == found


def test_what_differs_between_machines_is_normalized(tmp_path: pathlib.Path) -> None:
    text = f"{tmp_path}/a: '{tmp_path}', {sys.executable} {golden.TESTS}/x at 127.0.0.1:8080, pid 17, key {3}"
    expected = "TMP/a: 'TMP', PYTHON REPO/tests/x at 127.0.0.1:PORT, pid PID, KEY"
    assert golden.normalized(text, {"key 3": "KEY"}) == expected


def test_tests_that_say_something_are_found_without_running_them(tmp_path: pathlib.Path) -> None:
    lines = [
        "async def test_a(said):",
        "class T:",
        "  def test_b(",
        "    self, said",
        "  ):",
        "def test_c():",
        "def d(said):",
    ]
    (tmp_path / "it_test.py").write_text("\n".join(lines))
    assert golden._tests(str(tmp_path / "it_test.py")) == {"a", "b"}
    assert golden._tests(str(tmp_path / "gone_test.py")) == set()


def test_two_texts_of_one_test_need_labels() -> None:
    said = golden.Said(("x_test.py", "x"), {}, update=True)
    said("one")
    said("one")
    said("two", "label")
    with pytest.raises(AssertionError, match="labels"):
        said("two")


def test_messages_name_settings_that_there_are() -> None:
    known = {*configs.fields(), *configs.ALIASES}
    known |= {flag.partition("=")[0] for command in commands.COMMANDS.values() for flag in command.flags}
    sections = {name.partition(".")[0] for name in known if "." in name}
    lines = [line for line in golden.FILE.read_text(encoding="utf-8").splitlines() if line.startswith("    ")]
    text = re.sub(
        r"unknown setting \S+|the run has \S+|\S+ is (?:called|the old name of)|the old name.*|--(?:toy|agent)\.\w+",
        "",
        "\n".join(lines),
    )  # mistakes; tests' own agents
    named = set(re.findall(r"--([a-z_]+\.[a-z_0-9]+)", text))
    named |= {name for name in re.findall(r"(?<![\w./-])(\w+\.\w+)=", text) if name.partition(".")[0] in sections}
    assert len(named) > 80 and not named - known
