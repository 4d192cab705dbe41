"""A member of a broadcast as its consumer has it: what it says to a node, and how often."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from hourwheel import AsyncConsumer, errors
from hourwheel.client.groups.membership import Broadcast, Membership, as_broadcast, find_membership
from hourwheel.formats.member_group import member_group_name
from hourwheel.limits import MEMBER_IDLE_MS_MAX, MEMBER_IDLE_MS_MIN
from hourwheel.transport.channel import Channel
from hourwheel.v1 import groups_pb2


class Node:
    """Is asked as a channel is; answers nothing, or with what `failures` has next."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.failures: list[errors.HourwheelError] = []

    async def call(self, _method: object, request: Any) -> None:
        self.asked.append(request)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)


def member_of(node: Node, given: Broadcast | None = None) -> Membership:
    found = find_membership(cast("Channel", node), given or Broadcast(), "prices", None)
    assert found is not None
    return found


def test_consumer_is_no_member_when_nothing_is_said() -> None:
    assert find_membership(cast("Channel", Node()), False, "prices", None) is None
    assert as_broadcast(True) == Broadcast()


@pytest.mark.parametrize(
    "given",
    [
        "host-7",
        Broadcast(start="tomorrow"),
        Broadcast(idle_ms=MEMBER_IDLE_MS_MIN - 1),
        Broadcast(idle_ms=timedelta(milliseconds=MEMBER_IDLE_MS_MAX + 1)),
    ],
)
def test_broadcast_is_refused_when_it_makes_no_sense(given: Any) -> None:
    with pytest.raises(errors.InvalidArgument):
        as_broadcast(given)


def test_members_without_names_are_called_by_their_tokens() -> None:
    one, other = member_of(Node()), member_of(Node())
    assert one.token
    assert one.group == member_group_name("prices", f"{one.token:016x}")
    assert one.group != other.group
    named = member_of(Node(), Broadcast("host-7", token=5))
    assert (named.group, named.token) == (member_group_name("prices", "host-7"), 5)


async def test_join_is_one_call_a_topic_whoever_asks_at_once() -> None:
    node = Node()
    member = member_of(node, Broadcast("host-7", start=1_800_000_000_000, idle_ms=10_000))
    await asyncio.gather(*(member.join(topic) for topic in ("a", "b", "a", "b")))
    await member.join("a")
    assert sorted(one.topic for one in node.asked) == ["a", "b"]
    asked = node.asked[0]
    assert (asked.group, asked.member, asked.token) == ("prices", "host-7", member.token)
    assert (asked.start, asked.start_ms) == (groups_pb2.START_AT_TIME, 1_800_000_000_000)
    assert asked.idle_ms == 10_000


async def test_member_gets_all_of_a_topic_that_comes_after_it() -> None:
    node = Node()
    node.failures.append(errors.UnknownTopic("there is none"))
    member = member_of(node)
    with pytest.raises(errors.UnknownTopic):
        await member.join("later")
    await member.join("later")
    assert [one.start for one in node.asked] == [
        groups_pb2.START_AT_NOW,
        groups_pb2.START_AT_FIRST,
    ]


async def test_member_leaves_when_it_has_no_name_to_come_back_by() -> None:
    node = Node()
    member = member_of(node)
    await member.leave()
    assert not node.asked, "it never joined"
    await member.join("a")
    node.failures.append(errors.Unavailable("nobody is there"))
    await member.leave()
    assert (node.asked[-1].group, node.asked[-1].token) == (member.group, member.token)
    named = member_of(node, Broadcast("host-7"))
    await named.join("a")
    count = len(node.asked)
    await named.leave()
    assert len(node.asked) == count


@pytest.mark.parametrize(
    "wanted",
    [
        {"pattern": "prices-*", "broadcast": True},
        {"topics": ["a", "b"], "prefetch_messages": 0},
        {"topic": "a", "topics": ["b"]},
        {"topic": "a", "broadcast": "host-7"},
    ],
)
async def test_consumer_is_refused_when_its_topics_make_no_sense(wanted: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        AsyncConsumer(group="prices", **wanted)


async def test_open_does_nothing_for_a_consumer_that_shares() -> None:
    consumer = AsyncConsumer(group="prices", topic="a")
    await consumer.open()
    assert not consumer.is_member
    await consumer.close()


async def test_open_joins_each_topic_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    node, channel = Node(), Channel()
    node.failures.append(errors.UnknownTopic("there is none"))
    monkeypatch.setattr(channel, "call", node.call)
    consumer = AsyncConsumer(channel, group="prices", topics=["a", "b"], broadcast=True)
    assert consumer.is_member
    await consumer.open()
    assert [one.topic for one in node.asked] == ["a", "b"]
