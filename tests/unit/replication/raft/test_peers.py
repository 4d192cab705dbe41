"""Two or three networks in one process, over loopback."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme

from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import raft_pb2
from replication.raft.codec import FRAME_BYTES_MAX, encode
from replication.raft.frames import pack_frame
from replication.raft.handshake import Handshake, Identity, Seal, Session
from replication.raft.peers import STRANGER_COUNT_MAX, PeerNetwork
from replication.raft.security import Security, with_certificates, with_secret
from replication.refusals import REASONS_MAX
from tests.support.addresses import free_address
from tests.support.eventually import until

CLUSTER = b"c" * 16
SECRET = b"a secret for tests only"
VOTE = {"type": "response_vote", "term": 7}
RAW = encode(VOTE).SerializeToString()


@dataclass
class Taker:
    """What one side has heard."""

    heard: list[tuple[str, Any]] = field(default_factory=list)

    def on_peer(self, peer_id: str, what: Any) -> None:
        self.heard.append((peer_id, what))

    known: set[str] = field(default_factory=set)
    admissions: list[tuple[str, bool]] = field(default_factory=list)

    def on_report(self, peer_id: str, report: link.NodeReport) -> None:
        self.heard.append((peer_id, report))

    def knows(self, session: Session) -> bool:
        return session.peer_id in self.known

    def on_admission(self, peer_id: str, *, is_known: bool) -> None:
        self.admissions.append((peer_id, is_known))


def secret_only(node_id: str) -> Security:
    return with_secret(SECRET, [])


class Pair:
    """n1 accepts, n2 dials."""

    def __init__(
        self, security: Callable[[str], Security], silence_s: float, blank: frozenset[str]
    ) -> None:
        self.addresses = {"n1": free_address(), "n2": free_address()}
        self.takers = {node_id: Taker() for node_id in self.addresses}
        self.networks = {
            node_id: PeerNetwork(
                Identity(CLUSTER, node_id),
                {peer: at for peer, at in self.addresses.items() if peer != node_id},
                security(node_id),
                self.takers[node_id],
                retry_s=0.01,
                silence_s=silence_s,
                journal=lambda node_id=node_id: (b"j" * 16, node_id in blank),
            )
            for node_id in self.addresses
        }
        self.one, self.two = self.networks["n1"], self.networks["n2"]

    @property
    def is_open(self) -> bool:
        return bool(self.one.connected) and bool(self.two.connected)


def cut(both: Pair) -> None:
    """End the connection that stands, at n1's side."""
    both.one._connections["n2"].close()


@asynccontextmanager
async def pair(
    security: Callable[[str], Security] = secret_only,
    *,
    silence_s: float = 30.0,
    blank: frozenset[str] = frozenset(),
    known: frozenset[str] = frozenset(),
) -> AsyncIterator[Pair]:
    both = Pair(security, silence_s, blank)
    for taker in both.takers.values():
        taker.known |= known
    try:
        for node_id, network in both.networks.items():
            await network.start(both.addresses[node_id])
        yield both
    finally:
        for network in both.networks.values():
            await network.close()


async def test_messages_and_reports_go_both_ways() -> None:
    async with pair() as both:
        await until(lambda: both.is_open)
        assert both.one.send("n2", RAW)
        both.two.broadcast_report(link.NodeReport(node_id="n2", broker_alive=True))
        await until(lambda: ("n1", {**VOTE}) in both.takers["n2"].heard)
        await until(lambda: len(both.takers["n1"].heard) == 2)
        assert both.takers["n1"].heard[0] == ("n2", True)
        assert both.takers["n1"].heard[1][1].broker_alive
        assert not both.one.send("n9", RAW)
        assert await asyncio.to_thread(both.two.send_threadsafe, "n1", RAW)
        await until(lambda: ("n2", VOTE) in both.takers["n1"].heard)


async def test_connection_is_made_again_when_it_was_cut() -> None:
    async with pair() as both:
        await until(lambda: both.is_open)
        cut(both)
        await until(lambda: ("n1", False) in both.takers["n2"].heard)
        await until(lambda: both.is_open and both.takers["n2"].heard.count(("n1", True)) == 2)


async def test_silent_peer_is_cut_off() -> None:
    async with pair(silence_s=0.2) as both:
        await until(lambda: ("n2", True) in both.takers["n1"].heard)
        await until(lambda: ("n2", False) in both.takers["n1"].heard)


