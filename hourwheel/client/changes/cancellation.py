"""Taking messages back, by the thousand: ids in one packed field, outcomes in one array."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple, TypeAlias, cast

from hourwheel import errors, limits
from hourwheel.client.message_ids import PublishedIds
from hourwheel.formats import message_id
from hourwheel.formats.message_id import ID_BYTES, MessageId
from hourwheel.outcomes import CancelOutcome
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import CANCEL
from hourwheel.v1 import broker_pb2

Ids: TypeAlias = Sequence[MessageId | str] | Sequence[MessageId] | Sequence[str] | PublishedIds
_CANCEL_BY_KEY: Final = replace(CANCEL, is_repeatable=False)
"""The second try would not count what the first one has cancelled, and it may take long."""
_OUTCOMES: Final = {int(outcome): outcome for outcome in CancelOutcome}


async def cancel_many(channel: Channel, ids: Ids) -> list[CancelOutcome]:
    """Take back n messages; one definite and true outcome for each, in order.

    Args:
        channel: to a node.
        ids: ids, printable or not; `PublishedIds` cost nothing to send.

    Raises:
        InvalidMessageId: naming a text that is no id; nothing is cancelled then.
        HourwheelError: a call failed; calling again is safe.
    """
    return list(map(_OUTCOMES.__getitem__, await cancel_packed(channel, pack(ids))))


async def cancel_packed(channel: Channel, packed: bytes) -> list[int]:
    """As `cancel_many`, for ids in their packed form; gives `CancelOutcome` values."""
    step = limits.CANCEL_COUNT_MAX * ID_BYTES
    answers = [
        await channel.call(
            CANCEL, broker_pb2.CancelRequest(packed_message_ids=packed[at : at + step])
        )
        for at in range(0, len(packed), step)
    ]
    return list(chain.from_iterable(answer.outcomes for answer in answers))


class KeyCancelled(NamedTuple):
    """What became of the messages that have a key."""

    outcome: CancelOutcome
    """CANCELLED: this call has cancelled one; or none was released, and one was cancelled before.
    ALREADY_RELEASED: this call has cancelled none, and one was released. UNKNOWN: no message that
    has the key is known."""
    cancelled_count: int
    """How many this call has cancelled."""


async def cancel_keys(channel: Channel, topic: str, keys: Sequence[str]) -> list[KeyCancelled]:
    """Take back all messages of a topic that have one of n keys; one answer for each, in order.

    All whose publish was answered before are among them.

    Raises:
        UnknownTopic: there is no such topic.
        InvalidArgument: no message can have such a key.
        Timeout: no answer in time: some may be cancelled or all. Calling again is safe, but does
            not count them; it says ALREADY_RELEASED where the others are released.
        HourwheelError: a call failed.
    """
    found: list[KeyCancelled] = []
    for at in range(0, len(keys), limits.CANCEL_COUNT_MAX):
        part = keys[at : at + limits.CANCEL_COUNT_MAX]
        answer = await channel.call(
            _CANCEL_BY_KEY, broker_pb2.CancelRequest(topic=topic, keys=part)
        )
        if len(answer.outcomes) != len(part):
            raise errors.FailedPrecondition("a node of an earlier version cannot cancel by key")
        outcomes = map(_OUTCOMES.__getitem__, answer.outcomes)
        found += map(KeyCancelled, outcomes, answer.cancelled_counts)
    return found


def pack(ids: Ids) -> bytes:
    """Ids as 24 bytes each, one behind the other. Raises `InvalidMessageId`."""
    if isinstance(ids, PublishedIds):
        return ids.packed()
    if set(map(type, ids)) == {MessageId}:
        return message_id.pack_many(cast("Sequence[MessageId]", ids))
    return message_id.parse_many(list(map(str, ids))).tobytes()
