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


def test_costs_add_up_over_trips() -> None:
    once = roofline.Cost(10.0, 100.0, 5.0)
    assert once.plus(roofline.Cost(1.0, 7.0, 2.0)) == (11.0, 107.0, 7.0)
    assert once.plus(roofline.Cost(1.0, 7.0, 2.0), 3) == (13.0, 121.0, 11.0)


def test_hours_count_frames() -> None:
    assert roofline.hours(1e4, 4) == pytest.approx(200e6 / 4 / 1e4 / 3600) == pytest.approx(1.3888889)


def test_every_slice_is_of_a_known_chip() -> None:
    assert {slice_.chip for slice_ in roofline.SLICES.values()} == roofline.CHIPS.keys()
    sizes = {name: slice_.num_chips for name, slice_ in roofline.SLICES.items()}
    assert sizes.pop("v5p-8") == 4  # that name counts cores
    assert sizes == {name: int(name.rpartition("-")[2]) for name in sizes}
    for chip in roofline.CHIPS.values():
        assert 100 < chip.tflops < 1000 and 500 < chip.hbm_gb_per_second < 3000 and 16 <= chip.hbm_gb < 100


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


@pytest.mark.parametrize(("chips", "num_hosts"), [("v5e-1", 4), ("v5e-8", 2), ("v5e-4", 3), ("v5e-4", 0)])
def test_other_hosts_are_in_no_slice(chips: str, num_hosts: int) -> None:
    with pytest.raises(ValueError, match=f"{num_hosts} hosts of {chips}"):
        roofline.of_hosts(chips, num_hosts)
