import asyncio

import pytest

from hourwheel import errors
from hourwheel.client.buffer_pool import BufferPool


async def waiting_for(room: BufferPool, *sizes: int) -> "list[asyncio.Task[None]]":
    tasks = [asyncio.create_task(room.take(size)) for size in sizes]
    await asyncio.sleep(0)
    return tasks


async def test_room_when_first_come_is_first_served() -> None:
    room = BufferPool(10)
    await room.take(6)
    large, small = await waiting_for(room, 8, 1)
    assert not small.done()  # although it would fit: else the large one might wait for ever
    room.give_back(6)
    await asyncio.gather(large, small)


async def test_room_when_one_is_larger_than_all() -> None:
    room = BufferPool(10)
    await room.take(1)
    (huge,) = await waiting_for(room, 50)
    room.give_back(1)
    await huge
    (next_one,) = await waiting_for(room, 1)
    assert not next_one.done()
    room.give_back(50)
    await next_one


async def test_room_when_who_waits_goes_away() -> None:
    room = BufferPool(10)
    await room.take(10)
    leaving, leaving_late, staying = await waiting_for(room, 10, 10, 10)
    leaving.cancel()
    await asyncio.sleep(0)
    room.give_back(10)  # goes to `leaving_late`, who leaves before it can be told
    leaving_late.cancel()
    await asyncio.wait([leaving, leaving_late])
    await staying


async def test_room_when_refused() -> None:
    room = BufferPool(10)
    await room.take(10)
    (waiting,) = await waiting_for(room, 1)
    room.refuse_all(errors.Cancelled())
    with pytest.raises(errors.Cancelled):
        await waiting
