"""The configuration with what its files say: certificates, and the credentials of callers."""

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hourwheel import errors
from hourwheel.gateway.settings import CertificateSection, HttpSection


@dataclass(frozen=True, slots=True)
class Prepared:
    """What can be served by. Two are equal if nothing that they were made of differs."""

    section: HttpSection
    authorizations: Mapping[str, str] = field(repr=False)
    """A certificate's name -> the Authorization that it stands for."""
    files: tuple[bytes, ...] = field(repr=False)
    """Of TLS."""
    tls: ssl.SSLContext | None = field(compare=False)
    """Towards callers; None: in the clear."""

    @property
    def paths(self) -> list[str]:
        """Of all files that were read."""
        one = self.section
        parts = [(each.login_file, each.token_file) for each in one.certificates.values()]
        named = [one.cert, one.key, one.client_ca, *(path for part in parts for path in part)]
        return [path for path in named if path]


def prepare(section: HttpSection) -> Prepared:
    """Read the files. Raises ConfigError: one of them cannot be used."""
    authorizations = {name: _authorization_of(one) for name, one in section.certificates.items()}
    tls = make_tls(section.cert, section.key, section.client_ca)
    paths = [path for path in (section.cert, section.key, section.client_ca) if path]
    return Prepared(section, authorizations, tuple(map(_read, paths)), tls)


def make_tls(cert: str, key: str, client_ca: str) -> ssl.SSLContext | None:
    """Towards callers; None where there is no certificate.

    Raises:
        ConfigError: a file cannot be read, or is none.
    """
    if not cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
        if client_ca:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise errors.ConfigError(
            f"the certificate, its key or client_ca cannot be used: {error}"
        ) from None
    return context


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise errors.ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _authorization_of(section: CertificateSection) -> str:
    """What is passed on to the nodes. Raises ConfigError: the file cannot be read."""
    path = section.login_file or section.token_file
    try:
        text = _read(path).decode().partition("\n")[0].strip()
    except UnicodeDecodeError:
        raise errors.ConfigError(f"{path} cannot be read") from None
    if section.token_file:
        return f"Bearer {text}"
    return "Basic " + base64.b64encode(text.encode()).decode()
