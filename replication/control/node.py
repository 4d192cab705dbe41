"""A control process's inside: Raft, peers, the broker's link and elections, wired together.

On one event loop. What it does by itself:

    every `report_interval_ms`, and at once when something changes: tell all peers of the broker
    as Raft's leader: found the cluster when there is none; elect masters, and note which
    processes have ended, as `replication.control_state.election` decides
    when the generation of voters has ended, or a peer tells of a later one: begin that one
"""

import asyncio
import logging
import math
import os
from pathlib import Path
from typing import Any, Final

from hourwheel import errors
from hourwheel.clock import Clock
from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import control_pb2 as pb
from hourwheel.types import FIRST_SHARD, NodeId
from replication.control.broker_link import BrokerLink
from replication.control.config import ControlConfig
from replication.control.raft_group import GenerationEnded, RaftGroup, check_member
from replication.control_state.commands import make_command
from replication.control_state.election import Decision, ElectionView, HeardReport, Proposal, decide
from replication.control_state.member_commands import next_state
from replication.control_state.membership import members_data
from replication.control_state.state import (
    CODEC_VERSION,
    ControlState,
    Member,
    decode_state,
    encode_state,
)
from replication.control_state.state_change import change_of, whole
from replication.raft.codec import Message
from replication.raft.generations import begin_generation
from replication.raft.handshake import Session
from replication.raft.raft_node import RaftStatus
from storage.files.disk import Disk
from storage.files.file_header import Identity

