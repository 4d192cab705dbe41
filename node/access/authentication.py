"""Who calls: by a token or a secret in the call's metadata, else by the certificate.

    authorization: Bearer <token>            node.access.tokens
    authorization: Basic <name:secret>       node.access.user_secrets
    a certificate of the connection          its one URI name, else its common name, else its one
                                             DNS name

What is sent is what counts: a token that does not hold is refused, whatever the certificate. Who
sends nothing and has no certificate is anonymous. All that fails, fails with the same words.
"""

import base64
import binascii
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, Final
from urllib.parse import unquote

from cryptography import x509
from cryptography.x509.oid import NameOID

from hourwheel import errors
from hourwheel.transport.access import AUTHORIZATION, source_of
from node.access.control import LOGIN_ENDS_MS, LOGIN_HOLDS
from node.access.tokens import TOKEN_CHARS_MAX, Login, Tokens, claimed_subject, is_name
from node.access.user_secrets import UserSecrets
from node.contracts.access import ANONYMOUS, Method, Principal

_SECOND_MS: Final = 1_000
_CERTIFICATES_MAX: Final = 4_096
_PEM: Final = "x509_pem_cert"
_ANONYMOUS: Final = Login(ANONYMOUS)


class Authenticator:
    """See the top of this file."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], float],
        tokens: Tokens | None = None,
        secrets: UserSecrets | None = None,
        asks_certificates: bool = False,
    ) -> None:
        """An authenticator.

        Args:
            now_ms: of the wall clock.
            tokens: checks tokens; None: none holds.
            secrets: checks secrets; None: none holds.
            asks_certificates: whether connections have clients' certificates, which gRPC has
                verified then.
        """
        self._now_ms, self._tokens, self._secrets = now_ms, tokens, secrets
        self._asks_certificates = asks_certificates

    async def identify(self, context: Any) -> Principal:
        """Who makes a call; `LOGIN_ENDS_MS` says until when. `context`: gRPC's.

        Raises:
            Unauthenticated: what was sent does not hold.
            Overloaded: too many secrets are being checked.
        """
        pem: bytes | None = None
        if self._asks_certificates:
            found = context.auth_context().get(_PEM, ())
            pem = found[0] if found else None
        login = await self.authenticate(context.invocation_metadata() or (), pem, context.peer())
        LOGIN_ENDS_MS.set(login.until_ms)
        LOGIN_HOLDS.set(login.holds)
        return login.principal

    async def authenticate(
        self, metadata: Iterable[tuple[str, str | bytes]], certificate: bytes | None, peer: str
    ) -> Login:
        """Who calls, and until when.

        Args:
            metadata: of the call.
            certificate: of the connection, PEM, verified.
            peer: address, as gRPC names it.

        Raises:
            Unauthenticated: what was sent does not hold.
            Overloaded: too many secrets are being checked.
        """
        given = [value for key, value in metadata if key == AUTHORIZATION]
        if given:
            if len(given) > 1 or not isinstance(given[0], str):
                raise errors.Unauthenticated
            return await self._by_text(given[0], peer)
        if certificate is None:
            return _ANONYMOUS
        login = _login_of(certificate)
        if login is None or login.until_ms is None or login.until_ms <= self._now_ms():
            raise errors.Unauthenticated
        return login

    async def _by_text(self, text: str, peer: str) -> Login:
        scheme, _, rest = text.partition(" ")
        match scheme.lower():
            case "bearer" if self._tokens is not None:
                return self._tokens.check(rest.strip(), self._now_ms())
            case "basic" if self._secrets is not None:
                name, secret = _split_basic(rest.strip())
                hashed = self._secrets.find_hash(name)
                if await self._secrets.check(name, secret, source_of_peer(peer)):
                    holds = partial(self._secrets.is_hash_of, name, hashed)
                    return Login(Principal(name, Method.USER), holds=holds)
        raise errors.Unauthenticated


def claimed_name(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The name that credentials speak of which do not hold; empty: none that may be a name.

    For who reads the audit log, and nothing else: any caller may claim any name. The secret and the
    rest of a token are left out.

    Args:
        metadata: of the call.
    """
    given = [value for key, value in metadata if key == AUTHORIZATION]
    text = given[0] if len(given) == 1 else ""
    if not isinstance(text, str) or len(text) > TOKEN_CHARS_MAX:
        return ""
    scheme, _, rest = text.partition(" ")
    try:
        match scheme.lower():
            case "basic":
                return _split_basic(rest.strip())[0]
            case "bearer":
                return claimed_subject(rest.strip())
    except errors.Unauthenticated:
        pass
    return ""


def source_of_peer(peer: str) -> str:
    """`source_of` a caller.

    Args:
        peer: an address as gRPC names it, "ipv6:%5B2001:db8::1%5D:4000", or "host:port".
    """
    host = unquote(peer).rpartition(":")[0]
    return source_of(host.removeprefix("ipv4:").removeprefix("ipv6:").strip("[]"))


def _split_basic(text: str) -> tuple[str, str]:
    """Name and secret."""
    try:
        name, colon, secret = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise errors.Unauthenticated from None
    if not colon or not is_name(name):
        raise errors.Unauthenticated
    return name, secret


@lru_cache(_CERTIFICATES_MAX)
def _login_of(pem: bytes) -> Login | None:
    """The name in a certificate; None: there is none, or several."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        name = name_of(certificate)
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return None
    if not is_name(name):
        return None
    until_ms = int(certificate.not_valid_after_utc.timestamp() * _SECOND_MS)
    return Login(Principal(name, Method.CERTIFICATE), until_ms)


def name_of(certificate: x509.Certificate) -> str:
    """The name in it; empty: none, or several."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        uris: list[str] = []
        hosts: list[str] = []
    else:
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        hosts = names.get_values_for_type(x509.DNSName)
    common = [
        str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    for found in (uris, common, hosts):
        if found:
            return found[0] if len(found) == 1 else ""
    return ""
