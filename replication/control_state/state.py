"""The control plane's state: nodes, topics, groups, who is master of each shard, who may do what.

Pure data. `replication.control_state.commands` changes it; Raft replicates the commands; every node
comes to the same state, byte by byte (`digest`). A state is never changed in place: a holder of one
may read it from any thread, for ever.

    revision     grows with each command that changed something
    version      of a node, topic or group: the revision when it was changed last. Of a shard: a
                 count of its own. A compare-and-set names the version that it has read.
    epoch        counter of a shard's masters. Never Raft's term.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import Epoch, NodeId, ShardId
from replication.control_state.access import AccessState, access_data, access_of
from replication.control_state.membership import Membership, membership_data, membership_of

RULES_FIRST: Final = 1
CODEC_VERSION: Final = 6
"""The newest rules that this code knows; it knows all older ones, too. The state's own
`codec_version` says which are in force. A command that needs newer ones changes nothing, on a node
that knows them as on one that does not; so old and new nodes come to the same state until
SET_RULES. Raft's leader proposes that when the control process of every node says that it can."""
REMEMBERED_COUNT_MAX: Final = 1_024
"""How many of the latest answers are kept, for commands that are tried again."""


@dataclass(frozen=True, order=True)
class Member:
    """One incarnation of a node, as a member of an in-sync set."""

    node_id: NodeId
    boot_id: bytes
    """16 bytes; empty before the node's first registration."""


@dataclass(frozen=True)
class NodeInfo:
    """A node, as its broker registered."""

    node_id: NodeId
    api_address: str
    data_address: str
    control_address: str
    boot_id: bytes
    software_version: str
    seen: Mapping[int, tuple[int, NodeId]]
    """Shard -> the highest (epoch, master) that the node had kept when it registered."""
    version: int
    feature_level: int = 1
    """The highest of the log that its software knows."""
    ended_boot_id: bytes = b""
    """The last of its incarnations whose process is known to have ended; empty: none. That stays
    true, whatever comes later: a boot id is never used again."""

    @property
    def member(self) -> Member:
        """Its present incarnation."""
        return Member(self.node_id, self.boot_id)


@dataclass(frozen=True)
class ShardInfo:
    """A shard's mastership."""

    shard: ShardId
    epoch: Epoch
    """The last one that was given; 0: none yet."""
    master: Member | None
    """None: one has to be elected."""
    isr: tuple[Member, ...]
    """By node id, one incarnation of each; never empty."""
    version: int
    epoch_seen: int = 0
    """The highest epoch that any node ever reported."""
    replicas: tuple[NodeId, ...] = ()
    """The replica list, sorted; empty before rules 3: all nodes."""

    @property
    def isr_node_ids(self) -> frozenset[NodeId]:
        """Who is in sync, whatever the incarnation."""
        return frozenset(member.node_id for member in self.isr)


@dataclass(frozen=True)
class NamedObject:
    """A topic or group. What its settings say is not the control plane's business."""

    name: str
    object_id: int
    """From 1, never used again."""
    settings: bytes
    version: int


@dataclass(frozen=True)
class CatalogImport:
    """How far topics and groups have come over from a shard's log."""

    pieces: int = 0
    is_done: bool = False
    """This state decides about topics and groups."""


Key = TypeVar("Key")
Value = TypeVar("Value")


def copy_of(entries: Mapping[Key, Value]) -> dict[Key, Value]:
    """A dict to change. Ten times as fast as `{**entries}`, which asks a proxy for each key."""
    return entries.copy() if isinstance(entries, MappingProxyType) else dict(entries)


def with_entry(entries: Mapping[Key, Value], key: Key, value: Value) -> Mapping[Key, Value]:
    """The same, but for one."""
    copied = copy_of(entries)
    copied[key] = value
    return MappingProxyType(copied)


def without_entry(entries: Mapping[Key, Value], key: Key) -> Mapping[Key, Value]:
    """The same, but without one that is there."""
    copied = copy_of(entries)
    del copied[key]
    return MappingProxyType(copied)


def _none() -> Mapping[str, NamedObject]:
    return MappingProxyType({})


