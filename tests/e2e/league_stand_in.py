"""A learner that tells its restored state, and is killed at a moment; stands before its command line."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from seedzero.cli import main as commands
from seedzero.learner.league_play import building
from seedzero.learner.loop import dispatchers
from seedzero.storage.checkpoints import checkpoint, manifest, player_files, saved_files, trees

MOMENT = "E2E_MOMENT"
"""A variable: one of MOMENTS and, after a colon, how often it passes."""
AFTER_FREEZE, IN_FREEZE, IN_CHECKPOINT, AFTER_CHECKPOINT = "after-freeze", "freeze", "checkpoint", "after-checkpoint"
AFTER_RESET = "after-reset"
MOMENTS = (AFTER_FREEZE, IN_FREEZE, IN_CHECKPOINT, AFTER_CHECKPOINT)
"""Moments of a league of one learning player; of several, AFTER_RESET too."""


def command() -> list[str]:
    """Returns the words before a command line of `seedzero train`."""
    return [sys.executable, str(pathlib.Path(__file__))]


def digests(arrays: list[Any]) -> list[str]:
    """Returns a digest of each array, sorted."""
    whole = [np.ascontiguousarray(array) for array in arrays]
    return sorted(hashlib.sha256(f"{x.dtype}{x.shape}".encode() + x.tobytes()).hexdigest() for x in whole)


def saved_digests(run: pathlib.Path) -> list[str]:
    """Returns those of the arrays of the newest checkpoint, without its replay."""
    path, found, _ = saved_files.find(run / "checkpoints", "last", "state")
    parts = [part for part in found.arrays if part.rpartition("/")[2] in (saved_files.PARAMS, checkpoint.STATE)]
    return digests([array for part in parts for array in trees.load(path / part, found.arrays[part])])


def restored(run: pathlib.Path) -> pathlib.Path:
    """Returns the file with the restored state of the learner that was started last."""
    return run.with_name(f"{run.name}.restored")


def _tell(run: pathlib.Path, dispatcher: dispatchers.Dispatcher, host: Mapping[str, Any]) -> None:
    parts = {player.name: player.state() for player in dispatcher.players}
    copied = trees.copy(checkpoint.by_player(parts))  # random keys as integers, as in files
    history = run / "league.jsonl"
    told = {
        "update": host["num_updates"],
        "digests": digests(jax.tree.leaves(jax.device_get(copied))),
        **dispatcher.seating.to_json(),
        "history": history.stat().st_size if history.exists() else 0,
        "frozen": player_files.names(run / "checkpoints"),
        "updates": {player.name: player.num_updates for player in dispatcher.players},
        "paces": {player.name: player.rate_limiter.to_json()["pace"] for player in dispatcher.players},
    }
    restored(run).write_text(json.dumps(told))  # printed, a long line could be torn by one of the console
    print("restored", file=sys.stderr, flush=True)


def _reached(moment: str) -> None:
    """Ends the process if this moment is the one."""
    name, _, left = os.environ.get(MOMENT, "").partition(":")
    if name != moment:
        return
    os.environ[MOMENT] = f"{name}:{int(left) - 1}"
    if int(left) > 0:
        return
    print(f"reached {moment}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _around(
    function: Callable[..., Any], before: Callable[..., None] | None, after: Callable[..., None] | None
) -> Callable[..., Any]:
    @functools.wraps(function)
    def around(*args: Any, **options: Any) -> Any:
        if before:
            before(*args)
        found = function(*args, **options)
        if after:
            after(*args)
        return found

    return around


def _before_manifest(directory: pathlib.Path, _: manifest.Manifest) -> None:
    places = {saved_files.FROZEN: IN_FREEZE, saved_files.STEPS: IN_CHECKPOINT}
    if directory.parent.name in places:
        _reached(places[directory.parent.name])


def run() -> int:
    """Runs the command line with these moments."""
    words = sys.argv[4:]
    (place,) = [pathlib.Path(word.partition("=")[2]) for word in words if word.startswith("--run_dir=")]
    dispatchers.Dispatcher.restore = _around(  # type: ignore[method-assign]
        dispatchers.Dispatcher.restore, None, lambda dispatcher, host: _tell(place, dispatcher, host)
    )
    building.reset = _around(building.reset, None, lambda *_: _reached(AFTER_RESET))
    player_files.write = _around(player_files.write, None, lambda *_: _reached(AFTER_FREEZE))
    manifest.write = _around(manifest.write, _before_manifest, None)
    is_started = threading.Event()
    remove = saved_files.remove_unreferenced

    def remove_or_end(*args: Any) -> None:
        if is_started.is_set():  # a start removes, too
            _reached(AFTER_CHECKPOINT)
        is_started.set()
        remove(*args)

    saved_files.remove_unreferenced = remove_or_end
    return commands.main(words)


if __name__ == "__main__":
    sys.exit(run())
