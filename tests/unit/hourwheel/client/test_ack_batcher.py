import asyncio

import pytest

from hourwheel import errors
from hourwheel.client.ack_batcher import AckBatcher, find_error, to_ranges
from hourwheel.client.message import ReceivedBatch
from hourwheel.client.prefetch_buffer import Selection
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.transport.channel import Channel
from tests.support.fake_clock import FakeClock
from tests.support.fake_node import FakeNode
from tests.support.received import received


def leased(node: FakeNode, count: int, receipt: str = "r") -> ReceivedBatch:
    """An answer that the node knows."""
    bodies = [b"%d" % n for n in range(count)]
    batch = received([(b"", body) for body in bodies])
    batch.receipt = receipt
    node.add_topic("t", *bodies)
    node.leases[receipt] = node.messages[-count:]
    return batch


def acker_of(channel: Channel, linger_ms: float = 3_600_000.0) -> AckBatcher:
    return AckBatcher(channel, "g", linger_ms=linger_ms)


async def test_ack_when_callers_wait_together(node: FakeNode, channel: Channel) -> None:
    batch, other = leased(node, 10), leased(node, 2, "s")
    acker = acker_of(channel)
    with node.hold("Ack"):
        first = asyncio.create_task(acker.ack(batch[0]))
        await node.seen("Ack")
        rest = [asyncio.create_task(acker.ack(batch[n])) for n in range(9, 0, -1)]
        rest.append(asyncio.create_task(acker.ack(message for message in other)))
        await asyncio.sleep(0)
    await asyncio.gather(first, *rest)
    ranges = [[(r.receipt, r.first, r.count) for r in call.ranges] for call in node.calls["Ack"]]
    assert ranges == [[("r", 0, 1)], [("r", 1, 9), ("s", 0, 2)]]


async def test_ack_when_only_one_caller_is_late(node: FakeNode, channel: Channel) -> None:
    batch, stale = leased(node, 1), leased(node, 1, "s")
    node.stale_receipts.add("s")
    acker = acker_of(channel)
    outcomes = await asyncio.gather(acker.ack(batch), acker.ack(stale), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), errors.StaleReceipt]


async def test_add_soon_when_lingering(node: FakeNode, channel: Channel) -> None:
    batch = leased(node, 10)
    acker = acker_of(channel)
    for message in batch:
        acker.add_soon(message)
    assert node.calls == {}
    await acker.flush()
    assert len(node.acked()) == 10
    await acker.close()


async def test_add_soon_when_the_time_is_up(node: FakeNode, channel: Channel) -> None:
    acker = acker_of(channel, linger_ms=1.0)
    acker.add_soon(leased(node, 3))
    await node.seen("Ack")
    await acker.flush()
    assert len(node.acked()) == 3


async def test_add_soon_when_very_many(node: FakeNode, channel: Channel) -> None:
    acker = acker_of(channel)
    acker.add_soon(leased(node, 5_000))
    await node.seen("Ack")
    await acker.flush()
    assert acker.stale_count == 0


async def test_add_soon_when_a_call_is_under_way_waits_for_its_time(
    node: FakeNode, channel: Channel
) -> None:
    batch = leased(node, 3)
    acker = acker_of(channel)
    with node.hold("Ack"):
        first = asyncio.create_task(acker.ack(batch[0]))
        await node.seen("Ack")
        acker.add_soon(batch[1])
    await first
    await acker.ack(batch[2])
    calls = [[(r.first, r.count) for r in call.ranges] for call in node.calls["Ack"]]
    assert calls == [[(0, 1)], [(2, 1), (1, 1)]]
    await acker.close()


async def test_flush_when_a_call_fails(node: FakeNode) -> None:
    clock = FakeClock()
    async with Channel(node.address, clock=clock) as channel:
        batch, short = leased(node, 2), leased(node, 3, "s")
        short.lease_until_ms = clock.monotonic + 50.0
        acker = acker_of(channel)
        acker.add_soon(batch)
        acker.add_soon(short)
        with node.hold("Ack"):
            flush = asyncio.create_task(acker.flush())
            await node.seen("Ack")
            clock.pass_ms(60_000.0)
            await node.stop()
            with pytest.raises(errors.HourwheelError):
                await flush
        # Their lease is over, and the node may have done it; the others are kept.
        assert (acker.stale_count, acker.undecided_count) == (0, 3)
        await node.start()
        await acker.flush()
        assert [(r.receipt, r.count) for r in node.calls["Ack"][-1].ranges] == [("r", 2)]
        await acker.close()


async def test_flush_when_a_call_is_cancelled_by_grpc(
    node: FakeNode, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(*_: object, **__: object) -> object:
        monkeypatch.undo()
        raise asyncio.CancelledError

    monkeypatch.setattr(channel, "call", cancelled)
    acker = acker_of(channel)
    acker.add_soon(leased(node, 2))
    await acker.flush()
    assert [(r.receipt, r.count) for r in node.calls["Ack"][-1].ranges] == [("r", 2)]
    await acker.close()


async def test_ack_when_closed_meanwhile(node: FakeNode, channel: Channel) -> None:
    acker = acker_of(channel)
    with node.hold("Ack"):
        waiting = asyncio.create_task(acker.ack(leased(node, 1)))
        await node.seen("Ack")
        late = asyncio.create_task(acker.ack(leased(node, 1, "s")))
        await asyncio.sleep(0)
        await acker.close()
        outcomes = await asyncio.gather(waiting, late, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [errors.Cancelled] * 2


async def test_ack_when_there_is_nothing_to_acknowledge(channel: Channel) -> None:
    await acker_of(channel).ack([])


def test_find_error_when_outcomes_differ() -> None:
    assert find_error([]) is None
    assert find_error([ReceiptOutcome.OK]) is None
    assert isinstance(find_error([ReceiptOutcome.OK, ReceiptOutcome.STALE]), errors.StaleReceipt)
    worst = [ReceiptOutcome.INVALID, ReceiptOutcome.STALE]
    assert isinstance(find_error(worst), errors.InvalidReceipt)


def test_to_ranges_when_part_of_an_answer() -> None:
    batch = received([(b"", b"x")] * 5)
    (chosen,) = to_ranges([Selection(batch, 1, 4)])
    assert (chosen.receipt, chosen.first, chosen.count) == ("r", 1, 3)


async def test_add_ranges_soon_when_they_join_with_messages(
    node: FakeNode, channel: Channel
) -> None:
    batch = leased(node, 10)
    acker = acker_of(channel)
    acker.add_ranges_soon([])
    await acker.flush()
    assert node.calls == {}
    acker.add_ranges_soon([Selection(batch, 0, 3), Selection(batch, 5, 10)])
    acker.add_soon([batch[3], batch[4]])
    await acker.flush()
    (call,) = node.calls["Ack"]
    assert [(one.first, one.count) for one in call.ranges] == [(0, 10)]
    await acker.close()
