"""Lets a person play games against a saved agent, which has all other seats."""

from __future__ import annotations

import collections
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from seedzero.acting.actors import (
    acting_policy,
    acting_program,
    agent_choice,
    codecs,
    positions,
    saved_actors,
    saved_agents,
    search_traces,
)
from seedzero.acting.tables import recording, records, table
from seedzero.config import seats_config
from seedzero.core import errors, opponents, packing, types
from seedzero.envs import env_base, pgx_games, spiel


# Plays a saved agent, which looks at every position of a game, also the person's, as in self-play.
class Finding(NamedTuple):
    """The agent's findings about a position, [R, ...] by their names in records, and its memory after it."""

    found: dict[str, np.ndarray]
    memory: Any


class Rival:
    """The agent that plays in a course of games.

    Attributes:
      looks: its findings about the positions of this game; the newest one may be missing.
      first_call: number of the agent's call at the game's first position.
    """

    def __init__(self, saved: saved_agents.SavedAgent, course: recording.Course, seed: int) -> None:
        """seed: for its draws."""
        self._saved, self._course, self._seed = saved, course, seed
        self._program = acting_program.ActingProgram(saved.agent, saved.spec)
        self._actor = saved_actors.SavedActor(saved, course.env.num_envs, seed)
        self._blank = self._actor.memory
        self.looks: list[Finding] = []
        self.first_call = 0

    def begin(self) -> None:
        """Forgets the last game, after the course has begun another one."""
        self.first_call += len(self.looks)
        self.looks = []

    def look(self) -> Finding:
        """Returns the findings about the present position, which is looked at only once."""
        if len(self.looks) < len(self._course.steps):
            self._actor.memory, self._actor.num_calls = self._memory(), self._draws()[1]
            found = self._actor.look(self._course.step, self._course.first)
            self.looks.append(Finding(recording.named(found), self._actor.memory))
        return self.looks[-1]

    def go_back(self, number: int) -> None:
        """Returns to an earlier position, by its number."""
        self._course.go_back(number)
        del self.looks[number + 1 :]

    def think(self, seat: int, names: dict[int, str]) -> search_traces.Thought:
        """Returns the thought about the position of a seat that moves; names: of its legal actions.

        Raises UsageError if the agent learns only values.
        """
        saved, course = self._saved, self._course
        row, place = course.row(seat), None
        step, first = course.step.those(np.arange(row, row + 1)), course.first[row : row + 1]
        seen = acting_program.seen(saved.spec, step, first, saved.mode, saved.update)
        if saved.config.env.id.startswith("spiel:") and not course.has_rows and not saved.spec.has_chance:
            taken = [int(actions[0]) for actions in course.actions]
            place = positions.of_moves(saved.config.env.id, saved.spec, taken, course.step.observation[0])
        rows = self._memory(), seen, self._draws(), place
        thought = acting_policy.think(saved, self._program, codecs.of(saved.spec), *rows, slot=row)
        return thought if thought.root is not None else search_traces.renamed(thought, names)

    def _memory(self) -> Any:
        """Returns the memory before the present position."""
        number = len(self._course.actions)
        return self.looks[number - 1].memory if number else self._blank

    def _draws(self) -> tuple[int, int]:
        """Returns the seed, and the number of the agent's call, which differs for each position of a session."""
        return self._seed, self.first_call + len(self._course.actions)


# Writes a person's games into records.
def write_record(
    directory: pathlib.Path, header: Mapping[str, Any], content: Mapping[str, np.ndarray]
) -> pathlib.Path:
    """Writes a record as `human-N.npz` with the first free number N; returns the path.

    Several processes may record into the directory at once. Raises UsageError if it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path = next(filter(_takes, (directory / f"human-{number}.npz" for number in itertools.count(1))))
        try:
            records.write(path, header, content)
        except OSError:
            path.unlink()
            raise
    except OSError as error:
        raise errors.UsageError(f"{directory} cannot be written: {error.strerror}; the game is not recorded") from None
    return path


def _takes(path: pathlib.Path) -> bool:
    """Makes an empty file, and returns whether nobody else has taken its name. Raises OSError."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


