"""Measures what a second learner host costs, and a slow one, on one machine.

    python experiments/hosts.py updates [--presets=catch,minatar] [--pairs=6] [--seconds=40] [-- SETTINGS ...]
    python experiments/hosts.py replies [--seconds=60] [--slow=0.5]

updates: runs in pairs, one after the other: one host on half of the cores, then two hosts on half each, with the same
batch for each host. The figure is the ratio of their updates/s (1: the second host costs nothing), for a small network
(catch) and one of ordinary size (minatar).

replies: two hosts; the environments of host 0 record how long each reply takes, first undisturbed, then while host 1
is stopped for `slow` seconds in each update (SIGSTOP). A reply may wait for one update. There are few samples per
insert (0.5, unless the settings give another number), because otherwise environments wait for the updates that their
steps require.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from seedzero.monitoring import metrics_log
from seedzero.storage.checkpoints import run_dirs

SETTINGS = ("--stop_at_return=inf", "--evaluation.every_updates=0", "--metrics.every_seconds=1")
FEW = "--replay.samples_per_insert=0.5"
TIMES = "SEEDZERO_REPLY_TIMES"
"""Environment variable with the prefix of the file of an environment's times."""


class Timed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records the seconds from the end of each step to the beginning of the next one, which is the time of a reply."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._ended = 0.0
        name = f"{os.environ[TIMES]}.{os.getppid()}"  # the worker's learner
        self._file = pathlib.Path(name).open("a", buffering=1)  # noqa: SIM115 (closed with the process)

    def step(self, action: Any) -> Any:
        """Steps."""
        if self._ended:
            self._file.write(f"{time.time():.3f} {time.monotonic() - self._ended:.5f}\n")
        found = super().step(action)
        self._ended = time.monotonic()
        return found

    def reset(self, **options: Any) -> Any:
        """Resets."""
        found = super().reset(**options)
        self._ended = 0.0
        return found


def speed(rows: Sequence[dict[str, Any]]) -> float:
    """Returns the updates/s in the last half of a run, from its metrics."""
    trained = [(row["seconds"], row["update"]) for row in rows if row["update"] > 0]
    if len(trained) < 4:
        raise SystemExit(f"only {len(trained)} rows with updates: give more --seconds")
    (start, before), (end, after) = trained[len(trained) // 2 - 1], trained[-1]
    return (after - before) / (end - start)


def ratios(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Returns the median of the ratios of two hosts' updates/s to one host's, and all ratios."""
    found = [two / one for one, two in pairs]
    return {"median": round(statistics.median(found), 3), "ratios": [round(ratio, 3) for ratio in found]}


def updates_per_second(run: pathlib.Path, num_hosts: int, seconds: float, settings: Sequence[str]) -> float:
    """Trains, and returns the updates/s."""
    shutil.rmtree(run, ignore_errors=True)
    words = [
        *SETTINGS,
        *settings,
        f"--cluster.num_hosts={num_hosts}",
        f"--max_seconds={seconds:g}",
        f"--run_dir={run}",
    ]
    cores = sorted(os.sched_getaffinity(0))
    half = cores[: max(1, len(cores) // 2)]

    def pinned() -> None:
        os.sched_setaffinity(0, half)

    subprocess.run(
        [sys.executable, "-m", "seedzero.cli", "train", *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=pinned if num_hosts == 1 else None,
    )
    return speed(_rows(run))


def compare(arguments: argparse.Namespace) -> None:
    """Prints each pair of runs of each preset, and the ratio."""
    for preset in arguments.presets.split(","):
        settings, pairs = (f"--preset={preset}", *arguments.settings), []
        for number in range(arguments.pairs):
            order = (1, 2) if number % 2 == 0 else (2, 1)
            found = {num: updates_per_second(arguments.out, num, arguments.seconds, settings) for num in order}
            pairs.append((found[1], found[2]))
            one, two = (f"{found[num]:.2f} ({1000 / found[num]:.0f} ms each)" for num in (1, 2))
            print(f"{preset}, pair {number}: {one} updates/s of one host, {two} of two", flush=True)
        print(json.dumps({"preset": preset, **ratios(pairs)}), flush=True)


def replies(arguments: argparse.Namespace) -> None:
    """Prints quantiles of the replies' times, with and without a slow peer."""
    shutil.rmtree(arguments.out, ignore_errors=True)
    times = arguments.out.with_suffix(".times")
    times.parent.mkdir(parents=True, exist_ok=True)
    here = str(pathlib.Path(__file__).parent)
    env = {**os.environ, TIMES: str(times), "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}
    words = (
        *SETTINGS,
        "--preset=cartpole",
        "--env=python:hosts:Timed",
        "--cluster.num_hosts=2",
        FEW,
        *arguments.settings,
    )
    command = [sys.executable, "-m", "seedzero.cli", "train", *words, f"--run_dir={arguments.out}"]
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as process:
        row = _wait_for_rows(arguments.out, 20, process)
        host = run_dirs.read_learner(arguments.out)
        assert host is not None
        began = time.time()
        time.sleep(arguments.seconds)
        quiet = time.time()
        row_at_quiet = _rows(arguments.out)[-1]
        rate = (row_at_quiet["update"] - row["update"]) / (quiet - began)
        over = threading.Event()
        learner = run_dirs.read_learner(arguments.out / "hosts" / "1")
        assert learner is not None
        thread = threading.Thread(target=_slow_down, args=(learner["pid"], arguments.slow, 1 / rate, over))
        thread.start()
        time.sleep(arguments.seconds)
        over.set()
        thread.join()
        slow = time.time()
        since = [row for row in _rows(arguments.out) if row["update"] and row["seconds"] > row_at_quiet["seconds"]]
        each = (since[-1]["seconds"] - since[0]["seconds"]) / max(1, since[-1]["update"] - since[0]["update"])
        process.send_signal(signal.SIGINT)
    found = np.loadtxt(f"{times}.{host['pid']}")
    print(f"an update took {1 / rate:.3f} s undisturbed, {each:.2f} s with a slow peer")
    for name, first, last in (("undisturbed", began, quiet), (f"peer slowed by {arguments.slow} s", quiet, slow)):
        part = found[(found[:, 0] > first) & (found[:, 0] < last), 1]
        shown = ", ".join(f"p{share} {np.percentile(part, share) * 1000:.0f} ms" for share in (50, 90, 99))
        print(f"{name}: {len(part)} replies, {shown}, longest {part.max() * 1000:.0f} ms")


def _slow_down(pid: int, slow: float, update: float, over: threading.Event) -> None:
    while not over.wait(update):
        os.kill(pid, signal.SIGSTOP)
        over.wait(slow)
        os.kill(pid, signal.SIGCONT)


def _rows(run: pathlib.Path) -> list[dict[str, Any]]:
    return list(metrics_log.read(run))


def _wait_for_rows(run: pathlib.Path, num_updates: int, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    while process.poll() is None:
        if (rows := _rows(run)) and rows[-1]["update"] >= num_updates:
            return rows[-1]
        time.sleep(1.0)
    raise SystemExit("the run has ended before its updates")


def main() -> None:
    """Runs a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurement", choices=("updates", "replies"))
    parser.add_argument("--presets", default="catch,minatar")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--slow", type=float, default=0.5)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/hosts"))
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:end])
    arguments.settings = words[end + 1 :]
    arguments.out = arguments.out.absolute()
    (compare if arguments.measurement == "updates" else replies)(arguments)


if __name__ == "__main__":
    main()
