"""The whole audit in this process: real logs are clean, and each thing broken in one is named."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from hourwheel.formats.record_batch import (
    DISPATCH_ROW,
    RESOLVE_ROW,
    Kind,
    Outcome,
    RecordBatch,
    build_publish,
    build_rows,
)
from spark_jobs.audit.facts.findings import Made
from spark_jobs.audit.facts.result import Verdict
from spark_jobs.audit.shard import AuditOptions
from tests.support.audit_runs import QUEUE, SMALL, checks_of, errors_of, run_audit
from tests.support.audited import copied
from tests.support.broken_logs import (
    batches_of,
    rewrite_log,
)
from tests.support.log_maker import Made as MadeLog
from tests.support.log_maker import make_log, replicate, segments, set_high_watermark

# --- healthy logs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        AuditOptions(late_ms_max=60_000),
        AuditOptions(partition_bytes=1 << 12, bucket_messages=7, late_ms_max=60_000),
    ],
    ids=["small", "usual", "tiny"],
)
def test_audit_is_clean_when_nothing_is_wrong(made: MadeLog, options: AuditOptions) -> None:
    result = run_audit(made.directory, options=options)
    assert errors_of(result) == []
    assert result.verdict is Verdict.CLEAN
    assert all(one.made is Made.FULL for one in result.checks if one.area != "replicas")
    (shard,) = result.shards
    assert shard.totals.released == len(made.released)
    assert shard.totals.cancelled == len(made.cancelled)
    assert shard.totals.void == made.void
    assert shard.totals.pending == len(made.accepted) - len(made.released) - len(made.cancelled)
    assert int(shard.ledger.due.sum()) == len(made.accepted)
    assert int(shard.ledger.released.sum()) == len(made.released)
    assert int(shard.ledger.cancelled.sum()) == len(made.cancelled)
    (replica,) = shard.replicas
    assert replica.queue_entries > len(made.released)  # retries and dead letters, too
    assert replica.wheel_units >= shard.totals.pending
    assert int(shard.pending.count.sum()) == replica.wheel_units
    assert sum(one.acked + one.dead + one.outstanding for one in shard.groups)


@pytest.mark.parametrize("seed", [11, 12])
def test_audit_is_clean_when_lives_differ(tmp_path: Path, seed: int) -> None:
    made = asyncio.run(make_log(tmp_path / "node-1", seed=seed, rounds=2, moves=True, deals=True))
    result = run_audit(tmp_path)
    assert errors_of(result) == []
    assert result.shards[0].totals.released == len(made.released)


def test_audit_is_clean_when_three_replicas_agree(made: MadeLog, tmp_path: Path) -> None:
    nodes = replicate(copied(made.directory, tmp_path))
    result = run_audit(*nodes)
    assert result.verdict is Verdict.CLEAN
    assert all(one.made is Made.FULL for one in result.checks)
    assert len({one.queue_entries for one in result.shards[0].replicas}) == 1


def test_audit_is_incomplete_when_a_log_ends_abruptly_without_a_checkpoint(
    made: MadeLog, tmp_path: Path
) -> None:
    node = copied(made.directory, tmp_path)
    rewrite_log(node, lambda batches: batches[: len(batches) * 2 // 3])
    (path,) = segments(node)
    path.write_bytes(path.read_bytes() + b"HWRB torn")
    result = run_audit(node)
    assert errors_of(result) == []
    assert result.verdict is Verdict.INCOMPLETE
    assert any(one.check == "log-torn-tail" for one in result.findings)
    assert {(one.area, one.limit) for one in result.left_out} == {
        ("queues", "checkpoint-missing"),
        ("wheel", "checkpoint-missing"),
        ("sequences", "checkpoint-missing"),
    }


def test_audit_is_clean_when_a_follower_is_behind(made: MadeLog, tmp_path: Path) -> None:
    nodes = replicate(copied(made.directory, tmp_path), 2)
    rewrite_log(nodes[1], lambda batches: batches[: len(batches) // 2])
    original, cut = b"".join(_bytes(nodes[0])), b"".join(_bytes(nodes[1]))
    assert original.startswith(cut) is False  # flushed_end_offset is stamped anew
    result = run_audit(nodes[0])
    assert result.verdict is Verdict.CLEAN


def _bytes(directory: Path) -> list[bytes]:
    return [bytes(one.head) + bytes(one.payload) for one in batches_of(directory)]


def test_uncommitted_end_is_information_when_a_master_was_cut_off(
    made: MadeLog, tmp_path: Path
) -> None:
    nodes = replicate(copied(made.directory, tmp_path), 3)
    first = next(one for one in batches_of(nodes[2]) if one.header.kind == Kind.PUBLISH)
    at = first.header.offset

    def other(batches: list[RecordBatch]) -> list[RecordBatch]:
        index = next(n for n, one in enumerate(batches) if one.header.offset == at)
        return [*batches[:index], other_batch(batches[index])]

    keep = [one for one in batches_of(nodes[2]) if one.header.offset < at]
    rewrite_log(nodes[2], other)
    (path,) = segments(nodes[2])
    raw = path.read_bytes()
    head = b"".join(bytes(one.head) + bytes(one.payload) for one in keep)
    path.write_bytes(raw[:64] + head + raw[64 + len(head) :])
    set_high_watermark(nodes[2], at)
    result = run_audit(*nodes)
    assert errors_of(result) == []
    assert any(
        one.check == "replica-uncommitted" and (one.node, one.offset) == ("node-3", at)
        for one in result.findings
    )


def other_batch(batch: RecordBatch) -> RecordBatch:
    """The same header, other messages."""
    count, topic = batch.header.count, int(batch.topic_queue[0])
    raw = build_publish(batch.due_ms, [b"other"] * count, topic_queues=[topic] * count)
    return RecordBatch(
        raw,
        RecordBatch(raw).header._replace(store_ms=batch.header.store_ms, epoch=batch.header.epoch),
    )


# --- the log --------------------------------------------------------------------------------------


def _index_of(batches: list[RecordBatch], kind: Kind, number: int = 0) -> int:
    found = [index for index, one in enumerate(batches) if one.header.kind == kind]
    return found[number]


def test_dispatch_when_it_is_dropped_is_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)

    def drop(batches: list[RecordBatch]) -> list[RecordBatch]:
        index = _index_of(batches, Kind.DISPATCH, 2)
        return [*batches[:index], *batches[index + 1 :]]

    rewrite_log(node, drop)
    result = run_audit(node)
    # What it released came later then, behind what consumers had to say about it.
    assert checks_of(result) <= {"dispatch-chain", "dispatch-check", "ack-undelivered", "ack-early"}
    (found,) = [one for one in errors_of(result) if one.check == "dispatch-chain"]
    after = [one for one in batches_of(node) if one.header.kind == Kind.DISPATCH][2]
    assert found.offset == after.header.offset


def test_dispatch_when_it_is_doubled_is_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)

    def double(batches: list[RecordBatch]) -> list[RecordBatch]:
        index = _index_of(batches, Kind.DISPATCH, 1)
        return [*batches[: index + 1], *batches[index:]]

    rewrite_log(node, double)
    result = run_audit(node)
    (found,) = [one for one in errors_of(result) if one.check == "dispatch-chain"]
    second = [one for one in batches_of(node) if one.header.kind == Kind.DISPATCH][2]
    assert found.offset == second.header.offset
    assert "doubled" in found.detail


def test_dispatch_when_it_is_early_is_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)

    def hurry(batches: list[RecordBatch]) -> list[RecordBatch]:
        index = _index_of(batches, Kind.DISPATCH, -1)
        row = batches[index].rows.copy().astype(DISPATCH_ROW)
        row["to_due_ms"] += 3_600_000
        return [*batches[:index], _like(batches[index], build_rows(Kind.DISPATCH, row))]

    rewrite_log(node, hurry)
    result = run_audit(node)
    assert checks_of(result) == {"dispatch-early"}
    (found,) = errors_of(result)
    last = [one for one in batches_of(node) if one.header.kind == Kind.DISPATCH][-1]
    assert found.offset == last.header.offset


def _like(batch: RecordBatch, raw: bytes) -> RecordBatch:
    """Bytes of an unstamped batch, with the master's fields of another one."""
    header = RecordBatch(raw).header._replace(
        store_ms=batch.header.store_ms, epoch=batch.header.epoch
    )
    return RecordBatch(raw, header)


