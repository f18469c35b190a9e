from __future__ import annotations

import functools
import json
from typing import Any

import pytest
import saved_league

from seedzero.config import league_config
from seedzero.league import members, payoffs


def _won(opponent: str = "main-1", side: int = 0, outcome: int = payoffs.WIN, **others: Any) -> payoffs.Match:
    match = payoffs.Match(payoffs.PAST, "main", opponent, side, outcome, float(outcome))
    return match._replace(**others)


MATCHES = [
    _won(),
    _won(side=1),
    _won(side=1, outcome=payoffs.DRAW),
    _won("main-2", outcome=payoffs.LOSS),
    payoffs.Match(payoffs.SELF_PLAY, "main", "main", 0, payoffs.WIN, 1.0),
    payoffs.Match(payoffs.EVALUATION, "main", "random", 1, payoffs.WIN, 1.0),
]


def _payoff() -> payoffs.Payoff:
    return payoffs.record(payoffs.Payoff(), MATCHES)


def test_a_match_gives_a_row_to_both_sides() -> None:
    found = _payoff()
    assert found.rows[payoffs.Key(payoffs.PAST, "main", "main-1", 1)] == payoffs.Tally(1, 1, 0, 1.0)
    assert found.rows[payoffs.Key(payoffs.PAST, "main-1", "main", 0)] == payoffs.Tally(0, 1, 1, -1.0)
    counts = {payoffs.SELF_PLAY: 1, payoffs.PAST: 4, payoffs.EVALUATION: 1}
    always = [name for name in payoffs.TYPES if name != members.SCRIPTED]  # of leagues with scripted members alone
    assert found.num_matches() == {name: counts.get(name, 0) for name in always}
    assert sum(row.games for row in found.rows.values()) == 2 * len(MATCHES)


def test_self_play_counts_once_for_each_side() -> None:
    found = _payoff()
    assert found.rows[payoffs.Key(payoffs.SELF_PLAY, "main", "main", 0)] == payoffs.Tally(wins=1, total=1.0)
    assert found.rows[payoffs.Key(payoffs.SELF_PLAY, "main", "main", 1)] == payoffs.Tally(losses=1, total=-1.0)


def test_counts_never_decay_and_recent_ones_do() -> None:
    matches = [_won(outcome=outcome) for outcome in (payoffs.WIN, payoffs.WIN, payoffs.LOSS)]
    found = payoffs.record(payoffs.Payoff(), matches)
    assert found.rows[payoffs.Key(payoffs.PAST, "main", "main-1", 0)] == payoffs.Tally(2, 0, 1, 1.0)
    assert found.recent["main", "main-1"] == pytest.approx((0.99**2 + 0.99, 0.99**2 + 0.99 + 1))
    assert found.recent["main-1", "main"] == pytest.approx((1.0, 0.99**2 + 0.99 + 1))


def test_the_win_rate_begins_at_a_half_which_counts_as_one_match() -> None:
    found = _payoff()
    assert found.win_rate("main", "main-9") == 0.5
    # Of main-1: two wins, decayed twice and once, then a draw.
    recent = (0.99**2 + 0.99 + 0.5, 0.99**2 + 0.99 + 1)
    assert found.win_rate("main", "main-1") == pytest.approx((recent[0] + 0.5) / (recent[1] + 1))


def test_matches_of_evaluations_and_self_play_leave_matchmaking_alone() -> None:
    assert set(_payoff().recent) == {("main", name) for name in ("main-1", "main-2")} | {
        (name, "main") for name in ("main-1", "main-2")
    }


def test_an_episode_against_an_opponent_is_a_match_of_an_evaluation() -> None:
    results = [("random/first", 1.0), ("mcts-9/second", -1.0), ("mcts-9/first", 0.0), ("", 1.0), ("rooms_maze", 1.0)]
    assert payoffs.evaluated(results) == [
        payoffs.Match(payoffs.EVALUATION, "main", "random", 0, payoffs.WIN, 1.0),
        payoffs.Match(payoffs.EVALUATION, "main", "mcts-9", 1, payoffs.LOSS, -1.0),
        payoffs.Match(payoffs.EVALUATION, "main", "mcts-9", 0, payoffs.DRAW, 0.0),
    ]


def test_pairs_add_both_sides_of_the_chosen_types() -> None:
    found = _payoff()
    one, two = payoffs.Tally(2, 1, 0, 2.0), payoffs.Tally(0, 0, 1, -1.0)
    assert found.pairs() == {("main", "main-1"): one, ("main", "main-2"): two}
    assert found.pairs([payoffs.EVALUATION]) == {("main", "random"): payoffs.Tally(1, 0, 0, 1.0)}


