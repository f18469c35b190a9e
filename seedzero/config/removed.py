"""Settings of earlier versions that were removed: now constants of the code, or derived from another setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from seedzero.config import options
from seedzero.core import errors


class Removed(NamedTuple):
    """A setting that was removed."""

    default: options.Value  # the default of the versions that had it
    now: str  # what replaced it, and what to set instead
    is_free: bool = False  # a resume took it only from the new command line, so that a saved value means nothing


_LEASE = "it follows from --transport.lease_seconds: a third of it, and at most 5 s"
_OF_SEARCH = "a search of your own, seedzero.search, takes another"
_ALPHASTAR = "it is AlphaStar's value now"

SETTINGS: Mapping[str, Removed] = {
    "env.max_episode_frames": Removed(108_000, "give --env.max_episode_steps=N, which counts an agent's steps"),
    "transport.heartbeat_seconds": Removed(5.0, _LEASE, is_free=True),
    "transport.keepalive_seconds": Removed(5.0, _LEASE, is_free=True),
    "transport.ping_timeout_seconds": Removed(5.0, _LEASE, is_free=True),
    "transport.max_backoff_seconds": Removed(5.0, _LEASE, is_free=True),
    "transport.hello_seconds": Removed(15.0, "it is --transport.lease_seconds now", is_free=True),
    "transport.spec_seconds": Removed(600.0, "--transport.step_seconds bounds it, too", is_free=True),
    "batcher.wait_microseconds": Removed(0, "a batch never waits to be filled", is_free=True),
    "replay.tolerance": Removed(0.1, "it is always 0.1", is_free=True),
    "replay.priority_beta_updates": Removed(0, "--replay.priority_beta is constant"),
    "replay.priority_epsilon": Removed(1e-3, "it is always 0.001"),
    "search.uniform_share": Removed(0.1, "it is always 0.1"),
    "search.max_depth": Removed(0, f"paths have no limit; {_OF_SEARCH}"),
    "search.max_visit_init": Removed(50.0, f"it is always 50; {_OF_SEARCH}"),
    "search.dirichlet_alpha": Removed(0.3, f"it is always 0.3; {_OF_SEARCH}"),
    "search.dirichlet_fraction": Removed(0.25, f"it is always 0.25; {_OF_SEARCH}"),
    "search.pb_c_init": Removed(1.25, f"it is always 1.25; {_OF_SEARCH}"),
    "search.pb_c_base": Removed(19652.0, f"it is always 19652; {_OF_SEARCH}"),
    "muzero.reward_loss_weight": Removed(1.0, "it is always 1; --muzero.value_loss_weight weighs the value's loss"),
    "muzero.policy_loss_weight": Removed(1.0, "it is always 1; --muzero.value_loss_weight weighs the value's loss"),
    "muzero.n_step_decay_age": Removed(0, "returns have --muzero.n_step rewards, however old a step is"),
    "muzero.value_prefix_horizon": Removed(5, "it is always 5"),
    "network.action_bins": Removed(15, "it is always 15"),
    "optimizer.weight_decay": Removed(1e-4, "it is always 0.0001"),
    "apex.epsilon_exponent": Removed(7.0, "it is always 7, see --apex.epsilon"),
    "r2d2.epsilon_exponent": Removed(7.0, "it is always 7, see --r2d2.epsilon"),
    "r2d2.priority_eta": Removed(0.9, "it is always 0.9"),
    "reanalyse.min_age": Removed(10, "it is always 10 updates", is_free=True),
    "league.main_exploiter_floor": Removed(0.1, f"{_ALPHASTAR}, 0.1"),
    "league.league_exploiter_weighting": Removed("linear_capped", f"{_ALPHASTAR}, linear_capped"),
    "league.exploiters": Removed(0.15, f"{_ALPHASTAR}, 0.15, or what --league.self_play leaves"),
    "league.win_rates": Removed("training", "win rates are always those of training's matches"),
    "league.prior": Removed(0.5, "a win rate against a new opponent always begins at 0.5"),
    "league.prior_games": Removed(1.0, "that beginning always counts as one match"),
    "league.decay": Removed(0.99, "it is always 0.99"),
    "checkpoint.replay_limit_bytes": Removed(4 * 2**30, "give --checkpoint.replay=on or off", is_free=True),
    "metrics.every_updates": Removed(100, "a tenth of --checkpoint.every_updates lies between two rows"),
    "bucket.every_seconds": Removed(60.0, "it is twice --bucket.lease_seconds", is_free=True),
    "bucket.retry_seconds": Removed(120.0, "it is four times --bucket.lease_seconds", is_free=True),
}
"""The removed settings by their names SECTION.KEY."""


PLAYED = frozenset({"env", "search", "network"})
"""Sections whose settings change how a saved agent plays; the others concern training alone."""


def of_saved(values: Mapping[str, options.Value]) -> dict[str, options.Value]:
    """Returns a run directory's values without those of removed settings."""
    return {name: value for name, value in values.items() if name not in SETTINGS}


def refused(values: Mapping[str, options.Value]) -> dict[str, str]:
    """Describes each value of a run directory that is no longer possible, by name; only readers can use such a run."""
    return {
        name: f"the run has --{name}={options.shown(value)}, which is no setting any more: {removed.now}"
        for name, removed in SETTINGS.items()
        if not removed.is_free and (value := values.get(name, removed.default)) != removed.default
    }


def check(values: Mapping[str, options.Value]) -> None:
    """Raises ConfigError for a run that cannot be resumed, because a value of it is no longer possible."""
    for name, text in refused(values).items():
        raise errors.ConfigError(
            f"{text}. Only runs with {options.shown(SETTINGS[name].default)} can be resumed; train a new one, or "
            "continue with the version of seedzero that began this one"
        )
