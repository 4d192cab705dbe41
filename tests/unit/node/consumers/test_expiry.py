"""Messages that expire, through a real engine: lazily as they are received, and by the sweep."""

from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE, MessageId
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import Kind, Outcome, RecordBatch, build_publish
from hourwheel.outcomes import DeadLetterReason, EventKind, ReceiptOutcome, RescheduleOutcome
from node.contracts.broker import GroupSettings, ReceiveParams
from node.contracts.dead_letters import DeadLetterQuery
from node.contracts.ending import Attempt
from node.contracts.transactions import PreparedPart, Preparing
from node.delivery.expiry_sweep import PASS_MS, PIECE_MESSAGES
from node.delivery.filtered_ranges import AGE_MS_MAX
from node.shard.views import EXPIRY_LEVEL
from storage.views.catalog_items import GroupOrder
from tests.support.engine_world import EngineWorld, let_others_run, within

SECOND_MS = 1_000


async def publish(world: EngineWorld, *after_ms: int, delay_ms: int = 0) -> int:
    """Messages that expire so long after they are due, or never (0). The first one's sequence."""
    due_ms = world.now_ms + delay_ms
    metas = [encode(MessageMeta(expires_ms=due_ms + one if one else 0)).raw for one in after_ms]
    raw = build_publish([due_ms] * len(metas), [b"body"] * len(metas), metas=metas)
    return (await within(world.engine.publish_batch("orders", RecordBatch(raw)))).base_sequence


async def wait(world: EngineWorld, by_ms: int) -> None:
    """Time passes, and what follows from it is in the log."""
    world.advance(by_ms)
    for _ in range(3):
        await let_others_run()
        await within(world.engine.group_commit.drain())


def resolved(world: EngineWorld, outcome: Outcome) -> int:
    """How many positions the log resolves so."""
    shard = world.engine.shard
    return sum(
        int(row["count"])
        for batch in shard.log.scan(0, shard.views.applied_offset)
        if batch.header.kind == Kind.RESOLVE
        for row in batch.rows
        if row["outcome"] == outcome
    )


async def test_what_has_expired_is_passed_over_and_the_rest_is_delivered(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, SECOND_MS, 0, SECOND_MS, 9 * SECOND_MS)
        await wait(world, SECOND_MS)
        found = await world.leased()
        assert found.units["sequence"].tolist() == [1, 3]
        await wait(world, 1)
        assert resolved(world, Outcome.EXPIRED) == world.engine.stats.expired == 2
        assert await world.ack(world.select(found)) == [ReceiptOutcome.OK]
        assert world.group().lags[0].unresolved_count == 0


async def test_lease_of_what_expires_meanwhile_may_be_acknowledged(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, SECOND_MS, SECOND_MS)
        found = await world.leased(invisible_ms=9 * SECOND_MS)
        await wait(world, 2 * SECOND_MS)
        assert await world.ack(world.select(found, 0, 1)) == [ReceiptOutcome.OK]
        assert await world.nack(world.select(found, 1, 1)) == [ReceiptOutcome.OK]
        await wait(world, 2 * SECOND_MS)
        assert await world.receive() is None, "a retry after it has expired is not delivered"
        await wait(world, 1)
        assert resolved(world, Outcome.EXPIRED) == 1


async def test_I2_answer_that_got_lost_is_not_given_again_when_a_message_has_expired(  # noqa: N802
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, SECOND_MS)
        poll = ReceiveParams(
            *("billing", "orders", 32, 1 << 20, 0, 9 * SECOND_MS), attempt=Attempt(7, 1)
        )
        lost = await within(world.engine.receive(poll))
        assert lost is not None
        await wait(world, SECOND_MS - 1)
        again = await within(world.engine.receive(poll))
        assert again is not None
        assert again.lease_id == lost.lease_id
        await wait(world, 1)
        assert await within(world.engine.receive(poll)) is None


