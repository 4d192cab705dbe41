"""ConsumerService: Receive in both formats, Ack, Nack, ChangeInvisible; receipts in requests.

Members of broadcasts join and leave here, too.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from itertools import pairwise
from typing import Final, cast

import numpy as np
from google.protobuf.message import DecodeError

from hourwheel import errors, limits
from hourwheel.filter_language.wire import filter_from_wire, filter_to_wire
from hourwheel.formats import delivery_batch
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.receipt import Receipt, format_each, parse_each
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.types import topic_of
from hourwheel.v1.consumer_pb2 import (
    RECEIVE_FORMAT_BATCH,
    RECEIVE_FORMAT_MESSAGES,
    RECEIVE_FORMAT_UNSPECIFIED,
    AckRequest,
    AckResponse,
    ChangeInvisibleRequest,
    ChangeInvisibleResponse,
    JoinBroadcastRequest,
    JoinBroadcastResponse,
    LeaveBroadcastRequest,
    LeaveBroadcastResponse,
    NackRequest,
    NackResponse,
    ReceiptRange,
    ReceivedMessage,
    ReceiveRequest,
    ReceiveResponse,
)
from hourwheel.v1.consumer_pb2 import ReceiptOutcome as WireOutcome
from hourwheel.v1.session_pb2 import ReceiveStreamEnd
from node.access.control import AccessControl
from node.access.permissions import RULES
from node.api.admission import Admission
from node.api.calls import CallContext
from node.api.checks import check_group, check_readable_topic
from node.api.group_settings import check_leaving, check_receiving, joining_of, member_of
from node.api.stream_call import StreamCall
from node.contracts.answer_budget import (
    MESSAGE_OVERHEAD_BYTES,
    ROW_OVERHEAD_BYTES,
    HeldAnswer,
)
from node.contracts.broker import Delivery, EnginePort, ReceiveParams, Selection
from node.contracts.ending import ACKED, Attempt, Ending
from node.contracts.receive_stream import Push

_MESSAGES_DEFAULT: Final = 32
_BYTES_DEFAULT: Final = 1 << 20
_TAKEOVER_MS: Final = 20_000
"""So long a stream that is opened waits for a node that is taking over."""
_DEADLINE_SHARE: Final = 0.98
_DEADLINE_MARGIN_MS: Final = 50
"""A poll answers so early before its caller's deadline: better empty than DEADLINE_EXCEEDED. Also a
share of it, because gRPC rounds deadlines up by as much as 1 % on their way here."""
_RECEIVE_RULE: Final = RULES["hourwheel.v1.ConsumerService.Receive"]
_OVERHEAD_BYTES: Final = {
    RECEIVE_FORMAT_UNSPECIFIED: MESSAGE_OVERHEAD_BYTES,
    RECEIVE_FORMAT_MESSAGES: MESSAGE_OVERHEAD_BYTES,
    RECEIVE_FORMAT_BATCH: ROW_OVERHEAD_BYTES,
}
"""Format -> what a message takes beside its meta and body."""


class Consumer:
    """Checks what comes in, asks the engine, and packs what it hands out."""

    def __init__(self, engine: EnginePort, admission: Admission, access: AccessControl) -> None:
        """`admission` counts what waits; `engine.answers`, what is not read yet.

        `access` ends a poll whose caller may not go on.
        """
        self._engine = engine
        self._admission = admission
        self._access = access
        self._cluster = int.from_bytes(engine.cluster_id[:4], "little")

    async def receive(self, request: ReceiveRequest, context: CallContext) -> ReceiveResponse:
        """Lease due messages, waiting for the first one as long as was asked."""
        _check_receive(request)
        wait_ms = _wait_ms(request, context)
        held = self._held(context)
        with self._access.until_revoked(_RECEIVE_RULE, request):
            if wait_ms:
                delivery = await self._poll(request, wait_ms, held)
            else:
                delivery = await self._take(request, 0, held)
        if delivery is None:
            return ReceiveResponse(receive_ms=self._engine.now_ms())
        return _pack(delivery, self._receipt(delivery), request)

    async def receive_stream(self, request: ReceiveRequest, call: CallContext) -> ReceiveStreamEnd:
        """Push due messages as they come, as far as there are credits; a shutdown ends it."""
        if not isinstance(call, StreamCall):
            errors.violated("a session opens receive streams, and no other call")
        _check_receive(request)
        for field in ("wait_ms", "poller_id", "poll_number"):
            if getattr(request, field):
                raise errors.InvalidArgument(f"{field} is not for a stream", field=field)

        def send(delivery: Delivery, held: HeldAnswer) -> None:
            call.push(_pack(delivery, self._receipt(delivery), request), held)

        params = self._params(request, _TAKEOVER_MS, None)
        admission = self._admission
        admission.begin_poll()
        try:
            revoked = self._access.until_revoked(_RECEIVE_RULE, request, call.revoke)
            with admission.until_drain(call.revoke), revoked:
                push = Push(call.open(self._engine.answers), send)
                await self._engine.receive_stream(params, push)
        finally:
            admission.end_poll()
        return ReceiveStreamEnd()

    async def _take(
        self, request: ReceiveRequest, wait_ms: int, held: HeldAnswer
    ) -> Delivery | None:
        return await self._engine.receive(self._params(request, wait_ms, held))

    @staticmethod
    def _params(request: ReceiveRequest, wait_ms: int, held: HeldAnswer | None) -> ReceiveParams:
        attempt = Attempt(request.poller_id, request.poll_number) if request.poller_id else None
        return ReceiveParams(
            group=request.group,
            topic=request.topic,
            messages_max=request.max_messages or _MESSAGES_DEFAULT,
            bytes_max=request.max_bytes or _BYTES_DEFAULT,
            wait_ms=wait_ms,
            invisible_ms=request.invisible_ms,
            filter=filter_from_wire(request.filter) if request.HasField("filter") else None,
            attempt=attempt,
            held_answer=held,
            overhead_bytes=_OVERHEAD_BYTES[request.format],
            member_token=request.member_token,
        )

    async def _poll(
        self, request: ReceiveRequest, wait_ms: int, held: HeldAnswer
    ) -> Delivery | None:
        """Wait for messages; a shutdown, or the end of the login, leaves the answer empty."""
        admission, delivery = self._admission, None
        admission.begin_poll()
        try:
            with admission.until_drain():
                delivery = await self._take(request, wait_ms, held)
        finally:
            admission.end_poll()
        return delivery

    def _held(self, context: CallContext) -> HeldAnswer:
        """Counts what is handed out until the client has read it, or is gone."""
        held = HeldAnswer(self._engine.answers)
        context.add_done_callback(lambda _: held.end())
        return held

    def _receipt(self, delivery: Delivery) -> Receipt:
        return Receipt(
            self._cluster,
            delivery.epoch,
            delivery.group_id,
            delivery.topic_queue,
            delivery.lease_id,
            delivery.first_position,
            delivery.first_ordinal,
            len(delivery.units),
        )

    async def ack(self, request: AckRequest, _context: CallContext) -> AckResponse:
        """Finish messages."""
        outcomes = await self._resolve(request, ACKED)
        return AckResponse(outcomes=outcomes)

    async def nack(self, request: NackRequest, _context: CallContext) -> NackResponse:
        """Give messages back."""
        delay_ms = request.delay_ms if request.HasField("delay_ms") else None
        _check_range("delay_ms", delay_ms or 0, 0, limits.NACK_DELAY_MS_MAX)
        rejection = _rejection(request)
        if request.not_begun and (delay_ms != 0 or rejection is not None):
            raise errors.InvalidArgument("not_begun goes with delay_ms 0 alone", field="not_begun")
        ending = Ending(False, delay_ms, is_unbegun=request.not_begun, rejection=rejection)
        outcomes = await self._resolve(request, ending)
        return NackResponse(outcomes=outcomes)

    async def _resolve(
        self, request: AckRequest | NackRequest, ending: Ending
    ) -> list[WireOutcome]:
        check_group(request.group)
        selected = Selected(self._cluster, request.receipts, request.ranges)
        if selected.valid:
            selected.fill(await self._engine.resolve(request.group, selected.valid, ending))
        return selected.wire_outcomes()

    async def change_invisible(
        self, request: ChangeInvisibleRequest, _context: CallContext
    ) -> ChangeInvisibleResponse:
        """Hold messages for longer or shorter, from now."""
        check_group(request.group)
        invisible_ms = request.invisible_ms
        _check_range("invisible_ms", invisible_ms, limits.INVISIBLE_MS_MIN, limits.INVISIBLE_MS_MAX)
        selected = Selected(self._cluster, request.receipts, request.ranges, whole_ranges=True)
        until_ms = self._engine.now_ms() + invisible_ms
        if selected.valid:
            outcomes, until_ms = self._engine.change_invisible(
                request.group, selected.valid, invisible_ms
            )
            selected.fill(outcomes)
        return ChangeInvisibleResponse(
            outcomes=selected.wire_outcomes(), invisible_until_ms=until_ms
        )

    async def join_broadcast(
        self, request: JoinBroadcastRequest, _context: CallContext
    ) -> JoinBroadcastResponse:
        """Make somebody a member of a broadcast."""
        joining = joining_of(request)
        is_new = await self._engine.join_broadcast(joining)
        return JoinBroadcastResponse(
            group=joining.group,
            member=member_of(request),
            is_new=is_new,
            idle_ms=joining.idle_ms_max,
        )

    async def leave_broadcast(
        self, request: LeaveBroadcastRequest, _context: CallContext
    ) -> LeaveBroadcastResponse:
        """End a membership."""
        check_leaving(request)
        await self._engine.leave_broadcast(request.group, request.token)
        return LeaveBroadcastResponse()


def _check_receive(request: ReceiveRequest) -> None:
    check_group(request.group)
    check_receiving(request)
    check_readable_topic(request.topic)
    _check_range("max_messages", request.max_messages, 0, limits.RECEIVE_MESSAGE_COUNT_MAX)
    _check_range("max_bytes", request.max_bytes, 0, limits.RECEIVE_BYTES_MAX)
    _check_range("wait_ms", request.wait_ms, 0, limits.RECEIVE_WAIT_MS_MAX)
    if request.invisible_ms:
        _check_range(
            "invisible_ms", request.invisible_ms, limits.INVISIBLE_MS_MIN, limits.INVISIBLE_MS_MAX
        )
    if request.format not in _OVERHEAD_BYTES:
        raise errors.InvalidArgument(f"format {request.format} is unknown", field="format")


def _rejection(request: NackRequest) -> str | None:
    """Why the messages are to be dead letters at once; None: they are not."""
    if not request.dead_letter:
        if request.reason:
            raise errors.InvalidArgument("a reason is for dead letters", field="reason")
        return None
    if request.HasField("delay_ms"):
        raise errors.InvalidArgument("a dead letter does not come again", field="delay_ms")
    size_bytes = len(request.reason.encode())
    _check_range("reason", size_bytes, 0, limits.NACK_REASON_BYTES_MAX)
    return request.reason


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise errors.InvalidArgument(
            f"{name} is {value}; {least} to {most} are allowed",
            field=name,
            value=value,
            least=least,
            most=most,
        )


def _wait_ms(request: ReceiveRequest, context: CallContext) -> int:
    """How long to wait: as asked, but not into the caller's deadline."""
    remaining = context.time_remaining() if request.wait_ms else None
    if remaining is None:
        return request.wait_ms
    longest = int(remaining * 1_000 * _DEADLINE_SHARE) - _DEADLINE_MARGIN_MS
    return max(0, min(request.wait_ms, longest))


