"""Draws the console during training: a live line on a terminal or plain lines elsewhere, with messages above."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

import rich.console
import rich.live
import rich.text

from seedzero.core import printable

DRAW_SECONDS = 0.2
"""Shortest time between two drawings of the live line."""
QUIET_SECONDS = 10.0
"""Longest time between two plain lines while a run makes no progress."""
LOG_SECONDS = 60.0
"""Time between two lines of the state in the file that keeps the console's messages."""
PREPARING_SECONDS = 60.0
"""Time between two plain lines while the same program is being compiled."""
SHOW_CURSOR = b"\x1b[?25h\n"


@dataclasses.dataclass(frozen=True)
class ConsoleSnapshot:
    """The state of training at one moment; None means not known yet."""

    seconds: float  # since this run began
    env_steps: int  # of training, including earlier processes
    updates: int  # including earlier processes
    frames_per_second: float | None = None  # recent; of emulators in training environments, or steps if there is none
    updates_per_second: float | None = None  # recent
    mean_return: float | None = None  # of recent training episodes
    num_players: int = 1  # with two, mean_return is the first mover's
    evaluation: float | None = None  # mean return
    samples_per_insert: float | None = None  # windows trained on per stored step, so far
    batch_fill: float | None = None  # share of acting batches' rows that hold an environment, in [0, 1]
    policy_age: float | None = None  # updates between the acting parameters and the newest ones
    budget_seconds: float | None = None  # until the nearest budget is used
    durable_update: int | None = None  # of the newest checkpoint on disk
    more: tuple[tuple[str, float | None], ...] = ()  # more metrics by name
    infos: tuple[tuple[str, float], ...] = ()  # numbers that the environment reports, by name
    note: str = ""  # why training makes no progress, or when it begins to learn, or ""
    is_preparing: bool = False  # the note says what is built or compiled, before there are numbers to show


