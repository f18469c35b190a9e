"""The configuration: one frozen dataclass a component; flags and help texts are made from the fields.

A value is set by `--SECTION.KEY=VALUE`; `ALIASES` are the short forms. Presets are in `config/presets.py`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Collection, Mapping
from typing import Any

from seedzero.core import errors

Value = bool | int | float | str

AUTO = 0
"""Marks an integer that is chosen at start from what the machine has."""


def _option(
    default: Value,
    help_text: str,
    *,
    unit: str = "",
    choices: tuple[str, ...] = (),
    minimum: float = -math.inf,
    maximum: float = math.inf,
    resumable: bool = False,
) -> Any:
    """A field of a section. resumable: a run directory may be resumed with another value."""
    metadata = dict(help=help_text, unit=unit, choices=choices, minimum=minimum, maximum=maximum, resumable=resumable)
    return dataclasses.field(default=default, metadata=metadata)


class _Section:
    """Checks the fields of a section against their types, choices and bounds."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, meta = getattr(self, field.name), field.metadata
            if meta["choices"] and value not in meta["choices"]:
                raise errors.ConfigError(f"{field.name} is {value!r}; choose one of {', '.join(meta['choices'])}")
            if isinstance(value, (int, float)) and not meta["minimum"] <= value <= meta["maximum"]:
                bounds = f"from {meta['minimum']:g} to {meta['maximum']:g}"
                raise errors.ConfigError(f"{field.name} is {value}; it must be {bounds}")


@dataclasses.dataclass(frozen=True)
class RunConfig(_Section):
    agent: str = _option("muzero", "learning algorithm", choices=("muzero",))
    seed: int = _option(0, "seed of everything random", minimum=0, maximum=2**31 - 1)
    deterministic: bool = _option(False, "acting and training in lock step, the same bits every time on a CPU")
    max_env_steps: int = _option(
        0,
        "end after this many training steps, resumes included; 0: no limit",
        unit="environment steps",
        minimum=0,
        resumable=True,
    )
    max_updates: int = _option(
        0, "end after this many updates, resumes included; 0: no limit", unit="updates", minimum=0, resumable=True
    )
    max_seconds: float = _option(
        0.0, "end this run after so long; a resume counts from 0; 0: no limit", unit="s", minimum=0, resumable=True
    )
    stop_at_return: float = _option(
        math.inf, "end when an evaluation's mean return is at least this; inf: never", unit="return", resumable=True
    )


@dataclasses.dataclass(frozen=True)
class EnvConfig(_Section):
    id: str = _option("catch", "catch | gym:ID | gym:module:ID | atari:GAME | spiel:GAME | remote")
    frame_size: int = _option(96, "Atari: height and width of a frame", unit="pixels", minimum=16, maximum=210)
    frame_skip: int = _option(
        4, "Atari: emulator frames an action is held, the last two max-pooled", unit="frames", minimum=1, maximum=64
    )
    sticky_actions: float = _option(
        0.25, "Atari: probability that an emulator frame repeats the previous action", minimum=0, maximum=1
    )
    full_action_space: bool = _option(True, "Atari: all 18 actions, not only those a game uses")
    noop_max: int = _option(0, "Atari: at most so many no-op frames after a reset", unit="frames", minimum=0)
    life_loss: bool = _option(False, "Atari: losing a life terminates the training episode")
    random_opening: int = _option(
        0,
        "games of two players: training games begin with up to so many random moves, "
        "each number equally likely; first_mover_return is that of who moves after them",
        unit="moves",
        minimum=0,
    )
    max_episode_frames: int = _option(
        108_000, "Atari: an episode is truncated after this many emulator frames", unit="frames", minimum=1
    )


@dataclasses.dataclass(frozen=True)
class WorkerConfig(_Section):
    num: int = _option(
        1,
        "local training workers that this learner starts and supervises; 0: remote ones only",
        minimum=0,
        maximum=4096,
        resumable=True,
    )
    num_remote: int = _option(
        0,
        "training workers that are expected from other machines: the automatic replay.num_slots has room for them",
        minimum=0,
        maximum=4096,
        resumable=True,
    )
    envs_per_group: int = _option(16, "environments that step together", minimum=1, maximum=4096, resumable=True)
    num_groups: int = _option(
        2, "groups a worker alternates between: one steps while the other waits", minimum=1, maximum=16, resumable=True
    )
    threads: int = _option(
        AUTO, "Atari: emulator threads in a worker; 0: by the machine's cores", minimum=0, resumable=True
    )


