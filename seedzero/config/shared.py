"""Settings that agents share: the sections optimizer, network and reward, and fields of agents' own sections.

The sections' defaults are MuZero's; another agent's are in its table `DEFAULTS`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from seedzero.config import options
from seedzero.core import errors, types


# Chooses kinds of networks by an environment's observations.
def choose_kind(name: str, kind: str, spec: types.EnvSpec) -> str:
    """Returns a network's kind: as given, or for "auto" mlp for vectors, conv for small grids, resnet for images.

    `name` is that of the setting, for the error.

    Raises:
      ConfigError: convolutions are requested without a grid, or for grids of several sizes; or there are only texts.
    """
    if all(array.text for array in spec.arrays):
        raise errors.ConfigError("the observations are only text; show an array of numbers beside it")
    shown = types.shown(spec.arrays)
    if kind == "auto":
        kind = {"vectors": "mlp", "small grids": "conv", "images": "resnet"}[shown]
    elif kind != "mlp" and shown == "vectors":
        shapes = _listed(spec.arrays)
        raise errors.ConfigError(
            f"{name}={kind} needs observations of shape [height, width] or "
            f"[height, width, channels], but they are {shapes}; use --{name}=mlp"
        )
    grids = [array for array in spec.arrays if is_image(kind, array)]
    if len({array.shape[:2] for array in grids}) > 1:
        fitting = [array.name for array in spec.arrays if array not in grids or array.shape[:2] == grids[0].shape[:2]]
        raise errors.ConfigError(
            f"the images of an observation must have one height and width, but they are {_listed(grids)}; "
            f"{_keep(fitting)}flatten all with --{name}=mlp"
        )
    return kind


def _keep(names: Sequence[str]) -> str:
    """Returns advice to keep only these arrays; "" for parts of nested spaces, which no wrapper can select."""
    if any("/" in name for name in names):
        return ""
    keys = [int(name) if name.isdecimal() else name for name in names]  # a Tuple's parts are numbers
    keep = json.dumps([{"FilterObservation": {"filter_keys": keys}}])
    return f"keep those of one size, as with --env.wrappers='{keep}', or "


def is_image(kind: str, array: types.ArraySpec) -> bool:
    """Returns whether a network of a kind takes an array as an image."""
    return kind != "mlp" and array.is_grid


def _listed(arrays: Sequence[types.ArraySpec]) -> str:
    """Returns the shapes of arrays, with names for several."""
    names = [f"{array.name} " if len(arrays) > 1 else "" for array in arrays]
    return ", ".join(f"{name}{list(array.shape)}" for name, array in zip(names, arrays, strict=True))


def _declared(kind: Callable[..., Any], help_text: str, unit: str = "", **limits: Any) -> Callable[..., Any]:
    """Returns a function from an agent's default to a field; an agent may set its own limits."""
    return functools.partial(kind, help_text=help_text, unit=unit, **limits)


discount = _declared(options.at_creation, "discount for one environment step", low=0, high=1)
reward_scale = _declared(options.at_creation, "factor of rewards in training", low=1e-6)
clip_reward = _declared(
    options.at_creation, "largest absolute reward, after scaling; 0: no limit", "reward", low=0, high=math.inf
)
entropy_weight = _declared(options.on_resume, "weight of the entropy bonus", low=0)
value_loss_weight = _declared(options.on_resume, "weight of the value loss", low=0)

# A queue of unrolls.
unroll_length = _declared(options.at_creation, "steps of one unroll", "environment steps", low=1)
max_lag = _declared(
    options.at_creation,
    "complete unrolls of an environment that may wait to be learned; acting then stops until one is used",
    "unrolls",
    low=1,
    high=64,
)
wait_seconds = _declared(
    options.any_time,
    "a batch with too few unrolls waits this long for more; then it is padded with rows of weight 0",
    "s",
    low=0,
    high=options.LONGEST_WAIT,
)

# Q-learning.
n_step = _declared(options.on_resume, "steps in a return", "environment steps", low=1, high=1000)
epsilon = _declared(
    options.on_resume,
    "probability of a random action: environment i of N has epsilon ^ (1 + 7 i / (N - 1))",
    low=0,
    high=1,
)
target_updates = _declared(options.on_resume, "updates between copies to the target network", "updates", low=1)
learning_rate = _declared(options.on_resume, "learning rate; with a schedule, the largest", low=0)
decay_updates = _declared(
    options.on_resume, "updates for the learning rate to fall linearly to 0; 0: constant", "updates", low=0
)
clip_norm = _declared(options.on_resume, "largest global norm of the gradients; 0: no limit", low=0, high=math.inf)

width = _declared(options.at_creation, "size of a hidden state, units of a hidden layer", low=1)
frame_stack = _declared(options.at_creation, "newest frames in one observation", "frames", low=1, high=16)

