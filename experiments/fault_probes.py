"""Measures rows of the scorecard of faults (`faults.py`). Each probe returns its figure, or raises Broken."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import logging
import math
import pathlib
import random
import shutil
import socket
import struct
import tempfile
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, cast

import grpc
import numpy as np
import runs
from grpc import aio

from seedzero.cli import main as commands
from seedzero.config import sections
from seedzero.core import env_ids, errors, types
from seedzero.envs import registry
from seedzero.interfaces.benchmark import transport
from seedzero.storage.checkpoints import saved_files
from seedzero.transport import client, codec, handshake, messages, options, streams

SPEC = types.EnvSpec((3,), "float32", 4)
WRONG = 3
"""The action that tells a worker of these probes that its step arrived twice, late, or from another life."""
HELLO = messages.Hello("probe", "", (types.Role.TRAIN,), (env_ids.YOURS,), 1)


class Broken(AssertionError):
    """A promise does not hold."""


def promised(holds: object, text: str) -> None:
    """Raises Broken unless a promise holds."""
    if not holds:
        raise Broken(text)


# --- a server that answers at once -------------------------------------------------------------------------------


class Answers:
    """Answers each step that follows the previous one of its life, and sends WRONG to any other."""

    def __init__(self) -> None:
        self._newest: dict[float, float] = {}  # by life

    def __call__(self, step: types.EnvStep) -> np.ndarray:
        life, number, _ = step.observation[0].tolist()
        follows = number == self._newest.get(life, -1.0) + 1
        self._newest[life] = number
        return np.full(1, number % WRONG if follows else WRONG, np.int32)


def _serve(pipe: transport.Pipe, max_workers: int) -> None:
    settings = sections.TransportConfig(listen="127.0.0.1:0", max_workers=max_workers)
    transport.InstantLearner(settings, 1, 1, Answers()).serve(pipe)


@contextlib.contextmanager
def served(max_workers: int = 1024) -> Iterator[str]:
    """Starts a server in a separate process and yields its address."""
    with transport.process(_serve, max_workers) as pipe:
        yield str(transport.receive(pipe))


def observation(life: int, number: int) -> types.EnvStep:
    """Returns a step that contains its life and number."""
    no = np.zeros(1, bool)
    return types.EnvStep(np.array([[life, number, 0]], np.float32), np.zeros(1, np.float32), no, no)


# --- load -------------------------------------------------------------------------------


async def _join(call: aio.StreamStreamCall[bytes, bytes], name: str) -> None:
    await call.write(handshake.encode_hello(dataclasses.replace(HELLO, worker_id=name)))
    await call.read()
    await call.write(codec.from_worker(spec=dataclasses.asdict(SPEC)))
    await call.read()


@contextlib.asynccontextmanager
async def _called(address: str) -> Any:
    """Opens a stream on a separate connection."""
    own = ("grpc.use_local_subchannel_pool", 1)
    settings = [*options.client(sections.TransportConfig()), own]
    async with aio.insecure_channel(address, options=settings) as channel:
        connect = channel.stream_stream(codec.CONNECT_METHOD, bytes, bytes)
        yield connect()  # type: ignore[call-arg]  # written to and read from by hand


class Load:
    """Workers that step at a fixed pace, as coroutines; collects the seconds from each step to its answer."""

    def __init__(self, num_workers: int, per_second: float) -> None:
        self.num_workers, self._pause = num_workers, num_workers / per_second
        self.times: list[float] = []
        self.num_joined = 0
        self.is_over = asyncio.Event()
        self.all_joined = asyncio.Event()

    async def run(self, address: str, beside: Callable[[], Awaitable[None]]) -> None:
        """Makes all workers join, step while `beside` runs, and leave."""
        async with asyncio.TaskGroup() as group:
            for number in range(self.num_workers):
                group.create_task(self._work(address, number))
            async with asyncio.timeout(120):
                await self.all_joined.wait()
            await beside()
            self.is_over.set()

    async def _work(self, address: str, number: int) -> None:
        async with _called(address) as call:
            await _join(call, f"probe-{number}")
            self.num_joined += 1
            if self.num_joined == self.num_workers:
                self.all_joined.set()
            await self.all_joined.wait()
            await asyncio.sleep(random.uniform(0, self._pause))
            for step in range(10**9):
                began = time.perf_counter()
                await call.write(codec.encode_step(0, step, observation(number, step)))
                answer = codec.decode_learner(cast(bytes, await call.read()))
                self.times.append(time.perf_counter() - began)
                promised(answer.actions.sequence == step, f"worker {number} got the answer to another step")
                if self.is_over.is_set():
                    return
                await asyncio.sleep(max(0.0, self._pause - self.times[-1]))

    def figure(self, most_ms: float) -> str:
        """Returns quantiles. Raises Broken if the 99 % quantile exceeds `most_ms`."""
        half, most = (1000 * float(np.quantile(self.times, share)) for share in (0.5, 0.99))
        text = f"{len(self.times)} answers, p50 {half:.1f} ms, p99 {most:.0f} ms"
        promised(most <= most_ms, f"{text}; expected p99 within {most_ms:g} ms")
        return text


def load(num_workers: int, per_second: float, most_ms: float) -> str:
    """Times the answers to a number of workers."""

    async def measure(address: str) -> str:
        workers, began, joined = Load(num_workers, per_second), time.monotonic(), [0.0]

        async def wait() -> None:
            joined[0] = time.monotonic() - began
            await asyncio.sleep(8.0)

        await workers.run(address, wait)
        return f"joined in {joined[0]:.1f} s; {workers.figure(most_ms)}"

    with served() as address:
        return asyncio.run(measure(address))


def load_more() -> str:
    """Makes 1,000 workers join while 1,000 others are busy."""

    async def measure(address: str) -> str:
        busy, more, joined = Load(1000, 400.0), Load(1000, 400.0), [0.0]

        async def crowd() -> None:
            began = time.monotonic()

            async def wait() -> None:
                joined[0] = time.monotonic() - began
                await asyncio.sleep(5.0)

            await more.run(address, wait)

        await busy.run(address, crowd)
        promised(joined[0] <= 15.0, f"the last one joined after {joined[0]:.1f} s")
        return f"all joined within {joined[0]:.1f} s, none dropped; {busy.figure(1000.0)}"

    with served(max_workers=2048) as address:
        return asyncio.run(measure(address))


def load_refused() -> str:
    """Makes 32 workers join a server for 8."""

    async def refused(address: str, times: list[float]) -> None:
        began = time.monotonic()
        async with _called(address) as call:
            code, details = await call.code(), await call.details()
        promised(code is grpc.StatusCode.RESOURCE_EXHAUSTED, f"refused with {code}")
        promised("max_workers" in details, f"refused without a name: {details}")
        times.append(time.monotonic() - began)

    async def measure(address: str) -> str:
        workers, times = Load(8, 80.0), list[float]()

        async def crowd() -> None:
            await asyncio.gather(*(refused(address, times) for _ in range(24)))
            async with aio.insecure_channel(address) as channel:
                began = time.monotonic()
                await channel.stream_unary(codec.STATUS_METHOD, None, None)(iter([b""]), timeout=5)
                times.append(time.monotonic() - began)

        await workers.run(address, crowd)
        promised(len(times) == 25, f"{len(times) - 1} of 24 were refused")
        promised(max(times) < 1.0, f"the slowest answer took {max(times):.2f} s")
        return f"24 refused within {max(times[:-1]):.2f} s, status within {times[-1]:.2f} s; {workers.figure(100.0)}"

    with served(max_workers=8) as address:
        return asyncio.run(measure(address))


def load_reset() -> str:
    """Resets 200 connections while 20 workers step."""

    def reset_all(address: str) -> None:
        host, _, port = address.rpartition(":")
        there = [socket.create_connection((host, int(port))) for _ in range(200)]
        for connection in there:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00" * 6)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets
        for connection in there:
            connection.close()

    async def measure(address: str) -> str:
        workers = Load(20, 200.0)

        async def reset() -> None:
            await asyncio.sleep(1.0)
            await asyncio.to_thread(reset_all, address)
            await asyncio.sleep(3.0)

        await workers.run(address, reset)
        return workers.figure(100.0)

    with served() as address:
        return asyncio.run(measure(address))


# --- the network -------------------------------------------------------------------------------


class Proxy:
    """Connects workers with a server, and delays data, lets less of it through, is away for a time, or cuts."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._there = host, int(port)
        self.delay = self.jitter = 0.0  # each way, in seconds; jitter: most that a delay is longer by chance
        self.up = self.down = math.inf  # bytes per second: from a worker, and to it
        self.is_away = False
        self.bytes_left: float = float("inf")  # until the cut
        self.num_cuts = 0

    async def serve(self) -> str:
        """Starts serving until its loop ends; returns the address."""
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._there)
        ways = [self._copy(reader, far_writer, True), self._copy(far_reader, writer, False)]
        tasks = [asyncio.create_task(way) for way in ways]
        with contextlib.suppress(asyncio.CancelledError):  # at the end of the loop, which would log it
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for end in (writer, far_writer):
            end.transport.abort()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_up: bool) -> None:
        loop, due, sent = asyncio.get_running_loop(), 0.0, 0.0
        while data := await source.read(65536):
            while self.is_away:
                await asyncio.sleep(0.05)
            if len(data) >= self.bytes_left:
                target.write(data[: int(self.bytes_left)])
                self.bytes_left, self.num_cuts = float("inf"), self.num_cuts + 1
                return
            self.bytes_left -= len(data)
            # One after the other, even if the delay falls.
            sent = max(loop.time(), sent) + len(data) / (self.up if is_up else self.down)
            due = max(sent + self.delay + self.jitter * random.random(), math.nextafter(due, math.inf))
            loop.call_at(due, target.write, data)


