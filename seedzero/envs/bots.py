"""Bots play games of OpenSpiel and Pgx, as opponents of evaluations and scripted members of a league.

The tree search is OpenSpiel's (UCT, random rollouts).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from seedzero.core import errors, opponents, packages, user_code
from seedzero.envs import env_base, gtp_boards, gtp_engines

Bot: TypeAlias = Callable[[Any], int]
"""Takes a pyspiel.State or `pgx_games.State` that is not terminal, and returns a legal action."""

Function: TypeAlias = Callable[[Any, int, np.random.Generator], Any]
"""A user's bot: takes a state as `Bot` does, its player and a generator, and returns that player's legal action."""

_EXPLORATION = 2.0
_MEMORY = 64
"""The most megabytes of a tree."""
_MOST_THROWS = 1000
"""Those of the bots' tournament; with memory for fewer, some bots write beyond it."""
_PLAYS_ROSHAMBO = (
    f"plays only repeated rock-paper-scissors, of up to {_MOST_THROWS} throws, such as "
    "spiel:repeated_game(stage_game=matrix_rps(),num_repetitions=1000,recall=20)"
)
_MEMBER = 9
"""Second number of the random keys of a league's bots."""


def random_move(state: Any, generator: np.random.Generator) -> int:
    """Returns a legal action, all with the same probability."""
    legal = state.legal_actions()
    return int(legal[generator.integers(len(legal))])


def make(name: str, generator: np.random.Generator) -> Bot:
    """Returns an opponent by its name, as in `opponents.parse`; equal numbers of the generator make equal moves."""
    num_simulations = opponents.num_simulations(name)
    if command := opponents.command(name):
        return lambda state: gtp_engines.engine(command, gtp_boards.of(state.get_game())).move(state)
    if opponents.roshambo_bot(name):
        raise errors.EnvironmentFailure(f"opponent {name} {_PLAYS_ROSHAMBO}")
    if not num_simulations:
        return lambda state: random_move(state, generator)
    pyspiel = _pyspiel(name)

    def move(state: Any) -> int:
        seed, game = int(generator.integers(2**31)), state.get_game()
        if type(game).__module__.partition(".")[0] != "pyspiel":  # a game in Python, or of Pgx: no bot in C++ plays it
            return int(_in_python(game, num_simulations, seed).step(state))
        rollouts = pyspiel.RandomRolloutEvaluator(1, seed)
        bot = pyspiel.MCTSBot(game, rollouts, _EXPLORATION, num_simulations, _MEMORY, True, seed, False)
        return int(bot.step(state))

    return move


def _pyspiel(name: str) -> Any:
    """Returns OpenSpiel's module for a bot. Raises EnvironmentFailure if the package is missing."""
    try:
        import pyspiel  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise errors.EnvironmentFailure(
            f"opponent {name} is a bot of the missing package open_spiel ({error}); install it on this machine: "
            f"{packages.install_command('open_spiel')}"
        ) from error
    return pyspiel


class Members:
    """The bots of a league in one game. Each is made for a match, and draws by the game's seed and the match."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.begin(0)

    def begin(self, number: int) -> None:
        """Begins the game's match with a number."""
        self._number, self._bots = number, dict[tuple[str, int], Bot]()

    def move(self, name: str, state: Any, player: int) -> int:
        """Returns a bot's legal action for a player of a state, as in `Bot`.

        Raises EnvironmentFailure if it has none.
        """
        with env_base.failures_of(f"bot {name!r} of the league raised"):
            if (name, player) not in self._bots:
                generator = np.random.default_rng([self._seed, _MEMBER, self._number])
                self._bots[name, player] = _member(name, state.get_game(), player, generator)
            action = self._bots[name, player](state)
        legal = state.legal_actions(player)
        if isinstance(action, bool) or not isinstance(action, (int, np.integer)) or action not in legal:
            raise errors.EnvironmentFailure(
                f"bot {name!r} of the league chose {repr(action)[:100]}; expected a legal action, one of {legal}"
            )
        return int(action)


