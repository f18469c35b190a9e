"""The choice of a saved agent as one value, from the flags of a command to the loading of the agent."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING

from seedzero.checkpoints import consent, run_dirs
from seedzero.config import configs

if TYPE_CHECKING:
    from seedzero.checkpoints import saved_files  # JAX


@dataclasses.dataclass(frozen=True)
class AgentChoice:
    """A saved agent of a run, and how it plays.

    Attributes:
      run_dir: run directory, or its URL until `api.runs.opened` has made a copy.
      step: update number of a checkpoint, "best" or "last"; None: the best, or the last if there is none, and in games
        of two players, because an evaluation against random moves does not distinguish good agents.
      player: name of a frozen player of the run's league, instead of a checkpoint, or of a learning one, or of a
        policy; None: the first one that learns.
      policy: "greedy" or "sample", a draw from the agent's policy; None: by the kind of game, `EnvSpec.default_mode`.
      trusted: as of `consent.check`.
      seed: of the environments and of drawn actions.
      max_steps: an episode ends after this many, and counts with its rewards so far; None: the run's
        `evaluation.max_episode_steps`.
    """

    run_dir: str | os.PathLike[str]
    step: saved_files.Step | None = None
    player: str | None = None
    policy: str | None = None
    trusted: bool = False
    seed: int = 0
    max_steps: int | None = None

    @property
    def path(self) -> pathlib.Path:
        """The run directory on this disk."""
        return pathlib.Path(self.run_dir)

    def absolute(self) -> AgentChoice:
        """Returns the choice with an absolute path: an environment may change the directory of its process."""
        return dataclasses.replace(self, run_dir=self.path.absolute())

    def or_last(self) -> AgentChoice:
        """Returns the choice with the last checkpoint if it has none."""
        return dataclasses.replace(self, step="last") if self.step is None else self

    def of(self, player: str) -> AgentChoice:
        """Returns the choice of another player."""
        return dataclasses.replace(self, player=player)

    def config(self, *, makes_environments: bool = True) -> configs.Config:
        """Returns the run's configuration; errors and arguments as of `consent.check`."""
        saved = run_dirs.read_saved(self.path)
        return consent.check(self.path, saved, trusted=self.trusted, makes_environments=makes_environments)

    def most_steps(self, config: configs.Config) -> int:
        """Returns the limit of an episode's steps."""
        return self.max_steps or config.evaluation.max_episode_steps
