"""Works with a finished or running run, local or in a bucket: loads its agent, evaluates it, exports it."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias, cast

from seedzero.acting.actors import agent_choice
from seedzero.config import options
from seedzero.core import errors, opponents, plain_files, printable, types
from seedzero.league import members
from seedzero.storage.checkpoints import run_dirs

if TYPE_CHECKING:
    from seedzero.acting.actors import acting_policy
    from seedzero.storage.bucket import run_copy
    from seedzero.transport import security

Step: TypeAlias = Literal["best", "last"] | int
Mode: TypeAlias = Literal["greedy", "sample"]
RunDir: TypeAlias = str | os.PathLike[str]

EXPORT_FORMATS = ("stablehlo",)
EXPORT_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Statistics of the episodes that a checkpoint has played. Returns are undiscounted sums of rewards.

    Attributes:
      step: updates of the checkpoint.
      chosen: "best", "last" or "given": why this checkpoint was taken.
      episodes: number of episodes.
      mean_return: mean over the episodes.
      std_return: standard deviation over the episodes.
      min_return: return of the worst episode.
      max_return: return of the best episode.
      mean_length: steps of an episode; in games of two players, the moves of both.
      stderr_return: standard error of mean_return; None with one episode, or if every line of play was played.
      human_normalized: for Atari and DMLab-30's levels, 0 is random play and 1 a human; for all 30 levels it is the
        mean, each capped at 1. None for other environments.
      task_returns: mean return of each task, by its name; None if there is one task.
      info: means of the environment's own numbers, by name; None if it has none.
      cut_off: how many episodes the limit of steps ended; they count with their rewards so far, and their environments
        stop. None if there was none.
      player: name of the frozen player that played; None if the checkpoint did.
      policy: "sample" if actions were drawn from the agent's policy; None if they were greedy.
      opponent: in games of two players "random", "mcts-N", "exhaustive" or a run directory. In other environments this
        and all fields below are None.
      wins: games won.
      draws: games drawn.
      losses: games lost.
      first: {"wins", "draws", "losses"} of the games in which the agent moved first.
      second: the same of the other games.
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
        """Returns the statistics without those that are None."""
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
    """Loads a saved agent as a policy: `policy(observation)` returns its action. No environment is made.

    Args:
      run_dir: directory or gs://BUCKET/PATH of the run, which may still be training.
      step: update number of a checkpoint, "best" (by evaluation during training) or "last". None takes the best one;
        the last one if no evaluation chose a best, and where players meet each other from both sides: in games of two
        players or of seats, and in leagues.
      seed: seeds drawn actions, and the noise when the policy explores; 0 to 2^31 - 1.
      player: name of a player of the run's league, frozen or learning, or a policy of a run with --seats.policies. A
        frozen player excludes `step`. None takes the first player, such as "main".
      policy: "greedy" takes the best action, "sample" draws from the agent's policy. None acts as the run's
        evaluations (evaluation.policy), which draw in games of seats (hidden information or simultaneous moves) and
        are greedy elsewhere, unless that is set.
      trust_run_dir: import the network's module if the run names one; that code may do anything here.

    Raises:
      UsageError: this is not a run directory or has no checkpoint; the step, seed or policy does not exist; a step is
        given with a frozen player; there are several policies and no player is named; actions are to be drawn from an
        agent that learns only values; a module is named without trust.
      CheckpointError: a missing or damaged checkpoint or frozen player.
      BucketError: the bucket cannot be read.
    """
    with opened(choose(run_dir, step, player, policy, trusted=trust_run_dir, seed=seed)) as choice:
        from seedzero.acting.actors import acting_policy  # JAX

        return acting_policy.load(choice)


def evaluate(
    run_dir: RunDir,
    episodes: int = 20,
    *,
    step: Step | None = None,
    seed: int = 0,
    opponent: RunDir | None = None,
    max_episode_steps: int | None = None,
    num_simulations: int | None = None,
    progress: Callable[[int, int], object] | None = None,
    player: str | None = None,
    policy: Mode | None = None,
    trust_run_dir: bool = False,
) -> Evaluation:
    """Plays episodes with a checkpoint in environments of the calling process, and returns statistics.

    Args:
      run_dir: directory or gs://BUCKET/PATH of the run.
      episodes: how many to play, at least 1; ignored if the opponent is "exhaustive".
      step: as in `load`.
      seed: seeds the environments, random moves and drawn actions; 0 to 2^31 - 1.
      opponent: in games of two players "random", "mcts-N" (OpenSpiel's bot of N simulations), "exhaustive" (every line
        of play of the other side, once), another run of the same game, or "HOST:PORT" or "HOST:PORT/PLAYER" of a
        policy server without a token. None plays random moves.
      max_episode_steps: ends an episode after this many steps, at least 1; it counts with its rewards so far. None
        uses the run's setting evaluation.max_episode_steps. Games of two players reject it: they are played until they
        end.
      num_simulations: of the agent's search at each move; None means as in training.
      progress: called with the numbers of finished and expected episodes after each step of all environments, except
        in games of two players. None prints them on standard error every 10 s.
      player: as in `load`.
      policy: as in `load`; it also applies to another run as the opponent. "exhaustive" rejects "sample".
      trust_run_dir: import the modules that this run and the opponent's run name; that code may do anything here.

    Raises:
      UsageError: this is not a run directory, the environment is remote, the opponent, policy or limit of steps is
        unsuitable, or a module is named without trust.
      CheckpointError, BucketError: as in `load`.
    """
    choice = choose(
        run_dir,
        step,
        player,
        policy,
        trusted=trust_run_dir,
        seed=seed,
        max_episode_steps=max_episode_steps,
        simulations=num_simulations,
    )
    return evaluate_choice(choice, episodes, opponent=opponent, progress=progress)


def evaluate_choice(
    choice: agent_choice.AgentChoice,
    episodes: int,
    *,
    opponent: RunDir | None = None,
    access: security.Access | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Evaluation:
    """Returns the result of `evaluate` for checked arguments.

    Args:
      access: to the opponent's policy server; None uses plain text without a token.
    """
    from seedzero.storage.bucket import run_copy

    numbers = {"episodes": episodes, "max_episode_steps": choice.max_steps, "num_simulations": choice.simulations}
    for name, number in numbers.items():
        if number is not None and not (isinstance(number, SupportsIndex) and operator.index(number) >= 1):
            raise errors.UsageError(f"{name}={number!r}: expected a whole number of at least 1")
    other = None if opponent is None else plain_files.given("opponent", opponent)
    with contextlib.ExitStack() as copies:
        choice = copies.enter_context(opened(choice))
        if other is not None and "://" in other:
            other = str(copies.enter_context(run_copy.local(other, lambda copy: copy.fetch_params("last"))))
        from seedzero.acting.actors import remote_players
        from seedzero.acting.tables import scoring  # JAX
        from seedzero.transport import security

        is_served = other is not None and opponents.is_address(other)
        rival = remote_players.Served(str(other), access or security.PLAIN) if is_served else other
        played = scoring.evaluate(choice, episodes, rival, progress)
        if left := unplayed(run_dirs.read_spec(choice.path), played):
            printable.say(left)
        return Evaluation(**{**played, **({} if opponent is None else {"opponent": os.fspath(opponent)})})


def unplayed(spec: types.EnvSpec | None, result: Mapping[str, Any]) -> str:
    """Returns a message about tasks without an episode, or "" if each had one. The tasks of seats are opponents."""
    num_played, num_tasks = len(result.get("task_returns", ())), spec.num_tasks if spec and not spec.seats else 1
    if not 0 < num_played < num_tasks:
        return ""
    return (
        f"the {result['episodes']} episodes were of {num_played} of the {num_tasks} tasks, and the mean return is of "
        f"these alone; {num_tasks} episodes have one for each task"
    )


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
    """Writes a saved agent as programs that need only JAX, with parameters and a manifest, and returns the manifest.

    Args:
      run_dir: directory or gs://BUCKET/PATH of the run.
      out: directory to write. An earlier export there is replaced as a whole; other files are an error.
      step: as in `load`.
      file_format: "stablehlo", which are programs of `jax.export`.
      platforms: platforms that the programs run on, from "cpu", "cuda", "rocm" and "tpu".
      batch_size: rows of all inputs; None allows any number.
      player: as in `load`.
      policy: as in `load`; a program that draws actions takes its random numbers from the input `key`.
      trust_run_dir: as in `load`.

    Raises:
      UsageError: the format or platform is unknown, the directory cannot be written, a package is missing, or as in
        `load`.
      CheckpointError, BucketError: as in `load`.
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
    """Returns the result of `export` for checked arguments."""
    directory = pathlib.Path(plain_files.given("out", out)).absolute()
    check_export(file_format, platforms, batch_size)
    with opened(choice) as choice:
        from seedzero.acting.actors import saved_agents  # JAX
        from seedzero.acting.exports import exporting

        saved = saved_agents.load(choice, *saved_agents.read(choice))
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
    """Returns a step as an int, a word of `Step`, or None. Raises UsageError for anything else."""
    if step is None or (isinstance(step, str) and step in ("best", "last")):
        return cast(Step | None, step)
    with contextlib.suppress(TypeError):
        if (number := operator.index(cast(Any, step))) >= 0:  # numpy's too
            return number
    raise errors.UsageError(f"step={step!r}: expected the number of a saved update, 'best' or 'last'")


