"""A policy: shapes in and out, what rows carry, refusals, and what it tells of its search."""

from __future__ import annotations

import copy
import dataclasses
import pathlib
import pickle
from typing import Any

import jax
import numpy as np
import policies
import pytest
from gymnasium import spaces

import seedzero
from seedzero.acting.actors import acting_policy, acting_program, agent_choice, saved_agents
from seedzero.config import configs, options
from seedzero.core import errors, forks, types
from seedzero.device import acting
from seedzero.envs import gym_spaces
from seedzero.storage.checkpoints import player_files, run_dirs

_VECTOR = types.EnvSpec((4,), "float32", 3)
_FROZEN = "main-0123456789ab"
"""A frozen player."""
_RANDOM = np.random.default_rng(0)
_SEEN = _RANDOM.normal(size=(6, 2, 4)).astype(np.float32)
"""[T, B, 4]."""


_ARRAYS = types.EnvSpec.of_arrays(
    [types.ArraySpec("image", (4, 5, 1), "uint8", 0, 255), types.ArraySpec("speed", (2,), "float32")], num_actions=3
)
_SHOWN = {"image": np.full((4, 5, 1), 7, np.uint8), "speed": np.array([0.5, -1.0], np.float32)}


def _policy(spec: types.EnvSpec = _VECTOR, **changes: options.Value) -> acting_policy.Policy:
    return policies.policy(spec, **changes)


@pytest.mark.thorough
def test_one_observation_gives_one_action_and_a_batch_gives_a_batch() -> None:
    policy = _policy()
    one, batch = policy(_SEEN[0, 0]), policy(_SEEN[0])
    assert isinstance(one, int) and 0 <= one < 3
    assert isinstance(batch, np.ndarray) and (batch.shape, batch.dtype) == ((2,), np.int32)
    assert batch[0] == one
    assert policy(_SEEN[0].astype(np.float64).tolist()).tolist() == batch.tolist()  # type: ignore[union-attr]
    assert (policy.step, policy.spec.observation_space.shape, policy.spec.num_actions) == (7, (4,), 3)


@pytest.mark.thorough
def test_rows_carry_frames_until_their_reset() -> None:
    policy = _policy(network__frame_stack=3)
    for observation in _SEEN[:2]:
        policy(observation)
    carried = policy.search(_SEEN[2]).network_value
    policy.reset([1])
    partly = policy.search(_SEEN[2]).network_value
    policy.reset()
    anew = policy.search(_SEEN[2]).network_value
    assert partly[0] == carried[0] != anew[0]
    assert partly[1] == anew[1] != carried[1]


@pytest.mark.thorough
def test_rows_are_independent_and_other_rows_need_a_reset() -> None:
    policy = _policy(network__frame_stack=3)
    together = [policy(observation) for observation in _SEEN]
    with pytest.raises(errors.UsageError, match=r" 1 .* 2 .*reset\(\)"):
        policy(_SEEN[0, 0])
    for row in range(2):
        policy.reset()
        assert [policy(observation[row]) for observation in _SEEN] == [actions[row] for actions in together]  # type: ignore[index]


def test_a_reset_of_no_rows_changes_nothing_and_one_of_others_is_refused() -> None:
    policy = _policy(network__frame_stack=3)
    policy(_SEEN[0])
    expected = policy.search(_SEEN[1]).network_value
    policy.reset([])
    np.testing.assert_array_equal(policy.search(_SEEN[1]).network_value, expected)
    for rows in ([2], [True]):
        with pytest.raises(errors.UsageError, match=r"rows .* 0 to 1, .* 2 "):
            policy.reset(rows)


