"""Connections to the other control processes: one for each pair, always tried again.

On the event loop. The node with the larger id dials; a new connection of a peer replaces the old
one. Who is not a peer, cannot prove it, announces a frame beyond the cap, or sends anything
that the codec does not know, is cut off and counted, and the log says so now and then. A peer that
is silent for `silence_s` is cut off too; reports, ten a second, keep every sound connection busy.

Both sides say of which generation of voters they are. Where these differ, the side that is ahead
sends how its generation begins, and nothing else. A node that is behind may have left the cluster:
no member dials it any more. So a node without a connection to a peer for `silence_s` dials that
peer itself, only to ask. A node that began with nothing first hears from its peer whether that one
knows it: `replication.raft.admission`.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from hourwheel import errors
from hourwheel.internal.v1 import control_link_pb2, raft_pb2
from hourwheel.types import NodeId
from replication.raft.codec import FRAME_BYTES_MAX, Message, decode, parse, refuse
from replication.raft.first_states import FirstState, Incoming
from replication.raft.frames import pack_frame, read_frame
from replication.raft.handshake import (
    HELLO_BYTES_MAX,
    MAC_BYTES,
    NONCE_BYTES,
    Handshake,
    Identity,
    Session,
)
from replication.raft.security import Security, split_address
from replication.refusals import Refusals
from replication.strangers import Listener, Places, open_streams

_UNSENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""A peer that takes nothing in is cut off there."""

_SOON_SHARE: Final = 0.15
"""Of the wait between attempts: after a connection that has stood."""
_FIRST_STATE_S: Final = 30.0
"""How long a state may take on its way."""
STRANGER_COUNT_MAX: Final = 64
"""Connections that have not proved themselves yet; TLS costs some 400 KiB for each."""

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_log = logging.getLogger(__name__)


def _on_bug(error: BaseException) -> None:
    _log.error("raft_peer_handler_failed", exc_info=error)


def _say_cut(reason: str, peer: str, unlogged: int) -> None:
    _log.warning("raft_connection_cut", extra={"error": reason, "peer": peer, "unlogged": unlogged})


class PeerHandler(Protocol):
    """What becomes of what comes in; called on the loop."""

    def on_peer(self, peer_id: NodeId, what: Message | bool) -> None:  # noqa: FBT001
        """A message of Raft; or True: connected; or False: not any more."""

    def on_report(self, peer_id: NodeId, report: control_link_pb2.NodeReport) -> None:
        """What a peer says of its broker."""

    def on_generation(self, generation: int, state: bytes) -> None:
        """A peer tells how a later generation begins."""

    def knows(self, session: Session) -> bool:
        """Whether a peer had another journal, or says that it is new and has been heard of.

        Else it is known from now on, by the journal that it has.
        """

    def on_admission(self, peer_id: NodeId, *, is_known: bool) -> None:
        """A peer says whether it has heard of this node, which has said that it is new."""


class _Connection:
    def __init__(self, session: Session, writer: asyncio.StreamWriter) -> None:
        self.session = session
        self._writer = writer

    def send(self, raw: bytes) -> None:
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > _UNSENT_BYTES_MAX:
            self.close()
            return
        self._writer.write(pack_frame(self.session.outgoing.close(raw)))

    def close(self) -> None:
        self._writer.transport.abort()


