"""Docker: compose files by the schema of compose, command lines by seedzero's parser, Dockerfiles by what they say.

That they build and run is docker/smoke_test.sh's matter: ./run_tests.sh --docker.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import shlex
import subprocess
import sys
from typing import Any

import deploy_files
import pytest
import yaml

from seedzero.core import errors

DOCKER = deploy_files.ROOT / "docker"
COMPOSE, GPU, HOSTS = (DOCKER / f"docker-compose{name}.yml" for name in ("", ".gpu", ".hosts"))
DOCKERFILES = [DOCKER / "learner.Dockerfile", DOCKER / "worker.Dockerfile"]


def _interpolate(text: str, **variables: str) -> str:
    """Puts in what compose would: a variable, else the default that stands beside it."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1], found[2]), text)


def _services(path: pathlib.Path = COMPOSE, **variables: str) -> dict[str, Any]:
    found = yaml.safe_load(_interpolate(path.read_text(), **variables))["services"]
    assert isinstance(found, dict)
    return found


def _validate(path: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Runs the validator with the schema of compose that comes with it: nothing is downloaded."""
    pytest.importorskip("check_jsonschema", reason="it comes with the extra clouds")
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )


def _instructions(path: pathlib.Path) -> list[tuple[str, str]]:
    """Returns the instructions of a Dockerfile, continued lines joined, comments left out."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(words[0], words[2]) for line in joined.splitlines() if (words := line.partition(" "))[0]]


@pytest.mark.thorough
@pytest.mark.parametrize("path", [COMPOSE, GPU, HOSTS], ids=lambda path: path.name)
def test_compose_would_take_the_file(path: pathlib.Path) -> None:
    done = _validate(path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("service", ["learner", "worker", "policy"])
def test_seedzero_takes_the_command_line(service: str) -> None:
    deploy_files.check_command(shlex.split(_services()[service]["command"]))


def test_seedzero_takes_what_the_smoke_test_trains_with() -> None:
    found = re.search(r'SEEDZERO_TRAIN="(.*)"', (DOCKER / "smoke_test.sh").read_text())
    assert found is not None
    deploy_files.check_command(shlex.split(_services(SEEDZERO_TRAIN=found[1])["learner"]["command"]))
    with pytest.raises(errors.UsageError):
        wrong = found[1].replace("--checkpoint.every_seconds", "--checkpoint.every_second")
        deploy_files.check_command(shlex.split(_services(SEEDZERO_TRAIN=wrong)["learner"]["command"]))


def _health_commands(service: dict[str, Any]) -> list[list[str]]:
    """Returns the words of each command that a service's health check tries, within its limit of time."""
    *limit, commands = shlex.split(service["healthcheck"]["test"])
    assert limit == ["timeout", "8", "sh", "-c"]
    return [shlex.split(command) for command in commands.split("||")]


def test_the_health_check_asks_the_socket_of_the_run() -> None:
    learner = _services(SEEDZERO_RUN="pong")["learner"]
    commands = _health_commands(learner)
    assert [words[0] for words in commands] == ["seedzero", "seedzero"]
    for _, *words in commands:
        deploy_files.check_command(words)
    assert "--server=unix:/runs/pong/learner.sock" in commands[0]  # of any run, with TLS or without
    assert "--run_dir=/runs/pong" in shlex.split(learner["command"])


def test_workers_wait_for_a_healthy_learner_and_speak_to_its_port() -> None:
    services = _services()
    assert services["worker"]["depends_on"] == {"learner": {"condition": "service_healthy"}}
    assert "--server=learner:7777" in services["worker"]["command"]
    assert "--listen=0.0.0.0:7777" in services["learner"]["command"]
    assert "ports" not in services["learner"]  # nobody outside this machine is to reach it
    for service in ("learner", "worker", "policy"):
        assert services[service]["restart"] == "unless-stopped"
        assert services[service]["init"] is True
        assert services[service]["secrets"] == ["token"]
        assert "--token_file=/run/secrets/token" in services[service]["command"]


@pytest.mark.parametrize("number", ["2", "5"])
def test_the_learner_expects_as_many_workers_as_compose_starts(number: str) -> None:
    services = _services(SEEDZERO_WORKERS=number)
    assert f"--worker.num_remote={number}" in shlex.split(services["learner"]["command"])
    assert services["worker"]["deploy"]["replicas"] == number
    text = (deploy_files.ROOT / "docs" / "clusters.md").read_text()
    (exported,) = re.findall(r"SEEDZERO_WORKERS=(\d+)", text)
    assert _services()["worker"]["deploy"]["replicas"] == exported
    scales = re.findall(r"--scale worker=(\S+)", text + COMPOSE.read_text())
    assert scales and set(scales) == {"$SEEDZERO_WORKERS"}


def test_the_gpu_s_file_changes_services_that_are_there() -> None:
    services, over = _services(), _services(GPU)
    assert set(over) <= set(services)
    assert over["learner"]["build"]["args"]["EXTRAS"] == "cuda"
    assert over["learner"]["image"] == over["tensorboard"]["image"] != services["learner"]["image"]


def test_the_hosts_file_makes_two_hosts_of_one_run() -> None:
    services, over = _services(SEEDZERO_RUN="pong"), _services(HOSTS, SEEDZERO_RUN="pong", SEEDZERO_HOST_WORKERS="3")
    assert set(over) == {"learner", "learner1", "worker"}
    assert over["learner1"]["extends"] == {"file": COMPOSE.name, "service": "learner"}
    first, second = (shlex.split(over[name]["command"]) for name in ("learner", "learner1"))
    differing = {"--cluster.index", "--cluster.worker_address"}
    assert {word.partition("=")[0] for word in set(first) ^ set(second)} == differing
    assert {"--cluster.index=0", "--cluster.worker_address=learner:7777", "--worker.num_remote=3"} < set(first)
    assert {"--cluster.index=1", "--cluster.worker_address=learner1:7777"} < set(second)
    assert {"--cluster.coordinator=learner:7800", "--listen=0.0.0.0:7777"} < set(first)
    alone = [word for word in first if not word.startswith(("--cluster.", "--worker.num_remote="))]
    assert alone == [word for word in shlex.split(services["learner"]["command"]) if "num_remote" not in word]
    for words in (first, second, shlex.split(over["worker"]["command"])):
        deploy_files.check_command(words)
    assert "--server=learner:7777,learner1:7777" in over["worker"]["command"]
    assert over["worker"]["depends_on"] == {"learner1": {"condition": "service_healthy"}}
    for words in _health_commands(over["learner1"]):  # not the first one's socket
        deploy_files.check_command(words[1:])
    assert "--server=unix:/runs/pong/hosts/1/learner.sock" in over["learner1"]["healthcheck"]["test"]
    number = int(_services()["worker"]["deploy"]["replicas"])
    assert f"--worker.num_remote={number // 2} " in _services(HOSTS)["learner"]["command"]


def test_compose_builds_from_files_that_are_there_with_arguments_that_they_know() -> None:
    for service in ("learner", "worker"):
        build = _services()[service]["build"]
        path = (DOCKER / build["context"] / build["dockerfile"]).resolve()
        declared = " ".join(text for key, text in _instructions(path) if key == "ARG")
        assert set(build["args"]) <= set(re.findall(r"([A-Z_]+)(?:=|\s|$)", declared))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_not_root_s_and_installs_by_hash(path: pathlib.Path) -> None:
    found = _instructions(path)
    assert [text for name, text in found if name == "USER"] == ["10001:10001"]
    runs = " && ".join(text for name, text in found if name == "RUN")
    assert "apt-get" not in runs and not path.read_text().startswith("# syntax")
    installs = re.findall(r"pip --python=\S+ install (.*?)(?:&&|;;|$)", runs)
    assert len(installs) >= 3
    for install in installs:
        assert "--no-deps" in install and ("--require-hashes" in install or "--no-index" in install), install
    labels = " ".join(text for name, text in found if name == "LABEL")
    for label in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in labels


def test_the_learner_s_image_finds_a_driver_where_gke_mounts_it() -> None:
    variables = " ".join(text for name, text in _instructions(DOCKERFILES[0]) if name == "ENV").split()
    assert "LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/local/nvidia/lib" in variables


@pytest.mark.parametrize("image", ["dmlab", "football"])
def test_an_image_that_was_not_built_says_so_and_is_not_root_s(image: str) -> None:
    path = DOCKER / f"worker-{image}.Dockerfile"
    found = _instructions(path)
    assert [text for name, text in found if name == "USER"] == ["10001:10001"]
    assert "NOT BUILT YET" in path.read_text()
    final = found[max(index for index, (name, _) in enumerate(found) if name == "FROM") :]
    for install in re.findall(r"pip --python=\S+ install (.*?)(?:&&|$)", " ".join(text for _, text in final)):
        assert "--no-deps" in install and ("--require-hashes" in install or "--no-index" in install), install


def test_the_image_with_lab_takes_tensorstore_from_the_learner_s_list() -> None:
    (program,) = re.findall(r"awk '(.*?)'", (DOCKER / "worker-dmlab.Dockerfile").read_text())
    lines = deploy_files.ROOT / "requirements" / "learner.txt"
    done = subprocess.run(["awk", program, lines], capture_output=True, text=True, check=True)
    assert re.findall(r"^([a-z0-9-]+)==", done.stdout, re.MULTILINE) == ["ml-dtypes", "tensorstore"]
    assert done.stdout.count("--hash=sha256:") > 2


def test_a_worker_s_image_has_no_list_of_the_learner_s_packages() -> None:
    assert "requirements/learner" not in DOCKERFILES[1].read_text()


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
@pytest.mark.parametrize("extras", ["", "box2d", "mujoco,pgx", "box2d,minatar", "cuda,ray"])
def test_an_image_installs_the_locks_of_its_extras_and_refuses_others(
    path: pathlib.Path, extras: str, tmp_path: pathlib.Path
) -> None:
    """Runs the Dockerfile's own line of shell, with a pip that only writes down what it is to install."""
    (run,) = [text for name, text in _instructions(path) if name == "RUN" and "$EXTRAS" in text]
    line = re.sub(r"--mount=\S+ |python -m venv \S+ \S+ && ", "", run)
    line = line.replace("/opt/requirements", str(deploy_files.ROOT / "requirements"))
    (tmp_path / "pip").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "pip").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=False,
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "EXTRAS": extras},
    )  # fmt: skip
    is_learner = path == DOCKERFILES[0]
    if extras == "box2d,minatar" or (extras == "cuda,ray" and not is_learner):
        wrong = "minatar" if "minatar" in extras else "cuda"
        assert done.returncode == 1 and f"unknown {wrong}; " in done.stderr and "worker-vizdoom.txt" in done.stderr
        return
    names = [f"{'learner' if extra in ('cuda', 'ray') else 'worker'}-{extra}" for extra in extras.split(",") if extra]
    expected = names if is_learner else ["worker", *names]
    assert re.findall(r"-r (\S+)\.txt$", done.stdout, re.MULTILINE) == expected, done.stderr


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_made_from_this_one_installs_beside_seedzero(path: pathlib.Path) -> None:
    words = [word for name, text in _instructions(path) if name == "ENV" for word in text.split()]
    variables = dict(word.split("=", 1) for word in words)
    python = variables["PIP_PYTHON"]
    runs = " && ".join(text for name, text in _instructions(path) if name == "RUN")
    assert f"pip --python={python} freeze --exclude=seedzero > {variables['PIP_CONSTRAINT']}" in runs
    assert variables["PYTHONPATH"] == "/env" and not variables["PATH"].startswith(os.path.dirname(sys.executable))


