import importlib
import itertools

import numpy as np
import own_agents
import pytest
from gymnasium import spaces

from seedzero.config import sections
from seedzero.core import errors, types
from seedzero.envs import gym_protocol, pettingzoo_env, registry
from seedzero.transport import sessions

HERD, ROUND = "pettingzoo:own_agents:Herd", "pettingzoo:own_agents:Round"


def made(env_id=HERD, num_rows=6, *, render=False, **settings):
    return registry.make(env_id, sections.EnvConfig(id=env_id, **settings), num_rows, render=render)


def accepting(env, role):
    """Returns a function that has a learner's session accept each step of an environment, and returns it."""
    rows = env.num_envs
    assignment = types.Assignment("id", role, HERD, "{}", 1, rows, (0,) * rows)
    session, numbers = sessions.LearnerSession("worker", assignment, 15.0, 0.0), itertools.count()
    session.begin(env.spec, 0.0)

    def accepted(step):
        request = session.accept(0, (number := next(numbers)), step)
        session.answer(0, number, b"", 0.0)
        return request.step

    return accepted


def legal(step, random):
    mask = np.ones((len(step.reward), 4), bool) if step.action_mask is None else step.action_mask
    return np.where(mask, random.random(mask.shape), -1).argmax(axis=1).astype(np.int32)


@pytest.mark.parametrize("role", types.Role)
@pytest.mark.parametrize("kwargs", ["{}", '{"unequal": true, "masks": true, "late": true}'], ids=["alike", "apart"])
def test_a_learner_accepts_the_rows_of_agents_in_training_and_evaluation(role, kwargs):
    env, random = made(kwargs=kwargs), np.random.default_rng(0)
    step = env.reset(range(6))
    accepted = accepting(env, role)
    accepted(step)
    lengths = []
    for _ in range(80):
        actions = legal(step, random) if env.spec.has_action_mask else random.integers(2, size=6).astype(np.int32)
        step = accepted(env.step(actions))
        lengths += step.observation[step.final, 0].tolist()
        np.testing.assert_array_equal(step.task, [0, 1, 2, 0, 1, 2])
    assert len(lengths) > 10 and len(set(lengths)) > 3


def test_row_g_times_s_plus_s_is_agent_s_of_copy_g():
    env = made(kwargs='{"unequal": true}')
    step = env.reset(range(6))
    assert env.spec.seats == own_agents.NAMES and env.spec.observation_shape == (4,)
    np.testing.assert_array_equal(step.observation[:, 1:], [[0, 0, 0], [1, 1, 0], [2, 2, 2]] * 2)
    np.testing.assert_array_equal(step.action_mask, [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]] * 2)
    after = env.step(np.array([1, 1, 1, 1, 1, 1], np.int32))
    np.testing.assert_array_equal(after.reward, [2] * 6)
    np.testing.assert_array_equal(after.action_mask[after.final], True)


def test_agents_that_are_out_have_rows_of_zeros_and_come_again_together():
    env, random = made(), np.random.default_rng(1)
    step, is_out = env.reset(range(6)), np.zeros(6, bool)
    for _ in range(60):
        was_over = np.repeat(is_out.reshape(2, 3).all(axis=1), 3)
        is_out[was_over] = False
        step = env.step(random.integers(2, size=6).astype(np.int32))
        np.testing.assert_array_equal(step.shown, ~is_out)
        assert not (step.observation[is_out].any() or step.reward[is_out].any() or step.final[is_out].any())
        is_out |= step.final


