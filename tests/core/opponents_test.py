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
