"""Calls that name many messages are worked through in pieces (more of them: test_consuming.py)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.formats.record_batch import Outcome
from hourwheel.v1.consumer_pb2 import ReceiptOutcome
from node.contracts.broker import Selection
from node.contracts.ending import Ending
from tests.support.engine_world import EngineWorld, within
from tests.support.receipts import receipt_of
from tests.support.stepped_engine import SteppedEngine

OK = int(ReceiptOutcome.RECEIPT_OUTCOME_OK)
STALE = int(ReceiptOutcome.RECEIPT_OUTCOME_STALE)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.consumers.ack_service.SELECTIONS_AT_ONCE", 3)
    monkeypatch.setattr("node.consumers.ack_service.NOTES_AT_ONCE", 3)
    monkeypatch.setattr("node.consumers.ack_service.ROWS_AT_ONCE", 4)
    monkeypatch.setattr("node.broker.small_calls.RESOLVES_MAX", 4)


def rows_of(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The outcomes of each record that is appended from now on."""
    mastership, seen = world.mastership, list[list[int]]()
    resolve = mastership.resolve

    def noted(rows: Any, now_ms: int, token: Any) -> None:
        seen.append(rows["outcome"].tolist())
        resolve(rows, now_ms, token)

    monkeypatch.setattr(mastership, "resolve", noted)
    return seen


@pytest.mark.usefixtures("small")
async def test_many_receipts_are_read_in_several_turns_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["a", "x"] * 10)
        delivery = await world.leased(wanted="a")
        seen = rows_of(world, monkeypatch)
        chosen = [world.select(delivery, ordinal, 1) for ordinal in range(9)]
        call = asyncio.ensure_future(world.ack(*chosen, chosen[0]))
        turns = 0
        while not seen:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 3, "others had their turns meanwhile"
        assert await within(call) == [OK] * 9 + [STALE]
        assert max(map(len, seen)) <= 4
        # What was passed over before each is said to be so, and the last receipt is a repeat.
        each = [Outcome.FILTERED, Outcome.ACK]
        assert [row for rows in seen for row in rows] == [Outcome.ACK, *each * 8, Outcome.ACK]
        assert world.engine.stats.acknowledged == 9
        assert await world.ack(world.select(delivery, 9, 1)) == [OK]
        assert world.group().lags[0].unresolved_count == 0


async def test_many_picked_messages_of_one_answer_are_one_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["a", "x"] * 300)
        delivery = await world.leased(count=300, wanted="a")
        seen = rows_of(world, monkeypatch)
        chosen = world.select(delivery, 0, 299), world.select(delivery, 299, 1)
        assert await world.ack(*chosen) == [OK, OK]
        assert list(map(len, seen)) == [597, 3]
        assert world.engine.stats.acknowledged == 300
        assert world.group().lags[0].unresolved_count == 0


@pytest.mark.usefixtures("small")
async def test_many_messages_given_back_come_again_and_what_is_between_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["a", "x"] * 10)
        delivery = await world.leased(wanted="a")
        seen = rows_of(world, monkeypatch)
        assert await world.nack(world.select(delivery), delay_ms=0) == [OK]
        assert [row for rows in seen for row in rows] == [Outcome.RETRY] * 10 + [Outcome.FILTERED]
        assert max(map(len, seen)) <= 4
        again = await world.leased()
        assert again.units["sequence"].tolist() == list(range(0, 20, 2))
        assert world.mastership.receiver.leases.count == 1


@pytest.mark.usefixtures("small")
async def test_call_fails_as_a_whole_when_a_record_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["a", "x"] * 10)
        delivery = await world.leased(wanted="a")
        mastership, calls = world.mastership, 0
        resolve = mastership.resolve

        def refusing(rows: Any, now_ms: int, token: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                token.answer(None, errors.DiskFull("no room"))
            else:
                resolve(rows, now_ms, token)

        monkeypatch.setattr(mastership, "resolve", refusing)
        chosen = [world.select(delivery, ordinal, 1) for ordinal in range(10)]
        with pytest.raises(errors.DiskFull):
            await world.ack(*chosen)
        monkeypatch.setattr(mastership, "resolve", resolve)
        await world.ack(*chosen)
        assert world.group().lags[0].unresolved_count == 0, "asking again is safe"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ahead", range(12))
def test_messages_are_rejected_while_their_topic_goes(ahead: int) -> None:
    with SteppedEngine() as engine:
        engine.call(engine.publish(*[0] * 40))
        delivery = engine.call(engine.receive(count=40))
        assert delivery is not None
        receipt = receipt_of(engine.engine, delivery)
        chosen = [Selection(receipt, ordinal, 1) for ordinal in range(40)]
        deleting = engine.begin(engine.engine.delete_topic("orders"))
        for _ in range(ahead):  # it is that far
            engine.call(asyncio.sleep(0))
        call = engine.begin(engine.engine.resolve("billing", chosen, Ending(rejection="no order")))
        engine.settle()
        deleting.result()
        assert set(call.result()) <= {OK, STALE}
