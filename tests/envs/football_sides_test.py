"""Football from both sides: rows of players on a stand-in with gfootball's API, and on gfootball itself."""

from __future__ import annotations

import importlib.machinery
import re
import sys
import types as python_types
from typing import Any, NamedTuple

import numpy as np
import pytest

from seedzero.acting.tables import match
from seedzero.config import league_rules, presets, sections
from seedzero.core import errors, types
from seedzero.envs import env_base, football, registry

SCENARIO = "football:academy_3_vs_1_with_keeper"
SHOT = 12
_LENGTH = 3


class Engine:
    """A match of three steps with gfootball's API: a shot of the first left player is a goal and ends it."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments, self._config = arguments, dict[str, Any]()
        names = ("number_of_left_players_agent_controls", "number_of_right_players_agent_controls")
        self._sizes = [arguments[name] for name in names]
        self.num_steps, self.taken, self.seeds = 0, list[list[int]](), list[int]()

    @property
    def unwrapped(self) -> Engine:
        return self

    def reset(self) -> np.ndarray:
        self.num_steps = 0
        self.seeds.append(self._config["game_engine_random_seed"])
        assert self._config["reverse_team_processing"] == bool(self.seeds[-1] % 2)
        return self._seen()

    def step(self, actions: list[int]) -> tuple[np.ndarray, np.ndarray, bool, dict[str, Any]]:
        assert self.num_steps < _LENGTH, "gfootball raises, too"
        self.num_steps += 1
        self.taken.append(actions)
        goal = float(actions[0] == SHOT)
        left, right = self._sizes
        is_over = bool(goal) or self.num_steps == _LENGTH
        return self._seen(), np.array([goal] * left + [-goal] * right, np.float32), is_over, {}

    def close(self) -> None:
        self.num_steps = _LENGTH

    def _seen(self) -> np.ndarray:
        return (
            np.full((sum(self._sizes), 115), self.num_steps, np.float32) + np.arange(sum(self._sizes))[:, np.newaxis]
        )


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Returns the engines that the stand-in has made."""
    made = list[Engine]()

    def create_environment(**arguments: Any) -> Engine:
        made.append(Engine(**arguments))
        return made[-1]

    for name in ("gfootball", "gfootball.env"):
        module = python_types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys.modules["gfootball.env"], "create_environment", create_environment, raising=False)
    return made


def _made(num_envs: int, kwargs: str = '{"left": 2, "right": 1}', **settings: Any) -> env_base.VectorEnv:
    return registry.make(SCENARIO, sections.EnvConfig(id=SCENARIO, kwargs=kwargs, **settings), num_envs)


def test_a_match_is_cut_short_at_a_limit_of_steps(engines: list[Engine]) -> None:
    env = _made(3, max_episode_steps=2)
    env.reset(range(3))
    found = [env.step(np.zeros(3, np.int64)) for _ in range(4)]  # the third call begins the next match
    assert [step.truncated.tolist() for step in found] == [[False] * 3, [True] * 3, [False] * 3, [False] * 3]
    assert not any(step.terminated.any() for step in found)


def test_wrappers_are_refused_where_rows_are_players() -> None:
    with pytest.raises(errors.EnvironmentFailure, match=r"--env\.wrappers"):
        _made(3, wrappers='["ClipReward"]')


def test_rows_are_players_of_both_sides_with_opposite_goals(engines: list[Engine]) -> None:
    env = _made(6)
    assert env.spec.seats == ("left_0", "left_1", "right_0") and env.spec.fixed_seats
    assert (env.spec.observation_shape, env.spec.num_actions) == ((115,), 19)
    step = env.reset(range(6))
    assert step.observation[:, 0].tolist() == [0, 1, 2, 0, 1, 2] and step.shown is not None and step.shown.all()
    step = env.step(np.array([SHOT, 3, 4, 5, 6, 7]))
    assert [engine.taken for engine in engines] == [[[SHOT, 3, 4]], [[5, 6, 7]]]
    assert step.reward.tolist() == [1, 1, -1, 0, 0, 0] and step.terminated.tolist() == [True] * 3 + [False] * 3
    step = env.step(np.zeros(6, np.int64))
    assert engines[0].num_steps == 0 and not step.terminated.any() and step.observation[:, 0].tolist()[3:] == [2, 3, 4]
    step = env.step(np.zeros(6, np.int64))
    assert step.terminated.tolist() == [False] * 3 + [True] * 3 and not step.truncated.any()
    env.close()


