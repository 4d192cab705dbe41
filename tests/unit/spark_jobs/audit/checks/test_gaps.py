"""A node that was down while messages fell due: nothing is lost, and nobody may call it on time."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from node.shard.dispatcher import DispatchConfig
from node.shard.node_meta import open_node_meta
from node.shard.recovery import ShardConfig
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.result import AuditResult, Verdict
from spark_jobs.audit.shard import AuditOptions
from spark_jobs.audit.words import sentences
from spark_jobs.runtime.instants import exact_instant_text
from storage.files.disk import RealDisk
from tests.support.audit_runs import errors_of, run_audit
from tests.support.audited import copied
from tests.support.engine_world import LEAD_MS, START_MS, EngineWorld, within
from tests.support.eventually import until
from tests.support.log_maker import CLUSTER_ID, log_end, set_high_watermark

OUTAGE_MS = 60_000
AHEAD = 10
LATE = 50
"""Messages that fell due meanwhile, one a second."""


async def is_quiet(world: EngineWorld) -> None:
    def quiet() -> bool:
        status = world.engine.status()
        is_behind = status.applied_offset < status.log_end_offset
        return not is_behind and not 0 < status.next_due_ms <= world.now_ms

    await until(quiet)


async def live(directory: Path, *, outage_ms: int, retries: bool = False) -> None:
    """Messages are due each second; after `AHEAD` of them the node is away."""
    RealDisk(directory.parent).make_dir(directory.name)
    open_node_meta(RealDisk(directory), "node-1", CLUSTER_ID)
    lead = DispatchConfig(lead_ms_min=LEAD_MS, lead_ms_max=LEAD_MS)
    async with EngineWorld(directory, shard=ShardConfig(dispatch=lead)) as world:
        await within(world.engine.create_topic("orders", 1))
        if retries:
            await world.receive()  # subscribes
        due = [world.now_ms + 1_000 * n for n in range(1, AHEAD + LATE + 1)]
        await world.publish(*due)
        for _ in range(AHEAD):
            world.advance(1_000)
            await is_quiet(world)
        if retries:
            found = await world.receive(count=AHEAD)
            await world.nack(world.select(found, 0, 1), delay_ms=1_000)
        await within(world.engine.close())
        world.now_ms += outage_ms
        await world.open()
        world.advance(0)
        await is_quiet(world)
        world.advance(120_000)
        await is_quiet(world)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that was away for a minute."""
    place = tmp_path_factory.mktemp("outage") / "node-1"
    asyncio.run(live(place, outage_ms=OUTAGE_MS))
    return place


def told(result: AuditResult, check: str) -> list[Finding]:
    return [one for one in result.findings if one.check == check]


def test_audit_when_a_node_was_down_is_late_and_names_the_gap(node: Path) -> None:
    result = run_audit(node, options=AuditOptions())
    assert errors_of(result) == []
    assert (result.verdict, result.verdict.exit_code) == (Verdict.LATE, 3)
    (gap,) = told(result, "dispatch-late")
    last, back = START_MS + 1_000 * AHEAD, START_MS + 1_000 * AHEAD + OUTAGE_MS
    assert gap.detail.startswith(
        f"{LATE} messages, due {exact_instant_text(last + 1_000)}"
        f" to {exact_instant_text(last + 1_000 * LATE)}, released up to 59.0 s late: no master"
        f" dispatched from {exact_instant_text(last + 1_000)} to {exact_instant_text(back)}"
        " (59.0 s); "
    )
    assert f"epoch 1, {exact_instant_text(last)}, the first one behind it of epoch 2" in gap.detail
    assert f"epochs that began meanwhile: 2 at {exact_instant_text(back)}" in gap.detail
    named = {one.sequence: one for one in told(result, "message-late")}
    assert set(named) == set(range(AHEAD, AHEAD + LATE))
    assert named[AHEAD].detail == (
        f"due {exact_instant_text(last + 1_000)}, was released {exact_instant_text(back)},"
        " 59.0 s late"
    )
    assert named[AHEAD].topic == "orders"
    assert result.shards[0].late == LATE
    assert result.finding_counts["warning", "message-late", 0] == LATE


def test_words_of_a_late_audit_say_nothing_of_time_and_other_replicas(node: Path) -> None:
    said = " ".join(sentences(run_audit(node, options=AuditOptions())))
    assert f"{LATE} messages were more than 1.0 s late." in said
    assert "on time" not in said
    assert "agree" not in said
    assert "One replica was looked at: nothing is said of any other." in said


def test_audit_when_the_tolerance_is_longer_is_clean_and_says_how_late(node: Path) -> None:
    result = run_audit(node, options=AuditOptions(late_ms_max=59_000))
    assert result.verdict is Verdict.CLEAN
    assert "All were on time: within 59.0 s of the due time" in " ".join(sentences(result))
    result = run_audit(node, options=AuditOptions(late_ms_max=58_999))
    assert result.shards[0].late == 1


def test_ignored_lateness_is_not_called_on_time(node: Path) -> None:
    result = run_audit(node, options=AuditOptions())
    counts = {key: n for key, n in result.finding_counts.items() if "late" not in key[1]}
    ignored = {"dispatch-late": 1, "message-late": LATE}
    quiet = replace(result, finding_counts=counts, facts={"ignored": ignored})
    assert quiet.verdict is Verdict.CLEAN
    said = " ".join(sentences(quiet))
    assert "on time" not in said
    assert "Nothing is said of lateness" in said
    assert "dispatch-late (1), message-late (50)" in said


def test_pause_shorter_than_the_tolerance_makes_nothing_late(tmp_path: Path) -> None:
    asyncio.run(live(tmp_path / "node-1", outage_ms=1_500))
    result = run_audit(tmp_path / "node-1", options=AuditOptions(late_ms_max=2_000))
    assert result.verdict is Verdict.LATE, "the clock jumps by two minutes at the end"
    late = [one.sequence for one in told(result, "message-late")]
    assert min(late) == AHEAD + 1, "what fell due in the pause was 500 ms late"


def test_retry_that_fell_due_while_nobody_dispatched_is_named(tmp_path: Path) -> None:
    asyncio.run(live(tmp_path / "node-1", outage_ms=OUTAGE_MS, retries=True))
    result = run_audit(tmp_path / "node-1", options=AuditOptions())
    again = [one for one in told(result, "message-late") if "attempt 2" in one.detail]
    assert [one.sequence for one in again] == [0]
    assert again[0].topic.startswith("%RETRY%")
    assert result.shards[0].late == LATE + 1


def test_what_waits_when_the_log_ends_is_overdue(node: Path, tmp_path: Path) -> None:
    """The log up to the new epoch's first record: nobody has dispatched by then."""
    place = copied(node, tmp_path)
    result = run_audit(place, options=AuditOptions())
    (_, begun, *_) = result.shards[0].epochs[1]
    first = min(one.offset for one in told(result, "dispatch-late"))
    assert begun < first <= log_end(place)
    (place / "shard-0" / "checkpoint").unlink()
    set_high_watermark(place, first)
    result = run_audit(place, options=AuditOptions())
    assert result.verdict is Verdict.INCOMPLETE, "it has no checkpoint"
    (one,) = told(result, "dispatch-overdue")
    assert one.detail.startswith(f"{LATE} messages, due ")
    assert "pending when the log ends at" in one.detail
    assert "is pending" in told(result, "message-late")[0].detail
