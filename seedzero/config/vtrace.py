"""V-trace's settings (IMPALA, Espeholt et al. 2018); the defaults are the paper's for Atari, table G.1."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from seedzero.config import options, shared


@dataclasses.dataclass(frozen=True)
class VTraceConfig(options.AgentSection):
    SUMMARY = "IMPALA's actor-critic, learns once from each step: many steps a second, many or slow workers"
    SECTIONS = ("league",)
    SAMPLES = False
    LEARNS_THROUGH = "unroll_length"

    discount: float = shared.discount(0.99)
    unroll_length: int = shared.unroll_length(20, high=1000)
    batch_size: int = options.fixed(32, "unrolls of one update", low=1)
    max_lag: int = shared.max_lag(2)
    wait_seconds: float = shared.wait_seconds(1.0)
    entropy_weight: float = shared.entropy_weight(0.01)
    value_loss_weight: float = shared.value_loss_weight(0.5)
    clip_rho: float = options.tunable(1.0, "largest importance weight of a temporal difference (rho-bar)", low=0)
    clip_c: float = options.tunable(1.0, "largest importance weight of a trace (c-bar)", low=0)
    trace_decay: float = options.tunable(1.0, "lambda of the traces", low=0, high=1)
    reward_scale: float = options.fixed(
        1.0, "factor of rewards in training: values near 1 are learned soonest", low=1e-6
    )
    clip_reward: float = shared.clip_reward(0.0)
    optimizer: str = options.fixed("rmsprop", "optimizer", choices=("rmsprop", "adam"))
    learning_rate: float = options.tunable(6e-4, "initial learning rate", low=0)
    decay_updates: int = shared.decay_updates(0)
    rmsprop_decay: float = options.tunable(0.99, "RMSProp: decay of the mean square", low=0, high=1)
    rmsprop_epsilon: float = options.tunable(0.01, "RMSProp: added to the mean square", low=1e-12)
    clip_norm: float = shared.clip_norm(40.0)
    popart: bool = options.fixed(
        False, "PopArt: a value for each task, in units of that task's returns; off: one value for all"
    )
    popart_step: float = options.tunable(
        3e-4, "PopArt: share of one return in the mean and variance of its task's returns", low=1e-9, high=0.5
    )
    torso: str = options.fixed(
        "auto",
        "auto: mlp for vectors, conv for small grids, deep (IMPALA's residual network) for images; shallow: two "
        "convolutions",
        choices=("auto", "mlp", "conv", "deep", "shallow"),
    )
    module: str = shared.module()
    width: int = shared.width(256)
    lstm_width: int = shared.lstm_width(0)
    frame_stack: int = shared.frame_stack(1)
    normalize_pixels: bool = shared.normalize_pixels()
    compute_dtype: str = shared.compute_dtype("auto")

    @property
    def descent(self) -> shared.Optimizer:
        """The optimizer's settings."""
        epsilon = 1e-8 if self.optimizer == "adam" else self.rmsprop_epsilon
        rates = (self.learning_rate, self.clip_norm, epsilon, self.rmsprop_decay, self.decay_updates)
        return shared.Optimizer(self.optimizer, *rates)

    def notes(self, config: Any) -> list[str]:
        worker = config.worker
        num_unrolls = worker.num_envs * self.max_lag
        if worker.num == 0 or worker.num_remote or num_unrolls >= self.batch_size:
            return []
        return [
            f"vtrace.batch_size={self.batch_size}, but at most {num_unrolls} unrolls wait (environments x "
            f"vtrace.max_lag={self.max_lag}): every batch is padded, and schedules count updates"
        ]

    def decay_end(self, config: Any) -> tuple[str, int]:
        return ("vtrace.decay_updates", self.decay_updates) if self.decay_updates else ("", 0)

    def shared(self, config: Any) -> dict[str, int]:
        return {"vtrace.batch_size": self.batch_size}


# Presets ----------------------------------------------------------------------------------------------------------

