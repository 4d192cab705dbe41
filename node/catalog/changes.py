"""What a change makes of a topic or a group: its defaults, limits, conditions and new values."""

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import GroupConfig
from hourwheel.types import NO_TOPIC, TopicId
from node.contracts.broker import CatalogUpdate, GroupSettings, NewTopic
from node.shard.views import ORDER_LEVEL, RETENTION_LEVEL, Views
from storage.views.catalog_items import START_NOW_MS, Group, GroupOrder, Topic

_KEPT: Final = (
    *("retry_delays_ms", "retry_jitter_percent", "start_ms"),
    *("in_flight_max", "per_second_max", "order", "keeps_expired"),
    *("idle_ms_max", "member_token"),
)
"""Settings that stay as they were where they are not given."""


@dataclass(frozen=True)
class DefaultsConfig:
    """What is made by itself, and how."""

    topics_auto_create: bool = True
    topics_auto_create_by_receiving: bool = False
    topic_queue_count: int = 1
    topics_max: int = 10_000
    groups_auto_create: bool = True
    groups_max: int = 10_000
    members_max: int = 1_000
    """Of broadcasts."""
    members_per_broadcast_max: int = 900
    group_idle_ms: int = 7 * 86_400_000
    """See node/catalog/unused_names.py. 0: never."""
    topic_idle_ms: int = 7 * 86_400_000
    """See node/catalog/unused_names.py. 0: never."""
    subscriptions_max: int = 20_000
    attempts_max: int = 16
    invisible_ms: int = 30_000
    retry_delay_ms: int = 1_000
    retry_delay_ms_max: int = 600_000


def check_room(what: str, count: int, count_max: int) -> None:
    """Raises LimitReached where so many are enough; `what`: they, as a key of the limits."""
    if count >= count_max:
        raise errors.LimitReached(
            f"there are {count} {what.replace('_', ' ')}, and limits.{what} allows {count_max}:"
            " delete some that are not in use, or have the key raised",
            limit=f"limits.{what}",
            count=count,
            count_max=count_max,
        )


def check_version(version: int, update: CatalogUpdate) -> None:
    """Raises FailedPrecondition where there is another version than is expected."""
    if update.expected_version not in {None, version}:
        raise errors.FailedPrecondition(f"it has version {version}", version=version)


def given(update: CatalogUpdate) -> dict[str, Any]:
    """Fields of a topic or group that are to have another value."""
    fields = {
        "description": update.description,
        "is_paused": update.is_paused,
        "dispatch_tolerance_ms": update.dispatch_tolerance_ms,
        "retention_ms": update.retention_ms,
    }
    return {name: value for name, value in fields.items() if value is not None}


def check_retention(views: Views, old: Topic, new: Topic) -> None:
    """Whether a topic may be retained like this.

    Raises:
        InvalidArgument: for less time than it takes to show what falls due at one time.
        FeatureLevelTooLow: a node of an earlier version does not know how.
    """
    if not new.retention_ms:
        return
    if new.retention_ms <= new.dispatch_tolerance_ms:
        raise errors.InvalidArgument(
            "a topic's retention_ms is more than its dispatch_tolerance_ms",
            field="retention_ms",
            retention_ms=new.retention_ms,
            dispatch_tolerance_ms=new.dispatch_tolerance_ms,
        )
    if new.retention_ms != old.retention_ms and views.feature_level < RETENTION_LEVEL:
        raise errors.FeatureLevelTooLow(
            "a node of an earlier version is in the cluster, which knows no retention of a topic",
            level=views.feature_level,
            level_min=RETENTION_LEVEL,
        )


