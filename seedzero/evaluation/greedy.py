"""Loads saved agents and lets them act without a learner, greedily or by draws from their policy.

Shape letters: E environments.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import agent_table, base
from seedzero.checkpoints import player_files, saved_files, spec_file, trees
from seedzero.config import configs, league_config, seats_config
from seedzero.core import errors, printable, training_arrays, types
from seedzero.device import acting, batches, compilation_cache, jax_settings, patience, slow_compile
from seedzero.evaluation import agent_choice

_SEED_KEY = 2
"""Differs from the keys of training (0) and of evaluation during training (1), so that episodes are new."""

Chosen = Literal["best", "last", "given"]
"""How the checkpoint was chosen: best by evaluation during training, newest, or given by its update number."""


class SavedAgent(NamedTuple):
    """An agent with the parameters of a checkpoint, the update that made them, and the spec of its environments."""

    agent: base.Agent
    params: base.Params
    update: int
    chosen: Chosen
    config: configs.Config
    spec: types.EnvSpec
    player: str = ""  # a league's player; empty for the first one that learns
    mode: np.int8 = types.GREEDY  # how it acts: GREEDY or SAMPLE

    def to_json(self) -> dict[str, int | str]:
        """Returns the fields of a result that name the checkpoint, with `policy` if actions are drawn."""
        player = {"player": self.player} if self.player else {}
        policy = {"policy": "sample"} if self.mode == types.SAMPLE else {}
        return {"step": self.update, "chosen": self.chosen, **player, **policy}


def read(choice: agent_choice.AgentChoice) -> tuple[configs.Config, types.EnvSpec]:
    """Returns the configuration and the environments' spec of a run, without making an environment.

    Raises UsageError if the directory has no run or needs consent to a network's module, and ResumeError if no worker
    has joined the run yet.
    """
    config, spec = choice.config(makes_environments=False), spec_file.read(choice.path)
    if spec is None:
        raise errors.ResumeError(
            f"{choice.path} has no checkpoint yet: no worker has joined its learner; continue training"
        )
    return config, training_arrays.without(spec)


def load(choice: agent_choice.AgentChoice, config: configs.Config, spec: types.EnvSpec) -> SavedAgent:
    """Returns the chosen agent of a run, for environments with the given spec.

    Raises SpecMismatch if the run's environments had another spec, UsageError if actions should be drawn and the agent
    has no policy, if the run has no such player, or if a frozen one is of another update than the chosen step, and
    CheckpointError for an unreadable checkpoint.
    """
    policies = dict.fromkeys(seats_config.policies(config, spec.seats))
    if policies and choice.player not in policies:
        raise errors.UsageError(
            f"{choice.path} has {len(policies)} policies; give player= (--player=NAME), one of {', '.join(policies)}"
        )
    (saved,) = load_players(choice, config, spec, (choice.player,))
    if isinstance(choice.step, int) and choice.step != saved.update:
        raise errors.UsageError(
            f"--step={choice.step}: player {saved.player} was frozen after {saved.update} updates; leave --step out"
        )
    return in_mode(saved, choice.policy)


def in_mode(saved: SavedAgent, policy: str | None) -> SavedAgent:
    """Returns the agent set to act by `AgentChoice.policy`. Raises UsageError if it has no policy to draw from."""
    if policy == "sample" and not saved.agent.has_policy:
        raise errors.UsageError(
            f"--policy=sample: agent {saved.config.run.agent} learns only values and has no policy to draw actions "
            "from; leave it out, or give greedy"
        )
    mode = saved.config.evaluation.mode(saved.spec) if policy is None else types.MODES[policy]
    return saved._replace(mode=mode if saved.agent.has_policy else types.GREEDY)


def load_players(
    choice: agent_choice.AgentChoice, config: configs.Config, spec: types.EnvSpec, players: Sequence[str | None]
) -> list[SavedAgent]:
    """Returns the greedy agents of several players, which share compiled functions; for the rest see `load`."""
    with patience.telling(lambda: "loading the agent"):
        agent, template = make(choice.path, config, spec)
        step = choice.step
        if step is None and agent_choice.is_contest(config, spec):
            step = "last"
        directory, by_seat = choice.path / "checkpoints", bool(seats_config.of_config(config).asked)
        loaded = [_load(directory, template, step, player, by_seat=by_seat) for player in players]
        pairs = zip(loaded, players, strict=True)
        return [SavedAgent(agent, *found, config, spec, player or "") for found, player in pairs]


def make(path: pathlib.Path, config: configs.Config, spec: types.EnvSpec) -> tuple[base.Agent, base.Params]:
    """Returns the agent of a run directory, and the shapes of its acting parameters. Errors are those of `load`."""
    if uncached := compilation_cache.enable():
        printable.say(uncached)
    platform = jax_settings.platform()
    saved_spec = training_arrays.without(spec_file.read(path) or spec)
    # Evaluations of games by seats may report their opponents as tasks.
    spec_file.check_equal(dataclasses.replace(spec, tasks=spec.seats or spec.tasks), saved_spec)
    agent = agent_table.make(config, saved_spec, platform)
    return agent, jax.eval_shape(lambda: agent.acting(agent.init(jax.random.key(0))))


def _load(
    directory: pathlib.Path, template: base.Params, step: saved_files.Step | None, player: str | None, *, by_seat: bool
) -> tuple[base.Params, int, Chosen]:
    """Returns the parameters of a player, the update that made them, and how the checkpoint was chosen.

    by_seat: whether seats have policies of their own, all of which the best checkpoint has; in a league it has only
    the first player.
    """
    if player is not None and "-" in player:  # names of learning players have no hyphen
        frozen = player_files.read(directory, player, template)
        return trees.place(jax.tree.leaves(frozen.params), template), frozen.step, "given"
    if step is None:
        has_best = (by_seat or not player) and saved_files.finished(directory / saved_files.BEST)
        step = "best" if has_best else "last"
    params, found = saved_files.restore_params(directory, step, template, player or league_config.MAIN)
    return params, found.step, "given" if isinstance(step, int) else step


def seeds(seed: int, num_envs: int) -> tuple[int, ...]:
    """Returns one seed for each environment, [E], each below 2^31."""
    return tuple(int(s) >> 1 for s in np.random.SeedSequence([seed, _SEED_KEY]).generate_state(num_envs))


class Functions(NamedTuple):
    """Jitted functions of an agent, which depend only on the spec of its environments."""

    # (params, carried, seen, seed, number of the call) -> (carried, action)
    act: Callable[..., tuple[acting.Carried, jax.Array]]
    search: Callable[..., base.Searched]  # the same arguments, and return_tree
    policy: Callable[..., jax.Array]  # (params, carried, seen) -> probabilities [B, A]


def key_of(seed: Any, call: Any) -> jax.Array:
    """Returns the key of a call."""
    return jax.random.fold_in(jax.random.key(seed), call)


def functions(agent: base.Agent, spec: types.EnvSpec) -> Functions:
    """Returns the jitted functions of an agent.

    `search` and `policy` fail if the agent has no search or probabilities.
    """

    @jax.jit
    def act(
        params: base.Params, carried: acting.Carried, seen: batches.Batch, seed: jax.Array, call: jax.Array
    ) -> tuple[acting.Carried, jax.Array]:
        num_rows = len(seen.slot)
        carried, outputs = acting.act(agent, spec, num_rows, params, carried, seen, key_of(seed, call))
        return carried, outputs.action

    @functools.partial(jax.jit, static_argnames="return_tree")
    def search(
        params: base.Params,
        carried: acting.Carried,
        seen: batches.Batch,
        seed: jax.Array,
        call: jax.Array,
        *,
        return_tree: bool,
    ) -> base.Searched:
        assert agent.search is not None
        _, inputs = acting.look(agent, spec, len(seen.slot), carried, seen)
        return agent.search(params, carried.memory, inputs, key_of(seed, call), return_tree)

    @jax.jit
    def policy(params: base.Params, carried: acting.Carried, seen: batches.Batch) -> jax.Array:
        assert agent.policy is not None
        _, inputs = acting.look(agent, spec, len(seen.slot), carried, seen)
        return agent.policy(params, carried.memory, inputs)

    return Functions(_told(act), _told(search), _told(policy))


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a jitted function of `Functions` to report that it compiles when it gets a new number of rows."""
    compiled: set[tuple[Any, ...]] = set()

    def call(params: base.Params, carried: acting.Carried, seen: batches.Batch, *others: Any, **flags: bool) -> Any:
        shape = len(seen.slot), *flags.items()
        if shape in compiled:
            return function(params, carried, seen, *others, **flags)
        with patience.telling(lambda: "compiling the agent"), slow_compile.without_alarm():
            found = function(params, carried, seen, *others, **flags)
        compiled.add(shape)
        return found

    return call


