"""What a request asks for, and what is refused before JAX is loaded."""

from __future__ import annotations

import contextlib
import math
import pathlib

import fake_gcs
import jax
import pytest

from seedzero.api import environment, request
from seedzero.config import configs, sections, shared
from seedzero.core import errors
from seedzero.envs import gym_wrappers
from seedzero.storage.checkpoints import run_dirs

_MODULE = """
import gymnasium
from gymnasium import spaces

class Images(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 255, (64, 64, 3), "uint8"), spaces.Discrete(2)
    reset = lambda self, **kwargs: (self.observation_space.sample(), {})
    step = lambda self, action: (self.observation_space.sample(), 0.0, False, False, {})

gymnasium.register("Images-v0", entry_point=Images)
"""


def test_a_run_directory_alone_brings_its_preset_and_settings(tmp_path: pathlib.Path) -> None:
    given = {"env.id": "gym:Acrobot-v1", "run.seed": "5"}
    asked = request.make({"preset": "vector"}, given)
    with run_dirs.open_run_dir(tmp_path, asked.config, preset="vector", given=given):
        pass
    again = request.make({"run_dir": str(tmp_path)}, {"run.max_updates": "9"})
    assert (again.preset, again.given) == ("vector", {**given, "run.max_updates": "9"})
    assert again.config == configs.override(asked.config, {"run.max_updates": 9})


def test_a_run_whose_preset_is_gone_is_named(tmp_path: pathlib.Path) -> None:
    with run_dirs.open_run_dir(tmp_path, configs.Config(), preset="gone", given={}):
        pass
    with pytest.raises(errors.ResumeError, match=f"{tmp_path} began with --preset=gone, which this version .* lacks"):
        request.make({"run_dir": str(tmp_path)}, {})


def test_an_environment_alone_chooses_the_preset_and_says_so() -> None:
    asked = request.make({}, {"env.id": "gym:Acrobot-v1"})
    assert asked.preset == "vector"
    (note,) = [note for note in asked.notes if note.startswith("--env=gym:Acrobot-v1 ")]
    assert "vectors of 6: preset vector; or give --preset=NAME" in note


@pytest.mark.parametrize(
    ("env", "preset"),
    [
        ("gym:Pendulum-v1", "continuous"),
        ("gym:MountainCarContinuous-v0", "continuous"),
        ("gym:MountainCar-v0", "vector"),
        ("gym:Nowhere-v0", "vector"),
    ],
)
def test_an_environment_of_continuous_actions_chooses_their_preset(env: str, preset: str) -> None:
    asked = request.make({}, {"env.id": env})
    assert asked.preset == preset
    assert math.isfinite(asked.config.run.stop_at_return) == (env == "gym:Pendulum-v1")


def test_football_with_players_on_both_sides_chooses_their_preset() -> None:
    given = {"env.id": "football:5_vs_5", "env.kwargs": '{"left": 2, "right": 2}'}
    assert request.make({}, given).preset == "football-sides"
    assert request.make({}, {**given, "env.kwargs": "{}"}).preset == "football"


def test_an_environment_is_shown_with_all_settings_that_may_change_it() -> None:
    settings = {
        "env.id": "gym:MountainCar-v0",
        "env.wrappers": '["TimeAwareObservation"]',
        "env.max_episode_steps": "50",
    }
    asked = request.make({}, settings)
    assert asked.preset == "vector"
    spec = request.check_early(asked).spec
    assert spec is not None and spec.observation_high == 50.0  # the time, at most


def test_emulators_of_gymnasium_hint_at_the_usual_preprocessing() -> None:
    for flags, settings in (({}, {"env.id": "gym:ALE/Pong-v5"}), ({"preset": "pixels"}, {})):
        asked = request.make(flags, settings)
        assert asked.preset == "pixels"
        assert any("--env=atari:Pong " in note for note in asked.notes)


def test_training_says_once_that_a_wrapper_keeps_statistics(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "normalized.py").write_text(
        "import gymnasium\ndef make(): return gymnasium.wrappers.NormalizeReward(gymnasium.make('CartPole-v1'))\n"
    )
    monkeypatch.chdir(tmp_path)
    for flags in ({}, {"preset": "cartpole"}):
        asked = request.check_early(request.make(flags, {"env.id": "python:normalized:make", "run.agent": "ppo"}))
        assert sum(note.startswith("NormalizeReward keeps statistics ") for note in asked.notes) == 1


