"""`seedzero play --page`: records an episode and shows it on the page of its run."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import pathlib
import shutil
import sys
import tempfile
import urllib.parse
import webbrowser
from collections.abc import Callable, Iterator

from seedzero.acting.actors import agent_choice
from seedzero.cli import output, parse
from seedzero.config import page_options
from seedzero.core import errors
from seedzero.storage.bucket import bucket

HOST = "127.0.0.1"
_NOT_COPIED = ("replay", "segments", "state", "tensorboard", "logs", "lock", "*.sock")
"""Files of a run that playing does not need: large ones, and those that only their owner can open."""


def run(arguments: parse.Arguments, choice: agent_choice.AgentChoice) -> int:
    """Records an episode and serves the page that shows it until Ctrl-C; returns the exit code."""
    run_dir = arguments.flags["run_dir"]
    if "video" in arguments.flags:
        raise errors.UsageError("--page shows a record, --video writes a video; give one of them")
    if bucket.parse(run_dir) is not None:
        raise errors.UsageError(f"--run_dir={run_dir}: --page records into a run directory of this machine; give one")
    page_options.check_packages("seedzero play --page")
    with _writable(choice.absolute()) as here:
        return _play(here, run_dir, arguments.port("port") or 0)


def _play(choice: agent_choice.AgentChoice, name: str, port: int) -> int:
    """Records into the choice's run directory, and serves the page; name: of the directory, as the user gave it."""
    time = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    folder = f"played-{time}"
    output.say(f"playing {name} into records/{folder}")
    from seedzero.acting.tables import recording
    from seedzero.interfaces.page import recordings, serve

    out = choice.path / recordings.FOLDER / folder
    with output.others_aside():
        result = recording.record(choice, out, 1)
    output.print_json(result)
    address = urllib.parse.urlencode({"run": ".", "record": f"{folder}/{recording.file_name(0)}"})

    def ready(url: str) -> None:
        output.say(f"the record: {url}#/record?{address} (Ctrl-C ends its page)")
        open_browser(f"{url}#/record?{address}")

    serve.serve(choice.path.resolve(), HOST, port, "", ready, trusted=choice.trusted)
    return errors.DONE


@contextlib.contextmanager
def _writable(choice: agent_choice.AgentChoice) -> Iterator[agent_choice.AgentChoice]:
    """Yields the choice, in a temporary copy of its run directory if this user cannot write there."""
    if not choice.path.is_dir() or os.access(choice.path, os.W_OK):
        yield choice
        return
    with tempfile.TemporaryDirectory(prefix="seedzero-") as place:
        copy = pathlib.Path(place, choice.path.name)
        shutil.copytree(choice.path, copy, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        copy.chmod(0o700)
        output.say(f"you cannot write to {choice.path}; the record is in a copy, {copy}, until the page ends")
        yield dataclasses.replace(choice, run_dir=copy)


def open_browser(url: str, opened: Callable[[str], object] = webbrowser.open) -> None:
    """Opens a browser with a window, if there is one; a browser in the terminal would take over the terminal."""
    is_graphical = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if is_graphical:
        with contextlib.suppress(webbrowser.Error, OSError):
            opened(url)
