"""From the command line to a plan; what becomes of that on a cluster is tested there."""

from __future__ import annotations

import contextlib
import pathlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seedzero.cli import launch
from seedzero.cli import main as commands
from seedzero.config import configs, presets
from seedzero.core import errors
from seedzero.interfaces.launch import launch_plan
from seedzero.storage.checkpoints import run_dirs

NODES = [{"CPU": 16.0, "GPU": 1.0}]
ARGS = ["launch", "ray", "--num_workers=3", "--preset=catch"]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[launch_plan.Plan]:
    """What would be launched on a cluster of one node with a GPU."""
    seen: list[launch_plan.Plan] = []

    @contextlib.contextmanager
    def connected(
        address: str, check_here: Callable[[list[dict[str, float]]], None], runtime_env: dict[str, Any] | None
    ) -> Iterator[bool]:
        assert runtime_env in (None, {"working_dir": "."})
        if is_own := address == "local":
            check_here([{"CPU": 2.0}])
        else:
            assert address == "10.0.0.1:6379"
        yield is_own

    class Launch:
        def __init__(self, wanted: launch_plan.Plan, **options: Any) -> None:
            seen.append(wanted)

        def run(self) -> str:
            return ""

    fake = types.SimpleNamespace(connected=connected, nodes=lambda: NODES, Launch=Launch)
    monkeypatch.setattr(launch, "load", lambda user: fake)
    return seen


def _launch(tmp_path: pathlib.Path, *more: str) -> int:
    return commands.main([*ARGS, "--address=10.0.0.1:6379", f"--run_dir={tmp_path}/run", *more])


