"""The model pool's wire: a learner gives the parameters of its players to policy servers on other machines.

protos/seedzero/transport/inference.proto explains the messages. `ModelService` is the learner's end, the functions
below it are the client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import NamedTuple, Protocol, TypeVar

import grpc
import numpy as np

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import (
    grpc_status,
    inference_pb2,
    listeners,
    options,
    policy_client,
    policy_codec,
    security,
)

SERVICE = "seedzero.transport.Models"
_CHUNK_BYTES = 2**20
_MAX_ASKING = 8
"""Calls at a time, of which one is answered and the others wait."""
_WAIT_SECONDS = 30.0
"""Longest wait for a client's request, and for it to read a chunk."""
_OFFER_SECONDS = 60.0
_FETCH_SECONDS = 600.0
_SETTINGS = sections.TransportConfig()
ResultT = TypeVar("ResultT")


class PoolOffer(NamedTuple):
    """The players of a learner: the texts of config.json and spec.json, the updates of learning players, and names."""

    config: str
    spec: str
    learning: Mapping[str, int]
    frozen: tuple[str, ...]


class Parameters(NamedTuple):
    """A player's acting parameters: number of updates, digest (`storage/checkpoints/trees.py`), and all arrays."""

    version: int
    digest: str
    arrays: Sequence[np.ndarray]


class ModelPool(Protocol):
    """The players of a learner.

    Methods block; they raise UsageError without networks yet, or for an unknown player.
    """

    def offer(self) -> PoolOffer:
        """Returns the players."""

    def parameters(self, player: str) -> Parameters:
        """Returns a copy of a player's newest parameters."""


class ModelService:
    """Answers one call at a time. Runs on the server's event-loop thread."""

    def __init__(self, pool: ModelPool, guard: security.Guard) -> None:
        self._pool, self._guard = pool, guard
        self._turn, self._num_asking = asyncio.Lock(), 0
        # A cancelled call loses its turn while the pool still copies for it; the next one then waits for this thread.
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="model-pool")

    def methods(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        """Returns the methods for a grpc.aio server as streams, because gRPC would read a unary request."""
        players, fetch = inference_pb2.PlayersReply.SerializeToString, inference_pb2.FetchReply.SerializeToString
        ours = {
            "Players": grpc.stream_unary_rpc_method_handler(self.players, None, players),
            "Fetch": grpc.stream_stream_rpc_method_handler(self.fetch, None, fetch),
        }
        return grpc.method_handlers_generic_handler(SERVICE, ours)

    async def players(self, requests: object, context: listeners.Context) -> inference_pb2.PlayersReply:
        """Returns the run's configuration, spec and players."""

        async def respond() -> inference_pb2.PlayersReply:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._pool.offer)
            learning = policy_codec.served(found.learning)
            return inference_pb2.PlayersReply(
                config=found.config, spec=found.spec, learning=learning, frozen=found.frozen
            )

        return await self._alone(context, respond)

    async def fetch(self, requests: object, context: listeners.Context) -> None:
        """Sends a player's parameters."""

        async def respond() -> None:
            async with asyncio.timeout(_WAIT_SECONDS):
                asked = policy_codec.parsed(inference_pb2.FetchRequest, await context.read())
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._thread, self._pool.parameters, asked.player)
            for reply in _replies(found):
                async with asyncio.timeout(_WAIT_SECONDS):
                    await context.write(reply)  # type: ignore[arg-type]

        await self._alone(context, respond)

    async def _alone(self, context: listeners.Context, respond: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Returns a response once all others have ended; an error ends the call."""
        await listeners.refuse_strangers(self._guard, context)
        self._num_asking += 1
        try:
            if self._num_asking > _MAX_ASKING:
                raise errors.SlotsExhausted(f"{_MAX_ASKING} calls wait for parameters already; try again later")
            async with self._turn:
                return await respond()
        except TimeoutError:
            silent = f"nothing was sent or read for {_WAIT_SECONDS:g} s"
            failure = grpc_status.Failure(grpc.StatusCode.DEADLINE_EXCEEDED, silent)
        except Exception as error:  # the text of an unexpected error must not reach the caller
            failure = grpc_status.failure_of(error)
        finally:
            self._num_asking -= 1
        await failure.abort(context)
        raise AssertionError("abort raises")


def _replies(found: Parameters) -> Iterator[inference_pb2.FetchReply]:
    num_bytes = sum(array.nbytes for array in found.arrays)
    yield inference_pb2.FetchReply(version=found.version, num_bytes=num_bytes, digest=found.digest)
    for array in found.arrays:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for begin in range(0, len(data), _CHUNK_BYTES):
            yield inference_pb2.FetchReply(chunk=data[begin : begin + _CHUNK_BYTES].tobytes())


# --- a client's end ---


def ask(secured: security.ClientSecurity) -> PoolOffer:
    """Returns a learner's players.

    Raises AccessDenied if it refuses the token, or the two ends do not agree on TLS; ProtocolError if no learner
    answers, or it has no model pool or no networks yet.
    """
    with security.channel(secured, given=options.client(_SETTINGS)) as channel:
        call = channel.unary_unary(f"/{SERVICE}/Players", None, inference_pb2.PlayersReply.FromString)
        try:
            found = call(b"", timeout=_OFFER_SECONDS, metadata=secured.metadata)
        except grpc.RpcError as error:
            raise _explained(error, secured) from None
    return PoolOffer(found.config, found.spec, policy_codec.players_of(found.learning), tuple(found.frozen))


def fetch(secured: security.ClientSecurity, player: str, num_bytes: int) -> tuple[int, str, bytes]:
    """Returns the version, the digest and the bytes of a player's parameters; raises as `ask`.

    num_bytes: the expected number, raises SpecMismatch for any other.
    """
    data, head = bytearray(), None
    with security.channel(secured, given=options.client(_SETTINGS)) as channel:
        call = channel.unary_stream(f"/{SERVICE}/Fetch", None, inference_pb2.FetchReply.FromString)
        request = inference_pb2.FetchRequest(player=player).SerializeToString()
        try:
            for reply in call(request, timeout=_FETCH_SECONDS, metadata=secured.metadata):
                head = head or reply
                data += reply.chunk
                if max(len(data), head.num_bytes) > num_bytes:
                    break
        except grpc.RpcError as error:
            raise _explained(error, secured) from None
    if head is None or len(data) != num_bytes:
        raise errors.SpecMismatch(
            f"the learner at {secured.address} has parameters of {head.num_bytes if head else 0} bytes for player "
            f"{player}, and this agent has {num_bytes}: another run answers there; start this server again"
        )
    return head.version, head.digest, bytes(data)


def _explained(error: grpc.RpcError, secured: security.ClientSecurity) -> errors.Error:
    why = policy_client.Words("learner", "is `seedzero train` running there?", "start it with --serve.token_file=FILE")
    return policy_client.explained(error, secured, why)
