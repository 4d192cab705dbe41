"""Answers that were made a moment ago."""

import asyncio

import pytest

from node.console.recent import Recent


class Maker:
    """Makes answers, one after the other, when the test says so."""

    def __init__(self) -> None:
        self.count = 0
        self.may_go_on = asyncio.Event()
        self.error: Exception | None = None

    async def make(self) -> int:
        self.count += 1
        number = self.count
        await self.may_go_on.wait()
        if self.error is not None:
            raise self.error
        return number


async def test_those_who_ask_together_share_an_answer() -> None:
    now_ms, maker = [0.0], Maker()
    recent = Recent(lambda: now_ms[0])
    asking = [asyncio.ensure_future(recent.get("a", 10, maker.make)) for _ in range(50)]
    await asyncio.sleep(0)
    now_ms[0] = 100.0  # it takes its time: who comes late waits for the same one
    asking.append(asyncio.ensure_future(recent.get("a", 10, maker.make)))
    await asyncio.sleep(0)
    maker.may_go_on.set()
    assert set(await asyncio.gather(*asking)) == {1}


async def test_answer_is_made_again_when_it_is_old_or_forgotten() -> None:
    now_ms, maker = [0.0], Maker()
    maker.may_go_on.set()
    recent = Recent(lambda: now_ms[0])
    assert [await recent.get("a", 10, maker.make) for _ in range(2)] == [1, 1]
    now_ms[0] = 10.0
    assert await recent.get("a", 10, maker.make) == 1
    now_ms[0] = 10.5
    assert await recent.get("a", 10, maker.make) == 2
    assert await recent.get("b", 10, maker.make) == 3
    recent.forget()
    assert await recent.get("a", 10, maker.make) == 4


async def test_failure_is_told_to_all_and_not_remembered() -> None:
    maker = Maker()
    maker.error = ValueError("no")
    maker.may_go_on.set()
    recent = Recent(lambda: 0.0)
    found = await asyncio.gather(
        *(recent.get("a", 10, maker.make) for _ in range(3)), return_exceptions=True
    )
    assert [type(one) for one in found] == [ValueError] * 3
    maker.error = None
    assert await recent.get("a", 10, maker.make) == 2


async def test_answer_is_made_to_its_end_when_one_of_those_who_ask_is_gone() -> None:
    maker = Maker()
    recent = Recent(lambda: 0.0)
    gone, stays = (asyncio.ensure_future(recent.get("a", 10, maker.make)) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    maker.may_go_on.set()
    assert await stays == 1


async def test_answers_remembered_are_few() -> None:
    maker = Maker()
    maker.may_go_on.set()
    recent = Recent(lambda: 0.0, count_max=2)
    for key in ("a", "b", "a", "c"):  # b is the one that nobody has asked for lately
        await recent.get(key, 10, maker.make)
    assert await recent.get("a", 10, maker.make) == 1
    assert await recent.get("b", 10, maker.make) == 4


async def test_close_ends_what_is_under_way() -> None:
    maker = Maker()
    recent = Recent(lambda: 0.0)
    asking = asyncio.ensure_future(recent.get("a", 10, maker.make))
    await asyncio.sleep(0)
    await recent.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
