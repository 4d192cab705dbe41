import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import AsyncMock

import pytest

from hourwheel import errors
from hourwheel.client.access import Limits
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.batch_builder import Columns
from hourwheel.client.blocking import Admin, Consumer, Producer
from hourwheel.client.loop_thread import LoopThread
from hourwheel.client.message import Message
from hourwheel.filter_language.inputs import Tags
from hourwheel.formats.tag_gene import GeneKind, GeneSpec
from hourwheel.outcomes import CancelOutcome, MessageState
from tests.support.fake_node import STORE_MS
from tests.support.fake_node_thread import FakeNodeThread
from tests.support.forking import run_script


@pytest.fixture
def fake() -> Iterator[FakeNodeThread]:
    with FakeNodeThread() as started:
        yield started


def test_producer_when_used_in_every_way(fake: FakeNodeThread) -> None:
    with Producer(fake.address, batch_messages=10) as producer:
        first = producer.publish("t", Message(b"0", delay_ms=5))
        soon = [producer.publish_soon("t", Message(b"%d" % n)) for n in range(1, 30)]
        producer.flush()
        ids = [first, *(future.result() for future in soon)]
        ids += producer.publish_many("t", [Message(b"%d" % n) for n in range(30, 60)])
        ids += producer.publish_batch("t", Columns(bodies=[b"60", b"61"]))
        assert producer.cancel(first) is CancelOutcome.CANCELLED
        assert producer.cancel_many(ids) == [CancelOutcome.CANCELLED] * 62
        assert producer.cancel_by_key("t", "k") == (CancelOutcome.UNKNOWN, 0)
        assert producer.cancel_by_keys("t", ["k"]) == [(CancelOutcome.UNKNOWN, 0)]
    assert first.due_ms == STORE_MS + 5
    assert [one.sequence for one in ids] == list(range(62))
    assert fake.bodies() == [b"%d" % n for n in range(62)]


def test_clients_when_given_several_servers(fake: FakeNodeThread) -> None:
    with FakeNodeThread() as gone:
        servers = [gone.address, fake.address]
    with Producer(servers) as producer, Admin(",".join(servers)) as admin:
        message_id = producer.publish("t", Message(b"one"))
        assert admin.cancel(message_id) is CancelOutcome.CANCELLED
        assert admin.cancel_by_key("t", "k") == (CancelOutcome.UNKNOWN, 0)
        assert admin.cancel_by_keys("t", ["k"]) == [(CancelOutcome.UNKNOWN, 0)]
        assert list(admin.list_by_key("t", "k", pending_only=True)) == []
        assert admin.count_by_key("t", "k") == 0
        assert admin.history(message_id).is_complete
    with Consumer(servers, group="g", topic="t") as consumer:
        (message,) = consumer.receive()
        consumer.ack(message)
    assert fake.acked() == {b"one"}


def test_producer_when_refused(fake: FakeNodeThread) -> None:
    fake.fail_next("PublishStream", errors.InvalidTopic(), errors.BeyondHorizon())
    producer = Producer(fake.address)
    with pytest.raises(errors.InvalidTopic):
        producer.publish("", Message(b""))
    with pytest.raises(errors.BeyondHorizon):
        producer.publish_soon("t", Message(b"")).result()
    producer.close()
    with pytest.raises(errors.Cancelled):
        producer.publish("t", Message(b""))
    producer.close()


def test_consumer_when_iterated(fake: FakeNodeThread) -> None:
    bodies = [b"%d" % n for n in range(600)]
    fake.add_topic("t", *bodies)
    received = []
    with Consumer(fake.address, group="g", topic="t") as consumer:
        for message in consumer:
            received.append(message.body)
            consumer.ack_soon(message)
            if len(received) == 300:
                break
        for message in consumer:
            received.append(message.body)
            consumer.ack_soon(message)
            if len(received) == 600:
                break
        consumer.flush_acks()
        assert fake.acked() == set(bodies)
        assert (consumer.stale_count, consumer.expired_count) == (0, 0)
    assert sorted(received) == sorted(bodies)


def test_consumer_when_used_in_every_other_way(fake: FakeNodeThread) -> None:
    fake.add_topic("t", *[b"%d" % n for n in range(4)])
    with Consumer(fake.address, group="g", topic="t", polls=1) as consumer:
        first, second = consumer.receive(max_messages=2)
        consumer.ack(first)
        assert consumer.change_invisible(second, 5_000) == STORE_MS + 5_000
        consumer.nack(second, delay_ms=0)
        batch = consumer.receive_batch()
        assert batch is not None
        consumer.ack_soon(batch)
    assert fake.acked() == {b"0", *batch.bodies()}