def test_masks_of_infos_are_told_by_the_first_reset_and_may_be_ignored():
    masks = '{"masks": true}'
    env = made(kwargs=masks)
    assert not env.spec.has_action_mask
    step = env.reset(range(6))
    assert env.spec.has_action_mask and step.action_mask.all()
    after = env.step(np.ones(6, np.int32))
    np.testing.assert_array_equal(after.action_mask[~after.final], [[False, True]] * int(np.sum(~after.final)))
    ignoring = made(kwargs=masks, action_mask=False)
    assert ignoring.reset(range(6)).action_mask is None and not ignoring.spec.has_action_mask
    apart = made(kwargs='{"unequal": true, "masks": true}', action_mask=False)
    apart.reset(range(6))
    seen = apart.step(np.ones(6, np.int32))
    assert seen.action_mask[~seen.final].sum(axis=1).min() >= 2  # only actions that an agent does not have

    class Later(own_agents.Herd):
        def step(self, actions):
            self._masks = True
            return super().step(actions)

    later = pettingzoo_env.PettingZoo("later", Later, 3)
    later.reset(range(3))
    with pytest.raises(
        errors.EnvironmentFailure, match=r"'later'.*'ant'.*'action_mask'.*--env\.action_mask=false.*--env=pettingzoo"
    ):
        later.step(np.ones(3, np.int32))


@pytest.mark.parametrize("kind", ["masks", "nothing is legal", "no masks"])
def test_agents_that_are_truncated_show_their_own_legal_actions(kind):
    class Cut(own_agents.Herd):
        def _infos(self, agents):
            infos = super()._infos(agents)
            if self._age and kind == "no masks":
                return {name: {} for name in infos}
            return {name: {"action_mask": info["action_mask"] * (kind == "masks")} for name, info in infos.items()}

        def reset(self, seed=None, options=None):
            observations, _ = super().reset(seed, options)
            return observations, super()._infos(self.agents)

    env = pettingzoo_env.PettingZoo("cut", lambda: Cut(unequal=True, masks=True, limit=1), 6)
    env.reset(range(6))
    step = env.step(np.ones(6, np.int32))
    first = kind != "masks"
    own = np.array([[first, 1, 0, 0], [first, 1, 1, 0], [first, 1, 1, 1]] * 2, bool)
    assert step.truncated.sum() >= 3
    np.testing.assert_array_equal(step.action_mask, own | step.terminated[:, np.newaxis])


def test_by_turns_one_row_of_a_copy_is_shown_and_those_that_ended():
    env = made(ROUND, 3)
    step = env.reset([0, 1, 2])
    assert env.spec.has_action_mask and env.spec.observation_shape == (2,)
    assert step.shown.tolist() == [True, False, False] and step.action_mask.tolist()[0] == [True, True, False]
    repeats = int(step.observation[0].argmax())
    step = env.step(np.full(3, repeats, np.int32))
    assert step.shown.tolist() == [True, True, False]
    assert step.terminated.tolist() == [True, False, False] and step.reward.tolist() == [-1, 0, 0]
    repeats = int(step.observation[1].argmax())
    step = env.step(np.full(3, repeats, np.int32))  # the last agent has won before its first turn: it has no row
    assert step.shown.tolist() == [False, True, False] and step.reward.tolist() == [0, -1, 0]
    assert env.step(np.zeros(3, np.int32)).shown.tolist() == [True, False, False]


def test_a_single_agent_is_an_environment():
    env = made("pettingzoo:own_agents:Alone", 2)
    step = env.reset([1, 2])
    assert env.spec.seats == () and step.shown is None and step.task is None
    ends = np.zeros(2)
    for _ in range(40):
        ends += env.step(np.ones(2, np.int32)).final
    assert ends.all()


def test_rows_that_make_no_copies_are_refused():
    with pytest.raises(errors.EnvironmentFailure, match=r"5 rows.*'pettingzoo:own_agents:Herd'.*\b3\b.*\b6\b"):
        made(num_rows=5).reset(range(5))


def test_spec_and_pictures_by_the_registry():
    settings = sections.EnvConfig(id=HERD, kwargs='{"masks": true}')
    spec = registry.spec(settings)
    assert spec.has_action_mask and spec.num_seats(types.Role.EVALUATE) == spec.num_seats(types.Role.TRAIN) == 3
    assert registry.seated_by(settings)
    env = made(num_rows=3, render=True)
    env.reset(range(3))
    before = env.render()
    env.step(np.ones(3, np.int32))
    assert before.shape == (8, 8, 3) and np.any(before != env.render()) and env.frames_per_second == 5
    assert made(ROUND, 3).frames_per_second is None


