"""How control processes trust each other: certificates, or a shared secret on loopback only.

Certificates are read again when their files change. What no other node would take is not taken
into use in place of what works: before that, the new certificate shakes hands with itself.
"""

import ipaddress
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from hourwheel import errors
from hourwheel.types import NO_NODE, NodeId
from replication.node_files import NodeFiles
from replication.raft.handshake import SECRET_BYTES_MIN

_ROUNDS_MAX: Final = 8
"""TLS 1.3 needs three: hello, answer and proof, proof."""
_log = logging.getLogger(__name__)


class Contexts(NamedTuple):
    """Mutual TLS with one certificate: for connections that come, and for those that are made."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@dataclass(frozen=True)
class Security:
    """One of the two."""

    secret: bytes | None = None
    files: NodeFiles[Contexts] | None = None
    """Of certificates. Their user has them watched."""

    @property
    def server_tls(self) -> ssl.SSLContext | None:
        """For a connection that is accepted now."""
        return None if self.files is None else self.files.value.server

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        """For a connection that is made now."""
        return None if self.files is None else self.files.value.client

    def certified(self, peer_certificate: Any) -> frozenset[str] | None:
        """The node that a peer's certificate names; None where there are no certificates."""
        return None if self.files is None else names_of(peer_certificate or {})


def names_of(certificate: dict[str, Any]) -> frozenset[str]:
    """The holder of a certificate (as `SSLSocket.getpeercert` has it).

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


def with_certificates(
    certificate: Path, key: Path, authority: Path, node_id: NodeId = NO_NODE
) -> Security:
    """Mutual TLS 1.3: every peer shows a certificate of `authority` that names its node id.

    Args:
        certificate: file of the certificate and what leads to its authority, PEM.
        key: file of its private key.
        authority: file of the certificates of those who may sign.
        node_id: that the certificate has to name; empty: any.

    Raises:
        ConfigError: a file is missing or is not what it should be.
    """
    reader = ContextReader(certificate, key, authority, node_id)
    return Security(files=NodeFiles(reader.paths, reader.read))


class ContextReader:
    """Makes contexts of a node's files, again and again.

    Invariant: contexts that other nodes with the same authority take are not followed by contexts
    that they do not, as long as the former are good.
    """

    def __init__(self, certificate: Path, key: Path, authority: Path, node_id: NodeId) -> None:
        """Nothing is read yet. The arguments are those of `with_certificates`."""
        self._certificate, self._key, self._authority = certificate, key, authority
        self._node_id = node_id
        self._last: Contexts | None = None

    @property
    def paths(self) -> Sequence[str]:
        """The files."""
        return [str(path) for path in (self._certificate, self._key, self._authority)]

    def read(self) -> Contexts:
        """What the files say now.

        Raises:
            ConfigError: they are not there or do not fit together, or would make a node that works
                one that no other node talks to.
        """
        contexts = self._load()
        why = self._why_unusable(contexts)
        if why and self._last is not None and not self._why_unusable(self._last):
            raise errors.ConfigError(f"{self._certificate}: {why}", file=str(self._certificate))
        if why:
            _log.error(
                "peer_certificate_unusable", extra={"file": str(self._certificate), "error": why}
            )
        self._last = contexts
        return contexts

    def _load(self) -> Contexts:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Names are compared with node ids by the handshake; addresses may be any.
        client.check_hostname = False
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_cert_chain(self._certificate, self._key, _no_password)
                context.load_verify_locations(self._authority)
            except OSError as error:  # ssl.SSLError is one
                raise errors.ConfigError(f"certificates cannot be loaded: {error}") from error
        return Contexts(server, client)

    def _why_unusable(self, contexts: Contexts) -> str:
        """Why other nodes would not take the certificate; empty where they do."""
        try:
            names = names_of(_shake_own_hand(contexts))
        except ssl.SSLError as error:
            return f"another node would not take it: {error}"
        if self._node_id and self._node_id not in names:
            return f"it names {', '.join(sorted(names)) or 'no node'}, and not {self._node_id}"
        return ""


def _no_password() -> str:
    """Of a key that is encrypted: else OpenSSL asks for it on the terminal, and waits."""
    return ""


def _shake_own_hand(contexts: Contexts) -> dict[str, Any]:
    """The certificate, as a peer with the same files sees it. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts.client.wrap_bio(to_client, to_server)
    server = contexts.server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_ROUNDS_MAX):
        if all([_steps(client), _steps(server)]):  # a list: both have their turn
            break
    return server.getpeercert() or {}


def _steps(side: ssl.SSLObject) -> bool:
    """One step of a handshake: whether that was the last one."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
