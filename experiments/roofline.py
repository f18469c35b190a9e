"""Predicts the least time of programs on a chip from its published peaks, and the pace of all programs together.

A program's time is at least that of its arithmetic at the peak rate, and that of its bytes at the memory's bandwidth.
Nothing else is counted: no communication between chips, no dispatch, no waiting for the host. So every prediction is
an upper bound of the pace. The TPU's compiler also estimates the clock cycles of most operations, which is closer.
"""

from __future__ import annotations

from typing import NamedTuple

NUM_FRAMES = 200e6
"""Number of frames for which hours and cost are predicted, Atari's usual budget."""

ATARI_STEPS_PER_SECOND = 28e3
"""Most steps of Atari that a host's environments make per second: ALE's vector environment made 22 to 28 thousand, of
four frames each, on the 16 cores of an H200's host. A TPU's host has another number of cores."""

TRANSPORT_STEPS_PER_SECOND = 140e3
"""Observations of 9,216 bytes per second that pass server and worker client: 137 to 144 thousand on two cores, see
docs/speed.md."""


class Chip(NamedTuple):
    """A chip's peaks: TFLOP/s of bfloat16, GB/s and GB of its memory (10^9 bytes); GHz of its clock."""

    tflops: float
    hbm_gb_per_second: float
    hbm_gb: float
    ghz: float


# Read in November 2026. Where editions of a page differ, the one with the name alone counts: v5e has 800 GB/s or
# 800 GiB/s in others, v6e 1640 GB/s. The clocks are the peaks divided by 65,536 (v5e), 131,072 (v5p) and 262,144 (v6e)
# multiplications and additions a cycle. By the compiler's cycles, a matrix product of 8,192 then reaches 0.88, 0.90
# and 0.70 of the peak rate, and a stream through memory 0.81, 0.72 and 0.83 of the bandwidth.
CHIPS = {
    "v5e": Chip(197, 819, 16, 1.5),  # https://docs.cloud.google.com/tpu/docs/v5e
    "v5p": Chip(459, 2765, 95, 1.75),  # https://docs.cloud.google.com/tpu/docs/v5p-training
    "v6e": Chip(918, 1600, 32, 1.75),  # https://docs.cloud.google.com/tpu/docs/v6e
}


class Slice(NamedTuple):
    """Chips of one host, or of several. topology: as in the TPU compiler's topology names."""

    chip: str
    topology: tuple[int, int, int]

    @property
    def num_chips(self) -> int:
        columns, rows, layers = self.topology
        return columns * rows * layers


SLICES = {
    "v5e-1": Slice("v5e", (1, 1, 1)),
    "v5e-4": Slice("v5e", (2, 2, 1)),
    "v5e-8": Slice("v5e", (2, 4, 1)),
    "v5p-8": Slice("v5p", (2, 2, 1)),  # named after its cores, two a chip, which a program sees as one device
    "v6e-1": Slice("v6e", (1, 1, 1)),
    "v6e-4": Slice("v6e", (2, 2, 1)),
    "v6e-8": Slice("v6e", (2, 4, 1)),
}
"""Google Cloud's name -> chips; one host each, which a learner can own."""


def of_hosts(chips: str, num_hosts: int) -> Slice:
    """Returns the slice of several hosts with these chips each.

    The number of hosts is a power of two, with four chips each.

    The smallest dimension doubles with the hosts, or the last one of equal ones, as in Google Cloud's slices. Raises
    ValueError if there is no such slice.
    """
    host = SLICES[chips]
    if num_hosts == 1:
        return host
    if host.num_chips != 4 or num_hosts < 1 or num_hosts & (num_hosts - 1):
        raise ValueError(
            f"{num_hosts} hosts of {chips}: slices of several hosts have 2, 4, 8, ... hosts of 4 chips each"
        )
    shape = list(host.topology if host.chip == "v5p" else host.topology[:2])
    for _ in range(num_hosts.bit_length() - 1):
        smallest = max(index for index, size in enumerate(shape) if size == min(shape))
        shape[smallest] *= 2
    columns, rows, layers = (*shape, 1)[:3]
    return Slice(host.chip, (columns, rows, layers))


class Cost(NamedTuple):
    """Cost of one call of a program on each device. cycles: the compiler's estimate, or 0."""

    flop: float
    moved_bytes: float
    cycles: float = 0.0

    def plus(self, other: Cost, times: int = 1) -> Cost:
        """Adds another cost `times` times."""
        return Cost(*(mine + times * its for mine, its in zip(self, other, strict=True)))


def seconds(cost: Cost, chip: Chip) -> float:
    """Returns the least time of a call."""
    return max(cost.flop / (1e12 * chip.tflops), cost.moved_bytes / (1e9 * chip.hbm_gb_per_second))


def hours(steps_per_second: float, frames_per_step: int) -> float:
    """Returns the hours that NUM_FRAMES take."""
    return NUM_FRAMES / frames_per_step / steps_per_second / 3600
