"""AdminService: topics, groups, status."""

import asyncio
from collections.abc import Callable
from functools import partial

from hourwheel import errors, limits
from hourwheel.filter_language.wire import (
    filter_from_wire,
    filter_to_wire,
    gene_from_wire,
    gene_to_wire,
)
from hourwheel.formats import message_id
from hourwheel.outcomes import MessageState
from hourwheel.types import DISPATCH_TOPIC, QUEUE_COUNT_MAX, NodeId, Position, ShardId
from hourwheel.v1 import admin_pb2 as wire
from hourwheel.v1 import groups_pb2, members_pb2, pending_pb2
from node.access.control import AccessControl
from node.access.permissions import LOOK_AT_TOPIC, group_resource, topic_resource
from node.api import damage, dead_letters, pending
from node.api.calls import Context
from node.api.checks import (
    check_at_least,
    check_at_most,
    check_group,
    check_new_group,
    check_readable_topic,
    check_topic,
)
from node.api.group_settings import (
    group_settings,
    reset_target_of,
    settings_to_wire,
    unblocking_of,
)
from node.api.listing import Page, by_name
from node.api.quota_gate import QuotaGate
from node.api.status_answer import NodeIdentity, status_answer
from node.contracts.broker import (
    CatalogUpdate,
    EnginePort,
    GroupInfo,
    NewTopic,
    SubscriptionInfo,
    TopicInfo,
)
from node.contracts.cluster import ClusterPort
from node.contracts.dead_letters import DeadLettersInfo
from node.contracts.history import MessageInfo


