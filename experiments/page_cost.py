"""Measures the share of acting speed that is left while a client reads *game* of a page, at 5 frames a second.

    python experiments/page_cost.py [--pairs=12] [--seconds=8] [--other=TREE] [-- SETTINGS of seedzero train]

Within one training, windows with and without the reader alternate, in changing order, with a pause in which the
learner stops collecting. The page, a separate process `seedzero page`, runs in all windows. With --other, training by
another source tree is compared instead: nobody watches, and each window is a separate training.

The last line is JSON: the median of the pairs' ratios with an interval of at least 95 % (order statistics), the
reader's frames a second, and the machine's load before and after. `processor` has the same for steps per processor
second of training, page and reader together, which other load on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psutil

from seedzero.core import errors
from seedzero.learner.live import observers
from seedzero.monitoring import status

SETTINGS = ("--env=gym:CartPole-v1", "--agent=ppo", "--stop_at_return=inf", "--evaluation.every_updates=0")
READER = """
import http.client, json, os, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=30)
connection.request("GET", "/api/live/stream?run=run&environment=0")
os.set_blocking(0, False)
began, count = 0.0, -1
for line in connection.getresponse():
    if not line.startswith(b"data: ") or not json.loads(line[6:]).get("steps"):
        continue
    if not began:
        print("reads", flush=True)
        began = time.monotonic()
    count += 1
    try:
        if not os.read(0, 1):
            break
    except BlockingIOError:
        pass
print(count / (time.monotonic() - began), flush=True)
"""
"""A plain client that reads the stream until standard input closes, and prints its number of events with steps per
second."""
Speed = tuple[float, float]
"""Steps per second, and steps per processor second."""
TREE = pathlib.Path(__file__).parents[1]
WARM_STEPS = 10_000
"""Steps before the first window."""
DEADLINE_SECONDS = 300.0


def main() -> None:
    """Reads the command line, measures, and prints the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--other", type=pathlib.Path, default=None)
    parser.add_argument("settings", nargs="*", default=SETTINGS)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="page-cost-") as folder:
        if arguments.other is None:
            pairs, more = reading(pathlib.Path(folder), arguments.pairs, arguments.seconds, arguments.settings)
        else:
            trees = (TREE, arguments.other.resolve())
            pairs, more = comparing(
                pathlib.Path(folder), trees, arguments.pairs, arguments.seconds, arguments.settings
            )
    found = [summary([(one[place], other[place]) for one, other in pairs]) for place in (0, 1)]
    for one, other in pairs:
        print(f"{one[0]:8.0f} {other[0]:8.0f} steps/s  {one[1]:8.0f} {other[1]:8.0f} steps/s of a processor")
    loads = [round(load, 1), round(os.getloadavg()[0], 1)]
    print(json.dumps({**found[0], "processor": found[1], **more, "load": loads, "cores": os.cpu_count()}))


def summary(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Returns the median of the ratios, with an interval."""
    ratios = [one / other for one, other in pairs]
    return {"pairs": len(ratios), "ratio": round(statistics.median(ratios), 4), "interval": interval(ratios)}


def reading(
    folder: pathlib.Path, num_pairs: int, seconds: float, settings: Sequence[str]
) -> tuple[list[tuple[Speed, Speed]], dict[str, Any]]:
    """Returns steps per second with and without a reader, in pairs, and the reader's frames per second."""
    pairs, frames = [], []
    with training(folder / "run", settings, TREE) as run, page(folder) as port:
        mine = psutil.Process()
        for number in range(num_pairs):
            found = {}
            for is_read in (True, False) if number % 2 else (False, True):
                if is_read:
                    with reader(port) as counted:
                        found[True] = speed(run, seconds, mine)
                    frames.append(counted())
                    time.sleep(observers.IDLE_SECONDS + 1)
                else:
                    found[False] = speed(run, seconds, mine)
            pairs.append((found[True], found[False]))
            print(f"{number + 1}: {found[True]} {found[False]}", file=sys.stderr, flush=True)
    return pairs, {"frames_per_second": round(statistics.median(frames), 2)}


def comparing(
    folder: pathlib.Path, trees: Sequence[pathlib.Path], num_pairs: int, seconds: float, settings: Sequence[str]
) -> tuple[list[tuple[Speed, Speed]], dict[str, Any]]:
    """Returns steps per second of trainings by two source trees, in pairs."""
    pairs = []
    for number in range(num_pairs):
        found = {}
        for place in (0, 1) if number % 2 else (1, 0):
            with training(folder / f"run-{number}-{place}", settings, trees[place]) as run:
                found[place] = speed(run, seconds, psutil.Process())
        pairs.append((found[0], found[1]))
        print(f"{number + 1}: {found[0]} {found[1]}", file=sys.stderr, flush=True)
    return pairs, {"other": str(trees[1])}


@contextlib.contextmanager
def training(run: pathlib.Path, settings: Sequence[str], tree: pathlib.Path) -> Iterator[pathlib.Path]:
    """Starts a training, warms it up, and yields its run directory; ends it afterwards."""
    command = [sys.executable, "-m", "seedzero.cli", "train", *settings, f"--run_dir={run}"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, cwd=tree, **quiet)  # type: ignore[call-overload]
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while _stored(run) < WARM_STEPS:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{' '.join(command)} did not begin to train")
            time.sleep(0.2)
        yield run
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def page(root: pathlib.Path) -> Iterator[int]:
    """Starts a page of all runs below a directory and yields its port."""
    command = [sys.executable, "-m", "seedzero.cli", "page", f"--run_dir={root}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", process.stderr.readline())
        assert found is not None
        yield int(found[1])
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def reader(port: int) -> Iterator[Any]:
    """Reads in a separate process; yields a function that returns its frames per second once it has ended."""
    command = [sys.executable, "-c", READER, str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None
    process.stdout.readline()  # the first steps have arrived
    rates: list[float] = []
    try:
        yield lambda: rates[0]
    finally:
        process.stdin.close()
        rates.append(float(process.stdout.readline()))
        process.wait()


def speed(run: pathlib.Path, seconds: float, parent: psutil.Process) -> Speed:
    """Measures the speed of a training during a window; parent: of all its processes."""
    began, busy, before = time.monotonic(), _busy(parent), _stored(run)
    time.sleep(seconds)
    steps = _stored(run) - before
    if steps <= 0:
        raise SystemExit(f"{run} does not train any more")
    return steps / (time.monotonic() - began), steps / (_busy(parent) - busy)


def _busy(parent: psutil.Process) -> float:
    """Returns the processor seconds of all children of a process."""
    times = [child.cpu_times() for child in parent.children(recursive=True)]
    return sum(found.user + found.system for found in times)


def _stored(run: pathlib.Path) -> int:
    try:
        found = status.from_run_dir(run)
    except errors.Error:
        return 0
    return int(found["steps_stored"]) if found["alive"] else 0


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns order statistics that enclose the median with a probability of at least 0.95, else the extremes."""
    ordered, number = sorted(values), len(values)
    chances = [math.comb(number, rank) / 2**number for rank in range(number + 1)]
    rank = 0  # number of values left out at each end
    while 2 * sum(chances[: rank + 2]) <= 0.05 and 2 * (rank + 1) < number:
        rank += 1
    return round(ordered[rank], 4), round(ordered[number - 1 - rank], 4)


if __name__ == "__main__":
    main()
