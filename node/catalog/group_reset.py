"""A group begins anew in a topic, further back or further on, while it runs.

One CONFIG record does it: `reset_subscription`. This module finds where the window of each queue
begins and how many messages that concerns, and brings what the master has in memory of the group
in line with it:

    rows that wait for the next write   are appended first: they are about the former window
    leases, what was filtered           are forgotten as the record is appended
    receipts                            are stale from then on, by the record also for later masters
    polls                               get nothing of the topic until it is applied
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import SubscriptionReset
from hourwheel.types import GroupId, Position, TopicId, TopicQueue, topic_queue
from node.catalog.log_changes import Applied
from node.catalog.positions import check_positions, find_positions
from node.catalog.service import CatalogService
from node.catalog.serving import ServingConsumers
from node.contracts.group_positions import ResetInfo, ResetTarget
from node.shard.views import RESET_LEVEL
from storage.views.catalog_items import Group, Subscription, Topic
from storage.views.unit import release_ms


class _Plan(NamedTuple):
    subscription: Subscription
    queues: list[TopicQueue]
    """Of the topic, those of priorities too."""
    positions: list[Position]
    """Of each, where the group begins."""


class Resetter:
    """See EnginePort.reset_group. Of one mastership."""

    def __init__(
        self,
        serving: ServingConsumers,
        catalog_service: CatalogService,
        append_waiting: Callable[[], object],
        retention_ms: int,
        on_reset: Callable[[GroupId, TopicId], object],
    ) -> None:
        """Reset groups of the shard of a mastership.

        Args:
            serving: the mastership.
            catalog_service: changes what there is, one thing at a time.
            append_waiting: appends the rows that wait for the next write.
            retention_ms: for how long most topics retain what was released.
            on_reset: called with group and topic once the record is applied, or never will be.
        """
        self._serving, self._catalog_service = serving, catalog_service
        self._shard, self._receiver = serving.mastership.shard, serving.mastership.receiver
        self._append_waiting, self._retention_ms = append_waiting, retention_ms
        self._on_reset = on_reset

    async def reset(
        self, group: str, topic: str, target: ResetTarget, *, count_only: bool
    ) -> ResetInfo:
        """See EnginePort."""
        catalog = self._shard.views.catalog
        if self._shard.views.feature_level < RESET_LEVEL:
            raise errors.FeatureLevelTooLow(
                "a node of an earlier version is in the cluster, which knows no resets",
                level_min=RESET_LEVEL,
            )
        if count_only:
            plan = await self._plan(catalog.get_group(group), catalog.get_topic(topic), target)
            return self._info(plan)
        async with self._catalog_service.changing():
            found_group, found_topic = catalog.get_group(group), catalog.get_topic(topic)
            plan = await self._plan(found_group, found_topic, target)
            self._append_waiting()
            info, is_done = self._info(plan), self._propose(plan)
            if not await is_done:
                raise errors.Unavailable(
                    "the group or the topic was changed meanwhile", group=group, topic=topic
                )
        return info

    def _propose(self, plan: _Plan) -> Applied:
        """Append the record. Nothing is awaited between it and what was appended before it."""
        known, receiver = plan.subscription, self._receiver
        of = known.group_id, known.topic_id
        reset = SubscriptionReset(
            group_id=known.group_id,
            topic_id=known.topic_id,
            former_retry_topic_id=known.retry_topic_id,
            topic_queues=plan.queues,
            positions=plan.positions,
            receipts_epoch=receiver.epoch,
            receipts_lease_id=receiver.leases.last_id,
            reset_offset=self._shard.log.end_offset,
        )
        applied: Applied = self._catalog_service.reset_subscription(reset)
        receiver.forget(*of)
        receiver.resets.begin(*of)

        def end(_: Applied) -> None:
            receiver.resets.end(*of)
            self._on_reset(*of)

        applied.add_done_callback(end)
        return applied

    async def _plan(self, group: Group, topic: Topic, target: ResetTarget) -> _Plan:
        """Where the queues begin. Raises as EnginePort.reset_group."""
        views, names = self._shard.views, {"group": group.name, "topic": topic.name}
        known = views.catalog.find_subscription(group.group_id, topic.topic_id)
        if known is None or topic.internal:
            raise errors.FailedPrecondition(
                f"group {group.name!r} does not read topic {topic.name!r}, or that is the"
                " cluster's own",
                **names,
            )
        if self._receiver.resets.is_under_way(group.group_id, topic.topic_id):
            raise errors.Unavailable("the group is being reset there", **names)
        own = [TopicQueue(one) for one in views.queues_of(topic)][: topic.queue_count]
        if target.positions:
            check_positions(self._shard, own, target.positions)
            self._check_kept(own, target.positions)
        queues = views.queues_of(topic)
        from_ms = self._from_ms(topic, queues, own, target)
        if from_ms is None:
            found = [views.queues.bounds(one)[0] for one in queues]
        else:
            found = await find_positions(self._shard, queues, from_ms)
        if target.positions:
            found[: len(own)] = target.positions
        return _Plan(known, queues, found)

    def _from_ms(
        self,
        topic: Topic,
        queues: Sequence[TopicQueue],
        own: Sequence[TopicQueue],
        target: ResetTarget,
    ) -> int | None:
        """With what is released from when on it begins; None: with the first that is there."""
        now_ms = self._serving.now_ms()
        if target.positions:
            released = (
                self._released_ms(number, position)
                for number, position in zip(own, target.positions, strict=True)
            )
            return min((one for one in released if one is not None), default=now_ms)
        if target.from_ms is None:
            return None
        if target.from_ms > now_ms:
            raise errors.InvalidArgument("an instant in the future", field="to_ms")
        from_ms = target.from_ms or now_ms
        retained_ms = now_ms - (topic.retention_ms or self._retention_ms)
        for number in queues:
            start = self._shard.views.queues.bounds(number)[0]
            first_ms = self._released_ms(number, start)
            kept_ms = retained_ms if first_ms is None else min(first_ms, retained_ms)
            if start and from_ms < kept_ms:
                raise _not_retained(kept_ms if first_ms is None else first_ms)
        return from_ms

    def _check_kept(self, own: Sequence[TopicQueue], positions: Sequence[Position]) -> None:
        for number, position in zip(own, positions, strict=True):
            start = self._shard.views.queues.bounds(number)[0]
            if position < start:
                first_ms = self._released_ms(number, start)
                raise _not_retained(self._serving.now_ms() if first_ms is None else first_ms)

    def _released_ms(self, number: TopicQueue, position: Position) -> int | None:
        """When an entry could be seen first; None: there is none."""
        if position >= self._shard.views.queues.bounds(number)[1]:
            return None
        return int(release_ms(self._shard.views.queues.get(number).read(position, 1))[0])

    def _info(self, plan: _Plan) -> ResetInfo:
        views, group_id = self._shard.views, plan.subscription.group_id
        again = skipped = unresolved = 0
        for number, position in zip(plan.queues, plan.positions, strict=True):
            start, end = views.queues.bounds(number)
            window = views.acks.get(group_id, number)
            left = window.count_unresolved(position, end)
            unresolved += end - position
            again += end - position - left
            skipped += window.count_unresolved(start, position)
        retry_topic_id = plan.subscription.retry_topic_id
        retries = views.queues.priority_queues_of(retry_topic_id)
        dropped = sum(
            views.acks.get(group_id, number).count_unresolved(*views.queues.bounds(number))
            for number in (topic_queue(retry_topic_id, 0), *retries)
        )
        topic = errors.required(
            views.catalog.find_topic_by_id(plan.subscription.topic_id), "it was planned for"
        )
        return ResetInfo(again, skipped, dropped, unresolved, plan.positions[: topic.queue_count])


def _not_retained(earliest_ms: int) -> errors.NotRetained:
    return errors.NotRetained(
        f"the first of these messages that is retained was released at {earliest_ms} ms",
        earliest_ms=earliest_ms,
    )
