"""Rules about environments: what a family takes and reads, what a preset has for its own, and what an agent plays."""

from __future__ import annotations

import re
from collections.abc import Callable

from seedzero.config import configs, families, options, rules
from seedzero.core import env_ids, opponents, types

_MEMORY = re.compile(r"memory:[a-z]+-([1-9][0-9]*)")
"""Tasks whose number says how many steps to remember."""
_LEARNS_THROUGH = ("vtrace.unroll_length", "ppo.unroll_length", "r2d2.sequence_length", "muzero.burn_in")
"""The steps that an LSTM learns to remember."""
_LEVELS = env_ids.DMLAB30_LEVELS


def _changing_returns(c: rules.Situation) -> str:
    """Returns the user's setting that may change an environment's returns, --SECTION.KEY=VALUE, or ""."""
    unlike = {
        "env.kwargs": c.env.kwargs.strip() not in ("", "{}"),
        "env.wrappers": "ClipReward" in c.env.wrappers,  # the only wrapper of rewards, see envs/gym_wrappers.py
        "env.max_episode_steps": c.env.max_episode_steps > 0,
        "evaluation.max_episode_steps": True,
    }
    given = (name for name, is_unlike in unlike.items() if is_unlike and name in c.given)
    return next((f" without --{name}={c.value(name)}" for name in given), "")


def _off(c: rules.Situation, why: str = "") -> object:
    return {"flag": configs.flag(c.name), "old": str(c.this).lower(), "why": why}


def _steps_to_remember(c: rules.Situation) -> object:
    """Returns the steps that a task asks for, and those that an LSTM should learn through: not all go forward."""
    task = _MEMORY.fullmatch(c.env.id)
    if not task or (c.run.agent == "muzero" and c.muzero.memory == "none"):
        return None
    needed = min(2 * int(task[1]), 1000)
    return c.this < needed and {"needed": needed, "steps": task[1]}


def _way_to_memory(c: rules.Situation) -> str:
    """Returns how one of the package's agents, which acts on its newest observation alone, gets a memory; or ""."""
    is_muzero, has_lstm = c.run.agent == "muzero", configs.is_read("network.lstm_width", c.config)
    remembers = (has_lstm and c.network.lstm_width) or (is_muzero and c.muzero.memory != "none")
    asks = families.of(c.env.id).prefix in ("memory", "popgym")
    if not asks or remembers or c.network.frame_stack > 1 or c.run.agent not in configs.agent_names():
        return ""
    if has_lstm:
        return "--network.lstm_width=64"
    return "--muzero.memory=lstm" if is_muzero else "--agent=r2d2, vtrace or ppo"


def _is_evaluated(c: rules.Situation) -> object:
    fewest = len(opponents.tasks(opponents.parse(c.env.opponents)))
    return c.evaluation.every_updates and c.this < fewest and {"fewest": fewest}


def _is_taken(name: str) -> rules.SettingsRule:
    remedy = "omit it, or have your worker send Step.info" if name == "info_keys" else "leave it out"
    return rules.error(
        f"env.{name}",
        lambda c: c.this and name not in families.of(c.env.id).takes,
        f"{{it}} is for environments {families.taking_text(name)}, but this is --env={{env.id}}; {remedy}",
    )


def _is_read(name: str) -> rules.SettingsRule:
    """Warns of a setting that other families read; workers of `remote` may read any."""
    readers = families.READERS[name]
    return rules.warning(
        name,
        lambda c: name in c.given and families.of(c.env.id).prefix not in (*readers, env_ids.REMOTE),
        f"--{name} changes nothing: it is for {', '.join(readers)}, not for --env={{env.id}}",
    )


_Plays = Callable[[options.AgentSection, types.EnvSpec], bool]
_PLAYS: dict[str, _Plays] = {
    "{spec.num_players} players": lambda agent, spec: spec.num_players <= agent.MAX_PLAYERS,
    "{seats}": lambda agent, spec: agent.PLAYS_SEATS or not spec.seats,
    "{actions} actions": lambda agent, spec: agent.PLAYS_CONTINUOUS if spec.is_continuous else agent.PLAYS_DISCRETE,
}
"""What an environment may have -> whether an agent plays it."""


