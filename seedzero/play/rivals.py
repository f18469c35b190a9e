"""Plays a saved agent, which looks at every position of a game, also the person's, as in self-play.

This keeps its memory up to date and yields hints. Shape letters: R rows of the game, see `courses`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from seedzero.device import acting
from seedzero.evaluation import acting_policy, codecs, greedy, positions, search_traces
from seedzero.play import courses
from seedzero.recordings import recording


class Finding(NamedTuple):
    """The agent's findings about a position, [R, ...] by name, and its memory after it."""

    found: dict[str, np.ndarray]
    carried: acting.Carried


class Rival:
    """The agent that plays in a course of games.

    Attributes:
      looks: its findings about the positions of this game; the newest one may be missing.
      first_call: number of the agent's call at the game's first position.
    """

    def __init__(self, saved: greedy.SavedAgent, course: courses.Course, seed: int) -> None:
        """seed: for its draws."""
        self._saved, self._course, self._seed = saved, course, seed
        self._decide = recording.decide(saved.agent, saved.spec)
        self._functions = greedy.functions(saved.agent, saved.spec)
        self.looks: list[Finding] = []
        self.first_call = 0
        self._carried: list[acting.Carried] = []  # before each position

    def begin(self) -> None:
        """Forgets the last game, after the course has begun another one."""
        self.first_call += len(self.looks)
        self.looks = []
        self._carried = [acting.initial(self._saved.agent, self._saved.spec, len(self._course.steps[0].reward))]

    def look(self) -> Finding:
        """Returns the findings about the present position, which is looked at only once."""
        if len(self.looks) < len(self._course.steps):
            carried, found = self._decide(self._saved.params, self._carried[-1], self._seen(), *self._draws())
            self.looks.append(Finding({name: np.asarray(values) for name, values in found.items()}, carried))
        return self.looks[-1]

    def follow(self, actions: np.ndarray) -> None:
        """Steps with actions [R], and keeps the memory."""
        is_shown, look = courses.shown(self._course.steps[-1]), self.look()
        self._course.step(actions)
        self._carried.append(greedy.chosen(is_shown, look.carried, self._carried[-1]))

    def go_back(self, number: int) -> None:
        """Returns to an earlier position, by its number."""
        self._course.go_back(number)
        del self._carried[number + 1 :], self.looks[number + 1 :]

    def think(self, seat: int, names: dict[int, str]) -> search_traces.Thought:
        """Returns the thought about the position of a seat that moves; names: of its legal actions.

        Raises UsageError if the agent learns only values.
        """
        saved, course = self._saved, self._course
        row, place = course.row(seat), None
        carried, seen = (jax.tree.map(lambda x: x[row : row + 1], x) for x in (self._carried[-1], self._seen()))
        if saved.config.env.id.startswith("spiel:") and not course.has_rows and not saved.spec.has_chance:
            taken = [int(actions[0]) for actions in course.actions]
            place = positions.of_moves(saved.config.env.id, taken, course.steps[-1].observation[0])
        codec = codecs.of(saved.spec)
        thought = acting_policy.think(saved, self._functions, codec, carried, seen, self._draws(), place)
        return thought if thought.root is not None else search_traces.renamed(thought, names)

    def _seen(self) -> Any:
        saved, step, first = self._saved, self._course.steps[-1], self._course.first(len(self._course.actions))
        arrays = (saved.spec, step.observation, step.reward, first, step.action_mask)
        return greedy.seen(*arrays, action_mode=saved.mode, task=step.tasks)

    def _draws(self) -> tuple[int, int]:
        """Returns the seed, and the number of the agent's call, which differs for each position of a session."""
        return self._seed, self.first_call + len(self._course.actions)
