"""Topics that publishing made and nobody uses: found in slices, and deleted one at a time.

A topic is unused if no command made it (`Topic.automatic`), no group receives from it, its queues
are empty, nothing that was published to it is pending, and nobody has published to it for
`topic_idle_ms`. So nothing is lost with it: whoever publishes to it again, makes it again.

No index says what is pending by topic, for it would cost something with each message. So the wheel
is read, a slice a second, for all topics that may go together: mark and sweep. What is published
to one of them meanwhile is a use, and keeps it.
"""

import asyncio
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import numpy as np

from hourwheel.errors import HourwheelError, Internal
from hourwheel.types import DUE_MS_MAX, QUEUE_BITS, SEQUENCE_MAX, Key, topic_queue
from node.catalog.name_uses import NameUses
from node.catalog.service import Configurator, DefaultsConfig
from node.shard.shard import Shard
from node.telemetry import logs
from node.telemetry.stats import EngineStats
from storage.views.catalog_items import Topic
from timewheel.range_scan import RangeScan

_log = logs.get(__name__)

_LOOKED_AT_ONCE: Final = 64
_QUEUES_AT_ONCE: Final = 256
UNITS_AT_ONCE: Final = 16_384
"""Of the wheel, a MiB: some milliseconds. A hundred million are read in two hours."""
_REST_MS_MAX: Final = 3_600_000
_TO: Final = Key(DUE_MS_MAX, SEQUENCE_MAX)


class TopicExpiry:
    """Looks for unused topics while this node is the master.

    Invariant: no topic is proposed for deletion while a publish to it is under way, nor while
    something is not applied that was appended for it, nor while something of it is pending.
    """

    def __init__(
        self,
        shard: Shard,
        configurator: Configurator,
        defaults: DefaultsConfig,
        stats: EngineStats,
        fail: Callable[[HourwheelError], None],
        are_some_waiting: Callable[[], bool],
    ) -> None:
        """`fail` is told of what must stop the node.

        `are_some_waiting`: whether messages were taken that are not appended yet.
        """
        self._shard, self._configurator, self._stats = shard, configurator, stats
        self._fail, self._are_some_waiting = fail, are_some_waiting
        # A topic that would not be made again is kept.
        self._idle_ms = defaults.topic_idle_ms if defaults.topics_auto_create else 0
        self._now_ms = 0
        self._uses = NameUses()
        self._rounds = self._go_round()
        self._keep_until_ms: dict[int, int] = {}
        """Topic -> latest due time of what a round found pending: not to be looked for before."""
        self._task: asyncio.Task[None] | None = None

    def begin(self, now_ms: int) -> None:
        """This node is the master from now on: it knows nothing of what was used before."""
        self._uses.begin(now_ms)
        self._rounds = self._go_round()

    def close(self) -> None:
        """Nothing is deleted any more."""
        if self._task is not None:
            self._task.cancel()

    def publishing(self, topic: Topic, now_ms: Callable[[], int]) -> AbstractContextManager[None]:
        """A publish to this topic, until it is answered."""
        return self._uses.using(topic.topic_id, now_ms) if topic.automatic else _NO_USE

    # -- finding ----------------------------------------------------------------------------------

    def look(self, now_ms: int) -> None:
        """Go on with the search for a bounded time; or have one deleted that was found unused.

        Raises:
            CorruptFile: a run of the wheel is damaged.
        """
        self._now_ms = now_ms
        if self._idle_ms and (self._task is None or self._task.done()):
            next(self._rounds)

    def _go_round(self) -> Iterator[None]:
        """Each step is one look."""
        while True:
            begun_ms = self._now_ms
            found = yield from self._find_idle()
            if found:
                yield from self._wait_for_apply()
                pending = yield from self._find_pending(found)
                kept = self._keep_until_ms.items()
                self._keep_until_ms = {one: ms for one, ms in kept if ms > begun_ms} | pending
                for topic_id in found:
                    if topic_id not in pending:
                        self._task = asyncio.get_running_loop().create_task(
                            self._expire(topic_id, begun_ms)
                        )
                        yield
            rested_ms = self._now_ms + min(self._idle_ms, _REST_MS_MAX)
            while self._now_ms < rested_ms:
                yield

    def _find_idle(self) -> Generator[None, None, list[int]]:
        """Topics that may go, if nothing of them is pending."""
        found: list[int] = []
        after, work = "", 0
        while topics := self._shard.views.catalog.topics_after(after, _LOOKED_AT_ONCE):
            for topic in topics:
                after = topic.name
                if not topic.automatic:
                    continue
                self._uses.saw(topic.topic_id)
                if not self._uses.is_idle(topic.topic_id, self._now_ms - self._idle_ms):
                    continue
                if self._keep_until_ms.get(topic.topic_id, 0) > self._now_ms:
                    continue
                work += topic.queue_count
                if self._is_empty(topic):
                    found.append(topic.topic_id)
                if work >= _QUEUES_AT_ONCE:
                    work = 0
                    break
            yield
        self._uses.turn_over()
        yield
        return found

    def _is_empty(self, topic: Topic) -> bool:
        """Whether nobody receives from it, and nobody could: nothing is retained."""
        views, topic_id = self._shard.views, topic.topic_id
        if views.catalog.subscriptions_to(topic_id):
            return False
        bounds = (views.queues.bounds(topic_queue(topic_id, at)) for at in range(topic.queue_count))
        return all(start == end for start, end in bounds)

    def _wait_for_apply(self) -> Iterator[None]:
        """What was taken before is in the views then: its callers may have gone meanwhile."""
        while self._are_some_waiting():
            yield
        end_offset = self._shard.log.end_offset
        while self._shard.views.applied_offset < end_offset:
            yield

    def _find_pending(self, topics: list[int]) -> Generator[None, None, dict[int, int]]:
        """Of these topics those of which something is pending -> the latest due time of it."""
        views = self._shard.views
        scan = RangeScan(views.wheel, views.cursor.key, _TO)
        wanted = np.array(sorted(topics), np.uint32)
        pending: dict[int, int] = {}
        while not scan.is_done:
            for units in scan.step(UNITS_AT_ONCE):
                chosen = units[np.isin(units["topic_queue"] >> QUEUE_BITS, wanted)]
                sequences = np.ascontiguousarray(chosen["sequence"])
                chosen = chosen[~views.tombstones.contains(sequences)]
                for topic_id in np.unique(chosen["topic_queue"] >> QUEUE_BITS).tolist():
                    pending[topic_id] = int(chosen["due_ms"][-1])
            yield
        return pending

    # -- deleting ---------------------------------------------------------------------------------

    def _is_unused(self, topic: Topic, since_ms: int) -> bool:
        """Whether nothing has changed since it was found; the last look before the deletion."""
        used_ms = self._uses.last_ms(topic.topic_id)
        was_used = used_ms is None or used_ms >= since_ms
        return topic.automatic and not was_used and self._is_empty(topic)

    async def _expire(self, topic_id: int, since_ms: int) -> None:
        topic = self._shard.views.catalog.find_topic_by_id(topic_id)
        try:
            if await self._configurator.expire_topic(
                topic_id, lambda one: self._is_unused(one, since_ms)
            ):
                self._stats.topics_expired += 1
                _log.info("topic_expired", topic=topic.name if topic else "")
        except HourwheelError as error:  # not the master any more, or no room: another time
            _log.info("topic_expiry_failed", reason=str(error))
        except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
            self._fail(Internal(repr(error)))


_NO_USE: Final = nullcontext()
