"""Listing and cancelling through an engine: pages, what goes on between them, what goes wrong."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.filter_language.inputs import Sql, Tags
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats import meta as metas
from hourwheel.formats.message_id import ID_DTYPE, MessageId
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.tag_gene import DEFAULT_SPEC, gene_of
from hourwheel.v1.admin_pb2 import MessageState
from node.broker import pending_query
from node.contracts.pending_page import ChangedPage, PendingPage
from node.contracts.pending_token import PendingQuery
from node.shard.pending_scan import NO_MATCHES, Matches, PendingScan
from tests.support.engine_world import (
    LONG_TEXT,
    SEARCHES,
    EngineWorld,
    let_others_run,
    within,
)
from tests.support.searches import counting_searches

EVERYTHING = FilterExpression.everything()


async def publish(world: EngineWorld, tags: list[str], *, topic: str = "orders") -> int:
    """A message for each tag ("": none), 5 s apart; its body is the tag. The first sequence."""
    encoded = [metas.encode(metas.MessageMeta((tag,) if tag else ())) for tag in tags]
    batch = RecordBatch(
        build_publish(
            [world.now_ms + 5_000 * (number + 1) for number in range(len(tags))],
            [tag.encode() for tag in tags],
            metas=[one.raw for one in encoded],
            tag_genes=[gene_of(DEFAULT_SPEC, (tag,) if tag else (), ()) for tag in tags],
            gene_spec=DEFAULT_SPEC.number,
        )
    )
    return (await within(world.engine.publish_batch(topic, batch))).base_sequence


async def page_of(
    world: EngineWorld,
    wanted: FilterExpression = EVERYTHING,
    token: bytes = b"",
    *,
    count_max: int = 100,
    with_bodies: bool = False,
    topic: str = "orders",
) -> PendingPage:
    query = PendingQuery(topic, wanted)
    return await within(
        world.engine.list_pending(query, token, count_max=count_max, with_bodies=with_bodies)
    )


async def cancelled(
    world: EngineWorld, wanted: FilterExpression, token: bytes = b""
) -> ChangedPage:
    return await within(world.engine.cancel_pending(PendingQuery("orders", wanted), token))


def sequences(page: PendingPage) -> list[int]:
    return [one for part in page.parts for one in part.units["sequence"].tolist()]


async def listed(
    world: EngineWorld,
    wanted: FilterExpression = EVERYTHING,
    *,
    count_max: int = 100,
    between: Callable[[], object] = lambda: None,
) -> list[int]:
    """The sequences of all pages."""
    found: list[int] = []
    token = b""
    while True:
        page = await page_of(world, wanted, token, count_max=count_max)
        found += sequences(page)
        token = page.next_token
        if not token:
            return found
        between()


async def test_list_when_it_takes_several_pages_and_a_restart(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b"] * 10)
        first = await page_of(world, Tags("b"), count_max=3)
        assert sequences(first) == [1, 3, 5]
        assert (first.matched_count, first.scanned_count, first.corrupt_count) == (3, 6, 0)
        await world.restart()  # from memory into runs
        second = await page_of(world, Tags("b"), first.next_token, count_max=3)
        assert sequences(second) == [7, 9, 11]
        rest = await page_of(world, Tags("b"), second.next_token)
        assert (sequences(rest), rest.next_token) == ([13, 15, 17, 19], b"")
        assert first.scanned_count + second.scanned_count + rest.scanned_count == 20


async def test_list_when_it_is_shown(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"])
        page = await page_of(world, with_bodies=True)
        (part,) = page.parts
        epoch = world.mastership.epoch
        due_ms = world.now_ms + 5_000
        assert part.printable_ids() == [str(MessageId(0, epoch, 0, due_ms))]
        assert part.blobs[0].body == b"a"
        assert metas.decode(part.blobs[0].meta).tags == ("a",)
        assert (await page_of(world)).parts[0].blobs[0].body == b""


async def test_count_when_nothing_is_sent(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b", "b"])
        page = await page_of(world, Tags("b"), count_max=0)
        assert (page.matched_count, page.scanned_count, page.parts) == (2, 3, [])


async def test_list_when_some_were_released_cancelled_or_given_back(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 6)
        world.advance(5_000)
        delivery = await world.leased()
        await world.nack(world.select(delivery), delay_ms=60_000)
        due_ms = world.now_ms + 5_000
        message = MessageId(0, delivery.epoch, 1, due_ms)
        await within(world.engine.cancel(np.array([tuple(message)], ID_DTYPE)))
        assert world.engine.status().pending_count == 5, "the one that was given back, too"
        assert await listed(world) == [2, 3, 4, 5]


async def test_list_when_time_passes_between_pages(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 9)
        page = await page_of(world, count_max=2)
        world.advance(20_000)
        await world.leased()
        rest = await page_of(world, token=page.next_token)
        assert sequences(rest) == [4, 5, 6, 7, 8]


async def test_list_when_the_topic_is_none_gone_or_the_clusters_own(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 3)
        page = await page_of(world, count_max=1)
        with pytest.raises(errors.UnknownTopic):
            await page_of(world, topic="bills")
        await world.receive()
        with pytest.raises(errors.InvalidTopic):
            await page_of(world, topic="%RETRY%billing|orders")
        await within(world.engine.delete_topic("orders"))
        with pytest.raises(errors.UnknownTopic):
            await page_of(world, token=page.next_token)
        await publish(world, ["b"])
        assert await listed(world) == [3], "of the topic that there is now"
        with pytest.raises(errors.InvalidArgument, match="another method, topic"):
            await page_of(world, token=page.next_token)


async def test_list_when_the_topic_is_deleted_in_the_middle_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 3)
        monkeypatch.setattr(PendingScan, "step", lambda *_: NO_MATCHES)  # without end
        asking = asyncio.ensure_future(page_of(world))
        await asyncio.sleep(0)
        await within(world.engine.delete_topic("orders"))
        with pytest.raises(errors.UnknownTopic):
            await asking


@pytest.mark.parametrize("limit", ["_PAGE_S", "_PAGE_UNITS_MAX", "_PAGE_READS_MAX"])
async def test_list_when_a_page_may_cost_next_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(pending_query, limit, 0)
    monkeypatch.setattr("node.shard.pending_scan.READS_MOST", 2)
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b"] * 10)
        await world.restart()
        first = await page_of(world, Tags("b"))
        assert first.next_token
        assert len(sequences(first)) < 10
        assert await listed(world, Tags("b")) == list(range(1, 20, 2))


async def test_list_when_bodies_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_query, "PAGE_BYTES_MAX", 10)
    monkeypatch.setattr("node.shard.pending_scan.READ_BYTES_MOST", 1)
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["long" * 10] * 3)
        page = await page_of(world, with_bodies=True)
        assert sequences(page) == [0]
        assert await listed(world) == [0, 1, 2]


async def test_list_when_many_ask_at_once(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 3)
        pages = await asyncio.gather(*(page_of(world) for _ in range(20)), return_exceptions=True)
        made = [page for page in pages if isinstance(page, PendingPage)]
        refused = [page for page in pages if isinstance(page, errors.Overloaded)]
        assert (len(made), len(refused)) == (16, 4)
        assert all(sequences(page) == [0, 1, 2] for page in made)
        assert await listed(world) == [0, 1, 2]


async def test_cancel_when_new_messages_come_between_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_query, "PAGE_CANCELS_MAX", 1)
    monkeypatch.setattr(pending_query, "CANCEL_PIECE", 2)
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b"] * 4)
        first = await cancelled(world, Tags("b"))
        assert (first.changed_count, first.missed_count) == (2, 0)
        await publish(world, ["b"] * 8)
        await world.restart()
        total, token = first.changed_count, first.next_token
        while token:
            page = await cancelled(world, Tags("b"), token)
            total, token = total + page.changed_count, page.next_token
        assert total == 4
        assert sorted(await listed(world)) == [0, 2, 4, 6, *range(8, 16)]
        again = await cancelled(world, Tags("b"), first.next_token)  # as after an unknown outcome
        assert again.changed_count == 0
        state = world.engine.describe(MessageId(0, 1, 1, world.now_ms + 10_000)).state
        assert state == MessageState.MESSAGE_STATE_CANCELLED


async def test_cancel_when_all_are_wanted_and_one_is_being_released(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 4)
        world.now_ms += 5_000
        assert world.mastership.dispatch_due(world.now_ms), "appended before the cancel"
        page = await cancelled(world, Tags("*"))
        assert (page.changed_count, page.missed_count) == (3, 1)
        assert page.next_token == b""
        assert (await world.leased()).units["sequence"].tolist() == [0]


async def test_cancel_when_appending_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 4)

        def propose(*_: object) -> None:
            raise errors.NotMaster

        with monkeypatch.context() as patch:
            patch.setattr(world.service, "propose", propose)
            with pytest.raises(errors.NotMaster):
                await cancelled(world, Tags("a"))
        assert (await cancelled(world, Tags("a"))).changed_count == 4


async def test_filter_when_a_message_is_damaged(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["first", "second", "third"])
        (segment,) = (tmp_path / "shard-0" / "log").glob("*.log")
        raw = segment.read_bytes()
        at = raw.index(b"\x0a\x06secondsecond")
        with segment.open("r+b") as file:
            file.seek(at + 2)
            file.write(b"S")
        found = await page_of(world, Sql("a IS NULL"))
        assert (sequences(found), found.corrupt_count) == ([0, 2], 1)
        first = await page_of(world, Sql("a IS NULL"), count_max=1)
        rest = await page_of(world, Sql("a IS NULL"), first.next_token)
        assert (first.corrupt_count, rest.corrupt_count) == (0, 1), "counted where it is passed"
        everything = await page_of(world, with_bodies=True)
        assert sequences(everything) == [0, 1, 2]
        blobs = everything.parts[0].blobs
        assert [blob.is_corrupt for blob in blobs] == [False, True, False]
        assert (blobs[1].meta, blobs[1].body) == (b"", b"")
        done = await cancelled(world, Tags("!first"))
        assert (done.changed_count, done.corrupt_count) == (1, 1)
        assert (await cancelled(world, Tags("*"))).changed_count == 2, "needs no metadata"
        assert not world.failure.found.done()


async def test_node_ends_when_a_run_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"])
        await world.restart()

        def step(*_: object) -> None:
            raise errors.CorruptFile("simulated", file="x.run")

        monkeypatch.setattr("timewheel.range_scan.RangeScan.step", step)
        with pytest.raises(errors.CorruptFile):
            await page_of(world)
        assert isinstance(await world.failed(), errors.CorruptFile)
        with pytest.raises(errors.ShuttingDown):
            await page_of(world)


async def test_list_when_the_caller_goes_away(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 3)
        asking = [asyncio.ensure_future(page_of(world)) for _ in range(3)]
        await asyncio.sleep(0)
        for one in asking:
            one.cancel()
        await let_others_run()
        assert all(one.cancelled() for one in asking)
        assert await listed(world) == [0, 1, 2]


async def test_costly_filter_is_checked_in_short_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred and ten searches of 31 KB: one message costs more than a step may."""
    most, step = 0, PendingScan.step

    def counted(scan: PendingScan, matches_max: int) -> Matches:
        nonlocal most
        with counting_searches() as searched:
            found = step(scan, matches_max)
        most = max(most, searched.bytes)
        return found

    monkeypatch.setattr(PendingScan, "step", counted)
    async with EngineWorld(tmp_path) as world:
        texts = [LONG_TEXT, LONG_TEXT[:-10] + "xyz7", LONG_TEXT]
        await world.publish_texts(*texts, due_ms=world.now_ms + 5_000)
        assert await listed(world, SEARCHES) == [1]
        page, count = await cancelled(world, SEARCHES), 0
        while page.next_token:
            count += page.changed_count
            page = await cancelled(world, SEARCHES, page.next_token)
        assert count + page.changed_count == 1
        assert await listed(world) == [0, 2]
    assert 0 < most < 110 * len(LONG_TEXT) / 3


