"""Evaluation and play from a checkpoint, without a learner: environments and agent in one process."""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.agents import table as agents
from seedzero.core import config as config_lib
from seedzero.core import errors, types
from seedzero.envs import base as env_base
from seedzero.envs import registry
from seedzero.runtime import checkpoint_files, compilation_cache, evaluation, run_dir, spec_file, video

_log = logging.getLogger(__name__)

_SEED_KEY = 2
"""Apart from training (0) and evaluation while training (1), so that episodes are unseen ones."""
_MAX_ENVS = 32
_FRAMES_PER_SECOND = {"atari": 15.0, "gym": 30.0, "catch": 5.0}


class _Player:
    """A greedy agent for a group of environments."""

    def __init__(
        self, path: pathlib.Path, step: checkpoint_files.Step | None, num_envs: int, *, seed: int, render: bool
    ) -> None:
        compilation_cache.enable()
        config = run_dir.read_config(path)
        if config.env.id == "remote":
            raise errors.UsageError(
                f"{path} was trained with --env=remote: its environment is not here; what was evaluated while "
                f"training is in metrics.jsonl"
            )
        settings = dataclasses.replace(config.env, life_loss=False)  # an episode is a whole game
        self.env: env_base.VectorEnv = registry.make(config.env.id, settings, num_envs, render=render)
        spec = spec_file.read(path) or self.env.spec
        spec_file.check_equal(self.env.spec, spec)
        agent = agents.make(config, spec, jax.default_backend())
        template = jax.eval_shape(lambda: agent.init(jax.random.key(0))).params
        self._params = _load_params(path / "checkpoints", step, template)
        self._memory = agent.initial_memory(num_envs)
        self._act = jax.jit(agent.act)
        self.config: config_lib.Config = config
        self._key = jax.random.key(seed)
        seeds = np.random.SeedSequence([seed, _SEED_KEY]).generate_state(num_envs)
        self.step = self.env.reset([int(s) >> 1 for s in seeds])
        self.first = np.ones(num_envs, bool)

    def advance(self) -> None:
        """Acts once in every environment."""
        num_envs, num_actions = self.env.num_envs, self.env.spec.num_actions
        mask = self.step.action_mask
        inputs = base.ActInputs(
            observation=jnp.asarray(self.step.observation),
            first=jnp.asarray(self.first),
            action_mask=jnp.ones((num_envs, num_actions), bool) if mask is None else jnp.asarray(mask),
            explore=jnp.zeros(num_envs, bool),
        )
        self._key, key = jax.random.split(self._key)
        self._memory, outputs = self._act(self._params, self._memory, inputs, key)
        self.first = final(self.step)
        self.step = self.env.step(np.asarray(outputs.action, np.int32))


def _load_params(directory: pathlib.Path, step: checkpoint_files.Step | None, template: base.Params) -> base.Params:
    """Returns parameters; without a step the best ones, or the last where none were evaluated."""
    if step is None:
        step = "best" if checkpoint_files.finished(directory / checkpoint_files.BEST) else "last"
    params, info = checkpoint_files.restore_params(directory, step, template)
    _log.info("checkpoint of update %d", info["step"])
    return params


def final(step: types.EnvStep) -> np.ndarray:
    """Returns [E] bool, true: the observation is the last of its episode."""
    last: np.ndarray = step.terminated | step.truncated
    return last


def evaluate(
    path: str | os.PathLike[str], step: checkpoint_files.Step | None, episodes: int, seed: int
) -> dict[str, Any]:
    """Plays greedy episodes with a checkpoint and returns their statistics.

    Args:
      path: run directory.
      step: update number, "best" or "last"; None: the best, or the last where none was evaluated.
      episodes: number of episodes, at least 1.
      seed: of the environments.

    Raises:
      UsageError: not a run directory, or one whose environment is remote.
      CheckpointError: there is no such checkpoint, or it is damaged.
    """
    num_envs = min(episodes, _MAX_ENVS)
    player = _Player(pathlib.Path(path), step, num_envs, seed=seed, render=False)
    slots = np.arange(num_envs)
    played = evaluation.Evaluation(slots, episodes)
    try:
        played.record(slots, player.step.reward, player.first, final(player.step))
        while not played.done:
            player.advance()
            played.record(slots, player.step.reward, player.first, final(player.step))
    finally:
        player.env.close()
    result = dataclasses.asdict(played.result())
    normalized = evaluation.human_normalized(player.config.env.id, result["mean_return"])
    return result if normalized is None else {**result, "human_normalized": normalized}


def play(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> dict[str, Any]:
    """Writes a video of one greedy episode with the best checkpoint, or the last where none was evaluated.

    Args:
      path: run directory.
      target: file to write, .mp4 or .gif.

    Returns:
      video, frames, return and length.

    Raises:
      UsageError, CheckpointError: as `evaluate`, or the video cannot be written.
    """
    video.check_path(target)
    player = _Player(pathlib.Path(path), None, 1, seed=0, render=True)
    total = 0.0
    length = 0

    def frames() -> Iterator[np.ndarray]:
        nonlocal total, length
        yield player.env.render()
        while not final(player.step)[0]:
            player.advance()
            total += float(player.step.reward[0])
            length += 1
            yield player.env.render()

    try:
        kind = player.config.env.id.partition(":")[0]
        num_frames = video.write_video(target, frames(), _FRAMES_PER_SECOND[kind])
    finally:
        player.env.close()
    return {"video": os.fspath(target), "frames": num_frames, "return": total, "length": length}
