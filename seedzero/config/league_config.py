"""Settings of a league."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from seedzero.config import options
from seedzero.core import errors, json_object, opponents

MAIN = "main"
"""The name of a run's only player, and of the first one."""
LEARNING = (MAIN, "main_exploiter", "league_exploiter")
"""Kinds of learning players."""
BUILDERS = ("self_play", "past", "alphastar", "biased")
"""Seedzero's own builders; others are users' functions."""


@dataclasses.dataclass(frozen=True)
class _Arguments(options.Section):
    """The arguments of one of seedzero's own builders."""

    @classmethod
    def parsed(cls, given: Mapping[str, Any]) -> Self:
        """Returns the arguments in a JSON object's values. Raises ConfigError."""
        defaults = dataclasses.asdict(cls())
        if unknown := given.keys() - defaults.keys():
            raise errors.ConfigError(f"{min(unknown)} is unknown; expected {', '.join(defaults)}")
        try:
            return cls(**{name: options.parse(name, value, type(defaults[name])) for name, value in given.items()})
        except errors.ConfigError as error:
            raise errors.ConfigError(str(error).removeprefix("--")) from None

    @classmethod
    def values(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the builder's arguments in a JSON object's values. Raises ConfigError."""
        return dataclasses.asdict(cls.parsed(given))


@dataclasses.dataclass(frozen=True)
class BiasedArguments(_Arguments):
    nash_conv: float = options.at_creation(0.5, "of the main player, ends the first phase", low=0)
    every: int = options.at_creation(10_000, "steps between snapshots", low=1, high=options.LARGEST_COUNT)


@dataclasses.dataclass(frozen=True)
class AlphaStarArguments(_Arguments):
    """The arguments of the builder `alphastar` for players of one kind.

    Its defaults suit small board games; AlphaStar's steps are 2e9 and 4e9.
    """

    win_rate: float = options.at_creation(0.7, "a rival is beaten above it", low=0, high=1)
    min_games: int = options.at_creation(200, "matches for a win rate to count", low=0)
    min_steps: int = options.at_creation(10_000, "fewest steps between snapshots", low=0, high=options.LARGEST_COUNT)
    max_steps: int = options.at_creation(40_000, "most steps between snapshots", low=1, high=options.LARGEST_COUNT)
    reset_to: str = options.at_creation(
        "initial", "parameters of a reset exploiter", choices=("initial", MAIN, "snapshot")
    )
    reset_probability: float = options.at_creation(0.25, "of a league exploiter's reset at a snapshot", low=0, high=1)
    keep_training_probability: float = options.at_creation(
        0.0, "of a player that begins as a snapshot and learns beside its parent", low=0, high=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_steps < self.min_steps:
            raise errors.ConfigError(f"max_steps={self.max_steps} is less than min_steps={self.min_steps}")

    @classmethod
    def values(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments; of a threshold by kind of player, an object of every kind."""
        objects = [name for name, value in given.items() if isinstance(value, Mapping)]
        for name in objects:
            if name not in _BY_KIND:
                raise errors.ConfigError(f"{name} is an object; only {', '.join(_BY_KIND)} may differ by kind")
            if unknown := given[name].keys() - set(LEARNING):
                raise errors.ConfigError(f"{name}: {min(unknown)} is not a kind; expected {', '.join(LEARNING)}")
        if not objects:
            return super().values(given)
        found = {}
        for kind in LEARNING:
            own = {name: given[name][kind] for name in objects if kind in given[name]}
            try:
                found[kind] = cls.parsed({**{name: given[name] for name in given if name not in objects}, **own})
            except errors.ConfigError as error:
                raise errors.ConfigError(f"of {kind}, {error}") from None
        by_kind = {name: {kind: getattr(found[kind], name) for kind in LEARNING} for name in objects}
        return {**dataclasses.asdict(found[MAIN]), **by_kind}

    @classmethod
    def of(cls, values: Mapping[str, Any], kind: str) -> Self:
        """Returns the arguments for players of a kind. values: as `values` returns them."""
        return cls(**{name: value[kind] if isinstance(value, Mapping) else value for name, value in values.items()})


_BY_KIND = ("win_rate", "min_games", "min_steps", "max_steps", "keep_training_probability")
_ARGUMENTS: Mapping[str, type[_Arguments]] = {"alphastar": AlphaStarArguments, "biased": BiasedArguments}


@dataclasses.dataclass(frozen=True)
class LeagueConfig(options.Section):
    ADVANCED = "redraw build_every max_players score"

    freeze_every: int = options.at_creation(
        0,
        "games of two players: training steps between snapshots of the player, which it then plays against, "
        "too; 0: no league, only self-play",
        "environment steps",
        low=0,
        high=options.LARGEST_COUNT,
    )
    main_players: int = options.at_creation(1, "players that learn to beat all others", low=1, high=16)
    main_exploiters: int = options.at_creation(0, "players that learn to beat the main players", low=0, high=16)
    league_exploiters: int = options.at_creation(0, "players that learn to beat frozen players", low=0, high=16)
    max_players: int = options.at_creation(
        0,
        "largest number of learning players, including those that the builder adds; 0: the number at the start",
        low=0,
        high=64,
    )
    builder: str = options.at_creation(
        "past",
        "rules for new snapshots and resets. self_play: none; past: a snapshot of each learning player "
        "every freeze_every steps; alphastar: by win rates; biased: first learns against one fixed player; "
        "MODULE:FUNCTION: your own",
    )
    builder_args: str = options.at_creation(
        "", "JSON object of the builder's arguments, such as '{\"win_rate\": 0.7}'"
    )
    build_every: int = options.on_resume(100, "updates between runs of the builder", "updates", low=1)
    active: int = options.on_resume(
        4,
        "opponents at the same time, drawn one by one; more of them vary the games, fewer make wider batches",
        low=1,
        high=64,
    )
    redraw: int = options.on_resume(128, "matches after which the active opponents are drawn again", "matches", low=1)
    weighting: str = options.on_resume(
        "squared",
        "weight of an opponent by the player's win rate w (AlphaStar): linear, 1 - w; linear_capped, at most 0.5; "
        "squared, (1 - w)^2; variance, w (1 - w); uniform",
        choices=("linear", "linear_capped", "squared", "variance", "uniform"),
    )
    score: str = options.at_creation(
        "win",
        "score of a match, for matchmaking and builders. win: 1 for more than the other side, 0.5 for as "
        "much; return: the player's own return, from 0, the smallest of the run, to 1, the largest",
        choices=("win", "return"),
    )
    self_play: float = options.on_resume(
        0.35, "probability that a drawn opponent is the player itself (AlphaStar: 0.35)", low=0, high=1
    )
    members: str = options.at_creation(
        "",
        "opponents that never learn, separated by commas: random; mcts-N, OpenSpiel's tree search of N simulations; "
        "spiel:BOT, another bot of OpenSpiel; roshambo:BOT or roshambo:all, for repeated rock-paper-scissors; "
        "MODULE:FUNCTION, your own",
    )
    opponents: str = options.on_resume(
        "explore",
        "moves of frozen players: explore, with the noise of training; sample, drawn from the policy; greedy",
        choices=("explore", "sample", "greedy"),
    )
    opponent_model: bool = options.at_creation(
        False,
        "also learn the opponents' moves, from the rows that they move, so that the player's search expects "
        "these from the other side instead of its own best ones",
    )

    def arguments(self) -> dict[str, Any]:
        """Returns the builder's arguments. Raises ConfigError for those it does not take."""
        flag = f"--league.builder_args={self.builder_args}"
        try:
            given = json_object.parse(self.builder_args or "{}")
        except ValueError as error:
            raise errors.ConfigError(
                f"{flag} must be a JSON object of arguments ({error}), such as "
                "--league.builder_args='{\"win_rate\": 0.7}'"
            ) from None
        if kind := _ARGUMENTS.get(self.builder):
            try:
                return kind.values(given)
            except errors.ConfigError as error:
                raise errors.ConfigError(f"{flag}: {error}") from None
        if given and self.builder in BUILDERS:
            raise errors.ConfigError(f"{flag}: builder {self.builder} takes no arguments; leave it out")
        return {"freeze_every": self.freeze_every} if self.builder == "past" else given

    @property
    def scripted(self) -> tuple[str, ...]:
        """The names of a league's scripted members; none without a league."""
        return opponents.parse_members(self.members) if self.on else ()

    @property
    def bots(self) -> tuple[str, ...]:
        """The names of the scripted members that workers move with the game's state."""
        return tuple(name for name in self.scripted if name != opponents.RANDOM)

    @property
    def num_learning(self) -> int:
        """The number of learning players when a run begins."""
        return self.main_players + self.main_exploiters + self.league_exploiters

    @property
    def most_players(self) -> int:
        """The most learning players at the same time."""
        return max(self.max_players, self.num_learning)

    @property
    def adds(self) -> bool:
        """Whether the builder may add players."""
        given = self.arguments().get("keep_training_probability", 0.0) if self.builder == "alphastar" else 0.0
        return self.builder not in BUILDERS or any(given.values() if isinstance(given, Mapping) else (given,))

    @property
    def homes_change(self) -> bool:
        """Whether players may come and go."""
        return self.most_players > 1 and self.adds

    @property
    def resets(self) -> bool:
        """Whether players may be reset."""
        return self.builder not in ("self_play", "past", "biased")

    @property
    def on(self) -> bool:
        """Whether there is a league."""
        return bool(self.asked)

    @property
    def asked(self) -> str:
        """The setting that asks for a league, or ""."""
        if self.builder != "past":
            return f"--league.builder={self.builder}"
        return f"--league.freeze_every={self.freeze_every}" if self.freeze_every else ""

    @property
    def off(self) -> str:
        """The setting without a league."""
        return "--league.freeze_every=0" + (" --league.builder=past" if self.builder != "past" else "")
