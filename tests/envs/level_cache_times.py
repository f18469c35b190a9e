"""How long a reset takes without a level cache, with one that fills, and with one that is filled.

`python tests/envs/level_cache_times.py ROUNDS`: a level of the stand-in costs so many rounds of a hash. Prints medians
over 20 resets in milliseconds.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "stand_ins"))

from seedzero.config import sections
from seedzero.envs import dmlab

NUM_RESETS = 20


def reset_milliseconds(rounds: int, level_cache: str) -> float:
    """Returns the median time of a reset, each with a seed of its own; level_cache: "" for none."""
    kwargs = json.dumps({"compileRounds": rounds})
    env = dmlab.DMLab("explore_goal_locations_small", sections.EnvConfig(kwargs=kwargs, level_cache=level_cache), 1)
    times = []
    for seed in range(NUM_RESETS):
        began = time.perf_counter()
        env.reset([seed])
        times.append(time.perf_counter() - began)
    env.close()
    return round(1000 * statistics.median(times), 2)


if __name__ == "__main__":
    number = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as levels:
        found = {name: reset_milliseconds(number, place) for name, place in
                 (("without", ""), ("filling", levels), ("filled", levels))}  # fmt: skip
    print(json.dumps({"rounds": number, **found}))
