"""Measures observations a second through the real server and worker client, against bare grpc.aio.

Both carry the same bytes, with the same number of messages in flight: equally many worker processes, each with one
group of environments, and a server that answers at once. "Bare" is one grpc.aio stream for each worker with ready-made
bytes, without encoding, decoding, checks and other threads, and with the C library's own memory management. Both send
several different observations in turn, because real environments do not send the same memory again. Short slices of
both alternate, so that other load on the machine affects both equally.

Every server and worker is a separate process, because grpc.aio wakes all event loops of a process at each message. A
server sends its address; workers receive seconds, run a slice of that length, and send their messages a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import connection
from typing import Any

import grpc
import numpy as np
from grpc import aio

from seedzero.config import sections
from seedzero.core import env_ids, errors, types
from seedzero.transport import client, codec, messages, options, servers

NUM_ACTIONS = 18
NUM_FRAMES = 4
NUM_PAIRS = 15
WARM_UP_SECONDS = 0.3
_BARE_SERVICE = "seedzero.benchmark.Bare"
_SETTINGS = sections.TransportConfig(listen="127.0.0.1:0")

Pipe = connection.Connection


def run(
    *, num_workers: int = 4, num_envs: int = 64, observation_bytes: int = 9216, seconds: float = 5.0
) -> dict[str, float | int]:
    """Returns the medians of both over the slices, and of their ratio over pairs, on this machine over loopback TCP.

    Args:
      num_workers: number of worker processes.
      num_envs: environments of one worker, all in one group.
      observation_bytes: size of one environment's observation, uint8.
      seconds: time to measure both.
    """
    kinds = {"real": (serve_real, _work_real), "bare": (_serve_bare, _work_bare)}
    with contextlib.ExitStack() as stack:
        teams = {}
        for kind, (serve, work) in kinds.items():
            server = stack.enter_context(process(serve, num_envs))
            arguments = (receive(server), num_envs, observation_bytes)
            workers = [stack.enter_context(process(work, *arguments)) for _ in range(num_workers)]
            teams[kind] = (server, workers)
            _slice(*teams[kind], WARM_UP_SECONDS)
        real, bare, ratio = alternate(lambda kind, length: _slice(*teams[kind], length), "real", "bare", seconds)
    return {
        "observations_per_second": real * num_envs,
        "bare_observations_per_second": bare * num_envs,
        "ratio": ratio,
        "workers": num_workers,
        "environments": num_workers * num_envs,
        "observation_bytes": observation_bytes,
    }


def alternate(
    measure: Callable[[str, float], float], kind: str, peer: str, seconds: float
) -> tuple[float, float, float]:
    """Measures two kinds in short alternating slices. measure: takes a kind and a slice's seconds, returns a rate.

    Returns the medians of the kind's rate, of its peer's rate, and of their ratio in the same pair.
    """
    rates: dict[str, list[float]] = {kind: [], peer: []}
    for index in range(NUM_PAIRS):
        for name in (kind, peer)[:: 1 if index % 2 else -1]:
            rates[name].append(measure(name, seconds / (2 * NUM_PAIRS)))
    shares = [mine / its for mine, its in zip(rates[kind], rates[peer], strict=True)]
    return statistics.median(rates[kind]), statistics.median(rates[peer]), statistics.median(shares)


def calls_per_second(call: Callable[[], None], seconds: float) -> float:
    """Calls a function for a number of seconds and returns calls a second."""
    begin, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        call()
        count += 1
    return count / elapsed


def _slice(server: Pipe, workers: Sequence[Pipe], seconds: float) -> float:
    """Returns the answered messages a second of all workers in one slice."""
    for worker in workers:
        send(worker, seconds)
    return float(sum(receive(worker, server) for worker in workers))


@contextlib.contextmanager
def process(function: Callable[..., None], *arguments: Any) -> Iterator[Pipe]:
    """Starts a process that calls function(its end of the pipe, *arguments), and that ends when our end closes.

    An error kills it, because it may wait for one that has ended.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=function, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        yield ours
    except BaseException:
        process.kill()
        raise
    finally:
        ours.close()
        process.join()


def receive(pipe: Pipe, server: Pipe | None = None) -> Any:
    """Waits for a process's next message. server: of one that sends nothing meanwhile, without which none would come.

    Raises Error if a process has ended.
    """
    ready = connection.wait([pipe] if server is None else [pipe, server])
    with contextlib.suppress(EOFError):
        if pipe in ready:
            return pipe.recv()
    raise errors.Error(_ENDED)


def send(pipe: Pipe, message: object) -> None:
    """Sends a process a message. Raises Error if it has ended."""
    try:
        pipe.send(message)
    except OSError:
        raise errors.Error(_ENDED) from None


_ENDED = "a process of the benchmark ended early; see its message above"


