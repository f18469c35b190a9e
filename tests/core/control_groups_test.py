"""Limits of containers and other control groups, of both versions, as files below a root."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

import pytest

from seedzero.config import machines
from seedzero.core import control_groups

GIB = 2**30
_V1 = "sys/fs/cgroup/memory"


def _root(path: pathlib.Path, files: Mapping[str, object]) -> pathlib.Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{text}\n")
    return path


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        ({"sys/fs/cgroup/cpu.max": "400000 100000"}, 4),
        ({"sys/fs/cgroup/cpu.max": "150000 100000"}, 2),
        ({"sys/fs/cgroup/cpu.max": "1000 100000"}, 1),
        ({"proc/self/cgroup": "0::/slurm/job_7", "sys/fs/cgroup/slurm/job_7/cpu.max": "400000 100000"}, 4),
        ({"proc/self/cgroup": "0::/slurm/job_7", "sys/fs/cgroup/slurm/cpu.max": "400000 100000"}, 4),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": 400_000, "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100_000}, 4),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": -1, "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100_000}, None),
        (
            {
                "proc/self/cgroup": "4:memory:/\n1:cpu,cpuacct:/docker/ab",  # the host's path, which is not mounted
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": 400_000,
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": 100_000,
            },
            4,
        ),
    ],
)
def test_a_share_of_processor_time_is_worth_cores(
    files: Mapping[str, object], expected: int | None, tmp_path: pathlib.Path
) -> None:
    assert control_groups.num_cores(_root(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"sys/fs/cgroup/memory.max": 8 * GIB, "sys/fs/cgroup/memory.current": GIB}, 7 * GIB),
        ({"sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/memory.current": GIB}, None),
        (
            {
                "proc/self/cgroup": "0::/slurm/job_7",
                "sys/fs/cgroup/slurm/job_7/memory.max": 8 * GIB,
                "sys/fs/cgroup/slurm/job_7/memory.current": GIB,
                "sys/fs/cgroup/slurm/job_7/memory.stat": f"anon 1\ninactive_file {GIB // 2}",
            },
            7.5 * GIB,
        ),
        ({f"{_V1}/memory.limit_in_bytes": 8 * GIB, f"{_V1}/memory.usage_in_bytes": GIB}, 7 * GIB),
        (
            {
                "proc/self/cgroup": "4:memory:/job",
                f"{_V1}/job/memory.limit_in_bytes": 8 * GIB,
                f"{_V1}/job/memory.usage_in_bytes": GIB,
                f"{_V1}/job/memory.stat": f"inactive_file 0\ntotal_inactive_file {GIB // 2}",
                f"{_V1}/memory.limit_in_bytes": 2**63 - 4096,
                f"{_V1}/memory.usage_in_bytes": 90 * GIB,
            },
            7.5 * GIB,
        ),
    ],
)
def test_the_memory_below_the_smallest_limit_is_free(
    files: Mapping[str, object], expected: float | None, tmp_path: pathlib.Path
) -> None:
    assert control_groups.free_bytes(_root(tmp_path, files)) == expected


def test_a_container_has_no_more_cores_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    for found, expected in ((4, 4), (None, 64), (128, 64)):
        monkeypatch.setattr(control_groups, "num_cores", lambda found=found: found)
        assert machines.num_cores() == expected
