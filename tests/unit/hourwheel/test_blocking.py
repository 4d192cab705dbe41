from collections.abc import Iterator

import pytest

from hourwheel import errors
from hourwheel.batch_builder import Columns
from hourwheel.blocking import Admin, Consumer, Producer
from hourwheel.filter_given import Tags
from hourwheel.message import Message
from hourwheel.outcomes import CancelOutcome, MessageState
from hourwheel.tag_gene import GeneKind, GeneSpec
from tests.support.fake_node import STORE_MS
from tests.support.fake_node_thread import FakeNodeThread


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
    assert first.due_ms == STORE_MS + 5
    assert [one.sequence for one in ids] == list(range(62))
    assert fake.bodies() == [b"%d" % n for n in range(62)]


def test_clients_when_given_several_servers(fake: FakeNodeThread) -> None:
    with FakeNodeThread() as gone:
        servers = [gone.address, fake.address]
    with Producer(servers) as producer, Admin(",".join(servers)) as admin:
        message_id = producer.publish("t", Message(b"one"))
        assert admin.cancel(message_id) is CancelOutcome.CANCELLED
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
