"""Sequence indexes are held against the log, message by message; what is not is said."""

import asyncio
import random
from pathlib import Path

from spark_jobs.audit.facts.findings import Made
from spark_jobs.audit.sequences import RestTask, verify_rest
from spark_jobs.logs.sequence_reader import plan_index
from tests.support.audit_runs import checks_of, errors_of, run_audit
from tests.support.audited import copied, only_copy
from tests.support.broken_logs import edit_manifest, lose_beginning
from tests.support.log_edits import EDITS
from tests.support.log_maker import Made as MadeLog
from tests.support.log_maker import make_log


def test_index_of_a_right_log_is_checked_in_full(made: MadeLog) -> None:
    (found,) = [one for one in run_audit(made.directory).checks if one.area == "sequences"]
    assert (found.made, found.node) == (Made.FULL, "node-1")


def test_wrong_entry_is_told_in_words(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    wanted = EDITS["index: state"](node, random.Random(1))
    (found,) = errors_of(run_audit(node))
    assert (found.check, found.sequence) == ("sequence-wrong", wanted.sequence)
    assert found.detail.startswith("by the sequence index it is ")
    assert "; by the log " in found.detail
    assert found.topic


def test_index_when_a_file_is_missing_is_damaged_and_not_checked(
    made: MadeLog, tmp_path: Path
) -> None:
    node = copied(made.directory, tmp_path)
    EDITS["index: no tail"](node, random.Random(1))
    result = run_audit(node)
    assert checks_of(result) == {"sequence-damaged"}
    assert {one.limit for one in result.checks if one.area == "sequences"} == {"file-unread"}


def test_entries_that_a_trimmed_log_tells_nothing_about_are_read(tmp_path: Path) -> None:
    node = tmp_path / "node-1"
    asyncio.run(make_log(node, seed=5))
    lose_beginning(node)
    result = run_audit(node)
    assert checks_of(result) == set()
    assert {one.limit for one in result.checks if one.area == "sequences"} == {"log-trimmed"}
    path = node / "shard-0" / "sequences" / f"{0:012}.seq"
    raw = bytearray(path.read_bytes())
    raw[70] ^= 1  # of a message that is in no log any more
    path.write_bytes(raw)
    assert checks_of(run_audit(node)) == {"sequence-damaged"}


def test_rest_is_read_up_to_its_end(made: MadeLog, tmp_path: Path) -> None:
    node = copied(made.directory, tmp_path)
    replica, copy = only_copy(node)
    assert copy.manifest is not None
    index = plan_index(replica, copy, copy.manifest)
    assert verify_rest(RestTask(index, 0, index.entry_count)).faults == []
    (node / index.path_of(index.entry_count - 1)).unlink()
    assert len(verify_rest(RestTask(index, 0, index.entry_count)).faults) == 1
    assert verify_rest(RestTask(index, 0, 100)).faults == []


def test_entries_that_the_checkpoint_does_not_count_are_told_by_it(
    made: MadeLog, tmp_path: Path
) -> None:
    node = copied(made.directory, tmp_path)
    edit_manifest(node, lambda manifest: setattr(manifest, "sequence_index_count", 5))
    assert checks_of(run_audit(node)) == {"checkpoint"}
