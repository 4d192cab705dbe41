"""Dedup keys through an engine: what producers are told, and told again."""

from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors, limits
from hourwheel.formats import message_id
from hourwheel.formats.dedup_key import make_dedup_key
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.outcomes import DedupOutcome, IfPending
from node.contracts.broker import IncomingMessages, PublishedBatchResult
from node.contracts.publishing import PublishedOne
from node.shard.views import DEDUP_LEVEL
from tests.support.engine_world import EngineWorld, within

REJECT, KEEP, REPLACE = IfPending.REJECT, IfPending.KEEP, IfPending.REPLACE


async def publish(
    world: EngineWorld,
    *keys: tuple[str, int],
    delay_ms: int = 60_000,
    number: int = 0,
    id_: int = 7,
) -> PublishedBatchResult:
    """A batch of a producer, with a message for each (key, `IfPending`)."""
    raw = build_publish(
        [world.now_ms + delay_ms] * len(keys),
        [b"%d" % at for at in range(len(keys))],
        producer_id=id_,
        producer_sequence=number,
        dedup=[make_dedup_key(*one) for one in keys],
    )
    return await within(world.engine.publish_batch("orders", RecordBatch(raw)))


async def call(world: EngineWorld, *keys: tuple[str, int], id_: int = 0) -> list[PublishedOne]:
    """A call of few messages, which may share its batch with others."""
    count = len(keys)
    incoming = IncomingMessages(
        *("orders", [world.now_ms + 60_000] * count, [b"x"] * count, [b""] * count),
        *([0] * count, [0] * count, id_, 0),
        dedup=[make_dedup_key(*one) for one in keys],
    )
    return await within(world.engine.publish_messages(incoming))


def told(result: PublishedBatchResult) -> list[tuple[int, int, int]]:
    """(ordinal, outcome, sequence of the message that was pending)."""
    found: Any = result.deduped
    if found is None:
        return []
    columns = (found.ordinals, found.outcomes, found.ids["sequence"])
    return list(zip(*(one.tolist() for one in columns), strict=True))


async def test_one_is_pending_when_a_key_is_published_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("orders", 1))
        first = await publish(world, ("a", REJECT), ("b", KEEP), ("", 0))
        assert told(first) == []
        base = first.base_sequence
        again = await publish(
            *(world, ("a", REJECT), ("b", KEEP), ("a", REPLACE), ("a", REPLACE), ("c", KEEP)),
            number=3,
        )
        own = again.base_sequence
        assert told(again) == [
            (0, DedupOutcome.REJECTED, base),
            (1, DedupOutcome.KEPT, base + 1),
            (2, DedupOutcome.REPLACED, base),
            (3, DedupOutcome.REPLACED, own + 2),
        ]
        assert world.engine.status().pending_count == 4  # b, the one without, the last a, c
        stats = world.engine.stats
        counted = (stats.dedup_rejected, stats.dedup_kept, stats.dedup_replaced)
        assert counted == (1, 1, 2)


async def test_resend_when_its_answer_was_lost_gets_the_first_answer(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("orders", 1))
        await publish(world, ("a", REJECT))
        sent = [("a", REPLACE), ("a", KEEP), ("a", REJECT)]
        first = await publish(world, *sent, number=1)
        await publish(world, ("a", REPLACE), id_=8)
        for _ in range(2):
            again = await publish(world, *sent, number=1)
            assert again.duplicate
            assert (again.base_sequence, told(again)) == (first.base_sequence, told(first))
            part = await publish(world, *sent[1:], number=2)  # cut anew
            assert told(part) == [(at - 1, *what) for at, *what in told(first)[1:]]
            await world.restart()


async def test_calls_when_merged_get_their_own_answers(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("orders", 1))
        (first,) = await call(world, ("a", REJECT))
        kept, other, rejected = await call(world, ("a", KEEP), ("b", KEEP), ("a", REJECT))
        assert kept == first._replace(outcome=DedupOutcome.KEPT, pending_id=first.message_id)
        assert other.outcome == DedupOutcome.PUBLISHED
        assert (rejected.message_id, rejected.pending_id) == ("", first.message_id)
        (mine,) = await call(world, ("a", REPLACE), id_=5)
        assert mine.outcome == DedupOutcome.REPLACED
        assert mine.pending_id == first.message_id != mine.message_id
        assert await call(world, ("a", REPLACE), id_=5) == [mine]
        assert message_id.parse(mine.message_id).sequence > 0


async def test_a_key_is_free_when_its_message_is_cancelled_or_released(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("orders", 2))
        (first,) = await call(world, ("a", REJECT))
        ids = message_id.parse_many([first.message_id])
        assert (await within(world.engine.cancel(ids))).tolist() == [1]
        assert [one.outcome for one in await call(world, ("a", REJECT))] == [0]
        past = await publish(world, ("b", REJECT), ("b", REJECT), delay_ms=-5)
        assert told(past) == []  # at once: nothing of it is pending


async def test_publish_when_there_is_no_room_or_no_such_level_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.create_topic("orders", 1))
        monkeypatch.setattr(limits, "DEDUP_KEY_COUNT_MAX", 2)
        await publish(world, ("a", KEEP), ("b", KEEP))
        with pytest.raises(errors.TooManyDedupKeys):
            await publish(world, ("c", KEEP), number=2)
        with pytest.raises(errors.TooManyDedupKeys):
            await call(world, ("c", KEEP))
        monkeypatch.undo()
        monkeypatch.setattr(limits, "DEDUP_ANSWER_BYTES_MAX", -1)
        with pytest.raises(errors.TooManyDedupKeys):
            await publish(world, ("c", KEEP), number=2)
        monkeypatch.undo()
        views = world.engine.shard.views
        views.feature_level = DEDUP_LEVEL - 1
        with pytest.raises(errors.FeatureLevelTooLow):
            await publish(world, ("c", KEEP), number=2)
        views.feature_level = DEDUP_LEVEL