def asked(pipe: Pipe) -> Iterator[Any]:
    """Returns the number of messages received until the other end closes."""
    with contextlib.suppress(EOFError):
        while True:
            yield pipe.recv()


# --- real ----------------------------------------------------------------------------------------------------------


class InstantLearner:
    """Answers every step at once. num_groups, num_envs: those of each worker. answer: the actions for a step."""

    def __init__(
        self,
        settings: sections.TransportConfig,
        num_groups: int,
        num_envs: int,
        answer: Callable[[types.EnvStep], np.ndarray],
    ) -> None:
        self._server = servers.Server(self, settings)
        self._size, self._answer, self._numbers = (num_groups, num_envs), answer, itertools.count(1)

    def serve(self, pipe: Pipe) -> None:
        """Sends the server's address, and serves until the other end of the pipe closes.

        It answers anything that is sent with the seconds that the processor has worked for this process.
        """
        pipe.send(self._server.start())
        for _ in asked(pipe):
            pipe.send(time.process_time())
        self._server.stop(finished=True, reason="measured")

    def assign(self, hello: messages.Hello) -> types.Assignment:
        seeds, number = tuple(range(math.prod(self._size))), str(next(self._numbers))
        return types.Assignment(number, types.Role.TRAIN, env_ids.YOURS, "{}", *self._size, seeds)

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        pass

    def step(self, request: messages.StepRequest) -> None:
        self._server.reply(request, self._answer(request.step), request.sequence)

    def end(self, session_id: str, reason: str) -> None:
        pass

    def status(self) -> Mapping[str, object]:
        return {}


def serve_real(pipe: Pipe, num_envs: int) -> None:
    actions = np.zeros(num_envs, np.int32)
    InstantLearner(_SETTINGS, 1, num_envs, lambda step: actions).serve(pipe)


def _work_real(pipe: Pipe, address: str, num_envs: int, observation_bytes: int) -> None:
    hello = messages.Hello("benchmark", "", (types.Role.TRAIN,), (env_ids.YOURS,), num_envs)
    steps = fake_steps(num_envs, observation_bytes)
    with client.Client(address, hello) as learner:
        learner.join()
        learner.start(types.EnvSpec((observation_bytes,), "uint8", NUM_ACTIONS))

        def exchange() -> None:
            learner.send(0, next(steps))
            assert isinstance(learner.receive(), messages.Actions)

        for seconds in asked(pipe):
            pipe.send(calls_per_second(exchange, seconds))


def fake_steps(num_envs: int, observation_bytes: int) -> Iterator[types.EnvStep]:
    """Returns an endless cycle of different steps."""
    frames = np.random.default_rng(0).integers(0, 256, (NUM_FRAMES, num_envs, observation_bytes), np.uint8)
    reward, flags = np.zeros(num_envs, np.float32), np.zeros(num_envs, np.bool_)
    return itertools.cycle([types.EnvStep(frame, reward, flags, flags) for frame in frames])


# --- bare ----------------------------------------------------------------------------------------------------------


def _serve_bare(pipe: Pipe, num_envs: int) -> None:
    asyncio.run(_serve_bare_async(pipe, num_envs))


def _work_bare(pipe: Pipe, address: str, num_envs: int, observation_bytes: int) -> None:
    asyncio.run(_work_bare_async(pipe, address, num_envs, observation_bytes))


async def _serve_bare_async(pipe: Pipe, num_envs: int) -> None:
    answer = codec.encode_actions(1, 1000, np.zeros(num_envs, np.int32), 1000)

    async def connect(requests: object, context: aio.ServicerContext[bytes, bytes]) -> None:
        while isinstance(await context.read(), bytes):
            await context.write(answer)

    handlers = {"Connect": grpc.stream_stream_rpc_method_handler(connect)}
    bare = aio.server(options=options.server(_SETTINGS))
    bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_BARE_SERVICE, handlers),))
    port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    pipe.send(f"127.0.0.1:{port}")
    await asyncio.to_thread(list, asked(pipe))
    await bare.stop(None)


async def _work_bare_async(pipe: Pipe, address: str, num_envs: int, observation_bytes: int) -> None:
    steps = itertools.islice(fake_steps(num_envs, observation_bytes), NUM_FRAMES)
    ready_made = itertools.cycle([codec.encode_step(1, 1000, step) for step in steps])
    async with aio.insecure_channel(address, options=options.client(_SETTINGS)) as channel:
        connect = channel.stream_stream(f"/{_BARE_SERVICE}/Connect", bytes, bytes)
        call = connect()  # type: ignore[call-arg]  # no request iterator: the code below writes and reads
        for seconds in asked(pipe):
            pipe.send(await _bare_slice(call, ready_made, seconds))


async def _bare_slice(call: aio.StreamStreamCall[bytes, bytes], data: Iterator[bytes], seconds: float) -> float:
    """Returns messages a second."""
    begin, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        await call.write(next(data))
        await call.read()
        count += 1
    return count / elapsed
