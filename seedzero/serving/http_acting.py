"""`POST /act`: one observation as JSON, answered with the agent's action, for programs without gRPC.

Threads of a small HTTP server call it. An answer depends on its request alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from http import HTTPStatus
from typing import Any

import numpy as np

from seedzero.core import errors, json_object, policy_inputs, types
from seedzero.evaluation import codecs
from seedzero.serving import acting_engine
from seedzero.transport import policy_codec, policy_servers, policy_sides, security

Answering = Callable[[Sequence[policy_servers.Answer]], None]
_REQUEST = ("POST", "/act")
_PREFIX = "http "  # of the sessions of requests
_KEYS = ("observation", "action_mask", "player", "findings")
_BYTES_PER_NUMBER, _MORE_BYTES = 32, 4096
_WAIT_SECONDS = 8.0
"""Longest wait for the agent; the HTTP server allows ten for a whole request."""


class _Refused(Exception):
    """The reason for an answer of a status."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HttpActing:
    """A WSGI application in front of an engine; thread-safe."""

    def __init__(self, engine: acting_engine.ActingEngine, token: str) -> None:
        """Raises UsageError for an agent that remembers earlier observations, which a single request lacks."""
        self._engine, self._guard, self._offer = engine, security.Guard(token), engine.offer()
        if engine.remembers:
            raise errors.UsageError(
                f"--http_port: agent {self._offer.agent} remembers earlier observations, and a request has one alone; "
                "omit --http_port, and use seedzero.connect"
            )
        spec = self._offer.spec
        self._codec = codecs.of(spec)
        self._max_bytes = _BYTES_PER_NUMBER * (spec.observation_bytes + spec.num_actions) + _MORE_BYTES
        self._numbers = itertools.count()
        self._asked: dict[str, futures.Future[Any]] = {}  # at most one for each of the server's connections

    def before(self, other: Answering) -> Answering:
        """Returns a function that takes the answers to requests by HTTP, and hands the others on."""

        def answer(answers: Sequence[policy_servers.Answer]) -> None:
            for session_id, _, reply in answers:
                if (asked := self._asked.get(session_id)) is not None:
                    asked.set_result(reply)
            other([one for one in answers if not one[0].startswith(_PREFIX)])

        return answer

    def __call__(self, environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        try:
            status, found = HTTPStatus.OK, self._act(self._read(environ))
        except (_Refused, errors.UsageError) as error:
            status, found = getattr(error, "status", HTTPStatus.BAD_REQUEST), {"error": str(error)}
        start(f"{status.value} {status.phrase}", [("Content-Type", "application/json")])
        return [json_object.encode(found).encode()]

    def _read(self, environ: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of a request. Its token and its size are checked before any of it is read."""
        if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) != _REQUEST:
            raise _Refused(HTTPStatus.NOT_FOUND, f"expected {' '.join(_REQUEST)}")
        header = environ.get("HTTP_AUTHORIZATION")
        try:
            self._guard.check([("authorization", header)] if header else [], f"http:{environ['REMOTE_ADDR']}")
        except errors.AccessDenied:
            wanted = "the header Authorization: Bearer TOKEN"
            raise _Refused(HTTPStatus.UNAUTHORIZED, f"the token is missing, or another one; send {wanted}") from None
        length = environ.get("CONTENT_LENGTH") or "none"
        if not (length.isascii() and length.isdigit() and len(length) < 16 and int(length) <= self._max_bytes):
            text = f"Content-Length is {length:.20}; expected at most {self._max_bytes}"
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        try:
            fields = json_object.parse(environ["wsgi.input"].read(int(length)))
        except ValueError as error:
            raise errors.UsageError(f"the request is no JSON object ({error})") from None
        if unknown := [key for key in fields if key not in _KEYS]:
            raise errors.UsageError(f"{unknown[0]:.100} is unknown; expected some of {', '.join(_KEYS)}")
        return fields

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
        if "observation" not in fields:
            raise errors.UsageError("observation is missing; expected one as the environment returns it")
        frames, is_single = codec.encode(fields["observation"])
        if not is_single:
            raise errors.UsageError(f"a batch of {len(frames)} observations came; expected one")
        given = fields.get("action_mask")
        mask = codec.shown_mask(fields["observation"]) if given is None and spec.has_action_mask else given
        if mask is None and spec.has_action_mask:
            raise errors.UsageError("action_mask is missing; expected 1 or 0 for each action")
        mask, first = None if mask is None else codec.joint_mask(mask), np.ones(1, bool)
        reward, legal = policy_inputs.rewards_and_mask(spec, first, None, mask, is_single=True, reads_reward=False)
        if legal is not None and not legal.any():
            raise errors.UsageError("action_mask has no legal action; expected at least one")
        step = types.EnvStep(frames, reward, ~first, ~first, legal)
        rows = policy_codec.PolicyRows(np.zeros(1, np.int32), step, first, bool(findings), only_look=True)
        acted = self._ask(player, rows)
        action = np.asarray(codec.decode(acted.actions, is_single=True)).tolist()
        shown = {name: values[0].tolist() for name, values in acted.findings.items()}
        return {"action": action, "version": acted.version, **shown}

    def _ask(self, player: str, rows: policy_codec.PolicyRows) -> policy_codec.PolicyAnswer:
        name = f"{_PREFIX}{next(self._numbers)}"
        self._asked[name] = asked = futures.Future[Any]()
        try:
            self._engine.act(policy_sides.PolicyRequest(name, 0, player, rows.row, rows))
            reply = asked.result(_WAIT_SECONDS)
        except TimeoutError:
            text = f"no answer within {_WAIT_SECONDS:g} s, as while the agent is compiled; try again"
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, text) from None
        finally:
            del self._asked[name]
        if not isinstance(reply, bytes):
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, reply.details)
        return policy_codec.acted_of(policy_codec.decode_reply(reply).acted, 1, self._offer.spec)
