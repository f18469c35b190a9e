"""Loads newer parameters and new frozen players of a run in training, for the policy server."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from seedzero.checkpoints import player_files, saved_files
from seedzero.config import league_config
from seedzero.core import errors
from seedzero.evaluation import agent_choice, greedy

ALL = "all"
"""Given instead of players' names, selects the first learning player and all frozen ones."""
LOOK_SECONDS = 2.0
_SHARE = 0.1
"""Largest share of the time that looking may take, so large parameters are loaded less often."""
REPORT_SECONDS = 60.0
"""The user gets a message after this time without a successful look."""
_TRANSIENT = (errors.CheckpointError, errors.BucketError, errors.ProtocolError, errors.AccessDenied)


class FollowedAgents(Protocol):
    """Players of a run, and a way to load newer ones."""

    @property
    def choice(self) -> agent_choice.AgentChoice: ...

    @property
    def players(self) -> Mapping[str, greedy.SavedAgent]: ...

    def newer(self, versions: Mapping[str, int]) -> Iterator[tuple[str, greedy.SavedAgent]]:
        """Yields players with newer versions than the known ones, and new players if all are served.

        Raises CheckpointError, BucketError, ProtocolError or AccessDenied if a player cannot be read now.
        """


def load(
    choice: agent_choice.AgentChoice, names: tuple[str, ...], refresh: Callable[[], None] = lambda: None
) -> ServedAgents:
    """Returns the players of a run.

    names: of players; () means the first learning one. refresh: see `ServedAgents`. Raises as `greedy.load`.
    """
    config, spec = greedy.read(choice)
    main = (league_config.MAIN,)
    wanted = (*main, *player_files.names(choice.path / "checkpoints")) if names == (ALL,) else names or main
    first = greedy.load(dataclasses.replace(choice, player=_player(wanted[0])), config, spec)
    rest = [_player(name) for name in wanted[1:]]
    others = greedy.load_players(choice, config, spec, rest) if rest else []
    players = dict(zip(wanted, [first, *(saved._replace(mode=first.mode) for saved in others)], strict=True))
    return ServedAgents(choice, names, players, refresh)


def _player(name: str) -> str | None:
    return None if name == league_config.MAIN else name


@dataclasses.dataclass(frozen=True)
class ServedAgents:
    """`FollowedAgents` of a run directory. refresh: fetches newer files into it, for example from a bucket."""

    choice: agent_choice.AgentChoice
    names: tuple[str, ...]
    players: Mapping[str, greedy.SavedAgent]
    refresh: Callable[[], None]

    def newer(self, versions: Mapping[str, int]) -> Iterator[tuple[str, greedy.SavedAgent]]:
        """Yields newer players, see `FollowedAgents`.

        Raises CheckpointError if one cannot be read, for example because it is being deleted, and BucketError if the
        newer files cannot be fetched.
        """
        self.refresh()
        directory, one = self.choice.path / "checkpoints", next(iter(self.players.values()))
        last = max(saved_files.finished(directory / saved_files.STEPS), default=-1)
        names = [*versions, *(player_files.names(directory) if self.names == (ALL,) else [])]
        for name in dict.fromkeys(names):
            is_frozen = "-" in name
            if name in versions and (is_frozen or last <= versions[name]):
                continue
            (saved,) = greedy.load_players(self.choice, one.config, one.spec, (_player(name),))
            if saved.update > versions.get(name, -1):
                yield name, saved


class Follower:
    """Looks for newer players again and again, on a separate thread."""

    def __init__(
        self,
        agents: FollowedAgents,
        change: Callable[[str, greedy.SavedAgent], None],
        say: Callable[[str], None],
        fail: Callable[[str, Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """change: receives a newer player. say: shows the user a message.

        fail: receives the failed action and its error.
        """
        self._agents, self._change, self._say, self._fail, self._clock = agents, change, say, fail, clock
        self._versions = {name: saved.update for name, saved in agents.players.items()}
        self._is_over, self._succeeded_at = threading.Event(), clock()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after its present look."""
        self._is_over.set()
        self._thread.join()

    def look(self) -> float:
        """Loads newer players, leaving failures to the next look; returns the seconds until then."""
        began = self._clock()
        try:
            for name, saved in self._agents.newer(self._versions):
                self._versions[name] = saved.update
                self._change(name, saved)
            self._succeeded_at = began
        except (*_TRANSIENT, OSError) as error:
            if (seconds := self._clock() - self._succeeded_at) >= REPORT_SECONDS:
                self._succeeded_at += seconds  # the next report comes as much later
                self._say(f"no newer parameters could be read for {seconds:.0f} s: {error}")
        return max(LOOK_SECONDS, (self._clock() - began) * (1 / _SHARE - 1))

    def _run(self) -> None:
        try:
            pause = LOOK_SECONDS
            while not self._is_over.wait(pause):
                pause = self.look()
        except Exception as error:  # otherwise the server would silently keep old parameters
            self._fail("following the run", error)
