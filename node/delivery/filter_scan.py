"""The filter scan: find what matches in a range of a queue, in slices that do not hold up the node.

    genes of a block of entries --mask--> those that may match --read--> verified --exact--> those
                                                                                     that do

Only entries that the mask lets through are read, whole: a message's checksum is over meta and body,
and a message must not count as filtered because its meta is damaged. Where the subscription leaves
the check to the client, everything that the mask lets through is picked.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from filters.compile import BlockFilter
from filters.long_check import LongCheck
from hourwheel import errors
from hourwheel.types import Position, SequenceNumber
from storage.queues.consume_queue import ConsumeQueue
from storage.views.unit import NO_UNITS, Units, copied, join, pick
from timewheel.bodies import Bodies

SLICE_WORK: Final = 262_144
"""Work of one slice, in entries masked: below 10 ms."""
READ_WORK: Final = 64
"""Reading and checking one message costs as much as masking so many entries at least, ..."""
READ_BYTES_WORK: Final = 32
"""... and one entry more for each so many bytes of it; see also `BlockFilter.check_work`."""
LONG_WORK: Final = 131_072
"""Checking one message that costs more takes several slices, each of so much: some 3 ms."""
_LONG_CHECKS_MAX: Final = 64
"""Begun at one time: each holds a message."""
_LONG_CHECK_TURNS_MAX: Final = 64 * _LONG_CHECKS_MAX
"""A check is dropped when it did not go on while others did so often."""
_WHOLE_WORK: Final = 1 << 60
RANGE_WORK: Final = 256
"""Going from one range of a queue to the next, or to its next block."""


@dataclass(slots=True)
class ScanFilter:
    """A filter, and how it is to be used on a queue."""

    filter: BlockFilter
    masks: bool = True
    """Look at genes first. Not where messages of several topics stand in the queue."""
    checks: bool = True
    """Check exactly; else the client does."""


@dataclass(slots=True)
class Counts:
    """What filters did."""

    masked: int = 0
    """Entries that the mask ruled out, unread."""
    read: int = 0
    """Messages read to be checked."""
    refused: int = 0
    """Those of them that did not match: the mask's false positives."""


class Damage(NamedTuple):
    """A message in the scan's way whose bytes are not what was published."""

    position: Position
    unit: Units
    """Array[1] of UNIT."""
    error: errors.DataLoss


@dataclass(slots=True)
class ScanResult:
    """Of [first, end): what was picked; the rest does not match."""

    end: Position
    positions: list[NDArray[np.int64]] = field(default_factory=list)
    units: list[Units] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0
    damage: Damage | None = None
    """At `end`, where it is damage that ended the slice."""

    def add(self, positions: NDArray[np.int64], units: Units, raw: bytes) -> None:
        """Pick these too."""
        self.positions.append(positions)
        self.units.append(units)
        self.blobs.append(raw)
        self.count += len(units)
        self.size_bytes += len(raw)

    def joined(self) -> tuple[NDArray[np.int64], Units, bytes]:
        """All that was picked, at least one: (int64[n] positions, units, meta and body of each)."""
        raw = self.blobs[0] if len(self.blobs) == 1 else b"".join(self.blobs)
        return np.concatenate(self.positions), join(self.units), raw


class LongChecks:
    """Checks of single messages that were begun and take several slices. Belongs to one shard."""

    def __init__(self) -> None:
        """None is under way."""
        self._begun: OrderedDict[tuple[BlockFilter, int], _BegunCheck] = OrderedDict()
        self._put_count = 0

    def take(
        self, block_filter: BlockFilter, sequence: SequenceNumber
    ) -> tuple[bytes, LongCheck] | None:
        """(the message's bytes, how far its check is), to go on with. Removes them."""
        begun = self._begun.pop((block_filter, sequence), None)
        return None if begun is None else (begun.raw, begun.check)

    def put(
        self, block_filter: BlockFilter, sequence: SequenceNumber, raw: bytes, check: LongCheck
    ) -> bool:
        """Keep a check for another slice. False: too many are under way, so finish this one now.

        A check that gave way to others would begin again and again. So only one gives way that no
        scan goes on with any more: its filter is not in use.
        """
        self._put_count += 1
        if len(self._begun) >= _LONG_CHECKS_MAX:
            oldest = next(iter(self._begun))
            if self._put_count - self._begun[oldest].put_count < _LONG_CHECK_TURNS_MAX:
                return False
            del self._begun[oldest]
        self._begun[block_filter, sequence] = _BegunCheck(raw, check, self._put_count)
        return True


