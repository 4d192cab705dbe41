"""What a replica answers to peers that have lost something, and what it does not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.internal.v1.replication_pb2 import FetchLogRequest, FetchMessagesRequest
from node.repair import peer_reads as module
from node.repair.peer_reads import MESSAGES_MAX, PeerReads
from node.shard.message_lookup import Wanted
from tests.support.engine_world import EngineWorld
from tests.support.eventually import until

QUEUE = 1 << 8


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EngineWorld]:
    """Five messages are released."""
    async with EngineWorld(tmp_path) as opened:
        await opened.publish(*range(opened.now_ms - 5, opened.now_ms))
        await until(lambda: opened.engine.status().released_count == 5)
        yield opened


def reads_of(world: EngineWorld) -> PeerReads:
    return PeerReads(world.engine.shard, world.engine.place.identity)


def asked(world: EngineWorld, *positions: int, **other: Any) -> FetchMessagesRequest:
    units = world.engine.shard.views.queues.get(QUEUE).read(0, 5)
    wanted = [Wanted.of(units[at % 5], at).to_wire() for at in positions]
    request = FetchMessagesRequest(cluster_id=world.engine.cluster_id, shard=0, messages=wanted)
    for name, value in other.items():
        setattr(request, name, value)
    return request


async def test_messages_are_told_by_their_ordinals(world: EngineWorld) -> None:
    request = asked(world, 3, 0, 4)
    request.messages[1].crc ^= 1
    answer = await reads_of(world).fetch_messages(request)
    now_ms = world.now_ms
    assert [(one.ordinal, one.blob) for one in answer.messages] == [
        (0, b"%d" % (now_ms - 2)),
        (2, b"%d" % (now_ms - 1)),
    ]


async def test_answer_is_bounded(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BYTES_MAX", 30)
    answer = await reads_of(world).fetch_messages(asked(world, 0, 1, 2, 3))
    assert [one.ordinal for one in answer.messages] == [0, 1]
    monkeypatch.setattr(module, "BYTES_MAX", 1)
    answer = await reads_of(world).fetch_messages(asked(world, 0, 1, 2, 3))
    assert [one.ordinal for one in answer.messages] == [0], "one in any case"
    with pytest.raises(errors.InvalidArgument):
        await reads_of(world).fetch_messages(asked(world, *range(MESSAGES_MAX + 1)))


@pytest.mark.parametrize("other", [{"shard": 1}, {"cluster_id": bytes(16)}])
async def test_others_are_refused(world: EngineWorld, other: dict[str, Any]) -> None:
    reads = reads_of(world)
    with pytest.raises(errors.PeerRefused):
        await reads.fetch_messages(asked(world, 0, **other))
    request = FetchLogRequest(**{"cluster_id": world.engine.cluster_id, "offset": 0, **other})
    with pytest.raises(errors.PeerRefused):
        await reads.fetch_log(request)


async def log_from(world: EngineWorld, offset: int, bytes_max: int = 1) -> bytes:
    request = FetchLogRequest(
        cluster_id=world.engine.cluster_id, offset=offset, bytes_max=bytes_max
    )
    return (await reads_of(world).fetch_log(request)).batches


async def test_log_is_given_below_what_is_applied(world: EngineWorld) -> None:
    shard = world.engine.shard
    first = await log_from(world, 0)
    assert first
    assert shard.log.read(0, len(first)) == first
    more = await log_from(world, len(first), 1 << 20)
    applied = shard.views.applied_offset
    assert first + more == shard.log.read(0, applied)
    assert await log_from(world, applied) == b""
    assert await log_from(world, 8) == b"", "no batch begins there"


async def test_damaged_log_is_not_given(world: EngineWorld) -> None:
    shard = world.engine.shard
    first = await log_from(world, 0)
    path = world.disk._real(shard.log.segments()[0].path)
    raw = bytearray(path.read_bytes())
    raw[64 + len(first) + 50] ^= 1
    path.write_bytes(raw)
    shard.log.reopen(0)
    assert await log_from(world, 0) == first
    assert await log_from(world, len(first)) == b""


async def test_few_wait_at_one_time(world: EngineWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, gate = reads_of(world), asyncio.Event()

    async def slow(_: FetchMessagesRequest) -> int:
        await gate.wait()
        return 7

    calls = [
        asyncio.ensure_future(reads._in_turn(slow, asked(world))) for _ in range(module.WAITING_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(errors.Overloaded):
        await reads._in_turn(slow, asked(world))
    gate.set()
    assert await asyncio.gather(*calls) == [7] * module.WAITING_MAX
