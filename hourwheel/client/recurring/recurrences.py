"""Messages that recur, by cron expressions or at fixed intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from hourwheel.client.message import Message
from hourwheel.errors import InvalidArgument, InvalidRecurrence
from hourwheel.formats import meta as metas
from hourwheel.formats.meta import MessageMeta
from hourwheel.instants import duration_to_ms, instant_to_ms
from hourwheel.outcomes import Missed
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import (
    DELETE_RECURRENCE,
    GET_RECURRENCE,
    LIST_NEXT_TIMES,
    LIST_RECURRENCES,
    PAUSE_RECURRENCE,
    PUT_RECURRENCE,
    RESUME_RECURRENCE,
)
from hourwheel.v1 import recurrence_pb2 as wire


@dataclass(frozen=True, slots=True)
class Times:
    """When a message recurs: `cron` or `every` is needed, one of them (docs/guides/recurring.md).

    Raises:
        InvalidRecurrence: an interval or instant that is none. What else is wrong, the node says.
    """

    cron: str = ""
    """Five fields (minute, hour, day of month, month, day of week), or six with seconds in front.
    """
    time_zone: str = ""
    """Of the expression and of the excluded dates: "Europe/Berlin". Empty: UTC."""
    every: timedelta | None = None
    """A fixed interval."""
    start: datetime | None = None
    """The first occurrence of an interval; None: one interval from now. No occurrence of an
    expression is before it."""
    end: datetime | None = None
    """No occurrence is later."""
    count: int = 0
    """So many occurrences; 0: any number."""
    excluded_dates: Sequence[date] = ()
    """Without occurrences, such as holidays."""

    def to_wire(self) -> wire.RecurrenceTimes:
        """As the API has them."""
        if type(self.count) is not int or self.count < 0:
            raise InvalidRecurrence("count is a whole number", field="count_max")
        return wire.RecurrenceTimes(
            cron=self.cron,
            time_zone=self.time_zone,
            every_ms=0 if self.every is None else duration_to_ms(self.every),
            start_ms=0 if self.start is None else instant_to_ms(self.start),
            end_ms=0 if self.end is None else instant_to_ms(self.end),
            count_max=self.count,
            excluded_dates=[one.isoformat() for one in self.excluded_dates],
        )


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrence as it is."""

    topic: str
    name: str
    times: Times
    missed: Missed
    version: int
    """Of its last change."""
    is_paused: bool
    occurrence_count: int
    """How many were published."""
    last_message_id: str
    """Of the last one, which is due in the future, mostly; empty: none, or it was taken back."""
    last_due_ms: int
    body_bytes: int
    meta: MessageMeta
    """Of each message, but for what names the occurrence."""


class RecurrenceAdmin:
    """What `AsyncAdmin` does with recurrences. They belong to a topic, and have names in it."""

    _channel: Channel

    async def put_recurrence(
        self,
        topic: str,
        name: str,
        message: Message,
        times: Times,
        *,
        missed: Missed = Missed.ALL,
        expected_version: int | None = None,
    ) -> int:
        """Have a message published again and again; returns the recurrence's version.

        One of this name that is there is defined anew: what it has published in advance is taken
        back. Each message has the properties `hourwheel.recurrence` and `hourwheel.occurrence`.

        Args:
            topic: where it is published to.
            name: 1 to 128 bytes of printable text.
            message: body, tags, keys and properties; without due time or delay.
            times: when.
            missed: what becomes of occurrences that an outage has delayed.
            expected_version: it must have this version; 0: it must not be there.

        Raises:
            InvalidRecurrence: the times are wrong, never come, or come too often.
            RecurrenceChanged: it has another version than expected.
            TooManyRecurrences, FeatureLevelTooLow, UnknownTopic, TopicPaused.
        """
        if message.delay_ms is not None or message.due_ms is not None:
            raise InvalidArgument("a message that recurs has neither delay nor due time")
        request = wire.PutRecurrenceRequest(
            topic=topic,
            name=name,
            times=times.to_wire(),
            missed=wire.MissedPolicy.Name(missed),
            body=message.body,
            expected_version=expected_version,
        )
        raw = metas.encode(message.meta()).raw
        if raw:
            request.meta.MergeFromString(raw)
        return (await self._channel.call(PUT_RECURRENCE, request)).version

    async def get_recurrence(self, topic: str, name: str) -> Recurrence:
        """One of them. Raises UnknownRecurrence."""
        request = wire.GetRecurrenceRequest(topic=topic, name=name)
        return _recurrence((await self._channel.call(GET_RECURRENCE, request)).recurrence)

    async def recurrences(self, topic: str = "") -> list[Recurrence]:
        """Those of a topic, by name, or all that there are."""
        request, found = wire.ListRecurrencesRequest(topic=topic), list[Recurrence]()
        while True:
            page = await self._channel.call(LIST_RECURRENCES, request)
            found += map(_recurrence, page.recurrences)
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    async def pause_recurrence(self, topic: str, name: str) -> int:
        """No more occurrences; what is published in advance is taken back. Returns the version.

        Raises:
            UnknownRecurrence: there is none of this name.
        """
        request = wire.PauseRecurrenceRequest(topic=topic, name=name)
        return (await self._channel.call(PAUSE_RECURRENCE, request)).version

    async def resume_recurrence(self, topic: str, name: str) -> int:
        """Occurrences again, from now on; those in between never were. Returns the version.

        Raises:
            UnknownRecurrence: there is none of this name. UnknownTopic, TopicPaused.
        """
        request = wire.ResumeRecurrenceRequest(topic=topic, name=name)
        return (await self._channel.call(RESUME_RECURRENCE, request)).version

    async def delete_recurrence(self, topic: str, name: str) -> None:
        """It is gone for good, and what is published in advance is taken back.

        Raises:
            UnknownRecurrence: there is none of this name.
        """
        request = wire.DeleteRecurrenceRequest(topic=topic, name=name)
        await self._channel.call(DELETE_RECURRENCE, request)

    async def next_times(self, topic: str, of: str | Times, count: int = 10) -> list[int]:
        """The next times of a recurrence, by its name, or of one that is only considered.

        Epoch milliseconds, ascending; fewer than `count` where it ends.

        Raises:
            UnknownRecurrence, InvalidRecurrence.
        """
        request = wire.ListNextTimesRequest(topic=topic, count=count)
        if isinstance(of, Times):
            request.times.CopyFrom(of.to_wire())
        else:
            request.name = of
        return list((await self._channel.call(LIST_NEXT_TIMES, request)).due_ms)


def _recurrence(found: wire.Recurrence) -> Recurrence:
    times = found.times
    return Recurrence(
        topic=found.topic,
        name=found.name,
        times=Times(
            cron=times.cron,
            time_zone=times.time_zone,
            every=timedelta(milliseconds=times.every_ms) if times.every_ms else None,
            start=_instant(times.start_ms),
            end=_instant(times.end_ms),
            count=times.count_max,
            excluded_dates=tuple(map(date.fromisoformat, times.excluded_dates)),
        ),
        missed=Missed(found.missed),
        version=found.version,
        is_paused=found.is_paused,
        occurrence_count=found.occurrence_count,
        last_message_id=found.last_message_id,
        last_due_ms=found.last_due_ms,
        body_bytes=found.body_bytes,
        meta=metas.decode(found.meta.SerializeToString()),
    )


def _instant(at_ms: int) -> datetime | None:
    return datetime.fromtimestamp(at_ms / 1_000, UTC) if at_ms else None
