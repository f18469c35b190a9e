"""What agents share: one declaration of each setting, and the values that are passed on."""

from __future__ import annotations

import pytest

from seedzero.config import config as configs
from seedzero.config import shared


@pytest.mark.parametrize(
    ("name", "num_agents"),
    [("discount", 6), ("compute_dtype", 6), ("frame_stack", 6), ("clip_norm", 6), ("width", 4), ("max_lag", 2)],
)
def test_a_setting_that_several_agents_have_means_the_same_in_each(name: str, num_agents: int) -> None:
    declared = getattr(shared, name)(1).metadata
    fields = [field for key, field in configs.fields().items() if key.rpartition(".")[2] == name]
    assert [field.metadata["help"] for field in fields].count(declared["help"]) == num_agents


def test_an_agent_sets_limits_of_its_own() -> None:
    fields = configs.fields()
    assert fields["vtrace.unroll_length"].metadata["high"] == 1000
    assert fields["ppo.unroll_length"].metadata["high"] == 10_000


def test_layers_are_the_settings_of_their_names_and_lack_what_the_agent_lacks() -> None:
    changes = {"apex.width": 7, "r2d2.lstm_width": 6, "sac.frame_stack": 2, "apex.compute_dtype": "float32"}
    config = configs.override(configs.Config(), changes)
    assert shared.Layers.of("apex", config.apex) == ("apex", "auto", 7, 0, 1, False, "float32")
    assert shared.Layers.of("r2d2", config.r2d2) == ("r2d2", "auto", 512, 6, 1, False, "auto")
    assert shared.Layers.of("sac", config.sac) == ("sac", "mlp", 256, 0, 2, False, "auto")


def test_the_epsilon_of_v_trace_is_that_of_its_optimizer() -> None:
    rmsprop = configs.Config().vtrace
    adam = configs.override(configs.Config(), {"vtrace.optimizer": "adam"}).vtrace
    assert rmsprop.descent == shared.Optimizer("rmsprop", 6e-4, 40.0, epsilon=0.01, decay=0.99)
    assert adam.descent == shared.Optimizer("adam", 6e-4, 40.0, epsilon=1e-8, decay=0.99)
