"""Slots, roles and seeds of joining workers."""

import dataclasses

import numpy as np
import pytest

from seedzero.config import configs, options, worker_options
from seedzero.core import errors, types
from seedzero.device import batches
from seedzero.learner.loop import rosters
from seedzero.transport import links, messages

BOTH = (types.Role.TRAIN, types.Role.EVALUATE)


def _config(**values: options.Value) -> configs.Config:
    usual = {"env.id": "catch", "worker.envs_per_group": 2, "worker.num_groups": 2}
    return configs.override(configs.Config(), {**usual, **values})


def _roster(num_train: int = 8, num_evaluate: int = 2, num_shards: int = 1, **values: options.Value) -> rosters.Roster:
    return rosters.Roster(_config(**values), batches.Layout(num_shards, num_train, num_evaluate), max_group=16)


def _hello(
    worker_id: str = "a", roles: tuple[types.Role, ...] = (types.Role.TRAIN,), kind: str = "catch", max_envs: int = 99
) -> messages.Hello:
    return messages.Hello(worker_id, "", roles, (kind,), max_envs)


def _slots(roster: rosters.Roster, session_id: str) -> list[int]:
    session = roster.get(session_id)
    assert session is not None
    return session.all_slots.tolist()


def test_sessions_get_slots_of_their_own_and_give_them_back() -> None:
    roster = _roster()
    first, second = roster.assign(_hello()), roster.assign(_hello("b"))
    assert (first.num_groups, first.envs_per_group, first.role) == (2, 2, types.Role.TRAIN)
    assert _slots(roster, first.session_id) == [0, 1, 2, 3]
    assert _slots(roster, second.session_id) == [4, 5, 6, 7]
    with pytest.raises(
        errors.SlotsExhausted, match=r" 4 train .* 0 .*replay\.num_slots.*\b8\b.*--worker\.envs_per_group"
    ):
        roster.assign(_hello("c"))
    assert roster.remove(first.session_id) is not None
    assert roster.remove(first.session_id) is None
    assert _slots(roster, roster.assign(_hello("c")).session_id) == [0, 1, 2, 3]


def test_environments_go_to_the_emptiest_shard() -> None:
    roster = _roster(num_shards=2)
    first = roster.assign(_hello(max_envs=3))  # 2 groups of 1: one environment on each shard
    assert _slots(roster, first.session_id) == [0, 4]
    assert sorted(_slots(roster, roster.assign(_hello("b")).session_id)) == [1, 2, 5, 6]


def test_a_worker_for_fewer_environments_gets_whole_games() -> None:
    roster = _roster(num_train=16, num_evaluate=4, **{"worker.envs_per_group": 4})
    roster.spec = types.EnvSpec((2,), "float32", 3, seats=("left", "right"), tasks=("left", "right"), fixed_seats=True)
    assert roster.assign(_hello(max_envs=7)).envs_per_group == 2
    assert roster.assign(_hello("b", (types.Role.EVALUATE,), max_envs=3)).envs_per_group == 2
    with pytest.raises(errors.SpecMismatch, match=r"\b2\b.*--num_envs=3.*--num_envs=4"):
        roster.assign(_hello("c", max_envs=3))


@pytest.mark.parametrize("num_shards", [1, 2, 4])
def test_the_first_environments_have_the_first_numbers_on_any_devices(num_shards: int) -> None:
    layout = batches.Layout(num_shards, num_train=16, num_evaluate=4)
    roster = rosters.Roster(_config(), layout, max_group=16)
    numbers: list[int] = []
    for worker_id in ("a", "b"):
        shard, local = layout.place(np.array(_slots(roster, roster.assign(_hello(worker_id)).session_id)))
        numbers += np.asarray(layout.number(local, shard)).tolist()
    assert sorted(numbers) == list(range(8))


def test_an_evaluating_worker_gets_slots_behind_the_training_ones() -> None:
    roster = _roster()
    assignment = roster.assign(_hello(roles=(types.Role.EVALUATE,)))
    assert assignment.role is types.Role.EVALUATE
    assert _slots(roster, assignment.session_id) == [8, 9]
    with pytest.raises(
        errors.SlotsExhausted, match=r"worker b only evaluates, .*: 2 environments .*start it to train"
    ):
        roster.assign(_hello("b", roles=(types.Role.EVALUATE,)))


