"""Deterministic mode for every agent: the same bits for the same seed, also from a checkpoint on the disk.

MuZero on one device is in `device_loop_test.py`, and in tests/e2e as processes.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import loop_world
import numpy as np
import pytest

from seedzero.config import configs, options, sections
from seedzero.core import types
from seedzero.device import batches, states, strategies
from seedzero.envs import pgx_env, pgx_rules
from seedzero.learner import first_players
from seedzero.storage.checkpoints import checkpoint, checkpointers
from seedzero.transport import messages

EVERY = 6
LOCK_STEP: Mapping[str, Any] = {"run__deterministic": True, "checkpoint__every_updates": EVERY}
CONTINUOUS = types.EnvSpec((2,), "float32", 0, action_low=(-1.0,), action_high=(2.0,))
_REPLAY: Mapping[str, options.Value] = {
    "replay.capacity": loop_world.CAPACITY,
    "replay.batch_size": loop_world.BATCH,
    "replay.min_steps": 12,
    "replay.samples_per_insert": 1.0,
}
_PRIORITIES: Mapping[str, options.Value] = {**_REPLAY, "replay.priority_alpha": 0.6}
_MEMORY: Mapping[str, options.Value] = {"muzero.memory": "lstm", "muzero.memory_width": 4, "muzero.burn_in": 2}
_PPO: Mapping[str, options.Value] = {**loop_world.PPO, "optimizer.decay_updates": 50}


class Case(NamedTuple):
    """An agent's settings, with all that it carries beside parameters, and the environments that it plays.

    num_learning: devices that learn, beside the one that acts; 0: that one.
    """

    settings: Mapping[str, options.Value]
    spec: types.EnvSpec = loop_world.SPEC
    num_learning: int = 0


_CASES: Mapping[str, Case] = {
    "apex": Case(
        {"run.agent": "apex", "network.width": 8, "network.frame_stack": 2, "apex.target_updates": 4, **_PRIORITIES}
    ),
    "r2d2": Case(
        {
            "run.agent": "r2d2",
            "network.width": 8,
            "network.lstm_width": 4,
            "r2d2.burn_in": 1,
            "r2d2.sequence_length": 3,
            "r2d2.period": 2,
            "r2d2.n_step": 2,
            "r2d2.target_updates": 4,
            **_PRIORITIES,
        }
    ),
    "vtrace, with an LSTM and PopArt": Case(
        {
            "run.agent": "vtrace",
            "network.width": 8,
            "network.lstm_width": 4,
            "vtrace.unroll_length": 3,
            "vtrace.batch_size": 4,
            "vtrace.popart": True,
            "vtrace.popart_step": 0.1,
        }
    ),
    "muzero, with a short random start": Case({**loop_world.MUZERO, "explore.first_steps": 2}),
    "muzero, with a memory and learners apart": Case(
        {**loop_world.MUZERO, **_MEMORY, "replay.priority_alpha": 0.6, "muzero.target_network_updates": 3},
        num_learning=2,
    ),
    "muzero, with a memory, repetitions, frames and reanalysis": Case(
        {**loop_world.MUZERO, **_MEMORY, "explore.epsilon": 0.2, "network.frame_stack": 2, "reanalyse.per_insert": 0.5}
    ),
    "vtrace, with learners apart": Case(loop_world.VTRACE, num_learning=2),
    "ppo, continuous, with an LSTM": Case({**_PPO, "network.lstm_width": 4}, CONTINUOUS),
    "alphazero": Case(
        {
            "run.agent": "alphazero",
            "env.id": "pgx:jax_nim:NIM",
            "network.width": 8,
            "search.num_simulations": 4,
            "alphazero.n_step": 3,
            **_REPLAY,
        },
        pgx_rules.game("jax_nim:NIM").spec(has_state=True),
    ),
    "sac": Case({"run.agent": "sac", "network.width": 8, **_REPLAY}, CONTINUOUS),
}
_AGENTS = {case.settings.get("run.agent", "muzero") for case in _CASES.values()}
CASES: Mapping[str, Case] = {
    **_CASES,
    **{name: Case({"run.agent": name, **_REPLAY}) for name in configs.agent_names() if name not in _AGENTS},
}
"""Every agent: one that has nothing to carry beside parameters needs no entry above."""


class Drift:
    """A group of environments that go where actions lead: another action gives other steps ever after.

    An observation is [place, time]. An episode terminates at a distance of 1 and is truncated after 5 steps.
    """

    def __init__(self, spec: types.EnvSpec, slots: np.ndarray, epoch: int) -> None:
        self._spec = spec
        self._random = np.random.default_rng([epoch, *slots])
        self.first = np.ones(len(slots), bool)
        self._place, self._time = np.zeros(len(slots)), np.zeros(len(slots), np.int64)
        self.seen = self._begin(np.zeros(len(slots)))

    def step(self, actions: np.ndarray) -> None:
        self.first = self.seen.terminated | self.seen.truncated
        push = actions[:, 0] if self._spec.is_continuous else actions - 1
        self._place, self._time = self._place + 0.3 * push, self._time + 1
        self.seen = self._begin(np.where(self.first, 0.0, push - self._place))

    def _begin(self, reward: np.ndarray) -> types.EnvStep:
        """Returns what is seen, where episodes begin from a place by chance."""
        self._place[self.first] = self._random.uniform(-0.5, 0.5, self.first.sum())
        self._time[self.first] = 0
        terminated = np.abs(self._place) > 1
        observation = np.stack([self._place, self._time / 5], axis=1).astype(np.float32)
        return types.EnvStep(observation, reward.astype(np.float32), terminated, ~terminated & (self._time == 5))


class Piles:
    """A group of games by rules, which acting sees as states beside the observations."""

    def __init__(self, spec: types.EnvSpec, slots: np.ndarray, epoch: int) -> None:
        settings = sections.EnvConfig(id="pgx:jax_nim:NIM", game_state=True)
        self._env = pgx_env.make("jax_nim:NIM", settings, len(slots))
        self.first = np.ones(len(slots), bool)
        self.seen = self._env.reset([1000 * epoch + int(slot) for slot in slots])

    def step(self, actions: np.ndarray) -> None:
        self.first = self.seen.final
        self.seen = self._env.step(actions)


def _play_to_a_checkpoint(world: loop_world.World, spec: types.EnvSpec) -> None:
    session, num_saved = world.join(), len(world.saved)
    kind = Piles if spec.packed else Drift
    games = [kind(spec, slots, world.people.epoch) for slots in session.slots]
    with world.completions():
        for _ in range(200):
            num_answered = len(world.replies)
            for group, game in enumerate(games):
                request = messages.StepRequest(session.session_id, session.role, group, 0, game.seen, game.first)
                world.inbox.put(batches.Message(request, session.slots[group], world.now))
            while len(world.saved) == num_saved and world.step():
                world.dispatcher.in_flight.settle()
            if len(world.saved) > num_saved:
                return
            for request, actions, _ in world.replies[num_answered:]:
                games[request.group].step(np.asarray(actions, np.float32 if spec.is_continuous else np.int32))
    raise AssertionError("no checkpoint")


def _save(world: loop_world.World, directory: pathlib.Path) -> None:
    failures: list[str] = []
    writer = checkpointers.Checkpointer(
        directory, sections.CheckpointConfig(), on_durable=lambda step: None, on_error=failures.append
    )
    state = world.loop.state()
    writer.save(world.num_updates, checkpoint.by_player(state.parts), state.counters, state.rings)
    writer.wait()
    writer.close()
    assert not failures


def _resumed(device: loop_world.Device, directory: pathlib.Path) -> loop_world.World:
    """Returns a world that begins with the checkpoint of a directory, as a new process does."""
    agent = device.setup.agent
    train, actor = states.abstract_train(device.setup), states.abstract_actor(device.setup)
    found = checkpoint.restore(directory, states.parts(agent, train), actor.rings if agent.samples else None)
    assert found is not None and found.step == EVERY and (found.rings is not None) == agent.samples
    device = device._replace(
        train=states.from_parts(agent, train, found.state),
        actor=first_players.actor(device.setup, found, strategies.Strategy(), is_deterministic=True),
    )
    world = loop_world.World(device, **LOCK_STEP)
    world.dispatcher.restore(found.counters, has_replay=found.rings is not None)
    return world


def _answers(world: loop_world.World) -> list[tuple[int, list[Any], int]]:
    """Returns the group, actions and version of each reply; sessions have names by chance."""
    return [(request.group, actions, version) for request, actions, version in world.replies]


@pytest.mark.thorough
@pytest.mark.parametrize("reward", [None, 0.0, -1.0, 1.0])
@pytest.mark.parametrize("is_deterministic", [False, True])
def test_a_run_that_goes_on_begins_at_random_again_unless_it_repeats_or_has_a_reward(
    is_deterministic: bool, reward: float | None
) -> None:
    settings, spec, _ = CASES["muzero, with a short random start"]
    device = loop_world.make_device(dict(settings), spec, num_learning=0, ahead=False)
    rings = device.actor.rings
    rings = None if reward is None else rings._replace(reward=rings.reward.at[0, 0].set(reward))
    found = checkpoint.Restored(EVERY, {}, {}, rings, [], newest=None)  # type: ignore[arg-type]
    memory: Any = first_players.actor(
        device.setup, found, strategies.Strategy(), is_deterministic=is_deterministic
    ).carried.memory
    begins = not is_deterministic and reward != 1.0
    assert np.asarray(memory.first_left > 0).tolist() == [begins] * len(memory.first_left)


_MARKS = {"muzero, with a memory and learners apart": pytest.mark.thorough}


@pytest.mark.parametrize("name", [pytest.param(name, marks=_MARKS.get(name, ())) for name in CASES])
def test_a_run_repeats_bit_for_bit_also_after_a_resume(name: str, tmp_path: pathlib.Path) -> None:
    settings, spec, num_learning = CASES[name]
    device = loop_world.make_device(dict(settings), spec, num_learning=num_learning, ahead=False)
    whole, again = (loop_world.World(device, **LOCK_STEP) for _ in range(2))
    for world in (whole, again):
        _play_to_a_checkpoint(world, spec)
    loop_world.assert_same_state(whole, again)
    assert _answers(whole) == _answers(again)
    _save(again, tmp_path)
    resumed, num_before = _resumed(device, tmp_path), len(whole.replies)
    for world in (whole, resumed):
        _play_to_a_checkpoint(world, spec)
    loop_world.assert_same_state(whole, resumed)
    assert _answers(whole)[num_before:] == _answers(resumed)
    # Not because nothing was learned, or nothing was played.
    assert whole.num_updates == 2 * EVERY and len({str(actions) for _, actions, _ in _answers(resumed)}) > 1
    before, after = (world.loop.state().parts["main"]["params"] for world in (again, whole))
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert not np.array_equal(one, other)
