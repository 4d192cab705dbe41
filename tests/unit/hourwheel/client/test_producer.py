import asyncio
import gc
from typing import Any

import pytest

from hourwheel import errors, limits
from hourwheel.client.batch_builder import Columns
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.filter_language.wire import gene_to_wire
from hourwheel.formats.meta import MessageMeta
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneKind, GeneSpec, gene_of, sparse_gene
from hourwheel.transport.channel import Channel
from hourwheel.transport.retry import Backoff
from tests.support.fake_node import EPOCH, SHARD, STORE_MS, FakeNode


async def test_publish_when_all_is_well(node: FakeNode, channel: Channel) -> None:
    async with AsyncProducer(channel) as producer:
        first = await producer.publish("orders", Message(b"one", delay_ms=90_000))
        second = await producer.publish("orders", Message(b"two", due_ms=STORE_MS + 5))
        third = await producer.publish("orders", Message(b"three"))
    assert first == (SHARD, EPOCH, 0, STORE_MS + 90_000)
    assert second == (SHARD, EPOCH, 1, STORE_MS + 5)
    assert third == (SHARD, EPOCH, 2, STORE_MS)
    assert [(one.body, one.due_ms) for one in node.messages] == [
        (b"one", STORE_MS + 90_000),
        (b"two", STORE_MS + 5),
        (b"three", STORE_MS),
    ]


async def test_publish_many_when_several_batches(node: FakeNode, channel: Channel) -> None:
    messages = [Message(b"%d" % n, delay_ms=n) for n in range(2_500)]
    async with AsyncProducer(channel, batch_messages=100) as producer:
        ids = await producer.publish_many("orders", messages)
    assert [one.sequence for one in ids] == list(range(2_500))
    assert [one.due_ms for one in ids] == [STORE_MS + n for n in range(2_500)]
    assert [one.body for one in node.messages] == [message.body for message in messages]
    assert len(node.calls["PublishStream"]) == 25


async def test_publish_many_when_delays_and_instants_are_mixed(
    node: FakeNode, channel: Channel
) -> None:
    messages = [
        Message(b"%d" % n, delay_ms=n) if n % 3 else Message(b"%d" % n, due_ms=n) for n in range(50)
    ]
    async with AsyncProducer(channel, batch_messages=7, due_ms_min=0) as producer:
        ids = await producer.publish_many("orders", messages)
    by_sequence = {one.sequence: one for one in node.messages}
    assert [by_sequence[one.sequence].body for one in ids] == [m.body for m in messages]
    assert [one.due_ms for one in ids] == [n + STORE_MS if n % 3 else n for n in range(50)]


async def test_publish_many_when_nothing(channel: Channel) -> None:
    async with AsyncProducer(channel) as producer:
        assert len(await producer.publish_many("orders", [])) == 0


async def test_publish_batch_when_columns(node: FakeNode, channel: Channel) -> None:
    metas = [MessageMeta(keys=(f"k{n}",)) for n in range(10)]
    async with AsyncProducer(channel, due_ms_min=0) as producer:
        ids = await producer.publish_batch(
            "orders", Columns(bodies=[b"x"] * 10, due_ms=list(range(10)), metas=metas)
        )
    assert [one.due_ms for one in ids] == list(range(10))
    assert {one.meta_bytes for one in node.messages} == {4}


async def test_publish_when_many_callers_share_batches(node: FakeNode, channel: Channel) -> None:
    async with AsyncProducer(channel) as producer:
        with node.hold("PublishStream"):
            tasks = [
                asyncio.create_task(producer.publish("orders", Message(b"%d" % n)))
                for n in range(500)
            ]
            await node.seen("PublishStream")
        ids = await asyncio.gather(*tasks)
    assert sorted(one.sequence for one in ids) == list(range(500))
    assert len(node.calls["PublishStream"]) <= 10
    bodies = {one.sequence: one.body for one in node.messages}
    assert [bodies[one.sequence] for one in ids] == [b"%d" % n for n in range(500)]


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("after_batches", [0, 1, 3])
async def test_publish_when_the_stream_breaks(
    node: FakeNode, channel: Channel, *, is_taken: bool, after_batches: int
) -> None:
    node.break_stream(after_batches=after_batches, is_taken=is_taken)
    messages = [Message(b"%d" % n) for n in range(60)]
    async with AsyncProducer(channel, batch_messages=10) as producer:
        ids = await producer.publish_many("orders", messages)
    assert [one.body for one in node.messages] == [message.body for message in messages]
    assert [one.sequence for one in ids] == list(range(60))


