"""The rules of Pgx's games, which are JAX functions: workers step games, and a search on the learner may follow them.

Such workers need JAX, but only on the CPU; no other module of a worker imports it. Supported are games of perfect
information for one player, or for two in turn with zero-sum returns. Shape letters: E environments of one group, A
actions, H height, W width.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from seedzero.core import errors, packages, types, user_code
from seedzero.envs import env_base, pgx_ids

State: TypeAlias = Any
"""pgx.State: a pytree of arrays, or of arrays [E, ...] for several games."""

_CHANCE = ("2048", "backgammon", "minatar")
_HIDDEN = {
    "bridge_bidding": "",
    "kuhn_poker": "; PPO and V-trace learn it as spiel:kuhn_poker",
    "leduc_holdem": "; PPO and V-trace learn it as spiel:leduc_poker",
    "sparrow_mahjong": "",
}
"""Games that hide cards, and what to do instead."""
_REMADE = ("observation", "legal_action_mask")
"""Fields of a state left out of its bytes, because acting has them anyway, as observation and mask."""

_TRIAL_GAMES = 64


class StateArray(NamedTuple):
    """An array of a state, as part of its bytes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class GameRules:
    """The rules of a game as pure functions of single states, for `jax.vmap`."""

    def __init__(self, name: str) -> None:
        """Makes a game: GAME or GAME(size=5) of Pgx, or a user's MODULE:OBJECT with Pgx's interface.

        Raises EnvironmentFailure if Pgx is missing, or the game is unknown or unsupported.
        """
        self.name = name
        self.is_users = bool(pgx_ids.module(name))
        """Whether the rules are a user's own object, which may cut games off; Pgx's own games never do."""
        self.env = _load(name)
        key = jax.random.key(0)
        with env_base.failures_of(f"game {name!r} cannot be started"), on_cpu():
            self._example = jax.eval_shape(self.env.init, key)
            self.num_players, self.num_actions = int(self.env.num_players), int(self.env.num_actions)
        leaves, self._structure = jax.tree_util.tree_flatten_with_path(self._example)
        self._is_remade = [_field(path) in _REMADE for path, _ in leaves]
        self.leaves = tuple(
            StateArray(tuple(leaf.shape), np.dtype(leaf.dtype))
            for (_, leaf), remade in zip(leaves, self._is_remade, strict=True)
            if not remade
        )
        """The arrays in a state's bytes, in order."""
        if self.num_players > 2:
            raise errors.EnvironmentFailure(f"game {name!r} has {self.num_players} players; supported are 1 and 2")

    @property
    def state_name(self) -> str:
        """The name of the array with a game's state as bytes; it depends on the layout of the state."""
        paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(self._example)]
        layout = repr((paths, [(leaf.shape, leaf.dtype.str) for leaf in self.leaves]))
        return f"state {hashlib.sha256(layout.encode()).hexdigest()[:8]}"

    @property
    def num_bytes(self) -> int:
        """Number of bytes in a state."""
        return sum(leaf.num_bytes for leaf in self.leaves)

    @property
    def observation(self) -> types.ArraySpec:
        """The observation of the player to move."""
        seen = self._example.observation
        is_binary = seen.dtype == jnp.bool_
        dtype = "uint8" if is_binary else "int32" if jnp.issubdtype(seen.dtype, jnp.integer) else "float32"
        bounds = (0.0, 1.0) if is_binary else (-math.inf, math.inf)
        shape = (*seen.shape[:-1], seen.shape[-1] + self.moves_again)
        return types.ArraySpec(types.OBSERVATION, shape, dtype, *bounds)

    def spec(self, *, has_state: bool) -> types.EnvSpec:
        """Returns the interface of the game's environments; has_state: with the state next to the observation."""
        players: dict[str, Any] = dict(
            num_actions=self.num_actions,
            num_players=self.num_players,
            has_action_mask=True,
            moves_again=self.moves_again,
            has_chance=self.moves_again,
        )
        seen = self.observation
        if has_state:
            state = types.ArraySpec(self.state_name, (self.num_bytes,), "uint8", 0, 255, acting_only=True)
            return types.EnvSpec.of_arrays((seen, state), **players)
        return types.EnvSpec(seen.shape, seen.dtype, observation_low=seen.low, observation_high=seen.high, **players)

    def encode(self, states: State) -> np.ndarray:
        """Returns the bytes [E, N] uint8 of states [E]."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(states)]
        kept = [leaf for leaf, remade in zip(leaves, self._is_remade, strict=True) if not remade]
        rows = [np.ascontiguousarray(leaf).reshape(len(leaf), -1) for leaf in kept]
        return np.concatenate([row.view(np.uint8) for row in rows if row.size], axis=1)

    def decode(self, states: jax.Array, mask: jax.Array) -> State:
        """Returns the states [E] from bytes [E, N] uint8 and masks [E, A], with observations of 0."""
        start, found, others = 0, [], {"legal_action_mask": mask.astype(bool)}
        leaves = iter(self.leaves)
        for path, like in jax.tree_util.tree_leaves_with_path(self._example):
            if (field := _field(path)) in _REMADE:
                found.append(others.get(field, jnp.zeros((states.shape[0], *like.shape), like.dtype)))
                continue
            leaf = next(leaves)
            part = states[:, start : start + leaf.num_bytes]
            start += leaf.num_bytes
            found.append(_from_bytes(part, leaf).reshape(states.shape[0], *leaf.shape))
        return jax.tree.unflatten(self._structure, found)

    @property
    def has_chance(self) -> bool:
        """Whether the game has chance; a user's object declares it by an attribute of this name."""
        of_pgx = not self.is_users and self.name.startswith(_CHANCE)
        return of_pgx or bool(getattr(self.env, "has_chance", False))

    @property
    def has_chance_between_turns(self) -> bool:
        """Whether chance plays a part only where the turn passes, as dice do; a user's object may declare it, too."""
        of_pgx = not self.is_users and self.name.startswith("backgammon")
        return of_pgx or bool(getattr(self.env, "has_chance_between_turns", False))

    @property
    def moves_again(self) -> bool:
        """Whether one of two players may move several times in a row, as in games with chance.

        If so, the last number or plane of observations is the mover.
        """
        return self.has_chance and self.num_players == 2

    def without_shown(self, states: State) -> tuple[jax.Array, ...]:
        """Returns the arrays [E, ...] of states, without the observations."""
        leaves = jax.tree_util.tree_leaves_with_path(states)
        return tuple(leaf for path, leaf in leaves if _field(path) != types.OBSERVATION)

    def with_nothing_shown(self, arrays: Sequence[jax.Array]) -> State:
        """Rebuilds states [E] from what `without_shown` returned, with observations of 0."""
        rest, found = iter(arrays), []
        for path, like in jax.tree_util.tree_leaves_with_path(self._example):
            is_shown = _field(path) == types.OBSERVATION
            found.append(jnp.zeros((arrays[0].shape[0], *like.shape), like.dtype) if is_shown else next(rest))
        return jax.tree.unflatten(self._structure, found)

    def show(self, states: State) -> jax.Array:
        """Computes the observations [E, ...] of the players to move in states [E], in `observation`'s dtype."""
        return _with_mover(self, jax.vmap(self.env.observe)(states), states)

    def seen(self, states: State) -> Any:
        """Returns the observations [E, ...] stored in states [E], in `observation`'s dtype."""
        return _with_mover(self, states.observation, states)

    def step(self, states: State, actions: jax.Array, keys: jax.Array | None = None) -> tuple[State, jax.Array]:
        """Returns the states [E] after actions [E], and the movers' rewards [E]; keys: for chance.

        A game that is over stays as it is, with reward 0.
        """
        movers = jnp.clip(states.current_player, 0, self.num_players - 1)  # bytes from a worker may be anything
        after = jax.vmap(functools.partial(after_action, self))(states, actions, keys)
        reward = jnp.take_along_axis(after.rewards, movers[:, None], axis=1)[:, 0]
        if not self.is_users:  # Pgx's own games do so themselves
            return after, reward
        over = is_over(states)
        return jax.tree.map(functools.partial(jax.vmap(jnp.where), over), states, after), jnp.where(over, 0.0, reward)

    def rollout(self, state: State, key: jax.Array) -> jax.Array:
        """Plays random moves from a single state to the end; returns each player's sum of rewards [players]."""

        def move(carry: tuple[State, jax.Array, jax.Array]) -> tuple[State, jax.Array, jax.Array]:
            state, key, total = carry
            key, action_key, chance_key = jax.random.split(key, 3)
            logits = jnp.where(state.legal_action_mask, 0.0, -jnp.inf)
            after = after_action(self, state, jax.random.categorical(action_key, logits), chance_key)
            return after, key, total + after.rewards

        start = (state, key, jnp.zeros(self.num_players))
        total: jax.Array = jax.lax.while_loop(lambda carry: ~is_over(carry[0]), move, start)[2]
        return total


