"""The asyncio administrator: topics, groups, status, single messages."""

from dataclasses import dataclass
from typing import Self

import grpc

from hourwheel import cancelling, message_id
from hourwheel.channel import SERVER_DEFAULT, Channel
from hourwheel.cluster_status import ClusterStatus, Mastership, cluster_status
from hourwheel.endpoints import Servers
from hourwheel.message_id import MessageId
from hourwheel.methods import (
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
    TRANSFER_MASTER,
)
from hourwheel.outcomes import CancelOutcome, MessageState
from hourwheel.wire import admin_pb2


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic."""

    name: str
    queue_count: int
    """Messages with one key stay in one queue."""
    released_count: int
    """Messages released into its queues so far."""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """What a group has still to do in one topic, retries included."""

    topic: str
    unresolved_count: int
    """Released messages that the group has neither acknowledged nor given up."""
    leased_count: int
    """Of those, how many are leased now."""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group."""

    name: str
    attempts_max: int
    """Deliveries before a message becomes a dead letter in topic "%DLQ%<group>"."""
    invisible_ms: int
    """How long messages are leased where the consumer does not say."""
    retry_delay_ms: int
    """Delay before the second delivery; it doubles with each attempt."""
    retry_delay_ms_max: int
    lags: tuple[GroupLag, ...] = ()
    """For each topic that the group has received from; empty in lists."""


@dataclass(frozen=True, slots=True)
class MessageDescription:
    """What is known of a message by its id."""

    message_id: MessageId
    state: MessageState
    due_ms: int
    """When it is or was due, in milliseconds since the Unix epoch."""


