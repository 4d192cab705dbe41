"""Cancelling by key through an engine."""

import asyncio
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hourwheel import errors
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.outcomes import CancelOutcome
from node.broker.keys import service
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.eventually import until

CANCELLED, RELEASED, UNKNOWN = (
    CancelOutcome.CANCELLED,
    CancelOutcome.ALREADY_RELEASED,
    CancelOutcome.UNKNOWN,
)


async def publish(world: EngineWorld, keys: list[str], delay_ms: int, topic: str = "orders") -> int:
    """A message for each key, which may be several with commas between. The first sequence."""
    metas = [encode(MessageMeta(keys=tuple(one.split(",")) if one else ())) for one in keys]
    batch = RecordBatch(
        build_publish(
            [world.now_ms + delay_ms] * len(keys),
            [one.encode() for one in keys],
            metas=[one.raw for one in metas],
            key_hashes=[one.key_hash for one in metas],
        )
    )
    return (await within(world.engine.publish_batch(topic, batch))).base_sequence


async def cancel(
    world: EngineWorld, *keys: str, topic: str = "orders"
) -> list[tuple[CancelOutcome, int]]:
    done = await within(world.engine.cancel_keys(topic, [key.encode() for key in keys]))
    counts = done.cancelled_counts.tolist()
    return [*zip(map(CancelOutcome, done.outcomes.tolist()), counts, strict=True)]


def cancelled(world: EngineWorld) -> list[int]:
    views = world.engine.shard.views
    every = np.arange(views.next_sequence, dtype=np.uint64)
    found: list[int] = every[views.tombstones.contains(every)].tolist()
    return found


async def test_cancel_when_keys_have_no_one_or_several_messages(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b", "a,b", "c", ""], 5_000)
        await publish(world, ["a"], 5_000, "others")
        assert await cancel(world, "a", "x", "c", "c") == [
            (CANCELLED, 2),
            (UNKNOWN, 0),
            (CANCELLED, 1),
            (CANCELLED, 0),
        ]
        assert cancelled(world) == [0, 2, 3]
        assert await cancel(world, "a", "b") == [(CANCELLED, 0), (CANCELLED, 1)]
        assert await cancel(world) == []
        assert await cancel(world, "a", topic="others") == [(CANCELLED, 1)]


async def test_cancel_when_it_is_too_late_for_some(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b"], 5_000)
        await publish(world, ["a", "d"], 9_000)
        await publish(world, ["e"], -5)
        world.advance(6_000)
        await publish(world, ["tick"], 1)
        world.advance(1_000)
        await let_others_run()
        assert await cancel(world, "a", "b", "e") == [
            (CANCELLED, 1),
            (RELEASED, 0),
            (RELEASED, 0),
        ]
        assert await cancel(world, "a", "b") == [(RELEASED, 0), (RELEASED, 0)]


async def test_cancel_when_the_node_was_started_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b"], 5_000)
        await world.restart()
        await publish(world, ["a"], 5_000)
        assert await cancel(world, "a") == [(CANCELLED, 2)]
        await world.restart()
        assert await cancel(world, "a", "b") == [(CANCELLED, 0), (CANCELLED, 1)]


async def test_cancel_when_a_key_is_on_very_many_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "IDS_AT_ONCE", 64)
    monkeypatch.setattr(service, "KEYS_AT_ONCE", 2)
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["hot", "hot,cold"] * 3_000, 5_000)
        await world.restart()
        await publish(world, ["hot"] * 40 + ["cold"], 5_000)
        found = await cancel(world, "x", "cold", "hot", "y")
        assert found[0] == found[3] == (UNKNOWN, 0)
        assert found[1] == (CANCELLED, 3_001)
        assert found[2] == (CANCELLED, 3_040), "those with both keys are counted once"
        assert len(cancelled(world)) == 6_041


async def test_cancel_counts_a_message_once_when_keys_repeat_and_calls_come_together(
    tmp_path: Path,
) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b", "a,b", "a"] * 30, 5_000)
        calls = [cancel(world, *keys) for keys in ("aab", "ba", "b")]
        found = await asyncio.gather(*calls)
        assert {outcome for call in found for outcome, _ in call} == {CANCELLED}
        assert sum(count for call in found for _, count in call) == len(cancelled(world)) == 120
        assert found[0][1] == (CANCELLED, 0), "it is the same key again"
        assert (await cancel(world, "a", "b", "a")) == [(CANCELLED, 0)] * 3


async def test_cancel_when_others_publish_and_time_passes(tmp_path: Path) -> None:
    """What was there is cancelled or was released; what each key is told is what the log says."""
    chooser = Random(7)
    async with EngineWorld(tmp_path) as world:
        published: dict[int, str] = {}

        async def go_on(keys: list[str], delay_ms: int) -> None:
            first = await publish(world, keys, delay_ms)
            published.update(enumerate(keys, first))

        for _ in range(30):
            await go_on([f"k{chooser.randrange(9)}" for _ in range(5)], chooser.randrange(1, 90))
            asked = [f"k{chooser.randrange(9)}" for _ in range(4)]
            before, was = dict(published), set(cancelled(world))
            call = asyncio.ensure_future(cancel(world, *asked))
            world.advance(chooser.randrange(40))
            await go_on([f"k{chooser.randrange(9)}"], 50)
            answers = await call
            views, done = world.engine.shard.views, set(cancelled(world)) - was
            for key, (outcome, count) in zip(asked, answers, strict=True):
                mine = {at for at, one in before.items() if one == key}
                assert count == len(done & mine) or count == 0
                assert {published[at] for at in done} <= set(asked)
                pending = views.are_ahead(np.array(sorted(mine - was - done), np.uint64))
                assert not pending.any(), "one that was there is left"
                assert (outcome is UNKNOWN) <= (not mine)


@pytest.mark.parametrize(
    ("topic", "error"),
    [("nowhere", errors.UnknownTopic), ("%DLQ%billing", errors.InvalidTopic)],
)
async def test_cancel_when_the_topic_is_none_of_its_kind(
    tmp_path: Path, topic: str, error: type[errors.HourwheelError]
) -> None:
    async with EngineWorld(tmp_path) as world:
        await world.publish(world.now_ms + 5_000)
        await world.receive()
        with pytest.raises(error):
            await cancel(world, "a", topic=topic)


async def test_cancel_when_the_index_is_being_built(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a"], 5_000)
        world.engine.shard.views.keys.forget()
        with pytest.raises(errors.Unavailable, match="being built"):
            await cancel(world, "a")


async def test_node_ends_when_a_run_of_keys_is_damaged_and_builds_it_again(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b"], 5_000)
        await world.restart()
        (path,) = (tmp_path / "shard-0" / "keys").glob("*.keys")
        raw = bytearray(path.read_bytes())
        raw[70] ^= 1
        path.write_bytes(raw)
        with pytest.raises(errors.CorruptFile):
            await cancel(world, "a")
        assert isinstance(await world.failed(), errors.CorruptFile)
        await let_others_run()
        assert world.failure.can_be_mended
        await world.restart()
        world.engine.background.start_if_due()
        await until(lambda: world.engine.shard.views.keys.is_complete)
        assert await cancel(world, "a") == [(CANCELLED, 1)]
