"""The lists of agents and of environments' families."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from importlib import metadata

import pytest

from seedzero.cli import listings
from seedzero.cli import main as commands
from seedzero.config import configs, families, options
from seedzero.core import packages


def test_every_agent_tells_what_it_plays_and_where_to_choose_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["agents"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{name}" in f"\n{shown}" for name in configs.agent_names())
    for name in configs.agent_names():
        summary = getattr(configs.Config(), name).SUMMARY
        assert summary and summary in shown
    assert "alphazero: plans by the rules" in shown and "presets connect_four, pgx, hex, othello, go9\n" in shown
    assert "plays continuous actions; learns from a replay\n" in shown and "presets continuous, mujoco\n" in shown
    assert "tuned" not in shown, "nobody has measured every preset of every agent"
    assert "--agent=MODULE:OBJECT" in shown and "seedzero config --preset=PRESET --agent=NAME" in shown
    assert all(len(line) <= 120 for line in shown.splitlines())


def test_every_family_has_its_example_and_what_is_missing_its_remedy(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = families.Offer("others", "other:one", "no_such_module", "no-such", ("no-such",))
    present = families.Offer("more", "other:two", "numpy", "numpy", ("numpy",))
    other = families.Family("other:ID", (missing, present))
    monkeypatch.setattr(families, "LISTED", (*families.LISTED, other))
    assert commands.main(["envs"]) == 0
    shown = capsys.readouterr().out
    for offer in (offer for family in (*families.FAMILIES, other) for offer in family.offers):
        assert f"seedzero train --env={offer.example}" in shown
    assert f"not installed: {packages.install_command('no-such')}\n" in shown
    assert "installed: numpy 2" in shown
    assert all(len(line) <= 120 for line in shown.splitlines() if "not installed" not in line)


def test_the_help_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["--help"]) == 0
    assert "  envs " in capsys.readouterr().out


REQUIRED = [
    "jax<0.12,>=0.10",
    "gymnasium[atari]<2,>=1.4",
    "gymnasium[classic-control]<2,>=1.4",
    "wandb>=9; extra == 'w'",
]


@pytest.mark.parametrize(
    ("versions", "wrong"),
    [
        ({"jax": "0.10.2", "gymnasium": "1.4"}, []),
        ({"jax": "0.11.9rc1", "gymnasium": "1.10.0"}, []),
        ({"jax": "0.5.3", "gymnasium": "1.4.0"}, [("jax", "0.5.3", "<0.12,>=0.10")]),
        ({"jax": "0.12", "gymnasium": "2.0.0"}, [("jax", "0.12", "<0.12,>=0.10"), ("gymnasium", "2.0.0", "<2,>=1.4")]),
        ({"jax": "0.10"}, [("gymnasium", None, "<2,>=1.4")]),
    ],
)
def test_versions_outside_their_bounds_and_missing_packages_are_found_once(
    versions: dict[str, str], wrong: list[tuple[str, str | None, str]]
) -> None:
    assert listings.misfits(REQUIRED, versions.get) == wrong


@pytest.mark.parametrize(
    ("bounds", "meets"), [("==1.2.5", True), ("==1.2", False), ("!=1.2.5", False), (">1.2,<=1.2.5", True)]
)
def test_all_comparisons_hold(bounds: str, *, meets: bool) -> None:
    assert (listings.misfits([f"envpool ({bounds})"], lambda name: "1.2.5") == []) == meets


def _failing(*args: object) -> int:
    raise ImportError("cannot import name 'Format'")


def test_a_failed_import_names_the_packages_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "_run", _failing)
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIRED)
    monkeypatch.setattr(metadata, "version", {"jax": "0.5.3", "gymnasium": "1.4.0"}.__getitem__)
    assert commands.main([]) == 1
    said = capsys.readouterr().err
    assert "jax 0.5.3 (needed: <0.12,>=0.10)" in said and said.endswith("-m pip install 'jax<0.12,>=0.10'\n")
    assert "'Format'" in said and "gymnasium" not in said


@pytest.mark.parametrize("required", [["jax>=0.1"], None])
def test_a_failed_import_for_another_reason_stays_as_it_is(
    required: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def requires(name: str) -> list[str]:
        if required is None:
            raise metadata.PackageNotFoundError
        return required

    monkeypatch.setattr(commands, "_run", _failing)
    monkeypatch.setattr(metadata, "requires", requires)
    with pytest.raises(ImportError, match="Format"):
        commands.main([])


def _listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """Returns what `seedzero config` prints before and behind the heading of the usual settings."""
    assert commands.main(["config", *words]) == 0
    head, _, rest = capsys.readouterr().out.partition(f"\n# {options.USUAL}\n")
    return head, rest


def test_config_chooses_the_preset_for_an_environment_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    head, rest = _listed(capsys, "--env=gym:CartPole-v1")
    assert "preset vector, agent muzero" in head and "shows vectors of 4: preset vector" in head
    assert "--env.max_episode_steps=0" in head and "--replay.min_steps=1280" in head
    assert "--stop_at_return=475.0" in rest, "the environment's own end, as train takes it"
    head, _ = _listed(capsys, "--env=gym:Pendulum-v1", "--agent=ppo")
    assert "preset continuous, agent ppo" in head and "continuous actions" in head and "--ppo.num_epochs=10" in head


@pytest.mark.parametrize(
    "words", ["--env=gym:NoSuchGame-v0", "--env=NoSuchGame:Pong", "--preset=atari --env=atari:NoSuchGame"]
)
def test_config_of_an_environment_that_cannot_be_made_says_what_train_would(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main(["config", *words.split()]) == 2
    assert "NoSuchGame" in capsys.readouterr().err


def test_config_without_arguments_explains_itself_in_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["config"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 5 and "--env=" in shown and "--preset=" in shown and "--advanced" in shown


def test_config_hides_what_is_advanced_or_of_others_unless_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    _, plain = _listed(capsys, "--preset=cartpole")
    hidden = (
        "--league.freeze_every",
        "--tls.cert_file",
        "--cluster.index",
        "--env.frame_size",
        "--muzero.stored_value",
    )
    assert not any(name in plain for name in hidden) and "--advanced lists them" in plain
    _, full = _listed(capsys, "--preset=cartpole", "--advanced")
    assert all(name in full for name in hidden) and "--advanced" not in full
    assert full.index("--muzero.stored_value") < full.index("--env.frame_size")
    _, league = _listed(capsys, "--preset=league-tictactoe")
    assert "--league.freeze_every=10000" in league and "--league.members" in league
    _, given = _listed(capsys, "--preset=cartpole", "--muzero.stored_value=root", "--cluster.num_hosts=2")
    assert "--muzero.stored_value=root" in given and "--cluster.index" in given


@pytest.mark.parametrize("agent", configs.agent_names())
def test_every_agent_has_at_most_twelve_settings_to_start_with(agent: str) -> None:
    config = configs.of_agent(agent)
    marked = {name: configs.mark(name) for name in configs.flatten(config) if configs.is_read(name, agent)}
    start = [name for name, mark in marked.items() if mark == options.START]
    assert 5 <= len(start) <= 12 and "optimizer.learning_rate" in start and "reward.discount" in start
    assert set(marked.values()) == {options.START, options.USUAL, options.ADVANCED}


def test_marks_name_fields_of_their_own_section() -> None:
    for section in dataclasses.fields(configs.Config):
        own = section.default
        assert isinstance(own, options.Section)
        names = [*own.START.split(), *own.ADVANCED.split()]
        assert len(names) == len(set(names)) and set(names) <= {field.name for field in dataclasses.fields(own)}


def test_the_help_of_train_begins_with_the_same_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["train", "--agent=ppo", "--help"]) == 0
    shown = capsys.readouterr().out.partition(f"{options.START}, for --agent=ppo:")[2].partition("\n\n")[0]
    named = {line.split("=")[0].strip(" -") for line in shown.splitlines() if line.startswith("  --")}
    assert named == {n for n in configs.fields() if configs.mark(n) == options.START and configs.is_read(n, "ppo")}


def _run(path: pathlib.Path, score: float | None, steps: int) -> None:
    (path / "checkpoints").mkdir(parents=True)
    config = {"run.agent": "ppo", "env.id": "catch"}
    (path / "config.json").write_text(json.dumps({"format": 2, "preset": "catch", "given": {}, "config": config}))
    (path / "status.json").write_text(json.dumps({"env_steps": steps, "finished": "--max_updates=1 reached"}))
    row = {"update": 1, "env_steps": steps} | ({} if score is None else {"evaluation_mean_return": score})
    (path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (path / "checkpoints" / "data").write_bytes(bytes(2**20))


def test_runs_are_listed_with_scores_ages_and_sizes_the_newest_first(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(tmp_path / "runs" / "old", 0.75, 12_345)
    _run(tmp_path / "runs" / "deep" / "new", None, 10)
    os.utime(tmp_path / "runs" / "old" / "metrics.jsonl", (time.time() - 7_300, time.time() - 7_300))
    monkeypatch.chdir(tmp_path)
    assert commands.main(["runs"]) == 0
    head, new, old = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "environment", "agent", "state", "steps", "best", "last", "age", "size"]
    assert new.split()[:4] == ["deep/new", "catch", "ppo", "ended"] and " - " in new
    assert all(part in old for part in ("old ", "12,345", "0.75", "2 hours", "1.0 MiB"))
    assert commands.main(["runs", "runs/old", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["run"], found["last_evaluation"], found["env_steps"]) == (".", 0.75, 12_345)
    assert found["bytes"] > 2**20
    assert commands.main(["runs", "nowhere"]) == 2
    assert "nowhere: there is no such directory" in capsys.readouterr().err


def test_runs_are_listed_without_the_extra_of_the_page(tmp_path: pathlib.Path) -> None:
    _run(tmp_path / "runs" / "a", 0.5, 10)
    without = "import sys; sys.modules.update(dict.fromkeys(('starlette', 'uvicorn')))"
    words = f"{without}; from seedzero.cli import main; sys.exit(main.main(['runs']))"
    done = subprocess.run([sys.executable, "-c", words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "a    catch" in done.stdout, done.stderr