@dataclass(frozen=True)
class ControlState:
    """See the top of this file. No holder of one changes its mappings."""

    codec_version: int = RULES_FIRST
    cluster_id: bytes = b""
    """Empty before BOOTSTRAP."""
    min_in_sync: int = 0
    revision: int = 0
    nodes: Mapping[NodeId, NodeInfo] = field(default_factory=lambda: MappingProxyType({}))
    shards: Mapping[int, ShardInfo] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, NamedObject] = field(default_factory=_none)
    groups: Mapping[str, NamedObject] = field(default_factory=_none)
    next_topic_id: int = 1
    next_group_id: int = 1
    remembered: Mapping[bytes, bytes] = field(default_factory=lambda: MappingProxyType({}))
    """Request id -> encoded ControlResult, oldest first; at most REMEMBERED_COUNT_MAX."""
    access: AccessState = field(default_factory=AccessState)
    """Empty before rules 2."""
    membership: Membership = field(default_factory=Membership)
    """Empty before rules 3."""
    min_in_sync_goal: int = 0
    """What `min_in_sync` becomes when so many are in sync and there is one more member, of a
    cluster that has grown from one node; 0: it stays what it is."""
    catalog_import: CatalogImport = CatalogImport()
    """Not begun before rules 5."""

    @property
    def is_bootstrapped(self) -> bool:
        """Whether there is a cluster."""
        return bool(self.cluster_id)

    @property
    def ended_boot_ids(self) -> frozenset[bytes]:
        """Incarnations whose processes are known to have ended: they serve nothing any more."""
        return frozenset(one.ended_boot_id for one in self.nodes.values() if one.ended_boot_id)

    @property
    def feature_level(self) -> int:
        """The highest that all nodes know; 1 before the first has registered."""
        return min((node.feature_level for node in self.nodes.values()), default=1)

    def digest(self) -> str:
        """SHA-256 of all of it, hexadecimal: equal on nodes that have applied the same log."""
        return hashlib.sha256(encode_state(self)).hexdigest()

    def check(self) -> None:
        """Assert the invariants of all fields."""
        for shard in self.shards.values():
            ids = [member.node_id for member in shard.isr]
            errors.invariant(bool(ids) and ids == sorted(set(ids)), "an ISR is a sorted set")
            errors.invariant(
                shard.master is None or shard.master in shard.isr, "the master is in sync"
            )
            errors.invariant(
                not shard.replicas or shard.isr_node_ids <= set(shard.replicas),
                "who is in sync has a replica",
            )
        for objects, next_id in (
            (self.topics, self.next_topic_id),
            (self.groups, self.next_group_id),
        ):
            used = [each.object_id for each in objects.values()]
            errors.invariant(len(used) == len(set(used)), "ids are unique")
            errors.invariant(all(0 < one < next_id for one in used), "ids are below the next one")
        self.access.check(self.revision)
        self.membership.check()
        errors.invariant(
            not self.min_in_sync_goal or self.min_in_sync <= self.min_in_sync_goal,
            "a goal is not behind",
        )
        errors.invariant(len(self.remembered) <= REMEMBERED_COUNT_MAX, "the window is bounded")


# --- encoding


def encode_state(state: ControlState, *, with_remembered: bool = True) -> bytes:
    """Canonical bytes: equal states have equal ones. Without remembered results: to be shown."""
    data = state_data(state, with_remembered=with_remembered)
    return data.SerializeToString(deterministic=True)


def state_data(state: ControlState, *, with_remembered: bool) -> pb.ControlStateData:
    """As `encode_state`, not yet bytes."""
    remembered = state.remembered.items() if with_remembered else ()
    return pb.ControlStateData(
        codec_version=state.codec_version,
        cluster_id=state.cluster_id,
        min_in_sync=state.min_in_sync,
        revision=state.revision,
        nodes=[_node_data(state.nodes[name]) for name in sorted(state.nodes)],
        shards=[_shard_data(state.shards[number]) for number in sorted(state.shards)],
        topics=[_object_data(state.topics[name]) for name in sorted(state.topics)],
        groups=[_object_data(state.groups[name]) for name in sorted(state.groups)],
        next_topic_id=state.next_topic_id,
        next_group_id=state.next_group_id,
        remembered=[pb.RememberedResult(request_id=key, result=raw) for key, raw in remembered],
        access=access_data(state.access) if state.access.version else None,
        membership=membership_data(state.membership),
        min_in_sync_goal=state.min_in_sync_goal,
        catalog_import=_import_data(state.catalog_import),
    )


def decode_state(raw: bytes) -> ControlState:
    """The state of its bytes.

    Raises:
        IncompatibleFormat: no such state, or one with rules that this code does not know.
    """
    try:
        data = pb.ControlStateData.FromString(raw)
    except Exception as error:  # protobuf's DecodeError has no public home
        raise errors.IncompatibleFormat("the control plane's state cannot be decoded") from error
    return state_of(data)


