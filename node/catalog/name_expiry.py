"""Unused names, of groups and of topics: looked for in rounds, deleted one at a time.

A round has steps, one a second:

    find     groups and topics of which nothing would be missed, if nothing of them is pending
    wait     until all that was taken before is applied
    read     the wheel, for all of them together, if it has to be known what is pending
    delete   those of which nothing is, and which were not used since the round began
    rest     an hour, at most

No index says what is pending by topic, for it would cost something with each message. What is
published to one of them, or given back to it, while the wheel is read is a use, and keeps it.
"""

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import Final

import numpy as np

from hourwheel.errors import HourwheelError, Internal
from hourwheel.types import DUE_MS_MAX, QUEUE_BITS, SEQUENCE_MAX, Key, TopicId, TopicQueue, topic_of
from node.catalog.broadcast_members import BroadcastMembers
from node.catalog.changes import DefaultsConfig
from node.catalog.name_uses import Use
from node.catalog.quiet_queues import QuietQueues
from node.catalog.service import CatalogService
from node.catalog.serving import Serving
from node.catalog.unused_names import Unused, UnusedGroups, UnusedTopics
from node.telemetry import logs
from node.telemetry.stats import EngineStats
from storage.views.catalog_items import Group, Topic
from timewheel.range_scan import RangeScan

_log = logs.get(__name__)

UNITS_AT_ONCE: Final = 16_384
"""Of the wheel, a MiB: some milliseconds. A hundred million are read in two hours."""
_REST_MS_MAX: Final = 3_600_000
_TO: Final = Key(DUE_MS_MAX, SEQUENCE_MAX)


