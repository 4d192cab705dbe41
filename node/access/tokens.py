"""Signed tokens (JWT), checked without asking anybody.

    keys     public ones of a file: a JWKS, or PEM. The key says which algorithm it is for:
             Ed25519 EdDSA, P-256 ES256, RSA RS256. What the token says of itself must be the same
    claims   iss and aud are those of the configuration, sub is who calls; exp must be there, and
             nbf may be

A token that holds is remembered by a keyed digest, until it ends or the keys change. What it has
opened counts as long as the key that has signed it is in the file.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import jwt
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from hourwheel import errors
from node.config.authentication import AuthenticationSection
from node.contracts.access import Method, Principal
from replication.node_files import NodeFiles, read_file

TOKEN_CHARS_MAX: Final = 8 * 1024
NAME_CHARS_MAX: Final = 256
"""Of who calls."""
_KEY: Final = "authentication.token_keys_file"
_RSA_BITS_MIN: Final = 2_048
_REMEMBERED_MAX: Final = 4_096
_PEM_BEGIN: Final = b"-----BEGIN "
_SECOND_MS: Final = 1_000
_INSTANT_MS_MAX: Final = 1 << 53
_OPTIONS: Final[dict[str, Any]] = {
    "require": ["exp", "iss", "aud", "sub"],
    # By the node's own clock: see `_instant_ms`.
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}

PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey


class Login(NamedTuple):
    """Who calls, and until when that is so."""

    principal: Principal
    until_ms: int | None = None
    """Wall clock; None: as long as the connection."""
    holds: Callable[[], bool] | None = None
    """Whether it still counts; None: it does."""


class _Key(NamedTuple):
    key: PublicKey
    algorithm: str
    key_id: str
    """Empty: it may be any."""


class Tokens:
    """See the top of this file."""

    def __init__(
        self, section: AuthenticationSection, note: Callable[[bool], None] = lambda _: None
    ) -> None:
        """Read the keys.

        Args:
            section: names their file.
            note: see `NodeFiles`.

        Raises:
            ConfigError: there are none, or others than public ones.
        """
        self._section = section
        path = section.token_keys_file
        self.files = NodeFiles([path], lambda: _parse(path, read_file(_KEY, path)), note)
        self._version = self.files.version
        self._remembered: dict[bytes, Login] = {}
        self._digest_key = secrets.token_bytes(32)

    def check(self, token: str, now_ms: float) -> Login:
        """Who has shown `token`.

        Raises:
            Unauthenticated: it does not hold.
        """
        if len(token) > TOKEN_CHARS_MAX or not token.isascii():
            raise errors.Unauthenticated
        if self._version != self.files.version:
            self._version = self.files.version
            self._remembered.clear()
        digest = hashlib.blake2b(token.encode(), key=self._digest_key, digest_size=32).digest()
        login = self._remembered.get(digest)
        if login is None or login.until_ms is None or login.until_ms <= now_ms:
            self._remembered.pop(digest, None)
            login = self._verify(token, now_ms)
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[digest] = login
        return login

    def _verify(self, token: str, now_ms: float) -> Login:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise errors.Unauthenticated from None
        if "crit" in header:  # extensions that must be understood, and are not
            raise errors.Unauthenticated
        for one in self.files.value:
            key_id = header.get("kid", one.key_id)
            if one.algorithm != header.get("alg") or (one.key_id and key_id != one.key_id):
                continue
            try:
                claims: Mapping[str, Any] = jwt.decode(
                    token,
                    one.key,
                    algorithms=[one.algorithm],
                    audience=self._section.token_audience,
                    issuer=self._section.token_issuer,
                    options=_OPTIONS,  # type: ignore[arg-type]  # its type is a TypedDict
                )
            except jwt.InvalidTokenError:
                continue
            return self._login(claims, now_ms)._replace(holds=partial(self._has_key, one.key))
        raise errors.Unauthenticated

    def _has_key(self, key: PublicKey) -> bool:
        return any(one.key == key for one in self.files.value)

    def _login(self, claims: Mapping[str, Any], now_ms: float) -> Login:
        leeway_ms = self._section.token_leeway_ms
        until_ms = _instant_ms(claims["exp"]) + leeway_ms
        from_ms = _instant_ms(claims.get("nbf", 0)) - leeway_ms
        name = claims["sub"]
        if not from_ms <= now_ms < until_ms or not is_name(name):
            raise errors.Unauthenticated
        return Login(Principal(name, Method.TOKEN), until_ms)


def claimed_subject(token: str) -> str:
    """Return the name in a token, not verified; empty: it cannot be read, or it is no name."""
    try:
        name = jwt.decode(token, options={"verify_signature": False}).get("sub")
    except (jwt.InvalidTokenError, ValueError, RecursionError):
        return ""
    return str(name) if is_name(name) else ""


def is_name(name: object) -> bool:
    """Whether a principal may be called so."""
    return isinstance(name, str) and 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()


def _instant_ms(claim: object) -> int:
    """A claim that is an instant, which is in seconds, in milliseconds."""
    if isinstance(claim, bool) or not isinstance(claim, int | float):
        raise errors.Unauthenticated
    if not 0 <= claim * _SECOND_MS < _INSTANT_MS_MAX:
        raise errors.Unauthenticated
    return int(claim * _SECOND_MS)


# --- keys ---------------------------------------------------------------------------------------


def _parse(path: str, raw: bytes) -> tuple[_Key, ...]:
    try:
        found = _parse_pem(raw) if raw.lstrip().startswith(_PEM_BEGIN) else _parse_jwks(raw)
    except (
        *(ValueError, TypeError, LookupError, RecursionError),
        *(jwt.PyJWTError, UnsupportedAlgorithm),
    ) as error:
        raise _refusal(path, f"holds no public keys, as JWKS or PEM: {error}") from None
    if not found:
        raise _refusal(path, "holds no key for EdDSA (Ed25519), ES256 (P-256) or RS256 (RSA)")
    return found


def _refusal(path: str, why: str) -> errors.ConfigError:
    return errors.ConfigError(f"{_KEY} = {path!r}: {why}", key=_KEY, value=path)


def _parse_jwks(raw: bytes) -> tuple[_Key, ...]:
    found = []
    for one in json.loads(raw)["keys"]:
        if not isinstance(one, dict):
            raise TypeError("a key that is no object")
        if one.get("use", "sig") != "sig":
            continue
        if one.get("kty") == "oct" or "d" in one:
            raise ValueError("a secret key: any reader of the file could sign")
        found.append(_key_of(jwt.PyJWK.from_dict(one).key, str(one.get("kid", ""))))
    return tuple(one for one in found if one is not None)


def _parse_pem(raw: bytes) -> tuple[_Key, ...]:
    if b"PRIVATE KEY" in raw:
        raise ValueError("a private key: any reader of the file could sign")
    found = []
    for part in raw.split(_PEM_BEGIN)[1:]:
        pem = _PEM_BEGIN + part
        is_certificate = part.startswith(b"CERTIFICATE")
        key: Any = (
            x509.load_pem_x509_certificate(pem).public_key()
            if is_certificate
            else load_pem_public_key(pem)
        )
        found.append(_key_of(key, ""))
    return tuple(one for one in found if one is not None)


def _key_of(key: object, key_id: str) -> _Key | None:
    """None: it is for an algorithm that is not taken."""
    if isinstance(key, Ed25519PublicKey):
        return _Key(key, "EdDSA", key_id)
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return _Key(key, "ES256", key_id)
    if isinstance(key, RSAPublicKey):
        if key.key_size < _RSA_BITS_MIN:
            raise ValueError(f"an RSA key of less than {_RSA_BITS_MIN} bits")
        return _Key(key, "RS256", key_id)
    return None
