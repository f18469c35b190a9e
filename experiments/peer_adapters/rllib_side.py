"""RLlib: the environment runners of APPO, acting alone, each with its own copy of the network."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

# No token in the home directory; and the default niceness, 15, suffers more than others from work beside it.
os.environ.update(RAY_AUTH_MODE="disabled", RAY_worker_niceness="0")

import mock_env
import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.appo.torch.default_appo_torch_rl_module import DefaultAPPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.registry import register_env

MOST_RUNNERS = 8
"""A runner imports PyTorch and RLlib and needs about 500 MB."""


class Small(DefaultAPPOTorchRLModule):
    """RLlib's own network, whose convolutions are padded as JAX's SAME, for frames [B, 84, 84, 4] uint8."""

    def _forward(self, batch: dict[str, Any], **more: Any) -> Any:
        return super()._forward({**batch, Columns.OBS: batch[Columns.OBS].float().mul_(1 / 255)}, **more)


def main(job: dict[str, Any]) -> None:
    """Acts until it is ended."""
    num_envs = job["environments"]
    num_runners = min(MOST_RUNNERS, num_envs) if job["waits"] else job["cores"]
    register_env("mock", lambda arguments: mock_env.make(**arguments, stack=mock_env.STACK, channels_last=True))
    ray.init(num_cpus=num_runners + 1, include_dashboard=False, _temp_dir=job["folder"])
    config = (
        APPOConfig()
        .environment("mock", env_config=job["env"])
        .env_runners(
            num_env_runners=num_runners,
            num_envs_per_env_runner=num_envs // num_runners,
            rollout_fragment_length=job["rollout"],
            num_cpus_per_env_runner=1,
        )
        .learners(num_learners=0, num_aggregator_actors_per_learner=0)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=Small,
                model_config=DefaultModelConfig(
                    conv_filters=[(16, 8, 4), (16, 4, 2), (16, 3, 1)],
                    conv_activation="relu",
                    head_fcnet_hiddens=[job["width"] // 2],
                    head_fcnet_activation="relu",
                ),
            )
        )
    )
    runners = config.build_algo().env_runner_group
    while True:
        runners.foreach_env_runner_async_fetch_ready("sample", tag="sample", timeout_seconds=0.01)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves as by Ctrl-C, with all processes
    main(json.loads(sys.argv[1]))
