"""Phases, sessions, leases and sequence numbers, without sockets."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from seedzero.core import errors, packing, types
from seedzero.transport import inference_pb2, sessions

E = 2
SPEC = types.EnvSpec((1,), "float32", 3)
ASSIGNMENT = types.Assignment("id-1", types.Role.TRAIN, "catch", "{}", 2, E, (0,) * 4)


def make_step(**changes: Any) -> types.EnvStep:
    quiet = types.EnvStep(np.zeros((E, 1), np.float32), np.zeros(E, np.float32), np.zeros(E, bool), np.zeros(E, bool))
    return quiet._replace(**{name: np.array(value, getattr(quiet, name).dtype) for name, value in changes.items()})


_NO_HELLO, _NO_SPEC, _TWICE, _NO_ASSIGN = "before Hello", "before Spec", "twice; session id-1", "before Assign"
PHASES = {
    "hello": (0, _TWICE, _TWICE, 3, 4),
    "spec": (_NO_HELLO, 1, 2, 3, 4),
    "step": (_NO_HELLO, _NO_SPEC, 2, 3, 4),
    "heartbeat": (0, 1, 2, 3, 4),
    "goodbye": (0, 1, 2, 3, 4),
    "assign": (1, 1, 2, 1, 4),
    "start": (_NO_ASSIGN, 2, 2, _NO_ASSIGN, 4),
    "restart": (3, 3, 3, 3, 4),
    "close": (4, 4, 4, 4, 4),
    "": ("without content",) * 5,
}
"""Numbers of phases from NEW to CLOSED, or words of the refusal."""


def new_session(now: float = 10.0) -> sessions.LearnerSession[str]:
    return sessions.LearnerSession("worker", ASSIGNMENT, 15.0, now)


def make_session(spec: types.EnvSpec = SPEC) -> sessions.LearnerSession[str]:
    session = new_session()
    session.begin(spec, 10.0)
    return session


def play(session: sessions.LearnerSession[str], *steps: types.EnvStep) -> list[list[bool]]:
    """Returns the first flags of each step of group 0, all answered at once."""
    flags = []
    for sequence, step in enumerate(steps):
        flags.append(session.accept(0, sequence, step).first.tolist())
        assert session.answer(0, sequence, b"answer", 0.0)
    return flags


def test_each_message_leads_to_a_phase_or_is_refused() -> None:
    for message, row in PHASES.items():
        for phase, expected in zip(sessions.StreamPhase, row, strict=True):
            if isinstance(expected, int):
                assert phase.after(message, "id-1") is sessions.StreamPhase(expected)
                continue
            with pytest.raises(errors.InvalidMessage, match=expected):
                phase.after(message, "id-1")


def test_table_has_all_messages_of_workers() -> None:
    names = {field.name for field in inference_pb2.WorkerMessage.DESCRIPTOR.oneofs_by_name["message"].fields}
    assert names <= sessions.TRANSITIONS.keys() == PHASES.keys()


def test_first_flags_follow_next_step_auto_reset() -> None:
    steps = make_step(), make_step(terminated=[True, False]), make_step(truncated=[False, True]), make_step()
    assert play(make_session(), *steps) == [[True, True], [False, False], [True, False], [False, True]]


def test_repeated_step_joins_the_pending_one_or_gets_its_answer() -> None:
    session = make_session()
    assert session.look_up(0, 0) is sessions.Repeat.NEW
    session.accept(0, 0, make_step())
    assert session.look_up(0, 0) is sessions.Repeat.PENDING
    session.answer(0, 0, b"answer", 0.0)
    assert session.look_up(0, 0) == b"answer"
    assert session.look_up(0, 1) is sessions.Repeat.NEW
    session.accept(0, 1, make_step())
    assert session.look_up(0, 1) is sessions.Repeat.PENDING


def test_groups_count_on_their_own() -> None:
    session = make_session()
    play(session, make_step(), make_step())
    assert session.look_up(1, 0) is sessions.Repeat.NEW


@pytest.mark.parametrize(
    ("num_answered", "group", "sequence", "message"),
    [
        (3, 0, 4, "4 of group 0 .* 2; .* 3"),
        (3, 0, 1, "1 of group 0 .* 2; .* 3"),
        (0, 0, 1, "1 of group 0 .* step 0"),  # before the answer
        (0, 2, 0, "group is 2; .* 0 to 1"),
    ],
)
def test_other_numbers_are_refused(num_answered: int, group: int, sequence: int, message: str) -> None:
    session = make_session()
    play(session, *[make_step()] * num_answered)
    if not num_answered:
        session.accept(0, 0, make_step())
    with pytest.raises((errors.SequenceError, errors.InvalidMessage), match=message):
        session.look_up(group, sequence)


def test_answer_counts_once_and_only_for_the_pending_step() -> None:
    session = make_session()
    assert not session.answer(0, 0, b"early", 0.0)
    session.accept(0, 0, make_step())
    assert not session.answer(0, 1, b"wrong", 0.0)
    assert session.answer(0, 0, b"right", 0.0)
    assert not session.answer(0, 0, b"again", 0.0)
    assert session.look_up(0, 0) == b"right"


def test_what_is_not_finite_in_one_of_several_arrays_is_refused_with_its_name() -> None:
    arrays = [types.ArraySpec("image", (5,), "uint8"), types.ArraySpec("arm", (2,), "float32")]
    session = make_session(types.EnvSpec.of_arrays(arrays, num_actions=2))
    values = {"image": np.full((2, 5), 255), "arm": np.zeros((2, 2))}
    session.accept(0, 0, make_step()._replace(observation=packing.pack(arrays, values)))
    values["arm"][1, 0] = np.nan
    with pytest.raises(errors.InvalidMessage, match=r"1 of group 1 \(catch\).* nan .*'arm'"):
        session.accept(1, 0, make_step()._replace(observation=packing.pack(arrays, values)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reward": [0, np.nan]}, r"1 of group 0 \(catch\), 0 .* nan .*reward"),
        ({"reward": [np.inf, 0]}, "0 of group 0 .* inf .*reward"),
        ({"observation": [[0], [-np.inf]]}, "1 of group 0 .* -inf .*observation"),
        ({"terminated": [False, True]}, "1 of group 0 .* terminated or truncated"),
        ({"truncated": [True, False]}, "0 of group 0 .* terminated or truncated"),
        ({"reward": [0, 1]}, "1 of group 0 .* reward"),
    ],
)
def test_impossible_values_are_refused_and_leave_no_trace(changes: dict[str, Any], message: str) -> None:
    session = make_session()
    with pytest.raises(errors.InvalidMessage, match=message):
        session.accept(0, 0, make_step(**changes))
    assert session.look_up(0, 0) is sessions.Repeat.NEW


def test_later_steps_may_have_rewards_and_ends_but_no_end_twice_in_a_row() -> None:
    session, end = make_session(), make_step(reward=[1, -2], terminated=[True, False], truncated=[True, True])
    play(session, make_step(), end)
    with pytest.raises(errors.InvalidMessage, match=r"environment 0 of group 0 .* 2 steps"):
        session.accept(0, 2, make_step(terminated=[True, False]))


def test_mask_without_a_legal_action_is_refused() -> None:
    step = make_step()._replace(action_mask=np.array([[True, False, False], [False] * 3]))
    with pytest.raises(errors.InvalidMessage, match=r"1 of group 0 .* action_mask"):
        make_session().accept(0, 0, step)


def test_spec_counts_once_and_cannot_change() -> None:
    session = new_session()
    assert session.begin(SPEC, 10.0)
    assert not session.begin(SPEC, 10.0)
    with pytest.raises(errors.SpecMismatch, match=r"session id-1 .*\b1\b.*'float32'.*\b0\b"):
        session.begin(types.EnvSpec((1,), "float32", 4), 10.0)


def test_lease_ends_unless_it_is_renewed() -> None:
    session = new_session(100.0)
    assert session.expires_at == 115.0
    session.renew(110.0)
    assert session.expires_at == 125.0
    session.restart_deadlines(125.0)
    assert session.expires_at == 140.0


def test_a_worker_owes_its_spec_and_then_what_follows_each_answer() -> None:
    session = new_session()
    assert session.owed_since == 10.0
    session.begin(SPEC, 20.0)
    session.begin(SPEC, 25.0)  # sent again on another stream
    assert session.owed_since == 20.0
    session.accept(0, 0, make_step())
    assert session.owed_since == 20.0  # group 1 has sent nothing
    session.accept(1, 0, make_step())
    assert session.owed_since == np.inf  # however long the learner takes
    session.answer(1, 0, b"answer", 30.0)
    session.answer(0, 0, b"answer", 40.0)
    assert session.owed_since == 30.0
    session.accept(1, 1, make_step())
    assert session.owed_since == 40.0


def test_a_learner_that_stood_still_lets_all_deadlines_begin_anew() -> None:
    session = new_session(100.0)
    session.restart_deadlines(200.0)
    assert session.owed_since == 200.0
    session.begin(SPEC, 210.0)
    session.accept(0, 0, make_step())
    session.restart_deadlines(300.0)
    assert session.owed_since == 300.0
    session.accept(1, 0, make_step())
    session.restart_deadlines(400.0)
    assert session.owed_since == np.inf


SEATS = ("first", "second")
SEATED = types.EnvSpec((1,), "float32", 3, tasks=SEATS, seats=SEATS, has_action_mask=True)


def make_seated(
    role: types.Role = types.Role.TRAIN, num_rows: int = 2, spec: types.EnvSpec = SEATED
) -> sessions.LearnerSession[str]:
    assignment = types.Assignment("id-1", role, "spiel:kuhn_poker", "{}", 2, num_rows, (0,) * 2 * num_rows)
    session: sessions.LearnerSession[str] = sessions.LearnerSession("worker", assignment, 15.0, 10.0)
    session.begin(spec, 10.0)
    return session


def seated(shown: str, *, ends: str = "", reward: tuple[float, float] = (0, 0), **changes: Any) -> types.EnvStep:
    """Returns a step of a game of two rows; shown, ends: digits of rows."""
    flags = {name: [str(row) in text for row in range(E)] for name, text in (("shown", shown), ("terminated", ends))}
    rows = {"task": np.arange(E, dtype=np.int32), "action_mask": np.ones((E, 3), bool), **changes}
    return make_step(terminated=flags["terminated"], reward=reward)._replace(shown=np.array(flags["shown"]), **rows)


def test_rows_of_seats_begin_and_end_where_they_are_shown() -> None:
    steps = [
        seated("0"),  # a game in which the second seat never moves
        seated("0", ends="0", reward=(2, 0)),
        seated("1"),  # another, in which the second seat moves first, and the first seat ends early
        seated("0"),
        seated("01", ends="0", reward=(-1, 0)),
        seated("1"),
        seated("1", ends="1", reward=(0, 1)),
        seated("01"),  # simultaneous moves
        seated("01", ends="01"),
        seated("0"),
    ]
    begun = [[True, False], [False, False], [False, True], [True, False], *[[False, False]] * 3, [True, True]]
    assert play(make_seated(), *steps) == [*begun, [False, False], [True, False]]


def test_rows_of_agents_are_seats_in_evaluations_too() -> None:
    agents = dataclasses.replace(SEATED, fixed_seats=True)
    steps = [seated("01"), seated("01", ends="0"), seated("1"), seated("1", ends="1"), seated("01")]
    begun = [[True, True], [False, False], [False, False], [False, False], [True, True]]
    assert play(make_seated(types.Role.EVALUATE, spec=agents), *steps) == begun
    with pytest.raises(errors.SpecMismatch, match=r"\b3\b.*\b2\b.*evaluation\.num_envs.*\b2\b"):
        make_seated(types.Role.EVALUATE, 3, agents)


def test_rows_of_seats_that_make_no_game_are_refused() -> None:
    wrong = (
        ([seated("0", reward=(0, 1))], r"environment 1 .*\(spiel:kuhn_poker\), 0 steps .* in a row that is not shown"),
        ([seated("0", ends="1")], "environment 1 .* a reward or an end in a row that is not shown"),
        ([seated("0", task=np.zeros(E, np.int32))], r"environment 0 .* \(its task\) of another seat"),
        ([seated("")], "environment 0 .* 0 steps .* no seat moves"),
        ([seated("01"), seated("0", ends="0")], "environment 0 .* 1 steps .* no seat moves"),  # after a seat's end
    )
    for steps, told in wrong:
        with pytest.raises(errors.InvalidMessage, match=told):
            play(make_seated(), *steps)
    with pytest.raises(errors.InvalidMessage, match=r"environment 1 .* not shown; expected all: .*evaluation"):
        play(make_seated(types.Role.EVALUATE), seated("0"))
    with pytest.raises(errors.SpecMismatch, match=r"3 rows, .* 2 seats \(first, second\); .*--worker\.envs_per_group"):
        make_seated(num_rows=3)


def test_played_actions_follow_upon_an_answer_with_a_bot_and_upon_no_other() -> None:
    session, told = make_session(), np.zeros(E, np.int32)
    session.accept(0, 0, make_step())
    assert session.answer(0, 0, b"with a bot", 0.0, asks_bots=True)
    assert session.look_up(0, 0) == b"with a bot", "an answer that is sent again names the same bot"
    with pytest.raises(errors.InvalidMessage, match=r"\b0\b.*\b1\b.*does not tell"):
        session.accept(0, 1, make_step())
    assert session.accept(0, 1, make_step()._replace(played=told)).step.played is told
    assert session.answer(0, 1, b"without", 0.0)
    with pytest.raises(errors.InvalidMessage, match=r"\b0\b.*\b2\b.*tells"):
        session.accept(0, 2, make_step()._replace(played=told))
    session.accept(0, 2, make_step())
    session.accept(1, 0, make_step())  # each group by itself