def test_an_lstm_carries_its_state_and_needs_rewards() -> None:
    policy = _policy(run__agent="vtrace", network__lstm_width=6)
    policy(_SEEN[0])
    with pytest.raises(errors.UsageError, match=r"reward .*memory"):
        policy(_SEEN[1])
    policy(_SEEN[1], reward=[0.5, 0.0])
    assert policy._carried is not None and np.abs(policy._carried.memory.state).sum() > 0
    with pytest.raises(errors.UsageError, match=r"reward .*\[3\]; .*\[2\]"):
        policy(_SEEN[1], reward=np.zeros(3))
    with pytest.raises(errors.UsageError, match="reward is nan; expected finite"):
        policy(_SEEN[1], reward=[0.0, np.nan])
    with pytest.raises(errors.UsageError, match=r"^agent vtrace "):
        policy.search(_SEEN[1])
    with pytest.raises(errors.UsageError, match="num_simulations=4: agent vtrace "):
        policy(_SEEN[1], reward=0.0, num_simulations=4)


@pytest.mark.thorough
def test_a_search_with_a_memory_looks_back_and_a_reset_forgets() -> None:
    policy = _policy(muzero__memory="lstm", muzero__memory_width=6)
    begun = policy.search(_SEEN[1]).value
    policy(_SEEN[0])
    later = policy.search(_SEEN[1], reward=[0.0, 0.5])
    assert np.all(later.value != begun)
    again = policy.search(_SEEN[1], reward=[0.0, 0.5])
    np.testing.assert_array_equal(again.value, later.value)  # a search remembers nothing
    assert policy(_SEEN[1], reward=[0.0, 0.5]).tolist() == later.action.tolist()  # type: ignore[union-attr]
    with pytest.raises(errors.UsageError, match=r"reward .*memory"):
        policy.search(_SEEN[2])
    policy.reset([1])
    found = policy.search(_SEEN[1], reward=[0.0, 0.5]).value
    assert found[1] == begun[1] and found[0] != begun[0]


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["vtrace", "ppo", "r2d2"])
def test_an_episode_begins_alike_whatever_its_first_reward(agent: str) -> None:
    policy = _policy(run__agent=agent, **{"network__lstm_width": 6})

    def states(first_reward: float) -> list[np.ndarray]:
        policy.reset([0])  # row 1 goes on
        policy(_SEEN[1], reward=first_reward)
        assert policy._carried is not None
        return list(np.asarray(jax.tree.leaves(policy._carried.memory)[0]))  # the LSTM's

    policy(_SEEN[0])
    carried = policy._carried
    begun, went_on = states(0.0)
    policy._carried = carried
    other, other_went_on = states(1.0)
    np.testing.assert_array_equal(begun, other)
    assert (went_on != other_went_on).any()


