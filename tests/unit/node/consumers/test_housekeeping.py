"""What the master resolves by itself: what filters passed over, and leases that end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.record_batch import Kind, Outcome
from node.contracts.broker import ReceiveParams
from node.delivery.filtered_ranges import AGE_MS_MAX
from node.delivery.message_lease import Part
from node.delivery.resolve_rows import dead_rows
from node.shard.group_queue import GroupQueue
from storage.queues.ack_state import AckWindow
from storage.queues.consume_queues import all_freed
from tests.support.engine_world import EngineWorld, let_others_run
from tests.support.eventually import until

HELD = GroupQueue(1, 1 << 8)


def window(world: EngineWorld) -> AckWindow:
    return world.engine.shard.views.acks.get(*HELD)


def resolved(world: EngineWorld) -> list[tuple[int, int, int]]:
    """(first, count, outcome) of each row of RESOLVE in the log."""
    log = world.engine.shard.log
    found: list[Any] = []
    for batch in log.scan(log.start_offset, world.engine.shard.views.applied_offset):
        if batch.header.kind == Kind.RESOLVE:
            found += batch.rows.tolist()
    return [(first, count, outcome) for _, _, first, count, outcome, _ in found]


# --- passed over


async def test_short_stretch_is_resolved_when_it_is_old_enough(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x", "y")
        assert await world.receive(wanted="a") is None
        await world.publish_tagged("x")
        assert await world.receive() is None
        world.advance(AGE_MS_MAX - 1)
        await let_others_run()
        assert resolved(world) == []
        world.advance(1)
        await until(lambda: window(world).floor == 3)
        assert resolved(world) == [(0, 3, Outcome.FILTERED)]
        assert world.engine.stats.acknowledged == 0
        assert world.service.receive_service.next_wakeup_ms() is None


async def test_long_stretch_is_resolved_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.delivery.filtered_ranges.POSITIONS_ENOUGH", 3)
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["x"] * 5)
        assert await world.receive(wanted="a") is None
        await until(lambda: window(world).floor == 5)


async def test_stretch_is_resolved_with_the_lease_behind_it(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x", "x")
        assert await world.receive(wanted="a") is None
        await world.publish_tagged("x", "a")
        delivery = await world.leased()
        assert await world.ack(world.select(delivery)) == [1]
        assert resolved(world) == [(0, 3, Outcome.FILTERED), (3, 1, Outcome.ACK)]


async def test_master_that_may_not_append_just_now_passes_over_later(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        assert await world.receive(wanted="a") is None
        poll = asyncio.ensure_future(world.receive(wait_ms=600_000))
        await until(lambda: world.service.receive_service.waiting_count == 1)
        await world.publish_tagged("x", "x")
        world.advance(AGE_MS_MAX)
        world.monotonic_ms = float("inf")  # no lease lasts for so long
        world.service.receive_service.turn(all_freed({HELD.topic_queue}), world.now_ms)
        world.now_ms += AGE_MS_MAX
        world.service.receive_service.turn(all_freed({HELD.topic_queue}), world.now_ms)
        await let_others_run()
        assert not world.failure.found.done()
        assert window(world).floor == 0
        world.monotonic_ms = 0.0
        world.advance(AGE_MS_MAX)
        await until(lambda: window(world).floor == 2)
        poll.cancel()


async def test_stretch_is_tried_again_when_there_was_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x", "x")
        assert await world.receive(wanted="a") is None
        mastership, refused = world.mastership, []
        resolve = mastership.resolve

        def full(rows: Any, now_ms: int, token: Any) -> None:
            refused.append(rows)
            token.answer(None, errors.DiskFull("no room"))

        monkeypatch.setattr(mastership, "resolve", full)
        world.advance(AGE_MS_MAX)
        await until(lambda: len(refused) == 1)
        monkeypatch.setattr(mastership, "resolve", resolve)
        await let_others_run()
        assert window(world).floor == 0
        world.advance(AGE_MS_MAX)
        await until(lambda: window(world).floor == 2)


async def test_stretch_is_in_the_log_before_the_filter_changes(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x", "b")
        assert await world.receive(wanted="a") is None
        await world.put_subscription("b")
        assert window(world).floor == 2, "what was passed over stays so"
        await world.restart()
        assert await world.receive() is None


async def test_next_master_looks_again_and_nothing_is_lost(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x", "a", "x", "a", "x")
        assert (await world.leased(count=1, wanted="a")).units["sequence"].tolist() == [1]
        await world.restart()
        assert (await world.leased()).units["sequence"].tolist() == [1, 3]


async def test_group_that_goes_leaves_nothing_to_resolve(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x")
        assert await world.receive(wanted="a") is None
        await world.engine.delete_group("billing")
        assert world.service.receive_service.next_wakeup_ms() is None


# --- damaged messages


async def test_damaged_message_is_never_passed_over_when_its_genes_let_it_through(
    tmp_path: Path,
) -> None:
    """Its meta is damaged: whether it matches nobody can tell."""
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x", "a", "abc a", "x", "a")
        segment = tmp_path / world.engine.shard.log.segments()[0].path
        raw = bytearray(segment.read_bytes())
        at = raw.index(b"\x0a\x03abc") + 3
        raw[at] ^= 1
        segment.write_bytes(raw)
        found = [await world.leased(wanted="a"), await world.leased()]
        assert [one.units["sequence"].tolist() for one in found] == [[1], [4]]
        assert world.engine.stats.crc_errors == 1
        assert await world.ack(*map(world.select, found)) == [1, 1]
        world.advance(10 * AGE_MS_MAX)
        await let_others_run()
        assert (window(world).floor, window(world).ranges()) == (2, [(3, 5)])
        raw = bytearray(segment.read_bytes())
        raw[at] ^= 1  # the log can be read again
        segment.write_bytes(raw)
        assert resolved(world) == [
            (0, 1, Outcome.FILTERED),
            (1, 1, Outcome.ACK),
            (3, 1, Outcome.FILTERED),
            (4, 1, Outcome.ACK),
        ]


async def test_damaged_message_of_a_wrong_kind_is_passed_over_unread(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("xyz", "a")
        segment = tmp_path / world.engine.shard.log.segments()[0].path
        raw = bytearray(segment.read_bytes())
        raw[raw.index(b"\x0a\x03xyz") + 3] ^= 1
        segment.write_bytes(raw)
        delivery = await world.leased(wanted="a")
        assert await world.ack(world.select(delivery)) == [1]
        assert (window(world).floor, world.engine.stats.crc_errors) == (2, 0)


# --- leases


async def test_lease_is_held_again_when_there_was_no_room_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("a", "x", "a", "x")
        await world.leased(wanted="a")
        mastership, refused = world.mastership, []
        resolve = mastership.resolve

        def full(rows: Any, now_ms: int, token: Any) -> None:
            refused.append(rows["outcome"].tolist())
            token.answer(None, errors.DiskFull("no room"))

        monkeypatch.setattr(mastership, "resolve", full)
        world.advance(30_000)
        await until(lambda: len(refused) == 1)
        assert refused == [[Outcome.RETRY, Outcome.RETRY, Outcome.FILTERED]]
        monkeypatch.setattr(mastership, "resolve", resolve)
        await let_others_run()
        world.advance(1_000)
        await until(lambda: window(world).floor == 4)
        world.advance(1_000)
        assert (await world.leased()).units["sequence"].tolist() == [0, 2], "and not the others"


async def test_many_leases_end_in_slices_with_few_records_on_their_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One turn of the loop must not give back thousands; and a record is applied as a whole."""
    monkeypatch.setattr("node.consumers.housekeeping.PARTS_AT_ONCE", 3)
    monkeypatch.setattr("node.consumers.housekeeping.MESSAGES_AT_ONCE", 4)
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged(*["a", "x"] * 30)
        await world.leased(wanted="a", count=10)
        for _ in range(20):
            await world.leased(count=1)
        mastership, housekeeping = world.mastership, world.service.receive_service.housekeeping
        resolve, rows, most = mastership.resolve, [], 0

        def counted(given: Any, now_ms: int, token: Any) -> None:
            nonlocal most
            rows.append(int((given["outcome"] == Outcome.RETRY).sum()))
            most = max(most, 1 + len(housekeeping._ending))
            resolve(given, now_ms, token)

        monkeypatch.setattr(mastership, "resolve", counted)
        world.advance(30_000)
        await until(lambda: mastership.receiver.leases.count == 0)
        assert sum(rows) == 30
        assert world.engine.stats.lease_expirations == 21, "the large one counts once"
        assert max(rows) <= 4
        assert most == 4
        assert world.engine.status().pending_count == 30
        world.advance(1_000)
        await until(lambda: world.engine.status().pending_count == 0)
        again = await world.leased(count=100)
        assert sorted(again.units["sequence"].tolist()) == list(range(0, 60, 2))


