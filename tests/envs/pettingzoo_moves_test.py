import pytest

from seedzero.envs import gym_protocol, pettingzoo_moves


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


def course(env, kind=pettingzoo_moves.ParallelMoves):
    return pettingzoo_moves.AgentCourse(kind(env))


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
    moves = pettingzoo_moves.ParallelMoves(env)
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
    steps = course(env, pettingzoo_moves.TurnMoves)
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
    steps = course(Script(("a", 0, ""), ("b", -1, "over"), ("a", 1, "over")), pettingzoo_moves.TurnMoves)
    steps.begin(0)
    assert told(steps.step({"a": 0})) == {"a": (1, "over")}


def test_an_agent_that_is_back_by_turns_begins_an_episode():
    moments = [("a", 0, ""), ("b", 0, ""), ("a", 0, ""), ("b", 2, "over"), ("a", 1, ""), ("b", 5, ""), ("a", 1, "")]
    env = Script(*moments, ("b", 3, "over"), ("a", 1, "over"))
    steps = course(env, pettingzoo_moves.TurnMoves)
    rows = [told(steps.begin(0))]
    while steps.moving:
        if moments[(env._at + 1) % len(moments)] == ("b", 5, ""):
            env.agents.append("b")
        rows.append(told(steps.step(dict.fromkeys(steps.moving, 9))))
    assert [row["b"] for row in rows if "b" in row] == [(0, ""), (2, "over"), (0, ""), (8, "over")]
    at_once = course(Script(("b", 0, ""), ("b", 0, "over"), ("b", 0, ""), ("a", 0, "")), pettingzoo_moves.TurnMoves)
    at_once.begin(0)
    with pytest.raises(gym_protocol.Fault, match="a turn of 'b' right after its end"):
        at_once.step({"b": 0})


def test_faults_of_turns_are_named():
    stays = course(Script(("a", 0, ""), ("a", 0, "over"), ("a", 0, ""), removes=False), pettingzoo_moves.TurnMoves)
    stays.begin(0)
    with pytest.raises(gym_protocol.Fault, match="'a', whose episode is over, among `agents` after step"):
        stays.step({"a": 0})
    gone = course(Script(("a", 0, ""), ("b", 0, "")), pettingzoo_moves.TurnMoves)
    gone.begin(0)
    gone.step({"a": 0})
    with pytest.raises(gym_protocol.Fault, match="without a last turn of 'a', 'b'"):
        gone.step({"b": 0})
