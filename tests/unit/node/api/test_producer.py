"""Publish, Cancel and Reschedule, from request to answer: what is checked, what is handed on."""

from collections.abc import Iterator
from typing import Any

import pytest

from hourwheel import errors, limits
from hourwheel.formats.message_id import MessageId, parse
from hourwheel.outcomes import CancelOutcome, RescheduleOutcome
from hourwheel.types import SEQUENCE_MAX
from hourwheel.v1.broker_pb2 import (
    CancelRequest,
    OutgoingMessage,
    ProducerPosition,
    PublishRequest,
    RescheduleRequest,
)
from hourwheel.v1.meta_pb2 import MessageMeta
from node.access.control import CALLER, AccessControl
from node.access.quotas import Limits, Quotas
from node.api.producer import PUBLISH_COUNT_MAX, Producer
from node.api.quota_gate import QuotaGate
from node.config.model import LimitsSection
from node.contracts.access import Method, Principal
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import EPOCH, NOW_MS, FakeEngine

HORIZON_MS = 1_000_000
BODY_BYTES_MAX, BATCH_BYTES_MAX = 3_000, 4_096
CONTEXT: Any = None


class World:
    """A producer service before an engine."""

    def __init__(self, **quota: Any) -> None:
        self.engine, quotas = FakeEngine(), Quotas()
        if quota:
            quotas.replace({"alice": Limits(**quota)})
        gate = QuotaGate(quotas, AccessControl(), self.engine, FakeClock())
        allowed = LimitsSection(message_body_bytes=BODY_BYTES_MAX, batch_bytes=BATCH_BYTES_MAX)
        self._service = Producer(self.engine, AccessControl(), allowed, HORIZON_MS, gate)

    async def publish(self, *messages: OutgoingMessage, **fields: Any) -> Any:
        request = PublishRequest(topic="orders", messages=messages, **fields)
        return await self._service.publish(request, CONTEXT)

    async def cancel(self, **fields: Any) -> Any:
        return await self._service.cancel(CancelRequest(**fields), CONTEXT)

    async def reschedule(self, **fields: Any) -> Any:
        return await self._service.reschedule(RescheduleRequest(**fields), CONTEXT)


@pytest.fixture(autouse=True)
def alice() -> Iterator[None]:
    token = CALLER.set(Principal("alice", Method.TOKEN))
    yield
    CALLER.reset(token)


def message(body: bytes = b"x", **fields: Any) -> OutgoingMessage:
    return OutgoingMessage(body=body, **fields)


def id_of(sequence: int) -> MessageId:
    return MessageId(0, EPOCH, sequence, NOW_MS)


async def test_messages_are_due_now_at_an_instant_or_after_a_delay() -> None:
    world = World()
    answer = await world.publish(
        message(), message(due_ms=7), message(delay_ms=50), message(delay_ms=HORIZON_MS)
    )
    due = [NOW_MS, 7, NOW_MS + 50, NOW_MS + HORIZON_MS]
    assert [one.due_ms for one in answer.messages] == due
    assert [parse(one.message_id).sequence for one in answer.messages] == [0, 1, 2, 3]
    (incoming,) = world.engine.asked("publish_messages")
    assert (incoming.topic, incoming.due_ms) == ("orders", due)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (message(due_ms=-1), errors.InvalidDueTime),
        (message(delay_ms=-1), errors.InvalidDueTime),
        (message(delay_ms=HORIZON_MS + 1), errors.BeyondHorizon),
        (message(due_ms=NOW_MS + HORIZON_MS + 1), errors.BeyondHorizon),
        (message(bytes(BODY_BYTES_MAX + 1)), errors.MessageTooLarge),
        (
            message(meta=MessageMeta(tags=["t"] * (limits.MESSAGE_TAG_COUNT_MAX + 1))),
            errors.HourwheelError,
        ),
    ],
)
async def test_nothing_is_published_when_a_message_is_refused_and_it_is_said_which(
    bad: OutgoingMessage, error: type[errors.HourwheelError]
) -> None:
    world = World()
    with pytest.raises(error) as caught:
        await world.publish(message(), message(), bad)
    assert caught.value.params["index"] == "2"
    assert not world.engine.calls


