"""Compares seedzero with TorchRL, Sample Factory, Stable-Baselines3 and RLlib in the same work, on the same cores.

    taskset -c 0,1 python experiments/peers.py            # everything, {minutes} minutes after the installation
    python experiments/peers.py --peers=stable-baselines3 --cases=steps-2ms --environments=16

The environment is a mock (`peer_adapters/mock_env.py`): frames of 84x84 bytes, stacked by four, and an episode of 100
steps. The network has three convolutions of 16 channels and a hidden layer (`peer_adapters/small_network.py`), on the
CPU. seedzero's workers send the newest frame, 7,056 bytes, which the learner stacks; the others move stacks of 28,224.

- acting: policies act and nobody learns. seedzero: the runtime of `train` with Ape-X before its first update, which
  also writes the replay buffer.
- training: PPO with the same rollouts, epochs and minibatches.

Each peer is measured beside seedzero in pairs of short windows: while one runs, the other is stopped (SIGSTOP), so
load of the machine meets both. Starts and compilation are not counted. Environments count their own steps, in the same
way in all systems; processor seconds are those of a system's processes, children included.

Peers are installed from the package registries into virtual environments of their own, below --venvs, at the first
use; their versions are in `PEERS`. pip's own settings apply, such as PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL for a build
of PyTorch without CUDA. Sample Factory needs Python 3.11 or 3.12, gymnasium < 1 and numpy < 2.

Measurements are appended to --out as lines of JSON, and those that are there are not repeated; delete the file to
measure anew. `--table` prints those that are there.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

HERE = pathlib.Path(__file__).resolve().parent
ADAPTERS = HERE / "peer_adapters"
sys.path.append(str(ADAPTERS))

import mock_env  # noqa: E402
import runs  # noqa: E402

from seedzero.config import machines  # noqa: E402

OURS, THEIRS = "seedzero", "theirs"
ACTING, TRAINING = "acting", "training"
ENVIRONMENTS = (16, 64, 256)
ROLLOUT, EPOCHS, MINIBATCHES = 32, 2, 4
"""PPO: steps of each environment in a batch, times that it is learned from, and parts of each time."""
WIDTH = 256
"""Units of the hidden layer. Ape-X's two streams have one each, so the others' is twice as wide in acting."""
MOST_WORKERS = 16

CASES = {
    "steps-0": mock_env.Case(),
    "steps-2ms": mock_env.Case(0.002),
    "slow-resets": mock_env.Case(0.002, 0.2),
    "unequal": mock_env.Case(0.002, 0.0, True),
}
"""steps-0: nothing takes time; the others' steps take 2 ms, slow-resets' resets 200 ms, unequal's slow steps 20 ms."""


class Peer(NamedTuple):
    """A peer: its file among the adapters, what it is measured in, what pip installs, and seconds until it is warm."""

    adapter: str
    kinds: tuple[str, ...]
    requirements: tuple[str, ...]
    start_seconds: float

    @property
    def packages(self) -> list[str]:
        """Names of the packages."""
        return [re.split("[^a-z0-9-]", requirement)[0] for requirement in self.requirements]


_TORCH = "torch==2.13.0"
PEERS = {
    "torchrl": Peer("torchrl_side.py", (ACTING,), (_TORCH, "torchrl==0.14.1", "gymnasium<2"), 45.0),
    "sample-factory": Peer(
        "sample_factory_side.py",
        (ACTING, TRAINING),
        (_TORCH, "sample-factory==2.1.1", "gymnasium<1", "numpy<2"),
        40.0,
    ),
    "stable-baselines3": Peer(
        "stable_baselines3_side.py", (ACTING, TRAINING), (_TORCH, "stable-baselines3==2.9.2", "gymnasium<2"), 12.0
    ),
    "rllib": Peer("rllib_side.py", (ACTING,), (_TORCH, "ray[rllib]==2.60.0", "gymnasium<2"), 40.0),
}
"""Each has a virtual environment of its own, because their requirements exclude each other."""
PYTHONS = ("3.11", "3.12")
"""Sample Factory runs with these."""
_OWN_START_SECONDS = 25.0
_WINDOW_SECONDS = {ACTING: 0.7, TRAINING: 4.0}
"""Seconds of a window beyond those asked for: settling, and the rest of a batch; on two cores, as those of starts."""