class Console:
    """Draws snapshots and prints messages on a stream. For one thread; `background.Screen` serves many.

    Ignores errors of the stream, such as a full disk, because they must not end training.
    """

    def __init__(
        self,
        every_seconds: float,
        *,
        stream: TextIO | None = None,
        live: bool | None = None,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepares the console.

        Args:
          every_seconds: time between plain lines.
          stream: for the output; None means standard error.
          live: whether to draw a live line; None: if the stream is a terminal with a movable cursor.
          width: columns of the live line; None: the terminal's.
        """
        self._stream = stream or _stderr()
        # rich would take a file for a terminal if FORCE_COLOR is set, as continuous integration does
        terminal = _is_terminal(self._stream) if live is None else live
        self._console = rich.console.Console(
            file=self._stream, width=width, force_terminal=terminal, markup=False, highlight=False, emoji=False
        )
        self._is_live = self._console.is_terminal and not self._console.is_dumb_terminal if live is None else live
        self._live: rich.live.Live | None = None
        self._redirects = stream is None
        self._every_seconds = DRAW_SECONDS if self._is_live else every_seconds
        self._clock = clock
        self._shown_at = self._logged_at = -math.inf
        self._prepared = ""
        self._closed = False
        self._log: io.FileIO | None = None

    def keep(self, file: io.FileIO) -> None:
        """Writes all messages from now on to an open file, too, with a line of the state a minute."""
        self._log = file

    def log(self, text: str) -> None:
        """Writes a text to that file alone. If that fails, it prints a message, and stops writing there."""
        if self._log is None:
            return
        try:
            self._log.write(f"{text}\n".encode(errors="backslashreplace"))
        except OSError as error:
            name, self._log = self._log.name, None
            self.message(f"{name} cannot be written: {error.strerror}; what follows is not kept there")

    def update(self, snapshot: ConsoleSnapshot, *, last: bool = False) -> None:
        """Shows a snapshot, unless one was shown just before and another will follow."""
        if not self._closed and (last or self._clock() >= self._logged_at + LOG_SECONDS):
            self._logged_at = self._clock()
            self.log(line_of(snapshot))
        pause = min(self._every_seconds, QUIET_SECONDS) if snapshot.note else self._every_seconds
        preparing = snapshot.note if snapshot.is_preparing and not self._is_live else ""
        if preparing:
            pause = PREPARING_SECONDS if preparing == self._prepared else 0.0
        self._prepared = preparing
        with self._trying():
            if self._closed or (self._clock() < self._shown_at + pause and not last):
                return
            self._shown_at = self._clock()
            if self._is_live:
                self._draw(line_of(snapshot, self._console.width))
                if last:
                    self._end_line()
            else:
                print(line_of(snapshot), file=self._stream, flush=True)

    def message(self, text: str, command: str = "") -> None:
        """Prints a message above the live line; escapes unprintable characters.

        command: a command line to copy, printed at the end; a terminal gets it unbroken where the text is wrapped.
        """
        self.log(printable.with_command(printable.escape(text), printable.escape(command), None))
        width = self._console.width if self._is_live else None
        text = printable.with_command(printable.escape(text), printable.escape(command), width)
        with self._trying():
            if self._is_live:
                self._console.print(rich.text.Text(text), soft_wrap=True)
            else:
                print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Ends the live line and restores the terminal."""
        with self._trying():
            self._closed = True
            if self._log is not None:
                self._log.close()
                self._log = None
            self._end_line()
            if self._redirects and self._stream is not sys.stderr:
                self._stream.close()

    def abandon(self, text: str) -> None:
        """Restores the terminal and prints a last line without waiting.

        Any thread may call it, if the process exits at once.
        """
        with contextlib.suppress(OSError, ValueError):
            if select.select((), (self._stream,), (), 0)[1]:
                last = f"{printable.escape(text)}\n".encode(errors="backslashreplace")
                os.write(self._stream.fileno(), (SHOW_CURSOR if self._live else b"") + last)

    @contextlib.contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._is_live = False  # rich would collect all later output

    def _end_line(self) -> None:
        """Leaves the live line in place; messages follow below it."""
        if self._live:
            self._live.stop()
        self._live = None

    def _draw(self, line: str) -> None:
        text = rich.text.Text(line, no_wrap=True, overflow="crop")
        if self._live is None:
            self._live = rich.live.Live(
                text,
                console=self._console,
                auto_refresh=False,
                redirect_stdout=False,  # standard output may be a pipe, and its reader still there
                redirect_stderr=self._redirects,
            )
            self._live.start()
        self._live.update(text, refresh=True)


def _stderr() -> TextIO:
    """Returns a duplicate of standard error, because a blocked write would hold sys.stderr's lock at exit.

    A notebook replaces sys.stderr, whose descriptor leads to its server's terminal; that one is returned as it is.
    """
    stream = printable.standard_error()
    if stream != sys.__stderr__:
        return stream
    try:
        return os.fdopen(os.dup(stream.fileno()), "w", errors="backslashreplace")
    except (OSError, ValueError):  # closed, or not a file
        return stream


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def line_of(snapshot: ConsoleSnapshot, width: int | None = None) -> str:
    """Returns a line of at most `width` columns (None: any).

    If it is narrow, the least important fields are left out.
    """
    if snapshot.is_preparing:
        steps = f"; {_count(snapshot.env_steps)} steps so far" if snapshot.env_steps else ""
        return f"{_duration(snapshot.seconds)}  {snapshot.note}{steps}"[:width]
    fields = _fields(snapshot)
    while width is not None and len(fields) > 1 and len(_join(fields)) > width:
        fields.remove(max(fields))
    return _join(fields)[:width]


def budget_seconds(*budgets: tuple[float, float, float]) -> float | None:
    """Returns the time until the first budget is used; None without a budget or a rate.

    budgets: (limit, used, used per second) of each; limit is 0 or infinite where there is none.
    """
    remaining = [(most - spent) / rate for most, spent, rate in budgets if 0 < most < math.inf and rate > 0]
    return max(0.0, min(remaining)) if remaining else None


def _fields(snapshot: ConsoleSnapshot) -> list[tuple[int, str]]:
    """Returns the fields in display order, each as (rank, text); a narrow line leaves out high ranks first."""
    seconds = snapshot.budget_seconds
    left = "-" if seconds is None else _duration(max(1.0, seconds))  # rounded up to whole seconds
    ranked = [
        (4, _duration(snapshot.seconds)),
        (0, f"{_count(snapshot.env_steps)} steps"),
        (5, f"{_count(snapshot.frames_per_second)} frames/s"),
        (6, f"{_count(snapshot.updates_per_second)} updates/s"),
        (2, f"{'return' if snapshot.num_players == 1 else 'first mover'} {_number(snapshot.mean_return)}"),
        (3, f"eval {_number(snapshot.evaluation)}"),
        (8, f"spi {_number(snapshot.samples_per_insert)}"),
        (9, f"fill {'-' if snapshot.batch_fill is None else f'{snapshot.batch_fill:.0%}'}"),
        (11, f"age {_number(snapshot.policy_age)}"),
        (7, "budget spent" if seconds == 0 else f"budget {left}"),
        (10, f"saved {_count(snapshot.durable_update)}"),
        *((1, f"{name} {_number(value)}") for name, value in snapshot.more),
        *((3, f"{name} {_number(value)}") for name, value in snapshot.infos),
    ]
    return [*ranked, (1, snapshot.note)] if snapshot.note else ranked


def _join(fields: list[tuple[int, str]]) -> str:
    return "  ".join(text for _, text in fields)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _count(value: float | None) -> str:
    """Formats a number with at most five characters: 950, 12.3k, 1.23M."""
    if value is None:
        return "-"
    units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    factor, unit = next((pair for pair in units if value >= 0.9995 * pair[0]), (1.0, ""))
    value /= factor
    digits = 0 if value == round(value) or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}{unit}"


def _duration(seconds: float) -> str:
    """Formats a duration: 4:05, 1:02:03 or 3d04h."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d{hours % 24:02}h"
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
