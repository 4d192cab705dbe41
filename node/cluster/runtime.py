"""What runs beside a node of several: control process, data plane, membership.

claim_directory   a node alone that was asked to becomes the first of a cluster
start       trust and cluster id -> control process
make_member the shard is open: its replica
take_part   the engine runs: listen to other brokers, follow and be followed
join        everything answers: register, and learn which node is master
transfer_mastership   at a stop: another node should be master before this one is gone
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from math import isfinite
from typing import Final

import grpc

from hourwheel import errors
from hourwheel.clock import Clock
from hourwheel.internal.v1.control_pb2 import SeenEpoch
from hourwheel.types import NO_NODE, Epoch, NodeId
from node.access.administration import Administration
from node.access.policy_feed import PolicyFeed
from node.broker.disk_guard import DiskGuard
from node.broker.engine import Engine
from node.broker.slewed_clock import SlewedClock
from node.cluster.cluster_time import ClusterTime
from node.cluster.control import ClusterControl, find_cluster_id
from node.cluster.control_feed import ControlFeed
from node.cluster.control_probe import ControlProbe
from node.cluster.data_plane import DataServer, Dialer
from node.cluster.log_repair import LogRepair
from node.cluster.member import ClusterMember, MemberPorts, build_member, min_in_sync_of
from node.cluster.members import MemberAdministration
from node.cluster.peer_trust import PeerTrust
from node.cluster.promotion import promote_if_wanted
from node.cluster.transfer import ServedCluster
from node.cluster.view import ClusterView, why_not_ready
from node.config.checks import NodeAddresses, cluster_nodes
from node.config.cluster import ClusterSection
from node.config.model import NodeConfig
from node.metrics.family import ClusterFacts
from node.repair.file_repair import FileRepair
from node.replica.effects import ReplicaIdentity
from node.shard.checkpoint import ShardPlace
from node.shard.recovery import Opened, ShardConfig
from node.snapshot.install import reopen_shard
from node.telemetry import logs
from node.telemetry.failure import Failure
from replication.control_state.state import ControlState
from replication.rules.cluster_clock import ClockConfig
from replication.rules.master import ReplicationConfig
from replication.rules.master_lease import LeaseConfig
from storage.files.disk import RealDisk
from storage.log.epochs import EPOCH_SEEN, EpochStore

_BOOT_ID_BYTES: Final = 16
_TRANSFER_S: Final = 2.0
_LOOK_S: Final = 0.005
_log = logs.get(__name__)


def replication_config(config: ClusterSection) -> ReplicationConfig:
    """The rules' part of a configuration."""
    return ReplicationConfig(
        min_in_sync=config.min_in_sync,
        lag_ms=float(config.lag_ms),
        lease=LeaseConfig(lease_ms=float(config.lease_ms)),
        clock=ClockConfig(),
    )


def open_epoch_seen(opened: Opened, node_id: NodeId) -> EpochStore:
    """The highest epoch that this node has seen. Raises CorruptFile, DiskFull.

    A node that was alone has noted none, and its log has some: those were its own.
    """
    place = opened.maintenance.place
    seen = EpochStore.open(place.disk, place.under(EPOCH_SEEN), place.identity)
    known = [one.epoch for one in opened.shard.views.epochs]
    known += [one.epoch for one in opened.epochs.entries]
    if (last := Epoch(max(known, default=0))) > seen.epoch:
        seen.note(last, node_id)
    seen.keep_room()
    return seen


