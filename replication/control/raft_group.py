"""One generation of voters, as one of them has it: its Raft, its files, its connections.

A generation is never changed. When it has ended, or a peer tells of a later one, the control node
closes this and makes another (replication/control/node.py).
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from hourwheel import errors
from hourwheel.clock import Clock
from hourwheel.types import FIRST_SHARD, NodeId
from replication.control.config import ControlConfig
from replication.control_state.membership import Membership
from replication.control_state.state import ControlState, decode_state, encode_state
from replication.raft import generations
from replication.raft.adapter import ControlMachine, GenerationEnded, RaftAdapter, TickStats
from replication.raft.admission import Admission
from replication.raft.committed_state import latest_state
from replication.raft.first_states import FirstState
from replication.raft.handshake import Identity as PeerIdentity
from replication.raft.handshake import Session
from replication.raft.journal import RaftJournal
from replication.raft.peers import PeerHandler, PeerNetwork
from replication.raft.raft_node import RaftNode, RaftStatus
from replication.raft.transport import NetworkTransport
from storage.files.disk import Disk
from storage.files.file_header import Identity


class GroupHandler(PeerHandler, Protocol):
    """What becomes of what a group says and hears; called on the loop."""

    def on_state(self, state: ControlState) -> None:
        """A new state was applied."""

    def on_status(self, status: RaftStatus) -> None:
        """What is known of the leader has changed."""

    def on_death(self, error: BaseException) -> None:
        """Raft's thread has died."""


@dataclass(frozen=True)
class Origin:
    """How a generation began, and where its members are."""

    generation: int
    peers: dict[NodeId, str]
    first: FirstState | None
    """None for generation 0, which no other node has to hear of."""
    named_ids: frozenset[NodeId]
    """Nodes of the configuration, which may also report a later generation: all members that this
    node knows may have been replaced. A node that has left is not among them: it could claim that
    all others have left."""

    @property
    def known_ids(self) -> frozenset[NodeId]:
        """Who may hear of it."""
        return frozenset() if self.first is None else self.first.known_ids


def read_origin(config: ControlConfig, disk: Disk, identity: Identity) -> Origin:
    """The generation that is in force here.

    Raises:
        ConfigError: this node is not a member any more.
        CorruptFile: this node has lost what it knew.
    """
    generation = generations.find_generation(disk)
    if not generation:
        return Origin(0, dict(config.peers), None, frozenset(config.peers))
    first = generations.first_state(disk, identity, generation)
    state = decode_state(first)
    membership = state.membership
    check_member(config.node_id, membership)
    peers = {one: at for one, at in membership.members.items() if one != config.node_id}
    named_ids = frozenset(config.peers) - frozenset(membership.former_node_ids)
    return Origin(generation, peers, _shown_of(state, first), named_ids)


def _shown_of(state: ControlState, raw: bytes) -> FirstState:
    """Members get all of it; who has left, only that."""
    membership = state.membership
    farewell = replace(
        ControlState(),
        codec_version=state.codec_version,
        membership=replace(membership, members=MappingProxyType({})),
    )
    former_ids = frozenset(membership.former_node_ids)
    return FirstState(raw, frozenset(membership.members), encode_state(farewell), former_ids)


def check_member(node_id: NodeId, membership: Membership) -> None:
    """Raises ConfigError where a node is not among the members."""
    if node_id not in membership.members:
        raise errors.ConfigError(
            f"node {node_id} is not a member of the cluster since generation"
            f" {membership.generation}, and its id is not used again: its data is of no more use",
            node=node_id,
            generation=membership.generation,
        )


def check_configured(configured: AbstractSet[NodeId], state: ControlState) -> None:
    """Raises ConfigError where generation 0 has other members than the configuration names.

    In that generation a majority is counted by the configuration: one that leaves nodes out, or
    names new ones, counts another than theirs.
    """
    members = frozenset(state.membership.members)
    known = members or frozenset(state.nodes)
    if known == configured or (not members and known <= configured):
        return
    raise errors.ConfigError(
        f"cluster.nodes names {', '.join(sorted(configured))}, and the cluster of this directory"
        f" has {', '.join(sorted(known))}: name all of these and no others, as before. Members"
        " change by `hourwheel members`",
        key="cluster.nodes",
    )


