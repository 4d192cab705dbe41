"""Topics that publishing made, and that nobody would miss.

A topic is unused if no command made it (`Topic.automatic`), nobody has published to it for
`topic_idle_ms`, its queues are empty, none of its messages is pending or waits in an open
transaction, no recurrence publishes to it, and each group that receives from it is abandoned and
has no retry waiting (`unused_groups`). Then nothing goes with it: the next publish to it makes it
again.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from node.catalog.name_uses import NameUses
from node.catalog.quiet_queues import QuietQueues
from node.catalog.service import CatalogService
from node.catalog.unused_groups import SUBSCRIPTIONS_MAX, Unused, UnusedGroups
from node.shard.shard import Shard
from storage.views.catalog_items import Topic

_LOOKED_AT_ONCE: Final = 64
QUEUES_AT_ONCE: Final = 256


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
