"""A node alone: a cluster of one, without a control process or another node beside it.

Its replica list has one node, which is its own majority for each lease and each commit; so a master
is and does the same as with others. Only the election differs: the node elects itself, once at each
start, in an epoch above all that it knows of. Its control state is a journal's, written in a
thread (`StandaloneControl`); epochs are not in it, but in the log's history.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from hourwheel import errors
from hourwheel.clock import Clock
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.internal.v1.control_link_pb2 import ShardReport
from hourwheel.internal.v1.control_pb2 import ControlCommand, ControlResult
from hourwheel.types import NO_NODE, Epoch, NodeId, ShardId
from node.access.administration import Administration
from node.access.policy_feed import PolicyFeed
from node.broker.disk_guard import DiskGuard
from node.broker.engine import Engine
from node.broker.slewed_clock import SlewedClock
from node.cluster.cluster_time import ClusterTime
from node.cluster.control_feed import ControlFeed
from node.cluster.data_plane import Dialer
from node.cluster.member import ClusterMember, MemberPorts, build_member
from node.cluster.peer_trust import Trust
from node.cluster.promotion import forget_promotion, is_promotion_wanted
from node.cluster.restored_control import begin_alone
from node.config.model import NodeConfig
from node.replica.effects import ReplicaIdentity
from node.shard.checkpoint import ShardPlace
from node.shard.node_meta import CONTROL_ALONE
from node.shard.recovery import Opened, ShardConfig, open_shard
from node.shard.views import FEATURE_LEVEL
from node.telemetry import logs
from node.telemetry.failure import Failure
from replication.control_state.commands import BATCH_COUNT_MAX, rules_of
from replication.control_state.state import ControlState, Member, NodeInfo, ShardInfo
from replication.rules.master import ReplicationConfig
from replication.standalone.control_journal import ControlJournal
from storage.files.disk import RealDisk
from storage.log.epochs import EPOCH_SEEN, EpochStore

_BOOT_ID_BYTES: Final = 16
_SYNC_INTERVAL_MS: Final = 1_000
"""No other node waits for its heartbeats."""

_log = logs.get(__name__)

WAITING_MAX: Final = 1_024
"""Commands that wait for the disk."""


class EpochInMemory(EpochStore):
    """In memory: a node alone has no epochs but its own, and those are in the log's history."""

    @classmethod
    def begin(cls, place: ShardPlace) -> "EpochInMemory":
        """None was seen in this life of the node."""
        return cls(place.disk, place.under(EPOCH_SEEN), place.identity, Epoch(0), NO_NODE)

    def note(self, epoch: Epoch, master: NodeId) -> None:
        """Remember an epoch; the takeover writes it into the history before anything is done."""
        self.epoch, self.master = epoch, master


def elected(opened: Opened, identity: ReplicaIdentity, epoch_seen: int = 0) -> ControlState:
    """The control state by which a node alone is the master, in the next epoch.

    `epoch_seen`: of this life of the node; 0 for none.
    """
    known = [one.epoch for one in opened.shard.views.epochs]
    known += [one.epoch for one in opened.epochs.entries]
    me = Member(identity.node_id, bytes.fromhex(identity.boot_id))
    epoch = Epoch(max([epoch_seen, *known]) + 1)
    shard = ShardInfo(ShardId(opened.shard.shard_id), epoch, me, (me,), 1)
    node = NodeInfo(
        node_id=identity.node_id,
        api_address="",
        data_address="",
        control_address="",
        boot_id=me.boot_id,
        software_version="",
        seen={},
        version=1,
        feature_level=FEATURE_LEVEL,
    )
    return ControlState(
        cluster_id=identity.cluster_id,
        min_in_sync=1,
        nodes={identity.node_id: node},
        shards={shard.shard: shard},
    )


async def serve(member: ClusterMember, engine: Engine, opened: Opened, failure: Failure) -> None:
    """Take part, and return when this node serves.

    Where the disk has no room for what opens an epoch, reserve included, it waits for some.

    Raises:
        HourwheelError: why the node cannot go on.
    """
    engine.start()
    member.start(engine, _SYNC_INTERVAL_MS)
    member.on_state(elected(opened, member.replica.identity))
    serving = asyncio.ensure_future(member.has_served.wait())
    ends: list[asyncio.Future[Any]] = [serving, failure.found]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if failure.found.done():
        serving.cancel()
        raise failure.found.result()


