"""A master that resolves messages as expired too early, or delivers them too late, is found out."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import node.delivery.expiry
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.tag_gene import DEFAULT_SPEC
from hourwheel.types import NodeId
from node.contracts.broker import GroupSettings
from node.delivery.expiry import Expired, are_expired
from node.shard.node_meta import open_node_meta
from spark_jobs.audit.facts.result import Verdict
from storage.files.disk import RealDisk
from tests.support.audit_runs import checks_of, facts_of, run_audit
from tests.support.engine_world import EngineWorld, let_others_run, within
from tests.support.log_maker import CLUSTER_ID
from tests.support.naive_audit import naive_audit

LATER_MS = 1_000


async def publish(world: EngineWorld, count: int, expires_after_ms: int) -> int:
    """So many messages, due at once. Returns the sequence of the first."""
    meta = encode(MessageMeta(tags=("x",), expires_ms=world.now_ms + expires_after_ms))
    raw = build_publish(
        [world.now_ms] * count,
        [b"body"] * count,
        metas=[meta.raw] * count,
        tag_genes=[meta.tag_gene] * count,
        gene_spec=DEFAULT_SPEC.number,
    )
    published = await within(world.engine.publish_batch("orders", RecordBatch(raw)))
    return published.base_sequence


async def wait(world: EngineWorld, by_ms: int) -> None:
    """Time passes, and what falls due is released."""
    for _ in range(2):
        world.advance(by_ms // 2)
        await let_others_run()
        await within(world.engine.group_commit.drain())


async def make_log(directory: Path) -> Path:
    """A group takes messages in time, gives some back, and comes again when all have expired."""
    RealDisk(directory.parent).make_dir(directory.name)
    open_node_meta(RealDisk(directory), NodeId("node-1"), CLUSTER_ID)
    async with EngineWorld(directory) as world:
        await within(world.engine.create_topic("orders", 1))
        for group, kept in (("billing", False), ("audit", True)):
            await within(
                world.engine.put_group(
                    group, GroupSettings(retry_delay_ms=1_500, keeps_expired=kept)
                )
            )
            await world.receive(group=group)
        await publish(world, 6, LATER_MS)
        await wait(world, 2)
        for group in ("billing", "audit"):
            first = await world.receive(count=4, group=group)
            if first is None:
                continue
            await world.ack(world.select(first, 0, 2), group=group)
            await world.nack(world.select(first, 2, 2), group=group)
        await wait(world, 2 * LATER_MS)
        for group in ("billing", "audit"):
            while (late := await world.receive(count=8, group=group)) is not None:
                await world.ack(world.select(late), group=group)
        await wait(world, LATER_MS)
    return directory


def audited(directory: Path) -> set[tuple[str, int]]:
    """(check, sequence) of all errors: both audits say the same."""
    result = run_audit(directory)
    found = {(name, at) for name in checks_of(result) for at in facts_of(result, name)}
    errors, _, _ = naive_audit([directory])
    assert found == {(one.check, one.sequence) for one in errors}
    assert (result.verdict is Verdict.CLEAN) == (not found)
    return found


def test_log_of_what_expired_in_time_is_clean(tmp_path: Path) -> None:
    assert audited(asyncio.run(make_log(tmp_path / "node-1"))) == set()


def early(patch: pytest.MonkeyPatch) -> None:
    """What has a second left is taken for expired."""

    def wrong(expires_ms: Any, now_ms: int) -> Any:
        return are_expired(expires_ms, now_ms + LATER_MS)

    patch.setattr(node.delivery.expiry, "are_expired", wrong)


def never(patch: pytest.MonkeyPatch) -> None:
    """Nothing is taken for expired."""
    patch.setattr(Expired, "may_have", lambda *_: False)
    patch.setattr(Expired, "give_up", lambda *_: None)


@pytest.mark.parametrize(
    ("bug", "check", "sequences"),
    [(early, "expired-early", {0, 1, 2, 3, 4, 5}), (never, "expired-delivered", {2, 3})],
)
def test_bug_is_found(
    tmp_path: Path,
    bug: Callable[[pytest.MonkeyPatch], None],
    check: str,
    sequences: set[int],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        directory = asyncio.run(make_log(tmp_path / "node-1"))
    assert audited(directory) == {(check, at) for at in sequences}
