"""Messages that the master cannot read: listed, and given up, by an operator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hourwheel.formats import message_id
from hourwheel.formats.message_id import MessageId
from hourwheel.limits import DAMAGED_PAGE_SIZE_MAX
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import DISCARD_DAMAGED, LIST_DAMAGED
from hourwheel.transport.pages import pages_of
from hourwheel.v1 import admin_pb2

PAGE_SIZE: Final = DAMAGED_PAGE_SIZE_MAX


@dataclass(frozen=True, slots=True)
class DamagedMessage:
    """A message that a group should get, and that the master cannot read."""

    message_id: MessageId
    group: str
    topic: str
    """That it was published to."""
    stands_in: str
    """The same, or the topic of the group's retries or dead letters."""
    due_ms: int
    """When it was due, in milliseconds since the Unix epoch."""
    attempt: int
    """Which delivery this would be."""
    body_bytes: int
    place: str
    """Where its bytes are, in the master's files, and what is wrong with them."""
    found_ms: int
    """When it was found."""
    tries: int
    """How often good bytes were looked for since, in vain."""


async def list_damaged(channel: Channel, group: str, topic: str) -> list[DamagedMessage]:
    """All of them, in the order in which they were found. Raises HourwheelErrors."""
    request = admin_pb2.ListDamagedRequest(group=group, topic=topic, page_size=PAGE_SIZE)
    found: list[DamagedMessage] = []
    async for answer in pages_of(channel, LIST_DAMAGED, request):
        found += map(_message, answer.messages)
    return found


async def discard_damaged(
    channel: Channel, group: str, topic: str, ids: Sequence[MessageId | str] | None
) -> list[DamagedMessage]:
    """Give them up; those that were. Raises HourwheelErrors; to call again is safe."""
    texts = [str(one if isinstance(one, MessageId) else message_id.parse(one)) for one in ids or ()]
    gone: list[DamagedMessage] = []
    while ids is None or texts:
        piece, texts = texts[:PAGE_SIZE], texts[PAGE_SIZE:]
        request = admin_pb2.DiscardDamagedRequest(
            group=group, topic=topic, message_ids=piece, all=ids is None
        )
        answer = await channel.call(DISCARD_DAMAGED, request)
        gone += map(_message, answer.messages)
        if ids is None and not (answer.messages and answer.left_count):
            break
    return gone


def _message(one: admin_pb2.DamagedMessage) -> DamagedMessage:
    return DamagedMessage(
        message_id=message_id.parse(one.message_id),
        group=one.group,
        topic=one.topic,
        stands_in=one.stands_in,
        due_ms=one.due_ms,
        attempt=one.attempt,
        body_bytes=one.body_bytes,
        place=one.place,
        found_ms=one.found_ms,
        tries=one.tries,
    )
