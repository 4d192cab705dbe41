"""Who is marked as cancelled is whom the log has cancelled."""

import asyncio
import random
from pathlib import Path

from tests.support.audit_runs import checks_of, errors_of, run_audit
from tests.support.audited import copied, only_copy
from tests.support.broken_logs import lose_beginning
from tests.support.log_edits import EDITS, turn_mark
from tests.support.log_maker import Made, make_log


def test_mark_too_much_is_told_with_what_the_log_says(made: Made, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    wanted = EDITS["tombstone marked: released"](node, random.Random(1))
    (found,) = errors_of(run_audit(node))
    assert (found.check, found.sequence) == ("tombstone-wrong", wanted.sequence)
    assert "is marked as cancelled, and by the log it is released" in found.detail
    assert found.due_ms == made.accepted[wanted.sequence][1]


def test_mark_that_loses_a_message_is_the_cause(made: Made, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    wanted = EDITS["tombstone marked: pending"](node, random.Random(1))
    first, second = errors_of(run_audit(node))
    assert (first.check, first.cause) == ("tombstone-wrong", "")
    assert (second.check, second.sequence) == ("wheel-missing", wanted.sequence)
    assert second.cause == f"tombstone-wrong of sequence {wanted.sequence}"


def test_mark_of_a_sequence_that_never_was_is_told(made: Made, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    turn_mark(node, 60_000)
    (found,) = errors_of(run_audit(node))
    assert "the log has no such one" in found.detail


def test_file_when_no_run_needs_it_is_damaged_all_the_same(made: Made, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    (path,) = (node / "shard-0" / "tombstones").glob("*.tomb")
    path.write_bytes(path.read_bytes()[:-1])
    result = run_audit(node)
    assert [(one.check, one.file) for one in errors_of(result)] == [
        ("wheel-damaged", str(path.relative_to(node)))
    ]


def test_marks_of_messages_that_the_log_no_longer_has_are_not_judged(tmp_path: Path) -> None:
    node = tmp_path / "node-1"
    asyncio.run(make_log(node, seed=5))
    lose_beginning(node)
    assert checks_of(run_audit(node)) == set()
    _, copy = only_copy(node)
    turn_mark(node, 0)
    assert checks_of(run_audit(node)) == set()
    assert copy.manifest is not None
    turn_mark(node, copy.manifest.next_sequence - 1)
    assert "tombstone-wrong" in checks_of(run_audit(node))
