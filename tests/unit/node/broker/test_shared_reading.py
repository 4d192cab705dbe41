"""One walk for all who ask."""

import asyncio

from node.broker.shared_reading import SharedReading


class Walks:
    """Each finds its number, once the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.may_end.wait()
        return number


async def test_who_asks_meanwhile_shares_the_walk_and_who_cannot_wait_gets_the_last() -> None:
    walks = Walks()
    patient, hasty = SharedReading(walks, 0), SharedReading(walks, 0, wait_s=0.0)
    asking = [asyncio.ensure_future(patient.read()) for _ in range(5)]
    await asyncio.sleep(0)
    assert await hasty.read() == 0
    walks.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert walks.begun == 2
    await hasty.close()


async def test_close_ends_the_walk() -> None:
    walks = Walks()
    reading = SharedReading(walks, 0, wait_s=0.0)
    await reading.read()
    await reading.close()
    walks.may_end.set()
    assert walks.begun <= 1
