"""Bursts that fall due at once, of different priorities, read by a group with limits."""

import asyncio
from typing import Any

from chaos.actors import priorities
from chaos.actors.clients import GROUPS
from chaos.workload import Workload
from hourwheel import errors
from hourwheel.formats.message_id import MessageId

BURSTS = 4


class Impatient(Workload):
    bursts = 0

    async def pass_ms(self, duration_ms: float) -> None:
        assert self.open_count == (0 if self.bursts == 1 else 40), "the second list was refused"
        for serial in self.history.ranks:
            self.close(serial)
        self.bursts += 1
        self.is_stopping = self.bursts == BURSTS
        await asyncio.sleep(0)


class Producer:
    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []
        self.calls = 0

    async def publish_many(self, topic: str, messages: Any) -> list[MessageId]:
        assert topic == priorities.TOPIC
        self.calls += 1
        assert len({one.due_ms for one in messages}) == 1
        if self.calls == 2:
            raise errors.Unavailable
        self.made += [(one.due_ms, one.priority) for one in messages]
        return [MessageId(0, 1, at, one.due_ms) for at, one in enumerate(messages)]


async def test_bursts_have_all_ranks_and_are_taken_down() -> None:
    load, producer = Impatient("127.0.0.1:1", 3), Producer()
    await priorities.publish_prioritized(load, producer)  # type: ignore[arg-type]
    history = load.history
    assert history.ranks.keys() == history.sent.keys()
    assert [(history.sent[one].due_ms, history.ranks[one]) for one in history.accepted] == (
        producer.made
    )
    assert {rank for _, rank in producer.made} == {0, 1, 4, 5, 9}
    assert len(load.given_up) == 1
    assert all(GROUPS[name][0] == priorities.TOPIC for name in priorities.GROUPS)