class NameExpiry:
    """Looks for unused names while this node is the master.

    Invariant: no name is proposed for deletion while a call that names it is under way, nor while
    something of it is pending or retained that somebody could get.
    """

    def __init__(
        self,
        serving: Serving,
        catalog_service: CatalogService,
        defaults: DefaultsConfig,
        *,
        retention_ms: int,
        are_some_waiting: Callable[[], bool],
    ) -> None:
        """Nothing is known of what was used before this mastership.

        `retention_ms`: how long what is released is retained of topics that do not say themselves.
        `are_some_waiting`: whether messages were taken that are not appended yet.
        """
        mastership, now_ms = serving.mastership, serving.now_ms()
        shard = self._shard = mastership.shard
        self._stats, self._fail = serving.stats, serving.fail
        self._are_some_waiting, self._retention_ms = are_some_waiting, retention_ms
        self._quiet = QuietQueues(shard.views.queues, self._retention_of)
        # What would not be made again is kept.
        group_idle_ms = defaults.group_idle_ms if defaults.groups_auto_create else 0
        topic_idle_ms = defaults.topic_idle_ms if defaults.topics_auto_create else 0
        self._groups = UnusedGroups(mastership, catalog_service, self._quiet, group_idle_ms, now_ms)
        self._topics = UnusedTopics(
            shard, catalog_service, self._quiet, self._groups, topic_idle_ms, now_ms
        )
        self.members = BroadcastMembers(serving, catalog_service, defaults)
        self._rest_ms = min(group_idle_ms or topic_idle_ms, topic_idle_ms or group_idle_ms)
        self._now_ms = 0
        self._rounds = self._go_round()
        self._keep_until_ms: dict[TopicId, int] = {}
        """Topic -> latest due time of what a round found pending: not to be looked for before."""
        self._task: asyncio.Task[None] | None = None

    def _retention_of(self, topic_queue: TopicQueue) -> int:
        own = self._shard.views.catalog.retentions_ms
        return own.get(topic_of(topic_queue), self._retention_ms)

    def close(self, error: HourwheelError) -> None:
        """Nothing is deleted any more."""
        self.members.close(error)
        if self._task is not None:
            self._task.cancel()

    def using(self, group: Group, now_ms: Callable[[], int]) -> Use:
        """A call that names this group."""
        of = self.members if group.is_member else self._groups
        return of.using(group.group_id, now_ms)

    def publishing(self, topic: Topic, now_ms: Callable[[], int]) -> AbstractContextManager[None]:
        """A publish to this topic, until it is answered."""
        return self._topics.publishing(topic, now_ms)

    def look(self, now_ms: int) -> None:
        """Take a step of a round, which takes some milliseconds at most.

        Raises:
            CorruptFile: a run of the wheel is damaged.
        """
        self._now_ms = now_ms
        self.members.look(now_ms)
        if self._rest_ms and (self._task is None or self._task.done()):
            next(self._rounds)

    def _go_round(self) -> Iterator[None]:
        """Each step is one look."""
        while True:
            begun_ms = self._now_ms
            groups = yield from self._groups.find(self._time)
            topics = yield from self._topics.find(self._time)
            self._quiet.turn_over()
            yield
            found = [one for one in (*groups, *topics) if not self._is_kept(one)]
            if found:
                yield from self._wait_for_apply()
                doubtful = {topic_id for one in found for topic_id in one.topics}
                pending = yield from self._find_pending(doubtful)
                kept = self._keep_until_ms.items()
                self._keep_until_ms = {one: ms for one, ms in kept if ms > begun_ms} | pending
                for one in found:
                    if pending.keys().isdisjoint(one.topics):
                        loop = asyncio.get_running_loop()
                        self._task = loop.create_task(self._expire(one, begun_ms))
                        yield
            rested_ms = self._now_ms + min(self._rest_ms, _REST_MS_MAX)
            while self._now_ms < rested_ms:
                yield

    def _time(self) -> int:
        """Of this look."""
        return self._now_ms

    def _is_kept(self, found: Unused) -> bool:
        """Whether what was found pending of it is so still, unless it was taken back."""
        until_ms = (self._keep_until_ms.get(one, 0) for one in found.topics)
        return max(until_ms, default=0) > self._now_ms

    def _wait_for_apply(self) -> Iterator[None]:
        """What was taken before is in the views then: its callers may have gone meanwhile."""
        while self._are_some_waiting():
            yield
        end_offset = self._shard.log.end_offset
        while self._shard.views.applied_offset < end_offset:
            yield

    def _find_pending(self, topics: set[TopicId]) -> Generator[None, None, dict[TopicId, int]]:
        """Of these topics those of which something is pending -> the latest due time of it."""
        if not topics:
            return {}
        views = self._shard.views
        scan = RangeScan(views.wheel, views.cursor.key, _TO)
        wanted = np.array(sorted(topics), np.uint32)
        pending: dict[TopicId, int] = {}
        while not scan.is_done:
            for units in scan.step(UNITS_AT_ONCE):
                chosen = units[np.isin(units["topic_queue"] >> QUEUE_BITS, wanted)]
                chosen = chosen[views.are_live(chosen)]
                numbers = chosen["topic_queue"] >> QUEUE_BITS
                for topic_id in map(TopicId, np.unique(numbers).tolist()):
                    latest_ms = int(chosen["due_ms"][numbers == topic_id].max())
                    pending[topic_id] = max(pending.get(topic_id, 0), latest_ms)
            yield
        return pending

    async def _expire(self, found: Unused, since_ms: int) -> None:
        try:
            if await found.expire(since_ms, self._time):
                _count(self._stats, found)
        except HourwheelError as error:  # not the master any more, or no room: another time
            _log.info("name_expiry_failed", kind=found.kind, name=found.name, reason=str(error))
        except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
            self._fail(Internal(repr(error)))


def _count(stats: EngineStats, expired: Unused) -> None:
    if expired.kind == "group":
        stats.groups_expired += 1
        _log.info("group_expired", group=expired.name)
    else:
        stats.topics_expired += 1
        _log.info("topic_expired", topic=expired.name)
