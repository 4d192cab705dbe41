"""What a filter picks out of a queue, in slices, and what stops it."""

from typing import cast

import numpy as np
import pytest

from filters.compile import compile_filter
from filters.long_check import LongCheck
from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GENE_UNKNOWN
from hourwheel.internal.v1.state_pb2 import QueueState
from hourwheel.v1 import meta_pb2
from node.delivery.filter_scan import (
    RANGE_WORK,
    READ_WORK,
    Counts,
    FilterScanner,
    LongChecks,
    ScanFilter,
    ScanResult,
)
from storage.files.file_header import Identity
from storage.queues.consume_queue import ConsumeQueue
from storage.views.unit import UNIT, Units
from tests.sim.disk import SimulatedDisk
from tests.support.engine_world import LONG_TEXT, SEARCHES
from timewheel.bodies import BadBlob, Bodies

CHUNK = 16
BODY = b"body"


class Shelf:
    """A queue of messages with tags, and what their blobs are."""

    def __init__(self, *tags: str, gene: int | None = None) -> None:
        self.queue = ConsumeQueue.open(
            SimulatedDisk(), "q", Identity(bytes(16), 0), QueueState(topic_queue=256), CHUNK
        )
        self.metas = [encode(MessageMeta(tags=tuple(text.split()))) for text in tags]
        units = np.zeros(len(tags), UNIT)
        units["sequence"] = np.arange(len(tags))
        units["meta_len"] = [len(meta.raw) for meta in self.metas]
        units["body_len"] = len(BODY)
        units["tag_gene"] = [meta.tag_gene if gene is None else gene for meta in self.metas]
        units["origin_topic"] = 1
        self.queue.append(units)
        self.bad: set[int] = set()
        self.read: list[int] = []
        self.counts = Counts()
        self.long_checks = LongChecks()

    def read_joined(self, units: Units, _rows: object = None) -> tuple[bytes, list[BadBlob]]:
        """As `Bodies`."""
        sequences = units["sequence"].tolist()
        self.read += sequences
        bad = [
            BadBlob(at, errors.DataLoss(str(one)))
            for at, one in enumerate(sequences)
            if one in self.bad
        ]
        raw = b"".join(self.metas[one].raw + BODY for one in sequences)
        return (b"" if bad else raw), bad

    def scan(
        self,
        text: str,
        *,
        masks: bool = True,
        checks: bool = True,
        bounds: tuple[int, int] | None = None,
        count_max: int = 1_000,
        bytes_max: int = 1 << 20,
        work: int | None = None,
    ) -> ScanResult:
        compiled = compile_filter(FilterExpression.tags(text), DEFAULT_SPEC)
        scanner = FilterScanner(cast(Bodies, self), self.counts, self.long_checks)
        if work is not None:
            scanner.work = work
        wanted = ScanFilter(compiled, masks=masks, checks=checks)
        span = bounds or (0, len(self.metas))
        return scanner.scan(self.queue, wanted, span, count_max=count_max, bytes_max=bytes_max)


def positions(picked: ScanResult) -> list[int]:
    return picked.joined()[0].tolist() if picked.count else []


def test_what_matches_is_picked_with_its_unit_and_its_bytes() -> None:
    shelf = Shelf(*["a", "b", "a b", "", "c"] * 8)
    picked = shelf.scan("a && !b")
    assert positions(picked) == list(range(0, 40, 5))
    assert picked.end == 40
    found, units, raw = picked.joined()
    assert units["sequence"].tolist() == found.tolist()
    assert raw == (shelf.metas[0].raw + BODY) * 8
    assert set(shelf.read) == {at for at in range(40) if at % 5 in {0, 2}}, (
        "the others are not read"
    )
    assert shelf.counts == Counts(masked=24, read=16, refused=8)


def test_everything_is_read_when_nobody_knows_the_genes() -> None:
    shelf = Shelf(*["a", "b"] * 20, gene=GENE_UNKNOWN)
    assert positions(shelf.scan("b")) == list(range(1, 40, 2))
    assert shelf.counts == Counts(masked=0, read=40, refused=20)


@pytest.mark.parametrize(("text", "matching"), [("!a", {1, 2}), ("a || !c", {0, 1})])
def test_everything_is_read_when_genes_cannot_tell(text: str, matching: set[int]) -> None:
    shelf = Shelf(*["a", "b", "c"] * 10)
    assert positions(shelf.scan(text)) == [at for at in range(30) if at % 3 in matching]
    assert shelf.counts.read == 30


def test_genes_are_not_looked_at_where_they_are_of_several_topics() -> None:
    shelf = Shelf(*["a", "b"] * 10, gene=0)
    assert positions(shelf.scan("a")) == [], "these genes are wrong"
    assert positions(shelf.scan("a", masks=False)) == list(range(0, 20, 2))


