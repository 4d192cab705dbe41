"""A message's history through an engine: what is told is what happened, page by page or at once."""

from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE, MessageId, parse
from hourwheel.formats.record_batch import Outcome
from hourwheel.outcomes import EventKind, ReceiptOutcome, RescheduleOutcome
from hourwheel.types import QUEUE_BITS
from hourwheel.v1 import lookup_pb2
from node.access.control import AccessControl
from node.api.lookup import Lookup
from node.broker import history_query
from node.contracts.broker import GroupSettings
from node.contracts.dead_letters import DeadLetterQuery
from node.contracts.group_positions import ResetTarget, UnblockAction, Unblocking
from node.contracts.history import HistoryPage, MessageEvent
from node.contracts.transactions import PreparedPart, Preparing
from node.shard import history
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import LEAD_MS, EngineWorld, within
from tests.support.eventually import until

PUBLISHED, CANCELLED, RELEASED = EventKind.PUBLISHED, EventKind.CANCELLED, EventKind.RELEASED
ACKED, RETRIED, DEAD, FILTERED = (
    EventKind.ACKED,
    EventKind.RETRIED,
    EventKind.DEAD,
    EventKind.FILTERED,
)
NO_CONTEXT: Any = None


def id_of(world: EngineWorld, sequence: int, due_ms: int) -> MessageId:
    return MessageId(0, world.mastership.epoch, sequence, due_ms)


async def pages(
    world: EngineWorld, of: MessageId, topic: str = ""
) -> tuple[list[MessageEvent], bool]:
    """(all events, whether nothing is left out)."""
    found: list[MessageEvent] = []
    token = b""
    while True:
        page: HistoryPage = await within(world.engine.history(of, topic, token))
        found += page.events
        token = page.next_token
        if not token:
            assert [one.at_ms for one in found] == sorted(one.at_ms for one in found)
            return found, page.is_complete


async def told(world: EngineWorld, of: MessageId) -> list[tuple[EventKind, str, int]]:
    events, is_complete = await pages(world, of)
    assert is_complete
    return [(one.kind, one.group, one.attempt) for one in events]


async def released(world: EngineWorld, due_ms: int) -> None:
    """Wait until what is due up to then is released."""
    world.advance(max(0, due_ms + 1 - world.now_ms))
    await until(lambda: world.engine.shard.views.cursor.key.due_ms >= due_ms)


