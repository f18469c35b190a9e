"""Takes random steps in an environment, and advises the user before training.

Shape letters: D numbers of a continuous action.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from seedzero.config import families, sections
from seedzero.core import packing, types
from seedzero.envs import env_base, gym_env, gym_masks, gym_wrappers, pettingzoo_env, registry

SLOW = 100.0
"""Below this number of steps a second, one environment, not the agent, sets the pace."""
_PROTOCOL_STEPS = 50
"""How many steps' values are compared with the spaces before they are encoded."""
_ACTIONS = 1
"""Added to a seed for the stream of actions, which is not the environment's."""
LARGE_PIXELS = 128 * 128
"""Larger images take most of a run's time without telling an agent much."""


@dataclasses.dataclass(frozen=True)
class ArrayUse:
    """An array of the observations, with its range of values and the share of constant elements."""

    low: float
    high: float
    is_constant: bool
    num_constant: int


@dataclasses.dataclass(frozen=True)
class Findings:
    """What random steps of an environment showed."""

    arrays: Mapping[str, ArrayUse]
    rewards: Sequence[float]  # of all steps except the first of episodes; with two players, the mover's
    episodes: Sequence[Sequence[float]]  # rewards of each episode that ended; with two players, the first mover's
    unfinished: Sequence[float]  # rewards of the unfinished episode, likewise
    num_steps: int
    steps_per_second: float  # of one environment
    same_reset: bool  # whether two resets with the same seed show the same
    terminated: Sequence[bool] = ()  # of each episode that ended, whether it was not only truncated
    forbids: bool | None = None  # whether a mask forbade an action; None: there is no mask


class Warnings(NamedTuple):
    """Sentences for the user. errors: why training rejects the environment."""

    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Look:
    """A look at an environment. space: Gymnasium's space of observations, as text; None if it has none."""

    spec: types.EnvSpec
    findings: Findings
    warnings: Warnings
    space: str | None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Look:
        """Returns the look in an object of `dataclasses.asdict`, with numbers that may not be finite."""
        findings = values["findings"]
        arrays = {name: ArrayUse(**seen) for name, seen in findings["arrays"].items()}
        return cls(
            spec=types.EnvSpec.from_json(values["spec"]),
            findings=Findings(**{**findings, "arrays": arrays}),
            warnings=Warnings(*(tuple(texts) for texts in values["warnings"])),
            space=values["space"],
        )


def look(
    settings: sections.EnvConfig, num_steps: int, max_seconds: float, tell: Callable[[Look], None] = lambda look: None
) -> Look:
    """Makes an environment and takes a number of random steps, or as many as a time allows; returns the findings.

    tell: takes them before another environment, which may hang, is made to compare their spaces. Raises
    EnvironmentFailure, ConfigError or SpecMismatch if training would reject the environment.
    """
    with env_base.closing(_one(settings)) as env:
        findings = explore(env, num_steps, max_seconds=max_seconds)
        space = getattr(env, "observation_space", None)
        judged = judge(env.spec, findings, space, takes=families.of(settings.id).takes)
        kept = statistics(getattr(env, "statistics", ()))
        judged = judged._replace(warnings=(*judged.warnings, *kept))
        if isinstance(env, gym_env.GymVectorEnv) and env.spec.has_action_mask:
            noted = f"{env.mask_place} masks the legal actions; agents take no other ({gym_masks.IGNORE})"
            judged = judged._replace(notes=(noted, *judged.notes))
        if isinstance(env, pettingzoo_env.PettingZoo) and env.different_spaces:
            noted = f"the spaces of agents differ, and are padded to the largest: {env.different_spaces}"
            judged = judged._replace(notes=(noted, *judged.notes))
        found = Look(env.spec, findings, judged, None if space is None else str(space))
        tell(found)
        if isinstance(env, gym_env.GymVectorEnv | pettingzoo_env.PettingZoo):
            env.check_another()
        return found


def _one(settings: sections.EnvConfig) -> env_base.VectorEnv:
    """Returns an environment as evaluations have it: with all its agents, or one seat of a game with random moves."""
    env = registry.make(settings.id, settings, 1, threads=1)
    if not env.spec.seats:
        return env
    with env_base.closing(env):
        num_rows = env.spec.num_seats(types.Role.EVALUATE) or 1
    return registry.make(settings.id, settings, num_rows, role=types.Role.EVALUATE)


def _use(low: np.ndarray, high: np.ndarray) -> ArrayUse:
    """Returns how an array is used, from the smallest and the largest value of each of its numbers."""
    num_constant = int(np.sum(low == high))
    return ArrayUse(float(np.min(low)), float(np.max(high)), num_constant == low.size, num_constant)


