"""The fake node's answers by key; what was cancelled counts, and nothing is released."""

from typing import Any

from hourwheel.formats.meta import decode
from hourwheel.v1 import admin_pb2, lookup_pb2, lookup_pb2_grpc
from tests.support.fake_broker import STORE_MS, FakeBroker
from tests.support.fake_services import arrive_or_abort

LOOKED_AT = 3
"""So many messages a page has at most."""


class LookupService(lookup_pb2_grpc.LookupServiceServicer):
    def __init__(self, node: FakeBroker) -> None:
        self._node = node

    async def ListByKey(self, request: Any, context: Any) -> Any:  # noqa: N802
        await arrive_or_abort(self._node, "ListByKey", request, context)
        below = int(request.page_token or b"1000000")
        found = [
            one
            for one in self._node.messages[::-1]
            if one.topic == request.topic
            and one.sequence < below
            and request.key in decode(one.blob[: one.meta_bytes]).keys
            and request.from_due_ms <= one.due_ms < (request.to_due_ms or 1 << 62)
            and not (request.pending_only and one.sequence in self._node.cancelled)
        ]
        part = found[:LOOKED_AT]
        answer = lookup_pb2.ListByKeyResponse(matched_count=len(part))
        for one in [] if request.count_only else part:
            is_cancelled = one.sequence in self._node.cancelled
            answer.messages.add(
                message_id=one.id,
                due_ms=one.due_ms,
                state=admin_pb2.MESSAGE_STATE_CANCELLED
                if is_cancelled
                else admin_pb2.MESSAGE_STATE_PENDING,
            )
        if len(found) > len(part):
            answer.next_page_token = b"%d" % part[-1].sequence
        return answer

    async def GetHistory(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Two pages: that it was published, and that a group acknowledged it."""
        await arrive_or_abort(self._node, "GetHistory", request, context)
        found = [one for one in self._node.messages if one.id == request.message_id]
        if not found or request.topic not in {"", found[0].topic}:
            return lookup_pb2.GetHistoryResponse()
        (one,) = found
        if not request.page_token:
            answer = lookup_pb2.GetHistoryResponse(is_complete=True, next_page_token=b"2")
            answer.events.add(
                kind=lookup_pb2.EVENT_KIND_PUBLISHED,
                at_ms=STORE_MS,
                due_ms=one.due_ms,
                topic=one.topic,
            )
            return answer
        answer = lookup_pb2.GetHistoryResponse(is_complete=True)
        answer.events.add(kind=lookup_pb2.EVENT_KIND_RELEASED, attempt=1, due_ms=one.due_ms)
        answer.events.add(kind=lookup_pb2.EVENT_KIND_ACKED, at_ms=STORE_MS, group="g", attempt=1)
        return answer
