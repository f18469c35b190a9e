"""Writes what rows remember of their episodes as text for the clients of `POST /act` to keep, and reads it back.

Shape letters: B rows.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.core import errors

FORMAT = 1
MAX_AGE_SECONDS = 24 * 3600
"""A memory of parameters that may have changed since is accepted for this long."""
_HEAD = struct.Struct("<BQQ")  # format, update, Unix time in seconds
_MAC_BYTES = 32
_BEGIN = "begin a new episode: send its first observation without memory"


class Forgotten(Exception):
    """A memory is not accepted, for this reason."""


class Memories:
    """Seals memories by HMAC-SHA256 over format, agent, update, time and content.

    Servers of the same run and token accept each other's. The clients know the token, so the seal finds mistakes; that
    nobody can do harm by a memory follows from its fixed size and its content, which is numbers of one row.
    """

    def __init__(
        self, blank: Any, identity: str, token: str, *, follows: bool, clock: Callable[[], float] = time.time
    ) -> None:
        """Prepares.

        Args:
          blank: arrays or their shapes, [1, ...], what a row remembers.
          identity: of the run.
          token: the server's; "": only this server accepts its memories.
          follows: whether parameters may change.
          clock: Unix time in seconds.

        Raises UsageError for a memory that is not made of numbers.
        """
        leaves, self._tree = jax.tree.flatten(blank)
        if any(jnp.issubdtype(leaf.dtype, jax.dtypes.extended) for leaf in leaves):
            raise errors.UsageError("--http_port: the agent's memory has keys of JAX; keep the key_data of them")
        self._shapes = [(leaf.shape[1:], np.dtype(leaf.dtype)) for leaf in leaves]
        sizes = [int(np.prod(shape)) * dtype.itemsize for shape, dtype in self._shapes]
        self._num_bytes, self._ends = sum(sizes), np.cumsum(sizes)[:-1].astype(int).tolist()
        self.text_length = -(-(_HEAD.size + self._num_bytes + _MAC_BYTES) // 3) * 4
        self._identity, self._follows, self._clock = identity, follows, clock
        self._secret = token.encode() or secrets.token_bytes(_MAC_BYTES)

    def write(self, memory: Any, player: str, update: int) -> list[str]:
        """Returns the texts [B] of memories [B, ...] behind a call of a player with the parameters of an update."""
        leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(memory)]
        head = _HEAD.pack(FORMAT, update, int(self._clock()))
        found = []
        for row in range(len(leaves[0])):
            sealed = head + b"".join(leaf[row].tobytes() for leaf in leaves)
            found.append(base64.b64encode(sealed + self._mac(sealed, player)).decode())
        return found

    def read(self, texts: Sequence[Any], player: str, update: int) -> Any:
        """Returns memories [B, ...] for a call of a player; zeros for None, because an episode begins there.

        Nothing of a text is decoded unless its length is right, and nothing is used unless its seal is. Raises
        Forgotten, and UsageError for a memory that is not text.
        """
        rows = np.zeros((len(texts), self._num_bytes), np.uint8)
        for row, text in zip(rows, texts, strict=True):
            if text is not None:
                row[:] = np.frombuffer(self._opened(text, player, update), np.uint8)
        parts = zip(np.split(rows, self._ends, axis=1), self._shapes, strict=True)
        leaves = [np.ndarray((len(rows), *shape), dtype, part.tobytes()) for part, (shape, dtype) in parts]
        return jax.tree.unflatten(self._tree, leaves)

    def _opened(self, text: Any, player: str, update: int) -> bytes:
        if not isinstance(text, str):
            raise errors.UsageError(f"memory is {text!r:.40}; expected the text of the answer before, or null")
        if len(text) != self.text_length:
            raise Forgotten(f"memory has {len(text)} characters, this agent's {self.text_length}; {_BEGIN}")
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            raise Forgotten(f"memory is not base64; {_BEGIN}") from None
        sealed, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(sealed, player)) or base64.b64encode(data).decode() != text:
            raise Forgotten(f"memory was changed, or is of another agent, player, server or token; {_BEGIN}")
        kind, made_by, at = _HEAD.unpack_from(sealed)
        if kind != FORMAT:
            raise Forgotten(f"memory has format {kind}, this server writes {FORMAT}; {_BEGIN}")
        if (age := self._clock() - at) > MAX_AGE_SECONDS:
            raise Forgotten(f"memory is {age / 3600:.0f} hours old, more than {MAX_AGE_SECONDS // 3600}; {_BEGIN}")
        if made_by != update and not self._follows:
            raise Forgotten(f"memory is of update {made_by}, this server's agent of update {update}; {_BEGIN}")
        return sealed[_HEAD.size :]

    def _mac(self, sealed: bytes, player: str) -> bytes:
        whom = json.dumps(["memory of POST /act", self._identity, player]).encode()
        return hmac.digest(hmac.digest(self._secret, whom, "sha256"), sealed, "sha256")
