"""The task's own affairs; what it does for users: test_producer.py."""

import asyncio

import pytest

from hourwheel import batch_builder, errors
from hourwheel.batch_builder import Columns, Draft
from hourwheel.channel import Channel
from hourwheel.publish_pump import PublishPump, PumpSettings, Room
from tests.support.fake_node import FakeNode


def pump_of(channel: Channel, *, linger_ms: float = 0.0, batch_messages: int = 10) -> PublishPump:
    settings = PumpSettings(
        linger_ms=linger_ms,
        batch_messages=batch_messages,
        batch_bytes=1 << 20,
        buffer_bytes=1 << 20,
        delivery_timeout_ms=60_000.0,
        answer_timeout_ms=60_000.0,
        is_idempotent=True,
    )
    return PublishPump(channel, settings)


def draft(body: bytes = b"x") -> Draft:
    return batch_builder.draft_columns(Columns(bodies=[body]))


async def waiting_for(room: Room, *sizes: int) -> "list[asyncio.Task[None]]":
    tasks = [asyncio.create_task(room.take(size)) for size in sizes]
    await asyncio.sleep(0)
    return tasks


async def test_room_when_first_come_is_first_served() -> None:
    room = Room(10)
    await room.take(6)
    large, small = await waiting_for(room, 8, 1)
    assert not small.done()  # although it would fit: else the large one might wait for ever
    room.give_back(6)
    await asyncio.gather(large, small)


async def test_room_when_one_is_larger_than_all() -> None:
    room = Room(10)
    await room.take(1)
    (huge,) = await waiting_for(room, 50)
    room.give_back(1)
    await huge
    (next_one,) = await waiting_for(room, 1)
    assert not next_one.done()
    room.give_back(50)
    await next_one


async def test_room_when_who_waits_goes_away() -> None:
    room = Room(10)
    await room.take(10)
    leaving, leaving_late, staying = await waiting_for(room, 10, 10, 10)
    leaving.cancel()
    await asyncio.sleep(0)
    room.give_back(10)  # goes to `leaving_late`, who leaves before it can be told
    leaving_late.cancel()
    await asyncio.wait([leaving, leaving_late])
    await staying


async def test_room_when_refused() -> None:
    room = Room(10)
    await room.take(10)
    (waiting,) = await waiting_for(room, 1)
    room.refuse_all(errors.Cancelled())
    with pytest.raises(errors.Cancelled):
        await waiting


async def test_add_when_closed(channel: Channel) -> None:
    pump = pump_of(channel)
    pump.refuse_new()
    with pytest.raises(errors.Cancelled):
        _ = await pump.add("t", draft(), is_single=True)
    await pump.flush()
    await pump.close()


async def test_add_when_a_bug_of_ours_strikes(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> bytes:
        raise ZeroDivisionError

    monkeypatch.setattr(batch_builder, "build", broken)
    pump = pump_of(channel, batch_messages=1)
    futures = [await pump.add("t", draft(), is_single=True) for _ in range(3)]
    await asyncio.wait(futures)
    assert {type(future.exception()) for future in futures} == {errors.Internal}
    with pytest.raises(errors.Cancelled):
        _ = await pump.add("t", draft(), is_single=True)
    await pump.close()


async def test_flush_when_nothing_was_added(channel: Channel) -> None:
    pump = pump_of(channel)
    await pump.flush()
    await pump.close()


async def test_flush_when_messages_linger(node: FakeNode, channel: Channel) -> None:
    pump = pump_of(channel, linger_ms=3_600_000.0)
    future = await pump.add("t", draft(), is_single=True)
    await asyncio.gather(pump.flush(), pump.flush())
    assert (await future).sequence == 0
    await pump.close()


async def test_linger_when_it_is_over(node: FakeNode, channel: Channel) -> None:
    pump = pump_of(channel, linger_ms=1.0)
    futures = [await pump.add("t", draft(b"%d" % n), is_single=True) for n in range(3)]
    await asyncio.gather(*futures)
    assert len(node.calls["PublishStream"]) == 1
    await pump.close()
