"""What is broken in queues, in the wheel or in a checkpoint is named by the whole audit."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hourwheel.internal.v1.state_pb2 import Checkpoint
from spark_jobs.audit.facts.findings import Made
from spark_jobs.audit.facts.result import AuditResult, Verdict
from storage.queues.queue_chunk import ENTRIES_AT, NO_ENTRIES, SEAL_BYTES, pack_seal, seal_position
from storage.views.unit import UNIT, Units
from tests.support.audit_runs import QUEUE, checks_of, errors_of, facts_of, run_audit
from tests.support.audited import copied
from tests.support.broken_logs import (
    edit_manifest,
    read_queue,
    rewrite_log,
    rewrite_queue,
)
from tests.support.log_maker import Made as MadeLog
from tests.support.log_maker import replicate

# --- queues ---------------------------------------------------------------------------------------


def broken_queue(
    made: MadeLog, tmp_path: Path, change: Callable[[Units], Units]
) -> tuple[AuditResult, Units]:
    node = copied(made.directory, tmp_path)
    before = read_queue(node, QUEUE)
    rewrite_queue(node, QUEUE, change(before.copy()))
    return run_audit(node), before


@pytest.mark.parametrize("at", [0, 17, -1], ids=["first", "inside", "last"])
def test_entry_when_it_is_missing_is_named(made: MadeLog, tmp_path: Path, at: int) -> None:
    result, before = broken_queue(made, tmp_path, lambda units: np.delete(units, at))
    assert checks_of(result) == {"queue-missing"}
    (found,) = errors_of(result)
    assert found.sequence == int(before["sequence"][at])
    assert (found.node, found.topic) == ("node-1", "orders")
    assert found.position == range(len(before))[at]


@pytest.mark.parametrize("to", [3, 60, -1], ids=["before", "behind", "last"])
def test_entry_when_it_is_doubled_is_named(made: MadeLog, tmp_path: Path, to: int) -> None:
    result, before = broken_queue(
        made, tmp_path, lambda units: np.insert(units, range(len(units) + 1)[to], units[21])
    )
    assert "queue-doubled" in checks_of(result) <= {"queue-doubled", "queue-order"}
    assert facts_of(result, "queue-doubled") == {int(before["sequence"][21])}


def _unit_of(made: MadeLog, sequence: int) -> Units:
    unit = np.zeros(1, UNIT)
    unit["sequence"], unit["due_ms"] = sequence, made.accepted[sequence][1]
    unit["topic_queue"], unit["origin_topic"], unit["attempt"] = QUEUE, 1, 1
    return unit


def test_entry_when_its_message_was_cancelled_is_named(made: MadeLog, tmp_path: Path) -> None:
    sequence = min(one for one in made.cancelled if made.accepted[one][0] == "orders")
    result, _ = broken_queue(
        made, tmp_path, lambda units: np.insert(units, 5, _unit_of(made, sequence))
    )
    assert checks_of(result) == {"queue-cancelled"}
    assert facts_of(result, "queue-cancelled") == {sequence}
    assert errors_of(result)[0].position == 5


def test_entry_when_its_message_is_pending_is_early(made: MadeLog, tmp_path: Path) -> None:
    waiting = made.accepted.keys() - made.released - made.cancelled
    sequence = min(one for one in waiting if made.accepted[one][0] == "orders")
    result, _ = broken_queue(
        made, tmp_path, lambda units: np.append(units, _unit_of(made, sequence))
    )
    assert checks_of(result) == {"queue-early"}
    assert facts_of(result, "queue-early") == {sequence}


def test_entry_when_nobody_published_it_is_named(made: MadeLog, tmp_path: Path) -> None:
    def add(units: Units) -> Units:
        units = np.append(units, units[-1:])
        units["sequence"][-1] = 1_000_000
        return units

    result, _ = broken_queue(made, tmp_path, add)
    assert facts_of(result, "queue-unknown") == {1_000_000}


def test_entry_when_a_field_is_wrong_is_named(made: MadeLog, tmp_path: Path) -> None:
    def change(units: Units) -> Units:
        units["due_ms"][30] += 1
        units["crc"][31] ^= 1
        return units

    result, before = broken_queue(made, tmp_path, change)
    assert checks_of(result) == {"queue-fields"}
    assert facts_of(result, "queue-fields") == set(before["sequence"][30:32].tolist())


def test_entries_when_two_changed_places_are_named(made: MadeLog, tmp_path: Path) -> None:
    def change(units: Units) -> Units:
        units[[40, 41]] = units[[41, 40]]
        return units

    result, _ = broken_queue(made, tmp_path, change)
    assert checks_of(result) == {"queue-order"}
    assert errors_of(result)[0].position in {40, 41}


def test_chunk_when_a_byte_is_flipped_is_named(made: MadeLog, tmp_path: Path) -> None:
    nodes = replicate(copied(made.directory, tmp_path))
    (path,) = (nodes[1] / "shard-0" / "queues" / f"{QUEUE:08x}").glob("*.cq")
    raw = bytearray(path.read_bytes())
    raw[256 + 64 * 3 + 20] ^= 1
    path.write_bytes(raw)
    result = run_audit(*nodes)
    (found,) = errors_of(result)
    assert (found.check, found.node) == ("queue-damaged", "node-2")
    assert found.file == f"shard-0/queues/{QUEUE:08x}/{path.name}"


def test_queue_when_it_is_gone_is_missing_all(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    before = read_queue(node, QUEUE)

    def forget(manifest: Checkpoint) -> None:
        kept = [one for one in manifest.queues if one.topic_queue != QUEUE]
        del manifest.queues[:]
        manifest.queues.extend(kept)

    edit_manifest(node, forget)
    result = run_audit(node)
    assert checks_of(result) == {"queue-missing"}
    assert facts_of(result, "queue-missing") == set(before["sequence"].tolist())


def test_queue_when_it_is_trimmed_without_a_record_is_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)

    def trim(manifest: Checkpoint) -> None:
        next(one for one in manifest.queues if one.topic_queue == QUEUE).start_position = 4

    edit_manifest(node, trim)
    assert checks_of(run_audit(node)) == {"queue-trimmed"}


# --- the wheel and the checkpoint -----------------------------------------------------------------


def test_pending_message_when_the_wheel_lost_it_is_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)

    def forget(manifest: Checkpoint) -> None:
        del manifest.runs[0]

    edit_manifest(node, forget)
    result = run_audit(node)
    assert checks_of(result) == {"wheel-missing"}
    waiting = made.accepted.keys() - made.released - made.cancelled
    lost = facts_of(result, "wheel-missing")
    assert lost
    assert lost <= waiting | made.released  # a retry is of a message that was released


def test_wheel_when_a_cancel_is_forgotten_holds_too_much(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)

    def forget(manifest: Checkpoint) -> None:
        manifest.tombstone_file = manifest.tombstone_bytes = 0

    edit_manifest(node, forget)
    result = run_audit(node)
    assert checks_of(result) == {"tombstone-wrong", "wheel-extra"}
    assert facts_of(result, "tombstone-wrong") == made.cancelled
    assert facts_of(result, "wheel-extra") <= made.cancelled
    assert all(one.cause for one in errors_of(result) if one.check == "wheel-extra")


def test_run_when_it_is_damaged_is_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    path = max((node / "shard-0" / "wheel").glob("*.run"), key=lambda one: one.stat().st_size)
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    result = run_audit(node)
    assert checks_of(result) == {"wheel-damaged"}
    assert errors_of(result)[0].file.endswith(path.name)
    assert any(one.made is Made.NOT_MADE and one.area == "wheel" for one in result.checks)


def test_checkpoint_when_its_counts_are_wrong_is_named(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)

    def change(manifest: Checkpoint) -> None:
        manifest.cursor.released_count += 1

    edit_manifest(node, change)
    assert checks_of(run_audit(node)) == {"checkpoint"}


# --- queues of a node that has no checkpoint ------------------------------------------------------


def forgetful(made: MadeLog, tmp_path: Path, change: Callable[[Units], Units]) -> AuditResult:
    """The audit of a node that lost its checkpoint, and has a queue that was changed."""
    node = copied(made.directory, tmp_path)
    rewrite_queue(node, QUEUE, change(read_queue(node, QUEUE)))
    (node / "shard-0" / "checkpoint").unlink()
    return run_audit(node)


def unchanged(units: Units) -> Units:
    return units


def shorter(units: Units) -> Units:
    return units[:40]


def with_seal(node: Path, entry_count: int, *, slot: int = 0, other: bool = False) -> Path:
    """Let a slot have a seal over the first entries, and the other slot none, or what it has."""
    (path,) = (node / "shard-0" / "queues" / f"{QUEUE:08x}").glob("*.cq")
    raw = bytearray(path.read_bytes())
    units = np.frombuffer(raw[ENTRIES_AT:], UNIT)[:entry_count]
    if not other:
        raw[seal_position(0) : seal_position(2)] = bytes(2 * SEAL_BYTES)
    seal = pack_seal(NO_ENTRIES.extended(units), QUEUE)
    raw[seal_position(slot) : seal_position(slot + 1)] = seal
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("change", [unchanged, shorter])
def test_queues_when_there_is_no_checkpoint_are_compared_by_their_seals(
    made: MadeLog, tmp_path: Path, change: Callable[[Units], Units]
) -> None:
    result = forgetful(made, tmp_path, change)
    assert errors_of(result) == []
    assert result.verdict is Verdict.INCOMPLETE
    assert result.verdict.exit_code == 2
    (left,) = [one for one in result.left_out if one.area == "queues"]
    assert left.limit == "checkpoint-missing"
    seen = result.shards[0].replicas[0].queue_entries
    whole = run_audit(made.directory).shards[0].replicas[0].queue_entries
    count = len(read_queue(made.directory, QUEUE))
    assert seen == (whole if change is unchanged else whole - count + 40)
    assert f"; {seen:,} entries" in left.reason
    assert f"of {whole - seen:,} more" in left.reason


def change_due(units: Units) -> Units:
    units["due_ms"][30] += 1
    return units


def change_crc(units: Units) -> Units:
    units["crc"][30] ^= 1
    return units


def change_place(units: Units) -> Units:
    units["dlog_id"][30], units["position"][30] = 0, 8
    return units


def change_sequence(units: Units) -> Units:
    units["sequence"][30] = 1_000_000
    return units


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        (change_due, {"queue-fields"}),
        (change_crc, {"queue-fields"}),
        (change_place, {"body-wrong"}),
        (change_sequence, {"queue-missing", "queue-unknown"}),
        (lambda units: np.delete(units, 30), {"queue-missing"}),
        (lambda units: np.insert(units, 31, units[30]), {"queue-doubled"}),
    ],
    ids=["due", "crc", "place", "sequence", "lost", "doubled"],
)
def test_entry_when_there_is_no_checkpoint_and_it_is_wrong_is_named(
    made: MadeLog, tmp_path: Path, change: Callable[[Units], Units], checks: set[str]
) -> None:
    sequence = int(read_queue(made.directory, QUEUE)["sequence"][30])
    result = forgetful(made, tmp_path, change)
    assert checks_of(result) == checks
    assert {one.sequence for one in errors_of(result)} <= {sequence, 1_000_000}
    assert all(one.position in {30, 31} for one in errors_of(result))
    assert result.verdict.exit_code == 1


def test_entries_when_no_seal_is_over_them_are_not_read(made: MadeLog, tmp_path: Path) -> None:
    """A node that runs stores entries, and seals them at its next checkpoint."""
    node = copied(made.directory, tmp_path)
    path = with_seal(node, 10)
    raw = bytearray(path.read_bytes())
    raw[ENTRIES_AT + 10 * UNIT.itemsize :] = bytes(len(raw) - ENTRIES_AT - 10 * UNIT.itemsize)
    path.write_bytes(raw)
    (node / "shard-0" / "checkpoint").unlink()
    assert errors_of(run_audit(node)) == []


def test_entries_when_the_log_was_copied_before_them_are_not_too_many(
    made: MadeLog, tmp_path: Path
) -> None:
    node = copied(made.directory, tmp_path)
    rewrite_log(node, lambda batches: batches[: len(batches) // 2])
    queues = Path("shard-0", "queues")
    shutil.copytree(made.directory / queues, node / queues, dirs_exist_ok=True)
    result = run_audit(node)
    assert errors_of(result) == []
    assert result.shards[0].replicas[0].queue_entries > 0


def test_chunk_when_there_is_no_checkpoint_and_no_seal_holds_is_named(
    made: MadeLog, tmp_path: Path
) -> None:
    node = copied(made.directory, tmp_path)
    (node / "shard-0" / "checkpoint").unlink()
    path = with_seal(node, 40)
    raw = bytearray(path.read_bytes())
    raw[ENTRIES_AT + 64 * 3 + 20] ^= 1
    path.write_bytes(raw)
    result = run_audit(node)
    (found,) = errors_of(result)
    assert (found.check, found.node) == ("queue-damaged", "node-1")
    assert found.file == f"shard-0/queues/{QUEUE:08x}/{path.name}"
    assert {one.limit for one in result.left_out if one.area == "queues"} == {
        "checkpoint-missing",
        "file-unread",
    }


def test_chunk_when_only_its_longer_seal_fails_is_read_up_to_the_other(
    made: MadeLog, tmp_path: Path
) -> None:
    """A checkpoint that a crash cut off leaves such a seal."""
    node = copied(made.directory, tmp_path)
    (node / "shard-0" / "checkpoint").unlink()
    with_seal(node, 60)
    path = with_seal(node, 40, slot=1, other=True)
    raw = bytearray(path.read_bytes())
    raw[ENTRIES_AT + 64 * 50 + 20] ^= 1
    path.write_bytes(raw)
    result = run_audit(node)
    assert errors_of(result) == []
    assert result.verdict is Verdict.INCOMPLETE
    (odd,) = [one for one in result.findings if one.check == "queue-damaged"]
    assert odd.severity == "warning"
    assert "entries 40 to 60" in odd.detail
