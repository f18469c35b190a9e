"""`seedzero league nash`: judges a run's players exactly."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from seedzero.api import runs
from seedzero.cli import evaluate, output, parse
from seedzero.core import errors, opponents

if TYPE_CHECKING:
    from seedzero.acting.actors import agent_choice
    from seedzero.api import exploitability
    from seedzero.storage.checkpoints import saved_files

_SMALLEST_SHOWN = 0.01
_ALONE = "The run has no league, so it has no mixtures; only main is measured."
_UNEVEN = (
    "There is no mixture `equilibrium`: a linear programme finds one only where returns sum to zero. Each seat's gain "
    "counts over its own return."
)


def judge(arguments: parse.Arguments) -> int:
    """Judges a run's players and prints the NashConv of their mixtures; returns the exit code."""
    found = judged(arguments)
    _keep(arguments.flags["run_dir"], found.to_json())
    if arguments.switch("json"):
        output.print_json(found.to_json())
        return 0
    head = f"{arguments.flags['run_dir']}: after {found.update:,} updates and {found.env_steps:,} steps"
    if len(found.mixtures) == 1:
        output.show(f"{head}\n\nNashConv of main, the last iterate: {found.best.nash_conv:.4f}\n\n{_ALONE}")
        return 0

    def row(name: str, mixture: exploitability.Mixture) -> dict[str, object]:
        num_players = ((weights > 0).sum() for weights in mixture.weights)
        return {"mixture": name, "nash_conv": f"{mixture.nash_conv:.4f}", **_by_seat(num_players)}

    mixtures = [row(*item) for item in found.mixtures.items()]
    shares = [(name, [seat.get(name, 0.0) for seat in found.weights]) for name in found.names]
    weights = [
        {"player": found.labels.get(name, name), **_by_seat(seats)}
        for name, seats in shares
        if max(seats) > _SMALLEST_SHOWN
    ]
    of_equilibrium = (
        f"players of the equilibrium with a weight above {_SMALLEST_SHOWN}, by seat\n{output.table(weights)}"
    )
    output.show(
        f"{head}\n\nmixtures of {len(found.names)} players, and the number of players in them by seat\n"
        f"{output.table(mixtures)}\n\n{of_equilibrium if found.sums_to_zero else _UNEVEN}\n\n"
        f"cyclic triples: {found.cycles:,} (each of three players beats the next one)"
    )
    return 0


def _keep(place: str, found: Mapping[str, Any]) -> None:
    """Writes the newest judgement into the run directory, for the page, unless that is a bucket."""
    from seedzero.monitoring import league_log
    from seedzero.storage.bucket import bucket
    from seedzero.storage.checkpoints import run_dirs

    if bucket.parse(place) is not None:
        return
    kept = {name: found[name] for name in ("update", "env_steps", "mixtures")}
    try:
        run_dirs.write_json_atomic(pathlib.Path(place) / league_log.NASH_FILE, kept)
    except OSError as error:
        output.say(
            f"the page of {place} will not show these numbers: {league_log.NASH_FILE} cannot be written ({error})"
        )


def judged(arguments: parse.Arguments) -> exploitability.Exploitability:
    """Returns the exact judgement of a run's players."""
    choice, step = _step(arguments)
    from seedzero.api import exploitability

    place = arguments.flags["run_dir"]
    with runs.opened(choice, exploitability.fetching(place, step)) as here:
        return exploitability.judge(here.path, place, step, trusted=here.trusted)


def _step(arguments: parse.Arguments) -> tuple[agent_choice.AgentChoice, saved_files.Step]:
    """Returns the choice of a run, and the checkpoint to judge."""
    choice = evaluate.read_choice(arguments)
    if choice.step == "best":
        raise errors.UsageError(
            "--step=best: that checkpoint has no league; give the number of a saved update, or last"
        )
    return choice, "last" if choice.step is None else choice.step


def _by_seat(values: Iterable[object]) -> dict[str, object]:
    return dict(zip(opponents.SIDES, values, strict=True))
