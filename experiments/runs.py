"""Training runs as a user starts them, timed from process start, and their results."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

UNSEEN_SEED = 1_000_003
"""Seed of the scoring environments; training uses --seed."""

Point = dict[str, float]


class Run(NamedTuple):
    """A finished training run.

    Attributes:
      seconds: from the start of the process to its end, compilation included.
      last_line: of its output: the reason of its end.
      path: its directory.
    """

    seconds: float
    last_line: str
    path: pathlib.Path


def train(path: pathlib.Path, settings: Sequence[str]) -> Run:
    """Runs `seedzero train` to its end. Raises SystemExit if it fails or is stopped.

    Its compilation cache is empty, so that earlier runs don't make it faster.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.parent / f"{path.name}.log"
    command = [sys.executable, "-m", "seedzero.cli", "train", *settings, f"--run_dir={path}"]
    began = time.monotonic()
    with log.open("w") as output, tempfile.TemporaryDirectory() as cache:
        code = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "JAX_COMPILATION_CACHE_DIR": cache},
            check=False,
        ).returncode
    seconds = time.monotonic() - began
    lines = log.read_text().splitlines() or [""]
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}; its last lines:\n" + "\n".join(lines[-10:]))
    if lines[-1].startswith("stopped"):
        raise SystemExit(f"interrupted: {lines[-1]}")
    return Run(seconds, lines[-1], path)


def evaluate(path: pathlib.Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the result of `seedzero evaluate`, run in a separate process."""
    return _last_json(["-m", "seedzero.cli", "evaluate", f"--run_dir={path}", f"--seed={UNSEEN_SEED}", *arguments])


def script(name: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the last output line, JSON, of another script of this folder."""
    return _last_json([str(pathlib.Path(__file__).with_name(name)), *arguments])


def _last_json(arguments: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(path: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the rows of a run's metrics."""
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def evaluations(path: pathlib.Path) -> list[Point]:
    """Returns a run's evaluations during training: seconds, env_steps, update, mean_return."""
    return [
        {
            "seconds": row["seconds"],
            "env_steps": row["env_steps"],
            "update": row["update"],
            "mean_return": row["evaluation_mean_return"],
        }
        for row in rows(path)
        if row.get("kind") == "evaluation"
    ]


def training_returns(path: pathlib.Path) -> list[Point]:
    """Returns the mean return of each row's finished training episodes, which explore."""
    return [
        {"seconds": row["seconds"], "env_steps": row["env_steps"], "mean_return": row["episode_return"]}
        for row in rows(path)
        if "episode_return" in row
    ]


def plot(
    file: pathlib.Path, curves: Mapping[str, Iterable[Point]], *, x: Sequence[str], y: str = "mean_return", title: str
) -> None:
    """Draws `curves` over each quantity of `x`, side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(x), figsize=(5 * len(x), 3.2), squeeze=False)
    for axis, name in zip(axes[0], x, strict=True):
        _draw(axis, curves, name, y)
    axes[0][0].legend(fontsize="small")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


class Panel(NamedTuple):
    """One of several plots in a figure. bar: the return to reach, drawn as a line; None: no such return."""

    title: str
    curves: Mapping[str, Iterable[Point]]
    bar: float | None


def plot_panels(file: pathlib.Path, panels: Sequence[Panel], *, columns: int = 3, x: str = "seconds") -> None:
    """Draws several plots of mean returns in rows of `columns`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    num_rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(num_rows, columns, figsize=(4 * columns, 2.8 * num_rows), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels, strict=False):
        _draw(axis, panel.curves, x, "mean_return")
        if panel.bar is not None:
            axis.axhline(panel.bar, color="black", linewidth=0.8, linestyle="--")
        axis.set_title(panel.title, fontsize="medium")
    figure.tight_layout()
    figure.savefig(file, dpi=90)
    pyplot.close(figure)


def _draw(axis: Any, curves: Mapping[str, Iterable[Point]], x: str, y: str) -> None:
    for label, points in curves.items():
        found = [point for point in points if x in point]
        axis.plot([point[x] for point in found], [point[y] for point in found], label=label)
    axis.set_xlabel(x.replace("_", " "))
    axis.set_ylabel(y.replace("_", " "))
    axis.grid(alpha=0.3)


def table(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown."""
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in (header, ["---"] * len(header), *lines))
