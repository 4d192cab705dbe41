"""Calls meet their caller's quotas: what they publish, and what they would make."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from google.protobuf.message_factory import GetMessageClass

from hourwheel import errors
from hourwheel.v1 import admin_pb2, broker_pb2, consumer_pb2
from node.access.control import CALLER, AccessControl
from node.access.permissions import RULES
from node.access.quotas import Limits, Quotas
from node.api.quota_gate import MAKERS, QuotaGate
from node.api.server import SERVICES
from node.contracts.access import (
    CLUSTER,
    AccessPolicy,
    Grant,
    Method,
    Operation,
    Principal,
    ResourceKind,
)
from node.contracts.broker import GroupSettings
from tests.support.engine_world import let_others_run, within
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import NOW_MS, FakeEngine

HOUR_MS = 3_600_000
MAY_MAKE = {Operation.PUBLISH, Operation.RECEIVE, Operation.ADMINISTER}
MAKES_NOTHING = {
    # What they are about must be there.
    *("ConsumerService.Ack", "ConsumerService.Nack", "ConsumerService.ChangeInvisible"),
    *("ConsumerService.LeaveBroadcast",),
    *("AdminService.UpdateTopic", "AdminService.DeleteTopic"),
    *("AdminService.UpdateGroup", "AdminService.DeleteGroup"),
    *("AdminService.DiscardDamaged", "AdminService.Skip", "AdminService.ResetGroup"),
    *("AdminService.ListDeadLetters", "AdminService.RedriveDeadLetters"),
    *("TransactionService.EndTransaction", "TransactionService.PollChecks"),
    *("RecurrenceService.PauseRecurrence", "RecurrenceService.DeleteRecurrence"),
}
"""Methods that their callers' permissions would let make a topic or a group, and that make none."""
PUBLISH = "hourwheel.v1.ProducerService.Publish"
RECEIVE = "hourwheel.v1.ConsumerService.Receive"
CREATE_TOPIC = "hourwheel.v1.AdminService.CreateTopic"
GET_TOPIC = "hourwheel.v1.AdminService.GetTopic"


def grant(*operations: Operation, kind: ResourceKind, name: str) -> Grant:
    return Grant("alice", frozenset(operations), kind, name)


ON = AccessPolicy(
    is_on=True,
    grants=(
        grant(Operation.PUBLISH, kind=ResourceKind.TOPIC, name="a-*"),
        grant(Operation.RECEIVE, kind=ResourceKind.GROUP, name="a-*"),
        grant(Operation.LOOK, kind=ResourceKind.TOPIC, name="*"),
    ),
)


class World:
    """A gate before an engine; methods of it end at once, or when they are let."""

    def __init__(self, policy: AccessPolicy | None = None, **limits: Any) -> None:
        self.engine, self.clock, self.quotas = FakeEngine(), FakeClock(), Quotas()
        self.quotas.replace({"alice": Limits(**limits)})
        access = AccessControl() if policy is None else AccessControl(policy)
        self.gate = QuotaGate(self.quotas, access, self.engine, self.clock)
        self.let = asyncio.Event()
        self.let.set()
        self.done: list[Any] = []

    async def _implement(self, request: Any, _context: Any) -> str:
        await self.let.wait()
        self.done.append(request)
        return "done"

    async def call(self, method: str, request: Any) -> str:
        return await self.gate.limited(method, self._implement)(request, None)

    async def create(self, topic: str) -> str:
        return await self.call(CREATE_TOPIC, admin_pb2.CreateTopicRequest(name=topic))

    async def receive(self, topic: str, group: str) -> str:
        return await self.call(RECEIVE, consumer_pb2.ReceiveRequest(topic=topic, group=group))

    def publish(self, count: int, *, delay_ms: int = HOUR_MS) -> None:
        """Accepted by the engine, if the gate lets it."""
        with self.gate.publishing(count, count, lambda: due(count, delay_ms)):
            pass


def due(count: int, delay_ms: int) -> Any:
    return np.full(count, NOW_MS + delay_ms, np.int64)


