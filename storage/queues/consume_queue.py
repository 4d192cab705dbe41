"""One consume queue: the units that were released to one queue of a topic, in order of release.

    position   0 ..... start ................ visible end ........... end
               trimmed  |  consumers may see   |  released ahead of    |
                                                  their time

Dispatches are committed a little ahead of time, so each entry has a gate, `release_ms`: the queue
is served up to the first entry whose gate lies ahead of the cluster clock. The visible end never
goes back: what was once on time stays so.

Entries lie in chunks (storage.queues.queue_chunk). Of a full chunk its seal is kept in memory:
enough to pass over it, to trim it and to say what it refers to without reading it. The hot path
stores and copies rows in mapped memory; a checkpoint makes durable what changed, in another thread.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.internal.v1 import state_pb2
from hourwheel.types import Offset, Position, SequenceNumber, TopicQueue
from storage.files.disk import Disk, join
from storage.files.file_header import Identity
from storage.queues.chunk_ledger import ChunkLedger, Settled
from storage.queues.mapped_chunks import (
    CHUNKS_PER_QUEUE_MAX,
    NAME_END,
    MappedChunks,
    MappingBudget,
    file_name,
)
from storage.queues.page_sums import PageSums
from storage.queues.queue_chunk import (
    NO_ENTRIES,
    Chunk,
    Seal,
    chunk_bytes,
    find_seal,
    lowest_references,
)
from storage.views.digest import Hasher, feed_numbers
from storage.views.unit import (
    FEW_UNITS,
    NO_UNITS,
    UNIT,
    Units,
    equal_spans,
    release_ms,
    rows_of,
)

CHUNK_ENTRIES: Final = 16_384
"""Entries of a chunk: 1 MiB. The same on all replicas: trimming goes by whole chunks."""
_SCAN_ENTRIES_MAX: Final = 65_536
"""Entries that one call of `visible_end` looks at: 1-2 ms."""
_SCAN_FIRST: Final = 256
_SCAN_GROWTH: Final = 8
_DIGEST_ENTRIES: Final = 4_096

Work: TypeAlias = Callable[[], None]


class QueueChanges(NamedTuple):
    """What all queues note for their keeper, so that it need not look at each of them."""

    changed: set[TopicQueue]
    """Queues that were appended to or trimmed, until the keeper takes them out."""
    full_ms: dict[TopicQueue, int]
    """Queue -> latest release in its first full chunk, of those that have one: it may be trimmed
    when that is past retention."""


class ConsumeQueue:
    """See the top of this file. One thread; the works of a checkpoint run in any."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        identity: Identity,
        state: state_pb2.QueueState,
        chunk_entries: int = CHUNK_ENTRIES,
        budget: MappingBudget | None = None,
        changes: QueueChanges | None = None,
    ) -> None:
        """A queue of that state; see `open`."""
        self._changes = QueueChanges(set(), {}) if changes is None else changes
        self._disk = disk
        self._directory = directory
        self._identity = identity
        self._chunk_entries = chunk_entries
        if budget is None:
            budget = MappingBudget(CHUNKS_PER_QUEUE_MAX)
        self._mapped = MappedChunks(disk, directory, identity, chunk_entries, budget)
        self._ledger = ChunkLedger(disk, directory, self._mapped.path_of, chunk_entries)
        self.topic_queue = TopicQueue(state.topic_queue)
        self._start = state.start_position
        self._end = state.end_position
        self._visible_end = self._start
        """Invariant: start <= visible end <= end."""
        self._gates_ms: list[int] = []
        """`release_ms` of entries from the visible end on, that one last: of the few, or none, that
        the last look has read."""
        self._first_chunk = self._start // chunk_entries
        """Invariant: first chunk + full chunks = number of the chunk that is not full."""
        self._seals: list[Seal] = []
        """Of the full chunks."""
        self._tail_seal = NO_ENTRIES
        """Over the first entries of the chunk that is not full; not always over all of them."""
        self._sums: dict[int, PageSums] = {}
        """Of the chunks that no seal on disk is over yet, whether they are mapped or not."""
        self._tail: Chunk | None = None
        """The chunk that is not full, if it was mapped for appending (and maybe unmapped again)."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        identity: Identity,
        state: state_pb2.QueueState,
        chunk_entries: int = CHUNK_ENTRIES,
        budget: MappingBudget | None = None,
        changes: QueueChanges | None = None,
    ) -> "ConsumeQueue":
        """Take up the state of a checkpoint. Reads one small piece of each chunk.

        Args:
            disk: where.
            directory: of this queue; it is made when something is appended.
            identity: whose.
            state: of the last manifest: entries beyond it do not exist, whatever the files hold.
            chunk_entries: entries of a chunk.
            budget: shared by all queues.
            changes: shared by all queues.

        Raises:
            CorruptFile: a chunk that the checkpoint made durable is missing or damaged. Entries are
                looked at when they are mapped, and raise it then.
        """
        queue = cls(disk, directory, identity, state, chunk_entries, budget, changes)
        queue._load()
        return queue

    def _load(self) -> None:
        last = -(-self._end // self._chunk_entries)
        for number in range(self._first_chunk, last):
            count = self._entry_count(number)
            path = self._mapped.path_of(number)
            seal, slot = find_seal(
                self._disk,
                path,
                self._identity,
                number,
                self.topic_queue,
                count,
                chunk_bytes(self._chunk_entries),
            )
            if count == self._chunk_entries:
                self._seals.append(seal)
            else:
                self._tail_seal = seal
                self._ledger.note_tail(number, Settled(count, slot))
        self._note_full()
        self._mapped.writable_from = self._end // self._chunk_entries
        needed = {file_name(number) for number in range(self._first_chunk, last)}
        if self._disk.exists(self._directory):
            for name in self._disk.list(self._directory):
                if name.endswith(NAME_END) and name not in needed:
                    self._disk.remove(join(self._directory, name))

    # --- positions

    @property
    def start_position(self) -> Position:
        """The first entry that is not trimmed, or `end_position`."""
        return Position(self._start)

    @property
    def end_position(self) -> Position:
        """Position of the next entry."""
        return Position(self._end)

    def state(self) -> state_pb2.QueueState:
        """For the manifest, as of now."""
        return state_pb2.QueueState(
            topic_queue=self.topic_queue, start_position=self._start, end_position=self._end
        )

    def _entry_count(self, number: int) -> int:
        """Entries in a chunk."""
        return min(self._end - number * self._chunk_entries, self._chunk_entries)

    def _seal_of(self, number: int) -> Seal:
        """What is known of a chunk's first entries."""
        ordinal = number - self._first_chunk
        return self._seals[ordinal] if ordinal < len(self._seals) else self._tail_seal

    def _chunk(self, number: int) -> Chunk:
        """A chunk that exists, mapped."""
        chunk = self._mapped.find(number)
        if chunk is None:
            chunk = self._mapped.get(number, self._seal_of(number), self._sums.get(number))
            if number >= self._mapped.writable_from:
                self._sums[number] = chunk.sums
        return chunk

    def close_mappings(self) -> None:
        """Unmap all chunks; they are mapped again when they are needed."""
        self._mapped.close_all()

    # --- appending

    def append(self, units: Units) -> Position:
        """Append units as they are; the position of the first one.

        Raises:
            DiskFull: nothing was appended.
        """
        first, count = self._end, len(units)
        self._changes.changed.add(self.topic_queue)
        at = first % self._chunk_entries
        tail = self._tail
        if tail is None or at + count > tail.entry_count_reserved:
            self._append_slowly(units)
        else:
            self._mapped.used()
            tail.store(units)
            self._end = first + count
            if at + count == self._chunk_entries:
                self._seal_full()
        return Position(first)

    def _append_slowly(self, units: Units) -> None:
        """Append what needs room, another chunk or a mapping first."""
        size = self._chunk_entries
        end = self._end + len(units)
        # All room first: after DiskFull nothing may have changed.
        for number in range(self._end // size, -(-end // size)):
            self._writable(number).reserve(min(end - number * size, size))
        stored = 0
        while stored < len(units):
            number, at = divmod(self._end, size)
            if at == 0:
                self._ledger.note_created(number)
            self._tail = self._writable(number)
            part = units[stored : stored + size - at]
            self._tail.store(part)
            self._end += len(part)
            stored += len(part)
            if at + len(part) == size:
                self._seal_full()

    def _writable(self, number: int) -> Chunk:
        """The chunk at the end, or a new one behind it."""
        if number in self._mapped or number * self._chunk_entries < self._end:
            return self._chunk(number)
        self._disk.make_dir(self._directory, is_durable=False)
        chunk = self._mapped.create(number)
        self._sums[number] = chunk.sums
        return chunk

    def _seal_full(self) -> None:
        """The tail has just become full."""
        self._extend_tail_seal(self._chunk_entries)
        self._seals.append(self._tail_seal)
        if len(self._seals) == 1:
            self._note_full()
        self._tail_seal = NO_ENTRIES
        self._tail = None
        self._mapped.writable_from += 1

    def _note_full(self) -> None:
        """The first full chunk is another one."""
        if self._seals:
            self._changes.full_ms[self.topic_queue] = self._seals[0].release_ms_max
        else:
            self._changes.full_ms.pop(self.topic_queue, None)

    def _extend_tail_seal(self, entry_count: int) -> None:
        """Let the seal be over the first `entry_count` entries of the chunk that is not full."""
        known = self._tail_seal.entry_count
        if known < entry_count:
            chunk = self._chunk(self._first_chunk + len(self._seals))
            self._tail_seal = self._tail_seal.extended(chunk.units(known, entry_count))

    # --- reading

    def read(self, first: int, count: int) -> Units:
        """A copy of the entries from `first` on: `count`, or fewer where a chunk or the queue ends.

        Does not look at the visible end. Entries below `start_position` are trimmed: asking for
        them is a bug of the caller's, who must know.
        """
        errors.invariant(first >= self._start, "reading trimmed entries", first=first)
        if first >= self._end or count <= 0:
            return NO_UNITS
        number, at = divmod(first, self._chunk_entries)
        end = min(at + count, self._entry_count(number))
        return self._chunk(number).copy(at, end)

    def look_at(self, first: int, count: int) -> Units:
        """As `read`, but a view of a mapping: to be let go of before anything else is read."""
        number, at = divmod(first, self._chunk_entries)
        end = min(at + count, self._entry_count(number))
        return self._chunk(number).units(at, end)

    def find_before(self, end: int, sequence: SequenceNumber) -> tuple[Position, Position | None]:
        """Look for a message in the chunk that has the entry before `end`, which is not trimmed.

        Returns:
            The first entry looked at, all below `end`; the last one of that message.
        """
        number = (end - 1) // self._chunk_entries
        base = number * self._chunk_entries
        first = max(self._start, base)
        sequences = self._chunk(number).units(first - base, end - base)["sequence"]
        (found,) = np.nonzero(sequences == sequence)
        return Position(first), Position(first + int(found[-1])) if len(found) else None

    def first_released_at(self, release_ms: int) -> Position:
        """No entry before it could be seen at that instant or later, as chunks go."""
        number = self._first_chunk
        for seal in self._seals:
            if seal.release_ms_max >= release_ms:
                break
            number += 1
        return Position(max(self._start, number * self._chunk_entries))

    def find_from(
        self, first: int, sequence: SequenceNumber, attempt: int, due_ms: int
    ) -> tuple[Position, Position | None]:
        """Look for a delivery of a message in the chunk that has entry `first`, which is there.

        Returns:
            Where to go on; the first entry from `first` on that is this one.
        """
        number = first // self._chunk_entries
        base = number * self._chunk_entries
        end = base + self._entry_count(number)
        units = self._chunk(number).units(first - base, end - base)
        is_it = (units["sequence"] == sequence) & (units["attempt"] == attempt)
        found = np.flatnonzero(is_it & (units["due_ms"] == due_ms))
        return Position(end), Position(first + int(found[0])) if len(found) else None

    def pick(self, positions: NDArray[np.int64]) -> Units:
        """A copy of the entries at some positions, in this order; not trimmed, and all there."""
        if len(positions) == 1:
            return self.read(int(positions[0]), 1)
        numbers = positions // self._chunk_entries
        found = []
        for low, high in equal_spans(numbers):
            number = int(numbers[low])
            entries = positions[low:high] - number * self._chunk_entries
            found.append(self._chunk(number).pick(entries))
        return np.concatenate(found).view(UNIT) if found else NO_UNITS

    def visible_end(self, now_ms: int) -> Position:
        """Position of the first entry that consumers may not see yet.

        Never falls, but by `look_again`.

        Looks only behind what it said last, and not at everything at once where much came since:
        then it says less than is visible, and `next_gate_ms` is not ahead of `now_ms`.
        """
        if self._visible_end < self._end and (not self._gates_ms or self._gates_ms[-1] <= now_ms):
            self._move_visible_end(now_ms)
        return Position(self._visible_end)

    def look_again(self) -> None:
        """The clock was set back: look at the gates of all entries again."""
        self._visible_end, self._gates_ms = self._start, []

    def _move_visible_end(self, now_ms: int) -> None:
        gates_ms = self._gates_ms
        while gates_ms and gates_ms[-1] <= now_ms:
            gates_ms.pop()
            self._visible_end += 1
        if gates_ms:
            return
        at, step, looked_at = self._visible_end, _SCAN_FIRST, 0
        while at < self._end and looked_at < _SCAN_ENTRIES_MAX:
            number, in_chunk = divmod(at, self._chunk_entries)
            chunk_end = self._entry_count(number)
            ordinal = number - self._first_chunk
            if ordinal < len(self._seals) and self._seals[ordinal].release_ms_max <= now_ms:
                at += chunk_end - in_chunk
                continue
            end = min(in_chunk + step, chunk_end)
            ordinal, gates_ms = _find_gates(self._chunk(number).units(in_chunk, end), now_ms)
            at += ordinal
            if gates_ms:
                break
            looked_at += end - in_chunk
            step *= _SCAN_GROWTH
        self._visible_end, self._gates_ms = at, gates_ms

    def next_gate_ms(self) -> int | None:
        """When to ask for the visible end again; None while all entries are visible.

        Not ahead of now where `visible_end` has not looked at all there is.
        """
        if self._visible_end == self._end:
            return None
        if not self._gates_ms:
            self._gates_ms = [rows_of(self.read(self._visible_end, 1))[0].release_ms]
        return self._gates_ms[-1]

    # --- trimming

    def trim_position_for(self, retain_from_ms: int) -> Position:
        """Where `trim_to` may go; the same on all replicas.

        It is the first chunk that is not full, or has an entry released at `retain_from_ms` or
        later.
        """
        number = self._first_chunk
        for seal in self._seals:
            if seal.release_ms_max >= retain_from_ms:
                break
            number += 1
        return Position(max(self._start, number * self._chunk_entries))

    def find_released(self, from_ms: int, position: Position) -> tuple[Position, bool]:
        """Look from a position on for the first entry that is released at `from_ms` or later.

        One chunk is looked at, and full ones before it whose seals tell that it is not there.

        Returns:
            Where it is, or where to look on; whether it is there, or the queue ends.
        """
        number = max(position, self._start) // self._chunk_entries
        last = self._first_chunk + len(self._seals)
        while number < last and self._seals[number - self._first_chunk].release_ms_max < from_ms:
            number += 1
        first = max(position, self._start, number * self._chunk_entries)
        if first >= self._end:
            return Position(self._end), True
        base = number * self._chunk_entries
        units = self._chunk(number).units(first - base, self._entry_count(number))
        found = np.flatnonzero(release_ms(units) >= from_ms)
        if len(found):
            return Position(first + int(found[0])), True
        end = first + len(units)
        return Position(end), end >= self._end

    def trim_to(self, position: Position) -> None:
        """Let go of the entries below `position`. Files go when a manifest no longer needs them."""
        errors.invariant(position <= self._end, "trimming what does not exist", position=position)
        if position <= self._start:
            return
        self._start = position
        if self._visible_end < position:
            self._visible_end, self._gates_ms = position, []
        first_chunk = position // self._chunk_entries
        for number in range(self._first_chunk, first_chunk):
            self._mapped.close(number)
            self._sums.pop(number, None)
            self._ledger.note_trimmed(number, self._seal_of(number))
        del self._seals[: first_chunk - self._first_chunk]
        self._first_chunk = first_chunk
        self._note_full()
        self._changes.changed.add(self.topic_queue)

    def references(self) -> tuple[Offset | None, int | None]:
        """(lowest commit-log offset, lowest delay log) that entries point at, or None.

        Of all entries in chunks that are retained now or were in the last manifest: replaying the
        log from there may look at them again.
        """
        self._extend_tail_seal(self._end % self._chunk_entries)
        return lowest_references([*self._ledger.trimmed_seals(), *self._seals, self._tail_seal])

    # --- checkpoints

    def begin_checkpoint(self) -> list[Work]:
        """Capture what changed, as of now (`state`).

        Returns:
            Works for another thread, in this order, that make it durable, while this one goes on.
            When all have run and the manifest is durable, call `end_checkpoint`. If one fails, just
            begin again later.
        """
        return self._ledger.begin(
            self.topic_queue, self._entry_count, self._seal_of, self._sums.__getitem__
        )

    def end_checkpoint(self) -> list[Work]:
        """The manifest that names the captured state is durable: move on.

        Returns:
            Works for another thread that remove files which no manifest needs any more.
        """
        works = self._ledger.end()
        for number in [one for one in self._sums if self._ledger.is_settled(one)]:
            del self._sums[number]
        return works

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content, without where the bodies lie; reads all of it."""
        feed_numbers(hasher, self.topic_queue, self._start, self._end)
        at = self._start
        while at < self._end:
            units = self.read(at, _DIGEST_ENTRIES)
            units["position"] = 0
            units["dlog_id"] = 0
            hasher.update(units.view(np.uint8).data)
            at += len(units)


def _find_gates(units: Units, now_ms: int) -> tuple[int, list[int]]:
    """(ordinal of the first unit that is not visible yet, or behind all; from when on it will be).

    Of few units the list says that of each later one as well, the last one first.
    """
    if len(units) <= FEW_UNITS:
        gates_ms = [row.release_ms for row in reversed(rows_of(units))]
        while gates_ms and gates_ms[-1] <= now_ms:
            gates_ms.pop()
        return len(units) - len(gates_ms), gates_ms
    gates = release_ms(units)
    is_ahead = gates > now_ms
    ordinal = int(is_ahead.argmax())
    return (ordinal, [int(gates[ordinal])]) if is_ahead[ordinal] else (len(units), [])
