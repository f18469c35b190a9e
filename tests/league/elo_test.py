from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from seedzero.league import elo, payoffs

Pairs = dict[tuple[str, str], payoffs.Tally]


def _league(num_players: int, seed: int, share: float = 1.0) -> Pairs:
    """Returns random results of players, each two with a probability, neighbours always."""
    generator = np.random.default_rng(seed)
    names = [f"p{index:02}" for index in range(num_players)]
    return {
        (one, other): payoffs.Tally(*generator.integers(0, 30, 3).tolist(), 0.0)
        for first, (one, other) in enumerate(itertools.combinations(names, 2))
        if generator.random() < share or first < num_players
    }


def _by_scipy(pairs: Pairs, names: list[str]) -> np.ndarray:
    """Returns ratings in points, the first player's 0, by scipy on the likelihood of single matches."""
    from scipy import optimize  # takes seconds, in each process that reads this file

    place = {name: index for index, name in enumerate(names)}

    def loss(odds: np.ndarray) -> float:
        total = 0.0
        for (one, other), row in pairs.items():
            expected = 1 / (1 + 10 ** (odds[place[other]] - odds[place[one]]))
            total -= (row.score + 0.5) * math.log(expected) + (row.games - row.score + 0.5) * math.log(1 - expected)
        return total

    found = optimize.minimize(loss, np.zeros(len(names)), method="BFGS", options={"gtol": 1e-6})
    return np.asarray(400 * (found.x - found.x[0]))


@pytest.mark.parametrize(
    ("row", "points"),
    [
        (payoffs.Tally(wins=1), 190.8485),  # with the virtual draw 1.5 of 2: 0.75 is 400 log10(3)
        (payoffs.Tally(draws=7), 0.0),
        (payoffs.Tally(losses=1), -190.8485),
        (payoffs.Tally(wins=9), 511.5014),  # 9.5 of 10: 400 log10(19)
        (payoffs.Tally(wins=4, draws=2, losses=1), 400 * math.log10(5.5 / 2.5)),
    ],
)
def test_two_players_differ_by_the_odds_of_their_score(row: payoffs.Tally, points: float) -> None:
    found = elo.fit({("a", "b"): row}, {"b": 0.0})
    assert found == pytest.approx({"a": points, "b": 0.0}, abs=1e-3)


def test_a_chain_adds_its_differences() -> None:
    pairs = {("a", "b"): payoffs.Tally(wins=1), ("b", "c"): payoffs.Tally(wins=1), ("c", "d"): payoffs.Tally(losses=1)}
    assert elo.fit(pairs, {"c": 0.0}) == pytest.approx(
        {"a": 381.697, "b": 190.8485, "c": 0.0, "d": 190.8485}, abs=1e-3
    )


@pytest.mark.parametrize(("num_players", "share"), [(2, 1.0), (5, 1.0), (12, 0.3)])
def test_ratings_are_those_of_greatest_likelihood(num_players: int, share: float) -> None:
    pairs = _league(num_players, num_players, share)
    names = sorted({name for pair in pairs for name in pair})
    found = elo.fit(pairs, {names[0]: 0.0})
    assert list(found) == names
    np.testing.assert_allclose(list(found.values()), _by_scipy(pairs, names), atol=0.02)


def test_many_players_who_met_few_others_need_no_matrix_of_all_pairs() -> None:
    pairs = {("main", f"p{index:04}"): payoffs.Tally(wins=1) for index in range(2000)}
    elo.fit(dict(list(pairs.items())[:2]), {"main": 0.0})  # imports
    tracemalloc.start()
    found = elo.fit(pairs, {"main": 0.0})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 2001 and found["p1999"] == pytest.approx(-190.8485, abs=1e-3)
    assert peak < 2001 * 2001 * 8 / 2


def test_the_order_of_matches_changes_no_bit() -> None:
    generator = np.random.default_rng(0)
    matches = [
        payoffs.Match(payoffs.PAST, f"p{one}", f"p{other}", side, outcome, float(outcome))
        for one, other in itertools.permutations(range(4), 2)
        for side, outcome in zip(generator.integers(0, 2, 9), generator.integers(-1, 2, 9), strict=True)
    ]
    found = []
    for _ in range(3):
        payoff = payoffs.record(payoffs.Payoff(), matches)
        found.append(elo.fit(payoff.pairs(), {"p0": 0.0}))
        found.append(elo.fit(dict(reversed(payoff.pairs().items())), {"p0": 0.0}))
        generator.shuffle(matches)  # type: ignore[arg-type]
    assert all(one == found[0] for one in found)


def test_the_seat_of_a_pair_s_name_does_not_matter() -> None:
    row = payoffs.Tally(5, 2, 1, 4.0)
    assert elo.fit({("a", "b"): row}, {"a": 0.0}) == elo.fit({("b", "a"): payoffs.Tally(1, 2, 5, -4.0)}, {"a": 0.0})


def test_players_without_a_chain_to_the_anchor_have_no_rating() -> None:
    pairs = {("a", "b"): payoffs.Tally(wins=1), ("c", "d"): payoffs.Tally(wins=1), ("a", "e"): payoffs.Tally()}
    assert elo.fit(pairs, {"a": 0.0}).keys() == {"a", "b"}
    assert elo.fit(pairs, {"z": 0.0}) == {"z": 0.0}
    assert elo.fit({}, {"a": 0.0}) == {"a": 0.0}


def test_extreme_results_stay_finite() -> None:
    one_sided = {(f"p{index}", f"p{index + 1}"): payoffs.Tally(wins=10**9) for index in range(20)}
    found = elo.fit(one_sided, {"p20": 0.0})
    assert all(map(math.isfinite, found.values()))
    assert found["p0"] == pytest.approx(20 * 400 * math.log10(2e9 + 1), rel=1e-6)


def test_the_error_of_a_difference_is_that_of_its_binomial_by_hand() -> None:
    # 999,999 games and a virtual draw: the information is 1,000,000 x 0.75 x 0.25, its root's inverse 0.00231 in log
    # odds, and 173.7 points for each unit of these.
    found = elo.rate({("a", "b"): payoffs.Tally(749_999, 1, 249_999)}, {"b": 1000.0})
    assert found["a"].points == pytest.approx(1000 + 190.8485, abs=0.01)
    assert found["a"].stderr == pytest.approx(173.7178 * 0.0023094, rel=1e-3) and found["b"] == (1000.0, 0.0)


def test_anchors_keep_their_points_and_the_others_lie_between_them() -> None:
    quarters = {("a", "m"): payoffs.Tally(1500, 0, 500), ("m", "z"): payoffs.Tally(500, 0, 1500)}
    found = elo.rate(quarters, {"a": 100.0, "z": 100.0})  # it scores a quarter against both
    assert found["m"].points == pytest.approx(100 - 190.8, abs=0.5)
    held = elo.rate(quarters, {"a": 0.0, "z": 400.0})  # which results contradict: the middle
    assert held["m"].points == pytest.approx(200 - 190.8, abs=60) and (held["a"].points, held["z"].points) == (0, 400)
    assert elo.rate({}, {"a": 5.0}) == {"a": (5.0, 0.0)}


def test_one_sided_results_and_lonely_players_stay_finite() -> None:
    pairs = {("a", "b"): payoffs.Tally(10**6, 0, 0), ("c", "d"): payoffs.Tally(1, 0, 0)}
    found = elo.rate(pairs, {"b": 0.0})
    assert found.keys() == {"a", "b"} and 1000 < found["a"].points < 4000 and np.isfinite(found["a"].stderr)