def test_what_is_no_environment_of_several_agents_is_named():
    wrong = ["own_agents:make_other", "own_agents:Nameless", "own_agents:make_mixed", "own_agents:Heard", "own_agents"]
    for name in (*wrong, "no_agents:make"):
        with pytest.raises(errors.EnvironmentFailure, match=name.partition(":")[0]):
            made(f"pettingzoo:{name}", 3)
    with pytest.raises(errors.EnvironmentFailure, match=r"'pettingzoo:own_agents:Herd'.*'unequl'"):
        made(kwargs='{"unequl": true}')
    for name in ("os:path", "9:a", "__main__:make"):
        with pytest.raises(errors.ConfigError, match="pettingzoo:"):
            registry.check_id(f"pettingzoo:{name}")
    registry.check_id("pettingzoo:no_such.module")


def test_a_missing_package_is_named(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mpe2" else real(name))
    with pytest.raises(errors.EnvironmentFailure, match=r"'pettingzoo:mpe2\.simple_spread_v3'.*needs mpe2"):
        made("pettingzoo:mpe2.simple_spread_v3", 3)


def test_environments_that_differ_each_time_are_named():
    sizes = itertools.count(0)
    make = lambda: own_agents.Herd(unequal=bool(next(sizes)))  # noqa: E731
    with pytest.raises(errors.EnvironmentFailure, match=r"'herd'.*each time it is made.*\b0\.0\b.*\b100\.0\b.*\b4\b"):
        pettingzoo_env.PettingZoo("herd", make, 6)
    sizes = itertools.count(0)
    env = pettingzoo_env.PettingZoo("herd", make, 3)
    env.try_out()
    with pytest.raises(errors.EnvironmentFailure, match="each time it is made"):
        env.check_another()
    same = own_agents.Herd()
    with pytest.raises(errors.EnvironmentFailure, match="the same object"):
        pettingzoo_env.PettingZoo("herd", lambda: same, 6)


def test_faults_name_the_call_and_the_agent():
    class Wrong(own_agents.Herd):
        def step(self, actions):
            seen, *rest = super().step(actions)
            return {**seen, "bee": seen["bee"][:1]}, *rest

    env = pettingzoo_env.PettingZoo("wrong", Wrong, 3)
    env.reset(range(3))
    with pytest.raises(errors.EnvironmentFailure, match=r"'wrong'.*'bee'.*\[1\].*\[2\].*--env=pettingzoo"):
        env.step(np.ones(3, np.int32))

    class Haunted(own_agents.Herd):
        def reset(self, seed=None, options=None):
            super().reset(seed)
            self.agents = ["ant", "ghost"]
            return self._shown(("ant", "bee")) | {"ghost": np.zeros(2, np.float32)}, {}

    with pytest.raises(errors.EnvironmentFailure, match=r"in reset for agent 'ghost' .*possible_agents lacks it; fix"):
        pettingzoo_env.PettingZoo("haunted", Haunted, 3).reset(range(3))

    class Raising(own_agents.Herd):
        def step(self, actions):
            raise ZeroDivisionError("by nothing")

    env = pettingzoo_env.PettingZoo("raising", Raising, 3)
    env.reset(range(3))
    with pytest.raises(errors.EnvironmentFailure, match="raised in step: ZeroDivisionError: by nothing"):
        env.step(np.ones(3, np.int32))


def box(size, low=-1.0, high=1.0, dtype=np.float32):
    return spaces.Box(low, high, (size,), dtype)


def masked(size, num_actions):
    return spaces.Dict(observation=box(size), action_mask=spaces.Box(0, 1, (num_actions,), np.int8))


def share(masks=True, **found):
    own = {agent: pettingzoo_env.Spaces(*pair) for agent, pair in found.items()}
    return pettingzoo_env.share("zoo", own, masks=masks)


def test_equal_spaces_are_those_of_each_agent():
    shared = share(ant=(box(3), spaces.Discrete(4, start=2)), bee=(box(3), spaces.Discrete(4, start=2)))
    spec = shared.spec
    assert (spec.seats, spec.tasks, spec.fixed_seats) == (("ant", "bee"), ("ant", "bee"), True)
    assert (spec.observation_shape, spec.num_actions, spec.has_action_mask) == ((3,), 4, False)
    assert (spec.observation_low, spec.observation_high) == (-1, 1)
    seen = np.array([0.5, -0.5, 1], np.float32)
    for seat in shared.seats:
        assert seat.padded(seen) is seen and not seat.has_mask_part
        assert seat.cut(shared.decode(np.array([0, 3]))[1]) == 5
    assert "Discrete" in spec.spaces


def test_a_single_agent_is_no_seat():
    spec = share(ant=(box(3), spaces.Discrete(4))).spec
    assert (spec.seats, spec.tasks, spec.fixed_seats) == ((), (), False)


def test_flat_observations_are_padded_with_zeros_and_the_bounds_hold_them():
    shared = share(ant=(box(1, 2, 3), spaces.Discrete(2)), bee=(box(3, 4, 9), spaces.Discrete(2)))
    assert shared.spec.observation_shape == (3,) and not shared.spec.has_action_mask
    assert (shared.spec.observation_low, shared.spec.observation_high) == (0, 9)
    np.testing.assert_array_equal(shared.seats[0].padded(np.array([2.5], np.float32)), [2.5, 0, 0])
    np.testing.assert_array_equal(shared.seats[1].padded(np.array([4, 5, 6], np.float32)), [4, 5, 6])
    unbounded = share(ant=(box(1, -np.inf, np.inf), spaces.Discrete(2)), bee=(box(2, 0, 1), spaces.Discrete(2))).spec
    assert (unbounded.observation_low, unbounded.observation_high) == (-np.inf, np.inf)


def test_of_other_dtypes_the_wider_holds_both():
    shared = share(ant=(box(1, 0, 9, np.uint8), spaces.Discrete(2)), bee=(box(2), spaces.Discrete(2)))
    assert shared.spec.observation_dtype == "float32"
    assert shared.seats[0].padded(np.array([7], np.uint8)).dtype == np.float32


def test_numbers_of_other_sizes_are_shown_one_hot_and_further_actions_are_masked():
    shared = share(ant=(spaces.Discrete(2), spaces.Discrete(5)), bee=(spaces.Discrete(4), spaces.Discrete(3)))
    assert (shared.spec.num_states, shared.spec.num_actions, shared.spec.has_action_mask) == (4, 5, True)
    assert [seat.sizes for seat in shared.seats] == [[5], [3]]
    assert share(masks=False, ant=(box(2), spaces.Discrete(5)), bee=(box(2), spaces.Discrete(3))).spec.has_action_mask


def test_masks_among_observations_are_left_out_of_them():
    pair = (masked(3, 2), spaces.Discrete(2))
    alike = share(ant=pair, bee=pair)
    assert alike.spec.observation_shape == (3,) and alike.spec.has_action_mask and alike.seats[0].has_mask_part
    apart = share(ant=pair, bee=(masked(5, 4), spaces.Discrete(4)))
    assert (apart.spec.observation_shape, apart.spec.num_actions, apart.spec.has_action_mask) == ((5,), 4, True)
    shown = {"observation": np.array([1, 1, 1], np.float32), "action_mask": np.array([0, 1], np.int8)}
    np.testing.assert_array_equal(apart.seats[0].padded(shown), [1, 1, 1, 0, 0])
    seen = share(masks=False, ant=pair, bee=pair).spec
    assert not seen.has_action_mask and [array.name for array in seen.packed] == ["observation", "action_mask"]


def test_shorter_continuous_actions_are_the_first_numbers():
    shared = share(
        ant=(box(3), box(1, 0, 2)), bee=(box(3), box(2, np.array([0, -1], np.float32), np.array([2, 1], np.float32)))
    )
    np.testing.assert_array_equal(shared.spec.action_bounds, [[0, -1], [2, 1]])
    batch = shared.decode(np.array([[0.5, 1], [2, -1]], np.float32))
    assert [shared.seats[row].cut(batch[row]).tolist() for row in range(2)] == [[0.5], [2, -1]]
    assert not shared.spec.has_action_mask


@pytest.mark.parametrize(
    "of_cat",
    [
        (spaces.Box(0, 1, (2, 2), np.float32), spaces.Discrete(2)),
        (box(3), box(2)),
        (spaces.Discrete(3), spaces.Discrete(2)),
        (box(3), spaces.Discrete(2, start=1)),
        (box(3), spaces.MultiDiscrete([2, 2])),
    ],
    ids=str,
)
def test_spaces_that_cannot_be_padded_are_refused_with_all_groups(of_cat):
    pair = (box(3), spaces.Discrete(2))
    with pytest.raises(errors.EnvironmentFailure, match=r"ant, bee: .* and actions Discrete\(2\); cat: "):
        share(ant=pair, bee=pair, cat=of_cat)


def test_the_refusal_says_what_would_do():
    with pytest.raises(errors.EnvironmentFailure, match=r"'zoo'.*\b1\.0\b.*\b1\.0\b.*\b3\b"):
        share(ant=(box(3), box(2)), bee=(box(3), box(3, -2, 1)))


def test_names_of_agents_are_told_apart():
    own = pettingzoo_env.Spaces(box(3), spaces.Discrete(2))
    with pytest.raises(errors.SpecMismatch, match="each once"):
        pettingzoo_env.share("zoo", {1: own, "1": own}, masks=True)


class Told:
    """A parallel environment that returns what it is told, one after the other."""

    def __init__(self, *returns):
        self._returns, self.actions, self.seeds = iter(returns), [], []

    def reset(self, seed):
        self.seeds.append(seed)
        self.agents, shown = next(self._returns)
        return shown

    def step(self, actions):
        self.actions.append(actions)
        self.agents, shown = next(self._returns)
        return shown


def begin(*agents):
    return list(agents), ({agent: 0 for agent in agents}, {agent: {} for agent in agents})


def after(living, rewards, over=(), cut=()):
    """Returns what a step shows: an agent's observation is its number of letters."""
    agents = list(rewards)
    return list(living), (
        {agent: len(agent) for agent in agents},
        rewards,
        {agent: agent in over for agent in agents},
        {agent: agent in cut for agent in agents},
        {agent: {} for agent in agents},
    )


def course(env, kind=pettingzoo_env.ParallelMoves):
    return pettingzoo_env.AgentCourse(kind(env))


def told(shown):
    """Returns {agent: (reward, "over", "cut" or "")}."""
    ends = {agent: "over" if each.terminated else "cut" if each.truncated else "" for agent, each in shown.items()}
    return {agent: (each.reward, ends[agent]) for agent, each in shown.items()}


# --- parallel --------------------------------------------------------------------------------------------------------


def test_who_ends_early_is_shown_no_more_until_the_next_episode():
    env = Told(
        begin("a", "b", "c"),
        after("ac", {"a": 1, "b": 2, "c": 3}, over="b"),
        after("a", {"a": 1, "c": 5}, cut="c"),
        after("", {"a": 7}, over="a"),
        begin("a", "b", "c"),
    )
    steps = course(env)
    assert told(steps.begin(3)) == {"a": (0, ""), "b": (0, ""), "c": (0, "")}
    assert told(steps.step({"a": 0, "b": 1, "c": 2})) == {"a": (1, ""), "b": (2, "over"), "c": (3, "")}
    assert steps.moving == ("a", "c")
    assert told(steps.step({"a": 0, "c": 2})) == {"a": (1, ""), "c": (5, "cut")}
    assert told(steps.step({"a": 0})) == {"a": (7, "over")}
    assert steps.moving == ()
    assert told(steps.step({})) == {"a": (0, ""), "b": (0, ""), "c": (0, "")}
    assert env.actions == [{"a": 0, "b": 1, "c": 2}, {"a": 0, "c": 2}, {"a": 0}]


def test_seeds_of_all_episodes_follow_from_the_first():
    def seeds(seed):
        env = Told(begin("a"), after("", {"a": 0}, over="a"), begin("a"))
        steps = course(env)
        steps.begin(seed)
        steps.step({"a": 0})
        steps.step({})
        return env.seeds

    assert seeds(3) == seeds(3) and len({*seeds(3), *seeds(4)}) == 4


def test_an_agent_that_is_born_later_gets_its_first_reward_with_its_second_row():
    steps = course(
        Told(begin("a"), after("ab", {"a": 1, "b": 5}), after("ab", {"a": 1, "b": 2}), after("ab", {"a": 1, "b": 2}))
    )
    steps.begin(0)
    assert told(steps.step({"a": 0})) == {"a": (1, ""), "b": (0, "")}
    assert told(steps.step({"a": 0, "b": 0}))["b"] == (7, "")
    assert told(steps.step({"a": 0, "b": 0}))["b"] == (2, "")


def test_an_agent_has_no_row_before_its_first_turn_nor_after_its_end():
    steps = course(Told(begin("a"), after("ab", {"a": 1, "b": 5}, over="b"), after("ab", {"a": 1, "b": 2})))
    steps.begin(0)
    assert told(steps.step({"a": 0})) == {"a": (1, "")}
    assert told(steps.step({"a": 0})) == {"a": (1, "")}
    stays = course(Told(begin("a", "b"), after("ab", {"a": 1, "b": 5}, over="b"), after("ab", {"a": 1, "b": 5})))
    stays.begin(0)
    stays.step({"a": 0, "b": 0})
    assert told(stays.step({"a": 0})) == {"a": (1, "")} and stays.moving == ("a",)


@pytest.mark.parametrize("wait", [0, 2])
def test_an_agent_that_left_and_is_back_in_the_same_game_begins_an_episode(wait):
    waiting = [after("a", {"a": 1})] * wait
    env = Told(
        begin("a", "b"),
        after("a", {"a": 1, "b": 2}, over="b"),
        *waiting,
        after("ab", {"a": 1, "b": 5}),
        after("ab", {"a": 1, "b": 3}),
        after("", {"a": 1, "b": 4}, cut="ab"),
    )
    steps = course(env)
    steps.begin(0)
    assert told(steps.step({"a": 0, "b": 0}))["b"] == (2, "over")
    for _ in range(wait):
        assert told(steps.step({"a": 0})) == {"a": (1, "")}
    assert told(steps.step({"a": 0})) == {"a": (1, ""), "b": (0, "")} and steps.moving == ("a", "b")
    assert told(steps.step({"a": 0, "b": 0}))["b"] == (8, "")
    assert told(steps.step({"a": 0, "b": 0}))["b"] == (4, "cut") and steps.moving == ()


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        ((["a"], ({}, {}, {})), "3 values; expected .observations, rewards, terminations, truncations, infos."),
        ((["a"], ({}, {"a": 0}, {"a": False}, {"a": False}, {})), "no observation of agent 'a'"),
        ((["a"], ({"a": 0}, {}, {"a": False}, {"a": False}, {})), "no reward of agent 'a'"),
        ((["a"], ({"a": 0}, {"a": 0}, {}, {"a": False}, {})), "no termination of agent 'a'"),
        ((["a"], ({"a": 0}, {"a": 0}, {"a": False}, {"a": "no"}, {})), "as truncation; expected a truth value"),
        (([], ({"a": 0}, {"a": 0}, {"a": False}, {"a": False}, {})), "neither termination nor truncation of 'a'"),
    ],
    ids=["values", "observation", "reward", "termination", "truncation", "gone"],
)
def test_faults_of_a_step_are_named(returned, fault):
    steps = course(Told(begin("a"), returned))
    steps.begin(0)
    with pytest.raises(gym_protocol.Fault, match=fault):
        steps.step({"a": 0})


