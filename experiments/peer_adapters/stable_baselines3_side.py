"""Stable-Baselines3: PPO on a `SubprocVecEnv`, a process for each environment; or the policy alone, by `predict`.

Processes are forked, as its documents allow, before PyTorch starts threads: with the default, `forkserver`, each of
them would import PyTorch again, and 256 of them need more memory than a small machine has.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
from typing import Any

import gymnasium
import mock_env
import small_network
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import SubprocVecEnv


class Features(BaseFeaturesExtractor):
    """The torso; frames arrive divided by 255."""

    def __init__(self, observation_space: gymnasium.Space[Any], width: int) -> None:
        super().__init__(observation_space, width)
        self.torso = small_network.torso(width)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.torso(frames)


def main(job: dict[str, Any]) -> None:
    """Acts, or trains, until it is ended."""
    make = functools.partial(mock_env.make, **job["env"], stack=mock_env.STACK)
    envs = SubprocVecEnv([make] * job["environments"], start_method="fork")
    torch.set_num_threads(job["cores"])
    model = PPO(
        "CnnPolicy",
        envs,
        n_steps=job["rollout"],
        batch_size=job["environments"] * job["rollout"] // job["minibatches"],
        n_epochs=job["epochs"],
        policy_kwargs={
            "features_extractor_class": Features,
            "features_extractor_kwargs": {"width": job["width"]},
            "net_arch": [],
        },
        device="cpu",
    )
    if job["kind"] == "training":
        model.learn(total_timesteps=10**9)
    seen = envs.reset()
    while True:
        actions, _ = model.predict(seen, deterministic=False)
        seen = envs.step(actions)[0]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves as by Ctrl-C, with all processes
    main(json.loads(sys.argv[1]))
