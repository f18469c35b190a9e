"""Makes an agent think again about a recorded step, with the recording's checkpoint, another one, or a frozen player.

The agent sees what it saw then: the frames before the observation, an LSTM's memory of the recorded actions, and the
random key of the recording.

Shape letters: T steps, N nodes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.acting.actors import (
    acting_policy,
    acting_program,
    agent_choice,
    codecs,
    positions,
    saved_agents,
    search_traces,
)
from seedzero.acting.tables import records
from seedzero.agents import base, sampled
from seedzero.config import configs, options
from seedzero.core import errors, packing, types
from seedzero.device import acting, batches
from seedzero.networks import observations

FRAMES_BEFORE, FRAMES_AFTER = 64, 192
"""Number of the record's observations, around the step, to compare an imagined state with."""
MOST_SIMULATIONS = 4096
MAX_LETTERS = 256
"""Letters of an action's name that are kept."""
_BATCH = 32


class Nearest(NamedTuple):
    """The recorded observation whose latent state is nearest to an imagined one. distance: root mean square."""

    step: int
    distance: float


def load(choice: agent_choice.AgentChoice, header: Mapping[str, Any], num_simulations: int | None = None) -> Rethinker:
    """Loads a saved agent for records with a given header, with the policy it names; raises as `policy.load`.

    num_simulations: of the search; None means as in the recording.
    """
    config, spec = saved_agents.read(choice)
    given = header.get("action_names")
    names = tuple(str(name)[:MAX_LETTERS] for name in given) if isinstance(given, list) else ()
    if not spec.action_names and len(set(names)) == len(names) == spec.num_actions:
        spec = dataclasses.replace(spec, action_names=names)  # of a run before specs had names
    wanted = num_simulations or _whole(header.get("num_simulations"), 1, MOST_SIMULATIONS)
    if wanted is not None:
        config = configs.override(config, {"search.num_simulations": wanted})
    mode = header.get("policy")
    is_known = isinstance(mode, str) and mode in types.MODES
    saved = saved_agents.load(dataclasses.replace(choice, policy=str(mode) if is_known else None), config, spec)
    return Rethinker(saved)


