from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest

from seedzero.config import league_config
from seedzero.league import matchmaking, members, payoffs

FROZEN = tuple(f"main-{index:02x}" for index in range(20))
HARD = FROZEN[7]
POOL = members.Pool(
    (members.Pool().of("main"), *(members.Member(name, "frozen", learns=False, parent="main") for name in FROZEN)), 20
)
SETTINGS = league_config.LeagueConfig(self_play=0.0)


def _payoff(*, hard: bool = True) -> payoffs.Payoff:
    """Returns wins in 0.9 of ten thousand games against all but one player; against it 0.1, or no game."""
    scores = {name: 1_000.0 if name == HARD else 9_000.0 for name in FROZEN if hard or name != HARD}
    return payoffs.Payoff({}, {("main", name): payoffs.Recent(score, 10_000.0) for name, score in scores.items()})


def _draw(payoff: payoffs.Payoff, settings: league_config.LeagueConfig = SETTINGS, seed: int = 0) -> list[str]:
    """Returns 5,000 draws for the default active set of four."""
    sets = (
        matchmaking.active_set(payoff, POOL, "main", settings, seed=seed, number=number)
        for number in range(5_000 // settings.active)
    )
    return [name for drawn in sets for name in drawn]


def _chance(draws: list[str], shares: np.ndarray) -> float:
    """Returns the chi-square test's probability of counts as far from the shares as those of the draws."""
    counts = collections.Counter(draws)
    return _pvalue([counts[name] for name in FROZEN], shares * len(draws))


def _pvalue(counts: list[int], expected: np.ndarray | None = None) -> float:
    from scipy import stats  # takes seconds, in each process that reads this file

    return float(stats.chisquare(counts, expected).pvalue)


@pytest.mark.parametrize(
    ("weighting", "rates", "expected"),
    [
        ("linear", [0.0, 0.5, 1.0], [2 / 3, 1 / 3, 0.0]),
        ("linear_capped", [0.0, 0.25, 0.75], [0.4, 0.4, 0.2]),
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
    fields = {field.name: field for field in dataclasses.fields(league_config.LeagueConfig)}
    assert fields["weighting"].metadata["choices"] == tuple(matchmaking.WEIGHTINGS)


@pytest.mark.thorough
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
    from scipy import stats

    assert stats.chi2_contingency(counts).pvalue > 1e-3


@pytest.mark.thorough
def test_a_key_s_draws_repeat_and_other_seeds_differ() -> None:
    assert _draw(_payoff()) == _draw(_payoff())
    assert _draw(_payoff(), seed=1) != _draw(_payoff())


def test_a_rival_is_the_only_opponent_until_it_retires() -> None:
    settings = league_config.LeagueConfig(self_play=0.9)
    pool = POOL.meet("main", HARD)
    drawn = [matchmaking.active_set(_payoff(), pool, "main", settings, seed=0, number=at) for at in range(20)]
    assert {name for names in drawn for name in names} == {HARD}
    drawn = [
        matchmaking.active_set(_payoff(), pool.retire(HARD), "main", settings, seed=0, number=at) for at in range(20)
    ]
    assert "main" in {name for names in drawn for name in names}


def test_without_frozen_players_all_is_self_play() -> None:
    found = matchmaking.active_set(payoffs.Payoff(), members.Pool(), "main", SETTINGS, seed=0, number=0)
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
    assert _pvalue(list(collections.Counter(starts()).values())) > 0.01


def test_the_rate_against_the_active_set_is_the_mean_of_its_frozen_entries() -> None:
    active = (HARD, FROZEN[0], "main", HARD)
    assert matchmaking.active_rate(_payoff(), "main", active) == pytest.approx((0.1 + 0.9 + 0.1) / 3, abs=1e-4)
    assert matchmaking.active_rate(_payoff(), "main", ("main", "main")) is None


def _league(main_players: int = 1) -> members.Pool:
    """Returns main players and an exploiter of each kind; main and the exploiters have a snapshot each, main two."""
    pool = members.initial_pool(
        league_config.LeagueConfig(main_players=main_players, main_exploiters=1, league_exploiters=1)
    )
    for parent, digits in (("main", "0a"), ("main", "0b"), ("main_exploiter_0", "0c"), ("league_exploiter_0", "0d")):
        pool, _ = pool.freeze(parent, digits, version=1, env_steps=10)
    return pool


def _rates(player: str, **rates: float) -> payoffs.Payoff:
    """Returns results of so many games of a player that the rates are as given; `_` in a name for `-`."""
    pairs = {(player, name.replace("_0", "-0")): rate for name, rate in rates.items()}
    return payoffs.Payoff({}, {pair: payoffs.Recent(100 * rate - 0.5, 99.0) for pair, rate in pairs.items()})


def _settings(**values: float | str) -> league_config.LeagueConfig:
    return league_config.LeagueConfig(**values)  # type: ignore[arg-type]


def _drawn(payoff: payoffs.Payoff, pool: members.Pool, home: str) -> dict[str, float]:
    """Returns the shares of those who are drawn at all."""
    found = matchmaking.chances(payoff, pool, home, _settings())
    return {name: share for name, share in found.items() if share}


def test_a_main_player_meets_itself_exploiters_and_the_past_by_their_shares() -> None:
    payoff = _rates("main", main_0a=0.9, main_0b=0.5)
    found = matchmaking.chances(payoff, _league(), "main", _settings())
    # Of 0.15, each of four exploiters has a quarter, at the prior of 0.5. Of the remaining 0.5, main-0a has weight
    # 0.01, and three others of rate 0.5 have 0.25 each.
    assert found == pytest.approx(
        {
            "main": 0.35,
            "main_exploiter_0": 0.0375,
            "league_exploiter_0": 0.0375,
            "main-0a": 0.5 * 0.01 / 0.76,
            "main-0b": 0.5 * 0.25 / 0.76,
            "main_exploiter_0-0c": 0.0375 + 0.5 * 0.25 / 0.76,
            "league_exploiter_0-0d": 0.0375 + 0.5 * 0.25 / 0.76,
        }
    )
    assert list(found) == [member.name for member in _league().members]


def test_a_main_player_without_a_past_meets_itself_and_exploiters() -> None:
    pool = members.initial_pool(league_config.LeagueConfig(main_exploiters=1))
    found = matchmaking.chances(payoffs.Payoff(), pool, "main", _settings())
    assert found == pytest.approx({"main": 0.85, "main_exploiter_0": 0.15})
    alone = matchmaking.chances(payoffs.Payoff(), pool, "main", _settings(self_play=1.0))
    assert alone == {"main": 1.0, "main_exploiter_0": 0.0}


def test_every_rule_has_opponents_and_all_shares_add_up() -> None:
    young = members.initial_pool(league_config.LeagueConfig(main_players=2, main_exploiters=2, league_exploiters=1))
    for pool in (members.Pool(), young, _league(2), POOL):
        for home in pool.learning:
            rules = matchmaking.branches(payoffs.Payoff(), pool, home, _settings())
            assert all(rule.names and sum(rule.shares) == pytest.approx(1) for rule in rules)
            assert sum(rule.share for rule in rules) == pytest.approx(1)


def test_main_players_share_their_matches_of_self_play() -> None:
    found = matchmaking.chances(payoffs.Payoff(), _league(2), "main_1", _settings())
    assert found["main"] == found["main_1"] == pytest.approx(0.175) and sum(found.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (0.11, {"main": 1.0}),
        (0.1, {"main-0a": 0.09 / 0.34, "main-0b": 0.25 / 0.34}),  # w (1 - w) of 0.9 and 0.5
    ],
)
def test_a_main_exploiter_meets_main_or_its_past_where_it_wins_too_seldom(
    rate: float, expected: dict[str, float]
) -> None:
    payoff = _rates("main_exploiter_0", main=rate, main_0a=0.9, main_0b=0.5)
    assert _drawn(payoff, _league(), "main_exploiter_0") == pytest.approx(expected)


def test_a_main_exploiter_meets_each_main_player_alike() -> None:
    payoff = _rates("main_exploiter_0", main_1=0.0)  # without a past
    assert _drawn(payoff, _league(2), "main_exploiter_0") == {"main": 0.5, "main_1": 0.5}


def test_a_league_exploiter_meets_all_frozen_players_by_capped_weights() -> None:
    payoff = _rates("league_exploiter_0", main_0a=0.9, main_0b=0.1)
    shares = {"main-0a": 0.1, "main-0b": 0.5, "main_exploiter_0-0c": 0.5, "league_exploiter_0-0d": 0.5}
    expected = {name: weight / 1.6 for name, weight in shares.items()}
    assert _drawn(payoff, _league(), "league_exploiter_0") == pytest.approx(expected)
    young = members.initial_pool(league_config.LeagueConfig(main_players=2, league_exploiters=1))
    found = matchmaking.chances(payoffs.Payoff(), young, "league_exploiter_0", _settings())
    assert found == {"league_exploiter_0": 0.0, "main": 0.5, "main_1": 0.5}


def test_retired_players_are_drawn_no_more() -> None:
    pool = _league().retire("main-0a").retire("main_exploiter_0-0c")
    for home in pool.learning:
        found = matchmaking.chances(_rates("main_exploiter_0", main=0.0), pool, home, _settings())
        assert found["main-0a"] == found["main_exploiter_0-0c"] == 0.0 and sum(found.values()) == pytest.approx(1)


@pytest.mark.parametrize("home", ["main", "main_1", "main_exploiter_0", "league_exploiter_0"])
def test_draws_have_the_shares_that_are_told(home: str) -> None:
    pool, settings = _league(2), _settings(active=64)
    expected = _drawn(payoffs.Payoff(), pool, home)
    draws = collections.Counter(
        name
        for number in range(100)
        for name in matchmaking.active_set(payoffs.Payoff(), pool, home, settings, seed=0, number=number)
    )
    assert draws.keys() == expected.keys()
    counts = [draws[name] for name in expected]
    assert _pvalue(counts, np.array(list(expected.values())) * 6_400) > 0.01


def test_learning_players_draw_independently() -> None:
    pool = members.initial_pool(league_config.LeagueConfig(main_players=2))
    sets = [
        [matchmaking.active_set(payoffs.Payoff(), pool, home, _settings(), seed=0, number=at) for at in range(99)]
        for home in pool.learning
    ]
    assert sets[0] != sets[1]
    starts = [
        [matchmaking.turn(seed=0, first_slot=slot, epoch=0, number=0, size=64, home=home) for slot in range(9)]
        for home in (0, 1, 2)
    ]
    assert starts[0] != starts[1] != starts[2] != starts[0]


def test_scripted_members_are_drawn_as_frozen_players_are() -> None:
    """Of two frozen players and two members, with win rates of 0.5, 0.9, 0.2 and 0.7: shares of (1 - w)^2."""
    settings = league_config.LeagueConfig(freeze_every=1, members="random,mcts-50", self_play=0.4)
    pool = members.initial_pool(settings)
    for digits in ("0a", "0b"):
        pool, _ = pool.freeze("main", digits, version=1, env_steps=1)
    rates = {"main-0a": 0.5, "main-0b": 0.9, "mcts-50": 0.2, "random": 0.7}
    recent = {("main", name): payoffs.Recent(1e6 * rate, 1e6) for name, rate in rates.items()}
    payoff, total = payoffs.Payoff({}, recent), 0.25 + 0.01 + 0.64 + 0.09
    found = matchmaking.chances(payoff, pool, "main", settings)
    expected = {"main": 0.4, **{name: 0.6 * (1 - rate) ** 2 / total for name, rate in rates.items()}}
    assert found == pytest.approx(expected, abs=1e-5)


def test_a_league_exploiter_meets_scripted_members_and_a_main_exploiter_does_not() -> None:
    settings = league_config.LeagueConfig(freeze_every=1, main_exploiters=1, league_exploiters=1, members="random")
    pool = members.initial_pool(settings)
    shares = {home: matchmaking.chances(payoffs.Payoff(), pool, home, settings) for home in pool.learning}
    assert shares["league_exploiter_0"]["random"] == 1.0 and shares["main_exploiter_0"]["random"] == 0.0
    assert "random" not in matchmaking.chances(payoffs.Payoff(), pool.retire("random"), "main", settings)
