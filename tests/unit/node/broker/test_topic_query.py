"""Topics of messages that are named by id: found wherever a message is, and of no other id."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.message_id import ID_DTYPE
from hourwheel.formats.record_batch import HEADER_BYTES
from node.broker import topic_query
from node.shard import topic_search
from tests.support.engine_world import EngineWorld, within
from tests.support.eventually import until
from timewheel.memtable import Memtable
from timewheel.run import Run

TOPICS = ("orders", "bills", "mails")


def ids_of(rows: list[tuple[int, int, int, int]]) -> Any:
    return np.array(rows, ID_DTYPE)


async def topics_of(world: EngineWorld, ids: Any) -> list[str | None]:
    found = await within(world.engine.topics_of(ids, may=lambda _: True))
    named: list[str | None] = [*found.names, None]
    return [named[at] for at in found.ordinals.tolist()]


async def released(world: EngineWorld, due_ms: int) -> None:
    world.advance(max(0, due_ms + 1 - world.now_ms))
    await until(lambda: world.engine.shard.views.cursor.key.due_ms >= due_ms)


async def publish_some(world: EngineWorld, seed: Random) -> dict[tuple[int, int, int, int], str]:
    """Messages of all topics, in batches of one topic or of some, with ids -> topic."""
    known: dict[tuple[int, int, int, int], str] = {}
    epoch = world.mastership.epoch
    for _ in range(12):
        topic = seed.choice(TOPICS)
        due_ms = [world.now_ms + seed.choice((-5, 500, 7_000, 90_000_000)) for _ in range(9)]
        first = world.engine.shard.views.next_sequence
        await world.publish(*due_ms, topic=topic)
        known |= {(0, epoch, first + at, due): topic for at, due in enumerate(due_ms)}
        first = world.engine.shard.views.next_sequence
        await world.publish_joined(("bills", 2), ("mails", 1))
        for at, name in enumerate(("bills", "bills", "mails")):
            known[(0, epoch, first + at, world.now_ms)] = name
    return known


@pytest.mark.parametrize("seed", range(3))
async def test_topics_are_found_of_messages_in_every_state_and_of_nothing_else(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    async with EngineWorld(tmp_path) as world:
        known = await publish_some(world, random)
        await world.restart()  # what is pending is in runs now
        known |= await publish_some(world, random)
        rows = list(known)
        random.shuffle(rows)
        pending = [row for row in rows if row[3] > world.now_ms + 500]
        await within(world.engine.cancel(ids_of(pending[:9])))
        moved = ids_of(pending[5:20])
        times = np.full(len(moved), 600, np.int64)
        await within(world.engine.reschedule(moved, times, are_delays=True))
        await released(world, world.now_ms + 700)
        strangers = [
            random.choice(
                (
                    (1, epoch, sequence, due_ms),
                    (shard, epoch + 1, sequence, due_ms),
                    (shard, epoch, sequence + 1_000_000, due_ms),
                    (shard, epoch, sequence, due_ms + 1),
                )
            )
            for shard, epoch, sequence, due_ms in rows
        ]
        asked = [*rows, *strangers, *rows[:3]]
        random.shuffle(asked)
        assert await topics_of(world, ids_of(asked)) == [known.get(one) for one in asked]
        await within(world.engine.delete_topic("mails"))
        known = {row: name for row, name in known.items() if name != "mails"}
        assert await topics_of(world, ids_of(asked)) == [known.get(one) for one in asked]


async def test_topic_is_not_found_when_its_record_is_damaged(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        ids = ids_of([(0, world.mastership.epoch, 0, world.now_ms)])
        assert await topics_of(world, ids) == ["orders"]
        log = world.engine.shard.log
        (offset,) = (
            header.offset
            for header in topic_search.find_publish_header(world.engine.shard, 0)
            if header is not None
        )
        path, at = log.locate(offset + HEADER_BYTES + 8)
        file = tmp_path / path
        raw = bytearray(file.read_bytes())
        raw[at] ^= 1
        with file.open("r+b") as opened:
            opened.write(raw)
        assert await topics_of(world, ids) == [None]


async def test_topic_is_not_found_where_the_disk_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)

        def fail(*_: object) -> None:
            raise errors.DiskFailed("a sector")

        monkeypatch.setattr(world.engine.shard.log, "read", fail)
        ids = ids_of([(0, world.mastership.epoch, 0, world.now_ms)])
        assert await topics_of(world, ids) == [None]


async def test_look_up_is_the_masters(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        ids = ids_of([(0, world.mastership.epoch, 0, world.now_ms)])
        world.step_down()
        with pytest.raises(errors.NotMaster):
            await world.engine.topics_of(ids, may=lambda _: True)


async def work_for(
    world: EngineWorld, monkeypatch: pytest.MonkeyPatch, ids: Any, may: Callable[[str], bool]
) -> list[tuple[str, Any]]:
    """What is looked for where, step by step, when a caller asks who may use some topics."""
    done: list[tuple[str, Any]] = []
    find_header = topic_search.find_publish_header

    def find_in(source: type[Run] | type[Memtable]) -> Callable[..., Any]:
        find = source.find

        def spy(self: Any, due_ms: Any, sequences: Any, attempts: Any) -> Any:
            done.append((source.__name__, len(sequences)))
            return find(self, due_ms, sequences, attempts)

        return spy

    def find_in_log(shard: Any, sequence: int) -> Any:
        for header in find_header(shard, sequence):
            done.append(("log", sequence))
            yield header

    with monkeypatch.context() as patched:
        for source in (Run, Memtable):
            patched.setattr(source, "find", find_in(source))
        patched.setattr(topic_search, "find_publish_header", find_in_log)
        found = await within(world.engine.topics_of(ids, may=may))
    assert not found.are_allowed(may).all()
    return done


async def test_what_is_done_for_a_refused_id_is_done_for_one_of_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a message is of which the caller may not know."""
    async with EngineWorld(tmp_path) as world:
        begun_ms, epoch = world.now_ms, world.mastership.epoch
        delays_ms = (0, 500, 60_000, 60_000, 90_000_000)
        await world.publish(*(begun_ms + one for one in delays_ms), topic="bills")
        await world.restart()
        await world.publish(begun_ms + 70_000, topic="bills")
        await within(world.engine.cancel(ids_of([(0, epoch, 3, begun_ms + 60_000)])))
        await released(world, begun_ms + 500)
        epoch_now = world.mastership.epoch
        states = ("released at once", "released", "pending", "cancelled", "pending in a run")
        rows = [(0, epoch, at, begun_ms + one) for at, one in enumerate(delays_ms)]
        rows.append((0, epoch_now, 5, begun_ms + 70_000))
        for state, row in zip((*states, "pending in memory"), rows, strict=True):
            strange = (*row[:3], row[3] + 1)
            done = [
                await work_for(world, monkeypatch, ids_of([one]), lambda topic: topic == "orders")
                for one in (row, strange)
            ]
            assert done[0] == done[1], state
            assert {where for where, _ in done[0]} == {"Run", "Memtable", "log"}, state


async def test_whole_look_up_has_a_turn_also_of_what_is_in_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_query, "SLICE_S", -1.0)
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 60_000)
        ids = ids_of([(0, world.mastership.epoch, 0, world.now_ms + 60_000)])

        async def ask() -> None:
            await world.engine.topics_of(ids, may=lambda _: True)

        asked = [asyncio.ensure_future(ask()) for _ in range(topic_query.WAITING_MAX + 1)]
        answers = await within(asyncio.gather(*asked, return_exceptions=True))
        assert [type(one) for one in answers if one] == [errors.Overloaded]
