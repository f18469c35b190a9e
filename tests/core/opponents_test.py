"""Names of opponents, and the tasks that stand for them."""

from __future__ import annotations

import pytest

from seedzero.core import opponents


@pytest.mark.parametrize(
    ("text", "names"),
    [("random", ("random",)), ("mcts-9", ("mcts-9",)), ("random, mcts-50", ("random", "mcts-50"))],
)
def test_names_are_separated_by_commas(text: str, names: tuple[str, ...]) -> None:
    assert opponents.parse(text) == names


@pytest.mark.parametrize("text", ["", "mcts", "mcts-0", "mcts--1", "mcts-1e3", "random,random", "random,", "best"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="mcts-N"):
        opponents.parse(text)


def test_a_task_names_opponent_and_side() -> None:
    tasks = opponents.tasks(("random", "mcts-9"))
    assert [opponents.of_task(task) for task in tasks] == [("random", 0), ("random", 1), ("mcts-9", 0), ("mcts-9", 1)]
    assert opponents.of_task("rooms_watermaze") == opponents.of_task("") == ("", 0)


def test_random_moves_alone_have_no_tasks() -> None:
    assert opponents.tasks(("random",)) == ()
    assert opponents.tasks(("mcts-9",)) == ("mcts-9/first", "mcts-9/second")


def test_means_are_over_both_sides() -> None:
    by_task = {"random/first": 1.0, "random/second": 0.5, "mcts-9/first": -1.0, "mcts-9/second": 0.0}
    assert opponents.mean_returns(by_task) == {"random": 0.75, "mcts-9": -0.5}
    assert opponents.mean_returns({"rooms_watermaze": 1.0}) == {}


def test_scripted_members_are_separated_by_commas_outside_of_brackets() -> None:
    text = "random, mcts-50,spiel:fixed_action_preference(actions=4:3,x=1),a.b:bot"
    names = ("random", "mcts-50", "spiel:fixed_action_preference(actions=4:3,x=1)", "a.b:bot")
    assert opponents.parse_members(text) == names and opponents.parse_members("") == ()
    assert all(map(opponents.is_member, names)) and not opponents.is_member("main-0123456789ab")
    assert [opponents.is_of_user(name) for name in names] == [False, False, False, True]


MANY = ",".join(f"mcts-{number}" for number in range(1, 66))


@pytest.mark.parametrize("text", ["best", "mcts", "random,random", "random,", "spiel:", "a:", ":b", "spiel:x(", MANY])
def test_other_members_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="MODULE:FUNCTION"):
        opponents.parse_members(text)


def test_bots_for_rock_paper_scissors_are_named_alone_or_all_together() -> None:
    assert opponents.parse("random,roshambo:greenberg") == ("random", "roshambo:greenberg")
    assert opponents.roshambo_bot("roshambo:greenberg") == "greenberg" and not opponents.is_of_user("roshambo:rockbot")
    every = opponents.parse_members("roshambo:all,random")
    assert len(every) == 44 and every[:1] == ("roshambo:actr_lag2_decay",) and every[-1] == "random"
    assert opponents.of_task("roshambo:pibot/second") == ("roshambo:pibot", 1)


@pytest.mark.parametrize("text", ["roshambo:nobody", "roshambo:", "roshambo:pibot,roshambo:all"])
def test_other_bots_for_rock_paper_scissors_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="roshambo:BOT"):
        opponents.parse(text)
    with pytest.raises(ValueError, match="roshambo:BOT"):
        opponents.parse_members(text)
