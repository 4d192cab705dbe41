"""Topics, groups and subscriptions as apply knows them, and as they lie in the log and manifest.

How a topic's genes are made and what a subscription wants are kept as they were proposed: nothing
here reads an expression, so two versions that read expressions differently still agree.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import (
    filter_from_wire,
    filter_to_wire,
    gene_from_wire,
    gene_to_wire,
)
from hourwheel.formats.member_group import is_member_group
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.internal.v1 import state_pb2
from hourwheel.types import FIRST_OFFSET, NO_EPOCH, NO_TOPIC, Epoch, GroupId, Offset, TopicId
from storage.views.digest import Hasher, feed_numbers, feed_text

_First = TypeVar("_First")
_Second = TypeVar("_Second")
START_FIRST_MS: Final = 0
"""With the first message that is still there."""
START_NOW_MS: Final = 1
"""With what is released from then on."""


class GroupOrder(IntEnum):
    """Whether a group gets messages of one ordering key one by one, in the order of release."""

    NONE = 0
    """No: in any order, as they come."""
    BLOCK = 1
    """Yes; a message that has used up its attempts blocks its key until an operator acts."""
    DEAD_LETTER = 2
    """Yes; one that has used up its attempts becomes a dead letter, and the next one comes."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. See state.proto, TopicConfig."""

    topic_id: TopicId
    name: str
    queue_count: int
    internal: bool = False
    gene: GeneSpec = DEFAULT_SPEC
    automatic: bool = False
    """Made by publishing or receiving, not by a command. Not in the digest: see `Group`."""
    description: str = ""
    """For people. Neither this nor what follows is in the digest, up to `retention_ms`."""
    is_paused: bool = False
    """The master refuses what is published to it."""
    version: int = 0
    """Where the log ended when it was changed last; 0: an earlier version of the software did."""
    dispatch_tolerance_ms: int = 0
    """By how much the master may delay what falls due at one time: node/delivery/smoothing.py."""
    retention_ms: int = 0
    """For how long what was released is retained; 0: as TRIM records say. TRIM goes by it, so it is
    in the digest where it is set."""

    @classmethod
    def read(cls, config: state_pb2.TopicConfig) -> "Topic":
        """From the wire. Raises InvalidArgument where genes cannot be made so."""
        gene = gene_from_wire(config.gene)
        return cls(
            TopicId(config.topic_id),
            config.name,
            config.queue_count,
            config.internal,
            gene,
            config.automatic,
            config.description,
            config.is_paused,
            config.version,
            config.dispatch_tolerance_ms,
            config.retention_ms,
        )

    def config(self) -> state_pb2.TopicConfig:
        """To the wire."""
        config = state_pb2.TopicConfig(
            topic_id=self.topic_id,
            name=self.name,
            queue_count=self.queue_count,
            internal=self.internal,
            automatic=self.automatic,
            description=self.description,
            is_paused=self.is_paused,
            version=self.version,
            dispatch_tolerance_ms=self.dispatch_tolerance_ms,
            retention_ms=self.retention_ms,
        )
        if not self.internal:
            config.gene.CopyFrom(gene_to_wire(self.gene))
        return config

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        feed_numbers(hasher, self.topic_id)
        feed_text(hasher, self.name)
        feed_numbers(hasher, self.queue_count, self.internal, self.gene.number)
        if self.retention_ms:  # else as nodes of an earlier version have it
            feed_numbers(hasher, self.retention_ms)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group. See state.proto, GroupConfig."""

    group_id: GroupId
    name: str
    attempts_max: int
    invisible_ms: int
    retry_delay_ms: int
    retry_delay_ms_max: int
    dead_letter_topic_id: TopicId
    """0: there is none yet."""
    automatic: bool = False
    """Made by receiving, and not by a command. Not in the digest: older versions drop it."""
    description: str = ""
    """For people. Neither this nor what follows is in the digest."""
    is_paused: bool = False
    """The master hands nothing out to it."""
    version: int = 0
    """As `Topic.version`."""
    retry_delays_ms: tuple[int, ...] = ()
    """Of the second delivery and those after it; the last one goes on. Empty: the doubling."""
    retry_jitter_percent: int = 0
    """By how much the master lengthens each retry delay at most."""
    start_ms: int = 0
    """Where the master lets new subscriptions begin: `START_FIRST_MS`, `START_NOW_MS`, or with what
    is released at an instant or later."""
    in_flight_max: int = 0
    """How many messages the master leases to its consumers at a time; 0: any number."""
    per_second_max: int = 0
    """How many it hands out to them in a second; 0: any number."""
    order: GroupOrder = GroupOrder.NONE
    """In which order the master hands messages out."""
    keeps_expired: bool = False
    """The master makes dead letters of messages that expire before the group gets them."""
    idle_ms_max: int = 0
    """Of a member of a broadcast: the master deletes the group when it was not used for so long."""
    member_token: int = 0
    """The start of the member that may receive; 0: of an ordinary group."""
    first_new_topic_id: TopicId = NO_TOPIC
    """The next topic's number when its start became `START_NOW_MS`: of topics that were made since
    then, and are not the cluster's own, it gets every message. 0: an earlier version set it."""

    def is_older_than(self, topic: Topic) -> bool:
        """Whether the topic was made after the group was set to begin with what comes then."""
        return not topic.internal and 0 < self.first_new_topic_id <= topic.topic_id

    @property
    def is_member(self) -> bool:
        """Whether it is the group of one member of a broadcast."""
        return is_member_group(self.name)

    @property
    def is_ordered(self) -> bool:
        """Whether messages of one ordering key come one by one."""
        return self.order != GroupOrder.NONE

    @property
    def is_limited(self) -> bool:
        """Whether it may be given only so many messages at a time, or in a second."""
        return bool(self.in_flight_max or self.per_second_max)

    @classmethod
    def read(cls, config: state_pb2.GroupConfig) -> "Group":
        """From the wire."""
        return cls(
            GroupId(config.group_id),
            config.name,
            config.attempts_max,
            config.invisible_ms,
            config.retry_delay_ms,
            config.retry_delay_ms_max,
            TopicId(config.dead_letter_topic_id),
            config.automatic,
            config.description,
            config.is_paused,
            config.version,
            tuple(config.retry_delays_ms),
            config.retry_jitter_percent,
            config.start_ms,
            config.in_flight_max,
            config.per_second_max,
            GroupOrder(config.order),
            config.keeps_expired,
            config.idle_ms_max,
            config.member_token,
            TopicId(config.first_new_topic_id),
        )

    def config(self) -> state_pb2.GroupConfig:
        """To the wire."""
        return state_pb2.GroupConfig(
            group_id=self.group_id,
            name=self.name,
            attempts_max=self.attempts_max,
            invisible_ms=self.invisible_ms,
            retry_delay_ms=self.retry_delay_ms,
            retry_delay_ms_max=self.retry_delay_ms_max,
            dead_letter_topic_id=self.dead_letter_topic_id,
            automatic=self.automatic,
            description=self.description,
            is_paused=self.is_paused,
            version=self.version,
            retry_delays_ms=self.retry_delays_ms,
            retry_jitter_percent=self.retry_jitter_percent,
            start_ms=self.start_ms,
            in_flight_max=self.in_flight_max,
            per_second_max=self.per_second_max,
            order=self.order,
            keeps_expired=self.keeps_expired,
            idle_ms_max=self.idle_ms_max,
            member_token=self.member_token,
            first_new_topic_id=self.first_new_topic_id,
        )

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        feed_numbers(hasher, self.group_id)
        feed_text(hasher, self.name)
        feed_numbers(
            hasher,
            self.attempts_max,
            self.invisible_ms,
            self.retry_delay_ms,
            self.retry_delay_ms_max,
            self.dead_letter_topic_id,
        )


