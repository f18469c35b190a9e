"""What commands print."""

from __future__ import annotations

import pytest

from seedzero.cli import output


def test_progress_is_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    tell = output.progress("episodes", clock=lambda: now[0])
    for seconds, done in [(1.0, 1), (10.0, 4), (11.0, 5), (19.9, 6), (20.0, 7)]:
        now[0] = 100.0 + seconds
        tell(done, 200)
    assert capsys.readouterr().err.splitlines() == ["seedzero: 4 of 200 episodes", "seedzero: 7 of 200 episodes"]


def test_what_is_not_printable_is_escaped_in_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.say("two\nlines \x1b[31m", "seedzero train --run_dir=\x1b[2J\udcff")
    assert capsys.readouterr().err == ("seedzero: two\nlines \\x1b[31m seedzero train --run_dir=\\x1b[2J\\udcff\n")
