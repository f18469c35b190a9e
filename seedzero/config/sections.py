"""The sections that all agents share, with one frozen dataclass for each component."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from seedzero.config import families, options
from seedzero.core import infos, opponents, types

# Settings of a run with several learner hosts.
OF_A_PROCESS = ("cluster.index", "cluster.coordinator", "cluster.worker_address", "cluster.interface")
"""Settings of a process, which its run directory does not save."""
TOKEN = "SEEDZERO_HOSTS_TOKEN"
"""Variable with the token of hosts that one process started, so that no command line shows it to other users."""
ALL = -1
"""`cluster.index` of a process that starts all hosts on this machine."""


@dataclasses.dataclass(frozen=True)
class ClusterConfig(options.Section):
    ADVANCED = "interface join_seconds silence_seconds"

    num_hosts: int = options.on_resume(
        1,
        "learner hosts of the run, each a process of `seedzero train`; every other setting is for each host",
        low=1,
        high=64,
    )
    index: int = options.any_time(
        ALL,
        "number of this host, 0 to cluster.num_hosts - 1; -1: start all of them on this machine",
        low=ALL,
        high=63,
    )
    coordinator: str = options.any_time("", "HOST:PORT where all hosts meet; host 0 listens there, the others connect")
    ca_file: str = options.any_time(
        "", "PEM certificates of the authority that signed host 0's tls.cert_file, or `system`"
    )
    worker_address: str = options.any_time(
        "",
        "HOST:PORT by which workers reach this host (`seedzero worker --server=A,B`); empty: --listen",
    )
    interface: str = options.any_time(
        "",
        "network interface of this machine, such as eth1, by which the other hosts reach it to sum "
        "gradients on CPUs; empty: that of its connection to the coordinator",
    )
    join_seconds: float = options.any_time(
        60.0, "time within which all hosts must have met", "s", low=1, high=options.LONGEST_WAIT
    )
    silence_seconds: float = options.any_time(
        20.0,
        "a host that sends nothing for this long counts as dead; then all end and start again together",
        "s",
        low=3,
        high=math.inf,
    )


# The settings of evaluations during training.
@dataclasses.dataclass(frozen=True)
class EvaluationConfig(options.Section):
    ADVANCED = "num_envs video_every pauses_training"

    every_updates: int = options.any_time(
        500,
        "largest number of updates between evaluations; a baseline comes first, and a last one when a "
        "budget ends the run; 0: none",
        "updates",
        low=0,
    )
    every_seconds: float = options.any_time(
        30.0,
        "time from one evaluation to the next, at least four times as long as the last one took, unless "
        "every_updates comes first; 0, and in deterministic mode: only every_updates counts",
        "s",
        low=0,
        high=math.inf,
    )
    episodes: int = options.any_time(20, "episodes in one evaluation", "episodes", low=1)
    num_envs: int = options.any_time(
        20, "environments that evaluate in parallel, at most episodes and batcher.max_batch", low=1, high=4096
    )
    max_episode_steps: int = options.any_time(
        30_000, "an evaluation ends longer episodes here, and counts their rewards so far", "steps", low=1
    )
    video_every: int = options.any_time(
        0,
        "add a video to every Nth evaluation in TensorBoard; a process beside training plays an episode "
        "with the newest checkpoint; 0: none",
        "evaluations",
        low=0,
    )
    policy: str = options.at_creation(
        "auto",
        "how evaluations act, and saved agents by default: greedy, the best action; sample, a draw from the agent's "
        "policy; auto: sample in games of seats, else greedy",
        choices=("auto", "greedy", "sample"),
    )
    pauses_training: bool = options.any_time(
        False, "training pauses until an evaluation ends, instead of alternating with it; for short, quick episodes"
    )

    def mode(self, spec: types.EnvSpec) -> np.int8:
        """Returns how to act in environments of a spec: GREEDY or SAMPLE."""
        return spec.default_mode if self.policy == "auto" else types.MODES[self.policy]


@dataclasses.dataclass(frozen=True)
class RunConfig(options.Section):
    agent: str = options.at_creation("muzero", "learning algorithm, or your own as MODULE:OBJECT")
    init_from: str = options.at_creation(
        "",
        "start from the parameters of another run's newest checkpoint: RUN, or RUN:PLAYER for a player of a league; "
        "RUN is a directory or gs://BUCKET/PATH; empty: start from random parameters",
    )
    seed: int = options.at_creation(0, "seed of all random numbers", low=0, high=2**31 - 1)
    deterministic: bool = options.at_creation(
        False, "act and learn in lock step, so that a run repeats bit for bit on a CPU"
    )
    max_env_steps: int = options.any_time(
        0,
        "end after this many training steps, resumes included; 0: no limit",
        "environment steps",
        low=0,
        high=options.LARGEST_COUNT,
    )
    max_updates: int = options.any_time(
        0, "end after this many updates, resumes included; 0: no limit", "updates", low=0, high=options.LARGEST_COUNT
    )
    max_seconds: float = options.any_time(
        0.0,
        "end after this time and a last evaluation, which takes at most a tenth of it, or 10 s; each resume "
        "counts from 0; 0: no limit",
        "s",
        low=0,
        high=math.inf,
    )
    stop_at_return: float = options.any_time(
        math.inf, "end when an evaluation's mean return reaches this; inf: never", "return"
    )

    def has_all_steps(self, num_env_steps: int) -> bool:
        """Returns whether a number of training steps uses up the budget."""
        return 0 < self.max_env_steps <= num_env_steps

    def spent(self, num_updates: int, num_env_steps: int, owed: int = 0) -> str:
        """Returns the budget used up by a number of updates or training steps, or "".

        owed: how many updates a run makes before its last step ends it.
        """
        if self.max_updates and num_updates >= self.max_updates:
            return f"--max_updates={self.max_updates}"
        if self.has_all_steps(num_env_steps) and num_updates >= owed:
            return f"--max_env_steps={self.max_env_steps}"
        return ""


@dataclasses.dataclass(frozen=True)
class EnvConfig(options.Section):
    START = "max_episode_steps"
    ADVANCED = "action_mask game_state"

    id: str = options.at_creation("catch", families.FORMS)
    frame_size: int = options.at_creation(96, "Atari: height and width of a frame", "pixels", low=16, high=210)
    frame_skip: int = options.at_creation(
        4, "Atari, DMLab: frames for which an action is held; Atari max-pools the last two", "frames", low=1, high=64
    )
    sticky_actions: float = options.at_creation(
        0.25, "Atari: probability that an emulator frame repeats the previous action", low=0, high=1
    )
    full_action_space: bool = options.at_creation(True, "Atari: offer all 18 actions, not only the game's own")
    noop_max: int = options.at_creation(0, "Atari: largest number of no-op frames after a reset", "frames", low=0)
    life_loss: bool = options.at_creation(
        False, "Atari: a lost life terminates the training episode, so `episode_return` is the return of one life"
    )
    checkpoint_rewards: bool = options.at_creation(
        False,
        "Football: also reward 0.1 in training for each tenth of the way to the goal; evaluation counts only goals",
    )
    random_opening: int = options.at_creation(
        0, "games of two players: training games begin with up to this many random moves", "moves", low=0, high=40
    )
    by_turns: bool = options.at_creation(
        False,
        "games of two players with chance and no hidden information: a row is a whole game whose players "
        "take turns, as MuZero needs, instead of a seat",
    )
    opponents: str = options.at_creation(
        opponents.RANDOM,
        "games of two players: opponents of evaluations, separated by commas: random, mcts-N (a tree search of N "
        "simulations), gtp:COMMAND (a program that speaks the Go Text Protocol), roshambo:BOT or roshambo:all "
        "(rock-paper-scissors); their mean return selects the best checkpoint",
    )
    max_episode_steps: int = options.at_creation(
        0,
        f"{families.taking_text('max_episode_steps')}: truncate episodes after this many steps; 0: the "
        "environment's own limit, for Atari 108,000 frames",
        "environment steps",
        low=0,
    )
    kwargs: str = options.at_creation(
        "",
        f"{families.taking_text('kwargs')}: arguments of the environment, a JSON object such as "
        "'{\"continuous\": true}'; for dmlab, Lab's config and its renderer; for football, "
        'the players of both sides: \'{"left": 4, "right": 4}\'; empty: none',
    )
    wrappers: str = options.at_creation(
        "",
        "gym, python, popgym, openenv: Gymnasium's wrappers around the environment, innermost first, a JSON list such "
        'as \'["GrayscaleObservation", {"ResizeObservation": {"shape": [64, 64]}}]\'; empty: none. envpool: '
        "only BoundAction and FilterObservation",
    )
    info_keys: str = options.any_time(
        "",
        f"{families.taking_text('info_keys')}: keys of an episode's last info to report as means over episodes, "
        "separated by commas; numbers in info['metrics'] and info['is_success'] are always reported",
    )
    action_mask: bool = options.at_creation(
        True,
        f"{', '.join(families.READERS['env.action_mask'])}: take only legal actions if the environment exposes an "
        "action mask: a part action_mask of its observations, a method action_masks(), or info['action_mask']",
    )
    game_state: bool = options.at_creation(
        False, "pgx: workers also send the game's state, for an agent that searches by the game's rules"
    )
    joint_observation: bool = options.at_creation(
        False,
        "pettingzoo: workers send the joint observation of all agents, too, which --ppo.central_value reads",
    )
    level_cache: str = options.any_time(
        "", "DMLab: DIR or gs://BUCKET/PATH that keeps compiled levels for all workers and runs; empty: none"
    )
    level_seeds: int = options.at_creation(
        0, "DMLab: number of different seeds of episodes, so that a cache can hold all levels; 0: no limit", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        infos.keys(self.info_keys)

    @property
    def max_episode_frames(self) -> int:
        """Frames after its no-ops at which Atari truncates an episode; default: half an hour (Machado et al. 2018)."""
        return self.max_episode_steps * self.frame_skip or 108_000

    @property
    def of_evaluation(self) -> EnvConfig:
        """The settings of evaluating environments: whole games, and only the game's rewards."""
        return dataclasses.replace(self, life_loss=False, checkpoint_rewards=False)


