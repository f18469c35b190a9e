"""Trains for long under faults, one per minute: measures memory, descriptors, threads, and how many updates remain.

    python experiments/soak.py [--minutes=60] [--preset=cartpole] [--agent=ppo] [--json] [-- SETTINGS ...]

The faults take turns: a worker is killed, a worker is stopped for 20 s, the learner is stopped for 10 s, strangers
write nonsense to its port, its disk is full for 15 s, the learner is killed and restarted. Effective training time is
the number of updates relative to an undisturbed run in the same time, which is measured for two minutes before. The
setting `--env=gym:soak:RealTimeCartPole-v0` is CartPole at 50 steps a second, so that two runs fit on the machine.
Needs the extra `dev`.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import psutil

from seedzero.monitoring import metrics_log
from seedzero.storage.checkpoints import run_dirs

UNDISTURBED_SECONDS = 120.0
LOOK_SECONDS = 5.0
TICK_SECONDS = 0.02
"""CartPole's own time step."""

LAST_MINUTES = 45
BETWEEN_MINUTES = 5
MOST_MB_AN_HOUR = 20.0
LEAST_SHARE = 0.8


class InRealTime(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose steps each take until the next tick."""

    _next = 0.0

    def step(self, action: Any) -> Any:
        """Steps, at the tick."""
        now = time.monotonic()
        self._next = self._next + TICK_SECONDS if self._next + TICK_SECONDS > now else now
        time.sleep(self._next - now)
        return self.env.step(action)


if __name__ != "__main__":
    gymnasium.register("RealTimeCartPole-v0", lambda: InRealTime(gymnasium.make("CartPole-v1")))


class Run:
    """A training with this command line, restarted when it ends."""

    def __init__(self, path: pathlib.Path, settings: Sequence[str]) -> None:
        self.path = path
        modules = [str(pathlib.Path(__file__).resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(modules)}
        self._command = [sys.executable, "-m", "seedzero.cli", "train", *settings, f"--run_dir={path}"]
        self.log = path.with_suffix(".log")
        self._output = self.log.open("ab")
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Starts the command, or resumes."""
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdout=self._output, stderr=self._output, stdin=subprocess.DEVNULL
        )
        return self.process

    def workers(self) -> list[psutil.Process]:
        """Returns the processes of its workers."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if "seedzero.worker" in " ".join(_words(child))]

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of its metrics."""
        return list(metrics_log.read(self.path))

    def end(self) -> None:
        """Ends it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(120)
        self._output.close()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


# --- faults -------------------------------------------------------------------------------


def kill_worker(run: Run) -> None:
    """Kills a worker."""
    for worker in run.workers()[:1]:
        worker.kill()


def stop_worker(run: Run) -> None:
    """Stops a worker for 20 s, so that its lease expires."""
    for worker in run.workers()[:1]:
        _stand_still(worker.pid, 20.0)


def stop_learner(run: Run) -> None:
    """Stops the learner for 10 s."""
    _stand_still(run.process.pid, 10.0)


def _stand_still(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def write_nonsense(run: Run) -> None:
    """Makes 100 strangers write nonsense to the learner's port."""
    found = run_dirs.read_learner(run.path)
    if found is None:
        return
    path = str(found["address"]).removeprefix("unix:")
    for _ in range(100):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(path)
            stranger.sendall(random.randbytes(200))


def fill_disk(run: Run) -> None:
    """Keeps all files of the learner from growing for 15 s."""
    before = resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    time.sleep(15.0)
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, before)


def kill_learner(run: Run) -> None:
    """Kills the learner and restarts it."""
    run.process.kill()
    run.process.wait()
    run.start()


FAULTS: tuple[Callable[[Run], None], ...] = (
    kill_worker,
    stop_worker,
    stop_learner,
    write_nonsense,
    fill_disk,
    kill_learner,
)


# --- measurement --------------------------------------------------------------------------


def watch(run: Run, over: threading.Event, looks: list[dict[str, float]]) -> None:
    """Records the learner's memory, descriptors and threads until the end."""
    began = time.monotonic()
    while not over.wait(LOOK_SECONDS):
        if found := look(run.process.pid):
            looks.append({"seconds": time.monotonic() - began, "pid": run.process.pid, **found})


def look(pid: int) -> dict[str, float]:
    """Returns a process's memory, descriptors and threads; {} if it has just been killed."""
    try:
        process = psutil.Process(pid)
        found = {"mb": process.memory_info().rss / 1e6, "fds": process.num_fds(), "threads": process.num_threads()}
    except psutil.Error:
        return {}
    return found if found["mb"] else {}


