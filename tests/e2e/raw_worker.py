"""A worker that is not ours, from inference.proto alone: gRPC, the generated messages, nothing of our client."""

from __future__ import annotations

import queue

import e2e_harness as harness
import grpc
import pytest

from seedzero.transport import inference_pb2

SHAPE, NUM_ACTIONS = (10,), 2


class RawWorker:
    """One stream."""

    def __init__(self, address: str, name: str = "raw") -> None:
        self.name = name
        self._outgoing: queue.Queue[bytes | None] = queue.Queue()
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
        connect = self._channel.stream_stream(
            "/seedzero.transport.Inference/Connect",
            request_serializer=lambda data: data,
            response_deserializer=inference_pb2.LearnerMessage.FromString,
        )
        self._call = connect(iter(self._outgoing.get, None), timeout=harness.DEADLINE_SECONDS, wait_for_ready=True)

    def send(self, message: inference_pb2.WorkerMessage | bytes) -> None:
        self._outgoing.put(message if isinstance(message, bytes) else message.SerializeToString())

    def receive(self) -> inference_pb2.LearnerMessage:
        return next(self._call)

    def hello(self, *, version: int = 2, session_id: str = "") -> None:
        hello = inference_pb2.Hello(
            protocol_version=version,
            worker_id=self.name,
            session_id=session_id,
            roles=[inference_pb2.ROLE_TRAIN],
            environments=["yours"],
            max_envs=4,
        )
        self.send(inference_pb2.WorkerMessage(hello=hello))

    def join(self) -> inference_pb2.Assign:
        """Says Hello and Spec; returns the assignment when steps may be sent."""
        self.hello()
        assign = self.receive().assign
        spec = inference_pb2.Spec(
            observation_shape=SHAPE,
            observation_dtype="float32",
            observation_low=0,
            observation_high=1,
            num_actions=NUM_ACTIONS,
            num_players=1,
            frames_per_step=1,
        )
        self.send(inference_pb2.WorkerMessage(spec=spec))
        assert self.receive().WhichOneof("message") == "start"
        return assign

    def failure(self) -> tuple[grpc.StatusCode, str, str]:
        """Waits for the end; returns code, details and the error's kind."""
        with pytest.raises(grpc.RpcError):
            while True:
                self.receive()
        trailer = {item.key: item.value for item in self._call.trailing_metadata() or ()}
        return self._call.code(), self._call.details(), trailer.get("seedzero-error", "")

    def close(self) -> None:
        self._outgoing.put(None)
        self._channel.close()
