"""The limit of open files."""

from __future__ import annotations

import resource

import pytest

from seedzero.transport import descriptors

INFINITY = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The process's limits, set by the test and by what it calls; the last one counts."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: found.append(pair))
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 524_288), (524_288, 524_288)),
        ((1280, 1280), (1280, 1280)),
        ((256, INFINITY), (1280, INFINITY)),
        ((9999, INFINITY), (9999, INFINITY)),
        ((INFINITY, INFINITY), (INFINITY, INFINITY)),
    ],
)
def test_the_limit_is_raised_for_all_workers(
    limits: list[tuple[int, int]], before: tuple[int, int], after: tuple[int, int]
) -> None:
    limits.append(before)
    assert descriptors.allow(1024) is None
    assert limits[-1] == after


def test_a_limit_that_cannot_be_raised_enough_is_named(limits: list[tuple[int, int]]) -> None:
    limits.append((1024, 1024))
    warning = descriptors.allow(1000)
    assert warning is not None
    assert "--transport.max_workers=1000" in warning
    assert warning.startswith("1024 open files ") and " 1256" in warning
