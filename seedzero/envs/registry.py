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
"""The families that seedzero's own worker can make: the part of an id before its first colon."""


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
    """Returns a group of `num_envs` environments. Raises EnvironmentFailure if they cannot be made here.

    Args:
      env_id: any that `check_id` accepts, except remote.
      role: games of two players are self-play in training, and played against random moves in evaluation.
      threads: of Atari and EnvPool; 0 means one per core.
      indices: [num_envs] indices among all environments of the run, over which tasks are spread; empty means the first
        ones.
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

    Ids of a user's own modules are checked only for their form.
    """
    family = _family(env_id, errors.ConfigError)
    try:
        if family.check:
            pkgutil.resolve_name(f"seedzero.envs.{family.check}")(env_id.partition(":")[2])
    except (errors.EnvironmentFailure, errors.ConfigError) as error:
        is_named = family.prefix == "gym"
        raise errors.ConfigError(str(error) if is_named else f"environment {env_id!r}: {error}") from None


def check_bots(env_id: str, names: Sequence[str]) -> None:
    """Raises ConfigError for a league's bot that does not play a game; does not import a user's modules."""
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
    """Returns the family of a complete id. Raises the error for any other id."""
    family = families.of(env_id)
    has_name = ":" in family.form and bool(env_id.partition(":")[2])
    if not family.offers or not (has_name or env_id == family.form):
        raise refusal(_unknown(env_id))
    return family


def advice(env_id: str) -> str:
    """Suggests another id that the user may have meant, although the environment exists; "" without a suggestion."""
    family, _, name = env_id.partition(":")
    if family != "gym":
        return ""
    from seedzero.envs import atari, gym_ids  # import ALE and Gymnasium, which other families do without

    game = atari.find(gym_ids.game(name))
    if not game:
        return ""
    return (
        f"--env={env_id} shows the emulator's own pictures; --env={game} has Atari's usual preprocessing (small gray "
        "pictures, an action for 4 frames) and presets"
    )


def spec(
    settings: sections.EnvConfig, tell: Callable[[types.EnvSpec, Sequence[str]], None] = lambda spec, statistics: None
) -> types.EnvSpec:
    """Makes an environment to read its spec; resets and steps it once if it is written in Python.

    Then another one is made to check that the spaces are equal. tell: receives the spec before that, because it may
    hang, and the names of wrappers that keep statistics.

    Raises EnvironmentFailure if an environment cannot be made or used here.
    """
    with env_base.closing(make(settings.id, settings, 1, threads=1)) as env:
        tried: Any = env if hasattr(env, "try_out") and hasattr(env, "check_another") else None
        if tried is not None:
            tried.try_out()
        tell(env.spec, getattr(env, "statistics", ()))
        if tried is not None:
            tried.check_another()
        return env.spec


def seated_by(settings: sections.EnvConfig) -> str:
    """Returns why an environment's rows are seats, in words, or "" if they are not."""
    prefix = families.of(settings.id).prefix
    has_agents = prefix == "pettingzoo"
    if prefix == "football":
        from seedzero.envs import football

        has_agents = football.has_sides(settings)
    if prefix != "spiel":
        return "several agents that share it" if has_agents else ""
    from seedzero.envs import spiel_seats

    return spiel_seats.seated_by(settings.id.partition(":")[2], by_turns=settings.by_turns)


def reward_threshold(settings: sections.EnvConfig) -> float | None:
    """Returns the mean return at which an environment's registration calls it solved, or None.

    Arguments, limits or wrappers from the user that may change returns make it None.
    """
    if families.of(settings.id).prefix != "gym":
        return None
    from seedzero.envs import gym_env  # imports Gymnasium, which other families do without

    return gym_env.reward_threshold(settings.id.partition(":")[2], settings)


def _unknown(env_id: str) -> str:
    from seedzero.envs import atari, gym_env  # import ALE and Gymnasium, which other families do without

    kind, separator, name = env_id.partition(":")
    nearest = difflib.get_close_matches(kind.lower(), [*LOCAL_KINDS, env_ids.REMOTE], n=1, cutoff=0.75)
    meant = atari.find(env_id) or gym_env.find(env_id)
    if nearest and not meant:
        family = families.of(nearest[0])
        meant = f"{family.form}, as in {family.offers[0].example}{family.hint}" if family.check else family.form
    elif separator and name and not meant:
        module = kind.removeprefix("./").removesuffix(".py").replace("/", ".")
        meant = f"{'python' if name.isidentifier() else 'gym'}:{module}:{name}"
    hint = f"did you mean {meant}?" if meant else f"expected {families.FORMS};"
    return f"unknown environment {env_id!r}; {hint} `seedzero envs` lists all families"