async def test_backlog_that_nobody_receives_is_swept_in_bounded_steps(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        count = 3 * PIECE_MESSAGES
        await publish(world, *[SECOND_MS] * count)
        await publish(world, 0, 99 * SECOND_MS)
        assert world.group().lags[0].unresolved_count == count + 2
        await wait(world, SECOND_MS + PASS_MS)
        steps = 0
        while world.group().lags[0].unresolved_count > 2:
            before = resolved(world, Outcome.EXPIRED)
            await wait(world, 10)
            assert resolved(world, Outcome.EXPIRED) - before <= PIECE_MESSAGES
            steps += 1
            assert steps < 100
        assert steps > 1
        assert (await world.leased()).units["sequence"].tolist() == [count, count + 1]


async def test_many_that_have_expired_do_not_hold_up_one_that_asks_for_one(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, *[SECOND_MS] * 5_000)
        last = await publish(world, 0)
        await wait(world, SECOND_MS)
        found = await world.leased(count=1)
        assert found.units["sequence"].tolist() == [last]


async def test_group_that_keeps_them_finds_them_among_its_dead_letters(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await within(world.engine.put_group("billing", GroupSettings(keeps_expired=True)))
        await world.receive()
        due_ms = world.now_ms
        await publish(world, SECOND_MS)
        epoch = world.engine.shard.views.epochs[-1].epoch
        await wait(world, SECOND_MS)
        assert await world.receive() is None
        await wait(world, 1)
        assert resolved(world, Outcome.EXPIRED_LETTER) == 1
        page = await within(
            world.engine.list_dead_letters(
                DeadLetterQuery("billing"), b"", count_max=9, with_bodies=False
            )
        )
        assert [one.reason for one in page.messages] == [DeadLetterReason.EXPIRED]
        letters = await world.leased(topic="%DLQ%billing")
        assert letters.units["sequence"].tolist() == [0], "dead letters do not expire"
        history = await within(world.engine.history(MessageId(0, epoch, 0, due_ms), "", b""))
        kinds = [event.kind for event in history.events]
        assert kinds[-2:] == [EventKind.EXPIRED, EventKind.DEAD]


async def test_expiry_before_all_nodes_know_of_it_is_refused(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        world.engine.shard.views.feature_level = EXPIRY_LEVEL - 1
        with pytest.raises(errors.FeatureLevelTooLow):
            await publish(world, SECOND_MS)
        await publish(world, 0)


async def publish_tagged(world: EngineWorld, *tagged: tuple[str, int]) -> None:
    """Messages with a tag each that expire so long after now, or never (0)."""
    metas = [
        encode(MessageMeta(tags=(tag,), expires_ms=world.now_ms + one if one else 0))
        for tag, one in tagged
    ]
    raw = build_publish(
        [world.now_ms] * len(metas),
        [b"body"] * len(metas),
        metas=[one.raw for one in metas],
        tag_genes=[one.tag_gene for one in metas],
    )
    await within(world.engine.publish_batch("orders", RecordBatch(raw)))


async def test_filter_of_a_group_passes_over_what_has_expired(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive(wanted="a")
        await publish_tagged(world, ("a", SECOND_MS), ("b", 0), ("a", 0), ("a", SECOND_MS))
        await wait(world, SECOND_MS)
        found = await world.leased(wanted="a")
        assert found.units["sequence"].tolist() == [2]
        await wait(world, 1)
        assert resolved(world, Outcome.EXPIRED) == 2


@pytest.mark.parametrize("order", [GroupOrder.NONE, GroupOrder.BLOCK])
async def test_sweep_takes_for_expired_only_what_the_group_wants(
    tmp_path: Path, order: GroupOrder
) -> None:
    async with EngineWorld(tmp_path) as world:
        settings = GroupSettings(keeps_expired=True, order=order)
        await within(world.engine.put_group("billing", settings))
        await world.receive(wanted="a")
        tags = ("b", "a", "b", "b", "a", "b")
        await publish_tagged(world, *((tag, SECOND_MS) for tag in tags), ("b", 0), ("a", 0))
        await wait(world, SECOND_MS + PASS_MS)
        await wait(world, 10)
        assert resolved(world, Outcome.EXPIRED_LETTER) == 2
        await wait(world, AGE_MS_MAX)
        assert resolved(world, Outcome.FILTERED) == 4
        letters = await world.receive(topic="%DLQ%billing", group="operators")
        assert letters is not None
        assert letters.units["sequence"].tolist() == [1, 4]
        found = await world.leased(wanted="a")
        assert found.units["sequence"].tolist() == [7]


async def test_what_was_found_expired_is_looked_at_again_by_the_successor(tmp_path: Path) -> None:
    """Whose clock may be behind: then it delivers it."""
    for name in ("former", "successor"):
        (tmp_path / name).mkdir()
    async with EngineWorld(tmp_path / "former") as former:
        await former.receive()
        await publish(former, SECOND_MS, SECOND_MS, 0)
        former.now_ms += SECOND_MS
        assert (await former.leased()).units["sequence"].tolist() == [2]
        table = former.mastership.receiver.table()
        assert any(one.are_expired for one in table.passed_over)
    async with EngineWorld(tmp_path / "successor") as world:
        await world.receive()
        await publish(world, SECOND_MS, SECOND_MS, 0)
        world.mastership.receiver.restore(table, world.now_ms)
        assert (await world.leased()).units["sequence"].tolist() == [0, 1]
        await wait(world, AGE_MS_MAX)
        assert resolved(world, Outcome.EXPIRED) == resolved(world, Outcome.FILTERED) == 0


@pytest.mark.parametrize("gone", ["group", "topic"])
async def test_sweep_goes_on_when_what_it_looks_at_is_deleted(tmp_path: Path, gone: str) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        await publish(world, *[99 * SECOND_MS] * (3 * PIECE_MESSAGES))
        await wait(world, PASS_MS)
        await wait(world, 10)  # it is in the midst of them
        if gone == "group":
            await within(world.engine.delete_group("billing"))
        else:
            await within(world.engine.delete_topic("orders"))
        await wait(world, 10)
        await world.receive(topic="bills", group="mail")
        raw = build_publish(
            [world.now_ms],
            [b"body"],
            metas=[encode(MessageMeta(expires_ms=world.now_ms + SECOND_MS)).raw],
        )
        await within(world.engine.publish_batch("bills", RecordBatch(raw)))
        await wait(world, SECOND_MS + PASS_MS)
        for _ in range(20):
            await wait(world, 10)
        assert resolved(world, Outcome.EXPIRED) == 1


@pytest.mark.parametrize("is_later", [True, False])
async def test_expiry_stays_where_it_is_when_a_message_is_moved(
    tmp_path: Path, *, is_later: bool
) -> None:
    """Moved behind it, the message expires as it falls due; moved before it, it may come longer."""
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        due_ms = world.now_ms + 4 * SECOND_MS
        await publish(world, SECOND_MS, delay_ms=4 * SECOND_MS)
        ids = np.array([(0, world.engine.shard.views.epochs[-1].epoch, 0, due_ms)], ID_DTYPE)
        times_ms = np.array([6 * SECOND_MS if is_later else SECOND_MS])
        moved = await within(world.engine.reschedule(ids, times_ms, are_delays=True))
        assert moved["outcome"].tolist() == [RescheduleOutcome.RESCHEDULED]
        for _ in range(6 if is_later else 4):
            await wait(world, SECOND_MS)
        found = await world.receive()
        await wait(world, 1)
        assert (found is None) == is_later
        assert resolved(world, Outcome.EXPIRED) == is_later


async def test_expiry_of_what_is_committed_counts_from_the_commit(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        lives_ms = (SECOND_MS, 3 * SECOND_MS)
        metas = [encode(MessageMeta(expires_ms=-SECOND_MS - one)).raw for one in lives_ms]
        due_ms = [world.now_ms + SECOND_MS] * 2
        part = PreparedPart("orders", due_ms, [b"body"] * 2, metas, [0, 0], [0, 0])
        asked = Preparing("tills", [part], [SECOND_MS] * 2, bytes(16), SECOND_MS, 2, 600_000)
        of = (await within(world.engine.transactions.prepare(asked))).transaction_id
        await wait(world, 9 * SECOND_MS)  # both would have expired
        await within(world.engine.transactions.end_transaction(of, (), is_commit=True))
        await wait(world, SECOND_MS)
        await wait(world, SECOND_MS)
        assert (await world.leased()).units["sequence"].tolist() == [1]
        await wait(world, 1)
        assert resolved(world, Outcome.EXPIRED) == 1
