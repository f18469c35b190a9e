"""Rules about agents: settings of one that imply, need or exclude another."""

from __future__ import annotations

from collections.abc import Callable

from seedzero.config import families, rules

_OF_OWN_NETWORKS = {
    "muzero.consistency_weight": "0",
    "muzero.value_prefix": "false",
    "muzero.predict_ends": "false",
    "muzero.memory": "none",
    "muzero.chance_codes": "0",
}
"""What a preset may ask of a network that a user's own network does not have, and the value without it."""


def _asks_more(c: rules.Situation) -> bool:
    """Returns whether MuZero learns more than a user's own network has."""
    return any(str(c.value(name)).lower() not in (nothing, "0.0") for name, nothing in _OF_OWN_NETWORKS.items())


def _plays_pgx(c: rules.Situation) -> bool:
    return bool(c.run.agent == "alphazero" and families.of(c.env.id).prefix == "pgx")


def _sees_jointly(c: rules.Situation) -> bool:
    return bool(c.run.agent == "ppo" and c.ppo.central_value and families.of(c.env.id).prefix == "pettingzoo")


def _keeps_clip(c: rules.Situation) -> bool:
    is_asked = not c.given.isdisjoint(("ppo.decay_clip", "optimizer.decay_updates"))  # the other may be a preset's
    return bool(is_asked and c.ppo.decay_clip and not c.optimizer.decay_updates)


def _has_three_values(c: rules.Situation) -> bool:
    return bool(c.name in c.given and c.run.agent == "alphazero" and c.alphazero.win_draw_loss)


def _hides_probabilities(c: rules.Situation) -> bool:
    return bool(c.this and c.search.policy == "puct" and c.search.temperature == 0)


def _idle(names: str, is_used: Callable[[rules.Situation], object], text: str) -> list[rules.SettingsRule]:
    """Warns of settings that the user gave, and another setting leaves without effect. text: which one, and why."""
    return [
        rules.warning(name, lambda c: c.name in c.given and not is_used(c), f"--{{name}} changes nothing: {text}")
        for name in names.split()
    ]


def _knows_workers(c: rules.Situation) -> bool:
    return bool(c.worker.num > 0 and not c.worker.num_remote)


def _unlike(is_unlike: Callable[[int, int, int], bool], text: str) -> rules.SettingsRule:
    """Warns of batches of PPO. is_unlike: of the unrolls of a batch, the environments, and the largest lag."""
    return rules.warning(
        "ppo.batch_size",
        lambda c: _knows_workers(c) and is_unlike(c.this, c.worker.num_envs, c.ppo.max_lag),
        f"{{it}}, but there are {{worker.num_envs}} environments{text}; give --ppo.batch_size={{worker.num_envs}}",
    )


def _first_sequences(c: rules.Situation) -> object:
    needed = c.worker.num_envs * c.r2d2.num_positions
    is_short = not c.worker.num_remote and c.replay.min_steps < needed
    return is_short and {"steps": c.r2d2.num_positions, "needed": needed}


def _in_turn(c: rules.Situation) -> bool:
    """Returns whether one of the package's agents plays a game of two players in turn."""
    return bool(c.spec.num_players > 1 and not c.OWN)


def _needs_images(c: rules.Situation) -> object:
    is_changed = c.this and not any(array.is_grid for array in c.spec.arrays)
    return is_changed and " and ".join(str(list(array.shape)) for array in c.spec.arrays)


def _out_of_sight(c: rules.Situation) -> object:
    smallest = min((min(array.shape[:2]) for array in c.spec.arrays if array.is_grid), default=0)
    return 0 < smallest <= c.this and {"smallest": smallest}


_SPEC = rules.Needs.SPEC

