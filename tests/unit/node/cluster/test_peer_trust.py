"""What the brokers trust: read of files, and read again when these change."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from hourwheel import errors
from hourwheel.types import NodeId
from node.cluster.peer_trust import PeerTrust, Trust, read_trust
from node.config.cluster import ClusterSection

SECRET: Final = Trust(secret="known to all of them")


def test_secret_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("  sixteen characters \n")
    assert read_trust(ClusterSection(secret_file=str(file))) == Trust(secret="sixteen characters")


@pytest.mark.parametrize(
    "content", [b"", b"too short", b"\xff" * 30, b"not printable \x00\x01\x02"]
)
def test_secret_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(errors.ConfigError, match=r"cluster\.secret_file"):
        read_trust(ClusterSection(secret_file=str(file)))


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(errors.ConfigError, match=r"cluster\.secret_file = .*missing"):
        read_trust(ClusterSection(secret_file=missing))
    with pytest.raises(errors.ConfigError, match=r"cluster\.tls_certificate_file"):
        read_trust(
            ClusterSection(
                tls_certificate_file=missing, tls_key_file=missing, tls_authority_file=missing
            )
        )


def test_certificates_are_read_from_their_files(tmp_path: Path) -> None:
    names = ("tls_certificate_file", "tls_key_file", "tls_authority_file")
    for name in names:
        (tmp_path / name).write_text(name)
    found = read_trust(ClusterSection(**{name: str(tmp_path / name) for name in names}))
    assert found == Trust("", *(name.encode() for name in names))


def test_certificates_tell_until_when_they_are_valid() -> None:
    authority, end_s = trustme.CA(), 4_000_000_000
    issued = authority.issue_cert("localhost", not_after=datetime.fromtimestamp(end_s, UTC))
    chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
    pem = authority.cert_pem.bytes()
    ends = Trust(certificate=chain + pem, authority=pem).read_certificate_ends()
    assert ends is not None
    assert ends.node_s == end_s, "the first to end of the chain"
    assert ends.authority_s > end_s


def test_new_authority_beside_the_old_one_counts() -> None:
    old, new = trustme.CA(), trustme.CA()
    issued = new.issue_cert("localhost").cert_chain_pems[0].bytes()
    pems = old.cert_pem.bytes(), new.cert_pem.bytes()
    ends = [
        Trust(certificate=issued, authority=authority).read_certificate_ends()
        for authority in (pems[0], pems[1], b"".join(pems))
    ]
    alone = [one.authority_s for one in ends if one is not None]
    assert alone[2] == max(alone)


def test_secret_never_ends() -> None:
    assert SECRET.read_certificate_ends() is None


def test_file_without_a_certificate_is_named() -> None:
    with pytest.raises(errors.ConfigError, match=r"cluster\.tls_certificate_file"):
        Trust(certificate=b"nothing of that kind", authority=b"").read_certificate_ends()


class World:
    """The files of node n1, and what it makes of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.old, self.new = folder, trustme.CA(), trustme.CA()
        self.refused: list[bool] = []
        self.trusts(self.old)
        self.shows(self.old.issue_cert("n1"))
        section = ClusterSection(
            tls_certificate_file=str(folder / "crt"),
            tls_key_file=str(folder / "key"),
            tls_authority_file=str(folder / "ca"),
        )
        self.trust = PeerTrust(section, NodeId("n1"), self.refused.append)

    def trusts(self, *authorities: trustme.CA) -> None:
        pems = b"".join(one.cert_pem.bytes() for one in authorities)
        (self.folder / "ca").write_bytes(pems)

    def shows(self, issued: trustme.LeafCert) -> None:
        (self.folder / "crt").write_bytes(issued.cert_chain_pems[0].bytes())
        (self.folder / "key").write_bytes(issued.private_key_pem.bytes())

    def look(self) -> Trust:
        self.trust.look()
        return self.trust.now


def test_certificate_is_taken_when_it_is_renewed(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.trust.now
    assert world.look() is first
    ends = datetime(2055, 1, 1, tzinfo=UTC)
    world.shows(world.old.issue_cert("n1", not_after=ends))
    second = world.look()
    assert second.certificate == (tmp_path / "crt").read_bytes() != first.certificate
    assert second.key == (tmp_path / "key").read_bytes()
    found = world.trust.certificate_ends
    assert found is not None
    assert found.node_s == ends.timestamp()
    assert world.refused == [False]


def test_authority_changes_in_three_steps(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.trusts(world.old, world.new)
    assert world.look().authority.count(b"BEGIN") == 2
    world.shows(world.new.issue_cert("n1"))
    third = world.look()
    world.trusts(world.new)
    fourth = world.look()
    assert fourth.certificate == third.certificate
    assert fourth.authority == world.new.cert_pem.bytes()
    assert world.refused == [False] * 3


def encrypted(issued: trustme.LeafCert) -> bytes:
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    return key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"a password")
    )


def spoil(world: World, how: str) -> None:
    other = world.old.issue_cert("n1")
    if how == "the authority leaves before its certificate":
        world.trusts(world.new)
    elif how == "of an authority that others do not know":
        world.shows(world.new.issue_cert("n1"))
    elif how == "another node's":
        world.shows(world.old.issue_cert("n2"))
    elif how == "over":
        world.shows(world.old.issue_cert("n1", not_after=datetime(2020, 1, 1, tzinfo=UTC)))
    elif how == "another key":
        (world.folder / "key").write_bytes(other.private_key_pem.bytes())
    elif how == "an encrypted key":
        world.shows(other)
        (world.folder / "key").write_bytes(encrypted(other))
    elif how == "gone":
        (world.folder / "ca").unlink()
    else:
        (world.folder / "crt").write_bytes(bytes(range(256)) * 8_192)


@pytest.mark.parametrize(
    "how",
    [
        *("the authority leaves before its certificate", "another node's", "over", "gone"),
        *("of an authority that others do not know", "another key", "an encrypted key", "huge"),
    ],
)
def test_files_are_refused_and_the_former_stay_in_use_when_they_are(
    tmp_path: Path, how: str
) -> None:
    world = World(tmp_path)
    first = world.trust.now
    spoil(world, how)
    assert world.look() is world.look() is first
    assert world.refused == [True, True]
    world.trusts(world.old)
    world.shows(world.old.issue_cert("n1"))
    assert world.look() is not first
    assert world.refused == [True, True, False]


def test_node_whose_certificate_is_of_no_use_takes_any_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have been set up wrongly, and be mended step by step."""
    world = World(tmp_path)
    world.shows(world.old.issue_cert("n2"))
    assert not caplog.records
    section = ClusterSection(
        tls_certificate_file=str(tmp_path / "crt"),
        tls_key_file=str(tmp_path / "key"),
        tls_authority_file=str(tmp_path / "ca"),
    )
    trust = PeerTrust(section, NodeId("n1"))
    assert [one.message for one in caplog.records] == ["peer_certificate_unusable"]
    world.trusts(world.new)
    trust.look()
    assert trust.now.authority == world.new.cert_pem.bytes()


async def test_secret_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("sixteen characters")
    trust = PeerTrust(ClusterSection(secret_file=str(file)), NodeId("n1"))
    file.write_text("another sixteen characters")
    trust.look()
    await trust.watch()
    assert trust.now == Trust(secret="sixteen characters")
    assert trust.certificate_ends is None
