"""Processor time and memory of a learner and its programs, by numbers of processes that do not exist."""

from __future__ import annotations

import os
import pathlib
import resource
from collections.abc import Mapping

from seedzero.monitoring import usage

_MIB = 2**20


def _use(parent: int, cpu_seconds: float, mib: int) -> usage.ProcessUse:
    return usage.ProcessUse(parent, cpu_seconds, mib * _MIB)


def _usage(*reads: Mapping[int, usage.ProcessUse], device: int | None = None) -> usage.Usage:
    waiting = iter(reads)
    return usage.Usage(lambda: device, lambda: next(waiting), 10)


def test_a_row_has_the_share_of_a_core_since_the_last_one() -> None:
    measured = _usage(
        {1: _use(0, 99.0, 9), 10: _use(1, 4.0, 100), 11: _use(10, 1.0, 20)},
        # 12 is a worker's own program; 13 is another user's
        {
            1: _use(0, 999.0, 9),
            10: _use(1, 7.0, 150),
            11: _use(10, 2.0, 30),
            12: _use(11, 3.0, 5),
            13: _use(1, 8.0, 7),
        },
        # 11 ended and another program got its number
        {1: _use(0, 999.0, 9), 10: _use(1, 7.0, 150), 11: _use(10, 0.5, 1)},
        device=5,
    )
    assert measured.row(10.0) == {
        "learner_cpu_percent": 30.0,  # 3 s of 10
        "learner_memory_bytes": 150 * _MIB,
        "workers_cpu_percent": 40.0,  # 1 s and 3 s
        "workers_memory_bytes": 35 * _MIB,
        "device_memory_bytes": 5,
    }
    assert measured.row(12.0) == {
        "learner_cpu_percent": 0.0,
        "learner_memory_bytes": 150 * _MIB,
        "workers_cpu_percent": 0.0,
        "workers_memory_bytes": _MIB,
        "device_memory_bytes": 5,
    }


def test_what_is_unknown_is_left_out() -> None:
    assert _usage({}, {}).row(10.0) == {}  # without /proc, on a CPU
    alone = {10: _use(1, 4.0, 100)}
    assert _usage(alone, alone).row(0.0) == {"learner_memory_bytes": 100 * _MIB}


def test_a_read_that_fails_is_left_out_and_the_next_row_spans_both() -> None:
    measured = _usage({10: _use(1, 4.0, 100)}, {}, {10: _use(1, 6.0, 100)})
    assert measured.row(10.0) == {}
    assert measured.row(20.0)["learner_cpu_percent"] == 10.0  # 2 s of 20


def test_without_a_free_descriptor_no_process_is_known() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert usage.processes() == {}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_processes_are_read_whatever_their_names(tmp_path: pathlib.Path) -> None:
    ticks, page_bytes = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    numbers = ["0"] * 49  # the fields from the fourth
    numbers[0], numbers[10], numbers[11], numbers[20] = "7", str(3 * ticks), str(2 * ticks), "4"
    for pid, name in (("8", b"a (b) c"), ("9", b"\xff")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "stat").write_bytes(pid.encode() + b" (" + name + b") S " + " ".join(numbers).encode())
    (tmp_path / "self").mkdir()
    (tmp_path / "5" / "stat").mkdir(parents=True)  # cannot be read, as of one that has ended meanwhile
    one = usage.ProcessUse(7, 5.0, 4 * page_bytes)
    assert usage.processes(tmp_path) == {8: one, 9: one}
    assert usage.processes(tmp_path / "none") == {}
    found = usage.processes()
    assert not found or (found[os.getpid()].parent == os.getppid() and found[os.getpid()].memory_bytes > _MIB)