@dataclasses.dataclass(frozen=True)
class TransportConfig(_Section):
    listen: str = _option("", "HOST:PORT or unix:PATH; empty: a unix socket in the run directory", resumable=True)
    heartbeat_seconds: float = _option(
        5.0, "workers renew their lease this often", unit="s", minimum=0.05, resumable=True
    )
    lease_seconds: float = _option(
        15.0, "a silent worker's environments are given up after this", unit="s", minimum=0.1, resumable=True
    )
    keepalive_seconds: float = _option(
        5.0, "HTTP/2 pings on a silent connection", unit="s", minimum=0.1, resumable=True
    )
    ping_timeout_seconds: float = _option(
        5.0, "an unanswered ping ends the connection", unit="s", minimum=0.1, resumable=True
    )
    max_backoff_seconds: float = _option(
        5.0, "longest pause between a local worker's attempts to reconnect", unit="s", minimum=0.05, resumable=True
    )
    max_workers: int = _option(1024, "streams accepted at a time", minimum=1, resumable=True)
    token_file: str = _option(
        "",
        "file that holds the bearer token which workers must present; needed where HOST is "
        "more than this machine; a unix socket needs none",
        resumable=True,
    )
    insecure: bool = _option(
        False, "listen beyond this machine without a token: whoever reaches the port may join", resumable=True
    )


@dataclasses.dataclass(frozen=True)
class TlsConfig(_Section):
    cert_file: str = _option(
        "",
        "PEM file with the learner's certificate and those that vouch for it; with it HOST:PORT speaks TLS alone",
        resumable=True,
    )
    key_file: str = _option("", "PEM file with the key of tls.cert_file, without a passphrase", resumable=True)


@dataclasses.dataclass(frozen=True)
class BatcherConfig(_Section):
    max_batch: int = _option(
        AUTO,
        "most environments in one acting batch; 0: all local ones of a role, at most 1024",
        minimum=0,
        resumable=True,
    )
    wait_microseconds: int = _option(
        0, "a batch that is not full waits this long for more", unit="us", minimum=0, maximum=1_000_000, resumable=True
    )


@dataclasses.dataclass(frozen=True)
class SearchConfig(_Section):
    policy: str = _option("gumbel", "root policy and what is learned from it", choices=("gumbel", "puct"))
    num_simulations: int = _option(16, "network calls a move", minimum=1, maximum=10_000)
    num_considered: int = _option(16, "Gumbel: root actions that sequential halving starts with", minimum=1)
    num_sampled: int = _option(
        16,
        "continuous actions: how many are sampled at each node, to search among; Gumbel "
        "considers at most num_considered of them at the root",
        minimum=2,
        maximum=1000,
    )
    uniform_share: float = _option(
        0.1,
        "continuous actions: share of the samples that the whole range proposes and "
        "not the policy, for each number of an action",
        minimum=0,
        maximum=1,
    )
    max_depth: int = _option(0, "longest path from the root; 0: as long as it gets", minimum=0)
    gumbel_scale: float = _option(1.0, "Gumbel: scale of the root noise while training", minimum=0)
    value_scale: float = _option(0.1, "Gumbel: scale of completed Q values", minimum=0)
    max_visit_init: float = _option(
        50.0, "Gumbel: visits added to the largest count when Q values are scaled", minimum=0
    )
    min_value_range: float = _option(
        1e-8,
        "Gumbel: a node's Q values are scaled by their range, or by this where "
        "that is smaller: noise in equal values is then no preference",
        unit="return",
        minimum=1e-8,
    )
    dirichlet_alpha: float = _option(0.3, "PUCT: concentration of the root noise", minimum=1e-6)
    dirichlet_fraction: float = _option(
        0.25, "PUCT: share of noise in the root prior while training", minimum=0, maximum=1
    )
    pb_c_init: float = _option(1.25, "PUCT: c1 of MuZero's equation 2", minimum=0)
    pb_c_base: float = _option(19652.0, "PUCT: c2 of MuZero's equation 2", minimum=1)
    temperature: float = _option(1.0, "PUCT: temperature of the visit counts while training", minimum=0)


