"""Agents of a user's own module: their settings beside all others, and refusals with file and line."""

from __future__ import annotations

import itertools
import pathlib
import sys
import textwrap
from collections.abc import Callable

import pytest

from seedzero.config import configs, options, own_agents, presets
from seedzero.core import errors
from seedzero.storage.checkpoints import formats

_MODULE = """
import dataclasses
from seedzero.config import options, own_agents

@dataclasses.dataclass(frozen=True)
class Settings(options.AgentSection):
    SECTIONS = ("league",)
    bonus: float = options.on_resume(0.5, "added to each reward", low=0)
    limit: float = options.at_creation(float("inf"), "of everything")

def make(config, spec, platform):
    return None

AGENT = own_agents.OwnAgent("toy", Settings, make, {"catch": options.part(toy=dict(bonus=2.0))})
"""
_numbers = itertools.count()


@pytest.fixture
def named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Returns the name of the agent in a module of its own with this content."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(content: str) -> str:
        module = f"toy_module_{next(_numbers)}"  # no name twice: a module is imported once
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(content))
        return f"{module}:AGENT"

    return write


@pytest.fixture
def toy(named: Callable[[str], str]) -> str:
    return named(_MODULE)


def test_its_settings_lie_beside_all_others(toy: str) -> None:
    found = configs.override(configs.Config(), {"agent": toy, "toy.bonus": "3"})
    assert found.agent.bonus == 3 and found.section == "toy"  # type: ignore[attr-defined]
    assert configs.flatten(found)["toy.bonus"] == 3 and found.ppo == configs.Config().ppo
    assert configs.fields(configs.kind_of(toy)).keys() - configs.fields().keys() == {"toy.bonus", "toy.limit"}
    assert configs.override(found, {"seed": 2}).run.agent == toy
    assert isinstance(found, configs.kind_of(toy)) and configs.kind_of("ppo") is configs.Config


def test_it_has_parts_of_presets_or_its_defaults(toy: str) -> None:
    assert configs.flatten(presets.get("catch", toy))["toy.bonus"] == 2.0
    assert configs.flatten(presets.get("cartpole", toy))["toy.bonus"] == 0.5


def test_it_reads_its_own_settings_and_those_of_its_sections(toy: str) -> None:
    names = ("toy.bonus", "league.weighting", "run.seed", "replay.capacity", "network.width", "search.policy")
    assert [configs.is_read(name, toy) for name in names] == [True, True, True, True, False, False]
    assert not configs.is_read("toy.bonus", configs.override(configs.of_agent(toy), {"agent": "ppo"}))
    assert configs.counterpart("network.width", toy) == "" and configs.counterpart("ppo.batch_size", toy)


def test_a_wrong_setting_is_refused_with_the_nearest_one(toy: str) -> None:
    for name, value, told in (
        ("toy.bonnus", "1", r"bonnus=1; .*--toy\.bonus\?"),
        ("toy.bonus", "-1", "is -1.0; .*at least 0"),
        ("toy.bonus", "much", "=much: .*number"),
    ):
        with pytest.raises(errors.ConfigError, match=f"--{name}.*{told}" if "=" not in told else told):
            configs.override(configs.of_agent(toy), {name: value})
    with pytest.raises(errors.ConfigError, match=r"--network\.width .*ppo.*, .*toy_module"):
        configs.check_read(["network.width"], toy)


def test_saved_settings_are_read_without_an_import_and_loaded_with_it(toy: str) -> None:
    asked = configs.override(configs.Config(), {"agent": toy, "toy.bonus": "3"})
    values = {name: "inf" if value == float("inf") else value for name, value in configs.flatten(asked).items()}
    module = toy.partition(":")[0]
    own_agents.load.cache_clear(), configs.kind_of.cache_clear(), sys.modules.pop(module)
    saved = formats.config(values)
    assert module not in sys.modules
    assert saved.run.agent == toy and configs.flatten(saved)["toy.bonus"] == 3.0
    assert configs.is_read("toy.bonus", saved) and not configs.is_read("network.width", saved)
    whole = configs.loaded(saved)
    assert module in sys.modules and configs.flatten(whole) == configs.flatten(asked)
    assert configs.loaded(whole) is whole and configs.loaded(configs.Config()) == configs.Config()


def test_a_saved_setting_that_the_module_has_no_more_is_refused(toy: str) -> None:
    saved = formats.config({"run.agent": toy, "toy.earlier": 1})
    with pytest.raises(errors.ConfigError, match=r"toy\.earlier=1"):
        configs.loaded(saved)
    assert configs.loaded(formats.config({"run.agent": toy})).agent.bonus == 0.5  # type: ignore[attr-defined]


