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
COMPOSE = ("export SEEDZERO_USER=", "(umask 077; mkdir -p docker/secrets;", "compose=", "$compose ")
KUBECTL = ("kubectl ", "openssl rand -hex 32 | kubectl ")
OF_OTHER_TESTS = ("seedzero check-env ", "gcloud ")
"""Lines that documents_test.py and gcp_scripts_test.py read."""


def _commands(*programs: str) -> list[str]:
    """Returns the page's lines of shell that begin with one of these words, without their comments; all by default."""
    blocks = re.findall(r"^```\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks if not block.startswith("ARG ") for line in block.splitlines()]
    return [line.partition("   #")[0].strip() for line in lines if line.startswith(programs or "")]


@pytest.fixture
def clone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A clone as the page has it: with the reader's module, and without an engine of docker and a program seedzero."""
    for name in ("examples", "gcp", "requirements", "scripts", "seedzero", ".dockerignore"):
        (tmp_path / name).symlink_to(deploy_files.ROOT / name)
    for name in ("cluster", "docker"):  # where the page writes
        shutil.copytree(deploy_files.ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("secrets"))
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


def _calls(folder: pathlib.Path, lines: list[str], program: str) -> list[list[str]]:
    """Runs lines of shell with a program that only writes down its words, and returns these, a list a call."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / program).write_text(
        f'#!/bin/sh\nprintf "%s\\0" "$@" >> "{folder}/calls"; printf "\\n\\0" >> "{folder}/calls"\n'
    )
    (tools / program).chmod(0o755)
    _run("\n".join(lines), PATH=f"{tools}{os.pathsep}{os.environ['PATH']}")
    return [call.split("\0") for call in (folder / "calls").read_text().split("\0\n\0")[:-1]]


def test_every_line_of_the_page_has_a_test() -> None:
    tested = (
        *COMPOSE, *KUBECTL, *OF_OTHER_TESTS, "printf ", "scripts/image ", "docker build ", "gcp/train.sh ",
        "cp -r cluster/kubernetes-own ", "sed -i ", "seedzero launch ray ",
    )  # fmt: skip
    assert [line for line in _commands() if not line.startswith(tested)] == []
    assert [start for start in tested if not _commands(start)] == []


def test_images_are_written_as_the_page_shows_them(clone: pathlib.Path) -> None:
    first, pushed = _commands("scripts/image ")
    assert "seedzero/my-env-learner:1" in _run(pushed).stdout and (clone / "image" / "Dockerfile").is_file()
    printed = _run(first).stdout
    written = (clone / "image" / "Dockerfile").read_text().splitlines()
    shown = PAGE.read_text().partition("```\nARG FROM")[2].partition("```")[0].splitlines()
    assert [line.split()[0] for line in written[1:] if not line.startswith(("ARG PIP", 'RUN ["chmod'))] == [
        line.split()[0] for line in ["ARG", *shown[1:]]
    ]
    assert "my-env-worker:latest" in printed and "my-env-learner:latest" in printed


def test_docker_builds_what_is_there_and_compose_runs_it(clone: pathlib.Path) -> None:
    _run(_commands("scripts/image ")[0])
    calls = _calls(clone, _commands("docker build ", *COMPOSE), "docker")
    builds = [words for words in calls if words[0] == "build"]
    for words in builds:
        file = clone / (words[words.index("-f") + 1] if "-f" in words else f"{words[-1]}/Dockerfile")
        assert file.is_file() and (clone / words[-1]).is_dir()
    made = [words[words.index("-t") + 1] for words in builds]
    assert made == ["seedzero-worker", "my-env-worker", "seedzero-learner", "my-env-learner"]
    assert "ARG FROM=seedzero-worker\n" in PAGE.read_text() and "FROM=seedzero-learner" in builds[3]

    assert re.fullmatch(r"[0-9a-f]{64}\n", (clone / "docker" / "secrets" / "token").read_text())
    assert (clone / "docker" / "secrets" / "token").stat().st_mode & 0o777 == 0o600
    variables = (clone / "image" / "compose.env").read_text()
    assert re.findall(r"^SEEDZERO_\w+_IMAGE=([\w-]+):latest$", variables, re.MULTILINE) == made[::-2]
    services, commands = deploy_files.documents(clone / "docker" / "docker-compose.yml")[0]["services"], []
    for words in calls[len(builds) :]:
        assert " ".join(words[:7]) == "compose --env-file image/compose.env -p my-env -f docker/docker-compose.yml"
        commands.append(words[7])
        if words[7] == "exec":
            service, program, *rest = [word for word in words[8:] if not word.startswith("--index=")]
            assert service in services and program in ("seedzero", "sh")
            if program == "seedzero":
                deploy_files.check_command(rest)
            else:
                assert rest == ["-c", "kill -9 $(cat /proc/1/task/1/children)"]
    assert commands == ["up", "exec", "exec", "exec", "stop"]


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

    config = clone / "nowhere.json"
    nowhere = {"clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}]}
    nowhere |= {"contexts": [{"name": "none", "context": {"cluster": "none"}}], "current-context": "none"}
    config.write_text(json.dumps(nowhere))
    for line in _commands(*KUBECTL):  # kubectl reads the words and the files, then asks for the server
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, check=False,
            env={**os.environ, "KUBECONFIG": str(config)},
        )  # fmt: skip
        assert (done.returncode == 0) == line.startswith("kubectl kustomize"), line
        assert not done.returncode or "refused" in done.stderr, done.stderr


def test_ray_s_command_is_one_that_seedzero_takes(clone: pathlib.Path) -> None:
    (line,) = _commands("seedzero launch ray")
    words = shlex.split(line)[1:]
    deploy_files.check_command(words)
    (given,) = [word.partition("=")[2] for word in words if word.startswith("--runtime_env=")]
    assert json.loads(given) == {"working_dir": "."}
