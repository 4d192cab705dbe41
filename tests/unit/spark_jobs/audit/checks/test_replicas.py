"""Replicas: who is right, who is behind, and from whom the audited log is taken."""

from dataclasses import replace

import numpy as np

from spark_jobs.audit.checks.replicas import (
    Batches,
    NodeLog,
    Span,
    check_lengths,
    common_end,
    compare,
    is_hole,
    put_together,
)
from spark_jobs.audit.facts.scan import BLOCK
from spark_jobs.logs.replica import SegmentFile, ShardCopy

END = 4_000


def log(node: str, *, end: int = END, known: int | None = END, batches: str = "aaaa") -> NodeLog:
    """A log of four batches of 1,000 bytes; letters say which bytes each has, `-` none."""
    copy = ShardCopy(0, "shard-0", (SegmentFile("p", 0, end, False),), high_watermark=known)
    found = NodeLog(node, copy)
    for at, letter in enumerate(batches):
        if letter != "-" and 1_000 * (at + 1) <= end:
            begin = 1_000 * at
            if found.spans and found.spans[-1].to_offset == begin:
                found.spans[-1] = found.spans[-1]._replace(to_offset=begin + 1_000)
            else:
                found.spans.append(Span(node, "p", begin, begin + 1_000))
    found.blocks = np.zeros(1, BLOCK)
    found.blocks["sum_a"] = hash(batches[: end // 1_000]) & 0xFFFF
    found.blocks["batches"] = len(batches)
    return found


def reader(**batches: str):
    def read(node: str, begin: int, end: int) -> Batches:
        chosen = [
            (1_000 * at, letter)
            for at, letter in enumerate(batches[node])
            if letter != "-" and begin <= 1_000 * at < end
        ]
        offsets = np.array([offset for offset, _ in chosen], np.uint64)
        digests = [letter.encode() for _, letter in chosen]
        return Batches(offsets, offsets + np.uint64(1_000), digests, ["p"] * len(chosen))

    return read


def test_replica_when_it_differs_from_two_is_named() -> None:
    said = {"a": "aaaa", "b": "abaa", "c": "aaaa"}
    logs = [log(node, batches=each) for node, each in said.items()]
    found = compare(logs, "b", END, 0, reader(**said))
    assert [(one.check, one.node, one.offset) for one in found.findings] == [
        ("replica-diverges", "b", 1_000)
    ]
    assert found.diverges_at == {"b": 1_000}
    spans, begin, end = put_together(logs, "b", found.bad)
    assert (begin, end) == (0, END)
    assert [(one.node, one.from_offset, one.to_offset) for one in spans] == [
        ("b", 0, 1_000),
        ("a", 1_000, END),
    ]


def test_two_replicas_when_they_differ_believe_the_base() -> None:
    said = {"a": "aaaa", "b": "aaba"}
    logs = [log(node, batches=each) for node, each in said.items()]
    found = compare(logs, "b", END, 0, reader(**said))
    assert [one.node for one in found.findings] == ["a"]


def test_tail_when_it_was_never_committed_is_information() -> None:
    said = {"a": "axxx", "b": "aaaa", "c": "aaaa"}
    logs = [
        log("a", known=1_000, batches=said["a"]),
        log("b", batches=said["b"]),
        log("c", known=2_000, batches=said["c"]),
    ]
    found = compare(logs, "a", END, 0, reader(**said))
    assert [(one.severity, one.check, one.node, one.offset) for one in found.findings] == [
        ("info", "replica-uncommitted", "a", 1_000)
    ]
    spans, _, end = put_together(logs, "a", found.bad)
    assert end == END
    assert [(one.node, one.to_offset) for one in spans] == [("a", 1_000), ("b", END)]
    assert check_lengths(logs, END, 0) == []


def test_log_when_a_part_is_missing_is_taken_from_another() -> None:
    logs = [log("a", batches="aa-a"), log("b", batches="-aaa")]
    spans, begin, end = put_together(logs, "b", {})
    assert (begin, end) == (0, END)
    assert [(one.node, one.from_offset, one.to_offset) for one in spans] == [
        ("a", 0, 2_000),
        ("b", 2_000, END),
    ]


def test_log_when_nobody_has_a_part_ends_there() -> None:
    logs = [log("a", batches="aa-a"), log("b", batches="aa-a")]
    assert put_together(logs, "a", {})[2] == 2_000


def begun_at(start: int, node: str) -> NodeLog:
    """A log that was trimmed."""
    found = log(node)
    segments = (SegmentFile("p", start, END, has_index=False),)
    return replace(
        found,
        copy=replace(found.copy, segments=segments),
        spans=[Span(node, "p", start, END)],
    )


def test_log_when_one_node_was_away_until_the_others_trimmed_theirs_begins_with_theirs() -> None:
    away = log("a", end=1_000)
    spans, begin, end = put_together([away, begun_at(2_000, "b"), begun_at(3_000, "c")], "c", {})
    assert (begin, end) == (2_000, END)
    assert spans == [Span("b", "p", 2_000, END)]
    # If one of them has something before the gap as well, it has lost what lies between.
    gap = log("a", batches="a-aa")
    assert put_together([gap, begun_at(2_000, "b")], "b", {})[1:] == (0, 1_000)


def test_end_when_nobody_was_to_have_more_is_no_hole() -> None:
    assert not is_hole([log("a", end=2_000, known=END)], 2_000)
    assert is_hole([log("a", batches="aa-a")], 2_000)
    short = log("a", end=2_000)
    assert is_hole([replace(short, copy=replace(short.copy, flushed_offset=3_000))], 2_000)


def test_end_is_the_highest_that_anyone_knows() -> None:
    logs = [log("a", known=3_000), log("b", known=2_000)]
    assert common_end(logs) == 3_000
    assert common_end([log("a", known=None)]) == END
    found = check_lengths([log("a"), log("b", end=2_000)], 3_000, 0)
    assert [(one.check, one.node, one.offset) for one in found] == [
        ("replica-uncommitted", "a", 3_000),
        ("replica-short", "b", 2_000),
    ]
