"""Wraps a saved agent as a function from observations to actions that keeps each row's memory between calls.

Shape letters: B rows (environments), A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from numpy import typing as npt

from seedzero.acting.actors import (
    acting_program,
    agent_choice,
    codecs,
    positions,
    saved_agents,
    search_traces,
    single_env,
)
from seedzero.agents import agent_table, base
from seedzero.config import configs
from seedzero.core import errors, forks, packing, types, user_code
from seedzero.device import acting, batches

Action: TypeAlias = codecs.Action
Observation: TypeAlias = npt.ArrayLike | Mapping[Any, Any] | Sequence[Any]


def load(choice: agent_choice.AgentChoice) -> Policy:
    """Returns a saved agent as a policy, without making an environment.

    `choice.seed` seeds the draws of actions, and the noise of exploration.

    Raises UsageError if the directory has no run, if no worker has joined the run yet, if it needs consent to a
    network's module, or if actions should be drawn and the agent has no policy. Raises CheckpointError for an
    unreadable checkpoint.
    """
    config, spec = saved_agents.read(choice)
    policy = Policy(saved_agents.load(choice, config, spec), seed=choice.seed)
    policy._choice = choice
    return policy


@dataclasses.dataclass(frozen=True)
class Spec:
    """The spaces and arrays of a policy's environments.

    Attributes:
      observation_space: Gymnasium space of the environment's observations, which the policy takes. Workers report it
        for environments of Gymnasium and EnvPool; for other families it is one array or a dictionary of arrays.
      action_space: Gymnasium space of the actions that the policy returns, known in the same cases.
      arrays: the arrays as the agent sees them, with their bounds; integers are one-hot vectors there.
      num_actions: the agent's actions are 0 .. num_actions - 1 (see `Policy.actions`); 0 if actions are continuous.
      action_low: [D] lower bounds of a continuous action, float32; empty if actions are discrete.
      action_high: [D] upper bounds of a continuous action.
      has_action_mask: whether every call needs an action mask, as a part of the observation or as an argument.
      num_players: 1, or 2 if two players move in turn.
      tasks: names of the tasks that the run's environments shared; empty if there was only one.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    arrays: tuple[types.ArraySpec, ...]
    num_actions: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    has_action_mask: bool
    num_players: int
    tasks: tuple[str, ...]

    @property
    def is_continuous(self) -> bool:
        """Whether actions are continuous (float32 vectors) instead of discrete."""
        return bool(self.action_low)


def _shown(spec: types.EnvSpec, codec: codecs.Codec) -> Spec:
    shown: dict[str, Any] = {"observation_space": codec.observation_space, "action_space": codec.action_space}
    names = [field.name for field in dataclasses.fields(Spec) if field.name not in shown]
    return Spec(**shown, **{name: getattr(spec, name) for name in names})