@pytest.mark.parametrize("given", ["{", "3", '"."'])
def test_a_runtime_env_is_an_object_of_json(
    given: str, plans: list[launch_plan.Plan], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _launch(tmp_path, f"--runtime_env={given}") == 2 and not plans
    assert f"--runtime_env={given}: no " in capsys.readouterr().err
    assert _launch(tmp_path, '--runtime_env={"working_dir": "."}') == 0


def test_the_command_line_becomes_a_plan_and_the_way_to_go_on_is_told(
    plans: list[launch_plan.Plan], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--worker.threads=2", "--max_updates=5", "--port=7777", "--tls.ca_file=/ca.pem"]
    # The certificate is on the learner's node: not here.
    more += ["--worker.close_seconds=3", "--tls.cert_file=/cert.pem", "--tls.key_file=/key.pem"]
    assert _launch(tmp_path, *more) == 0
    (found,) = plans
    assert (found.num_workers, found.worker_options.threads, found.port) == (3, 2, 7777)
    assert found.run_dir == f"{tmp_path}/run"
    assert found.train_words == (
        "--preset=catch", f"--run_dir={tmp_path}/run", "--worker.threads=2", "--max_updates=5",
        "--worker.close_seconds=3", "--tls.cert_file=/cert.pem", "--tls.key_file=/key.pem",
    )  # fmt: skip
    assert (found.worker_options.ca_file, found.worker_options.close_seconds) == ("/ca.pem", 3.0)
    assert found.learner == launch_plan.NodeResources(4.0, "GPU", 1) and found.worker == launch_plan.NodeResources(2)
    err = capsys.readouterr().err
    assert "3 worker(s)" in err and " CPU 2; " in err and " CPU 4, GPU 1" in err
    assert f" launch ray --num_workers=3 --preset=catch --address=10.0.0.1:6379 --run_dir={tmp_path}/run " in err


def test_several_learners_become_a_plan(
    plans: list[launch_plan.Plan], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _launch(tmp_path, "--num_learners=3") == _launch(tmp_path) == _launch(tmp_path, "--num_learners=1") == 0
    several, default, one = plans
    assert (several.num_learners, several.learner.num_accelerators) == (3, 0)  # one GPU is too few for all
    assert several.train_words == ("--preset=catch", f"--run_dir={tmp_path}/run", "--cluster.num_hosts=3")
    assert default.num_learners == one.num_learners == 1
    assert default.train_words == several.train_words[:-1] and one.train_words[-1] == "--cluster.num_hosts=1"
    err = capsys.readouterr().err
    assert "3 learners, each of " in err and " --num_learners=3" in err


def test_a_run_of_several_learners_goes_on_with_them(plans: list[launch_plan.Plan], tmp_path: pathlib.Path) -> None:
    given = {"cluster.num_hosts": "3"}
    config = configs.override(presets.get("catch", "muzero"), given)
    run_dirs.open_run_dir(tmp_path / "run", config, preset="catch", given=given).close()
    words = [f"--run_dir={tmp_path}/run", "--address=10.0.0.1:6379", "--num_workers=3"]
    assert commands.main(["launch", "ray", *words]) == 0
    assert commands.main(["launch", "ray", "--num_learners=1", *words]) == 0
    assert [found.num_learners for found in plans] == [3, 1]
    assert [found.train_words[-1] for found in plans] == ["--cluster.num_hosts=3", "--cluster.num_hosts=1"]


def test_a_small_machine_gives_the_learner_what_is_left(
    plans: list[launch_plan.Plan],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(globals(), "NODES", [{"CPU": 2.0}])
    words = ["launch", "ray", "--preset=catch", "--address=local", f"--run_dir={tmp_path}/run"]
    assert commands.main([*words, "--num_workers=1"]) == 0
    (found,) = plans
    assert (found.learner, found.worker) == (launch_plan.NodeResources(1.0), launch_plan.NodeResources(1))
    assert re.search(r" CPU 1 \(.* CPU 3\)", capsys.readouterr().err)


@pytest.mark.parametrize("more", [["--num_workers=2"], ["--num_workers=1", "--learner_cpus=3"]])
def test_a_machine_without_room_is_told_before_ray_starts(
    more: list[str],
    plans: list[launch_plan.Plan],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["launch", "ray", "--preset=catch", "--address=local", f"--run_dir={tmp_path}/run"]
    assert commands.main([*words, *more]) == errors.BAD_USAGE
    error = capsys.readouterr().err
    assert " CPU 3, " in error and " 1 node(s) " in error and " CPU 2; " in error and "--num_workers" in error
    assert not plans


def test_every_launch_has_a_token_of_its_own_or_that_of_a_file(
    plans: list[launch_plan.Plan], tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret-of-a-file\n")
    file.chmod(0o600)
    assert _launch(tmp_path) == _launch(tmp_path) == _launch(tmp_path, f"--token_file={file}") == 0
    first, second, third = (found.token for found in plans)
    assert first != second and len(first) == 64 and third == "s3cret-of-a-file"
    assert not any(word.startswith("--token_file") for word in plans[2].train_words)


def test_a_run_goes_on_without_the_files_that_its_first_learner_read(
    plans: list[launch_plan.Plan], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"transport.listen": "10.0.0.9:7777", "transport.token_file": "/gone/token", "tls.cert_file": "/gone/cert"}
    config = configs.override(presets.get("catch", "muzero"), given)
    run_dirs.open_run_dir(tmp_path / "run", config, preset="catch", given=given).close()
    words = [f"--run_dir={tmp_path}/run", "--address=10.0.0.1:6379"]
    assert commands.main(["launch", "ray", "--num_workers=3", *words]) == 0
    assert plans[0].train_words == (f"--run_dir={tmp_path}/run", "--tls.cert_file=", "--tls.key_file=")
    assert commands.main(["launch", "ray", "--num_workers=3", "--trust_run_dir", *words]) == 0
    assert plans[1].train_words[0] == "--trust_run_dir=true"
    assert commands.main(["train", words[0]]) == errors.BAD_USAGE
    text = "had --token_file=/gone/token, which is not there; give --token_file=FILE, or --token_file= for none"
    assert text in capsys.readouterr().err


def test_a_run_directory_is_absolute_and_a_url_stays(
    plans: list[launch_plan.Plan], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for given, more in (("runs/a", []), ("gs://bucket/a", []), ("gs://bucket/a", ["--num_learners=3"])):
        assert commands.main([*ARGS, "--address=10.0.0.1:6379", f"--run_dir={given}", *more]) == 0
    assert [found.run_dir for found in plans] == [f"{tmp_path}/runs/a", "gs://bucket/a", "gs://bucket/a"]
    assert [found.num_learners for found in plans] == [1, 1, 3]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--workers=1"], "--workers=1: "),
        (["--learner_cpus=0"], "--learner_cpus=0: "),
        (["--learner_cpus=x"], "--learner_cpus=x: "),
        (["--accelerator=gpu"], "--accelerator=gpu: expected auto"),
        (["--num_workers=0"], "--num_workers=0: "),
        (["--num_learners=0"], "--num_learners=0: "),
        (["--num_learners=2"], "--num_workers=3: "),
        (["--cluster.num_hosts=3"], "--cluster.num_hosts=3: "),
        (["--replay.batchsize=3"], "--replay.batch_size?"),
        (["--num_worker=3"], "--num_workers?"),
        (["--replay.capacity=64"], "replay.capacity=64 "),
        (["--token_file=/nowhere"], "/nowhere"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    more: list[str],
    text: str,
    plans: list[launch_plan.Plan],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _launch(tmp_path, *more) == errors.BAD_USAGE
    err = capsys.readouterr().err
    assert text in err and not plans


def test_without_ray_the_next_step_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("seedzero.interfaces.launch.ray_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delattr("seedzero.interfaces.launch.ray_launch", raising=False)
    assert _launch(tmp_path) == errors.BAD_USAGE
    assert re.search("Ray, .*: .* install", capsys.readouterr().err)
