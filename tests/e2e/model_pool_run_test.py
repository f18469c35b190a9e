"""A policy server on a machine without the run's disk: it serves what the learner has learned by now."""

from __future__ import annotations

import signal

import e2e_harness as harness
import numpy as np
import pytest

import seedzero


@pytest.mark.thorough
def test_the_newest_parameters_of_a_running_learner_are_served(host: harness.Host) -> None:
    for name in ("workers", "pool"):
        (host.directory / name).write_text(f"the token of the {name}".replace(" ", "-"))
    words = ("--preset=catch", *harness.AGENTS["ppo"], *harness.ENDLESS, "--listen=127.0.0.1:0")
    tokens = (f"--token_file={host.directory / 'workers'}", f"--serve.token_file={host.directory / 'pool'}")
    learner = host.train(host.directory / "run", *words, *tokens)
    learner.until(lambda status: status["updates"] > 0, "updates")
    server = host.start(host.command("serve", f"--learner={learner.address}", tokens[1]), "serve")
    address = server.says(r"serving main of update \d+ at (\S+) \(")[1]
    with seedzero.connect(address) as policy:
        observations = np.zeros((2, *policy.spec.observation_shape), policy.spec.observation_dtype)
        versions = [policy.version]

        def has_changed_twice() -> bool:
            assert policy(observations).shape == (2,)
            versions.append(policy.version)
            return len(set(versions)) > 2

        harness.wait_for(has_changed_twice, "newer parameters", alive=server)
        assert versions == sorted(versions) and versions[0] > 0
        learner.send(signal.SIGTERM)
        learner.wait()
        assert policy(observations).shape == (2,)  # the last ones stay
    server.send(signal.SIGTERM)
    ended = server.wait()
    assert ended.code == 0 and ended.json["changes"] >= 2, ended.err
