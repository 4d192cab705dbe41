"""Publish and Cancel over real gRPC: every limit, every typed error."""

import asyncio
from typing import Any

import pytest

from hourwheel import errors, limits
from hourwheel.formats.tag_gene import (
    DEFAULT_SPEC,
    GeneKind,
    GeneSpec,
    gene_of,
    key_hash,
    sparse_gene,
)
from hourwheel.types import SEQUENCE_MAX
from hourwheel.v1 import meta_pb2
from hourwheel.v1.broker_pb2 import (
    CANCEL_OUTCOME_ALREADY_RELEASED,
    CANCEL_OUTCOME_CANCELLED,
    CANCEL_OUTCOME_UNKNOWN,
    CancelRequest,
    OutgoingMessage,
    ProducerPosition,
    PublishRequest,
)
from node.api.producer import PUBLISH_COUNT_MAX
from node.contracts.broker import NewTopic
from tests.support.api_world import ApiWorld, refused
from tests.support.eventually import until
from tests.support.fake_engine import NOW_MS

HORIZON_MS = 1_100 * 86_400_000


def request(*messages: OutgoingMessage, topic: str = "orders", **fields: Any) -> PublishRequest:
    return PublishRequest(topic=topic, messages=messages, **fields)


async def test_publish_answers_id_and_due_time_when_accepted() -> None:
    async with ApiWorld() as world:
        answer = await world.producer.Publish(
            request(
                OutgoingMessage(body=b"a"),
                OutgoingMessage(body=b"b", delay_ms=90_000),
                OutgoingMessage(body=b"c", due_ms=NOW_MS + 5),
            )
        )
    assert [message.due_ms for message in answer.messages] == [NOW_MS, NOW_MS + 90_000, NOW_MS + 5]
    assert answer.messages[1].message_id == f"{0:08x}{3:08x}{1:016x}{NOW_MS + 90_000:016x}"


async def test_publish_hands_over_metadata_when_it_has_some() -> None:
    meta = meta_pb2.MessageMeta(
        tags=["eu", "vip"],
        keys=["order-7"],
        properties=[meta_pb2.Property(name="shop", value="7")],
    )
    async with ApiWorld() as world:
        await world.producer.Publish(
            request(
                OutgoingMessage(body=b"a", meta=meta),
                OutgoingMessage(body=b"b"),
                producer=ProducerPosition(producer_id=5, first_sequence=10),
            )
        )
        (incoming,) = world.engine.asked("publish_messages")
    assert meta_pb2.MessageMeta.FromString(incoming.metas[0]) == meta
    assert incoming.metas[1] == b""
    assert incoming.tag_genes == [sparse_gene(("eu", "vip")), 0]
    assert incoming.key_hashes == [key_hash("order-7"), 0]
    assert (incoming.producer_id, incoming.producer_sequence) == (5, 10)


async def test_publish_is_not_an_error_when_the_instant_is_past() -> None:
    async with ApiWorld() as world:
        answer = await world.producer.Publish(request(OutgoingMessage(body=b"late", due_ms=0)))
    assert answer.messages[0].due_ms == 0


@pytest.mark.parametrize(
    ("message", "reason", "params"),
    [
        (OutgoingMessage(due_ms=-1), "INVALID_DUE_TIME", {"due_ms": "-1"}),
        (OutgoingMessage(delay_ms=-1), "INVALID_DUE_TIME", {"due_ms": str(NOW_MS - 1)}),
        (OutgoingMessage(delay_ms=-(2**63)), "INVALID_DUE_TIME", {}),
        (OutgoingMessage(delay_ms=HORIZON_MS + 1), "BEYOND_HORIZON", {}),
        (OutgoingMessage(due_ms=NOW_MS + HORIZON_MS + 1), "BEYOND_HORIZON", {}),
        (OutgoingMessage(delay_ms=2**63 - 1), "BEYOND_HORIZON", {}),
        (OutgoingMessage(due_ms=2**63 - 1), "BEYOND_HORIZON", {"due_ms": str(2**63 - 1)}),
        (
            OutgoingMessage(body=bytes(limits.MESSAGE_BODY_BYTES_DEFAULT + 1)),
            "MESSAGE_TOO_LARGE",
            {"bytes_max": str(limits.MESSAGE_BODY_BYTES_DEFAULT)},
        ),
        (
            OutgoingMessage(meta=meta_pb2.MessageMeta(tags=["t"] * 65)),
            "MESSAGE_TOO_LARGE",
            {"count_max": "64"},
        ),
        (
            OutgoingMessage(
                meta=meta_pb2.MessageMeta(
                    properties=[meta_pb2.Property(name="p", value="v" * 16_385)]
                )
            ),
            "MESSAGE_TOO_LARGE",
            {"bytes": "16385"},
        ),
        (OutgoingMessage(meta=meta_pb2.MessageMeta(tags=[""])), "INVALID_ARGUMENT", {}),
    ],
)
async def test_publish_is_refused_when_a_message_breaks_a_limit(
    message: OutgoingMessage, reason: str, params: dict[str, str]
) -> None:
    async with ApiWorld() as world:
        refusal = await refused(
            world.producer.Publish(request(OutgoingMessage(body=b"good"), message))
        )
        assert world.engine.asked("publish_messages") == []
    assert (refusal.reason, refusal.domain) == (reason, "hourwheel")
    assert refusal.params.items() >= {**params, "index": "1"}.items()
    assert refusal.code.name == errors.BY_REASON[reason].code