def after_action(rules: GameRules, state: State, action: jax.Array, key: jax.Array | None) -> State:
    """Returns the state after an action in a single state; a user's game without chance takes no key."""
    return rules.env.step(state, action, key) if rules.has_chance else rules.env.step(state, action)


def is_over(states: State) -> Any:
    """Returns which games are over, [E] bool."""
    return states.terminated | states.truncated


def other_result(rules: GameRules) -> float | None:
    """Returns a result other than -1, 0 and 1 that the game may have, or None.

    For Pgx's own games this is known; for a user's game, a few random games are played.
    """
    if not pgx_ids.module(rules.name):
        return 2.0 if rules.num_players == 1 or rules.has_chance else None
    start_key, move_key = jax.random.split(jax.random.key(0))
    with on_cpu():
        states = jax.vmap(rules.env.init)(jax.random.split(start_key, _TRIAL_GAMES))
        play = jax.jit(jax.vmap(rules.rollout))
        totals = np.asarray(play(states, jax.random.split(move_key, _TRIAL_GAMES)))
    others = totals[~np.isin(totals, (-1, 0, 1))]
    return float(others[0]) if others.size else None


def _with_mover(rules: GameRules, shown: jax.Array, states: State) -> jax.Array:
    shown = shown.astype(rules.observation.dtype)
    if not rules.moves_again:
        return shown
    mover = states.current_player.reshape(-1, *[1] * (shown.ndim - 1))
    return jnp.concatenate([shown, jnp.broadcast_to(mover, (*shown.shape[:-1], 1)).astype(shown.dtype)], axis=-1)


