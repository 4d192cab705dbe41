"""Where a group begins and goes on, as a client says it."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.blocking import Admin
from hourwheel.client.groups.positions import GroupReset, Skipped
from hourwheel.formats.message_id import MessageId
from hourwheel.transport.channel import Channel
from hourwheel.v1 import groups_pb2
from tests.support.fake_node import FakeNode
from tests.support.fake_node_thread import FakeNodeThread

INSTANT = datetime(2027, 3, 1, tzinfo=UTC)
INSTANT_MS = 1_803_859_200_000


@pytest.fixture
async def admin(channel: Channel) -> AsyncIterator[AsyncAdmin]:
    async with AsyncAdmin(channel) as opened:
        yield opened


@pytest.mark.parametrize(
    ("start", "shown"),
    [("first", "first"), ("now", "now"), (INSTANT, INSTANT_MS), (INSTANT_MS, INSTANT_MS)],
)
async def test_start_is_said_and_told(admin: AsyncAdmin, start: Any, shown: str | int) -> None:
    assert (await admin.put_group("g", start=start)).start == shown


async def test_start_is_sent_only_where_it_is_given(admin: AsyncAdmin, node: FakeNode) -> None:
    await admin.put_group("g", start=None)
    (call,) = node.calls["PutGroup"]
    assert call.settings.start_at == groups_pb2.START_AT_UNSPECIFIED


async def test_skip_says_an_instant_or_positions(admin: AsyncAdmin, node: FakeNode) -> None:
    assert await admin.skip("g", "orders") == Skipped(7, (5, 6))
    await admin.skip("g", "orders", INSTANT)
    await admin.skip("g", "orders", positions=[1, 2])
    asked = [(one.before_ms, list(one.positions)) for one in node.calls["Skip"]]
    assert asked == [(0, []), (INSTANT_MS, []), (0, [1, 2])]


async def test_reset_says_where_to(admin: AsyncAdmin, node: FakeNode) -> None:
    assert await admin.reset_group("g", "orders", "first") == GroupReset(1, 2, 3, 4, (5, 6))
    await admin.reset_group("g", "orders", "now", count_only=True)
    await admin.reset_group("g", "orders", INSTANT)
    await admin.reset_group("g", "orders", positions=[1, 2])
    asked = [
        (one.to, one.to_ms, list(one.positions), one.count_only) for one in node.calls["ResetGroup"]
    ]
    assert asked == [
        (groups_pb2.START_AT_FIRST, 0, [], False),
        (groups_pb2.START_AT_NOW, 0, [], True),
        (groups_pb2.START_AT_TIME, INSTANT_MS, [], False),
        (groups_pb2.START_AT_UNSPECIFIED, 0, [1, 2], False),
    ]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ("soon", errors.InvalidArgument),
        (1.5, errors.InvalidArgument),
        (1_803_859_200, errors.InvalidDueTime),
        (1 << 62, errors.InvalidDueTime),
        (True, errors.InvalidDueTime),
        (INSTANT.replace(tzinfo=None), errors.InvalidDueTime),
    ],
)
async def test_wrong_instant_is_refused_before_anything_is_sent(
    admin: AsyncAdmin, node: FakeNode, wrong: Any, error: type[errors.HourwheelError]
) -> None:
    with pytest.raises(error):
        await admin.put_group("g", start=wrong)
    if not isinstance(wrong, str):
        with pytest.raises(errors.InvalidDueTime):
            await admin.skip("g", "orders", wrong)
    with pytest.raises(errors.InvalidArgument):
        await admin.skip("g", "orders", INSTANT, positions=[1])
    with pytest.raises(error):
        await admin.reset_group("g", "orders", wrong)
    for both_or_none in ({"to": "now", "positions": [1]}, {}):
        with pytest.raises(errors.InvalidArgument):
            await admin.reset_group("g", "orders", **both_or_none)  # type: ignore[arg-type]
    assert not node.calls


def test_blocking_twin_does_the_same() -> None:
    with FakeNodeThread() as thread, Admin(thread.address) as admin:
        assert admin.skip("g", "orders", INSTANT) == Skipped(7, (5, 6))
        assert admin.reset_group("g", "orders", INSTANT).positions == (5, 6)


@pytest.mark.parametrize("order", ["none", "block", "dead-letter"])
async def test_order_is_said_and_told(admin: AsyncAdmin, order: str) -> None:
    assert (await admin.put_group("g", order=order)).order == order


async def test_order_that_is_none_is_refused(admin: AsyncAdmin) -> None:
    with pytest.raises(errors.InvalidArgument, match="dead-letter"):
        await admin.put_group("g", order="fifo")
    assert (await admin.put_group("g", order=None)).order == "none"


async def test_unblock_names_messages_and_what_becomes_of_them(
    admin: AsyncAdmin, node: FakeNode
) -> None:
    ids = [MessageId(0, 1, number, 5) for number in range(2)]
    for action in ("retry", "skip", "dead-letter"):
        await admin.unblock("g", "orders", ids, action)
    sent = [(list(one.message_ids), one.action) for one in node.calls["Skip"]]
    assert sent == [(list(map(str, ids)), number) for number in (1, 0, 2)]
    for wrong in (([], "retry"), (ids, "forget")):
        with pytest.raises(errors.InvalidArgument):
            await admin.unblock("g", "orders", *wrong)


def test_unblock_when_the_program_blocks() -> None:
    with FakeNodeThread() as thread, Admin(thread.address) as admin:
        ids = [MessageId(0, 1, 2, 5)]
        assert admin.unblock("g", "orders", ids, "skip") == 7
