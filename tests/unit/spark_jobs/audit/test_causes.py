"""One changed record is named itself, first, and what follows from it is told below it."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hourwheel.formats.record_batch import Kind, Stamp, stamp
from spark_jobs.audit.causes import with_causes
from spark_jobs.audit.facts.findings import SUM_CHECKS, Finding
from spark_jobs.audit.facts.result import AuditResult
from spark_jobs.runtime.instants import exact_instant_text
from tests.support.audit_faults import copies
from tests.support.audit_runs import errors_of, run_audit
from tests.support.log_copies import Cluster, with_rows
from tests.support.log_maker import Made, replicate
from tests.support.tampering import FAULTS, drop_entry

DAY_MS = 86_400_000


@pytest.fixture
def cluster(made: Made, tmp_path: Path) -> Cluster:
    """Three replicas, to be changed."""
    (tmp_path / "nodes").mkdir()
    return Cluster(replicate(copies([made.directory], tmp_path / "nodes")[0]))


def change_due(cluster: Cluster, by_ms: int, is_there: Callable[[int], bool]) -> tuple[int, int]:
    """(sequence, new due time) of a message whose due time is another one on all replicas."""
    for batch in cluster.of(Kind.PUBLISH):
        for at, due_ms in enumerate(batch.due_ms.tolist()):
            sequence = batch.header.base_sequence + at
            if is_there(sequence) and due_ms > batch.header.store_ms + 5_000:
                due = batch.due_ms.copy()
                due[at] += by_ms
                place = Stamp(*batch.header[6:11])
                head, payload = stamp(batch, place, due_ms=due, topic_queue=batch.topic_queue)
                cluster.put(batch, head + bytes(payload))
                return sequence, due_ms + by_ms
    raise AssertionError("no such message")


def audited(cluster: Cluster) -> AuditResult:
    return run_audit(*cluster.nodes)


@pytest.mark.parametrize("by_ms", [1, 3_000, DAY_MS, -4_000, -60_000])
def test_changed_due_time_is_named_first_and_all_else_follows(cluster: Cluster, by_ms: int) -> None:
    sequence, due_ms = change_due(cluster, by_ms, cluster.model.released.__contains__)
    first, *rest = errors_of(audited(cluster))
    assert (first.check, first.sequence, first.due_ms) == ("message-changed", sequence, due_ms)
    assert f"due {exact_instant_text(due_ms)} by the log" in first.detail
    assert f"{exact_instant_text(due_ms - by_ms)} by the views of all 3 replicas" in first.detail
    assert rest
    assert {one.cause for one in rest if one.sequence == sequence} == {
        f"message-changed of sequence {sequence}"
    }
    assert all(one.cause for one in rest if one.check in SUM_CHECKS | {"queue-order"})


def test_changed_due_time_of_what_waits_is_named(cluster: Cluster) -> None:
    pending = {one.sequence for one in cluster.model.pending if one.attempt == 1}
    sequence, _ = change_due(cluster, 60_000, pending.__contains__)
    first, *rest = errors_of(audited(cluster))
    assert (first.check, first.sequence) == ("message-changed", sequence)
    assert all(one.cause for one in rest)
    assert {one.check for one in rest} == {"wheel-missing", "wheel-extra", "sequence-wrong"}


@pytest.mark.parametrize("field", ["sequence", "due_ms", "epoch"])
def test_changed_cancel_is_named_by_its_own_record(cluster: Cluster, field: str) -> None:
    for batch in cluster.of(Kind.CANCEL):
        rows = batch.rows.copy()
        at = next(
            (n for n, one in enumerate(rows) if int(one["sequence"]) in cluster.model.cancelled), -1
        )
        if at >= 0:
            break
    sequence = int(rows["sequence"][at])
    rows[field][at] += 1
    cluster.put(batch, with_rows(batch, rows))
    first, *rest = errors_of(audited(cluster))
    assert (first.check, first.offset) == ("cancel-changed", batch.header.offset)
    assert first.sequence == sequence
    assert f"it names sequence {int(rows['sequence'][at])}, due " in first.detail
    assert rest
    assert all(one.cause == f"cancel-changed of sequence {sequence}" for one in rest if one.node)


def test_entry_that_all_replicas_lost_blames_no_record(cluster: Cluster) -> None:
    drop_entry(cluster, random.Random(3), everywhere=True)
    found = errors_of(audited(cluster))
    assert {one.check for one in found} == {"queue-missing"}
    assert all(one.cause == "" for one in found)


def test_one_replica_is_one_word_against_the_log(made: Made, tmp_path: Path) -> None:
    cluster = Cluster(copies([made.directory], tmp_path))
    change_due(cluster, 3_000, cluster.model.released.__contains__)
    found = errors_of(audited(cluster))
    assert found
    assert not any(one.check.endswith("-changed") for one in found)


def test_counts_of_a_checkpoint_follow_from_what_its_node_has_wrong() -> None:
    lost = Finding("error", "queue-missing", 0, "node-1", sequence=7)
    sums = [Finding("error", "checkpoint", 0, node) for node in ("node-1", "node-2")]
    hint = Finding("info", "dead-letter", 0, "", sequence=7)
    causes = [one.cause for one in with_causes([*sums, lost, hint])]
    assert causes == ["queue-missing of sequence 7", "", "", ""]


def test_retries_and_acknowledgements_follow_from_a_message_that_moved_them() -> None:
    cause = Finding("error", "message-changed", 0, "", offset=64, sequence=3)
    moved = (
        Finding("error", "queue-missing", 0, "node-1", sequence=9, topic="%RETRY%billing"),
        Finding("error", "ack-early", 0, "", offset=128, position=4, topic="orders"),
        Finding("error", "dispatch-check", 0, "", offset=256),
    )
    own = Finding("error", "queue-missing", 0, "node-1", sequence=9, topic="orders")
    found = with_causes([*moved, own, cause])
    assert [one.cause for one in found] == ["message-changed of sequence 3"] * 3 + ["", ""]


def test_what_a_checkpoint_has_resolved_follows_from_a_wrong_resolve(cluster: Cluster) -> None:
    (wanted,) = FAULTS["ack of nothing"](cluster, random.Random(4))
    first, *rest = errors_of(audited(cluster))
    assert (first.check, first.offset, first.cause) == (wanted.check, wanted.offset, "")
    assert {one.check for one in rest} == {"checkpoint"}
    assert {one.cause for one in rest} == {f"ack-undelivered at offset {wanted.offset}"}


def test_wrong_bytes_that_several_point_to_are_told_once() -> None:
    where = "the 9 bytes at 64 of a.dlog are not its message's, by their CRC32C"
    found = [
        Finding(
            "error", "body-wrong", 0, "a", sequence=7, detail=f"queue 00000100, pending: {where}"
        ),
        Finding(
            "error", "body-wrong", 0, "a", sequence=7, detail=f"queue 00000300, pending: {where}"
        ),
        Finding(
            "error", "body-wrong", 0, "b", sequence=7, detail=f"queue 00000300, pending: {where}"
        ),
    ]
    assert [one.cause for one in with_causes(found)] == ["", "body-wrong of sequence 7", ""]
    first = Finding("error", "message-corrupt", 0, "a", sequence=7)
    assert {one.cause for one in with_causes([first, *found])[1:]} == {
        "message-corrupt of sequence 7"
    }
