"""A learner's parameters over the wire: whole, one transfer at a time, and for holders of the pool's token alone."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from wire import SETTINGS, Learner, in_a_loop, serving

from seedzero.core import errors
from seedzero.transport import codec, inference_pb2, model_pool, security

SECONDS = 600.0
WORKERS, POOL = "0123456789abcdef", "fedcba9876543210"
ARRAYS = [np.arange(700_000, dtype=np.float32), np.zeros((0, 3), np.float32), np.array(7, np.int32)]
NUM_BYTES = 2_800_004


class Pool:
    """Two players, one of which is given out only once the test allows it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.threads: set[int] = set()
        self.is_slow, self.may_go_on = threading.Event(), threading.Semaphore(0)

    def offer(self) -> model_pool.PoolOffer:
        return model_pool.PoolOffer('{"a": 1}', "{}", {"main": 12}, ("main-0123456789ab",))

    def parameters(self, player: str) -> model_pool.Parameters:
        self.asked.append(player)
        self.threads.add(threading.get_ident())
        if player == "slow":
            self.is_slow.set()
            assert self.may_go_on.acquire(timeout=SECONDS)
        if player == "nobody":
            raise errors.UsageError("no player 'nobody' is in this run")
        if player == "broken":
            raise ZeroDivisionError("a secret")
        return model_pool.Parameters(12, "digest", ARRAYS)


@contextlib.contextmanager
def _pooling() -> Iterator[tuple[Pool, str]]:
    pool = Pool()
    with serving(Learner(SETTINGS, secured=security.ServerSecurity(WORKERS), pool=(pool, POOL))) as address:
        yield pool, address


def _client(address: str, token: str = POOL) -> security.ClientSecurity:
    return security.for_client(address, token=token)


def test_players_and_all_bytes_of_their_parameters_arrive() -> None:
    with _pooling() as (pool, address):
        assert model_pool.ask(_client(address)) == pool.offer()
        version, digest, data = model_pool.fetch(_client(address), "main", NUM_BYTES)
    assert (version, digest, data) == (12, "digest", b"".join(array.tobytes() for array in ARRAYS))


def test_the_workers_token_gives_no_parameters_and_the_pool_s_no_work() -> None:
    with _pooling() as (pool, address):
        for token, told in ((WORKERS, "is not this learner's; "), ("", "the request has none; ")):
            with pytest.raises(errors.AccessDenied, match=rf"{told}give --serve\.token_file=FILE"):
                model_pool.ask(_client(address, token))
            with pytest.raises(errors.AccessDenied):
                model_pool.fetch(_client(address, token), "main", NUM_BYTES)
        assert pool.asked == []
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary(codec.STATUS_METHOD)(b"", timeout=SECONDS, metadata=_client(address).metadata)
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_faults_are_named() -> None:
    with _pooling() as (_, address):
        with pytest.raises(errors.ProtocolError, match="no player 'nobody' is in this run"):
            model_pool.fetch(_client(address), "nobody", NUM_BYTES)
        with pytest.raises(errors.ProtocolError, match="the learner failed; its log says why"):
            model_pool.fetch(_client(address), "broken", NUM_BYTES)
        for number in (NUM_BYTES - 1, NUM_BYTES + 1):
            with pytest.raises(errors.SpecMismatch, match=f" 2800004 bytes for player main, .* {number}: another run"):
                model_pool.fetch(_client(address), "main", number)
    with pytest.raises(errors.ProtocolError, match=r"no learner.*`seedzero train`"):
        model_pool.ask(_client(address))


def test_a_learner_without_a_pool_says_how_to_get_one() -> None:
    with serving(Learner(SETTINGS)) as address:
        client = _client(address)
        with pytest.raises(errors.ProtocolError, match=r"--serve\.token_file"):
            model_pool.ask(client)


def test_transfers_come_one_at_a_time_and_few_wait() -> None:
    with _pooling() as (pool, address):
        ended = queue.SimpleQueue[bytes | errors.ProtocolError]()

        def fetch() -> None:
            try:
                ended.put(model_pool.fetch(_client(address), "slow", NUM_BYTES)[2])
            except errors.ProtocolError as error:
                ended.put(error)

        threads = [threading.Thread(target=fetch) for _ in range(model_pool._MAX_ASKING + 1)]
        for thread in threads:
            thread.start()
        assert "8 calls wait" in str(ended.get(timeout=SECONDS))  # of the last one to come: none has ended
        assert pool.asked == ["slow"]
        for _ in threads:
            pool.may_go_on.release()
        for thread in threads:
            thread.join(SECONDS)
        assert [len(ended.get()) for _ in threads[1:]] == [NUM_BYTES] * model_pool._MAX_ASKING  # type: ignore[arg-type]
        assert pool.asked == ["slow"] * model_pool._MAX_ASKING


class _Call:
    """The server's end of a Fetch."""

    def __init__(self, player: str) -> None:
        self.was_read, self.num_bytes = asyncio.Event(), 0
        self._request = inference_pb2.FetchRequest(player=player).SerializeToString()

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def peer(self) -> str:
        return "test"

    async def read(self) -> bytes:
        self.was_read.set()
        return self._request

    async def write(self, reply: inference_pb2.FetchReply) -> None:
        self.num_bytes += len(reply.chunk)


@in_a_loop
async def test_the_copy_of_a_cancelled_transfer_ends_before_the_next_begins() -> None:
    pool, first, second = Pool(), _Call("slow"), _Call("main")
    service = model_pool.ModelService(pool, security.Guard(""))
    cancelled = asyncio.create_task(service.fetch(None, first))  # type: ignore[arg-type]
    await asyncio.to_thread(pool.is_slow.wait, SECONDS)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    following = asyncio.create_task(service.fetch(None, second))  # type: ignore[arg-type]
    await second.was_read.wait()  # and so it asks the pool
    pool.may_go_on.release()
    await following
    assert pool.asked == ["slow", "main"] and len(pool.threads) == 1 and second.num_bytes == NUM_BYTES
