"""The table of environment families: an environment id -> environments."""

from __future__ import annotations

import contextlib
import difflib

from seedzero.config import sections
from seedzero.core import env_ids, errors, types
from seedzero.envs import atari, base, catch, gym_env, spiel

LOCAL_KINDS = ("catch", "gym", "atari", "spiel")
"""The families of seedzero's own worker: the part of an id before its first colon."""

_FORMS = "catch | gym:ID | gym:module:ID | atari:GAME | spiel:GAME | remote"


def make(
    env_id: str,
    settings: sections.EnvConfig,
    num_envs: int,
    *,
    role: types.Role = types.Role.TRAIN,
    threads: int = 0,
    render: bool = False,
) -> base.VectorEnv:
    """Returns one group of `num_envs` environments; EnvironmentFailure if they cannot be made here.

    Args:
      env_id: catch, gym:ID, gym:module:ID, atari:GAME or spiel:GAME.
      role: games of two players are self-play in training, against random moves in evaluation.
      threads: emulator threads of Atari; 0: one for each core.
      render: enables render().
    """
    kind, _, name = env_id.partition(":")
    if env_id == "catch":
        return catch.Catch(num_envs)
    if kind == "gym" and name:
        return gym_env.GymVectorEnv(name, num_envs, gym_env.arguments(settings), render=render)
    if kind == "atari" and name:
        return atari.Atari(name, settings, num_envs, threads=threads, render=render)
    if kind == "spiel" and name:
        if role is types.Role.EVALUATE:
            return spiel.make(name, num_envs, opponent="random")
        return spiel.make(name, num_envs, random_opening=settings.random_opening)
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
    check = {"gym": gym_env.check_id, "atari": atari.rom_name, "spiel": spiel.Game}.get(kind)
    if check is None or not name:
        raise errors.ConfigError(_unknown(env_id))
    try:
        check(name)
    except errors.EnvironmentFailure as error:
        raise errors.ConfigError(str(error) if kind == "gym" else f"environment {env_id!r}: {error}") from None


def spec(settings: sections.EnvConfig) -> types.EnvSpec:
    """Returns the spec of an environment, which is made once for it.

    Raises:
      EnvironmentFailure: it cannot be made here.
    """
    with contextlib.closing(make(settings.id, settings, 1, threads=1)) as env:
        return env.spec


def _unknown(env_id: str) -> str:
    kind, separator, name = env_id.partition(":")
    nearest = difflib.get_close_matches(kind.lower(), [*LOCAL_KINDS, env_ids.REMOTE], n=1, cutoff=0.75)
    forms = {
        "gym": "gym:ID, as in gym:CartPole-v1",
        "atari": "atari:GAME, as in atari:Pong",
        "spiel": "spiel:GAME, as in spiel:tic_tac_toe",
    }
    meant = atari.find(env_id) or gym_env.find(env_id)
    if nearest and not meant:
        meant = forms.get(nearest[0], nearest[0])
    elif separator and name and not meant:
        meant = f"gym:{env_id}"
    hint = f"; did you mean {meant}?" if meant else ""
    return f"unknown environment {env_id!r}; expected {_FORMS}{hint}"