def test_no_image_has_a_package_under_the_gpl() -> None:
    locks = (deploy_files.ROOT / "requirements").glob("*.txt")
    assert not [lock.name for lock in locks if re.search(r"^minatar==", lock.read_text(), re.MULTILINE)]


def test_the_smoke_test_opens_nothing_through_another_s_link(tmp_path: pathlib.Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with (tmp_path / "theirs" / "lock").open("w+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # else a script that does not look would build images
        lock.write("kept")
        lock.flush()
        done = subprocess.run(
            ["bash", DOCKER / "smoke_test.sh"], capture_output=True, text=True, check=False,
            env={**os.environ, "SEEDZERO_DOCKER_STATE": str(tmp_path / "link")},
        )  # fmt: skip
    assert done.returncode == 1 and str(tmp_path / "link") in done.stderr
    assert (tmp_path / "theirs" / "lock").read_text() == "kept"


def test_the_smoke_test_explains_itself_and_refuses_what_it_does_not_know() -> None:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", DOCKER / "smoke_test.sh", *words], capture_output=True, text=True, check=False)

    assert call("--help").returncode == 0
    assert call("--help").stdout.startswith("usage: docker/smoke_test.sh [--workers=N] [--hosts] [--own] [--clean]")
    for wrong in (["--worker=2"], ["--workers=many"], ["--workers=9"], ["--workers=3", "--hosts"]):
        done = call(*wrong)
        assert done.returncode == 2 and wrong[0] in done.stderr