class _BegunCheck(NamedTuple):
    raw: bytes
    check: LongCheck
    put_count: int


class _Candidates(NamedTuple):
    """What the mask lets through."""

    positions: NDArray[np.int64]
    units: Units
    end: Position
    """The end of what was masked."""


class FilterScanner:
    """Scans queues; `work` is what is left of the slice."""

    def __init__(self, bodies: Bodies, counts: Counts, long_checks: LongChecks) -> None:
        """A new slice, which reads from `bodies`."""
        self._bodies, self._counts, self._long_checks = bodies, counts, long_checks
        self.work = SLICE_WORK

    def scan(
        self,
        queue: ConsumeQueue,
        scan_filter: ScanFilter,
        bounds: tuple[int, int],
        *,
        count_max: int,
        bytes_max: int,
    ) -> ScanResult:
        """Go through `bounds` of the queue until there is enough, or the slice is used up."""
        found = ScanResult(Position(bounds[0]))
        self.work -= RANGE_WORK
        while found.end < bounds[1] and found.count < count_max and self.work > 0:
            candidates = self._mask(
                queue, scan_filter, (found.end, bounds[1]), count_max - found.count
            )
            if not len(candidates.positions):
                found.end = candidates.end
            elif not self._read(scan_filter, candidates, bytes_max, found):
                break
        return found

    def _mask(
        self, queue: ConsumeQueue, scan_filter: ScanFilter, bounds: tuple[int, int], count_max: int
    ) -> _Candidates:
        """Those that may match, up to `count_max` of them."""
        at, end = bounds
        count_max = max(1, min(count_max, self.work // READ_WORK))
        if not (scan_filter.masks and scan_filter.filter.narrows):
            end = min(end, at + count_max)
            positions = np.arange(at, end, dtype=np.int64)
            return _Candidates(positions, queue.pick(positions), Position(end))
        found: list[NDArray[np.int64]] = []
        units: list[Units] = []
        count = reserved = 0
        # What is masked and then not read, as the slice is used up, was masked for nothing.
        while at < end and self.work > reserved:
            looked_at = queue.look_at(at, min(end - at, self.work - reserved))
            chosen = np.flatnonzero(scan_filter.filter.maybe(looked_at["tag_gene"]))
            size = len(looked_at)
            if count + len(chosen) > count_max:
                size = int(chosen[count_max - count])
                chosen = chosen[: count_max - count]
                end = at + size
            if len(chosen):
                found.append(chosen + at)
                units.append(pick(looked_at, chosen))
                count += len(chosen)
                reserved += int(_read_work(scan_filter, units[-1]).sum())
            self.work -= size + RANGE_WORK
            del looked_at  # a view of a mapping, which may be closed by the next one
            self._counts.masked += size - len(chosen)
            at += size
        if not count:
            return _Candidates(np.empty(0, np.int64), NO_UNITS, Position(at))
        return _Candidates(np.concatenate(found), join(units), Position(at))

    def _read(
        self, scan_filter: ScanFilter, candidates: _Candidates, bytes_max: int, found: ScanResult
    ) -> bool:
        """Read those that may match, and pick those that do. Returns whether to go on."""
        positions, units, end = candidates
        lengths = units["body_len"].astype(np.int64) + units["meta_len"]
        each = _read_work(scan_filter, units)
        work = each.cumsum()
        fitting = self._fitting(units, lengths, bytes_max, found)
        are_long = each > LONG_WORK
        if scan_filter.checks and are_long[0] and fitting:
            return self._check_long(scan_filter, candidates, found)
        if scan_filter.checks:
            if are_long.any():
                fitting = min(fitting, int(are_long.argmax()))
            # One is read in any case: a slice must get on.
            most = int(work.searchsorted(self.work, "right"))
            fitting = min(fitting, most if found.count else max(1, most))
        if not fitting:
            found.end = Position(int(positions[0]))
            return False
        raw, bad = self._bodies.read_joined(units[:fitting])
        while bad:
            self.work -= int(work[fitting - 1])
            fitting = bad[0].ordinal
            if not fitting:
                found.end = Position(int(positions[0]))
                found.damage = Damage(found.end, copied(units[:1]), bad[0].error)
                return False
            raw, bad = self._bodies.read_joined(units[:fitting])
        if fitting < len(units):
            end = Position(int(positions[fitting]))
            units, lengths, positions = units[:fitting], lengths[:fitting], positions[:fitting]
        found.end = end
        if not scan_filter.checks:
            found.add(positions, units, raw)
            return True
        self.work -= int(work[fitting - 1])
        ends = lengths.cumsum()
        starts = ends - lengths
        matches = scan_filter.filter.exact(raw, starts, units["meta_len"].astype(np.int64))
        chosen = np.flatnonzero(matches)
        self._counts.read += fitting
        self._counts.refused += fitting - len(chosen)
        if len(chosen) == fitting:
            found.add(positions, units, raw)
        elif len(chosen):
            pieces = zip(starts[chosen].tolist(), ends[chosen].tolist(), strict=True)
            blobs = b"".join([raw[low:high] for low, high in pieces])
            found.add(positions[chosen], pick(units, chosen), blobs)
        return True

    def _check_long(
        self, scan_filter: ScanFilter, candidates: _Candidates, found: ScanResult
    ) -> bool:
        """As `_read` for the first alone, whose check goes on in the next slice if need be."""
        positions, units, end = candidates
        found.end, sequence = Position(int(positions[0])), int(units["sequence"][0])
        raw, check = self._long_checks.take(scan_filter.filter, SequenceNumber(sequence)) or (
            b"",
            None,
        )
        if check is None:
            raw, bad = self._bodies.read_joined(units[:1])
            if bad:
                self.work -= len(raw) // READ_BYTES_WORK + READ_WORK
                found.damage = Damage(found.end, copied(units[:1]), bad[0].error)
                return False
            check = scan_filter.filter.begin_check(bytes(raw[: int(units["meta_len"][0])]))
        is_match = check.step(min(self.work, LONG_WORK))
        self.work = 0
        if is_match is None:
            if self._long_checks.put(scan_filter.filter, SequenceNumber(sequence), raw, check):
                return False
            is_match = check.step(_WHOLE_WORK)
        found.end = Position(int(positions[1])) if len(units) > 1 else end
        self._counts.read += 1
        if is_match:
            found.add(positions[:1], units[:1], raw)
        else:
            self._counts.refused += 1
        return True

    def _fitting(
        self, units: Units, lengths: NDArray[np.int64], bytes_max: int, found: ScanResult
    ) -> int:
        """How many of the first units may come next: for their size, and from one topic."""
        fitting = int(lengths.cumsum().searchsorted(bytes_max - found.size_bytes, "right"))
        origins = units["origin_topic"]
        origin = found.units[0]["origin_topic"][0] if found.count else origins[0]
        others = origins != origin
        if others.any():
            fitting = min(fitting, int(others.argmax()))
        return fitting if found.count else max(1, fitting)


def _read_work(scan_filter: ScanFilter, units: Units) -> NDArray[np.int64]:
    """int64[n]: what reading each message costs, and checking it."""
    meta_lens = units["meta_len"].astype(np.int64)
    work: NDArray[np.int64] = (units["body_len"] + meta_lens) // READ_BYTES_WORK
    return work + scan_filter.filter.check_work(meta_lens) if scan_filter.checks else work
