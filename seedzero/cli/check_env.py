"""`seedzero check-env`: reports an environment's arrays, episodes and speed, and its settings for training."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seedzero.api import environment, request
from seedzero.cli import output, parse
from seedzero.config import configs, presets, shared
from seedzero.core import errors, types
from seedzero.monitoring import random_play

if TYPE_CHECKING:
    from seedzero.envs import check

NUM_STEPS = 1000
MAX_SECONDS = 30.0


def run(arguments: parse.Arguments) -> int:
    """Steps an environment at random and prints its findings; returns the exit code. UsageError for a wrong flag."""
    given = arguments.integer("steps", minimum=1)
    num_steps, max_seconds = (given, math.inf) if given else (NUM_STEPS, MAX_SECONDS)
    named = [*arguments.words, *filter(None, [arguments.settings.get("env.id")])]
    if not named:
        raise errors.UsageError(f"no environment is named; usage: seedzero check-env {COMMAND.usage}")
    if arguments.words and "env.id" in arguments.settings.keys() - arguments.of_file:
        raise errors.UsageError(f"name one environment: {named[0]} follows check-env, so leave --env={named[1]} out")
    preset, env_id = arguments.flags.get("preset"), named[0]
    report: dict[str, Any] = {"env": env_id, "errors": [], "warnings": [], "notes": [], "learning": []}
    try:
        with output.others_aside():
            asked = request.check_early(
                request.make({"preset": preset} if preset else {}, {**arguments.settings, "env.id": env_id})
            )
            report |= _report(asked, num_steps, max_seconds)
    except (errors.EnvironmentFailure, errors.ConfigError, errors.SpecMismatch) as error:
        from seedzero.envs import env_base

        report["errors"] = [str(error)]
        report["traceback"] = "\n".join(getattr(error, "__notes__", ())) or env_base.trace(error)
    if arguments.switch("json"):
        output.print_json(report)
    else:
        output.show("\n".join(_lines(report)))
        if not report["errors"]:
            output.show_command("train it:", _command(env_id, preset, arguments.settings))
    return errors.FAILED if report["errors"] else errors.DONE


def _report(asked: request.Request, num_steps: int, max_seconds: float) -> dict[str, Any]:
    from seedzero.envs import advice, check, registry  # numpy and gymnasium, which an early mistake need not wait for

    config = asked.config
    seen = environment.look(
        config.env, num_steps, max_seconds, limit_seconds=config.transport.limit_seconds, say=output.say
    )
    findings, found, spec = seen.findings, seen.warnings, seen.spec
    network, misfits = _network(config, spec)
    reads = configs.is_read("reward.discount", config)  # a user's own agent may have its own
    discount = config.reward.discount if reads else float(getattr(config.agent, "discount", 1.0))
    random_play.remember(config.env, list(map(sum, findings.episodes)))
    largest = 0.0 if found.errors else check.largest_return(findings, discount)
    saw = f"{findings.num_steps} steps took {MAX_SECONDS:g} s, so this saw little"
    cut_short = [] if findings.num_steps == num_steps else [f"{saw}; --steps={num_steps} takes all of them"]
    on_cpu = presets.cpu_values(asked.preset, config.run.agent, explicit=asked.fixed)
    here = configs.override(config, on_cpu)
    timing = advice.timing(here, findings)
    beyond = _beyond_support(config, largest, findings.rewards)
    paced = advice.of_speed(here, spec, findings, timing, is_chosen="run.agent" in asked.given)
    return {
        "observation_space": seen.space,
        "observations": [
            {"name": array.name, "shape": array.shape, "dtype": array.dtype, "low": array.low, "high": array.high}
            | {"seen_low": findings.arrays[array.name].low, "seen_high": findings.arrays[array.name].high}
            for array in spec.arrays
        ],
        "actions": {"low": spec.action_low, "high": spec.action_high}
        if spec.is_continuous
        else {"num_actions": spec.num_actions, "has_mask": spec.has_action_mask},
        "num_players": spec.num_players,
        "seats": list(spec.seats),
        "fixed_seats": spec.fixed_seats,
        "steps": findings.num_steps,
        **_episodes(findings),
        "steps_per_second": round(findings.steps_per_second, 1),
        "timing": {**timing._asdict(), "text": timing.sentence()},
        "preset": asked.preset,
        "agent": config.run.agent,
        "network": network,
        "preset_reason": [note for note in asked.notes if note not in found.warnings],
        "errors": [*found.errors, *misfits],
        "warnings": [*cut_short, *found.warnings, *beyond],
        "notes": [*filter(None, [registry.advice(config.env.id)]), *found.notes, *paced],
        "learning": [] if found.errors else [*advice.of_learning(here, spec, findings)],
    }


def _episodes(findings: check.Findings) -> dict[str, Any]:
    values: dict[str, Sequence[float]] = {
        "length": list(map(len, findings.episodes)),
        "return": list(map(sum, findings.episodes)),
        "reward": findings.rewards,
    }
    spreads = {name: [min(x), sum(x) / len(x), max(x)] if x else None for name, x in values.items()}
    return {"episodes": len(findings.episodes), **spreads}


def _network(config: configs.Config, spec: types.EnvSpec) -> tuple[str, list[str]]:
    """Returns the setting of the network's kind, with the kind, and errors for environments that no network suits."""
    name = "network.kind"
    if not configs.is_read(name, config):
        return "", []
    try:
        return f"{name}={shared.choose_kind(name, config.network.kind, spec)}", []
    except errors.ConfigError as error:
        return f"no {name} fits", [str(error)]


