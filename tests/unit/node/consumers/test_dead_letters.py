"""What the search for one message's dead letters finds, and what it leaves unseen."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hourwheel.formats.message_id import MessageId
from hourwheel.v1.groups_pb2 import DeadLetterReason
from node.consumers.dead_letters import DeadLetterSearch
from node.contracts.broker import GroupSettings
from node.contracts.dead_letters import DeadLetterInfo, DeadLettersInfo
from storage.queues.consume_queue import ConsumeQueue
from tests.support.engine_world import EngineWorld
from tests.support.units import make_units

SPENT = DeadLetterReason.DEAD_LETTER_REASON_ATTEMPTS_USED_UP


async def kill(world: EngineWorld, group: str, attempts_max: int = 1) -> None:
    """Let the one message that is there become a dead letter of a group."""
    await world.engine.put_group(group, GroupSettings(attempts_max=attempts_max))
    for _ in range(attempts_max):
        delivery = await world.receive(group=group, wait_ms=60_000)
        assert delivery is not None
        await world.nack(world.select(delivery), group=group, delay_ms=0)


async def test_dead_letters_when_groups_gave_up_a_message(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        message = MessageId(0, world.mastership.epoch, 0, world.now_ms)
        assert await world.engine.dead_letters(message) == DeadLettersInfo([])
        await kill(world, "billing", 2)
        await kill(world, "audit")
        await world.restart()
        found = await world.engine.dead_letters(message)
        assert found == DeadLettersInfo(
            [
                DeadLetterInfo("audit", "orders", 1, SPENT),
                DeadLetterInfo("billing", "orders", 2, SPENT),
            ]
        )
        other = await world.engine.dead_letters(message._replace(sequence=1))
        assert other == DeadLettersInfo([])


async def test_reason_is_not_known_when_attempts_are_left(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        await kill(world, "billing")
        await world.engine.put_group("billing", GroupSettings(attempts_max=9))
        (letter,) = (await world.engine.dead_letters(MessageId(0, 1, 0, 0))).letters
        assert letter.reason == DeadLetterReason.DEAD_LETTER_REASON_UNSPECIFIED


async def test_topic_is_not_known_when_it_was_deleted(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms)
        await kill(world, "billing")
        await world.engine.delete_topic("orders")
        (letter,) = (await world.engine.dead_letters(MessageId(0, 1, 0, 0))).letters
        assert (letter.group, letter.topic) == ("billing", "")


async def test_search_ends_when_it_has_looked_at_enough(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        shard = world.engine.shard
        for group in ("audit", "billing"):
            await world.engine.put_group(group, GroupSettings(attempts_max=1))
            known = shard.views.catalog.get_group(group)
            queue = shard.views.queues.get(known.dead_letter_topic_id << 8)
            for first in range(0, 40_000, 10_000):
                queue.append(make_units(first, 10_000))

        def search(queue_entries_max: int, entries_max: int) -> DeadLetterSearch:
            return DeadLetterSearch(
                shard, queue_entries_max=queue_entries_max, entries_max=entries_max
            )

        for oldest, queue_max, all_max, groups, is_complete in (
            (0, 40_000, 80_000, 2, True),
            (0, 10_000, 80_000, 0, False),
            (39_999, 10_000, 80_000, 2, True),
            (39_999, 10_000, 1_000, 1, False),
            (50_000, 40_000, 80_000, 0, True),
        ):
            found = await search(queue_max, all_max).find(oldest)
            assert (len(found.letters), found.is_complete) == (groups, is_complete)


async def test_many_queues_are_looked_at_in_many_turns_when_each_has_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a dead letter of each group, so that no search of a queue goes on for long."""
    async with EngineWorld(tmp_path) as world:
        shard = world.engine.shard
        for number in range(24):
            await world.engine.put_group(f"g{number}", GroupSettings(attempts_max=1))
            known = shard.views.catalog.get_group(f"g{number}")
            shard.views.queues.get(known.dead_letter_topic_id << 8).append(make_units(0, 10))
        looked, find_before = [0], ConsumeQueue.find_before

        def counting(queue: ConsumeQueue, end: int, sequence: int) -> Any:
            looked[-1] += 1
            return find_before(queue, end, sequence)

        monkeypatch.setattr(ConsumeQueue, "find_before", counting)
        search = DeadLetterSearch(shard, turn_entries=4 * 1_024)
        task = asyncio.ensure_future(search.find(5))
        while not task.done():
            looked.append(0)
            await asyncio.sleep(0)
        assert len((await task).letters) == sum(looked) == 24
        assert max(looked) == 4
