"""Evaluation and play from a checkpoint, without a learner: environments and agent in one process."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from seedzero.checkpoints import consent, spec_file
from seedzero.checkpoints import files as saved_files
from seedzero.checkpoints import run_dir as run_dirs
from seedzero.config import config as configs
from seedzero.config import families
from seedzero.core import env_ids, errors, opponents, types
from seedzero.device import patience
from seedzero.envs import base as env_base
from seedzero.envs import registry, seats, spiel, spiel_seats
from seedzero.evaluation import evaluation, greedy, human_scores, match, seat_match
from seedzero.evaluation import video as videos

MAX_ENVS = 32
"""Most environments that play at a time."""

_EVALUATE_REMOTE = "give --listen=HOST:PORT, and start the worker with the address that is printed then"
_PLAY_REMOTE = (
    "workers send no pictures: record a video in the environment itself, and score the run by `seedzero evaluate "
    "--listen=HOST:PORT`"
)

EXHAUSTIVE = "exhaustive"
"""Opponent in games of two players: every move of the other side."""


def read_config(path: pathlib.Path, remedy: str, *, trusted: bool) -> configs.Config:
    """Returns a run's configuration: read once, for the consent to its code is to these very settings.

    remedy: for environments of workers, which cannot be made here. trusted: as of `consent.check`.
    """
    saved = run_dirs.read_saved(path)
    config = consent.check(path, saved, trusted=trusted)
    if config.env.id == env_ids.REMOTE:
        raise errors.UsageError(
            f"{path} was trained with --env=remote, so its environment comes with a worker; {remedy}"
        )
    return config


class _Player:
    """A saved agent for a group of environments in this process."""

    def __init__(
        self,
        path: pathlib.Path,
        config: configs.Config,
        step: saved_files.Step | None,
        num_envs: int,
        *,
        seed: int,
        render: bool,
        role: types.Role = types.Role.TRAIN,
        player: str | None = None,
        policy: str | None = None,
    ) -> None:
        """role: games of two players are self-play in training."""
        self.config = config
        settings = dataclasses.replace(config.env.of_evaluation, random_opening=0)
        self.env: env_base.VectorEnv = registry.make(config.env.id, settings, num_envs, role=role, render=render)
        with contextlib.ExitStack() as undo:
            undo.callback(self.env.close)
            self.step = self.env.reset(greedy.seeds(seed, num_envs))  # completes the spec
            self.saved = greedy.load(path, config, self.env.spec, step, player, policy)
            self._group = greedy.GroupPlayer(self.saved, self.env.spec, num_envs, seed)
            undo.pop_all()
        self.first = np.ones(num_envs, bool)

    def advance(self) -> None:
        """Acts once in every environment."""
        actions = self._group.act(self.step, self.first)
        self.first = self.step.final
        self.step = self.env.step(actions)


def evaluate(
    path: str | os.PathLike[str],
    step: saved_files.Step | None,
    num_episodes: int,
    seed: int,
    opponent: str | None = None,
    max_steps: int | None = None,
    progress: evaluation.Progress | None = None,
    *,
    player: str | None = None,
    trusted: bool = False,
    policy: str | None = None,
) -> dict[str, Any]:
    """Plays episodes with a checkpoint; returns the update as `step`, the choice as `chosen`, and statistics.

    Args:
      path: run directory.
      step: update number, "best" or "last"; None: the best, or the last if there is none: a first evaluation, of
        untrained parameters, makes none; in games of two players the last, because an evaluation against random
        moves does not distinguish good agents.
      num_episodes: at least 1; not read if the opponent is EXHAUSTIVE.
      seed: of the environments and of drawn actions.
      opponent: in games of two players EXHAUSTIVE, a name as of `opponents.parse`, or the run directory of another
        agent; None: random moves.
      max_steps: an episode that has so many ends there, and counts with its rewards so far; None: the run's
        `evaluation.max_episode_steps`. Games of two players end by themselves, and have none.
      progress: called after each step of all environments; not in games of two players.
      player: name of a frozen player of the run's league, in place of a checkpoint; None: there is none.
      trusted: as of `consent.check`, for the opponent's directory too.
      policy: as of `greedy.load`, of the opponent's run too; the result has `policy` if actions were drawn.

    Raises UsageError: not a run directory, a remote environment, an unsuitable opponent, policy or limit of steps, or
    code of the directory's maker without consent; CheckpointError.
    """
    path = pathlib.Path(path).absolute()  # an environment may change the directory of its process
    config = read_config(path, _EVALUATE_REMOTE, trusted=trusted)
    game, seated = game_of(config), seat_game_of(config)
    if game is None and seated is None:
        for flag, given in (("opponent", opponent), ("player", player)):
            if given is not None:
                raise errors.UsageError(f"--{flag}={given}: {path} was trained in no game of two players; omit it")
    if game is None and opponent in (None, opponents.RANDOM):
        found = _evaluate_alone(path, config, step, num_episodes, seed, max_steps, progress, policy, player)
        return evaluation.with_error(found)
    if max_steps is not None:
        raise errors.UsageError(
            f"--max_episode_steps={max_steps}: {path} was trained in a game of two players, where every game is "
            "played to its end; omit it"
        )
    opponent = opponent or opponents.RANDOM
    if game is None:
        assert seated is not None
        return _evaluate_seats(path, config, seated, step, num_episodes, seed, opponent, player, policy, trusted)
    if opponent == EXHAUSTIVE and policy == "sample":
        raise errors.UsageError(
            f"--policy=sample: --opponent={EXHAUSTIVE} plays every line against an agent with one move in a position; "
            "omit one of them"
        )
    is_bot = opponent == opponents.RANDOM or opponents.num_simulations(opponent) > 0
    is_run = not is_bot and opponent != EXHAUSTIVE
    other = _same_game(pathlib.Path(opponent).absolute(), config, trusted=trusted) if is_run else None
    with patience.telling(lambda: "playing the games"):
        mine, theirs = greedy.seeds(seed, 2)
        agent, checkpoint = load_player(game, path, config, step, player, policy, mine)
        if other is not None:
            rival, _ = load_player(game, *other, None, None, policy, theirs)
            games = match.against_agent(game, agent, rival, num_episodes, seed)
        elif is_bot:
            games = match.against_bot(game, agent, opponent, num_episodes, seed)
        else:
            games = match.every_line(game, agent)
    found = {**checkpoint, "opponent": opponent, **match.summary(games)}
    return found if opponent == EXHAUSTIVE else evaluation.with_error(found)


def game_of(config: configs.Config) -> spiel.Game | None:
    """Returns the game of a run; None without two players in turn, as where rows are seats."""
    kind, _, name = config.env.id.partition(":")
    if kind != "spiel" or spiel_seats.has_seats(spiel.load(name)):
        return None
    game = spiel.Game(name)
    return game if game.num_players == 2 else None


def seat_game_of(config: configs.Config) -> seats.SeatGame | None:
    """Returns the game of a run in which rows are two seats; None: there is none."""
    kind, _, name = config.env.id.partition(":")
    if kind != "spiel" or not spiel_seats.has_seats(found := spiel.load(name)):
        return None
    return spiel_seats.SpielSeats(name) if found.num_players() == seat_match.NUM_SEATS else None


def _evaluate_seats(
    path: pathlib.Path,
    config: configs.Config,
    game: seats.SeatGame,
    step: saved_files.Step | None,
    num_games: int,
    seed: int,
    opponent: str,
    player: str | None,
    policy: str | None,
    trusted: bool,
) -> dict[str, Any]:
    """Returns the result of `evaluate` in a game of two seats against the agent of another run."""
    if opponent == EXHAUSTIVE or opponents.num_simulations(opponent):
        raise errors.UsageError(
            f"--opponent={opponent}: {path} was trained in a game of seats, where nobody sees the other's part of the "
            f"state, and that opponent looks at all of it; give --opponent={opponents.RANDOM} or --opponent=RUN_DIR"
        )
    place, other = _same_game(pathlib.Path(opponent).absolute(), config, trusted=trusted)
    with patience.telling(lambda: "playing the games"):
        mine = greedy.load(path, config, game.spec, "last" if step is None else step, player, policy)
        theirs = greedy.load(place, other, game.spec, "last", None, policy)
        games = seat_match.play(game, mine, theirs, num_games, seed)
    return evaluation.with_error({**mine.to_json(), "opponent": opponent, **match.summary(games)})


def against_each_other(
    path: pathlib.Path, players: Sequence[str | None], num_games: int, seed: int, *, trusted: bool = False
) -> dict[str, Any]:
    """Plays games between two players of a run's league, without noise.

    Pairs of games begin with equal random openings; in games of two seats players draw from their policies instead,
    and each has the first chair in half of the games.

    players: two names of frozen players; None: the newest checkpoint. seed: of openings and draws. trusted, errors: as
    of `evaluate`. Returns the first player's statistics as of `match.summary`, with `stderr_return`, the updates of
    both as `versions`, and `policy` if actions were drawn.
    """
    config = read_config(path, _EVALUATE_REMOTE, trusted=trusted)
    game, seated = game_of(config), seat_game_of(config)
    if game is None and seated is None:
        raise errors.UsageError(f"{path} was trained in no game of two players; give a run that was")
    with patience.telling(lambda: "playing the games"):
        if game is not None:
            (one, first), (other, second) = (load_player(game, path, config, None, name) for name in players)
            games = match.against_agent(game, one, other, num_games, seed)
        else:
            assert seated is not None
            saved = [greedy.load(path, config, seated.spec, "last", name) for name in players]
            first, second = (player.to_json() for player in saved)
            games = seat_match.play(seated, saved[0], saved[1], num_games, seed)
    drawn = {"policy": first["policy"]} if "policy" in first else {}
    return {**evaluation.with_error(match.summary(games)), "versions": [first["step"], second["step"]], **drawn}


def load_player(
    game: spiel.Game,
    path: pathlib.Path,
    config: configs.Config,
    step: saved_files.Step | None,
    player: str | None = None,
    policy: str | None = None,
    seed: int = 0,
) -> tuple[match.Player, dict[str, int | str]]:
    """Returns the agent of a run of this game, and the checkpoint's name; without a step, the last.

    player, policy: as of `greedy.load`. seed: of drawn moves.
    """
    saved = greedy.load(path, config, game.spec, step, player, policy)
    return match.saved_player(game, saved, seed), saved.to_json()


def _same_game(path: pathlib.Path, mine: configs.Config, *, trusted: bool) -> tuple[pathlib.Path, configs.Config]:
    """Returns an opponent's run directory and configuration; raises for a run of another game."""
    config = consent.check(path, run_dirs.read_saved(path), trusted=trusted)
    if config.env.id != mine.env.id:
        raise errors.UsageError(
            f"--opponent={path} was trained with --env={config.env.id}, this run with --env={mine.env.id}; give a run "
            f"of the same game, {opponents.RANDOM}, mcts-N or {EXHAUSTIVE}"
        )
    return path, config