def explore(
    env: env_base.VectorEnv,
    num_steps: int,
    seed: int = 0,
    *,
    max_seconds: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> Findings:
    """Returns the findings of one environment, or its agents' rows, in a number of random steps, or within a time.

    Raises EnvironmentFailure if it raised, or does not follow Gymnasium's protocol.
    """
    if isinstance(env, gym_env.GymVectorEnv):
        env.try_out(min(num_steps, _PROTOCOL_STEPS), max_seconds=max_seconds / 10, clock=clock)
    # With the seed alone it would draw the environment's own numbers, and guess its every secret.
    random, spec = np.random.default_rng([seed, _ACTIONS]), env.spec
    seeds = [seed] * env.num_envs
    before, step = env.reset(seeds), env.reset(seeds)
    spec = env.spec  # complete now
    same_reset = before.observation.tobytes() == step.observation.tobytes()
    ranges = {name: (array[0].copy(), array[0].copy()) for name, array in _shown(spec, step).items()}
    rewards: list[float] = []
    episodes: list[list[float]] = []
    terminated: list[bool] = []
    forbids: bool | None = None
    running: list[list[float] | None] = [None] * env.num_envs  # of each row; None: its next row is a first one
    mover = first_mover = 0  # with two players
    start, taken = clock(), 0
    while True:
        for name, array in _shown(spec, step).items():
            low, high = ranges[name]
            np.minimum(low, array.min(axis=0), out=low)  # NaN stays
            np.maximum(high, array.max(axis=0), out=high)
        for row in range(env.num_envs) if step.shown is None else np.flatnonzero(step.shown).tolist():
            if (so_far := running[row]) is None:
                running[row] = []
                continue
            reward, first_mover = float(step.reward[row]), first_mover if so_far else mover
            so_far.append(reward if mover == first_mover else -reward)
            rewards.append(reward)
            if step.final[row]:
                episodes.append(so_far)
                terminated.append(bool(step.terminated[row]))
                running[row] = None
        if taken >= num_steps or (taken and clock() - start >= max_seconds):
            break
        if step.action_mask is not None:
            forbids = bool(forbids) or not np.all(step.action_mask)
        taken, mover = taken + 1, _mover(spec, step, len(running[0] or ()))
        step = env.step(_random_actions(spec, step, random))
    seconds = clock() - start
    unfinished = next((so_far for so_far in running if so_far is not None), [])
    return Findings(
        arrays={name: _use(low, high) for name, (low, high) in ranges.items()},
        rewards=rewards,
        episodes=episodes,
        unfinished=unfinished,
        num_steps=taken,
        steps_per_second=taken / max(seconds, 1e-9),
        same_reset=same_reset,
        terminated=terminated,
        forbids=forbids,
    )


def _mover(spec: types.EnvSpec, step: types.EnvStep, number: int) -> int:
    """Returns the player to move in environment 0. number: that of the step in its episode."""
    return int(spec.movers(step.observation)[0]) if spec.moves_again else number % spec.num_players


def _shown(spec: types.EnvSpec, step: types.EnvStep) -> dict[str, np.ndarray]:
    """Returns the arrays of the rows that are shown."""
    seen = step.observation if step.shown is None else step.observation[step.shown]
    return packing.unpack(spec.packed, seen) if spec.packed else {types.OBSERVATION: seen}


def _random_actions(spec: types.EnvSpec, step: types.EnvStep, random: np.random.Generator) -> np.ndarray:
    num_rows = len(step.reward)
    if spec.is_continuous:
        low, high = spec.action_bounds.astype(np.float64)
        drawn = random.uniform(low, high, (num_rows, len(low))).astype(np.float32)
        vectors: np.ndarray = np.clip(drawn, *spec.action_bounds)
        return vectors
    masks = np.ones((num_rows, spec.num_actions), bool) if step.action_mask is None else step.action_mask
    return np.array([random.choice(np.flatnonzero(mask)) if mask.any() else 0 for mask in masks], np.int32)


# Advice ------------------------------------------------------------------------------------------------------------


def judge(
    spec: types.EnvSpec,
    findings: Findings,
    space: spaces.Space[Any] | None = None,
    *,
    takes: Collection[str] = ("wrappers", "max_episode_steps"),
) -> Warnings:
    """Returns what the findings imply for any agent.

    space: Gymnasium's space of observations. takes: the settings env.NAME of the environment's family, for advice.
    """
    wrong, warned, noted = [], [], []
    wraps = "wrappers" in takes
    for array in spec.arrays:
        seen, name = findings.arrays[array.name], _title(spec, array)
        if not math.isfinite(seen.high - seen.low):
            wrong.append(f"{name} has numbers that are not finite; the learner refuses them")
        elif _is_outside(seen, array):
            warned.append(
                f"{name} has values from {seen.low:g} to {seen.high:g}, but its space says {array.low:g} to "
                f"{array.high:g}, which networks rely on; correct the space"
            )
        warned += _constants(name, array, seen, wraps=wraps)
        warned += _image(name, array, is_part=bool(spec.packed), wraps=wraps)
    warned += channels_first(spec, wraps=wraps)
    if not np.all(np.isfinite(findings.rewards)):
        wrong.append("some rewards are not finite; the learner refuses them")
    elif not np.any(findings.rewards):
        noted.append("no random step had a reward other than 0: it may take long until an agent finds one")
    if not findings.episodes:
        advice = "; if episodes never end, give --env.max_episode_steps=N" if "max_episode_steps" in takes else ""
        warned.append(f"no episode ended in {len(findings.rewards)} random steps{advice}")
    if findings.steps_per_second < SLOW:
        noted.append(
            f"{findings.steps_per_second:.3g} steps/s are few: environments set the pace of training; --workers=N "
            "steps them in N processes, `seedzero worker` on other machines too"
        )
    if space is not None and _has_float64(space):
        noted.append("observations of dtype float64 are sent as float32, with 7 digits")
    return Warnings(tuple(wrong), tuple(warned), tuple(noted))


def _is_outside(seen: ArrayUse, array: types.ArraySpec) -> bool:
    """Returns whether values are outside the declared bounds, both as float32, as numbers like 0.1 grow when sent."""
    with np.errstate(over="ignore"):  # bounds of float64 may be larger
        low, high = np.array([array.low, array.high]).astype(np.float32)
    return bool(np.float32(seen.low) < low or np.float32(seen.high) > high)


def _constants(name: str, array: types.ArraySpec, seen: ArrayUse, *, wraps: bool) -> Iterator[str]:
    is_one_hot = (array.low, array.high) == (0, 1)
    if seen.is_constant:
        how = " (FilterObservation in --env.wrappers)" if wraps else ""
        yield f"{name} never changed; leave it out{how}, or fix it"
    elif seen.num_constant and not array.is_grid and not is_one_hot:
        yield f"{seen.num_constant} of the numbers of {name} never changed"


def channels_first(spec: types.EnvSpec, *, wraps: bool = True) -> Iterator[str]:
    """Yields a warning for each image whose channels seem to come first, and for stacks of images.

    wraps: whether --env.wrappers are taken.
    """
    for array in spec.arrays:
        first, *others = array.shape if array.is_grid and len(array.shape) == 3 else (0,)
        if 0 < first < 5 and min(others) >= 2 * first:
            remedy = """give --env.wrappers='["ChannelsLast"]'"""
            yield (
                f"{_title(spec, array)} is read as {first} high, {others[0]} wide, with {others[1]} channels; if its "
                f"channels come first, {_remedy(remedy, is_part=bool(spec.packed), wraps=wraps)}"
            )
        number, *sides = array.shape if len(array.shape) == 4 else (0,)
        if number and sorted(sides)[1] >= types.SMALLEST_IMAGE:
            yield (
                f"{_title(spec, array)} is read as {math.prod(array.shape):,} numbers without an order, because it "
                f"has 4 axes; if it stacks {number} pictures, show one: --network.frame_stack={number} stacks them"
            )


def statistics(names: Iterable[str]) -> Iterator[str]:
    """Yields a warning for each wrapper that keeps statistics."""
    for name in names:
        yield (
            f"{name} keeps statistics that no checkpoint has, and every process begins with none: scores while "
            "training, by `evaluate` and after a resume cannot be compared; leave it out, because "
            f"{gym_wrappers.STATISTICS[name]} does the same and is saved (PPO, MuZero)"
        )


def _title(spec: types.EnvSpec, array: types.ArraySpec) -> str:
    return f"observation {array.name!r}" if spec.packed else "the observation"


_OF_PARTS = "change it in your own wrapper: --env=python:MODULE:FUNCTION"
"""Says how to fix one of several arrays, because Gymnasium's wrappers are for a single one."""


def _remedy(wrapper: str, *, is_part: bool, wraps: bool) -> str:
    """Returns the advice to wrap an environment, or what to do where that is not possible."""
    return _OF_PARTS if is_part and wraps else wrapper if wraps else "change it in the environment itself"


def _image(name: str, array: types.ArraySpec, *, is_part: bool, wraps: bool) -> Iterator[str]:
    if types.shown([array]) != "images":
        return
    height, width = array.shape[:2]
    if height * width > LARGE_PIXELS:
        remedy = """make it smaller, with --env.wrappers='[{"ResizeObservation": {"shape": [84, 84]}}]'"""
        yield (
            f"{name} is an image of {height}x{width}: {array.num_bytes / 2**10:.0f} KiB a step to send, store and "
            f"learn from; {_remedy(remedy, is_part=is_part, wraps=wraps)}"
        )
    if array.dtype != "uint8":
        yield f"{name} is an image of {array.dtype}, 4 bytes a number; bytes from 0 to 255 take a quarter"


def _has_float64(space: spaces.Space[Any]) -> bool:
    if isinstance(space, spaces.Dict):
        return any(map(_has_float64, space.spaces.values()))
    if isinstance(space, spaces.Tuple):
        return any(map(_has_float64, space.spaces))
    return isinstance(space, spaces.Box) and space.dtype == np.float64


def largest_return(findings: Findings, discount: float) -> float:
    """Returns the largest absolute value of a discounted return from any step on."""

    def returns(rewards: Sequence[float]) -> Iterable[float]:
        return itertools.accumulate(reversed(rewards), lambda later, reward: reward + discount * later, initial=0.0)

    return max(abs(value) for rewards in (*findings.episodes, findings.unfinished) for value in returns(rewards))
