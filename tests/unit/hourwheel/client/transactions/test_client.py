"""Transactions of the client, against the API with an engine that keeps them in a dict."""

import asyncio
import threading
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.message import Message
from hourwheel.client.transactions import client as client_module
from hourwheel.client.transactions.blocking import Transactions
from hourwheel.client.transactions.client import AsyncTransactions, CheckSettings
from hourwheel.client.transactions.words import CheckedTransaction, RollBack
from hourwheel.outcomes import TransactionState
from node.contracts.transactions import Check, EndedTransaction
from tests.support.api_world import ApiWorld
from tests.support.eventually import until

PAID = Message(b"paid", delay_ms=5_000, keys=["17"], properties={"who": "me"})


def states(world: ApiWorld) -> list[TransactionState]:
    return list(world.engine.transactions.states.values())


async def test_block_commits_at_its_end_and_rolls_back_where_it_says_so() -> None:
    async with ApiWorld() as world, AsyncTransactions(world.address, group="tills") as client:
        async with client.begin({"orders": PAID, "bills": [PAID, PAID]}) as one:
            assert states(world) == [TransactionState.OPEN]
        assert one.topics == ("orders", "bills")
        async with client.begin({"orders": PAID}):
            raise RollBack
        assert states(world) == [TransactionState.COMMITTED, TransactionState.ROLLED_BACK]
        (first, _) = (what for name, what in world.engine.transactions.calls if name == "prepare")
        assert [part.topic for part in first.parts] == ["orders", "bills"]
        assert first.delays_ms == [5_000] * 3


async def test_outcome_when_it_is_asked_again() -> None:
    async with ApiWorld() as world, AsyncTransactions(world.address, group="tills") as client:
        settings = CheckSettings(interval_ms=2_000, checks_max=3, age_ms_max=9_000)
        one = await client.prepare({"orders": PAID}, delays_from_prepare=True, checks=settings)
        (preparing,) = world.engine.transactions.prepared.values()
        assert preparing.delays_ms == []
        assert preparing[4:] == (2_000, 3, 9_000)
        ended = await one.commit()
        assert (ended.state, len(ended.message_ids)) == (TransactionState.COMMITTED, 1)
        assert await one.commit() == ended
        with pytest.raises(errors.TransactionDecided) as raised:
            await one.roll_back()
        assert raised.value.params["state"] == "COMMITTED"
        with pytest.raises(errors.UnknownTransaction):
            await client.commit("0" * 32)
        with pytest.raises(errors.InvalidArgument):
            await client.commit("nonsense")
        described, ids = await client.describe(one.transaction_id)
        assert (described.state, described.group, ids) == (
            *(TransactionState.COMMITTED, "tills"),
            ended.message_ids,
        )
        await client.prepare({"orders": PAID})
        found = [each.state.name async for each in client.list()]
        assert found == ["COMMITTED", "OPEN"]
        assert [each.state.name async for each in client.list(open_only=True)] == ["OPEN"]


async def test_checks_are_answered_as_the_program_knows() -> None:
    async with ApiWorld() as world, AsyncTransactions(world.address, group="tills") as client:
        for body in (b"yes", b"no", b"unknown"):
            await client.prepare({"orders": Message(body, delay_ms=7, tags=["t"], keys=["k"])})
        seen: list[CheckedTransaction] = []

        async def decide(one: CheckedTransaction) -> bool | None:
            seen.append(one)
            return {b"yes": True, b"no": False}.get(one.messages["orders"][0].body)

        answering = asyncio.ensure_future(client.answer_checks(["orders"], decide))
        await until(lambda: len(seen) > 3)
        answering.cancel()
        assert [one.name for one in states(world)] == ["COMMITTED", "ROLLED_BACK", "OPEN"]
        message = seen[0].messages["orders"][0]
        assert (message.delay_ms, list(message.tags), list(message.keys)) == (7, ["t"], ["k"])
        assert (seen[0].number, seen[0].checks_max) == (1, 15)


