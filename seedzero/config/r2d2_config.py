"""R2D2's settings (Kapturowski et al. 2019); the defaults are the paper's for Atari, table 2."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from seedzero.config import apex_config, options, shared


@dataclasses.dataclass(frozen=True)
class R2D2Config(options.AgentSection):
    SUMMARY = "Ape-X with an LSTM: where one observation does not show all that matters"

    DEFAULTS = options.values(
        optimizer=dict(kind="adam", learning_rate=1e-4, rmsprop_decay=0.95, epsilon=1e-3, clip_norm=40.0),
        network=dict(shared.TORSO, width=512, lstm_width=512),
        reward=dict(discount=0.997, scale=1.0, clip=0.0),
    )
    CHOICES = apex_config.ApexConfig.CHOICES
    START = "n_step sequence_length burn_in epsilon target_updates"

    n_step: int = shared.n_step(5)
    sequence_length: int = options.at_creation(
        80, "steps of a sequence that are learned", "environment steps", low=1, high=1000
    )
    burn_in: int = options.at_creation(
        40, "steps before them that only bring the LSTM's state up to date", "environment steps", low=0, high=1000
    )
    period: int = options.at_creation(
        40,
        "steps between the starts of two sequences, where the LSTM's state is stored",
        "environment steps",
        low=1,
        high=1000,
    )
    epsilon: float = shared.epsilon(0.4)
    target_updates: int = shared.target_updates(2_500)
    rescale_values: bool = options.at_creation(True, "learn values as h(x) = sign(x)(sqrt(|x| + 1) - 1) + x / 1000")

    @property
    def num_positions(self) -> int:
        """Positions of a window: the burn-in, the learned steps, and the observation behind them."""
        return self.burn_in + self.sequence_length + 1

    def window_steps(self, config: Any) -> int:
        return int(config.network.frame_stack + self.num_positions + self.period - 1)


# Presets ----------------------------------------------------------------------------------------------------------

_SMALL = options.values(
    r2d2=dict(sequence_length=20, burn_in=10, period=10, target_updates=50, rescale_values=False),
    # As in Ape-X's presets: the squared loss wants values below about 10.
    reward=dict(discount=0.99, scale=0.1),
    optimizer=dict(learning_rate=1e-3, epsilon=1e-8),
    network=dict(width=64, lstm_width=64),
    replay=dict(
        capacity=100_000, min_steps=2_000, batch_size=32, samples_per_insert=1.0, priority_alpha=0.9, priority_beta=0.6
    ),
    evaluation=dict(every_updates=500),
)
_IMAGES = options.values(
    network=dict(frame_stack=4),
    replay=dict(
        capacity=4_000_000,
        min_steps=200_000,
        batch_size=64,
        samples_per_insert=0.02,
        priority_alpha=0.9,
        priority_beta=0.6,
    ),
)
_IMAGES_ON_CPU = options.values(
    network=dict(lstm_width=256, width=256), replay=dict(capacity=50_000, min_steps=5_000, batch_size=16)
)

PARTS: Mapping[str, options.Part] = {
    "catch": options.part(_SMALL),
    "cartpole": options.part(_SMALL),
    "chance": options.part(_SMALL),
    "vector": options.part(_SMALL),
    "discrete": options.part(_SMALL),
    "agents": options.part(_SMALL, replay=dict(min_steps=4_000)),
    "memory-cartpole": options.part(_SMALL),
    # Returns of about 1; a sequence reaches from the cue to the turn. At the first update each environment has a whole
    # sequence, also of the longest task.
    "memory-tmaze": options.part(
        _SMALL,
        r2d2=dict(sequence_length=40, period=20),
        reward=dict(scale=1.0),
        replay=dict(samples_per_insert=0.5, min_steps=4_000),
        evaluation=dict(every_updates=250),
    ),
    # What an action is worth shows in its own reward.
    "memory-repeat": options.part(_SMALL, reward=dict(discount=0.9), replay=dict(min_steps=4_000)),
    "minatar": options.part(_SMALL, network=dict(width=128, lstm_width=128), evaluation=dict(every_updates=5_000)),
    **dict.fromkeys(
        ("pixels", "dmlab", "football", "football-checkpoints"), options.part(_IMAGES, on_cpu=_IMAGES_ON_CPU)
    ),
    # Kapturowski et al. 2019: batches of 64 sequences; 5 of these and 16.6 thousand steps a second.
    "atari": options.part(
        _IMAGES, env=dict(frame_size=84, full_action_space=True, sticky_actions=0.0), on_cpu=_IMAGES_ON_CPU
    ),
}
