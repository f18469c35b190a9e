"""Least times and paces, against numbers worked by hand."""

from __future__ import annotations

import pytest
import roofline

CHIP = roofline.Chip(tflops=100, hbm_gb_per_second=500, hbm_gb=16, ghz=1.5)


@pytest.mark.parametrize(
    ("flop", "moved_bytes", "seconds"),
    [
        (3e12, 1e9, 0.03),  # 3 TFLOP at 100 TFLOP/s; 1 GB would take 2 ms
        (1e12, 10e9, 0.02),  # 10 GB at 500 GB/s; 1 TFLOP would take 10 ms
        (0.0, 0.0, 0.0),
    ],
)
def test_the_slower_of_arithmetic_and_memory_is_the_time(flop: float, moved_bytes: float, seconds: float) -> None:
    assert roofline.seconds(roofline.Cost(flop, moved_bytes), CHIP) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("chips", "num_hosts", "topology"),
    [
        ("v5e-8", 1, (2, 4, 1)),
        ("v5e-4", 2, (2, 4, 1)),
        ("v5e-4", 4, (4, 4, 1)),
        ("v6e-4", 8, (4, 8, 1)),
        ("v5p-8", 2, (2, 2, 2)),
        ("v5p-8", 4, (2, 2, 4)),
        ("v5p-8", 8, (2, 4, 4)),
        ("v5p-8", 16, (4, 4, 4)),
    ],
)
def test_a_slice_of_several_hosts_has_the_cloud_s_topology(
    chips: str, num_hosts: int, topology: tuple[int, int, int]
) -> None:
    found = roofline.of_hosts(chips, num_hosts)
    assert found == (roofline.SLICES[chips].chip, topology)
    assert found.num_chips == num_hosts * roofline.SLICES[chips].num_chips