async def test_publish_when_the_node_restarts(node: FakeNode, channel: Channel) -> None:
    async with AsyncProducer(channel) as producer:
        first = await producer.publish("orders", Message(b"one"))
        await node.stop()
        waiting = asyncio.create_task(producer.publish("orders", Message(b"two")))
        await node.start()
        second = await waiting
    assert (first.sequence, second.sequence) == (0, 1)


async def test_publish_when_refused_for_now(node: FakeNode, channel: Channel) -> None:
    node.fail_next("PublishStream", errors.Overloaded(), errors.DiskFull())
    messages = [Message(b"%d" % n) for n in range(60)]
    async with AsyncProducer(channel, batch_messages=10) as producer:
        await producer.publish_many("orders", messages)
    assert [one.body for one in node.messages] == [message.body for message in messages]


async def test_publish_when_one_batch_is_refused_for_good(node: FakeNode, channel: Channel) -> None:
    node.fail_next("PublishStream", errors.BeyondHorizon("too far", horizon_ms=5))
    async with AsyncProducer(channel, batch_messages=10) as producer:
        with pytest.raises(errors.BeyondHorizon) as refused:
            await producer.publish_many("orders", [Message(b"%d" % n) for n in range(60)])
        again = await producer.publish("orders", Message(b"again"))
    assert refused.value.params == {"horizon_ms": "5", "published_count": "50"}
    assert [one.body for one in node.messages] == [b"%d" % n for n in range(10, 60)] + [b"again"]
    assert again.sequence == 50
    assert len(node.producers) == 1


async def test_publish_when_the_node_forgot_the_producer(node: FakeNode, channel: Channel) -> None:
    async with AsyncProducer(channel) as producer:
        await producer.publish("orders", Message(b"one"))
        node.producers.clear()
        await producer.publish("orders", Message(b"two"))
    assert [one.body for one in node.messages] == [b"one", b"two"]


async def test_publish_when_not_idempotent_and_the_stream_breaks(
    node: FakeNode, channel: Channel
) -> None:
    node.break_stream(after_batches=0, is_taken=True)
    async with AsyncProducer(channel, is_idempotent=False) as producer:
        with pytest.raises(errors.Timeout, match="may or may not"):
            await producer.publish("orders", Message(b"one"))
        await producer.publish("orders", Message(b"two"))
    assert [one.body for one in node.messages] == [b"one", b"two"]
    assert node.producers == {}


async def test_publish_when_not_idempotent_and_refused_for_now(
    node: FakeNode, channel: Channel
) -> None:
    node.fail_next("PublishStream", errors.Overloaded())
    async with AsyncProducer(channel, is_idempotent=False) as producer:
        await producer.publish("orders", Message(b"one"))
    assert [one.body for one in node.messages] == [b"one"]


async def test_publish_when_nobody_answers(node: FakeNode, channel: Channel) -> None:
    await channel.connect()
    async with AsyncProducer(channel, delivery_timeout_ms=400.0) as producer:
        with node.hold("PublishStream"), pytest.raises(errors.Timeout):
            await producer.publish("orders", Message(b"one"))