@dataclasses.dataclass(frozen=True)
class WorkerConfig(options.Section):
    START = "envs_per_group"
    ADVANCED = "threads close_seconds"

    num: int = options.any_time(1, "local training workers; 0: only remote ones", low=0, high=4096)
    num_remote: int = options.any_time(
        0,
        "training workers expected from other machines; a new run has room for them, and they share replay.capacity",
        low=0,
        high=4096,
    )
    envs_per_group: int = options.any_time(16, "environments that step together", low=1, high=4096)
    num_groups: int = options.any_time(
        2, "groups in a worker: one steps while others wait; unless given, as many as hide a slow link", low=1, high=16
    )
    threads: int = options.any_time(
        options.AUTO, "Atari, EnvPool: threads in a worker; 0: by the machine's cores", low=0
    )
    close_seconds: float = options.any_time(
        10.0,
        "when a worker ends, its environments have this long to close; then they are killed",
        "s",
        low=0.1,
        high=options.LONGEST_WAIT,
    )

    @property
    def num_envs(self) -> int:
        """Number of environments of all local workers."""
        return self.num * self.num_groups * self.envs_per_group


@dataclasses.dataclass(frozen=True)
class TransportConfig(options.Section):
    ADVANCED = "max_workers max_message_bytes"

    listen: str = options.any_time(
        "", "address to listen on, HOST:PORT or unix:PATH; empty: a unix socket in the run directory"
    )
    lease_seconds: float = options.any_time(
        15.0, "abandon a worker's environments after this long without a message", "s", low=0.1, high=math.inf
    )
    step_seconds: float = options.any_time(
        600.0,
        "a worker loses its session if it takes longer than this to make its environments, or for one step; "
        "0: no limit",
        "s",
        low=0,
        high=math.inf,
    )
    max_workers: int = options.any_time(1024, "workers served at the same time", low=1)
    max_message_bytes: int = options.any_time(
        64 * 2**20,
        "largest message of a worker; the environments' spec sets a lower limit",
        "bytes",
        low=4 * 2**20,
        high=2**31 - 1,
    )
    token_file: str = options.any_time(
        "", "file with the token that workers must present; needed unless HOST is this machine"
    )
    insecure: bool = options.any_time(False, "listen beyond this machine without a token, so that anybody may join")
    compression: str = options.any_time(
        "off",
        "auto: workers on other machines compress their observations, without loss, where that shortens a slow link's "
        "round trips",
        choices=("off", "auto"),
    )

    @property
    def limit_seconds(self) -> float:
        """Seconds within which environments must be made and must step; infinity for no limit."""
        return self.step_seconds or math.inf

    @property
    def beat_seconds(self) -> float:
        """Seconds between heartbeats, and between pings of a silent connection; a ping's answer, and the next attempt
        to reconnect, come within as much."""
        return min(5.0, self.lease_seconds / 3)