@pytest.mark.thorough
def test_a_search_tells_what_it_found_and_remembers_nothing() -> None:
    policy = _policy()
    found = policy.search(_SEEN[0], return_tree=True)
    assert found.action.tolist() == policy(_SEEN[0]).tolist()  # type: ignore[union-attr]
    assert found.visit_counts.sum(axis=1).tolist() == [3, 3]
    np.testing.assert_allclose(found.policy.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(found.prior.sum(axis=1), 1.0, rtol=1e-5)
    assert found.tree is not None and found.tree.parent.shape[0] == 2
    assert "visits" in seedzero.search.to_dot(found.tree)
    one = policy.search(_SEEN[0, 0], num_simulations=5, return_tree=True)
    assert one.visit_counts.shape == (3,) and one.visit_counts.sum() == 5
    assert one.tree is not None and one.tree.parent.shape[0] == 1
    np.testing.assert_allclose(one.network_value, found.network_value[0], rtol=1e-6)
    with pytest.raises(errors.UsageError, match=r"--search\.num_simulations .* 0; .* 1"):
        policy(_SEEN[0], num_simulations=0)


@pytest.mark.thorough
def test_illegal_actions_are_not_taken_and_masks_are_required() -> None:
    masked = types.EnvSpec((4,), "float32", 3, has_action_mask=True)
    policy = _policy(masked)
    for action in range(3):
        mask = np.arange(3) == action
        assert policy(_SEEN[0], action_mask=[mask, mask]).tolist() == [action] * 2  # type: ignore[union-attr]
    assert policy.search(_SEEN[0], action_mask=[mask, mask]).action.tolist() == [2, 2]
    with pytest.raises(errors.UsageError, match="action mask"):
        policy(_SEEN[0])
    with pytest.raises(errors.UsageError, match=r"action_mask .*\[3\]; .*\[2, 3\]"):
        policy(_SEEN[0], action_mask=mask)
    with pytest.raises(errors.UsageError, match=r"action_mask .*int64"):
        policy(_SEEN[0], action_mask=[mask * 2, mask * 2])
    assert policy(_SEEN[0], action_mask=[mask.astype(np.int8)] * 2).tolist() == [2, 2]  # type: ignore[union-attr]
    with pytest.raises(errors.UsageError, match="action mask"):
        _policy()(_SEEN[0], action_mask=mask)


@pytest.mark.thorough
def test_a_mask_may_be_a_part_of_observations() -> None:
    parts = spaces.Dict(seen=spaces.Box(-9.0, 9.0, (4,)), action_mask=spaces.Box(0.0, 1.0, (3,)))
    spec, _, _ = gym_spaces.read("mine", parts, spaces.Discrete(3, start=7), masks=True)
    policy = _policy(spec, run__agent="vtrace")
    assert policy.spec.has_action_mask and policy.spec.observation_space == parts
    for action in range(3):
        mask = (np.arange(3) == action).astype(np.float32)
        one = {"seen": _SEEN[0, 0], "action_mask": mask}
        assert policy(one) == policy.think(one).action == 7 + action
        assert policy([one, one]).tolist() == [7 + action] * 2  # type: ignore[union-attr]
    assert policy(one, action_mask=[1, 0, 0]) == 7
    policy.reset()


def test_masks_of_several_numbers_are_as_the_environment_shows_them() -> None:
    taken = spaces.MultiDiscrete([2, 3], start=[1, 10])
    spec, _, _ = gym_spaces.read("mine", spaces.Box(-9.0, 9.0, (4,)), taken)
    policy = _policy(dataclasses.replace(spec, has_action_mask=True), run__agent="vtrace")
    mask = np.array([1, 0, 0, 0, 1])
    assert policy(_SEEN[0, 0], action_mask=mask).tolist() == [1, 12]  # type: ignore[union-attr]
    assert policy(_SEEN[0], action_mask=[mask, mask]).tolist() == [[1, 12]] * 2  # type: ignore[union-attr]
    joint = (policy.actions == [2, 11]).all(axis=1)
    assert policy(_SEEN[0, 0], action_mask=joint).tolist() == [2, 11]  # type: ignore[union-attr]


@pytest.mark.thorough
def test_exploration_follows_the_seed_and_greedy_play_does_not() -> None:
    def play(seed: int, explore: bool) -> list[Any]:
        policy = policies.policy(_VECTOR, seed=seed)
        return [policy(_SEEN.reshape(-1, 4), explore=explore).tolist() for _ in range(4)]  # type: ignore[union-attr]

    best = play(0, False)
    assert best == play(1, False) and all(actions == best[0] for actions in best)
    explored = play(0, True)
    assert explored == play(0, True) != play(1, True)
    assert any(actions != explored[0] for actions in explored)


def _drawing(seed: int = 0, spec: types.EnvSpec = _VECTOR, **changes: options.Value) -> acting_policy.Policy:
    """A policy that draws its actions, of smaller parameters: all are likely."""
    saved = policies.saved(spec, **changes)
    params = jax.tree.map(lambda array: array * np.float32(0.4), saved.params)
    return acting_policy.Policy(saved._replace(params=params, mode=types.SAMPLE), seed=seed)


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["muzero", "ppo", "vtrace"])
def test_draws_follow_from_the_seed_and_the_number_of_the_call(agent: str) -> None:
    def play(seed: int) -> list[Any]:
        policy = _drawing(seed, run__agent=agent)
        return [policy(_SEEN.reshape(-1, 4)).tolist() for _ in range(4)]  # type: ignore[union-attr]

    drawn = play(0)
    assert drawn == play(0) != play(1)
    assert any(actions != drawn[0] for actions in drawn)


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["ppo", "vtrace"])
def test_drawn_actions_are_as_frequent_as_the_policy_says(agent: str) -> None:
    masked = types.EnvSpec((4,), "float32", 3, has_action_mask=True)
    saved = policies.saved(masked, run__agent=agent)
    rows, legal = np.repeat(_SEEN[0], 500, axis=0), np.repeat([[True] * 3, [True, False, True]], 500, axis=0)
    step = types.EnvStep.first(rows)._replace(action_mask=legal)
    shown = acting_program.seen(masked, step, np.ones(1000, bool))
    carried = acting.initial(saved.agent, masked, 1000)
    _, inputs = acting.look(saved.agent, masked, 1000, carried, shown)
    policy = _drawing(spec=masked, run__agent=agent)
    assert saved.agent.policy is not None
    expected = np.asarray(saved.agent.policy(policy._saved.params, carried.memory, inputs))[::500]
    actions = np.stack([policy(rows, action_mask=legal) for _ in range(8)]).reshape(8, 2, 500)
    found = np.mean(actions[..., np.newaxis] == np.arange(3), axis=(0, 2))
    np.testing.assert_allclose(found, expected, atol=0.04)  # five deviations of 4,000 draws
    assert found[1, 1] == 0 and found[0].min() > 0.05


