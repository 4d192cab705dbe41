"""Where a group goes on in a topic: by time, or by position; what stands before it is skipped.

What is skipped is resolved for the group, as by an acknowledgement. The window only grows by it: so
a lease of a skipped message counts no more. To go back see node/catalog/group_reset.py.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.joined_rows import join_rows
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.record_batch import RESOLVE_ROW
from hourwheel.types import FIRST_POSITION, GroupId, Position, TopicQueue, topic_of
from node.catalog.serving import ServingConsumers
from node.contracts.group_positions import SkippedInfo, UnblockAction, Unblocking
from node.delivery.resolve_rows import dead_rows, freed_rows, skipped_rows
from node.shard.group_queue import GroupQueue
from node.shard.shard import Shard
from node.shard.views import REDRIVE_LEVEL
from storage.views.catalog_items import START_NOW_MS, Group, Topic

_ROW_COUNT_MAX: Final = (1 << 32) - 1


async def find_positions(
    shard: Shard, queues: Sequence[TopicQueue], from_ms: int
) -> list[Position]:
    """Of each queue, where the first entry stands that is released at `from_ms` or later.

    Raises:
        Unavailable: their topic was deleted meanwhile, or the group was reset, which deletes that
            of its retries.
    """
    found: list[Position] = []
    for number in queues:
        at, is_found = FIRST_POSITION, False
        while not is_found:  # of a long queue a chunk at a time
            _check_there(shard, number)
            at, is_found = shard.views.queues.get(number).find_released(from_ms, at)
            await asyncio.sleep(0)
        found.append(at)
    for number in queues:
        _check_there(shard, number)
    return found


def _check_there(shard: Shard, number: TopicQueue) -> None:
    """Raises Unavailable where a queue went with its topic: its files do, too."""
    if shard.views.catalog.find_topic_by_id(topic_of(number)) is None:
        raise errors.Unavailable("a topic was deleted or a group reset meanwhile; try again")


def rows_before(
    shard: Shard, group_id: GroupId, queues: Sequence[TopicQueue], positions: Sequence[Position]
) -> NDArray[np.void]:
    """Rows that skip what stands before a position of each queue and is not resolved."""
    rows = []
    for number, position in zip(queues, positions, strict=True):
        group_queue = GroupQueue.of(group_id, number)
        window = shard.views.acks.find(*group_queue)
        first = shard.views.queues.bounds(number)[0]
        first = first if window is None else window.first_unresolved(first)
        cuts = [*range(first, position, _ROW_COUNT_MAX), position]
        ranges = [(low, high) for low, high in pairwise(cuts) if low < high]
        rows.append(skipped_rows(group_queue, ranges))
    return join_rows(rows)


async def rows_to_start(shard: Shard, group: Group, topic: Topic, now_ms: int) -> NDArray[np.void]:
    """Rows that skip what stands before where the group's new subscriptions begin.

    A group that begins "now" begins at first with a topic that is younger than that: consumers of a
    pattern find such a topic a while after its first messages.
    """
    is_there = shard.views.catalog.find_topic_by_id(topic.topic_id) is not None
    is_now = group.start_ms == START_NOW_MS
    if not group.start_ms or not is_there or (is_now and group.is_older_than(topic)):
        return np.empty(0, RESOLVE_ROW)
    queues = shard.views.queues_of(topic)
    from_ms = now_ms if is_now else group.start_ms
    places = await find_positions(shard, queues, from_ms)
    return rows_before(shard, group.group_id, queues, places)


def check_level(shard: Shard) -> None:
    """Raises FailedPrecondition where a node does not know what to skip means."""
    if shard.views.feature_level < REDRIVE_LEVEL:
        raise errors.FailedPrecondition(
            "a node of an earlier version is in the cluster, which knows no positions of groups"
        )


def check_start(shard: Shard, start_ms: int, now_ms: int) -> None:
    """Whether new subscriptions of a group may begin at an instant.

    What stands before it is skipped when a subscription is made: what is released between the two
    the group would get all the same.

    Raises:
        InvalidArgument: it is in the future.
        FailedPrecondition: as `check_level`.
    """
    check_level(shard)
    if start_ms > now_ms:
        raise errors.InvalidArgument(
            "settings.start_ms is in the future", field="settings.start_ms"
        )


def check_positions(shard: Shard, own: Sequence[TopicQueue], positions: Sequence[Position]) -> None:
    """Raises InvalidArgument: not one for each of a topic's queues, or one behind its end."""
    if len(positions) != len(own):
        raise errors.InvalidArgument(
            f"the topic has {len(own)} queues, and {len(positions)} positions are given",
            field="positions",
        )
    for number, position in zip(own, positions, strict=True):
        end = shard.views.queues.bounds(number)[1]
        if position > end:
            raise errors.InvalidArgument(
                f"position {position} is behind the end of its queue, {end}", field="positions"
            )


