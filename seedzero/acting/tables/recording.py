"""Records episodes of a saved agent in files, with what its search finds at every step; see `records`.

One environment plays one episode after another, and memory holds one episode.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.acting.actors import actor, agent_choice, codecs, saved_actors, saved_agents
from seedzero.acting.tables import records, table, videos
from seedzero.config import configs
from seedzero.core import errors, packing, printable, types
from seedzero.device import patience
from seedzero.envs import env_base, spiel, turn_games
from seedzero.monitoring.metrics import episodes
from seedzero.storage.checkpoints import run_dirs, run_lock


# Plays a game in an environment's rows: positions, actions, turns, and how to take moves back.
#
# The environment's own rules decide. To take moves back, the game is restarted and its other moves are repeated,
# because equal seeds and actions give equal steps, chance included.
#
# Shape letters: R rows (1 if both sides of an alternating game share it; otherwise each row is a seat).
class Course(table.Table):
    """One game at a time.

    Attributes:
      steps: positions as the environment shows them, [R] rows each; one more than actions.
      actions: [R] int, or [R, D], each.
    """

    steps: list[types.EnvStep]
    actions: list[np.ndarray]

    def begin(self, seeds: Sequence[int]) -> None:
        """Starts another game; seeds: [R]."""
        super().begin(seeds)
        self._seeds, self.steps, self.actions = seeds, [self.step], []

    def take(self, actions: np.ndarray) -> None:
        """Steps with the actions of all rows; those of rows without a turn are ignored."""
        super().take(actions)
        self.steps.append(self.step)
        self.actions.append(actions)

    def go_on(self) -> None:
        """Begins the environment's next game, after one that has ended; `go_back` cannot follow."""
        spec = self.env.spec
        ignored = np.zeros((self.env.num_envs, *spec.action_shape), np.float32 if spec.is_continuous else np.int32)
        super().take(ignored)
        self.steps, self.actions = [self.step], []

    def go_back(self, number: int) -> None:
        """Returns to an earlier position, by its number."""
        taken = self.actions[:number]
        self.begin(self._seeds)
        for actions in taken:
            self.take(actions)

    @property
    def has_rows(self) -> bool:
        """Whether each row is a seat."""
        return self.env.num_envs > 1

    def row(self, seat: int) -> int:
        """Returns the row of a seat."""
        return seat if self.has_rows else 0

    def viewer(self, seat: int, number: int) -> int:
        """Returns the seat whose observation is in the row of a seat."""
        return seat if self.has_rows else self._mover(number)

    def movers(self, number: int) -> list[int]:
        """Returns the seats that move in a position; none if the game is over."""
        step = self.steps[number]
        if not self.has_rows:
            return [] if step.final[0] else [self._mover(number)]
        moving: list[int] = np.flatnonzero(actor.shown(step) & ~step.final).tolist()
        return moving

    def seen(self, seat: int) -> list[int]:
        """Returns the numbers of the positions that show a seat's row."""
        return [number for number, step in enumerate(self.steps) if actor.shown(step)[self.row(seat)]]

    def is_over(self, seat: int) -> bool:
        """Returns whether a seat makes no more moves."""
        last = len(self.steps) - 1
        is_out = any(self.steps[number].final[self.row(seat)] for number in self.seen(seat))
        return is_out or not self.movers(last)

    def total(self, seat: int) -> float:
        """Returns the sum of a seat's rewards so far. In an alternating game they are the other side's losses."""
        if self.has_rows:
            return float(sum(step.reward[seat] for step in self.steps))
        signs = [1 if self._mover(number) == seat else -1 for number in range(len(self.actions))]
        return float(sum(sign * step.reward[0] for sign, step in zip(signs, self.steps[1:], strict=True)))

    def _mover(self, number: int) -> int:
        """Returns the side to move in a position of an alternating game."""
        movers = self.env.spec.movers(self.steps[number].observation)
        return number % 2 if movers is None else int(movers[0])


LONGEST_SIDE = 192
"""Longest side of pictures in a record; larger ones are thinned."""
MAX_PICTURES_BYTES = 128 << 20
"""Most steps of an episode with pictures; a longer one has none."""
_LOCK = ".record.lock"
_REMOTE = "episodes of a worker cannot be recorded: record them in the environment itself"


class RecordedEpisode(NamedTuple):
    file: str
    total: float  # sum of rewards, the first mover's
    length: int  # in steps
    cut_off: bool  # whether the limit of steps ended it
    task: str  # the task's name, or the seat's; "" for a single task


def file_name(number: int) -> str:
    return f"episode-{number:06d}.npz"