@dataclasses.dataclass(frozen=True)
class ExploreConfig(_Section):
    epsilon: float = _option(
        0.0,
        "probability that a step of training begins to repeat one random action for a "
        "while, if none is being repeated; 0: off",
        minimum=0,
        maximum=1,
    )
    exponent: float = _option(2.0, "it is repeated n times with a probability in proportion to n ^ -this", minimum=0)
    max_length: int = _option(100, "most steps in a row", unit="environment steps", minimum=1, maximum=10_000)


@dataclasses.dataclass(frozen=True)
class NetworkConfig(_Section):
    kind: str = _option(
        "auto",
        "auto: mlp for vectors, conv for small grids, resnet for pixels",
        choices=("auto", "mlp", "conv", "resnet"),
    )
    frame_stack: int = _option(1, "newest frames that the network sees", unit="frames", minimum=1, maximum=16)
    width: int = _option(64, "mlp and conv: numbers of a hidden state, units of a hidden layer", minimum=1)
    channels: int = _option(0, "conv: channels of the two convolutions; 0: half of network.width", minimum=0)
    resnet_size: str = _option(
        "small",
        "resnet: small (64 channels), middle (128), large (256, 10+6 blocks)",
        choices=("small", "middle", "large"),
    )
    head_width: int = _option(64, "units of the heads' hidden layer", minimum=1)
    num_bins: int = _option(121, "bins of the categorical value and reward", minimum=3)
    action_bins: int = _option(
        15, "continuous actions: bins of the policy, for each number of an action", minimum=2, maximum=255
    )
    support_limit: float = _option(30.0, "largest transformed value and reward, on both sides", minimum=1)
    compute_dtype: str = _option(
        "auto", "auto: bfloat16 on accelerators, float32 on a CPU", choices=("auto", "float32", "bfloat16")
    )


@dataclasses.dataclass(frozen=True)
class MuZeroConfig(_Section):
    discount: float = _option(0.997, "discount of one environment step", minimum=0, maximum=1)
    unroll_steps: int = _option(5, "steps the model is unrolled in training (K)", minimum=1, maximum=64)
    n_step: int = _option(5, "rewards before the value target bootstraps (n)", minimum=1, maximum=1000)
    value_loss_weight: float = _option(0.25, "weight of the value loss", minimum=0)
    reward_loss_weight: float = _option(1.0, "weight of the reward loss", minimum=0)
    policy_loss_weight: float = _option(1.0, "weight of the policy loss", minimum=0)
    entropy_weight: float = _option(
        0.0,
        "weight of the policy's entropy, which is to be large: where the search "
        "finds all actions alike, the policy forgets what it preferred; 0: off",
        minimum=0,
    )
    target_network_updates: int = _option(
        0,
        "bootstrap from a network copied every so many updates; 0: from root values stored when acting",
        unit="updates",
        minimum=0,
    )
    n_step_decay_age: int = _option(
        0,
        "value targets have one reward less for each so many updates of a step's age, but at least one "
        "(EfficientZero: 0.3 of all updates); 0: off",
        unit="updates",
        minimum=0,
    )
    search_value_age: int = _option(
        0,
        "steps of this age have the search's stored value as target, in place of the n-step return "
        "(EfficientZero V2); 0: off",
        unit="updates",
        minimum=0,
    )
    search_value_start: int = _option(
        0, "updates before any step has it (EfficientZero V2: 40000)", unit="updates", minimum=0
    )
    stored_value: str = _option(
        "root",
        "the search's value that is stored: root, the mean of all that it saw; policy, what the policy found "
        "is worth by its Q values",
        choices=("root", "policy"),
    )
    shift_pixels: int = _option(
        0, "images are moved at random by up to so much in training; 0: off", unit="pixels", minimum=0
    )
    value_prefix: bool = _option(
        False,
        "predict sums of rewards along imagined steps, by an LSTM, in place of each "
        "reward (EfficientZero's value prefix)",
    )
    value_prefix_horizon: int = _option(5, "rewards in such a sum before it begins anew", minimum=1, maximum=64)
    consistency_weight: float = _option(
        0.0,
        "weight of EfficientZero's consistency loss: unrolled states are to be like those of the later "
        "observations; 0: off; 2 is usual",
        minimum=0,
    )
    consistency_steps: int = _option(
        0, "unrolled steps that have it, each costs an observation to represent; 0: all", minimum=0, maximum=64
    )
    intensity_scale: float = _option(
        0.0,
        "images are multiplied by 1 + this * noise in training, noise being normal "
        "and clipped at 2; 0: off; 0.05 is usual",
        minimum=0,
        maximum=0.5,
    )


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(_Section):
    learning_rate: float = _option(2e-3, "AdamW: peak learning rate", minimum=0)
    schedule: str = _option(
        "constant", "course of the learning rate after the warm-up", choices=("constant", "cosine", "exponential")
    )
    warmup_updates: int = _option(0, "updates of linear warm-up", unit="updates", minimum=0)
    decay_updates: int = _option(
        1_000_000, "cosine: updates to the end; exponential: updates a decay by decay_rate", unit="updates", minimum=1
    )
    decay_rate: float = _option(
        0.1, "cosine: final share of the rate; exponential: factor every decay_updates", minimum=0, maximum=1
    )
    weight_decay: float = _option(1e-4, "AdamW: decoupled weight decay", minimum=0)
    clip_norm: float = _option(5.0, "gradients are scaled down to this global norm; 0: off", minimum=0)


