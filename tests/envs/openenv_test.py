"""Environments of OpenEnv, behind a local server that speaks its protocol."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from websockets.sync import server as websockets_server

from seedzero.config import configs, sections
from seedzero.core import errors
from seedzero.envs import openenv, registry

LENGTH = 4


class Server:
    """A row of cells, of which the last one pays. Each connection is a session with its own game."""

    def __init__(self) -> None:
        self.most, self.sessions, self.messages = 8, list[Any](), list[dict[str, Any]]()
        self.extra: dict[str, Any] = {}
        self.served = websockets_server.serve(self._session, "127.0.0.1", 0)
        self.thread = threading.Thread(target=self.served.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.served.socket.getsockname()[1]}"

    def _session(self, socket: Any) -> None:
        self.sessions.append(socket)
        try:
            if len(self.sessions) > self.most:
                socket.send(json.dumps({"type": "error", "data": {"message": "full", "code": "CAPACITY_REACHED"}}))
                return
            place = 0
            for text in socket:
                message = json.loads(text)
                self.messages.append(message)
                if message["type"] == "reset":
                    place = 0
                elif "move" not in message["data"]:
                    answer = {"message": "no field move", "code": "VALIDATION_ERROR"}
                    socket.send(json.dumps({"type": "error", "data": answer}))
                    continue
                else:
                    place += 1 if message["data"]["move"] > 0 else -(place > 0)
                is_over = place == LENGTH - 1
                legal = [] if is_over else [1] if place == 0 else [0, 1]
                seen = {"cells": [float(cell == place) for cell in range(LENGTH)], "place": place, "text": "a cell"}
                seen |= {"legal_actions": legal, "screen": [40 * place] * 12, **self.extra}
                reward = None if message["type"] == "reset" else float(is_over)
                data = {"observation": seen, "reward": reward, "done": is_over}
                socket.send(json.dumps({"type": "observation", "data": data}))
        finally:
            self.sessions.remove(socket)

    def close(self) -> None:
        for socket in list(self.sessions):
            socket.close()
        self.served.shutdown()
        self.thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(openenv, "PAUSE_SECONDS", 0.01)
    found = Server()
    yield found
    found.close()


def _settings(server: Server, **kwargs: Any) -> sections.EnvConfig:
    values = {"env.id": f"openenv:{server.url}", "env.kwargs": json.dumps({"actions": {"move": 2}, **kwargs})}
    return configs.override(configs.Config(), values).env


@contextlib.contextmanager
def _group(server: Server, num_envs: int = 1, **kwargs: Any) -> Iterator[Any]:
    settings = _settings(server, **kwargs)
    made = registry.make(settings.id, settings, num_envs)
    try:
        yield made
    finally:
        made.close()


def test_episodes_masks_and_rewards(server: Server) -> None:
    with _group(server, 2) as group:
        assert sorted(array.name for array in group.spec.arrays) == ["cells", "place", "screen"]
        step = group.reset([1, 2])
        assert group.spec.num_actions == 2 and group.spec.has_action_mask
        assert step.action_mask.tolist() == [[False, True]] * 2
        rewards = []
        for _ in range(LENGTH - 1):
            step = group.step(np.array([1, 1], np.int32))
            rewards.append(step.reward.tolist())
        assert rewards == [[0, 0], [0, 0], [1, 1]] and step.terminated.all() and not step.truncated.any()
        assert step.action_mask.all()
        step = group.step(np.array([1, 1], np.int32))
        assert not step.terminated.any() and step.action_mask.tolist() == [[False, True]] * 2
    seeds = [message["data"]["seed"] for message in server.messages if "seed" in message["data"]]
    assert len(set(seeds)) == len(seeds) == 4


def test_fields_shapes_and_more_of_a_reset(server: Server) -> None:
    with _group(server, observations={"screen": [2, 2, 3]}, mask="", reset={"level": 3}) as group:
        (array,) = group.spec.arrays
        assert array.shape == (2, 2, 3) and array.dtype == "uint8" and not group.spec.has_action_mask
        group.reset([0])
        assert group.step(np.array([1], np.int32)).observation.max() == 40
    assert all(message["data"]["level"] == 3 for message in server.messages if message["type"] == "reset")


def test_continuous_and_several_actions(server: Server) -> None:
    env = openenv.OpenEnv(server.url, actions={"move": [-1, 1]})
    assert env.action_space.shape == (1,) and env.reset(seed=1)[0]["place"] == 0
    assert env.step(np.array([0.5], np.float32))[0]["place"] == 1
    env.close()
    env = openenv.OpenEnv(server.url, actions={"move": 2, "other": 3})
    env.reset(seed=1)
    env.step(np.array([1, 2]))
    assert server.messages[-1]["data"] == {"move": 1, "other": 2}
    env.close()


def test_a_lost_connection_truncates_the_episode_and_heals(server: Server) -> None:
    with _group(server) as group:
        group.reset([1])
        before = group.step(np.array([1], np.int32))
        for socket in list(server.sessions):
            socket.close()
        lost = group.step(np.array([1], np.int32))
        assert lost.truncated.all() and not lost.terminated.any() and lost.reward == 0
        assert (lost.observation == before.observation).all()
        fresh = group.step(np.array([1], np.int32))
        assert not fresh.truncated.any() and fresh.action_mask.tolist() == [[False, True]]
        assert group.step(np.array([1], np.int32)).reward == 0


def test_a_server_that_never_takes_a_step_is_named(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    env = openenv.OpenEnv(server.url, actions={"move": 2})
    told = "did not answer the first step of 5 episodes in a row: ConnectionClosed.*; look at the server's log"
    with pytest.raises(errors.EnvironmentFailure, match=told):
        for seed in range(openenv.MOST_LOST):
            env.reset(seed=seed)
            for socket in list(server.sessions):
                socket.close()
            assert env.step(np.array([1]))[3]
    assert caplog.text.count("ends as truncated after 0 steps: ConnectionClosed") == openenv.MOST_LOST - 1
    env.close()


def test_a_server_that_stays_away_is_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openenv, "HEAL_SECONDS", 0.05)
    server.most = 0
    with pytest.raises(errors.EnvironmentFailure, match=r"stays away: full.*a session for each environment"):
        openenv.OpenEnv(server.url, actions={"move": 2})
    url = server.url
    server.close()
    with pytest.raises(errors.EnvironmentFailure, match="stays away"):
        openenv.OpenEnv(url, actions={"move": 2})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, r"actions are None; give --env.kwargs='\{\"actions\""),
        ({"actions": {"move": "two"}}, "actions are"),
        ({"actions": {"a": 2, "b": [0, 1]}}, "actions are"),
        (
            {"actions": {"move": 2}, "observations": {"text": [1]}},
            r"shows \['cells', 'place', 'screen'\]; expected \['text'\]",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named_and_leave_no_session(
    given: dict[str, Any], told: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openenv, "HEAL_SECONDS", 2.0)
    with pytest.raises(errors.EnvironmentFailure, match=told):
        openenv.OpenEnv(server.url, **given)
    server.most = 1  # so that the next one waits until the first session has ended
    with contextlib.closing(openenv.OpenEnv(server.url, actions={"move": 2})) as env:
        assert env.reset(seed=1)[0]["place"] == 0


def test_what_the_server_rejects_or_changes_is_named(server: Server) -> None:
    env = openenv.OpenEnv(server.url, actions={"wrong": 2})
    with pytest.raises(errors.EnvironmentFailure, match=r"rejects a step: no field move \(VALIDATION_ERROR\)"):
        env.step(1)
    server.extra = {"cells": [1.0, 2.0]}
    with pytest.raises(errors.EnvironmentFailure, match=r"cells is of shape \[2\]; expected \[4\]"):
        env.reset()
    env.close()


@pytest.mark.parametrize("number", [-1, 256, 0.5, float("nan")])
def test_numbers_that_no_image_has_are_named(number: float, server: Server) -> None:
    server.extra = {"board": [[[0], [1]]]}
    with contextlib.closing(openenv.OpenEnv(server.url, actions={"move": 2})) as env:
        server.extra = {"board": [[[number], [1]]]}
        with pytest.raises(errors.EnvironmentFailure, match=r'board has other numbers .*"board": \[2\]'):
            env.reset()


def test_an_id_is_a_url() -> None:
    with pytest.raises(errors.ConfigError, match="is not a URL; expected http://HOST:PORT"):
        registry.check_id("openenv:localhost")
    registry.check_id("openenv:http://localhost:8000")
