"""Lets a person play games against a saved agent, which has all other seats."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.actors import agent_choice, saved_agents, search_traces
from seedzero.config import seats_config
from seedzero.core import errors, opponents, types
from seedzero.envs import env_base
from seedzero.tables import courses, faces, human_records, recording, rivals, run_games, table

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
        config = run_games.read_config(choice, _REMOTE)
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
            self._face = faces.of(config.env.id, self._env)
        self._choice, self._course = choice, courses.Course(self._env)
        self._rival = rivals.Rival(self.saved, self._course, choice.seed)
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
        path = human_records.write(directory, {**header, **facts}, arrays)
        self.records.append(str(path))
        return path

    def _go_on(self, mine: int | None) -> None:
        """Plays until the person has the turn or the game is over. mine: the person's action; None without a turn."""
        course = self._course
        while mine is not None or not (self.is_over or self.seat in course.movers(len(course.actions))):
            actions = self._rival.look().found["action"].copy()
            if mine is not None:
                actions[course.row(self.seat)] = mine
            if self.has_undo:
                mover = course.movers(len(course.actions))[0]
                self.names.append(self._face.move(mover, int(actions[course.row(mover)])))
            course.take(actions)
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
