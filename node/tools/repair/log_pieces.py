"""The commit log of a node that does not run: read, never opened, cut or changed."""

from collections.abc import Iterator
from typing import Final

from hourwheel import errors
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.types import FIRST_OFFSET, Offset
from storage.files.disk import Disk, join
from storage.files.file_header import FILE_HEADER_BYTES
from storage.log.scan import BatchWalk

_NAME_END: Final = ".log"


class LogPieces:
    """Segments by their names. As `timewheel.bodies.LogReader`."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Of the segments in `directory`; they are opened when they are read."""
        self._disk, self._directory = disk, directory
        names = sorted(one for one in disk.list(directory) if one.endswith(_NAME_END))
        self._starts = [Offset(int(name.removesuffix(_NAME_END))) for name in names]

    @property
    def start_offset(self) -> Offset:
        """Where the log begins; 0 where there is none."""
        return self._starts[0] if self._starts else FIRST_OFFSET

    def locate(self, offset: Offset) -> tuple[str, int]:
        """The file that an offset lies in, and the byte there."""
        start = max((one for one in self._starts if one <= offset), default=None)
        if start is None:
            raise errors.CorruptLog(f"the log begins behind offset {offset}", offset=offset)
        path = join(self._directory, f"{start:020}{_NAME_END}")
        return path, offset - start + FILE_HEADER_BYTES

    def read(self, offset: Offset, length: int) -> bytes:
        """So many bytes from `offset` on, or as many as there are, over several segments."""
        found = b""
        while len(found) < length:
            path, at = self.locate(Offset(offset + len(found)))
            file = self._disk.open(path)
            try:
                piece = file.pread(length - len(found), at)
            finally:
                file.close()
            if not piece:
                break
            found += piece
        return found

    def read_many(self, offsets: list[int], lengths: list[int]) -> list[bytes]:
        """Many small pieces."""
        pairs = zip(offsets, lengths, strict=True)
        return [self.read(Offset(offset), size) for offset, size in pairs]

    def batches(self, until: Offset) -> Iterator[RecordBatch]:
        """Sound batches below `until`; of a segment those in front of its first damaged one."""
        for start in self._starts:
            if start >= until:
                return
            file = self._disk.open(self.locate(start)[0])
            try:
                end = Offset(start + file.size() - FILE_HEADER_BYTES)
                for batch in BatchWalk(file, start, start, end):
                    if batch.header.offset >= until:
                        break
                    yield batch
            except errors.DiskFailed:
                continue  # what lies behind in this segment cannot be read
            finally:
                file.close()