def test_an_episode_without_agents_is_a_fault():
    with pytest.raises(gym_protocol.Fault, match="no living agent"):
        course(Told(begin())).begin(0)


def test_infos_of_the_first_observations_tell_of_masks():
    env = Told((["a"], ({"a": 0}, {"a": {"action_mask": [1]}})), begin("a"))
    moves = pettingzoo_env.ParallelMoves(env)
    moves.reset(0)
    assert moves.shows_masks()
    moves.reset(0)
    assert not moves.shows_masks()


# --- by turns --------------------------------------------------------------------------------------------------------


class Script:
    """An environment by turns: each moment is the agent, its rewards since its last turn, and its end, if any."""

    def __init__(self, *moments, removes=True):
        self._moments, self._at, self._removes, self.actions = moments, 0, removes, []

    def reset(self, seed):
        self.agents = sorted({moment[0] for moment in self._moments})
        self.infos, self._at = {}, 0

    @property
    def agent_selection(self):
        return self._moments[self._at][0]

    def last(self):
        agent, reward, end = self._moments[self._at]
        return len(agent), reward, end == "over", end == "cut", {}

    def step(self, action):
        agent, _, end = self._moments[self._at]
        self.actions.append((agent, action))
        if end and self._removes:
            self.agents.remove(agent)
        self._at += 1
        if self._at == len(self._moments):
            self.agents = []