@pytest.mark.thorough
def test_muzero_draws_from_the_policy_of_its_search() -> None:
    policy, rows = _drawing(), np.repeat(_SEEN[0], 500, axis=0)
    expected = policy.search(rows)
    actions = np.stack([policy(rows) for _ in range(8)]).reshape(8, 2, 500)
    np.testing.assert_array_equal(expected.action, actions[0].reshape(-1))
    found = np.mean(actions[..., np.newaxis] == np.arange(3), axis=(0, 2))
    np.testing.assert_allclose(found, expected.policy[::500], atol=0.04)  # five deviations of 4,000 draws
    assert found[0].min() > 0.05


@pytest.mark.parametrize("agent", ["sac", "ppo"])
def test_vectors_are_drawn_around_the_greedy_one(agent: str) -> None:
    spec = types.EnvSpec((4,), "float32", 0, action_low=(-2.0, 0.0), action_high=(2.0, 1.0))
    greedily, drawing = (_drawing(spec=spec, run__agent=agent) for _ in range(2))
    greedily._saved = greedily._saved._replace(mode=types.GREEDY)
    rows = np.repeat(_SEEN[0, :1], 500, axis=0)
    low, high = spec.action_bounds
    (one, *_), drawn = np.asarray(greedily(rows)), np.asarray(drawing(rows))
    assert len(np.unique(drawn, axis=0)) > 250 and ((low <= drawn) & (drawn <= high)).all()
    assert ((drawn.min(axis=0) <= one) & (one <= drawn.max(axis=0))).all()


@pytest.mark.thorough
def test_continuous_actions_lie_within_their_bounds() -> None:
    spec = types.EnvSpec((4,), "float32", 0, action_low=(-2.0, 0.0), action_high=(2.0, 1.0))
    policy = _policy(spec, search__num_sampled=3)
    one, batch = policy(_SEEN[0, 0]), policy(_SEEN[0, :1], explore=True)
    assert isinstance(one, np.ndarray) and one.shape == (2,) and one.dtype == np.float32
    low, high = spec.action_bounds
    assert isinstance(batch, np.ndarray) and ((low <= batch) & (batch <= high)).all()
    found = policy.search(_SEEN[0, 0])
    assert found.sampled is not None and found.sampled.shape == (3, 2)
    np.testing.assert_array_equal(found.action, one)