def check_members(names: Sequence[str]) -> None:
    """Imports the modules of a league's bots. Raises EnvironmentFailure if one cannot be imported here."""
    for name in filter(opponents.is_of_user, names):
        try:
            user_code.load(name)
        except errors.ConfigError as error:
            raise errors.EnvironmentFailure(f"bot of the league: {error}") from None


def check_installed(name: str) -> None:
    """Raises EnvironmentFailure if the package of a league's bot is missing here."""
    if not opponents.is_of_user(name):
        _pyspiel(name)


def check_plays(name: str, game: Any) -> None:
    """Raises EnvironmentFailure if a bot of OpenSpiel's does not play a pyspiel.Game, or a `PgxGame`."""
    pyspiel, kind = _pyspiel(name), game.get_type()
    if opponents.roshambo_bot(name):
        given = game.get_parameters() if kind.short_name == opponents.REPEATED else {}
        if not given or given["stage_game"]["name"] != "matrix_rps" or given["num_repetitions"] > _MOST_THROWS:
            raise errors.EnvironmentFailure(f"bot {name!r} {_PLAYS_ROSHAMBO}; this game is {game}")
    elif name.startswith(opponents.SPIEL):
        short = name.removeprefix(opponents.SPIEL).partition("(")[0]
        able = pyspiel.bots_that_can_play_game(game, 0)
        if short not in able:
            raise errors.EnvironmentFailure(
                f"bot {name!r} of the league: OpenSpiel has no bot {short!r} for game {kind.short_name!r}; it has "
                f"{', '.join(able)}; one of your own is MODULE:FUNCTION"
            )
    elif opponents.num_simulations(name):
        is_open = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        if not is_open or kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
            raise errors.EnvironmentFailure(
                f"bot {name!r} of the league: the tree search plays games of perfect information in turn, and game "
                f"{kind.short_name!r} is not one; give {opponents.RANDOM}, or a bot of your own as MODULE:FUNCTION"
            )


def _member(name: str, game: Any, player: int, generator: np.random.Generator) -> Bot:
    """Returns a league's bot for a player of a game."""
    if opponents.is_of_user(name):
        function: Function = user_code.load(name)
        return lambda state: function(state.clone(), player, generator)
    if bot := opponents.roshambo_bot(name):
        check_plays(name, game)
        return _roshambo(bot, player, generator)
    if not name.startswith(opponents.SPIEL):
        check_plays(name, game)
        return make(name, generator)
    import pyspiel

    text = name.removeprefix(opponents.SPIEL)
    given = {key: value for key, value in pyspiel.game_parameters_from_string(text).items() if key != "name"}
    seed = int(generator.integers(2**31))  # bots without chance ignore it
    made: Any = pyspiel.load_bot(text.partition("(")[0], game, player, {"seed": seed, **given})
    return lambda state: made.step(state)


def _roshambo(name: str, player: int, generator: np.random.Generator) -> Bot:
    """Returns a bot for one match of repeated rock-paper-scissors, which it follows from the first throw on.

    All bots of a process draw from the C library's one generator, so it gets a seed of the match before each move.
    """
    import pyspiel

    bot: Any = pyspiel.make_roshambo_bot(player, name, _MOST_THROWS)
    library = ctypes.CDLL(None)

    def move(state: Any) -> int:
        library.srandom(int(generator.integers(2**31)))
        return int(bot.step(state))

    return move


def _in_python(game: Any, num_simulations: int, seed: int) -> Any:
    """Returns OpenSpiel's bot in Python."""
    from open_spiel.python.algorithms import mcts  # type: ignore[import-untyped, unused-ignore]

    random = np.random.RandomState(seed)
    own = getattr(game, "rollouts", None)
    rollouts = mcts.RandomRolloutEvaluator(1, random) if own is None else own(random)
    return mcts.MCTSBot(game, _EXPLORATION, num_simulations, rollouts, random_state=random)
