"""The flags with which a command gets at a learner: its token and its certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seedzero.cli import parse

if TYPE_CHECKING:
    from seedzero.transport import security

TOKEN = parse.Flag("token_file", "file with the learner's token", "FILE")
TLS = (
    parse.Flag(
        "tls.ca_file",
        "PEM file with the certificates that may vouch for the learner's, or the word system: "
        "the public authorities (default: plain text)",
        "FILE",
    ),
    parse.Flag(
        "tls.server_name", "name that the learner's certificate is for (default: the host in --server)", "NAME"
    ),
)
FLAGS = (TOKEN, *TLS)


def of(arguments: parse.Arguments) -> security.Access:
    """Returns what the flags say."""
    from seedzero.transport import security  # gRPC, which a mistake in the command line need not wait for

    flags = arguments.flags
    return security.Access(flags.get("token_file", ""), flags.get("tls.ca_file", ""), flags.get("tls.server_name", ""))