_SETTLE_SECONDS = 0.4
"""From the end of a pause, or a change of the case, to a window."""
_WARM_SECONDS = 3.0
_WARM_STEPS = 30
"""A system is warm after this time from its first step, and this many steps of each environment."""
_WARM_BATCHES = 3
"""PPO is warm after this many batches: its first updates, which compile, are over."""
_MOST_SECONDS = 120.0
"""A window begins and ends after this time at the latest, even if environments do not step, or a batch is learned."""
_START_SECONDS = 600.0
_LEAVE_SECONDS = 5.0
_POLL_SECONDS = 0.005


class Failure(Exception):
    """A system did not start, or ended while it was measured."""


# Systems -----------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """What a system is started for; cases of one job differ by times only. waits: whether steps take time."""

    kind: str
    environments: int
    waits: bool

    @property
    def batch(self) -> int:
        """Steps of a batch of PPO."""
        return self.environments * ROLLOUT

    def to_json(self, counts: str, folder: str) -> dict[str, Any]:
        """Returns what an adapter reads."""
        return {
            **self._asdict(),
            "env": {"counts": counts},
            "folder": folder,
            "cores": machines.num_cores(),
            "width": WIDTH if self.kind == TRAINING else 2 * WIDTH,
            "rollout": ROLLOUT,
            "epochs": EPOCHS,
            "minibatches": MINIBATCHES,
        }


