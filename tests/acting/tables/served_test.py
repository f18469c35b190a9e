"""Evaluation in a worker's environments: a real server and worker, and an agent whose actions are known."""

from __future__ import annotations

import dataclasses
import pathlib
import queue
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import policies
import pytest
import scaled_catch

from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.acting.tables import served
from seedzero.agents import base
from seedzero.config import configs, presets, worker_options
from seedzero.core import env_ids, errors, types
from seedzero.envs import catch
from seedzero.storage.checkpoints import run_dirs
from seedzero.transport import messages
from seedzero.worker import worker

ACCESS = configs.override(configs.Config(), {"env.id": "remote", "worker.num": 0, "listen": "127.0.0.1:0"})
WAITING = "waiting for a worker with the environment of the run: "


class Wide(catch.Catch):
    """Environments with one more action than the run's."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.spec = dataclasses.replace(self.spec, num_actions=4, action_names=())


def _agent() -> base.Agent:
    """Never moves."""

    def act(params: Any, memory: jax.Array, inputs: base.Inputs, key: jax.Array) -> tuple[jax.Array, base.Outputs]:
        return memory, base.Outputs(jnp.ones_like(inputs.slot), {})

    return policies.stub(act)


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A run with --env=remote, whose agent never moves."""
    config = configs.override(presets.get("catch"), {"env.id": env_ids.REMOTE})
    with run_dirs.open_run_dir(tmp_path / "run", config, preset="catch", given={}) as opened:
        spec = catch.Catch(1).spec
        run_dirs.write_spec(opened.path, spec)
        saved = saved_agents.SavedAgent(_agent(), (), 7, "last", config, spec)
        monkeypatch.setattr(saved_agents, "load", lambda *args: saved)
        return opened.path


class Evaluating:
    """An evaluation on a thread of its own, and what it reports."""

    def __init__(self, path: pathlib.Path, num_episodes: int) -> None:
        self.reports: queue.Queue[str] = queue.Queue()
        self.found: dict[str, Any] = {}
        self.progress: list[tuple[int, int]] = []

        def play() -> None:
            reports = served.Reports(self.reports.put, lambda *numbers: self.progress.append(numbers))
            self.found.update(served.evaluate(agent_choice.AgentChoice(path, seed=3), num_episodes, ACCESS, reports))

        self._thread = threading.Thread(target=play, daemon=True)
        self._thread.start()
        self.address = self.next_report().removeprefix(WAITING).rpartition("--server=")[2]

    def next_report(self) -> str:
        return self.reports.get(timeout=600)

    def join(self) -> dict[str, Any]:
        self._thread.join(timeout=600)
        assert not self._thread.is_alive()
        return self.found

    def work(self, env_factory: worker.EnvFactory) -> int:
        """Runs a worker to its end; returns its exit code."""
        return worker.run(worker_options.WorkerOptions(self.address), env_factory=env_factory)


def test_the_episodes_are_played_in_the_environments_of_the_worker_that_fits(path: pathlib.Path) -> None:
    evaluating = Evaluating(path, 5)
    assert evaluating.work(Wide) == 1
    assert "num_actions is 4, expected 3" in evaluating.next_report()
    assert evaluating.work(catch.Catch) == 0
    found = evaluating.join()
    assert (found["step"], found["chosen"], found["episodes"], found["mean_length"]) == (7, "last", 5, 9.0)
    assert evaluating.progress == [(0, 5)] * 9 + [(5, 5)]
    env = catch.Catch(5)
    step, total = env.reset(saved_agents.seeds(3, 5)), np.zeros(5)
    for _ in range(9):
        step = env.step(np.ones(5, np.int32))
        total += step.reward
    assert found["mean_return"] == pytest.approx(total.mean())
    assert "joined" in evaluating.next_report()


def test_each_task_s_return_is_told_where_the_environments_have_several(path: pathlib.Path) -> None:
    run_dirs.write_spec(path, scaled_catch.ScaledCatch(1).spec)
    evaluating = Evaluating(path, 4)
    assert evaluating.work(scaled_catch.ScaledCatch) == 0
    found = evaluating.join()
    small, large = (found["task_returns"][name] for name in scaled_catch.TASKS)
    assert -1.0 <= small <= 1.0 and abs(large) in (0.0, 100.0) and found["mean_return"] == (small + large) / 2


