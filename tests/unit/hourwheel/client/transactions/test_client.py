"""Transactions of the client, against the API with an engine that keeps them in a dict."""

import asyncio
import threading

import pytest

from hourwheel import errors
from hourwheel.client.message import Message
from hourwheel.client.transactions.blocking import Transactions
from hourwheel.client.transactions.client import AsyncTransactions, CheckSettings
from hourwheel.client.transactions.words import CheckedTransaction
from hourwheel.outcomes import TransactionState
from tests.support.api_world import ApiWorld
from tests.support.eventually import until

PAID = Message(b"paid", delay_ms=5_000, keys=["17"], properties={"who": "me"})


def states(world: ApiWorld) -> list[TransactionState]:
    return list(world.engine.transactions.states.values())


async def test_block_commits_at_its_end_and_rolls_back_where_it_raises() -> None:
    async with ApiWorld() as world, AsyncTransactions(world.address, group="tills") as client:
        async with client.begin({"orders": PAID, "bills": [PAID, PAID]}) as one:
            assert states(world) == [TransactionState.OPEN]
        assert one.topics == ("orders", "bills")
        with pytest.raises(ZeroDivisionError):
            async with client.begin({"orders": PAID}):
                _ = 1 / 0
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
            with pytest.raises(ZeroDivisionError), client.begin({"orders": PAID}):
                _ = 1 / 0
            client.prepare({"orders": PAID})
            over = threading.Event()

            def decide(_: CheckedTransaction) -> bool:
                over.set()
                return True

            client.answer_checks(["orders"], decide, over)
            assert len(client.poll_checks(["orders"], wait_ms=0)) <= 1
            assert client.describe(one.transaction_id)[0].state is TransactionState.COMMITTED
            return [each.state.name for each in client.list()]

    async with ApiWorld() as world:
        found = await asyncio.to_thread(program, world.address)
        assert found[:2] == ["COMMITTED", "ROLLED_BACK"]


async def test_message_with_two_times_is_refused() -> None:
    async with AsyncTransactions("127.0.0.1:1", group="tills") as client:
        with pytest.raises(errors.InvalidArgument):
            await client.prepare({"orders": Message(b"", delay_ms=1, due_ms=2)})
