"""A control process's inside: Raft, peers, the broker's link and elections, wired together.

On one event loop. What it does by itself:

    every `report_interval_ms`, and at once when something changes: tell all peers of the broker
    as Raft's leader: found the cluster when there is none; elect masters, and note which
    processes have ended, as `replication.control_state.election` decides
"""

import asyncio
import logging
import math
import os
from pathlib import Path
from typing import Any

from hourwheel import errors
from hourwheel.clock import Clock
from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import NodeId
from replication.control.broker_link import BrokerLink
from replication.control.config import ControlConfig
from replication.control_state.commands import make_command
from replication.control_state.election import Decision, ElectionView, HeardReport, Proposal, decide
from replication.control_state.state import CODEC_VERSION, ControlState, Member
from replication.control_state.state_change import change_of, whole
from replication.raft.adapter import ControlMachine, RaftAdapter
from replication.raft.codec import Message
from replication.raft.handshake import Identity as PeerIdentity
from replication.raft.journal import RaftJournal
from replication.raft.peers import PeerNetwork
from replication.raft.raft_node import RaftNode, RaftStatus
from replication.raft.transport import NetworkTransport
from storage.files.disk import Disk
from storage.files.file_header import Identity

_ELECT_S = 2.0
"""How long a proposal of an election may take; then it is decided anew."""

_log = logging.getLogger(__name__)


def command(**which: Any) -> bytes:
    """An encoded command with a new request id, from the field of ControlCommand that it has."""
    return make_command(os.urandom(16), **which).SerializeToString(deterministic=True)


