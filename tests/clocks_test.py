"""Clocks of a machine jump: what is decided, leases, budgets and pauses, is measured by a clock that does not."""

import pathlib
import re

PACKAGE = pathlib.Path(__file__).parents[1] / "seedzero"
_WALL_CLOCK = re.compile(r"\btime\.time(?:_ns)?\b|\bdatetime\.(?:datetime|date)\.(?:now|utcnow|today)\(")
SHOWN = {
    "api/run_groups.py": "whether a learner on another machine renews its lease, shown as the run's state",
    "api/training.py": "the name of a new run directory",
    "storage/bucket/lease.py": "shown by `seedzero status`; other learners watch the object change",
    "storage/checkpoints/checkpointers.py": "the age of checkpoints in their listing",
    "cli/checkpoint.py": "the same",
    "cli/listings.py": "the age of runs in their listing",
    "cli/play_page.py": "the name of a recording",
    "envs/dmlab.py": "old rests; one that a process still writes is a level that is made anew",
    "interfaces/serving/memories.py": "the age of memories, which clients send to other servers, too",
    "learner/entry.py": "shown in learner.json",
    "monitoring/metrics_log.py": "the axis of TensorBoard",
    "monitoring/status.py": "whether a learner on another machine renews its lease, said with its age",
    "monitoring/views.py": "lines of JSON on the screen",
}
"""Files that read the wall clock, and what for."""


def test_the_wall_clock_is_for_people_alone() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert {file for file, source in files.items() if _WALL_CLOCK.search(source)} == SHOWN.keys()
