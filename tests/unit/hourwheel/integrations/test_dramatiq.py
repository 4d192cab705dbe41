import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import dramatiq
import pytest
from dramatiq import MessageProxy, Worker
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound

from hourwheel import errors
from hourwheel.formats.meta import decode
from hourwheel.integrations.dramatiq import HourwheelBroker
from tests.support.eventually import until
from tests.support.fake_broker import STORE_MS
from tests.support.fake_node import FakeNode


@asynccontextmanager
async def broker_at(node: FakeNode, **settings: Any) -> AsyncIterator[HourwheelBroker]:
    broker = HourwheelBroker(f"hourwheel://{node.address}/", **settings)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.close)


def actor(broker: HourwheelBroker, name: str = "work", **options: Any) -> Any:
    """An actor that notes what it is called with."""
    calls: list[Any] = []

    def work(what: Any) -> None:
        calls.append(what)
        if what == "fail" or (what == "once" and calls.count("once") == 1):
            raise ValueError(what)

    found = dramatiq.actor(
        work, actor_name=name, broker=broker, min_backoff=1, max_backoff=2, **options
    )
    found.calls = calls  # type: ignore[attr-defined]
    return found


@asynccontextmanager
async def working(broker: HourwheelBroker) -> AsyncIterator[None]:
    worker = Worker(broker, worker_threads=2, worker_timeout=50)
    worker.start()
    try:
        yield
    finally:
        await asyncio.to_thread(worker.stop)


async def test_message_has_its_delay_and_its_id_as_the_key(node: FakeNode) -> None:
    async with broker_at(node, namespace="shop") as broker:
        work = actor(broker, queue_name="orders")
        sent = [
            await asyncio.to_thread(work.send_with_options, args=("x",), delay=delay)
            for delay in (None, 5_000, -3)
        ]
        assert broker.get_declared_queues() == {"orders"}
        assert broker.get_declared_delay_queues() == set()
    assert [one.due_ms - STORE_MS for one in node.messages] == [0, 5_000, 0]
    assert {one.topic for one in node.messages} == {"shop||orders"}
    keys = [decode(one.blob[: one.meta_bytes]).keys for one in node.messages]
    assert keys == [(one.message_id,) for one in sent]
    assert "eta" not in dramatiq.Message.decode(node.messages[1].body).options


