"""`seedzero export`: a saved agent as programs for JAX alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seedzero.api import runs
from seedzero.cli import evaluate, output, parse


def run(arguments: parse.Arguments) -> int:
    """Exports a checkpoint; returns the exit code."""
    flags = arguments.flags
    manifest = runs.export(
        flags["run_dir"],
        flags["out"],
        step=evaluate.read_step(arguments),
        file_format=flags.get("format", "stablehlo"),
        platforms=flags.get("platforms", "cpu").split(","),
        batch_size=arguments.integer("batch_size", minimum=1),
        trust_run_dir=arguments.switch("trust_run_dir"),
    )
    output.say(f"exported the checkpoint of update {manifest['step']} to {flags['out']}")
    for part in ({**manifest["functions"], "parameters": manifest["parameters"]}).values():
        output.say(f"{part['file']}: {part['num_bytes'] / 1024:.0f} KiB{_description(part)}")
    kept = ("step", "chosen", "platforms", "batch_size")
    output.print_json({"out": flags["out"], **{name: manifest[name] for name in kept}})
    return 0


def _description(part: Mapping[str, Any]) -> str:
    return f": {part['description']}" if "description" in part else ""


COMMAND = parse.Command(
    summary="Writes a saved agent as StableHLO programs that need JAX alone.",
    usage="--run_dir=DIR --out=DIR [--step=N|best|last] [--format=stablehlo] [--platforms=cpu,cuda,tpu]",
    flags=(
        parse.Flag("run_dir", "of the training run", "DIR|gs://BUCKET/PATH", required=True),
        parse.Flag("out", "directory to write; an earlier export there is replaced as a whole", "DIR", required=True),
        parse.Flag(
            "step",
            "which checkpoint: an update's number, best or last; default: best where there is one, else last",
            "N|best|last",
        ),
        parse.Flag("format", "stablehlo (the default): programs of jax.export", "stablehlo"),
        parse.Flag("platforms", "that the programs run on, of cpu, cuda, rocm, tpu (default cpu)", "NAMES"),
        parse.Flag("batch_size", "rows of all inputs (default: any number)", "N"),
        parse.TRUST,
    ),
    details="""
Needs the package flatbuffers. OUT has manifest.json (names, shapes, dtypes and the call), parameters.npz and
a file for each function: act, from newest frames to actions with everything that a row carries; for MuZero represent,
predict and dynamics, too. Every input and output is an array by name. docs/python.md has the call.

Without --batch_size programs take batches of any size. With cpu among the platforms all compute in float32.""",
    run=run,
)
