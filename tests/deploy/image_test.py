"""scripts/image: what it writes, and that pip of an image made from seedzero's installs into the right Python."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import zipfile

import deploy_files
import pytest

ENV = "--env=python:my_env:Corridor"


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder of a module, on a machine without an engine of docker."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    (tmp_path / "work" / "maps").mkdir(parents=True)
    (tmp_path / "work" / "two").mkdir()
    for name in ("maps", "two"):
        (tmp_path / "work" / name / "one.txt").touch()
    shutil.copy(deploy_files.ROOT / "examples" / "own_environment.py", tmp_path / "work" / "my_env.py")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def _image(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [deploy_files.ROOT / "scripts" / "image", *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([ENV], "no name for the images; "),
        (["--image=x"], "no environment; "),
        (["--image=X", ENV], "--image=X: expected small letters"),
        (["--image=x", "--env=python:a b:C"], "--env=python:a b:C: expected letters"),
        (["--image=x", "--env=python:other:C"], "there is no other.py and no folder other here; "),
        (["--image=x", ENV, "--data=none"], "--data=none: there is no such file"),
        (["--image=x", ENV, "--data=maps/one.txt", "--data=two/one.txt"], "two/one.txt: another one.txt is copied"),
        (["--image=x", ENV, "--extras=minatar"], "--extras=minatar: there is no requirements/worker-minatar.txt"),
        (["--image=x", ENV, "--extras=cuda, ray"], "--extras=cuda, ray: expected names with commas between"),
        (["--image=x", ENV, "--out=maps"], "--out=maps: it is there, and this script has not written it"),
        (["--image=x", ENV, "--pips=y"], "unknown flag --pips=y; "),
        (["--image=x", ENV, "--pip=a\nb"], "control character"),
    ],
)
def test_wrong_words_are_named(folder: pathlib.Path, words: list[str], message: str) -> None:
    done = _image(*words)
    assert done.returncode == 2 and done.stderr.startswith("scripts/image: ") and message in done.stderr
    assert not (folder / "image").exists() and (folder / "maps" / "one.txt").exists()


def test_without_docker_the_files_are_written_and_the_commands_printed(folder: pathlib.Path) -> None:
    for _ in range(2):  # again, over its own
        done = _image(ENV, "--image=reg.io:5000/a/my-env:1", "--data=maps", "--extras=cuda,box2d", "--push")
        assert done.returncode == 0, done.stderr
    assert {path.name for path in (folder / "image" / "env").iterdir()} == {"my_env.py", "maps"}
    lines = [shlex.split(line) for line in done.stdout.splitlines()]
    assert [line[1] for line in lines] == ["build"] * 4 + ["push"] * 2
    tags = [line[line.index("--tag") + 1] for line in lines[:4]]
    images = ["reg.io:5000/a/my-env-worker:1", "reg.io:5000/a/my-env-learner:1"]
    assert tags[1::2] == images == [line[2] for line in lines[4:]]
    assert [f"FROM={tag}" in line for tag, line in zip(tags[::2], lines[1:4:2], strict=True)] == [True, True]
    assert "EXTRAS=box2d" in lines[0] and "EXTRAS=cuda,box2d" in lines[2]  # a worker has no device
    assert all(pathlib.Path(line[3]).is_file() for line in lines[:4])


def test_compose_trains_the_environment_with_four_workers(folder: pathlib.Path) -> None:
    assert _image(ENV, "--image=my-env").returncode == 0
    pairs = [line.split("=", 1) for line in (folder / "image" / "compose.env").read_text().splitlines()[1:]]
    variables = dict(pairs)
    text = (deploy_files.ROOT / "docker" / "docker-compose.yml").read_text()
    assert {f"${{{name}:-" in text for name in variables} == {True}
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1], found[2]), text)
    services = deploy_files.yaml.safe_load(text)["services"]
    assert [services[name]["image"] for name in ("learner", "worker")] == [
        "my-env-learner:latest",
        "my-env-worker:latest",
    ]
    words = shlex.split(services["learner"]["command"])
    assert {ENV, "--run_dir=/runs/my-env", "--worker.num_remote=4"} <= set(words)
    assert services["worker"]["deploy"]["replicas"] == "4"
    deploy_files.check_command([*words, "--env.max_episode_steps=30"])


def test_pip_in_the_image_installs_beside_seedzero_and_keeps_its_versions(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Runs the line of the Dockerfile with the variables of the image below, where its Python is one without pip."""
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        file.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny-1.0.dist-info/RECORD", "")
    done = _image(ENV, "--image=x", f"--pip={wheel}", "--pip=tiny>=1")
    assert done.returncode == 0, done.stderr
    dockerfile = (folder / "image" / "Dockerfile").read_text()
    (run,) = re.findall(r'^RUN .*?(\["pip".*)$', dockerfile, re.MULTILINE)
    program, *words = json.loads(run)
    assert (program, words) == ("pip", ["install", str(wheel), "tiny>=1"])
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    image = (deploy_files.ROOT / "docker" / "worker.Dockerfile").read_text().replace("/opt/seedzero", str(tmp_path))
    python = tmp_path / "venv" / "bin" / "python"
    variables = dict(re.findall(r"(PIP_[A-Z_]+)=(\S+)", image.partition("LABEL")[2]))
    variables["PIP_PYTHON"] = variables["PIP_PYTHON"].replace(f"{tmp_path}/bin/python", str(python))
    for kept, code in (("tiny==2.0", 1), ("tiny==1.0", 0)):
        (tmp_path / "constraints.txt").write_text(kept)
        ran = subprocess.run(
            [sys.executable, "-m", "pip", *words, "--no-index"], capture_output=True, text=True, check=False,
            env={**os.environ, **variables},
        )  # fmt: skip
        assert ran.returncode == code, ran.stderr
    assert subprocess.run([python, "-c", "import tiny"], check=False).returncode == 0
