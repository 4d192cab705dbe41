import pytest

from hourwheel import errors, limits
from hourwheel.client.changes.rescheduling import (
    KeyRescheduled,
    NewTimes,
    Rescheduled,
    reschedule_keys,
    reschedule_many,
)
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import RescheduleOutcome
from hourwheel.transport.channel import Channel
from tests.support.fake_node import EPOCH, SHARD, FakeNode

RESCHEDULED, UNKNOWN = RescheduleOutcome.RESCHEDULED, RescheduleOutcome.UNKNOWN
LATER_MS = 2_000_000_000_000


def ids(count: int) -> list[MessageId]:
    return [MessageId(SHARD, EPOCH, sequence, 5) for sequence in range(count)]


async def test_ids_when_each_has_its_answer(node: FakeNode, channel: Channel) -> None:
    node.add_topic("t", b"0", b"1")
    assert await reschedule_many(channel, ids(3), NewTimes(LATER_MS, None)) == [
        Rescheduled(RESCHEDULED, LATER_MS),
        Rescheduled(RESCHEDULED, LATER_MS),
        Rescheduled(UNKNOWN, None),
    ]
    found = await reschedule_many(channel, ids(2), NewTimes(None, [7, 8]))
    assert [one.due_ms for one in found] == [7, 8]
    assert list(node.calls["Reschedule"][-1].delay_ms) == [7, 8]
    assert await reschedule_many(channel, [], NewTimes(None, 5)) == []


async def test_calls_when_there_is_too_much_for_one(
    node: FakeNode, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.add_topic("t", b"0", b"1", b"2")
    monkeypatch.setattr(limits, "CANCEL_COUNT_MAX", 2)
    found = await reschedule_many(channel, ids(3), NewTimes(None, [7, 8, 9]))
    assert [one.due_ms for one in found] == [7, 8, 9]
    of_keys = await reschedule_keys(channel, "t", ["a", "b", "c"], NewTimes(None, [1, 2, 3]))
    assert of_keys == [KeyRescheduled(UNKNOWN, None, 0)] * 3
    calls = node.calls["Reschedule"]
    assert [len(one.packed_message_ids) // 24 or len(one.keys) for one in calls] == [2, 1, 2, 1]


async def test_producer_when_it_moves_what_it_has_published(node: FakeNode) -> None:
    async with AsyncProducer(node.address) as producer:
        message_id = await producer.publish("t", Message(b"x", keys=("k",)))
        moved = await producer.reschedule(message_id, due_ms=LATER_MS)
        assert moved == Rescheduled(RESCHEDULED, LATER_MS)
        of_key = await producer.reschedule_by_key("t", "k", delay_ms=60_000)
        assert of_key == KeyRescheduled(RESCHEDULED, 60_000, 1)


@pytest.mark.parametrize(
    ("due_ms", "delay_ms", "error"),
    [
        (None, None, errors.InvalidArgument),
        (LATER_MS, 5, errors.InvalidArgument),
        (1_700_000_000, None, errors.InvalidDueTime),  # seconds
        (None, -1, errors.InvalidArgument),
    ],
)
def test_times_when_they_cannot_be(
    due_ms: int | None, delay_ms: int | None, error: type[errors.HourwheelError]
) -> None:
    with pytest.raises(error):
        NewTimes(due_ms, delay_ms)


async def test_times_when_there_is_not_one_for_each(channel: Channel) -> None:
    with pytest.raises(errors.InvalidArgument, match="2 times for 3"):
        await reschedule_many(channel, ids(3), NewTimes(None, [1, 2]))
