"""Certificates for tests of TLS, of an authority that exists nowhere else."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

VALID_DAYS = 1.0


class Files(NamedTuple):
    """Where the PEM files of an authority and its one server lie."""

    ca: pathlib.Path
    cert: pathlib.Path
    key: pathlib.Path


def make(directory: pathlib.Path, names: Sequence[str]) -> Files:
    """Makes a directory with an authority and a server's certificate for some names and addresses."""
    directory.mkdir()
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = _sign(directory.name, authority, directory.name, authority, x509.BasicConstraints(True, None))
    leaf = _sign("learner", server, directory.name, authority, x509.SubjectAlternativeName(list(map(_name, names))))
    files = Files(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    _write(files, server, leaf, root)
    return files


def make_alone(directory: pathlib.Path, names: Sequence[str]) -> Files:
    """Makes a directory with a certificate that is its own authority's, as `openssl req -x509` does."""
    directory.mkdir()
    key = ec.generate_private_key(ec.SECP256R1())
    alone = _sign("learner", key, "learner", key, x509.SubjectAlternativeName(list(map(_name, names))))
    files = Files(directory / "cert.pem", directory / "cert.pem", directory / "key.pem")
    _write(files, key, alone, alone)
    return files


def _write(files: Files, key: ec.EllipticCurvePrivateKey, cert: x509.Certificate, root: x509.Certificate) -> None:
    for file, certificate in ((files.ca, root), (files.cert, cert)):
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _sign(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(
        issuer_name=_common_name(issuer),
        subject_name=_common_name(subject),
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - day,
        not_valid_after=now + VALID_DAYS * day,
    )
    return builder.add_extension(extension, critical=False).sign(signer, hashes.SHA256())


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
