"""What hosts share, and what is each one's own; `tests/e2e/hosts_run_test.py` has real ones."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import threading
import types as python_types
from concurrent import futures
from typing import Any

import fake_gcs
import pytest

from seedzero.config import configs, sections
from seedzero.core import errors, types
from seedzero.learner import together
from seedzero.learner.cluster import hub, member, messages
from seedzero.monitoring.metrics import counts
from seedzero.storage.bucket import bucket, lease
from seedzero.storage.checkpoints import durable, manifest, run_dirs, saved_files

HOSTS = {"cluster.num_hosts": 3, "cluster.coordinator": "host-0:7000"}


def _config(index: int = 1, **values: int | float | str) -> configs.Config:
    return configs.override(configs.Config(), {**HOSTS, "cluster.index": index, **values})


def test_host_0_keeps_the_directory_and_the_seed_of_the_run() -> None:
    run = pathlib.Path("run")
    assert run_dirs.of_host(run, 0) == run and run_dirs.of_host(run, 2) == run / "hosts" / "2"
    seeds = [together.own_seed(_config(index, **{"run.seed": 5})) for index in range(3)]
    assert seeds[0] == 5 and len(set(seeds)) == 3
    assert together.own_seed(configs.override(configs.Config(), {"run.seed": 5})) == 5


def test_the_seeds_of_hosts_and_of_runs_do_not_meet() -> None:
    seeds = {together.own_seed(_config(index, **{"run.seed": seed})) for seed in range(100) for index in range(3)}
    assert len(seeds) == 300 and all(0 <= seed < 2**31 for seed in seeds)


def test_settings_of_a_host_alone_may_differ() -> None:
    same = {
        "cluster.index": 2,
        "transport.listen": "0.0.0.0:1",
        "transport.token_file": "other",
        "worker.threads": 3,
    }
    assert together.digest(_config(0)) == together.digest(configs.override(_config(0), same))
    for other in ({"run.seed": 1}, {"replay.batch_size": 64}, {"worker.num": 3}, {"cluster.num_hosts": 4}):
        assert together.digest(_config(0)) != together.digest(configs.override(_config(0), other))


def test_hosts_compare_the_versions_of_the_compiler_and_the_width_of_numbers() -> None:
    assert re.fullmatch(r"seedzero \S+, jax [\d.]+, jaxlib [\d.]+, JAX_ENABLE_X64=0", together._program())


@pytest.mark.parametrize("index", [0, 1])
def test_hosts_of_one_process_have_its_token_and_their_workers_have_not(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    given: dict[str, Any] = {}

    def link(*_: object, **named: Any) -> None:
        given.update(named)
        raise errors.TrainingFailure("enough is known")

    monkeypatch.setattr(hub, "Hub", link)
    monkeypatch.setattr(member, "HostMember", link)
    monkeypatch.setenv(sections.TOKEN, "of this start")
    with pytest.raises(errors.TrainingFailure), together.meeting(_config(index), tmp_path, pytest.fail):
        pass
    assert (given["token"] if index else given["secured"].token) == "of this start"
    assert sections.TOKEN not in os.environ


class Meeting:
    """The links of some hosts, each on a thread of its own."""

    def __init__(self, num_hosts: int) -> None:
        self.told: dict[int, str] = {}
        self.left: list[int] = []
        self._barrier = threading.Barrier(num_hosts)

    def link(self, index: int) -> Any:
        def gather(subject: str, text: str) -> dict[int, str]:
            assert len(text) <= messages.MAX_TEXT
            self.told[index] = text
            self._barrier.wait(600)
            return self.told

        return python_types.SimpleNamespace(gather=gather, leave=lambda: self.left.append(index))


def _compared(*specs: types.EnvSpec) -> tuple[list[BaseException | None], list[int]]:
    """Returns what each host raises, and the hosts that have left the others."""
    meeting = Meeting(len(specs))
    with futures.ThreadPoolExecutor(len(specs)) as pool:
        asked = [
            pool.submit(together.check_environments, meeting.link(index), spec) for index, spec in enumerate(specs)
        ]
        return [one.exception() for one in asked], sorted(meeting.left)


def test_hosts_with_other_environments_are_named_on_every_host() -> None:
    spaces = json.dumps({"observation": "a Box of four numbers " * 100, "action": "left or right"})
    spec = types.EnvSpec((4,), "float32", 2, spaces=spaces, tasks=("a", "b"))
    same, left = _compared(spec, spec, dataclasses.replace(spec, spaces=""))
    assert same == [None] * 3 and left == []
    saved = dataclasses.replace(spec, observation_low=0.0, observation_high=255.0)  # as it is read from a file
    assert _compared(saved, dataclasses.replace(spec, observation_low=0, observation_high=255), saved) == (same, left)
    for name, value, told in (
        ("observation_shape", (5,), "is (5,), and (4,) on host 0"),
        ("tasks", ("a",), "is ('a',), and ('a', 'b') on host 0"),
        ("spaces", spaces.replace("left", "up"), 'is {"observation": "a B...'),
    ):
        found, left = _compared(spec, spec, dataclasses.replace(spec, **{name: value}))
        assert left == [0, 1, 2] and {type(error) for error in found} == {errors.UsageError}
        (text,) = {str(error) for error in found}
        assert "host 2 has other environments" in text and f"({name} {told}" in text


def test_host_0_alone_evaluates() -> None:
    config = _config(0, **{"run.stop_at_return": 1.0})
    assert together.of_host(config) == config
    other = together.of_host(_config(1, **{"run.stop_at_return": 1.0}))
    assert other.evaluation.every_updates == 0 and other.run.stop_at_return == float("inf")


@pytest.mark.parametrize(("agent", "expected"), [("muzero", 334), ("ppo", 0)])
def test_a_budget_of_steps_is_shared(agent: str, expected: int) -> None:
    config = _config(1, **{"run.agent": agent, "run.max_env_steps": 1000})
    assert together.budgeted(config).run.max_env_steps == expected
    alone = configs.override(config, {"cluster.num_hosts": 1})
    assert together.budgeted(alone) == alone


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ((0, 0, 0), [400, 400, 400]),
        ((390, 380, 400), [400, 400, 400]),
        ((600, 0, 0), [600, 300, 300]),  # one host began, and three continue
        ((500, 450, 0), [500, 450, 250]),
        ((1190, 0, 0), [1190, 5, 5]),
        ((408, 395, 400), [408, 400, 400]),  # one has stopped at its share, with a step of each slot more
        ((1300, 0, 0), [1300, 1, 1]),  # finished, see `Saves.finished_before`; 0 would be no limit
    ],
)
def test_what_a_host_did_before_the_others_came_counts(before: tuple[int, ...], expected: list[int]) -> None:
    found = [
        together.budgeted(
            _config(index, **{"run.agent": "muzero", "run.max_env_steps": 1200, "replay.num_slots": 8}), before
        )
        for index in range(3)
    ]
    assert [config.run.max_env_steps for config in found] == expected


@pytest.mark.parametrize(
    ("num_hosts", "agent", "before", "expected"),
    [
        (2, "muzero", (300, 300), 400),
        (2, "ppo", (300, 300), 0),  # `DecisionTally` adds them up
        (1, "muzero", (300,), 800),
        (1, "ppo", (300,), 800),
        (1, "muzero", (900,), 900),
    ],
)
def test_steps_of_hosts_that_left_stay_spent(
    tmp_path: pathlib.Path, num_hosts: int, agent: str, before: tuple[int, ...], expected: int
) -> None:
    config = _config(0, **{"run.agent": agent, "run.max_env_steps": 1200, "cluster.num_hosts": num_hosts})
    found = together.budgeted(config, before, 400)
    assert found.run.max_env_steps == expected


def test_a_host_that_is_alone_now_counts_the_steps_of_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {counts.OTHER_HOSTS: {"1": {"stored": 30}, counts.GONE: {"stored": 5}}}
    counters = ({"mine": 1}, {"ledger": {"stored": 9}, **others})
    found = [python_types.SimpleNamespace(step=step, counters=each) for step, each in enumerate(counters)]
    monkeypatch.setattr(saved_files, "manifests", lambda path: found)
    assert together.before_alone(pathlib.Path()) == (9, 35)
    del found[1]
    assert together.before_alone(pathlib.Path()) == (0, 0)
    del found[0]
    assert together.before_alone(pathlib.Path()) == (0, 0)


def test_lines_tell_of_the_other_hosts() -> None:
    steps = {"stored": 12345}
    found = together.lines({2: {"steps": steps, "workers": 2, "environments": 8}, 1: {}})
    assert found == ["host 2: 12,345 steps, 2 workers, 8 environments"]


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({}, ""),
        ({1: {}}, ""),
        ({1: {"address": "a:1", "free": 0}}, ""),
        ({1: {"address": "a:1", "free": 4}, 2: {"address": "b:1", "free": 8}}, "b:1"),
    ],
)
def test_full_hosts_know_the_emptiest(details: dict[int, dict[str, int | str]], expected: str) -> None:
    assert together.emptiest(details) == expected


def test_hosts_that_lack_their_part_of_a_checkpoint_are_named_until_all_have_one() -> None:
    found: dict[int, str] = {0: "", 1: "no space left", 2: "given up"}
    link: Any = python_types.SimpleNamespace(gather=lambda subject, problem: found, missing="")
    peers = together.LinkedPeers(link)
    assert peers.settle(20, "").startswith("checkpoint 20 lacks the part of host 1 (no space left), host 2 (given up)")
    assert "host 1 (no space left)" in link.missing and together.lines({}, link.missing) == [link.missing]
    found.update({1: "", 2: ""})
    assert peers.settle(40, "") == link.missing == "" and together.lines({}, link.missing) == []


def test_parts_of_hosts_that_have_gone_are_unknown() -> None:
    config = _config(0)
    link = hub.Hub(
        messages.HostHello(0, 2, together.digest(config)), "127.0.0.1:0", config.transport, silence_seconds=20
    )
    link.lose("host 1 has ended")
    told = together.LinkedPeers(link).settle(20, "")
    assert "part of checkpoint 20 (host 1 has ended)" in told
    link.stop()


def test_the_checkpoints_in_a_bucket_count_whatever_the_local_copy_has(
    gcs: fake_gcs.FakeGcs, tmp_path: pathlib.Path
) -> None:
    url, settings = bucket.of_host(bucket.Url("gs", "runs", "one"), 1), _config().bucket
    assert str(url) == "gs://runs/one/hosts/1"
    assert together.in_bucket(url, settings) is None
    gcs.put("runs", f"{url.path}/{lease.NAME}", b"{}")
    assert together.in_bucket(url, settings) == []
    for step, host in ((10, {}), (20, {together.NUM_HOSTS: 2})):
        manifest.write(tmp_path, manifest.Manifest(step, 0.0, 1, counters=host))
        whole = (tmp_path / manifest.NAME).read_bytes()
        gcs.put("runs", f"{url.path}/checkpoints/steps/{step:012d}/{manifest.NAME}", whole)
    gcs.put("runs", f"{url.path}/checkpoints/steps/{30:012d}/params/data", b"an upload that broke off")
    assert {one.step for one in together.in_bucket(url, settings) or ()} == {10, 20}


def test_a_damaged_checkpoint_is_left_out_and_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / run_dirs.CONFIG_FILE).write_text("{}")
    for step in (10, 20):
        path = tmp_path / "checkpoints" / "steps" / f"{step:012d}"
        path.mkdir(parents=True)
        manifest.write(path, manifest.Manifest(step, 0.0, 1))
    (path / manifest.NAME).write_text("{")
    told: list[str] = []
    assert [found.step for found in together.on_disk(tmp_path, told.append) or ()] == [10]
    assert len(told) == 1 and told[0].startswith("checkpoint 20 is skipped")


def test_a_run_whose_every_checkpoint_is_damaged_does_not_begin_anew(tmp_path: pathlib.Path) -> None:
    (tmp_path / run_dirs.CONFIG_FILE).write_text("{}")
    for step in (10, 20):
        path = tmp_path / "checkpoints" / "steps" / f"{step:012d}"
        path.mkdir(parents=True)
        manifest.write(path, manifest.Manifest(step, 0.0, 1, files={"params/lost": durable.Checksum(1, "ab")}))
    found = together.on_disk(tmp_path, pytest.fail)  # the resume names the damage
    assert {one.step for one in found or ()} == {10, 20}


def test_the_directory_of_another_host_is_refused_before_hosts_meet(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "checkpoints" / "steps" / f"{20:012d}"
    path.mkdir(parents=True)
    manifest.write(path, manifest.Manifest(20, 0.0, 1, state_sha256="ab"))
    assert together.on_disk(tmp_path, pytest.fail) is None
    (tmp_path / run_dirs.CONFIG_FILE).write_text("{}")
    meeting = together.meeting(_config(0), tmp_path, pytest.fail)
    with pytest.raises(errors.ResumeError, match=f"{tmp_path} .*host 0"), meeting:
        pass
