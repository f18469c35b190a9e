"""TorchRL: its inference server with the asynchronous batched collector, acting alone.

Three layouts, of which `layout` takes the one that was quickest in trials; all are in the class's documentation:

- slots: a process for each environment, which asks a server in a process of its own (`transport="auto"`);
- grouped: processes of several environments, which exchange by shared memory with a thread of the collector;
- threads: everything in one process.
"""

from __future__ import annotations

import functools
import json
import signal
import sys
from typing import Any

import mock_env
import small_network
import torch
from tensordict.nn import TensorDictModule
from torchrl.collectors import AsyncBatchedCollector
from torchrl.envs import GymWrapper
from torchrl.modules.inference_server import InferenceServerConfig

MOST_PROCESSES = 64
"""A process imports PyTorch and needs about 250 MB."""


def make_env(arguments: dict[str, Any]) -> GymWrapper:
    """Returns one environment."""
    env = mock_env.make(**arguments, stack=mock_env.STACK)
    return GymWrapper(env, categorical_action_encoding=True, device="cpu")


def make_policy(width: int, cores: int) -> TensorDictModule:
    """Returns the policy, where it acts."""
    torch.set_num_threads(cores)
    policy = small_network.Policy(width, mock_env.NUM_ACTIONS)
    return TensorDictModule(policy, in_keys=["observation"], out_keys=["action", "state_value"])


def layout(num_envs: int, waits: bool) -> dict[str, Any]:
    """Returns the collector's arguments for a layout."""
    if num_envs <= MOST_PROCESSES:
        return {"env_backend": "multiprocessing", "transport": "auto"}
    return {
        "env_backend": "multiprocessing",
        "env_exchange": "shm",
        "transport": "driver",
        "envs_per_worker": num_envs // MOST_PROCESSES,
    }


def main(job: dict[str, Any]) -> None:
    """Acts until it is ended."""
    num_envs = job["environments"]
    given = {"slots": {"env_backend": "multiprocessing", "transport": "auto"}, "threads": {"env_backend": "threading"}}
    collector = AsyncBatchedCollector(
        [functools.partial(make_env, job["env"])] * num_envs,
        policy_factory=functools.partial(make_policy, job["width"], job["cores"]),
        frames_per_batch=num_envs * job["rollout"],
        server_config=InferenceServerConfig(max_batch_size=num_envs, min_batch_size=1, timeout=0.001),
        **given.get(job.get("layout", ""), layout(num_envs, job["waits"])),
    )
    for _ in collector:
        pass


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves as by Ctrl-C, with all processes
    main(json.loads(sys.argv[1]))
