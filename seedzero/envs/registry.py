"""The table of environment families: an environment id -> environments."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from seedzero.config import sections
from seedzero.core import env_ids, errors, types, user_code
from seedzero.envs import atari, catch, dmlab, envpool_env, football, gym_env, gym_wrappers, memory, spiel
from seedzero.envs import base as env_base

LOCAL_KINDS = ("catch", "gym", "python", "atari", "dmlab", "spiel", "memory", "envpool", "football")
"""The families of seedzero's own worker: the part of an id before its first colon."""

_FORMS = (
    "catch | gym:ID | gym:module:ID | python:module:function | atari:GAME | dmlab:LEVEL | spiel:GAME | memory:TASK | "
    "envpool:ID | football:SCENARIO | remote"
)


def make(
    env_id: str,
    settings: sections.EnvConfig,
    num_envs: int,
    *,
    role: types.Role = types.Role.TRAIN,
    threads: int = 0,
    render: bool = False,
    indices: Sequence[int] = (),
) -> env_base.VectorEnv:
    """Returns one group of `num_envs` environments; EnvironmentFailure if they cannot be made here.

    Args:
      env_id: catch, gym:ID, gym:module:ID, python:module:function, atari:GAME, dmlab:LEVEL,
        spiel:GAME, memory:TASK, envpool:ID or football:SCENARIO.
      role: games of two players are self-play in training, against random moves in evaluation.
      threads: those of Atari and EnvPool; 0: one for each core.
      render: enables render().
      indices: [num_envs] places of the environments among all of the run, over which tasks are spread; empty: the
        first ones.
    """
    kind, _, name = env_id.partition(":")
    if env_id == "catch":
        return catch.Catch(num_envs)
    if kind == "gym" and name:
        wrappers = gym_wrappers.parse(settings.wrappers)
        return gym_env.GymVectorEnv(name, num_envs, gym_env.arguments(settings), wrappers=wrappers, render=render)
    if kind == "python" and name:
        return gym_env.GymVectorEnv.from_user_code(name, settings, num_envs, render=render)
    if kind == "atari" and name:
        return atari.Atari(name, settings, num_envs, threads=threads, render=render)
    if kind == "dmlab" and name:
        return dmlab.DMLab(name, settings, num_envs, role=role, indices=indices)
    if kind == "spiel" and name:
        if role is types.Role.EVALUATE:
            return spiel.make(name, num_envs, opponent="random")
        return spiel.make(name, num_envs, random_opening=settings.random_opening)
    if kind == "memory" and name:
        return memory.make(name, num_envs, render=render)
    if kind == "envpool" and name:
        return envpool_env.EnvPool(name, num_envs, settings, threads=threads, render=render)
    if kind == "football" and name:
        return football.Football(name, num_envs, settings, threads=threads)
    if env_id == env_ids.REMOTE:
        raise errors.EnvironmentFailure("environments of --env=remote are the worker's own; give it an env_factory")
    raise errors.EnvironmentFailure(_unknown(env_id))


def check_id(env_id: str) -> None:
    """Raises ConfigError, with the valid forms and the nearest name, if no such environment can exist.

    Ids of a user's own modules are only checked for their form.
    """
    kind, _, name = env_id.partition(":")
    if env_id in ("catch", env_ids.REMOTE):
        return
    checks = {
        "gym": gym_env.check_id,
        "python": user_code.check,
        "atari": atari.rom_name,
        "dmlab": dmlab.levels,
        "spiel": spiel.Game,
        "memory": memory.check_id,
        "envpool": envpool_env.check_id,
        "football": football.check_id,
    }
    check = checks.get(kind)
    if check is None or not name:
        raise errors.ConfigError(_unknown(env_id))
    try:
        check(name)
    except (errors.EnvironmentFailure, errors.ConfigError) as error:
        raise errors.ConfigError(str(error) if kind == "gym" else f"environment {env_id!r}: {error}") from None


def advice(env_id: str) -> str:
    """Returns a sentence about another id that the user may mean, for an environment that there is; "": none."""
    name = env_id.removeprefix("gym:")
    game = atari.find(name) if name.startswith("ALE/") else ""
    if not game:
        return ""
    return (
        f"--env={env_id} shows the emulator's own pictures; --env={game} has Atari's usual preprocessing (small gray "
        "pictures, an action for 4 frames) and presets"
    )


def spec(settings: sections.EnvConfig) -> types.EnvSpec:
    """Returns the spec of an environment, which is made once for it; one in Python is reset and stepped once, too.

    Raises:
      EnvironmentFailure: it cannot be made here, or not used.
    """
    with env_base.closing(make(settings.id, settings, 1, threads=1)) as env:
        if isinstance(env, gym_env.GymVectorEnv):
            env.try_out()
        return env.spec


def _unknown(env_id: str) -> str:
    kind, separator, name = env_id.partition(":")
    nearest = difflib.get_close_matches(kind.lower(), [*LOCAL_KINDS, env_ids.REMOTE], n=1, cutoff=0.75)
    forms = {
        "gym": "gym:ID, as in gym:CartPole-v1",
        "atari": "atari:GAME, as in atari:Pong",
        "dmlab": "dmlab:LEVEL, as in dmlab:rooms_watermaze, or dmlab:dmlab30 for all 30",
        "python": "python:MODULE:FUNCTION, as in python:my_module:make",
        "spiel": "spiel:GAME, as in spiel:tic_tac_toe",
        "memory": "memory:TASK, as in memory:tmaze-20",
        "envpool": "envpool:ID, as in envpool:MiniGrid-Empty-8x8-v0",
        "football": "football:SCENARIO, as in football:academy_empty_goal",
    }
    meant = atari.find(env_id) or gym_env.find(env_id)
    if nearest and not meant:
        meant = forms.get(nearest[0], nearest[0])
    elif separator and name and not meant:
        meant = f"gym:{env_id}"
    hint = f"did you mean {meant}?" if meant else f"expected {_FORMS};"
    return f"unknown environment {env_id!r}; {hint} `seedzero envs` lists all families"
