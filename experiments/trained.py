"""Keeps a trained agent in examples/trained: what acting needs of its run, and its score as a row of the README there.

    python experiments/trained.py RUN_DIR NAME [FLAG OF EVALUATE ...] [--into=.]

It plays 100 games with unseen seeds by the last checkpoint, for example with the flag `--opponent=mcts-100`. The row
has the command that trained the agent, commit, seed, environment steps, the flags, score and standard error.
"""

from __future__ import annotations

import argparse
import pathlib
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import runs

from seedzero.config import configs
from seedzero.storage.checkpoints import manifest, run_dirs, saved_files, trees

EPISODES = 100
ROOT = pathlib.Path(__file__).parent.parent
FOLDER = pathlib.Path("examples", "trained")
_ONLY_LEARNED_WITH = {"projector", "predictor"}


def main() -> None:
    """Reads the command line, keeps the agent and prints its row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("name", help="of the new directory in examples/trained")
    parser.add_argument("--into", type=pathlib.Path, default=ROOT, help="repository that gets the agent")
    arguments, flags = parser.parse_known_args()
    found = runs.evaluate(arguments.run_dir, ["--step=last", f"--episodes={EPISODES}", *flags])
    print(keep(arguments.run_dir, arguments.into, arguments.name, found, flags))


def keep(
    run: pathlib.Path, repository: pathlib.Path, name: str, found: Mapping[str, Any], flags: Sequence[str]
) -> str:
    """Writes a run's agent into examples/trained/NAME, and its row into the README; returns the row.

    found: the result of `seedzero evaluate` with these flags.
    """
    write_acting(run, repository / FOLDER / name)
    saved = run_dirs.read_saved(run)
    error = float(f"{found['stderr_return']:.2g}")
    cells = (
        f"[{name}]({name})",
        f"`{command(saved)}`",
        commit(),
        saved.config.run.seed,
        f"{max(row['env_steps'] for row in runs.rows(run)):,}",
        " ".join(f"`{flag}`" for flag in flags) or "-",
        f"{found['mean_return']:.4g} ± {error:g}",
    )
    row = f"| {' | '.join(map(str, cells))} |"
    _write_row(repository / FOLDER / "README.md", row)
    return row


def write_acting(run: pathlib.Path, target: pathlib.Path) -> None:
    """Writes what acting needs: the settings, the spec, and the last checkpoint's parameters.

    Those that only MuZero's consistency loss reads become zeros, which the files' compression removes.
    """
    path, found, _ = saved_files.find(run / "checkpoints", "last", "params")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in ("config.json", "spec.json"):
        shutil.copy(run / name, target / name)
    leaves = found.arrays[saved_files.PARAMS]
    params: dict[str, Any] = {}
    for leaf, array in zip(leaves, trees.load(path / saved_files.PARAMS, leaves), strict=True):
        part = params
        for name in leaf.path[:-1]:
            part = part.setdefault(name, {})
        part[leaf.path[-1]] = np.zeros_like(array) if _ONLY_LEARNED_WITH & {*leaf.path} else array
    steps = target / "checkpoints" / saved_files.STEPS
    steps.mkdir(parents=True)
    kept = manifest.Manifest(found.step, found.time, 1, True)
    manifest.write_directory(steps / f"{found.step:012d}", {saved_files.PARAMS: params}, kept)


def command(saved: run_dirs.SavedConfig) -> str:
    """Returns the command that began a run, without its run directory."""
    flags = [f"{configs.flag(name)}={value}" for name, value in saved.given.items()]
    return shlex.join(["seedzero", "train", f"--preset={saved.preset}", *flags])


def commit() -> str:
    """Returns the commit of this repository; a change that is not committed adds a plus sign."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", "seedzero") else "")


def _write_row(readme: pathlib.Path, row: str) -> None:
    """Adds a row to the only table of a document, or replaces the row that begins with the same cell."""
    lines = readme.read_text(encoding="utf-8").splitlines()
    beginning = row[: row.index(" | ") + 3]
    lines = [line for line in lines if not line.startswith(beginning)]
    last = max(number for number, line in enumerate(lines) if line.startswith("|"))
    readme.write_text("\n".join([*lines[: last + 1], row, *lines[last + 1 :]]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
