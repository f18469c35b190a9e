"""A person's seat over HTTP: moves, refusals, records, and that nothing of another seat is sent."""

from __future__ import annotations

import pathlib
from typing import Any

import page_client
import play_runs
import pytest

from seedzero.acting.actors import agent_choice
from seedzero.acting.tables import human_table, records
from seedzero.core import host_names
from seedzero.interfaces.page import app, human_seat

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("runs")
    play_runs.make(root / "ttt", "spiel:tic_tac_toe")
    play_runs.make(root / "kuhn", "spiel:kuhn_poker")
    return root


def _seat(run: pathlib.Path, seed: int = 0, seat: str | None = None) -> human_seat.HumanSeat:
    table = human_table.HumanTable(agent_choice.AgentChoice(run, seed=seed), seat)
    return human_seat.HumanSeat(table, run / "records")


def _client(seat: human_seat.HumanSeat, root: pathlib.Path, token: str = "") -> page_client.Client:
    return page_client.Client(
        app.make(app.Page(root, human=seat), hosts=host_names.HostNames("127.0.0.1"), token=token)
    )


@pytest.mark.thorough
def test_a_game_is_played_taken_back_and_resigned(runs: pathlib.Path) -> None:
    seat = _seat(runs / "ttt")
    client = _client(seat, runs)
    state = client.get("/api/play/state").json()
    assert len(state["moves"]) == 9 and state["board"]["kind"] == "tic_tac_toe" and state["seat"] == 0
    hint = client.get("/api/play/hint").json()
    assert hint in state["moves"]
    thought = client.get("/api/play/think").json()
    assert thought["num_simulations"] == 4 and len(thought["nodes"]) == 5 and thought["name"] == hint["name"]
    moved = client.post("/api/play", json={"do": "move", "action": 4, "turn": state["turn"]}).json()
    assert moved["names"][0] == "x(1,1)" and moved["board"]["stones"][1][1] == 1 and len(moved["moves"]) == 7
    stale = client.post("/api/play", json={"do": "move", "action": 0, "turn": state["turn"]})
    assert stale.status_code == 409 and stale.json()["state"]["names"] == moved["names"]
    back = client.post("/api/play", json={"do": "undo", "turn": moved["turn"]}).json()
    assert back["names"] == [] and len(back["moves"]) == 9
    lost = client.post("/api/play", json={"do": "resign", "turn": back["turn"]}).json()
    assert (lost["outcome"], lost["losses"], lost["moves"]) == (-1, 1, [])
    sides = client.post("/api/play", json={"do": "sides", "turn": lost["turn"]}).json()
    assert sides["seat"] == 1 and len(sides["names"]) == 1
    seat.finish()
    kept = [records.read_record(path) for path in seat._table.records]
    assert [(one.header["human"], one.header["ended"]) for one in kept] == [("second", "left")]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"do": "move", "action": 99, "turn": 0}, 409),
        ({"do": "move", "action": "x", "turn": 0}, 409),
        ({"do": "cheat", "turn": 0}, 409),
        ({}, 409),
    ],
)
def test_what_cannot_be_done_is_told_with_the_present_position(
    content: dict[str, Any], code: int, runs: pathlib.Path
) -> None:
    answer = _client(_seat(runs / "ttt"), runs).post("/api/play", json=content)
    assert answer.status_code == code and len(answer.json()["state"]["moves"]) == 9 and answer.json()["error"]


@pytest.mark.thorough
def test_another_game_begins_though_the_last_one_cannot_be_recorded(
    runs: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "records"
    folder.write_text("no folder")
    table = human_table.HumanTable(agent_choice.AgentChoice(runs / "ttt", seed=0))
    client = _client(human_seat.HumanSeat(table, folder), runs)
    assert client.post("/api/play", json={"do": "move", "action": 4, "turn": 0}).status_code == 200
    answer = client.post("/api/play", json={"do": "new", "turn": 1})
    assert answer.status_code == 409 and "cannot be written" in answer.json()["error"]
    assert len(answer.json()["state"]["moves"]) == 9
    assert client.post("/api/play", json={"do": "move", "action": 4, "turn": 2}).status_code == 200


@pytest.mark.thorough
def test_only_the_page_s_own_json_makes_moves(runs: pathlib.Path) -> None:
    client = _client(_seat(runs / "ttt"), runs)
    move = {"do": "move", "action": 4, "turn": 0}
    for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"content-type": "text/plain"}):
        assert client.post("/api/play", json=move, headers=headers).status_code == 403
    assert client.post("/api/play", content=b"[]", headers=JSON).status_code == 400
    assert client.post("/api/play", content=b" " * 5000, headers=JSON).status_code == 413
    assert client.post("/api/runs", json=move).status_code == 405
    assert client.post("/api/play", json=move, headers={"sec-fetch-site": "same-origin"}).status_code == 200
    assert _client(_seat(runs / "ttt"), runs, token="0123456789abcdef").post("/api/play", json=move).status_code == 401
    nobody = page_client.Client(app.make(app.Page(runs), hosts=host_names.HostNames("127.0.0.1")))
    assert nobody.post("/api/play", json=move).status_code == 405 and nobody.get("/api/play/state").status_code == 404


def _sent(runs: pathlib.Path, seed: int) -> tuple[str, str, list[bytes]]:
    """Returns the person's and the agent's card of a first position, and all that is sent about it."""
    seat = _seat(runs / "kuhn", seed)
    mine, other = str(seat._table._env.states[0]).split()[:2]
    client = _client(seat, runs)
    paths = ("/api/play/state", "/api/play/hint", "/api/play/think")
    return mine, other, [client.get(path).content for path in paths]


@pytest.mark.thorough
def test_the_opponents_card_is_in_no_byte_before_the_end(runs: pathlib.Path) -> None:
    """What is sent depends on the person's card alone: with another opponent's card it is the same to the byte."""
    found: dict[str, dict[str, list[bytes]]] = {}
    for seed in range(12):
        mine, other, sent = _sent(runs, seed)
        found.setdefault(mine, {}).setdefault(other, sent[:1])
    pairs = [by_other for by_other in found.values() if len(by_other) == 2]
    assert pairs
    for by_other in pairs:
        one, another = by_other.values()
        assert one == another


def test_a_whole_game_of_poker(runs: pathlib.Path) -> None:
    client = _client(_seat(runs / "kuhn", 3, "second"), runs)
    state = client.get("/api/play/state").json()
    assert state["board"] is None and not state["has_undo"] and state["names"] == []
    while state["moves"]:
        asked = {"do": "move", "action": state["moves"][0]["action"], "turn": state["turn"]}
        state = client.post("/api/play", json=asked).json()
    assert state["is_over"] and state["wins"] + state["losses"] == 1 and abs(state["total"]) in (1, 2)
