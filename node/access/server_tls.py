"""TLS towards clients: the node's certificate, checked when it is read, renewed without a restart.

    tls.certificate_file, key_file, client_authority_file
        --> certificates that fit together, or ConfigError
        --> gRPC's credentials: asked at each handshake, so the next connection has the new ones
        --> a context of `ssl` for the console and for /metrics, likewise

Connections that stand when the files change keep what they were made with.
"""

import os
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from hourwheel import errors
from hourwheel.transport.access import Access, Tls
from node.config.tls import TlsSection
from node.telemetry import logs
from replication.node_files import NodeFiles, read_file

_SECONDS: Final = 0.001
_CERTIFICATE: Final = "tls.certificate_file"
_KEY: Final = "tls.key_file"
_AUTHORITY: Final = "tls.client_authority_file"
_OTHERS: Final = stat.S_IRWXO | stat.S_IWGRP
_FORM: Final = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class _Certificates:
    configuration: grpc.ServerCertificateConfiguration
    context: ssl.SSLContext
    chain: bytes
    key: bytes


class ServerTls:
    """See the top of this file."""

    def __init__(
        self,
        section: TlsSection,
        now_ms: Callable[[], float],
        note: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Read the files.

        Args:
            section: names them.
            now_ms: of the wall clock.
            note: called with whether files that have changed were refused.

        Raises:
            ConfigError: one cannot be read, or is not what it should be.
        """
        self._section, self._now_ms = section, now_ms
        paths = (section.certificate_file, section.key_file, section.client_authority_file)
        self._leaf: x509.Certificate | None = None
        """That is in use."""
        self._files = NodeFiles([path for path in paths if path], self._read, note)

    @property
    def context(self) -> ssl.SSLContext:
        """For connections that are accepted now. Asks for no certificate: browsers have none."""
        return self._files.value.context

    @property
    def version(self) -> int:
        """Grows when there are other certificates."""
        return self._files.version

    def credentials(self) -> grpc.ServerCredentials:
        """For one port of a gRPC server."""
        given = self._files.version

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            """Called by gRPC before each handshake, in a thread of its own."""
            nonlocal given
            if given == self._files.version:
                return None
            given = self._files.version
            return self._files.value.configuration

        return grpc.dynamic_ssl_server_credentials(
            self._files.value.configuration,
            fetch,  # type: ignore[arg-type]  # None is allowed, says gRPC
            require_client_authentication=self._section.client_certificates == "required",
        )

    @property
    def access(self) -> Access:
        """For what this node asks of the API itself: with its certificate, and its authority.

        Without an authority those are trusted that have this node's own certificate.
        """
        section = self._section
        authority = section.authority_file or section.certificate_file
        return Access(Tls(ca=authority, cert=section.certificate_file, key=section.key_file))

    def look(self) -> None:
        """Read the files again if they have changed."""
        self._files.look()

    async def watch(self) -> None:
        """Look again and again, for ever."""
        await self._files.watch()

    def _read(self) -> _Certificates:
        section = self._section
        chain = read_file(_CERTIFICATE, section.certificate_file)
        key = read_file(_KEY, section.key_file)
        _check_mode(section.key_file)
        leaf = _check_pair(section, chain, key)
        self._check_dates(leaf)
        authority: bytes | None = None
        if section.client_authority_file:
            authority = read_file(_AUTHORITY, section.client_authority_file)
            _load(_AUTHORITY, section.client_authority_file, authority)
        found = _Certificates(
            grpc.ssl_server_certificate_configuration([(key, chain)], authority),
            _context(section),
            chain,
            key,
        )
        self._leaf = leaf
        return found

    def _check_dates(self, leaf: x509.Certificate) -> None:
        """Raises ConfigError where one that is valid would give way to one that is not."""
        if not self._is_valid(leaf):
            if self._leaf is not None and self._is_valid(self._leaf):
                path = self._section.certificate_file
                raise errors.ConfigError(
                    f"{_CERTIFICATE} = {path!r}: is valid from"
                    f" {leaf.not_valid_before_utc.isoformat()} until"
                    f" {leaf.not_valid_after_utc.isoformat()}, and not now",
                    key=_CERTIFICATE,
                    value=path,
                )
            _log.error(
                "certificate_not_valid",
                file=self._section.certificate_file,
                valid_from=leaf.not_valid_before_utc.isoformat(),
                valid_until=leaf.not_valid_after_utc.isoformat(),
            )

    def _is_valid(self, leaf: x509.Certificate) -> bool:
        begins, ends = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
        return begins <= self._now_ms() * _SECONDS < ends


def _check_mode(path: str) -> None:
    """A key that others can read is no secret."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - follows links
    except OSError as error:  # it was read a moment ago
        raise errors.ConfigError(
            f"{_KEY} = {path!r}: cannot be read: {error.strerror}", key=_KEY, value=path
        ) from error
    if os.name == "posix" and mode & _OTHERS:
        raise errors.ConfigError(
            f"{_KEY} = {path!r}: others may read or change it (mode {stat.S_IMODE(mode):o}): "
            "chmod o-rwx,g-w",
            key=_KEY,
            value=path,
        )


def _load(key: str, path: str, pem: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion) as error:
        raise errors.ConfigError(
            f"{key} = {path!r}: holds no certificate in PEM", key=key, value=path
        ) from error
    return found


def _public_bytes(section: TlsSection, leaf: x509.Certificate) -> bytes:
    """Of a certificate's key. What is in one is read only now, and may be nonsense or unknown."""
    try:
        return leaf.public_key().public_bytes(*_FORM)
    except (ValueError, UnsupportedAlgorithm) as error:
        path = section.certificate_file
        raise errors.ConfigError(
            f"{_CERTIFICATE} = {path!r}: holds a key that cannot be used: {error}",
            key=_CERTIFICATE,
            value=path,
        ) from error


def _check_pair(section: TlsSection, chain: bytes, key: bytes) -> x509.Certificate:
    """The certificate to which the key belongs."""
    leaf = _load(_CERTIFICATE, section.certificate_file, chain)[0]
    try:
        private = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: it is encrypted
        raise errors.ConfigError(
            f"{_KEY} = {section.key_file!r}: holds no private key in PEM, or an encrypted one",
            key=_KEY,
            value=section.key_file,
        ) from error
    if private.public_key().public_bytes(*_FORM) != _public_bytes(section, leaf):
        raise errors.ConfigError(
            f"{_KEY} = {section.key_file!r}: is not the key of {section.certificate_file}",
            key=_KEY,
            value=section.key_file,
        )
    return leaf


def _context(section: TlsSection) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(section.certificate_file, section.key_file)
    except OSError as error:  # also ssl.SSLError: one of the files was changed meanwhile
        raise errors.ConfigError(
            f"{_CERTIFICATE} = {section.certificate_file!r}: cannot be used: {error}",
            key=_CERTIFICATE,
            value=section.certificate_file,
        ) from error
    return context
