"""`seedzero benchmark`: how fast the parts are on this machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from seedzero.cli import parse
from seedzero.core import config as config_lib
from seedzero.core import errors, presets

PARTS = ("transport", "acting", "replay", "update")
_WITHOUT_PRESET = "transport"


def run(arguments: parse.Arguments) -> int:
    """Measures one part and prints the figures; returns the exit code.

    Raises:
      UsageError: an unknown preset or setting, or one for a part that has none.
    """
    as_json = arguments.switch("json")
    part = arguments.words[0]
    chosen = _chosen(part, arguments)
    from seedzero.cli import output

    # By name: each part loads what it measures, and only that.
    figures = importlib.import_module(f"seedzero.benchmark.{part}").run(**chosen)
    print("\n".join(_lines(figures)), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        output.print_json(figures)
    return 0


def _chosen(part: str, arguments: parse.Arguments) -> dict[str, Any]:
    """Returns what `run` of the part is called with; refuses what is wrong before JAX is loaded."""
    preset = arguments.flags.get("preset", "")
    if part == _WITHOUT_PRESET:
        if preset or arguments.settings:
            name = "preset" if preset else next(iter(arguments.settings))
            raise errors.UsageError(f"--{name} is not for {part}, which trains nothing; leave it out")
        return {}
    config_lib.override(presets.get(preset) if preset else config_lib.Config(), arguments.settings)
    return {"preset": preset, "settings": arguments.settings}


def _lines(figures: Mapping[str, Any]) -> list[str]:
    """Returns the figures, one a line, and their rows as columns."""
    single = {name: _text(figure) for name, figure in figures.items() if name != "rows"}
    width = max(map(len, single))
    lines = [f"{name:<{width}}  {text}" for name, text in single.items()]
    rows = figures.get("rows", [])
    if not rows:
        return lines
    return [*lines, "", *_columns([list(rows[0]), *([_text(x) for x in row.values()] for row in rows)])]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns lines of columns, the first one left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [f"{text:>{width}}" for text, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([f"{first:<{widths[0]}}", *cells]))
    return lines


def _text(figure: object) -> str:
    if isinstance(figure, float):
        return f"{figure:,.4g}" if abs(figure) < 1e4 else f"{figure:,.0f}"
    return str(figure)


COMMAND = parse.Command(
    summary="Measures a part of the system on this machine.",
    usage=f"{'|'.join(PARTS)} [--preset=NAME] [--SECTION.KEY=VALUE ...] [--json]",
    words=(PARTS,),
    flags=(
        parse.Flag("preset", "what acts and learns (default: cartpole on a CPU, atari on an accelerator)", "NAME"),
        parse.Flag("json", "end with one line of JSON"),
    ),
    takes_settings=True,
    details="""
transport: observations a second through the real server and worker client, against bare grpc.aio.
acting: environment steps a second of the acting program, against the agent alone and its networks alone.
replay: writing and sampling, against plain copies of as many bytes.
update: updates a second, against the bare gradient, and where the time goes.

Every ratio is the median over short slices that alternate in the same run, and a share of the peer's speed:
1 is as fast as the peer.""",
    run=run,
)
