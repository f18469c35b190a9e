"""Tests whether a slow player delays another one: two players of a league on one device, and on two.

    python experiments/league_lanes.py [--seconds=60] [--slow=2]

Trains Kuhn poker with two players, main and an exploiter, on virtual devices of a CPU. Each update of the exploiter
takes some seconds more, or not; main's updates a second and the 99th percentile of its replies' times are compared.
The time is spent on multiplications on the exploiter's device, a single core. A callback could sleep instead, but JAX
runs a CPU's programs with callbacks on the thread that dispatches them, so the device loop itself would wait.
"""

from __future__ import annotations

import argparse
import collections
import functools
import os
import pathlib
import tempfile
import time
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np

import seedzero
from seedzero.agents import agent_table, base
from seedzero.loop import dispatchers, players

_SEED = 1


def multiplied(x: jax.Array, number: Any) -> jax.Array:
    """Multiplies a matrix by itself a number of times."""
    return jax.lax.fori_loop(0, number, lambda _, y: (y @ y) * 1e-3, x)


def number_in(seconds: float) -> int:
    """Returns how many multiplications take a given time here."""
    run, x, number = jax.jit(multiplied), jnp.ones((64, 64)), 20_000
    run(x, number).block_until_ready()
    began = time.monotonic()
    run(x, number).block_until_ready()
    return int(number * seconds / (time.monotonic() - began))


def slowed(make: Any, number: int) -> Any:
    """Wraps the maker of an agent so that its updates multiply a number of times, except those of the first player.

    The first player is recognized by the run's seed, from which the keys of its updates follow (`device/steps.py`).
    """

    def made(*args: Any) -> base.Agent:
        agent: base.Agent = make(*args)

        def update(train: Any, windows: Any, key: jax.Array, axis_name: str) -> Any:
            own = jax.random.fold_in(jax.random.key(jnp.int32(_SEED) + 2), train.num_updates)
            own = jax.random.split(jax.random.fold_in(own, jax.lax.axis_index(axis_name)))[1]
            is_slow = jnp.any(jax.random.key_data(key) != jax.random.key_data(own))
            train, priority, metrics = agent.update(train, windows, key, axis_name)
            zero = 0.0 * multiplied(jnp.ones((64, 64)), jnp.where(is_slow, number, 0))[0, 0]
            params = jax.tree.map(lambda x: x + zero.astype(x.dtype), train.params)  # so that they wait for it
            return train._replace(params=params), priority, metrics

        return agent._replace(update=update)

    return made


class Seen:
    """Times of main's updates and replies, in seconds."""

    def __init__(self) -> None:
        self.updates = collections.Counter[str]()
        self.replies: list[float] = []
        self.began = 0.0


def measure(num_devices: int, number: int, seconds: float) -> tuple[float, float, float]:
    """Returns the updates per second of main and the exploiter, and the 99th percentile of main's replies."""
    seen, run_update, deliver = Seen(), players.Player.run_update, dispatchers.Dispatcher._deliver

    @functools.wraps(run_update)
    def counted(player: players.Player, now: float) -> Any:
        seen.updates[player.name] += 1
        if seen.updates["main"] == 1 and not seen.began:
            seen.began = time.monotonic()
        return run_update(player, now)

    @functools.wraps(deliver)
    def timed(dispatcher: Any, tick: Any) -> Any:
        told = deliver(dispatcher, tick)
        now = time.monotonic()
        for dealt in tick:
            for message in dealt.messages:
                if seen.began and dispatcher.seating.home(message.slots) == 0:
                    seen.replies.append(now - message.arrived)
        return told

    table = dict(agent_table.AGENTS)
    agent_table.AGENTS["ppo"] = slowed(table["ppo"], number)  # type: ignore[index]
    players.Player.run_update, dispatchers.Dispatcher._deliver = counted, timed  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as directory:
            seedzero.train(
                preset="league-kuhn",
                run_dir=str(pathlib.Path(directory) / "run"),
                max_seconds=seconds,
                **{
                    "seed": _SEED,
                    "league.main_exploiters": 1,
                    "worker.num_groups": 4,
                    "worker.envs_per_group": 8,
                    "ppo.batch_size": 16,
                    "training.num_devices": num_devices,
                    "training.max_in_flight": 2,
                    "evaluation.every_updates": 0,
                    "run.max_env_steps": 0,
                },
            )
    finally:
        agent_table.AGENTS["ppo"] = table["ppo"]  # type: ignore[index]
        players.Player.run_update, dispatchers.Dispatcher._deliver = run_update, deliver  # type: ignore[method-assign]
    passed = time.monotonic() - seen.began
    exploiter = sum(number for name, number in seen.updates.items() if name != "main")
    return seen.updates["main"] / passed, exploiter / passed, float(np.percentile(seen.replies, 99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each of four runs")
    parser.add_argument("--slow", type=float, default=2.0, help="seconds that each update of the exploiter takes more")
    options = parser.parse_args()
    for num_devices in (1, 2):
        for more in (0.0, options.slow):
            fast, slow, p99 = measure(num_devices, number_in(more) if more else 0, options.seconds)
            print(
                f"{num_devices} device(s), {more:g} s more: main {fast:.2f} updates/s, exploiter {slow:.2f}; "
                f"replies to main's groups p99 {1000 * p99:.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
