"""The follower's rules: which master to follow, what to append, when to grant a lease. Pure.

    hello       refused        of another cluster, of a lower epoch, of the same epoch and another
                               master, or while a lease granted to another master lasts
                answered       with the log's epochs and ends
    begin       cut, durably   the log is the master's up to there; from now on its parts are taken
    log         appended       if it is the next
    heartbeat   lease granted  and echoed with the next acknowledgement, unless it is longer than
                               what this node would remember

What a stream says counts only while it is the latest one: a newer hello ends the older stream.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hourwheel.errors import IncompatibleFormat, NotFollowed
from hourwheel.internal.v1.replication_pb2 import (
    BeginFrom,
    EpochMark,
    FollowerAck,
    FollowerHello,
    LogPart,
    MasterHello,
    Refused,
    SyncBeat,
)
from hourwheel.types import FIRST_OFFSET, Epoch, NodeId, Offset, ShardId
from replication.rules.master import PROTOCOL
from replication.rules.master_lease import LeaseGrant
from storage.log.epochs import EpochFile, EpochStore

_ENDED_COUNT_MAX: Final = 64


@dataclass(frozen=True)
class LogFacts:
    """Where a log stands."""

    start_offset: Offset
    end_offset: Offset
    """Behind everything that is durable: nothing is being written."""
    applied_offset: Offset


class FollowerPhase(Enum):
    """How far a stream is."""

    NONE = "none"
    GREETED = "greeted"
    FOLLOWING = "following"


class Follower:
    """One node's side of one shard.

    Invariant: FOLLOWING only in `seen.epoch`, of `seen.master`.
    """

    def __init__(
        self,
        *,
        me: NodeId,
        boot_id: str,
        cluster_id: bytes,
        shard: ShardId,
        seen: EpochStore,
        grant: LeaseGrant,
    ) -> None:
        """Follow no master yet."""
        self._me, self._boot_id = me, boot_id
        self._cluster_id, self._shard = cluster_id, shard
        self._seen, self._grant = seen, grant
        self.phase = FollowerPhase.NONE
        self.has_followed = False
        """In this life."""
        self.epoch = Epoch(0)
        """Of the stream that is followed."""
        self._master_boot_id = ""
        """The incarnation at its other end."""
        self.high_watermark = FIRST_OFFSET
        """The highest that a followed master has reported."""
        self.last_heartbeat: SyncBeat | None = None
        self.heartbeat_heard_ms = float("-inf")
        """When the last heartbeat came, by the monotonic clock."""

    def on_hello(
        self, hello: MasterHello, facts: LogFacts, epochs: EpochFile, monotonic_ms: float
    ) -> FollowerHello | Refused:
        """A master introduces itself. The epoch is noted durably before it is answered."""
        if hello.protocol != PROTOCOL:
            refused = self.refuse(_foreign_protocol(hello, self._me).message)
            refused.reason = IncompatibleFormat.reason
            return refused
        why = self._find_objection(hello)
        if why is not None:
            return self.refuse(why)
        self.note_ended(hello.ended_boot_ids)
        master = NodeId(hello.node_id)
        epoch = Epoch(hello.epoch)
        left_ms = self._grant.left_ms(epoch, master, monotonic_ms)
        if left_ms > 0:
            refused = self.refuse("the lease granted to the former master lasts")
            refused.wait_ms = int(left_ms) + 1
            return refused
        self._seen.note(epoch, master)
        self.epoch, self.phase = epoch, FollowerPhase.GREETED
        self._master_boot_id = hello.boot_id
        return FollowerHello(
            epoch=hello.epoch,
            boot_id=self._boot_id,
            log_start_offset=facts.start_offset,
            log_end_offset=facts.end_offset,
            applied_offset=facts.applied_offset,
            epochs=[EpochMark(epoch=one, start_offset=at) for one, at in epochs.entries],
        )

    def _find_objection(self, hello: MasterHello) -> str | None:
        if hello.cluster_id != self._cluster_id or hello.shard != self._shard:
            return "another cluster or shard"
        if hello.follower_id != self._me:
            return f"this is node {self._me!r}"
        if not self._seen.is_acceptable(Epoch(hello.epoch), NodeId(hello.node_id)):
            return f"epoch {self._seen.epoch} is of {self._seen.master!r}"
        return None

    @property
    def is_superseded(self) -> bool:
        """A later epoch is known than that of the stream that is followed."""
        return self._seen.epoch > self.epoch

    def refuse(self, why: str) -> Refused:
        """The answer to a master that this node does not follow, or no longer follows."""
        return Refused(epoch=self._seen.epoch, master=self._seen.master, why=why)

    def on_begin(self, begin: BeginFrom) -> None:
        """The log was cut to `begin.offset`, and its epochs are the master's."""
        self._demand(FollowerPhase.GREETED, Epoch(begin.epoch))
        self.phase, self.has_followed = FollowerPhase.FOLLOWING, True

    def check_log(self, part: LogPart, end_offset: Offset) -> None:
        """Raises NotFollowed where `part` is not what is to be appended next."""
        self._demand(FollowerPhase.FOLLOWING, Epoch(part.epoch))
        if part.offset != end_offset:
            raise NotFollowed(f"a part from {part.offset} on, where {end_offset} is the next")
        self.high_watermark = max(self.high_watermark, Offset(part.high_watermark))

    def on_heartbeat(self, heartbeat: SyncBeat, monotonic_ms: float) -> None:
        """Grant the lease that the master requests; the next acknowledgement says so.

        Not one that this node would forget by starting again: it follows, and echoes nothing.
        """
        if heartbeat.releases_lease:  # also where a later epoch is known already
            self._grant.release(Epoch(heartbeat.epoch))
            return
        self._demand(FollowerPhase.FOLLOWING, Epoch(heartbeat.epoch))
        self.high_watermark = max(self.high_watermark, Offset(heartbeat.high_watermark))
        self.last_heartbeat, self.heartbeat_heard_ms = heartbeat, monotonic_ms
        if not self._grant.may_grant(heartbeat.lease_ms):
            return
        until_ms = monotonic_ms + heartbeat.lease_ms
        self._grant.renew(self._seen.epoch, self._seen.master, self._master_boot_id, until_ms)

    def _demand(self, phase: FollowerPhase, epoch: Epoch) -> None:
        if self.phase is not phase or epoch != self.epoch or epoch != self._seen.epoch:
            raise NotFollowed(f"not {phase.value} in epoch {epoch}")

    def acknowledge(
        self, facts: LogFacts, released: tuple[int, int], monotonic_ms: float, clock_ms: float
    ) -> FollowerAck:
        """How far this node is, and the echo of the last heartbeat.

        Args:
            facts: of the log.
            released: (count, mix) of the views at `facts.applied_offset`.
            monotonic_ms: now, monotonic.
            clock_ms: now, by this node's clock.
        """
        ack = FollowerAck(
            epoch=self.epoch,
            flushed_end_offset=facts.end_offset,
            applied_offset=facts.applied_offset,
            released_count=released[0],
            released_mix=released[1],
            clock_ms=clock_ms,
        )
        heartbeat = self.last_heartbeat
        if (
            heartbeat is not None
            and heartbeat.epoch == self.epoch
            and self._grant.may_grant(heartbeat.lease_ms)
        ):
            ack.echo_us = heartbeat.sent_us
            ack.echo_age_us = int((monotonic_ms - self.heartbeat_heard_ms) * 1_000)
        return ack

    def grant_left_ms(self, epoch: Epoch, master: NodeId, monotonic_ms: float) -> float:
        """How long a grant still keeps this node from following that master in that epoch."""
        return self._grant.left_ms(epoch, master, monotonic_ms)

    def note_ended(self, boot_ids: Iterable[str]) -> None:
        """These incarnations' processes have ended: no lease of theirs is waited for.

        The latest are kept: only a lease that may still last is of interest.
        """
        latest = dict.fromkeys([*boot_ids, *self._grant.ended_boot_ids])
        self._grant.ended_boot_ids = frozenset(list(latest)[:_ENDED_COUNT_MAX])

    @property
    def ended_boot_ids(self) -> frozenset[str]:
        """Incarnations whose processes are known to have ended."""
        return self._grant.ended_boot_ids

    @property
    def lacks_room(self) -> bool:
        """`keep_room` should be called, when there is time for it."""
        return self._seen.lacks_room

    def keep_room(self) -> None:
        """See that the next epoch can be noted on a full disk. Raises FsyncFailed, DiskFailed."""
        self._seen.keep_room()

    def end(self) -> None:
        """The stream is over."""
        self.phase = FollowerPhase.NONE

    def on_epoch(self, epoch: Epoch, master: NodeId) -> bool:
        """The control plane names a master. Returns whether that is new, and of a later epoch."""
        if not self._seen.is_acceptable(epoch, master):
            return False
        if epoch == self._seen.epoch:
            return False
        self._seen.note(epoch, master)
        if epoch != self.epoch:
            self.phase = FollowerPhase.NONE
        return True


def _foreign_protocol(hello: MasterHello, me: NodeId) -> IncompatibleFormat:
    return IncompatibleFormat(
        f"master {hello.node_id} speaks version {hello.protocol} of the replication protocol, and"
        f" node {me} version {PROTOCOL}: they cannot be in one cluster"
    )