@dataclasses.dataclass(frozen=True)
class ReplayConfig(_Section):
    capacity: int = _option(64_000, "training steps kept", unit="environment steps", minimum=64)
    num_slots: int = _option(
        AUTO,
        "rings, one for each training environment; fixed for a run directory; 0: as many "
        "as local environments, at least 64 where workers are remote",
        minimum=0,
    )
    placement: str = _option(
        "auto",
        "where observations are kept: device: with all the rest; host: in the machine's "
        "memory, read for each update while the device does something else; auto: host where "
        "the device has no room",
        choices=("auto", "device", "host"),
        resumable=True,
    )
    min_steps: int = _option(
        1_000, "steps stored before training starts", unit="environment steps", minimum=1, resumable=True
    )
    batch_size: int = _option(256, "windows in one update", minimum=1)
    samples_per_insert: float = _option(4.0, "windows trained on for each stored step", minimum=1e-3, resumable=True)
    tolerance: float = _option(
        0.1, "half width of the samples-per-insert band, as a share of it", minimum=0, maximum=1, resumable=True
    )
    priority_alpha: float = _option(
        0.0,
        "steps are sampled in proportion to priority ^ alpha, the priority being how "
        "far the value target was from the search's value; 0: uniformly",
        minimum=0,
        maximum=1,
    )
    priority_beta: float = _option(
        0.4, "the loss has a factor sampling probability ^ -beta; 1: no bias is left", minimum=0, maximum=1
    )
    priority_beta_updates: int = _option(
        0, "updates in which beta grows linearly to 1; 0: it stays", unit="updates", minimum=0
    )
    priority_epsilon: float = _option(1e-3, "added to every priority", unit="return", minimum=1e-6)