async def test_publish_when_there_is_no_node() -> None:
    async with FakeNode() as gone:
        address = gone.address
    async with (
        Channel(address, backoff=Backoff(ms_min=1.0, ms_max=5.0)) as channel,
        AsyncProducer(channel, delivery_timeout_ms=300.0) as producer,
    ):
        with pytest.raises(errors.Unavailable, match=r"no connection to 127.*: connection refused"):
            await producer.publish("orders", Message(b"one"))


async def test_publish_when_a_try_takes_too_long(node: FakeNode, channel: Channel) -> None:
    async with AsyncProducer(channel, answer_timeout_ms=200.0) as producer:
        with node.hold("PublishStream"):
            waiting = asyncio.create_task(producer.publish("orders", Message(b"one")))
            await node.seen("PublishStream", 2)
        await waiting
    assert [one.body for one in node.messages] == [b"one"]


async def test_publish_when_the_buffer_is_full(node: FakeNode, channel: Channel) -> None:
    async with AsyncProducer(channel, buffer_bytes=3_000) as producer:
        with node.hold("PublishStream"):
            tasks = [
                asyncio.create_task(producer.publish_soon("orders", Message(bytes(1_000))))
                for _ in range(10)
            ]
            await node.seen("PublishStream")
            assert sum(task.done() for task in tasks) == 2
        futures = await asyncio.gather(*tasks)
        await asyncio.gather(*futures)
    assert len(node.messages) == 10


async def test_publish_when_a_waiter_for_room_is_cancelled(
    node: FakeNode, channel: Channel
) -> None:
    async with AsyncProducer(channel, buffer_bytes=1_000) as producer:
        with node.hold("PublishStream"):
            first = await producer.publish_soon("orders", Message(bytes(900)))
            waiting = asyncio.create_task(producer.publish("orders", Message(bytes(900))))
            await node.seen("PublishStream")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await producer.publish("orders", Message(bytes(900)))
        await first
    assert len(node.messages) == 2


async def test_publish_when_the_message_is_bad(node: FakeNode, channel: Channel) -> None:
    async with AsyncProducer(channel) as producer:
        with pytest.raises(errors.MessageTooLarge):
            await producer.publish("t", Message(bytes(limits.MESSAGE_BODY_BYTES_MAX + 1)))
        with pytest.raises(errors.InvalidDueTime):
            await producer.publish("t", Message(b"", delay_ms=1, due_ms=1))
        with pytest.raises(errors.InvalidDueTime):
            await producer.publish_many("t", [Message(b""), Message(b"", delay_ms=-1)])
    assert node.calls == {}


async def test_linger_when_flushed(node: FakeNode, channel: Channel) -> None:
    async with AsyncProducer(channel, linger_ms=3_600_000.0) as producer:
        future = await producer.publish_soon("orders", Message(b"one"))
        assert node.calls == {}
        await producer.flush()
        assert (await future).sequence == 0


async def test_close_when_messages_are_under_way(node: FakeNode, channel: Channel) -> None:
    producer = AsyncProducer(channel, linger_ms=3_600_000.0)
    future = await producer.publish_soon("orders", Message(b"one"))
    await producer.close()
    assert (await future).sequence == 0
    with pytest.raises(errors.Cancelled):
        await producer.publish("orders", Message(b"two"))
    await producer.close()


async def test_close_when_time_is_up(node: FakeNode, channel: Channel) -> None:
    producer = AsyncProducer(channel, batch_messages=1)
    with node.hold("PublishStream"):
        futures = [await producer.publish_soon("orders", Message(b"one")) for _ in range(7)]
        await node.seen("PublishStream")
        await producer.close(timeout_ms=1.0)
        kinds = [type(future.exception()) for future in futures]
    assert kinds == [errors.Timeout] * 5 + [errors.Cancelled] * 2


async def test_publish_when_the_server_is_something_else(channel: Channel) -> None:
    import grpc.aio  # noqa: PLC0415

    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with AsyncProducer(f"127.0.0.1:{port}") as producer:
        with pytest.raises(errors.HourwheelError, match=r"(?i)method not found"):
            await producer.publish("orders", Message(b"one"))
    await server.stop(None)


