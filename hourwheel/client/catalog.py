"""Topics, groups and single messages as the administrator sees them."""

from dataclasses import dataclass
from typing import Final

from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_from_wire, gene_from_wire
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.instants import check_count
from hourwheel.outcomes import DeadLetterReason, MessageState
from hourwheel.v1 import admin_pb2

_EVERYTHING: Final = FilterExpression.everything()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic."""

    name: str
    queue_count: int
    """Messages with one key stay in one queue."""
    released_count: int
    """Messages released into its queues so far."""
    gene: GeneSpec = DEFAULT_SPEC
    """How its index describes messages, so that filters pass over most of them unread."""
    description: str = ""
    is_paused: bool = False
    """Publishing to it is refused with `TopicPaused`."""
    version: int = 0
    """Grows with each change."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """What a group has still to do in one topic, retries included."""

    topic: str
    unresolved_count: int
    """Released messages that the group has neither acknowledged nor given up."""
    leased_count: int
    """Of those, how many are leased now."""
    damaged_count: int = 0
    """Of those, how many the master cannot read now; see `AsyncAdmin.list_damaged`."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a group wants of one topic."""

    topic: str
    filter: FilterExpression
    """In the one way of writing it that the node keeps; everything, where no filter was set."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group."""

    name: str
    attempts_max: int
    """Deliveries before a message becomes a dead letter in topic "%DLQ%<group>"."""
    invisible_ms: int
    """How long messages are leased where the consumer does not say."""
    retry_delay_ms: int
    """Delay before the second delivery; it doubles with each attempt."""
    retry_delay_ms_max: int
    lags: tuple[GroupLag, ...] = ()
    """For each topic that the group has received from; empty in lists."""
    subscriptions: tuple[Subscription, ...] = ()
    """For each topic that it has received from or was subscribed to; in lists the first 100."""
    description: str = ""
    is_paused: bool = False
    """It gets nothing; what it has can be acknowledged."""
    version: int = 0
    """Grows with each change."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message as a dead letter of a group."""

    group: str
    topic: str
    """The one that the message was published to; empty if that was deleted."""
    attempts: int
    """How often the group got it."""
    reason: DeadLetterReason


@dataclass(frozen=True, slots=True)
class MessageDescription:
    """What is known of a message by its id."""

    message_id: MessageId
    state: MessageState
    due_ms: int
    """When it is or was due, in milliseconds since the Unix epoch."""
    is_damaged: bool = False
    """The master has found its bytes damaged, and has no good ones so far."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """Groups of which it is a dead letter, by name; only of a released message."""
    dead_letter_search_is_complete: bool = True
    """All dead letters were looked at: where none is listed, there is none. Else the newest."""


def topic_of(topic: admin_pb2.Topic) -> TopicInfo:
    """The topic that a message tells of."""
    settings = topic.settings
    gene = gene_from_wire(settings.gene)
    return TopicInfo(
        *(topic.name, settings.queue_count, topic.released_count, gene),
        description=topic.description,
        is_paused=topic.is_paused,
        version=topic.version,
    )


def group_settings(**numbers: int) -> admin_pb2.GroupSettings:
    """The message of these. Raises InvalidArgument: one is negative or no whole number."""
    for what, given in numbers.items():
        check_count(given, what)
    return admin_pb2.GroupSettings(**numbers)


def subscription_of(subscription: admin_pb2.GroupSubscription) -> Subscription:
    """The subscription that a message tells of."""
    wanted = filter_from_wire(subscription.filter)
    return Subscription(subscription.topic, wanted if wanted.text else _EVERYTHING)


def group_of(group: admin_pb2.Group) -> GroupInfo:
    """The group that a message tells of."""
    settings = group.settings
    return GroupInfo(
        group.name,
        settings.attempts_max,
        settings.invisible_ms,
        settings.retry_delay_ms,
        settings.retry_delay_ms_max,
        tuple(
            GroupLag(lag.topic, lag.unresolved_count, lag.leased_count, lag.damaged_count)
            for lag in group.lags
        ),
        tuple(map(subscription_of, group.subscriptions)),
        group.description,
        group.is_paused,
        group.version,
    )
