import base64
import json
from pathlib import Path
from typing import Any

import jwt
import pytest

from hourwheel import errors
from node.access.tokens import Tokens
from node.config.model import NodeConfig
from node.contracts.access import Method, Principal
from node.telemetry.stats import ApiStats
from tests.support.tokens import AUDIENCE, ISSUER, NOW_S, Signer

NOW_MS = NOW_S * 1_000.0


def tokens_of(tmp_path: Path, content: bytes, **more: Any) -> Tokens:
    file = tmp_path / "keys"
    file.write_bytes(content)
    values = {
        "token_keys_file": str(file),
        "token_issuer": ISSUER,
        "token_audience": AUDIENCE,
        **more,
    }
    return Tokens(NodeConfig.of({"authentication": values}).authentication)


def jwks_of(*signers: Signer) -> bytes:
    return json.dumps({"keys": [one.jwk for one in signers]}).encode()


def refused(tokens: Tokens, token: str, now_ms: float = NOW_MS) -> None:
    with pytest.raises(errors.Unauthenticated) as caught:
        tokens.check(token, now_ms)
    assert caught.value.message == errors.Unauthenticated().message
    assert not caught.value.params


def part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256", "RS256"])
@pytest.mark.parametrize("is_jwks", [True, False])
def test_token_that_holds(tmp_path: Path, algorithm: str, *, is_jwks: bool) -> None:
    signer = Signer.new(algorithm)
    tokens = tokens_of(tmp_path, jwks_of(signer) if is_jwks else signer.public_pem)
    for _ in range(2):  # the second time it is remembered
        login = tokens.check(signer.token(aud=["other", AUDIENCE]), NOW_MS)
        assert login.principal == Principal("alice", Method.TOKEN)
        assert login.until_ms == (NOW_S + 610) * 1_000


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "somebody"},
        {"aud": "other"},
        {"aud": None},
        {"iss": None},
        {"exp": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "x" * 300},
        {"sub": "a\nb"},
        {"exp": NOW_S - 11},
        {"exp": True},
        {"exp": 1e300},
        {"exp": -1},
        {"nbf": NOW_S + 11},
        {"nbf": "soon"},
    ],
)
def test_token_with_wrong_claims(tmp_path: Path, claims: dict[str, Any]) -> None:
    signer = Signer.new()
    refused(tokens_of(tmp_path, signer.public_pem), signer.token(**claims))


def test_token_at_the_edges_of_its_life(tmp_path: Path) -> None:
    signer = Signer.new()
    tokens = tokens_of(tmp_path, signer.public_pem, token_leeway_ms=2_000)
    token = signer.token(exp=NOW_S + 10, nbf=NOW_S)
    tokens.check(token, NOW_MS - 2_000)
    tokens.check(token, NOW_MS + 11_999)
    refused(tokens, token, NOW_MS + 12_000)  # also where it was remembered
    refused(tokens_of(tmp_path, signer.public_pem), token, NOW_MS - 10_001)


def test_tokens_that_are_forged(tmp_path: Path) -> None:
    signer, stranger = Signer.new("RS256"), Signer.new("RS256")
    tokens = tokens_of(tmp_path, signer.public_pem)
    good = signer.token()
    header, claims, signature = good.split(".")
    refused(tokens, stranger.token())
    refused(tokens, ".".join((header, part({"sub": "root"}), signature)))
    payload = json.loads(base64.urlsafe_b64decode(claims + "=="))
    for algorithm in ("none", "None", "NONE", ""):
        none = part({"alg": algorithm, "typ": "JWT"})
        refused(tokens, f"{none}.{claims}.")
        refused(tokens, f"{none}.{claims}.{signature}")
    # The public key as the secret of a symmetric algorithm: PyJWT refuses to make such a token.
    forged = jwt.PyJWS().encode(
        json.dumps(payload).encode(), b"x" * 32, algorithm="HS256", headers={"typ": "JWT"}
    )
    refused(tokens, forged)
    for algorithm in ("RS512", "PS256"):
        refused(tokens, jwt.encode(payload, signer.key, algorithm=algorithm))
    refused(tokens, jwt.encode(payload, signer.key, "RS256", headers={"crit": ["exp"]}))
    for nonsense in ("", ".", "..", "a.b.c", good + "x", good[:-4], "é" + good, "x" * 100_000):
        refused(tokens, nonsense)


def test_keys_are_chosen_by_their_id(tmp_path: Path) -> None:
    first, second = Signer.new(key_id="1"), Signer.new(key_id="2")
    tokens = tokens_of(tmp_path, jwks_of(first, second))
    tokens.check(first.token(), NOW_MS)
    tokens.check(second.token(), NOW_MS)
    refused(tokens, Signer(second.key, "EdDSA", "1").token())


def test_keys_that_change_end_what_is_remembered(tmp_path: Path) -> None:
    first, second = Signer.new(), Signer.new()
    tokens = tokens_of(tmp_path, first.public_pem)
    tokens.check(first.token(), NOW_MS)
    (tmp_path / "keys").write_bytes(first.public_pem + second.public_pem)
    tokens.files.look()
    tokens.check(first.token(), NOW_MS)
    tokens.check(second.token(), NOW_MS)
    (tmp_path / "keys").write_bytes(second.public_pem)
    tokens.files.look()
    refused(tokens, first.token())
    tokens.check(second.token(), NOW_MS)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
        b'{"keys": [7]}',
        b'{"keys": ' + b"[" * 100_000,
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ],
)
def test_files_without_public_keys(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        tokens_of(tmp_path, content)
    assert caught.value.params["key"] == "authentication.token_keys_file"


def test_file_that_is_refused_is_noted_until_it_can_be_used(tmp_path: Path) -> None:
    stats, file, signer = ApiStats(), tmp_path / "keys", Signer.new()
    file.write_bytes(jwks_of(signer))
    section = {
        "token_keys_file": str(file),
        "token_issuer": ISSUER,
        "token_audience": AUDIENCE,
    }
    config = NodeConfig.of({"authentication": section})
    tokens = Tokens(config.authentication, stats.login_file("token_keys"))
    assert stats.login_files_refused == {"token_keys": False}
    for content, is_refused in ((b"{}", True), (jwks_of(signer, Signer.new("ES256")), False)):
        file.write_bytes(content)
        tokens.files.look()
        assert stats.login_files_refused == {"token_keys": is_refused}
        assert tokens.check(signer.token(), NOW_MS).principal.name
