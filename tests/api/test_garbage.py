"""Whatever bytes a method is given, its answer is OK or one of the errors of docs/ERRORS.md.

All methods of all services, as the descriptors list them, with a real engine behind them. A new
method, or a new field, is walked through by itself.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final, cast

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

import hourwheel.v1
from hourwheel import errors
from hourwheel.formats.record_batch import build_publish
from hourwheel.v1 import broker_pb2, consumer_pb2
from tests.support.api_world import ApiWorld, refusal_of
from tests.support.engine_world import EngineWorld, within
from tests.support.fake_engine import FakeEngine
from tests.support.hostile_requests import Plausible, hostile_requests, plausible_request

NEVER: Final = (errors.Internal, errors.DataLoss)
"""With their subclasses: what a request must not be able to cause."""


VALUES: Final[Plausible] = {
    "topic": b"orders",
    "group": b"orders",
    "name": b"orders",
    "to_node_id": b"node-1",
    "kind": 1,
    "text": b"a && b",
    "tags": b"a",
    "keys": b"k",
    "properties": b"p",
    "value": b"v",
    "client_message_id": b"c",
    "content_type": b"text/plain",
    "body": b"x",
    "delay_ms": 5,
    "producer_id": 7,
    "first_sequence": 0,
    "count": 1,
    "max_messages": 1,
    "invisible_ms": 1_000,
    "format": 1,
    "page_size": 1,
    "queue_count": 1,
    "attempts_max": 3,
    "retry_delay_ms": 5,
    "bits_per_item": 4,
}
"""Of fields, by their names. "name" is of topics, groups and properties."""


def services() -> Iterator[ServiceDescriptor]:
    """Those of all schemas of the package."""
    for module in iter_modules(hourwheel.v1.__path__):
        if module.name.endswith("_pb2"):
            schema: Any = import_module(f"hourwheel.v1.{module.name}")
            yield from schema.DESCRIPTOR.services_by_name.values()


METHODS: Final = [method for service in services() for method in service.methods]


def test_all_services_are_walked() -> None:
    names = {method.containing_service.name for method in METHODS}
    assert names >= {"ProducerService", "ConsumerService", "AdminService"}
    assert len(METHODS) > 20


class World:
    """A real engine behind the real API, and what a plausible request says."""

    def __init__(self, node: EngineWorld, api: ApiWorld) -> None:
        self.node, self.api = node, api

    async def plausible(self) -> Plausible:
        """Values by the names of fields: a topic and group that exist, fresh ids and receipts."""
        await self.taken("second", group="second")
        taken = await self.taken("orders")
        later = broker_pb2.OutgoingMessage(body=b"later", delay_ms=10**9)
        answer = await self.api.producer.Publish(
            broker_pb2.PublishRequest(topic="orders", messages=[later] * 3)
        )
        name, now_ms = answer.messages[0].message_id, self.node.now_ms
        receipt = taken.receipt.encode()
        return {
            **VALUES,
            **dict.fromkeys(("message_id", "message_ids"), name.encode()),
            **dict.fromkeys(("receipt", "receipts"), receipt),
            "packed_message_ids": bytes.fromhex(name),
            "from_due_ms": now_ms,
            "to_due_ms": now_ms + 10**10,
            "record_batch": build_publish([now_ms] * 3, [b"x"] * 3),
        }

    async def page_token(self, method: MethodDescriptor, plausible: Plausible) -> Plausible:
        """Where a second page begins, for a method that has pages, and that this node does."""
        if "page_token" not in method.input_type.fields_by_name:
            return {}
        raw = plausible_request(method.input_type, plausible)
        answer = (await self.answer(method, raw))[1]
        token = b"" if answer is None else answer.next_page_token
        if isinstance(token, str):
            token = token.encode()
        return {} if answer is None else {"page_token": token}

    async def taken(self, topic: str, group: str = "orders") -> consumer_pb2.ReceivedMessage:
        """A message of this topic that was just published, and is leased."""
        await self.api.publish(b"one", b"two", topic=topic)
        request = consumer_pb2.ReceiveRequest(
            group=group, topic=topic, max_messages=1, invisible_ms=1_000
        )
        message: consumer_pb2.ReceivedMessage = (await self.api.consumer.Receive(request)).messages[
            0
        ]
        return message

    async def answer(self, method: MethodDescriptor, raw: bytes) -> tuple[str, Any]:
        """(Reason of the error, or "OK"; the answer). Of several in a frame: of the first error."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        parse = GetMessageClass(method.output_type).FromString
        try:
            if not method.client_streaming:
                unary: Any = self.api.channel.unary_unary(path)
                return "OK", parse(await within(unary(raw)))
            call: Any = self.api.channel.stream_stream(path)()
            await call.write(raw)
            await call.done_writing()
            answers = [parse(one) async for one in call]
        except grpc.aio.AioRpcError as error:
            return refusal_of(error).reason, None
        each = [one for frame in answers for one in getattr(frame, "answers", [frame])]
        reasons = [one.error.reason for one in each if one.HasField("error")]
        return next(iter(reasons), "OK"), answers


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[World]:
    async with (
        EngineWorld(root) as node,
        ApiWorld(engine=cast("FakeEngine", node.engine)) as api,
    ):
        yield World(node, api)
        assert not node.failure.found.done()
        assert not api.failure.found.done()


def is_in_the_table(reason: str) -> bool:
    """Whether it is an error that a request may lead to."""
    return reason == "OK" or not issubclass(errors.BY_REASON[reason], NEVER)


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.name)
async def test_answer_is_typed_whatever_is_sent(method: MethodDescriptor, tmp_path: Path) -> None:
    wrong, seen = [], set()
    async with opened(tmp_path) as world:
        plausible = await world.plausible()
        token = await world.page_token(method, plausible)
        for name, raw in hostile_requests(method.input_type, {**plausible, **token}, seed=1):
            try:
                reason, _ = await world.answer(method, raw)
            except Exception as error:  # noqa: BLE001 - all that is wrong is told at once
                wrong.append(f"{name}: {error!r}")
                continue
            seen.add(reason)
            if not is_in_the_table(reason):
                wrong.append(f"{name}: {reason}")
        # In a group that nobody has heard of: a plausible request may have paused the other one.
        assert (await world.taken("afterwards", "others")).body == b"one"
    assert not wrong, "\n".join(wrong)
    assert "INVALID_ARGUMENT" in seen, "what is no request at all"


async def test_a_bug_that_a_request_meets_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as world:
        monkeypatch.setattr(world.node.engine, "delete_topic", cast("Any", None))
        (method,) = (one for one in METHODS if one.name == "DeleteTopic")
        raw = plausible_request(method.input_type, VALUES)
        reason, _ = await world.answer(method, raw)
    assert reason == "INTERNAL"
    assert not is_in_the_table(reason)
