"""Measures how many steps a second environments take through the real server and worker client, and without them.

One worker process has both: groups of environments that it steps in turn by random actions, and as many groups whose
steps go to a server that answers at once with random actions. Short slices with and without the wire alternate, so
that other load on the machine affects both equally. The server is a separate process, as a learner is.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from seedzero.config import combinations, configs, machines, options, presets, sections
from seedzero.core import env_ids, types
from seedzero.envs import env_base, registry
from seedzero.interfaces.benchmark import transport
from seedzero.transport import client, messages

_NUM_ACTIONS = 64
_SETTINGS = sections.TransportConfig(listen="127.0.0.1:0", lease_seconds=600.0)
"""A worker does not step for the server while its other environments are measured; its session must not end then."""


def run(
    preset: str = "", settings: Mapping[str, options.Value | str] | None = None, *, seconds: float = 12.0
) -> dict[str, Any]:
    """Returns medians over the slices, for all environments together, with and without the wire.

    It measures worker.envs_per_group environments of env.id in each of worker.num_groups groups, by default of Catch.
    share_of_alone: median over the pairs of slices.
    """
    base_config = presets.get(preset) if preset else configs.Config()
    config = configs.override(base_config, settings or {})
    spec = registry.spec(config.env)
    config, _ = combinations.imply_by_environment(config, spec, explicit=set(settings or ()))
    threads = config.worker.threads if config.worker.threads != options.AUTO else machines.num_cores()
    size = (config.worker.num_groups, config.worker.envs_per_group)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(transport.process(_serve, spec, *size))
        arguments = (transport.receive(server), config.env, threads, *size)
        worker = stack.enter_context(transport.process(_work, *arguments))

        def measure(kind: str, length: float) -> float:
            transport.send(worker, (kind, length))
            return float(transport.receive(worker, server))

        wire, alone, share = transport.alternate(measure, "wire", "alone", seconds)
    return {
        "environment": config.env.id,
        "steps_per_second": wire,
        "alone_steps_per_second": alone,
        "share_of_alone": share,
        "environments": size[0] * size[1],
        "groups": size[0],
        "threads": threads,
        "observation_bytes": spec.observation_bytes,
        "cores": machines.num_cores(),
    }


def _actions(spec: types.EnvSpec, num_envs: int) -> Iterator[np.ndarray]:
    """Returns an endless cycle of random actions, which `_legal` makes legal."""
    rng = np.random.default_rng([0, 1])  # different from the environments' seeds, which are 0, 1, ...
    shape = (_NUM_ACTIONS, num_envs, *spec.action_shape)
    if spec.is_continuous:
        low, high = spec.action_bounds
        return itertools.cycle(rng.uniform(low, high, shape).astype(np.float32))
    return itertools.cycle(rng.integers(spec.num_actions, size=shape).astype(np.int32))


def _legal(actions: np.ndarray, step: types.EnvStep) -> np.ndarray:
    """Returns the actions, with each illegal one replaced by the next legal one, cyclically."""
    if step.action_mask is None:
        return actions
    num_actions = step.action_mask.shape[1]
    further = (np.arange(num_actions) - actions[:, np.newaxis]) % num_actions
    nearest: np.ndarray = np.where(step.action_mask, further, num_actions).argmin(axis=1)
    return nearest.astype(np.int32)


# --- server --------------------------------------------------------------------------------------------------------


def _serve(pipe: transport.Pipe, spec: types.EnvSpec, num_groups: int, num_envs: int) -> None:
    actions = _actions(spec, num_envs)
    learner = transport.InstantLearner(_SETTINGS, num_groups, num_envs, lambda step: _legal(next(actions), step))
    learner.serve(pipe)


# --- worker --------------------------------------------------------------------------------------------------------


def _work(
    pipe: transport.Pipe, address: str, env: sections.EnvConfig, threads: int, num_groups: int, num_envs: int
) -> None:
    made = [registry.make(env.id, env, num_envs, threads=threads) for _ in range(2 * num_groups)]
    groups, others = made[:num_groups], made[num_groups:]
    hello = messages.Hello("benchmark", "", (types.Role.TRAIN,), (env_ids.YOURS,), num_groups * num_envs)
    with client.Client(address, hello) as learner:
        learner.join()
        steps = [group.reset(range(num_envs)) for group in groups]
        other_steps = [group.reset(range(num_envs)) for group in others]
        learner.start(groups[0].spec)
        for index, step in enumerate(steps):
            learner.send(index, step)
        kinds: Mapping[str, Callable[[], None]] = {
            "wire": lambda: _step_by_wire(learner, groups),
            "alone": stepping(others, other_steps),
        }
        for kind, seconds in transport.asked(pipe):
            pipe.send(num_envs * transport.calls_per_second(kinds[kind], seconds))


def _step_by_wire(learner: client.Client, groups: list[env_base.VectorEnv]) -> None:
    event = learner.receive()
    assert isinstance(event, messages.Actions)
    learner.send(event.group, groups[event.group].step(event.actions))


def stepping(groups: list[env_base.VectorEnv], steps: list[types.EnvStep]) -> Callable[[], None]:
    """Returns a call that steps the groups in turn. steps: each group's newest step, replaced in place."""
    turns, actions = itertools.cycle(range(len(groups))), _actions(groups[0].spec, groups[0].num_envs)

    def step() -> None:
        turn = next(turns)
        steps[turn] = groups[turn].step(_legal(next(actions), steps[turn]))

    return step