_ROWS_OF: Final = {
    UnblockAction.RETRY: freed_rows,
    UnblockAction.SKIP: skipped_rows,
    UnblockAction.DEAD_LETTER: dead_rows,
}


def held_ids(shard: Shard, number: TopicQueue, positions: list[Position]) -> list[MessageId]:
    """The ids of the messages at these positions of a queue."""
    if not positions:
        return []
    sequences = shard.views.queues.get(number).pick(np.array(positions, np.int64))["sequence"]
    due_ms = shard.views.sequences.read_many(sequences)[0].tolist()
    epochs = shard.views.epochs_of(sequences).tolist()
    return [
        MessageId(shard.shard_id, *one)
        for one in zip(epochs, sequences.tolist(), due_ms, strict=True)
    ]


class Skipper:
    """See EnginePort.skip."""

    def __init__(self, serving: ServingConsumers) -> None:
        """Of the shard of a mastership."""
        self._serving, self._shard = serving, serving.mastership.shard

    async def skip(
        self, group: str, topic: str, before_ms: int, positions: Sequence[Position]
    ) -> SkippedInfo:
        """See EnginePort."""
        catalog, shard = self._shard.views.catalog, self._shard
        found_group, found_topic = catalog.get_group(group), catalog.get_topic(topic)
        check_level(shard)
        queues = self._queues_read(found_group, found_topic)
        own = self._shard.views.queues_of(found_topic)
        if positions:
            # Those of priorities come behind the topic's own, and stay where nothing is said.
            queues = own[: found_topic.queue_count] if len(positions) < len(own) else own
            check_positions(self._shard, queues, positions)
        else:
            now_ms = self._serving.now_ms()
            if before_ms > now_ms:
                raise errors.InvalidArgument("before_ms is in the future", field="before_ms")
            positions = await find_positions(shard, queues, before_ms or now_ms)
        self._queues_read(found_group, found_topic)  # that took time: a reset may have begun
        rows = rows_before(shard, found_group.group_id, queues, positions)
        counts = await self._serving.propose_resolve(rows) if len(rows) else []
        places = dict(zip(queues, positions, strict=True))
        return SkippedInfo(sum(counts), [places[number] for number in own if number in places])

    async def unblock(self, group: str, topic: str, unblocking: Unblocking) -> int:
        """See EnginePort."""
        views, receiver = self._shard.views, self._serving.mastership.receiver
        found_group = views.catalog.get_group(group)
        queues = self._queues_read(found_group, views.catalog.get_topic(topic))
        if not found_group.is_ordered:
            raise errors.FailedPrecondition(f"group {group!r} is not ordered", group=group)
        wanted, chosen = set(unblocking.ids), list[tuple[GroupQueue, list[Position]]]()
        for number in queues:
            group_queue = GroupQueue(found_group.group_id, number)
            leased = receiver.leases.positions_of(group_queue)
            held = [one for one in sorted(views.acks.get(*group_queue).held) if one not in leased]
            ids = held_ids(self._shard, number, held)
            meant = [at for at, one in zip(held, ids, strict=True) if one in wanted]
            if meant:
                chosen.append((group_queue, meant))
        return await self._decide(chosen, unblocking.action) if chosen else 0

    def _queues_read(self, group: Group, topic: Topic) -> list[TopicQueue]:
        """Those of a group for a topic, of retries too.

        Raises:
            Unavailable: a reset is on its way.
            FailedPrecondition: there are none.
        """
        receiver, of = self._serving.mastership.receiver, (group.group_id, topic.topic_id)
        names = {"group": group.name, "topic": topic.name}
        if receiver.resets.is_under_way(*of):
            raise errors.Unavailable("the group is being reset there", **names)
        queues = receiver.queues_of(*of)
        if not queues:
            raise errors.FailedPrecondition(
                f"group {group.name!r} does not read topic {topic.name!r}", **names
            )
        return queues

    async def _decide(
        self, chosen: Sequence[tuple[GroupQueue, list[Position]]], action: UnblockAction
    ) -> int:
        """What becomes of held messages. None is delivered while that is being logged."""
        ordered = self._serving.mastership.receiver.ordered
        rows = [_ROWS_OF[action](one, [(at, at + 1) for at in meant]) for one, meant in chosen]
        proposed = self._serving.propose_resolve(join_rows(rows))
        kept_back = [ordered.keep_back(*one) for one in chosen]

        def offer(_: "asyncio.Future[Sequence[int]]") -> None:
            for lease in kept_back:
                ordered.offer(lease)
            self._serving.rearm()

        proposed.add_done_callback(offer)
        return sum(await asyncio.shield(proposed))  # it stays on its way where the caller goes away