def _evaluate_alone(
    path: pathlib.Path,
    config: configs.Config,
    step: saved_files.Step | None,
    num_episodes: int,
    seed: int,
    max_steps: int | None,
    progress: evaluation.Progress | None,
    policy: str | None,
    name: str | None,
) -> dict[str, Any]:
    num_envs = _num_envs(config, spec_file.read(path), num_episodes)
    role = types.Role.EVALUATE
    player = _Player(path, config, step, num_envs, seed=seed, render=False, role=role, policy=policy, player=name)
    slots = np.arange(num_envs)
    limit = max_steps or player.config.evaluation.max_episode_steps
    played = evaluation.Played(slots, num_episodes, player.env.spec.tasks, max_steps=limit)

    def state() -> str:
        """Returns the state after the first step, before which a compilation is told; "" for a caller that is told."""
        return "" if progress is not None or not played.num_steps else f"evaluating: {played.state}"

    with env_base.closing(player.env), patience.telling(state):
        played.record(slots, player.step, player.first)
        while not played.done:
            player.advance()
            played.record(slots, player.step, player.first)
            if progress is not None:
                progress(played.num_finished, played.num_expected)
    result = played.result()
    shown = {**player.saved.to_json(), **result.to_json()}
    normalized = human_scores.of(player.config.env.id, result)
    return shown if normalized is None else {**shown, "human_normalized": normalized}


