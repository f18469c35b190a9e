"""`seedzero benchmark`: measures how fast the parts run on a machine."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

from seedzero.cli import output, parse
from seedzero.config import configs, presets
from seedzero.core import errors

PARTS = ("transport", "environments", "acting", "replay", "update", "search", "sizing")
ROWS: Mapping[str, tuple[str | int, ...]] = {
    "batch": (8, 32, 128, 512),
    "network": ("free", "small", "middle"),
    "policy": ("gumbel", "puct"),
}
"""Flags of `search` -> their choices, as in interfaces/benchmark/search.py, which would load JAX."""

PLAYERS = (1, 2, 4, 8)
"""Choices of `acting`'s flag --players, as in interfaces/benchmark/players.py."""

_WITHOUT_PRESET = {
    "transport": "which trains nothing; leave it out",
    "search": f"whose rows are chosen by {', '.join(f'--{name}' for name in ROWS)}; leave it out",
}


def run(arguments: parse.Arguments) -> int:
    """Measures a part and prints the figures; returns the exit code. UsageError for wrong flags or settings."""
    as_json = arguments.switch("json")
    part = arguments.words[0]
    chosen = _chosen(part, arguments)
    stream = sys.stderr if as_json else sys.stdout
    module = "players" if "players" in chosen else part
    reports = module in ("players", "search")  # a row may take minutes, so each is shown at once
    if reports:
        chosen["report"] = row_printer(stream)
    # By name, so that each part loads only what it measures.
    figures = importlib.import_module(f"seedzero.interfaces.benchmark.{module}").run(**chosen)
    show(figures, stream, with_rows=not reports)
    if as_json:
        output.print_json(figures)
    return 0


def _chosen(part: str, arguments: parse.Arguments) -> dict[str, Any]:
    """Returns the arguments of the part's `run`, and rejects mistakes before JAX is loaded."""
    rows = {flag: _names(flag, arguments.flags[flag], ROWS[flag]) for flag in ROWS if flag in arguments.flags}
    if rows and part != "search":
        raise errors.UsageError(f"--{next(iter(rows))} chooses rows of search; {part} has none: leave it out")
    players = arguments.flags.get("players")
    if players is not None and part != "acting":
        raise errors.UsageError(f"--players={players} is for acting; {part} has one player: leave it out")
    preset = arguments.flags.get("preset", "")
    if part in _WITHOUT_PRESET:
        if preset or arguments.settings:
            name = "preset" if preset else next(iter(arguments.settings))
            raise errors.UsageError(f"--{name} is not for {part}, {_WITHOUT_PRESET[part]}")
        return rows
    agent = arguments.settings.get("run.agent", configs.agent_names()[0])
    base = presets.get(preset, agent) if preset else configs.Config()
    configs.check_read(arguments.settings, configs.override(base, arguments.settings).run.agent)
    numbers = {} if players is None else {"players": _names("players", players, PLAYERS)}
    return {"preset": preset, "settings": arguments.settings, **numbers}


def _names(flag: str, value: str, choices: Sequence[str | int]) -> tuple[str | int, ...]:
    """Returns the rows that a flag names, each once, in the table's order. Raises UsageError for an unknown name."""
    known = {str(name): name for name in choices}
    given = value.split(",")
    if not set(given) <= known.keys():
        raise errors.UsageError(f"--{flag}={value}: expected {', '.join(known)}, or several of them with commas")
    return tuple(name for text, name in known.items() if text in given)


# Printing ---------------------------------------------------------------------------------------------------------


def row_printer(stream: TextIO, rows: Sequence[Mapping[str, Any]] = ()) -> Callable[[Mapping[str, Any]], None]:
    """Returns a function that prints a row at once, below the names. widths: those of `rows`, or of the first row."""
    widths: list[int] = []

    def line(texts: Sequence[str]) -> str:
        return "  ".join([f"{texts[0]:<{widths[0]}}", *map(str.rjust, texts[1:], widths[1:])])

    def print_row(row: Mapping[str, Any]) -> None:
        if not widths:
            columns = {name: [_text(shown[name]) for shown in rows or [row]] for name in row}
            widths.extend(max(map(len, (name, *texts))) for name, texts in columns.items())
            print(line(list(row)), file=stream)
        print(line(list(map(_text, row.values()))), file=stream, flush=True)

    return print_row


def show(figures: Mapping[str, Any], stream: TextIO, *, with_rows: bool = False) -> None:
    """Prints the figures on a line each, and the rows as columns."""
    single = {name: _text(figure) for name, figure in figures.items() if not isinstance(figure, list)}
    width = max(map(len, single))
    for name, text in single.items():
        print(f"{name:<{width}}  {text}", file=stream)
    if with_rows and (rows := figures.get("rows", [])):
        print(file=stream)
        print_row = row_printer(stream, rows)
        for row in rows:
            print_row(row)


def _text(figure: object) -> str:
    if figure is None:
        return "-"
    if isinstance(figure, float):
        return f"{figure:,.4g}" if abs(figure) < 1e4 else f"{figure:,.0f}"
    return str(figure)


def _listing(choices: Sequence[str | int]) -> str:
    return ",".join(map(str, choices))


COMMAND = parse.Command(
    summary="Measures a part of the system on this machine.",
    usage=f"{'|'.join(PARTS)} [--preset=NAME] [--SECTION.KEY=VALUE ...] [--json]",
    words=(PARTS,),
    flags={
        "preset=NAME": "preset to measure (default: cartpole on a CPU, atari on an accelerator; environments: catch; "
        "sizing: atari)",
        f"batch={_listing(ROWS['batch'])}": "search: only these rows (default: all, on a CPU without 512)",
        f"network={_listing(ROWS['network'])}": "search: only these rows (default: all, on a CPU without middle)",
        f"policy={_listing(ROWS['policy'])}": "search: only these rows",
        f"players={_listing(PLAYERS)}": "acting: one call for each of N players, with its own parameters "
        "and an equal part of 32, 128 and 512 rows, against one call of all "
        "rows; for MuZero and PPO, or --agent",
        "json": "end with one line of JSON",
    },
    takes_settings=True,
    details="""
transport: observations a second through the real server and worker client, against bare grpc.aio.
environments: steps a second of --env=ENV in one worker process, through the wire and alone; as many as
  worker.envs_per_group and worker.num_groups say, with worker.threads threads. No agent acts: actions are random.
acting: environment steps a second of the acting program, against the agent alone and its networks alone. With
  --players=1,2,4,8 instead the price of several players: ratio_to_one is their rows a second as a share of one's.
replay: writing and sampling, against plain copies of as many bytes.
update: updates a second, against the bare gradient, and the parts' times.
search: one search of 18 actions, against mctx (a package of its own) and against its network calls alone,
  with 16 and 50 simulations. The networks: free (predictions from a random table), small and middle (the atari
  preset's). ratio_to_mctx: mctx's time / the search's, more than 1 if the search is faster. ratio_to_network:
  the search's time / that of its network calls alone, 1 if the tree costs nothing. considered: the root actions
  that Gumbel starts with; PUCT has no such number and shows 0. Takes 3 to 4 minutes on two cores.
sizing: what a frame (a step of an environment) costs this machine's environments, wire and devices, and what 10
  thousand, 100 thousand and a million frames a second would need by these figures, within a minute. It measures
  preset atari with PPO, or --preset and --agent (ppo, muzero). docs/speed.md, "Sizing", explains the columns.

Every ratio is the median over short slices that alternate in the same run, and a share of the peer's speed:
1 is as fast as the peer. (Only search's ratio_to_network is the other way round: a multiple of the peer's time.)""",
    run=run,
)
