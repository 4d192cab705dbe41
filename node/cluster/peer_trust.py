"""How the brokers of a cluster know each other: a secret, or certificates that may be renewed.

cluster.tls_* files --> Trust, as it is now --> each connection that is made or accepted from
now on; those that stand go on
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from cryptography import x509

from hourwheel import errors
from hourwheel.types import NodeId
from node.config.cluster import ClusterSection
from node.metrics.family import CertificateEnds
from replication.node_files import NodeFiles, read_file
from replication.raft.security import ContextReader

_CERTIFICATE: Final = "cluster.tls_certificate_file"
_KEY: Final = "cluster.tls_key_file"
_AUTHORITY: Final = "cluster.tls_authority_file"
_SECRET: Final = "cluster.secret_file"  # noqa: S105 - a key's name
_SECRET_BYTES_MIN: Final = 16


class Trusted(Protocol):
    """What is trusted now."""

    @property
    def now(self) -> "Trust":
        """The same object as before, unless there are other certificates."""


@dataclass(frozen=True)
class Trust:
    """A secret, or certificates. Is `Trusted`, and never changes."""

    secret: str = ""
    certificate: bytes = b""
    key: bytes = b""
    authority: bytes = b""

    @property
    def now(self) -> Self:
        """See Trusted."""
        return self

    @property
    def is_tls(self) -> bool:
        """Whether there are certificates."""
        return bool(self.certificate)

    def read_certificate_ends(self) -> CertificateEnds | None:
        """Until when the certificates are valid; None without them.

        Raises:
            ConfigError: one of the files holds no certificate that can be read.
        """
        if not self.is_tls:
            return None
        chain_ends_s = _ends_s(_CERTIFICATE, self.certificate)
        authority_ends_s = _ends_s(_AUTHORITY, self.authority)
        # All of a chain must be valid. Of several authorities, the new one has already signed.
        return CertificateEnds(min(chain_ends_s), max(authority_ends_s))


def _ends_s(key: str, pem: bytes) -> list[float]:
    """Until when each certificate of a PEM file is valid, in seconds since the Unix epoch."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise errors.ConfigError(f"{key} holds no certificate: {error}", key=key) from error
    return [one.not_valid_after_utc.timestamp() for one in found]


def read_trust(config: ClusterSection) -> Trust:
    """Read the files that the configuration names.

    Raises:
        ConfigError: one cannot be read, or the secret is too short.
    """
    if config.tls_certificate_file:
        return Trust(
            certificate=read_file(_CERTIFICATE, config.tls_certificate_file),
            key=read_file(_KEY, config.tls_key_file),
            authority=read_file(_AUTHORITY, config.tls_authority_file),
        )
    secret = read_file(_SECRET, config.secret_file).decode("ascii", "replace").strip()
    if len(secret) < _SECRET_BYTES_MIN or not secret.isprintable() or not secret.isascii():
        raise errors.ConfigError(
            f"{_SECRET}: the secret must have {_SECRET_BYTES_MIN} printable characters or more",
            key=_SECRET,
        )
    return Trust(secret=secret)


class PeerTrust:
    """The trust that a node's files say; is `Trusted`. Certificates are read again: `watch`."""

    def __init__(
        self,
        config: ClusterSection,
        node_id: NodeId,
        note: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Read the files.

        Args:
            config: names them.
            node_id: that the certificate has to name.
            note: called with whether files that have changed were refused.

        Raises:
            ConfigError: see `read_trust`; or certificates and key do not fit together.
        """
        self._config = config
        files = [config.tls_certificate_file, config.tls_key_file, config.tls_authority_file]
        certificate, key, authority = map(Path, files)
        self._reader = ContextReader(certificate, key, authority, node_id)
        self._files: NodeFiles[_Certified] | None = None
        self._first = read_trust(config)
        if self._first.is_tls:
            self._files = NodeFiles(files, self._read, note)

    @property
    def now(self) -> Trust:
        """See Trusted. May be asked in any thread."""
        return self._first if self._files is None else self._files.value.trust

    @property
    def certificate_ends(self) -> CertificateEnds | None:
        """Until when the certificates in use are valid; None without them."""
        return None if self._files is None else self._files.value.ends

    def look(self) -> None:
        """Read the files again if they have changed."""
        if self._files is not None:
            self._files.look()

    async def watch(self) -> None:
        """Look again and again, for ever; a secret is read at the start only."""
        if self._files is not None:
            await self._files.watch()

    def _read(self) -> "_Certified":
        self._reader.read()  # as the control process does it, and by its rules
        trust = read_trust(self._config)
        return _Certified(trust, trust.read_certificate_ends())


@dataclass(frozen=True, slots=True)
class _Certified:
    trust: Trust
    ends: CertificateEnds | None
