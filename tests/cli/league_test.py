"""What `seedzero league` prints."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import saved_league

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import scoring
from seedzero.cli import main as commands
from seedzero.interfaces.page import league_view
from seedzero.league import members, payoffs


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return saved_league.make(tmp_path_factory.mktemp("league") / "run")


def _json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert commands.main(["league", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_show_has_players_matches_and_types(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "show", f"--run_dir={run_path}")
    assert [player["name"] for player in found["players"]] == ["main", saved_league.OLD, saved_league.NEW]
    assert found["players"][1] == {
        "name": saved_league.OLD,
        "kind": "frozen",
        "learns": False,
        "version": 30,
        "env_steps": 1_000,
        "parent": "main",
    }
    counted = {name: count for name, count in found["types"].items() if count}
    assert (found["matches"], counted) == (10, {"self_play": 3, "past": 7})
    assert found["types"].keys() == set(payoffs.TYPES) - {members.SCRIPTED}  # named once there are such matches
    assert (found["void"], found["active"]["main"].count(saved_league.NEW)) == (2, 2)


def test_payoff_has_twice_as_many_games_as_matches(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _json(capsys, "payoff", f"--run_dir={run_path}")["payoff"]
    assert sum(row["games"] for row in rows) == 2 * 10
    (row,) = [x for x in rows if (x["player"], x["opponent"], x["side"]) == ("main", saved_league.NEW, "second")]
    assert (row["games"], row["wins"], row["draws"], row["losses"], row["mean_return"]) == (4, 0, 1, 3, -0.75)
    assert row["low"] < row["win_rate"] == 0.125 < row["high"]


def test_elo_has_ratings_and_games(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "elo", f"--run_dir={run_path}")
    players = {"main", saved_league.OLD, saved_league.NEW}
    assert found["ratings"].keys() == found["games"].keys() == found["stderr"].keys() == players
    assert found["ratings"][saved_league.OLD] == found["stderr"][saved_league.OLD] == 0.0
    held = _json(capsys, "elo", f"--run_dir={run_path}", f"--anchors=main=-50,{saved_league.OLD}=100.5")
    assert (held["ratings"]["main"], held["ratings"][saved_league.OLD]) == (-50.0, 100.5)
    assert held["stderr"][saved_league.NEW] > 0


@pytest.mark.parametrize("words", [["elo"], ["match", "main", "nobody"]], ids=" ".join)
def test_the_run_directory_may_be_a_word(
    words: list[str], run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["league", *words, str(run_path)]) == (0 if words == ["elo"] else 2)
    out, err = capsys.readouterr()
    assert f"{saved_league.OLD} (#1, update 30)" in out or "'nobody'" in err
    assert commands.main(["league", *words]) == 2  # it is missing, and no player is taken for it
    assert "--run_dir" in capsys.readouterr().err


def test_show_tells_the_devices_of_players_that_learn_on_different_ones(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counters = saved_league.made_counters()
    other = members.Member("main_exploiter_0", "main_exploiter", True, line="main_exploiter", number=1)
    pool = members.Pool((*members.Pool().members, other))
    pool, _ = pool.freeze("main", "0" * 12, version=1, env_steps=1)
    own = {"num_updates": 45, "ledger": {"stored": 1_250}}
    counters["league"] |= {"pool": pool.to_json(), "payoff": payoffs.Payoff().to_json()}
    counters |= {"places": [2, 1], "players": {"main": {**own, "place": 0}, "main_exploiter_0": {**own, "place": 1}}}
    run = saved_league.make(tmp_path / "run", counters)
    found = {row["name"]: row["devices"] for row in _json(capsys, "show", f"--run_dir={run}")["players"]}
    assert found == {"main": [0, 1], "main_exploiter_0": [2], "main-000000000000": []}
    assert commands.main(["league", "show", f"--run_dir={run}"]) == 0
    assert "0, 1" in capsys.readouterr().out


_OLD, _NEW = "main-0123456789ab", "main-ba9876543210"
_OLD_ON, _NEW_ON = f"{_OLD} (#1, update 30)", f"{_NEW} (#2, update 60)"


@pytest.mark.parametrize(
    ("view", "rows"),
    [
        ("elo", ["player rating stderr games", f"{_NEW_ON} +579 327 4", "main +338 263 7", f"{_OLD_ON} +0 held 3"]),
        (
            "lineage",
            [
                "main (main): update 90, 2,500 steps",
                f"├─ {_OLD}: update 30, 1,000 steps",
                f"└─ {_NEW}: update 60, 2,000",
            ],
        ),
        (
            "payoff",
            [
                "player opponent side type games wins draws losses mean_return win_rate low high",
                "main main first self_play 3 1 1 1 0.000 0.500 0.125 0.875",
                f"main {_OLD_ON} first past 2 2 0 0 1.000 1.000 0.342 1.000",
                f"main {_NEW_ON} second past 4 0 1 3 -0.750 0.125 0.013 0.604",
                f"{_NEW_ON} main first past 4 3 1 0 0.750 0.875 0.396 0.987",
            ],
        ),
        (
            "show",
            [
                "name kind learns version env_steps parent",
                "main main yes 90 2500 -",
                f"{_OLD} frozen no 30 1000 main",
                f"{_NEW} frozen no 60 2000 main",
                "player opponent active share recent_win_rate",
                "main main 1 0.350 -",
                f"main {_OLD} 1 0.016 0.874",
                f"main {_NEW} 2 0.634 0.199",
                "10 matches: 3 self_play, 7 past; 2 more did not count",
            ],
        ),
    ],
)
def test_tables_are_for_people(
    view: str, rows: list[str], run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["league", view, f"--run_dir={run_path}"]) == 0
    head, *shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert str(run_path) in head and " 90 updates and 2,500 steps" in head
    found = iter(shown)
    assert all(any(line.startswith(row) for line in found) for row in rows)  # in this order


def test_a_league_without_matches_yet_is_shown(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    host = saved_league.made_counters()
    host["league"]["payoff"] = {"rows": [], "recent": []}
    path = saved_league.make(tmp_path / "run", host)
    for view, shown in (("show", "0 matches"), ("payoff", "no match has ended"), ("elo", "main")):
        assert commands.main(["league", view, f"--run_dir={path}"]) == 0
        assert shown in capsys.readouterr().out


def test_lineage_has_snapshots_by_their_parents(run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (player,) = _json(capsys, "lineage", f"--run_dir={run_path}")["players"]
    assert [(event["player"], event["version"], event["env_steps"]) for event in player["events"]] == [
        (saved_league.OLD, 30, 1_000),
        (saved_league.NEW, 60, 2_000),
    ]


def test_export_writes_everything_and_the_history(
    tmp_path: pathlib.Path, run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = run_path / "league.jsonl"
    history.write_text('{"event": "freeze", "player": "x"}\n{"event": "fre')  # cut by a crash
    out = tmp_path / "league.json"
    told = _json(capsys, "export", f"--run_dir={run_path}", f"--out={out}")
    assert told == {"out": str(out), "update": 90, "players": 3}
    history.unlink()
    found = json.loads(out.read_text())
    assert found["history"] == [{"event": "freeze", "player": "x"}]
    assert found["types"]["past"] == 7 and len(found["players"]) == 3
    assert commands.main(["league", "export", f"--run_dir={run_path}", f"--out={out}"]) == 0
    assert json.loads(out.read_text()) == {**found, "history": []} and str(out) in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["svg", "PNG"])
def test_heatmap_draws_the_players(
    ending: str, tmp_path: pathlib.Path, run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"rates.{ending}"
    assert _json(capsys, "heatmap", f"--run_dir={run_path}", f"--out={out}")["players"] == 3
    assert out.read_bytes().startswith(b"\x89PNG" if ending == "PNG" else b"<?xml")


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: pathlib.Path, run_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "nowhere" / "a.svg"
    assert commands.main(["league", "heatmap", f"--run_dir={run_path}", f"--out={out}"]) == 2
    assert f"--out={out} cannot be written: No such file" in capsys.readouterr().err


def test_a_match_of_seats_tells_the_mean_return_first(
    run_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    side = {"wins": 10, "draws": 0, "losses": 10}
    returns = {"mean_return": 0.25, "stderr_return": 0.1, "versions": [90, 30], "policy": "sample"}
    played = {"episodes": 40, "wins": 20, "draws": 0, "losses": 20, "first": side, "second": side, **returns}
    monkeypatch.setattr(scoring, "against_each_other", lambda *args: played)
    assert commands.main(["league", "match", "main", saved_league.OLD, f"--run_dir={run_path}", "--games=40"]) == 0
    text, _, table = capsys.readouterr().out.partition("\n\n")
    assert " 0.25 (0.054 to 0.446 at 95 %)" in text and " 0.500 (0.352 to 0.648 at 95 %) " in text
    assert f" against {_OLD} in 40 games: 20 wins, 0 draws, 20 losses" in text
    rows = [line.split()[-4:] for line in table.splitlines()[1:]]
    assert rows == [["side", "wins", "draws", "losses"], ["main", "10", "0", "10"], [_OLD, "10", "0", "10"]]


@pytest.mark.parametrize("as_json", [True, False])
def test_match_tells_the_score(
    as_json: bool,
    run_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    side = {"wins": 15, "draws": 5, "losses": 0}
    played = {"episodes": 40, "wins": 30, "draws": 10, "losses": 0, "first": side, "second": side}
    calls = []

    def against(*args: Any) -> dict[str, Any]:
        calls.append(args)
        return {**played, "mean_return": 0.75, "versions": [90, 30]}

    monkeypatch.setattr(scoring, "against_each_other", against)
    flags = [f"--run_dir={run_path}", "--games=40", "--seed=3", *(["--json"] if as_json else [])]
    assert commands.main(["league", "match", "main", saved_league.OLD, *flags]) == 0
    assert calls == [(agent_choice.AgentChoice(run_path, seed=3), [None, saved_league.OLD], 40)]
    out, err = capsys.readouterr()
    if as_json:
        found = json.loads(out.splitlines()[-1])
        assert (found["players"], found["games"], found["score"]) == (["main", saved_league.OLD], 40, 0.875)
        assert found["low"] < 0.875 < found["high"] and found["first"] == side
    else:
        assert f"playing 40 games of main against {_OLD}" in err
        assert f"main scores 0.875 (0.739 to 0.945 at 95 %) against {_OLD} in 40 games: 30 wins, 10 draws, 0" in out
        rows = [line.split()[-4:] for line in out.splitlines()[-3:]]
        assert rows == [["move", "wins", "draws", "losses"], ["main", "15", "5", "0"], [_OLD, "15", "5", "0"]]


@pytest.fixture(scope="module")
def kuhn(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    pytest.importorskip("pyspiel")
    return saved_league.make_seats(tmp_path_factory.mktemp("kuhn") / "run")


def test_nash_tells_the_mixtures(kuhn: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["league", "nash", f"--run_dir={kuhn}"]) == 0
    kept = json.loads((kuhn / "nash.json").read_text())
    assert kept["update"] == 90 and league_view.nash(kept) == {name: kept[name] for name in ("update", "mixtures")}
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [
        row[1:] for row in rows if row[:1] in (["mixture"], ["equilibrium"], ["league"], ["uniform"], ["last"])
    ] == [
        ["nash_conv", "first", "second"],
        ["0.6290", "1", "1"],
        ["1.2288", "3", "3"],
        ["0.8652", "2", "2"],
        ["1.1838", "1", "1"],
    ]
    assert [_OLD, "(#1,", "update", "30)", "1.000", "1.000"] in rows and ["cyclic", "triples:", "0"] in [
        row[:3] for row in rows
    ]
    found = _json(capsys, "nash", f"--run_dir={kuhn}", "--step=90")
    assert found.keys() == {
        *("update", "env_steps", "players", "nash_conv", "mixtures", "weights", "support", "cycles")
    }
    assert found["nash_conv"] == found["mixtures"]["equilibrium"] and len(found["players"]) == 3


def test_nash_judges_a_run_without_a_league(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspiel")
    host = {"num_updates": 90, "ledger": {"stored": 2_500}}
    path = saved_league.make_seats(tmp_path / "run", counters=host, league__freeze_every=0)
    assert commands.main(["league", "nash", f"--run_dir={path}"]) == 0
    out = capsys.readouterr().out
    assert "NashConv of main, the last iterate: 1.1838" in out and "no league" in out


def test_export_writes_the_policies(
    tmp_path: pathlib.Path, kuhn: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "policies.json"
    told = _json(capsys, "export", "--policies", f"--out={out}", f"--run_dir={kuhn}")
    assert told == {"out": str(out), "update": 90, "players": 3}
    found = json.loads(out.read_text())
    assert found.keys() == {"game", "players", "mixture"} and found["game"] == "kuhn_poker()"
    assert list(found["players"]) == ["main", saved_league.OLD, saved_league.NEW]
    table = found["players"]["main"]
    assert len(table) == 12 and table["0pb"].keys() == {"0", "1"} and sum(table["0pb"].values()) == pytest.approx(1)