class PeerNetwork:
    """See the top of this file. On one event loop; `send_threadsafe` from any thread.

    Attributes:
        named_ids: who else than the peers may tell of a later generation.
    """

    def __init__(
        self,
        identity: Identity,
        peers: Mapping[NodeId, str],
        security: Security,
        handler: PeerHandler,
        *,
        first: FirstState | None = None,
        journal: Callable[[], tuple[bytes, bool]] = lambda: (b"", False),
        retry_s: float = 0.3,
        silence_s: float = 2.0,
    ) -> None:
        """Does nothing before `start`.

        Args:
            identity: who this is.
            peers: node id -> host:port of the others.
            security: how they are trusted.
            handler: takes what they say.
            first: what nodes of earlier generations get; None: there is none.
            journal: the id of this node's, and whether it began with nothing and took no part.
            retry_s: between attempts to connect; less after a connection that has stood as long.
            silence_s: after that a connection is given up; also for connecting.
        """
        self._refusals = Refusals(lambda: asyncio.get_running_loop().time(), _say_cut)
        self._identity = identity
        self._peers = dict(peers)
        self._security = security
        self._handler = handler
        self._first = first
        self.named_ids = frozenset[NodeId]()
        self._journal = journal
        self._took_part: set[NodeId] = set()
        """Peers that have sent messages of Raft."""
        self._retry_s = retry_s
        self._silence_s = silence_s
        self._connections: dict[NodeId, _Connection] = {}
        self._blocked_in: frozenset[NodeId] = frozenset()
        self._blocked_out: frozenset[NodeId] = frozenset()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        self._listener = Listener(self._serve_accepted, _on_bug)
        self._strangers = Places(STRANGER_COUNT_MAX, self._on_removed)
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- life

    async def start(self, listen: str) -> None:
        """Listen and dial.

        Raises:
            OSError: the address cannot be bound.
        """
        self._loop = asyncio.get_running_loop()
        host, port = split_address(listen)
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, place in sorted({(one[0], one[4][:2]) for one in found}):
            self._listening.append(socket.create_server(place, family=family))
        for listening in self._listening:
            self._spawn(self._listener.accept(listening))
        if self._security.files is not None:
            self._spawn(self._security.files.watch())
        for peer_id, address in self._peers.items():
            if self._identity.node_id > peer_id:
                self._spawn(self._dial_for_ever(peer_id, address))
            else:
                self._spawn(self._inquire_for_ever(peer_id, address))

    @property
    def port(self) -> int:
        """Where it listens."""
        errors.invariant(bool(self._listening), "not started")
        port: int = self._listening[0].getsockname()[1]
        return port

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cut everybody off."""
        for connection in self._connections.values():
            connection.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listening in self._listening:
            listening.close()
        await self._listener.close()

    @property
    def refused(self) -> Counter[str]:
        """Reason -> how many connections were cut off for it."""
        return self._refusals.counts

    # --- sending

    @property
    def connected(self) -> frozenset[NodeId]:
        """Peers with an open connection."""
        return frozenset(self._connections)

    def block(self, peer_ids: Iterable[NodeId], direction: str) -> None:
        """Tests of partitions: frames "in" from or "out" to these peers are lost from now on.

        It replaces what was blocked in that direction; with no peers, nothing is blocked.
        """
        errors.invariant(direction in {"in", "out"}, "a direction is in or out")
        if direction == "in":
            self._blocked_in = frozenset(peer_ids)
        else:
            self._blocked_out = frozenset(peer_ids)

    def send(self, peer_id: NodeId, raw: bytes) -> bool:
        """Send an encoded PeerFrame. False: not connected."""
        connection = self._connections.get(peer_id)
        if connection is None:
            return False
        if peer_id not in self._blocked_out:
            connection.send(raw)
        return True

    def send_threadsafe(self, peer_id: NodeId, raw: bytes) -> bool:
        """As `send`, from any thread."""
        if self._loop is None or peer_id not in self._connections:
            return False
        try:
            self._loop.call_soon_threadsafe(self.send, peer_id, raw)
        except RuntimeError:  # the loop is closed: the process ends
            return False
        return True

    def broadcast_report(self, report: control_link_pb2.NodeReport) -> None:
        """Tell all peers of this node's broker."""
        raw = raft_pb2.PeerFrame(report=report).SerializeToString()
        for peer_id in list(self._connections):
            self.send(peer_id, raw)

    # --- connections

    async def _dial_for_ever(self, peer_id: NodeId, address: str) -> None:
        host, port = split_address(address)
        clock_s = asyncio.get_running_loop().time
        while True:
            begun_s = clock_s()
            await self._serve(partial(self._dial, host, port), peer_id, address)
            # After one that stood, the next is needed soon: others count this node as dead.
            has_stood = clock_s() - begun_s > self._retry_s
            await asyncio.sleep(self._retry_s * (_SOON_SHARE if has_stood else 1))

    async def _inquire_for_ever(self, peer_id: NodeId, address: str) -> None:
        """A peer that should dial, and does not: is it of a later generation?"""
        host, port = split_address(address)
        while True:
            await asyncio.sleep(self._silence_s)
            if peer_id not in self._connections:
                dial = partial(self._dial, host, port)
                await self._serve(dial, peer_id, address, is_inquiry=True)

    async def _dial(self, host: str, port: int) -> Streams:
        return await asyncio.open_connection(host, port, ssl=self._security.client_tls)

    async def _serve_accepted(self, connection: socket.socket) -> None:
        try:
            host, port = connection.getpeername()[:2]
        except OSError:  # it is gone again
            return
        open_ = partial(open_streams, connection, self._security.server_tls)
        await self._serve(open_, None, f"{host}:{port}")

    def _on_removed(self) -> None:
        self._refusals.note("too many strangers")

    async def _serve(
        self,
        open_: Callable[[], Coroutine[Any, Any, Streams]],
        dialled: NodeId | None,
        peer: str,
        *,
        is_inquiry: bool = False,
    ) -> None:
        """One connection from its beginning to its end; raises nothing."""
        writer: asyncio.StreamWriter | None = None
        session: Session | None = None
        note = partial(self._refusals.note, peer=peer)
        try:
            with nullcontext() if dialled else self._strangers.one():
                async with asyncio.timeout(self._silence_s):
                    reader, writer = await open_()
                    session = await self._shake_hands(
                        reader, writer, dialled, is_inquiry=is_inquiry
                    )
            if session.generation < self._identity.generation:
                await self._tell_first(session, writer)
            elif session.generation > self._identity.generation:
                await self._hear_first(session, reader)
            elif not session.is_inquiry and await self._is_admitted(session, writer):
                await self._receive(reader, _Connection(session, writer))
        except (errors.PeerRefused, errors.InvalidBatch) as error:
            note(error.message)
        except ssl.SSLError as error:
            note(f"TLS: {error.reason}")
        except TimeoutError:
            if session is None and dialled is None:
                note("no proof in time")
        except (OSError, EOFError):
            pass  # it is over; dialled again
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _shake_hands(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        dialled: NodeId | None,
        *,
        is_inquiry: bool,
    ) -> Session:
        journal_id, is_blank = self._journal()
        handshake = Handshake(
            self._identity._replace(is_blank=is_blank, journal_id=journal_id),
            frozenset(self._peers),
            os.urandom(NONCE_BYTES),
            secret=self._security.secret,
            certified=self._security.certified(writer.get_extra_info("peercert")),
            known_ids=frozenset() if self._first is None else self._first.known_ids,
            named_ids=self.named_ids,
        )
        if dialled is not None:
            writer.write(pack_frame(handshake.first(dialled, is_inquiry=is_inquiry)))
            last, session = handshake.prove(await read_frame(reader, HELLO_BYTES_MAX))
            writer.write(pack_frame(last))
        else:
            answer = handshake.answer(await read_frame(reader, HELLO_BYTES_MAX))
            writer.write(pack_frame(answer))
            session = handshake.finish(await read_frame(reader, HELLO_BYTES_MAX))
        if session.peer_id in self._blocked_in | self._blocked_out:
            raise ConnectionResetError("partitioned")
        return session

    async def _is_admitted(self, session: Session, writer: asyncio.StreamWriter) -> bool:
        """Tell a peer that is blank whether it is known; False: it is, so it has no more to say."""
        if not session.admits:  # of an older version: it will not say
            self._handler.on_admission(session.peer_id, is_known=False)
        is_known = self._handler.knows(session) or (
            session.is_blank and session.peer_id in self._took_part
        )
        if not (session.is_blank or is_known):
            return True
        admission = raft_pb2.PeerAdmission(is_known=is_known)
        raw = raft_pb2.PeerFrame(admission=admission).SerializeToString()
        writer.write(pack_frame(session.outgoing.close(raw)))
        if is_known:
            _log.warning("raft_peer_lost_its_vote", extra={"node": session.peer_id})
            async with asyncio.timeout(self._silence_s):
                await writer.drain()
            await asyncio.sleep(self._retry_s)  # it is not cut off while that is on its way
        return not is_known

    async def _tell_first(self, session: Session, writer: asyncio.StreamWriter) -> None:
        """The peer is behind: tell it how this generation begins, or that it has left."""
        first = errors.required(self._first, "a generation after another has a first state")
        async with asyncio.timeout(_FIRST_STATE_S):
            for part in first.parts(self._identity.generation, session.peer_id):
                raw = raft_pb2.PeerFrame(generation_part=part).SerializeToString()
                writer.write(pack_frame(session.outgoing.close(raw)))
                await writer.drain()
            writer.write_eof() if writer.can_write_eof() else None
            await asyncio.sleep(self._retry_s)  # TLS has no end of one direction

    async def _hear_first(self, session: Session, reader: asyncio.StreamReader) -> None:
        """The peer is ahead: hear how its generation begins."""
        incoming = Incoming(session.generation)
        async with asyncio.timeout(_FIRST_STATE_S):
            state = None
            while state is None:
                raw = await read_frame(reader, FRAME_BYTES_MAX + MAC_BYTES)
                frame = parse(session.incoming.open(raw))
                if frame.WhichOneof("frame") != "generation_part":
                    raise refuse("it is not of this generation")
                state = incoming.take(frame.generation_part)
        self._handler.on_generation(session.generation, state)

    async def _receive(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        session = connection.session
        peer_id = session.peer_id
        old = self._connections.pop(peer_id, None)
        if old is not None:
            old.close()
            self._handler.on_peer(peer_id, what=False)
        self._connections[peer_id] = connection
        self._handler.on_peer(peer_id, what=True)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._silence_s) as silence:
                while True:
                    raw = await read_frame(reader, FRAME_BYTES_MAX + MAC_BYTES)
                    frame = parse(session.incoming.open(raw))
                    if peer_id in self._blocked_in:
                        continue
                    silence.reschedule(loop.time() + self._silence_s)
                    if self._connections.get(peer_id) is connection:
                        self._take(peer_id, frame)
        finally:
            if self._connections.get(peer_id) is connection:
                del self._connections[peer_id]
                self._handler.on_peer(peer_id, what=False)

    def _take(self, peer_id: NodeId, frame: raft_pb2.PeerFrame) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "admission":
            self._handler.on_admission(peer_id, is_known=frame.admission.is_known)
        elif kind != "report":
            message = decode(frame)
            self._took_part.add(peer_id)
            self._handler.on_peer(peer_id, message)
        elif frame.report.node_id != peer_id:
            raise refuse("a report of another node")
        else:
            self._handler.on_report(peer_id, frame.report)
