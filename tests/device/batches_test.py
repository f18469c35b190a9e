"""From messages to padded batches."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from seedzero.config import configs, machines, options, presets
from seedzero.core import types
from seedzero.device import batches
from seedzero.transport import messages

SPEC = types.EnvSpec((2,), "float32", 3)
MASKED = types.EnvSpec((2,), "float32", 3, has_action_mask=True)
ONE = batches.Layout(num_shards=1, num_train=8, num_evaluate=4)
TWO = batches.Layout(num_shards=2, num_train=8, num_evaluate=4)


def _message(
    slots: list[int], role: types.Role = types.Role.TRAIN, session_id: str = "r", mask: np.ndarray | None = None
) -> batches.Message:
    number = len(slots)
    step = types.EnvStep(
        observation=np.array([[slot, slot + 0.5] for slot in slots], np.float32),
        reward=np.array(slots, np.float32),
        terminated=np.array([slot % 2 == 0 for slot in slots]),
        truncated=np.array([slot % 2 == 1 for slot in slots]),
        action_mask=mask,
    )
    request = messages.StepRequest(session_id, role, 0, 0, step, np.zeros(number, bool))
    return batches.Message(request, np.array(slots, np.int32), 0.0)


def _assemble(
    waiting: list[batches.Message],
    spec: types.EnvSpec,
    layout: batches.Layout,
    sizes: tuple[int, ...],
    mine: np.ndarray | None = None,
) -> tuple[batches.Batch, np.ndarray]:
    return batches.assemble(waiting, batches.join(waiting), mine, spec, layout, sizes, types.EXPLORE)


def test_evaluation_slots_lie_behind_the_rings_of_their_shard() -> None:
    shard, local = TWO.place(np.array([0, 3, 4, 7, 8, 9, 10, 11]))
    assert shard.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert local.tolist() == [0, 3, 0, 3, 4, 5, 4, 5]
    assert TWO.slots_per_shard == 6


def test_a_batch_is_padded_to_the_smallest_size_that_holds_it() -> None:
    batch, rows = _assemble([_message([3, 1]), _message([6])], SPEC, ONE, (2, 4, 8))
    assert rows.tolist() == [0, 1, 2]
    assert batch.slot.tolist() == [3, 1, 6, 12]
    assert batch.observation[:, 0].tolist() == [3, 1, 6, 0]
    assert batch.reward.tolist() == [3, 1, 6, 0]
    assert batch.terminated.tolist() == [False, False, True, False]
    assert batch.truncated.tolist() == [True, True, False, False]
    assert batch.first.tolist() == [False, False, False, True]
    assert np.all(batch.action_mode == types.EXPLORE)


def test_rows_lie_on_the_shard_of_their_slot_and_actions_find_back() -> None:
    batch, rows = _assemble([_message([5, 0]), _message([1, 2])], SPEC, TWO, (2, 3, 8))
    assert batch.slot.tolist() == [0, 1, 2, 1, 6, 6]  # 3 rows a shard, the second shard padded
    assert rows.tolist() == [3, 0, 1, 2]
    assert batch.observation[rows][:, 0].tolist() == [5, 0, 1, 2]


def test_a_mover_s_batch_has_its_rows_alone_of_each_message() -> None:
    masks = [np.array([[True, True, False], [True, False, True]]), np.array([[False, True, True]] * 3)]
    waiting = [_message([5, 0], mask=masks[0]), _message([1, 2, 6], mask=masks[1])]
    mine = np.array([False, True, True, False, True])
    batch, rows = _assemble(waiting, MASKED, ONE, (2, 3, 8), mine)
    assert batch.slot.tolist() == [0, 1, 6] and rows.tolist() == [0, 1, 2]
    assert batch.observation[:, 0].tolist() == batch.reward.tolist() == [0, 1, 6]
    assert batch.terminated.tolist() == [True, False, True]
    assert batch.action_mask.tolist() == [masks[0][1].tolist(), masks[1][0].tolist(), masks[1][2].tolist()]
    others, _ = _assemble(waiting, MASKED, TWO, (2, 3, 8), ~mine)
    assert others.slot.tolist() == [2, 6, 1, 6] and others.observation[:, 0].tolist() == [2, 0, 5, 0]


def test_joined_rows_know_the_first_slot_of_their_message() -> None:
    joined = batches.join([_message([5, 0]), _message([1, 2, 6])])
    assert joined.slot.tolist() == [5, 0, 1, 2, 6] and joined.group.tolist() == [5, 5, 1, 1, 1]
    assert joined.final.all()


def test_joined_rows_know_their_mover_where_a_player_may_move_again() -> None:
    messages = [_message([5, 0]), _message([1])]  # whose last numbers are their slots and 0.5
    assert batches.join(messages).mover is None and batches.join(messages, SPEC).mover is None
    spec = dataclasses.replace(SPEC, num_players=2, moves_again=True)
    assert batches.join(messages, spec).mover.tolist() == [5.5, 0.5, 1.5]


def test_seats_that_are_not_shown_are_no_rows() -> None:
    """Two games of two seats, of which the first shows its second one and the other both; and the answer to them."""
    whole = _message([4, 5, 1, 2], mask=np.array([[False] * 3, *[[True, False, True]] * 3]))
    shown = np.array([False, True, True, True])
    step = whole.request.step._replace(shown=shown, task=np.array([1, 0, 0, 1], np.int32))
    request = whole.request._replace(step=step, first=np.array([True, True, False, False]))
    message = batches.seated(request, whole.slots, 1.5, num_seats=2)
    assert (message.num_envs, message.first_slot, message.arrived) == (4, 4, 1.5)
    joined = batches.join([message, batches.seated(_message([6, 7]).request, np.array([6, 7]), 0.0, num_seats=2)])
    assert joined.slot.tolist() == [5, 1, 2, 6, 7] and joined.game.tolist() == [4, 1, 1, 6, 6]
    assert joined.group.tolist() == [4, 4, 4, 6, 6] and joined.task.tolist() == [0, 0, 1, 0, 0]
    assert joined.first.tolist() == [True, False, False, False, False] and joined.reward.tolist() == [5, 1, 2, 6, 7]
    batch, _ = _assemble([message], MASKED, ONE, (4,))
    assert batch.slot.tolist() == [5, 1, 2, 12] and batch.ring.tolist() == [5, 1, 2, 8]
    assert batch.observation[:, 0].tolist() == [5, 1, 2, 0] and batch.action_mask[0].tolist() == [True, False, True]
    asked, actions = message.answer(np.array([7, 8, 9], np.int32))
    assert asked is request and actions.tolist() == [0, 7, 8, 9]
    assert message.answer(np.array([[7.0], [8.0], [9.0]]))[1].tolist() == [[0], [7], [8], [9]]
    unstored, _ = batches.assemble(
        [message],
        batches.join([message]),
        np.array([True, False, True]),
        MASKED,
        ONE,
        (4,),
        types.SAMPLE,
        stored=False,
    )
    assert unstored.slot.tolist() == [5, 2, 12, 12] and unstored.ring.tolist() == [8] * 4


def test_each_row_has_its_environment_s_task_and_padding_the_first() -> None:
    told = _message([3, 1])
    step = told.request.step._replace(task=np.array([2, 1], np.int32))
    told = told._replace(request=told.request._replace(step=step))
    batch, rows = _assemble([_message([6]), told], SPEC, ONE, (4,))
    assert batch.task[rows].tolist() == [0, 2, 1] and batch.task.tolist() == [0, 2, 1, 0]
    assert batch.task.dtype == np.int32


def test_a_batch_has_one_mode_of_acting() -> None:
    waiting = [_message([8], types.Role.EVALUATE)]
    batch, _ = batches.assemble(waiting, batches.join(waiting), None, SPEC, ONE, (1,), types.GREEDY)
    assert np.all(batch.action_mode == types.GREEDY)


def test_masks_reach_their_rows_and_padding_may_do_anything() -> None:
    mask = np.array([[True, False, False], [False, True, True]])
    batch, _ = _assemble([_message([0, 1], mask=mask)], MASKED, ONE, (4,))
    assert np.array_equal(batch.action_mask[:2], mask)
    assert batch.action_mask[2:].all()


def test_a_batch_never_reuses_a_buffer() -> None:
    first, _ = _assemble([_message([0])], SPEC, ONE, (4,))
    second, _ = _assemble([_message([1])], SPEC, ONE, (4,))
    arrays = (batches.padding(SPEC, ONE, 4), first, second)
    assert not any(np.shares_memory(one, other) for one, other in itertools.combinations(jax.tree.leaves(arrays), 2))


@pytest.mark.parametrize(
    ("max_rows", "min_rows", "sizes"), [(32, 16, (16, 32)), (100, 16, (25, 50, 100)), (8, 16, (8,)), (1, 1, (1,))]
)
def test_batch_sizes_are_the_maximum_and_its_halves(max_rows: int, min_rows: int, sizes: tuple[int, ...]) -> None:
    assert batches.batch_sizes(max_rows, min_rows, 0) == sizes


@pytest.mark.parametrize(("rows", "sizes"), [(1, (1, 25, 50)), (12, (12, 25, 50)), (13, (25, 50)), (60, (25, 50))])
def test_evaluation_has_a_size_of_its_own_where_others_were_mostly_padding(rows: int, sizes: tuple[int, ...]) -> None:
    assert batches.batch_sizes(50, 16, rows) == sizes


@pytest.mark.parametrize(
    ("preset", "platform", "num_shards", "settings", "sizes"),
    [
        ("atari", "gpu", 1, {}, (32, 128, 256)),
        ("atari", "tpu", 4, {}, (8, 32, 64)),
        ("atari", "gpu", 1, {"evaluation.every_updates": 0}, (128, 256)),
        ("atari", "gpu", 1, {"run.deterministic": True}, (256,)),
        (
            "catch",
            "gpu",
            2,
            {
                "run.deterministic": True,
                "worker.num_groups": 6,
                "worker.envs_per_group": 4,
                "replay.num_slots": 32,
                "batcher.max_batch": 24,
            },
            (16,),  # 16 environments on the first device, 8 on the second
        ),
        ("atari", "cpu", 1, {}, (16, 32)),
        ("cartpole", "cpu", 1, {}, (16, 32)),
        ("catch", "cpu", 1, {}, (16, 32)),
    ],
)
def test_presets_compile_no_more_sizes_than_they_need(
    preset: str, platform: str, num_shards: int, settings: dict[str, options.Value], sizes: tuple[int, ...]
) -> None:
    asked = configs.override(presets.get(preset), settings)
    where = machines.Machine(platform, 2, num_shards)
    resolved, _ = machines.resolve(asked, preset=preset, explicit=settings.keys(), machine=where)
    assert batches.plan(resolved, num_shards)[1] == sizes


@pytest.mark.parametrize(
    "layout", [ONE, TWO, batches.Layout(4, 8, 4), batches.Layout(4, 12, 0), batches.Layout(1, 3, 1)]
)
def test_slots_have_numbers_of_their_own_and_those_that_evaluate_the_last(layout: batches.Layout) -> None:
    slots = np.arange(layout.num_train + layout.num_evaluate)
    shard, local = layout.place(slots)
    assert sorted(zip(shard.tolist(), local.tolist(), strict=True)) == [
        (s, i) for s in range(layout.num_shards) for i in range(layout.slots_per_shard)
    ]
    number = np.asarray(layout.number(local, shard))
    assert sorted(number[: layout.num_train].tolist()) == list(range(layout.num_train))
    assert sorted(number.tolist()) == slots.tolist()


def test_a_batch_of_padding_alone_touches_no_slot() -> None:
    batch = batches.padding(SPEC, TWO, 3)
    assert batch.slot.tolist() == [TWO.slots_per_shard] * 6
    assert batch.observation.shape == (6, 2) and batch.observation.dtype == np.float32
    assert batch.action_mask.shape == (6, 3) and batch.action_mask.all()
    assert batch.first.all() and np.all(batch.action_mode == types.GREEDY)
