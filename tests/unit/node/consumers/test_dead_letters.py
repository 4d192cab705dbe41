"""What the search for one message's dead letters finds, and what it leaves unseen."""

from pathlib import Path

from hourwheel.formats.message_id import MessageId
from hourwheel.v1.admin_pb2 import DeadLetterReason
from node.consumers.dead_letters import DeadLetterSearch
from node.contracts.broker import DeadLetterInfo, DeadLettersInfo, GroupSettings
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
        message = MessageId(0, world.engine.shard.epoch, 0, world.now_ms)
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