def test_what_the_mask_lets_through_is_picked_when_the_client_checks() -> None:
    shelf = Shelf(*["a", "b", ""] * 10, gene=GENE_UNKNOWN)
    assert positions(shelf.scan("a", checks=False)) == list(range(30))
    assert shelf.counts == Counts()


def test_as_many_are_picked_as_were_asked_for_and_what_follows_is_passed_over() -> None:
    shelf = Shelf(*["", "a", "", "", ""] * 8)
    picked = shelf.scan("a", count_max=2)
    assert (positions(picked), picked.end) == ([1, 6], 11)
    picked = shelf.scan("a", count_max=2, bounds=(11, 15))
    assert (positions(picked), picked.end) == ([11], 15)


def test_as_many_are_picked_as_fit_and_at_least_one() -> None:
    shelf = Shelf(*["a"] * 20)
    size = len(shelf.metas[0].raw) + len(BODY)
    for bytes_max, count in ((0, 1), (size, 1), (2 * size - 1, 1), (3 * size, 3)):
        picked = shelf.scan("a", bytes_max=bytes_max)
        assert (positions(picked), picked.end) == (list(range(count)), count)


def test_one_that_may_not_fit_is_left_for_the_next_call() -> None:
    shelf = Shelf("a", "b", "a", gene=GENE_UNKNOWN)
    size = len(shelf.metas[0].raw) + len(BODY)
    picked = shelf.scan("a", bytes_max=size)
    assert (positions(picked), picked.end) == ([0], 1)


def test_messages_of_two_topics_are_not_picked_together() -> None:
    shelf = Shelf(*["a"] * 6)
    units = shelf.queue.read(0, 6)
    units["origin_topic"] = [1, 1, 2, 2, 1, 1]
    shelf.queue.append(units)
    ends = []
    at = 6
    while at < 12:
        picked = shelf.scan("a", masks=False, bounds=(at, 12))
        at = picked.end
        ends.append((positions(picked), at))
    assert ends == [([6, 7], 8), ([8, 9], 10), ([10, 11], 12)]


@pytest.mark.parametrize("masks", [True, False])
def test_slice_ends_when_its_work_is_done_and_the_next_goes_on(*, masks: bool) -> None:
    shelf = Shelf(*["b", "b", "a", "b"] * 250)
    at, found, slices = 0, [], 0
    while at < 1_000:
        picked = shelf.scan(
            "a", masks=masks, bounds=(at, 1_000), work=2 * RANGE_WORK + 3 * READ_WORK
        )
        found += positions(picked)
        assert picked.end > at, "each goes on by something"
        at = picked.end
        slices += 1
    assert found == list(range(2, 1_000, 4))
    assert slices > 10
    assert len(shelf.read) == (250 if masks else 1_000), "and nothing is read twice"


def test_slice_is_short_where_the_filter_is_costly() -> None:
    """A stranger chooses the filter, and has it looked for in large values."""
    shelf = Shelf(*["a"] * 400)
    raw = encode(MessageMeta(("a",), properties=(("p", "x" * 4_000),))).raw
    shelf.metas = [meta._replace(raw=raw) for meta in shelf.metas]
    units = shelf.queue.read(0, CHUNK)
    units["meta_len"] = len(raw)
    for _ in range(20):
        shelf.queue.append(units)
    text = " OR ".join(f"p CONTAINS 'xy{ordinal}'" for ordinal in range(100))
    wanted = ScanFilter(compile_filter(FilterExpression.sql(text), DEFAULT_SPEC))
    scanner = FilterScanner(cast(Bodies, shelf), shelf.counts, shelf.long_checks)
    bounds = 400, 400 + 20 * CHUNK
    picked = scanner.scan(shelf.queue, wanted, bounds, count_max=1_000, bytes_max=1 << 23)
    assert 0 < len(shelf.read) < 10
    assert (picked.count, picked.end) == (0, 400 + len(shelf.read))


@pytest.mark.parametrize("masks", [True, False])
def test_nothing_is_picked_when_nothing_is_wanted(*, masks: bool) -> None:
    picked = Shelf(*["a"] * 3).scan("!*", masks=masks)
    assert (positions(picked), picked.end) == ([], 3)


def test_damage_is_part_of_the_slices_work() -> None:
    shelf = Shelf(*["a"] * 500)
    shelf.bad = set(range(500))
    at, read = 0, 0
    while at < 500:
        picked = shelf.scan("a", bounds=(at, 500), work=100 * READ_WORK)
        assert picked.damage is not None
        at = picked.end + 1
        assert len(shelf.read) - read <= 101
        read = len(shelf.read)


def test_slice_ends_with_damage_when_its_work_is_done() -> None:
    shelf = Shelf(*["a"] * 500)
    shelf.bad = {0}
    scanner = FilterScanner(cast(Bodies, shelf), shelf.counts, shelf.long_checks)
    wanted = ScanFilter(compile_filter(FilterExpression.tags("a"), DEFAULT_SPEC))
    scanner.work = 100 * READ_WORK
    scanner.scan(shelf.queue, wanted, (0, 500), count_max=500, bytes_max=1 << 20)
    assert scanner.work < 10 * READ_WORK


