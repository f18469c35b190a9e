"""What does not go with several hosts is refused, each with a way out."""

from __future__ import annotations

import golden
import pytest

from seedzero.config import combinations, configs
from seedzero.core import errors

HOSTS = {
    "cluster.num_hosts": 2,
    "cluster.index": 1,
    "cluster.coordinator": "host-0:7000",
    "transport.token_file": "token",
}


def test_several_hosts_go_with_the_defaults_of_every_agent() -> None:
    played = {"sac": "gym:A", "alphazero": "pgx:A"}
    for agent in configs.agent_names():
        values = {**HOSTS, "run.agent": agent, "env.id": played.get(agent, "catch")}
        combinations.check(configs.override(configs.Config(), values))


@pytest.mark.parametrize(
    "changed",
    [
        {"cluster.index": 2},
        {"cluster.index": 1, "cluster.num_hosts": 1},
        {"cluster.coordinator": ""},
        {"transport.token_file": ""},
        {"cluster.coordinator": "host-0"},
        {"league.freeze_every": 1000, "env.id": "spiel:tic_tac_toe"},
        {"training.acting_devices": 1},
        {"replay.placement": "host"},
        {"checkpoint.keep": 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_impossible_combinations(changed: dict[str, int | str], said: golden.Said) -> None:
    config = configs.override(configs.Config(), {**HOSTS, **changed})
    with pytest.raises(errors.ConfigError, match="cluster") as raised:
        combinations.check(config)
    said(raised.value, str(changed))
    combinations.check(configs.override(config, {"cluster.num_hosts": 1, "cluster.index": 0}))


def test_hosts_of_this_machine_need_no_coordinator() -> None:
    combinations.check(configs.override(configs.Config(), {"cluster.num_hosts": 2}))


@pytest.mark.parametrize(("number", "is_told"), [({}, True), ({"cluster.num_hosts": 1}, False), (HOSTS, False)])
def test_a_host_that_trains_alone_unasked_is_told(
    number: dict[str, int | str], is_told: bool, said: golden.Said
) -> None:
    given = {"cluster.index": 0, "cluster.coordinator": "host-0:7000", **number}
    config = configs.override(configs.Config(), given)
    _, notes = combinations.imply(config, preset_env=config.env.id, explicit=given.keys())
    told = [note for note in notes if note.startswith("--cluster.")]
    assert len(told) == is_told
    for note in told:
        said(note)