def test_one_worker_evaluates_even_where_it_left_slots_free() -> None:
    roster = _roster(num_train=64, num_evaluate=20, **{"env.id": "remote"})
    roles = [roster.assign(_hello(str(i), BOTH, "yours", max_envs=4)).role for i in range(4)]
    assert roles == [types.Role.TRAIN, types.Role.EVALUATE, types.Role.TRAIN, types.Role.TRAIN]


def test_a_group_that_one_device_could_not_batch_is_refused() -> None:
    roster = rosters.Roster(_config(), batches.Layout(2, 8, 0), max_group=2)
    gone = roster.assign(_hello(max_envs=4))  # groups of 2, one environment on each shard
    assert [sorted(slot // 4 for slot in group) for group in roster.get(gone.session_id).slots] == [[0, 1], [0, 1]]


def test_the_second_remote_worker_that_accepts_it_evaluates() -> None:
    roster = _roster(**{"env.id": "remote"})
    roles = [roster.assign(_hello(str(i), BOTH, "yours")).role for i in range(3)]
    assert roles == [types.Role.TRAIN, types.Role.EVALUATE, types.Role.TRAIN]


@pytest.mark.parametrize(("env", "kind"), [("catch", "atari"), ("remote", "catch")])
def test_a_worker_without_the_environment_is_refused_by_name(env: str, kind: str) -> None:
    with pytest.raises(errors.SpecMismatch, match="worker a"):
        _roster(**{"env.id": env}).assign(_hello(kind=kind))


def test_every_environment_is_told_its_place_among_those_of_its_role() -> None:
    roster = _roster()
    assert roster.assign(_hello()).indices == (0, 1, 2, 3)
    assert roster.assign(_hello("b")).indices == (4, 5, 6, 7)
    assert roster.assign(_hello(roles=(types.Role.EVALUATE,))).indices == (0, 1)


def test_hosts_deal_their_first_environments_distinct_places() -> None:
    hosts = [_roster(**{"cluster.num_hosts": 3, "cluster.index": index}) for index in range(3)]
    places = [place for roster in hosts for place in roster.assign(_hello()).indices]
    assert sorted(places) == list(range(12))
    assert hosts[1].assign(_hello(roles=(types.Role.EVALUATE,))).indices == (0, 1)


def test_seeds_differ_between_environments_and_between_sessions() -> None:
    roster = _roster()
    first = roster.assign(_hello())
    roster.remove(first.session_id)
    second = roster.assign(_hello())
    assert len({*first.seeds, *second.seeds}) == 8


def test_deterministic_slots_and_seeds_depend_on_the_worker_and_the_checkpoint_alone() -> None:
    def join(order: list[int], epoch: int) -> dict[str, tuple[list[int], tuple[int, ...]]]:
        roster = _roster(**{"run.deterministic": True, "worker.num": 2})
        roster.epoch = epoch
        given = {index: roster.assign(_hello(f"local-{index}")) for index in order}
        return {str(index): (_slots(roster, a.session_id), a.seeds) for index, a in given.items()}

    assert join([0, 1], 0) == join([1, 0], 0)
    assert join([0, 1], 0) != join([0, 1], 1)
    assert join([1, 0], 0)["1"][0] == [4, 5, 6, 7]


def test_a_deterministic_run_takes_no_other_workers() -> None:
    config = _config(**{"run.deterministic": True})
    roster = rosters.Roster(config, batches.Layout(1, 8, 0), max_group=16, key="of local workers")
    hello = _hello("local-0")
    with pytest.raises(errors.SlotsExhausted, match=r"local-0 .* 1 local .*deterministic"):
        roster.assign(hello)
    assert roster.assign(dataclasses.replace(hello, key="of local workers")).num_groups == 2


def test_evaluation_plays_whole_games_where_training_ends_at_a_lost_life() -> None:
    roster = _roster(**{"env.id": "atari:Pong", "env.life_loss": True})
    training = roster.assign(_hello(kind="atari"))
    evaluating = roster.assign(_hello("e", (types.Role.EVALUATE,), "atari"))
    assert '"life_loss": true' in training.env_settings
    assert '"life_loss": false' in evaluating.env_settings


def test_only_evaluations_against_others_than_random_moves_are_told_the_opponents() -> None:
    """Workers of earlier versions do not know the setting."""
    for given, told in (("random", False), ("random,mcts-9", True)):
        roster = _roster(**{"env.opponents": given})
        training, evaluating = roster.assign(_hello()), roster.assign(_hello("e", (types.Role.EVALUATE,)))
        assert "opponents" not in training.env_settings
        assert ("opponents" in evaluating.env_settings) is told


def test_only_sessions_whose_spec_was_accepted_count_as_started() -> None:
    roster = _roster()
    assignment = roster.assign(_hello())
    assert roster.started(types.Role.TRAIN) == []
    roster.begin(assignment.session_id)
    assert [session.session_id for session in roster.started(types.Role.TRAIN)] == [assignment.session_id]
    assert np.array_equal(roster.started(types.Role.TRAIN)[0].slots[1], [2, 3])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"league.builder": "alphastar", "league.main_exploiters": 1}, " 2 players learn"),
        ({"run.agent": "ppo", "seats.policies": "each"}, r"--seats\.policies=each learn"),
    ],
)
def test_where_several_players_learn_a_group_is_whole(settings: dict[str, options.Value], told: str) -> None:
    roster = _roster(**settings)
    assert _slots(roster, roster.assign(_hello()).session_id) == [0, 1, 2, 3]
    with pytest.raises(errors.SlotsExhausted, match=rf"\b1\b.*{told}.*worker\.envs_per_group=2.*\b4\b"):
        roster.assign(_hello("b", max_envs=3))


