"""Observations a second through the real server and worker client, against bare grpc.aio.

Both carry the same bytes with the same number of messages in flight: as many worker processes, each with one group of
environments, and a server that answers at once. "Bare" is one grpc.aio stream per worker with ready-made bytes:
without encoding, decoding, checks and other threads, and with the C library's own memory management. Both send
several different observations in turn, because real environments do not resend the same memory. Short slices of both
alternate, so that other load on the machine affects both equally.

Every server and worker is a process of its own: grpc.aio wakes all event loops of a process at each message.
Workers read lines "SECONDS" from standard input, run a slice for each, and print messages a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

import grpc
import numpy as np
from grpc import aio

from seedzero.config import sections
from seedzero.core import env_ids, errors, types
from seedzero.transport import client, codec, messages, options, server

NUM_GROUPS = 1
NUM_ACTIONS = 18
NUM_FRAMES = 4
NUM_PAIRS = 15
WARM_UP_SECONDS = 0.3
KINDS = ("real", "bare")
_BARE_SERVICE = "seedzero.benchmark.Bare"
_SETTINGS = sections.TransportConfig(listen="127.0.0.1:0")

Process = subprocess.Popen[str]


def run(
    *, num_workers: int = 4, num_envs: int = 64, observation_bytes: int = 9216, seconds: float = 5.0
) -> dict[str, float | int]:
    """Measures both on this machine, over loopback TCP.

    Args:
      num_workers: worker processes.
      num_envs: environments of one worker, all in one group.
      observation_bytes: of one environment's observation, uint8.
      seconds: measuring time, both together.

    Returns:
      observations_per_second, bare_observations_per_second: medians over the slices.
      ratio: median over the pairs of slices.
      workers, environments (all workers together), observation_bytes.
    """
    envs_per_group = num_envs // NUM_GROUPS
    with contextlib.ExitStack() as stack:
        teams = {}
        for kind in KINDS:
            address = _line(stack.enter_context(_process(f"{kind}-server", envs_per_group)))
            arguments = (f"{kind}-worker", address, envs_per_group, observation_bytes)
            teams[kind] = [stack.enter_context(_process(*arguments)) for _ in range(num_workers)]
            _slice(teams[kind], WARM_UP_SECONDS)
        pairs = [_pair(teams, index, seconds / (2 * NUM_PAIRS)) for index in range(NUM_PAIRS)]
    return {
        "observations_per_second": statistics.median(pair["real"] for pair in pairs) * envs_per_group,
        "bare_observations_per_second": statistics.median(pair["bare"] for pair in pairs) * envs_per_group,
        "ratio": statistics.median(pair["real"] / pair["bare"] for pair in pairs),
        "workers": num_workers,
        "environments": num_workers * envs_per_group * NUM_GROUPS,
        "observation_bytes": observation_bytes,
    }


def _pair(teams: Mapping[str, Sequence[Process]], index: int, seconds: float) -> dict[str, float]:
    """Returns messages a second of both kinds, in alternating order."""
    order = KINDS if index % 2 else KINDS[::-1]
    return {kind: _slice(teams[kind], seconds) for kind in order}


def _slice(workers: Sequence[Process], seconds: float) -> float:
    """Returns answered messages a second, all workers together, over one slice."""
    for worker in workers:
        print(seconds, file=_pipe(worker.stdin), flush=True)
    return sum(float(_line(worker)) for worker in workers)


@contextlib.contextmanager
def _process(*arguments: str | int) -> Iterator[Process]:
    """Starts a process of this module; it ends when its standard input closes."""
    command = [sys.executable, "-m", "seedzero.benchmark.transport", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.communicate()


def _line(process: Process) -> str:
    line = _pipe(process.stdout).readline()
    if not line:
        raise errors.Error("a process of the benchmark ended early; see its message above")
    return line.strip()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


# --- real ----------------------------------------------------------------------------------------------------------


class _InstantLearner:
    """Answers every step at once with the same actions."""

    def __init__(self, envs_per_group: int) -> None:
        self.server = server.Server(self, _SETTINGS)
        self._envs_per_group = envs_per_group
        self._actions = np.zeros(envs_per_group, np.int32)
        self._num_runs = 0

    def assign(self, hello: messages.Hello) -> types.Assignment:
        self._num_runs += 1
        return types.Assignment(
            session_id=str(self._num_runs),
            role=types.Role.TRAIN,
            env=env_ids.YOURS,
            env_settings="{}",
            num_groups=NUM_GROUPS,
            envs_per_group=self._envs_per_group,
            seeds=(0,) * (NUM_GROUPS * self._envs_per_group),
        )

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        pass

    def step(self, request: messages.StepRequest) -> None:
        self.server.reply(request, self._actions, request.sequence)

    def end(self, session_id: str, reason: str) -> None:
        pass

    def status(self) -> Mapping[str, object]:
        return {}


def _serve_real(envs_per_group: int) -> None:
    learner = _InstantLearner(envs_per_group)
    print(learner.server.start(), flush=True)
    sys.stdin.read()
    learner.server.stop(finished=True, reason="measured")


def _work_real(address: str, envs_per_group: int, observation_bytes: int) -> None:
    hello = messages.Hello("benchmark", "", (types.Role.TRAIN,), (env_ids.YOURS,), NUM_GROUPS * envs_per_group)
    steps = _steps(envs_per_group, observation_bytes)
    with client.Client(address, hello) as learner:
        learner.join()
        learner.start(types.EnvSpec((observation_bytes,), "uint8", NUM_ACTIONS))
        for line in sys.stdin:
            print(_real_slice(learner, steps, float(line)), flush=True)


def _real_slice(learner: client.Client, steps: Iterator[types.EnvStep], seconds: float) -> float:
    """Returns messages a second."""
    begin = time.perf_counter()
    count = 0
    for group in range(NUM_GROUPS):
        learner.send(group, next(steps))
    while (elapsed := time.perf_counter() - begin) < seconds:
        learner.send(_answered_group(learner), next(steps))
        count += 1
    for _ in range(NUM_GROUPS):
        _answered_group(learner)
    return count / elapsed


def _answered_group(learner: client.Client) -> int:
    event = learner.receive()
    assert isinstance(event, messages.Actions)
    return event.group


def _steps(envs_per_group: int, observation_bytes: int) -> Iterator[types.EnvStep]:
    """Returns an endless cycle of different steps."""
    frames = np.random.default_rng(0).integers(0, 256, (NUM_FRAMES, envs_per_group, observation_bytes), np.uint8)
    reward, flags = np.zeros(envs_per_group, np.float32), np.zeros(envs_per_group, np.bool_)
    return itertools.cycle([types.EnvStep(frame, reward, flags, flags) for frame in frames])


# --- bare ----------------------------------------------------------------------------------------------------------


async def _serve_bare(envs_per_group: int) -> None:
    answer = codec.encode_actions(1, 1000, np.zeros(envs_per_group, np.int32), 1000)

    async def connect(requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        while isinstance(await context.read(), bytes):
            await context.write(answer)

    handlers = {"Connect": grpc.stream_stream_rpc_method_handler(connect)}
    bare = aio.server(options=options.server(_SETTINGS))
    bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_BARE_SERVICE, handlers),))
    port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await bare.stop(None)


async def _work_bare(address: str, envs_per_group: int, observation_bytes: int) -> None:
    steps = itertools.islice(_steps(envs_per_group, observation_bytes), NUM_FRAMES)
    ready_made = itertools.cycle([codec.encode_step(1, 1000, step) for step in steps])
    async with aio.insecure_channel(address, options=options.client(_SETTINGS)) as channel:
        connect = channel.stream_stream(f"/{_BARE_SERVICE}/Connect", bytes, bytes)
        call = connect()  # type: ignore[call-arg]  # without a request iterator: writes and reads are below
        for line in sys.stdin:
            print(await _bare_slice(call, ready_made, float(line)), flush=True)


async def _bare_slice(call: aio.StreamStreamCall[bytes, bytes], data: Iterator[bytes], seconds: float) -> float:
    """Returns messages a second."""
    begin = time.perf_counter()
    count = 0
    for _ in range(NUM_GROUPS):
        await call.write(next(data))
    while (elapsed := time.perf_counter() - begin) < seconds:
        await call.read()
        await call.write(next(data))
        count += 1
    for _ in range(NUM_GROUPS):
        await call.read()
    return count / elapsed


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["real-server", num_envs]:
            _serve_real(int(num_envs))
        case ["real-worker", address, num_envs, size]:
            _work_real(address, int(num_envs), int(size))
        case ["bare-server", num_envs]:
            asyncio.run(_serve_bare(int(num_envs)))
        case ["bare-worker", address, num_envs, size]:
            asyncio.run(_work_bare(address, int(num_envs), int(size)))
