"""What agents share: one declaration of each setting, and the values that are passed on."""

from __future__ import annotations

import re

import pytest

from seedzero.config import configs, shared
from seedzero.core import errors, types


def test_an_agent_sets_limits_of_its_own() -> None:
    fields = configs.fields()
    assert fields["vtrace.unroll_length"].metadata["high"] == 1000
    assert fields["ppo.unroll_length"].metadata["high"] == 10_000


@pytest.mark.parametrize("agent", configs.agent_names())
def test_an_agent_has_defaults_of_the_shared_settings_that_it_reads(agent: str) -> None:
    config, fields = configs.of_agent(agent), configs.fields()
    values = configs.flatten(config)
    assert config.agent.DEFAULTS.keys() <= fields.keys()
    assert all(values[name] == default for name, default in config.agent.DEFAULTS.items())
    read = {name for name in fields if name.startswith(("optimizer.", "network.", "reward."))}
    read = {name for name in read if configs.is_read(name, agent)}
    assert agent == "muzero" or read == config.agent.DEFAULTS.keys()
    assert {"optimizer.learning_rate", "network.width", "reward.discount"} <= read


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((), "mlp"),
        ((8,), "mlp"),
        ((10, 5), "conv"),
        ((10, 10, 4), "conv"),
        ((31, 96, 1), "conv"),
        ((84, 84, 1), "resnet"),
        ((64, 64, 3), "resnet"),
        ((2, 3, 4, 5), "mlp"),
    ],
)
def test_the_kind_follows_from_the_observations_shape(shape: tuple[int, ...], kind: str) -> None:
    assert shared.choose_kind("network.kind", "auto", types.EnvSpec(shape, "uint8", 2)) == kind


@pytest.mark.parametrize("kind", ["mlp", "conv", "shallow"])
def test_a_given_kind_stays(kind: str) -> None:
    assert shared.choose_kind("network.kind", kind, types.EnvSpec((84, 84, 1), "uint8", 2)) == kind
    assert shared.choose_kind("network.kind", "mlp", types.EnvSpec((4,), "uint8", 2)) == "mlp"


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4, 5)])
def test_convolutions_without_a_grid_are_refused_by_the_settings_name(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        errors.ConfigError, match=rf"network\.kind=deep .*{re.escape(str(list(shape)))}; .*--network\.kind=mlp"
    ):
        shared.choose_kind("network.kind", "deep", types.EnvSpec(shape, "uint8", 2))


def test_images_of_several_sizes_are_refused_by_name() -> None:
    arrays = [types.ArraySpec("camera", (6, 5, 3), "uint8"), types.ArraySpec("map", (9, 9), "uint8")]
    spec = types.EnvSpec.of_arrays(arrays, num_actions=2)
    with pytest.raises(errors.ConfigError, match=r"camera \[6, 5, 3\], map \[9, 9\]; .*--network\.kind=mlp"):
        shared.choose_kind("network.kind", "auto", spec)
    assert shared.choose_kind("network.kind", "mlp", spec) == "mlp"


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (("camera", "map"), r"\[\"camera\"\].*--network\.kind=mlp"),
        (("0", "1"), r"\[0\].*--network\.kind=mlp"),
        (("eyes/left", "map"), r"map \[9, 9\]; [^\"]*--network\.kind=mlp"),
    ],
)
def test_a_filter_is_advised_where_gymnasium_knows_the_names(names: tuple[str, str], advice: str) -> None:
    arrays = [types.ArraySpec(name, (size, size), "uint8") for name, size in zip(names, (6, 9), strict=True)]
    with pytest.raises(errors.ConfigError, match=advice):
        shared.choose_kind("network.kind", "auto", types.EnvSpec.of_arrays(arrays, num_actions=2))
