"""Topics, groups and single messages as the administrator sees them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypedDict

from hourwheel.client.groups.positions import (
    order_of,
    set_keeps_expired,
    set_order,
    set_start,
    start_of,
)
from hourwheel.delay_levels import RetryPreset
from hourwheel.errors import InvalidArgument
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_from_wire, gene_from_wire
from hourwheel.formats import message_id
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.instants import check_count
from hourwheel.outcomes import DeadLetterReason, MessageState
from hourwheel.v1 import admin_pb2, groups_pb2

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
    dispatch_tolerance_ms: int = 0
    """What falls due at one time is shown to consumers over so many milliseconds at most."""
    retention_ms: int = 0
    """For how long released messages and their histories are kept; 0: the nodes' default."""


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
    oldest_age_ms: int = 0
    """How long ago the oldest of the unresolved could be received first; 0 where there is none."""
    blocked_count: int = 0
    """Of an ordered group: messages that have used up their attempts, and block their keys."""
    blocked_message_ids: tuple[MessageId, ...] = ()
    """The first 100 of these; see `AsyncAdmin.unblock`."""


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
    retry_delays_ms: tuple[int, ...] = ()
    """Delay before the second delivery, the third, and so on; the last one goes on. Empty: as
    `retry_delay_ms` says."""
    retry_jitter_percent: int = 0
    """Each retry delay is lengthened at random by up to so many percent of itself."""
    start: str | int = "first"
    """Where new subscriptions begin: "first", "now", or with what is released at an instant or
    later, in milliseconds since the Unix epoch."""
    in_flight_max: int = 0
    """How many messages its consumers may hold at a time, all together; 0: any number."""
    per_second_max: int = 0
    """How many they get in a second, all together; 0: any number."""
    order: str = "none"
    """Whether it gets messages of one ordering key one by one: "none", "block" or "dead-letter"."""
    keeps_expired: bool = False
    """Messages that expire before it gets them become its dead letters; else they are dropped."""


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
        topic.name,
        settings.queue_count,
        topic.released_count,
        gene,
        description=topic.description,
        is_paused=topic.is_paused,
        version=topic.version,
        dispatch_tolerance_ms=topic.dispatch_tolerance_ms,
        retention_ms=topic.retention_ms,
    )


class GroupChanges(TypedDict, total=False):
    """Settings of a group. 0, and what is not given: the default where it is put, else it stays."""

    attempts_max: int
    invisible_ms: int
    retry_delay_ms: int
    retry_delay_ms_max: int
    retry_delays_ms: Sequence[int] | RetryPreset | None
    """1 to 32 delays of 1 ms to 30 days each, or a list that has a name. Empty: the doubling."""
    retry_jitter_percent: int | None
    """0 to 100."""
    start: str | int | datetime | None
    """Where new subscriptions begin: "first", "now", or with what is released at an instant."""
    in_flight_max: int | None
    """0 to 1,000,000; 0: any number."""
    per_second_max: int | None
    """0 to 1,000,000; 0: any number."""
    order: str | None
    """"none", or one by one for each ordering key: "block" and "dead-letter" say what becomes of a
    message that has used up its attempts."""
    keeps_expired: bool | None
    """Whether messages that expire before it gets them become its dead letters."""


_KEPT: Final = ("retry_jitter_percent", "in_flight_max", "per_second_max")
"""Settings that stay where None is given, for 0 is a value of theirs."""


def group_settings(changes: GroupChanges) -> admin_pb2.GroupSettings:
    """The message of these.

    Raises:
        InvalidArgument: a number is negative or no whole one, or there is no such setting.
    """
    if not changes.keys() <= GroupChanges.__annotations__.keys():
        unknown = min(changes.keys() - GroupChanges.__annotations__.keys())
        raise InvalidArgument(f"a group has no setting {unknown!r}")
    settings = admin_pb2.GroupSettings()
    values: dict[str, Any] = {**changes}
    _set_delays(settings.retry_delays, values.pop("retry_delays_ms", None))
    set_start(settings, values.pop("start", None))
    for name in _KEPT:
        if values.get(name, 0) is None:
            del values[name]
    set_order(settings, values.pop("order", None))
    set_keeps_expired(settings, values.pop("keeps_expired", None))
    for name, given in values.items():
        check_count(given, name)
        setattr(settings, name, given)
    return settings


def _set_delays(delays: groups_pb2.RetryDelays, given: object) -> None:
    if given is None:
        return
    delays.SetInParent()
    listed = given.value if isinstance(given, RetryPreset) else given
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise InvalidArgument(f"retry_delays_ms is a list of milliseconds, not {given!r}")
    for delay_ms in listed:
        check_count(delay_ms, "retry_delays_ms", at_least=1)
    delays.delays_ms.extend(listed)


def subscription_of(subscription: admin_pb2.GroupSubscription) -> Subscription:
    """The subscription that a message tells of."""
    wanted = filter_from_wire(subscription.filter)
    return Subscription(subscription.topic, wanted if wanted.text else _EVERYTHING)


def group_of(group: admin_pb2.Group) -> GroupInfo:
    """The group that a message tells of."""
    settings = group.settings
    return GroupInfo(
        name=group.name,
        attempts_max=settings.attempts_max,
        invisible_ms=settings.invisible_ms,
        retry_delay_ms=settings.retry_delay_ms,
        retry_delay_ms_max=settings.retry_delay_ms_max,
        lags=tuple(
            GroupLag(
                topic=lag.topic,
                unresolved_count=lag.unresolved_count,
                leased_count=lag.leased_count,
                damaged_count=lag.damaged_count,
                oldest_age_ms=lag.oldest_age_ms,
                blocked_count=lag.blocked_count,
                blocked_message_ids=tuple(map(message_id.parse, lag.blocked_message_ids)),
            )
            for lag in group.lags
        ),
        subscriptions=tuple(map(subscription_of, group.subscriptions)),
        description=group.description,
        is_paused=group.is_paused,
        version=group.version,
        retry_delays_ms=tuple(settings.retry_delays.delays_ms),
        retry_jitter_percent=settings.retry_jitter_percent,
        start=start_of(settings),
        in_flight_max=settings.in_flight_max,
        per_second_max=settings.per_second_max,
        order=order_of(settings),
        keeps_expired=settings.keeps_expired,
    )
