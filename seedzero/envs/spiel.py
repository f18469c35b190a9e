"""Plays OpenSpiel's games of perfect information: one player, or two in turn with zero-sum returns. Draws chance.

States are OpenSpiel's and are not changed: a move returns a new one. Shape letters: H height, W width, C channels, E
environments of one group, A actions.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from seedzero.config import sections
from seedzero.core import errors, opponents, packages, types, user_code
from seedzero.envs import bots, env_base, turn_games

State = Any
"""pyspiel.State, which has no types."""

_SUPPORTED = (
    "supported are games of one player without hidden information, and games of several players; they need an "
    "observation tensor, or an information state tensor if information is hidden"
)

TRIAL_MOVES = 1000
TRIAL_GAMES = 20
"""Limits of the random games in which a game is tried out."""

_MAX_OBSERVATION_SIZE = 2**20
"""Most numbers in an observation, which protects the memory from a mistyped board size."""


_CHANCE = -1
"""The number that OpenSpiel gives as the player where chance moves."""


class Game:
    """The rules of a game; a `turn_games.TurnGame`. A game without chance does not use generators."""

    def __init__(self, name: str) -> None:
        """Loads a game and plays a few random games, because OpenSpiel does not declare whether players alternate.

        name: see `load`.

        Raises EnvironmentFailure if OpenSpiel is missing, or the game is unknown, unsupported, or over at its start.
        """
        self.name = name
        self._game = load(name)
        _refuse_unsupported(name, self._game)
        self.num_players = int(self._game.num_players())
        self.num_actions = int(self._game.num_distinct_actions())
        self._tensor_shape = tuple(self._game.observation_tensor_shape())
        self._most_tile = self._game.get_parameters()["max_tile"] if name.partition("(")[0] == "2048" else 0
        self.has_chance = self._game.get_type().chance_mode != self._game.get_type().ChanceMode.DETERMINISTIC
        self._moves_again = self.has_chance and self.num_players == 2
        with env_base.failures_of(f"game {name!r} cannot be started"):
            state = self.initial(np.random.default_rng(0))
            if state.is_terminal():
                raise over_at_start(name)
            # Where chance decides who begins, player 0 counts as the first side.
            self.first_mover = 0 if self.has_chance else int(state.current_player())
            low, high = (0.0, 1.0) if self._try_out() else (-math.inf, math.inf)
            self.spec = types.EnvSpec(
                self.observe(state).shape,
                "float32",
                self.num_actions,
                low,
                high,
                num_players=self.num_players,
                has_action_mask=True,
                moves_again=self._moves_again,
                has_chance=self.has_chance,
            )

    def initial(self, generator: np.random.Generator | None = None) -> State:
        return self._drawn(self._game.new_initial_state(), generator)

    def mover(self, state: State) -> int:
        """Returns the player to move, 0 or 1; in a terminal state the next one in order, if players alternate."""
        if self._moves_again:
            return max(0, int(state.current_player()))
        return int((self.first_mover + state.move_number()) % self.num_players)

    def observe(self, state: State) -> np.ndarray:
        """Returns the observation of the player to move, float32.

        Boards are [H, W, C + 1], everything else is [n + 1]. The last channel or number is the mover, 0 or 1, which
        OpenSpiel's tensors may omit; a game of one player does without. In 2048, channel n is 1 where the tile is 2 **
        n, and channel 0 where there is none, because as numbers small tiles would vanish next to large ones.
        """
        mover = self.mover(state)
        if self._most_tile:
            power = np.log2(np.maximum(state.observation_tensor(mover), 1)).astype(int).reshape(self._tensor_shape)
            tiles: np.ndarray = np.eye(self._most_tile.bit_length(), dtype=np.float32)[power]
            return tiles
        tensor = np.array(state.observation_tensor(mover), np.float32).reshape(self._tensor_shape)
        tensor = np.moveaxis(tensor, 0, -1) if tensor.ndim == 3 else tensor.reshape(-1)
        num_channels = tensor.shape[-1]
        observation = np.full((*tensor.shape[:-1], num_channels + self.num_players - 1), mover, np.float32)
        observation[..., :num_channels] = tensor
        return observation

    def legal_mask(self, state: State) -> np.ndarray:
        mask = np.full(self.num_actions, state.is_terminal())
        mask[state.legal_actions()] = True
        return mask

    def apply(self, state: State, action: int, generator: np.random.Generator | None = None) -> State:
        """Returns the state after a legal move, and after chance.

        Raises EnvironmentFailure if the move is illegal, or if the same player moves again although that happened in
        none of the random games at the start.
        """
        with env_base.failures_of(f"game {self.name!r} refuses action {action}"):
            after = state.clone()
            after.apply_action(action)
            after = self._drawn(after, generator)
        if not after.is_terminal() and after.current_player() != self.mover(after):
            raise errors.EnvironmentFailure(
                f"in game {self.name!r} player {after.current_player()} moves again after move {after.move_number()}, "
                f"which happened in none of {TRIAL_GAMES} random games; players were taken to alternate"
            )
        return after

    def is_terminal(self, state: State) -> bool:
        return bool(state.is_terminal())

    def returns(self, state: State) -> tuple[float, ...]:
        return tuple(state.returns())

    def _drawn(self, state: State, generator: np.random.Generator | None) -> State:
        if self.has_chance and generator is None:
            raise errors.EnvironmentFailure(f"game {self.name!r} has chance, which is not drawn here")
        return state if generator is None else draw_chance(state, generator)

    def _try_out(self) -> bool:
        """Returns whether the observations of a few random games, always the same, contain only 0 and 1.

        Also finds out whether players alternate.
        """
        generator = np.random.default_rng(0)
        state, num_games, binary = self.initial(generator), 1, True
        for _ in range(TRIAL_MOVES):
            binary = binary and bool(np.isin(self.observe(state), (0, 1)).all())
            if not state.is_terminal():
                action = bots.random_move(state, generator)
                state = self._drawn(state.child(action), generator)
                alternates = state.is_terminal() or state.current_player() == self.mover(state)
                self._moves_again = self._moves_again or not alternates
            elif num_games < TRIAL_GAMES:
                state, num_games = self.initial(generator), num_games + 1
            else:
                break
        return binary


class Games:
    """E copies of one game. A step's reward is the acting player's, since its previous step."""

    def __init__(
        self, game: turn_games.TurnGame, num_envs: int, *, against: Sequence[str] = (), random_opening: int = 0
    ) -> None:
        """Makes the games.

        Args:
          against: names of opponents, see `opponents.parse`. Without any, each action is the mover's, and the next
            observation is the other player's. With some, the environment plays one side, and the agent sees only its
            own turns and terminal states. In episode j of environment i the agent moves first if i + j is even. With
            several, that episode has the number n = i + E j instead: the agent moves first if n is even, against
            opponent n // 2 modulo their number, so that the first episodes, however many, have all equally often.
            Ignored for a single player.
          random_opening: largest number of random moves before an episode; all numbers up to it are equally likely.
            The opening stops before a move that ends the game. Only for two players without `against`.
        """
        self.num_envs = num_envs
        self._against = tuple(against) if game.num_players == 2 else ()
        self._tasks = opponents.tasks(self._against) if self._against else ()
        self.spec = dataclasses.replace(game.spec, tasks=self._tasks)
        self._game = game
        self._random_opening = random_opening if not against and game.num_players == 2 else 0
        self._generators: list[np.random.Generator] = []
        self._bots: list[list[bots.Bot]] = []
        self._members: list[bots.Members] = []
        self._opponent = [0] * num_envs
        self._side = [0] * num_envs
        self._player = [0] * num_envs  # the player whose turns the agent sees, if others move, too
        self._num_episodes = [0] * num_envs
        self.states: list[State] = [game.initial(np.random.default_rng(0))] * num_envs
        self._returns = np.zeros((num_envs, game.num_players))
        self._mask = np.ones((num_envs, game.num_actions), bool)
        self._raised = f"game {game.name!r} raised"

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        env_base.check_seeds(seeds, self.num_envs)
        self._generators = [np.random.default_rng(seed) for seed in seeds]
        self._bots = [[bots.make(name, generator) for name in self._against] for generator in self._generators]
        self._members = [bots.Members(seed) for seed in seeds]
        self._num_episodes = [0] * self.num_envs
        with env_base.failures_of(self._raised):
            for index in range(self.num_envs):
                self._begin_episode(index)
            return self._show(np.zeros(self.num_envs, np.float32))

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        env_base.check_legal(actions, self._mask, self._game.name)
        reward = np.zeros(self.num_envs, np.float32)
        with env_base.failures_of(self._raised):
            for index, action in enumerate(actions.tolist()):
                if self._game.is_terminal(self.states[index]):
                    self._begin_episode(index)
                else:
                    reward[index] = self._play(index, action)
            return self._show(reward)

    def with_bots(self, actions: np.ndarray, names: Sequence[str]) -> np.ndarray:
        found: np.ndarray = actions.copy()
        for index, (name, state) in enumerate(zip(names, self.states, strict=True)):
            if name and not self._game.is_terminal(state):
                found[index] = self._members[index].move(name, state, self._game.mover(state))
        return found

    def render(self) -> np.ndarray:
        board = self._game.observe(self.states[0])
        if board.ndim != 3:
            raise errors.EnvironmentFailure(
                f"game {self._game.name!r} cannot be drawn: its observation is not a board"
            )
        return env_base.paint(board[..., : board.shape[-1] - (self.spec.num_players - 1)])

    def close(self) -> None:
        pass

    def _begin_episode(self, index: int) -> None:
        generator = self._generators[index]
        state = self._game.initial(generator)
        if self._against:
            step, first_mover = self.num_envs if len(self._against) > 1 else 1, self._game.mover(state)
            number = index + self._num_episodes[index] * step
            self._opponent[index] = number // 2 % len(self._against)
            self._side[index] = number % 2
            self._player[index] = (first_mover + self._side[index]) % 2
        if self._against and self._side[index]:
            opened = self._reply(index, state)
            # An opening that ends the game leaves the agent no turn, so the agent moves first then.
            self._side[index] = int(not self._game.is_terminal(opened))
            self._player[index] = (first_mover + self._side[index]) % 2
            state = opened if self._side[index] else state
        if self._random_opening:
            for _ in range(generator.integers(self._random_opening + 1)):
                opened = self._game.apply(state, bots.random_move(state, generator), generator)
                if self._game.is_terminal(opened):
                    break
                state = opened
        self._members[index].begin(self._num_episodes[index])
        self._num_episodes[index] += 1
        self.states[index] = state
        # The next reward includes the opponent's opening, but nobody's random moves.
        self._returns[index] = self._game.returns(state) if self._random_opening else 0

    def _play(self, index: int, action: int) -> float:
        """Makes a move, and the opponent's moves if there is one; returns the mover's reward."""
        mover = self._game.mover(self.states[index])
        state = self._game.apply(self.states[index], action, self._generators[index])
        if self._against:
            state = self._reply(index, state)
        before, self._returns[index] = self._returns[index].copy(), self._game.returns(state)
        self.states[index] = state
        return float(self._returns[index, mover] - before[mover])

    def _reply(self, index: int, state: State) -> State:
        """Makes the opponent's moves; returns the state at the agent's next turn, or at the end."""
        bot = self._bots[index][self._opponent[index]]
        while not self._game.is_terminal(state) and self._game.mover(state) != self._player[index]:
            state = self._game.apply(state, bot(state), self._generators[index])
        return state

    def _show(self, reward: np.ndarray) -> types.EnvStep:
        over = np.array([self._game.is_terminal(state) for state in self.states])
        self._mask = np.stack([self._game.legal_mask(state) for state in self.states])
        observation = np.stack([self._game.observe(state) for state in self.states])
        task = None
        if self._tasks:
            places = zip(self._opponent, self._side, strict=True)
            task = np.array([len(opponents.SIDES) * opponent + side for opponent, side in places], np.int32)
        return types.EnvStep(observation, reward, over, np.zeros(self.num_envs, bool), self._mask.copy(), task)


def make(name: str, settings: sections.EnvConfig, num_envs: int, *, role: types.Role = types.Role.TRAIN) -> Games:
    """Returns E copies of a game by name: self-play, or evaluation against the opponents in the settings.

    Raises as Game.
    """
    against = opponents.parse(settings.opponents) if role is types.Role.EVALUATE else ()
    return Games(Game(name), num_envs, against=against, random_opening=settings.random_opening)


def load(name: str) -> Any:
    """Returns OpenSpiel's game by name, with or without parameters: "tic_tac_toe", "connect_four(rows=4,columns=5)".

    Includes OpenSpiel's games in Python; "MODULE:GAME" imports a user's module, which must register the game.

    Raises EnvironmentFailure if OpenSpiel is missing, does not know the game, or a user's module is missing or fails.
    """
    try:
        import pyspiel  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise errors.EnvironmentFailure(
            f"game {name!r} needs the missing package open_spiel ({error}); install it on this machine and on every "
            f"worker's: {packages.install_command('open_spiel')}"
        ) from error
    module = user_code.module_of(f"spiel:{name}")
    text = name.removeprefix(f"{module}:")
    game = text.partition("(")[0]
    with env_base.failures_of(f"OpenSpiel cannot load {name!r}"):
        if module:
            _import(name, f"{module}:{game}")
        elif game not in pyspiel.registered_names() or "python_" in text:  # possibly as a parameter
            importlib.import_module("open_spiel.python.games")
        # OpenSpiel answers an unknown name with the names of all games.
        if game not in (known := pyspiel.registered_names()):
            thing = f"module {module!r} was imported, and OpenSpiel has" if module else "OpenSpiel has"
            advice = f"it has {len(known)}, as tic_tac_toe and connect_four; one of your own is spiel:MODULE:GAME"
            raise env_base.no_such(f"{thing} no game", game, known, advice)
        found = pyspiel.load_game(text)
    brought_by = user_code.importable(type(found).__module__)
    if not module and brought_by.partition(".")[0] not in ("pyspiel", "open_spiel"):
        raise errors.EnvironmentFailure(
            f"game {name!r} is registered only by this program, and workers are processes of their own; name the "
            f"module that registers it when it is imported: spiel:{brought_by}:{name}"
        )
    return found


def check_form(name: str) -> bool:
    """Returns whether a name is a user's MODULE:GAME; raises EnvironmentFailure for an impossible module."""
    module = user_code.module_of(f"spiel:{name}")
    game = name.removeprefix(f"{module}:").partition("(")[0]
    if module == "__main__":
        raise errors.EnvironmentFailure(user_code.not_a_script(game))
    if module and not (game and all(word.isidentifier() for word in module.split("."))):
        raise errors.EnvironmentFailure(f"spiel:{name} is not complete; expected spiel:MODULE:GAME")
    return bool(module)


