"""Evaluation and play from a checkpoint, without a learner: environments and agent in one process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import base
from seedzero.agents import table as agents
from seedzero.checkpoints import files as checkpoint_files
from seedzero.checkpoints import run_dir, spec_file
from seedzero.config import config as config_lib
from seedzero.core import env_ids, errors, types
from seedzero.device import acting, compilation_cache
from seedzero.envs import base as env_base
from seedzero.envs import registry, spiel
from seedzero.evaluation import evaluation, human_scores, match, video

_SEED_KEY = 2
"""Differs from training (0) and evaluation during training (1), so that episodes are unseen."""
_MAX_ENVS = 32
_FRAMES_PER_SECOND = {"atari": 15.0, "gym": 30.0, "catch": 5.0, "spiel": 1.0}

RANDOM, EXHAUSTIVE = "random", "exhaustive"
"""Opponents in games of two players; every other name is a run directory."""


def _read_config(path: pathlib.Path) -> config_lib.Config:
    """Returns a run's configuration, if its environment can be made here."""
    config = run_dir.read_saved(path).config
    if config.env.id == env_ids.REMOTE:
        raise errors.UsageError(
            f"{path} was trained with --env=remote: its environment is not here; metrics.jsonl has the evaluations "
            f"during training"
        )
    return config


def _load(
    path: pathlib.Path, config: config_lib.Config, spec: types.EnvSpec, step: checkpoint_files.Step | None
) -> tuple[base.Agent, base.Params, int]:
    """Returns the agent of a run, its parameters, and the update of their checkpoint; raises if the spec differs."""
    compilation_cache.enable()
    saved_spec = spec_file.read(path) or spec
    spec_file.check_equal(spec, saved_spec)
    agent = agents.make(config, saved_spec, jax.default_backend())
    template = jax.eval_shape(lambda: agent.acting(agent.init(jax.random.key(0))))
    params, update = _load_params(path / "checkpoints", step, template)
    return agent, params, update


def _load_params(
    directory: pathlib.Path, step: checkpoint_files.Step | None, template: base.Params
) -> tuple[base.Params, int]:
    """Returns parameters and their update; without a step the best ones, or the last if there are none."""
    if step is None:
        step = "best" if checkpoint_files.finished(directory / checkpoint_files.BEST) else "last"
    params, found = checkpoint_files.restore_params(directory, step, template)
    return params, found.step


class _Player:
    """A greedy agent for a group of environments; update: that of its checkpoint."""

    def __init__(
        self, path: pathlib.Path, step: checkpoint_files.Step | None, num_envs: int, *, seed: int, render: bool
    ) -> None:
        self.config = config = _read_config(path)
        settings = dataclasses.replace(config.env, life_loss=False, random_opening=0)  # episodes are whole games
        self.env: env_base.VectorEnv = registry.make(config.env.id, settings, num_envs, render=render)
        agent, self._params, self.update = _load(path, config, self.env.spec, step)
        self._carried = acting.initial(agent, self.env.spec, num_envs)
        self._act = jax.jit(functools.partial(acting.act, agent, self.env.spec, 0))
        self._key = jax.random.key(seed)
        seeds = np.random.SeedSequence([seed, _SEED_KEY]).generate_state(num_envs)
        self.step = self.env.reset([int(s) >> 1 for s in seeds])
        self.first = np.ones(num_envs, bool)

    def advance(self) -> None:
        """Acts once in every environment."""
        num_envs, num_actions = self.env.num_envs, self.env.spec.num_actions
        mask = self.step.action_mask
        seen = acting.Seen(
            frame=jnp.asarray(self.step.observation),
            reward=jnp.asarray(self.step.reward),
            first=jnp.asarray(self.first),
            action_mask=jnp.ones((num_envs, num_actions), bool) if mask is None else jnp.asarray(mask),
            explore=jnp.zeros(num_envs, bool),
            slot=jnp.arange(num_envs),
        )
        self._key, key = jax.random.split(self._key)
        self._carried, outputs = self._act(self._params, self._carried, seen, key)
        self.first = self.step.final
        self.step = self.env.step(np.asarray(outputs.action))


