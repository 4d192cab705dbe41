"""Groups and topics that nothing would miss: receiving made the one, publishing the other.

A group is abandoned if no command made it (`Group.automatic`), no call has named it for
`group_idle_ms`, and it holds no lease. It is unused if it is abandoned and

    it has resolved nothing of what its topics' queues still hold
    no retry waits for it, in the queue of its retries or in the wheel
    it has no filter, and its topic of dead letters is empty
    no other group receives its retries or its dead letters

Then a new group of its name gets exactly what this one would get: the next Receive for it makes it
again. Trimmed entries reach no group any more, resolved or not.

A topic is unused if no command made it (`Topic.automatic`), no client has published to it for
`topic_idle_ms`, its queues are empty, none of its messages is pending or waits in an open
transaction, no recurrence publishes to it, and each group that receives from it is abandoned and
has no retry waiting. Then nothing goes with it: the next publish to it makes it again.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from hourwheel.types import GroupId, TopicId, TopicQueue, topic_of, topic_queue
from node.catalog.name_uses import NameUses, Use
from node.catalog.quiet_queues import QuietQueues
from node.catalog.service import CatalogService
from node.replica.mastership import Mastership
from node.shard.shard import Shard
from storage.views.catalog_items import Group, Subscription, Topic

_LOOKED_AT_ONCE: Final = 64
SUBSCRIPTIONS_MAX: Final = 16
"""A group with more is left alone, and so is a topic: looking at it would take long."""
WINDOWS_MAX: Final = 1_024
"""Likewise with more queues: a millisecond or two."""

QUEUES_AT_ONCE: Final = 256


@dataclass(frozen=True)
class Unused:
    """A group or a topic that may go."""

    kind: str
    name: str
    topics: tuple[TopicId, ...]
    """It goes only if nothing of these is pending."""
    expire: Callable[[int, Callable[[], int]], Awaitable[bool]]
    """`expire(since_ms, now_ms)` deletes it if it was not used since, and is unused still; whether
    it did."""


class UnusedGroups:
    """See the top of this file. `idle_ms` 0: none ever is."""

    def __init__(
        self,
        mastership: Mastership,
        catalog_service: CatalogService,
        quiet: QuietQueues,
        idle_ms: int,
        now_ms: int,
    ) -> None:
        """Look at the shard's groups from now on; `catalog_service` deletes them."""
        self._shard, self._leases = mastership.shard, mastership.receiver.leases
        self._configurator, self._quiet, self.idle_ms = catalog_service, quiet, idle_ms
        self._uses = NameUses()
        self._uses.begin(now_ms)

    def using(self, group_id: GroupId, now_ms: Callable[[], int]) -> Use:
        """A call that names this group."""
        return self._uses.using(group_id, now_ms)

    def find(self, now_ms: Callable[[], int]) -> Generator[None, None, list[Unused]]:
        """Groups that are unused if nothing waits for them in the wheel. Each step is one look."""
        found: list[Unused] = []
        after = ""
        while self.idle_ms and (
            groups := self._shard.views.catalog.groups_after(after, _LOOKED_AT_ONCE)
        ):
            for group in groups:
                after = group.name
                self._uses.saw(group.group_id)
                at_ms = now_ms()
                if self._is_abandoned(group, at_ms - self.idle_ms):
                    if self._is_unused(group, at_ms - self.idle_ms, at_ms):
                        found.append(self._candidate(group))
                    break  # one at a time: it takes a millisecond or two
            yield
        self._uses.turn_over()
        return found

    def _candidate(self, group: Group) -> Unused:
        def expire(since_ms: int, now_ms: Callable[[], int]) -> Awaitable[bool]:
            return self._configurator.expire_group(
                group.group_id, lambda one: self._is_unused(one, since_ms - 1, now_ms())
            )

        retries = self._shard.views.catalog.subscriptions_of(group.group_id)
        return Unused("group", group.name, tuple(one.retry_topic_id for one in retries), expire)

    # -- the rule ---------------------------------------------------------------------------------

    def _is_abandoned(self, group: Group, before_ms: int) -> bool:
        """Whether it was not used since `before_ms`, and never made on request."""
        return (
            group.automatic
            and self._uses.is_idle(group.group_id, before_ms)
            and not self._leases.has_any(group.group_id)
        )

    def _is_unused(self, group: Group, before_ms: int, now_ms: int) -> bool:
        if not self._is_abandoned(group, before_ms):
            return False
        catalog, letters = self._shard.views.catalog, group.dead_letter_topic_id
        subscriptions = catalog.subscriptions_of(group.group_id, count_max=SUBSCRIPTIONS_MAX + 1)
        if len(subscriptions) > SUBSCRIPTIONS_MAX:
            return False
        # All are looked at: for how long a queue is quiet counts from the first look at it.
        are_over = [self._quiet.is_over(topic_queue(letters, 0), now_ms)]
        are_over += [self._waits_for_nothing(one, now_ms) for one in subscriptions]
        return (
            all(are_over)
            and not catalog.subscriptions_to(letters)
            and not self._would_get_again(group, subscriptions)
        )

    def may_lose(self, subscription: Subscription, before_ms: int, now_ms: int) -> bool:
        """Whether its group would not miss it, if nothing is left in the topic and in the wheel."""
        group = self._shard.views.catalog.find_group_by_id(subscription.group_id)
        return (
            bool(self.idle_ms)
            and group is not None
            and self._is_abandoned(group, before_ms)
            and self._waits_for_nothing(subscription, now_ms)
        )

    def _waits_for_nothing(self, one: Subscription, now_ms: int) -> bool:
        """Whether there is no retry for it, and none that somebody else could get."""
        views, first = self._shard.views, topic_queue(one.retry_topic_id, 0)
        queues = [first, *views.queues.priority_queues_of(one.retry_topic_id)]
        # All are looked at: see `_is_unused`.
        are_over = [self._is_over(one.group_id, queue, now_ms) for queue in queues]
        return (
            one.filter is None
            and not views.catalog.subscriptions_to(one.retry_topic_id)
            and all(are_over)
        )

    def _is_over(self, group_id: GroupId, queue: TopicQueue, now_ms: int) -> bool:
        """Whether a group is done with a queue of its retries, or that has long been quiet."""
        start, end = self._shard.views.queues.bounds(queue)
        window = self._shard.views.acks.find(group_id, queue)
        resolved_end = start if window is None else window.first_unresolved(start)
        return resolved_end >= end or self._quiet.is_over(queue, now_ms)

    def _would_get_again(self, group: Group, subscriptions: list[Subscription]) -> bool:
        """Whether a new group of this name would get something that this one has resolved."""
        views = self._shard.views
        retries = {one.retry_topic_id for one in subscriptions}
        windows = views.acks.windows_of(group.group_id)
        if len(windows) > WINDOWS_MAX:
            return True
        return any(
            window.has_resolved(*views.queues.bounds(queue))
            for queue, window in windows
            if topic_of(queue) not in retries
        )


