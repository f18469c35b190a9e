"""The metrics of a policy server, and `POST /act`."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import signal
import ssl
import threading
import types as python_types
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import certificates
import numpy as np
import policy_world
import prometheus_client
import pytest
from prometheus_client import registry

from seedzero.acting.actors import acting_policy, saved_agents
from seedzero.config import sections
from seedzero.core import types
from seedzero.interfaces.serving import acting_engine, policy_serving
from seedzero.monitoring import exporter
from seedzero.transport import policy_codec, policy_servers, security


def _text(counts: acting_engine.ServingCounts, num_sessions: int) -> str:
    collectors = registry.CollectorRegistry()
    collectors.register(policy_serving._PolicyCollector(counts, lambda: num_sessions))
    return prometheus_client.generate_latest(collectors).decode()


def test_counters_and_means_of_the_newest_calls() -> None:
    counts = acting_engine.ServingCounts(requests=3, rows=12, calls=2, changes=1)
    counts.newest.extend([(8, 0.25), (4, 0.75)])
    text = _text(counts, 2)
    expected = {"requests_total": 3, "rows_total": 12, "calls_total": 2, "changes_total": 1, "sessions": 2}
    for name, value in expected.items():
        assert f"seedzero_policy_{name} {value:.1f}\n" in text
    assert "seedzero_policy_rows_per_call 6.0\n" in text
    assert 'seedzero_policy_latency_seconds{quantile="0.5"} 0.5\n' in text
    assert 'seedzero_policy_latency_seconds{quantile="0.99"} 0.745\n' in text


def test_before_the_first_call_there_are_no_means() -> None:
    text = _text(acting_engine.ServingCounts(), 0)
    assert "rows_per_call" not in text and "seedzero_policy_requests_total 0.0\n" in text


TOKEN = "0123456789abcdef"
ONE = [0.5, -1.0, 2.0]
MASK = [True, False, True, True]


class World(NamedTuple):
    """An engine that runs, and its application."""

    saved: saved_agents.SavedAgent
    engine: acting_engine.ActingEngine
    app: policy_serving.HttpActing
    others: list[policy_servers.Answer]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    saved = policy_world.agent(policy_world.MASKED, run__agent="ppo")
    engine, others = acting_engine.ActingEngine({"main": saved}, num_slots=4, max_batch=1), []
    with _running(engine, others.extend):
        yield World(saved, engine, policy_serving.HttpActing(engine, TOKEN), others)


@contextlib.contextmanager
def _running(engine: acting_engine.ActingEngine, answer: Any = lambda answers: None) -> Iterator[None]:
    engine.compile()  # a request waits for eight seconds, a compilation may take longer
    run = threading.Thread(target=engine.run, args=(answer, lambda versions: None))
    run.start()
    try:
        yield
    finally:
        engine.stop()
        run.join()


def _environ(content: bytes = b"{}", **changes: Any) -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/act",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_AUTHORIZATION": f"Bearer {TOKEN}",
        "CONTENT_LENGTH": str(len(content)),
        "wsgi.input": io.BytesIO(content),
        **changes,
    }


def _asked(app: policy_serving.HttpActing, environ: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Returns the status and the content of an answer."""
    started: list[str] = []
    content = b"".join(app(environ, lambda status, headers: started.append(status)))
    return int(started[0].split()[0]), json.loads(content)


def _found(app: policy_serving.HttpActing, **fields: Any) -> tuple[int, dict[str, Any]]:
    return _asked(app, _environ(json.dumps(fields).encode()))


@pytest.mark.thorough
def test_an_observation_has_the_action_of_a_policy(world: World) -> None:
    policy = acting_policy.Policy(world.saved)
    for mask in (MASK, [0, 1, 0, 0]):
        found = _found(world.app, observation=ONE, action_mask=mask)
        expected = policy(np.array(ONE, np.float32), action_mask=np.array(mask, bool))
        assert found == (200, {"action": expected, "version": 7})
        policy.reset()
    status, found = _found(world.app, observation=ONE, action_mask=MASK, findings=True, player="main")
    assert status == 200 and found["probabilities"][1] == 0 and sum(found["probabilities"]) == pytest.approx(1)
    assert np.argmax(found["probabilities"]) == found["action"]