_FAREWELL_S: Final = 0.3
"""How long a generation of voters goes on when it has ended: the others hear of it so."""
_LOOK_S: Final = 0.02
"""How often those look for the next generation that wait for it."""
_ROOM_S: Final = 0.5
"""How often a generation that finds no room on the disk tries to begin."""
_MEMBER_RULES: Final = 3
"""The first that know of members."""
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
        group: the generation of voters that is in force.
    """

    def __init__(self, config: ControlConfig, disk: Disk, clock: Clock) -> None:
        """Open the journal. Raises as RaftGroup."""
        self._config, self._disk = config, disk
        self._clock = clock
        self.died: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.link = BrokerLink(self, clock, config.broker_timeout_ms)
        self.group = RaftGroup(config, disk, clock, self)
        self._is_advancing = False
        self._reports: dict[NodeId, HeardReport] = {}
        self._forwarded_ms: dict[NodeId, float] = {}
        """When the broker last heard of each peer."""
        self._listening_since_ms = clock.monotonic_ms()
        self._last_report: link.NodeReport | None = None
        self._heartbeat_ms = self._reported_ms = clock.monotonic_ms()
        self._look = asyncio.Event()
        self._shown_state: ControlState | None = None
        """What the broker knows; None: nothing."""
        self._reported_leader: link.LinkLeader | None = None
        self._pending: set[int] = set()
        self._is_setting_rules = self._is_raising = False
        self._was_note_refused = False
        """While this node leads it does not say again who the members are."""
        self._noting: set[bytes] = set()
        """Ends of processes that are proposed, or were and the answer was no."""
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- life

    async def start(self) -> None:
        """Listen to peers and to the broker, start Raft.

        Raises:
            ConfigError, OSError: an address cannot be used.
        """
        await self.group.start()
        await self.link.start(Path(self._config.socket_path))
        self._spawn(self._heartbeat())
        self._spawn(self._elect_for_ever())

    async def close(self) -> None:
        """End everything."""
        self.link.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.group.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.on_death(error)

    def on_death(self, error: BaseException) -> None:
        """See GroupHandler."""
        if not self.died.done():
            self.died.set_result(error)

    # --- Raft

    def on_state(self, state: ControlState) -> None:
        """See GroupHandler."""
        shown, self._shown_state = self._shown_state, state
        said = whole(state) if shown is None else change_of(shown, state)
        self.link.send(link.ControlFrame(state=said))
        self._look.set()
        if state.membership.has_ended and not self._is_advancing:
            self._is_advancing = True
            self._spawn(self._end_generation(state))

    def on_status(self, status: RaftStatus) -> None:
        """See GroupHandler."""
        leader = _leader(status)
        if leader != self._reported_leader:
            self._reported_leader = leader
            self.link.send(link.ControlFrame(leader=leader))
        self._look.set()

    # --- peers

    def on_peer(self, peer_id: NodeId, what: Message | bool) -> None:  # noqa: FBT001
        """See PeerHandler."""
        self.group.put(peer_id, what)
        if what is True and self._last_report is not None:
            self.group.network.broadcast_report(self._last_report)
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
        self.on_state(self.group.state)
        self.on_status(self.group.status)
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
            self.group.network.block(map(NodeId, frame.partition.blocked_in), "in")
            self.group.network.block(map(NodeId, frame.partition.blocked_out), "out")
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
        self.group.network.broadcast_report(report)
        self._look.set()

    async def _propose_for_broker(self, proposal: link.LinkProposal) -> None:
        answer = link.LinkAnswer(call_id=proposal.call_id)
        try:
            raw = await self.propose(proposal.command, proposal.timeout_ms / 1_000)
            answer.result.ParseFromString(raw)
        except errors.HourwheelError as error:
            answer.error_reason, answer.error_message = error.reason, error.message
        self.link.send(link.ControlFrame(answer=answer))

    async def propose(self, command_: bytes, timeout_s: float) -> bytes:
        """See RaftAdapter.propose; a generation that ends meanwhile is not noticed."""
        is_unknown = False
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    group = self.group
                    try:
                        raw = await group.propose(command_, timeout_s, is_unknown=is_unknown)
                    except GenerationEnded:
                        is_unknown = True
                    else:
                        outcome = pb.ControlResult.FromString(raw).outcome
                        if outcome != pb.CONTROL_OUTCOME_GENERATION_ENDED:
                            return raw
                    while self.group is group:  # noqa: ASYNC110 - for a moment, and rarely
                        await asyncio.sleep(_LOOK_S)
        except TimeoutError as error:
            raise errors.Timeout("the control plane did not answer in time") from error

    # --- generations of voters

    async def _end_generation(self, ended: ControlState) -> None:
        """This one has ended: each voter begins the next by itself, all from the same state."""
        await asyncio.sleep(_FAREWELL_S)
        await self._advance(next_state(ended))

    def on_generation(self, generation: int, state: bytes) -> None:
        """See PeerHandler."""
        if self._is_advancing or generation <= self.group.generation:
            return
        try:
            first = decode_state(state)
        except errors.IncompatibleFormat as error:
            raise errors.InvalidBatch(error.message) from error
        if first.membership.generation != generation or first.membership.has_ended:
            raise errors.InvalidBatch("a state of another generation")
        if self.group.is_blank and self._config.node_id in first.nodes:
            # It may have voted and acknowledged in this very generation.
            self._end_without_vote()
            return
        self._is_advancing = True
        self._spawn(self._advance(first))

    def knows(self, session: Session) -> bool:
        """See PeerHandler."""
        try:
            return self.group.knows(session)
        except errors.DiskFull as error:  # it is dialled again, until there is room
            raise errors.PeerRefused(f"no room to note the journal of {session.peer_id}") from error
        except errors.Internal as error:
            self.on_death(error)
            raise errors.PeerRefused("this node's disk has failed") from error

    def on_admission(self, peer_id: NodeId, *, is_known: bool) -> None:
        """See PeerHandler."""
        if not is_known:
            self.group.on_unknown_to(peer_id)
        elif self.group.has_no_part:  # else it speaks of what this process has done since
            self._end_without_vote()

    def _end_without_vote(self) -> None:
        """This node was a voter, and its disk is lost: it must not vote again."""
        node_id = self._config.node_id
        self.on_death(
            errors.ConfigError(
                f"node {node_id} is known to the cluster, and has lost what it voted: put one with"
                f" another id in its place (hourwheel members replace {node_id} NEW=HOST:PORT)",
                node=node_id,
            )
        )

    async def _advance(self, first: ControlState) -> None:
        """Begin a generation, from its first state. After a crash the same happens again."""
        config, generation = self._config, first.membership.generation
        _log.info(
            "generation_started",
            extra={"generation": generation, "members": sorted(first.membership.members)},
        )
        former = self.group
        is_blank = former.has_no_part
        await former.close()
        identity, raw = Identity(bytes.fromhex(config.cluster_id), FIRST_SHARD), encode_state(first)
        while True:
            try:
                begin_generation(
                    self._disk, identity, config.node_id, generation, raw, is_blank=is_blank
                )
                break
            except errors.DiskFull as error:  # the broker serves what it can meanwhile
                _log.warning(
                    "generation_waits_for_room",
                    extra={"generation": generation, "error": error.message},
                )
                await asyncio.sleep(_ROOM_S)
        check_member(config.node_id, first.membership)
        group = RaftGroup(config, self._disk, self._clock, self)
        self._reports = {
            one: heard for one, heard in self._reports.items() if one in first.membership.members
        }
        self._listening_since_ms = self._clock.monotonic_ms()
        self._is_advancing = False
        self.group = group
        await group.start()

    # --- by itself

    async def _heartbeat(self) -> None:
        interval_ms = self._config.report_interval_ms
        while True:
            self.link.check_alive()
            stats = self.group.stats
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
        """The time. If this process was stopped, no other was silent: ages begin anew."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._heartbeat_ms > self._config.report_timeout_ms / 2:
            self._listening_since_ms = now_ms
        return now_ms

    def decide(self) -> Decision:
        """What an election would say now."""
        now_ms = self._notice_stall()
        status = self.group.status
        view = ElectionView(
            state=self.group.state,
            reports=self._reports,
            listening_since_ms=self._listening_since_ms,
            raft_leader_node_id=status.leader_node_id,
            is_leading=status.is_leader and status.has_majority,
            report_timeout_ms=self._config.report_timeout_ms,
            voter_node_ids=frozenset({self._config.node_id, *self.group.peers}),
        )
        return decide(view, now_ms)

    async def _elect_for_ever(self) -> None:
        while True:
            self._look.clear()
            is_leader, state = self.group.status.is_leader, self.group.state
            self._was_note_refused &= is_leader
            if is_leader and not state.is_bootstrapped:
                await self._found()
            elif is_leader and self._must_note_members:
                await self._note_members()
            decision = self.decide()
            if decision.rules and not self._is_setting_rules:
                self._is_setting_rules = True
                self._spawn(self._set_rules(decision.rules))
            if decision.min_in_sync and not self._is_raising:
                self._is_raising = True
                self._spawn(self._raise_min_in_sync(decision.min_in_sync))
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
            await self.propose(command(bootstrap=bootstrap), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            _log.warning("bootstrap_failed", extra={"error": error.message})

    @property
    def _must_note_members(self) -> bool:
        state = self.group.state
        knows_command = state.codec_version >= _MEMBER_RULES
        return knows_command and not state.membership.members and not self._was_note_refused

    async def _note_members(self) -> None:
        """Say who the cluster was made of: each node's configuration says the same."""
        config = self._config
        members = {config.node_id: config.address or config.listen, **config.peers}
        note = pb.NoteMembersCommand(members=members_data(members))
        try:
            raw = await self.propose(command(note_members=note), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            _log.warning("members_not_recorded", extra={"error": error.message})
            return
        result = pb.ControlResult.FromString(raw)
        if result.outcome == pb.CONTROL_OUTCOME_REFUSED:  # nodes are configured differently
            self._was_note_refused = True
            _log.warning("members_not_recorded", extra={"error": result.reason})

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
            await self.propose(command(elect_master=elect), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            _log.warning("election_failed", extra={"shard": proposal.shard, "error": error.message})
        finally:
            self._pending.discard(proposal.shard)
            self._look.set()

    async def _set_rules(self, rules: int) -> None:
        _log.info("control_rules_proposed", extra={"rules": rules})
        try:
            await self.propose(command(set_rules=pb.SetRulesCommand(rules=rules)), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            _log.warning("control_rules_not_set", extra={"rules": rules, "error": error.message})
        finally:
            self._is_setting_rules = False  # the next report makes it look again

    async def _raise_min_in_sync(self, min_in_sync: int) -> None:
        """A cluster that has grown from one node has its copies."""
        _log.info("min_in_sync_proposed", extra={"min_in_sync": min_in_sync})
        wanted = pb.RaiseMinInSyncCommand(min_in_sync=min_in_sync)
        try:
            await self.propose(command(raise_min_in_sync=wanted), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            _log.warning("min_in_sync_not_raised", extra={"error": error.message})
        finally:
            self._is_raising = False  # the next report makes it look again

    async def _note_ended(self, member: Member) -> None:
        ended = pb.NoteEndedCommand(node_id=member.node_id, boot_id=member.boot_id)
        _log.info("broker_end_proposed", extra={"node": member.node_id})
        try:
            await self.propose(command(note_ended=ended), _ELECT_S)
        except (errors.Unavailable, errors.Timeout) as error:
            # A node that waits for the lease does no harm by it then.
            _log.warning(
                "broker_end_not_recorded", extra={"node": member.node_id, "error": error.message}
            )
            self._noting.discard(member.boot_id)
            self._look.set()


def _leader(status: RaftStatus) -> link.LinkLeader:
    return link.LinkLeader(
        leader_node_id=status.leader_node_id,
        term=status.term,
        has_majority=status.has_majority,
    )
