"""Functions of a finished or running run, local or in a bucket: load its agent, evaluate, export."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from seedzero.config import options
from seedzero.core import errors, opponents
from seedzero.evaluation import agent_choice
from seedzero.league import members

if TYPE_CHECKING:
    from seedzero.bucket import run_copy
    from seedzero.evaluation import acting_policy

Step: TypeAlias = Literal["best", "last"] | int
Mode: TypeAlias = Literal["greedy", "sample"]
RunDir: TypeAlias = str | os.PathLike[str]

EXPORT_FORMATS = ("stablehlo",)
EXPORT_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Statistics of the episodes that a checkpoint has played; returns are undiscounted sums of rewards.

    Attributes:
      step: updates of the checkpoint.
      chosen: "best", "last" or "given", why this one was taken.
      episodes: number of them.
      mean_return: over the episodes.
      std_return: their standard deviation.
      min_return: of the worst episode.
      max_return: of the best one.
      mean_length: steps; in games of two players the moves of both.
      stderr_return: standard error of mean_return; None: of one episode, or of every line of play.
      human_normalized: for Atari and DMLab-30's levels, 0: random play, 1: a human; of all 30 levels the mean, each
        capped at 1; None: another environment.
      task_returns: mean return of each task, by its name; None: there is one task.
      info: means of the environment's own numbers, by name; None: it has none.
      cut_off: number of episodes that the limit of steps ended; they count with their rewards so far, and their
        environments stop. None: there was none.
      player: name of the frozen player that has played; None: the checkpoint has.
      policy: "sample": the actions were drawn from the agent's policy; None: they were greedy.
      opponent: in games of two players, "random", "mcts-N", "exhaustive" or a run directory; None, as all below: not a
        game of two players.
      wins: games won; draws, losses likewise.
      first: {"wins", "draws", "losses"} of the games in which the agent had the first move.
      second: of the others.
    """

    step: int
    chosen: str
    episodes: int
    mean_return: float
    std_return: float
    min_return: float
    max_return: float
    mean_length: float
    stderr_return: float | None = None
    human_normalized: float | None = None
    task_returns: Mapping[str, float] | None = None
    info: Mapping[str, float] | None = None
    cut_off: int | None = None
    player: str | None = None
    policy: str | None = None
    opponent: str | None = None
    wins: int | None = None
    draws: int | None = None
    losses: int | None = None
    first: Mapping[str, int] | None = None
    second: Mapping[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics, without the missing entries."""
        return {name: value for name, value in vars(self).items() if value is not None}


def load(
    run_dir: RunDir,
    step: Step | None = None,
    *,
    seed: int = 0,
    player: str | None = None,
    policy: Mode | None = None,
    trust_run_dir: bool = False,
) -> acting_policy.Policy:
    """Returns a saved agent as a policy: `policy(observation)` is its action. No environment is made.

    Args:
      run_dir: directory or gs://BUCKET/PATH of the run; it may still be training.
      step: update number of a checkpoint, "best" (by evaluation while training) or "last"; None: the best, or the last
        if there is none, and in games of two players.
      seed: of drawn actions and of the noise when the policy explores, 0 to 2^31 - 1.
      player: name of a player of the run's league: a frozen one, in place of a step, or one that learns; "main", None:
        the first one. Of a run with --seats.policies one of its policies.
      policy: "greedy", the best action, or "sample", a draw from the agent's policy; None: draws in games of seats
        (hidden information or simultaneous moves), else greedy.
      trust_run_dir: import the network's module that the run names, where it names one; it may do anything here.

    Raises:
      UsageError: not a run directory, or one without a checkpoint; no such step, seed or policy; a step beside a
        frozen player; several policies and no player; draws of an agent that learns values alone; a module without
        trust.
      CheckpointError: a missing or damaged checkpoint or frozen player.
      BucketError: the bucket cannot be read.
    """
    with opened(choose(run_dir, step, player, policy, trusted=trust_run_dir, seed=seed)) as choice:
        from seedzero.evaluation import acting_policy  # JAX

        return acting_policy.load(choice)


def evaluate(
    run_dir: RunDir,
    episodes: int = 20,
    *,
    step: Step | None = None,
    seed: int = 0,
    opponent: RunDir | None = None,
    max_episode_steps: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    player: str | None = None,
    policy: Mode | None = None,
    trust_run_dir: bool = False,
) -> Evaluation:
    """Plays episodes with a checkpoint, in environments of the calling process; returns statistics.

    Args:
      run_dir: directory or gs://BUCKET/PATH of the run.
      episodes: at least 1; not read if the opponent is "exhaustive".
      step: as of `load`.
      seed: of the environments, of random moves and of drawn actions, 0 to 2^31 - 1.
      opponent: in games of two players "random", "mcts-N" (OpenSpiel's bot of N simulations), "exhaustive" (every
        line of play that the other side has, once) or another run of the same game; None: random.
      max_episode_steps: at least 1; an episode that has so many ends there, and counts with its rewards so far; None:
        the run's setting evaluation.max_episode_steps. Refused in games of two players, which are played to their end.
      progress: called after each step of all environments with the numbers of finished and of expected episodes; not
        in games of two players. None: a line on standard error every 10 s tells them.
      player: as of `load`.
      policy: as of `load`, for another run as the opponent too; "exhaustive" takes no draws.
      trust_run_dir: import the modules that the run names, where it names some, and those of the opponent's run; they
        may do anything here.

    Raises:
      UsageError: not a run directory, a remote environment, an unsuitable opponent, policy or limit of steps, or a
        module without trust.
      CheckpointError, BucketError: as `load`.
    """
    choice = choose(
        run_dir, step, player, policy, trusted=trust_run_dir, seed=seed, max_episode_steps=max_episode_steps
    )
    return evaluate_choice(choice, episodes, opponent=opponent, progress=progress)


def evaluate_choice(
    choice: agent_choice.AgentChoice,
    episodes: int,
    *,
    opponent: RunDir | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Evaluation:
    """Returns the result of `evaluate` for a checked choice."""
    from seedzero.bucket import run_copy

    for name, number in (("episodes", episodes), ("max_episode_steps", choice.max_steps)):
        if number is not None and number < 1:
            raise errors.UsageError(f"{name}={number}: expected at least 1")
    other = None if opponent is None else os.fspath(opponent)
    with contextlib.ExitStack() as copies:
        choice = copies.enter_context(opened(choice))
        if other is not None and "://" in other:
            other = str(copies.enter_context(run_copy.local(other, lambda copy: copy.fetch_params("last"))))
        from seedzero.evaluation import scoring  # JAX

        played = scoring.evaluate(choice, episodes, other, progress)
        return Evaluation(**{**played, **({} if opponent is None else {"opponent": os.fspath(opponent)})})


def export(
    run_dir: RunDir,
    out: RunDir,
    *,
    step: Step | None = None,
    file_format: str = "stablehlo",
    platforms: Sequence[str] = ("cpu",),
    batch_size: int | None = None,
    player: str | None = None,
    policy: Mode | None = None,
    trust_run_dir: bool = False,
) -> dict[str, Any]:
    """Writes a saved agent as programs that need JAX alone, with parameters and a manifest; returns the manifest.

    Args:
      run_dir: directory or gs://BUCKET/PATH of the run.
      out: directory to write; an earlier export there is replaced as a whole, other files are refused.
      step: as of `load`.
      file_format: "stablehlo", programs of `jax.export`.
      platforms: that they run on, of "cpu", "cuda", "rocm" and "tpu".
      batch_size: rows of all inputs; None: any number.
      player: as of `load`.
      policy: as of `load`; a program that draws takes its random numbers from the input `key`.
      trust_run_dir: as of `load`.

    Raises:
      UsageError: an unknown format or platform, a directory that cannot be written, a missing package, or as `load`.
      CheckpointError, BucketError: as `load`.
    """
    choice = choose(run_dir, step, player, policy, trusted=trust_run_dir)
    return export_choice(choice, out, file_format=file_format, platforms=platforms, batch_size=batch_size)


def export_choice(
    choice: agent_choice.AgentChoice,
    out: RunDir,
    *,
    file_format: str = "stablehlo",
    platforms: Sequence[str] = ("cpu",),
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Returns the result of `export` for a checked choice."""
    directory = pathlib.Path(out).absolute()
    check_export(file_format, platforms, batch_size)
    with opened(choice) as choice:
        from seedzero.evaluation import greedy  # JAX
        from seedzero.exports import exporting

        saved = greedy.load(choice, *greedy.read(choice))
        return exporting.export(saved, directory, platforms=platforms, batch_size=batch_size)


def check_export(file_format: str, platforms: Sequence[str], batch_size: int | None) -> None:
    """Raises UsageError for an unknown format or platform, or a batch of less than one row."""
    if file_format not in EXPORT_FORMATS:
        raise errors.UsageError(f"--format={file_format}: expected {' or '.join(EXPORT_FORMATS)}")
    unknown = [name for name in platforms if name not in EXPORT_PLATFORMS]
    if unknown or not platforms:
        raise errors.UsageError(f"--platforms={','.join(platforms)}: expected some of {', '.join(EXPORT_PLATFORMS)}")
    if batch_size is not None and batch_size < 1:
        raise errors.UsageError(f"--batch_size={batch_size}: expected at least 1")


def checked_step(step: object) -> Step | None:
    """Returns a step as an int or a word of `Step`, or None. Raises UsageError for anything else."""
    if step is None or (isinstance(step, str) and step in ("best", "last")):
        return cast(Step | None, step)
    with contextlib.suppress(TypeError):
        if (number := operator.index(cast(Any, step))) >= 0:  # one of numpy, too
            return number
    raise errors.UsageError(f"step={step!r}: expected the number of a saved update, 'best' or 'last'")


def checked_player(player: str | None, step: Step | None) -> str | None:
    """Returns the name of a league's player; None: the first one. Raises UsageError for a step of a frozen player."""
    if player in (None, members.MAIN):
        return None
    if not player:
        raise errors.UsageError("player= is empty; expected a name, as `seedzero league show` lists them")
    if opponents.is_member(player):
        raise errors.UsageError(
            f"player={player}: a scripted member of a league has no parameters; as an opponent a bot plays in "
            "`seedzero evaluate --opponent=mcts-100`"
        )
    if step is not None and members.is_frozen(player):
        raise errors.UsageError(f"step={step} and player={player}: a frozen player is of one update; omit one of them")
    return player


def checked_policy(policy: str | None) -> Mode | None:
    """Returns a kind of acting; None: by the kind of game. Raises UsageError for anything else."""
    if policy in (None, "greedy", "sample"):
        return cast(Mode | None, policy)
    raise errors.UsageError(
        f"--policy={policy}: expected greedy (best actions) or sample (draws from the agent's policy)"
    )


def choose(
    run_dir: RunDir,
    step: object = None,
    player: str | None = None,
    policy: str | None = None,
    *,
    trusted: bool = False,
    seed: int = 0,
    max_episode_steps: int | None = None,
) -> agent_choice.AgentChoice:
    """Returns the choice of a saved agent by the arguments of `load` and `evaluate`; raises UsageError as these."""
    step = checked_step(step)
    player, policy = checked_player(player, step), checked_policy(policy)
    if not 0 <= seed <= options.LARGEST:
        raise errors.UsageError(f"seed={seed}: expected a whole number from 0 to {options.LARGEST}")
    return agent_choice.AgentChoice(os.fspath(run_dir), step, player, policy, trusted, seed, max_episode_steps)


@contextlib.contextmanager
def opened(
    choice: agent_choice.AgentChoice, fetch: Callable[[run_copy.Copy], object] | None = None
) -> Iterator[agent_choice.AgentChoice]:
    """Yields the choice in a run directory on this disk, as of `run_copy.local`; fetch: None: the parameters alone."""
    from seedzero.bucket import run_copy

    def fetch_agent(copy: run_copy.Copy) -> None:
        if choice.player is not None and members.is_frozen(choice.player):
            copy.fetch_player(choice.player)
        else:
            copy.fetch_params(choice.step)

    with run_copy.local(os.fspath(choice.run_dir), fetch or fetch_agent) as path:
        yield dataclasses.replace(choice, run_dir=path)
