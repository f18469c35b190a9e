"""The settings of evaluations during training."""

from __future__ import annotations

import dataclasses

import numpy as np

from seedzero.config import options
from seedzero.core import types


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(options.Section):
    every_updates: int = options.any_time(
        500,
        "largest number of updates between evaluations; a baseline comes first, and a last one when a "
        "budget ends the run; 0: none",
        "updates",
        low=0,
    )
    every_seconds: float = options.any_time(
        30.0,
        "time from one evaluation to the next, at least four times as long as the last one took, unless "
        "every_updates comes first; 0, and in deterministic mode: only every_updates counts",
        "s",
        low=0,
    )
    episodes: int = options.any_time(20, "episodes in one evaluation", "episodes", low=1)
    num_envs: int = options.any_time(
        20, "environments that evaluate in parallel, at most episodes and batcher.max_batch", low=1, high=4096
    )
    max_episode_steps: int = options.any_time(
        30_000, "an evaluation ends longer episodes here, and counts their rewards so far", "steps", low=1
    )
    video_every: int = options.any_time(
        0,
        "add a video to every Nth evaluation in TensorBoard; a process beside training plays an episode "
        "with the newest checkpoint; 0: none",
        "evaluations",
        low=0,
    )
    policy: str = options.at_creation(
        "auto",
        "how evaluations act, and saved agents by default: greedy, the best action; sample, a draw from the agent's "
        "policy; auto: sample in games of seats, else greedy",
        choices=("auto", "greedy", "sample"),
    )
    pauses_training: bool = options.any_time(
        False, "training pauses until an evaluation ends, instead of alternating with it; for short, quick episodes"
    )

    def mode(self, spec: types.EnvSpec) -> np.int8:
        """Returns how to act in environments of a spec: GREEDY or SAMPLE."""
        return spec.default_mode if self.policy == "auto" else types.MODES[self.policy]
