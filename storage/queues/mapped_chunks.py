"""Which chunks of consume queues are mapped: few of each queue, and not many of all together.

Mapped memory counts as ours and takes file handles, so chunks that were not used for longest are
unmapped, and mapped again (and verified again) when somebody asks.
"""

from typing import Final

from hourwheel import errors
from storage.files.disk import Disk, join
from storage.files.file_header import Identity
from storage.queues.page_sums import PageSums
from storage.queues.queue_chunk import Chunk, Seal, chunk_bytes

CHUNKS_PER_QUEUE_MAX: Final = 8
NAME_END: Final = ".cq"


def file_name(number: int) -> str:
    """Name of a chunk in its queue's folder."""
    return f"{number:012}{NAME_END}"


class MappingBudget:
    """Counts the chunks that all queues have mapped, and unmaps those of the queue used least."""

    def __init__(self, count_max: int) -> None:
        """Allow `count_max` mapped chunks; more only while they are all of one queue."""
        errors.invariant(count_max > 0, "no mapping is allowed")
        self.count_max = count_max
        self.count = 0
        self._counts: dict[MappedChunks, int] = {}
        """Owner -> how many it has mapped, at least one; the one used last at the end."""

    def mapped(self, owner: "MappedChunks") -> None:
        """An owner has one more, and is in use."""
        self._counts[owner] = self._counts.pop(owner, 0) + 1
        self.count += 1
        while self.count > self.count_max and len(self._counts) > 1:
            next(iter(self._counts)).close_all()

    def unmapped(self, owner: "MappedChunks") -> None:
        """An owner has one less."""
        self.count -= 1
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]

    def used(self, owner: "MappedChunks") -> None:
        """An owner is in use."""
        if owner in self._counts:
            self._counts[owner] = self._counts.pop(owner)


class MappedChunks:
    """The chunks of one queue that are mapped. Chunks that were unmapped reserve no entries."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        identity: Identity,
        chunk_entries: int,
        budget: MappingBudget,
    ) -> None:
        """Nothing is mapped yet. `budget` is shared by all queues."""
        self._disk = disk
        self._directory = directory
        self._identity = identity
        self._chunk_entries = chunk_entries
        self._budget = budget
        self._chunks: dict[int, Chunk] = {}
        """The one used last at the end."""
        self.writable_from = 0
        """Chunks from this number on are written to, and stay mapped unless the budget is short."""

    def __contains__(self, number: int) -> bool:
        """Whether a chunk is mapped."""
        return number in self._chunks

    def path_of(self, number: int) -> str:
        """Path of a chunk's file."""
        return join(self._directory, file_name(number))

    def get(self, number: int, seal: Seal, sums: PageSums | None = None) -> Chunk:
        """A chunk that exists. Where it has to be mapped it is verified, see `Chunk.open`.

        Raises:
            CorruptFile: see `Chunk.open`.
        """
        chunk = self.find(number)
        if chunk is None:
            path = self.path_of(number)
            chunk = Chunk.open(self._disk, path, self._chunk_entries, seal, sums)
            self._add(number, chunk)
            if number + 1 < self.writable_from:
                self._read_ahead(number + 1)
        return chunk

    def find(self, number: int) -> Chunk | None:
        """A chunk, if it is mapped: it is in use."""
        chunk = self._chunks.pop(number, None)
        if chunk is not None:
            self._chunks[number] = chunk
            self._budget.used(self)
        return chunk

    def create(self, number: int) -> Chunk:
        """An empty chunk; see `Chunk.create`."""
        chunk = Chunk.create(
            self._disk, self.path_of(number), self._identity, number, self._chunk_entries
        )
        self._add(number, chunk)
        return chunk

    def _add(self, number: int, chunk: Chunk) -> None:
        spare = len(self._chunks) + 1 - CHUNKS_PER_QUEUE_MAX
        if spare > 0:
            for old in [old for old in self._chunks if old < self.writable_from][:spare]:
                self.close(old)
        self._chunks[number] = chunk
        self._budget.mapped(self)

    def _read_ahead(self, number: int) -> None:
        """Hint that a full chunk is wanted soon.

        A page that has to come from the disk when mapped memory is touched stops all threads:
        Python holds its lock meanwhile.
        """
        if number in self._chunks:
            return
        try:
            file = self._disk.open(self.path_of(number))
        except FileNotFoundError:
            return  # its reader gets the error
        file.will_need(0, chunk_bytes(self._chunk_entries))
        file.close()

    def used(self) -> None:
        """The queue is in use: others are unmapped first."""
        self._budget.used(self)

    def close(self, number: int) -> None:
        """Unmap a chunk, if it is mapped."""
        chunk = self._chunks.pop(number, None)
        if chunk is not None:
            chunk.close()
            self._budget.unmapped(self)

    def close_all(self) -> None:
        """Unmap all chunks."""
        for number in list(self._chunks):
            self.close(number)
