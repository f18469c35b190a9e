"""The share of updates whose gradient is clipped."""

from __future__ import annotations

import math

import pytest

from seedzero.config import configs
from seedzero.monitoring.metrics import counts


@pytest.mark.parametrize(("norm", "expected"), [(0.5, 0.0), (0.51, 1.0), (math.inf, 1.0)])
def test_a_gradient_beyond_the_limit_is_clipped(norm: float, expected: float) -> None:
    config = configs.override(configs.Config(), {"run.agent": "ppo", "optimizer.clip_norm": 0.5})
    assert counts.clip_share(counts.clip_limit(config), {"grad_norm": norm}) == {"grad_clipped": expected}
    without = configs.override(config, {"optimizer.clip_norm": 0.0})
    assert counts.clip_share(counts.clip_limit(without), {"grad_norm": norm}) == {}