class StandaloneRuntime:
    """See the top of this file. As `ClusterRuntime` in node/cluster/runtime.py, for one node."""

    cluster_id: Final = None
    """Whichever the directory has."""

    def __init__(
        self, config: NodeConfig, clock: Clock, own_clock: SlewedClock, failure: Failure
    ) -> None:
        """Nothing is open yet."""
        self._node_id, self._failure = config.node.id, failure
        self._directory = config.node.data_directory
        self.policies = PolicyFeed(config.access)
        self._boot_id = secrets.token_bytes(_BOOT_ID_BYTES)
        self.time = ClusterTime(own_clock, clock.monotonic_ms)
        self._links = Dialer(Trust(), {})
        self._journal: ControlJournal | None = None
        self._control: StandaloneControl | None = None
        self._catalog_feed = ControlFeed(self._propose, is_alone=True)

    def claim_directory(self) -> None:
        """The node stays alone, whatever it was asked: see node/cluster/promotion.py."""
        disk = RealDisk(self._directory)
        if is_promotion_wanted(disk):
            forget_promotion(disk)
            _log.warning("promotion_refused", why="cluster.nodes is empty")

    async def start(self) -> None:
        """Nothing runs beside this process."""

    def open_shard(
        self, place: ShardPlace, config: ShardConfig, make_room: Callable[[], bool]
    ) -> Opened:
        """See `open_shard`. The control state lies beside the shard."""
        if self._journal is None:
            disk = RealDisk(self._directory, is_private=True)  # hashes of secrets are in it
            begin_alone(disk, place.identity, self._node_id)
            self._journal = ControlJournal.open(disk, CONTROL_ALONE, place.identity, self._node_id)
        return open_shard(place, config, make_room)

    def make_member(self, opened: Opened, guard: DiskGuard) -> ClusterMember:
        """This node's part in its shard."""
        place = opened.maintenance.place
        self._opened = opened
        journal = errors.required(self._journal, "a shard is opened with its control state")
        self._control = StandaloneControl(journal, self._failure, self._on_state)
        cluster_id = place.identity.cluster_id
        identity = ReplicaIdentity(self._node_id, self._boot_id.hex(), cluster_id, (self._node_id,))
        self._member = build_member(
            opened,
            EpochInMemory.begin(place),
            identity,
            ReplicationConfig(min_in_sync=1),
            MemberPorts(self.time, self._control, self._links, guard, self._failure),
        )
        return self._member

    async def _propose(self, command: ControlCommand) -> ControlResult:
        return await errors.required(self._control, "there is a member").propose(command)

    def _on_state(self, state: ControlState) -> None:
        self.policies.on_state(state.access)
        self._catalog_feed.on_state(state)

    def make_administration(self) -> Administration:
        """Of the node's users and grants."""
        control = errors.required(self._control, "there is a member")
        return Administration(self.policies, control.propose)

    async def take_part(self, engine: Engine, undo: AsyncExitStack) -> None:
        """Serve. Raises HourwheelError: see `serve`."""
        engine.catalog_control = self._catalog_feed
        undo.push_async_callback(self._member.close)
        await serve(self._member, engine, self._opened, self._failure)

    async def join(self) -> None:
        """There is no cluster to register with."""

    def why_not_ready(self) -> str:
        """Nothing: there is no other node to send clients to."""
        return ""

    async def transfer_mastership(self) -> None:
        """There is no other node to take it."""

    async def stop(self) -> None:
        """End what was opened."""
        await self._links.close()
        if self._control is not None:
            await self._control.close()
        elif self._journal is not None:
            self._journal.close()


class _Proposal(NamedTuple):
    command: bytes
    answer: "asyncio.Future[wire.ControlResult]"


class StandaloneControl:
    """The control plane of a node alone: its journal. Is a `ControlPort`; of one event loop.

    Commands that come while others are being written are written together, with one sync. The
    proposer of one gets its answer when it is durable, and this node decides by what it says.
    """

    is_registered = True

    def __init__(
        self,
        journal: ControlJournal,
        failure: Failure,
        on_state: Callable[[ControlState], None],
    ) -> None:
        """A control plane of one; closes `journal` when it is closed.

        `on_state` is called now and with each new state.
        """
        self._journal, self._failure, self._on_state = journal, failure, on_state
        self._waiting: list[_Proposal] = []
        self._writing: asyncio.Task[None] | None = None
        on_state(journal.state)

    def is_dead(self, node: NodeId) -> bool:
        """See ControlPort: there are no others."""
        del node
        return False

    def report(self, shards: list[ShardReport]) -> None:
        """See ControlPort: no node elects another master."""

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """See ControlPort.

        Raises:
            Overloaded, ShuttingDown, DiskFull, InvalidArgument: it was not applied.
            Timeout: it may come true later; see ControlJournal.
        """
        if self._failure.found.done():
            raise _ending()
        if len(self._waiting) >= WAITING_MAX:
            raise errors.Overloaded(f"{WAITING_MAX} changes wait for the disk")
        command.codec_version = rules_of(command)
        raw = command.SerializeToString(deterministic=True)
        proposal = _Proposal(raw, asyncio.get_running_loop().create_future())
        self._waiting.append(proposal)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await proposal.answer

    async def _write(self) -> None:
        with self._failure.catching():
            while self._waiting:
                taken = self._waiting[:BATCH_COUNT_MAX]
                del self._waiting[:BATCH_COUNT_MAX]
                await self._write_some(taken)
        self._writing = None
        while self._waiting:  # the node ends
            answer = self._waiting.pop().answer
            if not answer.done():
                answer.set_exception(_ending())

    async def _write_some(self, taken: list[_Proposal]) -> None:
        """Raises what ends the process."""
        try:
            commands = [one.command for one in taken]
            results = await asyncio.to_thread(self._journal.apply, commands)
        except errors.HourwheelError as error:
            self._on_state(self._journal.state)  # it may have settled what was written before
            for one in taken:
                if not one.answer.done():  # else its caller has gone
                    one.answer.set_exception(error)
            if isinstance(error, errors.Internal):
                raise
            return
        self._on_state(self._journal.state)
        for one, result in zip(taken, results, strict=True):
            if not one.answer.done():
                one.answer.set_result(wire.ControlResult.FromString(result))

    async def close(self) -> None:
        """Let what is being written end, and let go of the files."""
        if self._writing is not None:
            await self._writing
        self._journal.close()


def _ending() -> errors.ShuttingDown:
    return errors.ShuttingDown("this node ends; try another")
