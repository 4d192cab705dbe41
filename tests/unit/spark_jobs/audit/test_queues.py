"""What an entry too much is called depends on what the log says about its message."""

import pytest

from spark_jobs.audit.checks.catalog import Timeline
from spark_jobs.audit.checks.entries import EntryDiff, Odd, Place, Wrong
from spark_jobs.audit.queues import chunk_findings, queue_findings
from spark_jobs.audit.steps import Known
from spark_jobs.logs.block_table import Damage

PLACE = Place("n", 256)
ODD = Odd(7, 1, 3, -1, 5, "f")


def known(state: str, *, end: int = 100, topic_queue: int = 256) -> dict[int, Known]:
    return {7: Known(7, state, 0, end, 5, 1, topic_queue)}


@pytest.mark.parametrize(
    ("found", "check"),
    [
        ({}, "queue-unknown"),
        (known("void"), "queue-void"),
        (known("discarded"), "queue-void"),
        (known("cancelled"), "queue-cancelled"),
        (known("cancelled", end=5_000), "queue-early"),
        (known("pending", end=-1), "queue-early"),
        (known("released", end=5_000), "queue-early"),
        (known("released", topic_queue=512), "queue-misplaced"),
        (known("released"), "queue-doubled"),
        (known("released at once"), "queue-doubled"),
    ],
)
def test_entry_too_much_is_named_by_its_message(found: dict[int, Known], check: str) -> None:
    diffs = {PLACE: EntryDiff(extra=[ODD])}
    (one,) = queue_findings(diffs, {"n": 1_000}, Timeline(), 0, lambda _: found)
    assert (one.check, one.sequence, one.position, one.node) == (check, 7, 3, "n")


def test_entry_when_it_is_missing_or_wrong_is_told_without_a_look() -> None:
    wrong = Wrong("queue-fields", 9, 4, 6, "f", "why")
    diffs = {PLACE: EntryDiff(missing=[ODD._replace(offset=80)], wrong=[wrong], uncounted=3)}
    found = queue_findings(diffs, {"n": 1_000}, Timeline(), 0, lambda _: pytest.fail("a look"))
    assert [(one.check, one.sequence) for one in found] == [
        ("queue-missing", 7),
        ("queue-fields", 9),
        ("queue-missing", -1),
    ]


def test_chunk_is_told_once() -> None:
    damage = Damage("n", 0, "f", -1, 0, "corrupt-file", "why")
    assert len(chunk_findings([damage, damage, damage._replace(file="g")], 0)) == 2
