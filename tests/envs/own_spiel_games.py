"""OpenSpiel's games in Python under other names, as a user's module registers games of one's own."""

from __future__ import annotations

from types import ModuleType

import pyspiel  # type: ignore[import-not-found, unused-ignore]
from open_spiel.python.games import kuhn_poker, tic_tac_toe  # type: ignore[import-untyped, unused-ignore]

_OF_A_TYPE = (
    "long_name", "dynamics", "chance_mode", "information", "utility", "reward_model", "max_num_players",
    "min_num_players", "provides_information_state_string", "provides_information_state_tensor",
    "provides_observation_string", "provides_observation_tensor", "parameter_specification",
)  # fmt: skip


def register(name: str, module: ModuleType, kind: str) -> None:
    """Registers a game of OpenSpiel's under another name."""
    fields = {field: getattr(module._GAME_TYPE, field) for field in _OF_A_TYPE}
    game = type(kind, (getattr(module, kind),), {"__module__": __name__})
    pyspiel.register_game(pyspiel.GameType(short_name=name, **fields), game)


register("my_board", tic_tac_toe, "TicTacToeGame")
register("my_cards", kuhn_poker, "KuhnPokerGame")