class Worker(threading.Thread):
    """A real client that steps as soon as it gets an answer; each life begins with a reset."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.is_over = threading.Event()
        self.num_steps = self.num_lives = 0
        self.times: list[float] = []
        self.failure = ""

    def run(self) -> None:
        """Works until it is over."""
        try:
            with client.Client(self._address, HELLO) as learner:
                while not self.is_over.is_set() and learner.join() is not None:
                    self._live(learner)
        except (errors.Error, Broken) as error:
            self.failure = f"{type(error).__name__}: {error}"

    def _live(self, learner: client.Client) -> None:
        self.num_lives += 1
        learner.start(SPEC)
        for number in range(10**9):
            began = time.monotonic()
            learner.send(0, observation(self.num_lives, number))
            event = learner.receive()
            if not isinstance(event, messages.Actions):
                return
            if event.actions[0] != number % WRONG:
                self.failure = f"step {number} was taken for another one"
                self.is_over.set()
            self.times.append(time.monotonic() - began)
            self.num_steps += 1
            if self.is_over.is_set():
                return


def _through(beside: Callable[[Proxy, Worker], Awaitable[str]], address: str = "", kind: type[Worker] = Worker) -> str:
    """Runs a worker behind a proxy, with `beside` at the same time. address: of its server; "": one that it starts."""

    logging.getLogger("seedzero").setLevel(logging.ERROR)  # a worker reports every lost connection

    async def run(address: str) -> str:
        proxy = Proxy(address)
        worker = kind(await proxy.serve())
        worker.start()
        try:
            figure = await beside(proxy, worker)
        finally:
            worker.is_over.set()
            proxy.delay, proxy.is_away, proxy.up, proxy.down = 0.0, False, math.inf, math.inf
            await asyncio.to_thread(worker.join, 30.0)
        promised(not worker.failure, worker.failure)
        return figure

    if address:
        return asyncio.run(run(address))
    with served() as started:
        return asyncio.run(run(started))


def network_delay(milliseconds: int) -> str:
    """Delays every byte."""

    async def beside(proxy: Proxy, worker: Worker) -> str:
        proxy.delay = milliseconds / 1000
        await asyncio.sleep(8.0)
        promised(
            worker.num_steps >= 5 and worker.num_lives == 1, f"{worker.num_steps} steps in {worker.num_lives} lives"
        )
        return f"{worker.num_steps} steps, p50 {1000 * float(np.median(worker.times)):.0f} ms, one life"

    return _through(beside)


def network_jump() -> str:
    """Delays every byte by 1 ms, for a time by 200."""

    async def beside(proxy: Proxy, worker: Worker) -> str:
        medians = []
        for milliseconds, seconds in ((1, 4.0), (200, 8.0), (1, 4.0)):
            proxy.delay = milliseconds / 1000
            await asyncio.sleep(1.0)  # what is on its way arrives
            begin = worker.num_steps
            await asyncio.sleep(seconds)
            promised(worker.num_steps > begin, f"no step behind {milliseconds} ms")
            medians.append(1000 * float(np.median(worker.times[begin:])))
        promised(worker.num_lives == 1, f"{worker.num_lives} lives")
        promised(medians[2] < medians[1] / 4, f"p50 {medians[1]:.0f} ms, and then {medians[2]:.0f} ms")
        return f"{worker.num_steps} steps, p50 {', '.join(f'{median:.0f}' for median in medians)} ms, one life"

    return _through(beside)


FRAMES = 16
"""Environments of the worker behind a slow link, in one group: frames of Breakout, 96x96 pixels."""


class FrameWorker(Worker):
    """A worker whose steps are a game's, and whose answers say which frames the learner saw."""

    def _live(self, learner: client.Client) -> None:
        self.num_lives += 1
        settings = sections.EnvConfig(frame_size=96)
        group = registry.make("atari:Breakout", settings, FRAMES, threads=1)
        step = group.reset(range(FRAMES))
        learner.start(group.spec)
        draws = np.random.default_rng(0)
        while not self.is_over.is_set():
            began = time.monotonic()
            learner.send(0, step)
            event = learner.receive()
            if not isinstance(event, messages.Actions):
                return
            promised(event.actions[0] == _checksum(step), "the learner saw another frame")
            self.times.append(time.monotonic() - began)
            self.num_steps += 1
            step = group.step(draws.integers(group.spec.num_actions, size=FRAMES))