def test_the_table_names_sides_and_adds_games() -> None:
    table = _payoff().table()
    assert [row["type"] for row in table[:2]] == [payoffs.SELF_PLAY] * 2 and table[-1]["type"] == payoffs.EVALUATION
    assert table[3] == {
        "type": payoffs.PAST,
        "player": "main",
        "opponent": "main-1",
        "side": "second",
        "games": 2,
        "wins": 1,
        "draws": 1,
        "losses": 0,
        "mean_return": 0.5,
    }


def test_a_truncated_match_is_a_draw_with_its_return() -> None:
    found = payoffs.record(payoffs.Payoff(), [_won(outcome=payoffs.DRAW, total=0.25)])
    row = found.rows[payoffs.Key(payoffs.PAST, "main-1", "main", 1)]
    assert (row.score, row.mean_return) == (0.5, -0.25)


def test_a_checkpoint_brings_all_back_in_any_order() -> None:
    found = _payoff()
    text = json.dumps(found.to_json())
    assert payoffs.Payoff.from_json(json.loads(text)) == found
    other = payoffs.Payoff(dict(reversed(found.rows.items())), found.recent)
    assert json.dumps(other.to_json()) == text


@pytest.mark.parametrize(
    "match", [_won(side=2), _won(outcome=2), _won(type="league"), _won("main"), _won(type=payoffs.SELF_PLAY)]
)
def test_an_impossible_match_is_refused(match: payoffs.Match) -> None:
    with pytest.raises(ValueError, match="expected"):
        payoffs.record(payoffs.Payoff(), [match])


