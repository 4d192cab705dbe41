"""The fake node's API, over what fake_broker.py keeps."""

import itertools
from typing import Any

import grpc
import numpy as np
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from hourwheel import errors
from hourwheel.formats import delivery_batch, message_id
from hourwheel.formats.meta import decode
from hourwheel.formats.receipt import Receipt
from hourwheel.types import FIRST_POSITION, GroupId, TopicId, TopicQueue
from hourwheel.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    consumer_pb2,
    consumer_pb2_grpc,
    groups_pb2,
)
from hourwheel.v1 import status_pb2 as cluster_pb2
from tests.support.fake_broker import SHARD, STORE_MS, FakeBroker
from tests.support.fake_pending import cancel_page, list_page, move_page

TOPIC_ID = 1
UNIT = np.dtype(
    [
        *(("due_ms", "<i8"), ("sequence", "<u8"), ("store_ms", "<i8"), ("body_len", "<u4")),
        *(("crc", "<u4"), ("meta_len", "<u2"), ("attempt", "<u2")),
    ]
)
CODES = {code.name: code for code in grpc.StatusCode}


def to_status(error: errors.HourwheelError) -> Any:
    """The rich gRPC status of an error of ours."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain="hourwheel", metadata=error.params
    )
    detail = any_pb2.Any()
    detail.Pack(info)
    code = CODES[error.code].value[0]
    return rpc_status.to_status(
        status_pb2.Status(code=code, message=error.message, details=[detail])
    )


async def arrive_or_abort(node: FakeBroker, method: str, request: Any, context: Any) -> None:
    failure = await node.arrive(method, request)
    if failure is not None:
        await context.abort_with_status(to_status(failure))


class ProducerService(broker_pb2_grpc.ProducerServiceServicer):
    def __init__(self, node: FakeBroker) -> None:
        self._node = node

    async def PublishStream(self, requests: Any, context: Any) -> Any:  # noqa: N802
        node, answered = self._node, 0
        async for request in requests:
            failure = await node.arrive("PublishStream", request)
            if node.script.break_after == answered:
                node.script.break_after = None
                if node.script.is_taken_before_break:
                    node.publish(request)
                if node.script.break_error is not None:
                    await context.abort_with_status(to_status(node.script.break_error))
                await context.abort(grpc.StatusCode.UNAVAILABLE, "broken by the script")
            try:
                if failure is not None:
                    raise failure
                published = node.publish(request)
            except errors.HourwheelError as error:
                detail = broker_pb2.ErrorDetail(
                    code=CODES[error.code].value[0],
                    reason=error.reason,
                    message=error.message,
                    params=error.params,
                )
                yield broker_pb2.PublishStreamResponse(error=detail)
            else:
                yield broker_pb2.PublishStreamResponse(published=published)
            answered += 1

    async def Reschedule(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Everything that exists moves to where it is wanted; delays count from 0."""
        node = self._node
        await arrive_or_abort(node, "Reschedule", request, context)
        times = list(request.due_ms or request.delay_ms)
        sequences = [
            int(row["sequence"]) for row in message_id.unpack_many(request.packed_message_ids)
        ]
        counts = [int(one < len(node.messages)) for one in sequences]
        for key in request.keys:
            mine = [one for one in node.messages if one.topic == request.topic]
            counts.append(sum(key in decode(one.blob[: one.meta_bytes]).keys for one in mine))
        times = times * len(counts) if len(times) == 1 else times
        done, unknown = (
            broker_pb2.RESCHEDULE_OUTCOME_RESCHEDULED,
            broker_pb2.RESCHEDULE_OUTCOME_UNKNOWN,
        )
        return broker_pb2.RescheduleResponse(
            outcomes=[done if one else unknown for one in counts],
            due_ms=[at if one else 0 for one, at in zip(counts, times, strict=True)],
            rescheduled_counts=counts if request.keys else (),
        )

    async def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        node = self._node
        await arrive_or_abort(node, "Cancel", request, context)
        outcomes = []
        for row in message_id.unpack_many(request.packed_message_ids):
            sequence = int(row["sequence"])
            if sequence >= len(node.messages):
                outcomes.append(broker_pb2.CANCEL_OUTCOME_UNKNOWN)
            elif any(node.messages[sequence] in lease for lease in node.leases.values()):
                outcomes.append(broker_pb2.CANCEL_OUTCOME_ALREADY_RELEASED)
            else:
                node.cancelled.add(sequence)
                outcomes.append(broker_pb2.CANCEL_OUTCOME_CANCELLED)
        counts = []
        for key in request.keys:
            mine = [one for one in node.messages if one.topic == request.topic]
            mine = [one for one in mine if key in decode(one.blob[: one.meta_bytes]).keys]
            node.cancelled.update(one.sequence for one in mine)
            outcomes.append(
                broker_pb2.CANCEL_OUTCOME_CANCELLED if mine else broker_pb2.CANCEL_OUTCOME_UNKNOWN
            )
            counts.append(len(mine))
        if not node.knows_keys:
            return broker_pb2.CancelResponse()
        return broker_pb2.CancelResponse(outcomes=outcomes, cancelled_counts=counts)