@pytest.mark.parametrize("platforms", ["cuda,cpu", "tpu,cpu", "cpu,cuda"])
def test_an_accelerator_that_is_asked_for_first_must_be_there(platforms: str) -> None:
    asked = request.make({"preset": "catch"}, {})
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", platforms)
    try:
        if platforms.startswith("cpu"):
            request.resolve(asked)
            return
        with pytest.raises(errors.ConfigError, match=rf"JAX_PLATFORMS={platforms} asks for .* JAX_PLATFORMS=cpu"):
            request.resolve(asked)
    finally:
        jax.config.update("jax_platforms", before)


@pytest.mark.parametrize(
    ("settings", "bar"),
    [
        ({}, -100.0),
        ({"env.wrappers": '["TimeAwareObservation"]'}, -100.0),
        ({"env.wrappers": '[{"ClipReward": {"max_reward": 0.5}}]'}, math.inf),
        ({"env.max_episode_steps": "50"}, math.inf),
        ({"worker.num": "0", "transport.listen": "localhost:0"}, -100.0),
    ],
)
def test_a_run_ends_at_the_environment_s_own_threshold_where_that_holds(settings: dict[str, str], bar: float) -> None:
    asked = request.check_early(request.make({}, {"env.id": "gym:Acrobot-v1", **settings}))
    assert asked.config.run.stop_at_return == bar


def test_the_wrappers_of_rewards_are_known_by_name() -> None:
    assert [each for each in gym_wrappers.NAMES if gym_wrappers.change_rewards([gym_wrappers.Wrapper(each, {})])] == [
        "ClipReward"
    ]


def test_a_user_s_images_choose_preset_and_network(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_envs.py").write_text(_MODULE)
    asked = request.check_early(request.make({}, {"env.id": "gym:their_envs:Images-v0"}))
    assert asked.preset == "pixels" and asked.spec is not None and asked.spec.observation_shape == (64, 64, 3)
    assert (
        asked.notes[0].startswith("--env=gym:their_envs:Images-v0 ")
        and "images of 64x64x3: preset pixels" in asked.notes[0]
    )
    assert shared.choose_kind("network.kind", asked.config.network.kind, asked.spec) == "resnet"


def test_channels_that_seem_to_come_first_are_noted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_planes.py").write_text(_MODULE.replace("(64, 64, 3)", "(3, 64, 64)"))
    asked = request.make({}, {"env.id": "gym:their_planes:Images-v0"})
    assert any('["ChannelsLast"]' in note for note in asked.notes)
    asked = request.make({}, {"env.id": "gym:their_planes:Images-v0", "env.wrappers": '["ChannelsLast"]'})
    assert asked.preset == "pixels" and not any("ChannelsLast" in note for note in asked.notes)


def test_a_named_preset_for_images_leaves_vectors_the_network_that_fits() -> None:
    settings = {"env.id": "gym:CartPole-v1", "run.agent": "vtrace"}
    asked = request.check_early(request.make({"preset": "pixels"}, settings))
    assert asked.fixed == {"env.id", "run.agent", "network.kind"}
    assert request.resolve(asked)[0].network.kind == "auto"
    small = request.check_early(request.make({"preset": "atari"}, {"env.id": "gym:CartPole-v1"}))
    assert request.resolve(small)[0].network.kind == "auto"


def test_values_that_only_a_cpu_can_take_are_not_refused_early() -> None:
    asked = request.make({"preset": "atari"}, {"replay.capacity": "4000"})  # 256 slots on an accelerator, 32 here
    request.check_early(asked)
    with pytest.raises(errors.ConfigError, match=r"--replay\.capacity=100 .* 0 .* 256 .*\b20\b.*\b5120\b"):
        request.check_early(request.make({"preset": "atari"}, {"replay.capacity": "100", "replay.min_steps": "10"}))


def test_an_agent_without_a_part_is_told_that_its_defaults_hold() -> None:
    asked = request.make({"preset": "spiel"}, {"run.agent": "r2d2", "env.id": "catch"})
    assert any("preset spiel " in note and "agent r2d2:" in note for note in asked.notes)
    assert asked.config.r2d2 == configs.Config().r2d2


@pytest.mark.parametrize("given", [{}, {"pqn.num_epochs": "2"}])
def test_an_agent_of_one_s_own_that_has_settings_needs_no_part(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str]
) -> None:
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[2] / "examples" / "pqn"))
    asked = request.make({"preset": "cartpole"}, {"run.agent": "pqn_agent:AGENT", **given})
    assert any("defaults hold" in note for note in asked.notes) == (not given)


