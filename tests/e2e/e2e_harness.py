"""Drives the real command line in subprocesses: learners, workers, their status, and what is left on the disk.

Every process is started in a session of its own and ended by its own pid; so are the workers that a learner left
behind. Nothing here waits for a fixed time: `wait_for` polls a condition until a deadline.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, TypeVar

import forked
import jax
import numpy as np
import psutil
import quick_xla

from seedzero.cli import main as commands
from seedzero.core import errors
from seedzero.monitoring import status
from seedzero.storage.checkpoints import checkpoint, run_dirs, saved_files, segments, trees

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path(__file__).parent
DEADLINE_SECONDS = 1500.0
"""Of everything that is awaited: compilation on a busy machine takes longest."""
POLL_SECONDS = 0.05
_READ_SECONDS = 60.0
"""How long the last output of an ended process may take."""

RESUMED = r"resumed at update (\d+)"
FILLS_ANEW = "the replay buffer fills again"
"""Lines of a learner that several tests read or await."""

STATUS_KEYS = {
    "env_steps",
    "updates",
    "weights_version",
    "durable_update",
    "workers",
    "environments",
    "first_update",
    "links",
    "steps_acknowledged",
    "steps_stored",
    "steps_pending",
    "steps_discarded",
    "samples_per_insert",
    "env_steps_per_second",
    "updates_per_second",
    "stalled",
    "last_evaluation",
    "finished",
}

# One set of shapes for nearly all tests, so that they share compiled programs.
TINY = (
    "--preset=catch",
    "--stop_at_return=inf",
    "--network.kind=mlp",
    "--network.width=8",
    "--network.head_width=8",
    "--search.num_simulations=2",
    "--muzero.n_step=3",
    "--muzero.unroll_steps=2",
    "--replay.batch_size=16",
    "--replay.samples_per_insert=1",
    "--replay.min_steps=100",
    "--replay.capacity=24000",
    "--replay.num_slots=24",
    "--batcher.max_batch=4",
    "--worker.envs_per_group=4",
    "--evaluation.every_updates=0",
    "--metrics.every_seconds=0.3",
    "--metrics.tensorboard=false",
)
PACED = (*TINY, "--env=gym:e2e_envs:Paced-v0")
"""A learner that leaves the processor to what runs beside it."""
REPLAY = (
    "--replay.batch_size=16",
    "--replay.min_steps=100",
    "--replay.capacity=4000",
    "--replay.samples_per_insert=1",
)
AGENTS = {
    "vtrace": ("--agent=vtrace", "--network.width=16", "--vtrace.unroll_length=5", "--vtrace.batch_size=4"),
    "ppo": ("--agent=ppo", "--network.width=16", "--ppo.unroll_length=8", "--ppo.batch_size=8"),
    "r2d2": ("--agent=r2d2", "--network.width=16", "--network.lstm_width=8", "--r2d2.target_updates=15", *REPLAY),
}
"""Small agents beside TINY's MuZero."""
ENDLESS = (
    "--stop_at_return=inf",
    "--evaluation.every_updates=0",
    "--metrics.every_seconds=0.3",
    "--metrics.tensorboard=false",
)
"""Until a budget is spent or a signal comes."""


def lock_step(num_updates: int, every: int) -> tuple[str, ...]:
    """Returns settings of a deterministic run with so many updates, and every so many a checkpoint."""
    return (
        "--deterministic",
        f"--max_updates={num_updates}",
        f"--checkpoint.every_updates={every}",
    )


T = TypeVar("T")


