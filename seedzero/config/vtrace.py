"""V-trace's settings (IMPALA, Espeholt et al. 2018); the defaults are the paper's for Atari, table G.1."""

from __future__ import annotations

import dataclasses
from typing import Any

from seedzero.config import options


@dataclasses.dataclass(frozen=True)
class VTraceConfig(options.AgentSection):
    SAMPLES = False

    discount: float = options.option(0.99, "discount of one environment step", minimum=0, maximum=1)
    unroll_length: int = options.option(20, "steps of one unroll", unit="environment steps", minimum=1, maximum=1000)
    batch_size: int = options.option(32, "unrolls of one update", minimum=1)
    max_lag: int = options.option(
        2,
        "complete unrolls of an environment that may wait to be learned from; acting holds it until one is used",
        unit="unrolls",
        minimum=1,
        maximum=64,
    )
    wait_seconds: float = options.option(
        1.0,
        "a batch with too few unrolls waits this long for more, then it is padded with weight 0",
        unit="s",
        minimum=0,
        resumable=True,
    )
    entropy_weight: float = options.option(0.01, "weight of the entropy bonus", minimum=0)
    value_loss_weight: float = options.option(0.5, "weight of the value loss", minimum=0)
    clip_rho: float = options.option(1.0, "largest importance weight of a temporal difference (rho-bar)", minimum=0)
    clip_c: float = options.option(1.0, "largest importance weight of a trace (c-bar)", minimum=0)
    trace_decay: float = options.option(1.0, "lambda of the traces", minimum=0, maximum=1)
    reward_scale: float = options.option(
        1.0, "factor of rewards in training: values near 1 are learned soonest", minimum=1e-6
    )
    clip_reward: float = options.option(
        0.0, "largest absolute reward, after scaling; 0: no limit", unit="reward", minimum=0
    )
    optimizer: str = options.option("rmsprop", "optimizer", choices=("rmsprop", "adam"))
    learning_rate: float = options.option(6e-4, "initial learning rate", minimum=0)
    decay_updates: int = options.option(
        0, "updates in which the learning rate falls linearly to 0; 0: it stays", unit="updates", minimum=0
    )
    rmsprop_decay: float = options.option(0.99, "RMSProp: decay of the mean square", minimum=0, maximum=1)
    rmsprop_epsilon: float = options.option(0.01, "RMSProp: added to the mean square", minimum=1e-12)
    clip_norm: float = options.option(40.0, "largest global norm of the gradients; 0: no limit", minimum=0)
    torso: str = options.option(
        "auto",
        "auto: mlp for vectors, conv for small grids, deep (IMPALA's residual network) for images; shallow: two "
        "convolutions",
        choices=("auto", "mlp", "conv", "deep", "shallow"),
    )
    width: int = options.option(256, "units of the hidden layers", minimum=1)
    lstm_width: int = options.option(0, "units of an LSTM behind the torso; 0: feed-forward", minimum=0)
    frame_stack: int = options.option(1, "newest frames in one observation", unit="frames", minimum=1, maximum=16)
    compute_dtype: str = options.option(
        "auto", "auto: bfloat16 on accelerators, float32 on a CPU", choices=("auto", "float32", "bfloat16")
    )

    def notes(self, config: Any) -> list[str]:
        worker = config.worker
        num_unrolls = worker.num * worker.num_groups * worker.envs_per_group * self.max_lag
        if worker.num == 0 or worker.num_remote or num_unrolls >= self.batch_size:
            return []
        return [
            f"vtrace.batch_size={self.batch_size}, but at most {num_unrolls} unrolls wait (environments x "
            f"vtrace.max_lag={self.max_lag}): every batch is padded, and schedules count updates"
        ]

    def shared(self, config: Any) -> dict[str, int]:
        return {"vtrace.batch_size": self.batch_size}
