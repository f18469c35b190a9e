"""Runs a policy server with its addresses, /act over HTTP, its metrics, and the newer parameters of its run."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from http import HTTPStatus
from typing import Any

import numpy as np
from prometheus_client import core, registry

from seedzero.acting.actors import codecs, positions
from seedzero.config import sections
from seedzero.core import errors, host_names, json_object, packing, types, user_code
from seedzero.interfaces.serving import acting_engine, followers, memories
from seedzero.learner.processes import signals
from seedzero.monitoring import exporter
from seedzero.storage.checkpoints import run_dirs
from seedzero.transport import grpc_status, policy_codec, policy_servers, security

# `POST /act`: observations as JSON, answered with the agent's actions, for programs without gRPC.
#
# Threads of a small HTTP server call it. An answer depends on its request alone, which carries what the agent
# remembers of the episode. Shape letters: B rows of a request.
_PATH, _HEALTH, _JSON = "/act", "/health", "application/json"
_KEYS = ("observation", "moves", "action_mask", "reward", "memory", "player", "findings")
_BYTES_PER_NUMBER, _MORE_BYTES = 32, 4096
_MAX_BYTES = 4 * 2**20
"""Largest request of several rows, which bounds what all connections hold."""
_WAIT_SECONDS = 8.0
"""Longest wait for the agent; the HTTP server allows ten for a whole request."""


class _Refused(Exception):
    """The reason for an answer of a status."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpActing:
    """A WSGI application in front of an engine; thread-safe."""

    def __init__(
        self,
        engine: acting_engine.ActingEngine,
        token: str,
        host: str = "127.0.0.1",
        *,
        run_id: str = "",
        follows: bool = False,
        consent: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepares.

        Args:
          host: where the server listens.
          run_id, follows: of the agent, for `memories.Memories`.
          consent: raises UsageError if a game of the user's own may not be imported.

        Raises UsageError for an agent whose memory is not made of numbers.
        """
        self._engine, self._guard, self._offer = engine, security.Guard(token), engine.offer()
        spec, self._consent = self._offer.spec, consent
        self._codec, self._memories = codecs.of(spec), None
        row_bytes = _BYTES_PER_NUMBER * (spec.observation_bytes + spec.num_actions)
        if engine.remembers:
            identity = json_object.encode([run_id, self._offer.agent, self._offer.env, str(spec)])
            self._memories = memories.Memories(engine.blank_memory(1), identity, token, follows=follows)
            row_bytes += self._memories.text_length
        self._max_rows = max(1, min(engine.max_batch, _MAX_BYTES // row_bytes))
        self._max_bytes, self._needs_token = row_bytes * self._max_rows + _MORE_BYTES, bool(token)
        # Without a token only this machine's programs may ask, so a name that DNS points here is a web page's.
        self._hosts = host_names.HostNames(host) if not token and host_names.is_loopback(host) else None

    def __call__(self, environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        status, found = HTTPStatus.OK, {"status": "serving"}
        try:
            if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) != ("GET", _HEALTH):
                found = self._act(self._read(environ))
            elif not self._engine.is_serving:
                raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the agent is being compiled, or the server ends")
        except memories.Forgotten as error:
            status, found = HTTPStatus.CONFLICT, {"error": str(error)}
        except (_Refused, errors.UsageError) as error:
            status, found = getattr(error, "status", HTTPStatus.BAD_REQUEST), {"error": str(error)}
        start(f"{status.value} {status.phrase}", [("Content-Type", _JSON), ("Allow", "POST")])
        return [json_object.encode(found).encode()]

    def _read(self, environ: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of a request. Its headers and its size are checked before any of it is read."""
        if environ["PATH_INFO"] != _PATH:
            raise _Refused(HTTPStatus.NOT_FOUND, f"expected POST {_PATH}, or GET {_HEALTH}")
        if environ["REQUEST_METHOD"] != "POST":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{environ['REQUEST_METHOD']:.20}: expected POST {_PATH}")
        if not self._needs_token:
            self._refuse_pages(environ)
        header = environ.get("HTTP_AUTHORIZATION")
        try:
            self._guard.check([("authorization", header)] if header else [], f"http:{environ['REMOTE_ADDR']}")
        except errors.AccessDenied:
            wanted = "the header Authorization: Bearer TOKEN"
            raise _Refused(HTTPStatus.UNAUTHORIZED, f"the token is missing, or another one; send {wanted}") from None
        if (encoding := environ.get("HTTP_CONTENT_ENCODING", "identity")) != "identity":
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Encoding is {encoding:.20}; send it plain")
        content = self._content(environ)
        try:
            fields = json_object.parse(content)
        except ValueError as error:
            raise errors.UsageError(f"the request must be a JSON object ({error})") from None
        if unknown := [key for key in fields if key not in _KEYS]:
            raise errors.UsageError(f"{unknown[0]:.100} is unknown; expected some of {', '.join(_KEYS)}")
        return fields

    def _refuse_pages(self, environ: Mapping[str, Any]) -> None:
        """Refuses what a web page could send through its reader's browser."""
        host, origin = environ.get("HTTP_HOST", ""), environ.get("HTTP_ORIGIN")
        if self._hosts is not None and host and not self._hosts.allows(host):
            text = f"Host is {host:.100}; expected {' or '.join(self._hosts.names)}, or start the server with a token"
            raise _Refused(HTTPStatus.MISDIRECTED_REQUEST, text)
        if origin is not None and origin.partition("://")[2] != host:
            text = "a web page asked; without a token only programs are answered"
            raise _Refused(HTTPStatus.FORBIDDEN, text)
        if (kind := environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower() != _JSON:
            text = f"Content-Type is {kind or 'none':.100}; expected {_JSON}, because the server has no token"
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)

    def _content(self, environ: Mapping[str, Any]) -> bytes:
        """Returns a request's content, also one in chunks (RFC 9112, section 7.1)."""
        source, length = environ["wsgi.input"], environ.get("CONTENT_LENGTH") or ""
        if (coding := environ.get("HTTP_TRANSFER_ENCODING", "").lower()) not in ("", "chunked"):
            raise _Refused(HTTPStatus.NOT_IMPLEMENTED, f"Transfer-Encoding is {coding:.20}; expected chunked")
        if not coding:
            if not length:
                raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
            return bytes(source.read(self._size(length, 10, "Content-Length")))
        joined = bytearray()
        while size := self._size(source.readline(_MORE_BYTES).decode("latin-1"), 16, "the size of a chunk"):
            joined.extend(source.read(size))
            self._size(f"{len(joined)}", 10, "the size of all chunks")
            source.readline(2)  # the end of its line
        return bytes(joined)

    def _size(self, text: str, base: int, name: str) -> int:
        """Returns a size. Raises _Refused if it is none, or too large."""
        digits = text.partition(";")[0].strip()
        if not re.fullmatch("[0-9a-fA-F]{1,15}" if base == 16 else "[0-9]{1,15}", digits):
            raise _Refused(HTTPStatus.BAD_REQUEST, f"{name} is {digits!r:.20}; expected a number")
        if (size := int(digits, base)) > self._max_bytes:
            text = f"{name} is {size}; expected at most {self._max_bytes}"
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        return size

    def _act(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer to a request. Raises UsageError for a wrong field."""
        spec, codec, players = self._offer.spec, self._codec, self._engine.offer().players
        player, findings = fields.get("player", next(iter(players))), fields.get("findings", False)
        if player not in list(players):
            raise errors.UsageError(f"player is {player!r:.100}; expected one of {', '.join(players)}")
        if findings not in (False, self._offer.has_probabilities):
            raise errors.UsageError(
                f"findings is {findings!r:.100}; expected true or false, and false for an agent that learns only "
                "values"
            )
        seen = self._seen(fields)
        frames, is_single = codec.encode(seen["observation"])
        if len(frames) > self._max_rows:
            raise errors.UsageError(f"the request has {len(frames)} observations; expected at most {self._max_rows}")
        given = seen.get("action_mask")
        mask = codec.shown_mask(seen["observation"]) if given is None and spec.has_action_mask else given
        if mask is None and spec.has_action_mask:
            raise errors.UsageError("action_mask is missing; expected 1 or 0 for each action")
        memory, first = self._remembered(fields.get("memory"), player, len(frames), is_single=is_single)
        reward, legal = packing.rewards_and_mask(
            spec,
            first,
            fields.get("reward"),
            None if mask is None else codec.joint_mask(mask),
            is_single=is_single,
            reads_reward=self._offer.reads_reward,
        )
        if legal is not None and not legal.any(axis=1).all():
            raise errors.UsageError("action_mask has no legal action; expected at least one")
        none = np.zeros(len(first), bool)
        step, places = types.EnvStep(frames, reward, none, none, legal), np.arange(len(first), dtype=np.int32)
        rows = policy_codec.PolicyRows(places, step, first, bool(findings), only_look=True)
        acted = self._ask(player, rows, memory)
        shown = dict(acted.findings)
        if "q_value" in shown:
            shown["q_value"] = shown["q_value"].astype(object)
            shown["q_value"][shown["visits"] == 0] = None
        if self._memories and acted.memory is not None:
            shown["memory"] = np.array(self._memories.write(acted.memory, player, acted.version))
        named = {name: (values[0] if is_single else values).tolist() for name, values in shown.items()}
        action = np.asarray(codec.decode(acted.actions, is_single=is_single)).tolist()
        return {"action": action, "version": acted.version, **named}

    def _seen(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns `observation` and `action_mask` of a request, whose `moves` may stand for both."""
        if ("observation" in fields) is ("moves" in fields):
            text = "came with moves" if "moves" in fields else "is missing"
            raise errors.UsageError(
                f"observation {text}; expected one as the environment returns it, or a game's moves"
            )
        if "moves" not in fields:
            return fields
        if user_code.named({user_code.ENVIRONMENT: self._offer.env}):
            self._consent()
        if fields.get("action_mask") is not None:
            raise errors.UsageError("action_mask came with moves, which determine the legal actions; leave it out")
        return positions.seen(self._offer.env, self._offer.spec, fields["moves"])

    def _remembered(self, given: Any, player: str, num_rows: int, *, is_single: bool) -> tuple[Any, np.ndarray]:
        """Returns what rows remember, [B, ...] or None, and [B] bool, true: an episode begins.

        Raises UsageError for memories of the wrong kind, and Forgotten.
        """
        texts = [given] if is_single else [None] * num_rows if given is None else given
        if not isinstance(texts, list) or len(texts) != num_rows:
            raise errors.UsageError(f"memory must be a list of {num_rows} texts, one for each observation")
        if self._memories is None:
            if any(text is not None for text in texts):
                raise errors.UsageError(f"agent {self._offer.agent} has no memory; leave `memory` out")
            return None, np.ones(num_rows, bool)
        memory = self._memories.read(texts, player, self._engine.offer().players[player])
        return memory, np.array([text is None for text in texts])

    def _ask(self, player: str, rows: policy_codec.PolicyRows, memory: Any) -> policy_codec.PolicyAnswer:
        asked = futures.Future[policy_codec.PolicyAnswer | grpc_status.Failure]()
        self._engine.act(policy_servers.PolicyRequest("", 0, player, rows.row, rows, asked, memory))
        try:
            reply = asked.result(_WAIT_SECONDS)
        except TimeoutError:
            text = f"no answer within {_WAIT_SECONDS:g} s, as while the agent is compiled; try again"
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, text) from None
        if isinstance(reply, grpc_status.Failure):
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, reply.details)
        return reply


