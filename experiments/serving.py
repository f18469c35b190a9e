"""Measurements of a policy server. Each command prints a line of JSON with the load average.

    python experiments/serving.py rate RUN [--clients=8] [--rows=1] [--seconds=10]   # rows a second, latency
    python experiments/serving.py acting [--seconds=60]           # MuZero: its rate beside that of a learner
    python experiments/serving.py pool [--seconds=60] [--pairs=3] # a learner with and without `serve --learner`
    python experiments/serving.py follow [--changes=100]          # memory of `serve --follow`
    python experiments/serving.py javascript RUN PLAYER [--games=100]   # games of policy.js and of `league match`

Clients are processes with an environment of their own for every row of a request; observations are random.
`acting`: a learner that never updates acts for two workers, then a server with its parameters answers as many clients
with as many rows. `pool`: pairs of runs of PPO for Catch. `follow`: the same parameters are saved again and again.
`javascript`: RUN plays spiel:connect_four, PLAYER is one of its frozen players; both ways begin with the same
openings, and the server has a certificate and a token. It needs node with the packages of examples/javascript, and
openssl.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import runs

ROOT = pathlib.Path(__file__).parents[1]
_WORKERS, _GROUPS, _ENVS = 2, 2, 16
"""Of `acting`: workers, groups of each, and environments of a group."""
_NEVER = 400_000
"""Steps before the first update of a learner that only acts."""
_STEP = 1_000_000
"""First number of the checkpoints of `follow`."""


@contextlib.contextmanager
def served(*words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """While entered, a policy server runs; yields its address and its process."""
    command = [sys.executable, "-m", "seedzero", "serve", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        assert server.stderr is not None
        try:
            lines: list[str] = []
            for line in server.stderr:
                lines.append(line)
                if found := re.search(r" at (\S+) \(Ctrl-C", line):
                    yield found[1], server
                    return
            raise SystemExit(f"{' '.join(command)} ended:\n{''.join(lines)}")
        finally:
            server.send_signal(signal.SIGINT)
            server.communicate()


def _play(address: str, num_rows: int, seconds: float, explores: bool, results: Any) -> None:
    """Sends requests one after another for some seconds; puts their latencies."""
    import seedzero

    with seedzero.connect(address) as policy:
        spec, random = policy.spec, np.random.default_rng(os.getpid())
        frames = random.random((num_rows, *spec.observation_shape)).astype(spec.observation_dtype)
        given: dict[str, Any] = {"reward": 0.0, "explore": explores}
        if spec.has_action_mask:
            given["action_mask"] = np.ones((num_rows, spec.num_actions), bool)
        for _ in range(20):
            policy(frames, **given)
        found, end = [], time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            policy(frames, **given)
            found.append(time.monotonic() - began)
        results.put(found)


def rate(
    run: str, num_clients: int = 8, num_rows: int = 1, seconds: float = 10.0, *, explores: bool = False
) -> dict[str, Any]:
    """Returns the rows a second and the latencies of a server of a run."""
    with served(run) as (address, _):
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        given = (address, num_rows, seconds, explores, results)
        clients = [context.Process(target=_play, args=given) for _ in range(num_clients)]
        for client in clients:
            client.start()
        latencies = np.concatenate([results.get() for _ in clients])
        for client in clients:
            client.join()
    milliseconds = {f"p{q}_ms": round(1000 * float(np.quantile(latencies, q / 100)), 2) for q in (50, 99)}
    found = {"clients": num_clients, "rows": num_rows, "rows_per_second": round(len(latencies) * num_rows / seconds)}
    return {**found, **milliseconds}


def _steps_per_second(path: pathlib.Path) -> float:
    """Returns the environment steps a second in the second half of a run's time."""
    rows = [row for row in runs.rows(path) if "env_steps" in row]
    middle = next(row for row in rows if row["seconds"] >= rows[-1]["seconds"] / 2)
    return float((rows[-1]["env_steps"] - middle["env_steps"]) / (rows[-1]["seconds"] - middle["seconds"]))


def acting(path: pathlib.Path, seconds: float) -> dict[str, Any]:
    """Returns the rows a second of a learner of MuZero that only acts, and of a server with its parameters."""
    sizes = (f"--workers={_WORKERS}", f"--worker.num_groups={_GROUPS}", f"--worker.envs_per_group={_ENVS}")
    waits = (
        f"--replay.capacity={_NEVER}",
        f"--replay.min_steps={_NEVER}",
        "--evaluation.every_updates=0",
        "--stop_at_return=inf",
    )
    run = runs.train(path, ["--preset=catch", *sizes, *waits, "--metrics.every_seconds=2", f"--max_seconds={seconds}"])
    learner = _steps_per_second(run.path)
    server = rate(str(run.path), _WORKERS * _GROUPS, _ENVS, seconds / 2, explores=True)
    return {
        **server,
        "learner_rows_per_second": round(learner),
        "ratio": round(server["rows_per_second"] / learner, 3),
    }


