"""Read the metas and bodies of units, wherever they lie: commit log or delay logs. All verified.

Units released together lie together, in the order of their keys, in a delay log; so blobs that
follow on one another are read in one piece, and near ones of one file with the gap between them.
What was due soon after it was published was never flushed and lies scattered in the log; where
most pieces are single messages, they are read one by one.
"""

from collections import OrderedDict
from itertools import accumulate, groupby, pairwise
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c, crc32c_each, split
from hourwheel.types import Offset
from storage.files.disk import Disk, File
from storage.views.unit import FEW_UNITS, Row, Units, equal_spans, rows_of
from timewheel.run_format import delay_log_path

_OPEN_FILES_MAX: Final = 128
_OVERLAY_BYTES_MAX: Final = 64 << 20
GAP_BYTES_MAX: Final = 16_384
PIECE_BYTES_MAX: Final = 8 << 20
_SCATTERED_MESSAGES_PER_PIECE: Final = 4


class LogReader(Protocol):
    """What is needed of the commit log."""

    def read(self, offset: Offset, length: int) -> bytes:
        """So many bytes from `offset` on."""
        ...

    def read_many(self, offsets: list[int], lengths: list[int]) -> list[bytes]:
        """Many small pieces. Plain numbers, as the columns of units have them."""
        ...

    def locate(self, offset: Offset) -> tuple[str, int]:
        """The file that an offset lies in, and the byte there: for people."""
        ...


class BadBlob(NamedTuple):
    """A message whose bytes fail their checksum: its ordinal among those asked for, and where."""

    ordinal: int
    error: errors.DataLoss


class Place(NamedTuple):
    """Where a message's bytes lie: see `storage.views.unit`."""

    dlog_id: int
    position: int


def place_of(unit: Units) -> Place:
    """The place that a unit names; of one row, or of array[1]."""
    return Place(unit["dlog_id"].item(), unit["position"].item())


class Overlay:
    """Good bytes of messages whose own are damaged, until their file is rewritten.

    Bounded: what was put first goes first, and is looked for again where it is still needed.
    What it holds was verified, and is verified again against each unit that asks for it.
    """

    def __init__(self, bytes_max: int = _OVERLAY_BYTES_MAX) -> None:
        """Nothing yet."""
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self._found: dict[Place, bytes] = {}

    def put(self, place: Place, raw: bytes) -> None:
        """Keep a message's bytes."""
        self.drop(place)
        while self._found and self.size_bytes + len(raw) > self.bytes_max:
            self.drop(next(iter(self._found)))
        self._found[place] = raw
        self.size_bytes += len(raw)

    def find(self, unit: Units) -> bytes | None:
        """The bytes of a message whose own are bad, or None."""
        raw = self._found.get(place_of(unit)) if self._found else None
        if raw is None or len(raw) != unit["body_len"].item() + unit["meta_len"].item():
            return None
        return raw if crc32c(raw) == unit["crc"].item() else None

    def items(self) -> list[tuple[Place, bytes]]:
        """All that is kept."""
        return list(self._found.items())

    def forget(self, dlog_id: int) -> None:
        """A delay log is removed."""
        for place in [one for one in self._found if one.dlog_id == dlog_id]:
            self.drop(place)

    def drop(self, place: Place) -> None:
        """Its file is sound again, or gone."""
        self.size_bytes -= len(self._found.pop(place, b""))