def _checksum(step: types.EnvStep) -> int:
    return zlib.crc32(np.ascontiguousarray(step.observation)) % 4


def _serve_frames(pipe: transport.Pipe, compression: str) -> None:
    settings = sections.TransportConfig(listen="127.0.0.1:0", compression=compression)

    def answer(step: types.EnvStep) -> np.ndarray:
        return np.full(FRAMES, _checksum(step), np.int32)

    transport.InstantLearner(settings, 1, FRAMES, answer).serve(pipe)


def network_slow(mbit: float, least_gain: float) -> str:
    """Sends frames through a link of so many Mbit/s, with transport.compression off and auto."""

    async def beside(proxy: Proxy, worker: Worker) -> str:
        while not worker.num_steps and not worker.failure:  # its games are made
            await asyncio.sleep(0.1)
        proxy.up = proxy.down = mbit * 1e6 / 8
        await asyncio.sleep(50.0)  # half a minute decides
        begin, began = worker.num_steps, time.monotonic()
        await asyncio.sleep(15.0)
        promised(worker.num_lives == 1, f"{worker.num_lives} lives")
        return f"{(worker.num_steps - begin) * FRAMES / (time.monotonic() - began):.1f}"

    rates = []
    for compression in ("off", "auto"):
        with transport.process(_serve_frames, compression) as pipe:
            rates.append(_through(beside, str(transport.receive(pipe)), FrameWorker))
    promised(float(rates[1]) >= least_gain * float(rates[0]), f"{' and '.join(rates)} frames/s with off and auto")
    return f"{rates[0]} frames/s raw, {rates[1]} compressed, one life"


