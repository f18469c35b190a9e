"""What is asked of a cluster, and the command lines that run there."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import pytest

from seedzero.api import request
from seedzero.cli import parse, train
from seedzero.config import configs, presets, worker_options
from seedzero.core import errors
from seedzero.interfaces.launch import launch_plan

FILE = pathlib.Path("/tmp/x/token")
PLAN = launch_plan.Plan(
    run_dir="/shared/run",
    num_workers=6,
    train_words=("--preset=atari", "--run_dir=/shared/run", "--max_updates=9"),
    worker_options=worker_options.WorkerOptions(close_seconds=2.0, ca_file="/etc/ca.pem", threads=4),
    learner=launch_plan.NodeResources(6.0, "GPU", 2),
    worker=launch_plan.NodeResources(4.0),
    port=0,
    token="abc",
)


def test_the_learner_gets_the_users_words_and_what_the_launcher_decides() -> None:
    command = PLAN.learner_command("10.0.0.7", 7777, FILE)
    assert command[:4] == [sys.executable, "-m", "seedzero.cli", "train"]
    arguments = parse.read("train", train.COMMAND, command[4:])  # every word is one that `train` knows
    asked = request.make(arguments.flags, arguments.settings)
    transport, worker = asked.config.transport, asked.config.worker
    assert (transport.listen, transport.token_file) == ("10.0.0.7:7777", str(FILE))
    assert (worker.num, worker.num_remote, worker.threads) == (0, 6, 4)
    assert asked.config.run.max_updates == 9
    assert arguments.switch("supervised")


def test_one_learner_has_the_command_that_it_ever_had() -> None:
    assert PLAN.learner_command("10.0.0.7", 7777, FILE, index=0, coordinator="10.0.0.7:1") == [
        sys.executable, "-m", "seedzero.cli", "train", *PLAN.train_words, "--workers=0", "--worker.num_remote=6",
        "--worker.threads=4", "--listen=10.0.0.7:7777", f"--token_file={FILE}", "--supervised",
    ]  # fmt: skip


def test_learners_share_the_workers_and_meet_at_the_first() -> None:
    words = (*PLAN.train_words, "--cluster.num_hosts=3")
    plan = dataclasses.replace(PLAN, num_learners=3, train_words=words, port=7777)
    assert [plan.learner_port(index) for index in range(3)] == [7777, 7778, 7779]
    assert [PLAN.learner_port(index) for index in range(3)] == [0, 0, 0]
    command = plan.learner_command("10.0.0.8", 7779, FILE, index=2, coordinator="10.0.0.7:7800")
    arguments = parse.read("train", train.COMMAND, command[4:])
    asked = request.make(arguments.flags, arguments.settings)
    cluster = asked.config.cluster
    assert (cluster.num_hosts, cluster.index, cluster.coordinator, cluster.worker_address) == (
        3,
        2,
        "10.0.0.7:7800",
        "",
    )
    assert asked.config.worker.num_remote == 2
    seen = worker_options.read(plan.worker_command(0, "10.0.0.7:7777,10.0.0.8:7779", FILE)[3:])
    assert seen.server == "10.0.0.7:7777,10.0.0.8:7779"


@pytest.mark.parametrize(
    ("num_learners", "num_workers", "texts"),
    [(2, 5, ["--num_workers=5: ", "--num_workers=4 or 6"]), (4, 3, ["--num_workers=3: ", "give --num_workers=4,"])],
)
def test_learners_that_cannot_share_are_refused(num_learners: int, num_workers: int, texts: list[str]) -> None:
    with pytest.raises(errors.UsageError) as raised:
        launch_plan.check_learners(num_learners, num_workers)
    assert all(text in str(raised.value) for text in texts)
    launch_plan.check_learners(1, 5)
    launch_plan.check_learners(3, 6)


def test_an_ipv6_host_is_in_brackets() -> None:
    assert "--listen=[fd00::7]:0" in PLAN.learner_command("fd00::7", 0, FILE)


def test_a_worker_knows_every_word_of_its_command() -> None:
    command = PLAN.worker_command(3, "10.0.0.7:7777", FILE)
    assert command[:3] == [sys.executable, "-m", "seedzero.worker"]
    seen = worker_options.read(command[3:])
    assert (seen.server, seen.worker_id, seen.role, seen.threads) == ("10.0.0.7:7777", "ray-3", "train", 4)
    assert seen.supervised and seen.close_seconds == 2.0
    assert (seen.token_file, seen.ca_file) == (str(FILE), "/etc/ca.pem")


def test_the_token_is_in_no_command_and_no_text() -> None:
    words = [*PLAN.learner_command("h", 1, FILE), *PLAN.worker_command(0, "h:1", FILE), repr(PLAN)]
    assert not any("abc" in word for word in words)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"worker.num": "3"}, "--workers=3: .*--num_workers=N"),
        ({"transport.listen": "0.0.0.0:7"}, "--listen=0.0.0.0:7: "),
        ({"cluster.num_hosts": "2"}, "--cluster.num_hosts=2: .*--num_learners=N"),
        ({"env.id": "remote"}, "--env=remote "),
        ({"run.deterministic": "true"}, "--deterministic "),
    ],
)
def test_settings_that_the_launcher_decides_or_cannot_serve_are_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(errors.UsageError, match=text):
        launch_plan.check_settings(settings)
    launch_plan.check_settings({"run.deterministic": "false", "env.id": "catch"})


def test_cores_are_counted_for_every_thread_of_environments() -> None:
    values = configs.override(presets.get("atari"), {"worker.threads": "4", "evaluation.every_updates": "100"})
    assert launch_plan.worker_threads(values) == 4
    assert launch_plan.learner_cpus(values) == 6.0
    alone = configs.override(values, {"evaluation.every_updates": "0"})
    assert launch_plan.learner_cpus(alone) == 2.0
    assert launch_plan.worker_threads(configs.Config()) == 1


MIXED = [{"CPU": 8.0}, {"CPU": 8.0, "GPU": 1.0}, {"GPU": 4.0}, {"TPU": 8.0}]
TWO = [{"CPU": 8.0}, {"GPU": 8.0}, {"GPU": 4.0}]


@pytest.mark.parametrize(
    ("text", "nodes", "num_learners", "found"),
    [
        ("none", MIXED, 1, ("", 0)),
        ("auto", MIXED, 1, ("GPU", 4)),
        ("GPU", MIXED, 1, ("GPU", 4)),
        ("GPU:2", MIXED, 1, ("GPU", 2)),
        ("TPU", MIXED, 1, ("TPU", 8)),
        ("TPU:4", MIXED, 1, ("TPU", 4)),
        # Learners have equal numbers.
        *(
            (text, TWO, num_learners, ("GPU", number))
            for text in ("auto", "GPU")
            for num_learners, number in ((1, 8), (2, 4), (3, 4), (4, 2), (5, 2), (12, 1))
        ),
        # One that is not there yet can be asked for.
        ("auto", TWO, 13, ("", 0)),
        ("GPU", TWO, 13, ("GPU", 1)),
        ("auto", [{"CPU": 8.0}], 1, ("", 0)),
        ("GPU", [{"CPU": 8.0}], 1, ("GPU", 1)),
    ],
)
def test_the_accelerator_that_is_asked_for(
    text: str, nodes: list[dict[str, float]], num_learners: int, found: tuple[str, int]
) -> None:
    assert launch_plan.find_accelerator(text, nodes, num_learners) == found


@pytest.mark.parametrize("text", ["gpu", "GPU:0", "GPU:x", "CPU:1", ""])
def test_an_unknown_accelerator_is_refused(text: str) -> None:
    with pytest.raises(
        errors.UsageError, match=f"--accelerator={text}: expected auto, none, GPU, GPU:N, TPU or TPU:N"
    ):
        launch_plan.find_accelerator(text, [])


@pytest.mark.parametrize(
    ("cpus", "num_workers", "fitted"), [(8.0, 3, 3.0), (5.0, 3, 2.0), (4.0, 3, 1.0), (3.0, 3, 3.0), (3.5, 2, 1.0)]
)
def test_a_learner_takes_fewer_cores_where_everything_then_has_a_place(
    cpus: float, num_workers: int, fitted: float
) -> None:
    learner, worker = launch_plan.NodeResources(3.0, "GPU", 1), launch_plan.NodeResources(1.0)
    found = launch_plan.fit_learner(learner, worker, num_workers, [{"CPU": cpus, "GPU": 1.0}])
    assert found == launch_plan.NodeResources(fitted, "GPU", 1)


def test_a_shortage_names_what_is_needed_what_there_is_and_what_to_lower() -> None:
    learner, worker = launch_plan.NodeResources(3.0), launch_plan.NodeResources(1.0)
    assert launch_plan.shortage(learner, worker, 2, [{"CPU": 4.0}, {"CPU": 1.0}]) == ""
    text = launch_plan.shortage(learner, worker, 2, [{"CPU": 2.0}, {"memory": 1.0}])
    assert " CPU 3, " in text and " 2 worker(s) CPU 1" in text
    assert " 2 node(s) with CPU 2; nothing; " in text and "--num_workers" in text


def test_every_learner_needs_room() -> None:
    learner, worker = launch_plan.NodeResources(3.0), launch_plan.NodeResources(1.0)
    nodes = [{"CPU": 4.0}, {"CPU": 4.0}]
    assert launch_plan.shortage(learner, worker, 2, nodes, 2) == ""
    assert launch_plan.fit_learner(learner, worker, 4, nodes, 2) == launch_plan.NodeResources(2.0)
    text = launch_plan.shortage(learner, worker, 4, nodes, 2)
    assert " 2 learners " in text and " CPU 3, " in text and " 4 worker(s) CPU 1" in text and " CPU 4; CPU 4; " in text


def test_what_finds_no_room_is_named() -> None:
    learner, worker = launch_plan.NodeResources(3.0, "GPU", 1), launch_plan.NodeResources(2.0)
    nodes = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0}]
    assert launch_plan.have_room([learner, worker, worker], nodes)
    assert not launch_plan.have_room([learner, worker, worker, worker], nodes)
    assert not launch_plan.have_room([learner, worker], [{"CPU": 16.0}])
    assert str(learner) == "CPU 3, GPU 1"
