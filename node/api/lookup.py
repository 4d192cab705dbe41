"""LookupService: messages looked up by key, and their histories."""

import asyncio
from typing import Final

from hourwheel import errors, limits
from hourwheel.formats import message_id
from hourwheel.outcomes import MessageState
from hourwheel.v1 import admin_pb2
from hourwheel.v1 import lookup_pb2 as wire
from node.access.control import AccessControl
from node.access.permissions import group_resource
from node.api.calls import Context
from node.api.checks import check_at_most, check_topic, due_range
from node.contracts.broker import EnginePort
from node.contracts.pending_page import KeyPart, printable
from node.contracts.pending_token import KeyQuery

PAGE_SIZE_DEFAULT: Final = 100
_BUILT_AT_ONCE: Final = 200
"""Messages of an answer that are put together before the loop goes on."""
_STATES: Final = {
    int(state): admin_pb2.MessageState.Value(f"MESSAGE_STATE_{state.name}")
    for state in (MessageState.PENDING, MessageState.RELEASED, MessageState.CANCELLED)
}


class Lookup:
    """The service's methods."""

    def __init__(self, engine: EnginePort, access: AccessControl) -> None:
        """Ask an engine; `access` tells which groups are shown."""
        self._engine, self._access = engine, access

    async def list_by_key(
        self, request: wire.ListByKeyRequest, _context: Context
    ) -> wire.ListByKeyResponse:
        """A page of the messages that have a key."""
        check_topic(request.topic)
        key = request.key.encode()
        if not 0 < len(key) <= limits.KEY_BYTES_MAX:
            raise errors.InvalidArgument(
                f"a key has 1 to {limits.KEY_BYTES_MAX} bytes",
                field="key",
                bytes_max=limits.KEY_BYTES_MAX,
            )
        count = request.page_size or PAGE_SIZE_DEFAULT
        check_at_most("page_size", count, limits.PENDING_PAGE_SIZE_MAX)
        page = await self._engine.list_by_key(
            KeyQuery(
                request.topic,
                key,
                request.pending_only,
                *due_range(request.from_due_ms, request.to_due_ms),
            ),
            request.page_token,
            count_max=0 if request.count_only else count,
        )
        response = wire.ListByKeyResponse(
            matched_count=page.matched_count, next_page_token=page.next_token
        )
        for part in page.parts:
            await _add(response, part)
        return response

    async def get_history(
        self, request: wire.GetHistoryRequest, _context: Context
    ) -> wire.GetHistoryResponse:
        """A page of what became of a message; events of groups that are hidden are left out."""
        of = message_id.parse(request.message_id)
        if request.topic:
            check_topic(request.topic)
        page = await self._engine.history(of, request.topic, request.page_token)
        response = wire.GetHistoryResponse(
            is_complete=page.is_complete, next_page_token=page.next_token
        )
        for event in page.events:
            if not event.group or self._shows_group(event.group):
                response.events.add(
                    kind=wire.EventKind.Name(event.kind),
                    at_ms=event.at_ms,
                    group=event.group,
                    attempt=event.attempt,
                    due_ms=event.due_ms,
                    topic=event.topic,
                    producer_id=event.producer_id,
                    priority=event.priority,
                )
        return response

    def _shows_group(self, name: str) -> bool:
        return not self._access.policy.is_on or self._access.may_look(group_resource(name))


async def _add(response: wire.ListByKeyResponse, part: KeyPart) -> None:
    rows = zip(printable(part.ids), part.states.tolist(), part.due_ms.tolist(), strict=True)
    for ordinal, (name, state, due_ms) in enumerate(rows, 1):
        response.messages.add(message_id=name, state=_STATES[state], due_ms=due_ms)
        if not ordinal % _BUILT_AT_ONCE:
            await asyncio.sleep(0)
