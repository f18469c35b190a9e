"""Starts training runs as a user does, times them from process start, and reads their results."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from seedzero.monitoring import metrics_log, series

UNSEEN_SEED = 1_000_003
"""Seed of the scoring environments; training uses --seed."""

_SECONDS_TO_LEAVE = 60.0
"""Time for a process to end after it was asked to."""

Point = dict[str, float]


class Run(NamedTuple):
    """A finished training run.

    Attributes:
      seconds: from the start of the process to its end, including compilation.
      last_line: of its output, which tells why it ended.
      path: its directory.
    """

    seconds: float
    last_line: str
    path: pathlib.Path


class Failure(SystemExit):
    """A process failed. Unless caught, this ends the script with the last lines of the process.

    reason: exit code and last line.
    """

    def __init__(self, command: Sequence[str], code: int | None, output: str) -> None:
        lines = output.rstrip().splitlines() or [""]
        ended = "did not end in time" if code is None else f"ended with {code}"
        self.reason = f"{ended}: {lines[-1]}"
        super().__init__(f"{' '.join(command)} {ended}; its last lines:\n" + "\n".join(lines[-10:]))


def train(path: pathlib.Path, settings: Sequence[str], *, limit: float | None = None, resumes: bool = False) -> Run:
    """Runs `seedzero train` to its end.

    The compilation cache is empty, so that earlier runs don't make it faster.

    Args:
      path: run directory.
      limit: seconds after which the process is ended; None means never.
      resumes: whether to resume the run in `path`; otherwise whatever is there is deleted, because the time of a
        remainder would not be that of a run.

    Raises:
      Failure: the process failed or did not end in time.
      SystemExit: it was interrupted.
    """
    with tempfile.TemporaryDirectory() as cache:
        (run,) = _train({path: settings}, pathlib.Path(cache), limit, resumes=resumes)
    return run


def train_side_by_side(jobs: Mapping[pathlib.Path, Sequence[str]], cache: pathlib.Path) -> list[Run]:
    """Runs several `seedzero train` at the same time until they end, from their beginning, see `train`.

    jobs: settings by run directory. cache: of compiled programs, which all share. Raises as `train`, and ends the
    others then.
    """
    return _train(jobs, cache, None, resumes=False)


def _train(
    jobs: Mapping[pathlib.Path, Sequence[str]], cache: pathlib.Path, limit: float | None, *, resumes: bool
) -> list[Run]:
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        started = [stack.enter_context(_started(path, settings, cache, resumes)) for path, settings in jobs.items()]
        return [_finished(path, *of, limit, began) for path, of in zip(jobs, started, strict=True)]


@contextlib.contextmanager
def _started(
    path: pathlib.Path, settings: Sequence[str], cache: pathlib.Path, resumes: bool
) -> Iterator[tuple[Sequence[str], subprocess.Popen[Any]]]:
    """Runs a training while the context is entered; asks it to save and to leave if the script leaves early."""
    if path.exists() and not resumes:
        shutil.rmtree(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "seedzero.cli", "train", *settings, f"--run_dir={path}"]
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    with (
        _log(path).open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        try:
            yield command, process
        finally:
            process.terminate()  # does nothing if the process has ended


def _finished(
    path: pathlib.Path, command: Sequence[str], process: subprocess.Popen[Any], limit: float | None, began: float
) -> Run:
    code = _wait(process, limit)
    seconds = time.monotonic() - began
    text = _log(path).read_text()
    if code != 0:
        raise Failure(command, code, text)
    last_line = (text.splitlines() or [""])[-1]
    if last_line.startswith("stopped"):
        raise SystemExit(f"interrupted: {last_line}")
    return Run(seconds, last_line, path)


def _log(path: pathlib.Path) -> pathlib.Path:
    return path.parent / f"{path.name}.log"


@contextlib.contextmanager
def _left_by_sigterm() -> Iterator[None]:
    """Turns SIGTERM into SystemExit while the context is entered, so that whoever waits for a process can end it."""

    def leave(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait(process: subprocess.Popen[Any], limit: float | None) -> int | None:
    """Returns the exit code, or None if the process exceeded the limit and was ended."""
    try:
        with _left_by_sigterm():
            return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.terminate()  # asks it to save and to leave
    except SystemExit:
        process.terminate()
        raise
    try:
        process.wait(_SECONDS_TO_LEAVE)
    except subprocess.TimeoutExpired:
        process.kill()
    return None


def evaluate(path: pathlib.Path, arguments: Sequence[str], *, limit: float | None = None) -> dict[str, Any]:
    """Returns the result of `seedzero evaluate`, which runs in a separate process for at most `limit` seconds.

    Raises:
      Failure: the process failed or did not end in time.
    """
    own = [f"--run_dir={path}", "--trust_run_dir", f"--seed={UNSEEN_SEED}"]
    command = ["-m", "seedzero.cli", "evaluate", *own, *arguments]
    return _last_json(command, limit)


def script(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Runs another script of this folder and returns its last output line, JSON. Raises Failure."""
    return _last_json([str(pathlib.Path(__file__).with_name(name)), *arguments])