def wait_for(
    condition: Callable[[], T], what: str, *, seconds: float = DEADLINE_SECONDS, alive: Program | None = None
) -> T:
    """Returns the first true value of `condition`.

    Args:
      condition: asked again and again.
      what: is awaited, for the message.
      seconds: at most so long.
      alive: whose end means that it will never be true.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        ended = alive is not None and alive.popen.poll() is not None
        if alive and ended:
            alive.wait()  # now all that it wrote is there
        if (ended and not condition()) or time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s\n{alive.output() if alive else ''}")
        time.sleep(POLL_SECONDS)
    return value


class Ended(NamedTuple):
    """A program that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The last line of standard output."""
        return json.loads(self.out.strip().splitlines()[-1])

    def ok(self) -> Ended:
        """Asserts that it succeeded."""
        assert self.code == 0, self.err
        return self


class Program:
    """One subprocess. Threads read its output: it never blocks, and limits on its files don't concern what it says."""

    def __init__(self, command: Sequence[str], stem: pathlib.Path, environment: Mapping[str, str]) -> None:
        self._out, self._err = stem.with_suffix(".out"), stem.with_suffix(".err")
        self.popen: subprocess.Popen[bytes] | forked.Forked
        if forked.suits(command, environment):
            self.popen = forked.Forked(command, environment, stem.parent)
        else:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=stem.parent,
                start_new_session=True,
            )
        pairs = ((self.popen.stdout, self._out), (self.popen.stderr, self._err))
        self._readers = [threading.Thread(target=_copy_lines, args=pair, daemon=True) for pair in pairs]
        for file, reader in zip((self._out, self._err), self._readers, strict=True):
            file.touch()
            reader.start()
        self._ever: dict[int, psutil.Process] = {}

    @property
    def pid(self) -> int:
        return self.popen.pid

    def output(self) -> str:
        """Returns everything written so far."""
        return self._out.read_text(errors="replace") + self._err.read_text(errors="replace")

    def says(self, pattern: str, *, seconds: float = DEADLINE_SECONDS) -> re.Match[str]:
        """Waits until the output matches."""
        return wait_for(lambda: re.search(pattern, self.output()), f"output {pattern!r}", seconds=seconds, alive=self)

    def wait(self, seconds: float = DEADLINE_SECONDS) -> Ended:
        """Waits for the end."""
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.popen.args} still runs after {seconds:g} s\n{self.output()}") from None
        for reader in self._readers:
            reader.join(_READ_SECONDS)
        return Ended(code, self._out.read_text(errors="replace"), self._err.read_text(errors="replace"))

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and nothing else: what it started notices by itself."""
        self.children()
        self.popen.kill()
        self.popen.wait()

    def children(self) -> list[psutil.Process]:
        """Returns the processes that it started and that live."""
        try:
            found = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            found = []
        self._ever.update({child.pid: child for child in found})
        return found

    def end(self) -> None:
        """Kills it and whatever it started."""
        self.children()
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for child in self._ever.values():
            if child.is_running():  # psutil compares start times: never another process with that pid
                child.kill()
        for reader in self._readers:
            reader.join(_READ_SECONDS)


def _copy_lines(pipe: IO[bytes] | None, file: pathlib.Path) -> None:
    assert pipe is not None
    with pipe, file.open("wb", buffering=0) as copy:
        for line in pipe:
            copy.write(line)


class Learner(Program):
    """A `seedzero train`."""

    def __init__(
        self, command: Sequence[str], stem: pathlib.Path, environment: Mapping[str, str], run: pathlib.Path
    ) -> None:
        super().__init__(command, stem, environment)
        self.run = run
        self.polls: list[dict[str, Any]] = []

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.says(r"seedzero learner listening on (\S+)")[1]

    def status(self) -> dict[str, Any] | None:
        """Returns its status, None where it does not answer; the accounting must hold every time."""
        learner = run_dirs.read_learner(self.run)
        if learner is None or learner["pid"] != self.pid:
            return None
        try:
            found = status.from_server(learner["local"])
        except errors.ProtocolError:
            return None
        check_accounting(found)
        self.polls.append(found)
        return found

    def until(self, condition: Callable[[dict[str, Any]], object], what: str, **options: Any) -> dict[str, Any]:
        """Waits for a status and returns it."""

        def fits() -> dict[str, Any] | None:
            found = self.status()
            return found if found and condition(found) else None

        return wait_for(fits, what, alive=self, **options)

    def trains_on(self, num_updates: int = 20) -> dict[str, Any]:
        """Waits until it has done so many more updates and stored more steps."""
        now = self.until(lambda found: True, "a status")
        return self.until(
            lambda found: found["updates"] >= now["updates"] + num_updates and found["env_steps"] > now["env_steps"],
            f"training continues from {now}",
        )

    def workers(self) -> dict[str, psutil.Process]:
        """Returns its local workers by their names."""
        found = {}
        for child in self.children():
            try:
                words = child.cmdline()
            except psutil.NoSuchProcess:
                continue
            found |= {word.split("=")[1]: child for word in words if word.startswith("--worker_id=")}
        return found


class Host:
    """Starts programs in one directory and ends them all.

    They compile quickly, half a minute of a core less for each set of shapes, save after `compile_as_users_do`.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        paths = [
            str(ROOT),
            str(HERE),
            str(HERE.parent),
            *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
        ]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "JAX_PLATFORMS": "cpu",
            "NO_COLOR": "1",
        }
        self.compile_quickly()
        self._programs: list[Program] = []

    def compile_quickly(self) -> None:
        """Gives programs that are started from now on flags of XLA that make compilation cheap."""
        self.environment["XLA_FLAGS"] = quick_xla.flags()

    def compile_as_users_do(self) -> None:
        """Gives programs that are started from now on no more flags of XLA than this process's environment has."""
        self.environment["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "")

    def make_devices(self, number: int) -> None:
        """Gives programs that are started from now on so many devices on this CPU."""
        self.environment["XLA_FLAGS"] += f" --xla_force_host_platform_device_count={number}"

    def _stem(self, name: str) -> pathlib.Path:
        return self.directory / f"{name}-{len(self._programs)}"

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "seedzero.cli", *words]

    def start(self, command: Sequence[str], name: str, **environment: str) -> Program:
        """Starts any program."""
        program = Program(command, self._stem(name), {**self.environment, **environment})
        self._programs.append(program)
        return program

    def seedzero(self, *words: str) -> Ended:
        """Runs a command to its end, in this process: one of its own would first import JAX for seconds."""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = commands.main(words)
        return Ended(code, out.getvalue(), err.getvalue())

    def train(
        self, run: pathlib.Path, *words: str, limits: Sequence[str] = (), url: str = "", **environment: str
    ) -> Learner:
        """Starts `seedzero train`.

        Args:
          run: its run directory, or the local copy of one in a bucket.
          words: of the command.
          limits: words of `prlimit` before it.
          url: of the run directory in a bucket.
          environment: variables besides the usual ones.
        """
        command = [*limits, *self.command("train", *words, f"--run_dir={url or run}")]
        learner = Learner(command, self._stem("train"), {**self.environment, **environment}, run)
        self._programs.append(learner)
        return learner

    def trained(self, *words: str) -> pathlib.Path:
        """Trains to the end without a warning, and returns the run directory."""
        run = self.directory / "reference"
        ended = self.train(run, *words).wait().ok()
        assert "warning" not in ended.err.lower(), ended.err
        return run

    def worker(self, address: str, *words: str) -> Program:
        """Starts `seedzero worker`."""
        return self.start(self.command("worker", f"--server={address}", *words), "worker")

    def end(self) -> None:
        for program in self._programs:
            program.end()


