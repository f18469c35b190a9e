"""V-trace's settings (IMPALA, Espeholt et al. 2018); the defaults are the paper's for Atari, table G.1."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from seedzero.config import options, shared


@dataclasses.dataclass(frozen=True)
class VTraceConfig(options.AgentSection):
    SUMMARY = "IMPALA's actor-critic, learns once from each step: many steps a second, many or slow workers"
    SECTIONS = ("league", "seats")
    SAMPLES = False
    MAX_PLAYERS = 2

    DEFAULTS = options.values(
        optimizer=dict(
            kind="rmsprop", learning_rate=6e-4, decay_updates=0, rmsprop_decay=0.99, epsilon=0.01, clip_norm=40.0
        ),
        network=dict(shared.TORSO, width=256, lstm_width=0),
        reward=dict(discount=0.99, scale=1.0, clip=0.0),
    )
    CHOICES: ClassVar = {"network.kind": ("auto", "mlp", "conv", "deep", "shallow")}
    START = "unroll_length batch_size max_lag entropy_weight"
    ADVANCED = "wait_seconds value_loss_weight"

    unroll_length: int = shared.unroll_length(20, high=1000)
    batch_size: int = options.at_creation(32, "unrolls in one update", low=1)
    max_lag: int = shared.max_lag(2)
    wait_seconds: float = shared.wait_seconds(1.0)
    entropy_weight: float = shared.entropy_weight(0.01)
    value_loss_weight: float = shared.value_loss_weight(0.5)
    clip_rho: float = options.on_resume(
        1.0, "largest importance weight of a temporal difference (rho-bar)", low=0, high=math.inf
    )
    clip_c: float = options.on_resume(1.0, "largest importance weight of a trace (c-bar)", low=0, high=math.inf)
    trace_decay: float = options.on_resume(1.0, "lambda of the traces", low=0, high=1)
    popart: bool = options.at_creation(
        False, "PopArt: learn a value for each task, in units of that task's returns; off: one value for all"
    )
    popart_step: float = options.on_resume(
        3e-4, "PopArt: weight of one return in the running mean and variance of its task", low=1e-9, high=0.5
    )

    def shared(self, config: Any) -> dict[str, int]:
        return {"vtrace.batch_size": self.batch_size}


# Presets ----------------------------------------------------------------------------------------------------------

_SMALL = options.values(
    vtrace=dict(batch_size=8),
    optimizer=dict(kind="adam", learning_rate=2e-3),
    network=dict(width=64),
    evaluation=dict(every_updates=200),
)
_IMAGES = options.values(network=dict(frame_stack=4), reward=dict(clip=1.0), training=dict(publish_every=1))
# Two cores learn from some hundred steps a second with the shallow network, from some dozen with the deep one.
_IMAGES_ON_CPU = options.values(vtrace=dict(batch_size=8), network=dict(kind="shallow"))

# SEED RL's settings for Football (google-research/seed_rl, gcp/train_football_scoring.sh and _checkpoints.sh, and the
# defaults of its V-trace learner). Its losses are means where these are sums: to Adam that is the same.
_FOOTBALL = options.values(
    vtrace=dict(unroll_length=32, batch_size=32),
    reward=dict(discount=0.997),
    optimizer=dict(kind="adam", clip_norm=0.0),
    network=dict(frame_stack=4),
)
# Two cores see thousands of steps where SEED RL's 200 actors see millions: larger steps, and more entropy.
_FOOTBALL_ON_CPU = options.values(
    vtrace=dict(batch_size=8, entropy_weight=0.01, trace_decay=1.0),
    network=dict(kind="shallow"),
    optimizer=dict(learning_rate=5e-4, clip_norm=40.0),
)

_BOARD = options.values(
    _SMALL,
    worker=dict(envs_per_group=64),
    vtrace=dict(batch_size=16, entropy_weight=0.02),
    reward=dict(discount=1.0),
    network=dict(width=128),
    optimizer=dict(kind="adam", learning_rate=1e-3),
)

PARTS: Mapping[str, options.Part] = {
    **dict.fromkeys(("tictactoe", "connect_four", "spiel", "pgx", "hex", "othello", "go9"), options.part(_BOARD)),
    "league-tictactoe": options.part(_BOARD, league=dict(freeze_every=100_000)),
    "league-connect-four": options.part(_BOARD, league=dict(freeze_every=500_000)),
    "catch": options.part(_SMALL, vtrace=dict(unroll_length=10)),
    # Values up to 100 take several hundred thousand steps to learn, values up to 5 one hundred thousand.
    "cartpole": options.part(_SMALL, reward=dict(scale=0.05)),
    "vector": options.part(_SMALL, reward=dict(discount=0.995, scale=0.05), evaluation=dict(every_updates=2_000)),
    "chance": options.part(_SMALL),
    "discrete": options.part(_SMALL),
    "seats": options.part(_SMALL, vtrace=dict(batch_size=64), reward=dict(discount=1.0)),
    "agents": options.part(_SMALL, vtrace=dict(batch_size=64)),
    "memory-cartpole": options.part(_SMALL, network=dict(lstm_width=64), reward=dict(scale=0.05)),
    "memory-tmaze": options.part(_SMALL, vtrace=dict(unroll_length=40), network=dict(lstm_width=64)),
    "memory-repeat": options.part(_SMALL, network=dict(lstm_width=64), reward=dict(discount=0.9)),
    "minatar": options.part(_SMALL, network=dict(width=128), evaluation=dict(every_updates=5_000)),
    **dict.fromkeys(("pixels", "atari-large"), options.part(_IMAGES, on_cpu=_IMAGES_ON_CPU)),
    "atari-100k": options.part(  # 625 updates of 8 unrolls of 20
        _IMAGES,
        vtrace=dict(batch_size=8),
        evaluation=dict(every_updates=100),
        on_cpu=options.values(_IMAGES_ON_CPU, evaluation=dict(every_updates=100)),
    ),
    "football": options.part(
        _FOOTBALL,
        vtrace=dict(entropy_weight=0.000031948327487872845, trace_decay=0.9),
        optimizer=dict(learning_rate=0.00005533923433816456),
        on_cpu=_FOOTBALL_ON_CPU,
    ),
    "football-checkpoints": options.part(
        _FOOTBALL,
        vtrace=dict(entropy_weight=0.0007330944745454107),
        optimizer=dict(learning_rate=0.00012542101122072784),
        on_cpu=_FOOTBALL_ON_CPU,
    ),
    # IMPALA's Atari settings (table G.1): 50 million steps are 78,125 updates of 32 unrolls of 20.
    "atari": options.part(
        _IMAGES,
        env=dict(frame_size=84, full_action_space=True, life_loss=True),
        optimizer=dict(decay_updates=78_125),
        on_cpu=options.values(_IMAGES_ON_CPU, optimizer=dict(decay_updates=312_500)),
    ),
    # The settings of IMPALA's program for DMLab, but with PopArt instead of clipped rewards, as in Hessel et al. 2018
    # for all 30 levels. A billion frames are 78,125 updates of 32 unrolls of 100 steps.
    "dmlab": options.part(
        vtrace=dict(unroll_length=100, entropy_weight=0.00025, popart=True),
        optimizer=dict(learning_rate=4.8e-4, epsilon=0.1, clip_norm=0.0, decay_updates=78_125),
        network=dict(lstm_width=256),
        on_cpu=options.values(
            vtrace=dict(batch_size=8), network=dict(kind="shallow"), optimizer=dict(decay_updates=312_500)
        ),
    ),
}
