"""SAC's settings (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications"); defaults: its table 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from seedzero.config import options


@dataclasses.dataclass(frozen=True)
class SACConfig(options.AgentSection):
    SUMMARY = "maximum-entropy actor-critic, learns from few steps: robots and slow simulators"
    PLAYS_CONTINUOUS = True
    PLAYS_DISCRETE = False

    DEFAULTS = options.values(
        optimizer=dict(learning_rate=3e-4, clip_norm=0.0),  # of actor, critics and temperature
        network=dict(module="", width=256, frame_stack=1, compute_dtype="auto"),
        reward=dict(discount=0.99, scale=1.0),
    )
    START = "entropy_per_dimension"
    ADVANCED = "initial_temperature target_rate"

    target_rate: float = options.on_resume(
        0.005, "weight of the newest critics in the target critics, at each update (tau)", low=0, high=1
    )
    initial_temperature: float = options.at_creation(1.0, "first weight of the policy's entropy (alpha)", low=1e-6)
    entropy_per_dimension: float = options.on_resume(
        -1.0, "target entropy for each dimension of an action, where the bounds are -1 and 1", "nats"
    )

    def window_steps(self, config: Any) -> int:
        return 2


# Presets ----------------------------------------------------------------------------------------------------------

PARTS: Mapping[str, options.Part] = {
    # One update for each environment step. The first min_steps actions are random.
    "continuous": options.part(
        optimizer=dict(learning_rate=1e-3),
        elsewhere=options.values(optimizer=dict(learning_rate=3e-4)),  # Haarnoja et al. 2018, table 1
        worker=dict(envs_per_group=4),
        replay=dict(capacity=1_000_000, min_steps=1_000, batch_size=256, samples_per_insert=256.0),
        evaluation=dict(every_updates=2_000),
    ),
    # The original's settings for MuJoCo (Haarnoja et al. 2018, table 1): one update of 256 samples a step.
    "mujoco": options.part(
        optimizer=dict(learning_rate=3e-4),
        worker=dict(envs_per_group=4),
        replay=dict(capacity=1_000_000, min_steps=10_000, batch_size=256, samples_per_insert=256.0),
        evaluation=dict(every_updates=10_000),
    ),
}
