"""Lists of topics, of groups and of their lags, in parts.

A part takes a bounded amount of work, however many topics, groups and queues there are. The caller
goes on where the last part ended, and other calls have their turns in between. Parts are in the
order of names, so that what is made or deleted meanwhile moves nothing else.
"""

from typing import Final

from hourwheel.formats.message_id import MessageId
from hourwheel.types import NO_TOPIC, QUEUE_COUNT_MAX
from node.catalog.positions import held_ids
from node.contracts.broker import (
    GroupInfo,
    SubscriptionInfo,
    TopicInfo,
)
from node.contracts.lags import GroupLagInfo, LagPlace, LagsPart
from node.delivery.receiver import Receiver
from node.shard.group_queue import GroupQueue
from node.shard.shard import Shard
from storage.queues.ack_state import BLOCKED_MS, AckWindow
from storage.views.catalog import Catalog
from storage.views.catalog_items import Group, Subscription, Topic

QUEUES_AT_ONCE: Final = 512
"""So many queues are looked at for one part: about a millisecond. One topic has fewer."""
assert QUEUE_COUNT_MAX < QUEUES_AT_ONCE
LAG_QUEUES_AT_ONCE: Final = 40
"""The same where what is resolved and leased of each is counted, and its oldest entry is read."""
LISTED_SUBSCRIPTIONS_MAX: Final = 100
"""So many subscriptions of each group are shown in a list; all of them of one group by itself."""
BLOCKED_LISTED: Final = 100
"""Ids that a lag has of messages which block their keys."""
_BEHIND_INTERNAL: Final = "&"
"""Names of the cluster's own topics begin with "%", and no others do; this is right behind it."""
_UNTOUCHED: Final = AckWindow()