class Policy:
    """Chooses actions as an evaluation does. Each row is an environment and keeps its latest frames and its memory.

    Drawn actions and noise depend only on the seed, the number of the call and the rows.

    Observations are what the environment's `reset` and `step` return (`spec.observation_space`), after the wrappers of
    `--env.wrappers`; actions are what its `step` takes (`spec.action_space`). A batch [B, ...] has one leading axis
    more in each array, as in Gymnasium's vector environments, or is a list of dictionaries or of tuples; masks,
    rewards and actions then have that axis, too. A row begins an episode at its first call and after `reset`. Use a
    policy from one thread at a time; in a process that was forked afterwards every call raises UsageError.

    Attributes:
      spec: spaces and arrays of the environments.
      step: number of updates behind the checkpoint.
    """

    _choice: agent_choice.AgentChoice | None = None  # whose consent `make_env` needs for a user's own environment

    def __init__(self, saved: saved_agents.SavedAgent, *, seed: int = 0) -> None:
        self._saved, self._seed, self._codec = saved, seed, codecs.of(saved.spec)
        self.spec, self.step = _shown(saved.spec, self._codec), saved.update
        self._programs: dict[int | None, acting_program.ActingProgram] = {}
        self._num_calls = 0
        self._carried: acting.Carried | None = None
        self._first = np.ones(0, bool)

    def __call__(
        self,
        observation: Observation,
        *,
        reward: npt.ArrayLike | None = None,
        action_mask: npt.ArrayLike | None = None,
        explore: bool = False,
        num_simulations: int | None = None,
    ) -> Action:
        """Returns the action for one observation, or the actions for a batch, and remembers the observations.

        Args:
          observation: an observation of `spec.observation_space`, or a batch of them.
          reward: the reward that came with the observation, one a row; required by agents with a recurrent memory.
          action_mask: [A] or [B, A], bool or 0 and 1; true means legal. It is the mask that the environment gives in
            its info or by `action_masks()`, and is required if the environment has one that is not part of its
            observations.
          explore: whether to act with the noise of training; otherwise as loaded, greedily or by draws from the
            policy.
          num_simulations: simulations of the search; None: as in training.

        Returns:
          An action of `spec.action_space`, which is an int for a Discrete space, or a batch of actions [B, ...].

        Raises:
          UsageError: if an observation has another shape, dtype or space, if a mask or reward is missing or
            unexpected, if the number of rows has changed, or if num_simulations is given for an agent that does not
            search.
        """
        seen, is_single = self._seen(observation, reward, action_mask, explore)
        rows = self._saved.params, self._rows(seen), seen, self._seed, self._num_calls
        self._carried, found = self._of(num_simulations)(*rows)
        self._num_calls += 1
        self._first = np.zeros(len(seen.observation), bool)
        return self._codec.decode(np.asarray(found["action"]), is_single=is_single)

    @property
    def actions(self) -> np.ndarray:
        """All actions, [A, ...], in the order of masks and visit counts.

        Raises UsageError if actions are continuous.
        """
        if self._saved.spec.is_continuous:
            raise errors.UsageError(f"actions are of {self.spec.action_space}, which has no list of them")
        return np.asarray(self._codec.decode(np.arange(self._saved.spec.num_actions), is_single=False))

    def search(
        self,
        observation: Observation,
        *,
        reward: npt.ArrayLike | None = None,
        action_mask: npt.ArrayLike | None = None,
        explore: bool = False,
        num_simulations: int | None = None,
        return_tree: bool = False,
    ) -> base.Searched:
        """Runs the search without remembering the observation, and returns its results as numpy arrays.

        `action` is of `spec.action_space`; values per action are in the order of `actions`. The arguments and errors
        are those of a call. For one observation the results have no leading axis, except the tree, which is always a
        batch, because `seedzero.search.to_dot` takes one.
        """
        if self._saved.agent.search is None:
            raise errors.UsageError(f"agent {self._saved.config.run.agent} does not search; call the policy itself")
        seen, is_single = self._seen(observation, reward, action_mask, explore)
        rows = self._saved.params, self._rows(seen), seen, self._seed, self._num_calls
        findings = acting_program.TREE if return_tree else acting_program.NUMBERS
        nowhere = np.full(len(seen.slot), acting_program.NOWHERE, np.int32)
        _, named = self._of(num_simulations)(*rows, written=nowhere, findings=findings)
        found = base.Searched(**acting_program.on_host(named))
        action: Any = self._codec.decode(np.asarray(found.action), is_single=is_single)
        if not is_single:
            return found._replace(action=action)
        one: base.Searched = jax.tree.map(lambda x: x[0], found._replace(tree=None))
        return one._replace(action=action, tree=found.tree)

    def think(
        self,
        observation: Observation,
        *,
        action_mask: npt.ArrayLike | None = None,
        reward: npt.ArrayLike | None = None,
        num_simulations: int | None = None,
        moves: Sequence[int] | None = None,
    ) -> search_traces.Thought:
        """Returns what the agent thinks about one observation, for people to look at, without remembering it.

        It has actions, tree and lines of play, with the numbers of `search`. An agent with probabilities but without a
        search gives only the probabilities.

        Args:
          observation, action_mask, reward, num_simulations: as in a call.
          moves: in a game of `spiel:`, all actions since its start; nodes then have their real positions.

        Raises:
          UsageError: as in a call, and for a batch, for moves of another game or that lead to another observation, and
            for an agent that learns only values, or draws continuous actions without a search; with moves, as
            `make_env`, for lack of consent.
        """
        seen, is_single = self._seen(observation, reward, action_mask, explore=False)
        saved, program = self._saved, self._of(num_simulations)
        if not is_single:
            raise errors.UsageError(
                f"think takes one observation, not a batch of {len(seen.observation)}; give one row"
            )
        place = (
            None
            if moves is None
            else positions.of_moves(self._made_config().env.id, saved.spec, moves, np.asarray(seen.observation[0]))
        )
        draws = self._seed, self._num_calls
        return think(saved, program, self._codec, self._rows(seen), seen, draws, place)

    def position(self, moves: Sequence[int]) -> dict[str, Any]:
        """Returns `observation` and `action_mask` of a game after all moves since its start.

        `policy(**policy.position([4, 0]))` is the agent's third move, and `search` and `think` take them, too. For
        games of `spiel:` and `pgx:` without chance and seats. Raises UsageError for others, for a move that the game
        does not allow, if the game is over, and, as `make_env`, for lack of consent.
        """
        return positions.seen(self._made_config().env.id, self._saved.spec, moves)

    def make_env(self, *, render: bool = False) -> gymnasium.Env[Any, Any]:
        """Returns an environment of the run in its wrappers, as evaluations have it: whole games, the game's rewards.

        render: as in `seedzero.make_env`. Raises as that does, and UsageError if the environment is a user's own and
        the run directory needs consent (`trust_run_dir=True` of `load`).
        """
        config = self._made_config()
        return single_env.make(dataclasses.replace(config.env.of_evaluation, random_opening=0), render=render)

    def _made_config(self) -> configs.Config:
        """Returns the run's configuration to make its environment. Raises UsageError for lack of consent."""
        config = self._saved.config
        if self._choice is None or self._choice.trusted or not user_code.named({"env.id": config.env.id}):
            return config
        return self._choice.config()

    def reset(self, rows: Sequence[int] | np.ndarray | None = None) -> None:
        """Starts a new episode with the next observation of these rows, [N] int or [B] bool; None means all rows.

        After `reset()` the number of rows may change. Raises UsageError for rows that do not exist.
        """
        if rows is None:
            self._carried, self._first = None, np.ones(0, bool)
        elif self._carried is not None:
            packing.restart(self._first, rows)

    def __copy__(self) -> Policy:
        found = object.__new__(Policy)
        found.__dict__.update(self.__dict__, _first=self._first.copy())
        return found

    def __deepcopy__(self, memo: object) -> Policy:
        return self.__copy__()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise errors.UsageError("a policy cannot be sent to another process; call seedzero.load there")

    def _seen(
        self, observation: Observation, reward: npt.ArrayLike | None, action_mask: npt.ArrayLike | None, explore: bool
    ) -> tuple[batches.Batch, bool]:
        """Returns the checked arrays as a batch, and whether the input was a single observation."""
        forks.check("JAX")
        saved, (frame, is_single) = self._saved, self._codec.encode(observation)
        first = self._first if len(self._first) == len(frame) else np.ones(len(frame), bool)
        if action_mask is None and saved.spec.has_action_mask:
            action_mask = self._codec.shown_mask(observation)
        if action_mask is not None:
            action_mask = self._codec.joint_mask(action_mask)
        reads = saved.agent.reads_reward
        rewards, mask = packing.rewards_and_mask(
            saved.spec, first, reward, action_mask, is_single=is_single, reads_reward=reads
        )
        mode = types.EXPLORE if explore else saved.mode
        step = types.EnvStep.first(frame)._replace(reward=rewards, action_mask=mask)
        return acting_program.seen(saved.spec, step, first, mode, self.step), is_single

    def _rows(self, seen: batches.Batch) -> acting.Carried:
        """Returns the rows' memory. Raises UsageError if the number of rows has changed."""
        num_rows = len(seen.observation)
        if self._carried is None or not jax.tree.leaves(self._carried):
            return acting.initial(self._saved.agent, self._saved.spec, num_rows)
        if len(self._first) != num_rows:
            raise packing.other_rows(num_rows, self._first)
        return self._carried

    def _of(self, num_simulations: int | None) -> acting_program.ActingProgram:
        if num_simulations not in self._programs:
            saved, agent = self._saved, self._saved.agent
            if num_simulations is not None:
                if agent.search is None:
                    name = saved.config.run.agent
                    raise errors.UsageError(
                        f"num_simulations={num_simulations}: agent {name} does not search; leave it out"
                    )
                config = configs.override(saved.config, {"search.num_simulations": num_simulations})
                agent = agent_table.make(config, saved.spec, jax.default_backend())
            self._programs[num_simulations] = acting_program.ActingProgram(agent, saved.spec)
        return self._programs[num_simulations]


