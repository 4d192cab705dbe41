"""Looking messages up by key, against the fake node."""

import pytest

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.outcomes import EventKind, MessageState
from tests.support.fake_node import STORE_MS, FakeNode


async def test_list_and_count_by_key() -> None:
    async with FakeNode() as node, AsyncAdmin(node.address) as admin:
        async with AsyncProducer(node.address) as producer:
            messages = [Message(b"", keys=("a",) if at % 2 else ()) for at in range(14)]
            ids = await producer.publish_many("t", messages)
            await producer.cancel(ids[3])
        found = [one async for one in admin.list_by_key("t", "a", page_size=2)]
        assert [one.message_id for one in found] == [ids[at] for at in range(13, 0, -2)]
        assert [one.due_ms for one in found] == [one.message_id.due_ms for one in found]
        assert [one.state for one in found].count(MessageState.CANCELLED) == 1
        assert found[5].state is MessageState.CANCELLED
        assert await admin.count_by_key("t", "a") == 7
        assert await admin.count_by_key("t", "a", pending_only=True) == 6
        assert await admin.count_by_key("t", "b") == 0
        pending = [one async for one in admin.list_by_key("t", "a", pending_only=True)]
        assert [one.state for one in pending] == [MessageState.PENDING] * 6
        last_ms = max(one.due_ms for one in found)
        ranged = [one async for one in admin.list_by_key("t", "a", from_ms=last_ms)]
        assert ranged == [one for one in found if one.due_ms == last_ms]
        assert await admin.count_by_key("t", "a", to_ms=last_ms) == 7 - len(ranged)
        with pytest.raises(errors.InvalidArgument):
            admin.list_by_key("t", "a", page_size=0)
        with pytest.raises(errors.InvalidDueTime):
            admin.list_by_key("t", "a", from_ms=17)


async def test_history() -> None:
    async with FakeNode() as node, AsyncAdmin(node.address) as admin:
        async with AsyncProducer(node.address) as producer:
            of = await producer.publish("t", Message(b"x", delay_ms=5))
        found = await admin.history(of)
        assert found == await admin.history(str(of), "t")
        assert found.is_complete
        first, second, third = found.events
        assert (first.kind, first.at_ms, first.topic) == (EventKind.PUBLISHED, STORE_MS, "t")
        assert first.due_ms == second.due_ms == of.due_ms
        assert (second.kind, second.at_ms) == (EventKind.RELEASED, 0)
        assert (third.kind, third.group, third.attempt) == (EventKind.ACKED, "g", 1)
        assert await admin.history(of, "u") == ((), False)
        with pytest.raises(errors.InvalidMessageId):
            await admin.history("none")
