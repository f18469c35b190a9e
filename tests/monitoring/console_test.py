"""The live line, plain lines and messages."""

import dataclasses
import io
import os
import re
import sys

import pytest

from seedzero.monitoring import console

FULL = console.ConsoleSnapshot(
    seconds=3723.0,
    env_steps=12_345_678,
    updates=48_200,
    frames_per_second=25_300.0,
    updates_per_second=48.25,
    mean_return=-12.345,
    evaluation=15.5,
    samples_per_insert=4.01,
    batch_fill=0.934,
    policy_age=1.25,
    budget_seconds=605.0,
    durable_update=48_000,
)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FullDisk(io.StringIO):
    """A stream that cannot be written; sizes: of the texts that came."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def write(self, text: str) -> int:
        self.sizes.append(len(text))
        raise OSError(28, "No space left on device")


def _drawn(*, live: bool = True, width: int = 80) -> tuple[console.Console, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    return console.Console(10.0, stream=stream, live=live, width=width, clock=clock), stream, clock


def test_plain_line_has_every_field() -> None:
    line = console.line_of(FULL)
    assert re.split("  +", line) == [
        *("1:02:03", "12.3M steps", "25.3k frames/s", "48.2 updates/s", "return -12.35", "eval 15.5", "spi 4.01"),
        *("fill 93%", "age 1.25", "budget 10:05", "saved 48k"),
    ]


def test_a_game_of_two_players_shows_the_first_mover_s_return() -> None:
    line = console.line_of(dataclasses.replace(FULL, num_players=2))
    assert "  first mover -12.35  " in line and "return" not in line


def test_what_is_not_known_is_a_dash() -> None:
    line = console.line_of(console.ConsoleSnapshot(seconds=5.0, env_steps=0, updates=0))
    names = ("steps", "frames/s", "updates/s", "return", "eval", "spi", "fill", "age", "budget", "saved")
    assert [part.replace("-", "").strip() for part in line.split("  ")[1:]] == ["0 steps", *names[1:]]
    assert line.startswith("0:05  0 steps  - frames/s  - updates/s  return -  ")


def test_line_of_80_columns_leaves_out_the_least_important_fields() -> None:
    line = console.line_of(FULL, 80)
    assert console.line_of(FULL).startswith(line) and len(line) <= 80 and line.endswith("  eval 15.5")


def test_note_is_more_important_than_rates() -> None:
    stalled = dataclasses.replace(FULL, note="stalled: no worker")
    assert console.line_of(stalled, 60) == "12.3M steps  return -12.35  eval 15.5  stalled: no worker"
    assert console.line_of(stalled, 70).startswith("1:02:03  12.3M ")
    assert console.line_of(stalled).endswith("  stalled: no worker")


@pytest.mark.parametrize("width", [5, 20, 40, 79, 80, 100, 200])
def test_line_never_exceeds_the_width(width: int) -> None:
    assert len(console.line_of(FULL, width)) <= width
    assert console.line_of(FULL, width).startswith("12.3M"[:width] if width < 50 else "1:02:03")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (7, "7"),
        (0.256, "0.26"),
        (9.99, "9.99"),
        (99.96, "100"),
        (950, "950"),
        (999.6, "1.00k"),
        (1000, "1k"),
        (12_345, "12.3k"),
        (999_600, "1.00M"),
        (2_500_000_000, "2.50G"),
    ],
)
def test_counts_are_short(value: float, text: str) -> None:
    assert console._count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (65.9, "1:05"), (3723, "1:02:03"), (172_799, "47:59:59"), (187_200, "2d04h")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert console._duration(seconds) == text


def test_eta_is_the_nearest_budgets() -> None:
    steps, updates, none = (1000, 400, 10.0), (100, 50, 2.0), (0, 400, 10.0)
    assert console.budget_seconds(none, steps, none) == 60.0
    assert console.budget_seconds(none, steps, updates) == 25.0
    assert console.budget_seconds((15.0, 10.0, 1.0), steps, updates) == 5.0
    assert console.budget_seconds(none, (100, 400, 10.0)) == 0.0
    assert console.budget_seconds(none, none, none) is None
    assert console.budget_seconds((float("inf"), 400, 10.0)) is None
    assert console.budget_seconds((float("inf"), 400, 10.0), updates) == 25.0
    assert console.budget_seconds(none, (1000, 400, 0.0)) is None


@pytest.mark.parametrize(
    ("every_seconds", "pauses"),
    [
        (10.0, [(0.0, ""), (9.9, ""), (0.2, ""), (9.0, ""), (1.1, "")]),
        # a run that stands still has lines more often than the user asked
        (60.0, [(0.0, ""), (20.0, ""), (0.0, "compiling"), (9.0, "compiling"), (1.0, "x")]),
    ],
)
def test_without_a_terminal_a_plain_line_comes_every_interval(
    every_seconds: float, pauses: list[tuple[float, str]]
) -> None:
    stream, clock = io.StringIO(), Clock()
    shown = console.Console(every_seconds, stream=stream, clock=clock)
    for step, (seconds, note) in enumerate(pauses):
        clock.now += seconds
        shown.update(console.ConsoleSnapshot(seconds=0.0, env_steps=step, updates=0, note=note))
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["0", "2", "4"]
    assert "\x1b" not in stream.getvalue()


def test_while_programs_are_compiled_each_has_one_line_without_zeros() -> None:
    stream, clock = io.StringIO(), Clock()
    shown = console.Console(10.0, stream=stream, clock=clock)
    acting, update = "compiling acting (2 of 3)", "compiling the update (3 of 3)"
    for seconds, steps, note in ((1, 0, acting), (11, 0, acting), (15, 0, update), (30, 9, update), (75, 320, update)):
        clock.now = float(seconds)
        shown.update(console.ConsoleSnapshot(float(seconds), steps, 0, note=note, is_preparing=True))
    assert stream.getvalue().splitlines() == [
        "0:01  compiling acting (2 of 3)",
        "0:15  compiling the update (3 of 3)",
        "1:15  compiling the update (3 of 3); 320 steps so far",
    ]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (("[red]workers[/red] " + "x" * 200,), "[red]workers[/red] " + "x" * 200),
        (("worker a\x1b[2J left: bye\nfinished: 100 updates",), "worker a\\x1b[2J left: bye\\nfinished: 100 updates"),
        (("to resume:", "seedzero train --run_dir=" + "x" * 200), "to resume: seedzero train --run_dir=" + "x" * 200),
    ],
)
def test_without_a_terminal_a_message_is_one_line_without_control_characters(
    message: tuple[str, ...], line: str
) -> None:
    stream = io.StringIO()
    console.Console(10.0, stream=stream).message(*message)
    assert stream.getvalue() == f"{line}\n"


def test_live_line_is_redrawn_in_place_below_messages() -> None:
    shown, stream, _ = _drawn()
    line = console.line_of(FULL, 80)
    shown.update(FULL)
    shown.message("[a] worker ended")
    output = stream.getvalue()
    assert output.count("\n") == 1  # the message's; the live line stays open
    assert output.index(line) < output.index("[a] worker ended\n") < output.rindex(line)
    assert "\x1b[2K" in output[output.index(line) :]  # the old one was erased first


def test_on_a_terminal_messages_are_broken_between_words_and_commands_are_not() -> None:
    shown, stream, _ = _drawn(width=20)
    shown.message("workers have joined the run")
    shown.message("to resume:", "seedzero train --run_dir=runs/catch")
    assert stream.getvalue() == ("workers have joined\n  the run\nto resume:\n  seedzero train --run_dir=runs/catch\n")


def test_messages_follow_the_last_line() -> None:
    shown, stream, _ = _drawn()
    shown.update(FULL, last=True)
    shown.message("finished: 60 updates")
    shown.close()
    output = stream.getvalue()
    assert output.rindex(console.line_of(FULL, 80)) < output.index("finished: 60 updates")
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")


def test_live_line_is_drawn_often_but_not_with_every_snapshot() -> None:
    shown, stream, clock = _drawn()
    for step in range(1, 5):
        shown.update(dataclasses.replace(FULL, env_steps=step))
        clock.now += console.DRAW_SECONDS * 0.6
    output = stream.getvalue()
    assert "1 steps" in output and "3 steps" in output and "2 steps" not in output
    shown.close()


@pytest.mark.parametrize("live", [True, False])
def test_the_last_line_is_drawn_whatever_came_just_before(live: bool) -> None:
    shown, stream, _ = _drawn(live=live)
    shown.update(FULL)
    shown.update(dataclasses.replace(FULL, env_steps=3))
    shown.update(dataclasses.replace(FULL, env_steps=7), last=True)
    assert "3 steps" not in stream.getvalue() and "7 steps" in stream.getvalue()
    shown.close()


def test_close_keeps_the_line_and_shows_the_cursor() -> None:
    shown, stream, clock = _drawn()
    shown.update(FULL)
    assert "\x1b[?25l" in stream.getvalue()
    shown.close()
    clock.now += 10.0
    shown.update(dataclasses.replace(FULL, env_steps=7))
    shown.message("done")
    output = stream.getvalue()
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")
    assert "7 steps" not in output and output.endswith("done\n")


def test_closed_stream_is_ignored() -> None:
    stream = io.StringIO()
    stream.close()
    shown = console.Console(1.0, stream=stream, live=False)
    shown.message("lost")
    shown.update(FULL)


@pytest.mark.parametrize("live", [True, False])
def test_failing_stream_is_ignored_and_nothing_piles_up(live: bool) -> None:
    stream, clock = FullDisk(), Clock()
    shown = console.Console(1.0, stream=stream, live=live, width=80, clock=clock)
    for _ in range(20):
        shown.message("lost " * 20)
        shown.update(FULL)
        clock.now += 1.0
    shown.close()
    assert len(stream.sizes) >= 40 and max(stream.sizes) < 300


def test_a_file_is_no_terminal_though_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    shown = console.Console(0.0, stream=stream)
    shown.update(FULL)
    assert stream.getvalue() == console.line_of(FULL) + "\n"


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "budget -"), (90.5, "budget 1:30"), (0.2, "budget 0:01"), (0.0, "budget spent")]
)
def test_a_budget_that_is_spent_is_told_in_words(seconds: float | None, text: str) -> None:
    assert f"  {text}  saved" in console.line_of(dataclasses.replace(FULL, budget_seconds=seconds))


def test_a_process_that_leaves_at_once_has_a_last_line() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb") as read, open(writer, "w") as stream:
        console.Console(10.0, stream=stream, live=False).abandon("left at once\n; updates lost: 3")
        assert read.readline() == b"left at once\\n; updates lost: 3\n"
    console.Console(10.0, stream=io.StringIO()).abandon("a notebook's stream has no file")


class Cell(io.StringIO):
    """Standard error as in a notebook, whose descriptor is that of another place."""

    @property
    def written(self) -> str:
        return self.getvalue()

    def fileno(self) -> int:
        raise AssertionError


class Logger:
    """A program's own standard error, which can be written to alone."""

    written = ""

    def write(self, text: str) -> None:
        self.written += text


@pytest.mark.parametrize("kind", [Cell, Logger])
def test_another_standard_error_gets_the_lines(
    monkeypatch: pytest.MonkeyPatch, kind: type[Cell] | type[Logger]
) -> None:
    stands_in = kind()
    monkeypatch.setattr(sys, "stderr", stands_in)
    shown = console.Console(0.0)
    shown.message("a message")
    shown.close()
    assert stands_in.written == "a message\n"


def test_without_a_standard_error_nothing_is_shown_and_nothing_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "__stderr__", None)
    shown = console.Console(0.0)
    shown.update(FULL)
    shown.message("a message")
    shown.close()