async def moved(
    world: EngineWorld,
    due_ms: int,
    wanted: FilterExpression = EVERYTHING,
    token: bytes = b"",
    key_prefix: str = "",
) -> ChangedPage:
    query = PendingQuery("orders", wanted, key_prefix=key_prefix, new_due_ms=due_ms)
    return await within(world.engine.reschedule_pending(query, token))


async def test_move_when_it_goes_on_after_a_restart_and_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is moved further on is met again, and left alone; new messages are, too."""
    monkeypatch.setattr(pending_query, "PAGE_CANCELS_MAX", 1)
    monkeypatch.setattr(pending_query, "CANCEL_PIECE", 2)
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b"] * 4)
        due_ms = world.now_ms + 27_500  # in the midst of them
        first = await moved(world, due_ms, Tags("b"))
        assert (first.changed_count, first.missed_count) == (2, 0)
        await publish(world, ["b"])
        await world.restart()
        total, token = first.changed_count, first.next_token
        while token:
            page = await moved(world, due_ms, Tags("b"), token)
            total, token = total + page.changed_count, page.next_token
        assert total == 4
        world.advance(1)
        times = {
            sequence: unit_due
            for part in (await page_of(world)).parts
            for sequence, unit_due in part.units[["sequence", "due_ms"]].tolist()
        }
        assert [times[one] for one in (1, 3, 5, 7)] == [due_ms] * 4
        assert sum(one == due_ms for one in times.values()) == 4
        again = await moved(world, due_ms, Tags("b"))
        assert again.changed_count + again.missed_count <= 1, "the new one"
        assert world.engine.stats.rescheduled >= 2


async def test_move_when_one_is_being_released(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 4)
        world.now_ms += 5_000
        assert world.mastership.dispatch_due(world.now_ms), "appended before the moves"
        page = await moved(world, world.now_ms + 60_000)
        assert (page.changed_count, page.missed_count) == (3, 1)
        assert page.next_token == b""


async def test_move_when_the_time_is_past_or_too_far_away(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 2)
        with pytest.raises(errors.BeyondHorizon):
            await moved(world, world.now_ms + (1 << 41))
        assert (await moved(world, world.now_ms - 5)).changed_count == 2
        assert (await world.leased()).units["sequence"].tolist() == [0, 1]


async def test_page_token_of_a_move_is_for_its_time_and_keys_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_query, "PAGE_CANCELS_MAX", 1)
    monkeypatch.setattr(pending_query, "CANCEL_PIECE", 1)
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"] * 4)
        due_ms = world.now_ms + 60_000
        token = (await moved(world, due_ms)).next_token
        for others in ((due_ms + 1, EVERYTHING, token), (due_ms, EVERYTHING, token, "a")):
            with pytest.raises(errors.InvalidArgument):
                await moved(world, *others)
        with pytest.raises(errors.InvalidArgument):
            await cancelled(world, EVERYTHING, token)
        assert (await moved(world, due_ms, EVERYTHING, token)).changed_count == 1


async def test_keys_are_chosen_by_what_they_begin_with(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        keys = (("a-1", "x"), ("x", "a-2"), ("a",), ("A-1",), (), ("b-a-1",), ("a-" + "y" * 250,))
        encoded = [metas.encode(metas.MessageMeta(keys=one)) for one in keys]
        raw = build_publish(
            [world.now_ms + 5_000] * len(keys),
            [b"body"] * len(keys),
            metas=[one.raw for one in encoded],
            key_hashes=[one.key_hash for one in encoded],
        )
        await within(world.engine.publish_batch("orders", RecordBatch(raw)))
        query = PendingQuery("orders", EVERYTHING, key_prefix="a-")
        counted = await within(
            world.engine.list_pending(query, b"", count_max=0, with_bodies=False)
        )
        assert (counted.matched_count, counted.scanned_count) == (3, 7)
        done = await moved(world, world.now_ms + 9_000, key_prefix="a-")
        assert done.changed_count == 3
        gone = await within(world.engine.cancel_pending(query, b""))
        assert gone.changed_count == 3
        assert await listed(world) == [2, 3, 4, 5]
