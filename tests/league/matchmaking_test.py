from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest
from scipy import stats

from seedzero.config import sections
from seedzero.league import matchmaking
from seedzero.league import payoff as payoffs

FROZEN = tuple(f"main-{index:02x}" for index in range(20))
HARD = FROZEN[7]
SETTINGS = sections.LeagueConfig(self_play=0.0)


def _payoff(*, hard: bool = True) -> payoffs.Payoff:
    """Returns wins in 0.9 of ten thousand games against all but one player; against it 0.1, or no game."""
    scores = {name: 1_000.0 if name == HARD else 9_000.0 for name in FROZEN if hard or name != HARD}
    return payoffs.Payoff({}, {("main", name): payoffs.Recent(score, 10_000.0) for name, score in scores.items()})


def _draw(payoff: payoffs.Payoff, settings: sections.LeagueConfig = SETTINGS, seed: int = 0) -> list[str]:
    """Returns 5,000 draws for the default active set of four."""
    sets = (
        matchmaking.active_set(payoff, "main", FROZEN, settings, seed=seed, number=number)
        for number in range(5_000 // settings.active)
    )
    return [name for drawn in sets for name in drawn]


def _chance(draws: list[str], shares: np.ndarray) -> float:
    """Returns the chi-square test's probability of counts as far from the shares as those of the draws."""
    counts = collections.Counter(draws)
    return float(stats.chisquare([counts[name] for name in FROZEN], shares * len(draws)).pvalue)


@pytest.mark.parametrize(
    ("weighting", "rates", "expected"),
    [
        ("linear", [0.0, 0.5, 1.0], [2 / 3, 1 / 3, 0.0]),
        ("squared", [0.0, 0.5, 1.0], [0.8, 0.2, 0.0]),
        ("variance", [0.0, 0.5, 0.9], [0.0, 0.25 / 0.34, 0.09 / 0.34]),
        ("uniform", [0.0, 0.5, 1.0], [1 / 3] * 3),
        ("squared", [1.0, 1.0], [0.5, 0.5]),
        ("variance", [1.0, 0.0], [0.5, 0.5]),
    ],
)
def test_shares_are_those_of_the_formulas(weighting: str, rates: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(matchmaking.shares(np.array(rates), weighting), expected)


def test_every_weighting_of_the_settings_has_a_formula() -> None:
    (field,) = (field for field in dataclasses.fields(sections.LeagueConfig) if field.name == "weighting")
    assert field.metadata["choices"] == tuple(matchmaking.WEIGHTINGS)


@pytest.mark.parametrize(
    ("weighting", "known", "share"),
    [("squared", True, 0.81), ("squared", False, 0.25 / 0.44), ("linear", True, 0.9 / 2.8)],
)
def test_a_hard_opponent_s_share_is_that_of_the_paper_s_weights(weighting: str, known: bool, share: float) -> None:
    rates = [
        _payoff(hard=known).win_rate("main", name, prior=SETTINGS.prior, prior_games=SETTINGS.prior_games)
        for name in FROZEN
    ]
    assert matchmaking.shares(np.array(rates), weighting)[FROZEN.index(HARD)] == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize(("known", "share"), [(True, 0.81), (False, 0.57)])
def test_draws_have_the_shares_of_squared_weights_and_not_of_linear_ones(known: bool, share: float) -> None:
    rates = np.full(len(FROZEN), 0.9)
    rates[FROZEN.index(HARD)] = 0.1 if known else 0.5
    draws = _draw(_payoff(hard=known))
    assert len(draws) == 5_000 and draws.count(HARD) / 5_000 == pytest.approx(share, abs=0.02)
    assert _chance(draws, matchmaking.shares(rates, "squared")) > 0.01
    assert _chance(draws, matchmaking.shares(rates, "linear")) < 1e-9


def test_draws_are_independent_of_each_other() -> None:
    draws = [name == HARD for name in _draw(_payoff(hard=False))]
    table = collections.Counter(zip(draws[::2], draws[1::2], strict=True))
    counts = [[table[one, other] for other in (False, True)] for one in (False, True)]
    assert stats.chi2_contingency(counts).pvalue > 1e-3


def test_a_key_s_draws_repeat_and_other_seeds_differ() -> None:
    assert _draw(_payoff()) == _draw(_payoff())
    assert _draw(_payoff(), seed=1) != _draw(_payoff())


@pytest.mark.parametrize("self_play", [0.0, 0.35, 1.0])
def test_self_play_has_its_share_of_the_entries(self_play: float) -> None:
    draws = _draw(_payoff(), sections.LeagueConfig(self_play=self_play))
    assert draws.count("main") / len(draws) == pytest.approx(self_play, abs=0.02)


def test_without_frozen_players_all_is_self_play() -> None:
    found = matchmaking.active_set(payoffs.Payoff(), "main", (), SETTINGS, seed=0, number=0)
    assert found == ("main",) * 4


@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_group_takes_every_entry_once_a_round(size: int) -> None:
    turns = [matchmaking.turn(seed=0, first_slot=16, epoch=2, number=number, size=size) for number in range(6 * size)]
    assert all(sorted(turns[begin : begin + size]) == list(range(size)) for begin in range(0, 6 * size, size))


def test_a_slot_meets_every_entry_on_both_sides() -> None:
    """A slot's sides take turns, so they follow from the parity of a match's number."""
    met = {(matchmaking.turn(seed=0, first_slot=0, epoch=0, number=n, size=4), n % 2) for n in range(16)}
    assert len(met) == 8


def test_groups_begin_at_entries_that_follow_from_slot_epoch_and_seed() -> None:
    def starts(**changes: int) -> list[int]:
        keys = dict(seed=0, epoch=0, number=0, size=4) | changes
        return [matchmaking.turn(first_slot=16 * group, **keys) for group in range(400)]

    assert starts() == starts() != starts(epoch=1)
    assert starts() != starts(seed=1)
    assert stats.chisquare(list(collections.Counter(starts()).values())).pvalue > 0.01


def test_the_rate_against_the_active_set_is_the_mean_of_its_frozen_entries() -> None:
    settings = dataclasses.replace(SETTINGS, prior_games=0.0)
    active = (HARD, FROZEN[0], "main", HARD)
    assert matchmaking.active_rate(_payoff(), "main", active, settings) == pytest.approx((0.1 + 0.9 + 0.1) / 3)
    assert matchmaking.active_rate(_payoff(), "main", ("main", "main"), settings) is None