class Admin:
    """Checks what comes in and hands it to the engine."""

    def __init__(
        self,
        engine: EnginePort,
        identity: NodeIdentity,
        cluster: ClusterPort,
        access: AccessControl,
        quotas: QuotaGate,
    ) -> None:
        """Of one node.

        Args:
            engine: does it.
            identity: of this node.
            cluster: which it is one of.
            access: what lists show.
            quotas: count what is moved.
        """
        self._quotas = quotas
        self._access = access
        self._engine = engine
        self._identity = identity
        self._cluster = cluster

    async def create_topic(
        self, request: wire.CreateTopicRequest, _context: Context
    ) -> wire.CreateTopicResponse:
        """Make a topic."""
        check_topic(request.name)
        queue_count = request.settings.queue_count or 1
        check_at_most("settings.queue_count", queue_count, QUEUE_COUNT_MAX)
        requested = request.settings
        gene = gene_from_wire(requested.gene) if requested.HasField("gene") else None
        wanted = NewTopic(gene, _retention(request))
        topic = await self._engine.create_topic(request.name, queue_count, wanted)
        return wire.CreateTopicResponse(topic=_topic(topic))

    async def delete_topic(
        self, request: wire.DeleteTopicRequest, _context: Context
    ) -> wire.DeleteTopicResponse:
        """Delete a topic; also dead letters of a group that was deleted."""
        check_readable_topic(request.name)
        await self._engine.delete_topic(request.name)
        return wire.DeleteTopicResponse()

    async def get_topic(
        self, request: wire.GetTopicRequest, _context: Context
    ) -> wire.GetTopicResponse:
        """One topic, internal ones included."""
        return wire.GetTopicResponse(topic=_topic(self._engine.topic(request.name)))

    async def list_topics(
        self, request: wire.ListTopicsRequest, _context: Context
    ) -> wire.ListTopicsResponse:
        """Topics, by name."""
        page = Page(request.page_size, request.page_token)
        ask = partial(self._engine.topics, include_internal=request.include_internal)
        topics = await by_name(page, ask, lambda topic: topic.name, _topic, self._shows_topic)
        return wire.ListTopicsResponse(topics=topics, next_page_token=page.next_token)

    async def put_group(
        self, request: wire.PutGroupRequest, _context: Context
    ) -> wire.PutGroupResponse:
        """Make a group, or change its settings."""
        check_new_group(request.name)
        group = await self._engine.put_group(request.name, group_settings(request.settings))
        return wire.PutGroupResponse(group=self._group(group))

    async def update_topic(
        self, request: wire.UpdateTopicRequest, _context: Context
    ) -> wire.UpdateTopicResponse:
        """Change what is given of a topic, or have dispatching pause."""
        if request.name != DISPATCH_TOPIC:
            check_topic(request.name)
        topic = await self._engine.update_topic(request.name, _update(request))
        return wire.UpdateTopicResponse(topic=_topic(topic))

    async def update_group(
        self, request: wire.UpdateGroupRequest, _context: Context
    ) -> wire.UpdateGroupResponse:
        """Change what is given of a group."""
        check_group(request.name)
        settings = group_settings(request.settings)
        group = await self._engine.update_group(request.name, _update(request), settings)
        return wire.UpdateGroupResponse(group=self._group(group))

    async def put_subscription(
        self, request: wire.PutSubscriptionRequest, _context: Context
    ) -> wire.PutSubscriptionResponse:
        """Subscribe a group to a topic, or change what it wants of it."""
        check_new_group(request.group)
        check_readable_topic(request.topic)
        found = await self._engine.put_subscription(
            request.group, request.topic, filter_from_wire(request.filter)
        )
        return wire.PutSubscriptionResponse(subscription=_subscription(found))

    async def delete_group(
        self, request: wire.DeleteGroupRequest, _context: Context
    ) -> wire.DeleteGroupResponse:
        """Forget a group."""
        check_group(request.name)
        await self._engine.delete_group(request.name)
        return wire.DeleteGroupResponse()

    async def get_group(
        self, request: wire.GetGroupRequest, _context: Context
    ) -> wire.GetGroupResponse:
        """One group, with its lags."""
        check_group(request.name)
        page = Page(request.page_size, request.page_token)
        group, at = wire.Group(), page.after_number
        while True:
            part = self._engine.group(request.name, at, page.room)
            made = self._group(part)
            page.add(len(made.subscriptions), made.ByteSize())
            group.MergeFrom(made)
            at = part.next_after
            if not at or page.is_full:
                break
            await asyncio.sleep(0)
        if at:
            page.end(at)
        return wire.GetGroupResponse(group=group, next_page_token=page.next_token)

    async def list_groups(
        self, request: wire.ListGroupsRequest, _context: Context
    ) -> wire.ListGroupsResponse:
        """Groups, by name."""
        page = Page(request.page_size, request.page_token)
        groups = await by_name(
            page, self._engine.groups, lambda group: group.name, self._group, self._shows_group
        )
        return wire.ListGroupsResponse(groups=groups, next_page_token=page.next_token)

    def _shows_topic(self, name: str) -> bool:
        return not self._access.policy.is_on or self._access.may_look(topic_resource(name))

    def _shows_group(self, name: str) -> bool:
        return not self._access.policy.is_on or self._access.may_look(group_resource(name))

    def _group(self, group: GroupInfo) -> wire.Group:
        return _group(group, self._shows_topic, self._engine.now_ms())

    async def get_status(
        self, _request: wire.GetStatusRequest, _context: Context
    ) -> wire.GetStatusResponse:
        """The cluster, as far as this node knows it."""
        return status_answer(self._identity, self._engine, self._cluster.status())

    async def transfer_master(
        self, request: wire.TransferMasterRequest, _context: Context
    ) -> wire.TransferMasterResponse:
        """Make another node the master."""
        master, epoch = await self._cluster.transfer_master(
            ShardId(request.shard), NodeId(request.to_node_id)
        )
        return wire.TransferMasterResponse(master=master, epoch=epoch)

    async def list_members(
        self, _request: members_pb2.ListMembersRequest, _context: Context
    ) -> members_pb2.ListMembersResponse:
        """Who votes and has copies."""
        found = self._cluster.members()
        found.cluster_id = self._engine.cluster_id.hex()
        return found

    async def change_members(
        self, request: members_pb2.ChangeMembersRequest, _context: Context
    ) -> members_pb2.ChangeMembersResponse:
        """Change that."""
        add = {NodeId(one.node_id): one.control_address for one in request.add}
        if len(add) != len(request.add):
            raise errors.InvalidArgument("a node is added twice", field="add")
        expected = request.expected_generation if request.HasField("expected_generation") else None
        generation = await self._cluster.change_members(
            add, list(map(NodeId, request.remove_node_ids)), expected
        )
        return members_pb2.ChangeMembersResponse(generation=generation)

    async def list_pending(
        self, request: wire.ListPendingRequest, _context: Context
    ) -> wire.ListPendingResponse:
        """A page of what is scheduled."""
        return await pending.list_pending(self._engine, request)

    async def cancel_pending(
        self, request: pending_pb2.CancelPendingRequest, _context: Context
    ) -> pending_pb2.CancelPendingResponse:
        """Cancel a page of it."""
        return await pending.cancel_pending(self._engine, request)

    async def reschedule_pending(
        self, request: pending_pb2.ReschedulePendingRequest, _context: Context
    ) -> pending_pb2.ReschedulePendingResponse:
        """Move a page of it to another due time."""
        return await pending.reschedule_pending(self._engine, self._quotas, request)

    async def list_damaged(
        self, request: wire.ListDamagedRequest, _context: Context
    ) -> wire.ListDamagedResponse:
        """A page of what cannot be read."""
        return await damage.list_damaged(self._engine, self._access, request)

    async def discard_damaged(
        self, request: wire.DiscardDamagedRequest, _context: Context
    ) -> wire.DiscardDamagedResponse:
        """Give some of it up."""
        return await damage.discard_damaged(self._engine, self._access, request)

    async def skip(
        self, request: groups_pb2.SkipRequest, _context: Context
    ) -> groups_pb2.SkipResponse:
        """Let a group go on behind some messages."""
        self._access.check(LOOK_AT_TOPIC, request)
        check_group(request.group)
        check_readable_topic(request.topic)
        check_at_least("before_ms", request.before_ms, 0)
        check_at_most("the number of positions", len(request.positions), QUEUE_COUNT_MAX)
        if bool(request.before_ms) + bool(request.positions) + bool(request.message_ids) > 1:
            raise errors.InvalidArgument("give an instant, positions or ids", field="positions")
        if request.message_ids:
            unblocking = unblocking_of(request)
            count = await self._engine.unblock(request.group, request.topic, unblocking)
            return groups_pb2.SkipResponse(skipped_count=count)
        found = await self._engine.skip(
            request.group,
            request.topic,
            request.before_ms,
            list(map(Position, request.positions)),
        )
        return groups_pb2.SkipResponse(skipped_count=found.skipped_count, positions=found.positions)

    async def reset_group(
        self, request: groups_pb2.ResetGroupRequest, _context: Context
    ) -> groups_pb2.ResetGroupResponse:
        """Let a group begin anew in a topic."""
        self._access.check(LOOK_AT_TOPIC, request)
        check_group(request.group)
        check_readable_topic(request.topic)
        target = reset_target_of(request)
        found = await self._engine.reset_group(
            request.group, request.topic, target, count_only=request.count_only
        )
        return groups_pb2.ResetGroupResponse(**found._asdict())

    async def list_dead_letters(
        self, request: groups_pb2.ListDeadLettersRequest, _context: Context
    ) -> groups_pb2.ListDeadLettersResponse:
        """A page of a group's dead letters."""
        return await dead_letters.list_dead_letters(self._engine, self._access, request)

    async def redrive_dead_letters(
        self, request: groups_pb2.RedriveDeadLettersRequest, _context: Context
    ) -> groups_pb2.RedriveDeadLettersResponse:
        """Give some of them to the group again."""
        return await dead_letters.redrive_dead_letters(self._engine, self._access, request)

    async def describe_wheel(
        self, request: wire.DescribeWheelRequest, _context: Context
    ) -> wire.DescribeWheelResponse:
        """How many messages are due when."""
        found = await self._engine.describe_wheel(request.bounds_ms)
        return wire.DescribeWheelResponse(
            counts=found.counts.tolist(),
            are_estimates=(~found.are_exact).tolist(),
            earlier_count=found.earlier_count,
            later_count=found.later_count,
            pending_count=found.pending_count,
            cancelled_count=found.cancelled_count,
            clock_ms=found.now_ms,
        )

    async def describe_message(
        self, request: wire.DescribeMessageRequest, _context: Context
    ) -> wire.DescribeMessageResponse:
        """What is known of one message."""
        parsed = message_id.parse(request.message_id)
        found = self._engine.describe(parsed)
        is_past = found.state in {MessageState.RELEASED, MessageState.CANCELLED}
        if is_past and not await self._engine.is_shown(parsed):
            found = MessageInfo(MessageState.EXPIRED, parsed.due_ms)
        dead = DeadLettersInfo()
        if found.state in {MessageState.RELEASED, MessageState.EXPIRED}:
            dead = await self._engine.dead_letters(parsed)
        return wire.DescribeMessageResponse(
            message_id=request.message_id,
            state=wire.MessageState.Name(found.state),
            due_ms=found.due_ms,
            is_damaged=found.is_damaged,
            dead_letters=[
                wire.DeadLetter(
                    group=letter.group,
                    topic=letter.topic,
                    attempts=letter.attempts,
                    reason=groups_pb2.DeadLetterReason.Name(letter.reason),
                )
                for letter in dead.letters
                if self._shows_group(letter.group)
            ],
            dead_letter_search_is_complete=dead.is_complete,
        )