def checked_player(player: str | None, step: Step | None) -> str | None:
    """Returns the name of a league's player; None is the first one.

    Raises UsageError for a step of a frozen player.
    """
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
    """Returns how to act; None leaves it to the kind of game. Raises UsageError for anything else."""
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
    simulations: int | None = None,
) -> agent_choice.AgentChoice:
    """Returns the choice of a saved agent that the arguments of `load` and `evaluate` make.

    Raises UsageError as these do.
    """
    run_dir, step = plain_files.given("run_dir", run_dir), checked_step(step)
    player, policy = checked_player(player, step), checked_policy(policy)
    if not (isinstance(seed, SupportsIndex) and 0 <= operator.index(seed) <= options.LARGEST):
        raise errors.UsageError(f"seed={seed!r}: expected a whole number from 0 to {options.LARGEST}")
    return agent_choice.AgentChoice(run_dir, step, player, policy, trusted, seed, max_episode_steps, simulations)


@contextlib.contextmanager
def opened(
    choice: agent_choice.AgentChoice, fetch: Callable[[run_copy.Copy], object] | None = None
) -> Iterator[agent_choice.AgentChoice]:
    """Yields the choice in a run directory on this disk, as `run_copy.local` does.

    fetch: None fetches the parameters alone.
    """
    from seedzero.storage.bucket import run_copy

    def fetch_agent(copy: run_copy.Copy) -> None:
        if choice.player is not None and members.is_frozen(choice.player):
            copy.fetch_player(choice.player)
        else:
            copy.fetch_params(choice.step)

    with run_copy.local(os.fspath(choice.run_dir), fetch or fetch_agent) as path:
        yield dataclasses.replace(choice, run_dir=path)
