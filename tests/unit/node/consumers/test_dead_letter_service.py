"""Dead letters looked through and re-driven: which, how often, and after an interruption."""

import asyncio
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import DeadLetterReason
from node.consumers import dead_letter_service
from node.contracts.broker import GroupSettings
from node.contracts.dead_letters import DeadLetterMessage, DeadLetterQuery
from tests.support.engine_world import EngineWorld, within

ALL = DeadLetterQuery("billing")


async def bury(world: EngineWorld, *tags: str, topic: str = "orders") -> None:
    """Publish a message with each of these tags; all become dead letters of the group."""
    await world.engine.put_group("billing", GroupSettings(attempts_max=1))
    await world.publish_tagged(*tags, topic=topic)
    left = len(tags)
    while left:
        delivery = await world.leased(topic=topic, count=left)
        left -= len(delivery.units)
        await world.nack(world.select(delivery), delay_ms=0)


async def listed(
    world: EngineWorld,
    query: DeadLetterQuery = ALL,
    count_max: int = 1_000,
    *,
    bodies: bool = False,
) -> list[DeadLetterMessage]:
    found, token = list[DeadLetterMessage](), b""
    while True:
        page = await within(
            world.engine.list_dead_letters(query, token, count_max=count_max, with_bodies=bodies)
        )
        assert len(page.messages) <= count_max
        found += page.messages
        token = page.next_token
        if not token:
            return found


async def redriven(world: EngineWorld, query: DeadLetterQuery = ALL) -> int:
    count, token = 0, b""
    while True:
        page = await within(world.engine.redrive(query, token))
        count, token = count + page.redriven_count, page.next_token
        if not token:
            return count


async def test_list_tells_where_dead_letters_came_from(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "red", "blue")
        due_ms = world.now_ms
        found = await listed(world, bodies=True)
        epoch = world.mastership.epoch
        assert [one.message_id for one in found] == [
            MessageId(0, epoch, sequence, due_ms) for sequence in (0, 1)
        ]
        for one in found:
            assert (one.topic, one.attempts, one.last_due_ms) == ("orders", 1, due_ms)
            assert one.reason == DeadLetterReason.ATTEMPTS_USED_UP
            assert (len(one.body), one.is_corrupt) == (one.body_bytes, False)
        assert b"red" in found[0].meta
        assert not any(one.body for one in await listed(world))
        assert await listed(world, count_max=1) == await listed(world)


async def test_list_takes_only_what_is_meant(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "red", "blue")
        await bury(world, "red", topic="parcels")
        red = DeadLetterQuery("billing", filter=FilterExpression.tags("red"))
        assert [one.message_id.sequence for one in await listed(world, red)] == [0, 2]
        parcels = DeadLetterQuery("billing", "parcels")
        assert [one.message_id.sequence for one in await listed(world, parcels)] == [2]
        first = (await listed(world))[0].message_id
        forged = first._replace(due_ms=first.due_ms + 1)
        chosen = DeadLetterQuery("billing", ids=frozenset({first, forged}))
        assert [one.message_id for one in await listed(world, chosen)] == [first]
        assert await listed(world, DeadLetterQuery("billing", ids=frozenset({forged}))) == []
        nothing = DeadLetterQuery("billing", filter=FilterExpression.tags("red && !red"))
        assert await listed(world, nothing) == []


async def test_redrive_gives_each_back_once_to_its_group_alone(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "red", "blue", "red")
        await within(
            world.engine.put_subscription("audit", "orders", FilterExpression.everything())
        )
        red = DeadLetterQuery("billing", filter=FilterExpression.tags("red"))
        assert await redriven(world, red) == 2
        assert [one.message_id.sequence for one in await listed(world)] == [1]
        again = await world.receive(count=10)
        assert again is not None
        assert sorted(again.units["sequence"].tolist()) == [0, 2]
        assert await world.receive(count=10) is None
        await world.ack(world.select(again))
        await world.restart()
        assert await redriven(world, red) == 0
        assert await redriven(world) == 1
        last = await world.receive(count=10)
        assert last is not None
        assert last.units["sequence"].tolist() == [1]
        assert await listed(world) == []
        others = await world.receive(group="audit", count=10)
        assert others is not None
        assert len(others.units) == 3, "the other group has them once, from before"


async def test_redriven_message_may_die_again_and_is_then_listed_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "red")
        for _ in range(2):
            assert await redriven(world) == 1
            delivery = await world.receive()
            assert delivery is not None
            await world.nack(world.select(delivery), delay_ms=0)
            (letter,) = await listed(world)
            assert letter.message_id.sequence == 0


async def test_redrive_goes_on_behind_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_service, "STEP_ENTRIES", 2)
    async with EngineWorld(tmp_path) as world:
        await bury(world, *["red"] * 7)
        calling = asyncio.ensure_future(world.engine.redrive(ALL, b""))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait([calling])
        await world.restart()
        left = len(await listed(world))
        assert await redriven(world) == left
        sequences: list[int] = []
        while (delivery := await world.receive(count=10)) is not None:
            sequences += delivery.units["sequence"].tolist()
        assert sorted(sequences) == list(range(7))


async def test_redrive_leaves_alone_what_becomes_a_dead_letter_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_service, "STEP_ENTRIES", 1)
    monkeypatch.setattr(dead_letter_service, "PAGE_REDRIVEN_MAX", 1)
    async with EngineWorld(tmp_path) as world:
        await bury(world, "red", "blue")
        page = await within(world.engine.redrive(ALL, b""))
        assert (page.redriven_count, page.scanned_count) == (1, 1)
        again = await world.receive()
        assert again is not None
        await world.nack(world.select(again), delay_ms=0)
        page = await within(world.engine.redrive(ALL, page.next_token))
        assert (page.redriven_count, page.next_token) == (1, b"")
        assert [one.message_id.sequence for one in await listed(world)] == [0]


async def test_redrive_leaves_alone_what_the_group_reads_no_more(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "red")
        await bury(world, "blue", topic="parcels")
        await within(world.engine.delete_topic("orders"))
        page = await within(world.engine.redrive(ALL, b""))
        assert (page.redriven_count, page.unsubscribed_count) == (1, 1)
        (letter,) = await listed(world)
        assert (letter.message_id.sequence, letter.topic) == (0, "")


async def test_question_is_refused_when_nobody_can_answer_it(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "red")
        await within(world.engine.put_group("others", GroupSettings()))
        with pytest.raises(errors.UnknownGroup):
            await redriven(world, DeadLetterQuery("nobody"))
        with pytest.raises(errors.UnknownTopic):
            await redriven(world, DeadLetterQuery("billing", "nowhere"))
        for token in (b"x", b"\xff" * 20):
            with pytest.raises(errors.InvalidArgument):
                await within(world.engine.redrive(ALL, token))
        assert await listed(world, DeadLetterQuery("others")) == []


async def test_redrive_waits_for_all_nodes_to_know_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EngineWorld(tmp_path) as world:
        await bury(world, "red")
        monkeypatch.setattr(world.engine.shard.views, "feature_level", 3)
        with pytest.raises(errors.FailedPrecondition, match="earlier version"):
            await redriven(world)
        assert len(await listed(world)) == 1