def state_of(data: pb.ControlStateData) -> ControlState:
    """The state that a message carries.

    Raises:
        IncompatibleFormat: its rules are not known to this code.
    """
    if not RULES_FIRST <= data.codec_version <= CODEC_VERSION:
        raise errors.IncompatibleFormat(
            f"the control plane follows rules {data.codec_version}, this version of Hourwheel knows"
            f" {RULES_FIRST} to {CODEC_VERSION}",
            version=data.codec_version,
        )
    return ControlState(
        codec_version=data.codec_version,
        cluster_id=data.cluster_id,
        min_in_sync=data.min_in_sync,
        revision=data.revision,
        nodes=MappingProxyType({NodeId(n.registered.node_id): _node_of(n) for n in data.nodes}),
        shards=MappingProxyType({s.shard: _shard_of(s) for s in data.shards}),
        topics=MappingProxyType({t.name: _object_of(t) for t in data.topics}),
        groups=MappingProxyType({g.name: _object_of(g) for g in data.groups}),
        next_topic_id=data.next_topic_id,
        next_group_id=data.next_group_id,
        remembered=MappingProxyType({r.request_id: r.result for r in data.remembered}),
        access=access_of(data.access),
        membership=membership_of(data.membership),
        min_in_sync_goal=data.min_in_sync_goal,
        catalog_import=CatalogImport(data.catalog_import.pieces, data.catalog_import.is_done),
    )


def _import_data(done: CatalogImport) -> pb.CatalogImportData | None:
    if done == CatalogImport():
        return None
    return pb.CatalogImportData(pieces=done.pieces, is_done=done.is_done)


def _node_data(node: NodeInfo) -> pb.NodeData:
    return pb.NodeData(
        registered=pb.RegisterNodeCommand(
            node_id=node.node_id,
            api_address=node.api_address,
            data_address=node.data_address,
            control_address=node.control_address,
            boot_id=node.boot_id,
            software_version=node.software_version,
            seen=[
                pb.SeenEpoch(shard=shard, epoch=epoch, master_node_id=master)
                for shard, (epoch, master) in sorted(node.seen.items())
            ],
            feature_level=node.feature_level,
        ),
        version=node.version,
        ended_boot_id=node.ended_boot_id,
    )


def node_of(command: pb.RegisterNodeCommand, version: int, ended_boot_id: bytes = b"") -> NodeInfo:
    """What a registration says of a node, and what is known of its former lives."""
    return NodeInfo(
        node_id=NodeId(command.node_id),
        api_address=command.api_address,
        data_address=command.data_address,
        control_address=command.control_address,
        boot_id=command.boot_id,
        software_version=command.software_version,
        seen=MappingProxyType({s.shard: (s.epoch, NodeId(s.master_node_id)) for s in command.seen}),
        version=version,
        feature_level=command.feature_level or 1,
        ended_boot_id=ended_boot_id,
    )


def _node_of(data: pb.NodeData) -> NodeInfo:
    return node_of(data.registered, data.version, data.ended_boot_id)


def _shard_data(shard: ShardInfo) -> pb.ShardData:
    return pb.ShardData(
        shard=shard.shard,
        epoch=shard.epoch,
        master_node_id=shard.master.node_id if shard.master else "",
        master_boot_id=shard.master.boot_id if shard.master else b"",
        isr=[pb.IsrMember(node_id=m.node_id, boot_id=m.boot_id) for m in shard.isr],
        version=shard.version,
        epoch_seen=shard.epoch_seen,
        replica_node_ids=shard.replicas,
    )


def _shard_of(data: pb.ShardData) -> ShardInfo:
    master = (
        Member(NodeId(data.master_node_id), data.master_boot_id) if data.master_node_id else None
    )
    return ShardInfo(
        shard=ShardId(data.shard),
        epoch=Epoch(data.epoch),
        master=master,
        isr=tuple(Member(NodeId(m.node_id), m.boot_id) for m in data.isr),
        version=data.version,
        epoch_seen=data.epoch_seen,
        replicas=tuple(NodeId(one) for one in data.replica_node_ids),
    )


def _object_data(one: NamedObject) -> pb.ObjectData:
    return pb.ObjectData(
        name=one.name, object_id=one.object_id, settings=one.settings, version=one.version
    )


def _object_of(data: pb.ObjectData) -> NamedObject:
    return NamedObject(data.name, data.object_id, data.settings, data.version)
