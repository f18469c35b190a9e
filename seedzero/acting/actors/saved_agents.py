"""Loads saved agents, which act greedily or by draws from their policy.

Shape letters: E environments.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import numpy as np

from seedzero.acting.actors import agent_choice
from seedzero.agents import agent_table, base
from seedzero.config import configs, league_config, seats_config
from seedzero.core import errors, packing, printable, types
from seedzero.device import compilation_cache, patience
from seedzero.storage.checkpoints import player_files, run_dirs, saved_files, trees

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
    config, spec = choice.config(makes_environments=False), run_dirs.read_spec(choice.path)
    if spec is None:
        raise errors.ResumeError(
            f"{choice.path} has no checkpoint yet: no worker has joined its learner; continue training"
        )
    return config, packing.without_training_only(spec)


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
    platform = compilation_cache.platform()
    saved_spec = packing.without_training_only(run_dirs.read_spec(path) or spec)
    # Evaluations of games by seats may report their opponents as tasks.
    run_dirs.check_equal_spec(dataclasses.replace(spec, tasks=spec.seats or spec.tasks), saved_spec)
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