def network_cut() -> str:
    """Cuts the connection 200 times."""
    chance = random.Random(0)

    async def beside(proxy: Proxy, worker: Worker) -> str:
        deadline = time.monotonic() + 180
        while proxy.num_cuts < 200 and not worker.failure and time.monotonic() < deadline:
            if proxy.bytes_left == float("inf"):
                proxy.bytes_left = chance.randrange(1, 6000)
            await asyncio.sleep(0.01)
        promised(proxy.num_cuts == 200, f"{proxy.num_cuts} cuts within 180 s")
        before = worker.num_steps
        await asyncio.sleep(3.0)
        promised(worker.num_steps > before, "the worker does not continue")
        return f"200 cuts, {worker.num_steps} steps, lives: {worker.num_lives}, none twice, none mixed"

    return _through(beside)


def network_hole(seconds: float, most_lives: int) -> str:
    """Lets nothing through for a time: pings end the connection, and the session waits for its worker."""

    async def beside(proxy: Proxy, worker: Worker) -> str:
        await asyncio.sleep(2.0)
        proxy.is_away = True
        await asyncio.sleep(seconds)
        before, proxy.is_away, began = worker.num_steps, False, time.monotonic()
        while worker.num_steps < before + 10 and time.monotonic() < began + 30:
            await asyncio.sleep(0.05)
        promised(worker.num_steps >= before + 10, "no step within 30 s")
        promised(worker.num_lives <= most_lives, f"{worker.num_lives} lives")
        return f"continues {time.monotonic() - began:.1f} s after, lives: {worker.num_lives}"

    return _through(beside)