def _update(request: wire.UpdateTopicRequest | wire.UpdateGroupRequest) -> CatalogUpdate:
    size = len(request.description.encode())
    check_at_most("description", size, limits.DESCRIPTION_BYTES_MAX)
    tolerance_ms: int | None = None
    retention_ms: int | None = None
    if isinstance(request, wire.UpdateTopicRequest):
        if request.HasField("dispatch_tolerance_ms"):
            tolerance_ms = request.dispatch_tolerance_ms
            check_at_most("dispatch_tolerance_ms", tolerance_ms, limits.DISPATCH_TOLERANCE_MS_MAX)
        retention_ms = _retention(request)
    return CatalogUpdate(
        request.description if request.HasField("description") else None,
        request.is_paused if request.HasField("is_paused") else None,
        request.expected_version if request.HasField("expected_version") else None,
        tolerance_ms,
        retention_ms,
    )


def _retention(request: wire.CreateTopicRequest | wire.UpdateTopicRequest) -> int | None:
    """None: it is not given. Raises InvalidArgument."""
    if not request.HasField("retention_ms"):
        return None
    found = request.retention_ms
    least_ms, most_ms = limits.RETENTION_MS_MIN, limits.RETENTION_MS_MAX
    if found and not least_ms <= found <= most_ms:
        raise errors.InvalidArgument(
            f"retention_ms is 0, or {least_ms} to {most_ms}", field="retention_ms"
        )
    return found


