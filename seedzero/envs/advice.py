"""Tells from random steps when a run would learn, and what in an environment makes learning hard; pure functions.

The findings on learning are those of Stable-Baselines3's `check_env` and its tips for own environments, for the agent
and the settings that a run would have.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from seedzero.config import agent_settings, configs
from seedzero.core import printable, types
from seedzero.envs import check

_LONG_SECONDS = 60.0
"""A longer wait for the first update deserves advice."""
_QUICK = 1_500.0
"""Steps a second of an environment in which a million steps take some ten minutes."""
_QUICK_IMAGES = 300.0
"""The same for images, which MuZero's networks on a CPU learn slower than that."""
_FEW_EPISODES = 3
_LARGEST_VALUE = 10.0
"""Values that a squared loss without any scaling learns well; a tenth of 1 is as hard as ten times 10."""
_FAR_APART = 100.0


class Timing(NamedTuple):
    """When a run gets where while its environments set the pace. Seconds are from the first step; None: never."""

    steps_per_second: float  # of all workers of this machine
    first_update_steps: int
    first_update_seconds: float
    evaluation_seconds: float | None  # the first one after an update; None: none, or no episode ended
    budget_seconds: float | None

    def sentence(self) -> str:
        parts = [
            f"first update at {self.first_update_steps:,} steps, in {printable.lasting(self.first_update_seconds)}"
        ]
        for name, seconds in (("its evaluation", self.evaluation_seconds), ("the budget's end", self.budget_seconds)):
            parts += [] if seconds is None else [f"{name} in {printable.lasting(seconds)}"]
        return f"{', '.join(parts)}; later if learning, not the environment, sets the pace"


def timing(config: configs.Config, findings: check.Findings) -> Timing:
    """Returns when a run of this machine's workers gets where."""
    rate = findings.steps_per_second * max(1, config.worker.num)
    num_steps, run = config.agent.first_update(config), config.run
    first, evaluation = num_steps / rate, None
    if findings.episodes and config.evaluation.every_updates:
        length = min(statistics.fmean(map(len, findings.episodes)), config.evaluation.max_episode_steps)
        takes = config.evaluation.episodes * length / findings.steps_per_second
        evaluation = first + max(config.evaluation.every_seconds, 4 * takes) + takes
    ends = [run.max_env_steps / rate] if run.max_env_steps else []
    ends += [run.max_seconds] if run.max_seconds else []
    return Timing(rate, num_steps, first, evaluation, min(ends, default=None))


def of_speed(
    config: configs.Config, spec: types.EnvSpec, findings: check.Findings, found: Timing, *, is_chosen: bool = False
) -> Iterator[str]:
    """Yields recommendations for the environment's speed. is_chosen: the user named the agent, so none is advised."""
    name = agent_settings.name(config, "min_steps")
    enough = int(float(f"{max(1_000.0, found.steps_per_second * _LONG_SECONDS / 2):.1g}"))
    if name and found.first_update_seconds > _LONG_SECONDS and enough < found.first_update_steps:
        yield (
            f"nothing is learned for the first {printable.lasting(found.first_update_seconds)}; --{name}={enough} "
            "begins sooner, with fewer random steps, which rare rewards may need; --workers=N makes steps come faster"
        )
    if is_chosen or spec.num_players > 1 or spec.seats or config.run.agent not in configs.agent_names():
        return
    is_quick = found.steps_per_second >= (_QUICK_IMAGES if types.shown(spec.arrays) == "images" else _QUICK)
    # SAC flattens images and scales nothing.
    fits_sac = types.shown(spec.arrays) == "vectors" and not any(_large(spec, findings))
    suits = "ppo" if is_quick else "sac" if spec.is_continuous and fits_sac else "muzero"
    if config.run.agent != suits:
        why = "learns from as many steps as come" if is_quick else "learns the most from each step"
        yield f"for some minutes on a CPU, --agent={suits} suits {found.steps_per_second:.3g} steps/s: it {why}"


def of_learning(config: configs.Config, spec: types.EnvSpec, findings: check.Findings) -> Iterator[str]:
    """Yields what makes learning hard in an environment, each with a remedy."""
    yield from _ends(config, spec, findings)
    yield from _rewards(config, findings)
    if not agent_settings.value(config, "network.normalize_observations"):
        for name, largest in _large(spec, findings):
            yield (
                f"observations reach {largest:g} ({name}), and {config.run.agent} takes them as they are: "
                "scale them to -1 to 1 in the environment, or take --agent=ppo or muzero, which scale them"
            )
    if not findings.same_reset:
        yield (
            "two resets with the same seed show different observations, so that deterministic runs will not repeat: "
            "call super().reset(seed=seed) and draw only from self.np_random"
        )
    if spec.has_action_mask and findings.forbids is False:
        yield (
            f"the action mask allowed every action in {findings.num_steps} steps: check that it says what is legal "
            "now, or leave it out"
        )


def _large(spec: types.EnvSpec, findings: check.Findings) -> Iterator[tuple[str, float]]:
    """Yields the name and the largest number of each array of floats that an agent learns only if it scales them."""
    for array in spec.arrays:
        seen = findings.arrays[array.name]
        if array.dtype == "float32" and (largest := max(-seen.low, seen.high)) > _LARGEST_VALUE:
            yield array.name, largest


def _ends(config: configs.Config, spec: types.EnvSpec, findings: check.Findings) -> Iterator[str]:
    lengths, discount = list(map(len, findings.episodes)), agent_settings.value(config, "reward.discount")
    if len(lengths) < _FEW_EPISODES or spec.num_players > 1:
        return
    if len(set(lengths)) == 1 and lengths[0] > 1 and all(findings.terminated):
        yield (
            f"all {len(lengths)} episodes were terminated after exactly {lengths[0]} steps: if that is a time limit, "
            "return truncated=True instead, or what would follow counts as nothing"
        )
    late = [length for length, rewards in zip(lengths, findings.episodes, strict=True) if not any(rewards[:-1])]
    sees = 1 / max(1e-9, 1 - float(discount)) if discount is not None else float("inf")
    if len(late) == len(lengths) and any(map(sum, findings.episodes)) and statistics.fmean(late) > sees:
        mean = statistics.fmean(late)
        yield (
            f"rewards come only at the end, after {mean:.0f} steps, and a discount of {discount} looks {sees:.0f} "
            f"ahead: reward on the way, or give --reward.discount={1 - 1 / (2 * mean):.4g}"
        )


def _rewards(config: configs.Config, findings: check.Findings) -> Iterator[str]:
    sizes = [abs(reward) for reward in findings.rewards if reward]
    if not sizes or agent_settings.value(config, "reward.clip"):
        return
    if (largest := max(sizes)) > _FAR_APART * (usual := statistics.median(sizes)):
        yield (
            f"a reward of {largest:g} is {largest / usual:.0f} times the usual {usual:g}, which then counts little: "
            f"bring them closer, or give --reward.clip={10 * usual:.2g} if the size does not matter"
        )
    is_scaled = any(agent_settings.value(config, name) for name in ("reward.normalize", "rescale_values", "popart"))
    scale, discount = (agent_settings.value(config, f"reward.{name}") for name in ("scale", "discount"))
    value = check.largest_return(findings, float(discount or 1.0)) * float(scale or 0.0)
    if scale and not is_scaled and value and not 1 / _LARGEST_VALUE <= value <= _LARGEST_VALUE:
        yield (
            f"returns reach {value:.3g} times --reward.scale={scale:g}'s unit, and agent {config.run.agent} learns "
            f"values of about 1 best: give --reward.scale={float(scale) / value:.1g}"
        )
