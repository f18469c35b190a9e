"""How evaluations and saved agents act."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.config import evaluation_config
from seedzero.core import types

_ALONE = types.EnvSpec((4,), "float32", 2)
_SEATS = types.EnvSpec((4,), "float32", 2, seats=("a", "b"), tasks=("a", "b"))


@pytest.mark.parametrize(
    ("policy", "alone", "in_seats"),
    [
        ("auto", types.GREEDY, types.SAMPLE),
        ("greedy", types.GREEDY, types.GREEDY),
        ("sample", types.SAMPLE, types.SAMPLE),
    ],
)
def test_the_game_decides_unless_you_do(policy: str, alone: np.int8, in_seats: np.int8) -> None:
    settings = evaluation_config.EvaluationConfig(policy=policy)
    assert (settings.mode(_ALONE), settings.mode(_SEATS)) == (alone, in_seats)
