"""A game of perfect information in JAX with Pgx's interface: a pile, of which the players take one to three in turn.

Who takes the last one wins. A pile of a multiple of 4 is lost for the player to move; of others, to leave such a pile
wins. Perfect play is known, so a search by the rules can be judged.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

LARGEST = 9


@struct.dataclass
class State:
    """One game; `scale` and `flags` are there for the dtypes of their bytes."""

    current_player: jax.Array
    observation: jax.Array
    rewards: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    legal_action_mask: jax.Array
    pile: jax.Array
    scale: jax.Array
    flags: jax.Array


class Nim:
    """The rules. takes_again: whoever takes three moves again. prize: of a win."""

    num_players, num_actions, perfect_information = 2, 3, True

    def __init__(self, *, takes_again: bool = False, prize: float = 1.0) -> None:
        self._takes_again, self._prize = takes_again, prize

    def init(self, key: jax.Array) -> State:
        pile_key, player_key = jax.random.split(key)
        pile = jax.random.randint(pile_key, (), LARGEST - 2, LARGEST + 1)
        state = State(
            current_player=jax.random.randint(player_key, (), 0, 2),
            observation=jnp.zeros(LARGEST + 1, bool),
            rewards=jnp.zeros(2),
            terminated=jnp.array(False),
            truncated=jnp.array(False),
            legal_action_mask=jnp.ones(3, bool),
            pile=pile,
            scale=jnp.float32(0.5),
            flags=jnp.array([3, -2], jnp.int8),
        )
        return state.replace(observation=self.observe(state))

    def step(self, state: State, action: jax.Array, key: Any = None) -> State:
        is_over = state.terminated
        pile = jnp.where(is_over, state.pile, jnp.maximum(state.pile - 1 - action, 0))
        has_won = (pile == 0) & ~is_over
        reward = jnp.where(has_won, self._prize, 0.0)
        rewards = jnp.array([-reward, -reward]).at[state.current_player].set(reward)
        again = self._moves_again(action, key)
        after = state.replace(
            current_player=jnp.where(again, state.current_player, 1 - state.current_player),
            rewards=rewards,
            terminated=pile == 0,
            legal_action_mask=(jnp.arange(3) < pile) | (pile == 0),
            pile=pile,
        )
        return after.replace(observation=self.observe(after))

    def observe(self, state: State) -> jax.Array:
        return jnp.arange(LARGEST + 1) == state.pile

    def _moves_again(self, action: jax.Array, key: Any) -> jax.Array:
        return (action == 2) & self._takes_again


class Hidden(Nim):
    """Does not say that its players see everything."""

    perfect_information = False


class Lucky(Nim):
    """After each move a coin decides who moves next."""

    has_chance = True

    def _moves_again(self, action: jax.Array, key: Any) -> jax.Array:
        return jax.random.bernoulli(key)


LUCKY = Lucky()
NIM, AGAIN, HIDDEN, HALF = Nim(), Nim(takes_again=True), Hidden(), Nim(prize=0.5)


class Dice:
    """One player, one choice: 0 pays 0.6; the others pay 1 or nothing by these chances; all end the game."""

    num_players, perfect_information, has_chance = 1, True, True

    def __init__(self, *chances: float) -> None:
        self._chances, self.num_actions = (1.0, *chances), 1 + len(chances)

    def init(self, key: jax.Array) -> State:
        no = jnp.array(False)
        none = jnp.zeros((), jnp.int32)
        legal = jnp.ones(self.num_actions, bool)
        state = State(none, jnp.ones(1, bool), jnp.zeros(1), no, no, legal, none, jnp.float32(0), no)
        return state.replace(observation=self.observe(state))

    def step(self, state: State, action: jax.Array, key: jax.Array) -> State:
        has_won = jax.random.uniform(key) < jnp.array(self._chances)[action]
        reward = jnp.where(state.terminated, 0.0, jnp.where(has_won, jnp.where(action == 0, 0.6, 1.0), 0.0))
        return state.replace(rewards=reward[None], terminated=jnp.array(True))

    def observe(self, state: State) -> jax.Array:
        return jnp.ones(1, bool)


DICE, GAMBLE = Dice(0.3, 0.8), Dice(0.1)


class Turns(Nim):
    """Whoever takes three moves again, and a coin between the turns adds one to the pile, or none."""

    has_chance = has_chance_between_turns = True

    def __init__(self) -> None:
        super().__init__(takes_again=True)

    def step(self, state: State, action: jax.Array, key: Any = None) -> State:
        after = super().step(state, action)
        has_passed = (after.current_player != state.current_player) & ~after.terminated
        after = after.replace(pile=after.pile + (has_passed & jax.random.bernoulli(key)))
        return after.replace(observation=self.observe(after), legal_action_mask=jnp.arange(3) < after.pile)


TURNS = Turns()


class Plain(Nim):
    """Has the interface of a game without chance, whose step takes no key."""

    def step(self, state: State, action: jax.Array) -> State:  # type: ignore[override]
        return super().step(state, action)


PLAIN = Plain()


class Paid(Nim):
    """Four moves without a choice, each of which pays its mover 1 that the other player loses."""

    def init(self, key: jax.Array) -> State:
        state = super().init(key).replace(current_player=jnp.int32(0), pile=jnp.int32(4))
        return state.replace(observation=self.observe(state), legal_action_mask=jnp.arange(3) < 1)

    def step(self, state: State, action: jax.Array, key: Any = None) -> State:
        pay = jnp.where(state.terminated, 0.0, 1.0)
        after = super().step(state, action)
        paid = jnp.full(2, -pay).at[state.current_player].set(pay)
        return after.replace(rewards=paid, legal_action_mask=jnp.arange(3) < 1)


PAID = Paid()


class Cut(Nim):
    """Stops after the first move, without a result."""

    def step(self, state: State, action: jax.Array, key: Any = None) -> State:
        return super().step(state, action).replace(terminated=jnp.array(False), truncated=jnp.array(True))


CUT = Cut()