def test_consumer_when_closed_in_the_middle(fake: FakeNodeThread) -> None:
    fake.add_topic("t", *[b"%d" % n for n in range(10)])
    with Consumer(fake.address, group="g", topic="t", polls=1) as consumer:
        for message in consumer:
            consumer.ack_soon(message)
            break
        assert len(consumer.receive(max_messages=2)) == 2
    given_back = fake.do(
        lambda node: [
            (chosen.first, chosen.count)
            for request in node.calls["Nack"]
            for chosen in request.ranges
        ]
    )
    assert given_back == [(3, 7)]
    assert fake.acked() == {b"0"}


def test_admin_when_used_in_every_way(fake: FakeNodeThread) -> None:
    fake.add_topic("t", b"one")
    message_id = fake.do(lambda node: node.messages[0].id)
    with Admin(fake.address) as admin:
        topic = admin.create_topic("orders", queue_count=2)
        assert admin.topics() == [admin.get_topic("orders")] == [topic]
        group = admin.put_group("g", attempts_max=3)
        assert admin.groups() == [admin.get_group("g")] == [group]
        assert admin.update_topic("orders", is_paused=True).is_paused
        assert admin.update_group("g", description="of g", attempts_max=4).attempts_max == 4
        assert admin.describe(message_id).state is MessageState.PENDING
        assert admin.cancel(message_id) is CancelOutcome.CANCELLED
        assert admin.cancel_many([message_id]) == [CancelOutcome.CANCELLED]
        assert admin.status().cluster_id == "c0ffee"
        assert admin.transfer_master("n3").master == "n3"
        admin.delete_group("g")
        admin.delete_topic("orders")
        with pytest.raises(errors.UnknownTopic):
            admin.get_topic("orders")


def test_consumer_when_it_checks_the_filter(fake: FakeNodeThread) -> None:
    with Producer(fake.address) as producer:
        tagged = [Message(b"%d" % n, tags=("even",) if n % 2 == 0 else ()) for n in range(60)]
        producer.publish_many("t", tagged)
    wanted = Tags("even", check_at_client=True)
    found = []
    with Consumer(fake.address, group="g", topic="t", filter=wanted) as consumer:
        for message in consumer:
            found.append(int(message.body))
            consumer.ack_soon(message)
            if len(found) == 30:
                break
        consumer.flush_acks()
        assert consumer.filtered_count == 30
    assert found == list(range(0, 60, 2))
    assert fake.acked() == {b"%d" % n for n in range(60)}


def test_admin_when_topics_have_genes_and_groups_filters(fake: FakeNodeThread) -> None:
    spec = GeneSpec(GeneKind.OR_GENE)
    with Admin(fake.address) as admin:
        assert admin.create_topic("t", gene=spec).gene == spec
        assert admin.put_subscription("g", "t", "a").filter == Tags("a")
        assert admin.get_group("g").subscriptions[0].topic == "t"


async def test_clients_when_their_thread_runs_a_loop_as_a_notebook_does(
    fake: FakeNodeThread,
) -> None:
    producer, admin = Producer(fake.address), Admin(fake.address)
    consumer = Consumer(fake.address, group="g", topic="t")
    producer.publish("t", Message(b"one"))
    consumer.ack(consumer.receive())
    assert admin.topics() == []
    for client in (producer, consumer, admin):
        client.close()
        client.close()
    assert fake.acked() == {b"one"}
    assert "hourwheel-client" not in {thread.name for thread in threading.enumerate()}


def test_clients_when_used_after_they_were_closed(fake: FakeNodeThread) -> None:
    fake.add_topic("t", *[b"%d" % n for n in range(3)])
    producer, admin = Producer(fake.address), Admin(fake.address)
    consumer = Consumer(fake.address, group="g", topic="t", polls=1)
    iteration = iter(consumer)
    message = next(iteration)
    for client in (producer, consumer, admin):
        client.close()
    for late in (
        lambda: producer.publish_soon("t", Message(b"")),
        producer.flush,
        consumer.receive,
        lambda: next(iteration),
        lambda: consumer.ack_soon(message),
        consumer.flush_acks,
        admin.topics,
    ):
        with pytest.raises(errors.Cancelled):
            late()


@pytest.mark.parametrize("is_used", [True, False])
def test_client_when_closed_from_another_thread(fake: FakeNodeThread, is_used: bool) -> None:
    fake.add_topic("t")
    consumer = Consumer(fake.address, group="g", topic="t")
    with ThreadPoolExecutor(2) as pool:
        if is_used:
            waiting = pool.submit(consumer.receive)
            fake.wait_for("Receive")
        pool.submit(consumer.close).result()
        if is_used:
            with pytest.raises(errors.Cancelled):
                waiting.result()
    with pytest.raises(errors.Cancelled):
        consumer.receive()


