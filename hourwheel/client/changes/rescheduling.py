"""Moving messages to other due times, by the thousand: ids in one packed field, answers in columns.

New due times are instants or delays, one for all or one for each. A delay is counted by the
cluster's clock from when the node takes the call in.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from hourwheel import errors, limits
from hourwheel.client.changes.cancellation import Ids, pack
from hourwheel.formats.message_id import ID_BYTES
from hourwheel.instants import INSTANT_MS_MIN, check_count, check_instant
from hourwheel.outcomes import RescheduleOutcome
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import RESCHEDULE
from hourwheel.v1 import broker_pb2

_OUTCOMES: Final = {int(outcome): outcome for outcome in RescheduleOutcome}


class Rescheduled(NamedTuple):
    """What became of a message that was to be moved."""

    outcome: RescheduleOutcome
    due_ms: int | None
    """When it is due now, where it was RESCHEDULED: the time that was asked for, or where that was
    past, when it was released."""


class KeyRescheduled(NamedTuple):
    """What became of the messages that have a key."""

    outcome: RescheduleOutcome
    """RESCHEDULED: this call has moved one. ALREADY_RELEASED, CANCELLED: it came too late for all
    of them. UNKNOWN: no message that has the key is known."""
    due_ms: int | None
    """When those that were moved are due now."""
    rescheduled_count: int
    """How many this call has moved."""


class NewTimes:
    """Where messages are to be moved: one time for all of them, or one for each."""

    def __init__(
        self,
        due_ms: int | Sequence[int] | None,
        delay_ms: int | Sequence[int] | None,
        due_ms_min: int = INSTANT_MS_MIN,
    ) -> None:
        """Exactly one of the first two is given.

        Raises:
            InvalidArgument: both, or none.
            InvalidDueTime: a number that cannot be, or an instant before `due_ms_min`.
        """
        if (due_ms is None) == (delay_ms is None):
            raise errors.InvalidArgument("either due_ms or delay_ms is needed", field="due_ms")
        given = delay_ms if due_ms is None else due_ms
        self.is_one = isinstance(given, int)
        self.are_delays = due_ms is None
        self.times: list[int] = [given] if isinstance(given, int) else list(given or ())
        for one in self.times:
            if self.are_delays:
                check_count(one, "delay_ms")
            else:
                check_instant(one, due_ms_min)

    def check(self, count: int) -> None:
        """Raises InvalidArgument where there is neither one time nor one for each of so many."""
        if not self.is_one and len(self.times) != count:
            raise errors.InvalidArgument(
                f"{len(self.times)} times for {count} ids or keys: one is needed, or one for each",
                field="due_ms",
            )

    def put_into(self, request: broker_pb2.RescheduleRequest, first: int, end: int) -> None:
        """Those of the ids or keys [first, end)."""
        times = self.times if self.is_one else self.times[first:end]
        (request.delay_ms if self.are_delays else request.due_ms).extend(times)


async def reschedule_many(channel: Channel, ids: Ids, times: NewTimes) -> list[Rescheduled]:
    """Move n messages; one definite and true answer for each, in order. Their ids stay.

    Args:
        channel: to a node.
        ids: ids, printable or not; `PublishedIds` cost nothing to send.
        times: where to.

    Raises:
        InvalidMessageId: naming a text that is no id; nothing is moved then.
        InvalidDueTime, BeyondHorizon: of one of the times.
        HourwheelError: a call failed; calling again is safe.
    """
    packed, found = pack(ids), list[Rescheduled]()
    count = len(packed) // ID_BYTES
    times.check(count)
    for at in range(0, count, limits.CANCEL_COUNT_MAX):
        end = min(count, at + limits.CANCEL_COUNT_MAX)
        request = broker_pb2.RescheduleRequest(
            packed_message_ids=packed[at * ID_BYTES : end * ID_BYTES]
        )
        times.put_into(request, at, end)
        answer = await channel.call(RESCHEDULE, request)
        found += [
            Rescheduled(_OUTCOMES[code], due_ms or None)
            for code, due_ms in zip(answer.outcomes, answer.due_ms, strict=True)
        ]
    return found


async def reschedule_keys(
    channel: Channel, topic: str, keys: Sequence[str], times: NewTimes
) -> list[KeyRescheduled]:
    """Move all messages of a topic that have one of n keys; one answer for each, in order.

    All whose publish was answered before are among them.

    Raises:
        UnknownTopic: there is no such topic.
        InvalidArgument: no message can have such a key.
        HourwheelError: as `reschedule_many`; what the first call has moved the second moves again.
    """
    found: list[KeyRescheduled] = []
    times.check(len(keys))
    for at in range(0, len(keys), limits.CANCEL_COUNT_MAX):
        part = keys[at : at + limits.CANCEL_COUNT_MAX]
        request = broker_pb2.RescheduleRequest(topic=topic, keys=part)
        times.put_into(request, at, at + len(part))
        answer = await channel.call(RESCHEDULE, request)
        rows = zip(answer.outcomes, answer.due_ms, answer.rescheduled_counts, strict=True)
        found += [KeyRescheduled(_OUTCOMES[code], due or None, count) for code, due, count in rows]
    return found