RULES = (
    *(
        rules.note(name, nothing, lambda c: c.network.module,
            "--{name} is off: --network.module={network.module} has no such part")
        for name, nothing in _OF_OWN_NETWORKS.items()
    ),
    rules.note("env.game_state", "true", _plays_pgx),
    rules.note("env.joint_observation", "true", _sees_jointly),
    rules.warning("ppo.decay_clip", _keeps_clip,
        "{it} changes nothing: the learning rate does not fall; give --optimizer.decay_updates=N"),
    *_idle("muzero.burn_in muzero.memory_width", lambda c: c.muzero.memory != "none",
        "there is no memory; give --muzero.memory=lstm or gru too"),
    *_idle("muzero.search_value_start", lambda c: c.muzero.search_value_age,
        "no stored value is a target; give --muzero.search_value_age=N too"),
    *_idle("explore.exponent", lambda c: c.explore.epsilon, "give --explore.epsilon=X too"),
    *_idle("explore.max_length", lambda c: c.explore.epsilon or c.explore.first_steps,
        "no random action is repeated; give --explore.epsilon=X or --explore.first_steps=N too"),
    *_idle("search.num_considered search.rounds search.gumbel_scale search.value_scale",
        lambda c: c.search.policy == "gumbel", "it is for --search.policy=gumbel"),
    *_idle("search.temperature", lambda c: c.search.policy == "puct", "it is for --search.policy=puct"),
    *_idle("replay.priority_beta replay.importance_min", lambda c: c.replay.priority_alpha,
        "with --replay.priority_alpha=0 all steps are sampled alike"),
    *_idle("optimizer.decay_updates optimizer.decay_rate",
        lambda c: not c.this or c.optimizer.schedule != "constant" or "optimizer" not in c.agent.SECTIONS,
        "the learning rate is constant; give --optimizer.schedule=cosine, linear or exponential too"),
    *_idle("vtrace.popart_step", lambda c: c.vtrace.popart, "give --vtrace.popart=true too"),
    *_idle("ppo.bonus_place", lambda c: c.ppo.bonus, "there is no bonus; give --ppo.bonus=MODULE:FUNCTION too"),
    *(
        rules.warning(f"network.{key}", _has_three_values,
            "--{name} changes nothing: --alphazero.win_draw_loss=true has three values, -1, 0 and 1")
        for key in ("num_bins", "support_limit", "value_transform")
    ),
    rules.warning("explore.spread", lambda c: c.this and not c.explore.epsilon,
        "{it} changes nothing: it shares out explore.epsilon=0; give --explore.epsilon=X too"),
    rules.warning("muzero.intensity_scale", lambda c: c.this and c.network.normalize_pixels,
        "{it} brightens the background away from the moments that network.normalize_pixels has of it: all of it will "
        "stand out; leave one of them out"),
    _unlike(lambda size, num, lag: num < size <= num * lag, ": a batch has unrolls of several updates"),
    _unlike(lambda size, num, lag: num < size and num * lag < size,
        " and ppo.max_lag={ppo.max_lag}: every batch is padded, and schedules count updates"),
    _unlike(lambda size, num, lag: size < num and lag <= 1,  # with a larger lag, such steps are asked for
        ": unrolls wait while others are learned from, and become older"),
    rules.warning("vtrace.batch_size",
        lambda c: _knows_workers(c) and (most := c.worker.num_envs * c.vtrace.max_lag) < c.this and {"most": most},
        "{it}, but at most {most} unrolls wait (environments x vtrace.max_lag={vtrace.max_lag}): every batch is "
        "padded, and schedules count updates"),
    rules.warning("r2d2.sequence_length r2d2.burn_in replay.min_steps", _first_sequences,
        "--replay.min_steps={replay.min_steps}, but updates find nothing to learn from before each of "
        "{worker.num_envs} environments has {steps} steps, those of a sequence with its burn-in; give "
        "--replay.min_steps={needed}"),
    *(
        rules.error(f"muzero.{key}", _hides_probabilities,
            "{it} needs the probability of each action, but --search.temperature=0 takes the most visited one after "
            "random noise: the search does not know how often; give --search.temperature=1")
        for key in ("off_policy_correction", "policy_gradient_weight")
    ),
    rules.error("alphazero.win_draw_loss", lambda c: c.this and c.reward.discount < 1,
        "--reward.discount={reward.discount:g} makes results of distant ends smaller than a win, and "
        "{it} has no such value; give --reward.discount=1, or leave one of them out"),
    rules.error("muzero.memory muzero.value_prefix", lambda c: c.this != "none" and c.muzero.value_prefix,
        "{it} and --muzero.value_prefix=true: sums of rewards have an LSTM of their own; leave one out"),
    rules.error("muzero.chance_codes muzero.memory", lambda c: c.this and c.muzero.memory != "none",
        "{it} and --muzero.memory={muzero.memory}: codes stand for what two observations show, and do not show what a "
        "memory adds; leave one out"),
    rules.error("muzero.chance_codes muzero.value_prefix", lambda c: c.this and c.muzero.value_prefix,
        "{it} and --muzero.value_prefix=true: sums of rewards have no chance among their steps; leave one out"),
    rules.error("evaluation.policy", lambda c: c.this == "sample" and c.run.agent in ("apex", "r2d2"),
        "{it}: agent {run.agent} learns only values and has no policy to draw actions from; leave it out"),
    rules.error("optimizer.decay_rate",
        lambda c: not c.this and c.optimizer.schedule == "exponential" and c.optimizer.decay_updates,
        "{it}: the rate of --optimizer.schedule=exponential is never 0, and would stay constant; give a factor above "
        "0, or --optimizer.schedule=linear"),
    rules.error("network.lstm_width", lambda c: c.run.agent == "r2d2" and not c.this,
        "{it}: R2D2 has an LSTM; give --network.lstm_width=64 or more, or --agent=apex"),
    rules.error("ppo.num_minibatches", lambda c: c.network.lstm_width and c.this > c.ppo.batch_size,
        "{it}: with an LSTM minibatches are of whole unrolls, and an update has {ppo.batch_size} (ppo.batch_size); "
        "give --ppo.num_minibatches={ppo.batch_size} or fewer"),
    rules.error("ppo.bonus_place", lambda c: c.ppo.bonus and c.this == "before" and c.reward.normalize,
        "{it}: --reward.normalize=true divides the bonus by the deviation of only the environment's rewards, which "
        "may be rare; give --reward.normalize=false, or --ppo.bonus_place=after"),
    rules.error("network.module", lambda c: c.this and c.run.agent == "muzero" and _asks_more(c),
        "{it} has only representation, prediction and dynamics; give "
        + ", ".join(f"--{name}={nothing}" for name, nothing in _OF_OWN_NETWORKS.items())),
    rules.error("muzero.consistency_steps", lambda c: c.this > c.muzero.unroll_steps,
        "{it} is more than the muzero.unroll_steps={muzero.unroll_steps} there are; give at most that, or 0 for all"),
    rules.error("muzero.off_policy_correction",
        lambda c: c.this and not c.muzero.target_network_updates and not c.reanalyse.fresh_share,
        "{it} needs a network that bootstraps; give --muzero.target_network_updates=100"),
    rules.error("replay.priority_alpha", lambda c: c.this and c.run.agent == "sac",
        "agent sac samples uniformly, but {it}; leave it out"),
    # With the environment.
    rules.error("network.frame_stack", lambda c: c.this > 1 and _in_turn(c),
        "{it} in a game of two players: training shows both players' positions in turn, an evaluation only one "
        "player's; give --{name}=1", _SPEC),
    rules.error("network.lstm_width", lambda c: c.this and _in_turn(c),
        "{it} in a game of two players: training shows both players' positions in turn, an evaluation only one "
        "player's, and nothing is hidden there; give --{name}=0", _SPEC),
    rules.error("ppo.bonus", lambda c: c.this and _in_turn(c),
        "{it} in a game of two players: what one player gains the other loses, and a bonus is nobody's loss; leave it "
        "out", _SPEC),
    rules.error("muzero.memory", lambda c: c.this != "none" and _in_turn(c),
        "{it} in a game of two players: a search sees the other player's positions, which no memory has; give "
        "--muzero.memory=none", _SPEC),
    *(
        rules.error(name, lambda c: c.this and _in_turn(c),
            "{it} repeats actions of one player, but here two take turns; give --{name}=0, and see "
            "--env.random_opening", _SPEC)
        for name in ("explore.epsilon", "explore.first_steps")
    ),
    rules.error("network.module", lambda c: c.this and c.run.agent == "muzero" and c.spec.moves_again,
        "{it} does not predict whose turn it is, but in this game a player may move several times in a row; leave it "
        "out", _SPEC),
    rules.error("muzero.chance_codes", lambda c: c.this and c.spec.is_continuous,
        "{it} with continuous actions: each node of the search has samples of its own, and none has chance; give "
        "--{name}=0", _SPEC),
    rules.error("muzero.chance_codes",
        lambda c: c.this and not c.spec.has_chance and (c.spec.num_players > 1 or c.env.id.startswith("spiel:")),
        "{it} in a game without chance; give --{name}=0, or has_chance=True in the EnvSpec of a worker of your own",
        _SPEC),
    *(
        rules.error(name, _needs_images,
            "{it} changes images of shape [height, width] or [height, width, channels], but observations are {why}; "
            "give --{name}=0", _SPEC)
        for name in ("muzero.shift_pixels", "muzero.intensity_scale")
    ),
    rules.error("muzero.shift_pixels", _out_of_sight,
        "{it} moves images of {smallest} pixels out of sight; give less", _SPEC),
    rules.error("muzero.off_policy_correction", lambda c: c.this and c.spec.is_continuous,
        "{it} compares probabilities, but actions here are continuous; give --{name}=false", _SPEC),
    rules.error("muzero.policy_gradient_weight", lambda c: c.this and c.spec.is_continuous,
        "{it} needs actions with probabilities, but actions here are continuous; give --{name}=0", _SPEC),
)  # fmt: skip
