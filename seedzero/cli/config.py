"""`seedzero config`: every hyperparameter with its value, unit and help."""

from __future__ import annotations

import textwrap

from seedzero.cli import parse
from seedzero.config import config as config_lib
from seedzero.config import presets

_INDENT = " " * 6


def run(arguments: parse.Arguments) -> int:
    """Prints the settings of a preset; returns the exit code."""
    preset = arguments.flags["preset"]
    values = config_lib.flatten(config_lib.override(presets.get(preset), arguments.settings))
    on_cpu = presets.cpu_values(preset, explicit=arguments.settings.keys())
    print(f"# preset {preset}: {presets.find(preset).description}")
    if on_cpu:
        print("# values for an accelerator; where another one holds on a CPU, it stands beside it")
    section = ""
    for name, value in values.items():
        if name.partition(".")[0] != section:
            section = name.partition(".")[0]
            print(f"\n[{section}]")
        print(_entry(name, value, on_cpu.get(name)))
    return 0


def _entry(name: str, value: config_lib.Value, on_cpu: config_lib.Value | None) -> str:
    """Returns a setting as `--name=value  unit`, and below it what it means."""
    metadata = config_lib.fields()[name].metadata
    cpu = "" if on_cpu is None else f"  (on a CPU: {_text(on_cpu)})"
    unit = f"  {metadata['unit']}" if metadata["unit"] else ""
    choices = f" [{' | '.join(metadata['choices'])}]" if metadata["choices"] else ""
    help_text = textwrap.fill(
        metadata["help"] + choices, parse.WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT
    )
    return f"  --{name}={_text(value)}{unit}{cpu}\n{help_text}"


def _text(value: config_lib.Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


COMMAND = parse.Command(
    summary="Lists every setting of a preset with its value, unit and help.",
    usage="--preset=NAME [--SECTION.KEY=VALUE ...]",
    flags=(parse.Flag("preset", f"one of {', '.join(presets.names())}", "NAME", required=True),),
    takes_settings=True,
    details="",
    run=run,
)
