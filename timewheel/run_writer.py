"""Write a run: units in, in key order, chunk by chunk; a durable file out."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hourwheel.crc32c import crc32c
from hourwheel.errors import invariant
from storage.files.disk import Disk
from storage.files.file_header import FileType, Identity, pack_file_header
from storage.files.piecewise_sync import PiecewiseSync
from storage.views.unit import UNIT_BYTES, Units, equal_spans, is_sorted
from timewheel.levels import BUCKET_MS, SLOT_MS, SLOTS
from timewheel.run_format import (
    BLOCK_UNITS,
    PAGE_LOG2,
    SECTION,
    SLOT,
    Footer,
    Slots,
    pack_footer,
    run_path,
    unit_at,
)

Heads = Callable[[int], NDArray[np.uint32]]
"""bucket -> uint32[slots]: newest older run of the level with units in each slot, 0 for none."""


class RunWriter:
    """One run being written. `append` chunks in key order, then `finish`.

    Memory: a directory for each bucket met (43 KB an hour) and 4 bytes for 256 units.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        identity: Identity,
        *,
        level: int,
        covers_first: int,
        run_id: int,
        heads: Heads,
    ) -> None:
        """Create the file; it is nothing until a manifest names it."""
        self._level, self._covers_first, self._run_id = level, covers_first, run_id
        self._heads = heads
        self.path = run_path(directory, covers_first, run_id)
        if disk.exists(self.path):
            disk.remove(self.path)
        self._file = disk.open(self.path, create=True)
        self._file.pwrite([pack_file_header(FileType.RUN, identity, run_id)], 0)
        self._sync = PiecewiseSync(self._file)
        self._count = 0
        self._block_crcs: list[int] = []
        self._block_rest = b""
        self._slots: dict[int, Slots] = {}
        self._due_first = self._due_last = 0
        self._delay_logs = (0xFFFFFFFF, 0)
        self._pages = (0xFFFFFFFF, 0)

    def append(self, units: Units) -> None:
        """Write `units`, which must follow in key order on what was appended before."""
        if not len(units):
            return
        invariant(is_sorted(units), "a run's units are in key order")
        due = units["due_ms"]
        if self._count:
            invariant(int(due[0]) >= self._due_last, "a run's chunks are in key order")
        else:
            self._due_first = int(due[0])
        self._due_last = int(due[-1])
        self._count_slots(due)
        raw = units.tobytes()
        self._file.pwrite([raw], unit_at(self._count))
        self._sync.on_written(len(raw))
        self._count += len(units)
        self._checksum(raw)
        ids = units["dlog_id"]
        ids = ids[ids > 0]  # a lost message still points into the log, and is in no delay log
        if len(ids):
            low, high = self._delay_logs
            self._delay_logs = (min(low, int(ids.min())), max(high, int(ids.max())))
        first_releases = units["sequence"][units["attempt"] == 1]
        if len(first_releases):
            low, high = self._pages
            first, last = (int(one) >> PAGE_LOG2 for one in _ends(first_releases))
            self._pages = (min(low, first), max(high, last + 1))

    def _count_slots(self, due: NDArray[np.int64]) -> None:
        bucket_ms, slot_ms, slots = (
            BUCKET_MS[self._level],
            SLOT_MS[self._level],
            SLOTS[self._level],
        )
        numbers = due // bucket_ms
        for low, high in equal_spans(numbers):
            bucket = int(numbers[low])
            directory = self._slots.get(bucket)
            if directory is None:
                directory = self._slots[bucket] = np.zeros(slots, SLOT)
            inside = (due[low:high] - bucket * bucket_ms) // slot_ms
            directory["count"] += np.bincount(inside, minlength=slots).astype(np.uint32)

    def _checksum(self, raw: bytes) -> None:
        block = BLOCK_UNITS * UNIT_BYTES
        data = self._block_rest + raw
        whole = len(data) - len(data) % block
        view = memoryview(data)
        self._block_crcs += [crc32c(view[at : at + block]) for at in range(0, whole, block)]
        self._block_rest = data[whole:]

    def finish(self) -> Footer:
        """Write directories, tables and footer, make the file durable and close it.

        The directory entry is durable only after the caller's `sync_dir`.
        """
        if self._block_rest:
            self._block_crcs.append(crc32c(self._block_rest))
        sections = np.zeros(len(self._slots), SECTION)
        directories, first = [], 0
        for ordinal, (bucket, slots) in enumerate(sorted(self._slots.items())):
            counts = slots["count"].astype(np.uint64)
            slots["first"] = first + np.cumsum(counts) - counts
            slots["previous_run"] = self._heads(bucket)
            raw = slots.tobytes()
            total = int(counts.sum())
            sections[ordinal] = (bucket, first, total, crc32c(raw))
            directories.append(raw)
            first += total
        invariant(first == self._count, "slot directories count every unit")
        tables = sections.tobytes() + np.array(self._block_crcs, "<u4").tobytes()
        footer = Footer(
            self._count,
            len(sections),
            self._level,
            self._covers_first,
            self._run_id,
            self._due_first,
            self._due_last,
            *(self._delay_logs if self._delay_logs[1] else (0, 0)),
            crc32c(tables),
            *(self._pages if self._pages[1] else (0, 0)),
        )
        self._file.pwrite([*directories, tables, pack_footer(footer)], unit_at(self._count))
        self._file.datasync()
        self._file.close()
        return footer


def _ends(sequences: NDArray[np.uint64]) -> tuple[np.uint64, np.uint64]:
    return sequences.min(), sequences.max()
