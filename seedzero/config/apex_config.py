"""Ape-X DQN's settings (Horgan et al. 2018).

The defaults are the paper's for Atari, except what only suits images: the presets clip rewards and stack frames.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from seedzero.config import options, shared


@dataclasses.dataclass(frozen=True)
class ApexConfig(options.AgentSection):
    SUMMARY = "Ape-X DQN, Q-learning from a prioritized replay: where steps are dear and planning is not wanted"
    DEFAULTS = options.values(
        optimizer=dict(kind="rmsprop", learning_rate=0.00025 / 4, rmsprop_decay=0.95, epsilon=1.5e-7, clip_norm=40.0),
        network=dict(shared.TORSO, width=512),
        reward=dict(discount=0.99, scale=1.0, clip=0.0),
    )
    CHOICES: ClassVar = {"network.kind": ("auto", "mlp", "conv", "nature", "deep")}
    START = "n_step epsilon target_updates"

    n_step: int = shared.n_step(3)
    epsilon: float = shared.epsilon(0.4)
    target_updates: int = shared.target_updates(2_500)
    rescale_values: bool = options.at_creation(
        False, "learn values as h(x) = sign(x)(sqrt(|x| + 1) - 1) + x / 1000, for returns of very different sizes"
    )

    def window_steps(self, config: Any) -> int:
        return int(config.network.frame_stack + self.n_step + 1)


# Presets ----------------------------------------------------------------------------------------------------------

_SMALL = options.values(
    apex=dict(target_updates=200),
    optimizer=dict(kind="adam", learning_rate=1e-3, epsilon=1e-8),
    network=dict(width=128),
    # The squared loss needs values below about 10, and CartPole's reach 100.
    reward=dict(scale=0.1),
    replay=dict(priority_alpha=0.6, batch_size=64, samples_per_insert=8.0),
)
_VECTOR = options.values(_SMALL, optimizer=dict(learning_rate=5e-4), evaluation=dict(every_updates=5_000))
_IMAGES = options.values(
    network=dict(frame_stack=4),
    reward=dict(clip=1.0),
    replay=dict(capacity=2_000_000, min_steps=50_000, batch_size=512, samples_per_insert=0.8, priority_alpha=0.6),
)
_IMAGES_ON_CPU = options.values(
    replay=dict(capacity=50_000, min_steps=2_000, batch_size=32), optimizer=dict(learning_rate=1e-4, kind="adam")
)

PARTS: Mapping[str, options.Part] = {
    "catch": options.part(_SMALL, reward=dict(scale=1.0), evaluation=dict(every_updates=1_000)),
    "cartpole": options.part(_SMALL, evaluation=dict(every_updates=1_000)),
    "chance": options.part(_VECTOR, apex=dict(rescale_values=True)),
    "vector": options.part(_VECTOR),
    "discrete": options.part(_VECTOR),
    "agents": options.part(_VECTOR),
    **dict.fromkeys(("memory-cartpole", "memory-tmaze", "memory-repeat"), options.part(_VECTOR)),  # it has no memory
    "minatar": options.part(_SMALL, reward=dict(scale=1.0), evaluation=dict(every_updates=5_000)),
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
