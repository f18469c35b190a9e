"""`seedzero config`: every hyperparameter with its value, unit and help."""

from __future__ import annotations

import textwrap

from seedzero.cli import output, parse
from seedzero.config import combinations, options, presets
from seedzero.config import config as configs

_INDENT = " " * 6


def run(arguments: parse.Arguments) -> int:
    """Prints the settings of a preset; returns the exit code.

    Raises:
      ConfigError: settings that are wrong, or, once they are printed, that `train` would refuse together.
    """
    preset = arguments.flags["preset"]
    agent = arguments.settings.get("run.agent", configs.agent_names()[0])
    base = presets.get(preset, agent)
    configs.check_read(arguments.settings, agent)
    config, _ = combinations.imply(
        configs.override(base, arguments.settings),
        preset_env=base.env.id,
        explicit=arguments.settings.keys(),
        elsewhere=presets.part(preset, agent).elsewhere,
    )
    values = {name: value for name, value in configs.flatten(config).items() if configs.is_read(name, agent)}
    on_cpu = presets.cpu_values(preset, agent, explicit=arguments.settings.keys())
    output.show(f"# preset {preset}, agent {agent}: {presets.find(preset).description}")
    print("# *: a run directory keeps it; all others may change when a run resumes")
    if on_cpu:
        output.show("# values for an accelerator; where another one holds on a CPU, it stands beside it")
    section = ""
    for name, value in values.items():
        if name.partition(".")[0] != section:
            section = name.partition(".")[0]
            print(f"\n[{section}]")
        output.show(_entry(name, value, on_cpu.get(name)))
    combinations.check(config, configs.override(config, on_cpu))
    return 0


def _entry(name: str, value: options.Value, on_cpu: options.Value | None) -> str:
    """Returns a setting as `--name=value  unit`, and below it what it means."""
    metadata = configs.fields()[name].metadata
    cpu = "" if on_cpu is None else f"  (on a CPU: {_text(on_cpu)})"
    unit = f"  {metadata['unit']}" if metadata["unit"] else ""
    choices = f" [{' | '.join(metadata['choices'])}]" if metadata["choices"] else ""
    help_text = textwrap.fill(
        metadata["help"] + choices, parse.WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT
    )
    mark = "" if metadata["resumable"] else "  *"
    return f"  --{name}={_text(value)}{unit}{cpu}{mark}\n{help_text}"


def _text(value: options.Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


COMMAND = parse.Command(
    summary="Lists every setting of a preset with its value, unit and help.",
    usage="--preset=NAME [--SECTION.KEY=VALUE ...]",
    flags=(parse.Flag("preset", f"one of {', '.join(presets.PRESETS)}", "NAME", required=True),),
    takes_settings=True,
    run=run,
)