@dataclasses.dataclass(frozen=True)
class ReanalyseConfig(_Section):
    per_insert: float = _option(
        0.0,
        "replayed positions that are searched anew with the newest parameters for each "
        "stored step, so that old policies and values are learned from no more; 0: none",
        minimum=0,
        maximum=1000,
    )
    min_age: int = _option(
        10,
        "targets made by parameters at most so many updates old are left as they are",
        unit="updates",
        minimum=0,
        resumable=True,
    )
    batch_size: int = _option(
        128,
        "positions in one call: on an accelerator more of them cost hardly more time, on a "
        "CPU acting waits longer for a larger call",
        minimum=1,
    )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(_Section):
    publish_every: int = _option(
        1, "acting takes the newest parameters every so many updates", unit="updates", minimum=1
    )
    max_in_flight: int = _option(
        2,
        "calls that the device has been given at a time: more of them hide what the host "
        "does between two, fewer let an action wait for less",
        minimum=1,
        maximum=8,
        resumable=True,
    )
    num_devices: int = _option(AUTO, "local devices to use, data-parallel; 0: all", minimum=0, resumable=False)


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(_Section):
    every_updates: int = _option(
        500, "updates between evaluations; 0: none", unit="updates", minimum=0, resumable=True
    )
    episodes: int = _option(20, "episodes of one evaluation", unit="episodes", minimum=1, resumable=True)
    num_envs: int = _option(20, "environments that evaluate in parallel", minimum=1, maximum=4096, resumable=True)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(_Section):
    every_seconds: float = _option(
        120.0,
        "time between checkpoints (not in deterministic mode); 0: only at the end",
        unit="s",
        minimum=0,
        resumable=True,
    )
    every_updates: int = _option(1_000, "deterministic mode: updates between checkpoints", unit="updates", minimum=1)
    keep: int = _option(3, "newest checkpoints kept", minimum=1, resumable=True)
    keep_every: int = _option(0, "every so many checkpoints one is kept for good; 0: none", minimum=0, resumable=True)
    replay: str = _option(
        "auto",
        "save the replay too: auto saves it up to replay_limit_bytes",
        choices=("auto", "on", "off"),
        resumable=True,
    )
    replay_limit_bytes: int = _option(
        4 * 2**30, "auto saves a replay of at most this size", unit="B", minimum=0, resumable=True
    )


@dataclasses.dataclass(frozen=True)
class BucketConfig(_Section):
    every_seconds: float = _option(
        60.0,
        "run in a bucket: metrics, logs and status are uploaded this often, and with every checkpoint",
        unit="s",
        minimum=0.1,
        resumable=True,
    )
    lease_seconds: float = _option(
        30.0,
        "run in a bucket: a learner that has not renewed its lease for so long "
        "counts as dead, and the next one takes over; renewed three times as often",
        unit="s",
        minimum=1,
        resumable=True,
    )
    retry_seconds: float = _option(
        120.0,
        "run in a bucket: requests that fail are repeated for so long, then that "
        "upload has failed and the next checkpoint tries again",
        unit="s",
        minimum=1,
        resumable=True,
    )


