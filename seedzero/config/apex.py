"""Ape-X DQN's settings (Horgan et al. 2018).

The defaults are the paper's for Atari, but for what suits images alone: the presets clip rewards and stack frames.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from seedzero.config import options


@dataclasses.dataclass(frozen=True)
class ApexConfig(options.AgentSection):
    SUMMARY = "Ape-X DQN, Q-learning from a prioritized replay: where steps are dear and planning is not wanted"
    discount: float = options.fixed(0.99, "discount of one environment step", low=0, high=1)
    n_step: int = options.tunable(3, "steps of a return", "environment steps", low=1, high=1000)
    epsilon: float = options.tunable(
        0.4,
        "probability of a random action: environment i of N has epsilon ^ (1 + exponent i / (N - 1))",
        low=0,
        high=1,
    )
    epsilon_exponent: float = options.tunable(7.0, "see apex.epsilon", low=0)
    target_updates: int = options.tunable(2_500, "updates between copies of the target network", "updates", low=1)
    rescale_values: bool = options.fixed(
        False, "learn values as h(x) = sign(x)(sqrt(|x| + 1) - 1) + x / 1000, for returns of very different sizes"
    )
    reward_scale: float = options.fixed(1.0, "factor of rewards in training", low=1e-6)
    clip_reward: float = options.fixed(0.0, "largest absolute reward, after scaling; 0: no limit", "reward", low=0)
    optimizer: str = options.fixed("rmsprop", "optimizer; rmsprop: the centered one", choices=("rmsprop", "adam"))
    learning_rate: float = options.tunable(0.00025 / 4, "learning rate", low=0)
    rmsprop_decay: float = options.tunable(0.95, "RMSProp: decay of its averages", low=0, high=1)
    optimizer_epsilon: float = options.tunable(1.5e-7, "added to the divisor of a step", low=1e-12)
    clip_norm: float = options.tunable(40.0, "largest global norm of the gradients; 0: no limit", low=0)
    torso: str = options.fixed(
        "auto",
        "auto: mlp for vectors, conv for small grids, nature (DQN's three convolutions) for images; deep: IMPALA's "
        "residual network",
        choices=("auto", "mlp", "conv", "nature", "deep"),
    )
    width: int = options.fixed(512, "units of the hidden layers", low=1)
    frame_stack: int = options.fixed(1, "newest frames in one observation", "frames", low=1, high=16)
    compute_dtype: str = options.tunable(
        "auto", "auto: bfloat16 on accelerators, float32 on a CPU", choices=("auto", "float32", "bfloat16")
    )

    def window_steps(self, config: Any) -> int:
        return self.frame_stack + self.n_step + 1


# Presets ----------------------------------------------------------------------------------------------------------

_SMALL = options.values(
    apex=dict(
        optimizer="adam",
        learning_rate=1e-3,
        optimizer_epsilon=1e-8,
        width=128,
        target_updates=200,
        # The squared loss wants values below about 10: CartPole's reach 100.
        reward_scale=0.1,
    ),
    replay=dict(priority_alpha=0.6, batch_size=64, samples_per_insert=8.0),
)
_VECTOR = options.values(_SMALL, apex=dict(learning_rate=5e-4), evaluation=dict(every_updates=5_000))
_IMAGES = options.values(
    apex=dict(frame_stack=4, clip_reward=1.0),
    replay=dict(capacity=2_000_000, min_steps=50_000, batch_size=512, samples_per_insert=0.8, priority_alpha=0.6),
)
_IMAGES_ON_CPU = options.values(
    replay=dict(capacity=50_000, min_steps=2_000, batch_size=32), apex=dict(learning_rate=1e-4, optimizer="adam")
)

PARTS: Mapping[str, options.Part] = {
    "catch": options.part(_SMALL, apex=dict(reward_scale=1.0), evaluation=dict(every_updates=1_000)),
    "cartpole": options.part(_SMALL, evaluation=dict(every_updates=1_000)),
    "vector": options.part(_VECTOR),
    "discrete": options.part(_VECTOR),
    **dict.fromkeys(("memory-cartpole", "memory-tmaze", "memory-repeat"), options.part(_VECTOR)),  # it has no memory
    "minatar": options.part(_SMALL, apex=dict(reward_scale=1.0), evaluation=dict(every_updates=5_000)),
    **dict.fromkeys(
        ("pixels", "dmlab", "football", "football-checkpoints"), options.part(_IMAGES, on_cpu=_IMAGES_ON_CPU)
    ),
    # Horgan et al. 2018: 2 million steps, batches of 512; 19 of these and 12.5 thousand steps a second.
    "atari": options.part(
        _IMAGES,
        env=dict(frame_size=84, full_action_space=True, sticky_actions=0.0, life_loss=True),
        on_cpu=_IMAGES_ON_CPU,
    ),
}
