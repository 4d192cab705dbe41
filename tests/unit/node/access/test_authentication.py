import asyncio
import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from hourwheel import errors
from node.access.authentication import Authenticator, claimed_name, name_of, source_of_peer
from node.access.tokens import Tokens
from node.access.user_secrets import PLACES, PLACES_A_SOURCE, UserSecrets
from node.config.model import NodeConfig
from node.contracts.access import ANONYMOUS, Method, Principal
from tests.support.certificates import Authority
from tests.support.tokens import AUDIENCE, ISSUER, NOW_S, Signer

NOW_MS = NOW_S * 1_000.0
PEER = "ipv4:127.0.0.1:4000"
SIGNER = Signer.new()


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.fixture
async def authenticator(tmp_path: Path) -> AsyncIterator[Authenticator]:
    keys = tmp_path / "keys"
    keys.write_bytes(SIGNER.public_pem)
    section = {
        "token_keys_file": str(keys),
        "token_issuer": ISSUER,
        "token_audience": AUDIENCE,
    }
    tokens = Tokens(NodeConfig.of({"authentication": section}).authentication)
    secrets = UserSecrets({"bob": "b"}.get, lambda: 0.0, lambda hashed, secret: hashed == secret)
    yield Authenticator(
        now_ms=lambda: NOW_MS, tokens=tokens, secrets=secrets, asks_certificates=True
    )
    secrets.close()


def pem_of(tmp_path: Path, *hosts: str, common_name: str | None = None) -> bytes:
    files = Authority(tmp_path).issue("client", *hosts, common_name=common_name)
    return files.certificate.read_bytes()


@pytest.mark.parametrize(
    ("peer", "source"),
    [
        ("ipv4:10.0.0.7:4000", "10.0.0.7"),
        ("10.0.0.7:", "10.0.0.7"),
        ("ipv6:[2001:db8:1:2:3::9]:4000", "2001:db8:1:2::/64"),
        ("ipv6:%5B2001:db8:1:2:ffff::1%5D:4000", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1:", "2001:db8:1:2::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4000", "fe80::/64"),
        ("ipv6:[::ffff:10.0.0.7]:4000", "10.0.0.7"),
        ("unix:/run/socket:", "unix:/run/socket"),
        ("", ""),
    ],
)
def test_source_of_guesses(peer: str, source: str) -> None:
    assert source_of_peer(peer) == source


async def test_guesses_from_many_addresses_of_one_network_have_the_places_of_one_source() -> None:
    gate, begun = Event(), list[str]()

    def verify(_hashed: str, secret: str) -> bool:
        begun.append(secret)
        return gate.wait(60)

    secrets = UserSecrets({"bob": "b"}.get, lambda: 0.0, verify)
    authenticator = Authenticator(now_ms=lambda: NOW_MS, secrets=secrets)

    async def guess(peer: str, secret: str) -> object:
        given = [("authorization", basic(f"bob:{secret}"))]
        return await authenticator.authenticate(given, None, peer)

    guesses = [
        asyncio.ensure_future(guess(f"ipv6:%5B2001:db8::{number:x}%5D:4000", str(number)))
        for number in range(PLACES + 1)
    ]
    refused = [one for one in guesses if isinstance(await _error_of(one), errors.Overloaded)]
    assert len(refused) == PLACES + 1 - PLACES_A_SOURCE
    other = asyncio.ensure_future(guess("ipv6:%5B2001:db8:0:1::1%5D:4000", "other"))
    assert await _error_of(other) is None
    gate.set()
    await other
    secrets.close()


async def _error_of(guess: "asyncio.Future[object]") -> BaseException | None:
    """None: it is not over, after others had their turns."""
    await asyncio.wait([guess], timeout=0.01)
    return guess.exception() if guess.done() else None


async def test_who_sends_nothing_is_anonymous(authenticator: Authenticator) -> None:
    assert (await authenticator.authenticate([("x", "y")], None, PEER)).principal == ANONYMOUS


async def test_token_and_user(authenticator: Authenticator) -> None:
    by_token = [("authorization", f"Bearer {SIGNER.token()}")]
    login = await authenticator.authenticate(by_token, None, PEER)
    assert login.principal == Principal("alice", Method.TOKEN)
    login = await authenticator.authenticate([("authorization", basic("bob:b"))], None, PEER)
    assert login.principal == Principal("bob", Method.USER)
    assert login.until_ms is None


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer x",
        "Digest x",
        "Basic ???",
        "Basic " + base64.b64encode(b"\xff:x").decode(),
        basic("bob"),
        basic(":b"),
        basic("bob:c"),
        basic("nobody:b"),
    ],
)
async def test_all_that_fails_fails_with_the_same_words(
    authenticator: Authenticator, tmp_path: Path, given: str
) -> None:
    certificate = pem_of(tmp_path, "client.example")  # which does not help
    for metadata in ([("authorization", given)], [("authorization", basic("bob:b"))] * 2):
        with pytest.raises(errors.Unauthenticated) as caught:
            await authenticator.authenticate(metadata, certificate, PEER)
        assert str(caught.value) == str(errors.Unauthenticated())