def check_alike(found: Topic, queue_count: int, wanted: NewTopic) -> None:
    """Raises AlreadyExists: there is such a topic, and it is made otherwise than was asked for."""
    gene, retention_ms = wanted
    if queue_count not in {0, found.queue_count}:
        raise errors.AlreadyExists(
            f"topic {found.name!r} has {found.queue_count} queues",
            topic=found.name,
            queue_count=found.queue_count,
        )
    if gene is not None and gene != found.gene:
        raise errors.AlreadyExists(
            f"topic {found.name!r} has genes {found.gene.text}",
            topic=found.name,
            gene=found.gene.text,
        )
    if retention_ms not in {None, found.retention_ms}:
        raise errors.AlreadyExists(
            f"topic {found.name!r} has a retention of {found.retention_ms} ms",
            topic=found.name,
            retention_ms=found.retention_ms,
        )


def check_order(views: Views, name: str, settings: GroupSettings) -> None:
    """Whether a group may get this order now.

    Raises:
        FailedPrecondition: it reads a topic already: what it has and what it gave back there are in
            no order.
        FeatureLevelTooLow: a node of an earlier version does not know how to keep it.
    """
    if settings.order is None:
        return
    group: Group | None = views.catalog.find_group(name)
    is_ordered = group is not None and group.is_ordered
    if (settings.order != GroupOrder.NONE) == is_ordered:
        return
    if group is not None and views.catalog.subscriptions_of(group.group_id, 0, 1):
        raise errors.FailedPrecondition(
            f"group {name!r} reads a topic already: whether it is ordered is settled before that",
            group=name,
        )
    if views.feature_level < ORDER_LEVEL:
        raise errors.FeatureLevelTooLow(
            "a node of an earlier version is in the cluster, which knows no ordered groups",
            level=views.feature_level,
            level_min=ORDER_LEVEL,
        )


def check_may_read(group: Group, topic: Topic) -> None:
    """Raises InvalidArgument: an ordered group cannot read such a topic."""
    if group.is_ordered and topic.internal:
        raise errors.InvalidArgument(
            "an ordered group reads none of the cluster's own topics", topic=topic.name
        )


def with_settings(group: Group, settings: GroupSettings) -> Group:
    """The group with the settings that are given; the others stay."""
    fields = asdict(settings)
    optional = {name: fields.pop(name) for name in _KEPT}
    numbers = {name: value for name, value in fields.items() if value}
    numbers |= {name: value for name, value in optional.items() if value is not None}
    changed = replace(group, **numbers)
    delay_ms_max = max(changed.retry_delay_ms, changed.retry_delay_ms_max)
    return replace(changed, retry_delay_ms_max=delay_ms_max)


def with_first_new_topic(group: Group, old: Group | None, next_topic_id: TopicId) -> Group:
    """The group, which notes from which topic on all are new to it: see `Group`."""
    first = NO_TOPIC if old is None else old.first_new_topic_id
    if group.start_ms == START_NOW_MS and (old is None or old.start_ms != START_NOW_MS):
        first = next_topic_id
    return replace(group, first_new_topic_id=first)


def group_config(
    name: str,
    settings: GroupSettings,
    defaults: DefaultsConfig,
    old: Group | None,
    *,
    version: int,
    automatic: bool,
) -> GroupConfig:
    """A group as it is put: what is 0 is the default, what is None stays as it was.

    Its number and that of its dead letters' topic are still to be set.
    """
    kept = {name: getattr(settings, name) for name in _KEPT}
    if old is not None:
        kept = {
            name: getattr(old, name) if value is None else value for name, value in kept.items()
        }
    delay_ms = settings.retry_delay_ms or defaults.retry_delay_ms
    delay_ms_max = settings.retry_delay_ms_max or defaults.retry_delay_ms_max
    return GroupConfig(
        name=name,
        attempts_max=settings.attempts_max or defaults.attempts_max,
        invisible_ms=settings.invisible_ms or defaults.invisible_ms,
        retry_delay_ms=delay_ms,
        retry_delay_ms_max=max(delay_ms, delay_ms_max),
        automatic=automatic,
        description="" if old is None else old.description,
        is_paused=old is not None and old.is_paused,
        version=version,
        **{name: value for name, value in kept.items() if value is not None},
    )
