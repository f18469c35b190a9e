"""Loads newer parameters and new frozen players of a run, from its directory or its learner, for the policy server."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.agents import base
from seedzero.config import league_config
from seedzero.core import errors, json_object
from seedzero.storage.checkpoints import player_files, run_dirs, saved_files, trees
from seedzero.transport import model_pool, security

ALL = "all"
"""Given instead of players' names, selects the first learning player and all frozen ones."""
LOOK_SECONDS = 2.0
_SHARE = 0.1
"""Largest share of the time that looking may take, so large parameters are loaded less often."""
REPORT_SECONDS = 60.0
"""The user gets a message after this time without a successful look."""
STOP_SECONDS = 2.0
"""Longest wait for the end of a look, because a download may take minutes."""
_TRANSIENT = (
    errors.CheckpointError,
    errors.BucketError,
    errors.ProtocolError,
    errors.AccessDenied,
    errors.ResumeError,
)


class FollowedAgents(Protocol):
    """Players of a run, and a way to load newer ones."""

    @property
    def choice(self) -> agent_choice.AgentChoice: ...

    @property
    def players(self) -> Mapping[str, saved_agents.SavedAgent]: ...

    def newer(self, versions: Mapping[str, int]) -> Iterator[tuple[str, saved_agents.SavedAgent]]:
        """Yields players with newer versions than the known ones, and new players if all are served.

        Raises CheckpointError, BucketError, ProtocolError, AccessDenied or ResumeError if a player cannot be read now,
        or is older than the known one, or if another run has taken the place of this one.
        """


def load(
    choice: agent_choice.AgentChoice, names: tuple[str, ...], refresh: Callable[[], None] = lambda: None
) -> ServedAgents:
    """Returns the players of a run.

    names: of players; () means the first learning one. refresh: see `ServedAgents`. Raises as `saved_agents.load`.
    """
    config, spec = saved_agents.read(choice)
    main = (league_config.MAIN,)
    wanted = (*main, *player_files.names(choice.path / "checkpoints")) if names == (ALL,) else names or main
    first = saved_agents.load(dataclasses.replace(choice, player=_player(wanted[0])), config, spec)
    rest = [_player(name) for name in wanted[1:]]
    others = saved_agents.load_players(choice, config, spec, rest) if rest else []
    players = dict(zip(wanted, [first, *(saved._replace(mode=first.mode) for saved in others)], strict=True))
    return ServedAgents(choice, names, players, refresh, run_dirs.read_saved(choice.path).id)


def _player(name: str) -> str | None:
    return None if name == league_config.MAIN else name


@dataclasses.dataclass(frozen=True)
class ServedAgents:
    """`FollowedAgents` of a run directory.

    refresh: fetches newer files into it, for example from a bucket. run_id: of `run_dirs.SavedConfig`.
    """

    choice: agent_choice.AgentChoice
    names: tuple[str, ...]
    players: Mapping[str, saved_agents.SavedAgent]
    refresh: Callable[[], None]
    run_id: str

    def newer(self, versions: Mapping[str, int]) -> Iterator[tuple[str, saved_agents.SavedAgent]]:
        """Yields newer players, see `FollowedAgents`.

        Raises CheckpointError if one cannot be read, for example because it is being deleted, or the newest checkpoint
        is damaged or older than the served one; BucketError if the newer files cannot be fetched, and ResumeError if
        the run was deleted or replaced.
        """
        self.refresh()
        if run_dirs.read_saved(self.choice.path).id != self.run_id:
            raise errors.ResumeError(f"another run is in {self.choice.path} now; start this server again to serve it")
        problems = list[str]()
        directory, one = self.choice.path / "checkpoints", next(iter(self.players.values()))
        last = max(saved_files.finished(directory / saved_files.STEPS), default=-1)
        names = [*versions, *(player_files.names(directory) if self.names == (ALL,) else [])]
        for name in dict.fromkeys(names):
            is_frozen = "-" in name
            if name in versions and (is_frozen or last <= versions[name]):
                if not is_frozen and last < versions[name]:
                    problems.append(f"the newest checkpoint in {directory} is of update {last}")
                continue
            (saved,) = saved_agents.load_players(self.choice, one.config, one.spec, (_player(name),))
            if saved.update > versions.get(name, -1):
                yield name, saved
            else:
                problems += saved_files.newest_verified(directory, "params")[1].values()
        if problems:
            raise errors.CheckpointError("; ".join(dict.fromkeys(problems)))


