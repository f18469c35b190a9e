"""Runs the saved agents of a policy server: batches rows of all clients and keeps a recurrent memory for each row.

A request takes this way: PolicyServer -> ActingEngine.act -> run -> _answers -> PolicyServer.answer

One thread makes all calls. A request that fits into no batch fails alone. A call that fails ends the server, because
it has consumed the memory of all rows. Shape letters: B rows of a call, N rows of a request, S slots.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.acting.actors import acting_program, saved_agents
from seedzero.agents import base
from seedzero.core import errors, types
from seedzero.device import acting, batches
from seedzero.transport import grpc_status, policy_codec, policy_servers

SHRINK = 8
"""Factor between the compiled sizes of a call: from the largest down to one row."""
_KEPT = 1024
"""Number of the newest calls that the means cover."""
_COMPILING = "compiling the agent"


@dataclasses.dataclass
class ServingCounts:
    """Totals since the start, and the newest calls: (rows, seconds from the first request's arrival to the answer)."""

    requests: int = 0
    rows: int = 0
    calls: int = 0
    changes: int = 0
    newest: collections.deque[tuple[int, float]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=_KEPT)
    )


class _Waiting(NamedTuple):
    """A waiting request, and when it arrived by the clock, in seconds."""

    request: policy_servers.PolicyRequest
    arrived: float


class _Kind(NamedTuple):
    """What a call does: whether it returns findings, and whether its rows carry their memory with them."""

    findings: bool
    carries: bool


class _Prepared(NamedTuple):
    """The batch [B] of some requests, the memory slots of its rows, and the slots whose memory the call writes.

    memory: [B, ...] what the rows carry, if they have no slots.
    """

    slots: np.ndarray
    written: np.ndarray
    batch: batches.Batch
    memory: Any