class ConsumerService(consumer_pb2_grpc.ConsumerServiceServicer):
    def __init__(self, node: FakeBroker) -> None:
        self._node = node

    async def Receive(self, request: Any, context: Any) -> Any:  # noqa: N802
        node = self._node
        await arrive_or_abort(node, "Receive", request, context)
        try:
            if request.HasField("filter"):
                node.subscribe(request.group, request.topic, request.filter)
            leased = await node.lease(request.topic, request.max_messages, request.wait_ms)
        except (errors.NotMaster, errors.SubscriptionMismatch) as refusal:
            await context.abort_with_status(to_status(refusal))
        if not leased:
            return consumer_pb2.ReceiveResponse(receive_ms=STORE_MS)
        receipt = str(
            Receipt(
                1,
                node.epoch,
                GroupId(1),
                TopicQueue(256),
                len(node.leases),
                FIRST_POSITION,
                0,
                len(leased),
            )
        )
        node.leases[receipt] = leased
        units = np.array(
            [
                (
                    *(one.due_ms, one.sequence, STORE_MS, len(one.body)),
                    *(one.crc, one.meta_bytes, one.attempt),
                )
                for one in leased
            ],
            UNIT,
        )
        packed = delivery_batch.pack(
            units,
            [one.blob for one in leased],
            shard=SHARD,
            topic_id=TopicId(TOPIC_ID),
            receive_ms=STORE_MS,
            epoch=node.epoch,
        )
        if node.damage_next_delivery:
            node.damage_next_delivery = False
            packed = packed[:50] + bytes([packed[50] ^ 1]) + packed[51:]
        return consumer_pb2.ReceiveResponse(
            delivery_batch=packed,
            receipt=receipt,
            receive_ms=STORE_MS,
            invisible_until_ms=STORE_MS + (request.invisible_ms or 30_000),
            to_check=node.find_to_check(request.group, request.topic),
        )

    def _outcome(self, chosen: Any) -> Any:
        if chosen.receipt not in self._node.leases:
            return consumer_pb2.RECEIPT_OUTCOME_INVALID
        if chosen.receipt in self._node.stale_receipts:
            return consumer_pb2.RECEIPT_OUTCOME_STALE
        return consumer_pb2.RECEIPT_OUTCOME_OK

    async def Ack(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "Ack", request, context)
        return consumer_pb2.AckResponse(outcomes=map(self._outcome, request.ranges))

    async def Nack(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "Nack", request, context)
        for chosen in () if request.dead_letter else request.ranges:
            leased = self._node.leases.get(chosen.receipt, [])
            self._node.give_back(leased[chosen.first : chosen.first + chosen.count])
        return consumer_pb2.NackResponse(outcomes=map(self._outcome, request.ranges))

    async def ChangeInvisible(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "ChangeInvisible", request, context)
        return consumer_pb2.ChangeInvisibleResponse(
            outcomes=map(self._outcome, request.ranges),
            invisible_until_ms=STORE_MS + request.invisible_ms,
        )


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    def __init__(self, node: FakeBroker) -> None:
        self._node = node

    def _topic(self, name: str) -> admin_pb2.Topic:
        gene = self._node.genes.get(name)
        settings = admin_pb2.TopicSettings(queue_count=self._node.topics[name], gene=gene)
        is_paused = name in self._node.paused_topics
        return admin_pb2.Topic(name=name, settings=settings, released_count=5, is_paused=is_paused)

    async def CreateTopic(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "CreateTopic", request, context)
        self._node.topics.setdefault(request.name, request.settings.queue_count or 1)
        if request.settings.HasField("gene"):
            self._node.genes[request.name] = request.settings.gene
        topic = self._topic(request.name)
        if not self._node.forgets_retentions:
            topic.retention_ms = request.retention_ms
        return admin_pb2.CreateTopicResponse(topic=topic)

    async def UpdateTopic(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "UpdateTopic", request, context)
        topic = self._topic(request.name)
        _update(topic, request)
        topic.dispatch_tolerance_ms = request.dispatch_tolerance_ms
        topic.retention_ms = request.retention_ms
        paused = self._node.paused_topics
        (paused.add if topic.is_paused else paused.discard)(request.name)
        return admin_pb2.UpdateTopicResponse(topic=topic)

    async def UpdateGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "UpdateGroup", request, context)
        group = self._group(request.name)
        _update(group, request)
        group.settings.MergeFrom(request.settings)
        return admin_pb2.UpdateGroupResponse(group=group)

    async def DeleteTopic(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "DeleteTopic", request, context)
        if self._node.topics.pop(request.name, None) is None:
            await context.abort_with_status(to_status(errors.UnknownTopic()))
        return admin_pb2.DeleteTopicResponse()

    async def GetTopic(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "GetTopic", request, context)
        if request.name not in self._node.topics:
            await context.abort_with_status(to_status(errors.UnknownTopic()))
        return admin_pb2.GetTopicResponse(topic=self._topic(request.name))

    async def ListTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "ListTopics", request, context)
        names = [
            name for name in sorted(self._node.topics) if request.include_internal or name[0] != "%"
        ]
        names, token = _page(names, request)
        return admin_pb2.ListTopicsResponse(topics=map(self._topic, names), next_page_token=token)

    def _group(self, name: str) -> admin_pb2.Group:
        lag = groups_pb2.GroupLag(topic="orders", unresolved_count=12, leased_count=2)
        subscriptions = [
            admin_pb2.GroupSubscription(topic=topic, filter=wanted)
            for (group, topic), wanted in self._node.subscriptions.items()
            if group == name
        ]
        return admin_pb2.Group(
            name=name, settings=self._node.groups[name], lags=[lag], subscriptions=subscriptions
        )

    async def PutSubscription(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "PutSubscription", request, context)
        self._node.groups.setdefault(request.group, admin_pb2.GroupSettings())
        self._node.subscriptions[request.group, request.topic] = request.filter
        made = admin_pb2.GroupSubscription(topic=request.topic, filter=request.filter)
        return admin_pb2.PutSubscriptionResponse(subscription=made)

    async def PutGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "PutGroup", request, context)
        self._node.groups[request.name] = request.settings
        return admin_pb2.PutGroupResponse(group=self._group(request.name))

    async def DeleteGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "DeleteGroup", request, context)
        if self._node.groups.pop(request.name, None) is None:
            await context.abort_with_status(to_status(errors.UnknownGroup()))
        return admin_pb2.DeleteGroupResponse()

    async def GetGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "GetGroup", request, context)
        if request.name not in self._node.groups:
            await context.abort_with_status(to_status(errors.UnknownGroup()))
        group = self._group(request.name)
        told, token = _page([one.topic for one in group.subscriptions], request)
        kept = [one for one in group.subscriptions if one.topic in told]
        del group.subscriptions[:]
        group.subscriptions.extend(kept)
        if request.page_token:
            del group.lags[:]
        return admin_pb2.GetGroupResponse(group=group, next_page_token=token)

    async def ListGroups(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "ListGroups", request, context)
        names, token = _page(sorted(self._node.groups), request)
        return admin_pb2.ListGroupsResponse(groups=map(self._group, names), next_page_token=token)

    async def GetStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "GetStatus", request, context)
        nodes = [
            cluster_pb2.NodeStatus(
                node_id=node_id, address=address, started_ms=STORE_MS, clock_ms=STORE_MS
            )
            for node_id, address in self._node.nodes()
        ]
        shard = cluster_pb2.ShardStatus(
            shard=SHARD,
            epoch=self._node.epoch,
            master=nodes[0].node_id,
            published_count=len(self._node.messages),
        )
        return admin_pb2.GetStatusResponse(
            cluster_id="c0ffee", version="0.1.0", nodes=nodes, shards=[shard]
        )

    async def TransferMaster(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "TransferMaster", request, context)
        return admin_pb2.TransferMasterResponse(
            master=request.to_node_id or "n2", epoch=self._node.epoch + 1
        )

    async def ListPending(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "ListPending", request, context)
        try:
            return list_page(self._node, request)
        except errors.HourwheelError as error:
            await context.abort_with_status(to_status(error))

    async def CancelPending(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "CancelPending", request, context)
        try:
            return cancel_page(self._node, request)
        except errors.HourwheelError as error:
            await context.abort_with_status(to_status(error))

    async def ReschedulePending(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "ReschedulePending", request, context)
        try:
            return move_page(self._node, request)
        except errors.HourwheelError as error:
            await context.abort_with_status(to_status(error))

    async def ListDamaged(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "ListDamaged", request, context)
        first = int(request.page_token or b"0")
        found = [one for one in self._node.damaged if request.group in {"", one.group}]
        end = first + (request.page_size or 100)
        token = b"%d" % end if end < len(found) else b""
        return admin_pb2.ListDamagedResponse(messages=found[first:end], next_page_token=token)

    async def DiscardDamaged(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "DiscardDamaged", request, context)
        mine = [one for one in self._node.damaged if one.group == request.group]
        gone = [one for one in mine if request.all or one.message_id in request.message_ids]
        gone = gone[: self._node.discard_max]
        self._node.damaged = [one for one in self._node.damaged if one not in gone]
        left = len(mine) - len(gone)
        return admin_pb2.DiscardDamagedResponse(messages=gone, left_count=left)

    async def Skip(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "Skip", request, context)
        return groups_pb2.SkipResponse(skipped_count=7, positions=[5, 6])

    async def ResetGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "ResetGroup", request, context)
        return groups_pb2.ResetGroupResponse(
            again_count=1,
            skipped_count=2,
            retries_dropped_count=3,
            unresolved_count=4,
            positions=[5, 6],
        )

    async def ListDeadLetters(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "ListDeadLetters", request, context)
        page, token = self._letters(request)
        return groups_pb2.ListDeadLettersResponse(
            messages=page, next_page_token=token, scanned_count=len(page)
        )

    async def RedriveDeadLetters(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "RedriveDeadLetters", request, context)
        page, token = self._letters(request)
        gone = [one for one in page if one.topic]
        self._node.letters = [one for one in self._node.letters if one not in gone]
        return groups_pb2.RedriveDeadLettersResponse(
            redriven_count=len(gone),
            unsubscribed_count=len(page) - len(gone),
            scanned_count=len(page),
            next_page_token=token,
        )

    def _letters(self, request: Any) -> tuple[list[Any], bytes]:
        """(a page of those that are meant, token of the next one: the last id of this)."""
        found = [
            one
            for one in self._node.letters
            if request.topic in {"", one.topic}
            and (not request.message_ids or one.message_id in request.message_ids)
            and one.message_id > request.page_token.decode()
        ]
        page = found[: self._node.letters_page_max]
        return page, page[-1].message_id.encode() if len(page) < len(found) else b""

    async def DescribeWheel(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Everything that is published, and as many cancelled; odd ranges are estimates."""
        node = self._node
        await arrive_or_abort(node, "DescribeWheel", request, context)
        dues, bounds = [one.due_ms for one in node.messages], list(request.bounds_ms)
        counts = [
            sum(low <= due < high for due in dues) for low, high in itertools.pairwise(bounds)
        ]
        return admin_pb2.DescribeWheelResponse(
            counts=counts,
            are_estimates=[bool(ordinal % 2) for ordinal in range(len(counts))],
            earlier_count=sum(due < bounds[0] for due in dues),
            later_count=sum(due >= bounds[-1] for due in dues),
            pending_count=len(dues) - len(node.cancelled),
            cancelled_count=len(node.cancelled),
            clock_ms=STORE_MS,
        )

    async def DescribeMessage(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "DescribeMessage", request, context)
        parts = message_id.parse(request.message_id)
        state = admin_pb2.MESSAGE_STATE_PENDING
        if parts.sequence >= len(self._node.messages):
            state = admin_pb2.MESSAGE_STATE_UNKNOWN
        letters = self._node.dead_letters.get(parts.sequence, [])
        if letters:
            state = admin_pb2.MESSAGE_STATE_RELEASED
        return admin_pb2.DescribeMessageResponse(
            message_id=request.message_id,
            state=state,
            due_ms=parts.due_ms,
            dead_letters=letters,
            dead_letter_search_is_complete=not letters,
        )


def _page(names: list[str], request: Any) -> tuple[list[str], bytes]:
    """Two names at a time at most, which a client must put up with; and the next page's token."""
    first = names.index(request.page_token.decode()) + 1 if request.page_token else 0
    if not request.page_size:
        return names, b""
    page = names[first : first + min(request.page_size, 2)]
    return page, page[-1].encode() if first + len(page) < len(names) else b""


def _update(shown: Any, request: Any) -> None:
    shown.description, shown.is_paused, shown.version = request.description, request.is_paused, 8
