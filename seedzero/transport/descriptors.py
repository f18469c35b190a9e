"""Raises the limit of open files, because every connection needs a file."""

from __future__ import annotations

import resource

_OTHERS = 256
"""A generous number of open files that a learner needs besides workers' connections."""


def allow(max_workers: int) -> str | None:
    """Raises this process's limit of open files to the system's; returns a warning if that is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_workers + _OTHERS
    if soft == resource.RLIM_INFINITY:
        return None
    allowed = max(soft, needed) if hard == resource.RLIM_INFINITY else hard  # some systems do not grant infinity
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= needed:
        return None
    return (
        f"{allowed} open files are allowed here (ulimit -Hn) and --transport.max_workers={max_workers} may take "
        f"{needed}: workers beyond that wait for a connection; raise the limit, or lower --transport.max_workers"
    )
