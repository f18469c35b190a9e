"""Lists the project's files that an observation passes from its environment to agent and ring, and its action back.

    python experiments/observation_way.py [AGENT]
    PYTHONPATH=OTHER_CHECKOUT python experiments/observation_way.py     # the way there

One process holds a learner and a worker, and a profile function sees every call. One observation has unique bytes: a
file is on the way if a function takes, passes or returns them, in arrays, bytes or messages. In traced code an acting
batch is recognized by its shape. Calls within the agent and the ring, and methods of messages, are left out. A file is
entered again if a call brings the observation back after it had been in another file than the caller's, and none of
the file's own calls is in progress. The two ends of the wire count as one file, and not as entered again.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import jax
import numpy as np

import seedzero
from seedzero.config import worker_options
from seedzero.envs import catch
from seedzero.worker import worker

PACKAGE = os.path.dirname(seedzero.__file__) + os.sep
ROWS, COLUMNS, NUM_ENVS, FOLLOWED = 13, 17, 24, 10  # FOLLOWED: the step with the marked observation
SIZE = ROWS * COLUMNS


class Way:
    """Follows the observation through all threads until `chosen`, its actions, have reached the environment."""

    def __init__(self) -> None:
        self.notes: list[tuple[bool, int, str, str, bool]] = []  # (traced, len(actions) then, file, function, again)
        self.actions: list[tuple[str, str, bytes]] = []  # (file, function, bytes that may be actions)
        self.chosen = b""
        self._mark = np.random.default_rng(0).integers(1, 255, SIZE, np.uint8).tobytes()
        self._num_steps = 0
        self._trail = ["", ""]  # the two most recent files
        self._sides: set[tuple[bool, bool, str]] = set()
        self._inside = threading.local()

    def boards(self, env: catch.Catch) -> np.ndarray:
        """Returns pictures that replace Catch's; those of one step are marked."""
        self._num_steps += threading.current_thread().name == "worker"
        data = self._mark if self._num_steps == FOLLOWED else bytes(SIZE)
        return np.frombuffer(data * env.num_envs, np.uint8).reshape(env.num_envs, ROWS, COLUMNS, 1)

    def profile(self, frame: FrameType, event: str, value: Any) -> None:
        """Notes the file of a call or return, and its caller's, if the observation or an action is passed on."""
        code = frame.f_code
        if event not in ("call", "return") or not (file := _file(frame)):
            return
        if end := getattr(self._inside, "end", None):
            self._inside.end = None if end is frame and event == "return" else end
            return
        names = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) - {"self"}
        items = list(_flat(value if event == "return" else [frame.f_locals.get(name) for name in names]))
        data = [] if self.chosen else [_bytes(item) for item in items]
        pair = [frame.f_back, frame] if event == "call" else [frame, frame.f_back]
        holders = [(name, found) for found in pair if found and (name := _file(found))]
        shapes = [item.shape for item in items if isinstance(item, jax.core.Tracer)]
        is_traced = any(shape[:1] == (NUM_ENVS,) and math.prod(shape) == NUM_ENVS * SIZE for shape in shapes)
        if any(not traced for traced, *_ in self.notes):
            self.actions += [(name, f.f_code.co_name, x) for name, f in holders for x in data if len(x) < 4096]
            if data and file.startswith("envs/") and code.co_name == "step" and event == "call":
                self.chosen = data[0]
        if is_traced or any(self._mark in found for found in data):
            for name, holder in holders:
                self._note(is_traced, name, holder, entered=event == "call" and holder is frame)
        if is_traced and event == "call" and file.startswith(("agents/", "replay/ring_store.py")):
            self._inside.end = frame

    def _note(self, is_traced: bool, file: str, frame: FrameType, *, entered: bool) -> None:
        side = (is_traced, threading.current_thread().name in ("worker", "seedzero-client"), file)
        outer = (_file(found) for found, _ in traceback.walk_stack(frame.f_back))
        again = side in self._sides and file not in self._trail and file not in outer
        self.notes.append((is_traced, len(self.actions), file, frame.f_code.co_name, entered and again))
        self._sides.add(side)
        if file != self._trail[-1]:
            self._trail = [self._trail[-1], file]


def _file(frame: FrameType) -> str:
    """Returns the path within the package, or "" for other code."""
    name = frame.f_code.co_filename
    return name[len(PACKAGE) :] if name.startswith(PACKAGE) else ""


def _flat(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yields the arrays and bytes in nested containers."""
    if isinstance(value, (np.ndarray, jax.core.Tracer, bytes, memoryview)):
        yield value
    elif depth < 6:
        value = vars(value) if dataclasses.is_dataclass(value) and hasattr(value, "__dict__") else value
        value = list(value.values()) if isinstance(value, dict) else value
        for item in value if isinstance(value, (tuple, list)) and len(value) <= 100 else ():
            yield from _flat(item, depth + 1)


def _bytes(item: Any) -> bytes:
    """Returns bytes as on the wire, or b"" for large and for traced arrays."""
    if isinstance(item, np.ndarray):
        item = item.astype(np.int32, copy=False) if item.dtype.kind == "i" else item
        return item.tobytes() if item.dtype != object and item.nbytes <= 2**20 else b""
    return b"" if isinstance(item, jax.core.Tracer) else bytes(item)


def main() -> None:
    """Trains for a moment; prints the observation's files until its actions exist, then the actions' files."""
    way = Way()
    catch.ROWS, catch.COLUMNS = ROWS, COLUMNS
    catch.Catch._show = lambda env: way.boards(env)  # type: ignore[method-assign]
    threading.setprofile(way.profile)
    sys.setprofile(way.profile)
    with tempfile.TemporaryDirectory() as folder:
        server, stop = f"unix:{folder}/socket", threading.Event()
        options = worker_options.WorkerOptions(server=server)
        threading.Thread(target=lambda: worker.run(options, stop=stop), name="worker").start()
        settings: dict[str, Any] = dict(workers=0, listen=server, agent=(*sys.argv[1:], "vtrace")[0])
        settings |= {"max_env_steps": 40 * NUM_ENVS, "stop_at_return": "inf", "evaluation.every_updates": 0}
        settings |= dict.fromkeys(["batcher.max_batch", "worker.envs_per_group", "replay.num_slots"], NUM_ENVS)
        settings |= {"worker.num_groups": 1}
        try:
            seedzero.train("catch", run_dir=f"{folder}/run", **settings)
        finally:
            sys.setprofile(None)
            stop.set()
    back = [(file, function) for file, function, data in way.actions if way.chosen in data]
    last = next(index for index, (*_, data) in enumerate(way.actions) if way.chosen in data)
    there = sorted((note for note in way.notes if note[0] or note[1] <= last), key=lambda note: note[0])
    for title, found in (("observation", [note[2:4] for note in there]), ("action", back)):
        files = list(dict.fromkeys(file for file, _ in found))
        print(f"{title}: {len(files)} files")
        for number, file in enumerate(files, 1):
            print(f"{number:3} {file:32} {' '.join(dict.fromkeys(name for other, name in found if other == file))}")
    print("entered again:", " ".join(dict.fromkeys(f"{note[2]}:{note[3]}" for note in there if note[4])) or "none")


if __name__ == "__main__":
    main()
