"""A play that is cut off: what was being asked for is known, and only what can be judged is judged.

The load's clients answer what they are asked, but for one kind of call, which nobody answers.
"""

import asyncio
import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, Self

import pytest

from chaos import workload
from chaos.actors.recurrences import RecurrenceClient
from chaos.actors.reschedules import RescheduleClient, check_moved
from chaos.autopsy import end
from chaos.checker import Bounds, check
from chaos.cluster import NotWell
from chaos.history import (
    Accepted,
    Change,
    Delivery,
    Entry,
    Finish,
    GrantChange,
    GuestCall,
    History,
    Kept,
    Occurred,
    Sent,
    Stored,
    body_of,
)
from chaos.message_mix import PLAIN_MIX
from chaos.principals import GuestGrant
from chaos.recurring.checks import recurring
from chaos.workload import Workload
from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.receipt import Receipt
from tests.support.impatient_load import ImpatientLoad

DUE_MS: Final = 1_800_000_000_000
MIX: Final = replace(PLAIN_MIX, cancel_ratio=1.0, move_ratio=1.0, give_back_ratio=0.0)
RECEIPT: Final = str(Receipt(1, 1, 1, 256, 1, 0, 0, 1))


class Clients:
    """All clients in one. What is in `unanswered` is asked for, and never answered."""

    def __init__(self, unanswered: str) -> None:
        self.unanswered, self.asked = unanswered, asyncio.Event()
        self._sequences = itertools.count()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def _done(self, name: str) -> None:
        if name == self.unanswered:
            self.asked.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    async def publish_many(self, _: str, messages: Any) -> list[MessageId]:
        return [MessageId(0, 1, next(self._sequences), DUE_MS) for _ in messages]

    async def publish_batch(self, topic: str, columns: Any) -> list[MessageId]:
        return await self.publish_many(topic, columns.bodies)

    async def receive(self, _: int) -> Any:
        await self._done("receive")
        one = {"body": body_of(1), "topic": "alpha", "message_id": MessageId(0, 1, 1, DUE_MS)}
        batch = SimpleNamespace(receipt=RECEIPT)
        return [SimpleNamespace(**one, attempt=1, receive_ms=DUE_MS, batch=batch)]

    def __getattr__(self, name: str) -> Any:
        """Of all else nobody knows whether it was done, or it does nothing."""

        async def call(*_: object, **__: object) -> None:
            await self._done(name)
            if name in {"reschedule_many", "cancel_many", "cancel_by_keys"}:
                raise errors.Unavailable

        return call


async def cut_off_in(monkeypatch: pytest.MonkeyPatch, unanswered: str) -> History:
    """A load that is ended while nobody has answered a call; and all of it ends then."""
    clients = Clients(unanswered)
    for name in ("Channel", "AsyncAdmin", "AsyncProducer", "AsyncConsumer"):
        monkeypatch.setattr(workload, name, lambda *_, **__: clients)
    load = Workload("127.0.0.1:1", 3, MIX, hang_s=3_600.0)

    async def play() -> None:
        async with load.running():
            await clients.asked.wait()
            raise NotWell

    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(play(), 60.0)
    assert raised.group_contains(NotWell)
    return load.history


async def test_move_that_nobody_answered_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    history = await cut_off_in(monkeypatch, "reschedule_many")
    assert {one.outcome for one in history.moves} == {None}
    sequence = history.accepted[history.moves[-1].serial].message_id.sequence
    stored = Stored(moved={sequence: DUE_MS + 1})
    assert "reschedule" not in {one.name for one in check(history, stored)}


