"""Who signs tokens of a test.

signer = Signer.new()
token = signer.token("alice")
(tmp_path / "keys.pem").write_bytes(signer.public_pem)
"""

import json
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER = "https://tokens.example"
AUDIENCE = "hourwheel"
NOW_S = 1_800_000_000
"""Tokens are valid around this instant, unless they say otherwise."""

_MAKERS: dict[str, Any] = {
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "RS256": lambda: rsa.generate_private_key(65_537, 2_048),
}


class Signer:
    """See the top of this file."""

    def __init__(self, key: Any, algorithm: str, key_id: str = "") -> None:
        self.key, self.algorithm, self.key_id = key, algorithm, key_id

    @classmethod
    def new(cls, algorithm: str = "EdDSA", key_id: str = "") -> Self:
        return cls(_MAKERS[algorithm](), algorithm, key_id)

    @property
    def public_pem(self) -> bytes:
        found: bytes = self.key.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        return found

    @property
    def jwk(self) -> dict[str, Any]:
        maker = jwt.get_algorithm_by_name(self.algorithm)
        found = json.loads(maker.to_jwk(self.key.public_key()))
        return {**found, **({"kid": self.key_id} if self.key_id else {})}

    def token(self, name: str = "alice", **claims: Any) -> str:
        """Claims that are None are left out."""
        all_claims = {
            "sub": name,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": NOW_S + 600,
            **claims,
        }
        kept = {key: value for key, value in all_claims.items() if value is not None}
        headers = {"kid": self.key_id} if self.key_id else None
        return jwt.encode(kept, self.key, algorithm=self.algorithm, headers=headers)
