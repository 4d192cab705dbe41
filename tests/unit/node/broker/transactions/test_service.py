"""Transactions through an engine: prepared, ended, asked about, across restarts and masterships."""

import asyncio
from pathlib import Path

import pytest

from hourwheel import errors, limits
from hourwheel.formats.message_id import parse
from hourwheel.formats.transaction_id import TransactionId
from hourwheel.outcomes import TransactionState
from node.broker.disk_guard import DiskGuard
from node.broker.transactions import check_back_service, service
from node.contracts.transactions import Check, PreparedPart, Preparing
from node.shard.views import TRANSACTION_LEVEL
from storage.views.catalog import Catalog
from tests.support.damaging import Flip, join_peers
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until

COMMITTED, ROLLED_BACK, EXPIRED, OPEN = (
    TransactionState.COMMITTED,
    TransactionState.ROLLED_BACK,
    TransactionState.EXPIRED,
    TransactionState.OPEN,
)
INTERVAL_MS = 1_000


def part(topic: str, due_ms: list[int], text: bytes = b"paid") -> PreparedPart:
    count = len(due_ms)
    return PreparedPart(topic, due_ms, [text] * count, [b""] * count, [0] * count, [0] * count)


async def prepare(
    world: EngineWorld,
    *parts: PreparedPart,
    delays_ms: tuple[int, ...] = (),
    token: int = 1,
    checks_max: int = 2,
    age_ms_max: int = 600_000,
) -> TransactionId:
    preparing = Preparing(
        "tills",
        parts or (part("orders", [world.now_ms + 5_000]),),
        delays_ms,
        token.to_bytes(16, "big"),
        INTERVAL_MS,
        checks_max,
        age_ms_max,
    )
    return (await within(world.engine.transactions.prepare(preparing))).transaction_id


async def end(
    world: EngineWorld, of: TransactionId, topics: tuple[str, ...] = (), *, commit: bool = True
) -> tuple[TransactionState, int, bool]:
    """(State, messages, whether it had ended so before)."""
    ended = await within(world.engine.transactions.end_transaction(of, topics, is_commit=commit))
    return ended.state, len(ended.messages), ended.is_duplicate


async def looks(world: EngineWorld, count: int) -> None:
    """So many intervals go by."""
    for _ in range(count):
        world.advance(INTERVAL_MS)
        world.service.look(world.now_ms)
        await asyncio.sleep(0)


async def checks(world: EngineWorld, *topics: str) -> list[Check]:
    """What is asked now."""
    world.service.look(world.now_ms)
    port = world.engine.transactions
    return await within(port.poll_checks("tills", topics or ("orders",), 16, 0))


async def received(world: EngineWorld, wait_ms: int = 60_000) -> bytes:
    found = await world.receive(wait_ms=wait_ms)
    return b"" if found is None else found.blobs


def state_of(world: EngineWorld, of: TransactionId) -> TransactionState:
    one, _ = world.engine.transactions.get_transaction(of)
    return one.state