class Listing:
    """Answers questions about what is applied."""

    def __init__(self, shard: Shard, receiver: Receiver) -> None:
        """Of this shard; `receiver` has the leases."""
        self._shard, self._receiver = shard, receiver

    @property
    def _catalog(self) -> Catalog:
        return self._shard.views.catalog

    # -- topics -----------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicInfo:
        """See EnginePort."""
        return self.topic_info(self._catalog.get_topic(name))

    def topics(self, after: str, count_max: int, *, include_internal: bool) -> list[TopicInfo]:
        """See EnginePort."""
        first = after if include_internal else max(after, _BEHIND_INTERNAL)
        found, queue_count = list[TopicInfo](), 0
        for topic in self._catalog.topics_after(first, min(count_max, QUEUES_AT_ONCE)):
            queue_count += topic.queue_count
            if queue_count > QUEUES_AT_ONCE:
                break
            found.append(self.topic_info(topic))
        return found

    def topic_info(self, topic: Topic) -> TopicInfo:
        """What the API shows of it."""
        views = self._shard.views
        released = sum(views.queues.bounds(queue)[1] for queue in views.queues_of(topic))
        return TopicInfo(
            topic.name,
            topic.queue_count,
            topic.internal,
            released,
            topic.gene,
            description=topic.description,
            is_paused=topic.is_paused,
            version=topic.version,
            dispatch_tolerance_ms=topic.dispatch_tolerance_ms,
            retention_ms=topic.retention_ms,
        )

    # -- groups -----------------------------------------------------------------------------------

    def group(self, name: str, after: int, count_max: int) -> GroupInfo:
        """See EnginePort."""
        group = self._catalog.get_group(name)
        count_max = min(count_max, QUEUES_AT_ONCE)
        subscriptions = self._catalog.subscriptions_of(group.group_id, after, count_max + 1)
        chosen, queue_count = list[Subscription](), 0
        for one in subscriptions[:count_max]:
            queue_count += self._queue_count(one)
            if queue_count > LAG_QUEUES_AT_ONCE and chosen:
                break
            chosen.append(one)
        lags = tuple(self._lag(one) for one in chosen)
        is_all = len(chosen) == len(subscriptions)
        next_after = 0 if is_all else int(chosen[-1].topic_id)
        return self._group_info(group, chosen, lags, next_after)

    def groups(self, after: str, count_max: int) -> list[GroupInfo]:
        """See EnginePort."""
        found, subscription_count = list[GroupInfo](), 0
        for group in self._catalog.groups_after(after, min(count_max, QUEUES_AT_ONCE)):
            subscriptions = self._listed(group)
            subscription_count += 1 + len(subscriptions)
            if subscription_count > QUEUES_AT_ONCE:
                break
            found.append(self._group_info(group, subscriptions, (), 0))
        return found

    def put_group_info(self, group: Group) -> GroupInfo:
        """A group that was made or changed, as its command answers."""
        return self._group_info(group, self._listed(group), (), 0)

    def _listed(self, group: Group) -> list[Subscription]:
        return self._catalog.subscriptions_of(group.group_id, 0, LISTED_SUBSCRIPTIONS_MAX)

    def _group_info(
        self,
        group: Group,
        subscriptions: list[Subscription],
        lags: tuple[GroupLagInfo, ...],
        next_after: int,
    ) -> GroupInfo:
        return GroupInfo(
            name=group.name,
            attempts_max=group.attempts_max,
            invisible_ms=group.invisible_ms,
            retry_delay_ms=group.retry_delay_ms,
            retry_delay_ms_max=group.retry_delay_ms_max,
            lags=lags,
            subscriptions=tuple(
                SubscriptionInfo(self._name_of(one), one.filter) for one in subscriptions
            ),
            next_after=next_after,
            description=group.description,
            is_paused=group.is_paused,
            version=group.version,
            retry_delays_ms=group.retry_delays_ms,
            retry_jitter_percent=group.retry_jitter_percent,
            start_ms=group.start_ms,
            in_flight_max=group.in_flight_max,
            per_second_max=group.per_second_max,
            order=group.order,
            keeps_expired=group.keeps_expired,
        )

    def _name_of(self, subscription: Subscription) -> str:
        topic = self._catalog.find_topic_by_id(subscription.topic_id)
        return "" if topic is None else topic.name

    # -- lags -------------------------------------------------------------------------------------

    def lags(self, after: LagPlace | None) -> LagsPart:
        """See EnginePort."""
        name, topic_id = ("", NO_TOPIC) if after is None else after
        group = self._catalog.find_group(name) if topic_id else None
        found, work = list[tuple[str, GroupLagInfo]](), 0
        while work < LAG_QUEUES_AT_ONCE:
            if group is None:
                behind = self._catalog.groups_after(name, 1)
                if not behind:
                    return LagsPart(found, None)
                (group,), topic_id = behind, NO_TOPIC
                name = group.name
            work += 1
            for one in self._catalog.subscriptions_of(group.group_id, topic_id, LAG_QUEUES_AT_ONCE):
                if work >= LAG_QUEUES_AT_ONCE:
                    break
                work += self._queue_count(one)
                found.append((name, self._lag(one)))
                topic_id = one.topic_id
            else:
                group, topic_id = None, NO_TOPIC
        return LagsPart(found, LagPlace(name, topic_id))

    def _queue_count(self, subscription: Subscription) -> int:
        """Queues that its lag is counted in: the topic's, and that of the retries."""
        topic = self._catalog.find_topic_by_id(subscription.topic_id)
        return 1 + (0 if topic is None else topic.queue_count)

    def _lag(self, subscription: Subscription) -> GroupLagInfo:
        views, receiver = self._shard.views, self._receiver
        unresolved = leased = damaged = oldest_ms = 0
        for number in receiver.queues_of(subscription.group_id, subscription.topic_id):
            bounds = views.queues.bounds(number)
            if bounds[0] == bounds[1]:
                continue
            group_queue = GroupQueue(subscription.group_id, number)
            window = views.acks.find(*group_queue) or _UNTOUCHED
            passed = receiver.filtered_ranges.count_unresolved(group_queue, window)
            messages, waiting = receiver.leases.count_unresolved(
                group_queue, window, bounds, passed
            )
            damaged += receiver.leases.withheld_count(group_queue, window, bounds)
            leased += messages
            unresolved += messages + waiting
            if messages + waiting:
                at = receiver.filtered_ranges.first_unresolved(group_queue, window, bounds[0])
                for unit in views.queues.get(number).read(at, 1):
                    visible_ms = int(max(unit["due_ms"], unit["store_ms"]))
                    oldest_ms = min(oldest_ms or visible_ms, visible_ms)
        name = self._name_of(subscription)
        blocked_count, blocked = self._blocked(subscription)
        return GroupLagInfo(
            topic=name,
            unresolved_count=unresolved,
            leased_count=leased,
            damaged_count=damaged,
            oldest_ms=oldest_ms,
            blocked_count=blocked_count,
            blocked_ids=blocked,
        )

    def _blocked(self, subscription: Subscription) -> tuple[int, tuple[MessageId, ...]]:
        """How many messages block their keys, and the ids of the first of them."""
        ids, count = list[MessageId](), 0
        for number in self._receiver.queues_of(subscription.group_id, subscription.topic_id):
            window = self._shard.views.acks.find(subscription.group_id, number) or _UNTOUCHED
            held = window.held.items()
            blocked = sorted(at for at, one in held if one.until_ms >= BLOCKED_MS)
            count += len(blocked)
            ids += held_ids(self._shard, number, blocked[: BLOCKED_LISTED - len(ids)])
        return count, tuple(ids)