# --- input -------------------------------------------------------------------------------


class Nobody:
    """A learner that receives nonsense."""

    def assign(self, hello: messages.Hello) -> types.Assignment:
        """Returns an assignment."""
        return types.Assignment("session", types.Role.TRAIN, env_ids.YOURS, "{}", 1, 1, (0,))

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        """Takes a spec."""

    def step(self, request: messages.StepRequest) -> None:
        """Takes a step."""

    def end(self, session_id: str, reason: str) -> None:
        """Takes an end."""

    def status(self) -> Mapping[str, object]:
        """Returns nothing."""
        return {}


def _mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(changed)) if changed else 0
        match chance.randrange(4):
            case 0 if changed:
                changed[place] = chance.randrange(256)
            case 1 if changed:
                del changed[place : place + chance.randint(1, 8)]
            case 2:
                changed[place:place] = chance.randbytes(chance.randint(1, 8))
            case _:
                changed = changed[:place]
    return bytes(changed)


def input_mutated(number: int = 20_000) -> str:
    """Mutates messages in each phase of a stream."""
    good = [
        handshake.encode_hello(HELLO),
        codec.from_worker(spec=dataclasses.asdict(SPEC)),
        codec.encode_step(0, 0, observation(0, 0)),
    ]
    chance, refused = random.Random(0), 0

    async def try_all() -> int:
        num_refused = 0
        for _ in range(number):
            place = chance.randrange(3)
            all_streams = streams.Streams(streams.LearnerSide(Nobody(), sections.TransportConfig(), time.monotonic))
            stream = all_streams.begin(cast(Any, None))
            try:
                for data in (*good[:place], _mutated(good[place], chance)):
                    all_streams.receive(stream, data)
            except errors.Error as error:
                promised(str(error), "a refusal without words")
                num_refused += 1
        return num_refused

    try:
        refused = asyncio.run(try_all())
    except Exception as error:
        if isinstance(error, Broken):
            raise
        raise Broken(f"not rejected with a reason: {type(error).__name__}: {error}") from error
    return f"{refused} rejected with a reason, {number - refused} taken"


