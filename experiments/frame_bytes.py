"""Measures what compressing a group's observations saves and costs: bytes and processor time of a frame.

    python experiments/frame_bytes.py [--messages=60] [--envs=16] [--json]

A message holds the newest frames of --envs environments, which random actions move. It is compressed whole, or after
an exclusive or with the group's previous message, by zlib's level 1 in gzip's form and, if it is installed, by
`zstandard`. Microseconds are of this thread's processor time: `send_us` makes the bytes, `receive_us` restores frames
from them. A frame arrives earlier on links of fewer than `pays_mbit` Mbit/s: bits saved, divided by both times.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import platform
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from seedzero.config import configs
from seedzero.envs import registry

ATARI = {f"{game} {size}x{size}": (f"atari:{game}", {"env.frame_size": size})
         for size in (42, 96) for game in ("Pong", "Breakout", "MsPacman")}  # fmt: skip
SUBJECTS: dict[str, tuple[str, dict[str, Any]]] = {
    **ATARI,
    "MinAtar Breakout": ("gym:MinAtar/Breakout-v1", {}),
    "MinAtar Seaquest": ("gym:MinAtar/Seaquest-v1", {}),
    "CarRacing's camera, 96x96x3": ("gym:CarRacing-v3", {}),
}
"""Name -> environment and settings."""
WARM_UP = 60  # steps before the first message, because games begin alike
GZIP = 16 + zlib.MAX_WBITS


def coders() -> dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]]:
    """Returns compression, and restoring at most a number of bytes, by name."""
    pack, restore = functools.partial(zlib.compress, level=1, wbits=GZIP), zlib.decompressobj
    found: dict[str, Any] = {"zlib 1": (pack, lambda data, most: restore(GZIP).decompress(data, most))}
    if importlib.util.find_spec("zstandard"):
        module = importlib.import_module("zstandard")
        found["zstandard 1"] = (module.ZstdCompressor(level=1).compress, module.ZstdDecompressor().decompress)
    return found


def messages(env: str, settings: dict[str, Any], num_envs: int, number: int) -> Iterator[np.ndarray]:
    """Yields the bytes of a group's observations, step after step."""
    group = registry.make(env, configs.override(configs.Config(), settings).env, num_envs, threads=1)
    draws, step = np.random.default_rng(0), group.reset(range(num_envs))
    for index in range(WARM_UP + number):
        if index >= WARM_UP:
            yield np.frombuffer(step.observation.tobytes(), np.uint8)
        if group.spec.is_continuous:
            actions = draws.uniform(*group.spec.action_bounds, (num_envs, *group.spec.action_shape)).astype(np.float32)
        else:
            actions = draws.integers(group.spec.num_actions, size=num_envs).astype(np.int32)
        step = group.step(actions)
    group.close()


def rows(name: str, num_envs: int, number: int) -> Iterator[dict[str, Any]]:
    """Yields a row for each way to compress a subject's frames."""
    sent = list(messages(*SUBJECTS[name], num_envs, number + 1))
    for (coder, (pack, restore)), way in ((pair, way) for pair in coders().items() for way in ("whole", "difference")):
        sizes, sends, receives = [], [], []
        for before, data in itertools.pairwise(sent):
            base = np.uint8(0) if way == "whole" else before
            times = [time.thread_time_ns()]
            packed = pack((data if way == "whole" else data ^ base).tobytes())
            times.append(time.thread_time_ns())
            found = np.frombuffer(restore(packed, data.nbytes), np.uint8)
            found = found if way == "whole" else found ^ base
            times.append(time.thread_time_ns())
            assert np.array_equal(found, data)
            for total, value in zip((sizes, sends, receives), (len(packed), *np.diff(times)), strict=True):
                total.append(value / num_envs)
        frame, size = sent[0].nbytes / num_envs, statistics.mean(sizes)
        send, receive = (statistics.median(times) / 1e3 for times in (sends, receives))
        figures = {"bytes": frame, "packed": size, "ratio": frame / size, "send_us": send, "receive_us": receive}
        figures["pays_mbit"] = 8 * (frame - size) / (send + receive)
        yield {"frames": name, "by": coder, "way": way, **{key: round(x, 1) for key, x in figures.items()}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=60)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, zlib {zlib.ZLIB_RUNTIME_VERSION}", file=sys.stderr)
    for row in (row for name in SUBJECTS for row in rows(name, given.envs, given.messages)):
        print(json.dumps(row) if given.json else "| " + " | ".join(map(str, row.values())) + " |", flush=True)
