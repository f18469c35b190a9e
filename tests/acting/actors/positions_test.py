"""Positions by all moves since the start of a game, for policies and `POST /act`."""

from __future__ import annotations

import io
import json
import threading
from typing import Any

import numpy as np
import policies
import pytest

from seedzero.acting.actors import acting_policy, agent_choice
from seedzero.core import errors, types
from seedzero.envs import pgx_games
from seedzero.interfaces.serving import acting_engine, policy_serving

GAME = "pgx:tic_tac_toe"


def _spec(*, has_state: bool = False) -> types.EnvSpec:
    pytest.importorskip("pgx")
    return pgx_games.PgxGame("tic_tac_toe", has_state=has_state).spec


def _policy(env_id: str = GAME, **changes: Any) -> acting_policy.Policy:
    return policies.policy(_spec(), env__id=env_id, **changes)


def test_moves_lead_to_what_the_mover_sees() -> None:
    found = _policy().position([4, 0])
    assert found["observation"].shape == (3, 3, 2)
    assert found["observation"][1, 1, 0] == 1 and found["observation"][0, 0, 1] == 1  # own in the middle, the other's
    assert np.flatnonzero(~found["action_mask"]).tolist() == [0, 4]
    policy = _policy()
    assert policy(**found) in np.flatnonzero(found["action_mask"])
    assert policy.search(**policy.position([])).visit_counts.sum() == 3


def test_a_game_of_openspiel_and_one_with_its_state() -> None:
    spec = _spec(has_state=True)
    found = policies.policy(spec, env__id=GAME, env__game_state=True, run__agent="alphazero").position([4])
    assert {name: array.dtype for name, array in found["observation"].items()} == {
        array.name: np.dtype(array.dtype) for array in spec.packed
    }
    pytest.importorskip("pyspiel")
    found = _policy("spiel:tic_tac_toe").position([4, 0])
    assert np.flatnonzero(~found["action_mask"]).tolist() == [0, 4]


@pytest.mark.parametrize(
    ("moves", "told"),
    [
        ([4, 4], r"moves=\[4, 4\]: the game does not allow 4 after 1 moves"),
        ([9], "does not allow 9 after 0"),
        ([[4], 0], "does not allow"),
        (["4"], "does not allow '4'"),
        ([0, 3, 1, 4, 2], "the game is over after them"),
        ([0, 3, 1, 4, 2, 5], "does not allow 5 after 5"),
        (4, "moves is 4; expected a list"),
    ],
)
def test_wrong_moves_are_refused(moves: Any, told: str) -> None:
    with pytest.raises(errors.UsageError, match=told):
        _policy().position(moves)


def test_other_environments_have_no_moves() -> None:
    with pytest.raises(errors.UsageError, match="catch is not a game of spiel: or pgx: without chance and seats"):
        _policy("catch").position([0])


def test_a_game_of_a_user_is_imported_only_with_consent(tmp_path: Any) -> None:
    policy = _policy("pgx:a_module:game")
    policy._choice = agent_choice.AgentChoice(tmp_path)
    with pytest.raises(errors.UsageError, match=r"config\.json"):  # it asks the run directory
        policy.position([0])
    with pytest.raises(errors.UsageError, match=r"config\.json"):
        policy.think(np.zeros(_spec().observation_shape, np.uint8), action_mask=np.ones(9), moves=[0])


def test_http_takes_moves() -> None:
    saved = policies.saved(_spec(), env__id=GAME, run__agent="ppo")
    engine = acting_engine.ActingEngine({"main": saved}, num_slots=1, max_batch=1)
    engine.compile()
    run = threading.Thread(target=engine.run, args=(lambda answers: None, lambda versions: None))
    run.start()
    app, started = policy_serving.HttpActing(engine, ""), list[str]()

    def asked(fields: dict[str, Any]) -> dict[str, Any]:
        content = json.dumps(fields).encode()
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/act", "REMOTE_ADDR": "127.0.0.1"}
        environ |= {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(content))}
        answer = app({**environ, "wsgi.input": io.BytesIO(content)}, lambda status, headers: started.append(status))
        found: dict[str, Any] = json.loads(b"".join(answer))
        return found

    try:
        policy = _policy(run__agent="ppo")
        assert asked({"moves": [4, 0]})["action"] == policy(**policy.position([4, 0]))
        assert "does not allow 4 after 1 moves" in asked({"moves": [4, 4]})["error"]
        assert "action_mask came with moves" in asked({"moves": [4, 0], "action_mask": [0, 1, *[0] * 7]})["error"]
        assert started == ["200 OK", *["400 Bad Request"] * 2]
    finally:
        engine.stop()
        run.join()
