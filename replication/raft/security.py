"""How control processes trust each other: certificates, or a shared secret on loopback only."""

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hourwheel import errors
from replication.raft.handshake import SECRET_BYTES_MIN


@dataclass(frozen=True)
class Security:
    """One of the two."""

    secret: bytes | None = None
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None

    def certified(self, peer_certificate: Any) -> frozenset[str] | None:
        """Whom a peer's certificate names; None where there are no certificates."""
        return None if self.server_tls is None else names_of(peer_certificate or {})


def names_of(certificate: dict[str, Any]) -> frozenset[str]:
    """Whom a certificate (as `SSLSocket.getpeercert` has it) was given to.

    Its DNS names; the common name only where there are none, as in host names.
    """
    names = {value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"}
    if not names:
        subject = certificate.get("subject", ())
        names = {value for rdn in subject for key, value in rdn if key == "commonName"}
    return frozenset(names)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of host:port or [v6]:port.

    Raises:
        ConfigError: it is not of that form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:  # noqa: PLR2004
        raise errors.ConfigError(f"{address!r} is not host:port", address=address)
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Whether an address reaches this machine only. Names other than localhost do not count."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def with_secret(secret: bytes, addresses: list[str]) -> Security:
    """A shared secret, where everybody is on loopback.

    Raises:
        ConfigError: the secret is short, or an address is reachable from elsewhere.
    """
    if len(secret) < SECRET_BYTES_MIN:
        raise errors.ConfigError(f"the secret has less than {SECRET_BYTES_MIN} bytes")
    for address in addresses:
        if not is_loopback(address):
            raise errors.ConfigError(
                f"{address} is not on loopback: control processes on different machines need"
                f" certificates",
                address=address,
            )
    return Security(secret=secret)


def with_certificates(certificate: Path, key: Path, authority: Path) -> Security:
    """Mutual TLS 1.3: every peer shows a certificate of `authority` that names its node id.

    Raises:
        ConfigError: a file is missing or is not what it should be.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Names are compared with node ids by the handshake; addresses may be any.
    client.check_hostname = False
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(certificate, key)
            context.load_verify_locations(authority)
        except OSError as error:  # ssl.SSLError is one
            raise errors.ConfigError(f"certificates cannot be loaded: {error}") from error
    return Security(server_tls=server, client_tls=client)
