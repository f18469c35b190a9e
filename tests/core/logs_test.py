from __future__ import annotations

import subprocess
import sys

import pytest

LINES = """
import logging
import seedzero.core.logs as logs
assert not logging.root.handlers
logs.show("seedzero worker w", int({verbosity}))
logging.getLogger("seedzero.worker").info("joined")
logging.getLogger("seedzero.worker").warning("lost")
logging.getLogger("other").info("chatter")
logging.getLogger("other").warning("old")
"""


@pytest.mark.parametrize(("verbosity", "shown"), [(0, ["joined", "lost"]), (-1, ["lost"]), (-2, [])])
def test_a_program_shows_its_own_messages_from_a_level_on_and_others_warnings(
    verbosity: int, shown: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LINES.format(verbosity=verbosity)], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines() == [f"seedzero worker w: {text}" for text in (*shown, "old")]