async def test_blocked_frames_are_lost_until_they_are_not() -> None:
    async with pair() as both:
        await until(lambda: both.is_open)
        both.one.block(["n2"], "in")
        both.two.send("n1", RAW)
        both.two.block(["n1"], "out")
        both.two.send("n1", RAW)
        both.one.send("n2", RAW)
        await until(lambda: ("n1", VOTE) in both.takers["n2"].heard)
        both.two.block([], "out")
        both.two.broadcast_report(link.NodeReport(node_id="n2"))
        both.one.send("n2", RAW)
        await until(lambda: both.takers["n2"].heard.count(("n1", VOTE)) == 2)
        assert both.takers["n1"].heard == [("n2", True)]
        both.one.block([], "in")
        both.two.send("n1", RAW)
        await until(lambda: ("n2", VOTE) in both.takers["n1"].heard)


async def test_partitioned_peers_do_not_connect() -> None:
    async with pair(silence_s=0.2) as both:
        both.one.block(["n2"], "in")
        await until(lambda: ("n1", False) in both.takers["n2"].heard or not both.is_open)
        both.one.block([], "in")
        await until(lambda: both.is_open)


@pytest.mark.parametrize("blank", ["n1", "n2"])
async def test_blank_peer_is_told_that_nobody_knows_it(blank: str) -> None:
    other = "n2" if blank == "n1" else "n1"
    async with pair(blank=frozenset({blank})) as both:
        await until(lambda: both.takers[blank].admissions[:1] == [(other, False)])
        await until(lambda: both.is_open)
        assert not both.takers[other].admissions


@pytest.mark.parametrize("blank", ["n1", "n2"])
async def test_blank_peer_is_told_that_it_is_known_and_has_no_connection(blank: str) -> None:
    async with pair(blank=frozenset({blank}), known=frozenset({blank})) as both:
        other = "n2" if blank == "n1" else "n1"
        await until(lambda: (other, True) in both.takers[blank].admissions)
        assert blank not in {peer for peer, _ in both.takers[other].heard}


async def test_peer_that_has_taken_part_is_known_when_it_comes_back_blank() -> None:
    blank: set[str] = set()
    async with pair(blank=blank) as both:  # type: ignore[arg-type]
        await until(lambda: both.is_open)
        both.two.send("n1", RAW)
        await until(lambda: ("n2", VOTE) in both.takers["n1"].heard)
        blank.add("n2")
        cut(both)
        await until(lambda: ("n1", True) in both.takers["n2"].admissions)


async def impostor(both: Pair) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Seal]:
    """A peer that knows the secret, and can now say anything to n1 as n2."""
    host, port = both.addresses["n1"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    handshake = Handshake(
        Identity(CLUSTER, "n2"), frozenset({"n1"}), b"i" * 32, secret=SECRET, certified=None
    )
    writer.write(pack_frame(handshake.first("n1")))
    answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "little"))
    last, session = handshake.prove(answer)
    writer.write(pack_frame(last))
    return reader, writer, session.outgoing


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x04pickle",
        b"",
        raft_pb2.PeerFrame(report=link.NodeReport(node_id="n3")).SerializeToString(),
        raft_pb2.PeerFrame(
            apply_command=raft_pb2.RaftApplyCommand(command=b"\x02[")
        ).SerializeToString(),
    ],
)
async def test_peer_is_cut_off_when_it_says_what_nobody_may(raw: bytes) -> None:
    both = Pair(secret_only, 30.0, frozenset())
    await both.one.start(both.addresses["n1"])
    reader, writer, seal = await impostor(both)
    writer.write(pack_frame(seal.close(RAW)))
    writer.write(pack_frame(seal.close(raw)))
    assert await reader.read() == b""
    assert both.takers["n1"].heard == [("n2", True), ("n2", VOTE), ("n2", False)]
    assert both.one.refused.total() == 1
    writer.close()
    await both.one.close()


@pytest.mark.parametrize(
    "raw", [pack_frame(b"unsealed, and long enough to hold a code"), b"\xff\xff\xff\xff"]
)
async def test_peer_is_cut_off_when_a_frame_is_forged_or_huge(raw: bytes) -> None:
    both = Pair(secret_only, 30.0, frozenset())
    await both.one.start(both.addresses["n1"])
    reader, writer, _ = await impostor(both)
    writer.write(raw)
    assert await reader.read() == b""
    assert both.one.refused.total() == 1
    assert int.from_bytes(b"\xff" * 4, "little") > FRAME_BYTES_MAX
    writer.close()
    await both.one.close()