def _field(path: Any) -> str:
    return str(getattr(path[0], "name", getattr(path[0], "key", "")))


def _from_bytes(part: jax.Array, leaf: StateArray) -> jax.Array:
    """Joins bytes [E, N] to numbers [E, ...]."""
    if leaf.dtype == np.bool_:
        return part.astype(bool)
    size = leaf.dtype.itemsize
    unsigned = np.dtype(f"uint{8 * size}")
    # Joined by shifts, as in `unpacking.unpack`, because an exported program for any number of rows cannot cast bytes.
    parts = part.reshape(part.shape[0], leaf.num_bytes // size, size).astype(unsigned)
    whole = functools.reduce(jnp.bitwise_or, (parts[..., i] << unsigned.type(8 * i) for i in range(size)))
    return jax.lax.bitcast_convert_type(whole, leaf.dtype)


def on_cpu() -> Any:
    """Returns a context in which new arrays are in the host's memory, even in the learner's process."""
    return jax.default_device(jax.local_devices(backend="cpu")[0])


@functools.cache
def game(name: str) -> GameRules:
    """Returns the rules of a game by name; raises as `GameRules`."""
    return GameRules(name)


def _load(name: str) -> Any:
    """Returns the object with a game's functions."""
    game_name, arguments = pgx_ids.parsed(name)
    if pgx_ids.module(name):
        found = _find_own(name)
        _check_own(name, found)
        return found
    try:
        import pgx  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise errors.EnvironmentFailure(
            f"game {name!r} needs the missing package pgx ({error}); install it on this machine and on every "
            f"worker's: {packages.install_command('pgx')}"
        ) from error
    known = pgx.available_envs()
    if game_name == "go":
        game_name, arguments = "go_9x9", {"size": 9, **arguments}
    if game_name not in known:
        raise env_base.no_such("Pgx has no game", game_name, [*known, "go"], f"it has {', '.join(known)}")
    if game_name in _HIDDEN:
        raise errors.EnvironmentFailure(f"game {name!r} hides cards from its players{_HIDDEN[game_name]}")
    made = pgx.make(game_name)
    first_pass = arguments.pop("first_pass", 1) if game_name.startswith("go_") else 1
    if type(first_pass) is not int:
        raise errors.EnvironmentFailure(f"game {name!r}: first_pass is {first_pass!r}; expected the number of a move")
    with env_base.failures_of(f"Pgx cannot make {name!r}"):
        made = type(made)(**arguments) if arguments else made
    if first_pass > 1:
        return _without_early_passes(made, first_pass)
    return _mended_hex(made) if game_name == "hex" else made


def _without_early_passes(made: Any, first_pass: int) -> Any:
    """Returns Pgx's Go in which nobody passes before a move, counted from 1, unless nothing else is legal.

    A pass is legal in every position, so a young network learns it first, and plays out no games. ELF OpenGo trained
    the same way (`ply_pass_enabled`).
    """
    begin, step = made._init, made._step

    def limited(state: State) -> State:
        may_pass = (state._x.step_count + 1 >= first_pass) | ~state.legal_action_mask[:-1].any()
        return state.replace(legal_action_mask=state.legal_action_mask.at[-1].set(may_pass))

    made._init = lambda key: limited(begin(key))
    made._step = lambda state, action, key: limited(step(state, action, key))
    return made


def _mended_hex(made: Any) -> Any:
    """Returns Pgx's hex with a board of its own size; in version 2.6 it always begins with 11x11."""
    begin = made._init

    def init(key: jax.Array) -> State:
        state = begin(key)
        board = state._x._replace(board=jnp.zeros(made.size**2, jnp.int32))
        return state.replace(_x=board, legal_action_mask=jnp.append(jnp.ones(made.size**2, bool), False))

    made._init = init
    return made


def _find_own(name: str) -> Any:
    """Returns a user's object. Raises EnvironmentFailure if it does not exist."""
    try:
        user_code.check(name)
        found = user_code.find(name)
    except errors.ConfigError as error:
        raise errors.EnvironmentFailure(str(error)) from None
    if found is None:
        raise errors.EnvironmentFailure(f"pgx:{name}: {user_code.missing(name, 'object')}")
    return found


def _check_own(name: str, found: Any) -> None:
    """Raises EnvironmentFailure unless a user's object has Pgx's interface and perfect information."""
    names = ("init", "step", "observe", "num_players", "num_actions")
    if missing := [each for each in names if not hasattr(found, each)]:
        raise errors.EnvironmentFailure(
            f"pgx:{name} is a {type(found).__name__} without {missing[0]}; expected an object with Pgx's "
            f"{', '.join(names)}"
        )
    if getattr(found, "perfect_information", False) is not True:
        raise errors.EnvironmentFailure(
            f"pgx:{name} does not say that its players see everything, and a search by its rules would; set its "
            "attribute perfect_information to True, if that is so"
        )


# Symmetries --------------------------------------------------------------------------------------------------------


class Symmetry(NamedTuple):
    """A change of the board that leaves the game the same."""

    board: Callable[[Any], Any]  # [..., H, W, C] -> the same shape
    actions: np.ndarray  # [A] int, which action each action was before the change


def _turned(number: int, *, mirrored: bool) -> Callable[[Any], Any]:
    def change(board: Any) -> Any:
        board = jnp.rot90(board, number, axes=(-3, -2))
        return jnp.flip(board, axis=-2) if mirrored else board

    return change


_DIHEDRAL = tuple((number, mirrored) for mirrored in (False, True) for number in range(4))
_SYMMETRIES: Mapping[str, tuple[tuple[int, bool], ...]] = {
    "tic_tac_toe": _DIHEDRAL,
    "go": _DIHEDRAL,
    "othello": ((0, False), (2, False), (1, True), (3, True)),  # its first four discs lie diagonally
    "hex": ((0, False), (2, False)),
    "connect_four": ((0, False), (0, True)),
}
"""Game -> quarter turns and mirror images of its board, beginning with the one that changes nothing."""


def symmetries(name: str) -> tuple[Symmetry, ...]:
    """Returns the changes of a game's board that leave the game the same; () if none are known."""
    kind, rules = pgx_ids.kind(name), game(name)
    found = []
    for number, mirrored in _SYMMETRIES.get(kind, ()):
        board = _turned(number, mirrored=mirrored)
        height, width = rules.observation.shape[:2]
        actions = np.arange(rules.num_actions)
        places = width if kind == "connect_four" else height * width
        rows = 1 if kind == "connect_four" else height
        moved = np.asarray(board(actions[:places].reshape(rows, width, 1))).reshape(-1)
        found.append(Symmetry(board, np.concatenate([moved, actions[places:]])))
    return tuple(found)
