"""Writes the command with which a worker joins a learner, with the flags for its token and its certificate."""

from __future__ import annotations

import contextlib
import pathlib
import shlex
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from seedzero.config import configs, sections
from seedzero.core import env_ids
from seedzero.transport import security

_MOST_FILES = 32
"""Files next to a certificate that may be the authority's."""
_ENDINGS = (".pem", ".crt", ".cer")
_UNKNOWN_AUTHORITY = "CERTIFICATE_OF_ITS_AUTHORITY"


def to_worker(config: configs.Config, address: str) -> str:
    """Returns the command with which a worker joins a learner at an address, with the learner's own files.

    With --env=remote, that is the user's own program, such as `examples/remote_worker.py`.
    """
    host, _, port = address.rpartition(":")
    if host in ("0.0.0.0", "[::]"):  # all addresses of this machine
        host = socket.gethostname()
        address = f"{host}:{port}"
    flags = [f"--server={address}"]
    flags += [f"--token_file={config.transport.token_file}"] if config.transport.token_file else []
    flags += _of_certificate(config.tls, host.strip("[]")) if config.tls.cert_file else []
    program = ["python", "YOUR_WORKER.py"] if config.env.id == env_ids.REMOTE else ["seedzero", "worker"]
    return shlex.join([*program, *flags])


def waiting(config: configs.Config, which: str = "") -> str:
    """Returns the words before that command. which: more about the worker, after a space."""
    names_files = config.transport.token_file or config.tls.cert_file
    files = "; on another machine with copies of the files" if names_files else ""
    return f"waiting for a worker{which}{files}:"


def _of_certificate(tls: sections.TlsConfig, host: str) -> list[str]:
    """Returns the flags for the certificate that signed the learner's, and for a name other than the host."""
    trusted = next((found for found in _authorities(tls) if _handshake(tls, found) is not None), "")
    flags = [f"--tls.ca_file={trusted or _UNKNOWN_AUTHORITY}"]
    # An authority's certificate may be elsewhere; the names are read from the learner's own.
    names = _names(_handshake(tls, tls.cert_file, is_partial=True) or {})
    if names and _handshake(tls, tls.cert_file, is_partial=True, host=host) is None:
        flags.append(f"--tls.server_name={names[0]}")
    return flags


def _authorities(tls: sections.TlsConfig) -> Iterator[str]:
    """Yields files that may verify the learner's certificate: itself, public authorities, and files next to it."""
    yield tls.cert_file
    yield security.SYSTEM_ROOTS
    folder, beside = pathlib.Path(tls.cert_file).parent, list[pathlib.Path]()
    with contextlib.suppress(OSError):  # a directory that may be entered but not listed
        beside = sorted(file for file in folder.iterdir() if file.suffix in _ENDINGS and file.is_file())
    yield from map(str, beside[:_MOST_FILES])


def _names(certificate: Mapping[str, Any]) -> list[str]:
    """Returns the names that a certificate is valid for; an example of a wildcard comes last."""
    found = [name for kind, name in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    subject = dict(pair for part in certificate.get("subject", ()) for pair in part)
    found = found or [name for name in [subject.get("commonName", "")] if name]
    return [name.replace("*", "learner") for name in sorted(found, key=lambda name: "*" in name)]


def _handshake(
    tls: sections.TlsConfig, authority: str, *, host: str = "", is_partial: bool = False
) -> Mapping[str, Any] | None:
    """Returns the learner's certificate as a client that trusts an authority sees it, or None if it refuses it.

    Both ends are in memory. host: the name it must be valid for, or "". is_partial: whether the authority may be no
    root.
    """
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = bool(host)
    if is_partial:
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        server.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: "")
        if authority == security.SYSTEM_ROOTS:
            client.load_default_certs()
        else:
            client.load_verify_locations(authority)
        asks = client.wrap_bio(back, there, server_hostname=host or None)
        answers = server.wrap_bio(there, back, server_side=True)
        for end in (asks, answers, asks):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
        return asks.getpeercert()
    except (OSError, ValueError):  # SSLError, and a host that is not a name
        return None