@pytest.mark.parametrize("buffer_bytes", [1_000, 1 << 20])
async def test_publish_many_when_cancelled_and_the_messages_fail_later(
    node: FakeNode, channel: Channel, buffer_bytes: int
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
    producer = AsyncProducer(channel, batch_messages=1, buffer_bytes=buffer_bytes)
    with node.hold("PublishStream"):
        many = asyncio.create_task(producer.publish_many("t", [Message(bytes(400))] * 9))
        columns = Columns(bodies=[bytes(400)] * 9)
        batch = asyncio.create_task(producer.publish_batch("t", columns))
        await node.seen("PublishStream")
        many.cancel()
        batch.cancel()
        await asyncio.wait([many, batch])
        await producer.close(timeout_ms=1.0)
    del many, batch, producer
    gc.collect()
    assert complaints == []


async def test_publish_when_topics_want_other_genes(node: FakeNode, channel: Channel) -> None:
    spec = GeneSpec(GeneKind.BLOOM, 2, ("region",))
    node.genes["orders"] = gene_to_wire(spec)
    sent = {"tags": ("a", "b"), "properties": {"region": "eu", "x": "y"}}
    async with AsyncProducer(channel) as producer:
        for topic in ("orders", "bills", "orders", "bills"):
            await producer.publish(topic, Message(b"x", **sent))  # type: ignore[arg-type]
        del node.genes["orders"]  # made anew, with the default
        node.genes["orders"] = gene_to_wire(DEFAULT_SPEC)
        await producer.publish("orders", Message(b"x", **sent))  # type: ignore[arg-type]
        await producer.publish("orders", Message(b"x", **sent))  # type: ignore[arg-type]
    plain = (DEFAULT_SPEC.number, [sparse_gene(("a", "b"))])
    wanted = (spec.number, [gene_of(spec, ("a", "b"), (("region", "eu"),))])
    assert node.genes_seen == [
        *(("orders", *plain), ("bills", *plain), ("orders", *wanted), ("bills", *plain)),
        *(("orders", *wanted), ("orders", *plain)),
    ]


async def test_publish_when_genes_change_with_batches_under_way(
    node: FakeNode, channel: Channel
) -> None:
    """Each batch has genes of one specification, whatever waited when the answer came."""
    spec = GeneSpec(GeneKind.SPARSE, 1)
    node.genes["orders"] = gene_to_wire(spec)
    async with AsyncProducer(channel, batch_messages=10) as producer:
        with node.hold("PublishStream"):
            calls = [
                asyncio.create_task(producer.publish("orders", Message(b"%d" % n, tags=[str(n)])))
                for n in range(200)
            ]
            await node.seen("PublishStream", 1)
        await asyncio.gather(*calls)
    assert {number for _, number, _ in node.genes_seen} == {DEFAULT_SPEC.number, spec.number}
    assert node.genes_seen[-1][1] == spec.number
    genes = [(number, gene) for _, number, made in node.genes_seen for gene in made]
    by_number = {one.number: one for one in (DEFAULT_SPEC, spec)}
    assert len(genes) == 200
    for message, (number, gene) in zip(node.messages, genes, strict=True):
        assert gene == gene_of(by_number[number], (message.body.decode(),))


async def test_publish_when_the_answer_with_the_gene_was_lost(
    node: FakeNode, channel: Channel
) -> None:
    spec = GeneSpec(GeneKind.SPARSE, 1)
    node.genes["orders"] = gene_to_wire(spec)
    node.break_stream(after_batches=0, is_taken=True)
    async with AsyncProducer(channel) as producer:
        await producer.publish("orders", Message(b"one", tags=["a"]))
        await producer.publish("orders", Message(b"two", tags=["a"]))
    assert len(node.messages) == 2
    assert node.genes_seen[-1] == ("orders", spec.number, [gene_of(spec, ("a",))])


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        (tuple(f"t{n}" for n in range(1_000)), errors.MessageTooLarge),
        (("a\nb",), errors.InvalidArgument),
        (("a\0",), errors.InvalidArgument),
        (("\x7f",), errors.InvalidArgument),
        (("",), errors.InvalidArgument),
        (("\ud800",), errors.InvalidArgument),
        (("x" * 128,), errors.MessageTooLarge),
        ("paid", errors.InvalidArgument),
        ((5,), errors.InvalidArgument),
    ],
)
async def test_publish_when_tags_are_bad(
    node: FakeNode, channel: Channel, tags: Any, error: type[errors.HourwheelError]
) -> None:
    message = Message(b"x", tags=tags)
    async with AsyncProducer(channel) as producer:
        with pytest.raises(error) as one:
            await producer.publish("orders", message)
        with pytest.raises(error) as many:
            await producer.publish_many("orders", [Message(b"good"), message])
        assert type(one.value) is type(many.value) is error
        await producer.publish("orders", Message(b"good", tags=("a || b", "é", "!x", "*")))
    assert [one.body for one in node.messages] == [b"good"]


