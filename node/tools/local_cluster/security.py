"""A local cluster's own authority, the certificates of its nodes, and two users.

    authority.pem, .key      who signs; clients trust authority.pem
    node-1.crt, .key, ...    for 127.0.0.1 and localhost, good for servers and clients
    users                    `admin`, with the hash of
    admin.login              its name, a colon, and its secret
    probe.login              likewise of `probe`, who is known, and may do nothing but ask for the
                             status: for health checks

Callers need permissions, and `admin` has them all. For trying out on one machine: the authority's
key lies beside what it signs.
"""

import ipaddress
import os
import secrets
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hourwheel.transport.access import Access, Tls
from hourwheel.types import NodeId
from node.access.user_secrets import hash_of

ADMIN: Final = "admin"
AUTHORITY: Final = "authority.pem"
PROBE: Final = "probe"
_LOGIN: Final = ".login"
_SECRET_BYTES: Final = 24
_YEARS: Final = 10
_DAY: Final = timedelta(days=1)
_HOST: Final = ipaddress.ip_address("127.0.0.1")


def make_files(directory: Path, node_ids: list[str], now: datetime) -> None:
    """Make all of it in `directory`, which is made if need be. `now`: with a time zone."""
    directory.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Hourwheel local authority")
    authority = (
        _builder(name, name, authority_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(is_authority=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    _write(directory / AUTHORITY, authority.public_bytes(Encoding.PEM))
    _write(directory / "authority.key", _pem_of(authority_key))
    for node_id in node_ids:
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.DNSName(node_id),
            x509.IPAddress(_HOST),
        ]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _builder(_name(node_id), name, key, now)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        _write(directory / f"{node_id}.crt", certificate.public_bytes(Encoding.PEM))
        _write(directory / f"{node_id}.key", _pem_of(key))
    users = ""
    for user in (ADMIN, PROBE):
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        _write(directory / f"{user}{_LOGIN}", f"{user}:{secret}\n".encode())
        users += f"{user}:{hash_of(secret)}\n"
    _write(directory / "users", users.encode())


def sections_of(directory: Path, node_id: NodeId) -> dict[str, dict[str, Any]]:
    """Of one node's configuration."""
    return {
        "tls": {
            "certificate_file": str(directory / f"{node_id}.crt"),
            "key_file": str(directory / f"{node_id}.key"),
            "authority_file": str(directory / AUTHORITY),
            # On loopback, for browsers and Prometheus that do not know the authority.
            "metrics": False,
            "console": False,
        },
        "authentication": {"users_file": str(directory / "users")},
        "access": {"is_on": True, "administrators": ADMIN, "metrics": False},
    }


def access_to(directory: Path) -> Access:
    """As the administrator."""
    name, _, secret = (directory / f"{ADMIN}{_LOGIN}").read_text("utf-8").strip().partition(":")
    return Access(Tls(ca=directory / AUTHORITY), user=(name, secret))


def options_for(directory: Path) -> str:
    """The same, as options of the command line."""
    return f"--tls-ca {directory / AUTHORITY} --login-file {directory / ADMIN}{_LOGIN}"


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer,
        subject,
        key.public_key(),
        x509.random_serial_number(),
        now - _DAY,
        now + _YEARS * 365 * _DAY,
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    """A file that only its owner reads."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
