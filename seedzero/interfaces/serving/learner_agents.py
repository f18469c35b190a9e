"""Downloads players from a learner that is training on another machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.acting.actors import agent_choice, saved_agents
from seedzero.agents import base
from seedzero.core import errors, json_object
from seedzero.interfaces.serving import followers
from seedzero.storage.checkpoints import run_dirs, trees
from seedzero.transport import model_pool, security


def load(
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
    wanted = everyone if names == (followers.ALL,) else names or everyone[:1]
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
        everyone = (*offer.learning, *offer.frozen) if self.names == (followers.ALL,) else ()
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