def growth(looks: Sequence[dict[str, float]]) -> dict[str, float]:
    """Returns slopes per hour of each figure, by least squares, without each process's first minute (it compiles).

    Under a figure's name: the slope of the minimum per minute, where each process's life is compared only with itself.
    Under "between": that of the minimum MB per 5 of the last 45 minutes, over all lives.
    """
    lives: dict[float, list[dict[str, float]]] = {}
    for look in looks:
        lives.setdefault(look["pid"], []).append(look)
    kept = [[look for look in life if look["seconds"] >= life[0]["seconds"] + 60.0] for life in lives.values()]
    slopes = {name: _slope([_least(life, name, 60.0) for life in kept]) for name in ("mb", "fds", "threads")}
    begin = looks[-1]["seconds"] - LAST_MINUTES * 60.0 if looks else 0.0
    last = [look for life in kept for look in life if look["seconds"] >= begin]
    return slopes | {"between": _slope([_least(last, "mb", BETWEEN_MINUTES * 60.0)])}


def _least(looks: Sequence[dict[str, float]], name: str, seconds: float) -> list[tuple[float, float]]:
    """Returns (hours, figure) of the minimum in each interval."""
    least: dict[int, tuple[float, float]] = {}
    for look in looks:
        interval = int(look["seconds"] // seconds)
        found = (look["seconds"] / 3600, look[name])
        least[interval] = min(least.get(interval, found), found, key=lambda point: point[1])
    return list(least.values())


def _slope(lines: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Returns the common slope of lines of (hours, figure), each of which may have its own height."""
    above = below = 0.0
    for points in (line for line in lines if len(line) >= 2):
        mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
        above += sum((x - mean_x) * (y - mean_y) for x, y in points)
        below += sum((x - mean_x) ** 2 for x, _ in points)
    return above / below if below else 0.0


def rate(rows: Sequence[dict[str, Any]]) -> float:
    """Returns the updates/s of an undisturbed run, from its middle row to the last."""
    trained = [(row["seconds"], row["update"]) for row in rows if row["update"] > 0]
    (start, before), (end, after) = trained[len(trained) // 2], trained[-1]
    return float((after - before) / (end - start))


def main() -> int:
    """Trains undisturbed, then under faults; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--preset", default="cartpole")
    parser.add_argument("--agent", default="ppo")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/soak"))
    parser.add_argument("--json", action="store_true")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:end])
    shutil.rmtree(arguments.out, ignore_errors=True)
    arguments.out.mkdir(parents=True)
    settings = [f"--preset={arguments.preset}", f"--agent={arguments.agent}", "--stop_at_return=inf"]
    settings += ["--checkpoint.every_seconds=20", "--evaluation.every_updates=0", *words[end + 1 :]]
    alone = Run(arguments.out / "alone", settings)
    try:
        status = alone.process.wait(UNDISTURBED_SECONDS)
    except subprocess.TimeoutExpired:
        alone.end()
    else:
        sys.exit(f"soak.py: the undisturbed run ended with status {status}, see {alone.log}")
    undisturbed = rate(alone.rows())
    print(f"undisturbed: {undisturbed:.1f} updates/s", flush=True)
    run, over, looks = Run(arguments.out / "run", settings), threading.Event(), list[dict[str, float]]()
    watcher = threading.Thread(target=watch, args=(run, over, looks))
    watcher.start()
    time.sleep(30.0)  # wait until it learns
    began, first = time.monotonic(), _updates(run)
    for minute in range(arguments.minutes):
        fault = FAULTS[minute % len(FAULTS)]
        fault(run)
        time.sleep(max(0.0, began + 60.0 * (minute + 1) - time.monotonic()))
        print(f"minute {minute + 1}: {fault.__name__}, {_updates(run)} updates", flush=True)
    seconds, done = time.monotonic() - began, _updates(run) - first
    over.set()
    watcher.join()
    run.end()
    (arguments.out / "looks.json").write_text(json.dumps(looks))
    slopes, share = growth(looks), done / (undisturbed * seconds)
    passed = share >= LEAST_SHARE and slopes["between"] <= MOST_MB_AN_HOUR
    figure = (
        f"{arguments.minutes} min, effective training time {share:.2f}; an hour: {slopes['between']:+.1f} MB, "
        f"within a life {slopes['mb']:+.1f} MB, {slopes['fds']:+.1f} descriptors, {slopes['threads']:+.1f} threads"
    )
    print(f"{'passed' if passed else 'FAILED'}  {figure}")
    if arguments.json:
        print(json.dumps({"rows": [{"name": f"soak-{arguments.agent}", "passed": passed, "figure": figure}]}))
    return int(not passed)


def _updates(run: Run) -> int:
    rows = run.rows()
    return int(rows[-1]["update"]) if rows else 0


if __name__ == "__main__":
    sys.exit(main())
