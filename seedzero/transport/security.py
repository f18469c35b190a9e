"""Secures both ends of the connection by a bearer token and TLS.

    learner: a token that every call must present, except for the health service and over a unix socket, which the
             permissions of its file guard. HOST:PORT speaks TLS alone, or plain text alone.
    client:  a token to present; TLS where it has certificates to trust, else plain text.

gRPC reports every error before the first call as UNAVAILABLE, as if the learner were away; `explain` finds the
permanent errors among them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import logging
import os
import pathlib
import re
import resource
import socket
import ssl
import stat
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import grpc

from seedzero.config import run_rules, sections
from seedzero.core import errors, forks
from seedzero.transport import addresses

SYSTEM_ROOTS = "system"
"""Instead of a file: the public authorities that gRPC knows."""

MIN_TOKEN_BYTES, MAX_TOKEN_BYTES = 16, 4096
"""Shorter tokens can be guessed, and longer ones do not fit into the header of a call."""

_HEADER = "authorization"
_SCHEME = "Bearer"
_PROBE_SECONDS = 3.0
_COMPLAINT_SECONDS = 30.0
_logger = logging.getLogger(__name__)

Metadata = tuple[tuple[str, str], ...]


# --- the learner's end ---


@dataclasses.dataclass(frozen=True)
class ServerSecurity:
    """What a learner requires of clients of HOST:PORT: every call's token (or ""), and TLS (None: plain text).

    https: the same certificate for an HTTP server.
    """

    token: str = dataclasses.field(default="", repr=False)
    credentials: grpc.ServerCredentials | None = None
    https: ssl.SSLContext | None = None


OPEN = ServerSecurity()
"""Plain text, no token."""


def for_server(token_file: str, tls: sections.TlsConfig) -> ServerSecurity:
    """Reads a learner's token and certificate from their files. Raises UsageError for an unusable file."""
    token = read_token(token_file) if token_file else ""
    if not tls.cert_file:
        return ServerSecurity(token)
    chain, key = _read("--tls.cert_file", tls.cert_file), _read("--tls.key_file", tls.key_file)
    names = f"--tls.cert_file={tls.cert_file} and --tls.key_file={tls.key_file}"
    with _usable(names, "a PEM certificate and its own PEM key, without a passphrase"):
        # gRPC would only report that it cannot bind. It would ask for a passphrase on the terminal.
        https = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        https.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: "")
    return ServerSecurity(token, grpc.ssl_server_credentials([(key, chain)]), https)


def read_token(token_file: str, flag: str = "--token_file") -> str:
    """Returns the token in a file without surrounding white space. Raises UsageError if it is short or fits no header.

    From now on this process, and those that it starts, leave no core files, because these would contain the token.
    """
    _leave_no_core_file()
    name = f"{flag}={token_file}"
    data = _read(flag, token_file)
    token = data.decode("ascii", errors="replace").strip()
    if not token:
        raise errors.UsageError(f"{name} is empty; expected a token, as `openssl rand -hex 32 > {token_file}` writes")
    if len(token) > MAX_TOKEN_BYTES or not re.fullmatch(r"[!-~]+", token):
        raise errors.UsageError(
            f"{name} holds {len(data)} bytes that are not a token; expected at most {MAX_TOKEN_BYTES} visible ASCII "
            "characters without spaces"
        )
    if len(token) < MIN_TOKEN_BYTES:
        raise errors.UsageError(
            f"{name} holds a token of fewer than {MIN_TOKEN_BYTES} characters, which can be guessed; write another by "
            f"`openssl rand -hex 32 > {token_file}`"
        )
    return token


def take_token(variable: str) -> str:
    """Takes the token out of an environment variable, so that programs started later do not get it."""
    _leave_no_core_file()
    return os.environ.pop(variable, "")


def _leave_no_core_file() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def exposure(token_file: str) -> str | None:
    """Returns a warning if every user of this machine can read a token's file, else None."""
    mode = stat.S_IMODE(os.stat(token_file).st_mode) if token_file else 0
    if not mode & stat.S_IROTH:
        return None
    return f"--token_file={token_file} can be read by every user of this machine (mode {mode:o}); chmod 600 hides it"


def warnings(transport: sections.TransportConfig, tls: sections.TlsConfig) -> list[str]:
    """Returns warnings about the access to a learner with these settings."""
    found = [text] if (text := exposure(transport.token_file)) else []
    if not transport.listen or run_rules.is_of_this_machine(transport.listen):
        return found
    place = transport.listen.removesuffix(":0")  # the port is not chosen yet
    if not transport.token_file:
        found.append(f"--insecure: whoever reaches {place} may connect")
    elif not tls.cert_file:
        found.append(
            f"the token comes in plain text to {place}: fine in a private network; elsewhere give "
            "--tls.cert_file and --tls.key_file"
        )
    return found


class Guard:
    """Decides whether a call may continue. For one event loop."""

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic, flag: str = "--token_file") -> None:
        """flag: by which a client gives the token."""
        self._token, self._clock, self._flag = token.encode(), clock, flag
        self._complained_at = -_COMPLAINT_SECONDS

    def check(self, metadata: Iterable[tuple[str, str | bytes]], peer: str) -> None:
        """Raises AccessDenied for a call whose metadata lack the token. peer: gRPC's name of the caller."""
        if not self._token or peer.startswith(addresses.UNIX_PREFIX):
            return
        values = [value for key, value in metadata if key == _HEADER]
        scheme, _, given = str(values[0]).partition(" ") if values else ("", "", "")
        if scheme == _SCHEME and hmac.compare_digest(given.encode(errors="replace"), self._token):
            return
        reason = "the token is not this learner's" if values else "this server needs a token, and the request has none"
        now = self._clock()
        if now - self._complained_at >= _COMPLAINT_SECONDS:  # somebody may try many tokens
            self._complained_at = now
            _logger.warning("refused a call from %s: %s", urllib.parse.unquote(peer), reason)
        raise errors.AccessDenied(f"{reason}; give {self._flag}=FILE with the text of the learner's own")