async def test_leases_end_in_the_next_epoch_though_nobody_heard_of_the_last_records(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("a")
        await world.leased(invisible_ms=1_000)
        table, housekeeping = (
            world.mastership.receiver.table(),
            world.service.receive_service.housekeeping,
        )
        housekeeping._ending = {asyncio.get_running_loop().create_future() for _ in range(9)}
        world.advance(1_000)
        await let_others_run()
        assert world.engine.stats.lease_expirations == 0
        world.step_down()
        world.member.replica.on_leases(table)
        world.become_master()
        await until(lambda: world.engine.stats.lease_expirations == 1)


async def test_nothing_is_given_back_of_what_is_resolved(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("a")
        await world.leased(wanted="a")
        housekeeping, mastership = world.service.receive_service.housekeeping, world.mastership
        rows = dead_rows(HELD, [(0, 1)])
        await world.service.propose(lambda now, who: mastership.resolve(rows, now, who))
        assert not housekeeping.give_back(HELD, Part(0, 1, 0), world.now_ms)
        assert not housekeeping.give_back(GroupQueue(9, 1 << 8), Part(0, 1, 0), world.now_ms)
        world.service.receive_service.close()
        assert not housekeeping.end_leases(world.now_ms + 60_000)
        assert not housekeeping.resolve_filtered(world.now_ms + 60_000)


async def test_lag_counts_neither_what_was_passed_over_nor_what_stands_between(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("x", "a", "x", "x", "a", "x")
        await world.leased(count=1, wanted="a")
        lag = world.group().lags[0]
        assert (lag.unresolved_count, lag.leased_count) == (3, 1), "two are not looked at yet"
        await world.leased()
        lag = world.group().lags[0]
        assert (lag.unresolved_count, lag.leased_count) == (2, 2)
        await world.publish_tagged("x", "x")
        assert world.group().lags[0].unresolved_count == 4
        assert await world.receive() is None
        assert world.group().lags[0].unresolved_count == 2


async def test_client_that_checks_is_handed_what_genes_let_through(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish_tagged("a", "b", "a b", gene_spec=0)
        wanted = FilterExpression.tags("a", check_at_client=True)
        found = await world.engine.receive(
            ReceiveParams("billing", "orders", 9, 1 << 20, filter=wanted)
        )
        assert found is not None
        assert found.units["sequence"].tolist() == [0, 1, 2]
        assert world.engine.stats.filter_read == 0