class RaftGroup:
    """See the top of this file.

    Attributes:
        generation: of the voters.
        peers: node id -> host:port of the others.
        network: to them.
        is_closed: it is over.
    """

    def __init__(
        self, config: ControlConfig, disk: Disk, clock: Clock, handler: GroupHandler
    ) -> None:
        """Open the journal of the generation that is in force.

        Raises:
            ConfigError: see ControlConfig; or this node is not a member any more.
            CorruptFile, ForeignDirectory, IncompatibleFormat: see RaftJournal.open.
        """
        cluster_id = bytes.fromhex(config.cluster_id)
        identity = Identity(cluster_id, FIRST_SHARD)
        origin = read_origin(config, disk, identity)
        self.generation, self.peers = origin.generation, origin.peers
        self.network = PeerNetwork(
            PeerIdentity(cluster_id, config.node_id, self.generation),
            self.peers,
            config.security(self.peers.values()),
            handler,
            first=origin.first,
            journal=lambda: (self._journal_id, self.has_no_part),
        )
        self.network.named_ids = origin.named_ids
        self._listen = config.listen
        self._journal: RaftJournal | None = None
        self._transport: NetworkTransport | None = None
        self._raft: RaftAdapter | None = None
        self._admission = Admission(1 + len(self.peers), is_blank=True)
        self._begun = asyncio.Event()
        """Raft runs, or never will."""
        self.is_closed, self._began_blank = False, True
        generations.drop_former(disk, self.generation)
        if config.joins and not generations.has_begun(disk):
            return  # it votes when it has heard of the cluster
        journal = generations.open_journal(disk, identity, config.node_id, self.generation)
        if not self.generation:
            check_configured({config.node_id, *self.peers}, latest_state(journal))
        self._began_blank = len(journal) == 1
        self._journal = journal
        self._admission = Admission(1 + len(self.peers), is_blank=journal.is_blank)
        machine = ControlMachine()
        self._transport = NetworkTransport(journal, self.peers, self.network)
        node = RaftNode(
            config.node_id, self.peers, journal, self._transport, machine, config.timings
        )
        self._transport.attach(node.poller)
        self._raft = RaftAdapter(
            node,
            machine,
            clock,
            config.timings.tick_s,
            on_state=self._unless_closed(handler.on_state),
            on_status=self._unless_closed(handler.on_status),
            on_death=handler.on_death,
        )

    def _unless_closed(self, callback: Callable[..., None]) -> Callable[..., None]:
        """What a thread said that has ended since is not about the present."""

        def pass_on(what: object) -> None:
            if not self.is_closed:
                callback(what)

        return pass_on

    @property
    def state(self) -> ControlState:
        """The latest that this node has applied."""
        return ControlState() if self._raft is None else self._raft.state

    @property
    def is_blank(self) -> bool:
        """It began with an empty journal, or has none, and has not learnt the state since."""
        return self._began_blank and not self.state.is_bootstrapped

    @property
    def has_no_part(self) -> bool:
        """It began with nothing, and has neither voted nor acknowledged anything in its life."""
        return self._journal is None or self._journal.is_blank

    @property
    def _journal_id(self) -> bytes:
        return b"" if self._journal is None else self._journal.journal_id

    def knows(self, session: Session) -> bool:
        """See PeerHandler. Who is registered has taken part.

        Raises:
            DiskFull: see RaftJournal.meet.
            FsyncFailed, DiskFailed: stop the process.
        """
        if session.is_blank and session.peer_id in self.state.nodes:
            return True
        if self._journal is None or not session.journal_id:
            return False
        return not self._journal.meet(session.peer_id, session.journal_id)

    @property
    def status(self) -> RaftStatus:
        """As last seen."""
        return RaftStatus() if self._raft is None else self._raft.status

    @property
    def stats(self) -> TickStats:
        """Of ticks."""
        return TickStats() if self._raft is None else self._raft.stats

    async def start(self) -> None:
        """Listen to peers; start Raft, unless others have to admit this node first.

        Raises:
            ConfigError, OSError: an address cannot be used.
        """
        await self.network.start(self._listen)
        self._begin()

    def on_unknown_to(self, peer_id: NodeId) -> None:
        """A peer has never heard of this node: when enough of them have not, it takes part."""
        if self._admission.on_unknown(peer_id):
            self._begin()
            for peer in self.network.connected:
                self.put(peer, True)

    def _begin(self) -> None:
        if self._raft is not None and self._admission.is_given and not self._begun.is_set():
            self._raft.start()
            self._begun.set()

    def put(self, peer_id: NodeId, what: object) -> None:
        """Something has come from a peer: see `NetworkTransport.put`."""
        if self._transport is not None and self._admission.is_given:
            self._transport.put(peer_id, what)  # type: ignore[arg-type]

    async def propose(self, command: bytes, timeout_s: float, *, is_unknown: bool) -> bytes:
        """See `RaftAdapter.propose`. Waits until Raft runs here, and raises Timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._begun.wait()
        except TimeoutError as error:
            raise errors.Timeout("this node takes no part in its cluster yet") from error
        if self._raft is None:
            raise GenerationEnded
        return await self._raft.propose(command, timeout_s, is_unknown=is_unknown)

    async def close(self) -> None:
        """End everything; those who wait for an answer get `GenerationEnded`."""
        self.is_closed = True
        self._begun.set()
        if self._raft is not None:
            self._raft.end()
            await self._raft.stop()
        await self.network.close()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()


__all__ = ["GenerationEnded", "GroupHandler", "RaftGroup", "check_member"]
