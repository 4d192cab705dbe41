"""The clockmaker changes what it may, writes it down, and in the end takes all away."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.actors.recurrences import RecurrenceClient, watch
from chaos.history import Occurrence
from chaos.workload import Workload
from hourwheel import errors
from hourwheel.formats.message_id import MessageId

CHANGES = 80


class Impatient(Workload):
    async def pass_ms(self, duration_ms: float) -> None:
        self.is_stopping = len(self.history.changes) >= CHANGES
        await asyncio.sleep(0)


class Admin:
    """Refuses what cannot be; what runs comes at once."""

    def __init__(self, load: Workload) -> None:
        self.load, self.states = load, dict[str, str]()
        self.fails_next = True

    def _come(self, name: str, state: str) -> None:
        self.states[name] = state
        message_id = MessageId(0, 1, 1, 1 << 60)
        if state == "running":
            self.load.history.occurrences.append(Occurrence(name, 0, message_id, 1 << 60))

    async def put_recurrence(self, topic: str, name: str, *_: Any) -> int:
        assert topic == "delta"
        self._come(name, "running")
        return 1

    async def pause_recurrence(self, _: str, name: str) -> int:
        assert self.states[name] == "running"
        self._come(name, "paused")
        return 1

    async def resume_recurrence(self, _: str, name: str) -> int:
        assert self.states[name] == "paused"
        self._come(name, "running")
        return 1

    async def delete_recurrence(self, _: str, name: str) -> None:
        if self.states.pop(name, None) is None:
            raise errors.UnknownRecurrence
        if self.fails_next:  # its answer is lost
            self.fails_next = False
            raise errors.Unavailable


async def test_recurrences_are_changed_and_gone_in_the_end() -> None:
    load = Impatient("127.0.0.1:1", 3)
    admin = Admin(load)
    await RecurrenceClient(load, admin).work()  # type: ignore[arg-type]
    assert not admin.states
    assert {one.verb for one in load.history.changes} == {"put", "pause", "resume", "delete"}
    assert len(load.history.changes) > CHANGES
    assert all(one.requested_ms <= one.answered_ms for one in load.history.changes)


class Consumer:
    def __init__(self) -> None:
        said = (("hourwheel.recurrence", "a"), ("hourwheel.occurrence", "4"))
        self.waiting = [
            SimpleNamespace(
                meta=SimpleNamespace(properties=said), message_id=MessageId(0, 1, 9, 5), due_ms=5
            )
        ]
        self.closed = False

    async def receive(self, _: int) -> Any:
        if not self.waiting:
            raise asyncio.CancelledError
        return [self.waiting.pop()]

    async def ack(self, _: Any) -> None:
        raise errors.StaleReceipt

    async def close(self) -> None:
        self.closed = True


async def test_occurrence_is_taken_down_when_it_comes() -> None:
    load, consumer = Impatient("127.0.0.1:1", 3), Consumer()
    with pytest.raises(asyncio.CancelledError):
        await watch(load, consumer)  # type: ignore[arg-type]
    assert load.history.occurrences == [Occurrence("a", 4, MessageId(0, 1, 9, 5), 5)]
    assert consumer.closed