def record(
    choice: agent_choice.AgentChoice,
    out: str | os.PathLike[str],
    num_episodes: int,
    *,
    recorded: Callable[[RecordedEpisode], object] = lambda episode: None,
) -> dict[str, Any]:
    """Writes episodes of a saved agent to files; returns the checkpoint and the numbers of the files.

    In games of two players the agent moves for both. In games with seats a file has the turns of one seat; the other
    seats move at random.

    Args:
      out: directory for the files, made if missing; one that has episodes is rejected.
      recorded: called after each file.

    Raises UsageError as `evaluate.play`, for files that cannot be written, if another process records there, or for
    simulations of an agent without a search; and CheckpointError.
    """
    choice, directory = choice.absolute(), pathlib.Path(out).absolute()
    config = table.read_config(choice, _REMOTE)
    game = table.game_of(config)
    role = types.Role.EVALUATE if game is None else types.Role.TRAIN
    known = run_dirs.read_spec(choice.path)
    if known is not None and known.fixed_seats:
        raise errors.UsageError(
            f"{choice.path} was trained in an environment of {len(known.seats)} agents, and a record has one; "
            "`seedzero play` draws all of them"
        )
    course = Course(_made(config, role))
    env = course.env
    seeds = saved_agents.seeds(choice.seed, num_episodes)
    with env_base.closing(env), contextlib.ExitStack() as alone:
        course.begin(seeds[:1])  # completes the spec
        saved = saved_agents.load(choice, config, env.spec)
        if env.spec.num_players == 2 and saved.mode == types.GREEDY and num_episodes > 1:
            printable.say("without draws all games of two players are equal; --policy=sample draws the moves")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            alone.enter_context(_alone(directory))
            if present := sorted(directory.glob("episode-*.npz")):
                raise errors.UsageError(f"--out={directory} has {present[0].name} already; give a new directory")
            facts_of_run = header(choice, saved, config)
            limit = choice.most_steps(config)
            total = 0
            with patience.telling(lambda: "" if total else "playing the first episode"):
                played = _episodes(course, saved, choice.seed, seeds, limit, game)
                for number, (arrays, episode) in enumerate(played):
                    facts = {
                        "episode": number,
                        "return": episode.total,
                        "cut_off": episode.cut_off,
                        "first_call": total,
                    }
                    records.write(directory / episode.file, {**facts_of_run, **facts, "task": episode.task}, arrays)
                    total += episode.length
                    recorded(episode)
        except OSError as error:
            raise errors.UsageError(f"--out={directory} cannot be written: {error.strerror}; give another") from None
    return {**saved.to_json(), "out": os.fspath(out), "episodes": num_episodes, "steps": total}


def header(choice: agent_choice.AgentChoice, saved: saved_agents.SavedAgent, config: configs.Config) -> dict[str, Any]:
    """Returns the facts about run and agent for the header of its records."""
    return {
        "run": choice.path.name,
        "env": config.env.id,
        "agent": config.run.agent,
        **saved.to_json(),
        "policy": "sample" if saved.mode == types.SAMPLE else "greedy",
        "seed": choice.seed,
        "num_simulations": config.search.num_simulations if saved.agent.search else None,
        "spec": dataclasses.asdict(saved.spec),
        "actions": _actions(saved.spec),
        "action_names": saved.spec.action_names or None,
    }


def _made(config: configs.Config, role: types.Role) -> env_base.VectorEnv:
    """Returns an environment that draws itself, if it can."""
    try:
        return table.made(config, 1, role, render=True)
    except errors.Error:  # it may work without pictures; otherwise this error comes again
        return table.made(config, 1, role)


class _Pictures:
    """Collects an episode's pictures, made small.

    None if the environment cannot draw, or they need too much memory.
    """

    def __init__(self, env: env_base.VectorEnv) -> None:
        self._env, self._kept, self._draws = env, list[np.ndarray](), hasattr(env, "render")

    def take(self) -> None:
        """Keeps the present picture."""
        if not self._draws:
            return
        try:
            # A copy, because an environment may draw the next picture into the same array.
            self._kept.append(np.array(videos.thinned(np.asarray(self._env.render()), LONGEST_SIDE)))
        except errors.Error:
            self._draws = False
        one = self._kept[-1] if self._kept else np.zeros(0)
        fits = records.is_picture(one) and one.shape == self._kept[0].shape
        self._draws = self._draws and fits and len(self._kept) * one.nbytes <= MAX_PICTURES_BYTES

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the pictures of all steps under their name in a record; {} if there are none."""
        return {records.RENDER: np.stack(self._kept)} if self._draws else {}


@contextlib.contextmanager
def _alone(directory: pathlib.Path) -> Iterator[None]:
    """Reserves a directory for this process while the context is entered.

    Raises Occupied if another records; OSError.
    """
    with contextlib.ExitStack() as undo:
        way_out = "wait until that one has ended, or give another --out"
        run_lock.take(directory, undo, name=_LOCK, who="recording", way_out=way_out)
        undo.callback((directory / _LOCK).unlink, missing_ok=True)
        yield


def _actions(spec: types.EnvSpec) -> list[Any] | None:
    """Returns the environment's own values of all actions, in order; None for continuous actions."""
    if spec.is_continuous:
        return None
    values: list[Any] = np.asarray(codecs.of(spec).decode(np.arange(spec.num_actions), is_single=False)).tolist()
    return values