async def test_message_has_the_priority_of_itself_or_of_its_actor(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        urgent = actor(broker, "urgent", priority=-3)
        most_urgent = actor(broker, "most_urgent", priority=-100)
        later = actor(broker, "later", priority=50)
        rabbit = actor(broker, "rabbit", priority=-3, broker_priority=5)
        for one in (urgent, most_urgent, later, rabbit):
            await asyncio.to_thread(one.send, "x")
        await asyncio.to_thread(urgent.send_with_options, args=("x",), broker_priority=0)
        with pytest.raises(errors.InvalidArgument):
            await asyncio.to_thread(urgent.send_with_options, args=("x",), broker_priority=10)
    metas = [decode(one.blob[: one.meta_bytes]) for one in node.messages]
    assert [meta.priority for meta in metas] == [3, 9, 0, 5, 0]


async def test_messages_are_worked_on_retried_and_rejected(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        work = actor(broker, max_retries=1)
        async with working(broker):
            for what in ("a", "once", "fail"):
                await asyncio.to_thread(work.send, what)
            await until(lambda: sorted(work.calls) == ["a", "fail", "fail", "once", "once"])
            await until(lambda: any(one.dead_letter for one in node.calls["Nack"]))
            await until(lambda: len(node.acked()) == 4)
    (rejected,) = [one for one in node.calls["Nack"] if one.dead_letter]
    assert rejected.reason.startswith("ValueError: fail")


async def test_what_no_actor_knows_and_what_is_no_message_is_rejected(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        work = actor(broker)
        node.add_topic("default", b"{}", b"\xff", b"[1]", b'{"queue_name": 3}')
        await asyncio.to_thread(work.send, "known")
        stranger = work.message("unknown").copy(actor_name="stranger")
        await asyncio.to_thread(broker.enqueue, stranger)
        async with working(broker):
            await until(lambda: sum(one.dead_letter for one in node.calls["Nack"]) == 5)
            await until(lambda: work.calls == ["known"])


async def test_worker_holds_no_more_than_it_may_and_gives_back_the_rest(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        work = actor(broker)
        for number in range(4):
            await asyncio.to_thread(work.send, number)

        def consume() -> None:
            consumer = broker.consume("default", prefetch=2, timeout=20)
            first, second = next(consumer), next(consumer)
            assert first is not None
            assert second is not None
            assert next(consumer) is None
            consumer.ack(first)
            third = next(consumer)
            assert third is not None
            assert third.args == (2,)
            consumer.requeue([second, third])
            consumer.close()

        await asyncio.to_thread(consume)
        with pytest.raises(QueueNotFound):
            broker.consume("other")
    assert max(request.max_messages for request in node.calls["Receive"]) == 2
    assert sorted(one.attempt for one in node.messages) == [1, 1, 2, 2]


async def test_who_waits_for_room_goes_on_when_a_message_is_done(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        work = actor(broker)
        for number in range(2):
            await asyncio.to_thread(work.send, number)

        def consume() -> Any:
            consumer = broker.consume("default", prefetch=1, timeout=30_000)
            first = next(consumer)
            assert first is not None
            threading.Timer(0.01, consumer.ack, [first]).start()
            second = next(consumer)
            consumer.close()
            return second

        assert (await asyncio.to_thread(consume)).args == (1,)


async def test_no_node_is_a_connection_error(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        work = actor(broker)
        consumer = broker.consume("default")
        node.fail_next("Receive", *[errors.Cancelled("closed")] * 3)
        with pytest.raises(ConnectionClosed):
            await asyncio.to_thread(next, consumer)
        node.refused_topics.add("default")
        with pytest.raises(errors.InvalidTopic):
            await asyncio.to_thread(work.send, 1)
    with pytest.raises(ConnectionClosed):
        await asyncio.to_thread(work.send, 1)


async def test_message_that_is_not_due_is_taken_back(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        work = actor(broker)
        message = await asyncio.to_thread(work.send_with_options, args=(1,), delay=99_000)
        await asyncio.to_thread(broker.cancel, message)
    (request,) = node.calls["Cancel"]
    assert (request.topic, list(request.keys)) == ("default", [message.message_id])


async def test_messages_of_others_are_left_alone(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        work = actor(broker)
        consumer = broker.consume("default")
        for settle in (consumer.ack, consumer.nack):
            await asyncio.to_thread(settle, MessageProxy(work.message(1)))
        await asyncio.to_thread(consumer.close)
    assert not node.calls["Nack"]


async def test_join_ends_when_nothing_is_left_and_not_before(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        broker.declare_queue("none")
        await asyncio.to_thread(broker.join, "none")
        node.topics["full"] = 1
        node.add_topic("full", b"x")
        broker.declare_queue("full")
        with pytest.raises(QueueJoinTimeout):
            await asyncio.to_thread(broker.join, "full", interval=1, timeout=5)


def test_url_has_nodes_and_a_user() -> None:
    HourwheelBroker("hourwheel://u:p%40@127.0.0.1:1,127.0.0.1:2").close()
    HourwheelBroker("a:1").close()
    with pytest.raises(errors.Unprotected):
        HourwheelBroker("hourwheel://u:p@elsewhere:1")
    with pytest.raises(errors.InvalidArgument):
        HourwheelBroker("hourwheel://elsewhere")


async def test_what_a_consumer_had_is_settled_where_it_came_from_after_a_restart(
    node: FakeNode,
) -> None:
    """dramatiq tells the new consumer of it; until then its lease is made longer."""
    async with broker_at(node, invisible_ms=100) as broker:
        work = actor(broker)
        for number in range(6):
            await asyncio.to_thread(work.send, number)
        former = broker.consume("default", prefetch=5, timeout=20)
        messages = [await asyncio.to_thread(next, former) for _ in range(4)]
        done, failed, again, last = (one for one in messages if one is not None)
        await asyncio.to_thread(former.close)
        assert [one.attempt for one in node.messages] == [1, 1, 1, 1, 2, 1], "the fifth: unasked"

        renewed = node.calls["ChangeInvisible"]
        seen = len(renewed)
        await until(lambda: len(renewed) > seen)

        new = broker.consume("default", prefetch=2, timeout=20)
        assert await asyncio.to_thread(next, new) is not None
        await asyncio.to_thread(new.ack, done)
        await asyncio.to_thread(new.nack, failed)
        await asyncio.to_thread(new.requeue, [again])
        assert await asyncio.to_thread(next, new) is not None, "its room is its own"
        await asyncio.to_thread(new.ack, last)
        await until(lambda: node.acked() == {done.encode(), last.encode()})
        (rejected,) = [one for one in node.calls["Nack"] if one.dead_letter]
        assert rejected.reason == "rejected"
        assert node.messages[2].attempt == 2
        for settle in (new.ack, new.nack):
            await asyncio.to_thread(settle, done)  # of which all has been told
        await asyncio.to_thread(new.close)


async def test_rejecting_is_tried_again_when_no_node_was_there(node: FakeNode) -> None:
    async with broker_at(node) as broker:
        work = actor(broker)
        await asyncio.to_thread(work.send, 1)
        consumer = broker.consume("default", prefetch=1, timeout=20)
        message = await asyncio.to_thread(next, consumer)
        assert message is not None
        node.fail_next("Nack", errors.Cancelled("closed"))
        with pytest.raises(ConnectionClosed):
            await asyncio.to_thread(consumer.nack, message)
        assert await asyncio.to_thread(next, consumer) is None, "it is held"
        await asyncio.to_thread(consumer.nack, message)
        await asyncio.to_thread(consumer.close)
    assert node.calls["Nack"][-1].dead_letter


async def test_a_worker_that_was_paused_settles_what_it_had_in_work(node: FakeNode) -> None:
    async with broker_at(node, invisible_ms=100) as broker:
        go, begun = threading.Event(), threading.Event()

        def hold() -> None:
            begun.set()
            go.wait()

        held = dramatiq.actor(hold, broker=broker)
        await asyncio.to_thread(held.send)
        worker = Worker(broker, worker_threads=2, worker_timeout=50)
        worker.start()
        try:
            await until(begun.is_set)
            for consumer in worker.consumers.values():
                consumer.pause()
                await until(consumer.paused_event.is_set)
                consumer.resume()
            renewed = node.calls["ChangeInvisible"]
            seen = len(renewed)
            await until(lambda: len(renewed) > seen)
            go.set()
            await until(lambda: len(node.acked()) == 1)
        finally:
            go.set()
            await asyncio.to_thread(worker.stop)
    assert [one.attempt for one in node.messages] == [1]