class UnusedTopics:
    """See the top of this file. `idle_ms` 0: none ever is."""

    def __init__(
        self,
        shard: Shard,
        catalog_service: CatalogService,
        quiet: QuietQueues,
        groups: UnusedGroups,
        idle_ms: int,
        now_ms: int,
    ) -> None:
        """Look at the shard's topics from now on; `catalog_service` deletes them."""
        self._shard, self._configurator, self._quiet = shard, catalog_service, quiet
        self._groups, self.idle_ms = groups, idle_ms
        self._uses = NameUses()
        self._uses.begin(now_ms)

    def publishing(self, topic: Topic, now_ms: Callable[[], int]) -> AbstractContextManager[None]:
        """A publish to this topic, until it is answered."""
        return self._uses.using(topic.topic_id, now_ms) if topic.automatic else _NO_USE

    def find(self, now_ms: Callable[[], int]) -> Generator[None, None, list[Unused]]:
        """Topics that are unused if nothing of them is pending. Each step is one look."""
        found: list[Unused] = []
        after, work = "", 0
        while self.idle_ms and (
            topics := self._shard.views.catalog.topics_after(after, _LOOKED_AT_ONCE)
        ):
            for topic in topics:
                after = topic.name
                if not topic.automatic:
                    continue
                self._uses.saw(topic.topic_id)
                at_ms = now_ms()
                if not self._uses.is_idle(topic.topic_id, at_ms - self.idle_ms):
                    continue
                work += topic.queue_count
                groups_before_ms = at_ms - self._groups.idle_ms
                if self._is_unused(topic, at_ms - self.idle_ms, groups_before_ms, at_ms):
                    found.append(self._candidate(topic))
                if work >= QUEUES_AT_ONCE:
                    work = 0
                    break
            yield
        self._uses.turn_over()
        return found

    def _candidate(self, topic: Topic) -> Unused:
        def expire(since_ms: int, now_ms: Callable[[], int]) -> Awaitable[bool]:
            return self._configurator.expire_topic(
                topic.topic_id,
                lambda one: self._is_unused(one, since_ms - 1, since_ms - 1, now_ms()),
            )

        receive = self._shard.views.catalog.subscriptions_to(topic.topic_id)
        retries = [one.retry_topic_id for one in receive]
        return Unused("topic", topic.name, (topic.topic_id, *retries), expire)

    def _is_unused(self, topic: Topic, before_ms: int, groups_before_ms: int, now_ms: int) -> bool:
        """See the top: but for what is pending. Not used since `before_ms`."""
        if not topic.automatic or not self._uses.is_idle(topic.topic_id, before_ms):
            return False
        views = self._shard.views
        if views.transactions.has_open_of(topic.topic_id):
            return False
        if views.recurrences.has_any_of(topic.name):
            return False
        subscriptions = views.catalog.subscriptions_to(topic.topic_id)
        if len(subscriptions) > SUBSCRIPTIONS_MAX:
            return False
        # All are looked at: for how long a queue is quiet counts from the first look at it.
        are_over = [self._quiet.is_over(queue, now_ms) for queue in views.queues_of(topic)]
        may_go = [self._groups.may_lose(one, groups_before_ms, now_ms) for one in subscriptions]
        return all(are_over) and all(may_go)


_NO_USE: Final = nullcontext()