def _topic(topic: TopicInfo) -> wire.Topic:
    gene = None if topic.is_internal else gene_to_wire(topic.gene)
    return wire.Topic(
        name=topic.name,
        settings=wire.TopicSettings(queue_count=topic.queue_count, gene=gene),
        released_count=topic.released_count,
        description=topic.description,
        is_paused=topic.is_paused,
        version=topic.version,
        dispatch_tolerance_ms=topic.dispatch_tolerance_ms,
        retention_ms=topic.retention_ms,
    )


def _group(group: GroupInfo, is_shown: Callable[[str], bool], now_ms: int) -> wire.Group:
    """A group, with its topics that are shown."""
    return wire.Group(
        name=group.name,
        settings=settings_to_wire(group),
        lags=[
            groups_pb2.GroupLag(
                topic=lag.topic,
                unresolved_count=lag.unresolved_count,
                leased_count=lag.leased_count,
                damaged_count=lag.damaged_count,
                oldest_age_ms=lag.age_ms(now_ms),
                blocked_count=lag.blocked_count,
                blocked_message_ids=map(str, lag.blocked_ids),
            )
            for lag in group.lags
            if is_shown(lag.topic)
        ],
        subscriptions=[_subscription(one) for one in group.subscriptions if is_shown(one.topic)],
        description=group.description,
        is_paused=group.is_paused,
        version=group.version,
    )


def _subscription(found: SubscriptionInfo) -> wire.GroupSubscription:
    wanted = None if found.filter is None else filter_to_wire(found.filter)
    return wire.GroupSubscription(topic=found.topic, filter=wanted)
