"""Rules of builders, by worked cases; and builders of a user's that fail."""

from __future__ import annotations

import pathlib
import re
import sys
import threading
from typing import Any

import pytest

from seedzero.config import league_config, options
from seedzero.core import errors
from seedzero.league import builders, members, payoffs

FREEZE, RESET, RETIRE = builders.FREEZE, builders.RESET, builders.RETIRE


def _pool(**settings: int) -> members.Pool:
    return members.initial_pool(league_config.LeagueConfig(**settings))  # type: ignore[arg-type]


def _counts(pool: members.Pool, env_steps: int) -> dict[str, builders.Learned]:
    return {name: builders.Learned(env_steps // 10, env_steps) for name in pool.learning}


def _played(payoff: payoffs.Payoff, pool: members.Pool, home: str, opponent: str, games: str) -> payoffs.Payoff:
    """Returns the results after games in turn: W won, D drawn, L lost by the home."""
    kind = payoffs.type_of(pool.of(home), pool.of(opponent))
    outcomes = [{"W": 1, "D": 0, "L": -1}[game] for game in games]
    matches = [payoffs.Match(kind, home, opponent, at % 2, one, float(one)) for at, one in enumerate(outcomes)]
    return payoffs.record(payoff, matches)


def _run(
    builder: str, pool: members.Pool, payoff: payoffs.Payoff, env_steps: int, key: int = 0, **settings: options.Value
) -> list[builders.Action]:
    given = league_config.LeagueConfig(builder=builder, **settings)  # type: ignore[arg-type]
    arguments, counts = given.arguments(), _counts(pool, env_steps)
    return list(builders.run(builders.load(builder), pool, payoff, counts, arguments, key, name=builder))


def test_the_settings_name_the_builders_there_are() -> None:
    assert tuple(builders.BUILDERS) == league_config.BUILDERS


def test_self_play_never_does_anything() -> None:
    assert _run("self_play", _pool(main_exploiters=1), payoffs.Payoff(), 10**9) == []


@pytest.mark.parametrize(
    ("every", "steps", "due"), [(100, 99, False), (100, 100, True), (100, 250, True), (0, 10**9, False)]
)
def test_past_takes_a_snapshot_of_each_learning_player_by_steps(every: int, steps: int, due: bool) -> None:
    pool = _pool(main_exploiters=1)
    found = _run("past", pool, payoffs.Payoff(), steps, freeze_every=every)
    names = pool.learning if due else ()
    assert found == [builders.Action(FREEZE, name, reason="every 100 steps") for name in names]


def test_past_counts_from_multiples_of_the_steps() -> None:
    pool, _ = _pool().freeze("main", "0a", version=15, env_steps=150)
    found = [_run("past", pool, payoffs.Payoff(), steps, freeze_every=100) for steps in (199, 200)]
    assert [len(actions) for actions in found] == [0, 1]


STAR = '{"min_steps": 100, "max_steps": 1000, "min_games": 20}'


def _star(pool: members.Pool, payoff: payoffs.Payoff, env_steps: int, key: int = 0, args: str = STAR) -> Any:
    return _run("alphastar", pool, payoff, env_steps, key, builder_args=args)


def test_a_main_player_s_first_snapshot_comes_after_the_fewest_steps() -> None:
    assert _star(_pool(), payoffs.Payoff(), 99) == []
    assert [action.player for action in _star(_pool(), payoffs.Payoff(), 100)] == ["main"]


@pytest.mark.parametrize(
    ("games", "steps", "kinds"),
    [
        # Of 20 games 15 won, the lost ones first: sum of 0.99^k, k < 15, by that over k < 20 is 0.768.
        (5 * "L" + 15 * "W", 200, [FREEZE]),
        # The same, the lost ones last: 0.99^5 * 13.994 / 18.209 = 0.731.
        (15 * "W" + 5 * "L", 200, [FREEZE]),
        (14 * "W" + 6 * "L", 200, []),  # 0.679
        (19 * "W", 200, []),  # too few matches
        (20 * "W", 199, []),  # too few steps since the snapshot at 100
        (20 * "L", 1099, []),
        (20 * "L", 1100, [FREEZE]),
    ],
)
def test_a_main_player_has_a_snapshot_when_it_beats_every_frozen_one(games: str, steps: int, kinds: list[str]) -> None:
    pool, first = _pool().freeze("main", "0a", version=10, env_steps=100)
    pool, second = pool.freeze("main", "0b", version=10, env_steps=100)
    payoff = _played(payoffs.Payoff(), pool, "main", first.name, 20 * "W")
    payoff = _played(payoff, pool, "main", second.name, games)
    found = _star(pool, payoff, steps)
    assert [(action.kind, action.player) for action in found] == [(kind, "main") for kind in kinds]
    retired = _star(pool.retire(second.name), payoff, 200)
    assert [action.reason for action in retired] == ["wins 1.00 or more against 1 player"]


def test_thresholds_may_differ_by_kind_of_player() -> None:
    pool = _pool(main_exploiters=1)
    args = '{"min_steps": {"main": 500, "main_exploiter": 50}, "win_rate": {"main_exploiter": 0.4}, "min_games": 10}'
    payoff = _played(payoffs.Payoff(), pool, "main_exploiter_0", "main", 10 * "D")
    found = {steps: [action.player for action in _star(pool, payoff, steps, args=args)] for steps in (49, 50, 500)}
    assert found == {49: [], 50: ["main_exploiter_0"] * 2, 500: ["main", *["main_exploiter_0"] * 2]}
    given = league_config.LeagueConfig(builder="alphastar", builder_args=args).arguments()
    assert given["min_steps"] == {"main": 500, "main_exploiter": 50, "league_exploiter": 10_000}  # the rest's default
    assert given["win_rate"] == {"main": 0.7, "main_exploiter": 0.4, "league_exploiter": 0.7}
    assert (given["min_games"], given["max_steps"]) == (10, 40_000)


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_a_snapshot_goes_on_learning_beside_its_parent_with_a_probability(probability: float) -> None:
    args = f'{{"min_steps": 100, "keep_training_probability": {{"main": {probability}}}}}'
    pool, added = _pool(main_exploiters=1, max_players=3), 0
    for key in range(1_000):
        freeze, *rest = _star(pool, payoffs.Payoff(), 100, key, args)
        assert freeze[:2] == (FREEZE, "main")
        added += rest == [builders.Action(builders.ADD, "main", "main", "the first one")]
    assert added / 1_000 == pytest.approx(probability, abs=0.04)


def test_snapshots_go_on_learning_while_there_is_room() -> None:
    args = '{"min_steps": 0, "max_steps": 10, "keep_training_probability": 1}'
    pool = _pool(main_players=2, main_exploiters=1, max_players=5)
    found = [action[:3] for action in _star(pool, payoffs.Payoff(), 10, args=args)]
    assert [action for action in found if action[0] != FREEZE] == [
        (builders.ADD, "main", "main"),
        (builders.ADD, "main", "main_1"),
        (RESET, "main_exploiter_0", "initial"),
    ]
    exploiter = _pool(main_exploiters=1, max_players=9)
    kinds = [action[:2] for action in _star(exploiter, payoffs.Payoff(), 10, args=args)]
    assert kinds[2:] == [  # it begins as the snapshot, before its parent begins anew
        (FREEZE, "main_exploiter_0"),
        (builders.ADD, "main_exploiter"),
        (RESET, "main_exploiter_0"),
    ]


@pytest.mark.parametrize(("updates", "players"), [(20, {"main"}), (21, {"main", "main_exploiter_0"})])
def test_a_player_that_has_not_learned_since_its_reset_goes_on(updates: int, players: set[str]) -> None:
    pool = _pool(main_exploiters=1).reset("main_exploiter_0", source="initial", version=20, env_steps=200)
    counts = {name: builders.Learned(updates, 9_000) for name in pool.learning}
    given = league_config.LeagueConfig(builder="alphastar", builder_args=STAR).arguments()
    found = builders.run(builders.load("alphastar"), pool, payoffs.Payoff(), counts, given, 0, name="alphastar")
    assert {action.player for action in found} == players


def test_reasons_tell_the_least_rate_or_the_steps() -> None:
    pool, first = _pool().freeze("main", "0a", version=10, env_steps=100)
    payoff = _played(payoffs.Payoff(), pool, "main", first.name, 15 * "W" + 5 * "L")
    assert [action.reason for action in _star(pool, payoff, 200)] == ["wins 0.73 or more against 1 player"]
    assert [action.reason for action in _star(pool, payoff, 1100)] == ["1,000 steps since the last"]


def test_a_main_exploiter_is_reset_when_it_beats_every_main_player() -> None:
    pool = _pool(main_players=2, main_exploiters=1)
    pool, _ = pool.freeze("main", "0a", version=5, env_steps=50)  # which is not a rival of a main exploiter
    payoff = _played(payoffs.Payoff(), pool, "main_exploiter_0", "main", 20 * "W")
    exploiter = [action for action in _star(pool, payoff, 100) if action.player == "main_exploiter_0"]
    assert exploiter == []
    payoff = _played(payoff, pool, "main_exploiter_0", "main_1", 18 * "W" + 2 * "D")
    exploiter = [action for action in _star(pool, payoff, 100) if action.player == "main_exploiter_0"]
    reason = f"wins {1 - (0.5 + 0.5 * 0.99) / ((1 - 0.99**20) / 0.01):.2f} or more against 2 players"
    assert exploiter == [
        builders.Action(FREEZE, "main_exploiter_0", "", reason),
        builders.Action(RESET, "main_exploiter_0", "initial", reason),
    ]
    # After the reset, neither its matches nor its steps count any more.
    pool = pool.reset("main_exploiter_0", source="initial", version=10, env_steps=100)
    for steps, args in ((1_099, STAR), (300, '{"min_steps": 0, "min_games": 0}')):
        found = _star(pool, payoff.reset("main_exploiter_0"), steps, args=args)
        assert "main_exploiter_0" not in {action.player for action in found}


def test_matches_of_the_main_player_at_home_count_for_its_exploiter() -> None:
    pool = _pool(main_exploiters=1)
    payoff = _played(payoffs.Payoff(), pool, "main", "main_exploiter_0", 20 * "L")
    assert {action.player for action in _star(pool, payoff, 100)} == {"main", "main_exploiter_0"}


@pytest.mark.thorough
@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_a_league_exploiter_is_reset_with_its_probability(probability: float) -> None:
    pool, one = _pool(league_exploiters=1).freeze("main", "0a", version=5, env_steps=50)
    payoff = _played(payoffs.Payoff(), pool, "league_exploiter_0", one.name, 20 * "W")
    args = f'{{"min_steps": 100, "min_games": 20, "reset_probability": {probability}}}'
    resets = 0
    for key in range(2_000):
        found = [action for action in _star(pool, payoff, 100, key, args) if action.player == "league_exploiter_0"]
        assert found[0].kind == FREEZE
        resets += len(found) - 1
    assert resets / 2_000 == pytest.approx(probability, abs=0.03)
    assert _star(pool, payoff, 100, 7, args) == _star(pool, payoff, 100, 7, args)


def test_a_league_exploiter_s_rivals_are_frozen_players_its_own_too() -> None:
    pool = _pool(league_exploiters=1)
    payoff = _played(payoffs.Payoff(), pool, "league_exploiter_0", "main", 20 * "W")
    assert len(_star(pool, payoff, 100)) >= 2  # without frozen players the main player is its rival
    pool, own = pool.freeze("league_exploiter_0", "0a", version=5, env_steps=0)
    assert "league_exploiter_0" not in {action.player for action in _star(pool, payoff, 100)}
    payoff = _played(payoff, pool, "league_exploiter_0", own.name, 20 * "W")
    assert "league_exploiter_0" in {action.player for action in _star(pool, payoff, 100)}


@pytest.mark.parametrize(
    ("reset_to", "source"),
    [("initial", "initial"), ("main", "main"), ("snapshot", "main-0b"), ("snapshot", "initial")],
)
def test_an_exploiter_takes_the_parameters_that_the_argument_names(reset_to: str, source: str) -> None:
    pool = _pool(main_exploiters=1)
    for digits in ("0a", "0b") if source == "main-0b" else ():
        pool, _ = pool.freeze("main", digits, version=5, env_steps=50)
    found = _star(
        pool, payoffs.Payoff(), 1_000, args=f'{{"max_steps": 1000, "min_steps": 0, "reset_to": "{reset_to}"}}'
    )
    assert [action.source for action in found if action.kind == RESET] == [source]


def test_exploiters_take_each_main_player_s_parameters_alike() -> None:
    pool, args = _pool(main_players=2, main_exploiters=1), '{"min_steps": 0, "max_steps": 10, "reset_to": "main"}'
    sources = [_star(pool, payoffs.Payoff(), 10, key, args)[-1].source for key in range(400)]
    assert set(sources) == {"main", "main_1"} and sources.count("main") == pytest.approx(200, abs=40)


def test_a_biased_beginning_ends_with_the_main_player_s_nash_conv() -> None:
    given = league_config.LeagueConfig(builder="biased", builder_args='{"nash_conv": 25, "every": 100}')
    judged = [10.0, 25.0, 12.0, 60.5]

    def decide(pool: members.Pool, env_steps: int) -> list[builders.Action]:
        counts = {"main": builders.Learned(env_steps // 10, env_steps, lambda: judged.pop(0))}
        build = builders.load("biased")
        return list(builders.run(build, pool, payoffs.Payoff(), counts, given.arguments(), 0, name="biased"))

    pool = _pool()
    (freeze,) = decide(pool, 10)
    assert freeze[:2] == (FREEZE, "main")
    pool, fixed = pool.freeze("main", "0a", version=1, env_steps=10)
    (meet,) = decide(pool, 20)
    assert meet[:3] == (builders.MEET, "main", fixed.name)
    pool = pool.meet("main", fixed.name)
    assert decide(pool, 30) == decide(pool, 509) == []  # no snapshot every 100 steps in the first phase
    (freeze,) = decide(pool, 510)  # 500 steps with a good best response
    assert freeze[:2] == (FREEZE, "main") and "12" in freeze.reason
    pool, other = pool.freeze("main", "1b", version=51, env_steps=510)
    (meet,) = decide(pool, 520)
    assert meet[:3] == (builders.MEET, "main", other.name)
    freeze, *retired = decide(pool.meet("main", other.name), 600)
    assert freeze[:2] == (FREEZE, "main") and "60.5" in freeze.reason
    assert [action[:2] for action in retired] == [(RETIRE, fixed.name), (RETIRE, other.name)]
    pool, _ = pool.freeze("main", "2c", version=60, env_steps=600)
    pool = pool.retire(fixed.name).retire(other.name)
    assert [decide(pool, steps) for steps in (610, 699)] == [[], []]
    assert [action[:2] for action in decide(pool, 700)] == [(FREEZE, "main")] and judged == []


@pytest.mark.parametrize(
    ("builder", "arguments", "told"),
    [
        ("alphastar", '{"win_rat": 0.7}', "win_rat is unknown; expected win_rate, min_games, "),
        ("alphastar", '{"win_rate": 1.5}', "win_rate is 1.5; .*from 0 to 1"),
        ("alphastar", '{"min_games": "many"}', "min_games=many: expected a whole number"),
        ("alphastar", '{"reset_to": "past"}', "reset_to is 'past'; .*initial, main, snapshot"),
        ("alphastar", '{"min_steps": 20, "max_steps": 10}', "max_steps=10 is less than min_steps=20"),
        (
            "alphastar",
            '{"win_rate": {"mains": 0.7}}',
            "mains is not a kind; expected main, main_exploiter, league_exploiter",
        ),
        ("alphastar", '{"win_rate": {"main_exploiter": 1.5}}', "of main_exploiter, win_rate is 1.5"),
        (
            "alphastar",
            '{"max_steps": {"main": 10}, "min_steps": 20}',
            "of main, max_steps=10 is less than min_steps=20",
        ),
        ("alphastar", '{"reset_to": {"main_exploiter": "main"}}', "reset_to is an object"),
        ("biased", '{"nash_conv": -1}', "nash_conv is -1.0; .*at least 0"),
        ("past", '{"freeze_every": 10}', "builder past takes no arguments"),
        ("my_rules:build", "{", "must be a JSON object"),
    ],
)
def test_wrong_arguments_are_refused_by_name(builder: str, arguments: str, told: str) -> None:
    with pytest.raises(errors.ConfigError, match=rf"--league\.builder_args={re.escape(arguments)}.*{told}"):
        league_config.LeagueConfig(builder=builder, builder_args=arguments).arguments()


def test_keys_of_calls_differ_and_repeat() -> None:
    keys = {builders.key_of(seed, number) for seed in range(10) for number in range(100)}
    assert len(keys) == 1_000 and builders.key_of(3, 7) == builders.key_of(3, 7) >= 0


# ------------------------------------------------------------------------------------------------ a user's builder

_RULES = """
import threading
from seedzero.league import builders

def build(players, payoff, counts, arguments, key):
    payoff.rows.clear()  # a copy
    worst = [name for name in players.past() if counts["main"].env_steps > arguments["steps"]]
    return [builders.Action("retire", name, reason="old") for name in worst[:1]]

def inner():
    raise KeyError("x")

def raises(*_):
    inner()

def exits(*_):
    raise SystemExit(3)

def hangs(*_):
    threading.Event().wait(60)

class Rules:
    def __call__(self, players, *_):
        return [builders.Action("freeze", players.learning[0]), builders.Action("retire", players.learning[0])]

rules = Rules()

def nothing(*_): return None
def lines(*_): return ["freeze main"]
def one(*_): return builders.Action("freeze", "main")
def number(*_): return [builders.Action("freeze", 7)]
def add(*_): return [builders.Action("add", "main_1")]
def adds(*_): return [builders.Action("add", "main", "main-0a")] * 2
def gone(*_): return [builders.Action("add", "main"), builders.Action("retire", "main_1")] * 2
def freezes(*_): return [*gone()[:2], builders.Action("freeze", "main_1")]
def thaw(*_): return [builders.Action("thaw", "main")]
def nobody(*_): return [builders.Action("freeze", "main_7")]
def frozen(*_): return [builders.Action("reset", "main-0a", "initial")]
def nowhere(*_): return [builders.Action("reset", "main", "main-77")]
def source(*_): return [builders.Action("freeze", "main", "initial")]
"""


@pytest.fixture
def rules(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rules_of_a_user", raising=False)
    file = tmp_path / "rules_of_a_user.py"
    file.write_text(_RULES)
    return file


def _own(function: str, steps: int = 100, seconds: float = 20.0) -> tuple[builders.Action, ...]:
    pool, _ = _pool(max_players=2).freeze("main", "0a", version=5, env_steps=50)
    payoff = _played(payoffs.Payoff(), pool, "main", "main-0a", "W")
    name, arguments = f"rules_of_a_user:{function}", {"steps": 99}
    counts = _counts(pool, steps)
    found = builders.run(builders.load(name), pool, payoff, counts, arguments, 0, name=name, seconds=seconds)
    assert payoff.rows and arguments == {"steps": 99}
    return found


def test_a_user_s_builder_decides_by_players_counts_and_arguments(rules: pathlib.Path) -> None:
    assert _own("build") == (builders.Action(RETIRE, "main-0a", reason="old"),)
    assert _own("build", steps=99) == ()


def test_actions_are_checked_in_their_order(rules: pathlib.Path) -> None:
    rules.write_text(
        "from seedzero.league.builders import Action\n"
        "def build(*_):\n"
        "    adds = Action('add', 'main', 'main-0a')\n"
        "    return [adds, Action('retire', 'main_1'), Action('add', 'main'), Action('freeze', 'main_2')]\n"
    )
    assert [action[:2] for action in _own("build")] == [
        (builders.ADD, "main"),
        (RETIRE, "main_1"),
        (builders.ADD, "main"),
        (FREEZE, "main_2"),
    ]


def test_the_builder_of_the_documentation_works(rules: pathlib.Path) -> None:
    page = (pathlib.Path(__file__).parents[2] / "docs" / "league_advanced.md").read_text(encoding="utf-8")
    (code,) = re.findall(r'```python\n("""my_rules\.py:.*?)```', page, re.DOTALL)
    rules.with_name("rules_of_a_user.py").write_text(code)
    name, settings = "rules_of_a_user:build", {"every": 100}

    def decide(pool: members.Pool, payoff: payoffs.Payoff, updates: int) -> list[tuple[str, ...]]:
        counts = {name: builders.Learned(updates, 10 * updates) for name in pool.learning}
        found = builders.run(builders.load(name), pool, payoff, counts, settings, 0, name=name)
        return [tuple(filter(None, action)) for action in found]

    pool, old = _pool(max_players=2).freeze("main", "0a", version=5, env_steps=50)
    freeze, add = ("freeze", "main", "100 updates"), ("add", "main_exploiter", "main", "main stagnates")
    assert decide(pool, payoffs.Payoff(), 104) == []
    assert decide(pool, _played(payoffs.Payoff(), pool, "main", old.name, 60 * "W"), 105) == [freeze]
    assert decide(pool, _played(payoffs.Payoff(), pool, "main", old.name, 30 * "WL"), 105) == [add, freeze]
    pool, exploiter = members.add(pool, "main_exploiter", source="main")
    assert decide(pool, payoffs.Payoff(), 105) == [freeze]  # there is no room for another
    for games, actions in ((99 * "W", []), (100 * "W", [("retire", exploiter.name, "beaten")]), (50 * "WL", [])):
        assert decide(pool, _played(payoffs.Payoff(), pool, "main", exploiter.name, games), 104) == actions


@pytest.mark.parametrize(
    ("function", "line", "told"),
    [
        ("raises", "    raise KeyError", "raised KeyError: 'x', .*resume the run"),
        ("exits", "    raise SystemExit", "raised SystemExit: 3, "),
        ("hangs", "    threading.Event().wait(60)", "not returned after 1 s, "),
        ("rules", "    def __call__", "player main is evaluated, and can't retire"),
        ("nothing", "def nothing(", "returns None; expected a list of .*Action"),
        ("lines", "def lines(", r"list with 'freeze main'; expected .*Action\(kind, player\)"),
        ("one", "def one(", "returns Action.*; expected a list of "),
        ("number", "def number(", "player=7, .*expected strings"),
        ("thaw", "def thaw(", "kind='thaw', .*expected .*add, freeze, reset, retire, meet"),
        ("add", "def add(", "'main_1' is not a kind .*main, main_exploiter, league_exploiter"),
        ("adds", "def adds(", r"2 players learn, and --league\.max_players=2 "),
        ("gone", "def gone(", "main_1 is retired"),
        ("freezes", "def freezes(", "main_1 is retired"),
        ("nobody", "def nobody(", "'main_7'; there are main, main-0a"),
        ("frozen", "def frozen(", "main-0a is frozen"),
        ("nowhere", "def nowhere(", "'main-77'; there are main, main-0a"),
        ("source", "def source(", "only add, reset and meet have a source"),
    ],
)
def test_a_failure_is_told_with_file_and_line(function: str, line: str, told: str, rules: pathlib.Path) -> None:
    lines = rules.read_text().splitlines()
    (number,) = [at for at, text in enumerate(lines, 1) if text.startswith(line)]
    with pytest.raises(errors.BuilderError, match=rf"rules_of_a_user:{function} .*{told}") as raised:
        _own(function, seconds=1.0 if function == "hangs" else 20.0)
    assert f"{rules}:{number}" in str(raised.value)
    assert function != "hangs" or any(thread.name == "user code" and thread.daemon for thread in threading.enumerate())


def test_a_builder_that_is_not_there_is_refused(rules: pathlib.Path) -> None:
    for name in ("rules_of_a_user:biuld", "rules_of_nobody:build"):
        with pytest.raises(errors.ConfigError, match=name):
            builders.load(name)