WRONG_SETTINGS = """
replay.capacity=-1 replay.capacity=many replay.batch_size=0 replay.samples_per_insert=nan replay.min_steps=-5
replay.num_slots=0.5 worker.num=-1 worker.envs_per_group=0 worker.num_groups=0 worker.threads=-2
search.num_simulations=0 search.policy=alpha search.num_considered=-1 muzero.unroll_steps=0 muzero.n_step=0
reward.discount=2 network.width=0 network.kind=transformer network.num_bins=1 optimizer.learning_rate=-0.1
optimizer.learning_rate=fast optimizer.schedule=never transport.listen=nowhere transport.lease_seconds=0
transport.max_workers=0 training.max_in_flight=0 training.publish_every=0
training.num_devices=-3 evaluation.episodes=-1 evaluation.every_updates=-1 checkpoint.every_updates=0
checkpoint.keep=0 metrics.port=99999 metrics.every_seconds=0 run.seed=x run.max_seconds=-1 run.agent=ppoo
env.id=gym batcher.max_batch=-4
"""


def input_settings() -> str:
    """Gives wrong settings to `seedzero train`, one after another."""
    with tempfile.TemporaryDirectory() as directory:
        for setting in WRONG_SETTINGS.split():
            name, _, _ = setting.partition("=")
            path, said = pathlib.Path(directory) / "run", io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                code = commands.main(["train", "--preset=catch", f"--run_dir={path}", f"--{setting}"])
            text = said.getvalue()
            short = name.rpartition(".")[2]
            promised(code == 2, f"{setting}: exit status {code}: {text[-300:]}")
            promised(short in text, f"{setting}: its name is not in the error: {text[-300:]}")
            promised(not (path / "config.json").exists(), f"{setting}: a run directory was written")
    return f"{len(WRONG_SETTINGS.split())} rejected with a reason, nothing written"


# --- storage -------------------------------------------------------------------------------


def _damages(file: pathlib.Path) -> Iterator[str]:
    """Damages a file in three ways, and restores it after each."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    yield "truncated"
    middle = len(content) // 2
    file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    yield "with a flipped bit"
    file.unlink()
    yield "deleted"
    file.write_bytes(content)


def storage_damage() -> str:
    """Trains a little, then damages each file of the newest checkpoint."""
    directory = pathlib.Path(tempfile.mkdtemp())
    try:
        settings = ["--preset=catch", "--max_updates=30", "--replay.min_steps=200"]
        run = runs.train(directory / "run", settings)
        kept = run.path / "checkpoints"
        newest = max((kept / saved_files.STEPS).iterdir())
        parts = [*newest.rglob("*"), *(kept / "segments").rglob("*")]
        files = sorted(path for path in parts if path.is_file() and path.stat().st_size)

        def is_whole() -> bool:
            rows = saved_files.list_steps(kept, content=True)
            return any(row["ok"] and row["step"] == int(newest.name) and not row["best"] for row in rows)

        promised(is_whole(), "a checkpoint that nobody damaged is not whole")
        quiet = [f"{file.relative_to(kept)} {damage}" for file in files for damage in _damages(file) if is_whole()]
        promised(not quiet, f"verification finds nothing: {', '.join(quiet[:5])}")
        return f"{3 * len(files)} damages of {len(files)} files, all found"
    finally:
        shutil.rmtree(directory)


PROBES: Mapping[str, Callable[[], str]] = {
    "load-1": lambda: load(1, 25.0, 100.0),
    "load-10": lambda: load(10, 250.0, 100.0),
    "load-100": lambda: load(100, 400.0, 100.0),
    "load-1000": lambda: load(1000, 400.0, 1000.0),
    "load-2000": load_more,
    "load-refused": load_refused,
    "load-reset": load_reset,
    "network-delay-20": lambda: network_delay(20),
    "network-delay-100": lambda: network_delay(100),
    "network-delay-300": lambda: network_delay(300),
    "network-cut": network_cut,
    "network-jump": network_jump,
    "network-slow": lambda: network_slow(1.0, 4.0),
    "network-hole-12": lambda: network_hole(12.0, 1),
    "network-hole-40": lambda: network_hole(40.0, 2),
    "input-mutated": input_mutated,
    "input-settings": input_settings,
    "storage-damage": storage_damage,
}
"""Probes by row."""
