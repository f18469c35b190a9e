"""How evaluations and saved agents act."""

from __future__ import annotations

import numpy as np
import pytest

from seedzero.checkpoints import migrations
from seedzero.config import configs, evaluation_config, presets
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


def test_runs_of_earlier_versions_stay_greedy() -> None:
    values = configs.flatten(presets.get("cartpole", "ppo"))
    del values["evaluation.policy"]
    assert migrations.config(values).evaluation.mode(_ALONE) == types.GREEDY