class Follower:
    """Looks for newer players again and again, on a separate thread."""

    def __init__(
        self,
        agents: FollowedAgents,
        change: Callable[[str, saved_agents.SavedAgent], None],
        report: Callable[[str], None],
        fail: Callable[[str, Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """change: receives a newer player. fail: receives the failed action and its error.

        report: receives each minute why looks fail, and "" once one succeeds again.
        """
        self._agents, self._change, self._report, self._fail, self._clock = agents, change, report, fail, clock
        self._versions = {name: saved.update for name, saved in agents.players.items()}
        self._is_over, self._succeeded_at, self._is_failing = threading.Event(), clock(), False
        # Not a daemon, which could crash when Python exits during a look; `errors.leave` waits for no thread.
        self._thread = threading.Thread(target=self._run, name="follow")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after its present look, without waiting for a long one."""
        self._is_over.set()
        self._thread.join(STOP_SECONDS)

    def look(self) -> float:
        """Loads newer players, leaving failures to the next look; returns the seconds until then."""
        began = self._clock()
        try:
            for name, saved in self._agents.newer(self._versions):
                self._versions[name] = saved.update
                self._change(name, saved)
            self._succeeded_at = began
            if self._is_failing:
                self._is_failing = False
                self._report("")
        except (*_TRANSIENT, OSError) as error:
            if (seconds := self._clock() - self._succeeded_at) >= REPORT_SECONDS:
                self._succeeded_at += seconds  # the next report comes as much later
                self._is_failing, (name, version) = True, next(iter(self._versions.items()))
                text = f"no newer parameters could be read for {seconds:.0f} s: {error}"
                self._report(f"{text}; {name} of update {version} is still served")
        return max(LOOK_SECONDS, (self._clock() - began) * (1 / _SHARE - 1))

    def _run(self) -> None:
        try:
            pause = LOOK_SECONDS
            while not self._is_over.wait(pause):
                pause = self.look()
        except Exception as error:  # otherwise the server would silently keep old parameters
            if not self._is_over.is_set():
                self._fail("following the run", error)


def load_from_learner(
    secured: security.ClientSecurity,
    choice: agent_choice.AgentChoice,
    names: tuple[str, ...],
) -> LearnerAgents:
    """Connects to a learner and returns the players to serve.

    Raises as `model_pool.ask` and `followers.load`.

    Args:
      choice: its path is an empty directory, into which the run's configuration and spec are written.
      names: of players; () means the first learning one.
    """
    offer = model_pool.ask(secured)
    for name, text in ((run_dirs.CONFIG_FILE, offer.config), (run_dirs.SPEC_FILE, offer.spec)):
        (choice.path / name).write_text(text, encoding="utf-8")
    config, spec = saved_agents.read(choice)
    everyone = (*offer.learning, *offer.frozen)
    wanted = everyone if names == (ALL,) else names or everyone[:1]
    if unknown := [name for name in wanted if name not in everyone]:
        raise errors.UsageError(
            f"--player={unknown[0]}: the learner at {secured.address} has {', '.join(everyone)}; give one of them"
        )
    if not wanted:
        raise errors.UsageError(f"the learner at {secured.address} has no players to serve; try again later")
    agent, template = saved_agents.make(choice.path, config, spec)
    blank = saved_agents.SavedAgent(agent, None, 0, "last", config, spec)
    blank = saved_agents.in_mode(blank, choice.policy)
    found = LearnerAgents(choice, names, {}, secured, _identity(offer), blank, template)
    return dataclasses.replace(found, players={name: found.fetch(name) for name in wanted})


@dataclasses.dataclass(frozen=True)
class LearnerAgents:
    """`followers.FollowedAgents` of a learner.

    Attributes:
      identity: what distinguishes the run from another one at this address.
      blank: the agent without parameters.
      template: the shapes of the parameters.
    """

    choice: agent_choice.AgentChoice
    names: tuple[str, ...]
    players: Mapping[str, saved_agents.SavedAgent]
    secured: security.ClientSecurity
    identity: tuple[object, str]
    blank: saved_agents.SavedAgent
    template: base.Params

    def newer(self, versions: Mapping[str, int]) -> Iterator[tuple[str, saved_agents.SavedAgent]]:
        """Yields newer players, see `followers.FollowedAgents`.

        Raises as `fetch`, SpecMismatch if the learner trains another run now, and CheckpointError if it has gone back
        behind a served version.
        """
        offer = model_pool.ask(self.secured)
        if _identity(offer) != self.identity:
            raise errors.SpecMismatch(
                f"the learner at {self.secured.address} trains another run now; start this server again"
            )
        everyone = (*offer.learning, *offer.frozen) if self.names == (ALL,) else ()
        for name in dict.fromkeys((*versions, *everyone)):
            if name not in versions or offer.learning.get(name, -1) > versions[name]:
                yield name, self.fetch(name)
        if behind := [name for name, version in versions.items() if offer.learning.get(name, version) < version]:
            raise errors.CheckpointError(
                f"the learner at {self.secured.address} has {behind[0]} of update {offer.learning[behind[0]]}"
            )

    def fetch(self, name: str) -> saved_agents.SavedAgent:
        """Downloads the newest parameters of a player.

        Raises as `model_pool.fetch`, and CheckpointError if they are damaged or belong to another network.
        """
        version, digest, data = model_pool.fetch(self.secured, name, trees.num_bytes(self.template))
        arrays, begin = list[np.ndarray](), 0
        for leaf in trees.describe(self.template):
            arrays.append(np.ndarray(leaf.shape, jnp.dtype(leaf.dtype), data, begin))
            begin += leaf.num_bytes
        if trees.digest(jax.tree.unflatten(jax.tree.structure(self.template), arrays)) != digest:
            raise errors.CheckpointError(
                f"the parameters of player {name} from {self.secured.address} are damaged, or of another network"
            )
        return self.blank._replace(params=trees.place(arrays, self.template), update=version, player=name)


def _identity(offer: model_pool.PoolOffer) -> tuple[object, str]:
    """Returns the run's id and the text of its spec."""
    return json_object.parse(offer.config).get("id"), offer.spec