@pytest.fixture(autouse=True)
def alice() -> Iterator[None]:
    token = CALLER.set(Principal("alice", Method.TOKEN))
    yield
    CALLER.reset(token)


async def reached(call: Any, quota: str) -> None:
    with pytest.raises(errors.QuotaReached) as caught:
        await call
    assert caught.value.params["quota"] == quota


# -- what is published ----------------------------------------------------------------------------


def test_instants_are_not_asked_for_where_pending_messages_are_not_limited() -> None:
    world = World(messages_per_s=10)
    asked = list[int]()

    def instants() -> Any:
        asked.append(1)
        return due(1, HOUR_MS)

    with world.gate.publishing(1, 1, instants):
        pass
    assert not asked


def test_pending_messages_are_counted_until_they_are_due() -> None:
    world = World(pending_messages=3)
    world.publish(2)
    with pytest.raises(errors.QuotaExceeded):
        world.publish(2)
    world.publish(5, delay_ms=0)  # due at once: none of them is pending
    world.engine.clock_ms += 2 * HOUR_MS
    with world.gate.publishing(3, 3, lambda: due(3, 3 * HOUR_MS)):
        pass


@pytest.mark.parametrize(
    ("error", "is_given_back"),
    [
        (errors.DiskFull("no room"), True),
        (errors.InvalidTopic("bad"), True),
        (errors.Timeout("the outcome is not known"), False),
        (errors.Cancelled("likewise"), False),
        (errors.Internal("likewise"), False),
        (RuntimeError("likewise"), False),
    ],
)
def test_pending_messages_are_given_back_only_when_they_surely_were_not_accepted(
    error: Exception, is_given_back: bool
) -> None:
    world = World(pending_messages=2)
    with pytest.raises(type(error)), world.gate.publishing(2, 2, lambda: due(2, HOUR_MS)):
        raise error
    if is_given_back:
        world.publish(2)
    else:
        with pytest.raises(errors.QuotaExceeded):
            world.publish(2)


def test_pending_messages_are_given_back_when_nothing_of_them_is_new() -> None:
    world = World(pending_messages=2)
    with world.gate.publishing(2, 2, lambda: due(2, HOUR_MS)) as nothing_is_new:
        nothing_is_new()
    world.publish(2)


def test_what_a_rate_refuses_is_not_pending() -> None:
    world = World(messages_per_s=1, pending_messages=3)
    world.publish(2)
    with pytest.raises(errors.QuotaExceeded) as caught:
        world.publish(1)
    assert caught.value.params["quota"] == "messages_per_s"
    world.clock.pass_ms(60_000)
    world.publish(1)


def test_caller_that_has_no_quota_publishes_as_it_likes() -> None:
    world = World(messages_per_s=0, pending_messages=0)
    CALLER.set(Principal("bob", Method.TOKEN))
    for _ in range(100):
        world.publish(1_000)


# -- topics and groups ----------------------------------------------------------------------------


async def test_methods_that_make_nothing_are_as_they_were() -> None:
    world = World(topics=0)
    assert await world.call(GET_TOPIC, admin_pb2.GetTopicRequest(name="new")) == "done"


async def test_nothing_is_counted_while_nobody_is_limited() -> None:
    world = World()
    assert not world.gate.is_on
    assert await world.create("new") == "done"
    world.quotas.replace({"alice": Limits(topics=0)})
    assert world.gate.is_on
    await reached(world.create("newer"), "topics")
    assert [one.name for one in world.done] == ["new"]


@pytest.mark.parametrize("limits", [{"messages_per_s": 1}, {"groups": 0}])
async def test_topics_are_made_where_only_something_else_is_limited(limits: Any) -> None:
    assert await World(**limits).create("new") == "done"


async def test_no_topic_is_made_above_the_quota_and_those_there_are_used() -> None:
    world = World(topics=2)
    await world.engine.create_topic("one", 1)
    assert await world.create("two") == "done"
    await world.engine.create_topic("two", 1)
    await reached(world.create("three"), "topics")
    message = [broker_pb2.OutgoingMessage(body=b"x")]
    for topic in ("one", "two"):
        request = broker_pb2.PublishRequest(topic=topic, messages=message)
        assert await world.call(PUBLISH, request) == "done"
    request = broker_pb2.PublishRequest(topic="three", messages=message)
    await reached(world.call(PUBLISH, request), "topics")
    await world.engine.delete_topic("one")
    assert await world.create("three") == "done"


