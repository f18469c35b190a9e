"""What Prometheus is shown, and that it can be asked for it."""

from __future__ import annotations

import contextlib
import http.client
import re
import select
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent import futures
from typing import Any

import prometheus_client
import pytest
from prometheus_client import parser, registry

from seedzero.core import errors
from seedzero.monitoring import exporter

STATUS: dict[str, Any] = {
    "env_steps": 7_000_000_123,
    "updates": 40,
    "weights_version": 39,
    "durable_update": 30,
    "workers": 2,
    "environments": 16,
    "steps_acknowledged": 7_000_000_140,
    "steps_stored": 7_000_000_123,
    "steps_pending": 12,
    "steps_discarded": {"worker_lost": 4, "checkpoint_reset": 1},
    "samples_per_insert": 3.9,
    "env_steps_per_second": 1234.5,
    "updates_per_second": 2.5,
    "stalled": None,
    "last_evaluation": {"update": 32, "episodes": 20, "mean_return": -1.5},
}
ROW = {"update": 40, "env_steps": 5, "seconds": 1.0, "time": "2026", "loss": 0.25, "batch wait": 1, "updates": 3}


def shown(status: dict[str, Any], row: dict[str, Any]) -> dict[str, float]:
    """Returns samples as a scraper reads them; labels stand behind the name."""

    class Collector(registry.Collector):
        def collect(self) -> Any:
            return exporter.families(status, row)

    everything = registry.CollectorRegistry()
    everything.register(Collector())
    text = prometheus_client.generate_latest(everything).decode()
    return {
        "".join([sample.name, *sample.labels.values()]): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_numbers_are_those_of_the_status_and_the_newest_row() -> None:
    found = shown(STATUS, ROW)
    assert found == {
        "seedzero_env_steps_total": 7_000_000_123,
        "seedzero_updates_total": 40,
        "seedzero_steps_acknowledged_total": 7_000_000_140,
        "seedzero_steps_stored_total": 7_000_000_123,
        "seedzero_steps_discarded_totalworker_lost": 4,
        "seedzero_steps_discarded_totalcheckpoint_reset": 1,
        "seedzero_steps_pending": 12,
        "seedzero_weights_version": 39,
        "seedzero_durable_update": 30,
        "seedzero_workers": 2,
        "seedzero_environments": 16,
        "seedzero_samples_per_insert": 3.9,
        "seedzero_env_steps_per_second": 1234.5,
        "seedzero_updates_per_second": 2.5,
        "seedzero_stalled": 0,
        "seedzero_evaluation_update": 32,
        "seedzero_evaluation_episodes": 20,
        "seedzero_evaluation_mean_return": -1.5,
        "seedzero_loss": 0.25,
        "seedzero_batch_wait": 1,
    }


def test_each_task_s_return_is_a_label() -> None:
    status = {**STATUS, "last_evaluation": {"update": 1, "task_returns": {"walk": 2.0, "run": 3.5}}}
    found = shown(
        status, {"episode_return": 2.0, "episode_return/walk": 1.5, "episode_return/a b": 2, "episode_return/a-b": 3}
    )
    assert found["seedzero_evaluation_task_returnwalk"] == 2.0 and found["seedzero_evaluation_task_returnrun"] == 3.5
    names = [name for name in found if "episode" in name and "evaluation" not in name]
    assert names == [
        "seedzero_episode_return",
        *(f"seedzero_task_episode_return{task}" for task in ("walk", "a b", "a-b")),
    ]
    assert [found[name] for name in names] == [2.0, 1.5, 2, 3]


def test_metrics_that_prometheus_takes_for_one_are_told_apart_by_a_label() -> None:
    row = {"kl-loss": 1.0, "kl_loss": 2.0, "kl loss": 3.0, "größe": 4.0, "env-steps": 5.0, "a-b/x": 6.0, "a_b/x": 7.0}
    row |= {"task_a_b/x": 8.0, "workers_": 9.0}
    found = shown(STATUS, row)
    assert {name: value for name, value in found.items() if name not in shown(STATUS, {})} == {
        "seedzero_kl_losskl-loss": 1.0,
        "seedzero_kl_loss": 2.0,
        "seedzero_kl_losskl loss": 3.0,
        "seedzero_gr__e": 4.0,
        "seedzero_row_env_steps": 5.0,
        "seedzero_task_a_ba-bx": 6.0,
        "seedzero_task_a_bx": 7.0,
        "seedzero_task_row_task_a_bx": 8.0,
        "seedzero_workers_": 9.0,
    }
    assert found["seedzero_env_steps_total"] == STATUS["env_steps"]


def test_a_league_s_matches_are_counters_by_type() -> None:
    status = {**STATUS, "matches": {"self_play": 12, "past": 30, "void": 0}}
    found = shown(status, {"matches/self_play": 11, "matches/past": 30})
    matches = {name: value for name, value in found.items() if "matches" in name}
    assert matches == {
        "seedzero_matches_totalself_play": 12,
        "seedzero_matches_totalpast": 30,
        "seedzero_matches_totalvoid": 0,
    }


def test_what_does_not_exist_yet_is_left_out() -> None:
    status = {**STATUS, "durable_update": None, "last_evaluation": None, "stalled": "compiling"}
    found = shown(status, {})
    assert found["seedzero_stalled"] == 1
    assert not [name for name in found if "evaluation" in name or "durable" in name or "loss" in name]


def _port(url: str) -> int:
    return int(url.split(":")[2].partition("/")[0])


def test_it_is_served_over_http_with_help_until_it_is_left() -> None:
    status = dict(STATUS)
    with exporter.serving("127.0.0.1", 0, lambda: (status, ROW)) as url:
        status["updates"] = 41
        with urllib.request.urlopen(url, timeout=600) as reply:
            text = reply.read().decode()
    assert re.search(
        "^# HELP seedzero_env_steps_total .+\n# TYPE seedzero_env_steps_total counter$", text, re.MULTILINE
    )
    assert "seedzero_updates_total 41.0" in text
    assert "process_resident_memory_bytes" in text
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=600)


