"""What is done by ids, by callers who may do it on some topics and not on all."""

import asyncio
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.v1 import admin_pb2, lookup_pb2
from hourwheel.v1.broker_pb2 import CancelRequest, RescheduleRequest
from hourwheel.v1.session_pb2 import SessionCall, SessionRequest
from node.contracts.access import AccessPolicy, Grant, Operation, ResourceKind
from tests.support.api_world import ApiWorld, Refusal, refused
from tests.support.callers import identify
from tests.support.eventually import until

ALICE = (("who", "alice"),)
MAY_ALL = (("who", "carol"),)
NOBODY_KNOWS = f"{0:08x}{3:08x}{77:016x}{5:016x}"


def on(*topics: str) -> AccessPolicy:
    """Alice may cancel and look on these topics, and carol on all."""
    operations = frozenset({Operation.CANCEL, Operation.LOOK})
    grants = [Grant("alice", operations, ResourceKind.TOPIC, name) for name in topics]
    grants.append(Grant("carol", operations, ResourceKind.TOPIC, "*"))
    return AccessPolicy(is_on=True, grants=tuple(grants))


async def published(world: ApiWorld, *topics: str) -> list[str]:
    """Ids of a message of each topic."""
    found = [await world.publish(b"x", topic=topic) for topic in topics]
    return [one.messages[0].message_id for one in found]


def calls_of(world: ApiWorld, *ids: str) -> list[Any]:
    """All calls that name messages by id; the last two name one."""
    return [
        lambda who: world.producer.Cancel(CancelRequest(message_ids=ids), metadata=who),
        lambda who: world.producer.Reschedule(
            RescheduleRequest(message_ids=ids, delay_ms=[5]), metadata=who
        ),
        lambda who: world.admin.DescribeMessage(
            admin_pb2.DescribeMessageRequest(message_id=ids[0]), metadata=who
        ),
        lambda who: world.lookup.GetHistory(
            lookup_pb2.GetHistoryRequest(message_id=ids[0]), metadata=who
        ),
    ]


async def test_permission_on_the_topics_of_the_messages_is_enough() -> None:
    async with ApiWorld(identify=identify) as world:
        ids = await published(world, "orders", "orders-eu")
        world.access.replace(on("orders*"))
        for call in calls_of(world, *ids):
            await call(ALICE)
        assert len(world.engine.asked("topics_of")) == 4
        packed = b"".join(map(bytes.fromhex, ids))
        await world.producer.Cancel(CancelRequest(packed_message_ids=packed), metadata=ALICE)
        session = world.sessions.Session(metadata=ALICE)
        call = SessionCall(call_id=1, cancel=CancelRequest(message_ids=ids))
        await session.write(SessionRequest(calls=[call]))
        assert (await session.read()).answers == []
        assert list((await session.read()).answers[0].cancel.outcomes) == [1, 1]
        session.cancel()


async def test_refusal_is_the_same_of_others_messages_and_of_none() -> None:
    async with ApiWorld(identify=identify) as world:
        (foreign,) = await published(world, "bills")
        found: list[list[Refusal]] = []
        for policy in (on("orders*"), on()):
            world.access.replace(policy)
            found += [
                [await refused(call(ALICE)) for call in calls_of(world, one)]
                for one in (foreign, NOBODY_KNOWS)
            ]
        assert found[0] == found[1] == found[2] == found[3]
        assert {refusal.reason for refusal in found[0]} == {"PERMISSION_DENIED"}
        assert {refusal.params["resource"] for refusal in found[0]} == {"*"}
        assert [name for name, _ in world.engine.calls if name in {"cancel", "reschedule"}] == []
        nobody = [await refused(call(())) for call in calls_of(world, foreign)]
        assert [one.message for one in nobody] == [one.message for one in found[0]]


async def test_nothing_is_looked_up_for_who_may_use_no_topic_at_all() -> None:
    async with ApiWorld(identify=identify) as world:
        mine, foreign = await published(world, "orders", "bills")
        receive = frozenset({Operation.RECEIVE, Operation.ADMINISTER})
        groups = frozenset(Operation)
        grants = (
            Grant("alice", receive, ResourceKind.TOPIC, "*"),
            Grant("alice", groups, ResourceKind.GROUP, "*"),
            Grant("bob", groups, ResourceKind.TOPIC, "orders"),
        )
        world.access.replace(AccessPolicy(is_on=True, grants=grants))
        for call in calls_of(world, mine, foreign):
            refusal = await refused(call(ALICE))
            assert refusal.reason == "PERMISSION_DENIED"
            assert refusal.params["indexes"] in {"0", "0,1"}
        assert world.engine.asked("topics_of") == []


async def test_batch_is_refused_as_a_whole_and_says_for_which_of_its_ids() -> None:
    async with ApiWorld(identify=identify) as world:
        mine, foreign, too = await published(world, "orders", "bills", "orders-eu")
        world.access.replace(on("orders*"))
        for call in calls_of(world, mine, foreign, NOBODY_KNOWS, too)[:2]:
            assert (await refused(call(ALICE))).params["indexes"] == "1,2"
        assert world.engine.cancelled == set()
        await calls_of(world, mine, too)[0](ALICE)
        assert world.engine.cancelled == {0, 2}


async def test_nothing_is_looked_up_when_all_topics_are_allowed_or_access_control_is_off() -> None:
    async with ApiWorld(identify=identify) as world:
        ids = await published(world, "orders", "bills")
        for call in calls_of(world, *ids):
            await call(())
        world.access.replace(on("orders"))
        for call in calls_of(world, *ids):
            await call(MAY_ALL)
        assert world.engine.asked("topics_of") == []


async def test_permission_that_is_taken_away_during_the_look_up_counts_no_more() -> None:
    async with ApiWorld(identify=identify) as world:
        ids = await published(world, "orders")
        world.access.replace(on("orders"))
        gate = world.engine.gates["topics_of"] = asyncio.Event()
        call = asyncio.ensure_future(refused(calls_of(world, *ids)[0](ALICE)))
        await until(lambda: bool(world.engine.asked("topics_of")))
        world.access.replace(on())
        gate.set()
        assert (await call).reason == "PERMISSION_DENIED"
        assert world.engine.cancelled == set()


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (CancelRequest(message_ids=["no id"]), "INVALID_MESSAGE_ID"),
        (CancelRequest(packed_message_ids=bytes(24 * 16_385)), "TOO_MANY_ITEMS"),
        (CancelRequest(), "PERMISSION_DENIED"),
        (CancelRequest(topic="bills", keys=["k"]), "PERMISSION_DENIED"),
    ],
)
async def test_call_is_refused_when_it_names_no_message(
    request_: CancelRequest, reason: str
) -> None:
    async with ApiWorld(identify=identify) as world:
        world.access.replace(on("orders"))
        refusal = await refused(world.producer.Cancel(request_, metadata=ALICE))
        assert refusal.reason == reason
        assert world.engine.calls == []


async def test_other_errors_of_the_look_up_are_told() -> None:
    async with ApiWorld(identify=identify) as world:
        world.access.replace(on("orders"))
        world.engine.errors["topics_of"] = errors.NotMaster("elsewhere", master="node-2")
        refusal = await refused(calls_of(world, NOBODY_KNOWS)[0](ALICE))
        assert refusal.reason == "NOT_MASTER"