class LastReset(NamedTuple):
    """How a group began anew in a topic the last time."""

    epoch: Epoch
    """Receipts of leases of an earlier epoch are void, ..."""
    lease_id: int
    """... and those of this one up to this lease."""
    offset: Offset
    """Of the record."""

    @classmethod
    def read(cls, config: state_pb2.Subscription | state_pb2.SubscriptionReset) -> "LastReset":
        """From the wire."""
        epoch, offset = Epoch(config.receipts_epoch), Offset(config.reset_offset)
        return cls(epoch, config.receipts_lease_id, offset)


NO_RESET: Final = LastReset(NO_EPOCH, 0, FIRST_OFFSET)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A group that receives from a topic. See state.proto, Subscription."""

    group_id: GroupId
    topic_id: TopicId
    retry_topic_id: TopicId
    filter: FilterExpression | None = None
    """In canonical form; None: every message."""
    reset: LastReset = NO_RESET

    @classmethod
    def read(cls, config: state_pb2.Subscription) -> "Subscription":
        """From the wire. Raises InvalidArgument for a kind of filter that is not known."""
        return cls(
            GroupId(config.group_id),
            TopicId(config.topic_id),
            TopicId(config.retry_topic_id),
            filter_from_wire(config.filter) if config.HasField("filter") else None,
            LastReset.read(config),
        )

    def config(self) -> state_pb2.Subscription:
        """To the wire."""
        config = state_pb2.Subscription(
            group_id=self.group_id,
            topic_id=self.topic_id,
            retry_topic_id=self.retry_topic_id,
            receipts_epoch=self.reset.epoch,
            receipts_lease_id=self.reset.lease_id,
            reset_offset=self.reset.offset,
        )
        if self.filter is not None:
            config.filter.CopyFrom(filter_to_wire(self.filter))
        return config

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        wanted = self.filter
        feed_numbers(hasher, self.group_id, self.topic_id, self.retry_topic_id, wanted is not None)
        if wanted is not None:
            feed_text(hasher, wanted.kind)
            feed_numbers(hasher, wanted.check_at_client)
            feed_text(hasher, wanted.text)
        if self.reset != NO_RESET:  # else as nodes of an earlier version have it
            feed_numbers(hasher, *self.reset)


def is_internal(topic: Topic | None, name: str) -> bool:
    """Whether it is the cluster's own topic of that name."""
    return topic is not None and topic.internal and topic.name == name


def tolerances_of(topics: Iterable[Topic]) -> dict[TopicId, int]:
    """How late the messages of these topics may be shown, in ms, where that is not 0."""
    return {one.topic_id: one.dispatch_tolerance_ms for one in topics if one.dispatch_tolerance_ms}


def retentions_of(topics: Iterable[Topic]) -> dict[TopicId, int]:
    """How long messages of these topics are kept, in ms, where the topic itself says so."""
    return {one.topic_id: one.retention_ms for one in topics if one.retention_ms}


def drop_from(index: dict[_First, dict[_Second, Subscription]], of: _First, one: _Second) -> None:
    """Take one out of an index of two steps, and the first step with its last."""
    del index[of][one]
    if not index[of]:
        del index[of]