TORSO: Mapping[str, options.Value] = dict(
    kind="auto", module="", frame_stack=1, normalize_pixels=False, compute_dtype="auto"
)
"""Settings of the section network that all agents with a torso read, and their defaults."""


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(options.Section):
    START = "learning_rate"
    ADVANCED = "epsilon rmsprop_decay decay_rate"

    kind: str = options.at_creation(
        "adam", "optimizer; for Ape-X and R2D2 rmsprop is the centered one", choices=("adam", "rmsprop")
    )
    learning_rate: float = learning_rate(2e-3)
    clip_norm: float = clip_norm(5.0)
    schedule: str = options.on_resume(
        "constant",
        "how the learning rate changes after the warm-up",
        choices=("constant", "cosine", "exponential", "linear"),
    )
    warmup_updates: int = options.on_resume(
        0, "updates over which the learning rate rises linearly to its full value", "updates", low=0
    )
    decay_updates: int = options.on_resume(
        1_000_000,
        "updates over which the learning rate falls linearly to 0; for MuZero it follows optimizer.schedule "
        "until then, or with exponential falls by decay_rate every this many updates; 0: constant",
        "updates",
        low=0,
    )
    decay_rate: float = options.on_resume(
        0.1,
        "cosine and linear: final share of the learning rate; exponential: factor every decay_updates",
        low=0,
        high=1,
    )
    epsilon: float = options.on_resume(
        1e-8,
        "Adam adds it to the divisor of a step, RMSProp to the mean square or variance below its root; V-trace's Adam "
        "ignores it",
        low=1e-12,
    )
    rmsprop_decay: float = options.on_resume(0.99, "RMSProp: decay of its averages", low=0, high=1)


@dataclasses.dataclass(frozen=True)
class NetworkConfig(options.Section):
    action_bins: ClassVar[int] = 15
    """Number of bins of the policy in each dimension of continuous actions."""
    START = "support_limit"
    ADVANCED = "first_stride compute_dtype"

    kind: str = options.at_creation(
        "auto",
        "layers for observations. auto: mlp for vectors, conv for small grids, and for images resnet "
        "(MuZero), deep (V-trace: IMPALA's residual network) or nature (DQN's three convolutions). "
        "shallow: two convolutions. patches: two for small images",
        choices=("auto", "mlp", "conv", "resnet", "nature", "deep", "shallow", "patches"),
    )
    module: str = options.at_creation(
        "", "your own MODULE:FUNCTION that returns MuZero's network, or another agent's torso; empty: none"
    )
    frame_stack: int = frame_stack(1)
    width: int = width(64)
    lstm_width: int = options.at_creation(0, "units of an LSTM after the torso; 0: feed-forward", low=0)
    channels: int = options.at_creation(
        0,
        "channels of each convolution, for MuZero of those of conv; 0: the kind's own (conv: for MuZero half of "
        "network.width, for PPO an eighth; patches: 32)",
        low=0,
    )
    first_stride: int = options.at_creation(
        1,
        "conv: stride of the first convolution, whose kernel is twice as wide: 4 turns frames of 42x42 into 11x11; "
        "1: 3x3 at full size",
        "pixels",
        low=1,
        high=16,
    )
    pooled: bool = options.at_creation(
        False, "conv: add the largest value of each channel over the grid to the hidden state"
    )
    gated: bool = options.at_creation(
        False,
        "mlp and conv: actions scale and shift the hidden units of the dynamics, instead of being inputs of "
        "their layer",
    )
    resnet_size: str = options.at_creation(
        "small",
        "resnet: small (64 channels), middle (128), large (256, 10+6 blocks)",
        choices=("small", "middle", "large"),
    )
    head_width: int = options.at_creation(64, "units of the heads' hidden layer", low=1)
    normalize_observations: bool = options.at_creation(
        True,
        "scale each feature by its running mean and variance, unless its bounds are within -1 to 1 or it belongs to "
        "an image of bytes",
    )
    normalize_pixels: bool = options.at_creation(
        False,
        "scale each pixel of an image of bytes by its own running mean and variance, so that the background "
        "becomes 0 and a small moving object stands out",
    )
    num_bins: int = options.at_creation(121, "bins of the categorical value and reward", low=3)
    support_limit: float = options.at_creation(
        30.0, "largest absolute value and reward that the bins represent, after the transform", low=1
    )
    value_transform: str = options.at_creation(
        "hyperbolic",
        "transform of values and rewards: hyperbolic, about a square root (MuZero); symlog (DreamerV3), "
        "which with a support_limit of 10 reaches 22 thousand usual rewards",
        choices=("hyperbolic", "symlog"),
    )
    compute_dtype: str = options.on_resume(
        "auto", "auto: bfloat16 on accelerators, float32 on a CPU", choices=("auto", "float32", "bfloat16")
    )


@dataclasses.dataclass(frozen=True)
class RewardConfig(options.Section):
    START = "discount scale"

    discount: float = discount(0.997)
    scale: float = reward_scale(1.0)
    clip: float = clip_reward(0.0)
    normalize: bool = options.at_creation(
        True,
        "divide rewards by their running size: for MuZero the root mean square of nonzero rewards, for PPO "
        "the standard deviation of discounted returns",
    )
