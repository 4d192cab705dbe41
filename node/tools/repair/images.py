"""Files of a shard in memory, in which flipped bits are put right."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.crc32c import crc32c
from node.shard.checkpoint import ShardPlace
from node.tools.repair.flipped_bit import find_flipped_bit
from storage.files.disk import File
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    check_file_header,
    pack_file_header,
)

_SECTOR_BYTES: Final = 4_096


class Span(NamedTuple):
    """[start, end) of a file, under a checksum together with other spans."""

    start: int
    end: int


@dataclass
class Image:
    """A file as it is to be; `mended` says in words what is not as it was."""

    path: str
    raw: bytearray
    is_missing: bool = False
    mended: list[str] = field(default_factory=list)

    def mend_header(self, place: ShardPlace, file_type: FileType, base: int | None) -> None:
        """A header says nothing that is not known: a damaged one is made again.

        Raises:
            ForeignDirectory, IncompatibleFormat: it is intact, and not ours to touch.
        """
        head = bytes(self.raw[:FILE_HEADER_BYTES])
        try:
            check_file_header(head, self.path, file_type, place.identity, base)
        except errors.CorruptFile:
            self.raw[:FILE_HEADER_BYTES] = pack_file_header(file_type, place.identity, base or 0)
            self.mended.append("the file header")

    def mend(self, spans: list[Span], crc_at: int, mask: int = 0) -> Span | None:
        """Hold spans against the CRC32C, xor `mask`, at byte `crc_at`; flip one bit if that helps.

        Returns:
            The byte that was changed, as a span; an empty one where the spans were right. None:
            they are damaged, and stay so.
        """
        data = b"".join(self.raw[start:end] for start, end in spans)
        stored = int.from_bytes(self.raw[crc_at : crc_at + 4], "little") ^ mask
        if crc32c(data) == stored:
            return Span(0, 0)
        found = find_flipped_bit(data, stored)
        if found is None:
            return None
        at, bit = crc_at + found.bit // 8, found.bit % 8
        if found.byte >= 0:
            at, bit = _locate(spans, found.byte), found.bit
        self.raw[at] ^= 1 << bit
        self.mended.append(f"bit {bit} of byte {at}")
        return Span(at, at + 1) if found.byte >= 0 else Span(0, 0)

    def unmend(self, changed: Span) -> None:
        """What was changed last contradicts everything else: take it back."""
        bit = int(self.mended.pop().split()[1])
        self.raw[changed.start] ^= 1 << bit


def _locate(spans: list[Span], at: int) -> int:
    for start, end in spans:
        if at < end - start:
            return start + at
        at -= end - start
    raise errors.InvariantViolated("a byte outside of all spans")


def read_image(place: ShardPlace, path: str) -> Image:
    """A file; sectors that the disk cannot read are zeros, and so is one that is missing."""
    try:
        file = place.disk.open(path)
    except FileNotFoundError:
        return Image(path, bytearray(), is_missing=True)
    try:
        return Image(path, bytearray(_read(file, 0, file.size())))
    finally:
        file.close()


def _read(file: File, at: int, length: int) -> bytes:
    try:
        return file.pread(length, at)
    except errors.DiskFailed:
        if length <= _SECTOR_BYTES:
            return bytes(length)
    half = (length // 2 + _SECTOR_BYTES - 1) // _SECTOR_BYTES * _SECTOR_BYTES
    return _read(file, at, half) + _read(file, at + half, length - half)
