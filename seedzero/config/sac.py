"""SAC's settings (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications"); defaults: its table 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from seedzero.config import options, shared


@dataclasses.dataclass(frozen=True)
class SACConfig(options.AgentSection):
    SUMMARY = "maximum-entropy actor-critic, learns from few steps: robots and slow simulators"
    PLAYS_CONTINUOUS = True
    PLAYS_DISCRETE = False

    discount: float = shared.discount(0.99)
    learning_rate: float = options.tunable(3e-4, "learning rate of actor, critics and temperature", low=0)
    target_rate: float = options.tunable(
        0.005, "share of the newest critics that enters the target critics at each update (tau)", low=0, high=1
    )
    initial_temperature: float = options.fixed(1.0, "first weight of the policy's entropy (alpha)", low=1e-6)
    entropy_per_dimension: float = options.tunable(
        -1.0, "entropy that the temperature aims at, for each of an action's numbers, in bounds of -1 and 1", "nats"
    )
    reward_scale: float = shared.reward_scale(1.0)
    clip_norm: float = shared.clip_norm(0.0)
    module: str = shared.module()
    width: int = options.fixed(256, "units of the two hidden layers", low=1)
    frame_stack: int = shared.frame_stack(1)
    compute_dtype: str = shared.compute_dtype("auto")

    def window_steps(self, config: Any) -> int:
        return 2


# Presets ----------------------------------------------------------------------------------------------------------

PARTS: Mapping[str, options.Part] = {
    # One update for each environment step. The first min_steps actions are random.
    "continuous": options.part(
        sac=dict(learning_rate=1e-3),
        elsewhere=options.values(sac=dict(learning_rate=3e-4)),  # Haarnoja et al. 2018, table 1
        worker=dict(envs_per_group=4),
        replay=dict(capacity=1_000_000, min_steps=1_000, batch_size=256, samples_per_insert=256.0),
        evaluation=dict(every_updates=2_000),
    ),
    # The original's settings for MuJoCo (Haarnoja et al. 2018, table 1): one update of 256 samples a step.
    "mujoco": options.part(
        sac=dict(learning_rate=3e-4),
        worker=dict(envs_per_group=4),
        replay=dict(capacity=1_000_000, min_steps=10_000, batch_size=256, samples_per_insert=256.0),
        evaluation=dict(every_updates=10_000),
    ),
}