_MAX_HTTP = 256
"""Connections that wait for an action at once, each with a thread."""
_PREFIX = "seedzero_policy_"
_COUNTERS = {
    "requests": "requests answered",
    "rows": "observations answered",
    "calls": "calls of the agent",
    "changes": "parameters that were replaced by newer ones",
}


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """Settings of a policy server.

    Attributes:
      num_slots: rows of all clients together, each with its memory.
      max_batch: most rows of a call.
      follows: whether to load newer parameters of the run.
      metrics_port: for Prometheus; 0 means any free port, None no metrics.
      metrics_host: the address of that port.
      http_port: for `POST /act` on the server's own host; 0 means any free port, None no HTTP.
    """

    num_slots: int = 4096
    max_batch: int = 64
    follows: bool = False
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    http_port: int | None = None


def serve(
    agents: followers.FollowedAgents,
    settings: sections.TransportConfig,
    secured: security.ServerSecurity,
    options: ServeOptions,
    say: Callable[[str], None],
) -> acting_engine.ServingCounts:
    """Serves until Ctrl-C, SIGTERM or SIGHUP; returns the totals.

    Raises UsageError if an address cannot be used or the agent cannot act by HTTP, and ServingFailure if a call, a
    compilation or following the run fails.
    """
    engine = acting_engine.ActingEngine(
        agents.players,
        num_slots=options.num_slots,
        max_batch=options.max_batch,
        seed=agents.choice.seed,
        carries=options.http_port is not None,
    )
    server = policy_servers.PolicyServer(engine, settings, secured=secured)

    def report(trouble: str) -> None:
        engine.trouble = trouble
        say(trouble or "newer parameters can be read again")

    follower = followers.Follower(
        agents, lambda name, saved: engine.change(name, saved.params, saved.update), report, engine.fail
    )
    with contextlib.ExitStack() as undo:
        stopping = signals.StopSignals(engine.stop, say=lambda _: say("stopping"), cleanup=lambda: None)
        undo.enter_context(stopping)
        if options.metrics_port is not None:
            collector = _PolicyCollector(engine.counts, lambda: server.num_sessions)
            url = undo.enter_context(exporter.serving_from(options.metrics_host, options.metrics_port, collector))
            say(f"metrics for Prometheus: {url}")
        if options.http_port is not None:
            host = settings.listen.rpartition(":")[0].strip("[]")
            http = HttpActing(
                engine,
                secured.token,
                host,
                run_id=run_dirs.read_saved(agents.choice.path).id,
                follows=options.follows,
                consent=agents.choice.config,
            )
            given = (http, "POST /act", "--http_port and --host", secured.https)
            url = undo.enter_context(exporter.serving_app(host, options.http_port, *given, max_connections=_MAX_HTTP))
            say(f"actions by HTTP: {url}/act")
        say("compiling the agent")
        engine.compile()
        if stopping.requested.is_set():
            return engine.counts
        undo.callback(server.stop, "the policy server stops")
        address = server.start()
        names = ", ".join(f"{name} of update {version}" for name, version in engine.offer().players.items())
        say(f"serving {names} at {address} (Ctrl-C stops)")
        if options.follows:
            undo.callback(follower.stop)
            follower.start()
        # Not a daemon, which would abort a compilation when Python exits; `errors.leave` waits for no thread.
        threading.Thread(target=engine.compile_rest, name="compile").start()
        engine.run(server.answer, server.announce)
    return engine.counts


