"""Section `authentication`: how the node knows who calls."""

from typing import Final

from node.config import checks
from node.config.section import Section, key_of

_LEEWAY_MS_MAX: Final = 300_000


class AuthenticationSection(Section):
    """Who calls, by tokens or users' secrets. Files are read again when they change."""

    token_keys_file: str = key_of(
        "",
        "",
        "Public keys of who signs tokens (JWT), a JWKS or PEM: Ed25519, P-256 or RSA. Empty: no "
        "tokens.",
    )
    token_issuer: str = key_of("", "", "Tokens have this `iss`.")
    token_audience: str = key_of("", "", "Tokens have this `aud`, or it is among theirs.")
    token_leeway_ms: int = key_of(
        10_000,
        "ms",
        "Clocks may be so far apart when `exp` and `nbf` are checked.",
        ge=0,
        le=_LEEWAY_MS_MAX,
    )
    users_file: str = key_of(
        "",
        "",
        "Users, one a line: name, colon, Argon2 hash of the secret (`python -m node hash-secret`). "
        "Empty: none but those of the cluster (guides/access.md).",
    )

    @property
    def is_on(self) -> bool:
        """Whether a call can show who makes it."""
        return bool(self.token_keys_file or self.users_file)


def validate_authentication(section: AuthenticationSection) -> None:
    """Raise ConfigError where its keys do not fit together."""
    for key in ("token_issuer", "token_audience"):
        if section.token_keys_file and not getattr(section, key):
            checks.refuse(f"authentication.{key}", "", "tokens of anybody would be taken")