@pytest.mark.filterwarnings("ignore:a Hourwheel client was not closed:ResourceWarning")
def test_clients_when_left_to_the_garbage_collector(fake: FakeNodeThread) -> None:
    fake.add_topic("t", *[b"%d" % n for n in range(10)])
    producer = Producer(fake.address)
    soon = producer.publish_soon("other", Message(b"soon"))
    consumer = Consumer(fake.address, group="g", topic="t", polls=1)
    for message in consumer:
        consumer.ack_soon(message)
        break
    admin = Admin(fake.address)
    admin.topics()
    threads = [one for one in threading.enumerate() if one.name == "hourwheel-client"]
    assert len(threads) == 3
    del producer, consumer, admin
    gc.collect()
    for thread in threads:
        thread.join()
    assert soon.result().sequence == 10
    assert fake.acked() == {b"0"}
    assert len(fake.do(lambda node: node.calls["Nack"])) == 1


def test_future_of_a_message_when_somebody_cancels_it(fake: FakeNodeThread) -> None:
    with Producer(fake.address) as producer:
        soon = producer.publish_soon("t", Message(b"one"))
        assert not soon.cancel()  # the message is on its way, and only `cancel` takes it back
        assert soon.result().sequence == 0


def test_messages_when_several_threads_take_them(fake: FakeNodeThread) -> None:
    bodies = {b"%d" % n for n in range(500)}
    fake.add_topic("t", *bodies)
    with Consumer(fake.address, group="g", topic="t") as consumer:
        next(iter(consumer))  # fetches many

        def drain() -> int:
            count = 0
            while count < 60:
                count += len(consumer.receive(max_messages=3))
            return count

        with ThreadPoolExecutor(4) as pool:
            assert all(one.result() >= 60 for one in [pool.submit(drain) for _ in range(4)])


