"""`seedzero record`: saves episodes of an agent as files, with the findings of its search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seedzero.api import runs
from seedzero.cli import evaluate, output, parse
from seedzero.core import errors

if TYPE_CHECKING:
    from seedzero.acting.tables import recording

_EPISODES = 20


def run(arguments: parse.Arguments) -> int:
    """Records episodes and prints a table of the files; returns the exit code."""
    choice, run_dir = evaluate.read_choice(arguments), arguments.flags["run_dir"]
    episodes = arguments.integer("episodes", minimum=1) or _EPISODES
    as_json = arguments.switch("json")
    out = arguments.flags.get("out") or f"{run_dir}/records"
    if "://" in out:
        raise errors.UsageError(f"--out={out}: episodes are written to this machine; give a directory")
    output.say(f"recording {run_dir} into {out}, {episodes} episodes")
    from seedzero.acting.tables import recording

    written: list[recording.RecordedEpisode] = []
    tell = output.progress("episodes")

    def recorded(episode: recording.RecordedEpisode) -> None:
        written.append(episode)
        tell(len(written), episodes)

    try:
        with runs.opened(choice) as here, output.others_aside():
            result = recording.record(here, out, episodes, recorded=recorded)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f": {len(written)} of {episodes} episodes are whole in {out}") from None
    if as_json:
        output.print_json({**result, "files": [_row(episode) for episode in written]})
    else:
        output.say(f"recorded the checkpoint of update {result['step']}: {result['steps']} steps")
        output.show(output.table([_row(episode) for episode in written]))
    return 0


def _row(episode: recording.RecordedEpisode) -> dict[str, object]:
    task = {"task": episode.task} if episode.task else {}
    return {"file": episode.file, "steps": episode.length, "return": episode.total, "cut_off": episode.cut_off, **task}


COMMAND = parse.Command(
    summary="Writes episodes of a saved agent as .npz files, with the findings of its search at every step.",
    usage="--run_dir=DIR [--episodes=N] [--out=DIR] [--step=N|best|last] [--seed=N] [--simulations=N] [--json]",
    flags={
        **parse.RUN_DIR,
        "episodes=N": f"number of episodes, a file for each (default {_EPISODES})",
        "out=DIR": "directory for the files, which must not have episodes yet; default: records in the run directory",
        **evaluate.CHECKPOINT,
        "seed=N": "seed of the environment and of drawn actions (default 0)",
        **evaluate.SIMULATIONS,
        **evaluate.LIMIT,
        **parse.TRUST,
        "json": "print one line of JSON instead of the table",
    },
    required=("run_dir",),
    details="""
OUT/episode-000000.npz and so on; docs/python.md has their arrays, seedzero.read_record(FILE) checks and reads them.
Ctrl-C keeps all finished files. One environment plays one episode after the other.

In games of two players the agent moves for both; without draws all games are equal, so give --policy=sample. In games
of seats a file has the turns of one seat, and the others move at random.

The JSON has step, chosen, out, episodes, steps (of all), and files: file, steps, return, cut_off (the limit of steps
ended it), task (where there are several).""",
    run=run,
)