@dataclasses.dataclass(frozen=True)
class MetricsConfig(_Section):
    every_seconds: float = _option(
        10.0, "time between rows of metrics.jsonl and TensorBoard", unit="s", minimum=0.1, resumable=True
    )
    every_updates: int = _option(100, "deterministic mode: updates between rows", unit="updates", minimum=1)
    tensorboard: bool = _option(True, "write TensorBoard files into the run directory", resumable=True)
    port: int = _option(
        -1,
        "serve metrics to Prometheus at http://HOST:PORT/metrics; 0: any free port; -1: off",
        minimum=-1,
        maximum=65535,
        resumable=True,
    )
    host: str = _option(
        "127.0.0.1",
        "address that metrics.port is bound to; 0.0.0.0: all of this machine's, as in a container",
        resumable=True,
    )


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run. `run.agent` and others follow the names SECTION.KEY."""

    run: RunConfig = RunConfig()
    env: EnvConfig = EnvConfig()
    worker: WorkerConfig = WorkerConfig()
    transport: TransportConfig = TransportConfig()
    tls: TlsConfig = TlsConfig()
    batcher: BatcherConfig = BatcherConfig()
    search: SearchConfig = SearchConfig()
    explore: ExploreConfig = ExploreConfig()
    network: NetworkConfig = NetworkConfig()
    muzero: MuZeroConfig = MuZeroConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    replay: ReplayConfig = ReplayConfig()
    reanalyse: ReanalyseConfig = ReanalyseConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    bucket: BucketConfig = BucketConfig()
    metrics: MetricsConfig = MetricsConfig()

    def __post_init__(self) -> None:
        if self.transport.heartbeat_seconds * 2 > self.transport.lease_seconds:
            raise errors.ConfigError(
                f"transport.lease_seconds={self.transport.lease_seconds} leaves no room for a lost heartbeat; "
                f"make it at least twice transport.heartbeat_seconds={self.transport.heartbeat_seconds}"
            )


ALIASES: Mapping[str, str] = {
    "agent": "run.agent",
    "env": "env.id",
    "workers": "worker.num",
    "listen": "transport.listen",
    "token_file": "transport.token_file",
    "insecure": "transport.insecure",
    "metrics_port": "metrics.port",
    "metrics_host": "metrics.host",
    "seed": "run.seed",
    "deterministic": "run.deterministic",
    "max_env_steps": "run.max_env_steps",
    "max_updates": "run.max_updates",
    "max_seconds": "run.max_seconds",
    "stop_at_return": "run.stop_at_return",
}


def flatten(config: Config) -> dict[str, Value]:
    """Returns every value by its name SECTION.KEY, in the order of the fields."""
    return {
        f"{section.name}.{field.name}": getattr(getattr(config, section.name), field.name)
        for section in dataclasses.fields(config)
        for field in dataclasses.fields(getattr(config, section.name))
    }


def fields() -> dict[str, dataclasses.Field[Any]]:
    """Returns every field by its name SECTION.KEY; help, unit, choices are in its metadata."""
    return {
        f"{section.name}.{field.name}": field
        for section in dataclasses.fields(Config)
        for field in dataclasses.fields(section.default)  # type: ignore[arg-type]
    }


def override(config: Config, values: Mapping[str, Value | str]) -> Config:
    """Returns the configuration with some values replaced.

    Args:
      config: the configuration to start from.
      values: by SECTION.KEY or alias; strings are parsed by the field's type.

    Raises:
      ConfigError: an unknown key (with the nearest right one), a wrong type, an impossible value.
    """
    known = fields()
    sections: dict[str, dict[str, Value]] = {}
    for key, raw in values.items():
        name = ALIASES.get(key, key)
        if name not in known:
            raise errors.ConfigError(f"unknown setting --{key}={raw}{suggestion(key, [*known, *ALIASES])}")
        section, _, field_name = name.partition(".")
        sections.setdefault(section, {})[field_name] = _parse(key, raw, known[name])
    for section, changes in sections.items():
        try:
            changed = dataclasses.replace(getattr(config, section), **changes)
        except errors.ConfigError as error:
            raise errors.ConfigError(f"--{section}.{error}") from None
        config = dataclasses.replace(config, **{section: changed})
    return config


def suggestion(key: str, names: Collection[str]) -> str:
    """Returns the end of a message about an unknown setting: the nearest of `names`, or where all are listed."""
    name = nearest(key, names)
    return f"; did you mean --{name}?" if name else "; `seedzero config --preset=NAME` lists all settings"


def nearest(key: str, names: Collection[str]) -> str | None:
    """Returns the name most like `key`, first of all one of another section; None: none is near."""
    by_tail = [name for name in names if name.rpartition(".")[2] == key.rpartition(".")[2]]
    close = by_tail or difflib.get_close_matches(key, names, n=1, cutoff=0.4)
    return close[0] if close else None


def _parse(key: str, raw: Value | str, field: dataclasses.Field[Any]) -> Value:
    kind = _kind(field)
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[str(raw).lower()]
        if kind is int and isinstance(raw, str):
            return int(raw.replace("_", ""))
        if kind is int and isinstance(raw, float) and raw != int(raw):
            raise ValueError
        parsed: Value = kind(raw)
    except (ValueError, KeyError, TypeError):
        raise errors.ConfigError(f"--{key}={raw!s}: expected {_kind_name(kind)}") from None
    if isinstance(parsed, float) and math.isnan(parsed):
        raise errors.ConfigError(f"--{key}={raw!s}: expected a number")
    return parsed


def _kind(field: dataclasses.Field[Any]) -> type:
    default: Any = field.default
    return type(default)


def _kind_name(kind: type) -> str:
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
