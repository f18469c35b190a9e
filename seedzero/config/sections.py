"""The sections that all agents share: one frozen dataclass a component."""

from __future__ import annotations

import dataclasses
import math

from seedzero.config import options


@dataclasses.dataclass(frozen=True)
class RunConfig(options.Section):
    agent: str = options.option("muzero", "learning algorithm")
    seed: int = options.option(0, "seed of everything random", minimum=0, maximum=2**31 - 1)
    deterministic: bool = options.option(False, "acting and training in lock step: the same bits every time on a CPU")
    max_env_steps: int = options.option(
        0,
        "end after this many training steps, resumes included; 0: no limit",
        unit="environment steps",
        minimum=0,
        resumable=True,
    )
    max_updates: int = options.option(
        0, "end after this many updates, resumes included; 0: no limit", unit="updates", minimum=0, resumable=True
    )
    max_seconds: float = options.option(
        0.0, "end this run after so long; a resume counts from 0; 0: no limit", unit="s", minimum=0, resumable=True
    )
    stop_at_return: float = options.option(
        math.inf, "end when an evaluation's mean return is at least this; inf: never", unit="return", resumable=True
    )

    def spent(self, num_updates: int, num_env_steps: int) -> str:
        """Returns the budget that so many updates or training steps use up, or ""."""
        if self.max_updates and num_updates >= self.max_updates:
            return f"--max_updates={self.max_updates}"
        if self.max_env_steps and num_env_steps >= self.max_env_steps:
            return f"--max_env_steps={self.max_env_steps}"
        return ""


@dataclasses.dataclass(frozen=True)
class EnvConfig(options.Section):
    id: str = options.option("catch", "catch | gym:ID | gym:module:ID | atari:GAME | spiel:GAME | remote")
    frame_size: int = options.option(96, "Atari: height and width of a frame", unit="pixels", minimum=16, maximum=210)
    frame_skip: int = options.option(
        4, "Atari: emulator frames an action is held, the last two max-pooled", unit="frames", minimum=1, maximum=64
    )
    sticky_actions: float = options.option(
        0.25, "Atari: probability that an emulator frame repeats the previous action", minimum=0, maximum=1
    )
    full_action_space: bool = options.option(True, "Atari: all 18 actions, not only those a game uses")
    noop_max: int = options.option(0, "Atari: at most so many no-op frames after a reset", unit="frames", minimum=0)
    life_loss: bool = options.option(False, "Atari: losing a life terminates the training episode")
    random_opening: int = options.option(
        0, "games of two players: training games begin with up to so many random moves", unit="moves", minimum=0
    )
    max_episode_frames: int = options.option(
        108_000, "Atari: an episode is truncated after this many emulator frames", unit="frames", minimum=1
    )


@dataclasses.dataclass(frozen=True)
class WorkerConfig(options.Section):
    num: int = options.option(
        1, "local training workers; 0: remote ones only", minimum=0, maximum=4096, resumable=True
    )
    num_remote: int = options.option(
        0,
        "training workers expected from other machines, for the automatic replay.num_slots",
        minimum=0,
        maximum=4096,
        resumable=True,
    )
    envs_per_group: int = options.option(
        16, "environments that step together", minimum=1, maximum=4096, resumable=True
    )
    num_groups: int = options.option(
        2, "groups of a worker: one steps while the others wait", minimum=1, maximum=16, resumable=True
    )
    threads: int = options.option(
        options.AUTO, "Atari: emulator threads in a worker; 0: by the machine's cores", minimum=0, resumable=True
    )


@dataclasses.dataclass(frozen=True)
class TransportConfig(options.Section):
    listen: str = options.option(
        "", "HOST:PORT or unix:PATH; empty: a unix socket in the run directory", resumable=True
    )
    heartbeat_seconds: float = options.option(
        5.0, "workers renew their lease this often", unit="s", minimum=0.05, resumable=True
    )
    lease_seconds: float = options.option(
        15.0, "a silent worker's environments are abandoned after this", unit="s", minimum=0.1, resumable=True
    )
    keepalive_seconds: float = options.option(
        5.0, "HTTP/2 pings on a silent connection", unit="s", minimum=0.1, resumable=True
    )
    ping_timeout_seconds: float = options.option(
        5.0, "an unanswered ping ends the connection", unit="s", minimum=0.1, resumable=True
    )
    max_backoff_seconds: float = options.option(
        5.0, "longest pause between a local worker's attempts to reconnect", unit="s", minimum=0.05, resumable=True
    )
    max_workers: int = options.option(1024, "streams accepted at a time", minimum=1, resumable=True)
    token_file: str = options.option(
        "", "file with the workers' bearer token; needed where HOST is more than this machine", resumable=True
    )
    insecure: bool = options.option(
        False, "listen beyond this machine without a token: anybody may join", resumable=True
    )


@dataclasses.dataclass(frozen=True)
class TlsConfig(options.Section):
    cert_file: str = options.option(
        "", "PEM file with the learner's certificate chain: HOST:PORT speaks TLS alone", resumable=True
    )
    key_file: str = options.option("", "PEM file with the key of tls.cert_file, without a passphrase", resumable=True)