def _pack(delivery: Delivery, receipt: Receipt, request: ReceiveRequest) -> ReceiveResponse:
    response = ReceiveResponse(
        receipt=str(receipt),
        invisible_until_ms=delivery.invisible_until_ms,
        receive_ms=delivery.receive_ms,
        to_check=None if delivery.to_check is None else filter_to_wire(delivery.to_check),
        topic=delivery.topic,
    )
    if request.format == RECEIVE_FORMAT_BATCH:
        response.delivery_batch = delivery_batch.pack(
            delivery.units,
            [delivery.blobs],
            shard=delivery.shard,
            topic_id=topic_of(delivery.topic_queue),
            receive_ms=delivery.receive_ms,
            epoch=delivery.message_epochs,
            due_ms=delivery.due_ms,
        )
    else:
        topic = delivery.topic or request.topic
        response.messages.extend(_messages(delivery, topic, format_each(receipt)))
    return response


def _messages(delivery: Delivery, topic: str, receipts: Seq[str]) -> list[ReceivedMessage]:
    """One object a message: 5 us each, for clients that cannot read columns."""
    units = delivery.units
    epochs = np.broadcast_to(np.asarray(delivery.message_epochs), len(units))
    columns = (
        epochs.tolist(),
        units["sequence"].tolist(),
        delivery.due_ms.tolist(),
        units["store_ms"].tolist(),
        units["attempt"].tolist(),
        units["meta_len"].tolist(),
    )
    ends = np.cumsum(units["meta_len"] + units["body_len"].astype(np.int64)).tolist()
    blobs = [delivery.blobs[at:end] for at, end in pairwise([0, *ends])]
    found = []
    for blob, receipt, epoch, sequence, due_ms, store_ms, attempt, meta_len in zip(
        blobs, receipts, *columns, strict=True
    ):
        message = ReceivedMessage(
            message_id=str(MessageId(delivery.shard, epoch, sequence, due_ms)),
            body=blob[meta_len:],
            due_ms=due_ms,
            store_ms=store_ms,
            attempt=attempt,
            topic=topic,
            receipt=receipt,
        )
        if meta_len:
            _read_meta(message.meta.MergeFromString, blob[:meta_len])
        found.append(message)
    return found


