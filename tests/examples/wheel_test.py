"""The examples outside the clone, by an installed wheel: trained, killed, resumed, scored, shown, loaded, exported."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import e2e_harness as harness
import pytest

pytestmark = pytest.mark.slow
_SHORT = ("--checkpoint.every_seconds=1", "--evaluation.every_updates=0", "--stop_at_return=inf")
EXAMPLES = {
    "pqn": ("--preset=cartpole.preset", "--pqn.unroll_length=16"),
    "count_bonus": (
        "--env=python:count_bonus:deep_sea", "--agent=ppo", "--ppo.bonus=count_bonus:make",
        "--ppo.unroll_length=16", "--ppo.num_minibatches=4",
    ),
    "treasure": ("--preset=treasure.preset", "--ppo.unroll_length=16", "--ppo.num_minibatches=4"),
    "preset": ("--preset=mine.preset",),
}  # fmt: skip
"""Folder of examples/ -> settings of a small run of it; `preset`: a file that names nothing else outside."""
PRESET = "--preset=cartpole\n--agent=vtrace\n--vtrace.unroll_length=16\n"
LOAD = """
import sys, seedzero
assert seedzero.__file__.startswith(sys.argv[1]), seedzero.__file__
policy = seedzero.load(sys.argv[2])
print(policy.step)
"""


def _git(clone: pathlib.Path, *words: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    return subprocess.run(["git", *who, *words], cwd=clone, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A repository with the files of this one, as they are now."""
    path = tmp_path_factory.mktemp("clone")
    for name in _git(harness.ROOT, "ls-files", "-co", "--exclude-standard").splitlines():
        if (harness.ROOT / name).is_file():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(harness.ROOT / name, path / name)
    _git(path, "init", "--quiet")
    _git(path, "add", "--all")
    _git(path, "commit", "--quiet", "--message=Copy")
    return path


@pytest.fixture(scope="module")
def target(clone: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory of the installed wheel. Its build needs a package index."""
    path = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", str(clone), "--no-deps", f"--wheel-dir={path / 'wheels'}"], check=True)
    (wheel,) = (path / "wheels").glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", f"--target={path / 'site'}", str(wheel)], check=True)
    return path / "site"


class _Installed(harness.Host):
    """Programs of the installed wheel in a directory outside the clone."""

    def __init__(self, directory: pathlib.Path, target: pathlib.Path) -> None:
        super().__init__(directory)
        self._target = target
        self.environment["PYTHONPATH"] = str(target)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(self._target / "bin" / "seedzero"), *words]


@pytest.fixture(scope="module")
def host(clone: pathlib.Path, target: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Installed]:
    found = _Installed(tmp_path_factory.mktemp("elsewhere"), target)
    for name in EXAMPLES.keys() - {"preset"}:
        for file in (clone / "examples" / name).iterdir():
            shutil.copy(file, found.directory)
    (found.directory / "mine.preset").write_text(PRESET)
    yield found
    found.end()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_goes_its_whole_way(name: str, host: _Installed, clone: pathlib.Path, target: pathlib.Path) -> None:
    run, seconds = host.directory / "runs" / name, {}
    flag = f"--run_dir={run}"

    def timed(step: str, program: harness.Program) -> harness.Ended:
        began = time.monotonic()
        ended = program.wait()
        seconds[step] = time.monotonic() - began
        assert ended.code == 0, f"{step}: {ended.out}{ended.err}"
        return ended

    began = time.monotonic()
    learner = host.train(run, *EXAMPLES[name], *_SHORT)
    harness.wait_for(lambda: harness.saved_steps(run), "a checkpoint", alive=learner)
    learner.kill()
    seconds["train, kill -9"] = time.monotonic() - began
    last = harness.saved_steps(run)[-1] + 20
    resumed = timed("resume", host.train(run, f"--max_updates={last}"))
    assert re.search(harness.RESUMED, resumed.out + resumed.err)
    scored = timed("evaluate", host.start(host.command("evaluate", flag, "--episodes=2"), "evaluate")).json
    assert scored["step"] == last and "mean_return" in scored
    video = host.directory / f"{name}.mp4"
    timed("play", host.start(host.command("play", flag, f"--video={video}"), "play"))
    assert video.stat().st_size > 0
    loaded = timed("load", host.start([sys.executable, "-c", LOAD, str(target), str(run)], "load"))
    assert loaded.out.strip().endswith(str(last))
    exported = host.directory / f"{name}-exported"
    timed("export", host.start(host.command("export", flag, f"--out={exported}"), "export"))
    assert (exported / "manifest.json").is_file()
    assert _git(clone, "status", "--porcelain") == _git(clone, "diff") == ""
    print(name, scored["step"], scored["mean_return"], {step: round(took, 1) for step, took in seconds.items()})


def test_the_wheel_has_nothing_of_the_tests(target: pathlib.Path) -> None:
    assert sorted(path.name for path in target.iterdir() if "dist-info" not in path.name) == ["bin", "seedzero"]
    assert not [path for path in os.walk(target / "seedzero") if pathlib.Path(path[0]).name in ("tests", "examples")]
