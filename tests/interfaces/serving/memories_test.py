"""`POST /act` for agents that remember: batches, memories that clients keep, and those that are refused."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import policy_world
import pytest

from seedzero.acting.actors import acting_policy, saved_agents
from seedzero.core import errors
from seedzero.interfaces.serving import acting_engine, memories, policy_serving

TOKEN = "0123456789abcdef"
RECURRENT = {"run__agent": "ppo", "network__lstm_width": 4, "network__normalize_observations": False}
FRAMES = np.random.default_rng(0).normal(size=(3, 2, 3)).astype(np.float32)  # [T, B, ...]


@contextlib.contextmanager
def _app(saved: saved_agents.SavedAgent, token: str = TOKEN, **given: Any) -> Iterator[policy_serving.HttpActing]:
    engine = acting_engine.ActingEngine({"main": saved, "b": saved}, num_slots=4, max_batch=4, carries=True)
    engine.compile()  # a request waits for eight seconds, a compilation may take longer
    run = threading.Thread(target=engine.run, args=(lambda answers: None, lambda versions: None))
    run.start()
    try:
        yield policy_serving.HttpActing(engine, token, run_id="a run", **given)
    finally:
        engine.stop()
        run.join()


def _asked(app: policy_serving.HttpActing, **fields: Any) -> tuple[int, dict[str, Any]]:
    started: list[str] = []
    content = json.dumps(fields).encode()
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/act",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_AUTHORIZATION": f"Bearer {TOKEN}",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(content)),
        "wsgi.input": io.BytesIO(content),
    }
    answered = b"".join(app(environ, lambda status, headers: started.append(status)))
    return int(started[0].split()[0]), json.loads(answered)


@pytest.fixture(scope="module")
def saved() -> saved_agents.SavedAgent:
    return policy_world.agent(policy_world.PLAIN, **RECURRENT)


@pytest.fixture(scope="module")
def app(saved: saved_agents.SavedAgent) -> Iterator[policy_serving.HttpActing]:
    with _app(saved) as found:
        yield found


@pytest.mark.parametrize("changes", [RECURRENT, {"run__agent": "ppo", "network__frame_stack": 3}])
def test_memories_that_go_to_and_fro_are_those_of_a_policy(changes: dict[str, Any]) -> None:
    saved = policy_world.agent(policy_world.PLAIN, **changes)
    with _app(saved) as app, _app(saved) as replica:
        policy, memory = acting_policy.Policy(saved), None
        for number, frames in enumerate(FRAMES):
            reward = [0.0, float(number)]
            found = _asked([app, replica][number % 2], observation=frames.tolist(), reward=reward, memory=memory)
            assert found[0] == 200 and found[1]["action"] == policy(frames, reward=reward).tolist()
            memory = found[1]["memory"]
            assert "probabilities" not in found[1] and len(set(memory)) == 2
        policy.reset([0])
        found = _asked(app, observation=FRAMES[0].tolist(), reward=reward, memory=[None, memory[1]], findings=True)
        assert found[1]["action"] == policy(FRAMES[0], reward=reward).tolist()
        assert np.shape(found[1]["probabilities"]) == (2, 4)


def test_one_observation_has_one_memory(app: policy_serving.HttpActing) -> None:
    first = _asked(app, observation=FRAMES[0, 0].tolist())[1]
    second = _asked(app, observation=FRAMES[1, 0].tolist(), reward=1.0, memory=first["memory"])
    assert second[0] == 200 and isinstance(second[1]["action"], int) and second[1]["memory"] != first["memory"]


def test_more_rows_and_agents_without_a_memory(saved: saved_agents.SavedAgent) -> None:
    with _app(policy_world.agent(policy_world.PLAIN, run__agent="ppo")) as app:
        frames = FRAMES.reshape(-1, 3)
        assert _asked(app, observation=frames.tolist())[0] == 400
        status, found = _asked(app, observation=frames[:4].tolist(), findings=True)
        assert status == 200 and "memory" not in found and len(found["action"]) == 4
        assert np.argmax(found["probabilities"], axis=1).tolist() == found["action"]


def _memory(app: policy_serving.HttpActing, **fields: Any) -> str:
    return str(_asked(app, observation=FRAMES[0, 0].tolist(), **fields)[1]["memory"])


def _continued(app: policy_serving.HttpActing, memory: Any, **fields: Any) -> tuple[int, str]:
    status, found = _asked(app, observation=FRAMES[1, 0].tolist(), reward=0.0, memory=memory, **fields)
    return status, found.get("error", "")


def test_each_changed_character_is_refused(app: policy_serving.HttpActing) -> None:
    memory = _memory(app)
    for place in (*range(0, len(memory), 7), len(memory) - 1):
        other = memory[:place] + ("A" if memory[place] != "A" else "B") + memory[place + 1 :]
        status, told = _continued(app, other)
        assert status == 409 and "begin a new episode" in told
    assert _continued(app, memory)[0] == 200
    assert _continued(app, "é" * len(memory))[0] == 409


def test_memories_of_others_are_refused(saved: saved_agents.SavedAgent, app: policy_serving.HttpActing) -> None:
    memory = _memory(app)
    assert _continued(app, memory, player="b")[0] == 409
    with _app(saved._replace(update=8)) as newer:
        assert _continued(newer, memory)[0] == 409
        assert "of update 7, this server's agent of update 8" in _continued(newer, memory)[1]
    with _app(saved._replace(update=8), follows=True) as following:
        assert _continued(following, memory)[0] == 200
    with _app(saved) as other_run:
        other_run._memories = memories.Memories(other_run._engine.blank_memory(1), "b", TOKEN, follows=False)
        assert _continued(other_run, memory)[0] == 409
    with _app(policy_world.agent(policy_world.PLAIN, run__agent="ppo", network__lstm_width=8)) as other:
        assert _continued(other, memory)[0] == 409


def test_without_a_token_only_the_same_server_accepts_a_memory(saved: saved_agents.SavedAgent) -> None:
    with _app(saved, "") as one, _app(saved, "") as other:
        memory = _memory(one)
        assert (_continued(one, memory)[0], _continued(other, memory)[0]) == (200, 409)


def test_wrong_kinds_are_named(app: policy_serving.HttpActing) -> None:
    assert _continued(app, 3) == (400, "memory is 3; expected the text of the answer before, or null")
    status, found = _asked(app, observation=FRAMES[0].tolist(), memory="AAAA")
    assert status == 400 and found["error"].startswith("memory must be a list of 2 texts")
    found = _asked(app, observation=FRAMES[1, 0].tolist(), memory=_memory(app))[1]
    assert found["error"].startswith("reward is missing")
    for reward in (10**400, "one", {}, [None]):
        status, found = _asked(app, observation=FRAMES[1, 0].tolist(), reward=reward, memory=_memory(app))
        assert status == 400 and found["error"].startswith("reward has ")


BLANK = {"a": np.zeros((1, 2), np.int8), "b": np.zeros((1,), np.float32), "none": np.zeros((1, 0), np.float32)}


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


def test_arrays_come_back_and_grow_old() -> None:
    clock = Clock()
    codec = memories.Memories(BLANK, "one", TOKEN, follows=True, clock=clock)
    random = np.random.default_rng(0)
    given = jax.tree.map(lambda x: (100 * random.normal(size=(3, *x.shape[1:]))).astype(x.dtype), BLANK)
    texts = codec.write(given, "main", 5)
    found = codec.read(texts, "main", 9)
    assert jax.tree.map(np.dtype, jax.tree.map(lambda x: x.dtype, found)) == jax.tree.map(lambda x: x.dtype, BLANK)
    jax.tree.map(np.testing.assert_array_equal, found, given)
    assert not any(leaf.any() for leaf in jax.tree.leaves(codec.read([None], "main", 5)))
    clock.now += memories.MAX_AGE_SECONDS
    codec.read(texts, "main", 9)
    clock.now += 1
    with pytest.raises(memories.Forgotten, match="24 hours old, more than 24; begin a new episode"):
        codec.read(texts, "main", 9)


def test_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = memories.Memories(BLANK, "one", TOKEN, follows=True)
    monkeypatch.setattr(memories, "FORMAT", 2)
    (text,) = codec.write(BLANK, "main", 5)
    monkeypatch.undo()
    with pytest.raises(memories.Forgotten, match="format 2, this server writes 1"):
        codec.read([text], "main", 5)


def test_nothing_of_another_length_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = memories.Memories(BLANK, "one", TOKEN, follows=True)
    (text,) = codec.write(BLANK, "main", 5)
    assert len(text) == codec.text_length

    def decode(*arguments: object, **given: object) -> bytes:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(base64, "b64decode", decode)
    for other in ("", text[:-4], text + "AAAA", "A" * 10**7):
        with pytest.raises(memories.Forgotten, match=f"memory has {len(other)} characters"):
            codec.read([other], "main", 5)


def test_a_memory_of_keys_is_refused() -> None:
    with pytest.raises(errors.UsageError, match=r"--http_port.*key_data"):
        memories.Memories({"key": jax.random.key(0)[None]}, "one", "", follows=False)


def test_health_needs_no_token_and_follows_the_engine(saved: saved_agents.SavedAgent) -> None:
    engine = acting_engine.ActingEngine({"main": saved}, num_slots=1, max_batch=1)
    app, started = policy_serving.HttpActing(engine, TOKEN), list[str]()
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/health", "REMOTE_ADDR": "127.0.0.1"}
    content = b"".join(app(environ, lambda status, headers: started.append(status)))
    assert started == ["503 Service Unavailable"] and b"compiled" in content
    engine.stop()
    engine.is_serving = True
    assert json.loads(b"".join(app(environ, lambda status, headers: started.append(status)))) == {"status": "serving"}
    engine.run(lambda answers: None, lambda versions: None)  # ends at once
    app(environ, lambda status, headers: started.append(status))
    assert started[1:] == ["200 OK", "503 Service Unavailable"]