def _import(name: str, game: str) -> None:
    """Imports the module in a user's MODULE:GAME, also from the current directory; raises EnvironmentFailure."""
    check_form(name)
    try:
        user_code.find(game)
    except errors.ConfigError as error:
        raise errors.EnvironmentFailure(str(error)) from None


def draw_chance(state: State, generator: np.random.Generator) -> State:
    """Plays chance in a state until a player moves or the game is over; returns the state."""
    while state.current_player() == _CHANCE:
        drawn = generator.random()
        for action, probability in state.chance_outcomes():
            chosen, drawn = action, drawn - probability
            if drawn < 0:  # otherwise rounding leaves the last one
                break
        state.apply_action(chosen)
    return state


def over_at_start(name: str) -> errors.Error:
    """Returns the error for a game without a single move."""
    return errors.EnvironmentFailure(
        f"game {name!r} is over before its first move, and an agent has none to learn; give other parameters"
    )


def _refuse_unsupported(name: str, game: Any) -> None:
    """Raises EnvironmentFailure with all reasons why a game is unsupported."""
    kind = game.get_type()
    num_players = game.num_players()
    reasons = {
        f"it has {num_players} players": num_players not in (1, 2),
        "players move at the same time": kind.dynamics != kind.Dynamics.SEQUENTIAL,
        "its chance follows no seed": kind.chance_mode == kind.ChanceMode.SAMPLED_STOCHASTIC,
        "it has hidden information": kind.information != kind.Information.PERFECT_INFORMATION,
        "its returns do not sum to zero": num_players > 1 and kind.utility != kind.Utility.ZERO_SUM,
        "it has no observation tensor": not kind.provides_observation_tensor,
    }
    refuse(name, reasons, game.observation_tensor_shape)


def refuse(name: str, reasons: Mapping[str, bool], observation_shape: Callable[[], Sequence[int]]) -> None:
    """Raises EnvironmentFailure with the reasons that apply to a game, or for an observation that is too large."""
    found = [reason for reason, holds in reasons.items() if holds]
    if not found and not 1 <= math.prod(shape := observation_shape()) <= _MAX_OBSERVATION_SIZE:
        found = [f"its observation has the shape {shape}, 1 to {_MAX_OBSERVATION_SIZE} numbers are possible"]
    if found:
        raise errors.EnvironmentFailure(f"game {name!r} is not supported: {', '.join(found)}; {_SUPPORTED}")
