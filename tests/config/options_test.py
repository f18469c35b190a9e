from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from seedzero.config import configs, options
from seedzero.core import errors


@dataclasses.dataclass(frozen=True)
class _Section(options.Section):
    kind: str = options.at_creation("round", "its form", choices=("round", "square"))
    size: int = options.at_creation(2, "its size", "pixels", low=1, high=8)
    share: float = options.at_creation(0.5, "its share", low=0.0)
    name: str = options.at_creation("", "its name")
    bright: bool = options.any_time(False, "whether it shines")


@pytest.mark.parametrize(
    "values",
    [{}, {"kind": "square", "size": 8, "share": 0.0, "name": "anything", "bright": True}, {"size": 1, "share": 1e30}],
)
def test_values_within_their_bounds_pass(values: dict[str, Any]) -> None:
    assert dataclasses.asdict(_Section(**values)) == {**dataclasses.asdict(_Section()), **values}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "oval"}, "kind .*'oval'; .* round, square"),
        ({"size": 0}, "size .* 0; .* 1 to 8"),
        ({"size": 9}, "size .* 9; .* 1 to 8"),
        ({"share": -0.1}, "share .* -0.1; .* 0"),
    ],
)
def test_others_are_refused_with_their_bounds(values: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        _Section(**values)


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e6", 10**6), ("1.5e3", 1500), ("3.0", 3), (1e6, 10**6), ("-2", -2), ("9007199254740993", 2**53 + 1)],
)
def test_a_whole_number_may_be_written_with_an_exponent(text: str | float, number: int) -> None:
    found = options.parse("run.max_updates", text, int)
    assert found == number and isinstance(found, int)


@pytest.mark.parametrize("text", ["1.5", "1e-3", "inf", "nan", "1e999999", "1e31", "six", "", "True"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(errors.ConfigError, match=rf"^--run.max_updates={text}: expected a whole number$"):
        options.parse("run.max_updates", text, int)


def test_whole_numbers_have_32_bits_where_they_are_no_counts() -> None:
    for name, field in configs.fields().items():
        if isinstance(field.default, int) and not isinstance(field.default, bool):
            with pytest.raises(errors.ConfigError, match=rf"--{name} .* {2**63}; "):
                configs.override(configs.Config(), {name: 2**63})
    configs.override(configs.Config(), {"run.max_env_steps": 5_000_000_000, "replay.capacity": 5_000_000_000})
    with pytest.raises(errors.ConfigError, match=r"batcher\.max_batch .* 5000000000; "):
        configs.override(configs.Config(), {"batcher.max_batch": 5_000_000_000})


def test_a_field_keeps_its_help_unit_and_marks() -> None:
    found = {field.name: field.metadata for field in dataclasses.fields(_Section)}
    assert (found["size"]["help"], found["size"]["unit"]) == ("its size", "pixels")
    assert [name for name, metadata in found.items() if metadata["resumable"]] == ["bright"]


class TestAgents:
    """Every agent's section."""

    AGENTS = pytest.mark.parametrize("agent", configs.agent_names())

    @AGENTS
    def test_its_facts_are_no_settings(self, agent: str) -> None:
        section = getattr(configs.Config(), agent)
        assert isinstance(section, options.AgentSection)
        assert not {"SECTIONS", "SAMPLES", "MAX_PLAYERS", "PLAYS_CONTINUOUS"} & set(dataclasses.asdict(section))

    @AGENTS
    def test_its_other_sections_exist_and_are_no_agents(self, agent: str) -> None:
        others = getattr(configs.Config(), agent).SECTIONS
        assert set(others) <= {field.name for field in dataclasses.fields(configs.Config)} - set(configs.agent_names())

    @AGENTS
    def test_it_names_what_devices_share(self, agent: str) -> None:
        found = configs.override(configs.Config(), {"run.agent": agent})
        shared = found.agent.shared(found)
        assert shared and all(configs.flatten(found)[name] == number for name, number in shared.items())
        assert all(configs.is_read(name, agent) for name in shared)
        assert found.agent.window_steps(found) >= 1


def test_muzeros_windows_hold_the_stack_the_unroll_and_the_rewards_of_their_targets() -> None:
    found = configs.override(
        configs.Config(), {"network.frame_stack": 4, "muzero.unroll_steps": 3, "muzero.n_step": 7}
    )
    assert found.agent.window_steps(found) == 4 + 3 + 7 + 1


@pytest.mark.parametrize(
    ("value", "shown"), [(True, "true"), (3, "3"), (15.0, "15"), (0.001, "0.001"), ("ppo", "ppo"), ("", "(empty)")]
)
def test_values_are_shown_as_they_are_given(value: options.Value, shown: str) -> None:
    assert options.shown(value) == shown
