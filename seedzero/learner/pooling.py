"""Serves copies of a learner's players as a model pool, for policy servers on other machines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent import futures

import jax
import numpy as np

from seedzero.checkpoints import player_files, run_dirs, spec_file, trees
from seedzero.config import sections
from seedzero.core import errors, plain_files
from seedzero.device import states
from seedzero.loop import device_loop
from seedzero.transport import model_pool, security

_COPY_SECONDS = 30.0
"""Longest wait for the loop, which may be in the middle of a long call."""
Loop = Callable[[], device_loop.DeviceLoop | None]


def of_config(
    settings: sections.ServeConfig, directory: run_dirs.RunDir, secured: security.ServerSecurity, loop: Loop
) -> tuple[model_pool.ModelPool, str] | None:
    """Returns the pool and its token, or None if the run has no pool.

    Raises UsageError if the token is unusable, or is the one of the workers.
    """
    if not settings.token_file:
        return None
    token = security.read_token(settings.token_file, "--serve.token_file")
    if token == secured.token:
        raise errors.UsageError(
            f"--serve.token_file={settings.token_file} holds the workers' token, and a worker may not fetch "
            "parameters; write another one into a file of its own by `openssl rand -hex 32`"
        )
    return LearnerPool(directory, loop), token


@dataclasses.dataclass(frozen=True)
class LearnerPool:
    """Offers a run's players as a `model_pool.ModelPool`. loop: returns the device loop once it is built."""

    directory: run_dirs.RunDir
    loop: Loop

    def offer(self) -> model_pool.PoolOffer:
        """Returns the players, with the updates of those that learn."""
        learning = {player.name: player.num_updates for player in self._built().dispatcher.players}
        texts = (plain_files.read(self.directory.path / name) for name in (run_dirs.CONFIG_FILE, spec_file.NAME))
        try:
            config, spec = (text.decode() for text in texts)
        except FileNotFoundError:  # a new run writes spec.json once its first worker has joined
            raise errors.UsageError("no worker has joined the learner yet; try again") from None
        return model_pool.PoolOffer(config, spec, learning, tuple(player_files.names(self.directory.checkpoints)))

    def parameters(self, player: str) -> model_pool.Parameters:
        """Returns a player's parameters, copied by the loop between two calls, or from a frozen player's files."""
        loop = self._built()
        if player in player_files.names(self.directory.checkpoints):
            setup = loop.dispatcher.places[0].setup
            like = jax.eval_shape(lambda train: setup.agent.acting(train), states.abstract_train(setup))
            frozen = player_files.read(self.directory.checkpoints, player, like)
            return _parameters(frozen.step, frozen.params)
        copied = loop.copies.ask(player)
        try:
            version, params = copied.result(_COPY_SECONDS)
        except (TimeoutError, futures.CancelledError):
            copied.cancel()  # so that the loop makes no copy that nobody takes
            raise errors.UsageError(
                f"the learner copied no parameters within {_COPY_SECONDS:g} s; try again"
            ) from None
        return _parameters(version, trees.copy(params))

    def _built(self) -> device_loop.DeviceLoop:
        if (loop := self.loop()) is None:
            raise errors.UsageError("the learner has no networks yet, for no worker has joined, or its run is over")
        return loop


def _parameters(version: int, params: trees.Tree) -> model_pool.Parameters:
    arrays = jax.tree.map(np.asarray, params)
    return model_pool.Parameters(version, trees.digest(arrays), jax.tree.leaves(arrays))
