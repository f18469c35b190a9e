"""Who may join a run of several hosts, and the checkpoint that they begin from."""

from __future__ import annotations

import dataclasses

import pytest

from seedzero.core import errors
from seedzero.learner.cluster import hub, messages

HOST_0 = messages.HostHello(0, 3, "settings", program="seedzero 1, jax 2", reached_at="10.0.0.1")


def test_hosts_join_in_any_order() -> None:
    found = hub.Roll(HOST_0)
    for index in (2, 1):
        assert found.missing == list(range(1, index + 1))
        found.admit(dataclasses.replace(HOST_0, index=index))
    assert found.missing == []


@pytest.mark.parametrize(
    "changed",
    [
        {"index": 1, "num": 2},
        {"index": 1, "settings": "others"},
        {"index": 1, "program": "seedzero 2, jax 2"},
        {"index": 1, "version": messages.VERSION + 1},
        {"index": 1, "reached_at": "127.0.1.1"},
        {"index": 1, "reached_at": "fd00::1"},
        {"index": 0},
        {"index": 2},
        {"index": 3},
    ],
    ids=str,
)
def test_a_host_that_does_not_belong_is_refused(changed: dict[str, int], request: pytest.FixtureRequest) -> None:
    found = hub.Roll(HOST_0)
    found.admit(dataclasses.replace(HOST_0, index=2))
    with pytest.raises(errors.UsageError, match=None):
        found.admit(dataclasses.replace(HOST_0, **changed))
    assert sorted(found.joined) == [0, 2]


def test_other_flags_of_xla_are_reported_and_not_refused() -> None:
    found = hub.Roll(HOST_0)
    found.admit(dataclasses.replace(HOST_0, index=1))
    found.admit(dataclasses.replace(HOST_0, index=2, xla_flags="--xla_cpu_max_isa=SSE4_2"))
    (text,) = found.warnings()
    assert text.startswith("host 2 has XLA_FLAGS=--xla_cpu_max_isa=SSE4_2, and host 0 (none)")


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        ({}, {1: None}, -1),
        ({}, {1: ()}, -1),
        ({20: 2, 40: 2}, {1: (20, 40)}, 40),
        ({20: 2, 40: 2}, {1: (20,)}, 20),  # it ended while 40 was written
        ({20: 2}, {1: ()}, -1),  # while the first one was
        ({20: 1, 40: 1}, {1: None}, 40),  # a run of one host goes on with two
        ({20: 1, 40: 1}, {1: ()}, 40),  # at the second attempt
        ({20: 1, 40: 2}, {1: ()}, 20),
        ({20: 2, 40: 2}, {1: None}, 40),  # its disk is lost
        ({20: 2, 40: 2}, {1: ()}, 40),
        ({60: 1, 80: 1}, {1: (20, 40)}, 80),  # two, one, two
        ({20: 3, 40: 3}, {1: (20, 40)}, 40),  # three, two
        ({20: 3, 40: 3, 60: 3}, {1: (20, 40, 60), 2: (20, 40)}, 40),
    ],
)
@pytest.mark.parametrize("digest", ["", "ab"])
def test_all_begin_from_the_newest_checkpoint_that_counts(
    own: dict[int, int], others: dict[int, tuple[int, ...] | None], expected: int, digest: str
) -> None:
    made = {step: hub.Made(num_hosts, digest) for step, num_hosts in own.items()}
    seen = {index: None if steps is None else dict.fromkeys(steps, digest) for index, steps in others.items()}
    assert hub.common_step(made, seen) == expected


@pytest.mark.parametrize(
    ("num_hosts", "steps", "expected"),
    [
        (2, {20: "a", 40: "b"}, 40),
        (2, {20: "a", 40: "x"}, 20),  # 40 of a past that was abandoned when it was not everywhere
        (2, {20: "a", 40: ""}, 20),
        (2, {20: "x", 40: "x"}, 40),  # another run's: a comparison with host 0's parameters refuses it
        (1, {20: "x", 40: "x"}, 40),  # made without this host
    ],
)
def test_a_checkpoint_with_other_parameters_is_another_one(
    num_hosts: int, steps: dict[int, str], expected: int
) -> None:
    own = {20: hub.Made(num_hosts, "a"), 40: hub.Made(num_hosts, "b")}
    assert hub.common_step(own, {1: steps}) == expected


def test_checkpoints_without_those_of_host_0_are_refused() -> None:
    with pytest.raises(errors.UsageError, match=r"host 1 has checkpoints.*\b0\b"):
        hub.common_step({}, {1: {20: "a"}})