def _is_played(what: str, plays: _Plays) -> rules.SettingsRule:
    def applies(c: rules.Situation) -> object:
        agents = {name: getattr(c.config, name) for name in configs.agent_names()}
        able = [name for name, agent in agents.items() if all(each(agent, c.spec) for each in _PLAYS.values())]
        kind = families.of(c.env.id).prefix
        able = [name for name in able if not (only := agents[name].FAMILIES) or kind in only]
        return not plays(c.agent, c.spec) and {
            "actions": "continuous" if c.spec.is_continuous else "discrete",
            "seats": c.seated_by or "chance, hidden information, simultaneous moves or several players",
            "way": f"give --agent={'|'.join(able)}" if able else "no agent does",
        }

    text = f"agent {{run.agent}} cannot play environments with {what}, as --env={{env.id}} has; {{way}}"
    return rules.error("run.agent", applies, text, rules.Needs.SPEC)


_OF_PRESET = {"run.stop_at_return": "inf", "run.max_updates": "0", "evaluation.pauses_training": "false"}
"""What belongs only to a preset's environment, and the value for others."""
_OFF = "ignored the preset's {flag}={old}, which is meant for {preset_env}{why}"

RULES = (
    rules.note("worker.num", "0", lambda c: c.env.id == env_ids.REMOTE,
        "--env=remote: no local workers, the environments come with the workers that join"),
    *(rules.note(name, off, lambda c: c.env.id != c.preset_env and _off(c), _OFF) for name, off in _OF_PRESET.items()),
    rules.note("run.stop_at_return", "inf", lambda c: (why := _changing_returns(c)) and _off(c, why), _OFF),
    *(
        rules.note(name, "{needed}", _steps_to_remember, "--{name}={needed}: {env.id} needs a memory of {steps} steps")
        for name in _LEARNS_THROUGH
    ),
    rules.warning("run.agent", _way_to_memory,
        "{it} has no memory here: it sees only the newest observation, which does not show what --env={env.id} asks "
        "for; give {why}"),
    *map(_is_read, families.READERS),
    rules.warning("worker.num worker.envs_per_group",
        lambda c: c.env.id == env_ids.DMLAB30 and 0 < c.worker.num_envs < _LEVELS and not c.worker.num_remote,
        f"--env={{env.id}} has {_LEVELS} levels, and {{worker.num_envs}} environments play as many of them; give more "
        "--workers or --worker.envs_per_group"),
    *(
        rules.warning(name,
            lambda c: c.env.id == env_ids.DMLAB30 and c.evaluation.every_updates and 0 < c.this < _LEVELS,
            f"{{it}}: evaluations play {{this}} of the {_LEVELS} levels; give --{name}={_LEVELS}")
        for name in ("evaluation.num_envs", "evaluation.episodes", "batcher.max_batch")
    ),
    rules.error("env.opponents", lambda c: rules.why(opponents.parse, c.this),
        "{it}: {why}; give --env.opponents=random,mcts-100"),
    rules.error("env.id run.agent",
        lambda c: c.run.agent == "alphazero" and families.of(c.env.id).prefix not in c.agent.FAMILIES,
        "agent alphazero searches by the rules of Pgx's games, and {it} has none; give --env=pgx:GAME, or another "
        "agent: muzero learns a model of most environments"),
    rules.error("env.opponents",
        lambda c: not c.env.id.startswith(f"spiel:{opponents.REPEATED}(")
        and next(filter(opponents.roshambo_bot, opponents.parse(c.this)), ""),
        "--env.opponents={why} plays repeated rock-paper-scissors, as --preset=roshambo; give --env.opponents=random"),
    *(
        rules.error(f"evaluation.{name}", _is_evaluated,
            "{it}: an evaluation plays both sides against each of --env.opponents={env.opponents}; give "
            "--{name}={fewest} or more")
        for name in ("num_envs", "episodes")
    ),
    *map(_is_taken, sorted({name for family in families.FAMILIES for name in family.takes})),
    rules.error("env.game_state", lambda c: c.this and c.run.agent != "alphazero",
        "{it} is for --agent=alphazero, but this is --agent={run.agent}; leave it out"),
    rules.error("env.joint_observation", lambda c: c.this and not (c.run.agent == "ppo" and c.ppo.central_value),
        "{it} is for --ppo.central_value=true, which gives it by itself; leave it out"),
    *(_is_played(what, plays) for what, plays in _PLAYS.items()),
)  # fmt: skip
"""In the order in which they are evaluated; of several errors the first is reported."""
