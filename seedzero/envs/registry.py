"""Makes environments from their ids; `config/families.py` is the table of families."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

from seedzero.config import families, sections
from seedzero.core import env_ids, errors, types, user_code
from seedzero.envs import env_base

LOCAL_KINDS = tuple(family.prefix for family in families.FAMILIES if family.make)
"""The families of seedzero's own worker: the part of an id before its first colon."""


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
    """Returns one group of `num_envs` environments; EnvironmentFailure if none can be made here.

    Args:
      env_id: any that `check_id` accepts, but remote.
      role: games of two players are self-play in training, against random moves in evaluation.
      threads: those of Atari and EnvPool; 0: one for each core.
      indices: [num_envs] places of the environments among all of the run, over which tasks are spread; empty: the
        first ones.
    """
    if env_id == env_ids.REMOTE:
        raise errors.EnvironmentFailure("environments of --env=remote are the worker's own; give it an env_factory")
    family = _family(env_id, errors.EnvironmentFailure)
    given = dict(settings=settings, role=role, threads=threads, render=render, indices=indices)
    name = filter(None, [env_id.partition(":")[2]])
    made: env_base.VectorEnv = pkgutil.resolve_name(f"seedzero.envs.{family.make}")(
        *name, num_envs=num_envs, **{argument: given[argument] for argument in family.arguments}
    )
    return made


def check_id(env_id: str) -> None:
    """Raises ConfigError, with the valid forms and the nearest name, if no such environment can exist.

    Ids of a user's own modules are only checked for their form.
    """
    family = _family(env_id, errors.ConfigError)
    try:
        if family.check:
            pkgutil.resolve_name(f"seedzero.envs.{family.check}")(env_id.partition(":")[2])
    except (errors.EnvironmentFailure, errors.ConfigError) as error:
        is_named = family.prefix == "gym"
        raise errors.ConfigError(str(error) if is_named else f"environment {env_id!r}: {error}") from None


def check_bots(env_id: str, names: Sequence[str]) -> None:
    """Raises ConfigError for a bot of a league that does not play a game; a user's modules stay unread."""
    from seedzero.envs import bots, spiel

    family, _, name = env_id.partition(":")
    try:
        for each in names:
            bots.check_installed(each)
        if family == "spiel" and not user_code.module_of(env_id):
            game = spiel.load(name)
            for each in names:
                bots.check_plays(each, game)
    except errors.EnvironmentFailure as error:
        raise errors.ConfigError(f"--league.members: {error}") from None


def _family(env_id: str, refusal: type[errors.Error]) -> families.Family:
    """Returns the family of a complete id; raises a refusal of any other."""
    family = families.of(env_id)
    has_name = ":" in family.form and bool(env_id.partition(":")[2])
    if not family.offers or not (has_name or env_id == family.form):
        raise refusal(_unknown(env_id))
    return family


def advice(env_id: str) -> str:
    """Returns a sentence about another id, possibly the intended one, for an existing environment; "": none."""
    family, _, name = env_id.partition(":")
    if family != "gym":
        return ""
    from seedzero.envs import atari, gym_ids  # ALE and Gymnasium, which other families do without

    game = atari.find(gym_ids.game(name))
    if not game:
        return ""
    return (
        f"--env={env_id} shows the emulator's own pictures; --env={game} has Atari's usual preprocessing (small gray "
        "pictures, an action for 4 frames) and presets"
    )


def spec(settings: sections.EnvConfig, tell: Callable[[types.EnvSpec], None] = lambda spec: None) -> types.EnvSpec:
    """Returns the spec of an environment, made for this purpose; an environment in Python is reset and stepped once.

    Another one is made, too, to see that their spaces are equal; tell: takes the spec before that, which may hang.

    EnvironmentFailure: it cannot be made here, or not used.
    """
    with env_base.closing(make(settings.id, settings, 1, threads=1)) as env:
        tried: Any = env if hasattr(env, "try_out") and hasattr(env, "check_another") else None
        if tried is not None:
            tried.try_out()
        tell(env.spec)
        if tried is not None:
            tried.check_another()
        return env.spec


def seated_by(settings: sections.EnvConfig) -> str:
    """Returns what makes an environment's rows seats, in words; "": they are none."""
    prefix = families.of(settings.id).prefix
    has_agents = prefix == "pettingzoo"
    if prefix == "football":
        from seedzero.envs import football_sides

        has_agents = football_sides.has_sides(settings)
    if prefix != "spiel":
        return "several agents that share it" if has_agents else ""
    from seedzero.envs import spiel_seats

    return spiel_seats.seated_by(settings.id.partition(":")[2], by_turns=settings.by_turns)


def reward_threshold(settings: sections.EnvConfig) -> float | None:
    """Returns the mean return at which an environment's registration calls it solved; None: it names none.

    Arguments, limits or wrappers of the user that may change returns leave none.
    """
    if families.of(settings.id).prefix != "gym":
        return None
    from seedzero.envs import gym_env  # Gymnasium, which other families do without

    return gym_env.reward_threshold(settings.id.partition(":")[2], settings)


def _unknown(env_id: str) -> str:
    from seedzero.envs import atari, gym_env  # ALE and Gymnasium, which other families do without

    kind, separator, name = env_id.partition(":")
    nearest = difflib.get_close_matches(kind.lower(), [*LOCAL_KINDS, env_ids.REMOTE], n=1, cutoff=0.75)
    meant = atari.find(env_id) or gym_env.find(env_id)
    if nearest and not meant:
        family = families.of(nearest[0])
        meant = f"{family.form}, as in {family.offers[0].example}{family.hint}" if family.check else family.form
    elif separator and name and not meant:
        meant = f"gym:{env_id}"
    hint = f"did you mean {meant}?" if meant else f"expected {families.FORMS};"
    return f"unknown environment {env_id!r}; {hint} `seedzero envs` lists all families"