@pytest.mark.parametrize("delay_ms", [0, HORIZON_MS])
async def test_publish_accepts_when_the_delay_is_at_the_edge(delay_ms: int) -> None:
    async with ApiWorld() as world:
        answer = await world.producer.Publish(
            request(OutgoingMessage(body=b"x", delay_ms=delay_ms))
        )
    assert answer.messages[0].due_ms == NOW_MS + delay_ms


@pytest.mark.parametrize("topic", ["", "a b", "%DLQ%g", "ü", "x" * 128, "a\n", "a/b"])
async def test_publish_is_refused_when_the_topic_is_illegal(topic: str) -> None:
    async with ApiWorld() as world:
        refusal = await refused(world.publish(b"x", topic=topic))
    assert refusal.reason == "INVALID_TOPIC"


@pytest.mark.parametrize("count", [0, PUBLISH_COUNT_MAX + 1])
async def test_publish_is_refused_when_the_count_is_wrong(count: int) -> None:
    async with ApiWorld() as world:
        refusal = await refused(
            world.producer.Publish(request(*[OutgoingMessage(body=b"x")] * count))
        )
    assert refusal.reason == "TOO_MANY_ITEMS"
    assert refusal.params == {"count": str(count), "count_max": str(PUBLISH_COUNT_MAX)}


async def test_publish_is_refused_when_all_together_are_too_large() -> None:
    async with ApiWorld() as world:
        body = OutgoingMessage(body=bytes(3 << 20))
        refusal = await refused(world.producer.Publish(request(body, body, body)))
    assert refusal.reason == "BATCH_TOO_LARGE"
    assert refusal.params["bytes_max"] == str(limits.BATCH_BYTES_MAX)


async def test_publish_keeps_the_nodes_own_limits_when_they_are_stricter() -> None:
    strict = {"limits": {"message_body_bytes": 10, "batch_bytes": 4096}}
    async with ApiWorld(strict) as world:
        too_large = await refused(world.publish(bytes(11)))
        too_many = await refused(world.publish(*[bytes(10)] * 410))
        await world.publish(bytes(10))
    assert (too_large.reason, too_large.params["bytes_max"]) == ("MESSAGE_TOO_LARGE", "10")
    assert (too_many.reason, too_many.params["bytes_max"]) == ("BATCH_TOO_LARGE", "4096")


@pytest.mark.parametrize(
    "position",
    [
        ProducerPosition(producer_id=0),
        ProducerPosition(producer_id=1, first_sequence=SEQUENCE_MAX),
        ProducerPosition(producer_id=1, first_sequence=2**64 - 1),
    ],
)
async def test_publish_is_refused_when_the_producer_is_impossible(
    position: ProducerPosition,
) -> None:
    async with ApiWorld() as world:
        refusal = await refused(
            world.producer.Publish(request(OutgoingMessage(body=b"x"), producer=position))
        )
    assert refusal.reason == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownTopic("there is no topic", topic="orders"),
        errors.OutOfOrderSequence("expected 5", expected=5),
        errors.UnknownProducer(),
        errors.DiskFull("no room", free_bytes=12),
        errors.ShuttingDown(),
    ],
)
async def test_publish_tells_what_the_engine_refuses_when_it_does(
    error: errors.HourwheelError,
) -> None:
    async with ApiWorld() as world:
        world.engine.errors["publish_messages"] = error
        refusal = await refused(world.publish(b"x"))
    assert (refusal.code.name, refusal.reason) == (error.code, error.reason)
    assert (refusal.message, refusal.params) == (error.message, error.params)


