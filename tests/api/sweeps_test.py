from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import pytest
import saved_run

from seedzero.api import sweeps
from seedzero.core import errors

_FLAGS = {"preset": "catch"}
_LR = "optimizer.learning_rate"


def _plan(
    values: Mapping[str, Sequence[str]], settings: Mapping[str, str] = {}, directory: str = "d"
) -> list[sweeps.PlannedRun]:
    return sweeps.plan(values, _FLAGS, {"run.agent": "ppo", **settings}, directory)


def test_a_comma_parts_values_and_quotes_keep_one() -> None:
    assert sweeps.read_values(_LR, "1e-3, 1e-4") == ["0.001", "0.0001"]
    assert sweeps.read_values("run.deterministic", "true,0") == ["true", "false"]
    game = "spiel:connect_four(rows=4,columns=5)"
    assert sweeps.read_values("env.id", f'"{game}",catch') == [game, "catch"]
    assert sweeps.read_values("env.kwargs", '"{""a"": 1, ""b"": 2}"') == ['{"a": 1, "b": 2}']
    assert sweeps.read_values("preset", "catch,cartpole") == ["catch", "cartpole"]
    assert sweeps.read_values("preset", "") == sweeps.read_values("env.kwargs", "") == [""]


def test_an_agent_of_ones_own_has_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[2] / "examples" / "pqn"))
    texts, agent = {"pqn.num_epochs": "1,2"}, "pqn_agent:AGENT"
    for kind in (sweeps.kind_of({**texts, "run.agent": agent}, {}), sweeps.kind_of(texts, {"run.agent": agent})):
        assert sweeps.read_values("pqn.num_epochs", "1,2", kind) == ["1", "2"]
    with pytest.raises(errors.UsageError, match="--agent=pqn_agent:AGENT,ppo names several"):
        sweeps.kind_of({**texts, "run.agent": f"{agent},ppo"}, {})


@pytest.mark.parametrize(("name", "text"), [(_LR, "1e-3,x"), (_LR, "1e-3,0.001"), ("run.seed", "1,,2")])
def test_wrong_values_are_named(name: str, text: str) -> None:
    with pytest.raises(errors.UsageError, match=None):
        sweeps.read_values(name, text)


def test_every_combination_has_a_directory_with_a_speaking_name() -> None:
    found = _plan({_LR: ["0.001", "0.0001"], "run.seed": ["1", "2"], "ppo.epochs": ["3"]})
    assert [run.name for run in found] == [
        f"optimizer.learning_rate={rate}_seed={seed}" for rate in ("0.001", "0.0001") for seed in (1, 2)
    ]
    assert str(found[1].path) == "d/optimizer.learning_rate=0.001_seed=2"
    assert found[1].settings == {"run.agent": "ppo", _LR: "0.001", "run.seed": "2", "ppo.epochs": "3"}
    assert found[1].flags == {"preset": "catch", "run_dir": "d/optimizer.learning_rate=0.001_seed=2"}


def test_names_are_safe_short_and_distinct() -> None:
    # gRPC parts the addresses of the learner's socket at commas.
    first, second = _plan({"env.kwargs": ['{"a": 1, "b": 2}', '{"a"; 1, "b"; 2}']})
    assert first.name != second.name and not set('{",; /:') & set(first.name + second.name)
    (long,) = _plan({"run.seed": ["1"], "env.wrappers": ["x" * 500]})
    assert long.name == "seed=1"
    several = _plan({"env.wrappers": ["x" * 500, "x" * 499]})
    assert len({run.name for run in several}) == 2 and all(len(run.name) < 140 for run in several)


def test_the_default_directory_is_the_same_each_time_and_another_for_other_settings() -> None:
    def root(**settings: str) -> pathlib.Path:
        found = sweeps.plan({_LR: ["1", "2"]}, {}, {"env.id": "gym:CartPole-v1", **settings}, "")
        return found[0].path.parent

    assert root() == root() and str(root()).startswith("runs/sweep-CartPole-v1-")
    assert root() != root(**{"ppo.epochs": "3"})


def test_a_setting_on_both_sides_and_no_environment_are_refused() -> None:
    with pytest.raises(errors.UsageError, match="--agent is given before -- and after it"):
        _plan({"run.agent": ["ppo", "vtrace"]})
    with pytest.raises(
        errors.UsageError, match=r"--env=ENV.*`seedzero sweep --seeds=1,2,3 -- --env=gym:CartPole-v1 --agent=ppo`"
    ):
        sweeps.plan({_LR: ["1"]}, {}, {}, "")


def test_wrong_settings_of_any_run_are_refused() -> None:
    sweeps.check(_plan({"run.seed": ["1", "2"]}))
    with pytest.raises(errors.UsageError, match=r"search\.num_simulations"):
        sweeps.check(_plan({"run.seed": ["1", "2"]}, {"search.num_simulations": "3"}))
    with pytest.raises(errors.UsageError, match="sac"):  # it plays no discrete actions
        sweeps.check(sweeps.plan({"run.agent": ["ppo", "sac"]}, _FLAGS, {}, "d"))


def test_a_run_has_finished_if_it_ended_with_these_settings(tmp_path: pathlib.Path) -> None:
    (run,) = _plan({"run.seed": ["1"]}, directory=str(tmp_path))
    assert sweeps.finished(run) == ""
    given = {"run__agent": "ppo", "run__seed": "1"}
    saved_run.make(run.path, **given)
    assert sweeps.finished(run) == ""
    saved_run.make(run.path, finished="--max_updates=5", **given)
    assert sweeps.finished(run) == "--max_updates=5"
    (begun,) = _plan({"run.seed": ["1"]}, {"run.init_from": "other"}, directory=str(tmp_path / "begun"))
    saved_run.make(
        begun.path, finished="--max_updates=5", **given, run__init_from=str(pathlib.Path.cwd() / "other")
    )  # as a learner saves it
    assert sweeps.finished(begun) == "--max_updates=5"
    (longer,) = _plan({"run.seed": ["1"], "run.max_updates": ["9"]}, directory=str(tmp_path))
    assert sweeps.finished(longer._replace(flags=run.flags)) == ""
    of_process = {"cluster.interface": "lo"}  # which a directory does not save
    earlier = run._replace(
        flags={**run.flags, "run_dir": str(tmp_path / "0")}, settings={**run.settings, **of_process}
    )
    saved_run.make(earlier.path, finished="--max_updates=5", **given)
    assert sweeps.finished(earlier) == "--max_updates=5"


def test_a_value_may_have_several_lines_and_not_any_number_of_letters() -> None:
    assert sweeps.read_values("env.wrappers", '[\n "FlattenObservation"\n]') == ['[  "FlattenObservation" ]']
    with pytest.raises(errors.ConfigError, match="1 2"):
        sweeps.read_values("run.seed", "1\n2")
    with pytest.raises(errors.UsageError, match=r"--env\.kwargs.*200,000 letters.*\b131072\b"):
        sweeps.read_values("env.kwargs", "x" * 200_000)
