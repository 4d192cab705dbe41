import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.gateway import calls, models
from hourwheel.gateway.listings import (
    LISTINGS_A_CALLER,
    LISTINGS_WAITING_A_CALLER,
    MESSAGES_A_TURN,
    ListingTurns,
)
from hourwheel.transport.channel import Channel
from hourwheel.v1 import admin_pb2, lookup_pb2


async def test_few_run_few_wait_and_the_rest_is_refused() -> None:
    turns, end = ListingTurns(), asyncio.Event()
    running: list[int] = []
    order: list[int] = []

    async def listing(number: int) -> None:
        async with turns.turn():
            running.append(number)
            order.append(number)
            await end.wait()
            running.remove(number)

    count = LISTINGS_A_CALLER + LISTINGS_WAITING_A_CALLER
    tasks = [asyncio.create_task(listing(number)) for number in range(count)]
    await asyncio.sleep(0)
    assert running == list(range(LISTINGS_A_CALLER))
    with pytest.raises(errors.Overloaded):
        await listing(count)
    tasks[-1].cancel()  # who hangs up makes room
    await asyncio.wait([tasks.pop()])
    tasks.append(asyncio.create_task(listing(count)))
    await asyncio.sleep(0)
    end.set()
    await asyncio.gather(*tasks)
    assert order == [*range(count - 1), count]
    async with ListingTurns().turn():
        assert running == []


class LongTopic(Channel):
    """To a node that has as many messages of any key as are asked for."""

    async def call(self, _: Any, request: Any, **__: Any) -> Any:
        await asyncio.sleep(0)
        answer = lookup_pb2.ListByKeyResponse()
        for _ in range(request.page_size):
            answer.messages.add(message_id="0" * 48, state=admin_pb2.MESSAGE_STATE_PENDING)
        return answer


@dataclass
class Lister:
    """Somebody who lists."""

    name: str = "eve"
    channel: Any = field(default_factory=lambda: LongTopic("127.0.0.1:1"))
    listings: ListingTurns = field(default_factory=ListingTurns)


async def test_a_turn_of_the_loop_has_a_bounded_part_of_one_callers_listings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = [0]

    class Counted(models.Description):
        def model_post_init(self, _: Any) -> None:
            made[-1] += 1

    monkeypatch.setattr(models, "Description", Counted)
    caller = Lister()
    query = {"key": "k", "limit": str(models.KEY_PAGE_MAX)}
    call = calls.Call(caller, {"topic": "t"}, query, {}, None)
    count = LISTINGS_A_CALLER + LISTINGS_WAITING_A_CALLER
    listing = asyncio.gather(*(calls.describe_by_key(call) for _ in range(count)))
    while not listing.done():
        await asyncio.sleep(0)
        made.append(0)
    found = [one.answer for one in await listing]
    assert sum(made) == count * models.KEY_PAGE_MAX
    assert max(made) <= LISTINGS_A_CALLER * MESSAGES_A_TURN
    assert all(isinstance(one, models.Described) and one.is_complete for one in found)
