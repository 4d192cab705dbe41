"""What of a consume queue's files is durable, what a checkpoint has to add, and what may go.

A checkpoint is in three steps: `begin` captures on the queue's thread what changed, its works make
that durable in another one, and `end` follows when the manifest is durable as well. Until then,
what the manifest before relies on is left alone: its seals, and the files of chunks trimmed since.
If a step fails, `end` is not called, and the next `begin` captures all of it again.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from hourwheel import errors
from hourwheel.types import TopicQueue
from storage.files.disk import Disk
from storage.queues.page_sums import PageSums
from storage.queues.queue_chunk import Seal, write_seal

Work: TypeAlias = Callable[[], None]


class Settled(NamedTuple):
    """What the last manifest relies on in a chunk: the seal over these entries, in this slot."""

    entry_count: int
    slot: int


_NOTHING: Final = Settled(0, 1)


class _Sealing:
    """Makes one chunk durable."""

    def __init__(self, number: int, known: Seal, sums: PageSums, slot: int) -> None:
        """`known` is over the first entries, `sums` over all; `slot` is not relied on."""
        self.number = number
        self.seal, self._sums = known, sums
        self.settled = Settled(sums.row_count, slot)

    def run(self, disk: Disk, path: str, topic_queue: TopicQueue) -> None:
        """In any thread."""
        slot = self.settled.slot
        self.seal = write_seal(disk, path, self.seal, self._sums, slot, topic_queue)


class _Pending(NamedTuple):
    """A checkpoint that has begun and not ended."""

    sealings: list[_Sealing]
    created_count: int
    trimmed_count: int


class ChunkLedger:
    """See the top of this file."""

    def __init__(
        self, disk: Disk, directory: str, path_of: Callable[[int], str], chunk_entries: int
    ) -> None:
        """Of the files in `directory`, each of `chunk_entries` when it is full."""
        self._disk = disk
        self._chunk_entries = chunk_entries
        self._directory = directory
        self._path_of = path_of
        self._unsettled: dict[int, Settled] = {}
        """Chunk -> what is settled in it, for those that are not settled as full."""
        self._created_count = 0
        """Files made, and how many of them the last manifest could rely on."""
        self._created_durable_count = 0
        self._trimmed: list[tuple[int, Seal]] = []
        """Chunks whose files may go when a manifest is durable that does not need them."""
        self._pending: _Pending | None = None

    def note_tail(self, number: int, settled: Settled) -> None:
        """The last manifest has a chunk that is not full."""
        self._unsettled[number] = settled

    def note_created(self, number: int) -> None:
        """A chunk's file was made, and its first entry is about to be stored."""
        self._unsettled[number] = _NOTHING
        self._created_count += 1

    def note_trimmed(self, number: int, seal: Seal) -> None:
        """A full chunk is needed no more."""
        self._unsettled.pop(number, None)
        self._trimmed.append((number, seal))

    def is_settled(self, number: int) -> bool:
        """Whether the last manifest has all that a chunk will ever hold."""
        return number not in self._unsettled

    def trimmed_seals(self) -> list[Seal]:
        """Seals of the chunks that are trimmed, but that the last manifest has."""
        return [seal for _, seal in self._trimmed]

    def begin(
        self,
        topic_queue: TopicQueue,
        entry_count_of: Callable[[int], int],
        seal_of: Callable[[int], Seal],
        sums_of: Callable[[int], PageSums],
    ) -> list[Work]:
        """Capture what changed.

        Args:
            topic_queue: whose chunks these are.
            entry_count_of: chunk -> entries in it now.
            seal_of: chunk -> what is known of its first entries.
            sums_of: chunk -> sums over its entries now; of one that changed only.

        Returns:
            Works for another thread, in this order.
        """
        sealings = []
        for number, settled in self._unsettled.items():
            count = entry_count_of(number)
            if count != settled.entry_count:
                sums = sums_of(number).copy()
                sealings.append(_Sealing(number, seal_of(number), sums, 1 - settled.slot))
        self._pending = _Pending(sealings, self._created_count, len(self._trimmed))
        works: list[Work] = [
            partial(sealing.run, self._disk, self._path_of(sealing.number), topic_queue)
            for sealing in sealings
        ]
        if self._created_count != self._created_durable_count:
            works.append(partial(self._disk.sync_dir, self._directory))
        return works

    def end(self) -> list[Work]:
        """The manifest that names what was captured is durable.

        Returns:
            Works for another thread, which remove files that no manifest needs any more.
        """
        if self._pending is None:
            return []
        sealings, self._created_durable_count, trimmed_count = self._pending
        self._pending = None
        for sealing in sealings:
            count = sealing.settled.entry_count
            errors.invariant(sealing.seal.entry_count == count, "a checkpoint ends unfinished")
            if count == self._chunk_entries:
                self._unsettled.pop(sealing.number, None)
            elif sealing.number in self._unsettled:  # else it was trimmed meanwhile
                self._unsettled[sealing.number] = sealing.settled
        removed, self._trimmed = self._trimmed[:trimmed_count], self._trimmed[trimmed_count:]
        return [partial(self._disk.remove, self._path_of(number)) for number, _ in removed]
