"""Read a run (timewheel/run_format.py): sections, slot directories, units; all verified."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c, crc32c_each
from hourwheel.errors import invariant, required
from hourwheel.types import Key
from storage.files.block_slots import BlockSlots
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, check_file_header
from storage.views.unit import (
    NO_UNITS,
    UNIT,
    UNIT_BYTES,
    Units,
    count_to,
    equal_spans,
    join,
    pick,
    search_keys,
)
from timewheel.levels import BUCKET_MS, SLOT_MS, SLOTS
from timewheel.run_format import (
    BLOCK_UNITS,
    FOOTER,
    PAGE_LOG2,
    SECTION,
    SLOT,
    Footer,
    Sections,
    Slots,
    run_path,
    unit_at,
    unpack_footer,
)

_BLOCK_BYTES: Final = BLOCK_UNITS * UNIT_BYTES
_KEY: Final = np.dtype([("due_ms", "<i8"), ("sequence", "<u8")])
"""The first bytes of a unit."""
_FOUND_AT_ONCE: Final = 128
"""So many scattered units are looked for at once: each lies in one block, or in two."""


class Run:
    """An open run. Reading is positional, so that a merge may read while the loop does.

    `footer.covers_first .. footer.run_id` are the runs that it stands for. `cascaded_days` are the
    sections of a day-level run whose units have gone to hour-level runs: they are not its any more.
    """

    def __init__(self, disk: Disk, path: str, identity: Identity) -> None:
        """Open and verify header, footer and tables; units and directories when they are read.

        Raises:
            CorruptFile: naming the file and what is wrong.
        """
        self.path = path
        try:
            self._file = disk.open(path)
        except FileNotFoundError:
            raise errors.CorruptFile(f"{path}: a run is missing", file=path) from None
        size = self._file.size()
        raw = self._file.pread(FOOTER.size, max(0, size - FOOTER.size))
        footer = unpack_footer(raw)
        if footer is None:
            raise errors.CorruptFile("a run's footer fails its CRC32C", file=path)
        self.footer: Footer = footer
        header = self._file.pread(FILE_HEADER_BYTES, 0)
        check_file_header(header, path, FileType.RUN, identity, footer.run_id)
        slots = SLOTS[footer.level]
        self._directories_at = unit_at(footer.unit_count)
        tables_at = self._directories_at + footer.section_count * slots * SLOT.itemsize
        tables = self._file.pread(size - FOOTER.size - tables_at, tables_at)
        if crc32c(tables) != footer.tables_crc:
            raise errors.CorruptFile("a run's tables fail their CRC32C", file=path)
        cut = footer.section_count * SECTION.itemsize
        self.sections: Sections = np.frombuffer(tables[:cut], SECTION)
        self._block_crcs: NDArray[np.uint32] = np.frombuffer(tables[cut:], "<u4")
        self._ordinals = {int(row["bucket"]): n for n, row in enumerate(self.sections)}
        self.cascaded_days: set[int] = set()
        self._fences: tuple[NDArray[np.int64], NDArray[np.uint64]] | None = None
        """Key of each block's first unit: read when somebody looks for single units."""

    @property
    def order(self) -> tuple[int, int]:
        """Where the run stands among those of its level: older runs first."""
        return self.footer.run_id, self.footer.covers_first

    def buckets(self) -> list[int]:
        """Buckets that it holds units of, ascending, cascaded ones excluded."""
        return [bucket for bucket in self._ordinals if bucket not in self.cascaded_days]

    def section(self, bucket: int) -> tuple[int, int]:
        """[first, end) global indexes of a bucket's units; empty where it has none."""
        ordinal = self._ordinals.get(bucket)
        if ordinal is None or bucket in self.cascaded_days:
            return 0, 0
        row = self.sections[ordinal]
        return int(row["first"]), int(row["first"]) + int(row["count"])

    def directory(self, bucket: int) -> Slots | None:
        """Slot directory of a bucket: array[slots] of SLOT, or None where it has no section.

        Raises:
            CorruptFile: it fails its CRC32C.
        """
        ordinal = self._ordinals.get(bucket)
        if ordinal is None or bucket in self.cascaded_days:
            return None
        size = SLOTS[self.footer.level] * SLOT.itemsize
        raw = self._file.pread(size, self._directories_at + ordinal * size)
        if crc32c(raw) != int(self.sections[ordinal]["crc"]):
            raise errors.CorruptFile(
                "a slot directory fails its CRC32C", file=self.path, bucket=bucket
            )
        return np.frombuffer(raw, SLOT)

    def read(self, first: int, end: int) -> Units:
        """Units [first, end) by global index, in key order: a read-only array.

        Raises:
            CorruptFile: a block that holds some of them fails its CRC32C.
        """
        invariant(0 <= first <= end <= self.footer.unit_count, "a run's range", first=first)
        if first == end:
            return np.empty(0, UNIT)
        block = first // BLOCK_UNITS
        last = min(self.footer.unit_count, (end + BLOCK_UNITS - 1) // BLOCK_UNITS * BLOCK_UNITS)
        from_ = block * BLOCK_UNITS
        raw = self._file.pread((last - from_) * UNIT_BYTES, unit_at(from_))
        view = memoryview(raw)
        for at in range(0, max(len(raw), 1), _BLOCK_BYTES):
            if crc32c(view[at : at + _BLOCK_BYTES]) != self._block_crcs[block]:
                raise errors.CorruptFile(
                    "a block of units fails its CRC32C",
                    file=self.path,
                    offset=unit_at(from_) + at,
                )
            block += 1
        if len(raw) != (last - from_) * UNIT_BYTES:
            raise errors.CorruptFile("a run is shorter than its footer says", file=self.path)
        return np.frombuffer(raw, UNIT)[first - from_ : end - from_]

    def pieces(self, after: Key, to: Key) -> list[tuple[int, int]]:
        """[first, end) stretches that hold every unit with after < key <= to that is the run's.

        Each begins with such a unit, if it has one; at the end there may be some beyond `to`. Reads
        one slot directory, and of the units no more than finding the first one takes.

        Raises:
            CorruptFile: what it reads fails its CRC32C.
        """
        bucket_ms = BUCKET_MS[self.footer.level]
        numbers, first = self.sections["bucket"], after.due_ms // bucket_ms
        low = int(np.searchsorted(numbers, first, "left"))
        high = int(np.searchsorted(numbers, to.due_ms // bucket_ms, "right"))
        sections = self.sections[low:high]
        is_own = ~np.isin(sections["bucket"], list(self.cascaded_days))
        found: list[tuple[int, int]] = []
        for at, until in equal_spans(is_own):
            if is_own[at]:  # sections lie one behind the other
                begin, last = int(sections["first"][at]), sections[until - 1]
                if int(sections["bucket"][at]) == first:
                    begin = self.find_in_bucket(first, after)
                found.append((begin, int(last["first"]) + int(last["count"])))
        return [(begin, end) for begin, end in found if begin < end]

    def find_in_bucket(self, bucket: int, after: Key) -> int:
        """Global index of the bucket's first unit behind `after`, which lies in the bucket.

        Reads a slot directory, and some blocks of units of one slot.

        Raises:
            CorruptFile: what it reads fails its CRC32C.
        """
        directory = required(self.directory(bucket), "a section has a directory", bucket=bucket)
        level = self.footer.level
        slot = directory[after.due_ms % BUCKET_MS[level] // SLOT_MS[level]]
        first = int(slot["first"])
        return self.find_after(first, first + int(slot["count"]), *after)

    def find_after(self, first: int, end: int, due_ms: int, sequence: int) -> int:
        """First global index in [first, end) whose key is > (due_ms, sequence), or `end`."""
        while end - first > BLOCK_UNITS:  # by blocks, each of which is read as a whole anyway
            middle = (first + end) // 2
            low = max(first, middle - middle % BLOCK_UNITS)
            high = min(end, low + BLOCK_UNITS)
            units = self.read(low, high)
            passed = count_to(units, due_ms, sequence)
            if passed == high - low:
                first = high
            elif passed or low == first:
                return low + passed
            else:
                end = low
        return first + count_to(self.read(first, end), due_ms, sequence)

    def find(
        self,
        due_ms: NDArray[np.int64],
        sequences: NDArray[np.uint64],
        attempts: NDArray[np.uint16],
    ) -> tuple[NDArray[np.int64], Units]:
        """(which of n are here, copies of these units): one unit of each key and attempt.

        Raises:
            CorruptFile: a block in which one should be fails its CRC32C.
        """
        may_be_here = np.ones(len(sequences), np.bool_)
        if self.footer.end_page:  # of first releases only runs of their time have any
            page = sequences >> np.uint64(PAGE_LOG2)
            is_of_its_time = (page >= self.footer.first_page) & (page < self.footer.end_page)
            may_be_here = is_of_its_time | (attempts != 1)
        requested = np.flatnonzero(may_be_here)
        requested = requested[self._have_section(due_ms[requested])]
        if not len(requested):
            return requested, NO_UNITS
        fences = self._load_fences()
        keys = due_ms[requested], sequences[requested]
        last = search_keys(*fences, keys[0], keys[1] + np.uint64(1)) - 1
        is_inside = last >= 0
        requested, last = requested[is_inside], last[is_inside]
        first = last.copy()
        begins = np.flatnonzero(
            (fences[0][last] == due_ms[requested]) & (fences[1][last] == sequences[requested])
        )
        if len(begins):  # of equal keys some may lie before
            chosen = requested[begins]
            before = search_keys(*fences, due_ms[chosen], sequences[chosen]) - 1
            first[begins] = np.maximum(before, 0)
        places: list[NDArray[np.int64]] = []
        found: list[Units] = []
        for at in range(0, len(requested), _FOUND_AT_ONCE):
            some = slice(at, at + _FOUND_AT_ONCE)
            units = self._read_blocks(first[some], last[some])
            here, which = _find_in(
                units,
                due_ms[requested[some]],
                sequences[requested[some]],
                attempts[requested[some]],
            )
            places.append(requested[some][here])
            found.append(pick(units, which))
        return np.concatenate([np.empty(0, np.int64), *places]), join(found)

    def _have_section(self, due_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[n]: which of n due times lie in a bucket that has units here."""
        buckets, requested = self.sections["bucket"], due_ms // BUCKET_MS[self.footer.level]
        if not len(buckets):
            return np.zeros(len(due_ms), np.bool_)
        at = np.minimum(np.searchsorted(buckets, requested), len(buckets) - 1)
        found: NDArray[np.bool_] = buckets[at] == requested
        if self.cascaded_days:
            found &= ~np.isin(requested, list(self.cascaded_days))
        return found

    def _read_blocks(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> Units:
        """All units of the blocks of n ranges [first, last], each once, in key order."""
        chosen = np.zeros(len(self._block_crcs) + 1, np.int64)  # many ranges may begin in one block
        np.add.at(chosen, first, 1)
        np.add.at(chosen, last + 1, -1)
        blocks = np.flatnonzero(np.cumsum(chosen[:-1]))
        positions = unit_at(0) + _BLOCK_BYTES * blocks
        last_count = min(BLOCK_UNITS, self.footer.unit_count - BLOCK_UNITS * int(blocks[-1]))
        slots = BlockSlots(_BLOCK_BYTES, len(blocks))
        read, are_whole = slots.read(
            self._file, positions.tolist(), first=0, last_bytes=UNIT_BYTES * last_count
        )
        is_bad = crc32c_each(read) != self._block_crcs[blocks]
        if is_bad.any() or not are_whole:
            raise errors.CorruptFile(
                "a block of units fails its CRC32C",
                file=self.path,
                offset=int(positions[np.argmax(is_bad)]),
            )
        return slots.rows(UNIT)[: BLOCK_UNITS * (len(blocks) - 1) + last_count]

    def _load_fences(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Key of the first unit of each block: not verified, but what they lead to is."""
        if self._fences is None:
            count = len(self._block_crcs)
            places = [unit_at(block * BLOCK_UNITS) for block in range(count)]
            parts = [
                b"".join(self._file.pread_many([_KEY.itemsize] * len(some), some))
                for some in (places[at : at + 4_096] for at in range(0, count, 4_096))
            ]
            keys = np.frombuffer(b"".join(parts), _KEY)
            # Columns of their own: who searches a part of each row copies all of it each time.
            self._fences = (
                np.ascontiguousarray(keys["due_ms"]),
                np.ascontiguousarray(keys["sequence"]),
            )
        return self._fences

    def will_need(self, first: int, end: int) -> None:
        """Ask the disk to have these units at hand soon."""
        if end > first:
            self._file.will_need(unit_at(first), (end - first) * UNIT_BYTES)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _find_in(
    units: Units,
    due_ms: NDArray[np.int64],
    sequences: NDArray[np.uint64],
    attempts: NDArray[np.uint16],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(which of n are among units in key order, the ordinal of each of these)."""
    dues, numbers, tries = (
        np.ascontiguousarray(units["due_ms"]),
        units["sequence"],
        units["attempt"],
    )
    at = search_keys(dues, numbers, due_ms, sequences)
    found = np.full(len(at), -1, np.int64)
    going = np.flatnonzero(at < len(units))
    while len(going):  # of equal keys there are a few
        here = at[going]
        is_same = (dues[here] == due_ms[going]) & (numbers[here] == sequences[going])
        is_right = is_same & (tries[here] == attempts[going])
        found[going[is_right]] = here[is_right]
        going = going[is_same & ~is_right]
        at[going] += 1
        going = going[at[going] < len(units)]
    which = np.flatnonzero(found >= 0)
    return which, found[which]


def open_run(disk: Disk, directory: str, identity: Identity, covers_first: int, run_id: int) -> Run:
    """Open the run that stands for [covers_first, run_id].

    Raises:
        CorruptFile: see `Run`; or another run lies there.
    """
    run = Run(disk, run_path(directory, covers_first, run_id), identity)
    if (run.footer.covers_first, run.footer.run_id) != (covers_first, run_id):
        raise errors.CorruptFile(
            f"{run.path}: by its footer this is run {run.footer.covers_first}-{run.footer.run_id}",
            file=run.path,
        )
    return run
