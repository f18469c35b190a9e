"""`seedzero page`: serves a web page for the runs in a directory."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator

from seedzero.cli import output, parse
from seedzero.config import page_options
from seedzero.core import errors
from seedzero.storage.bucket import bucket


def run(arguments: parse.Arguments) -> int:
    """Serves the page until Ctrl-C; returns the exit code."""
    place, host = arguments.flags["run_dir"], arguments.flags.get("host", "127.0.0.1").strip("[]")
    port = arguments.port("port") or 0
    root = arguments.flags.get("page.root", "")
    proxy = page_options.proxy(root)
    if not host:
        raise errors.UsageError("--host is empty; give 127.0.0.1 (this machine), or an address of this machine")
    url = bucket.parse(place)
    if url is None and not os.path.isdir(place):
        raise errors.ResumeError(f"--run_dir={place}: there is no such directory; give a run, or a directory of runs")
    page_options.check_packages("seedzero page")
    from seedzero.interfaces.page import serve
    from seedzero.transport import security

    if arguments.switch("supervised"):
        from seedzero.learner.processes import signals

        signals.terminate_with_input()
    token_file = arguments.flags.get("token_file", "")
    token = security.read_token(token_file) if token_file else ""
    if text := token_file and security.exposure(token_file):
        output.say(f"warning: {text}")

    def ready(url: str) -> None:
        behind = f", behind a proxy at {root}" if root else ""
        output.say(f"the page of {place}: {url}{behind}{' asks for the token' if token else ''} (Ctrl-C ends it)")

    with _followed(url) if url else contextlib.nullcontext(pathlib.Path(place).resolve()) as path:
        serve.serve(path, host, port, token, ready, trusted=arguments.switch("trust_run_dir"), proxy=proxy)
    return errors.DONE


@contextlib.contextmanager
def _followed(url: bucket.Url) -> Iterator[pathlib.Path]:
    """Yields the directory of a copy that follows a run in a bucket."""
    from seedzero.monitoring import followed

    with tempfile.TemporaryDirectory(prefix="seedzero-", ignore_cleanup_errors=True) as folder:
        found = followed.Followed(url, pathlib.Path(folder) / url.path.rpartition("/")[2], report=output.say)
        output.say(f"reading {url}")
        found.refresh()
        found.start()
        try:
            yield found.path
        finally:
            found.close()


COMMAND = parse.Command(
    summary="Serves a web page of the runs in a directory: curves, comparisons, leagues, recorded episodes, settings.",
    usage="--run_dir=DIR|gs://BUCKET/PATH [--port=N] [--host=ADDRESS] [--token_file=FILE] [--page.root=PATH]",
    flags={
        "run_dir=DIR|gs://BUCKET/PATH": "directory of a training run, running or ended, or one with many "
        "runs below it; in a bucket, one run",
        "port=N": "port to listen on; 0, the default: any free port, which is printed",
        "host=ADDRESS": "address to listen on (default 127.0.0.1, only this machine); any other needs --token_file",
        "token_file=FILE": "file with the token that browsers must give, once (default: no token)",
        **parse.PAGE_ROOT,
        **parse.TRUST,
        "supervised": "end when standard input is closed; for a program that starts this one",
    },
    required=("run_dir",),
    details="""
The page is a separate process that only reads; runs may start and end meanwhile. It slows training down by about 2 %
while a game is followed, and otherwise not measurably.
Pages: all runs, sorted, filtered and grouped over seeds, several in one plot; a run's returns, losses and any other
metric, live; the calls and workers of a run that trains, and one of its environments as the network sees it; a
league's results, ratings, lineage and decisions; recorded episodes (`seedzero record`, `seedzero play --page`),
replayed, with the search of any checkpoint at every step; videos; logs; settings. A browser exchanges the token once
for a cookie. From another machine: ssh -L PORT:127.0.0.1:PORT MACHINE, and no token. docs/page.md says more. Ctrl-C
ends it with exit code 0.""",
    run=run,
)