@dataclasses.dataclass(frozen=True)
class BatcherConfig(options.Section):
    max_batch: int = options.option(
        options.AUTO,
        "most environments in one acting batch; 0: all local ones of a role, at most 1024",
        minimum=0,
        resumable=True,
    )
    wait_microseconds: int = options.option(
        0, "a batch that is not full waits this long for more", unit="us", minimum=0, maximum=1_000_000, resumable=True
    )


@dataclasses.dataclass(frozen=True)
class ReplayConfig(options.Section):
    capacity: int = options.option(64_000, "training steps kept", unit="environment steps", minimum=64, sampled=True)
    num_slots: int = options.option(
        options.AUTO,
        "rings, one for each training environment; fixed for a run directory; 0: as many "
        "as local environments, at least 64 where workers are remote",
        minimum=0,
    )
    placement: str = options.option(
        "auto",
        "place of the observations: device; host: the machine's memory, read for each update "
        "meanwhile; auto: host where the device has no room",
        choices=("auto", "device", "host"),
        resumable=True,
        sampled=True,
    )
    min_steps: int = options.option(
        1_000, "steps stored before training starts", unit="environment steps", minimum=1, resumable=True, sampled=True
    )
    batch_size: int = options.option(256, "windows in one update", minimum=1, sampled=True)
    samples_per_insert: float = options.option(
        4.0, "windows trained on for each stored step", minimum=1e-3, resumable=True, sampled=True
    )
    tolerance: float = options.option(
        0.1,
        "half width of the samples-per-insert band, as a share of it",
        minimum=0,
        maximum=1,
        resumable=True,
        sampled=True,
    )
    priority_alpha: float = options.option(
        0.0, "steps are sampled in proportion to priority ^ alpha; 0: uniformly", minimum=0, maximum=1, sampled=True
    )
    priority_beta: float = options.option(
        0.4, "factor of the loss: sampling probability ^ -beta; 1 removes the bias", minimum=0, maximum=1, sampled=True
    )
    priority_beta_updates: int = options.option(
        0, "updates in which beta grows linearly to 1; 0: it stays", unit="updates", minimum=0, sampled=True
    )
    priority_epsilon: float = options.option(
        1e-3, "added to every priority", unit="return", minimum=1e-6, sampled=True
    )


@dataclasses.dataclass(frozen=True)
class TrainingConfig(options.Section):
    publish_every: int = options.option(
        1, "acting takes the newest parameters every so many updates", unit="updates", minimum=1
    )
    max_in_flight: int = options.option(
        2,
        "device calls at a time: more of them hide the host's work, fewer shorten the wait for an action",
        minimum=1,
        maximum=8,
        resumable=True,
    )
    num_devices: int = options.option(
        options.AUTO, "local devices to use, data-parallel; 0: all", minimum=0, resumable=False
    )


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(options.Section):
    every_updates: int = options.option(
        500, "updates between evaluations; 0: none", unit="updates", minimum=0, resumable=True
    )
    episodes: int = options.option(20, "episodes of one evaluation", unit="episodes", minimum=1, resumable=True)
    num_envs: int = options.option(
        20, "environments that evaluate in parallel", minimum=1, maximum=4096, resumable=True
    )


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(options.Section):
    every_seconds: float = options.option(
        120.0,
        "time between checkpoints (not in deterministic mode); 0: only at the end",
        unit="s",
        minimum=0,
        resumable=True,
    )
    every_updates: int = options.option(
        1_000, "deterministic mode: updates between checkpoints", unit="updates", minimum=1
    )
    keep: int = options.option(3, "newest checkpoints kept", minimum=1, resumable=True)
    keep_every: int = options.option(
        0, "every so many checkpoints one is kept for good; 0: none", minimum=0, resumable=True
    )
    replay: str = options.option(
        "auto",
        "save the replay too: auto saves it up to replay_limit_bytes",
        choices=("auto", "on", "off"),
        resumable=True,
    )
    replay_limit_bytes: int = options.option(
        4 * 2**30, "auto saves a replay of at most this size", unit="B", minimum=0, resumable=True
    )


@dataclasses.dataclass(frozen=True)
class BucketConfig(options.Section):
    every_seconds: float = options.option(
        60.0, "run in a bucket: period of uploading metrics, logs and status", unit="s", minimum=0.1, resumable=True
    )
    lease_seconds: float = options.option(
        30.0,
        "run in a bucket: a learner without renewal of its lease for so long "
        "counts as dead; renewed three times as often",
        unit="s",
        minimum=1,
        resumable=True,
    )
    retry_seconds: float = options.option(
        120.0,
        "run in a bucket: failing requests are repeated for so long; then the next checkpoint tries again",
        unit="s",
        minimum=1,
        resumable=True,
    )


@dataclasses.dataclass(frozen=True)
class MetricsConfig(options.Section):
    every_seconds: float = options.option(
        10.0, "time between rows of metrics.jsonl and TensorBoard", unit="s", minimum=0.1, resumable=True
    )
    every_updates: int = options.option(100, "deterministic mode: updates between rows", unit="updates", minimum=1)
    tensorboard: bool = options.option(True, "write TensorBoard files into the run directory", resumable=True)
    port: int = options.option(
        -1,
        "serve metrics to Prometheus at http://HOST:PORT/metrics; 0: any free port; -1: off",
        minimum=-1,
        maximum=65535,
        resumable=True,
    )
    host: str = options.option("127.0.0.1", "address of metrics.port; 0.0.0.0: all of this machine's", resumable=True)
