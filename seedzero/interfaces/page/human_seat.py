"""A person's seat on the page: shows the position of one game as JSON, and takes the person's moves.

Everything here runs on threads, one call at a time. Answers contain only what the person's seat may see.
"""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette import concurrency, requests, responses

from seedzero.acting.tables import boards
from seedzero.core import errors, json_object, printable
from seedzero.interfaces.page import catalogue, guard, thoughts

if TYPE_CHECKING:
    from seedzero.acting.tables import human_table

PATH = "/api/play"
_MAX_BYTES = 4096
_WORDS = ("move", "undo", "resign", "new", "sides")

RESIGNED = "resigned"
"""The same value as in `tables.human_table`, which imports environments."""


class StaleMove(errors.UsageError):
    """The move is for an earlier position, for example from another window."""


class HumanSeat:
    """Answers requests about one table. Thread-safe."""

    def __init__(self, table: human_table.HumanTable, folder: pathlib.Path) -> None:
        """folder: for the records."""
        self._table, self._folder, self._lock = table, folder, threading.Lock()
        self._turn = 0  # number of the current position in this session

    def answers(self) -> Mapping[str, Callable[[requests.Request], dict[str, Any]]]:
        """Returns the endpoints by path."""
        return {f"{PATH}/state": self.state, f"{PATH}/hint": self.hint, f"{PATH}/think": self.think}

    def state(self, request: requests.Request | None = None) -> dict[str, Any]:
        """Returns the position as the person sees it, the legal moves, and the tally."""
        with self._lock:
            return self._state()

    def hint(self, request: requests.Request) -> dict[str, Any]:
        """Returns the move that the agent would make for the person."""
        with self._lock:
            move = self._table.hint()
            return {"action": move.action, "name": printable.escape(move.name)}

    def think(self, request: requests.Request) -> dict[str, Any]:
        """Returns the agent's thought about the person's position."""
        with self._lock:
            return thoughts.shown(self._table.think().to_json(), {})

    def act(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Carries out what the person asks for, and returns the new position.

        asked: `do` is "move", "undo", "resign", "new" or "sides"; `turn` is the position that the person saw; a move
        has an `action`. Raises UsageError if it is impossible.
        """
        with self._lock:
            word, table = asked.get("do"), self._table
            if word not in _WORDS:
                raise catalogue.BadQuery(f"do: expected one of {', '.join(_WORDS)}")
            if asked.get("turn") != self._turn:
                raise StaleMove("the game has gone on in another window; this is its present position")
            self._turn += 1
            if word == "move":
                table.play(asked.get("action"))  # type: ignore[arg-type]  # the table rejects illegal moves
            elif word == "undo":
                table.undo()
            elif word == "resign":
                table.end(RESIGNED)
            else:
                try:
                    table.finish(self._folder)
                finally:  # without its record, too
                    table.begin((table.seat + (word == "sides")) % len(table.seats))
            return self._state()

    def finish(self) -> None:
        """Records the game in its present state."""
        with self._lock:
            self._table.finish(self._folder)

    def _state(self) -> dict[str, Any]:
        table, moves = self._table, self._table.moves()
        (outcome, total), text = table.result(), table.text()
        return {
            "turn": self._turn,
            "env": printable.escape(table.saved.config.env.id),
            "seats": list(map(printable.escape, table.seats)),
            "seat": table.seat,
            "text": printable.escape_lines(text),
            "board": boards.board_of(table.saved.config.env.id, text, [move.action for move in moves]),
            "moves": [{"action": action, "name": printable.escape(name)} for action, name in moves],
            "names": list(map(printable.escape, table.names)),
            "has_undo": table.has_undo,
            "is_over": table.is_over,
            "outcome": outcome,
            "total": json_object.number(total, 7),
            **table.to_json(),
            "records": len(table.records),
        }


def endpoint(seat: HumanSeat) -> Callable[[requests.Request], Any]:
    """Returns the POST endpoint that takes the person's requests, as JSON of at most a few kilobytes."""

    async def post(request: requests.Request) -> responses.Response:
        if (content := await guard.read_up_to(request, _MAX_BYTES)) is None:
            return responses.JSONResponse({"error": f"a move has at most {_MAX_BYTES} bytes"}, 413)
        try:
            found = await concurrency.run_in_threadpool(seat.act, json_object.parse(content))
        except ValueError as error:
            return responses.JSONResponse({"error": f"expected a JSON object ({error})"}, 400)
        except errors.Error as error:
            state = await concurrency.run_in_threadpool(seat.state)
            return responses.JSONResponse({"error": printable.escape(str(error)), "state": state}, 409)
        return responses.Response(json_object.encode(found), media_type="application/json")

    return post