@dataclasses.dataclass(frozen=True)
class TlsConfig(options.Section):
    cert_file: str = options.any_time(
        "", "PEM file with the learner's certificate chain; HOST:PORT then speaks only TLS"
    )
    key_file: str = options.any_time("", "PEM file with the key of tls.cert_file, without a passphrase")


@dataclasses.dataclass(frozen=True)
class ServeConfig(options.Section):
    token_file: str = options.any_time("", "file with the token that lets `seedzero serve --learner` fetch parameters")


@dataclasses.dataclass(frozen=True)
class BatcherConfig(options.Section):
    ADVANCED = "max_batch"

    max_batch: int = options.any_time(
        options.AUTO, "largest number of environments in one acting batch; 0: replay.num_slots, at most 1024", low=0
    )


@dataclasses.dataclass(frozen=True)
class ReplayConfig(options.Section):
    START = "min_steps samples_per_insert"
    ADVANCED = "num_slots num_envs placement final_updates priority_beta importance_min"

    capacity: int = options.at_creation(
        64_000, "training steps kept in the replay buffer", "environment steps", low=64, high=options.LARGEST_COUNT
    )
    num_slots: int = options.at_creation(
        options.AUTO,
        "largest number of training environments at the same time, each with a ring of its own; a run keeps it. 0, "
        "usually right: those of --workers and --worker.num_remote; without the latter, one more worker if others may "
        "join, or four if there are no local ones",
        low=0,
    )
    num_envs: int = options.at_creation(
        options.AUTO,
        "number of environments that share replay.capacity; further ones, up to replay.num_slots, get rings of the "
        "same length. It starts no environments; a run keeps it. 0: those of --workers and --worker.num_remote, or "
        "all if these are none",
        low=0,
    )
    placement: str = options.any_time(
        "auto",
        "memory for observations. device: the accelerator's; host: the machine's, copied to the device for "
        "each update; auto: host if the device has no room",
        choices=("auto", "device", "host"),
    )
    min_steps: int = options.any_time(1_000, "steps stored before training starts", "environment steps", low=1)
    batch_size: int = options.at_creation(256, "windows in one update", low=1)
    samples_per_insert: float = options.any_time(4.0, "windows trained on for each stored step", low=1e-3, high=1e6)
    final_updates: int = options.any_time(
        0,
        "updates from the replay buffer after the last of --max_env_steps (EfficientZero V2: 20000)",
        "updates",
        low=0,
    )
    priority_alpha: float = options.at_creation(
        0.0, "sample steps in proportion to priority ^ alpha; 0: uniformly", low=0, high=1
    )
    priority_beta: float = options.on_resume(
        0.4, "weight the loss by sampling probability ^ -beta; 1 removes the bias", low=0, high=1
    )
    importance_min: float = options.on_resume(
        0.0, "smallest weight by priority_beta, as a fraction of the largest", low=0, high=1
    )

    @property
    def num_sharing(self) -> int:
        """Environments that share the capacity."""
        return self.num_envs or self.num_slots


