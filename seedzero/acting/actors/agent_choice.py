"""Defines which saved agent a command uses and how it plays, from the command's flags to the loading of the agent."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING

from seedzero.config import configs, league_rules
from seedzero.core import errors, types
from seedzero.storage.checkpoints import own_runs, run_dirs

if TYPE_CHECKING:
    from seedzero.storage.checkpoints import saved_files  # JAX


@dataclasses.dataclass(frozen=True)
class AgentChoice:
    """Which saved agent of a run plays, and how.

    Attributes:
      run_dir: run directory, or its URL until `api.runs.opened` has made a copy.
      step: update number of a checkpoint, "best" or "last". None: the best, or the last if there is none; always the
        last in a contest (`is_contest`).
      player: name of a player of the run's league, frozen or learning, or of a policy; None: the first that learns.
      policy: "greedy", or "sample" to draw from the agent's policy; None: as in the run's evaluations.
      trusted: as in `own_runs.check_consent`.
      seed: seed of the environments and of drawn actions.
      max_steps: an episode is cut after this many steps and counts with its rewards so far; None: the run's
        `evaluation.max_episode_steps`.
      simulations: of the agent's search; None: as in training.
    """

    run_dir: str | os.PathLike[str]
    step: saved_files.Step | None = None
    player: str | None = None
    policy: str | None = None
    trusted: bool = False
    seed: int = 0
    max_steps: int | None = None
    simulations: int | None = None

    @property
    def path(self) -> pathlib.Path:
        """The run directory as a local path."""
        return pathlib.Path(self.run_dir)

    def absolute(self) -> AgentChoice:
        """Returns the choice with an absolute path, because an environment may change the working directory."""
        return dataclasses.replace(self, run_dir=self.path.absolute())

    def or_last(self) -> AgentChoice:
        """Returns the choice; if it names no checkpoint, of the last one."""
        return dataclasses.replace(self, step="last") if self.step is None else self

    def is_contest(self) -> bool:
        """Returns `is_contest` of the run."""
        spec = run_dirs.read_spec(self.path)
        return spec is not None and is_contest(run_dirs.read_saved(self.path).config, spec)

    def of(self, player: str | None) -> AgentChoice:
        """Returns the same choice for another player."""
        return dataclasses.replace(self, player=player)

    def config(self, *, makes_environments: bool = True) -> configs.Config:
        """Returns the run's configuration, with the choice's simulations; arguments as in `own_runs.check_consent`.

        Raises UsageError as `own_runs.check_consent` does, and for simulations of an agent without a search.
        """
        saved = run_dirs.read_saved(self.path)
        config = own_runs.check_consent(self.path, saved, trusted=self.trusted, makes_environments=makes_environments)
        if self.simulations is None:
            return config
        if "search" not in config.agent.SECTIONS:
            raise errors.UsageError(
                f"--simulations={self.simulations}: agent {config.run.agent} does not search; omit it"
            )
        return configs.override(config, {"search.num_simulations": self.simulations})

    def most_steps(self, config: configs.Config) -> int:
        """Returns the limit of steps in an episode."""
        return self.max_steps or config.evaluation.max_episode_steps


def is_contest(config: configs.Config, spec: types.EnvSpec) -> bool:
    """Returns whether a run's players meet each other from both sides: in turn, in seats or in a league of sides.

    What beats random moves there says little about a player, and the checkpoint that does it most is often a bad one.
    """
    swaps_seats = bool(spec.seats) and not spec.fixed_seats
    return spec.num_players == 2 or swaps_seats or bool(league_rules.sides(config, spec))