class ControlNode:
    """See the top of this file.

    Attributes:
        died: done when the process has to end, with what killed Raft.
        link: to the broker.
        network: to the peers.
    """

    def __init__(self, config: ControlConfig, disk: Disk, clock: Clock) -> None:
        """Open the journal.

        Raises:
            ConfigError: see ControlConfig.
            CorruptFile, ForeignDirectory, IncompatibleFormat: see RaftJournal.open.
        """
        self._config = config
        self._clock = clock
        cluster_id = bytes.fromhex(config.cluster_id)
        security = config.security()
        self.died: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.link = BrokerLink(self, clock, config.broker_timeout_ms)
        self.network = PeerNetwork(
            PeerIdentity(cluster_id, config.node_id), config.peers, security, self
        )
        journal = RaftJournal.open(disk, "", Identity(cluster_id, 0), config.node_id)
        machine = ControlMachine()
        self._transport = NetworkTransport(journal, config.peers, self.network)
        node = RaftNode(
            config.node_id, config.peers, journal, self._transport, machine, config.timings
        )
        self._transport.attach(node.poller)
        self.raft = RaftAdapter(
            node,
            machine,
            clock,
            config.timings.tick_s,
            on_state=self._on_state,
            on_status=self._on_status,
            on_death=self._on_death,
        )
        self._reports: dict[NodeId, HeardReport] = {}
        self._forwarded_ms: dict[NodeId, float] = {}
        """When the broker was last told of each peer."""
        self._listening_since_ms = clock.monotonic_ms()
        self._last_report: link.NodeReport | None = None
        self._heartbeat_ms = self._reported_ms = clock.monotonic_ms()
        self._look = asyncio.Event()
        self._shown_state: ControlState | None = None
        """What the broker knows; None: nothing."""
        self._reported_leader: link.LinkLeader | None = None
        self._pending: set[int] = set()
        self._is_setting_rules = False
        self._noting: set[bytes] = set()
        """Ends of processes that are proposed, or were and the answer was no."""
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- life

    async def start(self) -> None:
        """Listen to peers and to the broker, start Raft.

        Raises:
            ConfigError, OSError: an address cannot be used.
        """
        await self.network.start(self._config.listen)
        await self.link.start(Path(self._config.socket_path))
        self.raft.start()
        self._spawn(self._heartbeat())
        self._spawn(self._elect_for_ever())

    async def close(self) -> None:
        """End everything."""
        self.link.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.raft.stop()
        await self.network.close()
        self._transport.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_death(error)

    def _on_death(self, error: BaseException) -> None:
        if not self.died.done():
            self.died.set_result(error)

    # --- Raft

    def _on_state(self, state: ControlState) -> None:
        shown, self._shown_state = self._shown_state, state
        said = whole(state) if shown is None else change_of(shown, state)
        self.link.send(link.ControlFrame(state=said))
        self._look.set()

    def _on_status(self, status: RaftStatus) -> None:
        leader = _leader(status)
        if leader != self._reported_leader:
            self._reported_leader = leader
            self.link.send(link.ControlFrame(leader=leader))
        self._look.set()

    # --- peers

    def on_peer(self, peer_id: NodeId, what: Message | bool) -> None:  # noqa: FBT001
        """See PeerHandler."""
        self._transport.put(peer_id, what)
        if what is True and self._last_report is not None:
            self.network.broadcast_report(self._last_report)
        heard = self._reports.get(peer_id)
        if what is False and heard is not None:
            now_ms = self._clock.monotonic_ms()
            self._reports[peer_id] = HeardReport(heard.report, heard.heard_ms, cut_ms=now_ms)
            self._look.set()

    def on_report(self, peer_id: NodeId, report: link.NodeReport) -> None:
        """See PeerHandler."""
        old, now_ms = self._reports.get(peer_id), self._clock.monotonic_ms()
        self._reports[peer_id] = HeardReport(report, now_ms)
        age_ms = now_ms - self._forwarded_ms.get(peer_id, -math.inf)
        # One that says nothing new says that the peer lives.
        if old is None or old.report != report or age_ms > self._config.report_timeout_ms / 4:
            self._forwarded_ms[peer_id] = now_ms
            self.link.send(link.ControlFrame(reports=link.LinkReports(reports=[report])))
        self._look.set()

    # --- broker

    def on_broker(self, hello: link.LinkHello) -> None:
        """See LinkHandler."""
        if hello.node_id != self._config.node_id:
            raise errors.InvalidBatch(f"the broker is {hello.node_id!r}")
        self._shown_state = self._reported_leader = None
        self._on_state(self.raft.state)
        self._on_status(self.raft.status)
        heard = [each.report for each in self._reports.values() if each.report is not None]
        self.link.send(link.ControlFrame(reports=link.LinkReports(reports=heard)))
        self._last_report = link.NodeReport(
            node_id=hello.node_id, boot_id=hello.boot_id, broker_alive=True
        )
        self.tell_peers()

    def on_frame(self, frame: link.BrokerFrame) -> None:
        """See LinkHandler."""
        kind = frame.WhichOneof("frame")
        if kind == "report":
            if frame.report.node_id != self._config.node_id:
                raise errors.InvalidBatch("a report of another node")
            self._last_report = frame.report
            self.tell_peers()
        elif kind == "proposal":
            self._spawn(self._propose_for_broker(frame.proposal))
        elif kind == "partition" and self._config.allow_faults:
            self.network.block(map(NodeId, frame.partition.blocked_in), "in")
            self.network.block(map(NodeId, frame.partition.blocked_out), "out")
        elif kind != "ping":
            raise errors.InvalidBatch(f"{kind} is not expected")

    def on_alive_changed(self) -> None:
        """See LinkHandler."""
        self.tell_peers()

    def on_ended(self) -> None:
        """See LinkHandler."""
        self.tell_peers()

    def tell_peers(self) -> None:
        """Report the broker to everybody, this process included."""
        hello = self.link.hello
        report = link.NodeReport()
        if self._last_report is not None:
            report.CopyFrom(self._last_report)
        elif hello is not None:
            report.boot_id = hello.boot_id
        report.node_id = self._config.node_id
        report.broker_alive = self.link.is_alive
        report.ended_boot_id = self.link.ended_boot_id
        report.rules = CODEC_VERSION
        self._reported_ms = self._clock.monotonic_ms()
        self._reports[report.node_id] = HeardReport(report, self._reported_ms)
        self.network.broadcast_report(report)
        self._look.set()

    async def _propose_for_broker(self, proposal: link.LinkProposal) -> None:
        answer = link.LinkAnswer(call_id=proposal.call_id)
        try:
            raw = await self.raft.propose(proposal.command, proposal.timeout_ms / 1_000)
            answer.result.ParseFromString(raw)
        except errors.HourwheelError as error:
            answer.error_reason, answer.error_message = error.reason, error.message
        self.link.send(link.ControlFrame(answer=answer))

    # --- by itself

    async def _heartbeat(self) -> None:
        interval_ms = self._config.report_interval_ms
        while True:
            self.link.check_alive()
            stats = self.raft.stats
            ping = link.LinkPing(stall_count=stats.stall_count, stall_ms_max=stats.stall_ms_max)
            self.link.send(link.ControlFrame(ping=ping))
            now_ms = self._notice_stall()
            self._heartbeat_ms = now_ms
            if (
                now_ms - self._reported_ms >= interval_ms * 0.9
            ):  # else the broker's own report did it
                self.tell_peers()
            await asyncio.sleep(interval_ms / 1_000)

    def _notice_stall(self) -> float:
        """The time. If this process was stopped, nobody else was silent: ages begin anew."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._heartbeat_ms > self._config.report_timeout_ms / 2:
            self._listening_since_ms = now_ms
        return now_ms

    def decide(self) -> Decision:
        """What an election would say now."""
        now_ms = self._notice_stall()
        status = self.raft.status
        view = ElectionView(
            state=self.raft.state,
            reports=self._reports,
            listening_since_ms=self._listening_since_ms,
            raft_leader_node_id=status.leader_node_id,
            is_leading=status.is_leader and status.has_majority,
            report_timeout_ms=self._config.report_timeout_ms,
            voter_node_ids=frozenset({self._config.node_id, *self._config.peers}),
        )
        return decide(view, now_ms)

    async def _elect_for_ever(self) -> None:
        while True:
            self._look.clear()
            status = self.raft.status
            if status.is_leader and not self.raft.state.is_bootstrapped:
                await self._found()
            decision = self.decide()
            if decision.rules and not self._is_setting_rules:
                self._is_setting_rules = True
                self._spawn(self._set_rules(decision.rules))
            for proposal in decision.proposals:
                if proposal.shard not in self._pending:
                    self._pending.add(proposal.shard)
                    self._spawn(self._elect(proposal))
            self._noting.intersection_update(one.boot_id for one in decision.ended)
            for member in decision.ended:
                if member.boot_id not in self._noting:
                    self._noting.add(member.boot_id)
                    self._spawn(self._note_ended(member))
            timeout_s = None
            if decision.next_wakeup_ms is not None:
                wait_ms = decision.next_wakeup_ms - self._clock.monotonic_ms()
                timeout_s = max(0.0, wait_ms) / 1_000
            try:
                async with asyncio.timeout(timeout_s):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def _found(self) -> None:
        config = self._config
        bootstrap = pb.BootstrapCommand(
            cluster_id=bytes.fromhex(config.cluster_id),
            min_in_sync=config.min_in_sync,
            shard_count=config.shard_count,
            node_ids=config.node_ids,
        )
        try:
            await self.raft.propose(command(bootstrap=bootstrap), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            _log.warning("bootstrap_failed", extra={"error": error.message})

    async def _elect(self, proposal: Proposal) -> None:
        elect = pb.ElectMasterCommand(
            shard=proposal.shard,
            expected_epoch=proposal.expected_epoch,
            master_node_id=proposal.master.node_id,
            master_boot_id=proposal.master.boot_id,
        )
        _log.info(
            "election_proposed",
            extra={
                "shard": proposal.shard,
                "master": proposal.master.node_id,
                "reason": proposal.reason,
            },
        )
        try:
            await self.raft.propose(command(elect_master=elect), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            _log.warning("election_failed", extra={"shard": proposal.shard, "error": error.message})
        finally:
            self._pending.discard(proposal.shard)
            self._look.set()

    async def _set_rules(self, rules: int) -> None:
        _log.info("control_rules_proposed", extra={"rules": rules})
        try:
            await self.raft.propose(command(set_rules=pb.SetRulesCommand(rules=rules)), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            _log.warning("control_rules_not_set", extra={"rules": rules, "error": error.message})
        finally:
            self._is_setting_rules = False  # the next report makes it look again

    async def _note_ended(self, member: Member) -> None:
        ended = pb.NoteEndedCommand(node_id=member.node_id, boot_id=member.boot_id)
        _log.info("broker_end_proposed", extra={"node": member.node_id})
        try:
            await self.raft.propose(command(note_ended=ended), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            # A node that waits for the lease does no harm by it then.
            _log.warning(
                "broker_end_not_noted", extra={"node": member.node_id, "error": error.message}
            )
            self._noting.discard(member.boot_id)
            self._look.set()


def _leader(status: RaftStatus) -> link.LinkLeader:
    return link.LinkLeader(
        leader_node_id=status.leader_node_id,
        term=status.term,
        has_majority=status.has_majority,
    )
