"""Lag for a scrape: who gets a series, and that one walk serves all who ask."""

import asyncio

import pytest

from node.broker.consumer_lag import ConsumerLag, LagReading, LagSeries
from node.contracts.lags import GroupLagInfo, LagPlace, LagsPart


class Lags:
    """Parts to be told; counts how often somebody begins."""

    def __init__(self, *parts: list[tuple[str, GroupLagInfo]]) -> None:
        self.parts = list(parts)
        self.begun = 0
        self.error: Exception | None = None

    def __call__(self, after: LagPlace | None) -> LagsPart:
        if self.error is not None:
            raise self.error
        at = 0 if after is None else after.topic_id
        self.begun += after is None
        is_last = at + 1 == len(self.parts)
        return LagsPart(self.parts[at], None if is_last else LagPlace("", at + 1))


def lag(group: str, unresolved: int, leased: int = 0) -> tuple[str, GroupLagInfo]:
    return group, GroupLagInfo("orders", unresolved, leased)


async def test_those_most_behind_get_a_series_and_the_others_are_summed_up() -> None:
    lags = Lags(*[[lag(f"g{number:03}", number % 50, 1)] for number in range(200)])
    found = await ConsumerLag(lags, 5).read()
    behind = [(48, 48), (49, 49), (99, 49), (149, 49), (199, 49)]
    assert found.series == tuple(
        LagSeries(f"g{number:03}", "orders", count, 1) for number, count in behind
    )
    assert found.omitted_count == 195
    assert found.unresolved_count == 4 * sum(range(50))
    assert found.leased_count == 200


async def test_oldest_is_told_of_each_and_of_all() -> None:
    info = [GroupLagInfo("orders", 1, 0, oldest_ms=ms) for ms in (0, 5_000, 3_000)]
    lags = Lags(*[[(f"g{number}", one)] for number, one in enumerate(info)])
    found = await ConsumerLag(lags, 5).read()
    assert [one.age_ms(9_000) for one in found.series] == [0, 4_000, 6_000]
    assert (found.age_ms(9_000), found.age_ms(2_000)) == (6_000, 0)
    assert LagReading().age_ms(9_000) == 0


async def test_nobody_is_behind_where_there_is_nobody() -> None:
    assert await ConsumerLag(Lags([]), 5).read() == LagReading()


async def test_scrapes_at_one_time_share_a_walk() -> None:
    lags = Lags(*[[lag("g", 1)]] * 20)
    walking = ConsumerLag(lags, 5)
    found = await asyncio.gather(*(walking.read() for _ in range(12)))
    assert lags.begun == 1
    assert {one.unresolved_count for one in found} == {20}


async def test_a_scrape_does_not_wait_for_a_walk_that_takes_long() -> None:
    lags = Lags(*[[lag("g", 1)]] * 100)
    walking = ConsumerLag(lags, 5, wait_s=0.0)
    assert await walking.read() == LagReading(), "nothing is known yet"
    for _ in range(100):
        await asyncio.sleep(0)
    assert (await walking.read()).unresolved_count == 100


async def test_whoever_scrapes_is_told_of_a_failure_and_the_next_walk_begins_anew() -> None:
    lags = Lags([lag("g", 1)])
    walking = ConsumerLag(lags, 5)
    lags.error = RuntimeError("broken")
    with pytest.raises(RuntimeError, match="broken"):
        await walking.read()
    lags.error = None
    assert (await walking.read()).unresolved_count == 1


async def test_close_leaves_a_walk() -> None:
    lags = Lags(*[[lag("g", 1)]] * 1_000)
    walking = ConsumerLag(lags, 5)
    asked = asyncio.ensure_future(walking.read())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await walking.close()
    assert await asked == LagReading()
