from __future__ import annotations

import errno
import os
import re
import subprocess
import sys

import pytest

import seedzero
from seedzero.cli import main as commands
from seedzero.cli import parse
from seedzero.core import errors

_LONG = "x" * 300


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("a"), 2),
        (errors.CapacityError("a"), 2),
        (errors.CheckpointError("a"), 1),
        (errors.TrainingFailure("a"), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_exit_code_follows_from_the_error(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: parse.Arguments) -> int:
        raise error

    command = parse.Command(summary="", usage="", details="", flags={}, run=fail)
    monkeypatch.setattr(commands, "COMMANDS", {"fail": command})
    assert commands.main(["fail"]) == code
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ["train", "--preset=catch", f"--run_dir={_LONG}"],
        ["sweep", "--seed=1", f"--run_dir={_LONG}", "--", "--preset=catch"],
        ["page", f"--run_dir={_LONG}"],
        ["play", "--run_dir=none", f"--video={_LONG}.mp4"],
        ["play", f"--run_dir={_LONG}", "--video=a.mp4"],
    ],
    ids=lambda args: f"{args[0]} {args[1][:9]}",
)
def test_a_name_of_many_letters_is_refused(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(args) == 2
    assert re.search(r"error: .*(name too long|no such directory)", capsys.readouterr().err)


def test_an_error_that_is_not_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(arguments: parse.Arguments) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(commands, "COMMANDS", {"fail": parse.Command("", "", {}, fail)})
    with pytest.raises(ZeroDivisionError):
        commands.main(["fail"])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "error: this process gets no more memory; see `ulimit -v`"),
        (ImportError("x.so: failed to map segment from shared object"), "no more memory; see `ulimit -v`"),
        (OSError(errno.EMFILE, "Too many open files", "/x"), "error: /x: Too many open files; raise `ulimit -n`"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "error: the current directory was deleted;"),
    ],
)
def test_a_limit_or_a_lost_directory_of_the_shell_is_one_line(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: parse.Arguments) -> int:
        raise error

    monkeypatch.setattr(commands, "COMMANDS", {"fail": parse.Command("", "", {}, run)})
    assert commands.main(["fail"]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for args in ([name, "--help"], ["help", name], [name, "-h", "--bogus"]):
        assert commands.main(args) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"usage: seedzero {name} {commands.COMMANDS[name].usage}") and err == ""


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([]) == 2
    listing = capsys.readouterr().err
    assert all(f"\n  {name} " in listing for name in commands.COMMANDS)
    assert commands.main(["--help"]) == 0
    assert capsys.readouterr().out == listing


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["--version"]) == 0
    assert capsys.readouterr().out == f"seedzero {seedzero.__version__}\n"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "args",
    [
        ["train", "--preset=tictactoe", "--agent=r2d2"],
        ["train", "--env=gym:Pendulum-v1", "--agent=vtrace"],
    ],
)
def test_a_mistake_is_told_without_loading_jax(args: list[str]) -> None:
    script = (
        "import sys; from seedzero.cli import main; code = main.main(sys.argv[1:]); "
        "sys.exit(99 if {'jax', 'flax', 'optax'} & sys.modules.keys() else code)"
    )
    done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr


def test_output_whose_reader_has_gone_ends_quietly() -> None:
    command = f"{sys.executable} -m seedzero.cli config --preset=atari | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr and "Exception" not in done.stderr
    assert done.stdout.splitlines()[0].startswith("# preset atari")


@pytest.mark.thorough
@pytest.mark.parametrize(("args", "code"), [("agents >&-", 0), ("nonsense 2>&-", 2), ("nonsense >&- 2>&-", 2)])
def test_a_command_works_though_its_standard_streams_are_closed(args: str, code: int) -> None:
    command = f"{sys.executable} -m seedzero.cli {args}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize(("way", "line"), [("<&-", ""), (r"< <(printf '\xff\n')", "\ufffd\n")])
def test_standard_input_may_be_closed_and_may_be_no_text(way: str, line: str) -> None:
    script = (
        "import sys; from seedzero.cli import main; "
        "main.main = lambda: print(ascii(sys.stdin.readline())); main.program()"
    )
    done = subprocess.run(
        ["bash", "-c", f'{sys.executable} -c "{script}" {way}'], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{line!a}\n", "")


def test_letters_that_standard_output_lacks_are_escaped() -> None:
    script = "from seedzero.cli import main; main.main = lambda: print('runs/\\xfc'); main.program()"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "runs/\\xfc\n", "")


def test_streams_in_place_of_closed_ones_are_inherited() -> None:
    script = (
        "import os, sys; from seedzero.cli import main; "
        "main.main = lambda: os.system('test -e /proc/self/fd/1 && test -e /proc/self/fd/2') >> 8; main.program()"
    )
    command = f'{sys.executable} -c "{script}" >&- 2>&-'
    assert subprocess.run(["bash", "-c", command], check=False).returncode == 0


def test_the_process_ends_with_its_code_though_a_thread_still_compiles() -> None:
    script = (
        "import threading; from seedzero.cli import main; main.main = lambda: print('done') or 7; "
        "threading.Thread(target=threading.Event().wait, name='compile').start(); main.program()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (7, "done\n", "")