_SMALL = options.values(
    vtrace=dict(optimizer="adam", learning_rate=2e-3, width=64, batch_size=8), evaluation=dict(every_updates=200)
)
_IMAGES = options.values(vtrace=dict(frame_stack=4, clip_reward=1.0), training=dict(publish_every=1))
# Two cores learn from some hundred steps a second with the shallow network, from some dozen with the deep one.
_IMAGES_ON_CPU = options.values(vtrace=dict(torso="shallow", batch_size=8))

# SEED RL's settings for Football (google-research/seed_rl, gcp/train_football_scoring.sh and _checkpoints.sh, and the
# defaults of its V-trace learner). Its losses are means where these are sums: to Adam that is the same.
_FOOTBALL = options.values(
    vtrace=dict(discount=0.997, unroll_length=32, batch_size=32, optimizer="adam", clip_norm=0.0, frame_stack=4)
)
# Two cores see thousands of steps where SEED RL's 200 actors see millions: larger steps, and more entropy.
_FOOTBALL_ON_CPU = options.values(
    vtrace=dict(
        torso="shallow", batch_size=8, learning_rate=5e-4, entropy_weight=0.01, clip_norm=40.0, trace_decay=1.0
    )
)

PARTS: Mapping[str, options.Part] = {
    "catch": options.part(_SMALL, vtrace=dict(unroll_length=10)),
    # Values up to 100 take several hundred thousand steps to learn, values up to 5 one hundred thousand.
    "cartpole": options.part(_SMALL, vtrace=dict(reward_scale=0.05)),
    "vector": options.part(
        _SMALL, vtrace=dict(discount=0.995, reward_scale=0.05), evaluation=dict(every_updates=2_000)
    ),
    "discrete": options.part(_SMALL),
    "seats": options.part(_SMALL, vtrace=dict(batch_size=64, discount=1.0)),
    "memory-cartpole": options.part(_SMALL, vtrace=dict(lstm_width=64, reward_scale=0.05)),
    "memory-tmaze": options.part(_SMALL, vtrace=dict(lstm_width=64, unroll_length=40)),
    "memory-repeat": options.part(_SMALL, vtrace=dict(lstm_width=64, discount=0.9)),
    "minatar": options.part(_SMALL, vtrace=dict(width=128), evaluation=dict(every_updates=5_000)),
    **dict.fromkeys(("pixels", "atari-large"), options.part(_IMAGES, on_cpu=_IMAGES_ON_CPU)),
    "atari-100k": options.part(  # 625 updates of 8 unrolls of 20
        _IMAGES,
        vtrace=dict(batch_size=8),
        evaluation=dict(every_updates=100),
        on_cpu=options.values(_IMAGES_ON_CPU, evaluation=dict(every_updates=100)),
    ),
    "football": options.part(
        _FOOTBALL,
        vtrace=dict(learning_rate=0.00005533923433816456, entropy_weight=0.000031948327487872845, trace_decay=0.9),
        on_cpu=_FOOTBALL_ON_CPU,
    ),
    "football-checkpoints": options.part(
        _FOOTBALL,
        vtrace=dict(learning_rate=0.00012542101122072784, entropy_weight=0.0007330944745454107),
        on_cpu=_FOOTBALL_ON_CPU,
    ),
    # IMPALA's Atari settings (table G.1): 50 million steps are 78,125 updates of 32 unrolls of 20.
    "atari": options.part(
        _IMAGES,
        env=dict(frame_size=84, full_action_space=True, life_loss=True),
        vtrace=dict(decay_updates=78_125),
        on_cpu=options.values(_IMAGES_ON_CPU, vtrace=dict(decay_updates=312_500)),
    ),
    # The settings of IMPALA's program for DMLab, but PopArt in place of clipped rewards, as Hessel et al. 2018 have it
    # for all 30 levels. A billion frames are 78,125 updates of 32 unrolls of 100 steps.
    "dmlab": options.part(
        vtrace=dict(
            unroll_length=100,
            entropy_weight=0.00025,
            learning_rate=4.8e-4,
            rmsprop_epsilon=0.1,
            clip_norm=0.0,
            decay_updates=78_125,
            lstm_width=256,
            popart=True,
        ),
        on_cpu=options.values(vtrace=dict(torso="shallow", batch_size=8, decay_updates=312_500)),
    ),
}
