"""Connects to an agent in a policy server (`seedzero.connect`), with numpy and gRPC but without JAX.

Shape letters: B rows (environments), A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy import typing as npt

from seedzero.core import errors, forks, packing, types
from seedzero.transport import policy_client, policy_codec, security


class RemoteFindings(NamedTuple):
    """The agent's findings about an observation; for a batch each array has another first axis [B].

    Attributes:
      action: the one that the agent takes.
      policy: [A] probabilities.
      value: the search's, in the environment's units; if the agent does not search, this and the next two are None.
      visit_counts: [A] int32.
      q_values: [A].
      version: the number of updates behind the parameters.
    """

    action: Any
    policy: np.ndarray
    value: np.ndarray | None
    visit_counts: np.ndarray | None
    q_values: np.ndarray | None
    version: int


def connect(
    address: str,
    player: str = "",
    *,
    token_file: str = "",
    token: str = "",
    ca_file: str = "",
    server_name: str = "",
) -> RemotePolicy:
    """Connects to a policy server that `seedzero serve` has started.

    Args:
      address: HOST:PORT, as the server prints it.
      player: the name of one of the server's players; "" means the first one.
      token_file: a file with the server's token; "" if the server needs none.
      token: the token itself, instead of the file.
      ca_file: PEM file of the authority that signed the server's certificate, or "system"; "" for plain text.
      server_name: the name in the server's certificate; "" means the host of the address.

    Raises UsageError for an unusable address or file, or an unknown player; AccessDenied if the server refuses the
    token, or the two ends do not agree on TLS; ProtocolError if no policy server answers.
    """
    secured = security.for_client(address, security.Access(token_file, ca_file, server_name), token)
    offer = policy_client.describe(secured)
    if player and player not in offer.players:
        raise errors.UsageError(
            f"player={player}: the server at {address} has {', '.join(offer.players)}; give one of them"
        )
    return RemotePolicy(secured, offer, player)


class RemotePolicy(contextlib.AbstractContextManager["RemotePolicy"]):
    """A policy with the same methods as that of `seedzero.load`.

    Rows begin an episode at their first call and after `reset`. The server keeps their frames and memory. Of several
    threads one is served after the other, and all share the rows. A forked process can use a policy only if gRPC was
    not in use before; otherwise every call there raises UsageError.

    Attributes:
      spec: describes the arrays as they are sent, with actions from 0.
      offer: the server's description at the start.
      version: the number of updates behind the parameters of the last answer.
    """

    def __init__(self, secured: security.ClientSecurity, offer: policy_codec.PolicyOffer, player: str) -> None:
        self._secured, self.offer, self._player = secured, offer, player
        self.spec = offer.spec
        self.version = offer.players[player or next(iter(offer.players))]
        self._encode, self._decode, self._mask = _coders(offer.spec)
        self._client: policy_client.PolicyClient | None = None
        self._first = np.ones(0, bool)
        self._lock = threading.RLock()

    def __call__(
        self,
        observation: Any,
        *,
        reward: npt.ArrayLike | None = None,
        action_mask: npt.ArrayLike | None = None,
        explore: bool = False,
    ) -> Any:
        """Returns the action for one observation, or the actions for a batch; the server remembers the observations.

        Arguments and errors are those of `seedzero.Policy`. Raises ProtocolError and AccessDenied, too, as `connect`
        does; the session has ended then, so call `reset`.
        """
        with self._alone():
            rows, is_single = self._rows(observation, reward, action_mask)
            acted = self._ask(rows._replace(explore=explore))
            self._first = np.zeros(len(rows.row), bool)
        return self._decode(acted.actions, is_single)

    def probabilities(
        self, observation: Any, *, reward: npt.ArrayLike | None = None, action_mask: npt.ArrayLike | None = None
    ) -> np.ndarray:
        """Returns the probabilities of all actions, [A], or [B, A] for a batch; remembers nothing."""
        return self.search(observation, reward=reward, action_mask=action_mask).policy

    def search(
        self, observation: Any, *, reward: npt.ArrayLike | None = None, action_mask: npt.ArrayLike | None = None
    ) -> RemoteFindings:
        """Returns the agent's findings; remembers nothing. Raises UsageError if the agent has none."""
        if not self.offer.has_probabilities:
            raise errors.UsageError(f"agent {self.offer.agent} learns only values, or its actions are continuous")
        with self._alone():
            rows, is_single = self._rows(observation, reward, action_mask)
            acted = self._ask(rows._replace(findings=True, only_look=True))
        shown = {name: array[0] if is_single else array for name, array in acted.findings.items()}
        return RemoteFindings(
            action=self._decode(acted.actions, is_single),
            policy=shown["probabilities"],
            value=shown.get("value"),
            visit_counts=shown.get("visits"),
            q_values=shown.get("q_value"),
            version=acted.version,
        )

    def reset(self, rows: Sequence[int] | np.ndarray | None = None) -> None:
        """Begins an episode with the next observation of these rows.

        None means all rows; their number may change then.
        """
        with self._alone():
            if rows is None:
                self._first = np.ones(len(self._first), bool)
            elif len(self._first):  # before the first call every row begins an episode anyway
                packing.restart(self._first, rows)

    def close(self) -> None:
        """Frees the rows at the server; a later call begins a new session. In a forked process it does nothing."""
        if forks.is_lost("gRPC"):
            return
        with self._alone():
            client, self._client, self._first = self._client, None, np.ones(0, bool)
            if client is not None:
                client.close()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise errors.UsageError("a connected policy cannot be copied or sent to another process; connect there")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps other threads out. Raises UsageError in a process that was forked while gRPC was in use."""
        forks.check("gRPC")  # first, because a thread of the other process may have had the lock
        with self._lock:
            yield

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, rows: policy_codec.PolicyRows) -> policy_codec.PolicyAnswer:
        if self._client is None:
            self._client = policy_client.PolicyClient(
                self._secured, self.offer, player=self._player, num_rows=len(rows.row)
            )
        acted = self._client.act(rows)
        self.version = acted.version
        return acted

    def _rows(
        self, observation: Any, reward: npt.ArrayLike | None, action_mask: npt.ArrayLike | None
    ) -> tuple[policy_codec.PolicyRows, bool]:
        """Returns a request for all rows, and whether the observation lacked a batch axis."""
        frames, is_single = self._encode(observation)
        number, spec = len(frames), self.spec
        if len(self._first) != number:
            if not self._first.all():
                raise packing.other_rows(number, self._first)
            self.close()
            self._first = np.ones(number, bool)
        rewards, mask = packing.rewards_and_mask(
            spec,
            self._first,
            reward,
            self._mask(observation, action_mask),
            is_single=is_single,
            reads_reward=self.offer.reads_reward,
        )
        none = np.zeros(number, bool)
        step = types.EnvStep(frames, rewards, none, none, mask)
        return policy_codec.PolicyRows(np.arange(number, dtype=np.int32), step, self._first.copy()), is_single


_Coders = tuple[Callable[[Any], tuple[np.ndarray, bool]], Callable[[np.ndarray, bool], Any], Callable[[Any, Any], Any]]


def _coders(spec: types.EnvSpec) -> _Coders:
    """Returns functions that convert observations to rows and actions back, and find masks in observations.

    With Gymnasium's environments, values are in their own spaces, as with `seedzero.load`; only that needs gymnasium.
    """
    if spec.spaces or spec.packed:
        from seedzero.acting.actors import codecs

        codec = codecs.of(spec)

        def mask_of(observation: Any, given: Any) -> Any:
            found = codec.shown_mask(observation) if given is None and spec.has_action_mask else given
            return None if found is None else codec.joint_mask(found)

        return codec.encode, lambda actions, is_single: codec.decode(actions, is_single=is_single), mask_of

    def encode(observation: Any) -> tuple[np.ndarray, bool]:
        array = packing.array_of("the observation", observation)
        is_single = array.shape == spec.observation_shape
        if not is_single and (array.shape[1:] != spec.observation_shape or not array.size):
            expected = f"{list(spec.observation_shape)}, or one axis more in front"
            raise errors.UsageError(f"the observation has the shape {list(array.shape)}; expected {expected}")
        if array.dtype.kind not in ("biuf" if spec.observation_dtype == "float32" else "biu"):
            raise errors.UsageError(f"the observation has the dtype {array.dtype}; expected {spec.observation_dtype}")
        rows = array.astype(spec.observation_dtype)
        if rows.dtype.kind != "f" and (changed := array[rows != array]).size:
            raise errors.UsageError(f"the observation has the value {changed[0]}; expected {spec.observation_dtype}")
        return (rows[np.newaxis] if is_single else rows), is_single

    def decode(actions: np.ndarray, is_single: bool) -> Any:
        if not is_single:
            return actions
        return actions[0] if spec.is_continuous else int(actions[0])

    return encode, decode, lambda observation, given: given