def evaluate(
    path: str | os.PathLike[str],
    step: checkpoint_files.Step | None,
    num_episodes: int,
    seed: int,
    opponent: str | None = None,
) -> dict[str, Any]:
    """Plays greedy episodes with a checkpoint; returns its update as `step`, and their statistics.

    Args:
      path: run directory.
      step: update number, "best" or "last"; None: the best, or the last if there is none: a first evaluation, of
        untrained parameters, makes none; in games of two players the last, because an evaluation against random
        moves does not distinguish good agents.
      num_episodes: at least 1; not read if the opponent is EXHAUSTIVE.
      seed: of the environments.
      opponent: in games of two players RANDOM, EXHAUSTIVE or the run directory of another agent; None: RANDOM.

    Raises:
      UsageError: not a run directory, a remote environment, or an unsuitable opponent.
      CheckpointError: a missing or damaged checkpoint.
    """
    path = pathlib.Path(path)
    game = game_of(path)
    if game is None:
        if opponent is not None:
            raise errors.UsageError(f"--opponent={opponent}: {path} was trained in no game of two players; omit it")
        return _evaluate_alone(path, step, num_episodes, seed)
    opponent = opponent or RANDOM
    other = None if opponent in (RANDOM, EXHAUSTIVE) else _same_game(pathlib.Path(opponent), game)
    agent, update = load_player(game, path, step)
    if other is not None:
        games = match.against_agent(game, agent, load_player(game, other, None)[0], num_episodes, seed)
    elif opponent == RANDOM:
        games = match.against_random(game, agent, num_episodes, seed)
    else:
        games = match.every_line(game, agent)
    return {"step": update, "opponent": opponent, **match.summary(games)}


def game_of(path: pathlib.Path) -> spiel.Game | None:
    """Returns the game of a run; None if it has not two players."""
    kind, _, name = _read_config(path).env.id.partition(":")
    game = spiel.Game(name) if kind == "spiel" else None
    return game if game is not None and game.num_players == 2 else None


def load_player(game: spiel.Game, path: pathlib.Path, step: checkpoint_files.Step | None) -> tuple[match.Player, int]:
    """Returns the greedy agent of a run of this game and its update; without a step, of its last checkpoint."""
    agent, params, update = _load(path, run_dir.read_saved(path).config, game.spec, step or "last")
    return match.greedy_player(game, agent, params), update


def _same_game(path: pathlib.Path, game: spiel.Game) -> pathlib.Path:
    """Returns an opponent's run directory; raises if it was trained in another game."""
    env_id = run_dir.read_saved(path).config.env.id
    if env_id != f"spiel:{game.name}":
        raise errors.UsageError(
            f"--opponent={path} was trained with --env={env_id}, this run with --env=spiel:{game.name}; give a run of "
            f"the same game, {RANDOM} or {EXHAUSTIVE}"
        )
    return path


def _evaluate_alone(
    path: pathlib.Path, step: checkpoint_files.Step | None, num_episodes: int, seed: int
) -> dict[str, Any]:
    num_envs = min(num_episodes, _MAX_ENVS)
    player = _Player(path, step, num_envs, seed=seed, render=False)
    slots = np.arange(num_envs)
    played = evaluation.Evaluation(slots, num_episodes)
    with contextlib.closing(player.env):
        played.record(slots, player.step.reward, player.first, player.step.final)
        while not played.done:
            player.advance()
            played.record(slots, player.step.reward, player.first, player.step.final)
    result = {"step": player.update, **dataclasses.asdict(played.result())}
    normalized = human_scores.normalized(player.config.env.id, result["mean_return"])
    return result if normalized is None else {**result, "human_normalized": normalized}


def play(path: str | os.PathLike[str], target: str | os.PathLike[str]) -> dict[str, Any]:
    """Writes a video, .mp4 or .gif, of one greedy episode with the best checkpoint, or the last if there is none.

    A game of two players is self-play; the return is the first mover's.

    Returns:
      step, video, frames, return and length.

    Raises:
      UsageError, CheckpointError: as in `evaluate`, or the video cannot be written.
    """
    player = _Player(pathlib.Path(path), None, 1, seed=0, render=True)
    followed = evaluation.Episodes(1, player.env.spec.num_players)
    ended: list[evaluation.Episode] = []

    def frames() -> Iterator[np.ndarray]:
        while True:
            ended.extend(followed.record(np.zeros(1, int), player.step.reward, player.first, player.step.final))
            yield player.env.render()
            if ended:
                return
            player.advance()

    with contextlib.closing(player.env):
        fps = _FRAMES_PER_SECOND[player.config.env.id.partition(":")[0]]
        num_frames = video.write_video(target, frames(), fps)
    (episode,) = ended
    shown = {"frames": num_frames, "return": episode.total, "length": episode.length}
    return {"step": player.update, "video": os.fspath(target), **shown}
