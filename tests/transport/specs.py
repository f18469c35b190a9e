"""Environments that the tests of messages send: E of each."""

from __future__ import annotations

from seedzero.core import types

E = 3
PIXELS = types.EnvSpec((4, 5, 1), "uint8", 6, 0, 255)
VECTORS = types.EnvSpec((2,), "float32", 2, has_action_mask=True, num_players=2, frames_per_step=4)
NUMBERS = types.EnvSpec((500,), "float32", 6, 0.0, 1.0, num_states=500)
ARRAYS = types.EnvSpec.of_arrays(
    [types.ArraySpec("image", (4, 5, 1), "uint8", 0, 255), types.ArraySpec("robot/arm", (3,), "float32")],
    num_actions=6,
)
TEXT = types.EnvSpec.of_arrays([types.ArraySpec("words", (9,), "uint8", 0, 255, text=True)], num_actions=2)
SEATS = types.EnvSpec((2,), "float32", 2, has_action_mask=True, tasks=("first", "second"), seats=("first", "second"))
TASKS = types.EnvSpec((2,), "float32", 2, tasks=("walk", "run"), spaces='{"observation": {}, "action": {}}')
TURNS = types.EnvSpec((2,), "float32", 2, num_players=2, moves_again=True, has_chance=True)
CONTINUOUS = types.EnvSpec((2,), "float32", 0, action_low=(-1.0, 0.0), action_high=(1.0, 2.5))