@dataclasses.dataclass(frozen=True)
class TrainingConfig(options.Section):
    ADVANCED = "publish_every max_in_flight acting_devices"

    publish_every: int = options.on_resume(1, "updates between copies of the parameters for acting", "updates", low=1)
    max_in_flight: int = options.any_time(
        2,
        "device calls in flight: more hide the host's work, fewer shorten the wait for an action",
        low=1,
        high=8,
    )
    num_devices: int = options.on_resume(options.AUTO, "local devices to use, data-parallel; 0: all", low=0)
    acting_devices: int = options.on_resume(
        0, "number of devices that act and hold the rings, while the others learn; 0: all do both", low=0
    )


@dataclasses.dataclass(frozen=True)
class CheckpointConfig(options.Section):
    ADVANCED = "every_updates keep_every"

    every_seconds: float = options.any_time(
        120.0,
        "time between checkpoints; 0: only at the end. In deterministic mode every_updates counts instead",
        "s",
        low=0,
        high=math.inf,
    )
    every_updates: int = options.at_creation(
        1_000,
        "in deterministic mode only: updates between checkpoints, instead of every_seconds; rows of metrics come ten "
        "times as often",
        "updates",
        low=1,
    )
    keep: int = options.any_time(3, "number of newest checkpoints to keep", low=1)
    keep_every: int = options.any_time(0, "keep every Nth checkpoint permanently; 0: none", low=0)
    replay: str = options.any_time(
        "auto", "save the replay buffer, too; auto: if it has at most 4 GiB", choices=("auto", "on", "off")
    )


