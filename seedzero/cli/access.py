"""The flags for access to a learner: its token and its certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seedzero.cli import parse
from seedzero.config import worker_options

if TYPE_CHECKING:
    from seedzero.transport import security

FLAGS = tuple(
    parse.of_field(name, worker_options.FLAGS[name]) for name in ("token_file", "tls.ca_file", "tls.server_name")
)
TLS = FLAGS[1:]


def of(arguments: parse.Arguments) -> security.Access:
    """Returns the flags' values."""
    from seedzero.transport import security  # gRPC, which a mistake in the command line need not wait for

    flags = arguments.flags
    return security.Access(flags.get("token_file", ""), flags.get("tls.ca_file", ""), flags.get("tls.server_name", ""))
