"""The audit reads logs with priorities without alarm, and finds a retry that has lost its own."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import node.broker.publish_service
import node.shard.views
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.priorities import FIRST_PRIORITY_QUEUE
from hourwheel.types import NodeId, TopicQueue, topic_queue
from node.broker.priorities import place_batch
from node.contracts.broker import GroupSettings
from node.contracts.dead_letters import DeadLetterQuery
from node.shard.node_meta import open_node_meta
from spark_jobs.audit.facts.result import Verdict
from spark_jobs.logs.replica import ERROR
from storage.files.disk import RealDisk
from tests.support.audit_runs import run_audit
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.log_maker import CLUSTER_ID
from tests.support.naive_audit import naive_audit

SECOND_MS = 1_000


async def publish(
    world: EngineWorld, *priorities: int, delay_ms: int = 0, ordering_key: str = ""
) -> None:
    """Messages of these priorities."""
    metas = [encode(MessageMeta(priority=one, ordering_key=ordering_key)) for one in priorities]
    due_ms = [world.now_ms + delay_ms] * len(metas)
    raw = build_publish(
        due_ms,
        [b"body"] * len(metas),
        metas=[one.raw for one in metas],
        key_hashes=[one.key_hash for one in metas],
    )
    await within(world.engine.publish_batch("orders", RecordBatch(raw)))


async def wait(world: EngineWorld, by_ms: int) -> None:
    """Time passes, and what falls due is released."""
    for _ in range(2):
        world.advance(by_ms // 2)
        await let_others_run()
        await within(world.engine.group_commit.drain())


async def make_log(directory: Path) -> Path:
    """Messages of all kinds are tried again, die, are given again, and are acknowledged."""
    RealDisk(directory.parent).make_dir(directory.name)
    open_node_meta(RealDisk(directory), NodeId("node-1"), CLUSTER_ID)
    async with EngineWorld(directory) as world:
        await within(world.engine.create_topic("orders", 2))
        settings = GroupSettings(attempts_max=2, retry_delay_ms=SECOND_MS)
        await within(world.engine.put_group("billing", settings))
        await world.receive()
        await publish(world, 0, 9, 5, 5, 1, 0)
        await publish(world, 3, 0, 9, delay_ms=SECOND_MS)
        await publish(world, 8, ordering_key="it stays in its key's place")
        for _ in range(8):
            if (found := await world.receive(count=2)) is not None:
                await world.nack(world.select(found, 0, 1))
            await wait(world, SECOND_MS)
        await world.restart()
        for _ in range(3):
            await wait(world, SECOND_MS)
            while (found := await world.receive(count=8)) is not None:
                await world.nack(world.select(found))
        await wait(world, 2 * SECOND_MS)
        await within(world.engine.redrive(DeadLetterQuery("billing", "", None, None), b""))
        await wait(world, 2 * SECOND_MS)
        while (found := await world.receive(count=8)) is not None:
            await world.ack(world.select(found))
        await wait(world, SECOND_MS)
    return directory


def test_log_with_priorities_is_clean(tmp_path: Path) -> None:
    directory = asyncio.run(make_log(tmp_path / "node-1"))
    assert naive_audit([directory])[0] == []
    assert run_audit(directory).verdict is Verdict.CLEAN


def test_message_in_a_queue_of_another_priority_is_found(tmp_path: Path) -> None:
    def all_but_fives(batch: RecordBatch, queues: Any, topics: Any) -> Any:
        placed = place_batch(batch, queues, topics)
        return np.where(placed & 0xFF == FIRST_PRIORITY_QUEUE + 4, queues, placed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node.broker.publish_service, "place_batch", all_but_fives)
        directory = asyncio.run(make_log(tmp_path / "node-1"))
    expected = {("priority-misplaced", 2), ("priority-misplaced", 3)}
    assert {(one.check, one.sequence) for one in naive_audit([directory])[0]} == expected
    result = run_audit(directory)
    assert {(one.check, one.sequence) for one in result.findings if one.severity == ERROR} == (
        expected
    )
    assert result.verdict is not Verdict.CLEAN


def test_retry_that_loses_its_priority_is_found(tmp_path: Path) -> None:
    def wrong(retry_topic_id: int, _number: int, _queue_count: int) -> TopicQueue:
        return topic_queue(retry_topic_id, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node.shard.views, "retry_queue", wrong)
        directory = asyncio.run(make_log(tmp_path / "node-1"))
    assert naive_audit([directory])[0] != []
    assert run_audit(directory).verdict is not Verdict.CLEAN
