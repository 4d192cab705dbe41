"""What strangers do at the ports that nodes have for each other: by hand, over plain sockets.

Each function does its worst to one address, and comes back. With certificates a stranger has none,
one of another authority, or one of the cluster's that names no node.
"""

import os
import pickle
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from hourwheel.internal.v1 import raft_pb2
from node.cluster.data_plane import FETCH_MESSAGES, REPLICATE
from replication.raft.frames import pack_frame
from replication.raft.handshake import NONCE_BYTES, PROTOCOL_VERSION
from tests.support import raw_http2 as raw

SILENT: Final = 400
"""Connections of those who say nothing: more than either port takes."""
TRIES: Final = 40
CALLERS: Final = 4
LARGE_BYTES: Final = 3 << 20
_TIMEOUT_S: Final = 60.0


class Bomb:
    """Unpickling it leaves a folder behind."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


class Port(NamedTuple):
    """A port between nodes, and with what a stranger comes there."""

    address: str
    bomb: Path
    """Must not be there in the end."""
    contexts: tuple[ssl.SSLContext | None, ...]
    """TLS of those who are nobody; None: in the clear."""
    of_cluster: ssl.SSLContext | None = None
    """TLS of somebody whom the cluster's authority knows, and who is no node."""
    credentials: grpc.ChannelCredentials | None = None
    """The same, for gRPC."""

    def connect(self, context: ssl.SSLContext | None = None) -> socket.socket:
        return raw.connect(self.address, context, _TIMEOUT_S)

    @contextmanager
    def tried(self, context: ssl.SSLContext | None) -> Iterator[socket.socket | None]:
        """A connection, where there is one: a handshake may be refused, or a place be gone."""
        with ExitStack() as stack:
            found = None
            with suppress(OSError):
                found = stack.enter_context(self.connect(context))
            yield found


def is_ended(connection: socket.socket) -> bool:
    """Whether the other side ends it, in whichever way; False: not within the time-out."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:  # an alert of TLS, or a reset
        return True
    return True


def be_silent(port: Port) -> None:
    """Many connections, half of which say the half of what one begins with; all are ended."""
    halves = (b"", b"\x16\x03\x01\x02", struct.pack("<I", 500) + b"x", raw.PREFACE[:9])
    with ExitStack() as stack:
        silent = []
        for number in range(SILENT):
            with suppress(OSError):  # it takes no more
                one = stack.enter_context(port.connect())
                one.sendall(halves[number % len(halves)])
                silent.append(one)
        assert all(is_ended(one) for one in (*silent[:4], *silent[-4:]))


def say_anything(port: Port) -> None:
    """Garbage, large lengths, and what a naive reader would unpickle: all are cut off."""
    bomb = pickle.dumps(Bomb(port.bomb))
    said = (
        pack_frame(bomb),
        struct.pack(">I", len(bomb)) + bomb,
        b"\xff\xff\xff\xff" + bytes(1_000),
        b"\xff\xff\xff\x7f",
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(4_096),
        raw.PREFACE + b"\xff" * 64,
    )
    for context in port.contexts:
        for each in said:
            with port.tried(context) as one:
                if one is not None:
                    with suppress(OSError):
                        one.sendall(each)
                    assert is_ended(one), each[:16]


def send_without_end(port: Port) -> None:
    """Whoever is refused goes on to send."""
    for context in port.contexts:
        with port.tried(context) as one:
            if one is not None:
                one.settimeout(5.0)
                raw.send_until_refused(one, bytes(1 << 20), 64)


def come_again(port: Port) -> None:
    """A handshake after the other."""
    for _ in range(TRIES):
        for context in port.contexts:
            with port.tried(context) as one:
                if one is not None:
                    with suppress(OSError):
                        one.sendall(b"x")


def claim_to_be_a_peer(port: Port, cluster_id: bytes = bytes(16)) -> None:
    """Of another cluster, or of this one; with versions and names that nobody knows."""
    known: dict[str, Any] = {
        "cluster_id": cluster_id,
        "node_id": "node-2",
        "peer_node_id": "node-1",
    }
    hellos: list[dict[str, Any]] = [
        {**known, "cluster_id": os.urandom(16)},
        {**known, "node_id": "stranger"},
        {**known, "peer_node_id": "x" * 500},
        known,
        *({**known, "version": version} for version in range(2, TRIES)),
    ]
    for context in (*port.contexts, port.of_cluster):
        for fields in hellos:
            claim = {"version": PROTOCOL_VERSION, "nonce": os.urandom(NONCE_BYTES), **fields}
            hello = raft_pb2.PeerHello(**claim).SerializeToString()
            with port.tried(context) as one:
                if one is not None:
                    with suppress(OSError):
                        one.sendall(pack_frame(hello) + pack_frame(hello) + pack_frame(b"x" * 99))
                    assert is_ended(one)


def call_and_never_read(port: Port) -> None:
    """Calls of who may not call, who lets nothing of their answers in."""
    paths = (FETCH_MESSAGES.encode(), REPLICATE.encode())
    opened = b"".join(raw.headers(1 + 2 * at, paths[at % 2]) for at in range(64))
    start = raw.PREFACE + raw.settings(initial_window_bytes=0)
    for context in (*port.contexts, port.of_cluster):
        with ExitStack() as stack:
            for _ in range(CALLERS):
                one = stack.enter_context(port.tried(context))
                if one is not None:
                    one.settimeout(1.0)
                    raw.send_until_refused(one, start + opened, 1)
                    is_ended(one)


def call_with_much(port: Port) -> None:
    """Large requests of who may not call: none of them is read."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with ExitStack() as stack:
        calls = []
        for _ in range(CALLERS):
            made = (
                grpc.insecure_channel(port.address, options)
                if port.credentials is None
                else grpc.secure_channel(port.address, port.credentials, options)
            )
            call: Any = stack.enter_context(made).unary_unary(FETCH_MESSAGES)
            calls += [call.future(bytes(LARGE_BYTES), timeout=_TIMEOUT_S) for _ in range(16)]
        assert grpc.StatusCode.OK not in {one.code() for one in calls}


def drip(port: Port) -> None:
    """A byte after the other: each is ended before it has said what it wanted to."""
    words = (struct.pack("<I", 1_000) + bytes(20), raw.PREFACE)
    with ExitStack() as stack:
        slow = []
        for _ in range(TRIES):
            with suppress(OSError):
                slow.append(stack.enter_context(port.connect()))
        for at in range(20):
            for number, one in enumerate(slow):
                with suppress(OSError):
                    one.sendall(words[number % 2][at : at + 1])
        assert all(is_ended(one) for one in slow)


AT_CONTROL: Final = (
    *(be_silent, say_anything, send_without_end, come_again, claim_to_be_a_peer, drip),
)
AT_DATA: Final = (
    *(be_silent, say_anything, send_without_end, come_again, call_and_never_read),
    *(call_with_much, drip),
)
