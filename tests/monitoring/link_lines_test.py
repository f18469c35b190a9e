"""What is shown of links, from sessions with measurements made up by hand."""

from __future__ import annotations

from seedzero.core import types
from seedzero.monitoring import link_lines
from seedzero.transport import links, messages

NEAR = links.WorkerLink(2, 16, 0.01, 0.02, 0.0012, 0.002, 5_000.0, is_complete=True)
FAR = NEAR._replace(step_seconds=0.001, turn_seconds=0.001, round_trip_seconds=0.099)


def _session(name: str, link: links.WorkerLink | None, role: types.Role = types.Role.TRAIN) -> messages.Presence:
    return messages.Presence("id", name, role, 2, 16, "steps", 0.1, link)


PRESENT = [
    _session("new", None),
    _session("near", NEAR),
    _session("far", FAR),
    _session("judge", FAR, types.Role.EVALUATE),
]


def test_a_row_sums_up_the_workers_that_train() -> None:
    assert link_lines.row(PRESENT[:1]) == {}
    assert link_lines.row(PRESENT[:2])[link_lines.HIDING] == 0
    assert link_lines.row(PRESENT) == {
        "round_trip_seconds": 0.099,
        "link_bytes_per_second": 10_000.0,
        "link_environments_needed": 16 * 102,
    }


def test_a_link_that_is_the_limit_is_reported_once_for_each_worker() -> None:
    line = link_lines.LinkLine()
    assert line.observe(0.0, PRESENT[:2]) == ""
    text = line.observe(1.0, PRESENT)
    for fact in (" far: ", " 32 environments ", " 99 ms ", " 320 steps/s", " 1632 ", "--replay.num_slots"):
        assert fact in text
    others = [*PRESENT, *(_session(f"w{number}", FAR) for number in range(5))]
    assert line.observe(2.0, others) == ""  # a minute apart
    assert " w0, w1, w2, 2 more: " in line.observe(61.0, others)
    assert line.observe(200.0, others) == ""
    assert line.observe(300.0, PRESENT[:2]) == "" and " far: " in line.observe(400.0, PRESENT)  # it came again