async def test_publish_when_seconds_are_given_for_milliseconds(node: FakeNode) -> None:
    now_s, now_ms = 1_790_000_000, 1_790_000_000_000
    late = Message(b"", due_ms=now_s)
    async with AsyncProducer(node.address) as producer:
        for publish in (
            producer.publish("t", late),
            producer.publish_soon("t", late),
            producer.publish_many(
                "t", [Message(b"", delay_ms=1), Message(b"", due_ms=now_ms), late]
            ),
            producer.publish_batch("t", Columns(bodies=[b"", b""], due_ms=[now_ms, now_s])),
        ):
            with pytest.raises(errors.InvalidDueTime, match="seconds"):
                await publish
        assert node.messages == []
        await producer.publish("t", Message(b"", due_ms=now_ms))
    async with AsyncProducer(node.address, due_ms_min=0) as producer:
        await producer.publish("t", late)
    assert len(node.messages) == 2


@pytest.mark.parametrize(
    "name",
    [
        *("batch_messages", "batch_bytes", "buffer_bytes"),
        *("linger_ms", "delivery_timeout_ms", "answer_timeout_ms"),
    ],
)
async def test_a_number_that_cannot_be_is_refused_when_the_producer_is_made(name: str) -> None:
    wrong: Any
    for wrong in (-1, float("nan"), "1"):
        with pytest.raises(errors.InvalidArgument, match=f"^{name} is "):
            AsyncProducer("127.0.0.1:1", **{name: wrong})


async def test_a_batch_is_not_tried_for_longer_than_nodes_remember_its_producer() -> None:
    with pytest.raises(errors.InvalidArgument, match="300000"):
        AsyncProducer("127.0.0.1:1", delivery_timeout_ms=300_001)
    await AsyncProducer("127.0.0.1:1", delivery_timeout_ms=300_000).close()
    await AsyncProducer("127.0.0.1:1", delivery_timeout_ms=1e9, is_idempotent=False).close()


async def publish_to(
    producer: AsyncProducer, node: FakeNode, *topics: str, count: int = 2
) -> list[Any]:
    """Publish to all of them while a first batch is under way: results, or errors."""
    await producer.publish("first", Message(b"first"))
    with node.hold("PublishStream"):
        held = [await producer.publish_soon("first", Message(b"held")) for _ in range(5)]
        seen = len(node.calls["PublishStream"])
        tasks = [
            asyncio.create_task(
                producer.publish_many(
                    topic, [Message(b"%s %d" % (topic.encode(), n)) for n in range(count)]
                )
            )
            for topic in topics
        ]
        await node.seen("PublishStream", seen)
    found = await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*held)
    return found


def stored(node: FakeNode, *topics: str) -> list[tuple[str, bytes]]:
    return [(one.topic, one.body) for one in node.messages if one.topic in topics]