def _num_envs(config: configs.Config, spec: types.EnvSpec | None, num_episodes: int) -> int:
    """Returns how many environments play at a time: of several tasks, all equally often."""
    # A run whose environments must be few has few of them everywhere.
    most = min(num_episodes, MAX_ENVS, max(config.evaluation.num_envs, config.worker.envs_per_group))
    num_tasks = spec.num_tasks if spec else 1
    return most if most < num_tasks else most // num_tasks * num_tasks


def play(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    step: saved_files.Step | None,
    seed: int,
    max_steps: int | None = None,
    *,
    player: str | None = None,
    trusted: bool = False,
    longest_side: int = 0,
    policy: str | None = None,
) -> dict[str, Any]:
    """Writes a video, .mp4 or .gif, of one episode with a checkpoint, chosen as in `evaluate`.

    A game of two players is self-play, without a step too with the best checkpoint; the return is the first mover's.

    path, step, seed, max_steps, player, trusted and policy are as in `evaluate`; target is the file to write.
    longest_side: larger pictures are thinned to at most so many pixels, both ways alike; 0: none is. Returns step,
    chosen, video, frames, return and length; cut_off is 1 if the limit of steps ended the episode; policy as
    `evaluate`. Raises as `evaluate`, and UsageError if the video cannot be written.
    """
    path, file = pathlib.Path(path).absolute(), pathlib.Path(target).absolute()
    config = read_config(path, _PLAY_REMOTE, trusted=trusted)
    group = _Player(path, config, step, 1, seed=seed, render=True, player=player, policy=policy)
    followed = evaluation.Episodes(1, group.env.spec.num_players)
    limit = max_steps or group.config.evaluation.max_episode_steps

    def frames() -> Iterator[np.ndarray]:
        while True:
            followed.record(np.zeros(1, int), group.step.reward, group.first, group.step.final)
            yield videos.thinned(group.env.render(), longest_side)
            if group.step.final[0] or followed.so_far(0).length >= limit:
                return
            group.advance()

    with env_base.closing(group.env):
        usual = families.of(group.config.env.id).frames_per_second
        fps = getattr(group.env, "frames_per_second", None) or usual
        num_frames = videos.write_video(file, frames(), fps)
    episode = followed.so_far(0)
    shown = {"frames": num_frames, "return": episode.total, "length": episode.length}
    shown |= {} if group.step.final[0] else {"cut_off": 1}
    return {**group.saved.to_json(), "video": os.fspath(target), **shown}


def film(path: pathlib.Path, target: pathlib.Path, max_steps: int, longest_side: int) -> dict[str, Any]:
    """Writes a small video of one episode with the newest checkpoint of a run that is being trained.

    Arguments, result and errors are as in `play`, for a trusted directory; the result has `ledger` and
    `other_hosts`, too: the checkpoint's counts of training steps.
    """
    _, saved, _ = saved_files.find(path / "checkpoints", "last", "params")
    result = play(path, target, saved.step, 0, max_steps, trusted=True, longest_side=longest_side)
    return {**result, **{name: saved.host[name] for name in ("ledger", "other_hosts") if name in saved.host}}
