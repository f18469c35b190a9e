"""A run with a page: readers of all kinds, good and bad, and training goes on; the page ends with the run."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import e2e_harness as harness
import grpc
import httpx
import psutil
import pytest

from seedzero.core import errors
from seedzero.transport import inference_pb2, inference_pb2_grpc, messages, probe, security

EVIL = "<b>evil</b>"
NUM_STREAMS = 200


@pytest.fixture(scope="module")
def learner(module_host: harness.Host) -> harness.Learner:
    token = module_host.directory / "token"
    token.write_text("correct-horse-battery")
    words = (*harness.PACED, "--page=0", "--listen=127.0.0.1:0", f"--token_file={token}")
    found = module_host.train(module_host.directory / "watched", *words)
    found.until(lambda status: status["updates"] > 0, "updates")
    return found


@pytest.fixture(scope="module")
def url(learner: harness.Learner) -> str:
    return learner.says(r"the page of this run: (http://127\.0\.0\.1:\d+/)")[1]


def _live(url: str, **parameters: Any) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}api/live", params={"run": ".", **parameters}, timeout=600).json()
    return found


def _events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


@pytest.mark.thorough
def test_calls_and_steps_of_a_running_learner_are_shown(learner: harness.Learner, url: str) -> None:
    kinds: set[str] = set()

    def has_all() -> bool:
        kinds.update(call[1] for call in _live(url)["calls"])
        return {"act", "update"} <= kinds

    harness.wait_for(has_all, "acting and updates", alive=learner)
    found = _live(url)
    assert found["workers"][0]["name"] == "local-0" and found["status"]["environments"] == 8
    with httpx.stream("GET", f"{url}api/live/stream", params={"run": ".", "environment": 0}, timeout=600) as answer:
        steps: list[dict[str, Any]] = []
        for event in _events(answer.iter_lines()):
            assert not event.get("error")
            steps += event.get("steps", [])
            if any(step.get("value") is not None for step in steps) and len(steps) > 12:
                break
    numbers = [step["number"] for step in steps]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))  # none is left out
    assert any(step["first"] for step in steps) and all(len(step["observation"]) == 1 for step in steps)
    policies = [step["policy"] for step in steps if step.get("policy")]
    assert policies and all(abs(sum(policy) - 1) < 0.01 for policy in policies)


@pytest.mark.thorough
def test_hostile_readers_get_named_answers_and_training_goes_on(learner: harness.Learner, url: str) -> None:
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    assert httpx.get(f"{url}api/live?run=.", headers={"host": "evil.example"}).status_code == 421
    assert httpx.post(f"{url}api/live?run=.").status_code == 405
    assert httpx.get(f"{url}api/live?run=../../etc").status_code == 404
    line = "GET /api/live/stream?run=.&environment=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=600) as slow:
        slow.sendall(line.encode())  # and it never reads
        codes = asyncio.run(_open_streams(url))
        learner.trains_on(5)
    assert codes.count(200) + codes.count(503) == NUM_STREAMS and codes.count(200) <= 64 and codes.count(503) >= 136
    learner.trains_on(5)


async def _open_streams(url: str) -> list[int]:
    """Returns the codes of many streams that are open at a time."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=600, limits=limits) as client:
        requests = [
            client.build_request("GET", f"{url}api/live/stream", params={"run": ".", "environment": 0})
            for _ in range(NUM_STREAMS)
        ]
        answers = await asyncio.gather(*(client.send(request, stream=True) for request in requests))
        codes = [answer.status_code for answer in answers]
        await asyncio.gather(*(answer.aclose() for answer in answers))
    return codes


def test_without_the_token_a_learner_tells_nothing(learner: harness.Learner) -> None:
    with pytest.raises(errors.AccessDenied, match="token"):
        probe.LiveProbe(learner.address).ask(messages.LiveAsk(0, None, 0))
    with grpc.insecure_channel(learner.address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError, match="token"):
            stub.Live(inference_pb2.LiveRequest(), timeout=600)
    access = security.Access(token_file=str(learner.run.parent / "token"))
    assert "calls" in probe.LiveProbe(learner.address, access).ask(messages.LiveAsk(0, None, 0))[0]


@pytest.mark.thorough
def test_a_hostile_worker_s_name_stays_a_text(host: harness.Host, learner: harness.Learner, url: str) -> None:
    token = f"--token_file={learner.run.parent / 'token'}"
    worker = host.worker(learner.address, f"--worker_id={EVIL}", token)
    harness.wait_for(
        lambda: any(one["name"] == EVIL for one in _live(url)["workers"]), "the worker's name", alive=learner
    )
    worker.kill()
    learner.trains_on(2)


@pytest.mark.thorough
def test_the_page_may_die_and_ends_with_the_run(host: harness.Host, learner: harness.Learner, url: str) -> None:
    pages = [child for child in learner.children() if "page" in child.cmdline()]
    (page,) = pages
    assert page.nice() == 19
    page.kill()
    learner.says("the page of this run has ended, and training continues without it: killed by SIGKILL")
    learner.trains_on(2)
    learner.send(signal.SIGINT)
    learner.wait().ok()
    resumed = host.train(learner.run, "--page=0", f"--token_file={learner.run.parent / 'token'}")
    resumed.says(r"the page of this run: (http://\S+)")
    (page,) = [child for child in resumed.children() if "page" in child.cmdline()]
    resumed.kill()  # the page notices by its input
    psutil.wait_procs([page], timeout=harness.DEADLINE_SECONDS)
    assert not page.is_running()
