"""Plays Atari 2600 games by ALE's native vector environment (grayscale frames, one process, many threads).

This file corrects ALE 0.12's deviations from types.EnvStep:
- an action out of range kills the emulator thread, and the next step waits forever: actions are checked first;
- at its own frame limit ALE repeats an older frame, from which a truncated episode must not bootstrap: this file
  counts the frames, without the no-ops at a game's beginning, and resets the game by a mask;
- ALE's own life-loss option restarts the whole game: here the life-loss signal ends the episode and the next
  episode continues the game, so that later lives are played too (Mnih et al. 2015, Methods);
- `noop_max` is exclusive.
Uncorrected: a game over shows an older frame (a terminal state's value is 0 for any observation).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ale_py import roms, vector_env
from gymnasium import vector

from seedzero.config import machines, sections
from seedzero.core import errors, types
from seedzero.envs import env_base

NOOP = 0

_NEVER = 2**30
"""A frame limit that ALE never reaches, because its counter has 32 bits."""

_SCREEN = (210, 160)
"""Height and width of the emulator's screen in pixels."""


class Atari:
    """E copies of one game. frame_numbers: [E] int32, frames emulated since creation, including no-ops at a reset."""

    def __init__(
        self, game: str, settings: sections.EnvConfig, num_envs: int, *, threads: int = 0, render: bool = False
    ) -> None:
        """Makes the emulators. Raises EnvironmentFailure for an unknown game, or an error of ALE.

        game: in CamelCase or snake_case. threads: emulator threads; 0: one for each core available to this process.
        render: runs a colour copy of environment 0 for render().
        """
        rom = rom_name(game)
        size = settings.frame_size
        with env_base.failures_of(f"Atari game {game!r} cannot be made"):
            self._envs = _make(rom, settings, num_envs, threads, (size, size), grayscale=True)
            self._colour = _make(rom, settings, 1, 1, _SCREEN, grayscale=False) if render else None
        self.num_envs = num_envs
        names = tuple(action.name for action in self._envs.ale.get_action_set())
        others: dict[str, Any] = {"frames_per_step": settings.frame_skip, "action_names": names}
        self.spec = types.EnvSpec((size, size, 1), "uint8", len(names), 0, 255, **others)
        self.frame_numbers = self._game_frames = self._noops = np.zeros(num_envs, np.int32)
        self._frame_limit = settings.max_episode_frames
        self._picture = np.zeros((*_SCREEN, 3), np.uint8)
        self._final = self._timed_out = self._ended_unseen = np.zeros(num_envs, bool)

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        env_base.check_seeds(seeds, self.num_envs)
        emulator_seeds = np.array([seed % 2**31 for seed in seeds])
        with env_base.failures_of("Atari reset"):
            observation, info = self._envs.reset(seed=emulator_seeds)
            if self._colour is not None:
                self._picture = self._colour.reset(seed=emulator_seeds[:1])[0][0, 0]
        self.frame_numbers, self._game_frames = info["frame_number"], info["episode_frame_number"]
        self._noops = self._game_frames
        self._final = self._timed_out = self._ended_unseen = np.zeros(self.num_envs, bool)
        return types.EnvStep.first(self._frames(observation))

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        first = self._final
        actions = np.where(first, NOOP, actions).astype(np.int32)
        with env_base.failures_of("Atari step"):
            observation, reward, ended, _, info = self._envs.step(actions)
            if self._timed_out.any():
                observation, info = self._envs.reset(options={"reset_mask": self._timed_out})
            if self._colour is not None:  # it has environment 0's seed
                picture = self._colour.step(actions[:1])[0]
                if self._timed_out[0]:
                    picture = self._colour.reset(options={"reset_mask": self._timed_out[:1]})[0]
                self._picture = picture[0, 0]
        terminated = (ended | self._ended_unseen) & ~first
        is_new = self._timed_out | (info["episode_frame_number"] < self._game_frames)
        self._game_frames = info["episode_frame_number"]
        self._noops = np.where(is_new, self._game_frames, self._noops)
        truncated = (self._game_frames - self._noops >= self._frame_limit) & ~first & ~terminated
        # After a lost life the game continues during the first observation; the next step reports an end there.
        self._ended_unseen = ended & first & ~self._timed_out
        self._timed_out = truncated
        self._final = terminated | truncated
        self.frame_numbers = info["frame_number"]
        reward = np.where(first, 0, reward).astype(np.float32)
        return types.EnvStep(self._frames(observation), reward, terminated, truncated)

    def render(self) -> np.ndarray:
        if self._colour is None:
            raise errors.EnvironmentFailure("Atari can only be rendered if made with render=True")
        return self._picture

    def close(self) -> None:
        # Dropping the last reference ends ALE's threads; ALE has no call to close.
        del self._envs
        self._colour = None

    def _frames(self, observation: np.ndarray) -> np.ndarray:
        """Reshapes [E, 1, H, W] to [E, H, W, 1] without a copy."""
        return observation.reshape(self.num_envs, *self.spec.observation_shape)


def rom_name(game: str) -> str:
    """Returns ALE's name of a game in CamelCase or snake_case ("MsPacman" -> "ms_pacman"), else EnvironmentFailure."""
    known = {name.replace("_", ""): name for name in roms.get_all_rom_ids()}
    key = game.replace("_", "").lower()
    if key not in known:
        advice = f"it has {len(known)}, as pong and ms_pacman"
        raise env_base.no_such("ALE has no game", game, known.values(), advice)
    return known[key]


def find(name: str) -> str:
    """Returns the id, such as atari:MsPacman, of a game named without its family, or ""."""
    try:
        rom = rom_name(name.removeprefix("ALE/").partition("-v")[0])
    except errors.EnvironmentFailure:
        return ""
    return "atari:" + "".join(part.capitalize() for part in rom.split("_"))


def _make(
    rom: str, settings: sections.EnvConfig, num_envs: int, threads: int, size: tuple[int, int], *, grayscale: bool
) -> vector_env.AtariVectorEnv:
    """Sets every option: ALE by default clips rewards, presses FIRE, stacks frames and has no sticky actions."""
    return vector_env.AtariVectorEnv(
        rom,
        num_envs,
        batch_size=num_envs,
        num_threads=min(threads or machines.num_cores(), num_envs),
        thread_affinity_offset=-1,
        max_num_frames_per_episode=_NEVER,
        repeat_action_probability=settings.sticky_actions,
        full_action_space=settings.full_action_space,
        continuous=False,
        autoreset_mode=vector.AutoresetMode.NEXT_STEP,
        img_height=size[0],
        img_width=size[1],
        grayscale=grayscale,
        stack_num=1,
        frameskip=settings.frame_skip,
        maxpool=True,
        noop_max=settings.noop_max + 1 if settings.noop_max else 0,
        episodic_life=False,
        life_loss_info=settings.life_loss,
        reward_clipping=False,
        use_fire_reset=False,
    )