def _last_json(arguments: Sequence[str], limit: float | None = None) -> dict[str, Any]:
    try:
        with _left_by_sigterm():
            done = subprocess.run(
                [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=limit
            )
    except subprocess.TimeoutExpired:
        raise Failure(arguments, None, "") from None
    if done.returncode:
        raise Failure(arguments, done.returncode, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the rows of a run's metrics; after a resume, seconds continue from the last process."""
    total = series.TotalSeconds()
    return [{**row, "seconds": round(total.at(row), 3)} for row in metrics_log.read(path)]


def evaluations(path: pathlib.Path) -> list[Point]:
    """Returns a run's evaluations during training, except those cut short: seconds, env_steps, update, mean_return."""
    return [
        {
            "seconds": row["seconds"],
            "env_steps": row["env_steps"],
            "update": row["update"],
            "mean_return": row["evaluation_mean_return"],
        }
        for row in rows(path)
        if row.get("kind") == "evaluation" and "evaluation_unfinished" not in row
    ]


def training_returns(path: pathlib.Path) -> list[Point]:
    """Returns the mean return of each row's finished training episodes, which explore."""
    return [
        {"seconds": row["seconds"], "env_steps": row["env_steps"], "mean_return": row["episode_return"]}
        for row in rows(path)
        if "episode_return" in row
    ]


class Panel(NamedTuple):
    """One of the plots in a figure.

    Attributes:
      curves: points by label.
      x: the quantity on the horizontal axis.
      bar: the return to reach, drawn as a line, or None.
      y: the quantity on the vertical axis.
    """

    title: str
    curves: Mapping[str, Iterable[Point]]
    x: str
    bar: float | None = None
    y: str = "mean_return"


@contextlib.contextmanager
def figures() -> Iterator[None]:
    """Provides figures while the context is entered; without matplotlib a message reports that there are none."""
    try:
        yield
    except ModuleNotFoundError as error:
        print(f"no figure: {error}; it is in seedzero's extra `dev`", file=sys.stderr)


def plot(file: pathlib.Path, panels: Sequence[Panel], *, title: str = "", columns: int = 3) -> None:
    """Draws mean returns in rows of `columns` panels, and optionally a title and a common legend."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(columns, len(panels))
    num_rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(num_rows, columns, figsize=(4.5 * columns, 3 * num_rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels, strict=False):
        _draw(axis, panel)
    if title:
        for axis, panel in zip(axes.flat, panels, strict=False):
            if panel is panels[0] or panel.curves.keys() != panels[0].curves.keys():
                axis.legend(fontsize="small")
        figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(file, dpi=100)
    pyplot.close(figure)


def _draw(axis: Any, panel: Panel) -> None:
    """Also curves without points take their colour, so that a label has the same colour in several figures."""
    from matplotlib import ticker

    for label, points in panel.curves.items():
        found = [point for point in points if panel.x in point]
        x, y = [point[panel.x] for point in found], [point[panel.y] for point in found]
        axis.plot(x, y, label=label if found else None, marker=".", markersize=3)
    if panel.bar is not None:
        axis.axhline(panel.bar, color="black", linewidth=0.8, linestyle="--")
    axis.xaxis.set_major_locator(ticker.MaxNLocator(6))
    axis.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    axis.set_xlabel(panel.x.replace("_", " "))
    axis.set_ylabel(panel.y.replace("_", " "))
    axis.set_title(panel.title, fontsize="medium")
    axis.grid(alpha=0.3)


def table(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown."""
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in (header, ["---"] * len(header), *lines))