async def test_no_group_is_made_above_the_quota_by_a_receive() -> None:
    world = World(groups=1)
    assert await world.receive("orders", "first") == "done"
    await world.engine.put_group("first", GroupSettings())
    assert await world.receive("orders", "first") == "done"
    await reached(world.receive("orders", "second"), "groups")


async def test_only_names_that_the_caller_may_use_are_counted() -> None:
    world = World(ON, topics=2, groups=1)
    for name in [f"b-{number}" for number in range(600)] + ["a-1"]:
        await world.engine.create_topic(name, 1)
        await world.engine.put_group(name.replace("a", "c"), GroupSettings())
    assert await world.create("a-2") == "done"
    assert await world.receive("a-1", "a-group") == "done"
    await world.engine.create_topic("a-2", 1)
    await reached(world.create("a-3"), "topics")
    await world.engine.put_group("a-group", GroupSettings())
    await reached(world.receive("a-1", "a-other"), "groups")


async def test_all_names_of_a_large_catalog_are_counted() -> None:
    world = World(topics=1_201)
    for number in range(1_200):
        await world.engine.create_topic(f"t-{number}", 1)
    assert await world.create("last") == "done"
    await world.engine.create_topic("last", 1)
    await reached(world.create("more"), "topics")


async def test_what_others_make_at_the_same_time_counts() -> None:
    world = World(topics=1)
    world.let.clear()
    first = asyncio.ensure_future(world.create("one"))
    await let_others_run()
    again = asyncio.ensure_future(world.create("one"))  # the same one: counted once
    await let_others_run()
    await reached(world.create("two"), "topics")
    world.let.set()
    await within(asyncio.gather(first, again))
    assert len(world.done) == 2
    assert await world.create("two") == "done"  # the engine made none of them after all


async def test_place_is_free_again_when_the_call_fails_or_is_given_up() -> None:
    world = World(topics=1, groups=0)
    world.let.clear()
    making = asyncio.ensure_future(world.create("one"))
    await let_others_run()
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    world.let.set()
    await reached(world.receive("two", "group"), "groups")  # its topic is not made, either
    assert await world.create("three") == "done"


def test_each_method_is_known_to_make_something_or_not() -> None:
    """Else a new one that makes topics goes round the quota of them.

    A method that this names goes into `MAKERS` where what it does can make a topic or a group that
    was not there, by whichever service; else into `MAKES_NOTHING`.
    """
    others = {f"hourwheel.v1.{name}" for name in MAKES_NOTHING}
    may_make = {
        method
        for method, rule in RULES.items()
        if rule.operation in MAY_MAKE and "AccessService" not in method and not is_of_cluster(rule)
    }
    assert not others & MAKERS
    assert others | MAKERS == may_make


def is_of_cluster(rule: Any) -> bool:
    """Whatever is asked for, it is about the cluster."""
    try:
        return rule.resources(None) == (CLUSTER,)
    except AttributeError:  # it looks at the request
        return False


@pytest.mark.parametrize("method", sorted(MAKERS))
async def test_each_method_that_makes_something_is_refused_by_a_quota_of_zero(method: str) -> None:
    service, _, name = method.rpartition(".")
    descriptor = next(one for one in SERVICES if one.full_name == service).methods_by_name[name]
    request = GetMessageClass(descriptor.input_type)()
    kinds = {one.kind for one in RULES[method].resources(named(request))}
    for kind in kinds & {ResourceKind.TOPIC, ResourceKind.GROUP}:
        quota = f"{kind.value}s"
        await reached(World(**{quota: 0}).call(method, request), quota)


def named(request: Any) -> Any:
    """`request`, which names a topic or a group, or both, that are not there."""
    fields = request.DESCRIPTOR.fields_by_name
    for field in {"topic", "group", "name"} & set(fields):
        setattr(request, field, "new")
    if "parts" in fields:
        request.parts.add(topic="new")
    return request