def test_slice_stops_before_a_damaged_message_and_tells_of_it() -> None:
    shelf = Shelf(*["a", "", "b"] * 10)
    shelf.bad = {6, 9}
    picked = shelf.scan("a")
    assert (positions(picked), picked.end) == ([0, 3], 6)
    assert picked.damage is not None
    assert (picked.damage.position, str(picked.damage.error)) == (6, "6")
    picked = shelf.scan("a", bounds=(7, 30))
    assert (positions(picked), picked.end) == ([], 9), "nothing but damage"
    assert picked.damage is not None
    assert picked.damage.position == 9
    picked = shelf.scan("a", bounds=(10, 30))
    assert (positions(picked), picked.damage) == (list(range(12, 30, 3)), None)


def test_damage_is_not_looked_for_in_what_genes_leave_out() -> None:
    shelf = Shelf(*["a", "b"] * 4)
    shelf.bad = {1, 3, 5, 7}
    assert positions(shelf.scan("a")) == [0, 2, 4, 6]


def test_what_was_masked_is_not_masked_again_because_reading_had_no_work_left() -> None:
    shelf = Shelf(*["a" if at % 20 == 0 else "b" for at in range(4_000)])
    at, found, slices = 0, 0, 0
    while at < 4_000:
        picked = shelf.scan("a", bounds=(at, 4_000), work=20_000)
        found, at, slices = found + picked.count, picked.end, slices + 1
    assert (found, shelf.counts.read) == (200, 200)
    assert shelf.counts.masked <= 1.1 * 3_800
    assert slices < 10, "each slice gets on"


def costly_shelf(*texts: str) -> tuple[Shelf, ScanFilter]:
    """Messages with 31 KB of text each, and a filter of 110 searches for what is in none."""
    shelf = Shelf(*["a"] * len(texts))
    shelf.metas = [
        shelf.metas[at]._replace(raw=meta_pb2.MessageMeta(properties=[pair]).SerializeToString())
        for at, pair in enumerate({"name": "p", "value": text} for text in texts)
    ]
    units = shelf.queue.read(0, len(texts))
    units["meta_len"] = [len(meta.raw) for meta in shelf.metas]
    shelf.queue.append(units)
    return shelf, ScanFilter(compile_filter(SEARCHES, DEFAULT_SPEC))


def pick_costly(shelf: Shelf, wanted: ScanFilter, at: int) -> ScanResult:
    scanner = FilterScanner(cast(Bodies, shelf), shelf.counts, shelf.long_checks)
    count = len(shelf.metas)
    picked = scanner.scan(
        shelf.queue, wanted, (count + at, 2 * count), count_max=9, bytes_max=1 << 23
    )
    assert scanner.work <= 0 or picked.end == 2 * count or picked.damage
    return picked


def test_message_that_costs_more_than_a_slice_is_checked_in_several() -> None:
    shelf, wanted = costly_shelf(LONG_TEXT, LONG_TEXT[:-9] + "xyz7", LONG_TEXT)
    ends = [pick_costly(shelf, wanted, 0).end for _ in range(4)]
    assert ends == [3, 3, 3, 4]
    found = [pick_costly(shelf, wanted, 1) for _ in range(4)]
    assert [positions(one) for one in found] == [[], [], [], [4]]
    assert found[-1].blobs == [shelf.metas[1].raw + BODY]
    assert shelf.read == [0, 1], "each once"
    assert shelf.counts == Counts(masked=0, read=2, refused=1)


def test_damaged_message_that_costs_more_than_a_slice_is_told_of() -> None:
    shelf, wanted = costly_shelf(LONG_TEXT, LONG_TEXT)
    shelf.bad = {0}
    picked = pick_costly(shelf, wanted, 0)
    assert picked.damage is not None
    assert (picked.damage.position, picked.end) == (2, 2)


def test_every_check_gets_to_its_end_however_many_are_under_way() -> None:
    shelf, wanted = costly_shelf(LONG_TEXT)
    tree, raw = parse(SEARCHES), shelf.metas[0].raw
    begun = [compile_filter(FilterExpression.sql(f"p = '{n}'"), DEFAULT_SPEC) for n in range(64)]
    for other in begun:
        assert shelf.long_checks.put(other, 0, raw, LongCheck(tree, raw))
    assert pick_costly(shelf, wanted, 0).end == 2, "there is no room to leave it half done"
    check = LongCheck(tree, raw)
    while not shelf.long_checks.put(wanted.filter, 0, raw, check):
        pass
    assert shelf.long_checks.take(begun[0], 0) is None, "nobody goes on with it"
    assert shelf.long_checks.take(begun[1], 0) is not None
    assert shelf.long_checks.take(wanted.filter, 0) == (raw, check)
