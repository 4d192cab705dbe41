"""JoinBroadcast and LeaveBroadcast over gRPC: what is refused, and who may; a real consumer."""

from typing import Any

import pytest

from hourwheel import errors, limits
from hourwheel.client.consumer import AsyncConsumer
from hourwheel.client.groups.membership import Broadcast
from hourwheel.v1.consumer_pb2 import (
    JoinBroadcastRequest,
    LeaveBroadcastRequest,
    ReceiveRequest,
)
from hourwheel.v1.groups_pb2 import START_AT_FIRST, START_AT_TIME
from node.access.permissions import RULES
from node.api.group_settings import check_leaving, check_receiving, joining_of
from storage.views.catalog_items import START_FIRST_MS, START_NOW_MS
from tests.support.api_world import ApiWorld

GROUP = "%BROADCAST%prices|host-7"


def request(**fields: Any) -> JoinBroadcastRequest:
    return JoinBroadcastRequest(**{"group": "prices", "topic": "orders", "token": 255, **fields})


async def test_join_names_the_group_to_receive_by() -> None:
    async with ApiWorld() as world:
        named = await world.consumer.JoinBroadcast(request(member="host-7", start=START_AT_FIRST))
        assert (named.group, named.member, named.is_new) == (GROUP, "host-7", True)
        assert named.idle_ms == limits.MEMBER_IDLE_MS_DEFAULT
        other = await world.consumer.JoinBroadcast(request(idle_ms=10_000))
        assert other.group == "%BROADCAST%prices|00000000000000ff"
        asked = world.engine.asked("join_broadcast")
        assert [one.start_ms for one in asked] == [START_FIRST_MS, START_NOW_MS]
        assert asked[1].idle_ms_max == 10_000
        await world.consumer.LeaveBroadcast(LeaveBroadcastRequest(group=GROUP, token=255))
        assert world.engine.asked("leave_broadcast") == [(GROUP, 255)]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"token": 0}, errors.InvalidArgument),
        ({"idle_ms": limits.MEMBER_IDLE_MS_MIN - 1}, errors.InvalidArgument),
        ({"idle_ms": limits.MEMBER_IDLE_MS_MAX + 1}, errors.InvalidArgument),
        ({"start": 17}, errors.InvalidArgument),
        ({"start_ms": 7}, errors.InvalidArgument),
        ({"start": START_AT_TIME}, errors.InvalidArgument),
        ({"group": ""}, errors.InvalidGroup),
        ({"group": GROUP}, errors.InvalidGroup),
        ({"member": "a|b"}, errors.InvalidGroup),
        ({"member": "x" * 128}, errors.InvalidGroup),
        ({"topic": "orders-*"}, errors.InvalidTopic),
        ({"topic": "%DLQ%billing"}, errors.InvalidTopic),
    ],
)
def test_joining_is_refused_when_it_makes_no_sense(
    wrong: dict[str, Any], error: type[errors.HourwheelError]
) -> None:
    with pytest.raises(error):
        joining_of(request(**wrong))


def test_a_token_goes_with_a_member_and_nobody_else() -> None:
    for group, token in ((GROUP, 0), ("billing", 1)):
        with pytest.raises(errors.InvalidArgument):
            check_receiving(ReceiveRequest(group=group, member_token=token))
    check_receiving(ReceiveRequest(group=GROUP, member_token=1))
    check_receiving(ReceiveRequest(group="billing"))
    with pytest.raises(errors.InvalidGroup):
        check_leaving(LeaveBroadcastRequest(group="billing", token=1))


def test_member_needs_the_permission_of_its_broadcast() -> None:
    service = "hourwheel.v1.ConsumerService."
    needed = RULES[service + "JoinBroadcast"].resources(request())
    received = ReceiveRequest(group=GROUP, topic="orders")
    assert RULES[service + "Receive"].resources(received) == needed
    assert [one.name for one in needed] == ["orders", "prices"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"broadcast": Broadcast(idle_ms=1)},
        {"broadcast": Broadcast(start="tomorrow")},
        {"broadcast": Broadcast(member="a|b")},
        {"broadcast": "host-7"},
        {"broadcast": True, "topic": "", "pattern": "orders-*"},
    ],
)
async def test_consumer_is_refused_when_its_broadcast_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        AsyncConsumer(**{"group": "prices", "topic": "orders", **wrong})
