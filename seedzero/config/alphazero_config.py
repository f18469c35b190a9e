"""AlphaZero's settings (Silver et al. 2018); its search has MuZero's settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from seedzero.config import muzero_config, options, shared


@dataclasses.dataclass(frozen=True)
class AlphaZeroConfig(options.AgentSection):
    SUMMARY = "plans by the rules of the game itself: the strongest play in board games of perfect information"
    PLAYS_SEATS = False
    SECTIONS = ("search", "network", "optimizer", "reward", "league")
    UNREAD = (
        "search.num_sampled",
        "league.opponent_model",
        *(
            f"network.{name}"
            for name in ("frame_stack", "first_stride", "gated", "lstm_width", "module", "normalize_pixels")
        ),
        *(f"optimizer.{name}" for name in ("kind", "epsilon", "rmsprop_decay")),
        *(f"reward.{name}" for name in ("scale", "clip", "normalize")),
    )
    DEFAULTS = options.values(
        optimizer=dict(
            learning_rate=2e-3,
            clip_norm=5.0,
            schedule="constant",
            warmup_updates=0,
            decay_updates=1_000_000,
            decay_rate=0.1,
        ),
        network=dict(
            kind="auto",
            width=128,
            channels=64,
            pooled=False,
            resnet_size="small",
            head_width=128,
            normalize_observations=True,
            num_bins=21,
            support_limit=1.0,
            value_transform="hyperbolic",
            compute_dtype="auto",
        ),
        reward=dict(discount=1.0),
    )
    CHOICES: ClassVar = {"network.kind": ("auto", "mlp", "conv", "resnet")}
    MAX_PLAYERS = 2
    FAMILIES = ("pgx",)
    START = "n_step"
    ADVANCED = "value_loss_weight"

    n_step: int = options.on_resume(
        50,
        "moves before the value target bootstraps from the search; a whole game's length: its result",
        low=1,
        high=1000,
    )
    value_loss_weight: float = shared.value_loss_weight(1.0)
    symmetries: bool = options.on_resume(
        True, "turn and mirror boards in training, in games that this does not change"
    )

    win_draw_loss: bool = options.at_creation(
        False,
        "predict the probabilities of win, draw and loss (results 1, 0 and -1); the value is win minus loss, and "
        "network.num_bins, support_limit and value_transform are not used",
    )

    decay_end = muzero_config.MuZeroConfig.decay_end

    def window_steps(self, config: Any) -> int:
        return int(self.n_step + 2)


# Presets ----------------------------------------------------------------------------------------------------------

_BOARD = options.values(
    search=dict(num_simulations=32, num_considered=8, min_value_range=1.0),
    replay=dict(capacity=256_000, min_steps=2_000, batch_size=256, samples_per_insert=8.0),
)

PARTS: Mapping[str, options.Part] = {
    "pgx": options.part(_BOARD),
    "connect_four": options.part(
        _BOARD,
        env=dict(id="pgx:connect_four"),
        run=dict(max_updates=150_000),
        search=dict(num_considered=7),
        alphazero=dict(n_step=12),
    ),
    "hex": options.part(_BOARD, search=dict(num_considered=16), alphazero=dict(n_step=26)),
    "othello": options.part(_BOARD, alphazero=dict(n_step=64)),
    # With 32 simulations, 64 channels and 8 samples a core played 80 moves a second instead of 200.
    "go9": options.part(
        _BOARD,
        search=dict(num_simulations=16),
        network=dict(channels=32),
        replay=dict(samples_per_insert=4.0),
        alphazero=dict(n_step=162),
    ),
}