def think(
    saved: saved_agents.SavedAgent,
    program: acting_program.ActingProgram,
    codec: codecs.Codec,
    memory: acting.Carried,
    seen: batches.Batch,
    draws: tuple[int, int],
    place: positions.GamePlace | None,
    *,
    slot: int = 0,
) -> search_traces.Thought:
    """Returns what the agent thinks about one observation, given as a batch of one, without remembering it.

    `program` and `codec` are the agent's own. `draws` is the seed and the number of the call. slot: of the row in the
    memory. Raises UsageError for an agent that learns only values.
    """
    if saved.agent.search is None and saved.agent.policy is None:
        raise errors.UsageError(
            f"agent {saved.config.run.agent} has neither a search nor probabilities of actions to show; look at its "
            "actions alone"
        )
    if place is None:
        observed = np.asarray(seen.observation), np.asarray(seen.action_mask)
        place = positions.of_observation(saved.config.env.id, saved.spec, *observed, acting_program.key_of(*draws))
    slots, nowhere = np.full(1, slot, np.int32), np.full(1, acting_program.NOWHERE, np.int32)
    rows = saved.params, memory, seen, *draws
    looked = program(*rows, slots=slots, written=nowhere, findings=acting_program.TREE)[1]
    one: dict[str, Any] = jax.tree.map(lambda x: np.asarray(x)[0], looked)
    taken, policy = one["action"], one["policy"]
    found = None if saved.agent.search is None else base.Searched(**one)
    if found is None or found.sampled is None:
        actions = np.asarray(codec.decode(np.arange(saved.spec.num_actions), is_single=False))
        legal, number = np.asarray(seen.action_mask[0]), int(taken)
    else:
        actions = np.asarray(codec.decode(np.asarray(found.sampled), is_single=False))
        legal, number = np.ones(len(actions), bool), int(np.argmin(np.abs(found.sampled - taken).sum(axis=-1)))
    names = search_traces.names(actions, legal, place, saved.spec.action_names)
    shown = search_traces.Thought(
        env=saved.config.env.id,
        agent=saved.config.run.agent,
        step=saved.update,
        action=codec.decode(taken[np.newaxis], is_single=True),
        name=names[number],
        choices=search_traces.choices(names, legal, policy, found),
    )
    return shown if found is None else search_traces.with_search(shown, found, names, place)
