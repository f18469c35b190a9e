"""Sample Factory: its APPO, or its sampler alone by `SyncSamplingAPI`, as in sf_examples/sampler.

Asynchronous, with double buffering, which are its defaults. It has a worker for each core, as by default, where steps
take no time, and enough of them to hide the steps where they do.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import mock_env
import small_network
import torch
from sample_factory.algo.sampling.simplified_sampling_api import SyncSamplingAPI
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.env_info import obtain_env_info_in_a_separate_process
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.encoder import Encoder
from sample_factory.train import run_rl

MOST_WORKERS = 32


class Small(Encoder):
    """The torso; frames arrive divided by 255."""

    def __init__(self, cfg: Any, obs_space: Any) -> None:
        super().__init__(cfg)
        self.torso = torch.jit.script(small_network.torso(cfg.encoder_conv_mlp_layers[0]))
        self.width = cfg.encoder_conv_mlp_layers[0]

    def forward(self, seen: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.torso(seen["obs"])

    def get_out_size(self) -> int:
        return self.width


def make_env(name: str, cfg: Any = None, _env_config: Any = None, render_mode: str | None = None) -> mock_env.MockEnv:
    """Makes an environment; its arguments are in the configuration."""
    return mock_env.make(**json.loads(cfg.mock), stack=mock_env.STACK)


def configuration(job: dict[str, Any]) -> Any:
    """Returns Sample Factory's configuration of a job."""
    num_envs = job["environments"]
    num_workers = min(num_envs // 2, MOST_WORKERS) if job["waits"] else min(job["cores"], num_envs // 2)
    batch = num_envs * job["rollout"] // job["minibatches"]
    words = [
        "--algo=APPO",
        "--env=mock",
        "--experiment=mock",
        f"--train_dir={job['folder']}",
        f"--mock={json.dumps(job['env'])}",
        "--device=cpu",
        f"--num_workers={num_workers}",
        f"--num_envs_per_worker={num_envs // num_workers}",
        f"--rollout={job['rollout']}",
        f"--batch_size={batch}",
        f"--num_batches_per_epoch={job['minibatches']}",
        f"--num_epochs={job['epochs']}",
        f"--encoder_conv_mlp_layers={job['width']}",
        "--use_rnn=False",
        "--nonlinearity=relu",
        "--normalize_input=False",
        "--normalize_returns=False",
        "--obs_scale=255",
        "--decorrelate_envs_on_one_worker=False",
        "--heartbeat_interval=1000",  # a pause between two measurements is not a failure
        "--heartbeat_reporting_interval=10000",
        "--save_every_sec=100000",
    ]
    parser, _ = parse_sf_args(words)
    parser.add_argument("--mock", help="arguments of the environment, a JSON object")
    return parse_full_cfg(parser, words)


def main(job: dict[str, Any]) -> None:
    """Acts, or trains, until it is ended."""
    register_env("mock", make_env)
    global_model_factory().register_encoder_factory(Small)
    cfg = configuration(job)
    if job["kind"] == "training":
        run_rl(cfg)
        return
    sampler = SyncSamplingAPI(cfg, obtain_env_info_in_a_separate_process(cfg))
    sampler.start()
    while True:
        sampler.get_trajectories_sync()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves as by Ctrl-C, with all processes
    main(json.loads(sys.argv[1]))
