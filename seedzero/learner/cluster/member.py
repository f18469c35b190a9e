"""Runs on every host but host 0: one stream to the hub."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable

import grpc
from grpc import aio

from seedzero.config import sections
from seedzero.core import errors
from seedzero.learner.cluster import link, messages
from seedzero.transport import grpc_status, options, security

_RETRY_SECONDS = 0.5
_MAX_UNSENT = 10_000


class HostMember(link.Link):
    """Joins the hub and follows its decisions."""

    def __init__(
        self,
        hello: messages.HostHello,
        address: str,
        settings: sections.TransportConfig,
        *,
        access: security.Access = security.PLAIN,
        token: str = "",
        silence_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """token: as in `security.for_client`."""
        super().__init__(hello, silence_seconds, clock)
        self._address, self._settings = address, settings
        self._secured = security.for_client(address, access, token)
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue(_MAX_UNSENT)
        self._begin: asyncio.Future[messages.Begin] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._heard = clock()

    def meet(self, deadline_seconds: float) -> messages.Begin:
        return self._thread.run(self._meet(deadline_seconds))

    def send(self, message: messages.Message) -> None:
        self._thread.post(self._put, message)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- on the link's thread

    async def _meet(self, deadline_seconds: float) -> messages.Begin:
        ends = self._clock() + deadline_seconds
        why = "nobody answers"
        self._tasks = [asyncio.create_task(self.beating(self._beat))]
        while (left := ends - self._clock()) > 0:
            self._begin = asyncio.get_running_loop().create_future()
            stream = asyncio.create_task(self._stream())
            try:
                async with asyncio.timeout(left):
                    await asyncio.wait({stream, self._begin}, return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
                if self._begin.done():
                    self._tasks.append(stream)
                    return self._begin.result()
                why = self._refused(stream.exception())
            except TimeoutError:
                why = "host 0 waits for others" if self._heard_of else "nobody answers"
            finally:
                if stream not in self._tasks:
                    stream.cancel()
            await asyncio.sleep(min(_RETRY_SECONDS, max(0.0, ends - self._clock())))
        raise errors.TrainingFailure(
            f"host {self.hello.index} could not join host 0 at --cluster.coordinator={self._address} within "
            f"{deadline_seconds:g} s: {why}; start all hosts at about the same time, or give more "
            "--cluster.join_seconds"
        )

    _heard_of = False

    def _refused(self, error: BaseException | None) -> str:
        """Returns why the stream ended, so that it is tried again, or raises the error of a final rejection."""
        if not isinstance(error, aio.AioRpcError):
            if error is not None and not isinstance(error, errors.Error):
                raise error
            return str(error or "host 0 has ended the stream")
        code, details = error.code(), error.details() or ""
        if (final := grpc_status.error_of(error)) is not None:
            raise final
        if (denied := security.explain(code, details, self._secured)) is not None:
            raise denied
        return details if code is not grpc.StatusCode.UNAVAILABLE else "nobody answers"

    async def _stream(self) -> None:
        """Says hello, and passes messages both ways until the stream ends."""
        if not self.hello.reached_at:
            reached_at = await asyncio.to_thread(messages.own_end, self._address)  # resolving a name may take seconds
            self.hello = dataclasses.replace(self.hello, reached_at=reached_at)
        given = options.client(self._settings, messages.MAX_BYTES)
        async with security.channel(self._secured, aio, given) as channel:
            call = channel.stream_stream(f"/{messages.SERVICE}/{messages.METHOD}")(
                self._sent(), metadata=self._secured.metadata
            )
            reason = "host 0 has ended"
            try:
                async for data in call:
                    self._heard, self._heard_of = self._clock(), True
                    self._take(messages.decode(data))
            except aio.AioRpcError as error:
                if self._begin is None or not self._begin.done():
                    raise
                reason = (
                    f"the connection to host 0 broke ({error.code().name}): it has ended, or the network does not work"
                )
            except (errors.Error, ValueError, TypeError, KeyError) as error:
                reason = f"host 0 sends what it should not: {error}"
            self.lose(reason)

    async def _sent(self) -> AsyncIterator[bytes]:
        yield messages.encode({"hello": dataclasses.asdict(self.hello)})
        while True:
            yield await self._unsent.get()

    def _take(self, message: messages.Message) -> None:
        if "begin" in message and self._begin is not None and not self._begin.done():
            devices, step, num_hosts, parts, num_gone = message["begin"]
            step, num_hosts, num_gone = map(messages.number, (step, num_hosts, num_gone))
            parts = tuple(messages.number(index) for index in parts)
            self._begin.set_result(messages.Begin(str(devices), step, num_hosts, parts, num_gone))
            return
        self.receive(message)

    def _put(self, message: messages.Message) -> None:
        with contextlib.suppress(asyncio.QueueFull):  # host 0 does not read; its silence will end the run
            self._unsent.put_nowait(messages.encode(message))

    def _beat(self) -> None:
        self._put({"beat": own} if (own := self.counters()) else {"alive": True})
        has_begun = self._begin is not None and self._begin.done()
        if has_begun and (seconds := self._clock() - self._heard) > self._silence_seconds:
            self.lose(link.silent(0, seconds))