def test_the_agent_chooses_its_part_of_the_preset_that_suits_an_environment() -> None:
    asked = request.make({}, {"env.id": "gym:MinAtar/Breakout-v1", "run.agent": "vtrace"})
    assert (asked.preset, asked.config.network.width) == ("minatar", 128)


def test_environments_whose_facts_a_worker_knows_are_not_refused_early() -> None:
    settings = {"run.agent": "vtrace", "worker.num": "0", "evaluation.every_updates": "0"}
    for env in ("remote", "gym:my_module:MyEnv-v0"):
        assert request.check_early(request.make({"preset": "vector"}, {**settings, "env.id": env})).spec is None


def test_an_environment_is_tried_once_whatever_comes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def fail(settings: sections.EnvConfig, *, limit_seconds: float) -> None:
        tried.append(settings.id)
        raise errors.ConfigError("it hangs")

    monkeypatch.setattr(environment, "show", fail)
    for local in ({}, {"evaluation.every_updates": "0", "worker.num": "0"}):
        asked = request.make({}, {"env.id": "python:a:b", **local})
        with pytest.raises(errors.ConfigError, match="it hangs") if not local else contextlib.nullcontext():
            request.check_early(asked)
        assert tried == ["python:a:b"]
        tried.clear()


@pytest.mark.thorough
def test_an_environment_that_cannot_be_made_is_refused_where_it_would_run() -> None:
    for settings in ({}, {"worker.num": "0"}):  # a local worker evaluates
        asked = request.make({"preset": "vector"}, {**settings, "env.id": "gym:my_module:MyEnv-v0"})
        with pytest.raises(errors.ConfigError, match="'my_module'"):
            request.check_early(asked)
        assert request.check_early(asked, has_environments=False).spec is None
    with pytest.raises(errors.ConfigError, match=r"--evaluation\.every_updates=0 "):
        request.check_early(asked)
    with pytest.raises(errors.ConfigError, match="expected gym:MODULE:ID"):
        request.check_early(request.make({"preset": "vector"}, {"env.id": "gym::X"}), has_environments=False)


def test_an_agent_of_turns_plays_a_game_of_chance_by_turns() -> None:
    pytest.importorskip("pyspiel")
    asked = request.check_early(request.make({}, {"env.id": "spiel:pig", "run.agent": "muzero"}))
    assert asked.config.env.by_turns and asked.spec is not None and asked.spec.moves_again
    assert asked.preset == "chance" and asked.config.muzero.chance_codes == 32
    assert any("--env.by_turns=true: agent muzero plays spiel:pig " in note for note in asked.notes)
    asked = request.check_early(request.make({}, {"env.id": "spiel:pig", "run.agent": "ppo"}))
    assert not asked.config.env.by_turns and asked.spec is not None and asked.spec.seats


def test_a_league_plays_a_game_whose_returns_do_not_sum_to_zero() -> None:
    pytest.importorskip("pyspiel")
    given = {"env.id": "spiel:matrix_pd", "league.freeze_every": "100", "league.score": "return"}
    assert request.check_early(request.make({"preset": "seats"}, given)).spec is not None