class Rethinker:
    """A saved agent that thinks about steps of records. For one thread."""

    def __init__(self, saved: saved_agents.SavedAgent) -> None:
        self._saved, self._codec = saved, codecs.of(saved.spec)
        self._program = acting_program.ActingProgram(saved.agent, saved.spec)

    def think(self, record: records.Record, number: int) -> search_traces.Thought:
        """Returns the findings about step `number` of a record.

        Raises UsageError for a record of another environment, for the observation after the last step, and for an
        agent that learns only values, or draws continuous actions without a search.
        """
        saved = self._saved
        if record.spec != saved.spec:
            raise errors.UsageError("the record is of an environment with other observations or actions than the run")
        if not 0 <= number < record.num_steps:
            raise errors.UsageError(f"step {number}: expected 0 to {record.num_steps - 1}, with an action")
        seed = _whole(record.header.get("seed"), 0, options.LARGEST) or 0
        first_call = _whole(record.header.get("first_call"), 0, options.LARGEST) or 0
        carried, seen = self._carried(record, number, seed, first_call), self._seen(record, number)
        place = self._place(record, number)
        return acting_policy.think(
            saved, self._program, self._codec, carried, seen, (seed, first_call + number), place
        )

    def nearest(self, record: records.Record, number: int, thought: search_traces.Thought) -> dict[int, Nearest]:
        """Returns, for each node of a thought, the record's observation with the nearest latent state.

        Afterstates have none, because no observation shows a state before chance has decided. The result is empty
        without a model, with a memory, and with continuous actions, where nodes have their own samples.
        """
        model = self._saved.agent.model
        if model is None or model.remembers or thought.root is None or self._saved.spec.is_continuous:
            return {}
        places = np.arange(max(0, number - FRAMES_BEFORE), min(record.num_steps, number + FRAMES_AFTER) + 1)
        known = np.concatenate([self._represent(record, part)[1] for part in _parts(places)])[: len(places)]
        states = {0: self._represent(record, np.full(_BATCH, number))[0]}
        states[0] = jax.tree.map(lambda x: x[:1], states[0])
        found = {}
        for node in thought.nodes:  # parents have smaller numbers
            if node.parent is not None:
                step = self._decide if node.is_afterstate else self._dynamics
                step = self._resolve if thought.nodes[node.parent].is_afterstate else step
                action = jnp.asarray([node.action], jnp.int32)
                states[node.number] = step(self._saved.params, states[node.parent], action)
            if node.is_afterstate:
                continue
            distances = np.sqrt(np.mean(np.square(known - _flat(states[node.number])), axis=1))
            best = int(np.argmin(distances))
            found[node.number] = Nearest(int(places[best]), float(distances[best]))
        return found

    @functools.cached_property
    def _dynamics(self) -> Any:
        model = self._model
        return jax.jit(lambda params, state, action: model.dynamics(params, state, action)[0])

    @functools.cached_property
    def _decide(self) -> Any:
        assert self._model.chance is not None
        return jax.jit(self._model.chance.decide)

    @functools.cached_property
    def _resolve(self) -> Any:
        assert self._model.chance is not None
        return jax.jit(self._model.chance.resolve)

    @functools.cached_property
    def _representation(self) -> Any:
        return jax.jit(self._model.represent)

    @property
    def _model(self) -> base.Model:
        assert self._saved.agent.model is not None
        return self._saved.agent.model

    def _represent(self, record: records.Record, places: np.ndarray) -> tuple[Any, np.ndarray]:
        """Returns the latent states of observations, also as rows of numbers."""
        state = self._representation(self._saved.params, self._stacked(record, places, self._saved.agent.stack))
        return state, _flat(state)

    def _stacked(
        self, record: records.Record, places: np.ndarray, num_frames: int, last: int = 0
    ) -> dict[str, np.ndarray]:
        """Returns the `num_frames` frames up to `last` for positions [B], by name.

        The first frame repeats before an episode.
        """
        steps = places[:, None] - last - np.arange(num_frames)[::-1]
        found = {}
        for array in self._saved.spec.arrays:
            frames = record.arrays[records.observation_name(self._saved.spec, array.name)]
            shaped = frames.reshape(len(frames), *observations.stack_shape(array.shape, 1))
            chosen = shaped[np.maximum(steps, 0)]  # [B, num_frames, ...]
            found[array.name] = np.concatenate(list(np.moveaxis(chosen, 1, 0)), axis=-1)
        return found

    def _seen(self, record: records.Record, number: int) -> batches.Batch:
        arrays, spec, row = record.arrays, self._saved.spec, slice(number, number + 1)
        shown = {array.name: arrays[records.observation_name(spec, array.name)][row] for array in spec.arrays}
        frame = packing.pack(spec.packed, shown) if spec.packed else shown[types.OBSERVATION]
        before = arrays["reward"][number - 1] if number else 0.0
        mask = arrays["action_mask"][row] if spec.has_action_mask else None
        task = record.header.get("task")
        place = spec.tasks.index(task) if task in spec.tasks else 0
        reward, task = np.array([before], np.float32), np.array([place], np.int32)
        step = types.EnvStep.first(frame)._replace(reward=reward, action_mask=mask, task=task)
        return acting_program.seen(spec, step, np.array([number == 0]), self._saved.mode, self._saved.update)

    def _carried(self, record: records.Record, number: int, seed: int, first_call: int) -> acting.Carried:
        """Returns the memory before a step: past frames, and an LSTM's state if the agent has one."""
        agent, spec = self._saved.agent, self._saved.spec
        carried = acting.initial(agent, spec, 1)
        if agent.reads_reward:
            for step in range(number):
                rows = (self._saved.params, carried, self._seen(record, step))
                carried, _ = self._program(*rows, seed, first_call + step)
                action = sampled.from_environment(record.arrays["action"][step], spec)
                memory = _with_action(carried.memory, action)
                carried = acting.Carried(carried.past, memory)
        elif number and agent.stack > 1:
            past = self._stacked(record, np.array([number]), agent.stack - 1, last=1)
            carried = acting.Carried({name: jnp.asarray(frames) for name, frames in past.items()}, carried.memory)
        return carried

    def _place(self, record: records.Record, number: int) -> positions.GamePlace | None:
        """Returns the game's state after its moves; None if it is not OpenSpiel's for two players, or has chance."""
        is_of_spiel = self._saved.config.env.id.startswith("spiel:")
        if "move" not in record.arrays or self._saved.spec.has_chance or not is_of_spiel:
            return None
        moves, shown = record.arrays["action"][:number].tolist(), record.arrays[records.OBSERVATION][number]
        return positions.of_moves(self._saved.config.env.id, self._saved.spec, moves, shown)


def _with_action(memory: base.Memory, action: np.ndarray) -> base.Memory:
    """Replaces an LSTM's last action by the recorded one, because this checkpoint may choose another."""

    def replaced(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        return jnp.full_like(leaf, action) if getattr(path[-1], "name", "") == "action" else leaf

    return jax.tree_util.tree_map_with_path(replaced, memory)


def _parts(places: np.ndarray) -> list[np.ndarray]:
    """Returns positions in equal batches; the last one is padded."""
    filled = np.append(places, np.full(-len(places) % _BATCH, places[-1]))
    return list(filled.reshape(-1, _BATCH))


def _flat(state: Any) -> np.ndarray:
    """Returns latent states as rows of numbers; for a model that sums rewards, only the hidden state."""
    leaves = jax.tree.leaves(getattr(state, "hidden", state))
    return np.concatenate([np.asarray(leaf, np.float32).reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _whole(value: object, low: int, high: int) -> int | None:
    """Returns a whole number from a header if it is within bounds, else None; the file may come from anybody."""
    return value if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high else None
