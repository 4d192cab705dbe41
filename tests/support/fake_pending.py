"""The fake node's pending messages: everything that it holds and that nobody has leased."""

from hourwheel import errors
from hourwheel.filter_language.evaluate import matches
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.filter_language.wire import filter_from_wire
from hourwheel.formats.meta import decode
from hourwheel.v1 import admin_pb2, pending_pb2
from tests.support.fake_broker import STORE_MS, FakeBroker, Stored

LOOKED_AT = 3
"""So many messages a page looks at."""


def list_page(
    node: FakeBroker, request: admin_pb2.ListPendingRequest
) -> admin_pb2.ListPendingResponse:
    looked, matching, token = _page(node, request, request.page_size or 100)
    response = admin_pb2.ListPendingResponse(
        next_page_token=token,
        scanned_count=looked,
        matched_count=len(matching),
        key_prefix=request.key_prefix,
    )
    for one in [] if request.count_only else matching:
        message = response.messages.add(
            message_id=one.id, due_ms=one.due_ms, store_ms=STORE_MS, body_bytes=len(one.body)
        )
        message.is_corrupt = one.crc == 0
        if not message.is_corrupt:
            message.meta.MergeFromString(one.blob[: one.meta_bytes])
            message.body = one.body if request.with_bodies else b""
    return response


def cancel_page(
    node: FakeBroker, request: pending_pb2.CancelPendingRequest
) -> pending_pb2.CancelPendingResponse:
    looked, matching, token = _page(node, request, LOOKED_AT)
    node.cancelled.update(one.sequence for one in matching)
    return pending_pb2.CancelPendingResponse(
        cancelled_count=len(matching), scanned_count=looked, next_page_token=token
    )


def move_page(
    node: FakeBroker, request: pending_pb2.ReschedulePendingRequest
) -> pending_pb2.ReschedulePendingResponse:
    looked, matching, token = _page(node, request, LOOKED_AT)
    moving = [one for one in matching if one.due_ms != request.new_due_ms]
    for one in moving:
        one.due_ms = request.new_due_ms
    return pending_pb2.ReschedulePendingResponse(
        rescheduled_count=len(moving), scanned_count=looked, next_page_token=token
    )


def _page(
    node: FakeBroker,
    request: admin_pb2.ListPendingRequest
    | pending_pb2.CancelPendingRequest
    | pending_pb2.ReschedulePendingRequest,
    count: int,
) -> tuple[int, list[Stored], bytes]:
    if request.topic not in {one.topic for one in node.messages}:
        raise errors.UnknownTopic(f"there is no topic {request.topic!r}")
    wanted = filter_from_wire(request.filter)
    tree = parse(wanted if wanted.text else FilterExpression.everything())
    after = tuple(map(int, request.page_token.split(b","))) if request.page_token else (-1, 0)
    leased = [one for lease in node.leases.values() for one in lease]
    waiting = sorted(
        (one.due_ms, one.sequence)
        for one in node.messages
        if one.topic == request.topic
        and one not in leased
        and one.sequence not in node.cancelled
        and request.from_due_ms <= one.due_ms < (request.to_due_ms or 1 << 60)
        and (one.due_ms, one.sequence) > after
    )
    part = waiting[: min(LOOKED_AT, count)]
    found = [node.messages[sequence] for _, sequence in part]
    metas = [decode(one.blob[: one.meta_bytes]) for one in found]
    matching = [
        one
        for one, meta in zip(found, metas, strict=True)
        if matches(tree, meta.tags, meta.properties)
        and any(key.startswith(request.key_prefix) for key in meta.keys or ("",))
    ]
    is_last = len(part) == len(waiting)
    return len(part), matching, b"" if is_last else b"%d,%d" % part[-1]