@dataclasses.dataclass(frozen=True)
class BucketConfig(options.Section):
    ADVANCED = "lease_seconds"

    lease_seconds: float = options.any_time(
        30.0,
        "run in a bucket: a learner that does not renew its lease for this long counts as dead; it renews "
        "every third of this, uploads logs and metrics at twice this, and repeats failing requests for four "
        "times this",
        "s",
        low=1,
        high=options.LONGEST_WAIT,
    )

    @property
    def every_seconds(self) -> float:
        """Seconds between uploads of metrics, logs and status."""
        return 2 * self.lease_seconds

    @property
    def retry_seconds(self) -> float:
        """Seconds for which failing requests are repeated."""
        return 4 * self.lease_seconds


@dataclasses.dataclass(frozen=True)
class MetricsConfig(options.Section):
    ADVANCED = "host"

    every_seconds: float = options.any_time(
        10.0, "time between rows of metrics.jsonl and TensorBoard", "s", low=0.1, high=math.inf
    )
    console: str = options.any_time(
        "", "more metrics on the console, by their names, such as epsilon,loss; empty: none"
    )
    tensorboard: bool = options.any_time(True, "write TensorBoard files into the run directory")
    wandb: str = options.any_time(
        "", "also send metrics to Weights & Biases, as a run of this PROJECT or ENTITY/PROJECT; empty: off"
    )
    port: int = options.any_time(
        -1, "serve metrics to Prometheus at http://HOST:PORT/metrics; 0: any free port; -1: off", low=-1, high=65535
    )
    host: str = options.any_time("127.0.0.1", "address for --metrics_port; 0.0.0.0: all addresses of this machine")
