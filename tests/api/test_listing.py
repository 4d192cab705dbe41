"""Lists over real gRPC: page by page, or in one answer that a client with defaults can receive."""

from dataclasses import replace

import grpc
import pytest

from hourwheel.filter_language.text import FilterExpression
from hourwheel.limits import LIST_BYTES_MAX, LIST_PAGE_SIZE_MAX
from hourwheel.v1 import admin_pb2 as wire
from node.contracts.broker import (
    GroupInfo,
    SubscriptionInfo,
    TopicInfo,
)
from node.contracts.lags import GroupLagInfo
from tests.support.api_world import ApiWorld, refused

GROUP = GroupInfo("g", 16, 1, 1, 1)
LONG = FilterExpression.tags("x" * 4_000)


def with_topics(world: ApiWorld, count: int) -> list[str]:
    names = [f"t{number:05}" for number in range(count)]
    world.engine.known_topics |= {name: TopicInfo(name, 1) for name in names}
    return names


async def test_topics_come_page_by_page() -> None:
    async with ApiWorld() as world:
        names = with_topics(world, 700)
        told, sizes, token = list[str](), [], b""
        while True:
            request = wire.ListTopicsRequest(page_size=300, page_token=token)
            answer = await world.admin.ListTopics(request)
            sizes.append(len(answer.topics))
            told += [topic.name for topic in answer.topics]
            token = answer.next_page_token
            if not token:
                break
    assert sizes == [300, 300, 100]
    assert told == names


async def test_last_page_has_no_token_when_it_is_full() -> None:
    async with ApiWorld() as world:
        with_topics(world, 300)
        answer = await world.admin.ListTopics(wire.ListTopicsRequest(page_size=300))
    assert (len(answer.topics), answer.next_page_token) == (300, b"")


async def test_pages_go_on_where_the_last_one_ended_when_names_come_and_go() -> None:
    async with ApiWorld() as world:
        with_topics(world, 10)
        first = await world.admin.ListTopics(wire.ListTopicsRequest(page_size=5))
        del world.engine.known_topics["t00004"], world.engine.known_topics["t00007"]
        world.engine.known_topics |= {name: TopicInfo(name, 1) for name in ("a", "t00008a")}
        request = wire.ListTopicsRequest(page_size=5, page_token=first.next_page_token)
        second = await world.admin.ListTopics(request)
    told = [topic.name for topic in second.topics]
    assert told == ["t00005", "t00006", "t00008", "t00008a", "t00009"]


async def test_client_that_knows_no_pages_gets_all_or_is_told_so() -> None:
    async with ApiWorld() as world:
        names = with_topics(world, 2_000)
        answer = await world.admin.ListTopics(wire.ListTopicsRequest())
        for number in range(16_000):
            name = f"{number:0120}"
            world.engine.known_topics[name] = TopicInfo(name, 1)
        refusal = await refused(world.admin.ListTopics(wire.ListTopicsRequest()))
    assert [topic.name for topic in answer.topics] == names
    assert answer.ByteSize() < 4 << 20, "what gRPC clients receive by default"
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_ARGUMENT",
    )
    assert refusal.params == {"field": "page_size", "bytes_max": str(LIST_BYTES_MAX)}


async def test_groups_come_page_by_page_and_a_page_is_bounded_in_bytes() -> None:
    subscriptions = tuple(SubscriptionInfo(f"t{number}", LONG) for number in range(100))
    async with ApiWorld() as world:
        for number in range(12):
            name = f"g{number:02}"
            world.engine.known_groups[name] = replace(GROUP, name=name, subscriptions=subscriptions)
        told, token = list[str](), b""
        while True:
            request = wire.ListGroupsRequest(page_size=1_000, page_token=token)
            answer = await world.admin.ListGroups(request)
            assert answer.ByteSize() < 2 << 20
            told += [group.name for group in answer.groups]
            token = answer.next_page_token
            if not token:
                break
        refusal = await refused(world.admin.ListGroups(wire.ListGroupsRequest()))
    assert told == [f"g{number:02}" for number in range(12)]
    assert refusal.params["field"] == "page_size"


async def test_one_group_comes_in_pages_of_its_topics() -> None:
    subscriptions = tuple(SubscriptionInfo(f"t{number}", None) for number in range(150))
    lags = tuple(GroupLagInfo(f"t{number}", number, 0) for number in range(150))
    async with ApiWorld() as world:
        world.engine.known_groups["g"] = replace(GROUP, subscriptions=subscriptions, lags=lags)
        whole = await world.admin.GetGroup(wire.GetGroupRequest(name="g"))
        parts, token = wire.Group(), b""
        for count in (70, 70, 10):
            request = wire.GetGroupRequest(name="g", page_size=70, page_token=token)
            answer = await world.admin.GetGroup(request)
            assert len(answer.group.lags) == count
            parts.MergeFrom(answer.group)
            token = answer.next_page_token
    assert not token
    assert parts == whole.group
    assert [lag.unresolved_count for lag in whole.group.lags] == list(range(150))


@pytest.mark.parametrize(
    ("page_size", "token", "field"),
    [
        (LIST_PAGE_SIZE_MAX + 1, b"", "page_size"),
        (1, b"t1", "page_token"),
        (1, b"\x01\xff", "page_token"),
        (0, b"\x01t1", "page_token"),
    ],
)
async def test_page_is_refused_when_it_is_none(page_size: int, token: bytes, field: str) -> None:
    async with ApiWorld() as world:
        world.engine.known_groups["g"] = GROUP
        pages = {"page_size": page_size, "page_token": token}
        for call in (
            world.admin.ListTopics(wire.ListTopicsRequest(**pages)),
            world.admin.ListGroups(wire.ListGroupsRequest(**pages)),
            world.admin.GetGroup(wire.GetGroupRequest(name="g", **pages)),
        ):
            refusal = await refused(call)
            assert (refusal.reason, refusal.params["field"]) == ("INVALID_ARGUMENT", field)