def test_the_agent_with_the_turn_is_shown_and_with_it_those_found_dead_before():
    env = Script(
        ("a", 0, ""), ("b", 5, ""), ("a", 1, ""), ("b", 2, "over"), ("a", 3, ""), ("a", 4, ""), ("a", 6, "cut")
    )
    steps = course(env, pettingzoo_env.TurnMoves)
    rows = [told(steps.begin(0))]
    for agent in ("a", "b", "a", "a", "a"):
        assert steps.moving == (agent,)
        rows.append(told(steps.step({agent: 9})))
    assert rows == [
        {"a": (0, "")},
        {"b": (0, "")},  # 5 comes with its second row
        {"a": (1, "")},
        {"b": (7, "over"), "a": (3, "")},
        {"a": (4, "")},
        {"a": (6, "cut")},
    ]
    assert steps.moving == () and env.actions[3:5] == [("b", None), ("a", 9)]


def test_an_agent_without_a_turn_before_its_end_has_no_row():
    steps = course(Script(("a", 0, ""), ("b", -1, "over"), ("a", 1, "over")), pettingzoo_env.TurnMoves)
    steps.begin(0)
    assert told(steps.step({"a": 0})) == {"a": (1, "over")}


def test_an_agent_that_is_back_by_turns_begins_an_episode():
    moments = [("a", 0, ""), ("b", 0, ""), ("a", 0, ""), ("b", 2, "over"), ("a", 1, ""), ("b", 5, ""), ("a", 1, "")]
    env = Script(*moments, ("b", 3, "over"), ("a", 1, "over"))
    steps = course(env, pettingzoo_env.TurnMoves)
    rows = [told(steps.begin(0))]
    while steps.moving:
        if moments[(env._at + 1) % len(moments)] == ("b", 5, ""):
            env.agents.append("b")
        rows.append(told(steps.step(dict.fromkeys(steps.moving, 9))))
    assert [row["b"] for row in rows if "b" in row] == [(0, ""), (2, "over"), (0, ""), (8, "over")]
    at_once = course(Script(("b", 0, ""), ("b", 0, "over"), ("b", 0, ""), ("a", 0, "")), pettingzoo_env.TurnMoves)
    at_once.begin(0)
    with pytest.raises(gym_protocol.Fault, match="a turn of 'b' right after its end"):
        at_once.step({"b": 0})


def test_faults_of_turns_are_named():
    stays = course(Script(("a", 0, ""), ("a", 0, "over"), ("a", 0, ""), removes=False), pettingzoo_env.TurnMoves)
    stays.begin(0)
    with pytest.raises(gym_protocol.Fault, match="'a', whose episode is over, among `agents` after step"):
        stays.step({"a": 0})
    gone = course(Script(("a", 0, ""), ("b", 0, "")), pettingzoo_env.TurnMoves)
    gone.begin(0)
    gone.step({"a": 0})
    with pytest.raises(gym_protocol.Fault, match="without a last turn of 'a', 'b'"):
        gone.step({"b": 0})