@pytest.mark.parametrize("how", ["cancel_many", "cancel_by_keys"])
async def test_cancel_that_nobody_answered_is_known(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    history = await cut_off_in(monkeypatch, how)
    assert {one.outcome for one in history.cancels} == {None}
    sequence = history.accepted[history.cancels[-1].serial].message_id.sequence
    assert "cancel" not in {one.name for one in check(history, Stored(cancelled={sequence}))}


async def test_acknowledgement_that_nobody_answered_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = await cut_off_in(monkeypatch, "ack")
    assert history.finishes
    assert {(one.verb, one.is_ok) for one in history.finishes} == {("ack", False)}


class Hung:
    """An administrator whom nobody answers, after so many calls."""

    def __init__(self, answered: int = 0) -> None:
        self.answered, self.asked = answered, asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        async def call(*_: object, **__: object) -> None:
            self.answered -= 1
            if self.answered < 0:
                self.asked.set()
                await asyncio.Event().wait()

        return call


async def cut_off(work: Any, admin: Hung) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.wait_for(admin.asked.wait(), 20.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_bulk_move_that_nobody_answered_is_known_and_promises_nothing() -> None:
    load, admin = ImpatientLoad.ending_after(1), Hung()
    producer = Clients("")
    await cut_off(RescheduleClient(load, producer, admin).work(), admin)  # type: ignore[arg-type]
    (sweep,) = load.history.sweeps
    assert sweep.answered_ms is None
    assert check_moved(load.history, {}) == []
    moved = {load.history.accepted[serial].message_id.sequence for serial in sweep.serials}
    stored = Stored(moved=dict.fromkeys(moved, DUE_MS))
    assert "reschedule" not in {one.name for one in check(load.history, stored)}


async def test_change_of_a_recurrence_that_nobody_answered_is_known() -> None:
    load, admin = ImpatientLoad.ending_after(100), Hung(answered=6)
    await cut_off(RecurrenceClient(load, admin).work(), admin)  # type: ignore[arg-type]
    assert [one.answered_ms is None for one in load.history.changes] == [False] * 6 + [True]


def test_recurrence_may_go_on_once_that_was_asked_for() -> None:
    history = History(
        changes=[Change("a", "pause", 100.0, 200.0), Change("a", "resume", 300.0, None)],
        is_cut_off=True,
    )
    stored = Stored(recurred={"a": [(1_000, 7)]}, occurrences={7: Occurred(1, 1, 1_000)})
    stored.queued = [Entry("delta", 7, 1)]
    assert list(recurring(history, stored)) == []
    history.changes[1:] = [Change("b", "resume", 300.0, None)]
    assert [name for name, _ in recurring(history, stored)] == ["occurrence unwanted"]
    history.changes[0] = Change("a", "pause", 100.0, None)
    assert list(recurring(history, stored)) == []


async def test_grant_that_nobody_answered_may_have_been_given_or_taken() -> None:
    history, admin = History(), Hung()
    grant = GuestGrant(admin, "alpha", history, SystemClock())  # type: ignore[arg-type]
    await cut_off(grant.take(), admin)
    assert history.grant_changes[0].answered_ms is None
    asked_ms = history.grant_changes[0].requested_ms
    history.guest_calls.append(GuestCall(asked_ms + 5_000.0, asked_ms + 5_001.0, is_ok=True))
    assert check(history, Stored()) == []
    history.grant_changes[0] = GrantChange(is_allowed=False, requested_ms=0.0, answered_ms=1.0)
    assert {one.name for one in check(history, Stored())} == {"let in"}


def test_nobody_knows_what_would_have_come_when_a_play_is_cut_off() -> None:
    history = History(groups={"workers": ("orders", 9)})
    stored = Stored()
    for serial in (1, 2):
        message_id = MessageId(0, 1, serial, DUE_MS)
        history.sent[serial] = Sent("orders", DUE_MS)
        history.accepted[serial] = Accepted(message_id, DUE_MS)
        stored.messages[serial] = Kept(serial, 1, DUE_MS)
        stored.queued.append(Entry("orders", serial, 1))
    seen_ms = DUE_MS + 1.0
    history.deliveries.append(
        Delivery("workers", "orders", 1, MessageId(0, 1, 1, DUE_MS), 1, 1, DUE_MS, seen_ms, 1_000)
    )
    history.finishes.append(Finish("workers", 1, 1, "nack", True, seen_ms, seen_ms + 1))
    missed = {one.name for one in check(history, stored, Bounds())}
    assert missed == {"not delivered", "not given back"}
    history.is_cut_off = True
    assert check(history, stored, Bounds()) == []


class Restless:
    """A cluster in which messages fall due all the while: each question has another answer."""

    def __init__(self, *, rests: bool) -> None:
        self.pending, self.ended_at, self._rests = 724, 0, rests

    async def quiet(self) -> dict[str, Any]:
        if not self._rests:
            raise NotWell("never")
        return {"n1": self._status(1), "n2": self._status(1)}

    async def statuses(self) -> dict[str, Any]:
        self.pending -= 1
        return {"n1": self._status(1), "n2": self._status(2)}

    def _status(self, epoch: int) -> Any:
        offset = 1_000 - self.pending
        return SimpleNamespace(epoch=epoch, applied_offset=offset, pending_count=self.pending)

    async def kill_all(self) -> None:
        self.ended_at = self.pending


async def test_nodes_are_compared_as_they_were_when_all_were_of_one_state() -> None:
    cluster = Restless(rests=True)
    rest = await end(cluster)  # type: ignore[arg-type]
    assert not rest.violations
    assert {one.pending_count for one in rest.statuses.values()} == {724}
    assert cluster.ended_at == 724, "nobody was asked again in between"


async def test_the_newest_counts_where_nodes_never_come_together() -> None:
    rest = await end(Restless(rests=False))  # type: ignore[arg-type]
    assert [one.name for one in rest.violations] == ["not quiet"]
    assert rest.newest == "n2"
