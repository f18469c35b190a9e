"""Settings of a league."""

from __future__ import annotations

import dataclasses

from seedzero.config import options

_WEIGHTINGS = ("linear", "linear_capped", "squared", "variance", "uniform")


@dataclasses.dataclass(frozen=True)
class LeagueConfig(options.Section):
    freeze_every: int = options.fixed(
        0,
        "games of two players: training steps between snapshots of the player, which then plays against them too; "
        "0: no league, it plays against itself alone",
        "environment steps",
        low=0,
        high=options.LARGEST_COUNT,
    )
    main_players: int = options.fixed(1, "players that learn to beat all others", low=1, high=16)
    main_exploiters: int = options.fixed(0, "players that learn to beat the main players", low=0, high=16)
    league_exploiters: int = options.fixed(0, "players that learn to beat frozen players", low=0, high=16)
    builder: str = options.fixed(
        "past",
        "rules for new snapshots and resets: self_play, none; past, a snapshot of each learning player every "
        "freeze_every steps; alphastar, by win rates; MODULE:FUNCTION, your own",
    )
    builder_args: str = options.fixed("", "JSON object of the builder's arguments, such as '{\"win_rate\": 0.7}'")
    build_every: int = options.tunable(100, "updates between runs of the builder", "updates", low=1)
    win_rates: str = options.tunable(
        "training",
        "matches whose win rates a builder reads: training, where players explore, or evaluation",
        choices=("training", "evaluation"),
    )
    active: int = options.tunable(
        4,
        "opponents at a time, drawn one by one: more of them vary the games, fewer make wider batches",
        low=1,
        high=64,
    )
    redraw: int = options.tunable(128, "matches between draws of these opponents", "matches", low=1)
    weighting: str = options.tunable(
        "squared",
        "weight of an opponent by the player's win rate w (AlphaStar): linear, 1 - w; linear_capped, at most 0.5; "
        "squared, (1 - w)^2; variance, w (1 - w); uniform",
        choices=_WEIGHTINGS,
    )
    self_play: float = options.tunable(
        0.35, "probability that a drawn opponent is the player itself (AlphaStar: 0.35)", low=0, high=1
    )
    exploiters: float = options.tunable(
        0.15, "probability that a main player's opponent is an exploiter, or its snapshot", low=0, high=1
    )
    main_exploiter_floor: float = options.tunable(
        0.1, "a main exploiter meets a main player's past up to this win rate against the player", low=0, high=1
    )
    league_exploiter_weighting: str = options.tunable(
        "linear_capped", "weight of a league exploiter's opponent, as league.weighting", choices=_WEIGHTINGS
    )
    opponents: str = options.tunable(
        "explore",
        "moves of frozen players: explore, as the learning player's in training; sample, from the policy; greedy",
        choices=("explore", "sample", "greedy"),
    )
    prior: float = options.tunable(0.5, "win rate against an opponent not met yet", low=0, high=1)
    prior_games: float = options.tunable(1.0, "matches that league.prior weighs as much as", "matches", low=0)
    decay: float = options.tunable(
        0.99, "weight in a win rate that an opponent's matches keep at each new one; 1: all count alike", low=0, high=1
    )

    @property
    def on(self) -> bool:
        """Whether there is a league."""
        return bool(self.asked)

    @property
    def asked(self) -> str:
        """The setting that asks for a league; "": none."""
        if self.builder != "past":
            return f"--league.builder={self.builder}"
        return f"--league.freeze_every={self.freeze_every}" if self.freeze_every else ""

    @property
    def off(self) -> str:
        """The setting without a league."""
        return "--league.freeze_every=0" + (" --league.builder=past" if self.builder != "past" else "")