@pytest.mark.parametrize("count", [0, PUBLISH_COUNT_MAX + 1])
async def test_publish_is_refused_of_none_and_of_too_many(count: int) -> None:
    with pytest.raises(errors.TooManyItems):
        await World().publish(*[message()] * count)


async def test_publish_is_refused_when_all_messages_together_are_too_large() -> None:
    world = World()
    with pytest.raises(errors.BatchTooLarge):
        await world.publish(message(bytes(BODY_BYTES_MAX)), message(bytes(BODY_BYTES_MAX)))
    assert not world.engine.calls


async def test_publish_hands_on_what_its_producer_numbers() -> None:
    world = World()
    last = SEQUENCE_MAX - 1
    await world.publish(message(), producer=ProducerPosition(producer_id=5, first_sequence=last))
    (incoming,) = world.engine.asked("publish_messages")
    assert (incoming.producer_id, incoming.producer_sequence) == (5, last)


@pytest.mark.parametrize(
    ("position", "field"),
    [
        (ProducerPosition(first_sequence=1), "producer.producer_id"),
        (ProducerPosition(producer_id=5, first_sequence=SEQUENCE_MAX), "producer.first_sequence"),
    ],
)
async def test_publish_is_refused_when_its_numbers_cannot_be(
    position: ProducerPosition, field: str
) -> None:
    with pytest.raises(errors.InvalidArgument) as caught:
        await World().publish(message(), producer=position)
    assert caught.value.params["field"] == field


async def test_bodies_and_metadata_count_towards_the_quota_of_bytes() -> None:
    world = World(bytes_per_s=10)
    await world.publish(message(b"", meta=MessageMeta(keys=["k" * 100])))
    with pytest.raises(errors.QuotaExceeded) as caught:
        await world.publish(message())
    assert caught.value.retry_after_ms > 9_000
    assert len(world.engine.asked("publish_messages")) == 1


async def test_message_that_the_engine_refuses_is_not_pending() -> None:
    world = World(pending_messages=1)
    world.engine.errors["publish_messages"] = errors.DiskFull("no room")
    with pytest.raises(errors.DiskFull):
        await world.publish(message(delay_ms=50_000))
    del world.engine.errors["publish_messages"]
    await world.publish(message(delay_ms=50_000))
    with pytest.raises(errors.QuotaExceeded):
        await world.publish(message(delay_ms=50_000))


# -- cancel ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_packed", [False, True])
async def test_each_id_has_its_own_outcome(is_packed: bool) -> None:
    world = World()
    await world.publish(message(), message())
    world.engine.delivered = 1
    ids = [id_of(0), id_of(1), id_of(9)]
    if is_packed:
        answer = await world.cancel(packed_message_ids=b"".join(map(packed, ids)))
    else:
        answer = await world.cancel(message_ids=map(str, ids))
    assert list(answer.outcomes) == [
        CancelOutcome.ALREADY_RELEASED,
        CancelOutcome.CANCELLED,
        CancelOutcome.UNKNOWN,
    ]


def packed(one: MessageId) -> bytes:
    return bytes.fromhex(str(one))


async def test_cancel_of_nothing_does_not_ask_the_engine() -> None:
    world = World()
    assert not (await world.cancel()).outcomes
    assert not world.engine.calls