@pytest.mark.parametrize(
    ("game", "members", "named"),
    [
        ("kuhn_poker", "random,mcts-50", "'mcts-50'.*'kuhn_poker'"),
        ("tic_tac_toe", "spiel:stockfish", "'stockfish'.*uniform_random"),
        ("kuhn_poker(players=3)", "random", "two players .* 3 seats"),
        ("tic_tac_toe", "random,mcts-50,spiel:uniform_random", ""),
    ],
)
def test_scripted_members_that_cannot_play_a_game_are_refused_early(game: str, members: str, named: str) -> None:
    pytest.importorskip("pyspiel")
    agent = {"run.agent": "ppo"} if game.startswith("kuhn") else {}
    settings = {"env.id": f"spiel:{game}", "league.freeze_every": "1000", "league.members": members, **agent}
    asked = request.make({}, settings)
    if named:
        with pytest.raises(errors.ConfigError, match=named):
            request.check_early(asked)
    else:
        request.check_early(asked)


def _origin(path: pathlib.Path, **settings: str) -> dict[str, str]:
    """Makes a run with a checkpoint, by its directory alone; returns the settings of a run that starts from it."""
    given = {"run.agent": "ppo", **{name.replace("__", "."): value for name, value in settings.items()}}
    config = configs.override(configs.of_agent("ppo"), given)
    with run_dirs.open_run_dir(path, config, preset="catch", given=given) as opened:
        (opened.checkpoints / "steps" / "000000000030").mkdir(parents=True)
    return {"run.agent": "ppo", "run.init_from": str(path)}


def test_a_run_starts_from_a_run_by_its_absolute_path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = {**_origin(tmp_path / "one"), "run.init_from": "one:main"}
    assert request.make({"preset": "catch"}, asked).given["run.init_from"] == f"{tmp_path}/one:main"
    assert request.make({"preset": "catch"}, asked).config.run.init_from == f"{tmp_path}/one:main"


def test_a_run_that_cannot_be_started_from_is_named(tmp_path: pathlib.Path) -> None:
    asked = _origin(tmp_path / "one")
    with pytest.raises(errors.ConfigError, match=r"--agent=ppo.*--agent=vtrace.*--agent=ppo.*--init_from"):
        request.make({"preset": "catch"}, {**asked, "run.agent": "vtrace"})
    (tmp_path / "empty").mkdir()
    for place, told in (("nowhere", "there is no such directory"), ("empty", "it has no checkpoint yet")):
        with pytest.raises(errors.ResumeError, match=rf"--init_from=.*/{place}: {told}; give RUN or RUN:PLAYER"):
            request.make({"preset": "catch"}, {**asked, "run.init_from": str(tmp_path / place)})


def test_a_resume_needs_the_run_no_more_that_it_started_from(tmp_path: pathlib.Path) -> None:
    _origin(tmp_path / "resumed")
    gone = {"run.agent": "ppo", "run.init_from": str(tmp_path / "gone")}
    assert request.make({"preset": "catch", "run_dir": str(tmp_path / "resumed")}, gone).given == gone


def test_a_resume_from_a_bucket_needs_it_no_more_either(tmp_path: pathlib.Path, gcs: fake_gcs.FakeGcs) -> None:
    asked, flags = _origin(tmp_path / "one"), {"preset": "catch", "run_dir": "gs://runs/two"}
    gone = {**asked, "run.init_from": str(tmp_path / "gone")}
    gcs.put("runs", "two/config.json", (tmp_path / "one" / "config.json").read_bytes())
    with pytest.raises(errors.ResumeError, match="gone: there is no such directory"):
        request.make(flags, gone)
    gcs.put("runs", "two/checkpoints/steps/000000000030/manifest.json", b"{}")
    assert request.make(flags, gone).given == gone
    assert request.make({**flags, "run_dir": "gs://runs/three"}, asked).given == asked


def test_a_run_to_start_from_needs_consent_as_any_run(tmp_path: pathlib.Path) -> None:
    asked = _origin(tmp_path / "one", network__module="their_torso:make")
    with pytest.raises(errors.ResumeError, match=r"network\.module=their_torso:make.*--trust_run_dir"):
        request.make({"preset": "catch"}, asked)
    assert request.make({"preset": "catch", request.TRUST: "true"}, asked).config.run.init_from
    named = {**asked, "network.module": "their_torso:make"}
    assert request.make({"preset": "catch"}, named).config.network.module == "their_torso:make"