async def test_certificate_names_who_calls_until_it_ends(tmp_path: Path) -> None:
    now_ms = NOW_MS
    authenticator = Authenticator(now_ms=lambda: now_ms, asks_certificates=True)
    pem = pem_of(tmp_path, "client.example", common_name="carol")
    login = await authenticator.authenticate([], pem, PEER)
    assert login.principal == Principal("carol", Method.CERTIFICATE)
    assert login.until_ms is not None
    now_ms = float(login.until_ms)
    with pytest.raises(errors.Unauthenticated):
        await authenticator.authenticate([], pem, PEER)


async def test_logins_that_are_not_configured_do_not_hold() -> None:
    authenticator = Authenticator(now_ms=lambda: NOW_MS)
    for given in (basic("bob:b"), f"Bearer {SIGNER.token()}"):
        with pytest.raises(errors.Unauthenticated):
            await authenticator.authenticate([("authorization", given)], None, PEER)


@pytest.mark.parametrize(
    ("hosts", "common_name", "name"),
    [
        (["a.example"], None, "a.example"),
        (["a.example", "b.example"], None, ""),
        (["a.example", "b.example"], "carol", "carol"),
        (["127.0.0.1"], None, ""),
    ],
)
def test_name_of_a_certificate(
    tmp_path: Path, hosts: list[str], common_name: str | None, name: str
) -> None:
    pem = pem_of(tmp_path, *hosts, common_name=common_name)
    assert name_of(x509.load_pem_x509_certificate(pem)) == name


@pytest.mark.parametrize(
    ("uris", "name"),
    [(["spiffe://a/orders"], "spiffe://a/orders"), (["spiffe://a/1", "spiffe://a/2"], "")],
)
def test_name_of_a_certificate_with_uris(uris: list[str], name: str) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "carol")])
    names = [x509.UniformResourceIdentifier(one) for one in uris]
    certificate = (
        x509.CertificateBuilder(called, called, key.public_key(), 7)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, None)
    )
    assert name_of(certificate) == name


async def test_certificate_with_a_name_of_an_unknown_kind_names_nobody() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    called = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "carol")])
    postal = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, b"\x30\x02\xa3\x00")
    certificate = (
        x509.CertificateBuilder(called, called, key.public_key(), 7)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2040, 1, 1, tzinfo=UTC))
        .add_extension(postal, critical=False)
        .sign(key, None)
    )
    authenticator = Authenticator(now_ms=lambda: NOW_MS, asks_certificates=True)
    with pytest.raises(errors.Unauthenticated):
        await authenticator.authenticate([], certificate.public_bytes(Encoding.PEM), PEER)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (basic("alice:guess"), "alice"),
        (basic("alice"), ""),  # a secret by itself, perhaps
        (basic("a\nb:guess"), ""),
        (basic("x" * 300 + ":guess"), ""),
        ("Basic ???", ""),
        (f"Bearer {Signer.new().token('bob')}", "bob"),
        (f"Bearer {SIGNER.token('bob', exp=1)}", "bob"),
        (f"Bearer {SIGNER.token('bob').rpartition('.')[0]}", ""),
        (f"Bearer {Signer.new().token('b' * 300)}", ""),
        ("Bearer opaque", ""),
        ("Bearer a.b.c", ""),
        ("Bearer " + "x" * 9_000, ""),
        ("Digest alice", ""),
        ("", ""),
    ],
)
def test_name_that_is_claimed(text: str, name: str) -> None:
    assert claimed_name([("other", "x"), ("authorization", text)]) == name


def test_no_name_is_claimed_by_several_credentials_or_none() -> None:
    alice = ("authorization", basic("alice:guess"))
    assert claimed_name([alice, alice]) == claimed_name([]) == ""
    assert claimed_name([("authorization", b"Basic")]) == ""
