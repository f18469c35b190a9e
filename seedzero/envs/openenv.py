"""Plays environments of OpenEnv, which a server steps in sessions over WebSocket.

Messages are JSON: {"type": "reset" or "step", "data": ...}. A connection is a session with an environment of its own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors, packages
from seedzero.envs import env_base, gym_env

MAX_BYTES, ANSWER_SECONDS, HEAL_SECONDS, PAUSE_SECONDS = 64 * 2**20, 60.0, 120.0, 1.0
"""Largest answer; longest wait for it, and for a server that is away; pause between two attempts."""
MOST_LOST = 5
"""Connections in a row that may be lost before a step is answered."""
_ACTIONS = """--env.kwargs='{"actions": {"action_id": 6}}': its fields, with numbers of values or [low, high]"""


_logger = logging.getLogger(__name__)


class _Lost(Exception):
    """The connection is lost, or the server has no session free."""


class OpenEnv(gymnasium.Env[Any, Any]):
    """An environment behind a URL. An episode whose connection is lost ends as truncated, and the next one begins."""

    def __init__(
        self, url: str, actions: Any = None, observations: Any = None, mask: str = "legal_actions", reset: Any = None
    ) -> None:
        """Connects, and resets once to see the observation.

        actions: fields of an action -> number of their values, or [low, high]; all of one kind. observations: fields
        -> their shape, for flat lists; None: all fields of numbers, as they come. Whole numbers on three axes are an
        image. mask: field with the numbers of the legal actions, where it exists. reset: more fields of each reset.
        Raises EnvironmentFailure if the server does not answer, or arguments do not fit.
        """
        self._url, self._names, self._mask, self._reset = url, list(actions or ()), mask, dict(reset or {})
        self._socket: Any = None
        self._num_steps = self._num_lost = 0  # steps of the episode; connections lost since a step
        self._open = contextlib.ExitStack()
        try:
            sizes: Any = np.array(list(actions.values()))
            is_bounded = sizes.ndim == 2
            self.action_space = spaces.Box(*sizes.T.astype("f4")) if is_bounded else spaces.MultiDiscrete(sizes)
        except (AttributeError, ValueError, TypeError, AssertionError):
            raise errors.EnvironmentFailure(f"openenv:{url}: actions are {actions}; give {_ACTIONS}") from None
        with env_base.closed_on_error() as made:  # a server may have one session
            made.append(self)
            first = self._begin()["observation"]
            found = {name: array for name in first if name != mask and (array := _numbers(first[name])) is not None}
            shapes: Mapping[str, Any] = observations or {name: array.shape for name, array in found.items()}
            if not shapes or not shapes.keys() <= found.keys():
                raise errors.EnvironmentFailure(
                    f"openenv:{url} shows {[*found]}; expected {[*shapes] or 'some numbers'}"
                )
        self._last: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        self.observation_space: spaces.Dict = spaces.Dict()
        for name, shape in shapes.items():
            is_image, size = len(shape) == 3 and found[name].dtype.kind == "i", tuple(shape)
            image, numbers = spaces.Box(0, 255, size, np.uint8), spaces.Box(-np.inf, np.inf, size, np.float32)
            self.observation_space[name] = image if is_image else numbers

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._num_steps = 0
        return self._shown(self._begin(seed=int(self.np_random.integers(2**31))))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        try:
            data = self._answer("step", dict(zip(self._names, np.atleast_1d(action).tolist(), strict=True)))
        except _Lost as error:
            self.close()
            self._num_lost += 1
            if self._num_lost == MOST_LOST:
                text = f"did not answer the first step of {MOST_LOST} episodes in a row: {error}"
                raise errors.EnvironmentFailure(f"openenv:{self._url} {text}; look at the server's log") from None
            _logger.warning(
                "openenv:%s: an episode ends as truncated after %d steps: %s", self._url, self._num_steps, error
            )
            return self._last[0], 0.0, False, True, self._last[1]
        self._num_steps, self._num_lost = self._num_steps + 1, 0
        return self._shown(data)[0], float(data.get("reward") or 0), bool(data.get("done")), False, self._last[1]

    def close(self) -> None:
        with contextlib.suppress(Exception):  # it may be lost already
            self._open.close()
        self._socket = None

    def _shown(self, data: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Returns the observation, and the info with the mask."""
        self._last = found, info = {}, {}
        for name, space in self.observation_space.items():
            array, expected = _numbers(data["observation"].get(name)), space.shape or ()
            if array is None or array.size != np.prod(expected):
                came = "no array of numbers" if array is None else f"of shape {list(array.shape)}"
                raise errors.EnvironmentFailure(f"openenv:{self._url}: {name} is {came}; expected {list(expected)}")
            with np.errstate(invalid="ignore"):
                found[name] = array.reshape(expected).astype(space.dtype)
            if space.dtype == np.uint8 and (found[name] != array.reshape(expected)).any():
                raise errors.EnvironmentFailure(
                    f"openenv:{self._url}: {name} has other numbers than 0 to 255, which an image has; give "
                    f'--env.kwargs=\'{{"observations": {{"{name}": [{array.size}]}}}}\' for plain numbers'
                )
        legal = data["observation"].get(self._mask)
        if isinstance(self.action_space, spaces.MultiDiscrete) and len(self._names) == 1 and isinstance(legal, list):
            mask = np.isin(np.arange(self.action_space.nvec[0]), legal)
            info["action_mask"] = mask | (not mask.any())  # at the end of a game no action is legal
        return self._last

    def _begin(self, **more: Any) -> dict[str, Any]:
        """Returns the answer to a reset, by a new connection if need be. Raises EnvironmentFailure."""
        deadline = time.monotonic() + HEAL_SECONDS
        while True:
            try:
                return self._answer("reset", {**self._reset, **more})
            except _Lost as error:
                self.close()
                if time.monotonic() > deadline:
                    raise errors.EnvironmentFailure(f"openenv:{self._url} stays away: {error}") from None
            time.sleep(PAUSE_SECONDS)

    def _answer(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        try:
            from websockets import exceptions
            from websockets.sync import client
        except ImportError:
            command = packages.install_command("websockets")
            raise errors.EnvironmentFailure(f"openenv: needs the missing package websockets: {command}") from None
        try:
            if self._socket is None:
                address = f"ws{self._url.removeprefix('http').rstrip('/')}/ws"
                limits: Any = {"open_timeout": ANSWER_SECONDS, "max_size": MAX_BYTES}
                self._socket = self._open.enter_context(client.connect(address, **limits))
            with contextlib.suppress(exceptions.ConnectionClosed):  # the server may have said why before
                self._socket.send(json.dumps({"type": kind, "data": data}))
            found = json.loads(self._socket.recv(ANSWER_SECONDS))
        except (OSError, exceptions.WebSocketException) as error:
            raise _Lost(f"{type(error).__name__}: {error}") from None
        if found["type"] == "error":
            text = f"{found['data'].get('message')!s:.300} ({found['data'].get('code')})"
            if found["data"].get("code") == "CAPACITY_REACHED":
                raise _Lost(f"{text}; give the server a session for each environment")
            raise errors.EnvironmentFailure(f"openenv:{self._url} rejects a {kind}: {text}")
        return dict(found["data"])


def _numbers(value: Any) -> np.ndarray | None:
    """Returns a field of numbers as an array; None for text, and for lists that are not of one shape."""
    with contextlib.suppress(ValueError):
        array = np.asarray(value)
        return array if array.dtype.kind in "bif" and array.size else None
    return None


def make(url: str, settings: sections.EnvConfig, num_envs: int) -> gym_env.GymVectorEnv:
    """Returns E environments of a server, each in its session. Errors are those of OpenEnv and of GymVectorEnv."""
    return gym_env.from_function(f"openenv:{url}", lambda **given: OpenEnv(url, **given), settings, num_envs)


def check_id(url: str) -> None:
    """Raises EnvironmentFailure for what is not a URL."""
    if not re.match(r"https?://[^/\s]", url):
        raise errors.EnvironmentFailure(f"{url} is not a URL; expected http://HOST:PORT or https://HOST")