async def test_cancel_answers_each_id_when_ids_are_texts_or_packed() -> None:
    async with ApiWorld() as world:
        published = await world.publish(b"a", b"b")
        world.engine.delivered = 1
        names = [message.message_id for message in published.messages]
        names.append(f"{0:08x}{3:08x}{99:016x}{NOW_MS:016x}")
        as_texts = await world.producer.Cancel(CancelRequest(message_ids=names))
        packed = bytes.fromhex("".join(names))
        as_bytes = await world.producer.Cancel(CancelRequest(packed_message_ids=packed))
        nothing = await world.producer.Cancel(CancelRequest())
    expected = [CANCEL_OUTCOME_ALREADY_RELEASED, CANCEL_OUTCOME_CANCELLED, CANCEL_OUTCOME_UNKNOWN]
    assert list(as_texts.outcomes) == list(as_bytes.outcomes) == expected
    assert list(nothing.outcomes) == []


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (CancelRequest(message_ids=["garbage"]), "INVALID_MESSAGE_ID"),
        (CancelRequest(message_ids=["0" * 48, "g" * 48]), "INVALID_MESSAGE_ID"),
        (CancelRequest(packed_message_ids=bytes(25)), "INVALID_MESSAGE_ID"),
        (CancelRequest(packed_message_ids=b"\xff" * 24), "INVALID_MESSAGE_ID"),
        (CancelRequest(packed_message_ids=bytes(24 * 16_385)), "TOO_MANY_ITEMS"),
        (CancelRequest(message_ids=["0" * 48] * 16_385), "TOO_MANY_ITEMS"),
        (
            CancelRequest(message_ids=["0" * 48], packed_message_ids=bytes(24)),
            "INVALID_ARGUMENT",
        ),
    ],
)
async def test_cancel_is_refused_when_ids_are_bad(asked: CancelRequest, reason: str) -> None:
    async with ApiWorld() as world:
        refusal = await refused(world.producer.Cancel(asked))
        assert world.engine.asked("cancel") == []
    assert refusal.reason == reason


async def test_cancel_answers_each_key() -> None:
    async with ApiWorld() as world:
        meta = meta_pb2.MessageMeta(keys=["a", "b"])
        await world.producer.Publish(request(OutgoingMessage(body=b"x", meta=meta)))
        answer = await world.producer.Cancel(CancelRequest(topic="orders", keys=["b", "c"]))
        nothing = await world.producer.Cancel(CancelRequest(topic="orders"))
    assert list(answer.outcomes) == [CANCEL_OUTCOME_CANCELLED, CANCEL_OUTCOME_UNKNOWN]
    assert list(answer.cancelled_counts) == [1, 0]
    assert list(nothing.outcomes) == []


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (CancelRequest(topic="orders", keys=["k"] * 16_385), "TOO_MANY_ITEMS"),
        (CancelRequest(topic="orders", keys=["a", ""]), "INVALID_ARGUMENT"),
        (CancelRequest(topic="orders", keys=["k" * 256]), "INVALID_ARGUMENT"),
        (CancelRequest(topic="orders", keys=["ü" * 128]), "INVALID_ARGUMENT"),
        (CancelRequest(keys=["a"]), "INVALID_TOPIC"),
        (CancelRequest(topic="no topic", keys=["a"]), "INVALID_TOPIC"),
        (
            CancelRequest(topic="orders", keys=["a"], message_ids=["0" * 48]),
            "INVALID_ARGUMENT",
        ),
        (
            CancelRequest(topic="orders", keys=["a"], packed_message_ids=bytes(24)),
            "INVALID_ARGUMENT",
        ),
    ],
)
async def test_cancel_is_refused_when_keys_are_bad(asked: CancelRequest, reason: str) -> None:
    async with ApiWorld() as world:
        refusal = await refused(world.producer.Cancel(asked))
        assert world.engine.asked("cancel_keys") == []
    assert refusal.reason == reason


async def test_publish_leaves_nothing_in_flight_when_the_caller_goes_away() -> None:
    async with ApiWorld() as world:
        world.engine.gates["publish_messages"] = asyncio.Event()
        call = world.publish(b"x")
        task = asyncio.ensure_future(call)
        await until(lambda: world.engine.asked("publish_messages"))
        assert world.stats.requests_in_flight == 1
        task.cancel()
        await until(lambda: not world.stats.requests_in_flight)
        assert world.stats.bytes_in_flight == 0
        assert world.stats.method("Publish").handled["CANCELLED"] == 1


async def test_publish_makes_genes_as_the_topic_wants_them() -> None:
    spec = GeneSpec(GeneKind.BLOOM, 2, ("region",))
    meta = meta_pb2.MessageMeta(
        tags=["a"], properties=[meta_pb2.Property(name="region", value="eu")]
    )
    async with ApiWorld() as world:
        await world.engine.create_topic("orders", 1, NewTopic(spec))
        for topic in ("orders", "others"):
            request = PublishRequest(topic=topic, messages=[OutgoingMessage(body=b"x", meta=meta)])
            await world.producer.Publish(request)
    orders, others = world.engine.asked("publish_messages")
    assert orders.tag_genes == [gene_of(spec, ["a"], [("region", "eu")])]
    assert others.tag_genes == [gene_of(DEFAULT_SPEC, ["a"])]