async def test_history_when_groups_give_back_and_acknowledge(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await world.receive(group="audit")
        published_ms, due_ms = world.now_ms, world.now_ms + 5_000
        await world.publish(due_ms, due_ms + 1)
        of = id_of(world, 0, due_ms)
        assert await told(world, of) == [(PUBLISHED, "", 0)]
        await released(world, due_ms + 1)
        lease = await world.leased()
        assert await told(world, of) == [(PUBLISHED, "", 0), (RELEASED, "", 1)]
        world.advance(100)
        await world.nack(world.select(lease, 0, 1), delay_ms=1_000)
        retry_ms = world.now_ms + 1_000
        other = await world.receive(group="audit")
        assert other is not None
        await world.ack(world.select(other), group="audit")
        await released(world, retry_ms)
        again = await world.leased()
        assert again.units["attempt"].tolist() == [2]
        world.advance(3)
        await world.ack(world.select(again))
        acked_ms = world.now_ms
        other_id = id_of(world, 1, due_ms + 1)
        for _ in range(2):
            events, is_complete = await pages(world, of)
            assert is_complete
            assert [(one.kind, one.group, one.attempt) for one in events] == [
                (PUBLISHED, "", 0),
                (RELEASED, "", 1),
                (RETRIED, "billing", 1),
                (ACKED, "audit", 1),
                (RELEASED, "billing", 2),
                (ACKED, "billing", 2),
            ]
            assert (events[0].topic, events[0].at_ms) == ("orders", published_ms)
            assert [events[at].due_ms for at in (0, 1, 2, 4)] == [
                *(due_ms, due_ms),
                *(retry_ms, retry_ms),
            ]
            assert events[-1].at_ms == acked_ms
            assert await told(world, other_id) == [
                (PUBLISHED, "", 0),
                (RELEASED, "", 1),
                (ACKED, "audit", 1),
            ]
            await world.restart()


async def test_history_when_cancelled_late_dead_or_passed_over(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.put_subscription("wanted")
        await within(world.engine.put_group("billing", GroupSettings(attempts_max=1)))
        due_ms = world.now_ms + 5_000
        await world.publish(due_ms)
        await world.publish(due_ms)
        world.advance(40)
        keys = await within(world.engine.cancel_pending(_everything(), b""))
        assert keys.changed_count == 2
        assert await told(world, id_of(world, 1, due_ms)) == [
            (PUBLISHED, "", 0),
            (CANCELLED, "", 0),
        ]
        await world.publish_tagged("wanted", "other", "wanted")
        lease = await world.leased(wanted="wanted")
        await world.ack(world.select(lease, 1))
        await world.nack(world.select(lease, 0, 1), delay_ms=0)
        assert await told(world, id_of(world, 2, world.now_ms)) == [
            (PUBLISHED, "", 0),
            (RELEASED, "", 1),
            (DEAD, "billing", 1),
        ]
        done = await within(world.engine.redrive(DeadLetterQuery("billing"), b""))
        assert done.redriven_count == 1
        await world.ack(world.select(await world.leased(wanted="wanted")))
        assert (await told(world, id_of(world, 2, world.now_ms)))[3:] == [
            (EventKind.REDRIVEN, "billing", 1),
            (RELEASED, "billing", 2),
            (ACKED, "billing", 2),
        ]
        events = await told(world, id_of(world, 3, world.now_ms))
        assert events[:2] == [(PUBLISHED, "", 0), (RELEASED, "", 1)]
        assert events[2:] in ([], [(FILTERED, "billing", 1)])


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("failure_count", [1, 3])
async def test_history_when_an_ordered_group_gives_back_and_an_operator_helps(
    tmp_path: Path, failure_count: int, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_query, "EVENTS_MAX", 1)
    async with EngineWorld(tmp_path) as world:
        settings = GroupSettings(attempts_max=failure_count, order=GroupOrder.BLOCK)
        await within(world.engine.put_group("billing", settings))
        await world.receive()
        due_ms = world.now_ms + 5_000
        await world.publish(due_ms)
        of = id_of(world, 0, due_ms)
        expected = [(PUBLISHED, "", 0)]
        if moves:
            await move(world, of, due_ms + 10)
            expected.append((EventKind.RESCHEDULED, "", 0))
        await released(world, due_ms + 10)
        expected.append((RELEASED, "", 1))
        for attempt in range(1, failure_count + 1):
            await world.nack(world.select(await world.leased()), delay_ms=0)
            expected.append((EventKind.HELD, "billing", attempt))
            assert await told(world, of) == expected
        again = Unblocking((of,), UnblockAction.RETRY)
        await within(world.engine.unblock("billing", "orders", again))
        expected.append((EventKind.FREED, "billing", failure_count + 1))
        assert await told(world, of) == expected
        for attempt in range(1, failure_count + 1):
            await world.nack(world.select(await world.leased()), delay_ms=0)
            expected.append((EventKind.HELD, "billing", attempt))
        given_up = Unblocking((of,), UnblockAction.DEAD_LETTER)
        await within(world.engine.unblock("billing", "orders", given_up))
        expected.append((DEAD, "billing", failure_count))
        await within(world.engine.redrive(DeadLetterQuery("billing"), b""))
        expected.append((EventKind.REDRIVEN, "billing", failure_count))
        last = await world.leased()
        expected.append((RELEASED, "billing", 2))
        assert await world.ack(world.select(last)) == [ReceiptOutcome.OK]
        expected.append((ACKED, "billing", 2))
        assert await told(world, of) == expected


def _everything() -> Any:
    from hourwheel.filter_language.text import FilterExpression  # noqa: PLC0415
    from node.contracts.pending_token import PendingQuery  # noqa: PLC0415

    return PendingQuery("orders", FilterExpression.everything())


async def test_history_when_a_retry_is_due_at_once(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await world.publish(world.now_ms)
        of = id_of(world, 0, world.now_ms)
        for _ in range(3):
            lease = await world.leased()
            await world.nack(world.select(lease), delay_ms=0)
        await world.ack(world.select(await world.leased()))
        expected = [(PUBLISHED, "", 0), (RELEASED, "", 1)]
        for attempt in (1, 2, 3):
            expected += [(RETRIED, "billing", attempt), (RELEASED, "billing", attempt + 1)]
        assert await told(world, of) == [*expected, (ACKED, "billing", 4)]


async def test_history_when_others_go_on_and_pages_are_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty messages live through anything; what is told of each is what was done to it."""
    chooser = Random(11)
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        done: dict[int, list[tuple[EventKind, str, int]]] = {}
        ids: dict[int, MessageId] = {}
        for _ in range(20):
            due_ms = world.now_ms + chooser.choice((-5, 0, 30))
            first = (await world.publish(due_ms)).base_sequence
            ids[first] = id_of(world, first, due_ms)
            done[first] = [(PUBLISHED, "", 0), (RELEASED, "", 1)]
            world.advance(chooser.randrange(60))
        await released(world, world.now_ms + 30)
        left = len(ids)
        while left:
            lease = await world.leased(count=3)
            units = lease.units
            for at, sequence in enumerate(units["sequence"].tolist()):
                attempt = int(units["attempt"][at])
                if attempt > 1:
                    done[sequence].append((RELEASED, "billing", attempt))
                if chooser.random() < 0.4 and attempt < 5:
                    await world.nack(world.select(lease, at, 1), delay_ms=chooser.choice((0, 20)))
                    done[sequence].append((RETRIED, "billing", attempt))
                else:
                    await world.ack(world.select(lease, at, 1))
                    done[sequence].append((ACKED, "billing", attempt))
                    left -= 1
            world.advance(21 + chooser.randrange(25))
        whole = {sequence: await told(world, of) for sequence, of in ids.items()}
        assert whole == done
        monkeypatch.setattr(history_query, "PAGE_S", -1.0)
        monkeypatch.setattr(history_query, "SLICE_S", -1.0)
        for sequence in chooser.sample(sorted(ids), 3):
            assert await told(world, ids[sequence]) == done[sequence]
        monkeypatch.setattr(history_query, "EVENTS_MAX", 1)
        assert await told(world, ids[0]) == done[0]


async def test_history_when_the_message_is_none_or_of_another_topic(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        due_ms = world.now_ms + 5_000
        await world.publish(due_ms)
        of = id_of(world, 0, due_ms)
        assert len((await pages(world, of, "orders"))[0]) == 1
        for other, topic in (
            (of, "others"),
            (of._replace(due_ms=due_ms + 1), ""),
            (of._replace(epoch=77), ""),
            (of._replace(sequence=9), ""),
        ):
            assert await pages(world, other, topic) == ([], False)
        assert await pages(world, of._replace(shard=3)) == ([], True)


@pytest.mark.parametrize("slice_s", [0.0, 60.0])
@pytest.mark.parametrize(("name", "most"), [("SEEN_MAX", 1), ("WAITING_MAX", 0)])
async def test_history_when_more_happened_than_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int, slice_s: float
) -> None:
    monkeypatch.setattr(history, name, most)
    monkeypatch.setattr(history_query, "SLICE_S", slice_s)
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await world.publish(world.now_ms)
        of = id_of(world, 0, world.now_ms)
        for delay_ms in (0, 0, 0, 60_000):
            await world.nack(world.select(await world.leased()), delay_ms=delay_ms)
        events, is_complete = await pages(world, of)
        assert not is_complete
        assert [one.kind for one in events[:3]] == [PUBLISHED, RELEASED, RETRIED]


async def test_history_when_a_token_is_of_another_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_query, "PAGE_S", -1.0)
    monkeypatch.setattr(history_query, "EVENTS_MAX", 1)
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await world.publish(world.now_ms, world.now_ms)
        for _ in range(3):
            await world.nack(world.select(await world.leased()), delay_ms=0)
        of = id_of(world, 0, world.now_ms)
        token = (await within(world.engine.history(of, "", b""))).next_token
        assert token
        other = id_of(world, 1, world.now_ms)
        for message, topic, given in (
            (other, "", token),
            (of, "orders", token),
            (of, "", token[:-1] + b"x"),
            (of, "", b"x"),
        ):
            with pytest.raises(errors.InvalidArgument, match="page token"):
                await within(world.engine.history(message, topic, given))


async def begun(world: EngineWorld) -> tuple[MessageId, bytes]:
    """A message that much was done to, and the token of its second page."""
    await world.receive()
    await world.publish(world.now_ms, world.now_ms)
    for _ in range(3):
        await world.nack(world.select(await world.leased()), delay_ms=0)
    of = id_of(world, 0, world.now_ms)
    return of, (await within(world.engine.history(of, "orders", b""))).next_token


def forged(key: bytes, of: MessageId, topic: str, numbers: list[int]) -> bytes:
    """As tokens were when they were keyed by the cluster's id, which every client is told."""

    def hashed(raw: bytes) -> bytes:
        return blake2b(raw, digest_size=8, key=key).digest()

    body = b"\x03" + hashed(f"{of} {topic}".encode()) + np.array(numbers, "<i8").tobytes()
    return body + hashed(body)


async def test_history_when_a_token_is_made_up_of_what_clients_know(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await world.publish(world.now_ms)
        await world.ack(world.select(await world.leased()))
        of, topic_id = (
            id_of(world, 0, world.now_ms),
            world.engine.shard.views.catalog.get_topic("orders").topic_id,
        )
        waits = [0, topic_id << QUEUE_BITS, world.now_ms, 1, 1]
        facts = [0, 0, 0, 0, 0, 1, world.now_ms, 1, topic_id]
        for numbers in (
            [*facts, 0, 1, 0, 0, *waits],  # of a message of a topic that may not be looked at
            [*facts, 0, 1_000, 0, 0, *waits * 1_000],  # much to do
            [*facts, 0, 1 << 40, 0, 0],
            [*facts, 0, -1, 0, 0],
            facts,
            [],
        ):
            token = forged(world.engine.cluster_id, of, "others", numbers)
            for given in (token, token[:-8], b"\x04" + token[1:]):
                with pytest.raises(errors.InvalidArgument, match="page token"):
                    await within(world.engine.history(of, "others", given))


async def test_history_when_a_token_is_cut_or_changed_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_query, "EVENTS_MAX", 1)
    async with EngineWorld(tmp_path) as world:
        of, token = await begun(world)
        for at in range(len(token)):
            changed = token[:at] + bytes([token[at] ^ 1]) + token[at + 1 :]
            for given in (token[:at], changed, token + token[at:]):
                if given:
                    with pytest.raises(errors.InvalidArgument, match="page token"):
                        await within(world.engine.history(of, "orders", given))
        assert (await within(world.engine.history(of, "orders", token))).events


async def test_history_when_the_master_has_changed_or_the_topic_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_query, "EVENTS_MAX", 1)
    async with EngineWorld(tmp_path) as world:
        of, token = await begun(world)
        await world.restart()
        with pytest.raises(errors.InvalidArgument, match="the master has changed"):
            await within(world.engine.history(of, "orders", token))
        token = (await within(world.engine.history(of, "orders", b""))).next_token
        await within(world.engine.delete_topic("orders"))
        page = await within(world.engine.history(of, "orders", token))
        assert (page.events, page.is_complete, page.next_token) == ([], False, b"")


def test_every_outcome_of_a_record_has_its_event() -> None:
    assert set(history.KINDS) == set(Outcome)
    assert len(set(history.KINDS.values())) == len(Outcome) - 1, "what has expired is expired"


async def test_history_from_request_to_answer(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await world.publish(world.now_ms)
        await world.ack(world.select(await world.leased()))
        name = str(id_of(world, 0, world.now_ms))
        lookup = Lookup(world.engine, AccessControl())
        request = lookup_pb2.GetHistoryRequest(message_id=name, topic="orders")
        answer = await within(lookup.get_history(request, NO_CONTEXT))
        assert [(one.kind, one.group) for one in answer.events] == [
            (PUBLISHED, ""),
            (RELEASED, ""),
            (ACKED, "billing"),
        ]
        assert (answer.is_complete, answer.next_page_token) == (True, b"")
        await until(lambda: world.engine.status().applied_offset > 0)


async def test_history_when_it_was_moved_away_back_and_into_the_past(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        due_ms = world.now_ms + 60_000
        await world.publish(due_ms, due_ms)
        later, past = id_of(world, 0, due_ms), id_of(world, 1, due_ms)
        moves = [(90_000, EventKind.RESCHEDULED), (60_000, EventKind.RESCHEDULED)]
        for delay_ms, _ in moves:
            await move(world, later, world.now_ms + delay_ms)
        await move(world, past, 1)
        expected = [(PUBLISHED, "", 0), (EventKind.RESCHEDULED, "", 0), (RELEASED, "", 1)]
        assert await told(world, past) == expected
        await released(world, due_ms)
        for _ in range(2):
            assert await told(world, later) == [
                (PUBLISHED, "", 0),
                *((kind, "", 0) for _, kind in moves),
                (RELEASED, "", 1),
            ]
            await world.restart()


@pytest.mark.parametrize("delays_s", [(90, 90), (90, 120, 90), (90, 60), (60, 60)])
async def test_history_when_it_waits_where_it_stood_before(
    tmp_path: Path, delays_s: tuple[int, ...]
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        due_ms = world.now_ms + 60_000
        await world.publish(due_ms)
        of = id_of(world, 0, due_ms)
        for delay_s in delays_s:
            await move(world, of, world.now_ms + delay_s * 1_000)
        moves = [(EventKind.RESCHEDULED, "", 0)] * len(delays_s)
        assert await told(world, of) == [(PUBLISHED, "", 0), *moves]


@pytest.mark.parametrize("is_known", [True, False])
async def test_history_when_it_is_due_within_the_lead_of_a_dispatch(
    tmp_path: Path, is_known: bool
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        due_ms, other_ms = world.now_ms + 60_000, world.now_ms + LEAD_MS + 1
        if is_known:  # the trail reads the dispatch; else it is before the message's publish
            await world.publish(due_ms)
        await world.publish(other_ms, topic="others")
        world.advance(1)
        await until(lambda: world.engine.shard.views.cursor.key.due_ms >= other_ms)
        if not is_known:
            await world.publish(due_ms)
        of = id_of(world, 0 if is_known else 1, due_ms)
        await move(world, of, world.now_ms + 1)
        world.advance(1)
        await world.nack(world.select(await world.leased()), delay_ms=1)
        world.advance(1)
        await world.ack(world.select(await world.leased()))
        expected = [
            (PUBLISHED, "", 0),
            (EventKind.RESCHEDULED, "", 0),
            (RELEASED, "", 1),
            (RETRIED, "billing", 1),
            (RELEASED, "billing", 2),
            (ACKED, "billing", 2),
        ]
        assert await told(world, of) == expected
        await world.publish(world.now_ms + 1_000)
        await released(world, world.now_ms + 1_000)
        assert await told(world, of) == expected


async def move(world: EngineWorld, of: MessageId, due_ms: int) -> None:
    found = await within(
        world.engine.reschedule(
            np.array([tuple(of)], ID_DTYPE), np.array([due_ms], np.int64), are_delays=False
        )
    )
    assert found["outcome"].tolist() == [RescheduleOutcome.RESCHEDULED]


async def test_history_of_a_message_of_a_transaction_names_no_producer(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        part = PreparedPart("orders", [world.now_ms + 5_000], [b"paid"], [b""], [0], [0])
        port = world.engine.transactions
        prepared = await within(port.prepare(Preparing("tills", [part], [], bytes(16))))
        ended = await within(port.end_transaction(prepared.transaction_id, (), is_commit=True))
        events, _ = await pages(world, parse(ended.messages[0][0]))
        assert [(one.kind, one.producer_id) for one in events] == [(PUBLISHED, 0)]


async def test_history_when_a_group_begins_anew(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await world.publish(world.now_ms, world.now_ms)
        first, second = (id_of(world, number, world.now_ms) for number in (0, 1))
        await world.ack(world.select(await world.leased(count=1)))
        target = ResetTarget(None, (1,))
        for _ in range(2):
            await within(world.engine.reset_group("billing", "orders", target, count_only=False))
        await world.ack(world.select(await world.leased(count=1)))
        target = ResetTarget(None, (0,))
        await within(world.engine.reset_group("billing", "orders", target, count_only=False))
        begun, acked = [(PUBLISHED, "", 0), (RELEASED, "", 1)], (ACKED, "billing", 1)
        again = (EventKind.RESET, "billing", 0)
        assert await told(world, first) == [*begun, acked, again]
        assert await told(world, second) == [*begun, again, again, acked, again]
        await world.ack(world.select(await world.leased(count=2)))
        assert await told(world, first) == [*begun, acked, again, acked]


@pytest.mark.parametrize("method", ["read", "read_batch"])
@pytest.mark.parametrize("error", [errors.DiskFailed("a sector"), FileNotFoundError("a segment")])
async def test_sector_that_cannot_be_read_is_damage_and_does_not_end_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 5_000)
        of = id_of(world, 0, world.now_ms + 5_000)

        def fail(*_: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(world.engine.shard.log, method, fail)
            with pytest.raises(errors.CorruptLog):
                await within(world.engine.history(of, "", b""))
