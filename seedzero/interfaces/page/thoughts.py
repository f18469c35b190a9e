"""Lets agents think about recorded steps, in a separate process because an agent takes JAX, seconds and memory.

A request is a line of JSON on standard input; its answer is a line on standard output after `MARK`, and other output
is ignored. The process ends when its input does.
"""

from __future__ import annotations

import os
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from seedzero.acting.tables import boards
from seedzero.core import errors, json_object, printable
from seedzero.interfaces.page import history
from seedzero.storage.checkpoints import saved_files

MARK = b"\x1e"
MAX_RECORD_BYTES = 512 << 20
MAX_AGENTS = 3
"""Most agents in memory; the least recently requested one is dropped first."""
MAX_CHOICES, MAX_LINES, MAX_NODES, MAX_LETTERS = 64, 12, 500, 2000
"""Limits of an answer: actions, lines, nodes, and letters of a position."""
NICENESS = 19


def serve() -> None:
    """Answers requests until the input ends."""
    os.nice(NICENESS)
    output = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    agents = Agents()
    for line in sys.stdin.buffer:
        content = json_object.encode(agents.answer(json_object.parse(line))).encode()
        with os.fdopen(os.dup(output), "wb") as stream:
            stream.write(b"\n" + MARK + content + b"\n")  # another writer may have left a line half written


class Agents:
    """Keeps agents of checkpoints in memory. Not thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], Any] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the thought that a request asks for, or "error" with the reason why there is none."""
        try:
            return self._think(request)
        except errors.Error as error:
            return {"error": str(error)}
        except Exception as error:  # a user's network may raise anything
            return {"error": f"this step cannot be thought over: {type(error).__name__}: {error}"}

    def _think(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from seedzero.acting.actors import agent_choice
        from seedzero.acting.tables import records, rethinking  # imports JAX

        began = time.monotonic()
        path, file = pathlib.Path(request["run_dir"]), pathlib.Path(request["record"])
        step, player, num_simulations = request["step"], request["player"], request["num_simulations"]
        try:
            with history.opened(file) as stream:
                found = records.read(stream, file, MAX_RECORD_BYTES)
        except OSError as error:
            raise errors.UsageError(f"{file.name} cannot be read: {error.strerror or error}") from None
        stamp = (player,) if player else _stamp(path / "checkpoints", step)  # frozen players never change
        key = (path, *stamp, str(found.header.get("policy")), num_simulations)
        key = (*key, str(found.header.get("num_simulations")))
        choice = agent_choice.AgentChoice(path, step, player, trusted=request["trusted"])
        agent = self._kept.pop(key, None) or rethinking.load(choice, found.header, num_simulations)
        self._kept[key] = agent
        if len(self._kept) > MAX_AGENTS:
            del self._kept[next(iter(self._kept))]
        loaded = time.monotonic()
        thought = agent.think(found, request["number"])
        is_known = thought.root is not None and thought.root.position is not None
        frames = {} if is_known else agent.nearest(found, request["number"], thought)
        seconds = {"load_seconds": loaded - began, "seconds": time.monotonic() - loaded}
        return {**shown(thought.to_json(), {node: one._asdict() for node, one in frames.items()}), **seconds}


def _stamp(directory: pathlib.Path, step: saved_files.Step) -> tuple[Any, ...]:
    """Returns a checkpoint's update and the time of its directory, which differs if another agent replaced it."""
    kind = saved_files.BEST if step == "best" else saved_files.STEPS
    number = max(saved_files.finished(directory / kind), default=0) if isinstance(step, str) else step
    for place in (directory / kind, directory / saved_files.BEST):
        try:
            return number, (place / f"{number:012d}").stat().st_mtime_ns
        except OSError:
            continue
    return step, 0


def shown(thought: Mapping[str, Any], frames: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a thought as JSON with the likeliest actions and most visited nodes. frames: by node."""
    choices, nodes = thought["choices"], thought.get("nodes", ())
    order = sorted(choices, key=lambda choice: (-choice["policy"], -(choice["visits"] or 0), choice["number"]))
    # A parent has more visits than its children, so no kept node lacks its parent.
    most = sorted(nodes, key=lambda node: (-node["visits"], node["number"]))[:MAX_NODES]
    kept = {node["number"] for node in most}
    return {
        **{name: thought[name] for name in ("env", "agent", "step", "action", "name")},
        **{name: thought[name] for name in ("value", "network_value", "num_simulations")},
        "choices": [{**choice, "is_taken": choice["name"] == thought["name"]} for choice in order[:MAX_CHOICES]],
        "num_choices": len(choices),
        "lines": [_line(line, kept) for line in thought.get("lines", ())[:MAX_LINES]],
        "nodes": [_node(node, kept, frames, thought["env"]) for node in sorted(most, key=lambda node: node["number"])],
        "num_nodes": len(nodes),
    }


def _line(line: Mapping[str, Any], kept: set[int]) -> dict[str, Any]:
    return {
        **line,
        "text": line["text"][:MAX_LETTERS],
        "nodes": [number for number in line["nodes"] if number in kept],
    }


def _node(
    node: Mapping[str, Any], kept: set[int], frames: Mapping[int, Mapping[str, Any]], env_id: str
) -> dict[str, Any]:
    children: Sequence[int] = [number for number in node["children"] if number in kept]
    position = node["position"] and printable.escape_lines(node["position"][:MAX_LETTERS])
    board = position and boards.board_of(env_id, position)
    return {**node, "children": children, "position": position, "board": board, "frame": frames.get(node["number"])}
