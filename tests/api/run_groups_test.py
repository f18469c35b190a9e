from __future__ import annotations

import pathlib
from typing import Any

import pytest
import saved_run

from seedzero.api import run_groups, run_places
from seedzero.core import errors
from seedzero.monitoring import series


def _runs(tmp_path: pathlib.Path, *settings: dict[str, Any]) -> list[run_places.RunRecord]:
    paths = [saved_run.make(tmp_path / str(number), **given) for number, given in enumerate(settings)]
    return [run_places.read(str(path), (series.EVALUATION,)) for path in paths]


def _shown(groups: list[run_groups.RunGroup]) -> dict[str, int]:
    return {group.label: len(group.runs) for group in groups}


def test_runs_that_differ_in_their_seed_are_a_group(tmp_path: pathlib.Path) -> None:
    runs = _runs(
        tmp_path,
        dict(run__seed=1, optimizer__learning_rate=1e-3),
        dict(run__seed=2, optimizer__learning_rate="0.001"),
        dict(run__seed=1, optimizer__learning_rate=1e-4),
    )
    groups = run_groups.group(runs)
    assert _shown(groups) == {"optimizer.learning_rate=0.0001": 1, "optimizer.learning_rate=0.001": 2}
    assert groups[1].settings == {"optimizer.learning_rate": 0.001}
    assert _shown(run_groups.group(runs[:2])) == {"": 2}


def test_ends_files_and_choices_of_the_machine_part_no_runs(tmp_path: pathlib.Path) -> None:
    runs = _runs(
        tmp_path,
        dict(run__max_updates=5, metrics__every_seconds=1),
        dict(run__max_seconds=9, evaluation__episodes=3, checkpoint__keep=9),
    )
    assert _shown(run_groups.group(runs)) == {"": 2}
    # A choice of each start parts them where it was given.
    runs += _runs(tmp_path / "more", dict(worker__envs_per_group=8))
    assert _shown(run_groups.group(runs)) == {"worker.envs_per_group=8": 1, "worker.envs_per_group=16": 2}


def test_a_label_has_given_settings_and_not_their_consequences(tmp_path: pathlib.Path) -> None:
    runs = _runs(tmp_path, dict(run__agent="ppo"), dict(run__agent="vtrace"))
    assert len(run_groups.different([run_groups.values(run) for run in runs])) > 10
    assert _shown(run_groups.group(runs)) == {"agent=ppo": 1, "agent=vtrace": 1}
    runs = _runs(tmp_path / "presets", {}, dict(preset="cartpole"))
    assert _shown(run_groups.group(runs)) == {"preset=cartpole": 1, "preset=catch": 1}


def test_given_names_part_runs_and_other_differences_are_hidden(tmp_path: pathlib.Path) -> None:
    runs = _runs(
        tmp_path,
        dict(run__agent="ppo", optimizer__learning_rate=1e-3),
        dict(run__agent="ppo", optimizer__learning_rate=1e-4),
        dict(run__agent="vtrace"),
    )
    groups = run_groups.group(runs, ["run.agent"])
    assert _shown(groups) == {"agent=ppo": 2, "agent=vtrace": 1}
    assert groups[0].hidden == ("optimizer.learning_rate",)
    assert _shown(run_groups.group(runs, ["run.agent", "optimizer.learning_rate"])) == {
        "agent=ppo, optimizer.learning_rate=0.0001": 1,
        "agent=ppo, optimizer.learning_rate=0.001": 1,
        "agent=vtrace, optimizer.learning_rate=0.002": 1,
    }


def test_names_of_settings_may_be_short() -> None:
    assert run_groups.read_names("agent, optimizer.learning_rate,preset,", []) == [
        "run.agent",
        "optimizer.learning_rate",
        "preset",
    ]
    assert run_groups.read_names("", []) == []


@pytest.mark.parametrize("text", ["ppo.learning_rat", "agent,seed"])
def test_an_unknown_name_and_the_seed_are_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match=f"--by={text}"):
        run_groups.read_names(text, [])


def test_settings_of_own_agents_are_names(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[2] / "examples" / "pqn"))
    agent = "pqn_agent:AGENT"
    runs = _runs(tmp_path, *(dict(run__agent=agent, pqn__num_epochs=epochs) for epochs in (2, 4)))
    by = run_groups.read_names("pqn.num_epochs", runs)
    assert _shown(run_groups.group(runs, by)) == {"pqn.num_epochs=2": 1, "pqn.num_epochs=4": 1}
    with pytest.raises(errors.UsageError, match=r"did you mean --pqn\.num_epochs"):
        run_groups.read_names("pqn.num_epoch", runs)
