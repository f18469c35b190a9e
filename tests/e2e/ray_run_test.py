"""`seedzero launch ray` on a Ray cluster of this machine: actors and nodes die, training goes on."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import e2e_harness as harness
import fake_gcs
import psutil
import pytest

from seedzero.core import errors
from seedzero.monitoring import status
from seedzero.storage.bucket import bucket
from seedzero.storage.checkpoints import run_dirs, saved_files
from seedzero.transport import security

ray_cluster = pytest.importorskip(
    "ray.cluster_utils", reason="Ray is not installed: pip install '.[ray]'", exc_type=ImportError
)

# Ray and what it brings warn of each other.
pytestmark = pytest.mark.filterwarnings("ignore")

TOKEN = "0123456789abcdef"


class Launched:
    """A launcher, and the learner that it has somewhere."""

    def __init__(self, host: harness.Host, address: str, run: pathlib.Path, *words: str, url: str = "") -> None:
        token_file = run.with_name("token")
        token_file.write_text(TOKEN)
        token_file.chmod(0o600)
        self.run, self._access = run, security.Access(str(token_file))
        words = (f"--address={address}", f"--run_dir={url or run}", f"--token_file={token_file}", *words)
        self.program = host.start(host.command("launch", "ray", *words), "launch")

    def status(self) -> dict[str, Any] | None:
        """Returns the first learner's status, None where it does not answer; the accounting must hold every time."""
        try:
            learner = run_dirs.read_learner(self.run)
            found = status.from_server(learner["address"], self._access) if learner else None
        except errors.Error:
            return None
        if found is not None:
            harness.check_accounting(found)
        return found

    def until(self, condition: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """Waits for a status and returns it."""

        def fits() -> dict[str, Any] | None:
            found = self.status()
            return found if found and condition(found) else None

        return harness.wait_for(fits, what, alive=self.program)

    def learner_pid(self, index: int = 0) -> int:
        """Returns the process id of a learner's program, not of the actor that keeps it."""
        learner = run_dirs.read_learner(run_dirs.of_host(self.run, index))
        assert learner is not None
        return int(learner["pid"])

    def trains_on(self, num_updates: int = 20) -> dict[str, Any]:
        """Waits until it has done so many more updates and stored more steps."""
        now = self.until(lambda found: not found["stalled"], "training")
        return self.until(
            lambda found: found["updates"] >= now["updates"] + num_updates and found["env_steps"] > now["env_steps"],
            f"training continues from {now}",
        )

    def said(self, pattern: str) -> list[str]:
        """Returns what every place in its output says there."""
        return re.findall(pattern, self.program.output())

    def until_said(self, pattern: str, times: int) -> list[str]:
        """Waits until the output has the pattern so many times."""
        what = f"{times} times {pattern!r}"
        return harness.wait_for(
            lambda: found if len(found := self.said(pattern)) >= times else [], what, alive=self.program
        )


@pytest.fixture
def cluster() -> Iterator[Callable[..., Any]]:
    """Starts clusters, head node first; what runs on their nodes has the environment of other tests' programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_PLATFORMS", "cpu")
        patch.setenv("PYTHONPATH", str(harness.ROOT), prepend=os.pathsep)
        patch.delenv("RAY_ADDRESS", raising=False)
        started = []

        def start(**head: Any) -> Any:
            started.append(
                ray_cluster.Cluster(head_node_args=dict(include_dashboard=False, **head), initialize_head=True)
            )
            return started[-1]

        yield start
        for one in started:
            one.shutdown()


def _learner_processes(run: pathlib.Path) -> list[psutil.Process]:
    """Returns the learners of a run that live, wherever."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if "train" in words and f"--run_dir={run}" in words:
            found.append(process)
    return found


def _all_command_lines() -> str:
    lines = []
    for process in psutil.process_iter():
        try:
            lines += process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return "\n".join(lines)


@pytest.mark.thorough
def test_it_trains_to_a_budget_and_leaves_nothing_behind(
    host: harness.Host, cluster: Callable[..., Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setenv("XLA_FLAGS", host.environment["XLA_FLAGS"])  # which nodes pass on
    launched = Launched(host, cluster(num_cpus=3).address, run, *harness.TINY, "--num_workers=1", "--max_updates=150")
    launched.until(lambda found: found["updates"] > 0 and found["workers"] == 1, "updates")
    assert TOKEN not in _all_command_lines()
    ended = launched.program.wait()
    assert ended.code == 0, launched.program.output()
    assert "seedzero: finished: --max_updates=150 " in ended.err
    assert status.from_run_dir(run)["updates"] == 150
    harness.wait_for(lambda: not _learner_processes(run), "the learner has ended")
    assert not [path for path in run.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(
    host: harness.Host, cluster: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    run = tmp_path / "run"
    address = cluster(num_cpus=3).address
    words = (*harness.TINY, "--num_workers=1", "--checkpoint.every_seconds=0")
    first = Launched(host, address, run, *words)
    seen = first.until(lambda found: found["updates"] > 20, "updates")
    twice = Launched(host, address, run, *words).program.wait()
    assert twice.code == 2 and "launcher" in twice.err
    first.program.send(signal.SIGINT)
    ended = first.program.wait()
    assert ended.code == 0, first.program.output()
    assert f"--run_dir={run}" in ended.err
    (saved,) = harness.saved_steps(run)
    assert saved >= seen["updates"]

    again = Launched(host, address, run, *words, f"--max_updates={saved + 20}")
    assert int(again.program.says(harness.RESUMED)[1]) == saved
    again.program.wait().ok()
    assert status.from_run_dir(run)["updates"] == saved + 20


@pytest.mark.slow
def test_two_learners_go_on_together_though_a_program_and_an_actor_are_killed(
    host: harness.Host, cluster: Callable[..., Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setenv("XLA_FLAGS", host.environment["XLA_FLAGS"])  # which nodes pass on
    nodes = cluster(num_cpus=2)
    nodes.add_node(num_cpus=2)
    began = time.monotonic()
    words = ("--num_learners=2", "--num_workers=2", "--checkpoint.every_seconds=2", "--replay.num_slots=8")
    launched = Launched(host, nodes.address, run, *harness.TINY, *words)
    launched.until(lambda found: _is_whole(found) and found["durable_update"], "both workers, a checkpoint of both")
    print(f"two learners train with a worker each after {time.monotonic() - began:.1f} s")

    before, began = launched.trains_on(1), time.monotonic()
    os.kill(launched.learner_pid(1), signal.SIGKILL)
    _tell_joint_restart(launched, "the second learner's program killed", before, began)

    (pid,) = launched.said(r"learner-0: placed on \S+, actor pid (\d+)")
    (coordinator,) = set(launched.said(r"waits for the others at (\S+)"))
    before, began = launched.trains_on(1), time.monotonic()
    os.kill(int(pid), signal.SIGKILL)
    _tell_joint_restart(launched, "the first learner's actor killed", before, began)
    assert launched.said(r"waits for the others at (\S+)")[-1] != coordinator

    launched.program.send(signal.SIGINT)
    ended = launched.program.wait()
    assert ended.code == 0, launched.program.output()
    places = [run_dirs.of_host(run, index) for index in range(2)]
    (saved,) = {harness.saved_steps(place)[-1] for place in places}
    last = Launched(host, nodes.address, run, *harness.TINY, *words, f"--max_updates={saved + 20}").program.wait()
    assert last.code == 0 and f"seedzero: finished: --max_updates={saved + 20} " in last.err, last.err
    harness.wait_for(lambda: not _learner_processes(run), "the learners have ended")
    for place in places:
        manifest = list(saved_files.manifests(place / "checkpoints"))[-1]
        assert manifest.step == saved + 20
        ledger = manifest.counters["ledger"]
        assert ledger["acknowledged"] == ledger["stored"] + ledger["pending"] + sum(ledger["discarded"].values())
        assert ledger["stored"] > 100  # a sum of both in metrics.jsonl may be a second old


@pytest.mark.slow
def test_two_learners_keep_their_run_in_a_bucket(
    host: harness.Host,
    cluster: Callable[..., Any],
    gcs: fake_gcs.FakeGcs,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path / "scratch"
    host.environment |= gcs.environment | {bucket.SCRATCH_VARIABLE: str(scratch)}
    for name in ("XLA_FLAGS", *gcs.environment, bucket.SCRATCH_VARIABLE):  # which nodes pass on
        monkeypatch.setenv(name, host.environment[name])
    address = cluster(num_cpus=4).address
    words = (*harness.TINY, "--num_learners=2", "--num_workers=2", "--replay.num_slots=8")
    for budget in (40, 80):
        given = (*words, f"--max_updates={budget}")
        ended = Launched(host, address, tmp_path / "run", *given, url="gs://runs/two").program.wait()
        assert ended.code == 0 and f"finished: --max_updates={budget} " in ended.err, ended.err
        assert ("resumed at update 40" in ended.out) == (budget == 80), ended.out
        last = f"checkpoints/steps/{budget:012d}"
        assert {f"two/{last}/manifest.json", f"two/hosts/1/{last}/manifest.json"} <= set(gcs.names("runs"))
        assert gcs.names("runs", f"two/{last}/params/") and not gcs.names("runs", f"two/hosts/1/{last}/params/")
        shutil.rmtree(scratch)  # the machines are lost


def _is_whole(found: dict[str, Any]) -> bool:
    """Returns whether both learners have a worker."""
    return found["workers"] == 1 and all(" 1 workers" in line for line in found.get("hosts", [""]))


def _tell_joint_restart(launched: Launched, what: str, before: dict[str, Any], began: float) -> None:
    """Waits until both learners train again with a worker each, and tells how long that took."""
    since = len(launched.said(harness.RESUMED))
    resumed = int(launched.until_said(harness.RESUMED, since + 1)[-1])  # Ray shows a line of both only once
    listening = time.monotonic() - began
    found = launched.until(lambda found: _is_whole(found) and found["updates"] > resumed, "training")
    print(
        f"{what}: resumed after {listening:.1f} s, train with a worker each after {time.monotonic() - began:.1f} "
        f"s; at least {before['updates'] - resumed} updates lost; discarded {found['steps_discarded']}"
    )


@pytest.mark.slow
def test_an_own_environment_travels_to_the_nodes_and_trains_on_when_one_is_lost(
    host: harness.Host, cluster: Callable[..., Any], tmp_path: pathlib.Path
) -> None:
    run, folder = tmp_path / "run", tmp_path / "mine"
    folder.mkdir()
    host.directory = folder  # where the launcher runs; the nodes do not
    shutil.copy(harness.ROOT / "examples" / "own_environment.py", folder / "my_env.py")
    nodes = cluster(num_cpus=1)  # has room for a worker alone
    # Nodes have a directory of their own for the module, as on other machines: a new one writes its own anew.
    second = nodes.add_node(num_cpus=3, runtime_env_dir_name="second")
    words = ("--env=python:my_env:Corridor", "--env.max_episode_steps=30", "--agent=ppo", "--stop_at_return=inf")
    travels = ('--runtime_env={"working_dir": "."}', "--num_workers=2", "--checkpoint.every_seconds=2")
    launched = Launched(host, nodes.address, run, *words, *travels, "--evaluation.every_updates=20")
    launched.until(lambda found: found["durable_update"] and found["workers"] == 2, "both workers, a checkpoint")
    before, began = launched.trains_on(1), time.monotonic()
    nodes.remove_node(second, allow_graceful=False)
    launched.program.says(r"learner: its actor on \S+ is lost")
    harness.wait_for(lambda: not _learner_processes(run), "nothing of the node is left")
    nodes.add_node(num_cpus=3, runtime_env_dir_name="third")
    _tell_resumed(launched, "the learner's node lost", 1, before, began)
    launched.until(lambda found: (found["last_evaluation"] or {}).get("mean_return", 0) >= 0.99, "it has learned")
    launched.program.send(signal.SIGINT)
    assert launched.program.wait().code == 0, launched.program.output()


@pytest.mark.slow
def test_catch_is_learned_though_actors_are_killed_and_a_node_is_lost(
    host: harness.Host,
    cluster: Callable[..., Any],
    tmp_path: pathlib.Path,
    record_property: Callable[[str, object], None],
) -> None:
    run = tmp_path / "run"
    nodes = cluster(num_cpus=1)  # has room for a worker alone
    second = nodes.add_node(num_cpus=4)  # for the learner with its evaluator, and the other worker
    launched = Launched(host, nodes.address, run, "--preset=catch", "--num_workers=2", "--checkpoint.every_seconds=2")
    launched.until(lambda found: found["durable_update"] and found["workers"] == 2, "both workers, a checkpoint")

    (pid,) = launched.said(r"worker-0: placed on \S+, actor pid (\d+)")
    began = time.monotonic()
    os.kill(int(pid), signal.SIGKILL)
    launched.until_said(r"worker-0: placed on \S+, actor pid (\d+)", 2)
    launched.until_said(r"worker-0: joined", 2)
    print(f"a worker's actor killed: it has joined again after {time.monotonic() - began:.1f} s")
    launched.trains_on()

    (pid,) = launched.said(r"learner: placed on \S+, actor pid (\d+)")
    before = launched.trains_on(1)
    began = time.monotonic()
    os.kill(int(pid), signal.SIGKILL)
    after_actor = _tell_resumed(launched, "the learner's actor killed", 1, before, began)

    before = launched.trains_on(1)
    began = time.monotonic()
    os.kill(launched.learner_pid(), signal.SIGKILL)
    after_program = _tell_resumed(launched, "the learner's program killed", 2, before, began)
    figure = (
        f"updates with both workers {after_actor:.0f} s after its actor's end, {after_program:.0f} s after its own"
    )
    record_property("cluster-ray-learner", figure)

    before = launched.trains_on(1)
    nodes.remove_node(second, allow_graceful=False)
    launched.program.says(r"learner: its actor on \S+ is lost")
    launched.program.says(r"waiting for room: learner")
    harness.wait_for(lambda: not _learner_processes(run), "nothing of the node is left")
    began = time.monotonic()
    nodes.add_node(num_cpus=4)
    after_node = _tell_resumed(launched, "the learner's node lost, from the start of the new one", 3, before, began)
    record_property("cluster-ray-node", f"updates with both workers {after_node:.0f} s after a new node began")

    ended = launched.program.wait()
    assert ended.code == 0, launched.program.output()
    assert "finished: " in ended.err and " 1, --stop_at_return=1" in ended.err
    evaluated = host.seedzero("evaluate", f"--run_dir={run}", "--episodes=100")
    assert evaluated.json["mean_return"] == 1.0


def _tell_resumed(launched: Launched, what: str, times: int, before: dict[str, Any], began: float) -> float:
    """Waits until a lost learner trains again with both workers; tells and returns the seconds, and tells the loss."""
    resumed = int(launched.until_said(r"resumed at update (\d+)", times)[-1])
    back = launched.until(lambda found: found["updates"] >= resumed, "a status of the new learner")
    listening = time.monotonic() - began
    found = launched.until(
        lambda found: found["workers"] == 2 and found["updates"] > resumed and not found["stalled"], "training"
    )
    seconds = time.monotonic() - began
    print(
        f"{what}: listens after {listening:.1f} s, trains with both workers after {seconds:.1f} s; "
        f"at least {before['updates'] - resumed} updates and {before['env_steps'] - back['env_steps']} steps lost; "
        f"discarded {found['steps_discarded']}"
    )
    return seconds