def test_an_environment_that_shows_numbers_takes_numbers() -> None:
    spec = types.EnvSpec((5,), "float32", 3, observation_low=0, observation_high=1, num_states=5)
    policy = _policy(spec, run__agent="ppo")
    assert policy(3) == policy(np.array([3]))[0]  # type: ignore[index]
    assert policy.spec.observation_space == spaces.Discrete(5)
    with pytest.raises(errors.UsageError, match=r"5.*Discrete\(5\)"):
        policy(5)
    with pytest.raises(errors.UsageError, match=r"float64.*Discrete\(5\)"):
        policy(3.0)


def test_whole_numbers_of_another_kind_are_taken_where_they_are_the_same() -> None:
    policy = _policy(types.EnvSpec((4,), "uint8", 3, observation_low=0, observation_high=1), run__agent="ppo")
    shown = np.array([0, 1, 1, 0], np.int8)  # as Gymnasium's MultiBinary
    assert policy(shown) == policy(shown.astype(np.uint8))
    with pytest.raises(errors.UsageError, match=r"-1.*uint8"):
        policy(-shown)


@pytest.mark.parametrize(
    ("spec", "observation", "message"),
    [
        (_VECTOR, np.zeros(5), r"\[5\]; .*\[4\], .*\[B, 4\]"),
        (_VECTOR, np.zeros((2, 3, 4)), r"\[2, 3, 4\]"),
        (_VECTOR, np.zeros((0, 4)), r"\[0, 4\]"),
        (_VECTOR, np.zeros(4, complex), "complex128; .*float32"),
        (types.EnvSpec((4, 4, 1), "uint8", 3), np.zeros((4, 4, 1), np.float32), r"float32; .*uint8"),
        (_ARRAYS, np.zeros(28, np.uint8), r"ndarray.*\['image', 'speed'\]"),
        (_ARRAYS, {"image": _SHOWN["image"]}, r"\['image'\].*\['image', 'speed'\]"),
        (_ARRAYS, {**_SHOWN, "speed": np.zeros(3)}, r"'speed'.*\[3\].*\[2\]"),
        (_ARRAYS, {**_SHOWN, "speed": np.zeros((4, 2))}, "image.*: None.*speed.*: 4"),
    ],
)
def test_a_wrong_observation_is_refused(spec: types.EnvSpec, observation: Any, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message):
        _policy(spec)(observation)


@pytest.mark.thorough
def test_an_environment_that_shows_several_arrays_takes_a_dictionary() -> None:
    policy = _policy(_ARRAYS)
    one = policy.search(_SHOWN)
    policy.reset()
    batch = policy.search({name: np.stack([array, array]) for name, array in _SHOWN.items()})
    np.testing.assert_allclose(batch.network_value, [one.network_value] * 2, rtol=1e-5)


@pytest.mark.thorough
def test_a_sample_of_several_arrays_is_what_a_call_takes() -> None:
    policy = _policy(_ARRAYS)
    sample = policy.spec.observation_space.sample()
    assert {name: (part.shape, part.dtype) for name, part in sample.items()} == {
        "image": ((4, 5, 1), np.uint8),
        "speed": ((2,), np.float32),
    }
    policy(sample)


@pytest.mark.thorough
def test_a_frozen_player_acts_by_its_name(tmp_path: pathlib.Path) -> None:
    saved = _saved_run(tmp_path, _VECTOR, "muzero")
    loaded = acting_policy.load(agent_choice.AgentChoice(tmp_path, player=_FROZEN))
    seen = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
    np.testing.assert_array_equal(loaded(seen), acting_policy.Policy(saved)(seen))
    assert loaded.step == 7
    with pytest.raises(errors.CheckpointError, match=r"player main-00 in .*main-0123456789ab$"):
        acting_policy.load(agent_choice.AgentChoice(tmp_path, player="main-00"))
    acting_policy.load(agent_choice.AgentChoice(tmp_path, step=7, player=_FROZEN))
    with pytest.raises(errors.UsageError, match=r"--step=5.*\b7\b.*--step"):
        acting_policy.load(agent_choice.AgentChoice(tmp_path, step=5, player=_FROZEN))


