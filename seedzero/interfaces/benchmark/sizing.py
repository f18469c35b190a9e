"""Measures what a frame (a step of an environment) costs on this machine, and what N frames a second need.

Processor microseconds are of whole processes, so other load on the machine changes them little. A message costs a
constant and a part for each of its frames, on both sides of the wire: a line through two sizes of groups. The server
answers at once, so its figure has neither the device loop nor what reading batches costs.
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import numpy as np

from seedzero.config import configs
from seedzero.core import env_ids, types
from seedzero.envs import env_base, registry
from seedzero.interfaces.benchmark import environments, players, subjects, transport
from seedzero.transport import client, codec, messages

TARGETS = (10_000, 100_000, 1_000_000)
"""Frames per second."""
SIZES = (16, 128)
"""Environments of the groups that are measured on the wire."""
ACTING_ROWS = (32, 128)
PRESET, AGENT = "atari", "ppo"


class Costs(NamedTuple):
    """What one frame costs, and groups of environments as a worker has them."""

    environment_us: float  # processor time of a worker's environments
    worker_us: float  # of a worker's messages
    server_us: float  # of the learner's server, whose thread is one
    wire_bytes: float  # both ways, uncompressed
    acted_per_second: float  # frames that the devices here act on
    envs_a_worker_core: int


def run(preset: str = "", settings: subjects.Settings | None = None, *, seconds: float = 24.0) -> dict[str, Any]:
    """Returns this machine's figures, and a row for each of TARGETS.

    It measures PPO's part of a preset, or the agent of the settings. seconds: to measure, without compilation.
    """
    preset = preset or PRESET
    chosen: subjects.Settings = {"run.agent": AGENT, **(settings or {})}
    subject = subjects.make(preset, chosen, players.AGENTS)
    spec, size = subject.setup.spec, subject.config.worker.envs_per_group
    server, worker = _lines(spec, seconds / 3)
    acted = players.run(preset, chosen, players=(1,), rows=ACTING_ROWS, seconds=seconds / 3)["rows"]
    costs = Costs(
        environment_us=_environment_us(subject.config, seconds / 3),
        worker_us=worker[0] / size + worker[1],
        server_us=server[0] / size + server[1],
        wire_bytes=_wire_bytes(spec, size),
        acted_per_second=max(row["rows_per_second"] for row in acted),
        envs_a_worker_core=subject.config.worker.num_groups * size,
    )
    return {
        **subjects.facts(subject),
        "agent": subject.config.run.agent,
        "environment": subject.config.env.id,
        "observation_bytes": spec.observation_bytes,
        "environments_a_group": size,
        "server_us_a_message": server[0],
        "server_us_a_frame": server[1],
        "worker_us_a_message": worker[0],
        "worker_us_a_frame": worker[1],
        "environment_us_a_frame": costs.environment_us,
        **{f"acted_per_second_of_{row['rows']}": row["rows_per_second"] for row in acted},
        "frames_per_second_of_a_worker_core": 1e6 / (costs.environment_us + costs.worker_us),
        "frames_per_second_of_the_server": 1e6 / costs.server_us,
        "rows": [needs(target, costs) for target in TARGETS],
    }


def needs(frames_per_second: float, costs: Costs) -> subjects.Row:
    """Returns what a number of frames a second needs. acting_machines: whose devices act; training needs more."""
    cores = frames_per_second * (costs.environment_us + costs.worker_us) / 1e6
    return {
        "frames_per_second": int(frames_per_second),
        "environments": math.ceil(cores) * costs.envs_a_worker_core,
        "worker_cores": math.ceil(cores),
        "network_mbit_per_second": 8 * frames_per_second * costs.wire_bytes / 1e6,
        "server_threads": frames_per_second * costs.server_us / 1e6,
        "acting_machines": frames_per_second / costs.acted_per_second,
    }


def _wire_bytes(spec: types.EnvSpec, num_envs: int) -> float:
    """Returns the bytes of a frame and its action in messages of a group, without HTTP/2's and TCP's own."""
    mask = np.ones((num_envs, spec.num_actions), bool) if spec.has_action_mask else None
    blank = np.zeros((num_envs, *spec.observation_shape), spec.observation_dtype)
    step = types.EnvStep.first(blank)._replace(action_mask=mask)
    actions = codec.encode_actions(1, 1_000, np.zeros((num_envs, *spec.action_shape), np.int32), 1_000)
    return (len(codec.encode_step(1, 1_000, step)) + len(actions)) / num_envs


def _environment_us(config: configs.Config, seconds: float) -> float:
    """Returns the processor time of a step of one environment."""
    size = config.worker.envs_per_group
    with env_base.closing(registry.make(config.env.id, config.env, size, threads=1)) as group:
        step = environments.stepping([group], [group.reset(range(size))])
        return 1e6 * _processor_seconds(step, seconds) / size


def _processor_seconds(call: Any, seconds: float) -> float:
    """Returns the processor time of one of the calls that fit into `seconds`."""
    call()
    began, used, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - began < seconds:
        call()
        count += 1
    return (time.process_time() - used) / count


def _lines(spec: types.EnvSpec, seconds: float) -> list[tuple[float, float]]:
    """Returns microseconds a message and a frame, of the server and of a worker."""
    found = [_message_us(spec.observation_bytes, size, seconds / len(SIZES)) for size in SIZES]
    few, many = SIZES
    slopes = [(high - low) / (many - few) for low, high in zip(*found, strict=True)]
    return [(max(0.0, low - slope * few), slope) for low, slope in zip(found[0], slopes, strict=True)]


def _message_us(observation_bytes: int, num_envs: int, seconds: float) -> tuple[float, float]:
    """Returns the processor microseconds of a message of a group, of the server and of the worker."""
    with transport.process(transport.serve_real, num_envs) as server:
        arguments = (str(transport.receive(server)), num_envs, observation_bytes)
        with transport.process(_work, *arguments) as worker:
            transport.send(worker, transport.WARM_UP_SECONDS)
            transport.receive(worker, server)
            transport.send(server, None)
            before = float(transport.receive(server))
            transport.send(worker, seconds)
            count, used = transport.receive(worker, server)
            transport.send(server, None)
            return 1e6 * (float(transport.receive(server)) - before) / count, 1e6 * used / count


def _work(pipe: transport.Pipe, address: str, num_envs: int, observation_bytes: int) -> None:
    """Sends one step after the other; answers seconds with the number of steps and its own processor time."""
    hello = messages.Hello("benchmark", "", (types.Role.TRAIN,), (env_ids.YOURS,), num_envs)
    steps = transport.fake_steps(num_envs, observation_bytes)
    with client.Client(address, hello) as learner:
        learner.join()
        learner.start(types.EnvSpec((observation_bytes,), "uint8", transport.NUM_ACTIONS))
        for seconds in transport.asked(pipe):
            began, used, count = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - began < seconds:
                learner.send(0, next(steps))
                learner.receive()
                count += 1
            pipe.send((count, time.process_time() - used))
