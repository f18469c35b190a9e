"""The report of an evaluation."""

from __future__ import annotations

import types as python_types
from typing import Any, cast

import pytest

from seedzero.learner import reports
from seedzero.loop import evaluators
from seedzero.metrics import episodes

_Named = python_types.SimpleNamespace


class Told:
    """The receivers of an evaluation's report, with a checkpoint of update 2."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.said: list[str] = []
        self.saved: list[evaluators.Ended] = []
        self.filmed: list[int | None] = []
        self.noted: list[tuple[str, dict[str, Any], object]] = []
        self.written = object()

    def evaluated(self, ended: evaluators.Ended) -> None:
        view: Any = _Named(
            write_row=lambda row, gathered: self.rows.append((row, gathered)), screen=_Named(message=self.said.append)
        )
        saves: Any = _Named(durable_update=2, save_best=self._save_best)
        films: Any = _Named(evaluated=self.filmed.append)
        called: Any = _Named(note=lambda name, values, after: self.noted.append((name, values, after)))
        reports.evaluated(view, saves, films, called, ended)

    def _save_best(self, ended: evaluators.Ended) -> Any:
        self.saved.append(ended)
        return self.written


def _ended(result: episodes.Scores, **options: bool) -> evaluators.Ended:
    running = cast(Any, python_types.SimpleNamespace(update=3, env_steps=40, policies=()))
    return evaluators.Ended(running, result, None, **options)


def test_a_row_of_an_evaluation_has_the_steps_of_its_parameters() -> None:
    told = Told()
    result = episodes.Scores(2, 1.0, 0.0, 1.0, 1.0, 5.0)
    ended = _ended(result, is_best=False, is_record=False, cut_short=False)
    told.evaluated(ended._replace(best_score=2.5))
    ((row, gathered),) = told.rows
    assert not gathered and told.filmed == [2]
    assert row["evaluation_best_score"] == 2.5
    assert (row["update"], row["env_steps"], row["kind"], row["evaluation_mean_return"]) == (3, 40, "evaluation", 1.0)
    assert told.saved == []
    ((name, noted, after),) = told.noted
    assert (after, name) == (None, "on_evaluation")
    assert (noted["update"], noted["env_steps"], noted["mean_return"]) == (3, 40, 1.0)
    assert noted["best_score"] == 2.5 and noted["is_best"] is False and noted["episodes"] == 2


@pytest.mark.parametrize(
    ("is_record", "unfinished"),
    [(False, 0), (True, 0), (False, 15)],
)
def test_an_evaluation_says_whether_it_beats_all_before_or_was_cut(is_record: bool, unfinished: int) -> None:
    told = Told()
    result = episodes.Scores(5, 1.0, 0.0, 1.0, 1.0, 5.0, unfinished=unfinished)
    best = not unfinished  # higher than all but the baseline, which alone is no record
    ended = _ended(result, is_best=best, is_record=is_record, cut_short=bool(unfinished))
    told.evaluated(ended)
    (message,) = told.said
    assert message.startswith("evaluation at update 3: ") and (" 15 " in message) == bool(unfinished)
    assert "return 1 +- 0 over 5 episodes" in message and message.endswith("; the best so far") == is_record
    assert ("--evaluation.max_episode_steps=N" in message) == bool(unfinished)
    assert told.saved == [ended] * best
    assert told.noted[0][2] is (told.written if best else None)  # the caller's function finds the checkpoint


def test_the_returns_against_each_opponent_are_told() -> None:
    told = Told()
    by_task = {"random/first": 1.0, "random/second": 0.5, "mcts-9/first": -0.5, "mcts-9/second": 0.0}
    told.evaluated(
        _ended(episodes.Scores(4, 0.25, 0.0, -0.5, 1.0, 5.0, by_task), is_best=False, is_record=False, cut_short=False)
    )
    assert told.said[0].endswith(" over 4 episodes, against random 0.75, mcts-9 -0.25")


def test_of_many_opponents_the_hardest_are_told() -> None:
    told = Told()
    by_task = {f"mcts-{number}/{side}": 1.0 - number for number in range(1, 8) for side in ("first", "second")}
    told.evaluated(
        _ended(
            episodes.Scores(14, -3.0, 0.0, -6.0, 0.0, 5.0, by_task), is_best=False, is_record=False, cut_short=False
        )
    )
    assert told.said[0].endswith(
        " against mcts-7 -6, mcts-6 -5, mcts-5 -4, mcts-4 -3, mcts-3 -2, more against 2 others"
    )


def test_numbers_of_the_environment_are_in_row_message_and_callback() -> None:
    told = Told()
    result = episodes.Scores(2, 1.0, 0.0, 1.0, 1.0, 5.0, info={"success": 0.5})
    told.evaluated(_ended(result, is_best=False, is_record=False, cut_short=False))
    ((row, _),), ((_, noted, _),) = told.rows, told.noted
    assert row["evaluation_info/success"] == 0.5 and noted["info"] == {"success": 0.5}
    assert "2 episodes, success 0.5" in told.said[0]
