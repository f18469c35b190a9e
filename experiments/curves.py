"""Draws learning curves of run directories, one panel for each title.

    python experiments/curves.py OUT.png [--x=seconds|env_steps] [--solved=TITLE=RETURN] [--lowest=TITLE=RETURN]
        [--training] [--factor=TITLE=NUMBER] TITLE/LABEL=RUN_DIR[,RUN_DIR...] ...

A curve is the mean return of a run's evaluations or, with --training, of the episodes that it learned from (means of
20 rows of metrics). Several runs of one label are seeds: their median, and a band from the lowest to the highest.
`TITLE=RUN_DIR` needs no label. A table of the folder `published` or of docs/curves may stand for a run. --solved draws
a dashed line; --lowest begins the axis there: a caption must say so of curves that begin below. --factor multiplies
the returns of runs, as by a game's number of lives if each of its episodes was one life.

    python experiments/curves.py steps.png 'CartPole/3 steps=runs/a1,runs/a2' 'CartPole/5 steps=runs/b1,runs/b2'
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import runs

from seedzero.core import packages

Curve = list[tuple[np.ndarray, np.ndarray]]
"""Each seed's x and mean returns."""


_ROWS = 20
"""Rows of metrics in a mean of training returns; a row has the episodes of about ten seconds."""


def read(
    items: Sequence[str], x: str, *, training: bool = False, factors: Mapping[str, float] = {}
) -> dict[str, dict[str, Curve]]:
    """Returns the curves by title and label; training episodes instead of evaluations, factors by title.

    Raises:
      SystemExit: an item has another form, or a directory no evaluations.
    """
    found: dict[str, dict[str, Curve]] = {}
    for item in items:
        name, equals, paths = item.partition("=")
        if not (name and equals and paths):
            raise SystemExit(f"{item!r}: expected TITLE/LABEL=RUN_DIR[,RUN_DIR...]")
        title, _, label = name.partition("/")
        factor = factors.get(title, 1.0)
        found.setdefault(title, {})[label] = [
            _curve(pathlib.Path(path), x, training=training, factor=factor) for path in paths.split(",")
        ]
    if unknown := factors.keys() - found.keys():
        raise SystemExit(f"no panel has the title {', '.join(sorted(unknown))}; there are {', '.join(found)}")
    return found


def _curve(path: pathlib.Path, x: str, *, training: bool, factor: float) -> tuple[np.ndarray, np.ndarray]:
    if path.suffix == ".csv":
        points = _table(path, x, "episode_return" if training else "evaluation_mean_return")
    elif (path / "metrics.jsonl").exists():
        points = runs.training_returns(path) if training else runs.evaluations(path)
    else:
        raise SystemExit(f"{path} has no metrics.jsonl; expected a run directory of `seedzero train`")
    if path.parent.name == "published":
        factor, training = 1.0, False  # those are means already
    if len(points) < (_ROWS if training else 1):
        expected = f"{_ROWS} rows with training episodes" if training else "evaluation"
        raise SystemExit(f"{path} has no {expected} yet; train on, or give another directory")
    found = np.array([[point[x], factor * point["mean_return"]] for point in points]).T
    if training:
        found = np.stack([np.convolve(row, np.full(_ROWS, 1 / _ROWS), mode="valid") for row in found])
    return found[0], found[1]


def _table(path: pathlib.Path, x: str, column: str) -> list[dict[str, float]]:
    """Returns a table's points: with a column mean_return, or the rows whose cell of another column is not empty."""
    try:
        rows = csv.DictReader(line for line in path.read_text().splitlines() if not line.startswith("#"))
        found = [(row[x], row["mean_return"] if "mean_return" in row else row[column]) for row in rows]
        return [{x: float(at), "mean_return": float(cell)} for at, cell in found if cell]
    except (OSError, KeyError, ValueError) as error:
        raise SystemExit(f"{path}: {error!r}; expected the columns {x} and mean_return or {column}") from None


def band(curve: Curve, num_points: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Returns x [N] and the lowest, median and highest return [3, N] over seeds.

    A run that has ended keeps its last value.
    """
    grid = np.linspace(min(x[0] for x, _ in curve), max(x[-1] for x, _ in curve), num_points)
    values = np.stack([np.interp(grid, x, y) for x, y in curve])
    return grid, np.quantile(values, [0.0, 0.5, 1.0], axis=0)


def levels(items: Sequence[str]) -> dict[str, float]:
    """Parses items TITLE=NUMBER; returns the numbers by title. Raises SystemExit for another form."""
    found = {}
    for item in items:
        title, _, number = item.rpartition("=")
        try:
            found[title] = float(number)
        except ValueError:
            raise SystemExit(f"{item!r}: expected TITLE=NUMBER") from None
    return found


def draw(
    out: pathlib.Path,
    panels: Mapping[str, Mapping[str, Curve]],
    x: str,
    solved: Mapping[str, float] = {},
    lowest: Mapping[str, float] = {},
) -> None:
    """Writes the figure, with panels of 3.2 by 2.5 inches.

    solved, lowest: by title, the return for a dashed line, and where the axis begins.
    """
    if unknown := (solved.keys() | lowest.keys()) - panels.keys():
        raise SystemExit(f"no panel has the title {', '.join(sorted(unknown))}; there are {', '.join(panels)}")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.2 * len(panels), 2.5), squeeze=False)
    for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
        for label, curve in curves.items():
            if len(curve) == 1:
                axis.plot(*curve[0], label=label)
            else:
                grid, (least, median, most) = band(curve)
                (line,) = axis.plot(grid, median, label=label)
                axis.fill_between(grid, least, most, color=line.get_color(), alpha=0.2, linewidth=0)
        if title in solved:
            axis.axhline(solved[title], color="black", linestyle="--", linewidth=1, label="solved")
        if title in lowest:
            axis.set_ylim(bottom=lowest[title])
        axis.set_title(title, fontsize="medium")
        axis.set_xlabel(x.replace("_", " "))
        axis.xaxis.set_major_locator(ticker.MaxNLocator(5))
        axis.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
        axis.grid(alpha=0.3)
        if any(curves) or title in solved:
            axis.legend(fontsize="small")
    axes[0][0].set_ylabel("mean return")
    figure.tight_layout()
    figure.savefig(out, dpi=100)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, metavar="OUT.png")
    parser.add_argument("items", nargs="+", metavar="TITLE/LABEL=RUN_DIR[,RUN_DIR...]")
    parser.add_argument("--x", choices=("seconds", "env_steps"), default="seconds", help="default: seconds")
    parser.add_argument("--training", action="store_true", help="training episodes instead of evaluations")
    for flag, meaning in (
        ("--solved", "a dashed line there"),
        ("--lowest", "the return at which the axis begins"),
        ("--factor", "what the returns of runs are multiplied by"),
    ):
        parser.add_argument(flag, action="append", default=[], metavar="TITLE=NUMBER", help=meaning)
    arguments = parser.parse_args()
    if importlib.util.find_spec("matplotlib") is None:
        raise SystemExit(f"matplotlib is missing; install it: {packages.install_command('matplotlib')}")
    panels = read(arguments.items, arguments.x, training=arguments.training, factors=levels(arguments.factor))
    draw(arguments.out, panels, arguments.x, levels(arguments.solved), levels(arguments.lowest))
    print(arguments.out)


if __name__ == "__main__":
    main()
