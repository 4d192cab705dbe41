"""The client ends what it prepares, by itself or when it is asked, and records the answers."""

import asyncio
from collections.abc import Sequence

from chaos.actors.transactions import TransactionClient
from chaos.history import body_of
from hourwheel import AsyncTransactions, Message, errors
from hourwheel.client.transactions.words import CheckedTransaction
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import TransactionState
from tests.support.api_world import ApiWorld
from tests.support.eventually import until


async def test_each_transaction_has_the_outcome_of_its_number() -> None:
    accepted: set[int] = set()
    failed: dict[int, errors.HourwheelError] = {}
    contradictions: list[str] = []

    def accept(serials: list[int], ids: list[MessageId]) -> None:
        assert len(serials) == len(ids)
        accepted.update(serials)

    def fail(serials: list[int], error: errors.HourwheelError) -> None:
        failed.update(dict.fromkeys(serials, error))

    async with (
        ApiWorld() as world,
        AsyncTransactions(world.address, group="transactions") as client,
    ):
        actor = TransactionClient(client, "beta", accept, fail, contradictions)
        for first in range(1, 7):
            serials = [first, first + 100]
            await actor.run(serials, [Message(body_of(one)) for one in serials])
        lost = AsyncTransactions(world.address, group="transactions")
        await lost.prepare({"beta": Message(body_of(20))})  # nobody waits for its end
        await lost.close()
        answering = asyncio.ensure_future(actor.answer())
        states = world.engine.transactions.states
        await until(lambda: TransactionState.OPEN not in states.values() and len(states) == 7)
        await until(lambda: {1, 6} <= accepted | failed.keys())
        answering.cancel()
    assert accepted == {1, 101, 3, 103, 4, 104, 5, 105}
    assert failed.keys() == {2, 102, 6, 106}
    assert contradictions == []


class Repeating(AsyncTransactions):
    """Hears of each check-back twice, as if the second had been on its way for long."""

    heard = 0

    async def poll_checks(
        self, topics: Sequence[str], *, wait_ms: int = 0, count_max: int = 16
    ) -> list[CheckedTransaction]:
        """The same transactions, even if the first answer has ended them."""
        found = await super().poll_checks(topics, wait_ms=wait_ms, count_max=count_max)
        self.heard += len(found)
        return found + found


async def test_check_back_that_comes_late_changes_nothing() -> None:
    accepted: list[int] = []
    async with ApiWorld() as world, Repeating(world.address, group="transactions") as client:
        actor = TransactionClient(
            client, "beta", lambda serials, _: accepted.extend(serials), lambda *_: None, []
        )
        await actor.run([1], [Message(body_of(1))])
        answering = asyncio.ensure_future(actor.answer())
        await until(lambda: client.heard == 1 and accepted == [1])
        lost = AsyncTransactions(world.address, group="transactions")
        await lost.prepare({"beta": Message(body_of(20))})
        await lost.close()
        await until(lambda: client.heard == 2 or answering.done())
        assert not answering.done()
        answering.cancel()
