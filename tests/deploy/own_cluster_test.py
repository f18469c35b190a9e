"""The tutorial of an own environment on a cluster: its commands are run, as far as a machine without a cluster can."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import deploy_files
import manifests
import pytest

PAGE = deploy_files.ROOT / "docs" / "tutorials" / "own_cluster.md"


def _commands(*programs: str) -> list[str]:
    """Returns the page's lines of shell that begin with one of these words, without their comments."""
    blocks = re.findall(r"^```\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [line.partition("   #")[0].strip() for line in lines if line.startswith(programs)]


@pytest.fixture
def clone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A clone as the page has it: with the reader's module, and without an engine of docker and a program seedzero."""
    for name in ("cluster", "docker", "examples", "gcp", "requirements", "scripts"):
        (tmp_path / name).symlink_to(deploy_files.ROOT / name)
    (tmp_path / "cluster").unlink()
    shutil.copytree(deploy_files.ROOT / "cluster", tmp_path / "cluster")
    for name in ("seedzero", ".dockerignore"):
        (tmp_path / name).symlink_to(deploy_files.ROOT / name)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (made,) = _commands("printf ")
    _run(made)
    return tmp_path


def _run(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], capture_output=True, text=True, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done


def test_images_are_written_and_compose_s_commands_are_those_of_its_file(clone: pathlib.Path) -> None:
    first, pushed = _commands("scripts/image ")
    assert "seedzero/my-env-learner:1" in _run(pushed).stdout and (clone / "image" / "Dockerfile").is_file()
    printed = _run(first).stdout
    written = (clone / "image" / "Dockerfile").read_text().splitlines()
    shown = PAGE.read_text().partition("```\nARG FROM")[2].partition("```")[0].splitlines()
    assert [line.split()[0] for line in written[1:] if not line.startswith(("ARG PIP", 'RUN ["chmod'))] == [
        line.split()[0] for line in ["ARG", *shown[1:]]
    ]
    assert "my-env-worker:latest" in printed and "my-env-learner:latest" in printed
    (compose,) = _commands("compose=")
    words = shlex.split(shlex.split(compose)[0].partition("=")[2])
    files = [words[index + 1] for index, word in enumerate(words) if word in ("--env-file", "-f")]
    assert len(files) == 2 and all((clone / file).is_file() for file in files)
    services = deploy_files.documents(clone / files[1])[0]["services"]
    for line in _commands("$compose exec"):
        service, program, *rest = [word for word in shlex.split(line)[2:] if not word.startswith("--index")]
        assert service in services
        if program == "seedzero":
            deploy_files.check_command(rest)


def test_google_cloud_s_dry_runs_print_requests(clone: pathlib.Path) -> None:
    lines = _commands("gcp/train.sh ")
    assert len(lines) == 2 and all(" --dry_run" in line for line in lines)
    for line, text in zip(lines, ("custom-jobs create", "queued-resources create"), strict=True):
        assert text in (done := _run(line)).stdout and "seedzero/my-env-worker:1" in done.stdout
        assert "US dollars an hour" in done.stderr


def test_kustomize_makes_the_run_that_the_page_names(clone: pathlib.Path) -> None:
    copied, renamed = _commands("cp -r cluster", "sed -i")
    _run(f"{copied}\n{renamed}")
    assert "kubectl apply -k cluster/my-run" in _commands("kubectl apply -k")
    documents = manifests.built(clone / "cluster" / "my-run")
    for document in documents:
        manifests.validate(document)
    run = manifests.find(documents, "ConfigMap")["data"]
    service = manifests.find(documents, "Service")["metadata"]["name"]
    assert (run["RUN"], run["LEARNER"], service) == ("my-run", f"{service}:7777", "seedzero-learner-my-run")
    logs = _commands("kubectl -n seedzero logs")
    assert logs == [f"kubectl -n seedzero logs -f {service}-0"]


def test_ray_s_command_is_one_that_seedzero_takes(clone: pathlib.Path) -> None:
    (line,) = _commands("seedzero launch ray")
    words = shlex.split(line)[1:]
    deploy_files.check_command(words)
    (given,) = [word.partition("=")[2] for word in words if word.startswith("--runtime_env=")]
    assert json.loads(given) == {"working_dir": "."}
