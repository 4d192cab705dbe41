"""What calls would make is counted: in their order, once, and for as long as they last."""

import asyncio
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.v1 import broker_pb2, consumer_pb2
from node.access.control import CALLER, AccessControl
from node.access.quotas import Limits, Quotas
from node.api.quota_gate import QuotaGate
from node.contracts.access import Method, Principal
from node.contracts.broker import GroupInfo, TopicInfo
from tests.support.fake_engine import FakeEngine

PUBLISH = "hourwheel.v1.ProducerService.PublishStream"
RECEIVE = "hourwheel.v1.ConsumerService.Receive"


class World:
    """A gate before a method that says when it is called and lasts until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
        quotas, self.engine = Quotas(), FakeEngine()
        quotas.replace({"*": Limits(**limits)})
        self.engine.known_topics["bills"] = TopicInfo("bills", 1)
        self.asked, self.begun, self.go = 0, list[str](), asyncio.Event()
        topic = self.engine.topic

        def counted(name: str) -> TopicInfo:
            self.asked += 1
            return topic(name)

        monkeypatch.setattr(self.engine, "topic", counted)
        gate = QuotaGate(quotas, AccessControl(), self.engine, SystemClock())
        self.limited = gate.limited(PUBLISH, self.implement)
        self.receive = gate.limited(RECEIVE, self.implement)

    async def implement(self, request: Any, _context: Any) -> None:
        self.begun.append(request.topic)
        await self.go.wait()

    def call(self, *topics: str) -> "asyncio.Task[None]":
        CALLER.set(Principal("alice", Method.USER))
        name, many = (topics[0], ()) if len(topics) == 1 else ("", topics)
        request = broker_pb2.PublishStreamRequest(topic=name, topics=many)
        return asyncio.ensure_future(self.limited(request, None))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_calls_go_on_in_their_order_while_one_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, topics=5)
    calls = [world.call("orders"), world.call("bills"), world.call("sales"), world.call("bills")]
    await turns()
    assert world.begun == ["orders", "bills", "sales", "bills"]
    world.go.set()
    await asyncio.gather(*calls)


async def test_call_that_is_given_up_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, topics=2, groups=2)
    world.engine.known_groups["g"] = GroupInfo("g", 1, 1, 1, 1)
    world.go.set()
    CALLER.set(Principal("alice", Method.USER))
    for turn_count in range(1, 6):
        request = consumer_pb2.ReceiveRequest(topic="orders", group="new")
        given_up = asyncio.ensure_future(world.receive(request, None))
        for _ in range(turn_count):
            await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
        await world.call("sales")


async def test_engine_is_asked_of_each_topic_a_fixed_number_of_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, topics=500)
    first = world.call(*(f"a-{number}" for number in range(200)))
    await turns()
    second = world.call(*(f"b-{number}" for number in range(200)))
    await turns()
    assert len(world.begun) == 2
    assert world.asked <= 4 * 200
    world.go.set()
    await asyncio.gather(first, second)
    with pytest.raises(errors.QuotaReached):
        await world.call(*(f"c-{number}" for number in range(500)))
    await world.call(*(f"c-{number}" for number in range(499)))
