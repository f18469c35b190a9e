"""Reads gcloud command lines, one a line, and prints those that gcloud itself refuses before it would do anything.

usage: PYTHON gcloud_parser.py ROOT_OF_THE_SDK < COMMANDS
"""

import os
import shlex
import sys

ROOT = sys.argv[1]
sys.path[:0] = [os.path.join(ROOT, "lib"), os.path.join(ROOT, "lib", "third_party")]

from googlecloudsdk import gcloud_main  # noqa: E402  # what the lines above make importable
from googlecloudsdk.calliope import backend  # noqa: E402


def is_refused(cli, words):
    """Returns whether a command line is refused; why is written to standard error."""
    try:
        cli.Execute(words)
    except SystemExit as end:
        return end.code != 0
    return False


def main():
    backend.Command.Run = lambda self, cli, args: None  # every command is read, and does nothing
    cli = gcloud_main.CreateCLI([])
    for line in sys.stdin:
        # A process for each, as each would have: what one command was given counts as given again to the next.
        child = os.fork()
        if child == 0:
            code = is_refused(cli, shlex.split(line)[1:])
            sys.stderr.flush()
            os._exit(code)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
            print(line.strip(), flush=True)


main()