def test_sequences_when_some_are_left_out_are_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    batches = list(batches_of(node))
    index = _index_of(batches, Kind.PUBLISH, 5)
    expected = batches[index].header.base_sequence
    rewrite_log(node, lambda every: every, gap=3, gap_from=index)
    result = run_audit(node)
    (found,) = [one for one in errors_of(result) if one.check == "sequence-gap"]
    assert (found.sequence, found.offset) == (expected, list(batches_of(node))[index].header.offset)
    assert f"{expected} was expected and {expected + 3} was found" in found.detail


def test_ack_when_nothing_was_delivered_is_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    released = run_audit(node).shards[0].groups[0].released
    row = np.zeros(1, RESOLVE_ROW)
    row["group_id"], row["topic_queue"], row["outcome"] = 1, QUEUE, Outcome.ACK
    row["first_position"], row["count"] = released, 1

    def add(batches: list[RecordBatch]) -> list[RecordBatch]:
        return [*batches, _like(batches[-1], build_rows(Kind.RESOLVE, row))]

    rewrite_log(node, add)
    result = run_audit(node)
    (found,) = errors_of(result)
    last = list(batches_of(node))[-1]
    assert (found.check, found.offset, found.position) == (
        "ack-undelivered",
        last.header.offset,
        released,
    )