def test_each_match_has_its_own_seed_that_follows_from_the_first(engines: list[Engine]) -> None:
    for _ in range(2):
        env = _made(3)
        env.reset((7, 8, 9))
        for _ in range(2 * (_LENGTH + 1)):
            env.step(np.zeros(3, np.int64))
    one, other = engines
    assert one.seeds == other.seeds and len(set(one.seeds)) == 3


def test_rewards_on_the_way_to_the_goal_are_gfootball_s(engines: list[Engine]) -> None:
    for pays in (False, True):
        _made(3, checkpoint_rewards=pays).reset(range(3))
    assert [engine.arguments["rewards"] for engine in engines] == ["scoring", "scoring,checkpoints"]
    assert engines[0].arguments["env_name"] == "academy_3_vs_1_with_keeper"


@pytest.mark.parametrize(
    "kwargs",
    ['{"left": 1}', '{"left": 12, "right": 1}', '{"left": true, "right": 1}', '{"left": 1, "right": 1, "x": 2}'],
)
def test_other_numbers_of_players_are_refused(kwargs: str) -> None:
    with pytest.raises(
        errors.EnvironmentFailure, match=rf"--env\.kwargs={re.escape(kwargs)}: .*left and right, up to 11 each"
    ):
        _made(2, kwargs)


def test_a_learner_without_gfootball_knows_the_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(football, "PACKAGE", "gfootball_is_missing")
    settings = sections.EnvConfig(id=SCENARIO, kwargs='{"left": 2, "right": 1}')
    assert registry.spec(settings).seats == ("left_0", "left_1", "right_0")
    assert registry.seated_by(settings) and not registry.seated_by(sections.EnvConfig(id=SCENARIO))
    with pytest.raises(errors.EnvironmentFailure, match=r"worker-football\.Dockerfile.*families\.md.*--env\.kwargs"):
        _made(3).reset(range(3))


def test_the_preset_league_football_plays_matches_between_both_sides(engines: list[Engine]) -> None:
    class Always(NamedTuple):
        """Takes one action."""

        action: int

        def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
            return np.full(len(first), self.action, np.int32)

    config = presets.get("league-football")
    env = registry.make(config.env.id, config.env, config.evaluation.num_envs)
    sides = league_rules.sides(config, env.spec)
    assert sides == (0,) * 4 + (1,) * 4 and len(engines) == 0
    players: Any = Always(SHOT), Always(3)
    found = match.play_sides(env, sides, players, 4, seed=0)
    # On the left it scores with its first action, on the right nobody shoots within three steps.
    assert [(game.is_first, game.total, game.length, game.outcome) for game in found] == [
        (True, 1.0, 8, 1),
        (False, 0.0, 24, 0),
        (False, 0.0, 24, 0),
        (True, 1.0, 8, 1),
    ]
    env.close()


def test_without_sides_it_is_envpool_s() -> None:
    assert not football.has_sides(sections.EnvConfig(id=SCENARIO, kwargs='{"render": false}'))


def test_gfootball_itself_shows_each_side_as_the_left_one_and_repeats_by_its_seed() -> None:
    pytest.importorskip("gfootball", reason="gfootball is not installed (docs/families.md)")
    found = []
    for seed in (1, 1, 2):
        env = _made(2, '{"left": 1, "right": 1}')
        step = env.reset((seed, 0))
        mine, theirs = step.observation[0, :22], step.observation[1, 44:66]  # positions of the left players
        np.testing.assert_allclose(mine[mine != -1], -theirs[mine != -1], atol=1e-6)
        steps = [env.step(np.array([action % 19, (7 * action) % 19])).observation for action in range(60)]
        assert env.render().shape == (360, 768, 3)
        found.append(np.array(steps))
        env.close()
    np.testing.assert_array_equal(found[0], found[1])
    assert np.any(found[0] != found[2])