class ActingEngine:
    """A `policy_servers.PolicyPlayer` that acts with saved agents of one run.

    Their parameters may change between calls.
    """

    def __init__(
        self,
        players: Mapping[str, saved_agents.SavedAgent],
        *,
        num_slots: int,
        max_batch: int,
        seed: int = 0,
        carries: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """players: at least one, all with the same agent; clients that name none get the first.

        carries: whether to prepare for clients that keep their rows' memory themselves.
        """
        first = next(iter(players.values()))
        self.num_slots, self.counts, self.trouble = num_slots, ServingCounts(), ""
        self._saved, self._seed, self._clock = first, seed, clock
        self._params = {name: saved.params for name, saved in players.items()}
        self._versions = {name: saved.update for name, saved in players.items()}
        self.max_batch, self._sizes = max_batch, _sizes(max_batch)
        self._memory = acting.initial(first.agent, first.spec, num_slots)
        is_own = ":" in first.config.run.agent  # whose memory may be of anything
        self.remembers = (
            first.agent.stack > 1 or first.agent.reads_reward or (is_own and bool(jax.tree.leaves(self._memory)))
        )
        self._program = acting_program.ActingProgram(first.agent, first.spec, donates=True)
        self._carries = carries and self.remembers
        self._compiled: dict[tuple[int, _Kind], Any] = {}
        self._condition = threading.Condition()
        self._waiting: collections.deque[_Waiting] = collections.deque()  # at most one per session
        self._changes: list[tuple[str, base.Params, int]] = []
        self.is_serving = self._is_over = False
        self._failure: errors.ServingFailure | None = None

    # --- any thread ---

    def offer(self) -> policy_codec.PolicyOffer:
        saved, is_listed = self._saved, not self._saved.spec.is_continuous
        searches = is_listed and saved.agent.search is not None
        return policy_codec.PolicyOffer(
            spec=saved.spec,
            env=saved.config.env.id,
            agent=saved.config.run.agent,
            players=dict(self._versions),
            reads_reward=saved.agent.reads_reward,
            has_probabilities=searches or (is_listed and saved.agent.policy is not None),
            searches=searches,
            draws=bool(saved.mode == types.SAMPLE),
            max_rows=min(self.num_slots, policy_codec.MAX_ROWS),
            trouble=self.trouble,
        )

    def blank_memory(self, num_rows: int) -> acting.Carried:
        """Returns what rows carry before their first observation, [num_rows, ...]."""
        return acting.initial(self._saved.agent, self._saved.spec, num_rows)

    def act(self, request: policy_servers.PolicyRequest) -> None:
        with self._condition:
            self._waiting.append(_Waiting(request, self._clock()))
            self._condition.notify()

    def change(self, player: str, params: base.Params, version: int) -> None:
        """Makes a player act with these parameters from the next call on; adds the player if it is unknown."""
        with self._condition:
            self._changes.append((player, params, version))
            self._condition.notify()

    def stop(self) -> None:
        """Ends `run` after its present call."""
        with self._condition:
            self._is_over = True
            self._condition.notify()

    def fail(self, subject: str, error: Exception) -> None:
        """Makes `run` raise the error of another thread."""
        with self._condition:
            self._failure = _failure(subject, error)
            self._condition.notify()

    # --- the thread of calls ---

    def compile(self) -> None:
        """Compiles the largest calls with and without findings, which can answer every request.

        Raises ServingFailure.
        """
        kinds = self._kinds()
        try:
            with futures.ThreadPoolExecutor(len(kinds)) as pool:  # the compiler takes a core for each
                list(pool.map(lambda kind: self._compile(self._sizes[0], kind), kinds))
        except Exception as error:  # JAX, the compiler and the agent may raise anything
            raise _failure(_COMPILING, error) from error

    def compile_rest(self) -> None:
        """Compiles the remaining calls.

        Any thread may do so while `run` works, which uses each one once it is ready.
        """
        try:
            for kind, size in itertools.product(self._kinds(), self._sizes):
                if not self._is_over:
                    self._compile(size, kind)
        except Exception as error:  # a later request would need this program, so fail now
            self.fail(_COMPILING, error)

    def _kinds(self) -> list[_Kind]:
        all_findings = (False, True) if self.offer().has_probabilities else (False,)
        return [_Kind(findings, carries) for carries in {False, self._carries} for findings in all_findings]

    def _compile(self, size: int, kind: _Kind) -> None:
        if (size, kind) in self._compiled:
            return
        params, blank = next(iter(self._params.values())), _blank(self._saved.spec, size)
        memory = self.blank_memory(size) if kind.carries else self._memory
        findings = acting_program.NUMBERS if kind.findings else acting_program.ACTIONS
        self._compiled[size, kind] = self._program.compile(params, memory, blank, findings)

    def run(self, answer: Callable[[Sequence[policy_servers.Answer]], None], announce: Callable[..., None]) -> None:
        """Answers requests until `stop`. announce: receives the players' versions after each change.

        Raises ServingFailure if a call or its compilation fails, or if `fail` was called.
        """
        self.is_serving = True
        try:
            while (taken := self._take()) is not None:
                requests, changes = taken
                for player, params, version in changes:
                    self._params[player] = params
                    self._versions = {**self._versions, player: version}
                    self.counts.changes += 1
                if changes:
                    announce(self._versions)
                for (player, kind), group in _groups(requests):
                    for part in _parts(group, self._sizes[0]):
                        answer(self._answers(player, kind, part))
        finally:
            self.is_serving = False

    def _take(self) -> tuple[list[_Waiting], list[tuple[str, base.Params, int]]] | None:
        """Waits for requests or changes and returns all there are; None at the end.

        Raises ServingFailure after `fail`.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._waiting or self._changes or self._is_over or self._failure)
            if self._failure:
                raise self._failure
            if self._is_over:
                return None
            requests, changes = list(self._waiting), self._changes
            self._waiting.clear()
            self._changes = []
            return requests, changes

    def _answers(self, player: str, kind: _Kind, part: Sequence[_Waiting]) -> list[policy_servers.Answer]:
        """Returns the answers to requests that fit into a batch together, or to a single larger request.

        Those of no session are handed to who asked.
        """
        requests = [waiting.request for waiting in part]
        try:
            prepared = _prepared(self._saved, requests)
        except Exception as error:  # only these requests fail, because no call has begun
            if len(part) > 1:
                return [answer for one in part for answer in self._answers(player, kind, [one])]
            return _given(requests[0], _refused(requests[0], error))
        try:
            found = self._found(player, kind, prepared)
        except Exception as error:  # the call has consumed the memory of all rows
            raise _failure(f"a call of player {player}", error) from error
        answers: list[policy_servers.Answer] = []
        version, begin = self._versions[player], 0
        for request in requests:
            rows = slice(begin, begin := begin + len(request.slots))
            shown: dict[str, Any] = jax.tree.map(lambda x, rows=rows: x[rows], found)
            acted = policy_codec.PolicyAnswer(shown.pop("action"), version, shown, shown.pop("memory", None))
            answers += _given(request, acted)
        counts, seconds = self.counts, self._clock() - part[0].arrived
        counts.requests, counts.rows = counts.requests + len(requests), counts.rows + begin
        counts.newest.append((begin, seconds))
        return answers

    def _found(self, player: str, kind: _Kind, prepared: _Prepared) -> dict[str, Any]:
        """Returns actions, findings and what rows carry, [B, ...], by name.

        Requests with more rows than a batch take several calls.
        """
        slots, written, batch, memory = prepared
        num_rows, version = len(slots), np.int32(self._versions[player])
        most, parts = self._sizes[0], []
        for begin in range(0, num_rows, most):
            number = min(most, num_rows - begin)
            size = self._size_for(number, kind)
            fill = functools.partial(_filled, begin=begin, number=number, size=size)
            seen = jax.tree.map(fill, batch)._replace(num_updates=version)
            places, before = (fill(slots), fill(written, value=acting_program.NOWHERE)), self._memory
            if kind.carries:
                places, before = (np.arange(size, dtype=np.int32),) * 2, jax.tree.map(fill, memory)
            draws = np.uint32(self._seed), np.uint32(self.counts.calls)
            after, found = self._compiled[size, kind](self._params[player], before, seen, *draws, *places)
            shown = {name: found[key] for key, name in _NAMES.items() if key in found}
            if kind.carries:
                shown["memory"] = after
            else:
                self._memory = after
            parts.append(acting_program.on_host({"action": found["action"], **shown}, number))
            self.counts.calls += 1
        joined: dict[str, Any] = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
        return joined

    def _size_for(self, number: int, kind: _Kind) -> int:
        """Returns the smallest compiled size that holds a number of rows; compiles the largest size if none does."""
        sizes = [size for size, known in list(self._compiled) if known == kind and size >= number]
        if not sizes:
            self._compile(self._sizes[0], kind)
        return min(sizes, default=self._sizes[0])


def _failure(subject: str, error: Exception) -> errors.ServingFailure:
    return errors.ServingFailure(f"{subject} failed ({type(error).__name__}: {error}); start the server again")


def _sizes(most: int) -> tuple[int, ...]:
    """Returns the compiled sizes, the largest first."""
    found = [most]
    while found[-1] > 1:
        found.append(max(1, found[-1] // SHRINK))
    return tuple(found)


def _groups(waiting: Sequence[_Waiting]) -> Iterator[tuple[tuple[str, _Kind], list[_Waiting]]]:
    """Groups requests that one call can answer, by their player and by what they need."""
    found: dict[tuple[str, _Kind], list[_Waiting]] = {}
    for one in waiting:
        kind = _Kind(one.request.rows.findings, one.request.memory is not None)
        found.setdefault((one.request.player, kind), []).append(one)
    yield from found.items()


def _parts(group: Sequence[_Waiting], most: int) -> Iterator[list[_Waiting]]:
    """Splits requests into parts with at most `most` rows together; a larger request is a part by itself."""
    part: list[_Waiting] = []
    for one in group:
        if part and sum(len(other.request.slots) for other in part) + len(one.request.slots) > most:
            yield part
            part = []
        part.append(one)
    yield part


def _prepared(saved: saved_agents.SavedAgent, requests: Sequence[policy_servers.PolicyRequest]) -> _Prepared:
    """Returns the batch of requests; rows that only look write nowhere."""
    slots = np.concatenate([request.slots for request in requests])
    written = [
        np.full_like(one.slots, acting_program.NOWHERE) if one.rows.only_look else one.slots for one in requests
    ]
    batch = _joined(saved, requests)
    jax.tree.map(_check_alike, _blank(saved.spec, 1)._replace(num_updates=None), batch)
    memory = jax.tree.map(lambda *arrays: np.concatenate(arrays), *[one.memory for one in requests])
    return _Prepared(slots, np.concatenate(written), batch, memory)


def _blank(spec: types.EnvSpec, size: int) -> batches.Batch:
    """Returns blank rows [B] in the form that the program takes."""
    frames = np.zeros((size, *spec.observation_shape), spec.observation_dtype)
    return acting_program.seen(spec, types.EnvStep.first(frames), np.ones(size, bool))


def _check_alike(blank: np.ndarray, rows: np.ndarray) -> None:
    if blank.shape[1:] != rows.shape[1:] or blank.dtype != rows.dtype:
        raise ValueError(f"rows of {rows.dtype}{list(rows.shape[1:])}; expected {blank.dtype}{list(blank.shape[1:])}")


def _refused(request: policy_servers.PolicyRequest, error: Exception) -> grpc_status.Failure:
    """Returns the failure that ends a request's session; only the log gets the error's text."""
    why = f"request {request.sequence} fits into no batch of the agent; the server's log says why"
    return dataclasses.replace(grpc_status.failure_of(error), details=why)


def _given(
    request: policy_servers.PolicyRequest, reply: policy_codec.PolicyAnswer | grpc_status.Failure
) -> list[policy_servers.Answer]:
    """Hands a reply to who asked, or returns it as the answer to its session."""
    if request.asked is not None:
        request.asked.set_result(reply)
        return []
    if isinstance(reply, policy_codec.PolicyAnswer):
        return [(request.session_id, request.sequence, policy_codec.encode_acted(request.sequence, reply))]
    return [(request.session_id, request.sequence, reply)]


def _joined(saved: saved_agents.SavedAgent, requests: Sequence[policy_servers.PolicyRequest]) -> batches.Batch:
    """Returns the rows [B] of requests, except for the number of updates."""
    found = []
    for rows in (request.rows for request in requests):
        mode = types.EXPLORE if rows.explore else saved.mode
        found.append(acting_program.seen(saved.spec, rows.step, rows.first, mode)._replace(num_updates=None))
    joined: batches.Batch = jax.tree.map(lambda *arrays: np.concatenate(arrays), *found)
    return joined._replace(slot=np.arange(len(joined.slot), dtype=np.int32))


def _filled(array: np.ndarray, *, begin: int, number: int, size: int, value: int = 0) -> np.ndarray:
    """Returns some rows of an array, padded to a size with copies of the first row, or with a value."""
    rows = array[begin : begin + number]
    rest = np.repeat(rows[:1], size - number, axis=0)
    return np.concatenate([rows, np.full_like(rest, value) if value else rest])


_NAMES = {
    "policy": "probabilities",
    "value": "value",
    "visit_counts": "visits",
    "q_values": "q_value",
}
"""Names of findings in `acting_program.look` and in answers."""
