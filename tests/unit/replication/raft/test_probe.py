"""A control process is asked to prove itself: a real one, and what else may listen at a port."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
import trustme

from hourwheel import errors
from replication.raft.handshake import Identity
from replication.raft.peers import PeerNetwork
from replication.raft.probe import prove_peer
from replication.raft.security import Security, with_certificates, with_secret
from tests.support.addresses import free_address
from tests.support.eventually import until

CLUSTER: Final = b"c" * 16
ME: Final = Identity(CLUSTER, "n1", 3)
SECRET: Final = with_secret(b"a secret for tests only", [])
WAIT_S: Final = 30.0


class NoHandler:
    """Of a network that nothing is said to."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: self.heard.append((name, given, named))


class Waiting:
    """A node that waits to become a member: its configuration names n1, n2 and itself."""

    def __init__(self, security: Security, identity: Identity, names: tuple[str, ...]) -> None:
        self.address, self.handler = free_address(), NoHandler()
        peers = {name: free_address() for name in names}
        self.network = PeerNetwork(
            *(identity, peers, security, self.handler), silence_s=60.0, retry_s=60.0
        )
        self.network.named_ids = frozenset(names)


@asynccontextmanager
async def waiting(
    security: Security,
    identity: Identity = Identity(CLUSTER, "n4"),  # noqa: B008 - never changes
    names: tuple[str, ...] = ("n1", "n2"),
) -> AsyncIterator[Waiting]:
    node = Waiting(security, identity, names)
    await node.network.start(node.address)
    try:
        yield node
    finally:
        await node.network.close()


async def prove(security: Security, address: str, wait_s: float = WAIT_S) -> None:
    await prove_peer(ME, security, "n4", address, wait_s=wait_s)


def certified(
    folder: Path, name: str, authority: trustme.CA, trusts: trustme.CA | None = None
) -> Security:
    """A node whose certificate names it."""
    issued = authority.issue_cert(name)
    files = [folder / f"{name}.{kind}" for kind in ("crt", "key", "ca")]
    files[0].write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(files[1])
    (trusts or authority).cert_pem.write_to_path(files[2])
    return with_certificates(*files)


async def test_node_that_waits_proves_itself_and_hears_nothing_of_it() -> None:
    async with waiting(SECRET) as node:
        await prove(SECRET, node.address)
        assert node.handler.heard == []
        assert not node.network.connected


async def test_node_that_waits_proves_itself_by_its_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    own = certified(tmp_path, "n1", authority)
    async with waiting(certified(tmp_path, "n4", authority)) as node:
        await prove(own, node.address)
        assert node.handler.heard == []
    for another in (
        certified(tmp_path, "n5", authority),
        certified(tmp_path, "n4", trustme.CA(), authority),
    ):
        async with waiting(another) as node:
            with pytest.raises(errors.PeerRefused, match=node.address):
                await prove(own, node.address)
    async with waiting(SECRET) as node:
        with pytest.raises(errors.PeerRefused, match="another protocol"):
            await prove(own, node.address)


@pytest.mark.parametrize(
    ("secret", "identity", "names"),
    [
        (b"another secret of others", Identity(CLUSTER, "n4"), ("n1", "n2")),
        (b"a secret for tests only", Identity(b"d" * 16, "n4"), ("n1", "n2")),
        (b"a secret for tests only", Identity(CLUSTER, "n5"), ("n1", "n2")),
        (b"a secret for tests only", Identity(CLUSTER, "n4"), ("n2", "n3")),
    ],
    ids=["secret", "cluster", "node", "it does not know who asks"],
)
async def test_another_node_is_refused(
    secret: bytes, identity: Identity, names: tuple[str, ...]
) -> None:
    async with waiting(with_secret(secret, []), identity, names) as node:
        with pytest.raises(errors.PeerRefused, match=node.address):
            await prove(SECRET, node.address)


@asynccontextmanager
async def foreign(said: bytes | None) -> AsyncIterator[str]:
    """Where another process answers `said` to a byte, and hangs up; None: it only listens."""
    address, open_count = free_address(), 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_count
        open_count += 1
        with suppress(OSError):
            await reader.read(-1 if said is None else 1)
            writer.write(said or b"")
        writer.transport.abort() if said is None else writer.close()
        open_count -= 1

    host, _, port = address.rpartition(":")
    async with await asyncio.start_server(answer, host, int(port)):
        yield address
        await until(lambda: not open_count)


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x04\x00\x00\x00\xff\xff\xff\xff"]
)
async def test_foreign_port_is_refused(said: bytes) -> None:
    """One that hangs up, one of another protocol, and one whose answer is no hello."""
    async with foreign(said) as address:
        with pytest.raises(errors.PeerRefused, match=address):
            await prove(SECRET, address)


async def test_port_that_is_silent_or_closed_is_no_node_yet() -> None:
    with pytest.raises(errors.Unavailable, match="no process listens"):
        await prove(SECRET, free_address())
    async with foreign(None) as address:
        with pytest.raises(errors.Unavailable, match="is silent"):
            await prove(SECRET, address, wait_s=0.2)