class ClusterRuntime:
    """See the top of this file."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        own_clock: SlewedClock,
        failure: Failure,
        *,
        on_snapshot_received: Callable[[], None],
        former_damage: errors.DataLoss | None = None,
    ) -> None:
        """Read what the configuration names. Raises ConfigError.

        `former_damage`: what the former process found damaged where a start would not look.

        `on_snapshot_received` is called when the next start will install one.
        """
        self._on_snapshot_received, self._former_damage = on_snapshot_received, former_damage
        self._config, self._failure = config, failure
        self._monotonic_ms = clock.monotonic_ms
        self.policies = PolicyFeed(config.access)
        self._are_certificates_refused = False
        self._trust = PeerTrust(config.cluster, config.node.id, self._note_certificates)
        self._watching: asyncio.Task[None] | None = None
        self._nodes = cluster_nodes(config.cluster.nodes)
        self.cluster_id = find_cluster_id(config, self._trust.now)
        self._probe = ControlProbe(config.cluster, self._trust, self.cluster_id, config.node.id)
        self.boot_id = secrets.token_bytes(_BOOT_ID_BYTES)
        self.time = ClusterTime(own_clock, clock.monotonic_ms)
        self._control = ClusterControl(
            config,
            self.cluster_id,
            self.boot_id,
            on_state=self._on_state,
            on_lost=self._failure.report,
        )
        self._catalog_feed = ControlFeed(self._control.propose, is_alone=False)
        self._addresses = {node: addresses.data for node, addresses in self._nodes.items()}
        self._dialer = Dialer(self._trust, self._addresses)
        self._server: DataServer | None = None
        self.member: ClusterMember | None = None
        self._joining: asyncio.Task[None] | None = None

    def _note_certificates(self, is_refused: bool) -> None:  # noqa: FBT001 - a callback's only fact
        self._are_certificates_refused = is_refused

    def claim_directory(self) -> None:
        """Make a node alone the first of a cluster, where it was asked to: see `promotion`."""
        me = self._config.node.id
        disk = RealDisk(self._config.node.data_directory, is_private=True)
        promote_if_wanted(disk, me, self.cluster_id, self._nodes[me].control)

    async def start(self) -> None:
        """Start the control process. Raises Unavailable where it does not answer."""
        self._watching = asyncio.get_running_loop().create_task(self._trust.watch())
        await self._control.start()

    def open_shard(
        self, place: ShardPlace, config: ShardConfig, make_room: Callable[[], bool]
    ) -> Opened:
        """See `reopen_shard`: what others have as well may be replaced by theirs."""
        config = replace(config, has_peers=True)
        found = reopen_shard(place, config, self._former_damage, make_room)
        if found.installed is not None:
            _log.info("snapshot_installed", **found.installed._asdict())
        if found.damage is not None:
            _log.error(
                "damaged_shard_set_aside",
                folder=found.set_aside,
                **logs.fields_of(found.damage),
            )
        return found.opened

    def make_member(self, opened: Opened, guard: DiskGuard) -> ClusterMember:
        """This node's part in its shard."""
        self._seen = open_epoch_seen(opened, self._config.node.id)
        identity = ReplicaIdentity(
            self._config.node.id,
            self.boot_id.hex(),
            self.cluster_id,
            tuple(sorted(self._nodes)),
            has_control_plane=True,
        )
        self.member = build_member(
            opened,
            self._seen,
            identity,
            replication_config(self._config.cluster),
            MemberPorts(self.time, self._control, self._dialer, guard, self._failure),
            on_snapshot_received=self._on_snapshot_received,
        )
        return self.member

    async def take_part(self, engine: Engine, undo: AsyncExitStack) -> None:
        """Listen to other brokers."""
        member = self._member
        engine.catalog_control = self._catalog_feed
        engine.start()
        member.start(engine, self._config.cluster.sync_interval_ms)
        undo.push_async_callback(member.close)
        errors.invariant(member.server is not None, "a member that takes part has a server")
        listen = self._config.cluster.data_listen or self._nodes[self._config.node.id].data
        forwarded_calls = self._config.limits.forwarded_calls
        server = DataServer(
            self._trust, listen, forwarded_calls=forwarded_calls, node_ids=self._nodes
        )
        self._server = server
        undo.push_async_callback(server.stop)
        await server.start(member.server.handlers())  # type: ignore[union-attr]

    @property
    def _member(self) -> ClusterMember:
        if self.member is None:
            errors.violated("there is no member yet")
        return self.member

    def make_repair(self, files: FileRepair, renew: Callable[[errors.DataLoss], None]) -> LogRepair:
        """What is done about a damaged log; `renew` has the shard copied from the master."""
        repair = LogRepair(
            self._member,
            self._failure,
            min_in_sync=self._config.cluster.min_in_sync,
            mend=files.mend_at,
            renew=renew,
        )
        self._member.on_log_damage = repair.on_damage
        self._member.on_view_damage = repair.give_up
        return repair

    def make_links(self, options: tuple[tuple[str, int], ...]) -> Dialer:
        """The way on which calls of clients are passed on, with connections of its own."""
        return Dialer(self._trust, self._addresses, options=options)

    def serve_forwarded(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Answer what other nodes pass on."""
        server = errors.required(self._server, "who takes part listens")
        for each in handlers:
            server.add(each)

    def check(self) -> None:
        """Raise `NotMaster`, with the master's address, where this node is not the master."""
        self._member.check()

    def make_served(self) -> ServedCluster:
        """The cluster as the API sees it."""
        silent_ms = float(self._config.cluster.report_timeout_ms)
        view = ClusterView(
            self._nodes, self._control.client, self._member, self._monotonic_ms, silent_ms
        )
        members = MemberAdministration(
            self._config.node.id,
            self._control.client,
            self._control.propose,
            monotonic_ms=self._monotonic_ms,
            silent_ms=silent_ms,
            prove=self._probe.prove,
        )
        return ServedCluster(view, self._member, members)

    def make_administration(self) -> Administration:
        """Of the cluster's users and grants."""
        return Administration(self.policies, self._control.propose)

    def read_facts(self) -> ClusterFacts:
        """For the metrics."""
        replica, monotonic_ms = self._member.replica, self._monotonic_ms()
        configured = self._config.cluster.min_in_sync
        master = replica.rules
        heartbeat_age_ms = 0.0
        if master is None:
            heard_ms = replica.follower.heartbeat_heard_ms
            heartbeat_age_ms = monotonic_ms - heard_ms if isfinite(heard_ms) else -1.0
        return ClusterFacts(
            self.make_served().status(),
            replica.stats,
            is_clock_unsure=master is not None and master.clock.update(monotonic_ms) is None,
            heartbeat_age_ms=heartbeat_age_ms,
            min_in_sync=min_in_sync_of(self._control.client.state, configured),
            control=self._control.facts(),
            certificate_ends=self._trust.certificate_ends,
            are_certificates_refused=self._are_certificates_refused,
        )

    def why_not_ready(self) -> str:
        """Why clients should be sent to other nodes; empty where this one is in sync and serves."""
        if not self._control.is_registered:
            return "it is not registered with the cluster yet"
        silent_ms = float(self._config.cluster.report_timeout_ms)
        return why_not_ready(self.read_facts(), self._config.node.id, silent_ms)

    async def join(self) -> None:
        """Register in the background: a node starts and answers status calls without a majority."""
        self._joining = asyncio.get_running_loop().create_task(self._register())

    async def _register(self) -> None:
        seen = SeenEpoch(shard=0, epoch=self._seen.epoch, master_node_id=self._seen.master)
        with self._failure.catching():
            await self._control.register(is_sound=self._member.replica.is_sound, seen=seen)

    def _on_state(self, state: ControlState) -> None:
        self.policies.on_state(state.access)
        for node, registered in state.nodes.items():  # members that the configuration lacks
            if node not in self._nodes:
                self._nodes[node] = NodeAddresses(
                    registered.api_address, registered.data_address, registered.control_address
                )
                self._addresses[node] = registered.data_address
        for node in state.membership.former_node_ids:  # their certificates count no more
            if node != self._config.node.id and node in self._nodes:
                del self._nodes[node]
                if self._server is not None:
                    self._server.end_calls_of_former()
        if self.member is not None:
            self.member.on_state(state)
        self._catalog_feed.on_state(state)  # behind: who is not the master any more closes first

    async def transfer_mastership(self, timeout_s: float = _TRANSFER_S) -> None:
        """Have another node take over, if this one is the master and another can.

        Returns when another node is the master, or after `timeout_s` at the latest.
        """
        member = self._member
        if not member.may_act() or len(self._nodes) == 1:
            return
        _log.info("mastership_transfer_started")
        member.transfer_mastership(NO_NODE)
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while member.may_act() and loop.time() < until_s:  # noqa: ASYNC110 - it depends on time
            await asyncio.sleep(_LOOK_S)

    async def stop(self) -> None:
        """End the control process and all connections."""
        for task in (self._joining, self._watching):
            if task is not None:
                task.cancel()
        await self._control.stop()
        await self._dialer.close()
