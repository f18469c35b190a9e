"""Measures a policy server's speed and latency: python experiments/serving_rate.py RUN [CLIENTS] [ROWS] [SECONDS].

Starts `seedzero serve RUN` and CLIENTS clients, each a process with an environment for every row of its requests;
observations are random. Prints a line of JSON; its load average tells how busy the machine was.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np


def play(address: str, num_rows: int, seconds: float, results: multiprocessing.Queue) -> None:
    """Sends requests one after another for some seconds; puts their latencies into a queue."""
    import seedzero

    with seedzero.connect(address) as policy:
        spec, random = policy.spec, np.random.default_rng(os.getpid())
        frames = random.random((num_rows, *spec.observation_shape)).astype(spec.observation_dtype)
        given = {"action_mask": np.ones((num_rows, spec.num_actions), bool)} if spec.has_action_mask else {}
        for _ in range(20):
            policy(frames, reward=0.0, **given)
        found, end = [], time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            policy(frames, reward=0.0, **given)
            found.append(time.monotonic() - began)
        results.put(found)


def main(run: str, num_clients: int = 8, num_rows: int = 1, seconds: float = 10.0) -> None:
    """Measures one server."""
    command = [sys.executable, "-m", "seedzero", "serve", run]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        assert server.stderr is not None
        address = next(found[1] for line in server.stderr if (found := re.search(r" at (\S+); Ctrl-C", line)))
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        given = (address, num_rows, seconds, results)
        clients = [context.Process(target=play, args=given) for _ in range(num_clients)]
        for client in clients:
            client.start()
        latencies = np.concatenate([results.get() for _ in clients])
        for client in clients:
            client.join()
        server.send_signal(signal.SIGINT)
        server.communicate()
    milliseconds = {f"p{q}_ms": round(1000 * float(np.quantile(latencies, q / 100)), 2) for q in (50, 99)}
    rate = len(latencies) * num_rows / seconds
    shown = {"clients": num_clients, "rows": num_rows, "rows_per_second": round(rate), **milliseconds}
    print(json.dumps({**shown, "load": [round(x, 1) for x in os.getloadavg()]}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]), *map(float, sys.argv[4:5]))