# --- a client's end ---


@dataclasses.dataclass(frozen=True)
class Access:
    """How a client accesses its learner, without secrets."""

    token_file: str = ""  # file with the learner's token, or ""
    ca_file: str = ""  # PEM certificates to verify the learner's by, or SYSTEM_ROOTS; "" for plain text
    server_name: str = ""  # name in the learner's certificate; "" for the host of the address


@dataclasses.dataclass(frozen=True)
class ClientSecurity:
    """The credentials of a client's channels to `target`, which the user calls `address`; None for plain text."""

    target: str
    address: str
    access: Access
    metadata: Metadata = dataclasses.field(repr=False)
    credentials: grpc.ChannelCredentials | None


PLAIN = Access()
"""Plain text, no token."""


def for_client(address: str, access: Access = PLAIN, token: str = "") -> ClientSecurity:
    """Returns a client's credentials for the learner at an address; UsageError for an address or file of no use.

    token: replaces the access's; surrounding white space, as in a file, is not part of it.
    """
    target = addresses.target(address)
    token = token.strip() or (read_token(access.token_file) if access.token_file else "")
    metadata = ((_HEADER, f"{_SCHEME} {token}"),) if token else ()
    if not access.ca_file:
        if access.server_name:
            raise errors.UsageError(
                f"--tls.server_name={access.server_name} is for TLS; give --tls.ca_file=FILE too, or leave it out"
            )
        return ClientSecurity(target, address, access, metadata, None)
    if address.startswith(addresses.UNIX_PREFIX):
        raise errors.UsageError(f"--tls.ca_file={access.ca_file} is for HOST:PORT; {address} has no TLS: leave it out")
    if access.ca_file == SYSTEM_ROOTS:
        return ClientSecurity(target, address, access, metadata, grpc.ssl_channel_credentials())
    roots = _read("--tls.ca_file", access.ca_file)
    expected = f"PEM certificates, or the word {SYSTEM_ROOTS} for the public authorities"
    with _usable(f"--tls.ca_file={access.ca_file}", expected):
        # gRPC would only say, call by call, that it failed to make a handshaker.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(access.ca_file)
    return ClientSecurity(target, address, access, metadata, grpc.ssl_channel_credentials(roots))


def channel(security: ClientSecurity, library: Any = grpc, given: Sequence[tuple[str, int]] = ()) -> Any:
    """Returns a new channel of `grpc`, which blocks, or of `grpc.aio`, for an event loop. `given`: its options.

    Raises UsageError in a process that was forked while gRPC was in use.
    """
    forks.check("gRPC")
    if security.credentials is None:
        made = library.insecure_channel(security.target, options=given)
    else:
        name = security.access.server_name
        names = [("grpc.ssl_target_name_override", name)] if name else []
        made = library.secure_channel(security.target, security.credentials, options=[*given, *names])
    forks.uses("gRPC")
    return made


def explain(code: grpc.StatusCode, details: str, security: ClientSecurity) -> errors.AccessDenied | None:
    """Returns the error if the two ends cannot agree on TLS, or None if the call ended for another reason.

    May try the port for some seconds, because a learner that requires TLS just disconnects a client without.
    """
    if code is not grpc.StatusCode.UNAVAILABLE:
        return None
    access, wanted = security.access, "the certificate that signed"
    hung_up = re.search(r"failed to connect to all addresses.*ipv[46]:(\S+): Socket closed", details)
    handshake = re.search(r"Tls handshake failed \(TSI_\w+\): (.*?)(: OK)?$", details)
    if security.credentials is None:
        if not hung_up or not _speaks_tls(urllib.parse.unquote(hung_up[1])):
            return None
        why = f"speaks TLS and not plain text; give --tls.ca_file=FILE with {wanted} its own"
    elif "Hostname Verification Check failed" in details:
        name = access.server_name or security.address.rpartition(":")[0].rpartition("/")[2]
        why = f"has a certificate for another name than {name}; give --tls.server_name=NAME with one that the "
        why += "certificate is for, or use that as the address"
    elif handshake is None:
        return None
    elif "WRONG_VERSION_NUMBER" in handshake[1]:
        why = "speaks plain text and not TLS; start it with --tls.cert_file and --tls.key_file, or leave out "
        why += f"--tls.ca_file={access.ca_file} here"
    elif re.search("VERIFY_FAILED|signature", handshake[1]):
        why = f"has a certificate that --tls.ca_file={access.ca_file} did not sign "
        why += f"({handshake[1].rpartition(':')[2].strip()}); give the file with {wanted} the learner's own"
    else:
        why = f"and this client cannot agree on TLS ({handshake[1]}); look at --tls.ca_file={access.ca_file} here "
        why += "and at --tls.cert_file there"
    return errors.AccessDenied(f"the learner at {security.address} {why}")


def _speaks_tls(host_and_port: str) -> bool:
    """Returns whether a TLS handshake succeeds, with any certificate."""
    host, _, port = host_and_port.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE_SECONDS) as plain:
            context.wrap_socket(plain).close()
    except (OSError, ValueError):
        return False
    return True


def _read(flag: str, path: str) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise errors.UsageError(f"{flag}={path} cannot be read: {error.strerror}") from None


@contextlib.contextmanager
def _usable(names: str, expected: str) -> Iterator[None]:
    """Raises UsageError for files that TLS cannot use, naming the flags."""
    try:
        yield
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise errors.UsageError(f"{names} cannot be used ({reason}); expected {expected}") from None