@pytest.mark.parametrize(
    ("agent", "seats", "policy", "expected"),
    [
        ("ppo", (), None, types.GREEDY),
        ("ppo", (), "sample", types.SAMPLE),
        ("ppo", ("first", "second"), None, types.SAMPLE),
        ("ppo", ("first", "second"), "greedy", types.GREEDY),
        ("apex", ("first", "second"), None, types.GREEDY),
        ("apex", (), "greedy", types.GREEDY),
    ],
)
def test_the_kind_of_game_decides_whether_actions_are_drawn(
    agent: str, seats: tuple[str, ...], policy: str | None, expected: np.int8, tmp_path: pathlib.Path
) -> None:
    _saved_run(tmp_path, dataclasses.replace(_VECTOR, tasks=seats, seats=seats), agent)
    assert (
        acting_policy.load(agent_choice.AgentChoice(tmp_path, player=_FROZEN, policy=policy))._saved.mode == expected
    )


@pytest.mark.parametrize("agent", ["apex", "r2d2"])
def test_actions_of_an_agent_that_learns_values_alone_are_not_drawn(agent: str, tmp_path: pathlib.Path) -> None:
    _saved_run(tmp_path, _VECTOR, agent)
    with pytest.raises(errors.UsageError, match=f"--policy=sample: agent {agent} "):
        acting_policy.load(agent_choice.AgentChoice(tmp_path, player=_FROZEN, policy="sample"))


def _saved_run(path: pathlib.Path, spec: types.EnvSpec, agent: str) -> saved_agents.SavedAgent:
    """Makes a run with a frozen player; returns that."""
    saved = policies.saved(spec, run__agent=agent)
    with run_dirs.open_run_dir(path, saved.config, preset="catch", given={}) as opened:
        player_files.write(opened.checkpoints, _FROZEN, 7, saved.params, {}, time=0.0)
    run_dirs.write_spec(path, spec)
    return saved


def test_a_directory_without_a_spec_has_no_policy_yet(tmp_path: pathlib.Path) -> None:
    with run_dirs.open_run_dir(tmp_path, configs.Config(), preset="catch", given={}):
        pass
    with pytest.raises(errors.ResumeError, match=None):
        seedzero.load(tmp_path)
    run_dirs.write_spec(tmp_path, _VECTOR)
    with pytest.raises(errors.CheckpointError, match=r"checkpoints.*--run_dir"):
        seedzero.load(tmp_path)
    with jax.enable_x64(True), pytest.raises(errors.UsageError, match="jax_enable_x64"):
        seedzero.load(tmp_path)
    with pytest.raises(errors.UsageError, match="step='first': "):
        seedzero.load(tmp_path, "first")  # type: ignore[arg-type]


def test_a_forked_process_is_told_at_once_and_a_copy_has_a_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = _policy(network__frame_stack=3)
    policy(_SEEN[0])
    copied = copy.deepcopy(policy)
    copied.reset([0])
    assert (policy._first.tolist(), copied._first.tolist()) == ([False, False], [True, False])
    with pytest.raises(errors.UsageError, match=r"seedzero\.load"):
        pickle.dumps(policy)
    monkeypatch.setattr(forks, "_left_behind", {"JAX"})
    with pytest.raises(errors.UsageError, match=r"JAX.*'spawn'"):
        policy(_SEEN[1])
    with pytest.raises(errors.UsageError, match="JAX"):
        policy.search(_SEEN[1])