class Bodies:
    """Reads blobs (meta and body together). One instance a thread."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log: LogReader,
        overlay: Overlay | None = None,
        *,
        open_count_max: int = _OPEN_FILES_MAX,
    ) -> None:
        """`directory` holds the delay logs; `open_count_max` of them stay open."""
        self._open_count_max = open_count_max
        self._disk, self._directory, self._log = disk, directory, log
        self.overlay = Overlay() if overlay is None else overlay
        self._files: OrderedDict[int, File] = OrderedDict()

    def read(self, units: Units) -> tuple[list[bytes | memoryview], list[BadBlob]]:
        """The blobs of `units`, in their order, and which are bad (an empty one stands there)."""
        lengths = _lengths(units)
        blobs = self._fetch(units, lengths)
        right = np.fromiter(map(crc32c, blobs), np.uint32, len(blobs)) == units["crc"]
        right &= np.fromiter(map(len, blobs), np.int64, len(blobs)) == lengths
        if right.all():
            return blobs, []
        bad: list[BadBlob] = []
        for one in np.flatnonzero(~right).tolist():
            found = self.overlay.find(units[one])
            blobs[one] = b"" if found is None else found
            if found is None:
                bad.append(BadBlob(one, self._corrupt(units[one])))
        return blobs, bad

    def read_joined(
        self, units: Units, rows: list[Row] | None = None
    ) -> tuple[bytes, list[BadBlob]]:
        """The blobs of `units` one behind the other; void where any is bad.

        `rows`: the units as numbers, where the caller has them.
        """
        if len(units) <= FEW_UNITS:
            raw = self._find_few(rows_of(units) if rows is None else rows)
            if raw is not None:
                return raw, []
        lengths = _lengths(units)
        starts, files = units["position"].astype(np.int64), units["dlog_id"]
        if len(units) and bool(
            (starts[1:] == starts[:-1] + lengths[:-1]).all() and (files == files[0]).all()
        ):
            first, size = int(starts[0]), int(starts[-1] - starts[0] + lengths[-1])
            raw = self._read_one(int(files[0]), first, size)  # the usual case: a delay log
            if len(raw) == size and bool(
                (crc32c_each(split(raw, 0, lengths)) == units["crc"]).all()
            ):
                return raw, []
        blobs, bad = self.read(units)
        return b"".join(blobs), bad

    def _find_few(self, rows: list[Row]) -> bytes | None:
        """The blobs of some units one behind the other; None where one is bad."""
        if len(rows) == 1:
            row = rows[0]
            blob = self._read_one(row.dlog_id, row.position, row.blob_bytes)
            return blob if len(blob) == row.blob_bytes and crc32c(blob) == row.crc else None
        blobs: list[bytes] = []
        for dlog_id, group in groupby(rows, attrgetter("dlog_id")):
            own = list(group)
            sizes = [row.blob_bytes for row in own]
            first, size = own[0].position, sum(sizes)
            starts = list(accumulate(sizes, initial=first))
            if all(row.position == start for row, start in zip(own, starts, strict=False)):
                raw = self._read_one(dlog_id, first, size)
                blobs += [raw[at - first : end - first] for at, end in pairwise(starts)]
            else:
                blobs += self._read_many(dlog_id, [row.position for row in own], sizes)
        for row, blob in zip(rows, blobs, strict=True):
            if len(blob) != row.blob_bytes or crc32c(blob) != row.crc:
                return None
        return b"".join(blobs)

    def _fetch(self, units: Units, lengths: NDArray[np.int64]) -> list[bytes | memoryview]:
        """The blobs, unverified and maybe short."""
        starts, files = units["position"].astype(np.int64), units["dlog_id"]
        pieces = _pieces(files, starts, lengths)
        at, sizes = starts.tolist(), lengths.tolist()
        blobs: list[bytes | memoryview] = []
        if len(units) < _SCATTERED_MESSAGES_PER_PIECE * len(pieces):
            for low, high in equal_spans(files):
                blobs += self._read_many(int(files[low]), at[low:high], sizes[low:high])
            return blobs
        for low, high in pieces:
            first, end = at[low], at[high - 1] + sizes[high - 1]
            raw = memoryview(self._read_one(int(files[low]), first, end - first))
            if high - low == 1:
                blobs.append(raw)
            else:
                blobs += [raw[at[n] - first : at[n] - first + sizes[n]] for n in range(low, high)]
        return blobs

    def _read_one(self, dlog_id: int, position: int, length: int) -> bytes:
        if not dlog_id:
            try:
                return self._log.read(Offset(position), length)
            except (errors.CorruptLog, errors.DiskFailed):
                return b""  # cut off, or deleted: a message that was lost before points there
        file = self._find_file(dlog_id)
        try:
            return b"" if file is None else file.pread(length, position)
        except errors.DiskFailed:  # a sector that cannot be read is damage like any other
            return b""

    def _read_many(self, dlog_id: int, positions: list[int], sizes: list[int]) -> list[bytes]:
        if not dlog_id:
            try:
                return self._log.read_many(positions, sizes)
            except (errors.CorruptLog, errors.DiskFailed):
                return self._read_each(0, positions, sizes)
        file = self._find_file(dlog_id)
        try:
            return [b""] * len(sizes) if file is None else file.pread_many(sizes, positions)
        except errors.DiskFailed:
            return self._read_each(dlog_id, positions, sizes)

    def _read_each(self, dlog_id: int, positions: list[int], sizes: list[int]) -> list[bytes]:
        """So that one that cannot be read does not take the others with it."""
        pairs = zip(positions, sizes, strict=True)
        return [self._read_one(dlog_id, position, size) for position, size in pairs]

    def _find_file(self, dlog_id: int) -> File | None:
        """A delay log, or None where it is gone: what was in it is bad then."""
        file = self._files.get(dlog_id)
        if file is None:
            try:
                file = self._disk.open(delay_log_path(self._directory, dlog_id))
            except FileNotFoundError:
                return None
            self._files[dlog_id] = file
            if len(self._files) > self._open_count_max:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(dlog_id)
        return file

    def _corrupt(self, unit: Units) -> errors.DataLoss:
        dlog_id, position = int(unit["dlog_id"]), int(unit["position"])
        if not dlog_id:
            try:
                file, at = self._log.locate(Offset(position))
            except errors.CorruptLog as error:
                return error
            return errors.CorruptLog(
                f"{file}: the message at offset {position}, byte {at} there, fails its CRC32C",
                file=file,
                offset=position,
            )
        path = delay_log_path(self._directory, dlog_id)
        return errors.CorruptFile(
            f"{path}: the message at byte {position} fails its CRC32C", file=path, offset=position
        )

    def forget(self, dlog_id: int) -> None:
        """Let go of a delay log that is about to be removed."""
        self.reopen(dlog_id)
        self.overlay.forget(dlog_id)

    def reopen(self, dlog_id: int) -> None:
        """Read a delay log from its file anew: another one may have its name now."""
        file = self._files.pop(dlog_id, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files."""
        while self._files:
            self._files.popitem()[1].close()


def _lengths(units: Units) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = units["body_len"].astype(np.int64) + units["meta_len"]
    return lengths


def _pieces(
    files: NDArray[np.uint32], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> list[tuple[int, int]]:
    """[low, high) stretches of units that one read serves: one file, ascending, small gaps."""
    if not len(starts):
        return []
    ends = starts + lengths
    gap = starts[1:] - ends[:-1]
    apart = (files[1:] != files[:-1]) | (gap < 0) | (gap > GAP_BYTES_MAX)
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(starts)]
    found: list[tuple[int, int]] = []
    for low, high in pairwise(cuts):
        at = low
        while int(ends[high - 1]) - int(starts[at]) > PIECE_BYTES_MAX and high - at > 1:
            fit = int(np.searchsorted(ends[at:high], int(starts[at]) + PIECE_BYTES_MAX, "right"))
            found.append((at, at + max(1, fit)))
            at += max(1, fit)
        if at < high:
            found.append((at, high))
    return found
