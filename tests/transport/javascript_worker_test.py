"""The example of a worker in JavaScript; skipped where node, or its packages (npm install there), are missing."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator

import pytest
import wire

from seedzero.core import types
from seedzero.transport import security

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "javascript"


class Learner(wire.Learner):
    """Takes any environment."""

    def begin(self, session_id: str, spec: types.EnvSpec) -> None:
        self.begun.append((session_id, spec))

    def next_session(self, other_than: str = "") -> str:
        """Returns the session of the next step that belongs to another one than the one given."""
        while (session_id := self.next_request().session_id) == other_than:
            pass
        return session_id


@pytest.fixture
def learner() -> Iterator[Learner]:
    learner = Learner()
    yield learner
    learner.server.stop(finished=True, reason="test over")


def test_it_plays_joins_again_after_a_restart_and_leaves_with_success(node: str, learner: Learner) -> None:
    with subprocess.Popen([node, FOLDER / "worker.js", learner.server.start()], stdout=subprocess.PIPE) as worker:
        first = learner.next_session()
        requests = [learner.next_request() for _ in range(200)]
        learner.server.restart(first, "fresh environments")
        assert learner.next_session(other_than=first) == learner.begun[1][0]
        learner.server.stop(finished=True, reason="enough")
        output, _ = worker.communicate(timeout=wire.TIMEOUT_SECONDS)
    assert worker.returncode == 0, output
    assert sum(request.step.reward.sum() for request in requests) > 0
    assert any(request.step.final.any() for request in requests)


def test_it_leaves_with_failure_where_its_token_is_missing(node: str) -> None:
    learner = Learner(secured=security.ServerSecurity("secret"))
    address = learner.server.start()
    try:
        done = subprocess.run(
            [node, FOLDER / "worker.js", address], capture_output=True, timeout=wire.TIMEOUT_SECONDS, check=False
        )
    finally:
        learner.server.stop(finished=False, reason="test over")
    assert done.returncode == 1 and b"AccessDenied" in done.stdout