# Describes the positions and actions of a game in words, as a seat may see them.
class Face(Protocol):
    """Shows a game to one seat.

    has_undo: whether a player may take moves back: nothing is hidden, and one player moves at a time.
    """

    has_undo: bool

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        """Returns the position as a seat may see it; the observation is in this row of the step."""

    def move(self, seat: int, action: int) -> str:
        """Returns the game's name for an action that the seat may take now."""


def face_of(env_id: str, env: Any) -> Face:
    """Returns the face of a group of one game. env: made by `registry.make` and reset."""
    kind, _, name = env_id.partition(":")
    if kind == "spiel":
        return SpielFace(name, env)
    if kind == "pgx" and (board := pgx_games.board(name, env.spec.arrays[0].shape)) is not None:
        return BoardFace(board, env.spec)
    return ArraysFace(env.spec, has_undo=kind == "pgx")


class SpielFace:
    """Uses OpenSpiel's own descriptions: of the whole state if nothing is hidden, otherwise of what the seat knows."""

    def __init__(self, name: str, env: Any) -> None:
        self._env = env
        kind = spiel.load(name).get_type()
        is_open = kind.information == kind.Information.PERFECT_INFORMATION
        self.has_undo = is_open and kind.dynamics == kind.Dynamics.SEQUENTIAL
        self._knows = kind.provides_information_state_string

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        state = self._env.states[0]
        if self.has_undo:
            return str(state)
        return str(state.information_state_string(seat) if self._knows else state.observation_string(seat))

    def move(self, seat: int, action: int) -> str:
        """Returns OpenSpiel's name of the action, or "wait" if the seat has no choice."""
        state = self._env.states[0]
        player = state.current_player() if self.has_undo else seat
        return str(state.action_to_string(player, action)) if state.legal_actions(player) else "wait"


class BoardFace:
    """Draws a board of Pgx from the observation of the side to move."""

    has_undo = True

    def __init__(self, board: pgx_games.PgxBoard, spec: types.EnvSpec) -> None:
        self._board, self._spec = board, spec

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        return self._board.text(_arrays(self._spec, step.observation[row])[self._spec.arrays[0].name], seat)

    def move(self, seat: int, action: int) -> str:
        return self._board.move(action)


class ArraysFace:
    """Lists the numbers that a seat observes, under the names of their arrays; actions are shown as numbers."""

    def __init__(self, spec: types.EnvSpec, *, has_undo: bool) -> None:
        self._spec, self.has_undo = spec, has_undo

    def text(self, seat: int, step: types.EnvStep, row: int) -> str:
        hidden = {array.name for array in self._spec.arrays if array.acting_only}
        shown = _arrays(self._spec, step.observation[row]).items()
        return "\n".join(f"{name}: {pgx_games.numbers(array)}" for name, array in shown if name not in hidden)

    def move(self, seat: int, action: int) -> str:
        return str(action)