def test_messages_that_are_here_when_they_are_taken_one_by_one(
    fake: FakeNodeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop, which may be busy, is not asked for each."""
    asked, run = list[object](), LoopThread.run
    monkeypatch.setattr(
        LoopThread, "run", lambda thread, work: asked.append(work) or run(thread, work)
    )
    fake.add_topic("t", *[b"%d" % n for n in range(300)])
    with Consumer(fake.address, group="g", topic="t", prefetch_messages=300) as consumer:
        for _ in range(200):
            consumer.ack_soon(consumer.receive(max_messages=1))
        messages = iter(consumer)
        for _ in range(100):
            consumer.ack_soon(next(messages))
        assert len(asked) == 1, "to begin with"
        consumer.flush_acks()
    assert len(fake.acked()) == 300


def test_acks_are_handed_over_together(
    fake: FakeNodeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hand-over wakes the loop up."""
    handed, call_soon = list[object](), LoopThread.call_soon
    monkeypatch.setattr(
        LoopThread, "call_soon", lambda thread, do: handed.append(do) or call_soon(thread, do)
    )
    fake.add_topic("t", *[b"%d" % n for n in range(20)])
    with Consumer(fake.address, group="g", topic="t", ack_linger_ms=1_000_000) as consumer:
        for _ in range(20):
            (message,) = consumer.receive(max_messages=1)
            consumer.change_invisible(message, 5_000)  # a way to the loop and back
            consumer.ack_soon(message)
        assert len(handed) == 1
        assert not fake.acked()
        consumer.flush_acks()
        assert len(fake.acked()) == 20


@pytest.mark.parametrize("is_whole", [True, False])
def test_messages_when_there_is_little_room_for_them(fake: FakeNodeThread, is_whole: bool) -> None:
    fake.add_topic("t", *[b"%d" % n for n in range(60)])
    received = set[bytes]()
    with Consumer(fake.address, group="g", topic="t", prefetch_messages=2) as consumer:
        while len(received) < 60:
            batch = consumer.receive_batch() if is_whole else None
            found = consumer.receive() if batch is None else batch.messages()
            received |= {message.body for message in found}


def test_consumer_when_its_polls_are_refused_while_it_waits(fake: FakeNodeThread) -> None:
    fake.fail_next("Receive", errors.InvalidTopic())
    with Consumer(fake.address, group="g", topic="t", polls=1) as consumer:
        with pytest.raises(errors.InvalidTopic):
            consumer.receive()
        fake.add_topic("t", b"one")
        (message,) = consumer.receive()
        assert message.body == b"one"
        assert consumer.receive(wait_ms=1) == []


def test_clients_when_made_before_a_fork_and_used_after_it(fake: FakeNodeThread) -> None:
    fake.add_topic("t", b"zero")
    said = run_script(
        """
        from hourwheel import Admin, Consumer, Message, Producer
        producer, admin = Producer(sys.argv[1]), Admin(sys.argv[1])
        consumer = Consumer(sys.argv[1], group="g", topic="t", polls=1)
        def use():
            number = producer.publish("other", Message(b"one")).sequence
            message, = consumer.receive(1)
            consumer.ack(message)
            for client in (producer, consumer, admin):
                client.close()
            return number, message.body, admin.__class__.__name__
        in_child(use)
        in_child(lambda: producer.publish("other", Message(b"two")).sequence)
        print("parent", producer.publish("other", Message(b"three")).sequence)
        """,
        fake.address,
    )
    assert said == ["child (1, b'zero', 'Admin')", "child 2", "parent 3"]


def test_clients_when_used_before_a_fork(fake: FakeNodeThread) -> None:
    fake.add_topic("t", *[b"%d" % n for n in range(5)])
    said = run_script(
        """
        from hourwheel import Admin, Consumer, Message, Producer
        producer, admin = Producer(sys.argv[1]), Admin(sys.argv[1])
        consumer = Consumer(sys.argv[1], group="g", topic="t", polls=1)
        soon = producer.publish_soon("other", Message(b"one"))
        messages = iter(consumer)
        message = next(messages)
        admin.topics()
        in_child(lambda: producer.publish("other", Message(b"two")))
        in_child(lambda: producer.publish_soon("other", Message(b"two")))
        in_child(soon.result)
        in_child(producer.flush)
        in_child(consumer.receive)
        in_child(lambda: next(messages))
        in_child(lambda: consumer.ack(message))
        in_child(lambda: consumer.ack_soon(message))
        in_child(consumer.flush_acks)
        in_child(admin.topics)
        in_child(lambda: Producer(sys.argv[1]).publish("other", Message(b"two")))
        in_child(lambda: [one.close() for one in (producer, consumer, admin)])
        def leave():
            global producer, consumer, admin, messages
            del producer, consumer, admin, messages
            gc.collect()  # whether it finds any or not
        in_child(leave)
        print("parent", soon.result().sequence, next(messages).body)
        consumer.ack(message)
        print(producer.publish("other", Message(b"three")).sequence)
        for one in (producer, consumer, admin):
            one.close()
        in_child(lambda: Producer(sys.argv[1]).publish("other", Message(b"four")).sequence)
        """,
        fake.address,
    )
    assert said[:11] == ["child Forked"] * 11
    assert said[11:13] == ["child [None, None, None]", "child None"]
    assert said[13:] == ["parent 5 b'1'", "6", "child Forked"]
    assert fake.acked() == {b"0"}


def test_receive_when_asked_for_what_cannot_be(fake: FakeNodeThread) -> None:
    with Consumer(fake.address, group="g", topic="t") as consumer:
        with pytest.raises(errors.InvalidArgument, match=r"^max_messages is a whole number"):
            consumer.receive(-1)
        with pytest.raises(errors.InvalidArgument, match=r"^wait_ms is "):
            consumer.receive(wait_ms=-1)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("put_user", ("alice", "hush", 3)),
        ("delete_user", ("alice", 3)),
        ("users", ()),
        ("revoke", ("alice", "topic", "orders", 3)),
        ("grants", ()),
        ("put_quota", ("alice", Limits(topics=1), 3)),
        ("delete_quota", ("alice", 3)),
        ("quotas", ()),
    ],
)
def test_admin_asks_its_twin_for_what_it_was_asked(
    fake: FakeNodeThread, monkeypatch: pytest.MonkeyPatch, name: str, arguments: tuple[Any, ...]
) -> None:
    asked = AsyncMock(return_value="the answer")
    monkeypatch.setattr(AsyncAdmin, name, asked)
    with Admin(fake.address) as admin:
        answer = getattr(admin, name)(*arguments)
    asked.assert_awaited_once_with(*arguments)
    assert answer == (None if name.startswith(("delete", "revoke")) else "the answer")


def test_admin_grants_what_it_was_asked(
    fake: FakeNodeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = AsyncMock(return_value=7)
    monkeypatch.setattr(AsyncAdmin, "grant", asked)
    with Admin(fake.address) as admin:
        assert admin.grant("alice", ["look"], "cluster", expected_version=0) == 7
    asked.assert_awaited_once_with("alice", ["look"], "cluster", "", 0)
