"""How much of large requests one turn takes up, and in which order they go on."""

import asyncio

from node.api.admission import SMALL_BYTES, TurnBudget

LARGE = 3 * SMALL_BYTES


async def turns_of(budget: TurnBudget, sizes: list[int]) -> dict[int, int]:
    """At which turn each of the requests, all there at once, went on; in the order they did."""
    found: dict[int, int] = {}
    turn = 0

    async def take(at: int, size: int) -> None:
        await budget.take(size)
        found[at] = turn

    tasks = [asyncio.ensure_future(take(at, size)) for at, size in enumerate(sizes)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turn += 1
    return found


async def test_a_turn_takes_up_no_more_than_its_budget_and_one_request() -> None:
    found = await turns_of(TurnBudget(2 * LARGE), [LARGE] * 7)
    assert list(found) == list(range(7))
    counts = [list(found.values()).count(turn) for turn in sorted(set(found.values()))]
    assert counts == [2, 2, 2, 1]
    found = await turns_of(TurnBudget(LARGE), [9 * LARGE, LARGE, 9 * LARGE])
    assert len(set(found.values())) == 3


async def test_small_requests_do_not_wait_and_a_turn_without_work_gives_the_room_back() -> None:
    budget = TurnBudget(LARGE)
    found = await turns_of(budget, [LARGE, LARGE, LARGE, SMALL_BYTES - 1])
    assert found[3] == found[0]
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(set((await turns_of(budget, [LARGE])).values())) == 1
    await asyncio.wait_for(budget.take(LARGE), 60)


async def test_one_that_is_given_up_takes_no_room() -> None:
    budget = TurnBudget(LARGE)
    first, second, given_up, kept = (asyncio.ensure_future(budget.take(LARGE)) for _ in range(4))
    await first
    given_up.cancel()
    await second
    assert not kept.done()
    await asyncio.sleep(0)
    await kept
    assert given_up.cancelled()
