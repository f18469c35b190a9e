"""An agent outside the package: a directory on Python's path has its module and a preset, as if it were installed."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator

import e2e_harness as harness
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import seedzero
from seedzero.config import configs
from seedzero.core import types

PQN = harness.ROOT / "examples" / "pqn"
SHORT = (
    "--pqn.unroll_length=16",
    "--workers=1",
    "--worker.envs_per_group=4",
    "--evaluation.every_updates=0",
    "--stop_at_return=inf",
    "--checkpoint.every_seconds=1",
    "--pqn.epsilon_updates=20",
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Host]:
    found = harness.Host(tmp_path_factory.mktemp("pqn"))
    shutil.copytree(PQN, found.directory / "elsewhere")
    found.environment["PYTHONPATH"] = os.pathsep.join(
        [found.environment["PYTHONPATH"], str(found.directory / "elsewhere")]
    )
    yield found
    found.end()


@pytest.fixture(scope="module")
def run(host: harness.Host) -> pathlib.Path:
    """The directory of a run that is killed, and goes on to its end."""
    run = host.directory / "run"
    words = (f"--preset={host.directory / 'elsewhere' / 'cartpole.preset'}", *SHORT)
    learner = host.train(run, *words, "--max_updates=100000", "--max_env_steps=0")
    harness.wait_for(lambda: harness.saved_steps(run), "a checkpoint", alive=learner)
    learner.kill()
    more = f"--max_updates={harness.saved_steps(run)[-1] + 40}"
    ended = host.train(run, more, "--pqn.num_epochs=2").wait()
    assert ended.code == 0, ended.out + ended.err
    assert re.search(harness.RESUMED, ended.out + ended.err)
    assert "--pqn.num_epochs was 4, is 2 from now on" in ended.err
    return run


@pytest.mark.thorough
def test_a_killed_run_goes_on_with_its_own_settings(run: pathlib.Path) -> None:
    saved = json.loads((run / "config.json").read_text())
    assert saved["preset"] == "cartpole" and saved["given"]["run.agent"] == "pqn_agent:AGENT"
    assert (saved["config"]["pqn.unroll_length"], saved["config"]["pqn.num_epochs"]) == (16, 2)
    row = [row for row in harness.metrics_rows(run) if "epsilon" in row][-1]
    assert saved["config"]["pqn.epsilon_updates"] == 20  # the command line's, before the file's
    assert 0.19 < row["epsilon"] < 1 and row["loss"] >= 0


@pytest.mark.thorough
def test_it_is_scored_exported_and_refused_to_others(host: harness.Host, run: pathlib.Path) -> None:
    ended = host.start(host.command("evaluate", f"--run_dir={run}", "--episodes=2"), "evaluate").wait()
    assert ended.code == 0 and ended.json["mean_return"] > 0, ended.err
    pytest.importorskip("flatbuffers")
    target = host.directory / "exported"
    exported = host.start(host.command("export", f"--run_dir={run}", f"--out={target}"), "export").wait()
    assert exported.code == 0 and (target / "manifest.json").is_file(), exported.err
    given_away = shutil.copytree(run, host.directory / "given_away")
    refused = host.seedzero("evaluate", f"--run_dir={given_away}")
    assert refused.code == 2 and "names code" in refused.err and "--agent=pqn_agent:AGENT" in refused.err


def test_it_is_loaded(run: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PQN))
    policy = seedzero.load(run, trust_run_dir=True)
    assert policy(np.zeros(4, np.float32)) in (0, 1)


def test_its_settings_are_listed(host: harness.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PQN))
    listed = host.seedzero("config", f"--preset={PQN / 'cartpole.preset'}")
    assert "[pqn]" in listed.out and "--pqn.decay_updates=250  updates" in listed.out
    assert "lambda of the returns" in listed.out and "[ppo]" not in listed.out
    wrong = host.seedzero("train", f"--preset={PQN / 'cartpole.preset'}", "--pqn.lamda=1")
    assert wrong.code == 2 and "unknown setting --pqn.lamda=1" in wrong.err


def test_grids_need_channels_and_channels_a_grid(host: harness.Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PQN))
    pqn_agent = importlib.import_module("pqn_agent")
    network = pqn_agent.QNetwork(width=8, num_layers=1, num_actions=3, channels=2)
    shapes = jax.eval_shape(network.init, jax.random.key(0), jnp.zeros((4, 10, 10, 6)))["params"]
    assert shapes["Conv_0"]["kernel"].shape == (3, 3, 6, 2)
    assert shapes["Dense_0"]["kernel"].shape == (8 * 8 * 2, 8)  # a border of one cell on each side goes
    listed = host.seedzero("config", f"--preset={PQN / 'minatar.preset'}")
    assert "--pqn.channels=16" in listed.out and "--pqn.trace_decay=0.65" in listed.out, listed.err
    refused = host.train(host.directory / "refused", f"--preset={PQN / 'cartpole.preset'}", "--pqn.channels=2").wait()
    assert refused.code == 2 and "--pqn.channels=2 needs one grid" in refused.err


@pytest.mark.parametrize(("platform", "num_convolutions"), [("cpu", 0), ("gpu", 1)])
def test_its_loop_of_minibatches_holds_no_convolution_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, platform: str, num_convolutions: int
) -> None:
    monkeypatch.syspath_prepend(str(PQN))
    pqn_agent = importlib.import_module("pqn_agent")
    spec = types.EnvSpec((6, 5, 1), "uint8", 3, observation_low=0, observation_high=1)
    agent = pqn_agent.make(configs.override(configs.of_agent("pqn_agent:AGENT"), {"pqn.channels": 2}), spec, platform)
    program = jax.make_jaxpr(agent.init)(jax.random.key(0))  # all its functions share the network
    assert str(program).count("conv_general_dilated[") == num_convolutions
