from __future__ import annotations

from seedzero.monitoring import hosts_line


def test_other_hosts_are_told_of_once_a_minute_if_anything_changed() -> None:
    line = hosts_line.HostsLine()
    assert line.observe(0, []) == ""
    assert line.observe(1, ["host 1: 3 steps", "host 2: 4 steps"]) == "host 1: 3 steps; host 2: 4 steps"
    assert line.observe(30, ["host 1: 5 steps"]) == ""
    assert line.observe(61, ["host 1: 5 steps"]) == "host 1: 5 steps"
    assert line.observe(200, ["host 1: 5 steps"]) == ""
