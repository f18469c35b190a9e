"""Evaluates a run with --env=remote: episodes are played in the environments of a worker that joins."""

from __future__ import annotations

import dataclasses
import json
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from seedzero.acting.actors import agent_choice, saved_actors, saved_agents
from seedzero.acting.tables import scoring
from seedzero.config import configs, sections
from seedzero.core import env_ids, errors, types
from seedzero.monitoring.metrics import episodes
from seedzero.storage.checkpoints import run_dirs
from seedzero.transport import invitation, messages, security, servers


class Reports(NamedTuple):
    """Callbacks that show the user a message (from any thread) and the numbers of finished and expected episodes."""

    line: Callable[[str], None]
    progress: episodes.Progress


def evaluate(
    choice: agent_choice.AgentChoice, num_episodes: int, access: configs.Config, reports: Reports
) -> dict[str, Any]:
    """Listens for a worker, plays episodes in its environments, and returns what `scoring.evaluate` returns.

    It waits as long as there is no worker. If the worker is lost, its episodes are dropped and begin again with the
    next.

    Args:
      choice: a saved agent of a run with --env=remote.
      num_episodes: as in `scoring.evaluate`.
      access: this server uses its `transport.listen`, `token_file` and `insecure`, and its `tls`.

    Raises UsageError for another run, or an unusable address, token or certificate, and CheckpointError for an
    unreadable checkpoint.
    """
    config = _read_config(choice, access)
    spec = run_dirs.read_spec(choice.path)
    if spec is None:
        raise errors.UsageError(f"{choice.path} has no spec.json: no worker has joined the run yet; train it first")
    agents = saved_actors.load(choice, config, spec)
    # Requests are no larger than in training.
    num_envs = scoring.whole_games(min(num_episodes, scoring.MAX_ENVS, config.worker.envs_per_group), spec)
    host = Host(config.env, spec, num_envs, choice.seed, reports.line)
    secured = security.for_server(config.transport.token_file, config.tls)
    for text in security.warnings(config.transport, config.tls):
        reports.line(text)
    listening = servers.Server(host, config.transport, secured=secured)
    address, finished = listening.start(), False
    try:
        waits = invitation.waiting(config, " with the environment of the run")
        reports.line(f"{waits} {invitation.to_worker(config, address)}")
        result = _play(host, listening, agents, num_episodes, choice.most_steps(config), reports.progress)
        finished = True
    finally:
        listening.stop(finished=finished, reason="the evaluation is over")
    return episodes.with_error({**agents.saved.to_json(), **result.to_json()}, spec.num_seats(types.Role.EVALUATE))


def _read_config(choice: agent_choice.AgentChoice, access: configs.Config) -> configs.Config:
    """Returns the run's configuration with the address, token and certificate of this server."""
    saved, given = run_dirs.read_saved(choice.path), access.transport
    if saved.config.env.id != env_ids.REMOTE:
        raise errors.UsageError(
            f"--listen={given.listen} is for runs with --env=remote; {choice.path} was trained with "
            f"--env={saved.config.env.id}, which this machine makes itself: leave it out"
        )
    config = choice.config()
    same = {name: getattr(given, name) for name in ("listen", "token_file", "insecure")}
    return dataclasses.replace(config, transport=dataclasses.replace(config.transport, **same), tls=access.tls)


def _play(
    host: Host,
    listening: servers.Server,
    agents: saved_actors.RunAgents,
    num_episodes: int,
    max_steps: int,
    progress: episodes.Progress,
) -> episodes.Scores:
    """Acts for one worker after another until all episodes are played."""
    session_id = ""
    while True:
        request = host.wait()
        first, step = request.first, request.step
        slots = np.arange(len(first))
        if request.session_id != session_id:
            session_id = request.session_id
            actor = agents.actor(len(first), host.seed)
            seats = host.spec.num_seats(types.Role.EVALUATE)
            played = episodes.Played(slots, num_episodes, host.spec.tasks, max_steps=max_steps, num_seats=seats)
        played.record(slots, step, first)
        progress(played.num_finished, played.num_expected)
        if played.done:
            return played.result()
        listening.reply(request, actor.act(step, first), agents.saved.update)


class Host:
    """Handles the server's calls and takes one worker at a time; the playing thread calls `wait`."""

    def __init__(
        self, env: sections.EnvConfig, spec: types.EnvSpec, num_envs: int, seed: int, report: Callable[[str], None]
    ) -> None:
        """num_envs: most environments that step at the same time. report: shows the user a message."""
        self.spec, self.seed, self._env, self._num_envs, self._report = spec, seed, env, num_envs, report
        self._changed = threading.Condition()
        self._session_id = self._worker_id = ""
        self._request: messages.StepRequest | None = None  # A worker has one group, so there is at most one request.

    def wait(self) -> messages.StepRequest:
        """Waits for a worker's next step and returns it."""
        with self._changed:
            while self._request is None:
                self._changed.wait()
            request, self._request = self._request, None
            return request

    def assign(self, hello: messages.Hello) -> types.Assignment:
        """Handler: assigns environments to the only worker."""
        if env_ids.YOURS not in hello.environments:
            raise errors.SpecMismatch(
                f"this run has --env=remote and worker {hello.worker_id} brings no environment; start the "
                "worker that trained it"
            )
        if types.Role.EVALUATE not in hello.roles:
            raise errors.SpecMismatch(
                f"worker {hello.worker_id} only trains, and this is an evaluation; start it without --role=train"
            )
        if self._session_id:
            raise errors.SlotsExhausted(f"worker {self._worker_id} plays already; an evaluation takes one worker")
        num_envs = scoring.whole_games(min(self._num_envs, hello.max_envs), self.spec)
        if num_envs > hello.max_envs:
            raise errors.SpecMismatch(
                f"worker {hello.worker_id}: a game has {num_envs} agents, each an environment of its own, and "
                f"--num_envs={hello.max_envs} is less; start the worker with --num_envs={num_envs} or more"
            )
        self._session_id, self._worker_id = uuid.uuid4().hex, hello.worker_id
        settings = {**dataclasses.asdict(self._env.of_evaluation), "random_opening": 0}
        del settings["id"], settings["opponents"]  # Opponents are for games that this program makes itself.
        return types.Assignment(
            session_id=self._session_id,
            role=types.Role.EVALUATE,
            env=env_ids.YOURS,
            env_settings=json.dumps(settings),
            num_groups=1,
            envs_per_group=num_envs,
            seeds=saved_agents.seeds(self.seed, num_envs),
            indices=tuple(range(num_envs)),
        )

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        """Handler: checks that a new worker's environments match the run's."""
        run_dirs.check_equal_spec(spec, self.spec)
        self._report(f"worker {self._worker_id} joined")

    def step(self, request: messages.StepRequest) -> None:
        """Handler: receives a step of the worker."""
        with self._changed:
            self._request = request
            self._changed.notify()

    def end(self, session_id: str, reason: str) -> None:
        """Handler: forgets a worker that has left, so that another one may join."""
        with self._changed:
            self._request = None
        self._report(f"worker {self._worker_id} left: {reason}; waiting for another one")
        self._session_id = ""

    def status(self) -> Mapping[str, object]:
        """Handler: returns the server's state for `seedzero status`."""
        return {"evaluates": True, "workers": int(bool(self._session_id))}