def check_accounting(found: Mapping[str, Any]) -> None:
    """Every acknowledged step is stored, pending or discarded."""
    whole = found["steps_stored"] + found["steps_pending"] + sum(found["steps_discarded"].values())
    assert found["steps_acknowledged"] == whole, found


def copy_run(run: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Returns a copy of a run directory that no learner uses."""
    return pathlib.Path(shutil.copytree(run, target, ignore=shutil.ignore_patterns("*.sock")))


def metrics_rows(run: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the rows of metrics.jsonl; every line is strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def state_digest(run: pathlib.Path) -> str:
    """Returns the digest of the newest parameters and optimizer; host I > 0, which saves none, names it."""
    path, found, _ = saved_files.find(run / "checkpoints", "last", "state")
    parts = [name for name in found.arrays if name not in (saved_files.REPLAY, checkpoint.OBSERVATION)]
    if not parts:
        return found.state_sha256
    assert len(parts) == 2 and sum(len(found.arrays[name]) for name in parts) > 10
    arrays = [zip(found.arrays[name], trees.load(path / name, found.arrays[name]), strict=True) for name in parts]
    flat = {f"{name}/{leaf.name}": x for name, part in zip(parts, arrays, strict=True) for leaf, x in part}
    assert found.state_sha256 == trees.digest(flat)
    return found.state_sha256


def saved_steps(run: pathlib.Path) -> list[int]:
    """Returns the updates of the checkpoints on the disk."""
    return saved_files.finished(run / "checkpoints" / saved_files.STEPS)


class History(NamedTuple):
    """What one ring holds, oldest row first: observation [T, ...] and the flags [T]."""

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    first: np.ndarray
    weight: np.ndarray


def saved_histories(run: pathlib.Path) -> Iterator[History]:
    """Yields the rings of the newest checkpoint, one slot after the other."""
    root = run / "checkpoints"
    path, found, _ = saved_files.find(root, "last")
    leaves = found.arrays["replay"]
    arrays = {leaf.name: x for leaf, x in zip(leaves, trees.load(path / "replay", leaves), strict=True)}
    cursor = arrays["cursor"].astype(np.int64)
    places = root / saved_files.SEGMENTS
    indices = tuple(segments.read_index(places, name, files) for name, files in found.segments.items())
    (ring,) = found.arrays["observation"]
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    template = jax.ShapeDtypeStruct(tuple(ring.shape), ring.dtype, sharding=device)
    observation = np.asarray(segments.restore(places, segments.SavedReplay(cursor, indices), template))
    length = observation.shape[1]
    for slot, end in enumerate(cursor):
        rows = np.arange(max(0, end - length), end) % length
        fields = [arrays[name][slot, rows] for name in ("reward", "terminated", "truncated", "first", "weight")]
        yield History(observation[slot, rows], *fields)


@contextlib.contextmanager
def full_disk(pid: int, num_bytes: int = 8192) -> Iterator[None]:
    """While entered, files of a process must not grow, which behaves like a full disk: every write beyond fails."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    yield
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def flip_a_bit(directory: pathlib.Path) -> pathlib.Path:
    """Damages the largest file under a directory and returns it."""
    file = max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return file