async def test_prepared_messages_are_seen_by_nobody_and_committed_ones_when_they_are_due(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()  # subscribes
        of = await prepare(world)
        before = world.engine.status().pending_count, world.mastership.next_sequence
        assert before == (0, 0)
        assert await end(world, of) == (COMMITTED, 1, False)
        assert world.engine.status().pending_count == 1
        assert await received(world, 0) == b""
        world.advance(5_000)
        assert await received(world) == b"paid"
        assert await end(world, of) == (COMMITTED, 1, True)


async def test_due_time_that_is_past_at_the_commit_is_released_then(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.receive()
        of = await prepare(world)
        world.advance(9_000)
        await end(world, of)
        assert await received(world) == b"paid"


async def test_delay_counts_from_the_commit_or_from_the_prepare(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        begun_ms = world.now_ms
        due_ms = [begun_ms + 5_000] * 2
        of = await prepare(world, part("orders", due_ms), delays_ms=(5_000, -1))
        world.advance(2_000)
        port = world.engine.transactions
        ended = await within(port.end_transaction(of, (), is_commit=True))
        assert [due for _, due in ended.messages] == [begun_ms + 7_000, begun_ms + 5_000]
        ids = [parse(text) for text, _ in ended.messages]
        assert [(one.sequence, one.epoch) for one in ids] == [
            (0, world.mastership.epoch),
            (1, world.mastership.epoch),
        ]


async def test_outcome_stands_whatever_is_asked_later(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        kept, dropped = await prepare(world), await prepare(world, token=2)
        await end(world, kept)
        assert await end(world, dropped, commit=False) == (ROLLED_BACK, 0, False)
        assert await end(world, dropped, commit=False) == (ROLLED_BACK, 0, True)
        for of, commit, state in ((kept, False, "COMMITTED"), (dropped, True, "ROLLED_BACK")):
            with pytest.raises(errors.TransactionDecided) as raised:
                await end(world, of, commit=commit)
            assert raised.value.params["state"] == state
        await world.restart()
        assert await end(world, kept) == (COMMITTED, 1, True)
        assert world.engine.status().pending_count == 1


async def test_ends_that_come_together_have_one_outcome(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        of = await prepare(world)
        port = world.engine.transactions
        ends = [port.end_transaction(of, (), is_commit=one) for one in (True, False, True)]
        first, second, third = await asyncio.gather(*ends, return_exceptions=True)
        assert not isinstance(first, BaseException)
        assert not isinstance(third, BaseException)
        assert isinstance(second, errors.TransactionDecided)
        assert first.messages == third.messages
        assert world.mastership.next_sequence == 1


async def test_commits_that_come_together_are_read_by_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "READING_BYTES_MAX", 1)
    async with EngineWorld(tmp_path) as world:
        of = [await prepare(world, token=number) for number in range(1, 4)]
        before = world.mastership.next_sequence
        async with world.engine.group_commit.turn:  # nothing is written meanwhile
            ends = [asyncio.ensure_future(end(world, one)) for one in of]
            await let_others_run()
            assert world.mastership.next_sequence == before + 1, "the others wait for their turn"
            ends[1].cancel()
        assert [await ends[0], await ends[2]] == [(COMMITTED, 1, False)] * 2
        assert state_of(world, of[1]) == OPEN
        assert await end(world, of[1]) == (COMMITTED, 1, False)


async def test_prepare_when_it_is_repeated_is_known_by_its_token(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        assert await prepare(world) == await prepare(world)
        of = await prepare(world)
        await end(world, of)
        assert await prepare(world) == of
        assert state_of(world, of) == COMMITTED


async def test_unknown_transactions_and_other_topics_are_told_apart_from_nothing(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        now_ms = world.now_ms
        of = await prepare(world, part("orders", [now_ms]), part("bills", [now_ms]))
        await world.engine.create_topic("letters", 1)
        for wrong, topics in (
            (of._replace(offset=of.offset + 8), ()),
            (of._replace(epoch=of.epoch + 1), ()),
            (of._replace(shard=1), ()),
            (of, ("orders",)),
            (of, ("orders", "letters", "nowhere")),
        ):
            with pytest.raises(errors.UnknownTransaction):
                await end(world, wrong, topics)
        assert await end(world, of, ("letters", "bills", "orders")) == (COMMITTED, 2, False)


async def test_topic_when_it_was_deleted_lets_no_commit_through(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        now_ms = world.now_ms
        of = await prepare(world, part("orders", [now_ms]), part("bills", [now_ms]))
        await within(world.engine.delete_topic("bills"))
        with pytest.raises(errors.UnknownTopic):
            await end(world, of)
        assert state_of(world, of) == OPEN
        assert await end(world, of, commit=False) == (ROLLED_BACK, 0, False)
        assert world.engine.status().pending_count == 0


async def test_open_transactions_outlive_a_restart_and_a_checkpoint(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        of = await prepare(world)
        await world.restart()
        assert world.opened.shard.views.applied_offset > of.offset
        assert await end(world, of) == (COMMITTED, 1, False)


async def test_producers_are_asked_so_often_and_then_it_is_rolled_back(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        due_ms = [world.now_ms + 60_000]
        of = await prepare(world, part("orders", due_ms), delays_ms=(60_000,))
        assert await checks(world) == []
        for number in (1, 2):
            world.advance(INTERVAL_MS)
            assert await checks(world, "bills") == []
            (found,) = await checks(world, "bills", "orders")
            assert (found.transaction_id, found.number, found.checks_max) == (of, number, 2)
            assert found.topics == [("orders", 1)]
            assert bytes(found.batch.blobs) == b"paid"
            assert list(found.delays_ms) == [60_000]
            world.advance(INTERVAL_MS - 1)
            assert await checks(world) == []
            world.advance(1)
        assert state_of(world, of) == OPEN
        for _ in range(2):
            world.advance(INTERVAL_MS)
            assert await checks(world) == []
        await until(lambda: state_of(world, of) == EXPIRED)
        with pytest.raises(errors.TransactionDecided) as raised:
            await end(world, of)
        assert raised.value.params["state"] == "EXPIRED"
        assert (await end(world, of, commit=False))[0] == EXPIRED


async def test_transaction_that_nobody_can_be_asked_about_is_rolled_back_when_it_is_old(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        of = await prepare(world, age_ms_max=10_000)
        for _ in range(9):
            world.advance(INTERVAL_MS)
            world.service.look(world.now_ms)
        assert state_of(world, of) == OPEN
        world.advance(INTERVAL_MS)
        world.service.look(world.now_ms)
        await until(lambda: state_of(world, of) == EXPIRED)


async def test_new_master_counts_on_and_gives_an_interval_before_it_rolls_back(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        of = await prepare(world, age_ms_max=10_000)
        world.advance(INTERVAL_MS)
        assert len(await checks(world)) == 1
        await world.restart()
        world.advance(60_000)
        world.step_down()
        world.become_master()
        await until(lambda: world.engine.service is not None)
        (found,) = await checks(world)
        assert found.number == 2
        assert state_of(world, of) == OPEN
        world.advance(INTERVAL_MS)
        world.service.look(world.now_ms)
        await until(lambda: state_of(world, of) == EXPIRED)


async def test_poll_that_waits_is_answered_when_a_check_is_due(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        of = await prepare(world)
        port = world.engine.transactions
        polling = asyncio.ensure_future(port.poll_checks("tills", ["orders"], 16, 60_000))
        other = asyncio.ensure_future(port.poll_checks("others", ["orders"], 16, 60_000))
        world.service.look(world.now_ms)
        await asyncio.sleep(0)
        world.advance(INTERVAL_MS)
        world.service.look(world.now_ms)
        assert [one.transaction_id for one in await within(polling)] == [of]
        assert not other.done()
        world.step_down()
        with pytest.raises((errors.Unavailable, errors.Timeout)):
            await within(other)


async def test_transactions_are_listed_page_by_page(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        made = [await prepare(world, token=one) for one in range(1, 6)]
        for of in (made[3], made[1]):
            await end(world, of, commit=False)
        found, token, port = list[TransactionId](), b"", world.engine.transactions
        while True:
            page = port.list_transactions("tills", token, 2, open_only=False)
            found += [one.transaction_id for one in page.transactions]
            token = page.next_token
            if not token:
                break
        assert found == [made[at] for at in (0, 2, 4, 1, 3)]
        assert page.open_count == 3
        assert port.list_transactions("x", b"", 9, open_only=True).transactions == []
        with pytest.raises(errors.InvalidArgument):
            port.list_transactions("", b"x", 9, open_only=True)


async def test_prepare_when_too_many_are_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        monkeypatch.setattr(limits, "TRANSACTIONS_OPEN_MAX", 1)
        of = await prepare(world)
        with pytest.raises(errors.TooManyTransactions):
            await prepare(world, token=2)
        await end(world, of, commit=False)
        await prepare(world, token=3)
        monkeypatch.setattr(limits, "TRANSACTIONS_OPEN_MAX", 9)
        monkeypatch.setattr(limits, "TRANSACTIONS_OPEN_BYTES_MAX", 400)
        with pytest.raises(errors.TooManyTransactions):
            await prepare(world, token=4)


async def test_prepare_when_a_node_is_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        world.engine.shard.views.feature_level = TRANSACTION_LEVEL - 1
        with pytest.raises(errors.FeatureLevelTooLow):
            await prepare(world)
        world.engine.shard.views.feature_level = TRANSACTION_LEVEL


async def test_commit_when_the_disk_is_full_is_refused_and_nothing_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        of = await prepare(world, age_ms_max=2_000)
        monkeypatch.setattr(DiskGuard, "refusal", "the disk is full")
        with pytest.raises(errors.DiskFull):
            await end(world, of)
        for _ in range(5):
            world.advance(INTERVAL_MS)
            world.service.look(world.now_ms)
        assert state_of(world, of) == OPEN
        monkeypatch.setattr(DiskGuard, "refusal", "")
        assert (await end(world, of))[0] == COMMITTED


async def test_full_disk_when_there_is_room_again_leaves_each_an_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        old, asked = await prepare(world, age_ms_max=2_000), await prepare(world, token=2)
        polling = asyncio.ensure_future(
            world.engine.transactions.poll_checks("tills", ["orders"], 16, 60_000)
        )
        await asyncio.sleep(0)
        monkeypatch.setattr(DiskGuard, "refusal", "the disk is full")
        await looks(world, 9)
        assert not polling.done(), "who could not commit is not asked"
        monkeypatch.setattr(DiskGuard, "refusal", "")
        world.service.look(world.now_ms)
        assert {one.transaction_id for one in await within(polling)} == {old, asked}
        assert state_of(world, old) == OPEN
        await looks(world, 1)
        await until(lambda: state_of(world, old) == EXPIRED)
        assert (await end(world, asked))[0] == COMMITTED


async def test_check_is_not_handed_out_when_the_disk_has_filled_since_the_last_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await prepare(world)
        await looks(world, 1)
        port = world.engine.transactions
        with monkeypatch.context() as full:
            full.setattr(DiskGuard, "refusal", "the disk is full")
            assert await within(port.poll_checks("tills", ["orders"], 16, 0)) == []
        (found,) = await within(port.poll_checks("tills", ["orders"], 16, 0))
        assert found.number == 1


async def test_pause_of_dispatching_holds_transactions_and_an_interval_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        of = await prepare(world, age_ms_max=2_000)
        await looks(world, 1)
        with monkeypatch.context() as paused:
            paused.setattr(Catalog, "is_dispatch_paused", True)
            await looks(world, 5)
            assert len(await checks(world)) == 1, "it is asked about all the same"
            assert state_of(world, of) == OPEN
        world.service.look(world.now_ms)
        await asyncio.sleep(0)
        assert state_of(world, of) == OPEN
        await looks(world, 1)
        await until(lambda: state_of(world, of) == EXPIRED)


async def test_damaged_transaction_takes_no_others_along_and_waits_for_its_repair(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        due_ms = [world.now_ms + 60_000]
        bad = await prepare(world, part("orders", due_ms, b"damaged"), age_ms_max=4_000)
        good = await prepare(world, part("orders", due_ms, b"sound"), token=2)
        peers = join_peers(world)
        log = world.engine.shard.log
        whole = log.read(log.start_offset, log.flushed_end_offset - log.start_offset)
        flip = Flip(tmp_path, b"damaged")
        for number in (1, 2):
            world.advance(INTERVAL_MS)
            (found,) = await checks(world)
            assert (found.transaction_id, found.number) == (good, number)
        one, _ = world.engine.transactions.get_transaction(bad)
        assert one.checks == 0, "nobody was asked about it"
        with pytest.raises(errors.Unavailable):
            await end(world, bad)
        await looks(world, 9)
        assert state_of(world, bad) == OPEN
        peers.log[int(log.start_offset)] = whole
        await until(lambda: flip.is_there(b"damaged"))
        await until(lambda: bad.offset not in world.engine.damage.records)
        (found,) = await checks(world)
        assert (found.transaction_id, bytes(found.batch.blobs)) == (bad, b"damaged")
        assert state_of(world, bad) == OPEN
        await looks(world, 2)
        await until(lambda: state_of(world, bad) == EXPIRED)


async def test_damaged_transaction_of_a_node_alone_ends_by_an_operators_word(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        due_ms = [world.now_ms]
        of = await prepare(world, part("orders", due_ms, b"damaged"), age_ms_max=2_000)
        Flip(tmp_path, b"damaged")
        with pytest.raises(errors.Unavailable):
            await end(world, of)
        await looks(world, 9)
        assert await checks(world) == []
        assert state_of(world, of) == OPEN
        assert await end(world, of, commit=False) == (ROLLED_BACK, 0, False)


async def test_transactions_of_other_topics_are_not_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_back_service, "LOOKED_AT_ONCE", 4)
    async with EngineWorld(tmp_path) as world:
        for token in range(1, 10):
            await prepare(world, part("bills", [world.now_ms]), token=token)
        of = await prepare(world, token=99)
        for _ in range(3):
            world.service.look(world.now_ms)
        world.advance(INTERVAL_MS)
        for _ in range(3):
            world.service.look(world.now_ms)
        assert [one.transaction_id for one in await checks(world)] == [of]
        assert len(await checks(world, "bills")) == 4


async def test_rollback_names_the_topics_that_there_are_still(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        now_ms = world.now_ms
        of = await prepare(world, part("orders", [now_ms]), part("bills", [now_ms]))
        await within(world.engine.delete_topic("bills"))
        for topics, commit in ((("letters",), False), (("orders", "bills"), True)):
            with pytest.raises(errors.UnknownTransaction):
                await end(world, of, topics, commit=commit)
        assert await end(world, of, ("orders", "bills"), commit=False) == (ROLLED_BACK, 0, False)
