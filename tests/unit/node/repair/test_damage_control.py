"""What a master does with messages that it cannot read: alone, and with others that have them.

And what an operator may ask of it, by node/broker/damage_service.py.
"""

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats import message_id
from hourwheel.formats.message_id import ID_DTYPE, MessageId
from hourwheel.formats.record_batch import Outcome
from hourwheel.types import topic_queue
from node.contracts.broker import GroupSettings
from node.repair.damage_control import MANY
from node.repair.view_scrub import ViewScrub
from node.shard.group_queue import GroupQueue
from node.shard.message_lookup import MessageLookup
from node.shard.recovery import ShardConfig
from storage.queues.ack_state import AckWindow
from tests.support.damaging import FakePeers, Flip, join_peers
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until
from timewheel.wheel import WheelConfig

HELD = GroupQueue(1, 1 << 8)
LETTERS = "%DLQ%billing"


def window(world: EngineWorld) -> AckWindow:
    return world.engine.shard.views.acks.get(*HELD)


def lag(world: EngineWorld) -> tuple[int, int, int]:
    """(unresolved, leased, damaged)."""
    found = world.engine.group("billing", 0, 9).lags[0]
    return found.unresolved_count, found.leased_count, found.damaged_count


def resolves(world: EngineWorld) -> list[int]:
    """Outcomes of all rows of RESOLVE that are appended from now on."""
    mastership, found = world.mastership, list[int]()
    resolve = mastership.resolve

    def noted(rows: Any, now_ms: int, token: Any) -> None:
        found.extend(rows["outcome"].tolist())
        resolve(rows, now_ms, token)

    mastership.resolve = noted  # type: ignore[method-assign]
    return found


def wheel_files(root: Path, pattern: str = "*") -> list[Path]:
    return list(root.glob(f"shard-0/wheel/{pattern}"))


async def listed(world: EngineWorld, group: str = "", topic: str = "") -> list[Any]:
    page = await world.engine.list_damaged(group, topic, b"", count_max=1_000)
    return page.messages


async def all_of(world: EngineWorld, count: int, **asked: Any) -> list[int]:
    """Sequences of so many messages, acknowledged as they come."""
    found: list[int] = []
    while len(found) < count:
        delivery = await world.leased(**asked)
        found += delivery.units["sequence"].tolist()
        await world.ack(world.select(delivery))
    return found


async def publish_named(world: EngineWorld, *names: str) -> list[bytes]:
    """Messages due at once, with a tag and a body each; their blobs."""
    await world.publish_tagged(*names)
    shard = world.engine.shard
    topic_id = shard.views.catalog.get_topic("orders").topic_id
    queue = shard.views.queues.get(topic_queue(topic_id, 0))
    units = queue.read(queue.end_position - len(names), len(names))
    return [bytes(one) for one in shard.bodies.read(units)[0]]


# --- alone