def test_answers_to_other_clients_are_handed_on(world: World) -> None:
    step = types.EnvStep.first(np.array([ONE], np.float32))._replace(action_mask=np.array([MASK]))
    rows = policy_codec.PolicyRows(np.zeros(1, np.int32), step, np.ones(1, bool))
    world.engine.act(policy_servers.PolicyRequest("a session", 3, "main", rows.row, rows))
    assert _found(world.app, observation=ONE, action_mask=MASK)[0] == 200  # behind it
    assert [answer[:2] for answer in world.others] == [("a session", 3)]


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"action_mask": MASK}, "observation is missing"),
        ({"observation": [1, 2], "action_mask": MASK}, "shape [2]; expected [3]"),
        ({"observation": [ONE, ONE], "action_mask": MASK}, "2 observations; expected at most 1"),
        ({"observation": ["a", "b", "c"], "action_mask": MASK}, "dtype <U1; expected float32"),
        ({"observation": [float("nan"), 0, 0], "action_mask": MASK}, "value nan"),
        ({"observation": [10**400, 0.5, 0], "action_mask": MASK}, "dtype object; expected float32"),
        ({"observation": ONE}, "action_mask is missing; expected 1 or 0"),
        ({"observation": ONE, "action_mask": [1, 0]}, "action_mask has the shape [2]; expected [4]"),
        ({"observation": ONE, "action_mask": [1, [0], 1, 1]}, "action_mask is not an array"),
        ({"observation": ONE, "action_mask": [0, 0, 0, 0]}, "no legal action"),
        ({"observation": ONE, "action_mask": MASK, "player": ["main"]}, "player is ['main']; expected one of main"),
        ({"observation": ONE, "action_mask": MASK, "findings": 3}, "findings is 3; expected true or false"),
        (
            {"observation": ONE, "mask": MASK},
            "mask is unknown; expected some of observation, moves, action_mask, reward, memory, player, findings",
        ),
        ({"observation": ONE, "action_mask": MASK, "memory": "AAAA"}, "agent ppo has no memory; leave `memory` out"),
        ({"observation": ONE, "action_mask": MASK, "reward": float("nan")}, "reward is nan; expected finite numbers"),
        ({"observation": ONE, "action_mask": MASK, "reward": [0, 1]}, "reward has the shape [2]"),
        ({"observation": ONE, "moves": [0]}, "observation came with moves"),
        ({"moves": [0]}, "is not a game of spiel: or pgx:"),
    ],
)
def test_wrong_fields_are_named(world: World, fields: dict[str, Any], part: str) -> None:
    status, found = _found(world.app, **fields)
    assert status == 400 and part in found["error"]


class Unread:
    """Content that must not be read."""

    def read(self, size: int) -> bytes:
        raise AssertionError("it was read")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"HTTP_AUTHORIZATION": f"Bearer {TOKEN[::-1]}"}, 401),
        ({"HTTP_AUTHORIZATION": ""}, 401),
        ({"CONTENT_LENGTH": "4641"}, 413),  # 32 bytes for each of 12 bytes and 4 actions, and 4,096
        ({"CONTENT_LENGTH": ""}, 411),
        ({"CONTENT_LENGTH": "-1"}, 400),
        ({"CONTENT_LENGTH": "9" * 12}, 413),
        ({"CONTENT_LENGTH": "9" * 5000}, 400),
        ({"PATH_INFO": "/other"}, 404),
        ({"PATH_INFO": "/health"}, 404),
        ({"REQUEST_METHOD": "GET"}, 405),
        ({"REQUEST_METHOD": "OPTIONS"}, 405),
        ({"HTTP_CONTENT_ENCODING": "gzip"}, 415),
        ({"HTTP_TRANSFER_ENCODING": "gzip, chunked"}, 501),
    ],
)
def test_strangers_and_large_requests_are_refused_before_they_are_read(
    world: World, changes: dict[str, Any], status: int
) -> None:
    found, answer = _asked(world.app, _environ(**{"wsgi.input": Unread(), **changes}))
    assert found == status and answer["error"]


def test_what_is_no_object_of_json_is_refused(world: World) -> None:
    for content in (b"", b"[1]", b"{", b'{"observation": ' + b"[" * 4000):
        status, found = _asked(world.app, _environ(content))
        assert status == 400 and "JSON object" in found["error"]