def test_bots_are_named_to_training_workers_that_know_them() -> None:
    members = "random,mcts-9,spiel:uniform_random"
    roster = _roster(**{"league.freeze_every": 100, "league.members": members})
    knows = dataclasses.replace(_hello("b", BOTH), knows_bots=True)
    without, with_bots = roster.assign(_hello()), roster.assign(knows)
    assert without.bots == () and with_bots.bots == ("mcts-9", "spiel:uniform_random")
    for session in (without, with_bots):
        roster.begin(session.session_id)
    assert [rosters.knows_bots(roster, slot) for slot in range(8)] == [False] * 4 + [True] * 4
    evaluating = roster.assign(dataclasses.replace(knows, roles=(types.Role.EVALUATE,)))
    assert evaluating.role is types.Role.EVALUATE and evaluating.bots == ()
    roster.remove(with_bots.session_id)
    assert not rosters.knows_bots(roster, 4)
    assert _roster().assign(knows).bots == (), "there is no league"


def test_whole_groups_go_to_the_place_with_the_smallest_share_taken() -> None:
    table = np.repeat([0, 1, 0, 1, 0, -1], 2)  # three groups of the first place, two of the second
    roster = rosters.Roster(_config(), batches.Layout(1, 6, 0, np.arange(12)), 16, table=table)
    first, second = roster.assign(_hello()), roster.assign(_hello("b"))
    assert _slots(roster, first.session_id) == [0, 1, 2, 3]
    assert _slots(roster, second.session_id) == [4, 5, 6, 7]
    roster.remove(first.session_id)
    assert _slots(roster, roster.assign(_hello("c")).session_id) == [0, 1, 2, 3]
    roster.remove(second.session_id)


FAR = links.WorkerLink(2, 2, 0.001, 0.001, 0.1, 0.001, 1000.0, is_complete=True)


def _far_roster(follows_links: bool = True, num_train: int = 16, **values: options.Value) -> rosters.Roster:
    layout = batches.Layout(1, num_train, 2)
    return rosters.Roster(_config(**values), layout, max_group=16, key="ours", follows_links=follows_links)


def _groups(roster: rosters.Roster, worker_id: str = "a", max_envs: int = 99) -> tuple[str, int, int]:
    """Lets a worker join; returns its session, and the number and size of its groups."""
    joined = roster.assign(_hello(worker_id, max_envs=max_envs))
    return joined.session_id, joined.num_groups, joined.envs_per_group


