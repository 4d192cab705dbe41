"""The asyncio administrator: topics, groups, status, single messages."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Self, Unpack

from hourwheel import errors
from hourwheel.client import access, damage, members, wheel
from hourwheel.client.catalog import (
    DeadLetter,
    GroupChanges,
    GroupInfo,
    MessageDescription,
    Subscription,
    TopicInfo,
    group_of,
    group_settings,
    subscription_of,
    topic_of,
)
from hourwheel.client.changes import cancellation
from hourwheel.client.cluster_status import ClusterStatus, Mastership, cluster_status
from hourwheel.client.damage import DamagedMessage
from hourwheel.client.groups.dead_letters import DeadLetterAdmin
from hourwheel.client.groups.positions import SkipAdmin
from hourwheel.client.lookup import Lookups
from hourwheel.client.members import NO_NODES, Members
from hourwheel.client.pending import PendingAdmin
from hourwheel.client.recurring.recurrences import RecurrenceAdmin
from hourwheel.client.wheel import WheelDescription
from hourwheel.filter_language.inputs import as_filter
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_to_wire, gene_to_wire
from hourwheel.formats import message_id
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.tag_gene import GeneSpec
from hourwheel.instants import check_count
from hourwheel.limits import LIST_PAGE_SIZE_MAX, RETENTION_MS_MAX
from hourwheel.outcomes import CancelOutcome, DeadLetterReason, MessageState
from hourwheel.transport.access import Tls, Token
from hourwheel.transport.channel import SERVER_DEFAULT, Channel
from hourwheel.transport.endpoints import Servers
from hourwheel.transport.methods import (
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_MESSAGE,
    GET_GROUP,
    GET_STATUS,
    GET_TOPIC,
    LIST_GROUPS,
    LIST_TOPICS,
    PUT_GROUP,
    PUT_SUBSCRIPTION,
    TRANSFER_MASTER,
    UPDATE_GROUP,
    UPDATE_TOPIC,
    Method,
)
from hourwheel.transport.pages import pages_of
from hourwheel.v1 import admin_pb2


class AsyncAdmin(DeadLetterAdmin, Lookups, PendingAdmin, RecurrenceAdmin, SkipAdmin):
    """Sets a cluster up and asks what it does.

        async with AsyncAdmin("127.0.0.1:7400") as admin:
            await admin.create_topic("orders", queue_count=4)

    All methods raise `HourwheelError`s. Belongs to one event loop.
    """

    def __init__(
        self,
        server: Servers | Channel = SERVER_DEFAULT,
        *,
        tls: Tls | bool | None = None,
        token: Token | None = None,
        user: tuple[str, str] | None = None,
    ) -> None:
        """Prepare; it connects when it is first used.

        Args:
            server: see `Channel`; or a channel to be shared (and closed) by the caller.
            tls: see `Channel`.
            token: see `Channel`.
            user: see `Channel`.
        """
        self._owns_channel = not isinstance(server, Channel)
        self._channel = (
            server
            if isinstance(server, Channel)
            else Channel(server, tls=tls, token=token, user=user)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        if self._owns_channel:
            await self._channel.close()

    # --- topics ---------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        queue_count: int = 0,
        gene: GeneSpec | None = None,
        retention_ms: int | None = None,
    ) -> TopicInfo:
        """Create a topic; one that exists with the same settings is fine.

        Args:
            name: 1-127 characters of [A-Za-z0-9_-.|].
            queue_count: 1 to 256; 0 for the default.
            gene: how its index describes messages; it cannot be changed later. None: the default.
            retention_ms: how long what was released stays; 0: as `log.retention_ms` says. None: so,
                or as what there is has it.

        Raises:
            InvalidArgument: a number that is negative, out of range or no whole number.
            AlreadyExists: with other settings.
            FeatureLevelTooLow: a retention, and some node is of an earlier version. One that does
                not know the field has made the topic without it.
        """
        check_count(queue_count, "queue_count")
        check_count(retention_ms or 0, "retention_ms", at_most=RETENTION_MS_MAX)
        wire_gene = None if gene is None else gene_to_wire(gene)
        settings = admin_pb2.TopicSettings(queue_count=queue_count, gene=wire_gene)
        answer = await self._channel.call(
            CREATE_TOPIC,
            admin_pb2.CreateTopicRequest(name=name, settings=settings, retention_ms=retention_ms),
        )
        topic = topic_of(answer.topic)
        if retention_ms not in {None, topic.retention_ms}:
            raise errors.FeatureLevelTooLow(
                "the master is of an earlier version, and made the topic without its retention"
            )
        return topic

    async def update_topic(
        self,
        name: str,
        *,
        description: str | None = None,
        is_paused: bool | None = None,
        dispatch_tolerance_ms: int | None = None,
        retention_ms: int | None = None,
        expected_version: int | None = None,
    ) -> TopicInfo:
        """Change what is given of a topic.

        Args:
            name: the topic.
            description: for people, at most 256 bytes.
            is_paused: whether publishing to it is refused; what is scheduled is delivered.
            dispatch_tolerance_ms: what falls due at one time is shown over so long at most.
            retention_ms: how long what was released stays; 0: as `log.retention_ms` says.
            expected_version: change nothing unless the topic has it.

        Raises:
            InvalidArgument: a tolerance or a retention out of range.
            FeatureLevelTooLow: a retention, and some node is of an earlier version.
            UnknownTopic, FailedPrecondition: there is none, or it has another version.
            Timeout: it is unknown whether it was changed.
        """
        check_count(dispatch_tolerance_ms or 0, "dispatch_tolerance_ms")
        check_count(retention_ms or 0, "retention_ms", at_most=RETENTION_MS_MAX)
        numbers = {"dispatch_tolerance_ms": dispatch_tolerance_ms, "retention_ms": retention_ms}
        numbers |= {"is_paused": is_paused, "expected_version": expected_version}
        request = admin_pb2.UpdateTopicRequest(name=name, description=description)
        for field, value in numbers.items():
            if value is not None:
                setattr(request, field, value)
        return topic_of((await self._channel.call(UPDATE_TOPIC, request)).topic)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and what is in it: pending messages are discarded.

        Raises:
            UnknownTopic: there is none.
            Timeout: it is unknown whether it was deleted.
        """
        await self._channel.call(DELETE_TOPIC, admin_pb2.DeleteTopicRequest(name=name))

    async def get_topic(self, name: str) -> TopicInfo:
        """One topic. Raises `UnknownTopic`."""
        answer = await self._channel.call(GET_TOPIC, admin_pb2.GetTopicRequest(name=name))
        return topic_of(answer.topic)

    async def topics(
        self, *, include_internal: bool = False, page_size: int = LIST_PAGE_SIZE_MAX
    ) -> list[TopicInfo]:
        """All topics, by name.

        Args:
            include_internal: those for retries and dead letters, too.
            page_size: how many are fetched at once, 1 to 1,000: a thousand take the caller's event
                loop some milliseconds.

        Raises:
            InvalidArgument: `page_size` is less than 1, or no whole number.
        """
        check_count(page_size, "page_size", at_least=1)
        request = admin_pb2.ListTopicsRequest(include_internal=include_internal)
        pages = self._pages(LIST_TOPICS, request, page_size)
        return [topic_of(topic) async for page in pages for topic in page.topics]

    async def _pages(
        self, method: Method[Any, Any], request: Any, page_size: int = LIST_PAGE_SIZE_MAX
    ) -> AsyncIterator[Any]:
        """The answers to a request for a list, page by page."""
        request.page_size = page_size
        async for answer in pages_of(self._channel, method, request):
            yield answer

    # --- groups ---------------------------------------------------------------------------------

    async def put_group(self, name: str, **settings: Unpack[GroupChanges]) -> GroupInfo:
        """Create a consumer group, or change its settings; see `GroupInfo`.

        Args:
            name: the group.
            settings: `attempts_max`, `invisible_ms`, `retry_delay_ms`, `retry_delay_ms_max`: 0, or
                not given: the default. `retry_delays_ms`, a list or a `RetryPreset`,
                `retry_jitter_percent`, `start` ("first", "now", an instant) of subscriptions
                made later, `in_flight_max`, `per_second_max`: not given: as they were.

        Raises:
            InvalidArgument: a number is negative, out of range or no whole one.
        """
        answer = await self._channel.call(
            PUT_GROUP, admin_pb2.PutGroupRequest(name=name, settings=group_settings(settings))
        )
        return group_of(answer.group)

    async def update_group(
        self,
        name: str,
        *,
        description: str | None = None,
        is_paused: bool | None = None,
        expected_version: int | None = None,
        **settings: Unpack[GroupChanges],
    ) -> GroupInfo:
        """Change what is given of a consumer group.

        Args:
            name: the group.
            description: for people, at most 256 bytes.
            is_paused: whether it gets nothing; polls wait, and what it has can be acknowledged.
            expected_version: change nothing unless the group has it.
            settings: as those of `put_group`; 0 and what is not given stay.

        Raises:
            InvalidArgument: a number is negative, out of range or no whole one.
            UnknownGroup: there is none.
            FailedPrecondition: it has another version.
            Timeout: it is unknown whether it was changed.
        """
        request = admin_pb2.UpdateGroupRequest(
            name=name,
            description=description,
            settings=group_settings(settings),
            expected_version=expected_version,
        )
        if is_paused is not None:
            request.is_paused = is_paused
        return group_of((await self._channel.call(UPDATE_GROUP, request)).group)

    async def put_subscription(
        self,
        group: str,
        topic: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
    ) -> Subscription:
        """Subscribe a group to a topic, or change what it wants of it from now on.

        Args:
            group: the group; made if need be.
            topic: the topic; made if need be.
            filter: tags, or `Sql("...")`; None: everything. What was delivered or filtered
                before stays so.

        Raises:
            InvalidFilter: `params["position"]` says where.
        """
        wanted = as_filter(filter)
        request = admin_pb2.PutSubscriptionRequest(
            group=group, topic=topic, filter=None if wanted is None else filter_to_wire(wanted)
        )
        answer = await self._channel.call(PUT_SUBSCRIPTION, request)
        return subscription_of(answer.subscription)

    async def delete_group(self, name: str) -> None:
        """Forget a group and what it has acknowledged.

        Raises:
            UnknownGroup: there is none.
            Timeout: it is unknown whether it was deleted.
        """
        await self._channel.call(DELETE_GROUP, admin_pb2.DeleteGroupRequest(name=name))

    async def get_group(self, name: str) -> GroupInfo:
        """One group, with its lags. Raises `UnknownGroup`."""
        group = admin_pb2.Group()
        async for page in self._pages(GET_GROUP, admin_pb2.GetGroupRequest(name=name)):
            group.MergeFrom(page.group)
        return group_of(group)

    async def groups(self, *, page_size: int = LIST_PAGE_SIZE_MAX) -> list[GroupInfo]:
        """All groups, by name, without lags, and with at most 100 subscriptions each.

        Args:
            page_size: see `topics`.
        """
        check_count(page_size, "page_size", at_least=1)
        pages = self._pages(LIST_GROUPS, admin_pb2.ListGroupsRequest(), page_size)
        return [group_of(group) async for page in pages for group in page.groups]

    # --- cluster and messages -------------------------------------------------------------------

    async def status(self) -> ClusterStatus:
        """Nodes, shards, wheel and log, as the node that answers knows them.

        Any node answers, also without a majority. How far followers are is known to the master.
        """
        return cluster_status(await self._channel.call(GET_STATUS, admin_pb2.GetStatusRequest()))

    async def transfer_master(self, to: str = "", *, shard: int = 0) -> Mastership:
        """Make another node the master; gives who it is then.

        Args:
            to: id of the node, one in sync; empty: the best one.
            shard: its number.

        Raises:
            InvalidArgument: `shard` is negative or no whole number.
            FailedPrecondition: that node is not known or not in sync, or no node took over.
            Timeout: the outcome is unknown: see the `status`.
        """
        check_count(shard, "shard")
        request = admin_pb2.TransferMasterRequest(shard=shard, to_node_id=to)
        answer = await self._channel.call(TRANSFER_MASTER, request)
        return Mastership(answer.master, answer.epoch)

    async def members(self) -> Members:
        """The nodes that vote and have copies, as the node that answers knows them."""
        return await members.list_members(self._channel)

    async def change_members(
        self,
        add: Mapping[str, str] = NO_NODES,
        remove: Iterable[str] = (),
        *,
        expected_generation: int | None = None,
    ) -> int:
        """Add members, remove some, or both at once; gives the generation that begins.

        It returns when the others are in force. Their copies follow: see `members`.

        Args:
            add: id of each new node -> host:port of its control process. It runs already.
            remove: ids of nodes that leave, lost or not. They are never used again.
            expected_generation: as `members` showed it; None: whichever it is.

        Raises:
            FailedPrecondition: it would lose the majority or the last copies in sync, an id was
                used before, a change is under way, or somebody else was faster.
            Timeout: the outcome is unknown: look at `members`.
        """
        return await members.change_members(self._channel, add, remove, expected_generation)

    # --- what is scheduled ----------------------------------------------------------------------

    async def describe_wheel(self, bounds_ms: Sequence[int]) -> WheelDescription:
        """How many messages are pending by due time, of all topics together.

        The node counts without reading messages, so that this takes some ten milliseconds however
        many are pending. Counts between whole seconds are exact; of what is due in some days, those
        between whole hours (UTC). Cancelled messages are counted, too; `cancelled_count` tells
        how many they are in all.

        Args:
            bounds_ms: bounds of the ranges, 2 to 4,096, ascending, in milliseconds since the Unix
                epoch.

        Raises:
            InvalidArgument: they are not like that.
        """
        return await wheel.describe_wheel(self._channel, bounds_ms)

    # --- messages -------------------------------------------------------------------------------

    async def describe(self, of: MessageId | str) -> MessageDescription:
        """Where a message is in its life. Raises `InvalidMessageId`."""
        parsed = of if isinstance(of, MessageId) else message_id.parse(of)
        request = admin_pb2.DescribeMessageRequest(message_id=str(parsed))
        answer = await self._channel.call(DESCRIBE_MESSAGE, request)
        return MessageDescription(
            parsed,
            MessageState(answer.state),
            answer.due_ms,
            answer.is_damaged,
            tuple(
                DeadLetter(one.group, one.topic, one.attempts, DeadLetterReason(one.reason))
                for one in answer.dead_letters
            ),
            answer.dead_letter_search_is_complete,
        )

    async def list_damaged(self, group: str = "", topic: str = "") -> list[DamagedMessage]:
        """Messages that groups should get and that no replica in reach has intact.

        Found when they are read, by this master; they count as lag, and are delivered if their
        bytes turn up.

        Args:
            group: only of this group; empty: of all.
            topic: only those published to this topic; empty: to any.

        Raises:
            UnknownGroup, UnknownTopic: there is none.
        """
        return await damage.list_damaged(self._channel, group, topic)

    async def discard_damaged(
        self, group: str, ids: Sequence[MessageId | str] | None = None, *, topic: str = ""
    ) -> list[DamagedMessage]:
        """Give damaged messages up for a group; those that were given up.

        They become its dead letters, where a consumer that can read them gets them; those that are
        dead letters already are done with. What can be read by now is left alone.

        Args:
            group: the group.
            ids: which; None: all that are listed.
            topic: only those published to this topic; empty: to any.

        Raises:
            UnknownGroup, UnknownTopic: there is none.
            InvalidMessageId: naming a text that is no id; nothing is given up then.
            HourwheelError: a call failed; calling again is safe.
        """
        return await damage.discard_damaged(self._channel, group, topic, ids)

    # --- access ---------------------------------------------------------------------------------

    async def put_user(self, name: str, secret: str, expected_version: int | None = None) -> int:
        """Make a user, or change the secret; the user's version from then on.

        Args:
            name: without `*` and colon.
            secret: the cluster keeps a hash of it.
            expected_version: change nothing unless the user has it, 0: unless there is none.

        Raises:
            FailedPrecondition: it has another version, or the cluster cannot have users yet.
        """
        return await access.put_user(self._channel, name, secret, expected_version)

    async def delete_user(self, name: str, expected_version: int | None = None) -> None:
        """The name has no secret any more; its grants stay. As `put_user`; NotFound."""
        await access.delete_user(self._channel, name, expected_version)

    async def users(self) -> list[access.User]:
        """All users, by name."""
        return await access.list_users(self._channel)

    async def grant(
        self,
        principal: str,
        operations: Iterable[str],
        kind: str,
        resource: str = "",
        expected_version: int | None = None,
    ) -> int:
        """Allow just these operations; the grant's version from then on.

        Args:
            principal: a name, or the beginning of names before a `*` at its end.
            operations: publish, receive, cancel, look, administer.
            kind: topic, group or cluster.
            resource: a name or `begin*`; empty for the cluster.
            expected_version: change nothing unless the grant has it, 0: unless there is none.

        Raises:
            FailedPrecondition: it has another version, or the cluster cannot have grants yet.
        """
        given = access.grant_of(principal, kind, resource, operations)
        return await access.put_grant(self._channel, given, expected_version)

    async def revoke(
        self, principal: str, kind: str, resource: str = "", expected_version: int | None = None
    ) -> None:
        """Allow nothing of that grant any more, also on open streams. As `grant`; NotFound."""
        given = access.grant_of(principal, kind, resource)
        await access.delete_grant(self._channel, given, expected_version)

    async def grants(self) -> list[access.Grant]:
        """All grants, by principal, kind and resource."""
        return await access.list_grants(self._channel)

    async def put_quota(
        self, principal: str, limits: access.Limits, expected_version: int | None = None
    ) -> int:
        """Limit a principal (`*`: each that has no own quota), in place of before. As `grant`."""
        return await access.put_quota(self._channel, principal, limits, expected_version)

    async def delete_quota(self, principal: str, expected_version: int | None = None) -> None:
        """Limit it no more, but by the quota of `*`. As `put_quota`; NotFound."""
        await access.delete_quota(self._channel, principal, expected_version)

    async def quotas(self) -> list[access.Quota]:
        """All quotas, by principal."""
        return await access.list_quotas(self._channel)

    async def cancel(self, of: MessageId | str) -> CancelOutcome:
        """Take one message back. Raises `InvalidMessageId` for a text that is no id."""
        return (await self.cancel_many([of]))[0]

    async def cancel_many(self, ids: cancellation.Ids) -> list[CancelOutcome]:
        """Take n messages back; one definite and true outcome for each, in order.

        Raises:
            InvalidMessageId: naming a text that is no id; nothing is cancelled then.
            HourwheelError: a call failed; calling again is safe.
        """
        return await cancellation.cancel_many(self._channel, ids)

    async def cancel_by_key(self, topic: str, key: str) -> cancellation.KeyCancelled:
        """Take back all messages of a topic that have a key."""
        return (await self.cancel_by_keys(topic, [key]))[0]

    async def cancel_by_keys(
        self, topic: str, keys: Sequence[str]
    ) -> list[cancellation.KeyCancelled]:
        """See `AsyncProducer.cancel_by_keys`."""
        return await cancellation.cancel_keys(self._channel, topic, keys)