# --- replicas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1, 2])
def test_byte_when_it_is_flipped_on_one_replica_is_named(
    made: MadeLog, tmp_path: Path, number: int
) -> None:
    nodes = replicate(copied(made.directory, tmp_path))
    victim = [one for one in batches_of(nodes[number]) if one.header.blob_bytes > 50][4]
    path = max(
        (one for one in segments(nodes[number]) if int(one.stem) <= victim.header.offset),
        key=lambda one: int(one.stem),
    )
    raw = bytearray(path.read_bytes())
    raw[victim.header.offset - int(path.stem) + 64 + victim.header.total_bytes - 20] ^= 4
    path.write_bytes(raw)
    result = run_audit(*nodes)
    (found,) = errors_of(result)
    assert (found.check, found.node, found.offset) == (
        "log-corrupt",
        nodes[number].name,
        victim.header.offset,
    )
    assert found.file == f"shard-0/log/{path.name}"
    assert result.shards[0].totals.released == len(made.released)


def test_replica_when_it_has_other_bytes_is_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    rewrite_log(node, lambda batches: batches)
    nodes = replicate(node)
    index = _index_of(list(batches_of(nodes[2])), Kind.PUBLISH, 3)
    count = [0]

    def change(batches: list[RecordBatch]) -> list[RecordBatch]:
        batch = batches[index]
        raw = bytearray(bytes(batch.head) + bytes(batch.payload))
        count[0] = int(batch.header.offset)
        return [*batches[:index], _dues_moved(batch, bytes(raw)), *batches[index + 1 :]]

    rewrite_log(nodes[2], change)
    set_high_watermark(nodes[2], int(list(batches_of(nodes[0]))[-1].header.offset))
    result = run_audit(*nodes)
    assert checks_of(result) == {"replica-diverges"}
    (found,) = errors_of(result)
    assert (found.node, found.offset) == ("node-3", count[0])
    assert result.shards[0].totals.released == len(made.released)


def _dues_moved(batch: RecordBatch, raw: bytes) -> RecordBatch:
    changed = bytearray(raw)
    changed[96] ^= 1  # the first due time; it is stamped, so its CRC is made anew
    return RecordBatch(bytes(changed), batch.header)


def test_segment_when_it_is_lost_on_one_replica_is_named(made: MadeLog, tmp_path: Path) -> None:
    nodes = replicate(copied(made.directory, tmp_path))
    lost = segments(nodes[0])[1]
    lost.unlink()
    result = run_audit(*nodes)
    assert checks_of(result) == {"segment-missing"}
    (found,) = errors_of(result)
    assert (found.node, found.offset) == ("node-1", int(lost.stem))
    assert result.shards[0].totals.released == len(made.released)
    assert all(one.made is Made.FULL for one in result.checks)


def test_segment_when_nobody_has_it_ends_the_audit(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    lost = segments(node)[1]
    lost.unlink()
    result = run_audit(node)
    assert {"segment-missing", "log-hole"} == checks_of(result)
    assert result.shards[0].end_offset == int(lost.stem)
    assert any(one.made is Made.NOT_MADE for one in result.checks)