@pytest.mark.parametrize(("max_envs", "expected"), [(99, (8, 2)), (11, (5, 2)), (worker_options.UNLIMITED_ENVS, None)])
def test_a_far_worker_with_room_gets_more_groups_when_it_joins_again(
    max_envs: int, expected: tuple[int, int] | None
) -> None:
    roster = _far_roster()
    session_id, *before = _groups(roster, max_envs=max_envs)
    assert before == [2, 2] and roster.regroup(session_id, FAR, 0.0) == expected
    assert _slots(roster, session_id) == [0, 1, 2, 3]  # until it has joined again
    roster.remove(session_id)
    assert _groups(roster, max_envs=max_envs)[1:] == (expected or (2, 2))
    if expected != (8, 2):
        assert _groups(roster, "b", max_envs=4)[1:] == (2, 2)


def test_groups_change_at_most_once_in_ten_minutes() -> None:
    roster = _far_roster()
    session_id, *_ = _groups(roster, max_envs=8)
    assert roster.regroup(session_id, FAR, 100.0) == (4, 2)
    roster.remove(session_id)
    session_id, *_ = _groups(roster, max_envs=16)
    now = FAR._replace(num_groups=4)
    assert roster.regroup(session_id, now, 699.0) is None
    assert roster.regroup(session_id, now, 700.0) == (8, 2)


def test_planned_groups_need_the_room_that_is_there_when_the_worker_joins() -> None:
    roster = _far_roster()
    session_id, *_ = _groups(roster)
    assert roster.regroup(session_id, FAR, 0.0) == (8, 2)
    roster.remove(session_id)
    _groups(roster, "b")
    assert _groups(roster)[1:] == (2, 2)


def test_slots_of_announced_workers_stay_free() -> None:
    roster = _far_roster(**{"worker.num": 0, "worker.num_remote": 3})
    session_id, *_ = _groups(roster)
    assert roster.regroup(session_id, FAR, 0.0) == (4, 2)  # 16 slots, 8 of them for two more workers


def test_a_worker_that_grew_makes_room_for_one_that_finds_none() -> None:
    roster = _far_roster()
    session_id, *_ = _groups(roster)
    assert roster.regroup(session_id, FAR, 0.0) == (8, 2)
    roster.remove(session_id)
    session_id, *_ = _groups(roster)
    with pytest.raises(errors.SlotsExhausted):
        roster.assign(_hello("b"))
    assert roster.regroup(session_id, FAR._replace(num_groups=8), 5.0) == (2, 2)
    roster.remove(session_id)
    assert _groups(roster)[1:] == _groups(roster, "b")[1:] == (2, 2)


@pytest.mark.parametrize(
    "values",
    [
        {"follows_links": False},  # worker.num_groups was given
        {"run.deterministic": True},
        {"env.id": "remote"},
        {"env.id": "spiel:tic_tac_toe", "run.agent": "ppo", "league.freeze_every": 100},
    ],
)
def test_groups_stay_as_they_are(values: dict[str, options.Value]) -> None:
    roster = _far_roster(**{**values, "worker.num": 1})  # type: ignore[arg-type]
    kind = {"remote": "yours", "spiel:tic_tac_toe": "spiel"}.get(str(values.get("env.id")), "catch")
    key = "ours" if "run.deterministic" in values else ""
    hello = messages.Hello("local-0", "", (types.Role.TRAIN,), (kind,), 99, key)
    assert roster.regroup(roster.assign(hello).session_id, FAR, 0.0) is None


def test_local_workers_evaluations_and_games_of_seats_keep_their_groups() -> None:
    roster = _far_roster()
    local = roster.assign(messages.Hello("a", "", (types.Role.TRAIN,), ("catch",), 99, "ours"))
    evaluator = roster.assign(_hello("b", (types.Role.EVALUATE,)))
    seats = roster.assign(_hello("c"))
    roster.begin(seats.session_id, ("left", "right"), 2)
    assert not [one for one in (local, evaluator, seats) if roster.regroup(one.session_id, FAR, 0.0)]
    assert roster.regroup("unknown", FAR, 0.0) is None
