"""Agents of a user's own are made and checked: shapes, data, and refusals with file and line."""

from __future__ import annotations

import itertools
import pathlib
import textwrap
from collections.abc import Callable

import pytest

from seedzero.agents import agent_table, base
from seedzero.config import configs, own_agents
from seedzero.core import errors, types

SPEC = types.EnvSpec((3,), "float32", 4)
_MODULE = """
import dataclasses
import threading
import jax.numpy as jnp
from seedzero.agents import base, q_learner, apex
from seedzero.config import apex_config
from seedzero.config import options, own_agents
from seedzero.core import errors
from seedzero.replay import sources

@dataclasses.dataclass(frozen=True)
class Settings(apex_config.ApexConfig):
    SAMPLES = True

def made(config, spec, platform):
    return apex.make(dataclasses.replace(config, apex=config.toy), spec, platform)

def make(config, spec, platform):
    agent = made(config, spec, platform)
    {line}

AGENT = own_agents.OwnAgent("toy", Settings, make)
"""
_numbers = itertools.count()


@pytest.fixture
def named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Returns the name of an agent whose `make` ends with this line."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(line: str) -> str:
        module = f"made_module_{next(_numbers)}"
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(_MODULE.format(line=line)))
        return f"{module}:AGENT"

    return write


def test_it_is_made_of_its_own_settings(named: Callable[[str], str]) -> None:
    config = configs.override(configs.Config(), {"agent": named("return agent"), "network.frame_stack": 3})
    agent = agent_table.make(config, SPEC, "cpu")
    assert isinstance(agent, base.Agent) and agent.stack == 3


_REFUSED = {
    "return None": "NoneType",
    "raise ValueError('no')": r"make raised ValueError: no, at .*\.py:20",
    "threading.Event().wait()": r"make has not returned after 0\.5 s, at .*\.py:20",
    "return agent._replace(data=sources.Queue(4, 4, 1, 1.0))": "SAMPLES=True; expected",
    "return agent._replace(stored={})": "stored arrays",
    "return agent._replace(initial_memory=lambda slots: ())": r"act raised TypeError: .*\.py:18",
    "return agent._replace(act=lambda *_: 1 / 0)": r"act raised ZeroDivisionError: .*\.py:20",
    "raise errors.ConfigError('needs seats')": "^needs seats$",
}


@pytest.mark.parametrize("line", _REFUSED)
def test_an_impossible_agent_is_refused_with_file_and_line(
    line: str, named: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = named(line)
    config = configs.override(configs.Config(), {"agent": name})
    monkeypatch.setattr(own_agents, "SECONDS", 0.5 if "wait" in line else 60.0)
    with pytest.raises(errors.ConfigError, match=_REFUSED[line]) as raised:
        agent_table.make(config, SPEC, "cpu")
    assert "errors.ConfigError" in line or f"{name.partition(':')[0]}.py:" in str(raised.value)


def test_an_update_that_raises_is_told_with_file_and_line(named: Callable[[str], str]) -> None:
    agent = agent_table.make(
        configs.override(configs.Config(), {"agent": named("return agent._replace(update=lambda *_: 1 / 0)")}),
        SPEC,
        "cpu",
    )
    with pytest.raises(errors.ConfigError, match=r"update raised ZeroDivisionError: .*, at .*\.py:20; fix it"):
        agent.update(None, None, None, None)  # type: ignore[arg-type]


def test_a_queue_of_unnamed_size_is_refused(named: Callable[[str], str]) -> None:
    name = named("return agent._replace(data=sources.Queue(4, 5, 1, 1.0))")
    module = pathlib.Path(own_agents.load(name).make.__code__.co_filename)
    other = module.with_name(f"{module.stem}_queue.py")
    other.write_text(module.read_text().replace("SAMPLES = True", "SAMPLES = False"))
    config = configs.override(configs.Config(), {"agent": f"{other.stem}:AGENT"})
    with pytest.raises(errors.ConfigError, match=r"batches of 5, .*replay\.batch_size"):
        agent_table.make(config, SPEC, "cpu")