def _beyond_support(config: configs.Config, largest: float, rewards: Sequence[float]) -> list[str]:
    """Returns a warning if the returns seen are beyond MuZero's categorical values."""
    if config.run.agent != "muzero" or config.reward.clip or not largest:
        return []
    sizes = [abs(reward) for reward in rewards if reward]
    unit = math.sqrt(sum(size * size for size in sizes) / len(sizes)) if sizes and config.reward.normalize else 1.0
    value, network = largest / unit, config.network
    # As ops/value_transforms.py, which needs JAX.
    shown = math.log1p(value) if network.value_transform == "symlog" else math.sqrt(value + 1) - 1 + 1e-3 * value
    if shown <= network.support_limit:
        return []
    return [
        f"random play has a discounted return of {largest:g}, {shown:.1f} in the units of --network.support_limit="
        f"{network.support_limit:g}: such values are clipped; give --network.support_limit={math.ceil(2 * shown)}"
    ]


def _lines(report: Mapping[str, Any]) -> list[str]:
    rows: list[tuple[str, str]] = []
    for array in report.get("observations", ()):
        shape = "x".join(map(str, array["shape"])) or "1"
        declared, seen = (f"{_number(array[f'{by}low'])} to {_number(array[f'{by}high'])}" for by in ("", "seen_"))
        rows.append(("observation", f"{array['name']}: {array['dtype']} {shape}, {declared}; seen {seen}"))
    if "actions" in report:
        rows += _summary(report)
    lines = [str(report["env"]), *(f"  {name:<12} {text}" for name, text in rows)]
    for level in ("errors", "warnings", "notes", "learning"):
        lines += [f"{level.removesuffix('s')}: {text}" for text in report[level]]
    return [*lines, *report.get("traceback", "").splitlines()]


def _command(env_id: str, preset: str | None, settings: Mapping[str, str]) -> str:
    """Returns the command line that trains on the environment as it was checked."""
    given = {"env": env_id, **({"preset": preset} if preset else {}), **settings}
    given.pop("env.id", None)  # from a preset's file
    return shlex.join(["seedzero", "train", *(f"{configs.flag(name)}={value}" for name, value in given.items())])


def _summary(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    actions = report["actions"]
    if "num_actions" in actions:
        text = f"{actions['num_actions']} discrete{', some not always legal' if actions['has_mask'] else ''}"
    else:
        text = f"{len(actions['low'])} numbers from {_number(min(actions['low']))} to {_number(max(actions['high']))}"
    rows = [("actions", text)]
    if report["num_players"] == 2:
        rows.append(("players", "2, who take turns"))
    if report["seats"]:
        names = ", ".join(report["seats"])
        kind, fate = (
            ("agents", "of its own") if report["fixed_seats"] else ("seats", "that changes its seat from game to game")
        )
        rows.append((kind, f"{len(report['seats'])} ({names}), each a row {fate}"))
    episodes = f"{report['episodes']} ended in {report['steps']} random steps"
    if report["length"]:
        episodes += f"; length {_spread(report['length'])}; return {_spread(report['return'])}"
    rows.append(("episodes", episodes))
    if report["reward"]:
        rows.append(("reward", f"{_spread(report['reward'])} a step"))
    rows.append(("speed", f"{report['steps_per_second']:.0f} steps/s of one environment in one process"))
    rows.append(("timing", report["timing"]["text"]))
    rows.append(("training", f"preset {report['preset']}, agent {report['agent']}, {report['network']}"))
    return rows


def _spread(values: Sequence[float]) -> str:
    low, mean, high = map(_number, values)
    return f"{low} to {high}, mean {mean}"


def _number(value: float) -> str:
    return f"{value:.4g}"


COMMAND = parse.Command(
    summary="Checks an environment with random steps and prints its spaces, "
    "episodes and fitting settings; trains nothing.",
    usage="ENV|--env=ENV [--preset=NAME] [--agent=NAME] [--env.KEY=VALUE ...] [--json]",
    flags={
        parse.PRESET: "preset to check for (default: the one that suits the environment)",
        "steps=N": f"random steps (default: {NUM_STEPS}, or as many as {MAX_SECONDS:g} s allow)",
        "json": "print one line of JSON",
    },
    more_words=1,
    takes_settings=True,
    details="""
It makes the environment as a worker would and prints its arrays, the range of their values, lengths and returns of
episodes, rewards, speed, when a run would update, evaluate and end at that speed, the preset and network that
`seedzero train --env=ENV` chooses, and advice; what makes learning hard follows "learning:".

The exit code is 1 for an environment that training would reject.

Examples:
  seedzero check-env gym:LunarLander-v3
  seedzero check-env gym:my_module:MyEnv-v0 --env.kwargs='{"size": 5}' --agent=vtrace
  seedzero check-env gym:CarRacing-v3 --env.wrappers='["GrayscaleObservation"]' --json""",
    run=run,
)
