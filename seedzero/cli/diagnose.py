"""`seedzero diagnose`: checks a run's metrics by the table of docs/troubleshooting.md, without JAX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from seedzero.cli import output, parse
from seedzero.core import errors

if TYPE_CHECKING:
    from seedzero.monitoring import diagnosis


def run(arguments: parse.Arguments) -> int:
    """Prints a verdict for each row of the table; returns the exit code, which is 1 if there are symptoms."""
    place = arguments.flags["run_dir"]
    from seedzero.monitoring import diagnosis, learning_curves, metrics_log, random_play, symptoms
    from seedzero.storage.bucket import run_copy
    from seedzero.storage.checkpoints import run_dirs

    with run_copy.local(place, lambda copy: copy.fetch(metrics_log.METRICS_FILE)) as path:
        config = run_dirs.read_saved(path).config
        curve, num_damaged = learning_curves.read(path)
        spec = run_dirs.read_spec(path)
    if num_damaged:
        output.say(f"unreadable lines of {place}/{metrics_log.METRICS_FILE} that are left out: {num_damaged}")
    if not curve.num_rows:
        raise errors.ResumeError(
            f"{place} has no rows of training in {metrics_log.METRICS_FILE} yet: there is nothing to diagnose; a row "
            f"comes every {config.metrics.every_seconds:g} s once training begins"
        )
    found = diagnosis.verdicts(symptoms.RunCase(config, spec, curve, random_play.recall(config.env)))
    sick = [verdict.rule.name for verdict in found if verdict.state == diagnosis.UNHEALTHY]
    if arguments.switch("json"):
        output.print_json(
            {
                "run_dir": place,
                "agent": config.run.agent,
                "update": curve.update,
                "env_steps": curve.env_steps,
                "rows": curve.num_rows,
                "healthy": not sick,
                "verdicts": [
                    {"name": rule.name, "metrics": rule.metrics, "state": state, "seen": seen, "change": change}
                    for rule, state, seen, change in found
                ],
            }
        )
    else:
        head = f"{place}: {config.run.agent}, update {curve.update:,}, {curve.env_steps:,} steps, {curve.num_rows}"
        unchecked = [verdict.rule.name for verdict in found if verdict.state == diagnosis.NOT_CHECKED]
        rest = f", but for {', '.join(unchecked)}, which this run's rows cannot tell" if unchecked else ""
        end = f"not healthy: {', '.join(sick)}; docs/troubleshooting.md says more" if sick else f"healthy{rest}"
        output.show("\n".join([f"{head} rows", *_lines(found), end]))
    return errors.FAILED if sick else errors.DONE


def _lines(found: Sequence[diagnosis.RuleVerdict]) -> Iterator[str]:
    """Yields the table's lines; advice follows on its own line."""
    width = max(len(verdict.rule.name) for verdict in found)
    for verdict in found:
        seen = f": {verdict.seen}" if verdict.seen else ""
        yield f"  {verdict.rule.name:<{width}}  {verdict.state}{seen}"
        if verdict.change:
            yield f"  {'':<{width}}  change first: {verdict.change}"


COMMAND = parse.Command(
    summary="Checks a run's metrics for symptoms of runs that do not learn, and names the setting to change.",
    usage="--run_dir=DIR [--json]",
    flags={**parse.RUN_DIR, "json": "print one line of JSON instead of the table"},
    required=("run_dir",),
    details="""
A row for each symptom of the table in docs/troubleshooting.md that concerns the run's agent: healthy; not healthy,
with the numbers and the setting to change first; not recorded, with the missing metrics (a run without episodes yet);
too early, with too few updates or rows; not checked, where the training return shows no
progress, as in self-play. The run may be running. Exit code 0: healthy, as far as the rows tell; 1: not; 2: no run, or
no rows.

The JSON has run_dir, agent, update, env_steps, rows, healthy, and verdicts: name, metrics, state, seen, change.""",
    run=run,
)
