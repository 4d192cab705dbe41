"""The delay log: metas and bodies in the order in which they fall due, written once, then read.

    byte  size  part
       0    64  file header, type DL, base = its number
      64   ...  meta and body of each unit, one behind the other, in key order

There is no checksum of its own: each message's CRC32C, made by its producer, covers its bytes here
as everywhere. The manifest says how long the file is.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.record_batch import Buffer
from hourwheel.types import Offset
from storage.files.disk import Disk
from storage.files.file_header import FILE_HEADER_BYTES, FileType, Identity, pack_file_header
from storage.files.piecewise_sync import PiecewiseSync
from storage.views.unit import Units, copied
from timewheel.bodies import BadBlob, Bodies
from timewheel.run_format import delay_log_path

I64: TypeAlias = NDArray[np.int64]

_GRAINS: Final = (4_096, 512, 64)
"""A blob is copied in grains of these sizes and a tail of less than the last one."""


class DelayLogWriter:
    """One delay log being written; `append` in key order, then `finish`."""

    def __init__(self, disk: Disk, directory: str, identity: Identity, number: int) -> None:
        """Create the file; it is nothing until a manifest names it."""
        self.number = number
        self.path = delay_log_path(directory, number)
        if disk.exists(self.path):
            disk.remove(self.path)
        self._file = disk.open(self.path, create=True)
        self._file.pwrite([pack_file_header(FileType.DELAY_LOG, identity, number)], 0)
        self._sync = PiecewiseSync(self._file)
        self.size_bytes = FILE_HEADER_BYTES

    def append_from_log(self, units: Units, source: Buffer, starts: I64, others: Bodies) -> Units:
        """Copy the blobs of `units` and return the units pointing here.

        Args:
            units: in key order.
            source: bytes of the log.
            starts: int64[n] where in it each blob begins; -1 for those that lie elsewhere.
            others: for these (retries of older messages).
        """
        moved = copied(units)
        inside, lengths = starts >= 0, blob_lengths(moved)
        if inside.all():
            self._write(moved, [gather(source, starts, lengths)], lengths)
        else:
            self._append_mixed(moved, source, starts, others)
        return moved

    def _append_mixed(self, part: Units, source: Buffer, starts: I64, others: Bodies) -> None:
        """A chunk of which some units point elsewhere: blob by blob, such chunks are few."""
        outside = starts < 0
        elsewhere, bad = others.read(part[outside])
        view, blobs, foreign = memoryview(source), [], iter(elsewhere)
        for start, size in zip(starts.tolist(), blob_lengths(part).tolist(), strict=True):
            blobs.append(view[start : start + size] if start >= 0 else next(foreign))
        lost = np.flatnonzero(outside)[[one.ordinal for one in bad]]
        self._write_blobs(part, blobs, lost)

    def append_blobs(self, units: Units, blobs: Sequence[Buffer], bad: list[BadBlob]) -> Units:
        """Write these blobs and return the units pointing here."""
        moved = copied(units)
        self._write_blobs(moved, blobs, np.array([one.ordinal for one in bad], np.int64))
        return moved

    def _write_blobs(self, units: Units, blobs: Sequence[Buffer], lost: NDArray[np.int64]) -> None:
        """Write blobs one by one. A lost one is empty; its unit keeps the place where it is bad.

        So the receiver of such a message gets the error with file and offset, not its bytes.
        """
        lengths = blob_lengths(units)
        lengths[lost] = 0
        kept = units[lost]
        self._write(units, blobs, lengths)
        units[lost] = kept

    def _write(self, units: Units, pieces: Sequence[Buffer], lengths: NDArray[np.int64]) -> None:
        units["dlog_id"] = self.number
        units["position"] = (self.size_bytes + np.cumsum(lengths) - lengths).astype(np.uint64)
        self._file.pwrite(pieces, self.size_bytes)
        written = int(lengths.sum())
        self.size_bytes += written
        self._sync.on_written(written)

    def finish(self) -> None:
        """Make the file durable and close it; its entry needs the caller's `sync_dir`."""
        self._file.datasync()
        self._file.close()


def blob_lengths(units: Units) -> I64:
    """Bytes of meta and body of each unit."""
    lengths: I64 = units["body_len"].astype(np.int64) + units["meta_len"]
    return lengths


def gather(source: Buffer, starts: I64, lengths: I64) -> Buffer:
    """The blobs `source[start : start + length]`, one behind the other. No Python step for a blob.

    All grains of one size are copied by one fancy-indexed assignment between byte-strided views of
    `V<size>` items, which numpy turns into a memcpy an item, outside the GIL. Tails are copied
    length by length: at most 63 assignments whatever the number of blobs. Blobs of one length take
    a single indexing, 0.1 us for 200 bytes in random order where slicing and joining takes 0.9 us
    and holds the GIL.

    Args:
        source: where the blobs are.
        starts: int64[n] first byte of each.
        lengths: int64[n] bytes of each.
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        return b""
    if bool((lengths == lengths[0]).all()):
        picked = _items(source, int(lengths[0]))[starts]
        return memoryview(picked.view(np.uint8).data)
    target = bytearray(total)
    copy_each(source, target, starts, ends - lengths, lengths)
    return target


def copy_each(source: Buffer, target: bytearray, starts: I64, places: I64, lengths: I64) -> None:
    """Copy the blobs `source[start : start + length]` to `target[place :]`.

    Args:
        source: where the blobs are.
        target: long enough.
        starts: int64[n] first byte of each in `source`.
        places: int64[n] and in `target`.
        lengths: int64[n] bytes of each.
    """
    read, write, left = starts.copy(), places.copy(), lengths.copy()
    for grain in _GRAINS:
        whole = left // grain
        if whole.any():
            _copy_grains(source, target, read, write, whole, grain)
            read += whole * grain
            write += whole * grain
            left -= whole * grain
    order = np.argsort(left, kind="stable")
    cuts = np.searchsorted(left[order], np.arange(1, _GRAINS[-1] + 1))
    for size in range(1, _GRAINS[-1]):
        chosen = order[cuts[size - 1] : cuts[size]]
        if len(chosen):
            _copy(source, target, read[chosen], write[chosen], size)


def _copy_grains(
    source: Buffer, target: bytearray, read: I64, write: I64, whole: I64, grain: int
) -> None:
    first = np.cumsum(whole) - whole
    step = (np.arange(int(whole.sum())) - np.repeat(first, whole)) * grain
    _copy(source, target, np.repeat(read, whole) + step, np.repeat(write, whole) + step, grain)


def _copy(source: Buffer, target: bytearray, read: I64, write: I64, size: int) -> None:
    _items(target, size)[write] = _items(source, size)[read]


def _items(buffer: Buffer, size: int) -> NDArray[Any]:
    """Every place in `buffer` as an opaque item of `size` bytes: overlapping views, no copies."""
    return np.ndarray((len(buffer) - size + 1,), f"V{size}", buffer, strides=(1,))


def places_in_log(units: Units, start: Offset, end: Offset) -> I64:
    """Where in [start, end) of the log each unit's blob begins; -1 for those that lie elsewhere."""
    places = units["position"].astype(np.int64) - start
    inside = (units["dlog_id"] == 0) & (places >= 0)
    inside &= places + blob_lengths(units) <= end - start
    return np.where(inside, places, -1)
