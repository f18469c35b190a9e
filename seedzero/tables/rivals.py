"""Plays a saved agent, which looks at every position of a game, also the person's, as in self-play.

This keeps its memory up to date and yields hints. Shape letters: R rows of the game, see `courses`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from seedzero.actors import acting_policy, acting_program, codecs, positions, saved_actors, saved_agents, search_traces
from seedzero.tables import courses, recording


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

    def __init__(self, saved: saved_agents.SavedAgent, course: courses.Course, seed: int) -> None:
        """seed: for its draws."""
        self._saved, self._course, self._seed = saved, course, seed
        self._program = acting_program.ActingProgram(saved.agent, saved.spec)
        self.looks: list[Finding] = []
        self.first_call = 0

    def begin(self) -> None:
        """Forgets the last game, after the course has begun another one."""
        self.first_call += len(self.looks)
        self.looks = []
        num_rows = len(self._course.steps[0].reward)
        self._actor = saved_actors.SavedActor(self._saved, num_rows, self._seed)
        self._blank = self._actor.memory

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
            place = positions.of_moves(saved.config.env.id, taken, course.step.observation[0])
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