def test_the_agent_s_failures_and_silence_have_a_status(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = acting_engine.ActingEngine({"main": world.saved}, num_slots=1, max_batch=1)  # nobody runs it
    monkeypatch.setattr(policy_serving, "_WAIT_SECONDS", 0.0)
    app = policy_serving.HttpActing(engine, TOKEN)
    assert _found(app, observation=ONE, action_mask=MASK)[0] == 503


def test_it_is_served_with_the_certificate_of_the_server(world: World, tmp_path: pathlib.Path) -> None:
    files = certificates.make(tmp_path / "authority", ["127.0.0.1"])
    https = security.for_server("", sections.TlsConfig(str(files.cert), str(files.key))).https
    content = json.dumps({"observation": ONE, "action_mask": MASK}).encode()
    with exporter.serving_app("127.0.0.1", 0, world.app, "POST /act", "--http_port", https) as url:
        asked = urllib.request.Request(f"{url}/act", content, {"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(asked, context=ssl.create_default_context(cafile=str(files.ca))) as answer:
            assert url.startswith("https://") and json.load(answer)["action"] in (0, 2, 3)


OPEN = {"HTTP_AUTHORIZATION": "", "HTTP_HOST": "localhost:8080", "CONTENT_TYPE": "application/json; charset=utf-8"}


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({}, 400, "JSON"),  # its content is read
        ({"HTTP_HOST": ""}, 400, "JSON"),
        ({"HTTP_HOST": "[::1]:8080"}, 400, "JSON"),
        ({"HTTP_ORIGIN": "http://localhost:8080"}, 400, "JSON"),
        ({"HTTP_HOST": "rebound.example:8080"}, 421, "Host is rebound.example:8080; expected 127.0.0.1 or localhost"),
        ({"HTTP_ORIGIN": "http://page.example"}, 403, "without a token only programs"),
        ({"HTTP_ORIGIN": "null"}, 403, "without a token only programs"),
        ({"HTTP_ORIGIN": "http://["}, 403, "without a token only programs"),
        ({"CONTENT_TYPE": "text/plain"}, 415, "Content-Type is text/plain; expected application/json"),
        (
            {"CONTENT_TYPE": "application/x-www-form-urlencoded"},
            415,
            "x-www-form-urlencoded; expected application/json",
        ),
    ],
)
def test_without_a_token_no_web_page_is_answered(
    world: World, changes: dict[str, Any], status: int, told: str
) -> None:
    app = policy_serving.HttpActing(world.engine, "")
    found, answer = _asked(app, _environ(b"no JSON", **{**OPEN, **changes}))
    assert found == status and told in answer["error"]


def test_beyond_this_machine_a_server_without_a_token_has_any_name(world: World) -> None:
    app = policy_serving.HttpActing(world.engine, "", "0.0.0.0")
    assert _asked(app, _environ(b"no JSON", **{**OPEN, "HTTP_HOST": "policy:8080"}))[0] == 400
    assert _asked(app, _environ(b"no JSON", **{**OPEN, "HTTP_ORIGIN": "http://page.example"}))[0] == 403


def _chunked(*sizes_and_parts: bytes) -> dict[str, Any]:
    given = {"CONTENT_LENGTH": "", "HTTP_TRANSFER_ENCODING": "Chunked"}
    return _environ(**given, **{"wsgi.input": io.BytesIO(b"\r\n".join(sizes_and_parts))})


def test_content_in_chunks_is_read_up_to_the_limit(world: World) -> None:
    content = json.dumps({"observation": ONE, "action_mask": MASK}).encode()
    first, rest = content[:10], content[10:]
    assert _asked(world.app, _chunked(b"A;x=1", first, b"%x" % len(rest), rest, b"0", b"", b""))[0] == 200
    assert _asked(world.app, _chunked(b"-1", b"", b"0"))[0] == 400
    assert _asked(world.app, _chunked(b"A", first))[0] == 400  # it breaks off
    assert _asked(world.app, _chunked(b"1221", b" " * 4641, b"0"))[0] == 413
    assert _asked(world.app, _chunked(*[b"1000", b" " * 4096] * 2, b"0"))[0] == 413


class _Counted(bytes):
    """A chunk that counts what is copied to add it to those before it."""

    num_copied = 0

    def __radd__(self, before: bytes) -> bytes:
        _Counted.num_copied += len(before)
        return bytes(before) + bytes(self)


class _Chunks(io.BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        return _Counted(super().read(size))


def test_tiny_chunks_are_joined_without_copying_those_before(world: World) -> None:
    content = json.dumps({"observation": ONE, "action_mask": MASK}).encode().ljust(4608)  # the limit
    parts = [b"1\r\n%c\r\n" % byte for byte in content]
    environ = {**_chunked(), "wsgi.input": _Chunks(b"".join(parts) + b"0\r\n")}
    assert _asked(world.app, environ)[0] == 200 and _Counted.num_copied == 0
    environ["wsgi.input"] = _Chunks(b"".join([parts[-1], *parts]) + b"0\r\n")
    assert _asked(world.app, environ)[0] == 413


def test_an_action_without_a_visit_has_no_value(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    visits, values = np.array([[0, 3, 0, 1]], np.int32), np.array([[0, 0.5, 0, -1]], np.float32)
    acted = policy_codec.PolicyAnswer(np.zeros(1, np.int32), 7, {"visits": visits, "q_value": values})
    monkeypatch.setattr(world.app, "_ask", lambda player, rows, memory: acted)
    _, found = _found(world.app, observation=ONE, action_mask=MASK, findings=True)
    assert (found["visits"], found["q_value"]) == ([0, 3, 0, 1], [None, 0.5, None, -1.0])


def test_a_stop_while_the_agent_is_compiled_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    saved, said = policy_world.agent(policy_world.PLAIN, run__agent="ppo"), list[str]()

    def compile_slowly(engine: acting_engine.ActingEngine) -> None:
        signal.raise_signal(signal.SIGTERM)
        with engine._condition:
            engine._condition.wait_for(lambda: engine._is_over)

    monkeypatch.setattr(acting_engine.ActingEngine, "compile", compile_slowly)
    agents: Any = python_types.SimpleNamespace(choice=python_types.SimpleNamespace(seed=0), players={"main": saved})
    options = policy_serving.ServeOptions()
    policy_serving.serve(agents, policy_world.SETTINGS, security.OPEN, options, said.append)
    assert said == ["compiling the agent", "stopping"]