def test_a_name_that_a_web_page_pointed_at_this_machine_reads_nothing() -> None:
    with exporter.serving("127.0.0.1", 0, lambda: (STATUS, ROW)) as url:
        port = url.rpartition(":")[2].partition("/")[0]
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", "127.0.0.2"):
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host}), timeout=600) as reply:
                assert b"seedzero_updates_total" in reply.read()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, headers={"Host": f"evil.test:{port}"}), timeout=600)
        assert refused.value.code == 403
        assert refused.value.read().startswith(b"Host is evil.test")


def test_an_address_of_ipv6_is_a_url() -> None:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
    with exporter.serving("::1", 0, lambda: (STATUS, ROW)) as url:
        assert url.startswith("http://[::1]:")
        urllib.request.urlopen(url, timeout=600).close()


def test_clients_that_dawdle_hold_few_places_and_nobody_up() -> None:
    with contextlib.ExitStack() as opened:
        url = opened.enter_context(exporter.serving("127.0.0.1", 0, lambda: (STATUS, ROW)))
        dawdling = [
            opened.enter_context(socket.create_connection(("127.0.0.1", _port(url)), 60.0))
            for _ in range(3 * exporter.MAX_CONNECTIONS)
        ]
        for connection in dawdling:
            with contextlib.suppress(OSError):  # it may have been cut off
                connection.sendall(b"GET /metrics")
        assert urllib.request.urlopen(url, timeout=600).status == 200
        for connection in dawdling[: 2 * exporter.MAX_CONNECTIONS]:
            with contextlib.suppress(ConnectionResetError):  # bytes came that nobody had read
                assert connection.recv(1) == b""


def test_as_many_requests_wait_together_as_an_application_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "CONNECTION_SECONDS", 600.0)
    number = 3 * exporter.MAX_CONNECTIONS
    everybody = threading.Barrier(number)

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        everybody.wait(600)
        start_response("200 OK", [])
        return [b""]

    with (
        exporter.serving_app("127.0.0.1", 0, app, "tests", "", max_connections=number) as url,
        futures.ThreadPoolExecutor(number) as clients,
    ):
        asked = [clients.submit(urllib.request.urlopen, url, timeout=600) for _ in range(number)]
        assert [one.result().status for one in asked] == [200] * number


def test_a_request_has_a_deadline_however_often_bytes_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "CONNECTION_SECONDS", 0.1)
    with (
        exporter.serving("127.0.0.1", 0, lambda: (STATUS, ROW)) as url,
        socket.create_connection(("127.0.0.1", _port(url)), 60.0) as dawdling,
    ):
        deadline = time.monotonic() + 600
        with contextlib.suppress(OSError):  # in the end nobody takes them
            while not select.select([dawdling], [], [], 0.01)[0]:
                dawdling.sendall(b"x")
                assert time.monotonic() < deadline


def test_who_sends_more_than_is_read_gets_the_answer() -> None:
    def refuse(environ: Any, start_response: Any) -> list[bytes]:
        start_response("413 Request Entity Too Large", [])
        return [b"at most 10 bytes"]

    with exporter.serving_app("127.0.0.1", 0, refuse, "answers", "--http_port") as url:
        client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
        client.request("POST", "/", bytes(32 << 20))
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (413, b"at most 10 bytes")


def test_an_address_in_use_and_one_of_no_host_are_named() -> None:
    with exporter.serving("127.0.0.1", 0, lambda: (STATUS, {})) as url:
        for address in (("127.0.0.1", _port(url)), ("no.such.host.invalid", 0)):
            named = re.escape("{}:{}: ".format(*address))
            with (
                pytest.raises(errors.UsageError, match=rf"{named}.*--metrics_port"),
                exporter.serving(*address, lambda: (STATUS, {})),
            ):
                pass


def test_counters_begin_with_what_is_known_and_never_fall() -> None:
    statuses = [{**STATUS, "env_steps": env_steps} for env_steps in (0, 120, 100, 130)]
    collector = exporter._Collector(lambda: (statuses.pop(0), {}))
    found = []
    for _ in range(4):
        samples = {sample.name: sample.value for family in collector.collect() for sample in family.samples}
        found.append(samples.get("seedzero_env_steps_total"))
    assert found == [None, 120, 120, 130]


def test_an_environment_s_own_numbers_are_labels() -> None:
    status = {**STATUS, "last_evaluation": {"update": 1, "info": {"success": 0.75}}}
    found = shown(status, {"info/success": 0.5})
    assert 0.75 in found.values() and 0.5 in found.values()