async def test_blocking_twin() -> None:
    def program(address: str) -> list[str]:
        with Transactions(address, group="tills") as client:
            with client.begin({"orders": PAID}) as one:
                pass
            with client.begin({"orders": PAID}):
                raise RollBack
            with pytest.raises(ZeroDivisionError), client.begin({"orders": Message(b"left")}):
                _ = 1 / 0
            client.prepare({"orders": PAID})
            over = threading.Event()

            def decide(_: CheckedTransaction) -> None:
                over.set()

            client.answer_checks(["orders"], decide, over)
            assert len(client.poll_checks(["orders"], wait_ms=0)) == 2
            assert client.describe(one.transaction_id)[0].state is TransactionState.COMMITTED
            return [each.state.name for each in client.list()]

    async with ApiWorld() as world:
        found = await asyncio.to_thread(program, world.address)
        assert found == ["COMMITTED", "ROLLED_BACK", "OPEN", "OPEN"]


async def test_message_with_two_times_is_refused() -> None:
    async with AsyncTransactions("127.0.0.1:1", group="tills") as client:
        with pytest.raises(errors.InvalidArgument):
            await client.prepare({"orders": Message(b"", delay_ms=1, due_ms=2)})


@pytest.mark.parametrize("reason", [ConnectionError, asyncio.CancelledError, KeyboardInterrupt])
async def test_block_that_ends_otherwise_leaves_the_outcome_to_the_check_back(
    reason: type[BaseException],
) -> None:
    async with ApiWorld() as world, AsyncTransactions(world.address, group="tills") as client:
        begun = client.begin({"orders": PAID})
        await begun.__aenter__()
        error = reason("the program's own commit may have been done")
        assert not await begun.__aexit__(reason, error, None)
        assert states(world) == [TransactionState.OPEN]


class Refusing:
    """The port of an engine whose first polls and ends fail."""

    def __init__(self, world: ApiWorld, *reasons: errors.HourwheelError) -> None:
        self._port, self._polls, self._ends = world.engine.transactions, [*reasons], [*reasons]
        self.poll, self.end = self._port.poll_checks, self._port.end_transaction

    async def poll_checks(self, *args: Any) -> list[Check]:
        if self._polls:
            raise self._polls.pop()
        return await self.poll(*args)

    async def end_transaction(self, *args: Any, **how: bool) -> EndedTransaction:
        if self._ends:
            raise self._ends.pop()
        return await self.end(*args, **how)


@pytest.mark.parametrize(
    "reason", [errors.DiskFull("full"), errors.UnknownTopic("gone"), errors.DataLoss("damaged")]
)
async def test_answering_goes_on_where_the_cluster_cannot_take_an_answer(
    reason: errors.HourwheelError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "REST_MS", 1.0)
    async with ApiWorld() as world, AsyncTransactions(world.address, group="tills") as client:
        for body in (b"one", b"two"):
            await client.prepare({"orders": Message(body, delay_ms=7)})
        refusing = Refusing(world, reason)
        port = world.engine.transactions
        monkeypatch.setattr(port, "poll_checks", refusing.poll_checks)
        monkeypatch.setattr(port, "end_transaction", refusing.end_transaction)

        async def decide(_: CheckedTransaction) -> bool:
            return True

        answering = asyncio.ensure_future(client.answer_checks(["orders"], decide))
        await until(lambda: answering.done() or set(states(world)) == {TransactionState.COMMITTED})
        assert not answering.done()
        answering.cancel()


async def test_answering_ends_where_it_is_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ApiWorld() as world, AsyncTransactions(world.address, group="tills") as client:
        refusing = Refusing(world, errors.PermissionDenied("no grant"))
        monkeypatch.setattr(world.engine.transactions, "poll_checks", refusing.poll_checks)

        async def decide(_: CheckedTransaction) -> None:
            return None

        with pytest.raises(errors.PermissionDenied):
            await client.answer_checks(["orders"], decide)