_REFUSED = {
    "raises": ("import math\n\nmath.sqrt(-1)", r"raised ValueError: math domain error.*\.py:3;"),
    "syntax": ("def make(:\n    pass", r"raised SyntaxError: .*\.py:1;"),
    "exits": ("import sys\nsys.exit(3)", r"raised SystemExit: 3, .*\.py:2;"),
    "hangs": ("import threading\n\nthreading.Event().wait()", r"has not returned after 0\.5 s, .*\.py:3;"),
    "trains": ("import seedzero\n\nseedzero.train('catch')", r"seedzero\.train .*`if __name__ == \"__main__\":`"),
    "has none": ("AGNT = 1", r"no agent 'AGENT'; did you mean \S+:AGNT\?"),
    "is another thing": (
        "import math\n\nAGENT = {}",
        r"\.py:3\) .* dict; expected seedzero\.config\.own_agents\.OwnAgent",
    ),
    "name": (_MODULE + "AGENT = AGENT._replace(name='my toy')", r"'my toy'; expected letters, .*--NAME\.KEY"),
    "name of others": (_MODULE + "AGENT = AGENT._replace(name='ppo')", "its name 'ppo' .*choose another"),
    "settings": (
        _MODULE + "AGENT = AGENT._replace(settings=dict)",
        r"class dict as settings; .*options\.AgentSection",
    ),
    "settings that change": (
        _MODULE.replace("(frozen=True)", "").replace("(options.AgentSection)", "") + "\n",
        "class Settings as settings; expected a frozen dataclass",
    ),
    "undeclared setting": (
        _MODULE.replace('options.at_creation(float("inf"), "of everything")', "1.0"),
        r"setting limit without options\.at_creation",
    ),
    "defaults": (_MODULE.replace("0.5", "-0.5"), r"bonus is -0\.5; it must be at least 0"),
    "make": (_MODULE + "AGENT = AGENT._replace(make=None)", "NoneType instead of make; expected a function"),
    "parts": (_MODULE + "AGENT = AGENT._replace(parts={'catch': {'toy.bonus': 1}})", r"parts .*options\.part\("),
}


@pytest.mark.parametrize("problem", _REFUSED)
def test_an_impossible_agent_is_refused_with_file_and_line(
    problem: str, named: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_agents, "SECONDS", 0.5 if problem == "hangs" else 60.0)
    name = named(_REFUSED[problem][0])
    with pytest.raises(errors.ConfigError, match=rf"{name}.*{_REFUSED[problem][1]}") as raised:
        configs.kind_of(name)
    module = name.partition(":")[0]
    if problem not in ("has none", "trains", "name of others"):
        assert f"{module}.py:" in str(raised.value)


def test_a_missing_module_and_a_missing_name_are_told() -> None:
    for name, told in (
        ("no_such_module_here:AGENT", "no module 'no_such_module_here' in .*install it"),
        ("no_such_module_here:", "not complete; expected MODULE:FUNCTION"),
        ("math:sqrt", "'math' is Python's own"),
    ):
        with pytest.raises(errors.ConfigError, match=f"'{name}'.*{told}"):
            configs.kind_of(name)


def test_settings_of_a_section_that_is_gone_are_ignored(toy: str) -> None:
    saved = formats.config({"run.agent": toy, "run": 1, "gone.bonus": 1, "toy.bonus": 3.0})
    assert saved.OWN_SECTION == "toy" and configs.flatten(configs.loaded(saved))["toy.bonus"] == 3.0


def test_a_setting_of_text_may_be_empty(named: Callable[[str], str]) -> None:
    name = named(_MODULE.replace("bonus: float", 'word: str = options.at_creation("", "a word")\n    bonus: float'))
    values = configs.flatten(configs.of_agent(name))
    assert configs.flatten(formats.config(values))["toy.word"] == ""
    assert isinstance(configs.of_agent(name).agent, options.AgentSection)


@pytest.mark.parametrize("name", ["toy.__init__", "toy.shared", "toy.a b", "__class__.x", "toy.", "agent.x"])
def test_a_stranger_s_names_of_settings_are_refused(name: str) -> None:
    with pytest.raises((errors.ConfigError, TypeError)):  # as for damaged files, `run_dir.read_saved` tells both
        formats.config({"run.agent": "theirs:AGENT", name: 1})
