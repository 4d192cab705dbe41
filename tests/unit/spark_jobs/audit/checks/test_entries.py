"""Entries are compared position by position, and what differs is told apart."""

import itertools
from typing import Any

import numpy as np
import pytest

from spark_jobs.audit.checks.entries import EntryDiff, Piece, compare, settle
from spark_jobs.audit.checks.ledger import RELEASE
from spark_jobs.audit.checks.releases import Slice
from spark_jobs.audit.facts.sums import hash_units
from storage.views.unit import UNIT

QUEUE = 256


def entries(count: int) -> Any:
    units = np.zeros(count, UNIT)
    units["sequence"] = 1_000 + np.arange(count)
    units["due_ms"], units["store_ms"] = np.arange(count), 3
    units["topic_queue"], units["origin_topic"], units["attempt"] = QUEUE, 1, 1
    units["crc"] = np.arange(count) * 7
    return units


def rows_of(units: Any) -> Any:
    rows = np.zeros(len(units), RELEASE)
    for name in ("sequence", "due_ms", "store_ms", "topic_queue"):
        rows[name] = units[name]
    rows["offset"], rows["place"] = 80, units["position"]
    rows["facts"] = hash_units(
        units["tag_gene"], units["crc"], units["body_len"], units["meta_len"]
    )
    return rows


def compared(
    wanted: Any, found: Any, *, parts: int = 1, log_start: int = 0, is_open: bool = False
) -> EntryDiff:
    """Compare in so many stretches, each in chunks of 8 entries."""
    diff = EntryDiff()
    rows = rows_of(wanted)
    cuts = np.linspace(0, len(rows), parts + 1).astype(int).tolist()
    for low, high in itertools.pairwise(cuts):
        ends = [*range(low + 8 - low % 8, min(high, len(found)), 8), min(high, len(found))]
        pieces, at = [], low
        for end in ends:
            if at < end:
                pieces.append(Piece(at, end - at, found[at:end], "f"))
                at = end
        if len(found) < high:
            pieces.append(Piece(max(low, len(found)), high - max(low, len(found)), found[:0], "f"))
        diff.merge(compare(Slice(QUEUE, low, rows[low:high]), pieces, log_start))
    if len(found) > len(wanted):
        rest = Piece(len(wanted), len(found) - len(wanted), found[len(wanted) :], "f")
        diff.merge(compare(Slice(QUEUE, len(wanted), rows[:0]), [rest], log_start))
    return settle(diff, is_open=is_open)


@pytest.mark.parametrize("parts", [1, 4])
def test_entries_when_they_are_right_differ_in_nothing(parts: int) -> None:
    units = entries(40)
    diff = compared(units, units, parts=parts)
    assert diff.is_equal
    assert diff.compared == 40


@pytest.mark.parametrize("at", [0, 11, 39])
@pytest.mark.parametrize("parts", [1, 5])
def test_entry_when_it_is_lost_is_the_only_one(at: int, parts: int) -> None:
    units = entries(40)
    diff = compared(units, np.delete(units, at), parts=parts)
    assert [(one.sequence, one.position) for one in diff.missing] == [(1_000 + at, at)]
    assert not diff.extra
    assert not diff.wrong


@pytest.mark.parametrize("at", [0, 11, 40])
@pytest.mark.parametrize("parts", [1, 5])
def test_entry_when_it_is_too_much_is_the_only_one(at: int, parts: int) -> None:
    units = entries(40)
    foreign = units[:1].copy()
    foreign["sequence"] = 7
    diff = compared(units, np.insert(units, at, foreign), parts=parts)
    assert [(one.sequence, one.position) for one in diff.extra] == [(7, at)]
    assert not diff.missing
    assert not diff.wrong


def test_entry_when_it_is_doubled_is_too_much_once() -> None:
    units = entries(40)
    diff = compared(units, np.insert(units, 12, units[11]), parts=3)
    assert [one.sequence for one in diff.extra] == [1_011]


def test_entry_when_a_later_attempt_stands_in_its_place_is_missing() -> None:
    units = entries(10)
    changed = units.copy()
    changed["attempt"][4] = 2
    diff = compared(units, changed)
    assert [one.check for one in diff.wrong] == ["queue-fields"]


@pytest.mark.parametrize(
    "name", ["due_ms", "store_ms", "topic_queue", "origin_topic", "crc", "tag_gene", "body_len"]
)
def test_field_when_it_is_wrong_names_its_entry(name: str) -> None:
    units = entries(20)
    changed = units.copy()
    changed[name][13] += 1
    diff = compared(units, changed)
    assert [(one.check, one.sequence, one.position) for one in diff.wrong] == [
        ("queue-fields", 1_013, 13)
    ]


def test_entries_when_two_changed_places_are_out_of_order() -> None:
    units = entries(20)
    changed = units.copy()
    changed[[3, 4]] = changed[[4, 3]]
    diff = compared(units, changed)
    assert [one.check for one in diff.wrong] == ["queue-order"]
    assert not diff.missing
    assert not diff.extra


def test_entries_when_their_bytes_are_gone_are_named() -> None:
    units = entries(4)
    units["position"] = (0, 500, 1_000, 0)
    units["dlog_id"] = (0, 0, 0, 3)
    diff = compared(units, units, log_start=800)
    assert [(one.check, one.position) for one in diff.wrong] == [("body-lost", 0), ("body-lost", 1)]


def test_entries_when_a_chunk_cannot_be_read_are_left_out() -> None:
    units = entries(16)
    rows = rows_of(units)
    diff = compare(Slice(QUEUE, 0, rows), [Piece(8, 8, units[8:], "f")], 0)
    assert diff.is_equal
    assert diff.compared == 8


@pytest.mark.parametrize("at", [0, 11, 27])
@pytest.mark.parametrize("parts", [1, 5])
def test_entry_when_nobody_knows_what_follows_is_the_only_one(at: int, parts: int) -> None:
    """Thirty of forty entries were read: what is too much pushes the last one out of sight."""
    units = entries(40)
    doubled = np.insert(units, at + 1, units[at])[:30]
    diff = compared(units[:30], doubled, parts=parts, is_open=True)
    assert [one.sequence for one in diff.extra] == [1_000 + at]
    assert not diff.missing
    diff = compared(units[:30], np.delete(units, at)[:30], parts=parts, is_open=True)
    assert [one.sequence for one in diff.missing] == [1_000 + at]
    assert not diff.extra
    assert not diff.wrong