_damaged = functools.partial(saved_league.damaged, _payoff().to_json())


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([], r"\[\]; expected an object"),
        ({"rows": []}, "rows"),
        (_damaged("rows", value=None), "rows is None"),
        (_damaged("rows", 0, value=["past"]), "'past'"),
        (_damaged("rows", 0, 4, value=1.5), "1.5"),
        (_damaged("rows", 0, 4, value=True), "True"),
        (_damaged("rows", 0, 4, value=-1), "-1"),
        (_damaged("rows", 0, 4, value=9), "wins=9"),
        (_damaged("rows", 0, 7, value=float("nan")), "nan"),
        (_damaged("rows", 0, 0, value="league"), "league"),
        (_damaged("recent", 0, 2, value=9.0), "9.0"),
        (_damaged("recent", 0, 1, value=""), "''"),
        ({"rows": [], "recent": [["a", "b", 1.0, 1.0]] * 2}, "twice"),
        ({"rows": [], "recent": [], "before": 7}, "before is 7"),
        ({"rows": [], "recent": [], "spread": [1.0, 0.0]}, r"spread is \[1.0, 0.0\]"),
        ({"rows": [], "recent": [], "before": [["past", "a", "b", 0, 1, 0, 0, 1.0]]}, "at a reset"),
    ],
)
def test_a_damaged_payoff_is_refused(values: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        payoffs.Payoff.from_json(values)


def test_wilson_s_interval_is_that_of_the_formula() -> None:
    # 8 of 10: middle (0.8 + 0.19208) / 1.38416, half width 1.96 / 1.38416 * sqrt(0.016 + 0.009604).
    assert payoffs.wilson(8, 10) == pytest.approx((0.490157, 0.943319), abs=1e-6)
    assert payoffs.wilson(0, 10) == pytest.approx((0.0, 0.38416 / 1.38416), abs=1e-6)
    assert payoffs.wilson(10, 10) == pytest.approx((1 / 1.38416, 1.0), abs=1e-6)
    assert payoffs.wilson(0, 0) == (0.0, 1.0)
    # Of 9: half width 1.96 / (1 + 3.8416 / 9) * sqrt(0.25 / 9 + 3.8416 / 324).
    assert payoffs.wilson(4.5, 9) == pytest.approx((0.5 - 0.273474, 0.5 + 0.273474), abs=1e-6)


def test_each_side_has_its_own_return_where_they_do_not_sum_to_zero() -> None:
    """In the prisoner's dilemma both may get 5, or one 10 and the other 0."""
    both, one = _won(outcome=payoffs.DRAW, total=5.0, other=5.0), _won(total=10.0, other=0.0)
    found = payoffs.record(payoffs.Payoff(), [both, one, _won(total=2.0)])
    assert found.rows[payoffs.Key(payoffs.PAST, "main", "main-1", 0)] == payoffs.Tally(2, 1, 0, 17.0)
    assert found.rows[payoffs.Key(payoffs.PAST, "main-1", "main", 1)] == payoffs.Tally(0, 1, 2, 3.0)
    assert found.mean_returns() == {("main", "main-1"): 17 / 3, ("main-1", "main"): 1.0}
    assert not found.sums_to_zero and _payoff().sums_to_zero
    assert payoffs.Payoff.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_return_is_a_score_between_the_smallest_and_the_largest_of_the_run() -> None:
    both, one = _won(outcome=payoffs.DRAW, total=5.0, other=5.0), _won(total=10.0, other=0.0)
    found = payoffs.record(payoffs.Payoff(), [both], by_return=True)
    assert found.recent["main", "main-1"] == found.recent["main-1", "main"] == (0.5, 1.0)
    assert found.spread == (5.0, 5.0)
    found = payoffs.record(found, [one, _won(total=1.0, other=1.0)], by_return=True)
    assert found.spread == (0.0, 10.0)
    games = pytest.approx(0.99**2 + 0.99 + 1)
    assert found.recent["main", "main-1"] == (pytest.approx(0.5 * 0.99**2 + 1.0 * 0.99 + 0.1), games)
    assert found.recent["main-1", "main"] == (pytest.approx(0.5 * 0.99**2 + 0.0 * 0.99 + 0.1), games)
    assert payoffs.Payoff.from_json(json.loads(json.dumps(found.to_json()))) == found.reset("main-2") == found


def test_returns_of_wins_and_losses_are_the_scores_that_these_are() -> None:
    """Where a win pays 1 and a loss -1, from the first of them on."""
    assert payoffs.record(_payoff(), MATCHES, by_return=True).recent == payoffs.record(_payoff(), MATCHES).recent


def test_types_follow_from_the_home_and_the_opponent() -> None:
    kinds = ("main", "main_exploiter", "league_exploiter")
    learning = {name: members.Member(name, name, learns=True, line=name) for name in kinds}
    frozen = {name: members.Member(f"{name}-0a", "frozen", learns=False, parent=name, line=name) for name in kinds}
    other = members.Member("main_1", "main", learns=True)
    main = learning["main"]
    assert payoffs.type_of(main, main) == payoffs.type_of(learning["main_exploiter"], learning["main_exploiter"])
    assert payoffs.type_of(main, main) == "self_play"
    assert payoffs.type_of(main, frozen["main"]) == payoffs.type_of(other, frozen["main"]) == "past"
    assert payoffs.type_of(main, other) == "mains"
    for name in kinds[1:]:
        assert payoffs.type_of(main, learning[name]) == payoffs.type_of(main, frozen[name]) == "exploiters"
        assert payoffs.type_of(learning[name], main) == payoffs.type_of(learning[name], frozen["main"]) == name
    assert payoffs.type_of(learning["main_exploiter"], frozen["league_exploiter"]) == "main_exploiter"


def test_matches_of_all_types_between_two_players_tell_a_recent_win_rate() -> None:
    matches = [_won(type=name) for name in payoffs.BETWEEN]
    found = payoffs.record(payoffs.Payoff(), matches)
    weight = pytest.approx(sum(0.99**age for age in range(len(payoffs.BETWEEN))))
    assert found.recent == {("main", "main-1"): (weight, weight), ("main-1", "main"): (0.0, weight)}
    assert found.since_reset("main", "main-1") == payoffs.Tally(wins=6, total=6.0)
    assert found.pairs() == {("main", "main-1"): payoffs.Tally(wins=6, total=6.0)}
    assert found.num_matches() == {"self_play": 0, "evaluation": 0} | dict.fromkeys(payoffs.BETWEEN, 1)


def test_a_reset_player_s_win_rates_begin_anew_and_counts_stay() -> None:
    before = payoffs.record(_payoff(), [_won("main-2"), _won("main-2", side=1)])
    found = before.reset("main-2")
    assert found.rows == before.rows and set(found.recent) == {("main", "main-1"), ("main-1", "main")}
    assert before.since_reset("main", "main-2") == payoffs.Tally(2, 0, 1, 1.0)
    assert found.since_reset("main", "main-2") == found.since_reset("main-2", "main") == payoffs.Tally()
    found = payoffs.record(found, [_won("main-2", outcome=payoffs.DRAW)])
    assert found.since_reset("main-2", "main") == payoffs.Tally(draws=1) and found.recent["main", "main-2"] == (0.5, 1)
    assert found.since_reset("main", "main-1") == payoffs.Tally(2, 1, 0, 2.0)
    assert payoffs.Payoff.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert found.reset("main-2").since_reset("main", "main-2") == payoffs.Tally()


def test_matches_with_a_scripted_member_have_a_type_of_their_own() -> None:
    settings = league_config.LeagueConfig(
        freeze_every=1, main_exploiters=1, league_exploiters=1, members="random,mcts-9"
    )
    pool = members.initial_pool(settings)
    for home in ("main", "main_exploiter_0", "league_exploiter_0"):
        assert payoffs.type_of(pool.of(home), pool.of("mcts-9")) == "scripted"
    found = payoffs.record(payoffs.Payoff(), [payoffs.Match("scripted", "main", "mcts-9", 1, payoffs.LOSS, -1.0)])
    assert found.num_matches()["scripted"] == 1 and sum(row.games for row in found.rows.values()) == 2
    assert found.pairs() == {("main", "mcts-9"): payoffs.Tally(0, 0, 1, -1.0)}  # rated, unlike an evaluation's
    assert payoffs.Payoff.from_json(found.to_json()) == found
