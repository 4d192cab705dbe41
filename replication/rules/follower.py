"""The follower's rules: whom to follow, what to take, what to promise. Pure.

    hello   refused        of another cluster, of a lower epoch, of the same epoch and another
                           master, or while a promise to another master lasts
            answered       with the log's epochs and ends
    begin   cut, durably   the log is the master's up to there; from now on its parts are taken
    log     appended       if it is the next
    beat    promised       and echoed with the next acknowledgement

What a stream says counts only while it is the latest one: a newer hello ends the older stream.
"""

from dataclasses import dataclass
from enum import Enum

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
from replication.rules.epoch_store import EpochSeen
from replication.rules.master import PROTOCOL
from replication.rules.master_lease import Promise
from storage.log.epoch_file import EpochFile


@dataclass(frozen=True)
class LogFacts:
    """Where a log stands."""

    start_offset: int
    end_offset: int
    """Behind everything that is durable: nothing is being written."""
    applied_offset: int


class Stage(Enum):
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
        me: str,
        boot_id: str,
        cluster_id: bytes,
        shard: int,
        seen: EpochSeen,
        promise: Promise,
    ) -> None:
        """Follow nobody yet."""
        self._me, self._boot_id = me, boot_id
        self._cluster_id, self._shard = cluster_id, shard
        self._seen, self._promise = seen, promise
        self.stage = Stage.NONE
        self.has_followed = False
        """In this life."""
        self.epoch = 0
        """Of the stream that is followed."""
        self.high_watermark = 0
        """The highest that a followed master has told."""
        self.beat: SyncBeat | None = None
        """The last one heard."""
        self.beat_ms = float("-inf")

    def on_hello(
        self, hello: MasterHello, facts: LogFacts, epochs: EpochFile, mono_ms: float
    ) -> FollowerHello | Refused:
        """A master introduces itself. The epoch is noted durably before it is answered."""
        if hello.protocol != PROTOCOL:
            refused = self.refuse(_foreign_protocol(hello, self._me).message)
            refused.reason = IncompatibleFormat.reason
            return refused
        why = self._find_objection(hello)
        if why is not None:
            return self.refuse(why)
        left_ms = self._promise.left_ms(hello.epoch, hello.node_id, mono_ms)
        if left_ms > 0:
            refused = self.refuse("a promise to the former master lasts")
            refused.wait_ms = int(left_ms) + 1
            return refused
        self._seen.note(hello.epoch, hello.node_id)
        self.epoch, self.stage = hello.epoch, Stage.GREETED
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
        if not self._seen.is_acceptable(hello.epoch, hello.node_id):
            return f"epoch {self._seen.epoch} is of {self._seen.master!r}"
        return None

    @property
    def is_superseded(self) -> bool:
        """A later epoch is known than that of the stream that is followed."""
        return self._seen.epoch > self.epoch

    def refuse(self, why: str) -> Refused:
        """What a master is told that is not followed, or no longer."""
        return Refused(epoch=self._seen.epoch, master=self._seen.master, why=why)

    def on_begin(self, begin: BeginFrom) -> None:
        """The log was cut to `begin.offset`, and its epochs are the master's."""
        self._demand(Stage.GREETED, begin.epoch)
        self.stage, self.has_followed = Stage.FOLLOWING, True

    def check_log(self, part: LogPart, end_offset: int) -> None:
        """Raises NotFollowed where `part` is not what is to be appended next."""
        self._demand(Stage.FOLLOWING, part.epoch)
        if part.offset != end_offset:
            raise NotFollowed(f"a part from {part.offset} on, where {end_offset} is the next")
        self.high_watermark = max(self.high_watermark, part.high_watermark)

    def on_beat(self, beat: SyncBeat, mono_ms: float) -> None:
        """Promise what is asked for; the next acknowledgement says so."""
        if beat.releases_lease:  # also where a later epoch is known already
            self._promise.forget(beat.epoch)
            return
        self._demand(Stage.FOLLOWING, beat.epoch)
        self.high_watermark = max(self.high_watermark, beat.high_watermark)
        self.beat, self.beat_ms = beat, mono_ms
        self._promise.give(self._seen.epoch, self._seen.master, mono_ms + beat.lease_ms)

    def _demand(self, stage: Stage, epoch: int) -> None:
        if self.stage is not stage or epoch != self.epoch or epoch != self._seen.epoch:
            raise NotFollowed(f"not {stage.value} in epoch {epoch}")

    def acknowledge(
        self, facts: LogFacts, released: tuple[int, int], mono_ms: float, clock_ms: float
    ) -> FollowerAck:
        """How far this node is, and the echo of the last beat.

        Args:
            facts: of the log.
            released: (count, mix) of the views at `facts.applied_offset`.
            mono_ms: now, monotonic.
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
        if self.beat is not None and self.beat.epoch == self.epoch:
            ack.echo_us = self.beat.sent_us
            ack.echo_age_us = int((mono_ms - self.beat_ms) * 1_000)
        return ack

    def promised_ms(self, epoch: int, master: str, mono_ms: float) -> float:
        """How long a promise still keeps this node from taking part in that reign."""
        return self._promise.left_ms(epoch, master, mono_ms)

    def end(self) -> None:
        """The stream is over."""
        self.stage = Stage.NONE

    def on_epoch(self, epoch: int, master: str) -> bool:
        """The control plane names a master. Returns whether that is news that may be believed."""
        if not self._seen.is_acceptable(epoch, master):
            return False
        if epoch == self._seen.epoch:
            return False
        self._seen.note(epoch, master)
        if epoch != self.epoch:
            self.stage = Stage.NONE
        return True


def _foreign_protocol(hello: MasterHello, me: str) -> IncompatibleFormat:
    return IncompatibleFormat(
        f"master {hello.node_id} speaks version {hello.protocol} of the replication protocol, and"
        f" node {me} version {PROTOCOL}: they cannot be in one cluster"
    )
