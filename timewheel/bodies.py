"""Read the metas and bodies of units, wherever they lie: commit log or delay logs. All verified.

Units released together lie together, in the order of their keys, in a delay log; so blobs that
follow on one another are read in one piece, and near ones of one file with the gap between them.
What was due soon after it was published was never flushed and lies scattered in the log; where
most pieces are single messages, they are read one by one.
"""

from collections import OrderedDict
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c, crc32c_each, split
from storage.disk import Disk, File
from storage.unit import Units, stretches
from timewheel.run_format import delay_log_path

_OPEN_FILES_MAX: Final = 128
_GAP_BYTES_MAX: Final = 16_384
_PIECE_BYTES_MAX: Final = 8 << 20
_SCATTERED_MESSAGES_PER_PIECE: Final = 4


class LogReader(Protocol):
    """What is needed of the commit log."""

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes from `offset` on."""
        ...

    def read_many(self, offsets: list[int], lengths: list[int]) -> list[bytes]:
        """Many small pieces."""
        ...

    def locate(self, offset: int) -> tuple[str, int]:
        """The file that an offset lies in, and the byte there: for people."""
        ...


class BadBlob(NamedTuple):
    """A message whose bytes fail their checksum: its ordinal among those asked for, and where."""

    ordinal: int
    error: errors.DataLoss


class Bodies:
    """Reads blobs (meta and body together). One instance a thread."""

    def __init__(self, disk: Disk, directory: str, log: LogReader) -> None:
        """`directory` holds the delay logs."""
        self._disk, self._directory, self._log = disk, directory, log
        self._files: OrderedDict[int, File] = OrderedDict()

    def read(self, units: Units) -> tuple[list[bytes | memoryview], list[BadBlob]]:
        """The blobs of `units`, in their order, and which are bad (an empty one stands there)."""
        lengths = _lengths(units)
        blobs = self._fetch(units, lengths)
        right = np.fromiter(map(crc32c, blobs), np.uint32, len(blobs)) == units["crc"]
        right &= np.fromiter(map(len, blobs), np.int64, len(blobs)) == lengths
        if right.all():
            return blobs, []
        bad = [BadBlob(one, self._corrupt(units[one])) for one in np.flatnonzero(~right).tolist()]
        for one in bad:
            blobs[one.ordinal] = b""
        return blobs, bad

    def read_joined(self, units: Units) -> tuple[bytes, list[BadBlob]]:
        """The blobs of `units` one behind the other; void where any is bad."""
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

    def _fetch(self, units: Units, lengths: NDArray[np.int64]) -> list[bytes | memoryview]:
        """The blobs, unverified and maybe short."""
        starts, files = units["position"].astype(np.int64), units["dlog_id"]
        pieces = _pieces(files, starts, lengths)
        at, sizes = starts.tolist(), lengths.tolist()
        blobs: list[bytes | memoryview] = []
        if len(units) < _SCATTERED_MESSAGES_PER_PIECE * len(pieces):
            for low, high in stretches(files):
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
                return self._log.read(position, length)
            except errors.CorruptLog:
                return b""  # cut off, or deleted: a message that was lost before points there
        file = self._find_file(dlog_id)
        return b"" if file is None else file.pread(length, position)

    def _read_many(self, dlog_id: int, positions: list[int], sizes: list[int]) -> list[bytes]:
        if not dlog_id:
            try:
                return self._log.read_many(positions, sizes)
            except errors.CorruptLog:
                pairs = zip(positions, sizes, strict=True)
                return [self._read_one(0, position, size) for position, size in pairs]
        file = self._find_file(dlog_id)
        return [b""] * len(sizes) if file is None else file.pread_many(sizes, positions)

    def _find_file(self, dlog_id: int) -> File | None:
        """A delay log, or None where it is gone: what was in it is bad then."""
        file = self._files.get(dlog_id)
        if file is None:
            try:
                file = self._disk.open(delay_log_path(self._directory, dlog_id))
            except FileNotFoundError:
                return None
            self._files[dlog_id] = file
            if len(self._files) > _OPEN_FILES_MAX:
                self._files.popitem(last=False)[1].close()
        else:
            self._files.move_to_end(dlog_id)
        return file

    def _corrupt(self, unit: Units) -> errors.DataLoss:
        dlog_id, position = int(unit["dlog_id"]), int(unit["position"])
        if not dlog_id:
            try:
                file, at = self._log.locate(position)
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
        """Close a delay log that is about to be removed."""
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
    apart = (files[1:] != files[:-1]) | (gap < 0) | (gap > _GAP_BYTES_MAX)
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(starts)]
    found: list[tuple[int, int]] = []
    for low, high in pairwise(cuts):
        at = low
        while int(ends[high - 1]) - int(starts[at]) > _PIECE_BYTES_MAX and high - at > 1:
            fit = int(np.searchsorted(ends[at:high], int(starts[at]) + _PIECE_BYTES_MAX, "right"))
            found.append((at, at + max(1, fit)))
            at += max(1, fit)
        if at < high:
            found.append((at, high))
    return found