class Certificates:
    """An authority, and what it has signed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(folder / "ca.pem")

    def given_to(self, name: str, authority: trustme.CA | None = None) -> Security:
        issued = (authority or self.authority).issue_cert(name)
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return with_certificates(certificate, key, self.folder / "ca.pem")


async def test_peers_talk_over_tls_when_their_certificates_name_them(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    async with pair(certificates.given_to) as both:
        await until(lambda: both.is_open)
        both.two.send("n1", RAW)
        await until(lambda: ("n2", VOTE) in both.takers["n1"].heard)


async def test_peer_is_refused_when_its_certificate_names_another(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    async with pair(lambda n: certificates.given_to("n3" if n == "n2" else n)) as both:
        await until(lambda: both.one.refused)
        assert "certificate" in next(iter(both.one.refused))
        assert not both.is_open


async def test_peer_is_refused_when_its_certificate_is_of_another_authority(
    tmp_path: Path,
) -> None:
    certificates, other = Certificates(tmp_path), trustme.CA()
    async with pair(lambda n: certificates.given_to(n, other if n == "n2" else None)) as both:
        host, port = both.addresses["n1"].split(":")
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname = False
        bare.verify_mode = ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(host, int(port), ssl=bare)
        with pytest.raises((ssl.SSLError, OSError, EOFError)):
            await reader.readexactly(1)
        writer.transport.abort()
        assert both.takers["n1"].heard == []
        assert both.takers["n2"].heard == []


async def crowd(address: str, count: int, hello: bytes) -> list[asyncio.StreamWriter]:
    """Connections of strangers who begin to say something."""
    host, port = address.split(":")
    writers = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(count)]
    for writer in writers:
        writer.write(hello)
    return writers


@pytest.mark.parametrize("is_tls", [False, True])
async def test_peer_connects_though_strangers_hold_all_places(
    tmp_path: Path,
    is_tls: bool,
) -> None:
    """Half a frame, or half of TLS's first record: neither gets further, or has to leave soon."""
    certificates = Certificates(tmp_path)
    both = Pair(certificates.given_to if is_tls else secret_only, 60.0, frozenset())
    await both.one.start(both.addresses["n1"])
    hello = b"\x16\x03\x01\x02\x00\x01" if is_tls else (500).to_bytes(4, "little") + b"x"
    strangers = await crowd(both.addresses["n1"], 3 * STRANGER_COUNT_MAX, hello)
    await until(lambda: both.one.refused["too many strangers"] == 2 * STRANGER_COUNT_MAX)
    await both.two.start(both.addresses["n2"])
    await until(lambda: both.is_open)
    strangers += await crowd(both.addresses["n1"], STRANGER_COUNT_MAX, hello)
    await until(lambda: both.one.refused["too many strangers"] >= 3 * STRANGER_COUNT_MAX)
    assert both.is_open  # who has proved himself is no stranger
    for writer in strangers:
        writer.transport.abort()
    for network in both.networks.values():
        await network.close()


async def test_stranger_is_cut_off_when_he_takes_his_time_for_tls(tmp_path: Path) -> None:
    both = Pair(Certificates(tmp_path).given_to, 0.2, frozenset())
    await both.one.start(both.addresses["n1"])
    host, port = both.addresses["n1"].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert await reader.read() == b""
    assert both.one.refused == {"no proof in time": 1}
    writer.transport.abort()
    await both.one.close()


async def test_stranger_is_counted_when_he_has_no_certificate(tmp_path: Path) -> None:
    both = Pair(Certificates(tmp_path).given_to, 30.0, frozenset())
    await both.one.start(both.addresses["n1"])
    host, port = both.addresses["n1"].split(":")
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.verify_mode = ssl.CERT_NONE
    _, certified = await asyncio.open_connection(host, int(port), ssl=bare)
    _, clear = await asyncio.open_connection(host, int(port))
    clear.write(b"GET / HTTP/1.1\r\n\r\n")
    await until(lambda: both.one.refused.total() == 2)
    assert {reason[:4] for reason in both.one.refused} == {"TLS:"}
    for writer in (certified, clear):
        writer.transport.abort()
    await both.one.close()


async def test_reasons_are_few_whatever_lengths_strangers_announce() -> None:
    both = Pair(secret_only, 30.0, frozenset())
    await both.one.start(both.addresses["n1"])
    lengths = range(1 << 20, (1 << 20) + 3 * REASONS_MAX)
    writers = [
        await crowd(both.addresses["n1"], 1, length.to_bytes(4, "little")) for length in lengths
    ]
    await until(lambda: both.one.refused.total() == len(lengths))
    assert len(both.one.refused) == REASONS_MAX + 1
    for (writer,) in writers:
        writer.transport.abort()
    await both.one.close()