async def test_publish_when_topics_share_a_batch(node: FakeNode, channel: Channel) -> None:
    names = [f"t{n}" for n in range(40)]
    async with AsyncProducer(channel) as producer:
        found = await publish_to(producer, node, *names)
    for name, ids in zip(names, found, strict=True):
        messages = [node.messages[one.sequence] for one in ids]
        assert [(one.topic, one.body) for one in messages] == [
            (name, b"%s %d" % (name.encode(), n)) for n in range(2)
        ]
        assert [str(one) for one in ids] == [message.id for message in messages]
    joined = [request for request in node.calls["PublishStream"] if request.topics]
    assert joined
    assert len(node.calls["PublishStream"]) < len(names)


async def test_publish_when_the_node_is_an_older_one(node: FakeNode, channel: Channel) -> None:
    node.topic_count_max = 0
    names = [f"t{n}" for n in range(10)]
    async with AsyncProducer(channel) as producer:
        found = await publish_to(producer, node, *names)
    assert sorted(one.sequence for ids in found for one in ids) == [
        one.sequence for one in node.messages if one.topic != "first"
    ]
    assert not any(request.topics for request in node.calls["PublishStream"])


async def test_publish_when_a_batch_of_many_topics_reaches_an_older_node(
    node: FakeNode, channel: Channel
) -> None:
    names = [f"t{n}" for n in range(12)]
    async with AsyncProducer(channel) as producer:
        await producer.publish("first", Message(b"first"))
        with node.hold("PublishStream"):
            lists = [
                asyncio.create_task(producer.publish_many(name, [Message(name.encode())] * 3))
                for name in names
            ]
            await node.seen("PublishStream", 2)
            node.break_stream(after_batches=1, is_taken=True)
        with node.hold("PublishStream"):
            await node.seen("PublishStream", 3)
            node.topic_count_max = 0
        found = await asyncio.gather(*lists)
    assert [len(request.topics) for request in node.calls["PublishStream"][1:3]] == [12, 12]
    assert sorted(stored(node, *names)) == sorted((n, n.encode()) for n in names for _ in range(3))
    for name, ids in zip(names, found, strict=True):
        assert [node.messages[one.sequence].topic for one in ids] == [name] * 3


async def test_publish_when_one_topic_of_many_is_refused(node: FakeNode, channel: Channel) -> None:
    node.refused_topics = {"t3"}
    names = [f"t{n}" for n in range(8)]
    async with AsyncProducer(channel) as producer:
        found = await publish_to(producer, node, *names)
        failed = [
            name for name, ids in zip(names, found, strict=True) if isinstance(ids, Exception)
        ]
        assert failed == ["t3"]
        assert isinstance(found[3], errors.InvalidTopic)
        before = len(node.calls["PublishStream"])
        again = await publish_to(producer, node, *names)  # it goes by itself from now on
        assert [isinstance(ids, Exception) for ids in again].count(True) == 1
        later = node.calls["PublishStream"][before:]
        assert all("t3" not in request.topics for request in later)
        node.refused_topics = set()
        await producer.publish("t3", Message(b"alone"))
        last = await publish_to(producer, node, *names)
        assert not any(isinstance(ids, Exception) for ids in last)
    assert len(stored(node, *names)) == 7 * 2 + 7 * 2 + 1 + 8 * 2


async def test_publish_when_topics_of_one_moment_want_different_genes(
    node: FakeNode, channel: Channel
) -> None:
    spec = GeneSpec(GeneKind.HASH_SET)
    node.genes["other"] = gene_to_wire(spec)
    message = Message(b"", tags=("a",))
    async with AsyncProducer(channel) as producer:
        await producer.publish("other", message)
        with node.hold("PublishStream"):
            waiting = [
                await producer.publish_soon(topic, message)
                for topic in ["x"] * 5 + ["other", "y", "z", "other"]
            ]
        await asyncio.gather(*waiting)
    for topic, number, _ in node.genes_seen[1:]:
        assert number == (spec.number if topic == "other" else DEFAULT_SPEC.number)