class _PolicyCollector(registry.Collector):
    def __init__(self, counts: acting_engine.ServingCounts, num_sessions: Callable[[], int]) -> None:
        self._counts, self._num_sessions = counts, num_sessions

    def collect(self) -> Iterable[core.Metric]:
        return families(self._counts, self._num_sessions())


def families(counts: acting_engine.ServingCounts, num_sessions: int) -> Iterator[core.Metric]:
    """Yields the metrics for Prometheus; means are missing until the first call."""
    for name, text in _COUNTERS.items():
        yield core.CounterMetricFamily(_PREFIX + name, text, value=getattr(counts, name))
    yield core.GaugeMetricFamily(f"{_PREFIX}sessions", "sessions of clients", value=num_sessions)
    newest = np.array(list(counts.newest))
    if len(newest):
        text = "mean rows of the newest calls"
        yield core.GaugeMetricFamily(f"{_PREFIX}rows_per_call", text, value=newest[:, 0].mean())
        text = "seconds from a request's arrival to its answer, of the newest calls"
        seconds = core.GaugeMetricFamily(f"{_PREFIX}latency_seconds", text, labels=("quantile",))
        for quantile in (0.5, 0.99):
            seconds.add_metric((str(quantile),), float(np.quantile(newest[:, 1], quantile)))
        yield seconds
