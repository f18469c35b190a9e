"""`seedzero benchmark`: how fast the parts are on this machine."""

from __future__ import annotations

import importlib
import sys

from seedzero.cli import parse

PARTS = ("transport", "acting", "replay", "update")


def run(arguments: parse.Arguments) -> int:
    """Measures one part and prints the figures; returns the exit code."""
    as_json = arguments.switch("json")
    from seedzero.cli import output

    # By name: each part loads what it measures, and only that.
    module = importlib.import_module(f"seedzero.benchmark.{arguments.words[0]}")
    figures = module.run()
    stream = sys.stderr if as_json else sys.stdout
    width = max(map(len, figures))
    for name, figure in figures.items():
        text = f"{figure:,.6g}" if isinstance(figure, float) else str(figure)
        print(f"{name:<{width}}  {text}", file=stream)
    if as_json:
        output.print_json(figures)
    return 0


COMMAND = parse.Command(
    summary="Measures a part of the system on this machine.",
    usage=f"{'|'.join(PARTS)} [--json]",
    words=(PARTS,),
    flags=(parse.Flag("json", "end with one line of JSON"),),
    details="""
transport: observations a second through the real server and worker client, against bare grpc.aio in the same run.
acting: environment steps a second through search. replay: writing and sampling. update: updates a second.""",
    run=run,
)