def own_command(job: Job, counts: str, folder: str) -> list[str]:
    """Returns the command line of seedzero.

    It has one worker where steps take no time. Where they do, a worker, which steps one environment after another,
    would be the limit. A worker for each environment would not: on two cores a message costs a millisecond of both
    sides, so one has the steps of two to eight environments.
    """
    num_workers = min(max(4, job.environments // 8), MOST_WORKERS) if job.waits else 1
    num_groups = 2
    command = [
        *(sys.executable, "-m", "seedzero.cli", "train", "--env=python:mock_env:make"),
        f"--env.kwargs={json.dumps({'counts': counts})}",
        f"--run_dir={folder}/run",
        f"--workers={num_workers}",
        f"--worker.num_groups={num_groups}",
        f"--worker.envs_per_group={job.environments // num_workers // num_groups}",
        f"--network.frame_stack={mock_env.STACK}",
        f"--network.width={WIDTH}",
        "--network.normalize_pixels=false",
        "--evaluation.every_updates=0",
        "--checkpoint.every_seconds=0",
        "--transport.lease_seconds=100000",  # a pause is not a loss
    ]
    if job.kind == ACTING:
        of_replay = ("--replay.capacity=16384", "--replay.min_steps=16384", "--replay.samples_per_insert=0.001")
        return [*command, "--agent=apex", "--network.module=acting_torso:make", *of_replay]
    return [
        *command,
        "--agent=ppo",
        "--network.kind=nature",
        "--network.channels=16",
        f"--ppo.unroll_length={ROLLOUT}",
        f"--ppo.batch_size={job.environments}",
        f"--ppo.num_epochs={EPOCHS}",
        f"--ppo.num_minibatches={MINIBATCHES}",
        "--ppo.wait_seconds=100000",
        "--reward.normalize=false",
    ]


# Processes ---------------------------------------------------------------------------------------------------------


def processes(root: int) -> dict[int, float]:
    """Returns processor seconds of a process, its session and all below, with those of children that have ended."""
    found: dict[int, tuple[set[int], float]] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                words = pathlib.Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                found[int(name)] = {int(words[1]), int(words[3])}, sum(map(int, words[11:15])) / tick
    below = {root}
    while more := {pid for pid, (of, _) in found.items() if of & below} - below:
        below |= more
    return {pid: found[pid][1] for pid in below & found.keys()}


class Look(NamedTuple):
    """A system at one moment. steps: of each environment."""

    seconds: float
    steps: Any
    processor: float


class System:
    """A running system. Raises Failure where it has ended."""

    def __init__(self, name: str, job: Job, venvs: pathlib.Path, folder: pathlib.Path) -> None:
        self.name, self.job = name, job
        self.counts = mock_env.Counts.make(folder / "counts")
        self._log = folder / "log"
        if name == OURS:
            command = own_command(job, str(folder / "counts"), str(folder))
        else:
            text = json.dumps(job.to_json(str(folder / "counts"), str(folder)))
            command = [str(venvs / name / "bin" / "python"), str(ADAPTERS / PEERS[name].adapter), text]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ADAPTERS,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def look(self) -> Look:
        return Look(time.monotonic(), self.counts.steps(), sum(processes(self._process.pid).values()))

    @property
    def num_steps(self) -> int:
        """Steps of all environments."""
        if self._process.poll() is not None:
            raise self.failure(f"ended with {self._process.returncode}")
        return int(self.counts.steps().sum())

    def wait(self, num_steps: int, until: float) -> bool:
        """Waits for a number of steps, until a monotonic time; returns whether they were made."""
        while self.num_steps < num_steps:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def warm_up(self) -> None:
        """Waits until it has started, compiled, and taken up speed."""
        end = time.monotonic() + _START_SECONDS
        goal = _WARM_BATCHES * self.job.batch if self.job.kind == TRAINING else _WARM_STEPS * self.job.environments
        is_warm = self.wait(self.job.environments, end)
        time.sleep(_WARM_SECONDS)
        # seedzero acts while it still compiles its update; then it begins to report rates.
        while self.name == OURS and "updates/s" not in self._log.read_text(errors="replace") and self.num_steps:
            time.sleep(_WARM_SECONDS / 10)
        if not (is_warm and self.wait(goal, end)):
            raise self.failure(f"made {self.num_steps} of {goal} steps in {_START_SECONDS:.0f} s")

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Asks it to leave, and then ends it."""
        self.resume()
        below = processes(self._process.pid)
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            self._process.terminate()
            self._process.wait(_LEAVE_SECONDS)
        for pid in {**below, **processes(self._process.pid)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def failure(self, what: str) -> Failure:
        """Returns an error with the last line of its log that says something."""
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        told = [line for line in lines if re.match(r"[\w.]*(Error|Exception|error)\b", line)] or lines
        return Failure(f"{self.name} {what}: {told[-1].strip() if told else 'it printed nothing'}")

    def _signal(self, number: signal.Signals) -> None:
        """Signals all processes, and those that they have started meanwhile."""
        done: set[int] = set()
        while more := processes(self._process.pid).keys() - done:
            for pid in sorted(more):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            done |= more


@contextlib.contextmanager
def started(name: str, job: Job, venvs: pathlib.Path) -> Iterator[System]:
    """Provides a warm system, paused."""
    with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
        system = System(name, job, venvs, pathlib.Path(folder))
        try:
            system.counts.set(CASES["steps-2ms" if job.waits else "steps-0"])
            system.warm_up()
            system.pause()
            yield system
        finally:
            system.close()


# Measuring ---------------------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """One measurement. stepping: environments that made a step."""

    steps_per_second: float
    processor_seconds_per_thousand: float
    stepping: int


def window(system: System, case: mock_env.Case, seconds: float) -> Window:
    """Runs a paused system for at least this many seconds, for PPO from the end of a batch to that of another."""
    system.counts.set(case)
    system.resume()
    try:
        time.sleep(_SETTLE_SECONDS)
        batch = system.job.batch if system.job.kind == TRAINING else 1
        system.wait((system.num_steps // batch + 1) * batch, time.monotonic() + _MOST_SECONDS)
        before = system.look()
        time.sleep(max(0.0, before.seconds + seconds - time.monotonic()))
        system.wait((system.num_steps // batch + 1) * batch, time.monotonic() + _MOST_SECONDS)
        after = system.look()
    finally:
        system.pause()
    return compare(system.name, before, after)


def compare(name: str, before: Look, after: Look) -> Window:
    """Returns the measurement between two looks at a system. Raises Failure if nothing was stepped."""
    made = after.steps.copy()
    made[: len(before.steps)] -= before.steps
    if not (total := int(made.sum())):
        raise Failure(f"{name}: no environment made a step in {after.seconds - before.seconds:.1f} s")
    seconds, processor = after.seconds - before.seconds, after.processor - before.processor
    return Window(total / seconds, 1e3 * processor / total, int((made > 0).sum()))


def pairs(ours: System, peer: System, case: mock_env.Case, num_pairs: int, seconds: float) -> dict[str, list[Any]]:
    """Returns windows of both in turn, the other one first in each second pair."""
    found: dict[str, list[Any]] = {OURS: [], THEIRS: []}
    both = [(OURS, ours), (THEIRS, peer)]
    for index in range(num_pairs):
        for key, system in both[:: 1 if index % 2 == 0 else -1]:
            found[key].append(window(system, case, seconds)._asdict())
    return found


class Row(NamedTuple):
    """What is measured together: a peer and seedzero in one case."""

    peer: str
    kind: str
    case: str
    environments: int

    @property
    def job(self) -> Job:
        return Job(self.kind, self.environments, CASES[self.case].step_seconds > 0)


def rows(options: argparse.Namespace) -> list[Row]:
    """Returns the rows that are asked for, those of one start of the systems together."""
    sizes = {ACTING: options.environments, TRAINING: options.training_environments}
    found = [
        Row(peer, kind, case, size)
        for kind in options.kinds
        for size in sizes[kind]
        for case in options.cases
        for peer in options.peers
        if kind in PEERS[peer].kinds
    ]
    return sorted(found, key=lambda row: (options.kinds.index(row.kind), row.job, options.peers.index(row.peer)))


def measured(file: pathlib.Path) -> dict[Row, dict[str, Any]]:
    """Returns the measurements of a file, without those that failed; the newest of each row."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    found = [json.loads(line) for line in lines]
    return {Row(*(each[name] for name in Row._fields)): each for each in found}


def measure(wanted: Sequence[Row], options: argparse.Namespace, out: TextIO) -> None:
    """Measures rows and appends each to a file."""
    for job in dict.fromkeys(row.job for row in wanted):
        of_job = [row for row in wanted if row.job == job]
        with started(OURS, job, options.venvs) as ours:
            for name in dict.fromkeys(row.peer for row in of_job):
                of_peer = [row for row in of_job if row.peer == name]
                for found in measure_peer(ours, name, of_peer, options):
                    out.write(json.dumps(found) + "\n")
                    out.flush()


def measure_peer(
    ours: System, name: str, wanted: Sequence[Row], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Returns the measurements of a peer in the rows of one job; those after a failure have its reason."""
    reason = ""
    facts = {"seconds": options.seconds, **about(options.venvs, name)}
    waiting = list(wanted)
    try:
        with started(name, ours.job, options.venvs) as peer:
            while waiting:
                row = waiting[0]
                found = pairs(ours, peer, CASES[row.case], options.pairs, options.seconds)
                result = {**row._asdict(), **found, **facts}
                print(line(result), flush=True)
                yield result
                waiting.pop(0)
    except Failure as error:
        reason = str(error)
        if reason.startswith(OURS):
            raise
    for row in waiting:
        print(f"{' '.join(map(str, row))}: {reason}", file=sys.stderr, flush=True)
        yield {**row._asdict(), "failure": reason, **facts}


def about(venvs: pathlib.Path, peer: str) -> dict[str, Any]:
    """Returns what a figure depends on: versions, cores, processor, date."""
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    own = versions(sys.executable, ("seedzero", "jax", "numpy", "gymnasium"))
    return {
        "versions": own,
        "peer_versions": versions(str(venvs / peer / "bin" / "python"), tuple(PEERS[peer].packages)),
        "cores": machines.num_cores(),
        "processor": model[1] if model else platform.processor(),
        "date": datetime.date.today().isoformat(),
    }


@functools.cache
def versions(python: str, packages: Sequence[str] = ()) -> dict[str, str]:
    """Returns the versions of Python and of packages in the environment of an interpreter; "" if it does not run."""
    program = "import sys, json, importlib.metadata as m\nfound = {'python': '%d.%d' % sys.version_info[:2]}\n"
    program += "print(json.dumps({**found, **{name: m.version(name) for name in sys.argv[1:]}}))"
    done = subprocess.run([python, "-c", program, *packages], capture_output=True, text=True, check=False)
    found: dict[str, str] = {"python": ""} if done.returncode else json.loads(done.stdout)
    return found


# Installation ------------------------------------------------------------------------------------------------------


def install(venvs: pathlib.Path, name: str) -> str:
    """Makes a peer's virtual environment, unless it is there and complete; returns the reason of a failure, or ""."""
    names = (sys.executable, "python3.11", "python3.12")
    python = next((path for path in map(shutil.which, names) if path and versions(path)["python"] in PYTHONS), None)
    if python is None:
        return f"it needs Python {' or '.join(PYTHONS)}, and neither is on the PATH"
    folder, wanted = venvs / name, "\n".join(PEERS[name].requirements)
    mark = folder / "requirements.txt"
    if mark.exists() and mark.read_text() == wanted:
        return ""
    print(f"installing {' '.join(PEERS[name].requirements)} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for command in ([python, "-m", "venv", str(folder)], [*pip, *PEERS[name].requirements]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing was printed"]
            return next((each for each in said if each.startswith("ERROR")), said[-1])
    mark.write_text(wanted)
    return ""


# The table ---------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], digits: int) -> str:
    """Returns median (lowest to highest)."""
    low, middle, high = (f"{x:,.{digits}f}" for x in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def cells(found: Mapping[str, Any]) -> list[str]:
    """Returns a row of the table."""
    head = [found["case"], f"{found['environments']}", found["peer"]]
    if "failure" in found:
        return [*head, found["failure"], *[""] * 4]
    key = "steps_per_second"
    ours, theirs = ([each[key] for each in found[side]] for side in (OURS, THEIRS))
    used = [
        f"{statistics.median(each['processor_seconds_per_thousand'] for each in found[side]):.2f}"
        for side in (OURS, THEIRS)
    ]
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return [*head, spread(ours, 0), spread(theirs, 0), spread(ratios, 2), *used]


def line(found: Mapping[str, Any]) -> str:
    """Returns a measurement in one line, with a warning if an environment was never stepped."""
    case, size, peer, ours, theirs, ratio, used, theirs_used = cells(found)
    idle = [
        f"; only {least} of {size} environments of {name} made a step in a window"
        for name, side in ((OURS, OURS), (peer, THEIRS))
        if (least := min(each["stepping"] for each in found[side])) != found["environments"]
    ]
    return (
        f"{found['kind']}, {case}, {size} environments: seedzero {ours} steps/s and {used} processor s for a "
        f"thousand, {peer} {theirs} and {theirs_used}; ratio {ratio}{''.join(idle)}"
    )


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Returns one table for each kind, in Markdown, and the versions."""
    parts, facts = [], dict[str, str]()
    header = ("case", "environments", "peer", "seedzero steps/s", "peer steps/s", "seedzero / peer")
    for kind in (ACTING, TRAINING):
        if of_kind := [each for each in found if each["kind"] == kind]:
            of_kind.sort(key=lambda each: (list(CASES).index(each["case"]), each["environments"]))
            used = ("seedzero processor s / 1,000 steps", "peer processor s / 1,000 steps")
            parts.append(f"{kind}\n\n" + runs.table((*header, *used), map(cells, of_kind)))
    for each in found:
        for name, key in ((OURS, "versions"), (each["peer"], "peer_versions")):
            facts[name] = f"{name}: " + ", ".join(" ".join(item) for item in each[key].items())
        facts[""] = f"{each['cores']} cores of {each['processor']}; medians and ranges of windows, and of their ratios"
    return "\n\n".join([*parts, "\n".join(facts.values())])


# The command -------------------------------------------------------------------------------------------------------


def estimate(wanted: Sequence[Row], num_pairs: int, seconds: float) -> float:
    """Returns the seconds that rows take with two cores."""
    windows = sum(2 * num_pairs * (seconds + _WINDOW_SECONDS[row.kind]) for row in wanted)
    starts = sum(PEERS[peer].start_seconds for peer, _ in {(row.peer, row.job) for row in wanted})
    return windows + starts + _OWN_START_SECONDS * len({row.job for row in wanted})


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Returns the options."""

    def some(all_of_them: Sequence[str]) -> Any:
        def read(text: str) -> list[str]:
            if unknown := set(found := text.split(",")) - set(all_of_them):
                raise argparse.ArgumentTypeError(f"{', '.join(unknown)}; expected some of {','.join(all_of_them)}")
            return found

        return read

    def sizes(text: str) -> list[int]:
        found = [int(word) for word in text.split(",")]
        if wrong := [size for size in found if size % 8 or not 16 <= size <= mock_env.MOST_ENVS // 2]:
            raise argparse.ArgumentTypeError(
                f"{wrong[0]}; expected multiples of 8 from 16 to {mock_env.MOST_ENVS // 2}"
            )
        return found

    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "seedzero-peers"
    parser.add_argument("--peers", type=some([*PEERS]), default=[*PEERS], help=f"some of {','.join(PEERS)}")
    parser.add_argument("--cases", type=some([*CASES]), default=[*CASES], help=f"some of {','.join(CASES)}")
    parser.add_argument("--kinds", type=some([ACTING, TRAINING]), default=[ACTING, TRAINING], help="acting,training")
    parser.add_argument("--environments", type=sizes, default=[*ENVIRONMENTS], help="for acting; 16,64,256")
    parser.add_argument("--training_environments", type=sizes, default=[64], help="for training; 64")
    parser.add_argument("--pairs", type=int, default=5, help="windows of each system in a row; 5")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a window; 1.5")
    parser.add_argument("--venvs", type=pathlib.Path, default=cache, help=f"folder of virtual environments; {cache}")
    out = HERE.parent / "runs" / "peers.jsonl"
    parser.add_argument("--out", type=pathlib.Path, default=out, help="file of measurements; runs/peers.jsonl")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the measurements of --out")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON instead of a table")
    minutes = estimate(rows(parser.parse_args([])), 5, 1.5) / 60
    parser.description = (__doc__ or "").format(minutes=f"about {minutes:.0f}")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> None:
    """Installs, measures what is missing, and prints all rows that were asked for."""
    options = parse(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and so ends the systems
    wanted = rows(options)
    options.venvs = options.venvs.expanduser().resolve()
    if not options.table:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with options.out.open("a", encoding="utf-8") as out:
            done = {row for row, found in measured(options.out).items() if "failure" not in found}
            missing = [row for row in wanted if row not in done]
            for peer in dict.fromkeys(row.peer for row in missing):
                if reason := install(options.venvs, peer):
                    print(f"{peer} cannot be installed: {reason}", file=sys.stderr)
                    missing = [row for row in missing if row.peer != peer]
            left = estimate(missing, options.pairs, options.seconds) / 60
            print(f"{len(missing)} of {len(wanted)} rows, about {left:.0f} minutes", file=sys.stderr, flush=True)
            try:
                measure(missing, options, out)
            except Failure as error:
                sys.exit(str(error))
    found = [found for row, found in measured(options.out).items() if row in set(wanted)]
    print(json.dumps(found, indent=1) if options.json else table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
