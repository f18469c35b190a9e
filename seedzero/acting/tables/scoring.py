"""Evaluates a checkpoint without a learner, with environments and agent in one process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from seedzero.acting.actors import actor, agent_choice, remote_players, saved_actors, saved_agents
from seedzero.acting.tables import match, table
from seedzero.config import configs, seats_config
from seedzero.core import errors, opponents, types
from seedzero.device import patience
from seedzero.envs import bots, env_base, turn_games
from seedzero.monitoring.metrics import episodes
from seedzero.storage.checkpoints import run_dirs

MAX_ENVS = 32
"""Most environments that step at the same time."""
_BATCH_SIZE = 64
"""Most positions of games in turn in one call of an agent."""

_EVALUATE_REMOTE = "give --listen=HOST:PORT, and start the worker with the address that is printed then"


def evaluate(
    choice: agent_choice.AgentChoice,
    num_episodes: int,
    opponent: str | remote_players.Served | None = None,
    progress: episodes.Progress | None = None,
) -> dict[str, Any]:
    """Plays episodes with a saved agent. Returns statistics, the checkpoint's `step` and how it was `chosen`.

    Args:
      choice: its trust and policy also apply to the run of an opponent. Games of two players are always played until
        they end, so they take no limit of steps. If actions are drawn, the result has `policy`.
      num_episodes: at least 1; counts whole games if several agents share an environment. Ignored if the opponent is
        `match.EXHAUSTIVE`.
      opponent: in games of two players `match.EXHAUSTIVE`, a name as in `opponents.parse`, a policy server's player,
        or the run directory of another agent; None: random moves.
      progress: called after each step of all environments, except in games of two players.

    Raises:
      UsageError: for a directory without a run, a remote environment, an unsuitable opponent, policy or limit of
        steps, or missing consent to the code of the directory's maker.
      CheckpointError: for an unreadable checkpoint. For errors of a policy server see `RemotePlayer`.
    """
    choice = choice.absolute()
    path, config = choice.path, table.read_config(choice, _EVALUATE_REMOTE)
    if sides := match.sides_of(choice, config):
        _refuse_limit(choice, "in a league between two sides of agents")
        opponent = opponent or opponents.RANDOM
        told, games = match.between_sides(choice, config, sides, (choice, opponent), num_episodes)
        return episodes.with_error({**told[0], "opponent": str(opponent), **match.summary(games)})
    game = table.game_of(config)
    if game is None and not table.has_two_seats(config):
        spec, why = run_dirs.read_spec(path), "was not trained in a game of two players"
        if spec is not None and spec.num_players == 2:  # with chance
            opponent = None if opponent == opponents.RANDOM else opponent
            why = "was trained in a game with chance, whose evaluations play against random moves"
        for flag, given in (("opponent", opponent), ("player", choice.player)):
            if given is not None and (flag == "opponent" or not seats_config.of_config(config).asked):
                raise errors.UsageError(f"--{flag}={given}: {path} {why}; omit it")
    if game is None and isinstance(opponent, str) and _move_in_seats(opponent):
        config = configs.override(config, {"env.opponents": opponent})
        opponent = None
    if game is None and opponent is None:
        return _evaluate_alone(choice, config, num_episodes, progress)
    _refuse_limit(choice)
    opponent = opponent or opponents.RANDOM
    if game is None:
        told, games = match.between_sides(choice, config, (), (choice, opponent), num_episodes)
        return episodes.with_error({**told[0], "opponent": str(opponent), **match.summary(games)})
    if opponent == match.EXHAUSTIVE and choice.policy == "sample":
        raise errors.UsageError(
            f"--policy=sample: --opponent={match.EXHAUSTIVE} plays every line against an agent with one move in a "
            "position; omit one of them"
        )
    if isinstance(opponent, remote_players.Served) or not (
        opponent == match.EXHAUSTIVE or opponents.is_known(opponent)
    ):
        told, games = _in_turn_between(game, choice, config, (choice, opponent), num_episodes)
        return episodes.with_error({**told[0], "opponent": str(opponent), **match.summary(games)})
    with patience.telling(lambda: "playing the games"):
        saved, seed = saved_agents.load(choice, config, game.spec), saved_agents.seeds(choice.seed, 2)[0]
        agent, checkpoint = _in_turn(saved, seed), saved.to_json()
        if opponent == match.EXHAUSTIVE:
            lines = match.every_line(game, match.of_actor(game, agent))
            return {**checkpoint, "opponent": opponent, **match.summary(lines)}
        generator = np.random.default_rng(choice.seed)
        positions = match.from_the_start(game, num_episodes, generator)
        games = match.play_games(positions, agent, actor.BotActor(bots.make(opponent, generator), positions))
    return episodes.with_error({**checkpoint, "opponent": opponent, **match.summary(games)})


def _move_in_seats(opponent: str) -> bool:
    """Returns whether this comma-separated list names opponents that play in the seats of evaluations."""
    with contextlib.suppress(ValueError):  # The text may be the name of a run, or empty.
        return all(name == opponents.RANDOM or opponents.roshambo_bot(name) for name in opponents.parse(opponent))
    return False


def _refuse_limit(choice: agent_choice.AgentChoice, trained: str = "in a game of two players") -> None:
    """Raises UsageError for a limit of steps where games are played to the end."""
    if choice.max_steps is not None:
        raise errors.UsageError(
            f"--max_episode_steps={choice.max_steps}: {choice.path} was trained {trained}, where every game is played "
            "to the end; omit it"
        )


def against_each_other(
    choice: agent_choice.AgentChoice, names: Sequence[str | remote_players.Served | None], num_games: int
) -> dict[str, Any]:
    """Plays games between two players of a run's league, without noise.

    Games come in pairs with equal random openings. In games of two seats, and between sides of agents, players draw
    from their policies instead, and each has the first chair or side in half of the games.

    Args:
      choice: the run, without a player.
      names: two frozen players, opponents as in `opponents.parse`, or players of policy servers; None: the newest
        checkpoint.

    Returns the first player's statistics (see `match.summary`) with `stderr_return`, the updates of both as
    `versions`, and `policy` if actions were drawn. Errors are those of `evaluate`.
    """
    config = table.read_config(choice, _EVALUATE_REMOTE)
    of_agents, game = match.sides_of(choice, config), table.game_of(config)
    if game is None and not of_agents and not table.has_two_seats(config):
        raise errors.UsageError(f"{choice.path} was not trained in a game of two players; give a run that was")
    others = [name for name in names if isinstance(name, str) and opponents.is_known(name)]
    if game is None and others and not of_agents:
        raise errors.UsageError(
            f"player {others[0]} looks at the whole state of a game, and {choice.path} was trained in a game of "
            "seats, where nobody sees the other's part; give a player of the league"
        )
    named: list[saved_actors.Named] = [
        name if isinstance(name, remote_players.Served) or name in others else choice.or_last().of(name)
        for name in names
    ]
    if game is None:
        (first, second), games = match.between_sides(choice, config, of_agents, named, num_games)
    else:
        (first, second), games = _in_turn_between(game, choice, config, named, num_games)
    drawn = {"policy": first["policy"]} if "policy" in first else {}
    return {**episodes.with_error(match.summary(games)), "versions": [first["step"], second["step"]], **drawn}


def _in_turn_between(
    game: turn_games.TurnGame,
    choice: agent_choice.AgentChoice,
    config: configs.Config,
    named: Sequence[saved_actors.Named],
    num_games: int,
) -> tuple[list[dict[str, Any]], list[match.FinishedGame]]:
    """Plays pairs of games in turn between two players; returns as `match.between_sides`."""
    chosen = [saved_actors.choose_player(one, choice.or_last(), config) for one in named]
    positions = match.in_pairs(game, num_games, choice.seed)

    def bot(name: str, seed: int) -> actor.Actor:
        return actor.BotActor(bots.make(name, np.random.default_rng(seed)), positions)

    with contextlib.ExitStack() as undo:
        undo.enter_context(patience.telling(lambda: "playing the games"))
        told, sides = saved_actors.load_all(chosen, game.spec, choice.seed, undo, act=_in_turn, bot=bot)
        return told, match.play_games(positions, *sides)


def _in_turn(player: saved_actors.Player, seed: int, *, size: int = _BATCH_SIZE) -> actor.Actor:
    """Returns the actor of a game in turn. seed: for drawn moves. size: most rows in one call of an agent."""
    if isinstance(player, remote_players.RemotePlayer):
        size = min(size, player.max_rows)
    return actor.Forgetful(saved_actors.actor_of(player, size, seed), size)


def engine(choice: agent_choice.AgentChoice, *, size: int = 1) -> tuple[turn_games.TurnGame, match.Player]:
    """Returns a run's game of two players in turn, and its agent as a player.

    size: most positions in one call. Errors are those of `evaluate`.
    """
    choice = choice.absolute()
    config = table.read_config(choice, "engines play games that this machine makes itself")
    game = table.game_of(config)
    if game is None:
        raise errors.UsageError(
            f"{choice.path} was trained with --env={config.env.id}, not a game of two players in turn; give a "
            "run of Go, Hex or Othello"
        )
    saved = saved_agents.load(choice, config, game.spec)
    return game, match.of_actor(game, _in_turn(saved, choice.seed, size=size))


def _evaluate_alone(
    choice: agent_choice.AgentChoice, config: configs.Config, num_episodes: int, progress: episodes.Progress | None
) -> dict[str, Any]:
    num_envs = _num_envs(config, run_dirs.read_spec(choice.path), num_episodes)
    run_table = table.RunTable(choice, config, num_envs, types.Role.EVALUATE)
    slots = np.arange(num_envs)
    limit = choice.most_steps(config)
    spec = run_table.env.spec
    num_seats = spec.num_seats(types.Role.EVALUATE)
    played = episodes.Played(slots, num_episodes, spec.tasks, max_steps=limit, num_seats=num_seats)

    def state() -> str:
        """Returns the state to report, from the first step on.

        Before the first step compilation is reported. It is "" if the caller reports progress itself.
        """
        return "" if progress is not None or not played.num_steps else f"evaluating: {played.state}"

    with env_base.closing(run_table.env), patience.telling(state):
        played.record(slots, run_table.step, run_table.first)
        while not played.done:
            run_table.advance()
            played.record(slots, run_table.step, run_table.first)
            if progress is not None:
                progress(played.num_finished, played.num_expected)
    result = played.result()
    normalized = episodes.human_score_of(config.env.id, result)
    shown = {} if normalized is None else {"human_normalized": normalized}
    return episodes.with_error({**run_table.saved.to_json(), **result.to_json(), **shown}, num_seats)


def _num_envs(config: configs.Config, spec: types.EnvSpec | None, num_episodes: int) -> int:
    """Returns the number of environments that step at the same time, equal for every task."""
    num_tasks = spec.num_tasks if spec else 1
    # A run that needs few environments in training gets few here, too, but one for each task.
    most = min(num_episodes, MAX_ENVS, max(config.evaluation.num_envs, config.worker.envs_per_group, num_tasks))
    if spec and spec.fixed_seats:
        return whole_games(most, spec)
    return most if most < num_tasks else most // num_tasks * num_tasks


def whole_games(most: int, spec: types.EnvSpec) -> int:
    """Returns the largest number of rows up to a limit that fills whole games, where rows are seats."""
    num_seats = max(1, spec.num_seats(types.Role.EVALUATE))
    return max(1, most // num_seats) * num_seats