class AsyncAdmin:
    """Sets a cluster up and asks what it does.

        async with AsyncAdmin("127.0.0.1:7400") as admin:
            await admin.create_topic("orders", queue_count=4)

    All methods raise `HourwheelError`s. Belongs to one event loop.
    """

    def __init__(
        self,
        server: Servers | Channel = SERVER_DEFAULT,
        *,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """Prepare; it connects when it is first used.

        Args:
            server: see `Channel`; or a channel to be shared (and closed) by the caller.
            credentials: for TLS.
        """
        self._owns_channel = not isinstance(server, Channel)
        self._channel = (
            server if isinstance(server, Channel) else Channel(server, credentials=credentials)
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

    async def create_topic(self, name: str, *, queue_count: int = 0) -> TopicInfo:
        """Create a topic; one that exists with the same settings is fine.

        Args:
            name: 1-127 characters of [A-Za-z0-9_-.|].
            queue_count: 1 to 256; 0 for the default.

        Raises:
            AlreadyExists: with other settings.
        """
        settings = admin_pb2.TopicSettings(queue_count=queue_count)
        answer = await self._channel.call(
            CREATE_TOPIC, admin_pb2.CreateTopicRequest(name=name, settings=settings)
        )
        return _topic(answer.topic)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and what is in it: pending messages are discarded.

        Raises:
            UnknownTopic: there is none.
            Timeout: nobody knows whether it was deleted.
        """
        await self._channel.call(DELETE_TOPIC, admin_pb2.DeleteTopicRequest(name=name))

    async def get_topic(self, name: str) -> TopicInfo:
        """One topic. Raises `UnknownTopic`."""
        answer = await self._channel.call(GET_TOPIC, admin_pb2.GetTopicRequest(name=name))
        return _topic(answer.topic)

    async def topics(self, *, include_internal: bool = False) -> list[TopicInfo]:
        """All topics, by name; with `include_internal` those for retries and dead letters, too."""
        request = admin_pb2.ListTopicsRequest(include_internal=include_internal)
        return [_topic(topic) for topic in (await self._channel.call(LIST_TOPICS, request)).topics]

    # --- groups ---------------------------------------------------------------------------------

    async def put_group(
        self,
        name: str,
        *,
        attempts_max: int = 0,
        invisible_ms: int = 0,
        retry_delay_ms: int = 0,
        retry_delay_ms_max: int = 0,
    ) -> GroupInfo:
        """Create a consumer group, or change its settings; see `GroupInfo`. 0: the default."""
        settings = admin_pb2.GroupSettings(
            attempts_max=attempts_max,
            invisible_ms=invisible_ms,
            retry_delay_ms=retry_delay_ms,
            retry_delay_ms_max=retry_delay_ms_max,
        )
        answer = await self._channel.call(
            PUT_GROUP, admin_pb2.PutGroupRequest(name=name, settings=settings)
        )
        return _group(answer.group)

    async def delete_group(self, name: str) -> None:
        """Forget a group and what it has acknowledged.

        Raises:
            UnknownGroup: there is none.
            Timeout: nobody knows whether it was deleted.
        """
        await self._channel.call(DELETE_GROUP, admin_pb2.DeleteGroupRequest(name=name))

    async def get_group(self, name: str) -> GroupInfo:
        """One group, with its lags. Raises `UnknownGroup`."""
        answer = await self._channel.call(GET_GROUP, admin_pb2.GetGroupRequest(name=name))
        return _group(answer.group)

    async def groups(self) -> list[GroupInfo]:
        """All groups, by name, without lags."""
        answer = await self._channel.call(LIST_GROUPS, admin_pb2.ListGroupsRequest())
        return [_group(group) for group in answer.groups]

    # --- cluster and messages -------------------------------------------------------------------

    async def status(self) -> ClusterStatus:
        """Nodes, shards, wheel and log, as the node that answers knows them.

        Any node answers, also without a majority. How far followers are is known to the master.
        """
        return cluster_status(await self._channel.call(GET_STATUS, admin_pb2.GetStatusRequest()))

    async def transfer_master(self, to: str = "", *, shard: int = 0) -> Mastership:
        """Make another node the master; gives who it is then.

        Args:
            to: id of the node, one in sync; empty: whoever is best.
            shard: its number.

        Raises:
            FailedPrecondition: that node is not known or not in sync, or nobody took over.
            Timeout: nobody knows who is master now: ask for the `status`.
        """
        request = admin_pb2.TransferMasterRequest(shard=shard, to_node_id=to)
        answer = await self._channel.call(TRANSFER_MASTER, request)
        return Mastership(answer.master, answer.epoch)

    async def describe(self, of: MessageId | str) -> MessageDescription:
        """Where a message is in its life. Raises `InvalidMessageId`."""
        parsed = of if isinstance(of, MessageId) else message_id.parse(of)
        request = admin_pb2.DescribeMessageRequest(message_id=str(parsed))
        answer = await self._channel.call(DESCRIBE_MESSAGE, request)
        return MessageDescription(parsed, MessageState(answer.state), answer.due_ms)

    async def cancel(self, of: MessageId | str) -> CancelOutcome:
        """Take one message back. Raises `InvalidMessageId` for a text that is no id."""
        return (await self.cancel_many([of]))[0]

    async def cancel_many(self, ids: cancelling.Ids) -> list[CancelOutcome]:
        """Take n messages back; one definite and true outcome for each, in order.

        Raises:
            InvalidMessageId: naming a text that is no id; nothing is cancelled then.
            HourwheelError: a call failed; calling again is safe.
        """
        return await cancelling.cancel_many(self._channel, ids)


def _topic(topic: admin_pb2.Topic) -> TopicInfo:
    return TopicInfo(topic.name, topic.settings.queue_count, topic.released_count)


def _group(group: admin_pb2.Group) -> GroupInfo:
    settings = group.settings
    return GroupInfo(
        group.name,
        settings.attempts_max,
        settings.invisible_ms,
        settings.retry_delay_ms,
        settings.retry_delay_ms_max,
        tuple(GroupLag(lag.topic, lag.unresolved_count, lag.leased_count) for lag in group.lags),
    )