async def test_each_key_has_its_own_outcome_and_count() -> None:
    world = World()
    twice = message(meta=MessageMeta(keys=["a"]))
    await world.publish(twice, twice, message(meta=MessageMeta(keys=["ä"])))
    answer = await world.cancel(topic="orders", keys=["a", "none", "ä"])
    assert list(answer.cancelled_counts) == [2, 0, 1]
    done, unknown = CancelOutcome.CANCELLED, CancelOutcome.UNKNOWN
    assert list(answer.outcomes) == [done, unknown, done]
    assert world.engine.asked("cancel_keys") == [("orders", [b"a", b"none", "ä".encode()])]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"keys": ["a"]}, errors.InvalidTopic),
        ({"keys": ["a"], "topic": "no such name!"}, errors.InvalidTopic),
        ({"keys": ["a"], "topic": "orders", "message_ids": ["x"]}, errors.InvalidArgument),
        ({"keys": ["a"], "topic": "orders", "packed_message_ids": b"x"}, errors.InvalidArgument),
        ({"keys": ["a", ""], "topic": "orders"}, errors.InvalidArgument),
        (
            {"keys": ["ä" * (limits.KEY_BYTES_MAX // 2 + 1)], "topic": "orders"},
            errors.InvalidArgument,
        ),
        (
            {"keys": ["a"] * (limits.CANCEL_COUNT_MAX + 1), "topic": "orders"},
            errors.TooManyItems,
        ),
        ({"message_ids": ["x"], "packed_message_ids": b"x"}, errors.InvalidArgument),
        ({"message_ids": ["no id"]}, errors.HourwheelError),
        ({"message_ids": ["x"] * (limits.CANCEL_COUNT_MAX + 1)}, errors.TooManyItems),
        ({"packed_message_ids": bytes(5)}, errors.HourwheelError),
    ],
)
async def test_cancel_is_refused_as_a_whole_when_it_is_wrong(
    fields: dict[str, Any], error: type[errors.HourwheelError]
) -> None:
    world = World()
    with pytest.raises(error):
        await world.cancel(**fields)
    assert not world.engine.calls


# -- reschedule -----------------------------------------------------------------------------------


async def test_each_id_is_moved_to_the_time_of_all_or_its_own() -> None:
    world = World()
    await world.publish(message(), message(), message())
    world.engine.delivered = 1
    ids = b"".join(packed(id_of(one)) for one in (0, 1, 2, 9))
    answer = await world.reschedule(packed_message_ids=ids, delay_ms=[70])
    was = RescheduleOutcome
    assert list(answer.outcomes) == [
        was.ALREADY_RELEASED,
        was.RESCHEDULED,
        was.RESCHEDULED,
        was.UNKNOWN,
    ]
    assert list(answer.due_ms) == [0, NOW_MS + 70, NOW_MS + 70, 0]
    answer = await world.reschedule(message_ids=[str(id_of(1)), str(id_of(2))], due_ms=[5, 6])
    assert list(answer.due_ms) == [5, 6]
    assert not (await world.reschedule(due_ms=[5])).outcomes
    assert len(world.engine.asked("reschedule")) == 2


async def test_each_key_is_moved_and_counted() -> None:
    world = World()
    twice = message(meta=MessageMeta(keys=["a"]))
    await world.publish(twice, twice)
    answer = await world.reschedule(topic="orders", keys=["a", "none"], due_ms=[7, 8])
    was = RescheduleOutcome
    assert list(answer.outcomes) == [was.RESCHEDULED, was.UNKNOWN]
    assert (list(answer.due_ms), list(answer.rescheduled_counts)) == ([7, 0], [2, 0])
    asked = world.engine.asked("reschedule_keys")
    assert asked == [("orders", [b"a", b"none"], [7, 8], False)]


@pytest.mark.parametrize(
    "fields",
    [
        {"message_ids": ["ID"]},
        {"message_ids": ["ID"], "due_ms": [1], "delay_ms": [1]},
        {"message_ids": ["ID"], "due_ms": [1, 2]},
        {"topic": "orders", "keys": ["a", "b", "c"], "delay_ms": [1, 2]},
        {"topic": "orders", "keys": ["a"], "message_ids": ["ID"], "due_ms": [1]},
        {"keys": ["a"], "due_ms": [1]},
        {"message_ids": ["no id"], "due_ms": [1]},
        {"message_ids": ["ID"] * (limits.CANCEL_COUNT_MAX + 1), "due_ms": [1]},
    ],
)
async def test_reschedule_is_refused_as_a_whole_when_it_is_wrong(fields: dict[str, Any]) -> None:
    world = World()
    given = [str(id_of(0)) if one == "ID" else one for one in fields.get("message_ids", ())]
    with pytest.raises(errors.InvalidArgument):
        await world.reschedule(**{**fields, "message_ids": given})
    assert not world.engine.calls
