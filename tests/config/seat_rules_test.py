"""Rows that are seats: whole games in groups, and batches of several policies."""

from __future__ import annotations

import golden
import pytest

from seedzero.config import combinations, configs, presets, seat_rules
from seedzero.core import errors, types


def _of_agent(agent: str) -> configs.Config:
    return presets.get("catch", agent)


def _spec(seats: tuple[str, ...] = (), *, fixed: bool = False) -> types.EnvSpec:
    return types.EnvSpec((4,), "float32", 2, seats=seats, tasks=seats, fixed_seats=fixed)


def test_groups_take_whole_games_unless_told_otherwise() -> None:
    three, config = _spec(("a", "b", "c")), _of_agent("ppo")
    found, notes = seat_rules.whole_games(config, three, explicit=set())
    assert (config.worker.envs_per_group, found.worker.envs_per_group) == (16, 18) and "=18: " in notes[0]
    assert seat_rules.whole_games(found, three, explicit=set()) == (found, [])
    assert seat_rules.whole_games(config, three, explicit={"worker.envs_per_group"}) == (config, [])
    assert seat_rules.whole_games(config, _spec(), explicit=set()) == (config, [])


def test_agents_play_whole_games_in_evaluations_too() -> None:
    agents, config = _spec(("a", "b", "c"), fixed=True), _of_agent("ppo")
    found, notes = seat_rules.whole_games(config, agents, explicit=set())
    sizes = found.worker.envs_per_group, found.evaluation.num_envs, found.evaluation.episodes
    assert len(notes) == 3 and all(size % 3 == 0 for size in sizes) and sizes[1] <= sizes[2]
    combinations.check_environment(found, agents)
    for name in ("evaluation.num_envs", "evaluation.episodes"):
        with pytest.raises(errors.ConfigError, match=f"--{name}=10: .* such as 12"):
            combinations.check_environment(configs.override(found, {name: 10}), agents)


def test_unrolls_of_seats_that_hold_their_group_are_told(said: golden.Said) -> None:
    seats, config = _spec(("a", "b")), _of_agent("ppo")
    (note,) = seat_rules.uneven_rows(config, seats)
    said(note)
    assert "--ppo.max_lag=4" in note and not seat_rules.uneven_rows(config, _spec())
    for other in (configs.override(config, {"ppo.max_lag": 2}), _of_agent("vtrace"), _of_agent("apex")):
        assert not seat_rules.uneven_rows(other, seats)


def test_batches_of_several_policies_are_as_small_as_the_share_of_the_rarest() -> None:
    agents = _spec(("ant", "bee", "cat", "dog"), fixed=True)
    config = configs.override(_of_agent("ppo"), {"ppo.batch_size": 32, "seats.policies": "each"})
    found, notes = seat_rules.whole_games(config, agents, explicit=set())
    assert found.ppo.batch_size == 8 and any("--ppo.batch_size=8" in note for note in notes)
    kept, notes = seat_rules.whole_games(config, agents, explicit={"ppo.batch_size"})
    assert kept.ppo.batch_size == 32 and not any("batch_size" in note for note in notes)
    uneven = configs.override(config, {"seats.policies": '{"ant": "wolf", "*": "sheep"}'})
    assert seat_rules.whole_games(uneven, agents, explicit=set())[0].ppo.batch_size == 8
    vtrace = configs.override(_of_agent("vtrace"), {"vtrace.batch_size": 2, "seats.policies": "each"})
    assert seat_rules.whole_games(vtrace, agents, explicit=set())[0].vtrace.batch_size == 1
    one = configs.override(config, {"seats.policies": '{"*": "sheep"}'})
    assert seat_rules.whole_games(one, agents, explicit=set())[0].ppo.batch_size == 32