def _read_meta(merge: Callable[[bytes], int], raw: bytes) -> None:
    """Metadata that cannot be read must not keep the body from its consumer."""
    try:
        merge(raw)
    except DecodeError:
        return


class Selected:
    """The receipts and ranges of one request, and their outcomes.

    Receipts of another cluster, and ranges beyond what their receipt stands for, are INVALID and
    the engine is not asked. Invariant: `valid[i]` is answered at `outcomes[_places[i]]`.
    """

    def __init__(
        self,
        cluster: int,
        receipts: Seq[str],
        ranges: Seq[ReceiptRange],
        *,
        whole_ranges: bool = False,
    ) -> None:
        """Read them.

        Args:
            cluster: the first 4 bytes of our cluster's id.
            receipts: of single messages.
            ranges: of parts of answers.
            whole_ranges: each must be of a whole answer.

        Raises:
            TooManyItems: more than one call may name.
            InvalidReceipt: garbage; nothing is done then.
            InvalidArgument: a part, where whole answers are wanted.
        """
        count = len(receipts) + len(ranges)
        if count > limits.RECEIPT_COUNT_MAX:
            raise errors.TooManyItems(
                f"{count} receipts; at most {limits.RECEIPT_COUNT_MAX} are allowed",
                count=count,
                count_max=limits.RECEIPT_COUNT_MAX,
            )
        self.outcomes = [ReceiptOutcome.INVALID] * count
        """A ReceiptOutcome for each receipt, then for each range: the numbers are the wire's."""
        self.valid: list[Selection] = []
        """What to ask the engine."""
        self._places: list[int] = []
        for place, receipt in enumerate(parse_each(receipts)):
            self._add(place, cluster, receipt, 0, receipt.count)
        whole = parse_each([part.receipt for part in ranges])
        for place, (part, receipt) in enumerate(zip(ranges, whole, strict=True), len(receipts)):
            wanted = part.count or receipt.count - part.first
            if whole_ranges and (part.first or wanted != receipt.count):
                raise errors.InvalidArgument(
                    "a range must cover its whole answer", field="ranges", ordinal=place
                )
            self._add(place, cluster, receipt, part.first, wanted)

    def _add(self, place: int, cluster: int, receipt: Receipt, first: int, count: int) -> None:
        """Meant are the messages [first, first + count) of those that `receipt` stands for."""
        end = receipt.index + receipt.count
        is_possible = 0 < count <= receipt.count - first and end <= limits.RECEIVE_MESSAGE_COUNT_MAX
        if receipt.cluster == cluster and is_possible:
            self.valid.append(Selection(receipt, receipt.index + first, count))
            self._places.append(place)

    def wire_outcomes(self) -> list[WireOutcome]:
        """The outcomes as the protocol has them: its numbers are those of ReceiptOutcome."""
        return cast("list[WireOutcome]", self.outcomes)

    def fill(self, outcomes: Iterable[ReceiptOutcome]) -> None:
        """Put in the engine's answers to `valid`, in order."""
        for place, outcome in zip(self._places, outcomes, strict=True):
            self.outcomes[place] = outcome
