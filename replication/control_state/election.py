"""Who should be master of each shard: decided by the Raft leader's control process. Pure.

State and reports go in, with their ages; proposals come out, and when to look again. A proposal is
only that: the state machine compares epochs, so a decision that is made twice, or late, or by two
leaders, changes nothing a second time.

A master is deposed when

    the shard has no master              nothing to wait for
    its own control process says that its broker is gone
    its last report is older than `report_timeout_ms`
    the connection to its control process has ended, and for a fifth of that nothing came by another
    it resigns, or hands over to a successor that can lead now
    it has retired by itself
    its disk is low, and somebody can lead whose is not

and is succeeded by a member of the in-sync set, in the incarnation that is registered, whose broker
is alive, ready, not resigning itself, and was heard of lately. Among several: one with room on its
disk, before one without (decision 0016); one that has not just retired; the one whose log ends
last, in steps of `LOG_STEP_BYTES`; then one that does not share a machine with Raft's leader, so
that one death seldom takes both; then the one whose log ends last, to the byte; then the lowest
id. All of them hold everything that was acknowledged: the choice is about time. Under load some
batches more or less are only a matter of whose report is older; a leader of Raft that dies together
with the master costs an election of Raft's first.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.types import NO_NODE, Epoch, NodeId, ShardId
from replication.control_state.member_commands import find_min_in_sync
from replication.control_state.state import CODEC_VERSION, ControlState, Member, ShardInfo

CUT_SHARE: Final = 0.2
"""Part of `report_timeout_ms` in which a connection that has ended is made anew, or its node counts
as silent. Connections end with their processes; what a network does to them mostly shows as
silence. And a successor that is named for nothing still waits for the lease."""
LOG_STEP_BYTES: Final = 4 << 20
"""Logs are equally long where they end in the same step: what more is copied in some 20 ms."""


@dataclass(frozen=True)
class HeardReport:
    """The last report of a node, or that there was none yet."""

    report: link.NodeReport | None
    heard_ms: float
    """When it came, by the local monotonic clock."""
    cut_ms: float | None = None
    """When the connection has ended that it came by; None: it stands. A process that is killed is
    noticed by that, long before it counts as silent."""


@dataclass(frozen=True)
class ElectionView:
    """All that a decision depends on."""

    state: ControlState
    reports: Mapping[NodeId, HeardReport]
    """Node id -> what it says."""
    listening_since_ms: float
    """Since when reports are taken in without a gap: no node was silent for longer."""
    raft_leader_node_id: str
    """This node, where it leads; else nothing is proposed."""
    is_leading: bool
    """This node leads Raft, has a majority, and has applied what it inherited."""
    report_timeout_ms: float = 1_000.0
    voter_node_ids: frozenset[NodeId] = frozenset()
    """Whose control processes apply commands; empty: not known."""


@dataclass(frozen=True)
class Proposal:
    """Begin an epoch with this master."""

    shard: ShardId
    expected_epoch: Epoch
    master: Member
    reason: str


@dataclass(frozen=True)
class Decision:
    """What to propose, and when to look again if nothing is heard until then."""

    proposals: tuple[Proposal, ...]
    next_wakeup_ms: float | None
    """By the same clock; None: only an event changes anything."""
    ended: tuple[Member, ...] = ()
    """Incarnations whose processes have ended, which the state does not say yet. Only the control
    process beside such a process reports it: no other can know."""
    rules: int = 0
    """Newer rules that every control process knows; 0: none are newer than those in force."""
    min_in_sync: int = 0
    """What it should be raised to, in a cluster that has grown from one node; 0: it stays."""


def decide(view: ElectionView, now_ms: float) -> Decision:
    """See the top of this file."""
    if not view.is_leading:
        return Decision((), None)
    proposals: list[Proposal] = []
    wakeups: list[float] = []
    for number in sorted(view.state.shards):
        shard = view.state.shards[number]
        reason = _why_depose(view, shard, now_ms)
        if reason:
            successor = _find_successor(view, shard, now_ms)
            if successor is not None:
                proposals.append(Proposal(shard.shard, shard.epoch, successor, reason))
        elif shard.master is not None:
            wakeups.append(_silent_ms(view, shard.master.node_id))
    ended = tuple(_find_ended(view))
    rules = _find_rules(view, now_ms)
    min_in_sync = find_min_in_sync(view.state)
    return Decision(tuple(proposals), min(wakeups, default=None), ended, rules, min_in_sync)


def _find_rules(view: ElectionView, now_ms: float) -> int:
    """Newer rules that all know; each said so just now, since software changes with restarts."""
    if not view.state.is_bootstrapped or not view.voter_node_ids:
        return 0
    known = CODEC_VERSION
    for node_id in view.voter_node_ids:
        heard = view.reports.get(node_id)
        is_recent = heard is not None and now_ms - heard.heard_ms < view.report_timeout_ms
        if heard is None or heard.report is None or heard.cut_ms is not None or not is_recent:
            return 0
        known = min(known, heard.report.rules)
    return known if known > view.state.codec_version else 0


def _find_ended(view: ElectionView) -> Iterator[Member]:
    for node_id, node in sorted(view.state.nodes.items()):
        report = _find_report(view, node_id)
        boot_id = report.ended_boot_id if report is not None else b""
        if boot_id and boot_id == node.boot_id != node.ended_boot_id:
            yield node.member


def _silent_ms(view: ElectionView, node_id: NodeId) -> float:
    """From when on a node counts as silent, if nothing more is heard of it.

    A connection that has ended is given time to be made anew: see `CUT_SHARE`.
    """
    # What came before a stall of this process says nothing about the time of the stall.
    heard, since_ms = view.reports.get(node_id), view.listening_since_ms
    if heard is None:
        return since_ms + view.report_timeout_ms
    silent_ms = max(heard.heard_ms, since_ms) + view.report_timeout_ms
    if heard.cut_ms is None:
        return silent_ms
    return min(silent_ms, max(heard.cut_ms, since_ms) + view.report_timeout_ms * CUT_SHARE)


def _find_report(view: ElectionView, node_id: NodeId) -> link.NodeReport | None:
    heard = view.reports.get(node_id)
    return heard.report if heard else None


def _find_shard(report: link.NodeReport | None, shard: ShardId) -> link.ShardReport | None:
    shards = report.shards if report is not None else ()
    return next((each for each in shards if each.shard == shard), None)


def _why_depose(  # noqa: PLR0911 - one for each reason
    view: ElectionView, shard: ShardInfo, now_ms: float
) -> str:
    """Why the shard needs another master; empty: it does not."""
    master = shard.master
    if master is None:
        return "the shard has no master"
    report = _find_report(view, master.node_id)
    if now_ms >= _silent_ms(view, master.node_id):
        return "the master's node is silent"
    if report is None:
        return ""
    if not report.broker_alive:
        return "the master's broker is gone"
    if report.boot_id != master.boot_id:
        return "the master's broker has started again"
    said = _find_shard(report, shard.shard)
    # What it said in an earlier epoch is not about this one.
    if said is not None and said.epoch >= shard.epoch:
        if said.is_resigning:
            return "the master resigns"
        if said.hand_over_to and _is_able(view, shard, NodeId(said.hand_over_to), now_ms):
            return "the master hands over"
        if said.has_retired:
            return "the master has retired"
        if said.is_low and any(not _is_low(view, one) for one in _able(view, shard, now_ms)):
            return "the master's disk is low"
    return ""


def _is_low(view: ElectionView, member: Member) -> bool:
    report = _find_report(view, member.node_id)
    return any(said.is_low for said in (report.shards if report is not None else ()))


def _able(view: ElectionView, shard: ShardInfo, now_ms: float) -> list[Member]:
    """Who can be master now."""
    return [one for one in shard.isr if _is_able(view, shard, one.node_id, now_ms)]


def _is_able(view: ElectionView, shard: ShardInfo, node_id: NodeId, now_ms: float) -> bool:
    """Whether a node can be master now."""
    report = _find_report(view, node_id)
    said = _find_shard(report, shard.shard)
    node = view.state.nodes.get(node_id)
    return (
        report is not None
        and said is not None
        and node is not None
        and node.member in shard.isr
        and report.boot_id == node.boot_id
        and report.broker_alive
        and said.is_ready
        and not said.is_resigning
        and now_ms < _silent_ms(view, node_id)
    )


def _find_successor(view: ElectionView, shard: ShardInfo, now_ms: float) -> Member | None:
    able = {one.node_id: one for one in _able(view, shard, now_ms)}
    master = shard.master
    if master is not None:
        said = _find_shard(_find_report(view, master.node_id), shard.shard)
        wanted = NodeId(said.hand_over_to) if said is not None else NO_NODE
        if wanted in able and wanted != master.node_id:
            return able[wanted]

    def rank(member: Member) -> tuple[bool, bool, int, int, bool, int, str]:
        said = _find_shard(_find_report(view, member.node_id), shard.shard)
        last_epoch, end = (said.last_epoch, said.log_end) if said else (0, 0)
        leads_raft = member.node_id == view.raft_leader_node_id
        has_retired = said is not None and said.has_retired
        return (
            _is_low(view, member),
            has_retired,
            -last_epoch,
            -(end // LOG_STEP_BYTES),
            leads_raft,
            -end,
            member.node_id,
        )

    return min(able.values(), key=rank, default=None)