def test_a_worker_that_is_lost_is_replaced_and_the_episodes_begin_anew(path: pathlib.Path) -> None:
    evaluating = Evaluating(path, 3)

    class Failing(catch.Catch):
        def step(self, actions: np.ndarray) -> types.EnvStep:
            raise OSError("the power is gone")

    assert evaluating.work(Failing) == 1
    assert "joined" in evaluating.next_report()
    assert "the power is gone" in evaluating.next_report()
    assert evaluating.work(catch.Catch) == 0
    assert evaluating.join()["episodes"] == 3


def _host() -> served.Host:
    spec, env = catch.Catch(1).spec, configs.Config().env
    return served.Host(env, spec, num_envs=4, seed=0, report=lambda text: None)


def test_one_worker_plays_at_a_time_and_only_one_that_may() -> None:
    host = _host()
    hello = messages.Hello("mine", "", tuple(types.Role), (env_ids.YOURS,), 2)
    assigned = host.assign(hello)
    assert (assigned.env, assigned.role, assigned.num_groups) == (env_ids.YOURS, types.Role.EVALUATE, 1)
    assert (assigned.envs_per_group, len(assigned.seeds)) == (2, 2)
    with pytest.raises(errors.SlotsExhausted, match=r"worker mine plays already; .*one worker"):
        host.assign(hello)
    host.end(assigned.session_id, messages.GOODBYE)
    with pytest.raises(errors.SpecMismatch, match=r"--env=remote.*environment"):
        host.assign(dataclasses.replace(hello, environments=("gym",)))
    with pytest.raises(errors.SpecMismatch, match="--role=train"):
        host.assign(dataclasses.replace(hello, roles=(types.Role.TRAIN,)))
    assert host.assign(hello).session_id != assigned.session_id


def test_a_worker_for_fewer_environments_plays_whole_games() -> None:
    spec = dataclasses.replace(catch.Catch(1).spec, seats=("left", "right"), tasks=("left", "right"), fixed_seats=True)
    host = served.Host(configs.Config().env, spec, num_envs=4, seed=0, report=lambda text: None)
    hello = messages.Hello("mine", "", tuple(types.Role), (env_ids.YOURS,), 1)
    with pytest.raises(errors.SpecMismatch, match=r"\b2\b.*--num_envs=1.*--num_envs=2"):
        host.assign(hello)
    assigned = host.assign(dataclasses.replace(hello, max_envs=3))
    assert (assigned.envs_per_group, len(assigned.seeds), assigned.indices) == (2, 2, (0, 1))


def test_only_runs_with_remote_environments_listen_for_them(tmp_path: pathlib.Path) -> None:
    run_dirs.open_run_dir(tmp_path / "run", presets.get("catch"), preset="catch", given={}).close()
    with pytest.raises(errors.UsageError, match=r"--listen=127\.0\.0\.1.*--env=remote.*--env=catch"):
        served.evaluate(agent_choice.AgentChoice(tmp_path / "run"), 1, ACCESS, served.Reports(print, print))


@pytest.mark.parametrize("step", [None, 0])
def test_step_and_policy_choose_the_agent_here_too(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, step: int | None
) -> None:
    def load(choice: agent_choice.AgentChoice, *args: Any) -> None:
        assert (choice.step, choice.player, choice.policy) == (step, None, "sample")
        raise errors.CheckpointError("enough")

    monkeypatch.setattr(saved_agents, "load", load)
    with pytest.raises(errors.CheckpointError, match="enough"):
        served.evaluate(agent_choice.AgentChoice(path, step, policy="sample"), 1, ACCESS, served.Reports(print, print))


def test_a_network_of_the_directory_s_maker_needs_consent(tmp_path: pathlib.Path) -> None:
    values = {"env.id": env_ids.REMOTE, "network.module": "their_module:make"}
    config = configs.override(presets.get("catch"), values)
    run_dirs.open_run_dir(tmp_path / "run", config, preset="catch", given=values).close()
    for trusted, message in ((False, "--network.module=their_module:make.*--trust_run_dir"), (True, str(tmp_path))):
        with pytest.raises(errors.UsageError, match=message):
            served.evaluate(
                agent_choice.AgentChoice(tmp_path / "run", trusted=trusted), 1, ACCESS, served.Reports(print, print)
            )


def test_a_run_that_no_worker_has_joined_cannot_be_evaluated(path: pathlib.Path) -> None:
    (path / "spec.json").unlink()
    with pytest.raises(errors.UsageError, match=str(path)):
        served.evaluate(agent_choice.AgentChoice(path), 1, ACCESS, served.Reports(print, print))