async def test_damaged_message_waits_and_the_queue_goes_on_when_the_node_is_alone(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish_named(world, "one", "two", "three", "four")
        flip, outcomes = Flip(tmp_path, b"\x05threethree"), resolves(world)
        assert await all_of(world, 3) == [0, 1, 3]
        assert window(world).floor == 2
        assert lag(world) == (1, 0, 1)
        assert world.engine.stats.crc_errors == world.engine.stats.damaged_messages == 1
        assert await world.receive() is None
        (one,) = await listed(world)
        assert (one.group, one.topic, one.stands_in, one.attempt) == (
            "billing",
            "orders",
            "orders",
            1,
        )
        assert one.message_id.sequence == 2
        assert world.engine.describe(one.message_id).is_damaged
        assert str(flip.path.name) in one.place
        assert set(outcomes) == {Outcome.ACK}, "no record tells of damage"

        polled = asyncio.ensure_future(world.receive(wait_ms=600_000))
        await until(lambda: world.service.receive_service.waiting_count)
        flip.flip()  # an operator has restored the file
        delivery = await polled
        assert delivery is not None
        assert delivery.units["sequence"].tolist() == [2]
        await world.ack(world.select(delivery))
        assert window(world).floor == 4
        assert lag(world) == (0, 0, 0)
        assert await listed(world) == []
        assert world.engine.stats.damaged_messages == 0


async def test_operator_gives_up_what_is_damaged(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish_named(world, "one", "two", "three")
        flips = [Flip(tmp_path, b"\x03oneone"), Flip(tmp_path, b"\x05threethree")]
        assert await all_of(world, 1) == [1]
        assert await world.receive() is None
        assert world.engine.stats.damaged_messages == 2
        first, second = await listed(world)
        other = MessageId(0, 1, 1, second.due_ms)
        discard, outcomes = world.engine.discard_damaged, resolves(world)
        assert await discard("billing", "", [other], count_max=9) == ([], 2)
        gone, left = await discard("billing", "orders", [first.message_id], count_max=9)
        assert ([one.message_id for one in gone], left) == ([first.message_id], 1)
        assert window(world).floor == 2
        assert outcomes[-1] == Outcome.DEAD
        assert lag(world) == (1, 0, 1)
        with pytest.raises(errors.UnknownGroup):
            await discard("nobody", "", None, count_max=9)

        # Its dead letter is as damaged, and is given up for good; the other one is healed.
        assert await world.receive(topic=LETTERS) is None
        await until(lambda: world.engine.stats.damaged_messages == 2)
        (letter,) = [one for one in await listed(world) if one.stands_in == LETTERS]
        assert (letter.topic, letter.message_id) == ("orders", first.message_id)
        flips[1].flip()
        gone, left = await discard("billing", "", None, count_max=9)
        assert [one.stands_in for one in gone] == [LETTERS]
        assert outcomes[-1] == Outcome.ACK
        assert await all_of(world, 1) == [2]
        assert await listed(world) == []
        assert world.engine.shard.views.counters.dead_lettered == 1


async def test_discard_that_is_not_appended_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish_named(world, "one")
        Flip(tmp_path, b"\x03oneone")
        assert await world.receive() is None
        mastership = world.mastership
        resolve = mastership.resolve

        def full(_rows: Any, _now: int, token: Any) -> None:
            token.answer(None, errors.DiskFull("no room"))

        monkeypatch.setattr(mastership, "resolve", full)
        with pytest.raises(errors.DiskFull):
            await world.engine.discard_damaged("billing", "", None, count_max=9)
        assert len(await listed(world)) == 1
        monkeypatch.setattr(mastership, "resolve", resolve)
        gone, left = await world.engine.discard_damaged("billing", "", None, count_max=9)
        assert (len(gone), left) == (1, 0)


async def test_message_is_read_from_the_log_when_its_delay_log_is_damaged(tmp_path: Path) -> None:
    config = ShardConfig(wheel=WheelConfig(memtable_units_max=4, near_bytes_max=64 * 4))
    async with EngineWorld(tmp_path, shard=config) as world:
        due = [world.now_ms + 3_600_000 + n for n in range(8)]
        await world.publish(*due)
        await until(lambda: world.engine.stats.checkpoints)
        body = b"%d" % due[3]
        flip = Flip(tmp_path, body, "shard-0/wheel/*.dlog")
        world.advance(3_600_100)
        assert await all_of(world, 8) is not None
        assert world.engine.stats.damaged_fetched == 1
        await until(lambda: world.engine.stats.repaired_files == 1)
        assert flip.is_there(body)
        assert world.engine.shard.bodies.overlay.size_bytes == 0


@pytest.mark.parametrize("fault", ["missing", "header"])
async def test_delay_log_is_made_again_when_it_is_lost(tmp_path: Path, fault: str) -> None:
    config = ShardConfig(wheel=WheelConfig(memtable_units_max=4, near_bytes_max=64 * 4))
    async with EngineWorld(tmp_path, shard=config) as world:
        due = [world.now_ms + 3_600_000 + n for n in range(8)]
        await world.publish(*due)
        await until(lambda: world.engine.stats.checkpoints)
        bodies = [b"%d" % one for one in due]
        (path,) = wheel_files(tmp_path, "*.dlog")
        right = path.read_bytes()
        if fault == "missing":
            path.unlink()
        else:
            Flip(tmp_path, right[:40], "shard-0/wheel/*.dlog")
            Flip(tmp_path, bodies[3], "shard-0/wheel/*.dlog")
        world.advance(3_600_100)
        assert len(await all_of(world, 8)) == 8
        stats, overlay = world.engine.stats, world.engine.shard.bodies.overlay
        await until(lambda: stats.repaired_files and not overlay.size_bytes)
        assert path.read_bytes() == right
        await world.restart()
        assert world.opened.rebuilt_because == ""


async def test_delay_log_that_nobody_needs_does_not_come_back(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        with pytest.raises(FileNotFoundError):
            await world.engine.damage.files.mend_delay_log(77, [])
        assert wheel_files(tmp_path) == []


# --- with others


async def put_into(peers: FakePeers, blobs: list[bytes], first: int = 0) -> None:
    peers.blobs.update(enumerate(blobs, first))


async def test_message_comes_from_a_peer_and_the_segment_is_repaired(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        peers = join_peers(world)
        blobs = await publish_named(world, "one", "two", "three", "four")
        peers.remember(world)
        flip = Flip(tmp_path, b"\x05threethree")
        assert await world.receive(count=9) is not None
        await put_into(peers, blobs)
        delivery = await world.leased()
        while 2 not in delivery.units["sequence"].tolist():
            delivery = await world.leased()
        assert bytes(delivery.blobs) == blobs[2]
        assert world.engine.stats.damaged_fetched == 1
        assert await listed(world) == []
        await world.publish(world.now_ms)  # the damaged segment is closed before it
        await until(lambda: world.engine.stats.repaired_files == 1)
        assert flip.path.read_bytes()[64:].startswith(next(iter(peers.log.values())))
        shard = world.engine.shard
        assert len(shard.log.segments()) == 2
        await until(lambda: not shard.bodies.overlay.size_bytes)
        unit = shard.views.queues.get(HELD.topic_queue).read(2, 1)
        assert shard.bodies.read(unit)[1] == []
        await world.restart()
        assert world.opened.rebuilt_because == ""


async def test_message_is_delivered_later_when_nobody_has_it_now(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        peers = join_peers(world)
        (blob,) = await publish_named(world, "one")
        Flip(tmp_path, b"\x03oneone")
        polled = asyncio.ensure_future(world.receive(wait_ms=600_000))
        await until(lambda: len(peers.asked) > 3)
        assert (await listed(world))[0].tries > 2
        peers.blobs[0] = b"something else"
        asked = len(peers.asked)
        await until(lambda: len(peers.asked) > asked + 1)
        assert not polled.done()
        peers.blobs[0] = blob
        delivery = await polled
        assert delivery is not None
        assert bytes(delivery.blobs) == blob


async def test_filter_sees_the_right_meta(tmp_path: Path) -> None:
    """Of two damaged messages one matches: damage is never taken for "does not match"."""
    async with EngineWorld(tmp_path) as world:
        peers = join_peers(world)
        blobs = await publish_named(world, "x", "abc a", "abd a", "x", "a")
        for name in (b"abc", b"abd"):
            Flip(tmp_path, b"\x0a\x03" + name + b"\x0a")
        assert await all_of(world, 1, wanted="a && !abd") == [4]
        assert lag(world)[2] == 2
        await put_into(peers, blobs)
        assert await all_of(world, 1, wanted="a && !abd") == [1]
        assert await world.receive() is None
        world.advance(1_000)
        await until(lambda: window(world).floor == 5)


async def test_selected_receive_finds_a_dead_letter_when_it_can_be_read_again(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        peers = join_peers(world)
        await world.engine.put_group("billing", GroupSettings(attempts_max=1))
        blobs = await publish_named(world, "a one", "b two")
        await world.nack(world.select(await world.leased()))
        assert await world.receive(topic=LETTERS, wanted="a", wait_ms=600_000) is not None
        Flip(tmp_path, b"\x0a\x01b\x0a\x03two")
        polled = asyncio.ensure_future(world.receive(topic=LETTERS, wanted="b", wait_ms=600_000))
        await until(lambda: world.engine.stats.damaged_messages == 1)
        await put_into(peers, blobs)
        found = await polled
        assert found is not None
        assert bytes(found.blobs) == blobs[1]


async def test_many_damaged_messages_are_known_by_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.delivery.damaged.ENTRIES_MAX", 4)
    async with EngineWorld(tmp_path) as world:
        peers = join_peers(world)
        names = [f"name{n:02}" for n in range(20)]
        blobs = await publish_named(world, *names)
        for name in names[3:17]:
            Flip(tmp_path, name.encode() * 2)
        assert await all_of(world, 6) == [0, 1, 2, 17, 18, 19]
        assert lag(world) == (14, 0, 14)
        assert len(await listed(world)) == 4
        await put_into(peers, blobs)
        assert sorted(await all_of(world, 14)) == list(range(3, 17))
        assert lag(world) == (0, 0, 0)


async def test_somebody_else_should_lead_when_very_much_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.repair.damage_control.MANY", 3)
    assert MANY > 3
    async with EngineWorld(tmp_path) as world:
        told: list[errors.DataLoss] = []
        world.engine.damage.on_many = told.append
        names = [f"name{n:02}" for n in range(5)]
        await publish_named(world, *names)
        for name in names:
            Flip(tmp_path, name.encode() * 2)
        assert await world.receive() is None
        assert len(told) == 1


async def test_next_mastership_finds_out_for_itself(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        join_peers(world)
        await publish_named(world, "one", "two")
        Flip(tmp_path, b"\x03oneone")
        await world.leased()
        await until(lambda: world.engine.stats.damaged_messages == 1)
        receiver = world.mastership.receiver
        (delivered,) = receiver.table().delivered
        assert (delivered.position, list(delivered.ahead_deltas)) == (0, [1, 1])
        world.step_down()
        assert world.engine.stats.damaged_messages == 0
        world.become_master()
        await until(lambda: world.engine.service is not None)
        assert await listed(world) == []
        await let_others_run()
        assert not world.failure.found.done()


async def test_log_is_not_flooded_with_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with EngineWorld(tmp_path) as world:
        names = [f"name{n:02}" for n in range(9)]
        await publish_named(world, *names)
        for name in names:
            Flip(tmp_path, name.encode() * 2)
        assert await world.receive() is None
        said = [one.msg["event"] for one in caplog.records if isinstance(one.msg, dict)]
        assert said.count("damaged_message_withheld") == 1
        assert world.engine.stats.crc_errors == 9


async def test_entries_of_a_group_that_is_gone_are_forgotten(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish_named(world, "one")
        Flip(tmp_path, b"\x03oneone")
        assert await world.receive() is None
        assert world.engine.stats.damaged_messages == 1
        await world.engine.delete_group("billing")
        await until(lambda: world.engine.stats.damaged_messages == 0)


# --- what the scrubber finds


def scrub(world: EngineWorld) -> None:
    """Look at everything once."""
    place, shard = world.engine.place, world.engine.shard
    found = ViewScrub(place.disk, place.directory, place.identity, shard.log)
    while found.run(1 << 20, world.engine.background.maintenance.manifest) is not None:
        messages, found.messages = found.messages, []
        for one in messages:
            world.engine.damage.take_scrubbed(*one, world.now_ms)
    found.close()
    assert found.damaged == []


async def publish_for_later(world: EngineWorld) -> list[str]:
    """Ten messages that are due in an hour, in a delay log; their ids."""
    due_ms = [world.now_ms + 3_600_000 + number for number in range(10)]
    await world.publish(*due_ms)
    world.engine.background.save_soon()
    await until(lambda: world.engine.stats.checkpoints == 1)
    return [str(MessageId(0, 1, number, due)) for number, due in enumerate(due_ms)]


def without_log(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is trimmed, as it were: nothing is found there."""
    monkeypatch.setattr(MessageLookup, "find_in_log", lambda *_: None)


async def test_what_is_scheduled_is_listed_as_damaged_before_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        without_log(world, monkeypatch)
        ids, stats = await publish_for_later(world), world.engine.stats
        flip = Flip(tmp_path, ids_body(ids, 4), "shard-0/wheel/*.dlog")
        scrub(world)
        scrub(world)
        await until(lambda: stats.scrub_damaged_messages == 1)
        (one,) = await listed(world)
        assert (str(one.message_id), one.group, one.topic) == (ids[4], "", "orders")
        assert world.engine.describe(one.message_id).is_damaged
        assert await listed(world, topic="orders") == [one]
        await world.put_subscription("*")
        assert await listed(world, group="billing") == []
        assert stats.damaged_messages == 0, "nobody waits for it"
        assert stats.crc_errors == 1
        flip.flip()  # an operator has restored the file
        await until(lambda: stats.scrub_damaged_messages == 0)
        assert await listed(world) == []


async def test_damaged_message_that_is_cancelled_is_listed_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        without_log(world, monkeypatch)
        ids, stats = await publish_for_later(world), world.engine.stats
        Flip(tmp_path, ids_body(ids, 4), "shard-0/wheel/*.dlog")
        scrub(world)
        await until(lambda: stats.scrub_damaged_messages == 1)
        (one,) = await listed(world)
        await within(world.engine.cancel(np.array([tuple(one.message_id)], ID_DTYPE)))
        await until(lambda: stats.scrub_damaged_messages == 0)


async def test_who_comes_to_wait_for_a_message_known_as_damaged_is_listed_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        without_log(world, monkeypatch)
        ids, stats = await publish_for_later(world), world.engine.stats
        flip = Flip(tmp_path, ids_body(ids, 4), "shard-0/wheel/*.dlog")
        scrub(world)
        await until(lambda: stats.scrub_damaged_messages == 1)
        world.advance(3_700_000)
        assert sorted(await all_of(world, 9)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        await until(lambda: stats.damaged_messages == 1)
        assert stats.scrub_damaged_messages == 0
        (one,) = await listed(world)
        assert one.group == "billing"
        scrub(world)
        assert len(await listed(world)) == 1
        flip.flip()
        assert await all_of(world, 1) == [4]
        assert await listed(world) == []


async def test_delay_log_is_repaired_from_the_own_log(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        ids, stats = await publish_for_later(world), world.engine.stats
        flip = Flip(tmp_path, ids_body(ids, 4), "shard-0/wheel/*.dlog")
        scrub(world)
        await until(lambda: stats.repaired_files == 1)
        assert flip.is_there(ids_body(ids, 4))
        assert await listed(world) == []


def ids_body(ids: list[str], number: int) -> bytes:
    """The body of a message: its due time."""
    return b"%d" % message_id.parse(ids[number]).due_ms