def _episodes(
    course: Course,
    saved: saved_agents.SavedAgent,
    seed: int,
    seeds: Sequence[int],
    limit: int,
    game: turn_games.TurnGame | None,
) -> Iterator[tuple[dict[str, np.ndarray], RecordedEpisode]]:
    """Yields the arrays of each episode.

    Draws depend on seed and call. course: begun with the first of the episodes' seeds. limit: most steps. game: of two
    players.
    """
    actor, env = saved_actors.SavedActor(saved, 1, seed), course.env
    for number in range(len(seeds)):
        followed, pictures = episodes.Episodes(1, env.spec.num_players), _Pictures(env)
        looks, sides, moves = list[dict[str, np.ndarray]](), list[int](), list[str]()
        while True:
            step = course.step
            movers = env.spec.movers(step.observation)
            followed.record(np.zeros(1, int), step.reward, course.first, step.final, movers=movers)
            pictures.take()
            if step.final[0] or followed.so_far(0).length >= limit:
                break
            looks.append(named(actor.look(step, course.first)))
            actions = looks[-1]["action"]
            if game is not None and isinstance(env, spiel.Games):
                state = env.states[0]
                sides.append(game.mover(state))
                moves.append(str(state.action_to_string(sides[-1], int(actions[0]))))
            elif game is not None:
                sides.append(len(sides) % 2)  # Pgx's players alternate, and its moves have no names
            course.take(actions)
        found = arrays(course, 0, looks, sides) | pictures.arrays()
        found |= {"move": np.array(moves)} if moves else {}
        so_far, task = followed.so_far(0), env.spec.tasks[int(step.tasks[0])] if env.spec.tasks else ""
        yield found, RecordedEpisode(file_name(number), so_far.total, so_far.length, not step.final[0], task)
        if number + 1 < len(seeds):
            if step.final[0]:
                course.go_on()
            else:
                course.begin(seeds[number + 1 : number + 2])


def arrays(
    course: Course, seat: int, found: Sequence[Mapping[str, np.ndarray]], movers: Sequence[int]
) -> dict[str, np.ndarray]:
    """Returns the arrays of a record of a game, as its row of a seat shows it.

    found: the agent's findings, [R, ...] by their names in records, about each position with actions. movers: the side
    that moves in each, in an alternating game; else empty.
    """
    row, numbers = course.row(seat), course.seen(seat)
    rows = list[dict[str, Any]]()
    for number, after in itertools.pairwise(numbers):
        step, mask = course.steps[after], course.steps[number].action_mask
        rows.append(
            {
                **{name: values[row] for name, values in found[number].items()},
                "action": course.actions[number][row],
                **({} if mask is None else {"action_mask": mask[row]}),
                **({"mover": np.int8(movers[number])} if movers else {}),
                "reward": step.reward[row],
                "terminated": step.terminated[row],
                "truncated": step.truncated[row],
            }
        )
    observations = np.stack([course.steps[number].observation[row] for number in numbers])
    by_name = {name: np.stack([each[name] for each in rows]) for name in rows[0]} if rows else {}
    return by_name | shown(course.env.spec, observations)


_NAMES = {
    "action": "action",
    "policy": "policy",
    "value": "value",
    "network_value": "network_value",
    "prior": "prior",
    "visit_counts": "visits",
    "q_values": "q_value",
    "completed_q": "completed_q",
    "sampled": "sampled",
}
"""Names of findings in `programs.look` and in records."""


def named(found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns findings by their names in records."""
    return {name: found[key] for key, name in _NAMES.items() if key in found}


def shown(spec: types.EnvSpec, observations: np.ndarray) -> dict[str, np.ndarray]:
    """Returns observations [T + 1, ...] as arrays by their names in the file."""
    if not spec.packed:
        return {records.OBSERVATION: observations}
    arrays = packing.unpack(spec.packed, observations)
    return {records.observation_name(spec, name): array for name, array in arrays.items()}
