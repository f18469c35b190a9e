"""Prints the timeline of a training's start: from the command to the first update, with nothing compiled and with all.

    python experiments/start.py [--TASK ...] [--SECTION.KEY=VALUE ...]      # tasks: catch (the default), cartpole

Each task trains twice for one update, in separate directories; the second run finds the programs that the first has
compiled. Each line is a span: when it began after the command, in seconds, how long it took, the processor seconds of
all the learner's threads until its end, its thread, and what it was. Beside other work, compare the processor seconds.
Spans of different threads overlap. Functions are watched where they are called, so that nothing is imported earlier
than in a run without this script.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

TASKS = {"catch": ("--preset=catch",), "cartpole": ("--preset=cartpole",)}
IMPORTED = ("jax", "flax", "optax", "seedzero.learner.entry")
"""Modules whose import is a span; modules imported within another's span are not listed."""
CALLED = {
    "seedzero.envs.registry": {"spec": "environments tried"},
    "seedzero.learner.build": {"device_loop_for": "learner built"},
    "seedzero.learner.loop.inboxes": {"Inbox.put": "first observations"},
    "seedzero.learner.loop.dispatchers": {
        "Dispatcher.act": "first batch",
        "Dispatcher.update": "first update asked for",
    },
    "seedzero.learner.loop.players": {"Player.run_update": "first update"},
}
"""Module -> function in it -> name of the span of its first call."""
EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "XLA",
}
"""JAX's events -> names of their spans. XLA: compilation, or reading from the cache."""
SHORTEST = 0.02
"""Spans of at least this many seconds are shown."""


class Span(NamedTuple):
    """begin: seconds after the command. kind: "import", "call", or a name from `EVENTS`.

    processor: the process's processor seconds at the end.
    """

    begin: float
    seconds: float
    thread: str
    kind: str
    name: str
    processor: float


class Recorder:
    """Collects spans from all threads. started: when the command began, by the clock."""

    def __init__(
        self,
        started: float,
        clock: Callable[[], float] = time.time,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self.spans: list[Span] = []
        self._started, self._clock, self._processor = started, clock, processor
        self._called: set[str] = set()
        self._depth = 0  # of imports that are spans
        self._lock = threading.Lock()

    def add(self, kind: str, name: str, begin: float) -> None:
        """Adds a span that ends now."""
        thread, seconds = threading.current_thread().name, self._clock() - begin
        self.spans.append(Span(begin - self._started, seconds, thread, kind, name, self._processor()))

    def event(self, event: str, seconds: float, **details: Any) -> None:
        """Adds an event of JAX that ends now."""
        if event in EVENTS:
            begin, thread = self._clock() - seconds, threading.current_thread().name
            name = str(details.get("fun_name", ""))
            self.spans.append(Span(begin - self._started, seconds, thread, EVENTS[event], name, self._processor()))

    def first(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a function so that its first call, including the computation of its result, is a span."""

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                is_first = name not in self._called
                self._called.add(name)
            if not is_first:
                return function(*arguments, **named)
            begin = self._clock()
            found = function(*arguments, **named)
            if hasattr(found, "block_until_ready"):
                found.block_until_ready()
            self.add("call", name, begin)
            return found

        return call

    def importing(self, name: str, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        """Executes a module, and watches its functions."""
        begin, is_told = self._clock(), name in IMPORTED and not self._depth
        self._depth += is_told
        try:
            execute(module)
        finally:
            self._depth -= is_told
        if is_told:
            self.add("import", name, begin)
        if name == "jax":
            module.monitoring.register_event_duration_secs_listener(self.event)
        for path, told in CALLED.get(name, {}).items():
            *owners, last = path.split(".")
            owner: Any = functools.reduce(getattr, owners, module)
            setattr(owner, last, self.first(told, getattr(owner, last)))


class Finder(importlib.abc.MetaPathFinder):
    """Lets a recorder import the modules that it watches."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in IMPORTED and name not in CALLED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = functools.partial(self._recorder.importing, name, loader.exec_module)
        return spec


def totals(spans: Sequence[Span]) -> dict[str, float]:
    """Returns the seconds of each kind, summed over the threads, and when the last call ended."""
    found: dict[str, float] = {}
    for span in spans:
        if span.kind != "call":
            found[span.kind] = found.get(span.kind, 0.0) + span.seconds
    return {
        **found,
        "first update": max((span.begin + span.seconds for span in spans if span.kind == "call"), default=0.0),
    }


def table(spans: Sequence[Span]) -> str:
    """Returns the lines of a timeline, and the totals."""
    shown = sorted(span for span in spans if span.kind == "call" or span.seconds >= SHORTEST)
    lines = [f"{'begin':>7}  {'seconds':>7}  {'processor':>9}  {'thread':<22} what"]
    lines += [
        f"{x.begin:7.2f}  {x.seconds:7.2f}  {x.processor:9.2f}  {x.thread[:22]:<22} {x.kind} {x.name}".rstrip()
        for x in shown
    ]
    return "\n".join([*lines, ", ".join(f"{kind} {seconds:.2f} s" for kind, seconds in totals(spans).items())])


def record(out: str, started: float, words: Sequence[str]) -> int:
    """Runs a command line of `seedzero` in this process and writes its spans; returns its exit code."""
    recorder = Recorder(started)
    recorder.add("call", "Python started", started)
    sys.meta_path.insert(0, Finder(recorder))
    begin = time.time()
    from seedzero.cli import main as commands

    recorder.add("import", "seedzero.cli", begin)
    code = commands.main(words)
    pathlib.Path(out).write_text(json.dumps(recorder.spans), encoding="utf-8")
    return code


def run(task: str, words: Sequence[str], folder: pathlib.Path, cache: pathlib.Path) -> list[Span]:
    """Returns the spans of a training for one update in a new process. Raises CalledProcessError if it fails."""
    out = folder / "spans.json"
    command = [sys.executable, __file__, "--record", str(out), str(time.time()), "train", *TASKS[task]]
    command += ["--max_updates=1", "--max_seconds=600", f"--run_dir={folder / 'run'}", *words]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    return [Span(*span) for span in json.loads(out.read_text(encoding="utf-8"))]


def main(words: Sequence[str]) -> None:
    """Prints both timelines of each task."""
    tasks = [word[2:] for word in words if word[2:] in TASKS and word.startswith("--")] or ["catch"]
    settings = [word for word in words if word[2:] not in TASKS]
    for task in tasks:
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder) / "cache"
            for name in ("nothing compiled", "compiled"):
                place = pathlib.Path(folder) / name.replace(" ", "_")
                place.mkdir()
                print(f"\n{task}, {name}\n{table(run(task, settings, place, cache))}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        sys.exit(record(sys.argv[2], float(sys.argv[3]), sys.argv[4:]))
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(__doc__)
    else:
        main(sys.argv[1:])
