"""Measures training behind slow links: steps per second of one worker whose bytes a proxy delays.

    python experiments/links.py --delays=0,50 [--groups=1,2] [--seconds=60] [--settle=60] [--local=N] [-- TRAIN_FLAGS]

--delays: milliseconds each way, a row for each; "direct" is a row without the proxy, "none" one without that worker.
--jitter: milliseconds by which each delay is longer at most, by chance. --mbits: Mbit/s each way, or UP/DOWN.
--groups: worker.num_groups, a row for each; without it they follow the link.
--local: workers without a delay beside it, of as many environments; their bytes per second stand in the row, since
all their steps have the same size. The learner is
`seedzero train --preset=cartpole --agent=ppo` without local workers, and the worker has room for --envs=128
environments. A row waits --settle seconds after the first step, in which groups may change, and then counts for
--seconds. The proxy is this process: its own cost is its processor time for each step, and the round trip of one byte
without a delay.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import fault_probes

from seedzero.monitoring import status

DIRECT, NONE = "direct", "none"
_LOCAL = "local-"
START_SECONDS = 600.0


async def learner(path: pathlib.Path, settings: Sequence[str]) -> tuple[asyncio.subprocess.Process, str]:
    """Starts a learner that waits for workers, and returns it with its address; PATH.log keeps what it says.

    Raises SystemExit if it does not start.
    """
    command = [sys.executable, "-m", "seedzero.cli", "train", *settings, f"--run_dir={path}"]
    command += ["--workers=0", "--listen=127.0.0.1:0", "--evaluation.every_updates=0", "--stop_at_return=inf"]
    with path.with_suffix(".log").open("w") as log:
        program = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=log)
    assert program.stdout is not None
    line = (await asyncio.wait_for(program.stdout.readline(), START_SECONDS)).decode()
    found = re.search(r"listening on (\S+)", line)
    if found is None:
        raise SystemExit(f"the learner did not start: {line}; see {path.with_suffix('.log')}")
    return program, found[1]


@contextlib.asynccontextmanager
async def training(
    given: argparse.Namespace, delay: str, flags: Sequence[str]
) -> AsyncIterator[tuple[pathlib.Path, str]]:
    """Trains with workers while entered, one of them behind a proxy; yields the run directory and the address."""
    programs = list[asyncio.subprocess.Process]()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run"
        try:
            program, address = await learner(path, ("--preset=cartpole", "--agent=ppo", *flags))
            programs.append(program)
            addresses = {f"{_LOCAL}{index}": address for index in range(given.local)}
            if delay == DIRECT:
                addresses["near"] = address
            elif delay != NONE:
                proxy = fault_probes.Proxy(address)
                proxy.delay, proxy.jitter = float(delay) / 1000, given.jitter / 1000
                up, _, down = given.mbits.partition("/")
                proxy.up, proxy.down = float(up) * 1e6 / 8, float(down or up) * 1e6 / 8
                addresses["far"] = await proxy.serve()
            for name, there in addresses.items():
                worker = [sys.executable, "-m", "seedzero.worker", f"--server={there}", f"--num_envs={given.envs}"]
                worker += ["--role=train", f"--worker_id={name}"]
                with (path.parent / f"{name}.txt").open("w") as log:
                    programs.append(await asyncio.create_subprocess_exec(*worker, stdout=log, stderr=log))
            yield path, address
            print(path.with_suffix(".log").read_text(), file=sys.stderr)
        finally:
            for program in reversed(programs):
                program.terminate()
                await program.wait()


async def _status(address: str) -> dict[str, Any]:
    return await asyncio.to_thread(status.from_server, address)


async def echo_seconds() -> float:
    """Returns the median round trip of a byte through the proxy, less that without it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.CancelledError):  # at the end of the loop, which would log it
            while data := await reader.read(1):
                writer.write(data)

    async def median(address: str) -> float:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        times = []
        for _ in range(500):
            began = time.perf_counter()
            writer.write(b"x")
            await reader.read(1)
            times.append(time.perf_counter() - began)
        writer.close()
        return sorted(times)[len(times) // 2]

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    return await median(await fault_probes.Proxy(address).serve()) - await median(address)


async def measured(given: argparse.Namespace, delay: str, groups: str) -> dict[str, Any]:
    """Returns a row. groups: "" for those that follow the link."""
    flags = [*given.flags, *([f"--worker.num_groups={groups}"] if groups else [])]
    async with training(given, delay, flags) as (_, address):
        deadline = time.monotonic() + START_SECONDS
        while not (await _status(address))["env_steps"]:
            if time.monotonic() > deadline:
                raise SystemExit(f"no step within {START_SECONDS:g} s")
            await asyncio.sleep(1.0)
        await asyncio.sleep(given.settle)
        before, began, used = await _status(address), time.monotonic(), time.process_time()
        await asyncio.sleep(given.seconds)
        used = time.process_time() - used
        after, ended = await _status(address), time.monotonic()
    steps = after["env_steps"] - before["env_steps"]
    local = [link["bytes_per_second"] for link in after.get("links") or () if link["name"].startswith(_LOCAL)]
    return {
        "delay_ms": delay,
        **({"groups": int(groups)} if groups else {}),
        "steps_per_second": round(steps / (ended - began), 1),
        "environments": after["environments"],
        **({"local_bytes_per_second": sum(local)} if local else {}),
        "links": after.get("links"),
        "proxy_us_per_step": round(1e6 * used / max(1, steps), 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delays", default=f"{DIRECT},0,50")
    parser.add_argument("--jitter", type=float, default=0.0)
    parser.add_argument("--mbits", default="inf")
    parser.add_argument("--groups", default="")
    parser.add_argument("--envs", type=int, default=128)
    parser.add_argument("--local", type=int, default=0)
    parser.add_argument("--settle", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    print(f"a byte through the proxy and back takes {1e6 * asyncio.run(echo_seconds()):.0f} us more")
    for delay, groups in itertools.product(arguments.delays.split(","), arguments.groups.split(",")):
        print(json.dumps(asyncio.run(measured(arguments, delay, groups))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
