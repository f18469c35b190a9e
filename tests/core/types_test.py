from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from seedzero.core import errors, packing, types


def test_observation_bytes_count_elements_times_their_size() -> None:
    assert types.EnvSpec((96, 96, 1), "uint8", 18).observation_bytes == 9216
    assert types.EnvSpec((4,), "float32", 2).observation_bytes == 16


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.float32, "float32"])
def test_a_dtype_is_a_name_however_it_was_given(dtype: Any) -> None:
    assert repr(types.EnvSpec((4,), dtype, 2).observation_dtype) == "'float32'"
    assert repr(types.ArraySpec("speed", (), dtype).dtype) == "'float32'"


def test_whole_numbers_of_numpy_become_pythons_own() -> None:
    spec = types.EnvSpec((np.int64(4),), "float32", np.int64(2))  # type: ignore[arg-type]
    assert json.loads(json.dumps(dataclasses.asdict(spec)))["observation_shape"] == [4]


@pytest.mark.parametrize(
    ("shape", "dtype", "num_actions", "message"),
    [
        ((4,), "float64", 2, "'float64' .*uint8, int32, float32"),
        ((4, 0), "float32", 2, r"\(4, 0\)"),
        ((4,), "float32", 0, "num_actions is 0"),
        ((4.0,), "float32", 2, "a size is 4.0; expected a whole number"),
        ((4,), "float32", 2.0, "num_actions is 2.0; expected a whole number"),
    ],
)
def test_a_spec_that_no_network_can_take_is_refused(
    shape: tuple[int, ...], dtype: str, num_actions: int, message: str
) -> None:
    with pytest.raises(errors.SpecMismatch, match=message):
        types.EnvSpec(shape, dtype, num_actions)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (dict(seats=("alone",), tasks=("alone",)), r"seats are \['alone'\], .*expected two seats or more"),
        (dict(seats=("first", "second")), r"'second'\], tasks \[\] .*the same names as tasks"),
        (
            dict(seats=("first", "second"), tasks=("first", "second"), num_players=2),
            "num_players 2; expected .* 1: a row",
        ),
        (dict(fixed_seats=True), "fixed_seats is True without seats; expected their names"),
    ],
)
def test_seats_that_make_no_game_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.SpecMismatch, match=told):
        types.EnvSpec((4,), "float32", 2, **changes)


@pytest.mark.parametrize("names", [("left",), ("left", "left"), ("left", "stay", "right")])
def test_names_that_are_not_one_for_each_action_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(errors.SpecMismatch, match=r"action_names are .* 2 different names"):
        types.EnvSpec((4,), "float32", 2, action_names=names)


def test_names_of_actions_make_no_other_spec_and_old_files_have_none() -> None:
    named, plain = types.EnvSpec((4,), "float32", 2, action_names=("left", "right")), types.EnvSpec((4,), "float32", 2)
    assert named == plain and hash(named) == hash(plain)
    kept = dataclasses.asdict(named)
    assert types.EnvSpec.from_json(kept).action_names == ("left", "right")
    del kept["action_names"]
    assert types.EnvSpec.from_json(kept).action_names == ()


def test_finished_agents_mix_their_actions_in_games_of_seats_alone() -> None:
    assert types.EnvSpec((4,), "float32", 2, num_players=2).default_mode == types.GREEDY
    seats = ("first", "second")
    assert types.EnvSpec((4,), "float32", 2, tasks=seats, seats=seats).default_mode == types.SAMPLE
    agents = types.EnvSpec((4,), "float32", 2, tasks=seats, seats=seats, fixed_seats=True)
    assert agents.default_mode == types.GREEDY


def test_rows_of_evaluations_are_seats_of_agents_alone() -> None:
    names = ("a", "b", "c")
    environment = types.EnvSpec((4,), "float32", 2)
    game = types.EnvSpec((4,), "float32", 2, tasks=names, seats=names)
    agents = dataclasses.replace(game, fixed_seats=True)
    rows = [[spec.num_seats(role) for role in types.Role] for spec in (environment, game, agents)]
    assert rows == [[0, 0], [3, 0], [3, 3]]


def test_movers_are_the_last_numbers_of_the_array_that_agents_keep() -> None:
    arrays = (
        types.ArraySpec(types.OBSERVATION, (2,), "int32"),
        types.ArraySpec("state", (3,), "uint8", 0, 255, acting_only=True),
    )
    spec = types.EnvSpec.of_arrays(arrays, num_actions=2, num_players=2, moves_again=True)
    values = {types.OBSERVATION: np.array([[7, 1], [8, 0]], np.int32), "state": np.full((2, 3), 9, np.uint8)}
    assert spec.movers(packing.pack(spec.packed, values)).tolist() == [1, 0]
    assert spec.kept.moves_again and types.EnvSpec((2,), "int32", 2, num_players=2).movers(values["state"]) is None