def _arrays(spec: types.EnvSpec, observation: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the arrays of one observation by name."""
    if not spec.packed:
        return {spec.arrays[0].name: observation}
    return {name: array[0] for name, array in packing.unpack(spec.packed, observation[np.newaxis]).items()}


_REMOTE = "a person can play only where this machine makes the environment"
RESIGNED, LEFT = "resigned", "left"
"""How a game may end before it is over."""
WON, DRAWN, LOST = 1, 0, -1
_OVER = "the game is over; begin a new one"


class Move(NamedTuple):
    """An action that the person may take."""

    action: int
    name: str


class HumanTable:
    """Games between a person and a saved agent, one at a time. For one thread.

    Attributes:
      seats: names of the seats.
      seat: the person's index in `seats`.
      ended: RESIGNED or LEFT; "" if the game continues or is over.
      names: of all moves of this game; empty if something is hidden, or moves are simultaneous.
      saved: the agent.
      records: files of recorded games.
    """

    def __init__(self, choice: agent_choice.AgentChoice, seat: str | None = None) -> None:
        """Loads the agent and begins a game.

        Args:
          choice: of the agent; its seed determines chance and draws.
          seat: name, or number from 1, of the person's seat; None means the first one.

        Raises UsageError for an environment with one seat, with continuous actions, or made by workers, for an unknown
        seat, and for simulations of an agent without a search. Raises as `saved_agents.load`, too.
        """
        config = table.read_config(choice, _REMOTE)
        spec = saved_agents.read(choice)[1]
        self.seats = _seats_of(choice, spec)
        if policies := seats_config.policies(config, spec.seats):
            raise errors.UsageError(
                f"--human: the seats of {choice.path} have the policies {', '.join(dict.fromkeys(policies))}, and one "
                "agent has all seats but yours; give a run of one policy"
            )
        first_seat = _place_of(seat, self.seats)
        num_rows = len(spec.seats) or 1
        with env_base.closed_on_error() as made:
            self._env = table.made(config, num_rows, types.Role.TRAIN)
            made.append(self._env)
            self._env.reset([0] * num_rows)  # completes the spec
            self.saved = saved_agents.load(choice, config, self._env.spec)
            self._face = face_of(config.env.id, self._env)
        self._choice, self._course = choice, recording.Course(self._env)
        self._rival = Rival(self.saved, self._course, choice.seed)
        self._tally, self._num_games = collections.Counter[int](), 0
        self.records: list[str] = []
        self.begin(first_seat)

    def close(self) -> None:
        self._env.close()

    # --- the person's part ---

    def begin(self, seat: int) -> None:
        """Begins another game, with the person in this seat."""
        self.seat, self.ended, self.names = seat, "", list[str]()
        self._course.begin(saved_agents.seeds(self._choice.seed + self._num_games, self._env.num_envs))
        self._rival.begin()
        self._num_games += 1
        self._go_on(None)

    def play(self, action: int) -> None:
        """Makes the person's move, and the agent's moves until the person's next turn.

        Raises UsageError if it is illegal.
        """
        if action not in [move.action for move in self.moves()]:
            raise errors.UsageError(f"move {action} is not legal now; expected one of the list")
        self._go_on(action)

    def undo(self) -> None:
        """Takes back the person's last move and all moves since.

        Raises UsageError if there is none, or it is not allowed.
        """
        if not self.has_undo:
            raise errors.UsageError("moves stay where something is hidden or moves are simultaneous; play on")
        mine = [number for number in range(len(self.names)) if self.seat in self._course.movers(number)]
        if not mine:
            raise errors.UsageError("you have made no move that could be taken back")
        if (outcome := self.result()[0]) is not None:
            self._tally[outcome] -= 1
        self.ended = ""
        self._rival.go_back(mine[-1])
        del self.names[mine[-1] :]

    def end(self, how: str) -> None:
        """Ends an unfinished game: RESIGNED means that it is lost, LEFT that it does not count."""
        if not self.is_over:
            self.ended = how
            self._tally[LOST] += how == RESIGNED

    def moves(self) -> list[Move]:
        """Returns the person's legal moves; none if the game is over."""
        if self.is_over:
            return []
        mask = self._course.steps[-1].action_mask
        is_legal = np.ones(self.saved.spec.num_actions, bool) if mask is None else mask[self._course.row(self.seat)]
        return [Move(action, self._face.move(self.seat, action)) for action in np.flatnonzero(is_legal).tolist()]

    # --- looks ---

    @property
    def is_over(self) -> bool:
        """Whether the person makes no more moves in this game."""
        return bool(self.ended) or self._course.is_over(self.seat)

    @property
    def has_undo(self) -> bool:
        """Whether moves may be taken back."""
        return self._face.has_undo

    def text(self) -> str:
        """Returns the newest position that the person may see."""
        course = self._course
        number = max(course.seen(self.seat), default=0)
        return self._face.text(course.viewer(self.seat, number), course.steps[number], course.row(self.seat))

    def result(self) -> tuple[int | None, float]:
        """Returns the outcome, and the return so far.

        The outcome is None while the game continues, if it was left, or if it has more than two seats.
        """
        total = self._course.total(self.seat)
        if self.ended == RESIGNED:
            return LOST, total
        if not self.is_over or self.ended or len(self.seats) != 2:
            return None, total
        other = self._course.total(1 - self.seat)
        return (total > other) - (total < other), total

    def to_json(self) -> dict[str, Any]:
        """Returns the agent, the tally of finished games, and the files of all records."""
        names = {"wins": WON, "draws": DRAWN, "losses": LOST}
        tally = {name: self._tally[outcome] for name, outcome in names.items()}
        return {**self.saved.to_json(), **tally, "records": self.records}

    def hint(self) -> Move:
        """Returns the move that the agent would make for the person. Raises UsageError if the game is over."""
        if self.is_over:
            raise errors.UsageError(_OVER)
        action = int(self._rival.look().found["action"][self._course.row(self.seat)])
        return Move(action, self._face.move(self.seat, action))

    def think(self) -> search_traces.Thought:
        """Returns the agent's thought about the person's position.

        Raises UsageError without a turn, or for an agent that cannot think.
        """
        if self.is_over:
            raise errors.UsageError(_OVER)
        return self._rival.think(self.seat, dict(self.moves()))

    def finish(self, directory: pathlib.Path) -> pathlib.Path | None:
        """Ends the game and writes it as `human-N.npz` with the first free number N.

        Returns the path, or None if no move was made.

        Raises UsageError if it cannot be written.
        """
        self.end(LEFT)
        course, looks = self._course, [look.found for look in self._rival.looks]
        if len(course.seen(self.seat)) < 2:
            return None
        sides = [course.movers(number)[0] for number in range(len(course.actions))] if not course.has_rows else []
        arrays = recording.arrays(course, self.seat, looks, sides)
        facts = {
            "episode": self._num_games - 1,
            "first_call": self._rival.first_call,
            "human": self.seats[self.seat],
            "ended": self.ended,
            "return": course.total(self.seat if course.has_rows else 0),
            "cut_off": bool(self.ended),
            "task": self.seats[self.seat] if course.has_rows else "",
        }
        if self.has_undo and not course.has_rows:
            arrays["move"] = np.array(self.names)
        header = recording.header(self._choice, self.saved, self.saved.config)
        path = write_record(directory, {**header, **facts}, arrays)
        self.records.append(str(path))
        return path

    def _go_on(self, mine: int | None) -> None:
        """Plays until the person has the turn or the game is over. mine: the person's action; None without a turn."""
        course = self._course
        while mine is not None or not (self.is_over or self.seat in course.movers(len(course.actions))):
            actions = self._rival.look().found["action"].copy()
            if mine is not None:
                actions[course.row(self.seat)] = mine
            movers = course.movers(len(course.actions))[:1] if self.has_undo else []
            names = [self._face.move(mover, int(actions[course.row(mover)])) for mover in movers]
            course.take(actions)  # which Ctrl-C may cut off
            self.names += names
            mine = None
        if (outcome := self.result()[0]) is not None:
            self._tally[outcome] += 1


def _seats_of(choice: agent_choice.AgentChoice, spec: types.EnvSpec) -> tuple[str, ...]:
    """Returns the names of a game's seats. Raises UsageError if a person cannot play it."""
    seats = spec.seats or (opponents.SIDES if spec.num_players == 2 else ())
    if not seats:
        raise errors.UsageError(
            f"--human: {choice.path} was trained in an environment of one seat; give a run of a game of two or more"
        )
    if spec.is_continuous:
        raise errors.UsageError(f"--human: actions of {choice.path} are continuous, which nobody types; omit --human")
    return seats


def _place_of(seat: str | None, seats: Sequence[str]) -> int:
    """Returns the index of a seat, given its name or its number from 1; None means the first one."""
    numbers = {str(number): number - 1 for number in range(1, len(seats) + 1)}
    numbers |= {name: number for number, name in enumerate(seats)}
    if seat is None:
        return 0
    if seat not in numbers:
        raise errors.UsageError(f"--human={seat}: expected one of the seats {', '.join(seats)}, or its number")
    return numbers[seat]
