from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta

import pytest

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.recurring.recurrences import Times
from hourwheel.outcomes import Missed
from tests.support.fake_node import FakeNode
from tests.support.fake_recurring import FIRST_MS

WEEKDAYS = Times(
    cron="0 9 * * MON-FRI",
    time_zone="Europe/Berlin",
    start=datetime(2027, 1, 1, tzinfo=UTC),
    end=datetime(2029, 1, 1, tzinfo=UTC),
    count=7,
    excluded_dates=(date(2027, 12, 24), date(2027, 12, 31)),
)


@pytest.fixture
async def admin() -> AsyncIterator[AsyncAdmin]:
    async with FakeNode() as node, AsyncAdmin(node.address) as found:
        yield found


async def test_recurrence_when_put_is_as_it_was_given(admin: AsyncAdmin) -> None:
    message = Message(b"body", tags=("t",), keys=("k",), properties={"p": "1"})
    version = await admin.put_recurrence("orders", "a", message, WEEKDAYS, missed=Missed.LAST)
    found = await admin.get_recurrence("orders", "a")
    assert (found.topic, found.name, found.version) == ("orders", "a", version)
    assert (found.times, found.missed, found.meta) == (WEEKDAYS, Missed.LAST, message.meta())
    assert (found.occurrence_count, found.last_due_ms, found.body_bytes) == (1, FIRST_MS, 4)
    with pytest.raises(errors.RecurrenceChanged):
        await admin.put_recurrence("orders", "a", message, WEEKDAYS, expected_version=0)
    await admin.put_recurrence("orders", "a", message, WEEKDAYS, expected_version=version)


async def test_recurrence_when_paused_resumed_and_deleted(admin: AsyncAdmin) -> None:
    times = Times(every=timedelta(minutes=1))
    first = await admin.put_recurrence("orders", "a", Message(b""), times)
    assert await admin.pause_recurrence("orders", "a") > first
    assert (await admin.get_recurrence("orders", "a")).is_paused
    await admin.resume_recurrence("orders", "a")
    assert not (await admin.get_recurrence("orders", "a")).is_paused
    assert await admin.next_times("orders", "a", 2) == [FIRST_MS, FIRST_MS + 60_000]
    await admin.delete_recurrence("orders", "a")
    with pytest.raises(errors.UnknownRecurrence):
        await admin.get_recurrence("orders", "a")


async def test_recurrences_when_there_are_several_pages(admin: AsyncAdmin) -> None:
    times = Times(every=timedelta(minutes=1))
    for topic, name in (("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")):
        await admin.put_recurrence(topic, name, Message(b""), times)
    assert [one.name for one in await admin.recurrences("a")] == ["1", "2", "3"]
    assert len(await admin.recurrences()) == 4
    assert await admin.next_times("a", times, 2) == [FIRST_MS, FIRST_MS + 60_000]


async def test_what_is_no_recurrence_is_refused(admin: AsyncAdmin) -> None:
    times = Times(every=timedelta(minutes=1))
    with pytest.raises(errors.InvalidArgument):
        await admin.put_recurrence("orders", "a", Message(b"", delay_ms=5), times)
    with pytest.raises(errors.InvalidRecurrence):
        await admin.put_recurrence("orders", "a", Message(b""), Times(cron="x", count=-1))
    with pytest.raises(errors.MessageTooLarge):
        await admin.put_recurrence("orders", "a", Message(b"x" * 65_537), times)