def seen(
    spec: types.EnvSpec,
    observation: np.ndarray,
    reward: np.ndarray,
    first: np.ndarray,
    action_mask: np.ndarray | None,
    *,
    action_mode: np.int8 = types.GREEDY,
    task: np.ndarray | None = None,
    num_updates: int | None = None,
) -> batches.Batch:
    """Returns a batch with the environments' observations; without a mask every action is legal."""
    num_rows = len(observation)
    return batches.Batch(
        observation=observation,
        reward=reward,
        first=first,
        action_mask=np.ones((num_rows, spec.num_actions), bool) if action_mask is None else action_mask,
        action_mode=np.full(num_rows, action_mode),
        slot=np.arange(num_rows, dtype=np.int32),
        task=np.zeros(num_rows, np.int32) if task is None else task,
        num_updates=None if num_updates is None else np.int32(num_updates),
    )


class GroupPlayer:
    """Acts for a group of environments and keeps their memory. Drawn actions depend only on the seed and the call."""

    def __init__(self, saved: SavedAgent, num_envs: int, seed: int) -> None:
        self._saved, self._seed = saved, seed
        self._carried = acting.initial(saved.agent, saved.spec, num_envs)
        self._functions = functions(saved.agent, saved.spec)
        self._num_calls = 0

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        """Returns the actions, [E] int32 or [E, D] float32. Rows that the step does not show keep their memory.

        first: [E] bool, true at an episode's first observation.
        """
        saved, frames, mask = self._saved, step.observation, step.action_mask
        shown = seen(saved.spec, frames, step.reward, first, mask, action_mode=saved.mode, task=step.tasks)
        carried, action = self._functions.act(saved.params, self._carried, shown, self._seed, self._num_calls)
        self._carried = carried if step.shown is None else chosen(step.shown, carried, self._carried)
        self._num_calls += 1
        return np.asarray(action)


@jax.jit
def chosen(where: jax.Array, new: acting.Carried, old: acting.Carried) -> acting.Carried:
    """Returns the new rows where `where`, [E] bool, is true, and the old rows elsewhere."""

    def choose(one: jax.Array, other: jax.Array) -> jax.Array:
        return jnp.where(where.reshape(-1, *[1] * (one.ndim - 1)), one, other)

    found: acting.Carried = jax.tree.map(choose, new, old)
    return found
