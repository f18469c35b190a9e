"""Reads the limits of this process's control groups, such as those of a container: processor time and memory.

Linux has two versions. In the second one a group has all controllers; in the first one each controller has groups of
its own. A container shows its group as the root of /sys/fs/cgroup, while /proc may name the host's path of it.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path("/")


def _groups(controller: str, root: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields the process's groups and those above, whose limits count, too. root: of the file system."""
    mount, paths = root / "sys/fs/cgroup", dict[str, str]()
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            paths |= dict.fromkeys(controllers.split(","), path)
    for place, path in ((mount, paths.get("", "/")), (mount / controller, paths.get(controller, "/"))):
        own = pathlib.PurePosixPath(path.lstrip("/"))
        yield from (place / part for part in (own, *own.parents) if ".." not in part.parts)


def _read(file: pathlib.Path) -> list[str]:
    """Returns a file's words; [] if it does not exist."""
    with contextlib.suppress(OSError):
        return file.read_text().split()
    return []


def num_cores(root: pathlib.Path = ROOT) -> int | None:
    """Returns how many cores the limit of processor time is worth, rounded up; None without a limit."""
    found = []
    for group in _groups("cpu", root):
        quota, period = (*_read(group / "cpu.max"), "max", "1")[:2]
        if quota == "max":
            quota, period = (*_read(group / "cpu.cfs_quota_us"), *_read(group / "cpu.cfs_period_us"), "-1", "1")[:2]
        if quota.isdecimal() and period.isdecimal() and int(period):
            found.append(max(1, math.ceil(int(quota) / int(period))))
    return min(found, default=None)


def free_bytes(root: pathlib.Path = ROOT) -> int | None:
    """Returns the memory left below the limit, with cached files, which are given up first; None without a limit."""
    found = []
    for group in _groups("memory", root):
        limit = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")
        used = _read(group / "memory.current") or _read(group / "memory.usage_in_bytes")
        if not used or not limit or not limit[0].isdecimal():
            continue
        words = _read(group / "memory.stat")
        kinds = dict(zip(words[::2], words[1::2], strict=False))
        cached = (kinds.get(f"total_{name}", kinds.get(name, "0")) for name in ("inactive_file", "active_file"))
        found.append(int(limit[0]) - int(used[0]) + sum(map(int, cached)))
    return min(found, default=None)
