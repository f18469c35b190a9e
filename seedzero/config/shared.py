"""Settings of several agents: each field declared once, and their values for the agents."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from seedzero.config import options


def _declared(kind: Callable[..., Any], help_text: str, unit: str = "", **limits: Any) -> Callable[..., Any]:
    """Returns a function from an agent's default to a field; an agent may set limits of its own."""
    return functools.partial(kind, help_text=help_text, unit=unit, **limits)


discount = _declared(options.fixed, "discount of one environment step", low=0, high=1)
reward_scale = _declared(options.fixed, "factor of rewards in training", low=1e-6)
clip_reward = _declared(options.fixed, "largest absolute reward, after scaling; 0: no limit", "reward", low=0)
entropy_weight = _declared(options.tunable, "weight of the entropy bonus", low=0)
value_loss_weight = _declared(options.tunable, "weight of the value loss", low=0)

# A queue of unrolls.
unroll_length = _declared(options.fixed, "steps of one unroll", "environment steps", low=1)
max_lag = _declared(
    options.fixed,
    "complete unrolls of an environment that may wait to be learned from; acting holds it until one is used",
    "unrolls",
    low=1,
    high=64,
)
wait_seconds = _declared(
    options.free,
    "a batch with too few unrolls waits this long for more, then it is padded with weight 0",
    "s",
    low=0,
    high=options.LONGEST_WAIT,
)

# Q-learning.
n_step = _declared(options.tunable, "steps of a return", "environment steps", low=1, high=1000)
epsilon = _declared(
    options.tunable,
    "probability of a random action: environment i of N has epsilon ^ (1 + exponent i / (N - 1))",
    low=0,
    high=1,
)
target_updates = _declared(options.tunable, "updates between copies of the target network", "updates", low=1)
q_torso = _declared(
    options.fixed,
    "auto: mlp for vectors, conv for small grids, nature (DQN's three convolutions) for images; deep: IMPALA's "
    "residual network",
    choices=("auto", "mlp", "conv", "nature", "deep"),
)

q_optimizer = _declared(options.fixed, "optimizer; rmsprop: the centered one", choices=("rmsprop", "adam"))
learning_rate = _declared(options.tunable, "learning rate", low=0)
decay_updates = _declared(
    options.tunable, "updates for the learning rate to fall linearly to 0; 0: constant", "updates", low=0
)
rmsprop_decay = _declared(options.tunable, "RMSProp: decay of its averages", low=0, high=1)
optimizer_epsilon = _declared(options.tunable, "added to the divisor of a step", low=1e-12)
clip_norm = _declared(options.tunable, "largest global norm of the gradients; 0: no limit", low=0)

module = functools.partial(
    options.fixed, "", "MODULE:FUNCTION of your own that returns a torso in place of the agent's; empty: none"
)
width = _declared(options.fixed, "units of the hidden layers", low=1)
lstm_width = _declared(options.fixed, "units of an LSTM behind the torso; 0: feed-forward", low=0)
frame_stack = _declared(options.fixed, "newest frames in one observation", "frames", low=1, high=16)
normalize_pixels = functools.partial(
    options.fixed,
    False,
    "each pixel of an image of bytes is normalized by its own running mean and variance: the background becomes 0, "
    "and a small thing that moves stands out",
)
compute_dtype = _declared(
    options.tunable, "auto: bfloat16 on accelerators, float32 on a CPU", choices=("auto", "float32", "bfloat16")
)


class Layers(NamedTuple):
    """The layers between observations and heads: the settings of the same names."""

    agent: str  # whose settings they are, for errors
    torso: str = "mlp"  # kind of the layers for observations
    width: int = 256
    lstm_width: int = 0
    frame_stack: int = 1
    normalize_pixels: bool = False
    compute_dtype: str = "auto"

    @classmethod
    def of(cls, agent: str, settings: options.AgentSection) -> Layers:
        """Returns the layers of an agent; a missing setting has the default above."""
        return cls(agent, **{name: getattr(settings, name) for name in cls._fields if hasattr(settings, name)})


class Optimizer(NamedTuple):
    """An optimizer and the optimizer's numbers."""

    kind: str  # adam, rmsprop, or centered: RMSProp that divides by a standard deviation
    learning_rate: float  # at the first update
    clip_norm: float  # largest global norm of the gradients; 0: no limit
    epsilon: float = 1e-8  # added to the divisor; RMSProp's lies under the root
    decay: float = 0.0  # of RMSProp's averages
    decay_updates: int = 0  # updates for the learning rate to fall linearly to 0; 0: constant