def pool(path: pathlib.Path, seconds: float, num_pairs: int) -> dict[str, Any]:
    """Returns the steps a second of learners without and with a server that fetches their parameters."""
    token, ratios = path / "token", []
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    words = ["--preset=catch", "--agent=ppo", "--stop_at_return=inf", f"--max_seconds={seconds}"]
    changes = 0
    for number in range(num_pairs):
        found = {}
        for is_served in (False, True) if number % 2 else (True, False):
            run, port = path / f"run-{number}-{int(is_served)}", _free_port()
            given = [*words, f"--listen=127.0.0.1:{port}", f"--serve.token_file={token}", f"--seed={number}"]
            command = [sys.executable, "-m", "seedzero", "train", *given, f"--run_dir={run}"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as learner:
                if is_served:
                    changes += _fetched(f"127.0.0.1:{port}", token, learner)
                learner.wait()
            found[is_served] = _steps_per_second(run)
        ratios.append(found[True] / found[False])
    return {
        "ratios": [round(ratio, 3) for ratio in ratios],
        "median": round(statistics.median(ratios), 3),
        "changes": changes,
    }


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _fetched(address: str, token: pathlib.Path, learner: subprocess.Popen[Any]) -> int:
    """Serves a learner's agent until it ends; returns the number of changes."""
    command = [sys.executable, "-m", "seedzero", "serve", f"--learner={address}", f"--serve.token_file={token}"]
    while learner.poll() is None:  # until it has networks, the server ends at once
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            while server.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    learner.wait(1.0)
                    server.send_signal(signal.SIGINT)
                    break
            output = server.communicate()[0]
            if server.returncode == 0:
                return int(json.loads(output.splitlines()[-1])["changes"])
    return 0


def follow(path: pathlib.Path, num_changes: int) -> dict[str, Any]:
    """Returns the server's memory after the first tenth of many changes of parameters, and after all."""
    import seedzero
    from seedzero.acting.actors import agent_choice, saved_agents
    from seedzero.storage.checkpoints import checkpoint_dir, run_dirs

    run = runs.train(path, ["--preset=catch", "--agent=ppo", "--network.width=512", "--max_updates=20"]).path
    choice = agent_choice.AgentChoice(run, "last")
    saved = saved_agents.load(choice, *saved_agents.read(choice))
    files = checkpoint_dir.CheckpointDir(run / "checkpoints", run_dirs.read_saved(run).config.checkpoint, time.time)
    megabytes, failed = [], 0
    with served(str(run), "--follow") as (address, server), seedzero.connect(address) as policy:
        frames = np.zeros((1, *policy.spec.observation_shape), policy.spec.observation_dtype)
        for step in range(_STEP, _STEP + num_changes):
            files.write(step, {"params": {"params": saved.params}}, {"num_updates": step}, (), None)
            files.prune()
            while policy.version != step:
                before = policy.version
                policy(frames)
                failed += policy.version < before
                time.sleep(0.01)
            status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
            megabytes.append(round(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024))  # type: ignore[index]
    return {"changes": num_changes, "megabytes": megabytes[:: max(1, num_changes // 10)], "versions_fell": failed}


def javascript(run: str, player: str, num_games: int, path: pathlib.Path) -> dict[str, Any]:
    """Returns the results of games of main against a player by policy.js and by `league match`."""
    from seedzero.acting.tables import match
    from seedzero.envs import spiel

    game, generator = spiel.Game("connect_four"), np.random.default_rng(0)
    openings = [match.opening(game, generator).history() for _ in range(-(-num_games // 2))]
    (path / "openings.json").write_text(json.dumps(openings))
    (path / "token").write_text(secrets.token_hex(32))
    request = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    files = ["-keyout", str(path / "key.pem"), "-out", str(path / "cert.pem")]
    subprocess.run(["openssl", *request.split(), *files], check=True, capture_output=True)
    access = [f"--token_file={path / 'token'}", f"--tls.cert_file={path / 'cert.pem'}"]
    access.append(f"--tls.key_file={path / 'key.pem'}")
    with served(run, f"--player=main,{player}", *access) as (address, _):
        port = address.rpartition(":")[2]
        command = [
            "node",
            str(ROOT / "examples/javascript/policy.js"),
            f"localhost:{port}",
            "--a=main",
            f"--b={player}",
        ]
        command += [f"--games={num_games}", f"--openings={path / 'openings.json'}"]
        secured = [f"--token={path / 'token'}", f"--ca={path / 'cert.pem'}"]
        began = time.monotonic()
        found = json.loads(subprocess.run([*command, *secured], check=True, capture_output=True, text=True).stdout)
        seconds = time.monotonic() - began
        stranger = subprocess.run([*command, secured[1]], check=False, capture_output=True, text=True)
        words = ["match", "main", f"localhost:{port}/{player}", f"--run_dir={run}", f"--games={num_games}", "--seed=0"]
        words += ["--json", f"--token_file={path / 'token'}", f"--tls.ca_file={path / 'cert.pem'}"]
        there = subprocess.run(
            [sys.executable, "-m", "seedzero", "league", *words], check=False, capture_output=True, text=True
        )
    if there.returncode:
        raise SystemExit(there.stderr)
    match_found = json.loads(there.stdout.splitlines()[-1])
    names = ("wins", "draws", "losses", "score", "low", "high")
    here = {name: match_found[name] for name in names if name in match_found}
    score = (found["wins"] + found["draws"] / 2) / num_games
    shown = {"javascript": {**found, "score": score, "seconds": round(seconds, 1)}, "league_match": here}
    return {**shown, "without_token": stranger.stderr.strip()[:60]}


def main(words: Sequence[str]) -> None:
    """Runs a command."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("command", choices=("rate", "acting", "pool", "follow", "javascript"))
    parser.add_argument("names", nargs="*")
    for name, default in {"clients": 8, "rows": 1, "pairs": 3, "changes": 100, "games": 100}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        match given.command:
            case "rate":
                (run,) = given.names
                found = rate(run, given.clients, given.rows, given.seconds or 10.0)
            case "acting":
                found = acting(path / "run", given.seconds or 60.0)
            case "pool":
                found = pool(path, given.seconds or 60.0, given.pairs)
            case "follow":
                found = follow(path / "run", given.changes)
            case "javascript":
                run, player = given.names
                found = javascript(run, player, given.games, path)
    print(json.dumps({**found, "load": [round(x, 1) for x in os.getloadavg()]}))


if __name__ == "__main__":
    main(sys.argv[1:])
