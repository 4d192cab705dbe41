"""Resets are of all kinds, and only what may have been done is taken down."""

import asyncio
from typing import Any

import pytest

from chaos.actors import resets
from chaos.actors.clients import GROUPS
from hourwheel import errors
from hourwheel.client.groups.positions import GroupReset
from hourwheel.formats.message_id import MessageId
from tests.support.impatient_load import ImpatientLoad

LISTS, RESETS = 20, 60
LAST_BACK_MS_MIN = 30_000


class Producer:
    def __init__(self) -> None:
        self.priorities: set[int] = set()

    async def publish_many(self, topic: str, messages: Any) -> list[MessageId]:
        assert topic == resets.TOPIC
        self.priorities |= {one.priority for one in messages}
        return [MessageId(0, 1, at, 0) for at, _ in enumerate(messages)]


async def test_messages_have_priorities_and_are_waited_for() -> None:
    load, producer = ImpatientLoad.ending_after(LISTS), Producer()
    await resets.publish_before_resets(load, producer)  # type: ignore[arg-type]
    assert load.open_count == len(load.history.sent)
    assert len(producer.priorities) > 1
    assert {GROUPS[name][0] for name in resets.GROUPS} == {resets.TOPIC}
    assert set(resets.READERS) == set(resets.GROUPS)


class Admin:
    """The second call is refused, of the third nobody knows, for the fourth there is no room."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def reset_group(self, group: str, topic: str, **where: Any) -> GroupReset:
        assert (group, topic) == (resets.AGAIN, resets.TOPIC)
        self.asked.append(where)
        if len(self.asked) == 2:
            raise errors.InvalidArgument
        if len(self.asked) == 3:
            raise errors.Timeout
        if len(self.asked) == 4:
            raise errors.DiskFull
        return GroupReset(0, 0, 0, 0, (len(self.asked), 100))


async def test_group_is_reset_back_and_on_and_what_was_refused_is_left_out() -> None:
    load, admin = ImpatientLoad.ending_after(RESETS), Admin()
    await resets.ResetClient(load, admin).work()  # type: ignore[arg-type]
    told = [one.positions for one in load.history.resets]
    assert told[:3] == [(1, 100), None, (5, 100)]
    assert len(told) == RESETS - 1, "two were refused, and one more came in the end"
    assert [one.positions for one in load.history.unwritten_resets] == [None]
    kinds = {str(one.get("to", "positions")) for one in admin.asked}
    assert {"first", "now", "positions"} < kinds
    last_ms, now_ms = admin.asked[-1]["to"], load.clock.wall_ms()
    assert last_ms < now_ms - LAST_BACK_MS_MIN
    steps = [one["positions"][1] - 100 for one in admin.asked[4:] if "positions" in one]
    assert min(steps) < 0 < max(steps)


class SilentAdmin:
    """Its call is under way for ever."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def reset_group(self, *_: object, **__: object) -> None:
        self.begun.set()
        await asyncio.Event().wait()


async def test_reset_that_is_cut_off_may_have_been_done() -> None:
    load, admin = ImpatientLoad.ending_after(RESETS), SilentAdmin()
    working = asyncio.create_task(resets.ResetClient(load, admin).work())  # type: ignore[arg-type]
    await admin.begun.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert [one.positions for one in load.history.resets] == [None]
