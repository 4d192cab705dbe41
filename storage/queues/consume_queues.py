"""All consume queues of a shard, opened when somebody asks for them.

Each has a folder, named by its topic_queue in 8 hexadecimal digits. A queue without an entry is the
same as none: asking for one does not change the state. So is what lies in the folder of a queue
that the manifest does not name: it is of a log that may not be any more, and is removed.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from operator import itemgetter
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar

from hourwheel import errors
from hourwheel.internal.v1 import state_pb2
from hourwheel.priorities import is_priority_queue
from hourwheel.types import (
    FIRST_POSITION,
    QUEUE_BITS,
    QUEUE_COUNT_MAX,
    Offset,
    Position,
    TopicId,
    TopicQueue,
    topic_of,
)
from storage.files.disk import Disk, join
from storage.files.file_header import Identity
from storage.queues.consume_queue import CHUNK_ENTRIES, ConsumeQueue, QueueChanges
from storage.queues.mapped_chunks import MappingBudget
from storage.views.digest import Hasher, feed_numbers

MAPPED_CHUNKS_MAX: Final = 128
"""Chunks of all queues that may be mapped: 128 MiB, and two file handles each."""

Work: TypeAlias = Callable[[], None]
References: TypeAlias = tuple[Offset | None, int | None]
"""(lowest commit-log offset, lowest delay log), None for none."""
_Number = TypeVar("_Number", bound=int)


class RetainFrom(NamedTuple):
    """From which release time on entries are retained."""

    default_ms: int
    of_topics: Mapping[TopicId, int] = MappingProxyType({})
    """Topic id -> that of topics for which it is another one."""

    def of(self, topic_queue: TopicQueue) -> int:
        """That of a queue."""
        return self.of_topics.get(topic_of(topic_queue), self.default_ms)


class _Pending(NamedTuple):
    """A checkpoint that has begun and not ended."""

    queues: dict[TopicQueue, ConsumeQueue]
    dropped: list[TopicQueue]


_ENDED_AT_ONCE: Final = 24
_NONE: Final[list[TopicQueue]] = []


def folder_name(topic_queue: TopicQueue) -> str:
    """Name of a queue's folder."""
    return f"{topic_queue:08x}"


class ConsumeQueues:
    """See the top of this file. One thread; the works of a checkpoint run in any.

    There may be ten thousands of queues, and this is read between two messages: what holds of
    all of them together is kept, and only queues that have changed are looked at again (`settle`).

    Invariant: `_bounds`, `_offsets` and `_delay_logs` are those of all queues that had an entry
    once, but for those in `_changes.changed`.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        identity: Identity,
        state: Iterable[state_pb2.QueueState] = (),
        *,
        chunk_entries: int = CHUNK_ENTRIES,
        mapped_chunks_max: int = MAPPED_CHUNKS_MAX,
    ) -> None:
        """Queues of that state; see `open`."""
        self._disk = disk
        self._directory = directory
        self._identity = identity
        self._chunk_entries = chunk_entries
        self._budget = MappingBudget(mapped_chunks_max)
        self._unopened = {TopicQueue(each.topic_queue): each for each in state}
        """State of the queues that were not opened yet."""
        self._queues: dict[TopicQueue, ConsumeQueue] = {}
        self._of_priorities: dict[TopicId, list[TopicQueue]] = {}
        """Topic -> its queues that may be of priorities, descending: those that had an entry once,
        and maybe others. Most topics have none."""
        self.priority_changes = 0
        """How often what `priority_queues_of` says became another."""
        for number in self._unopened:
            self._note_priority(number)
        self._changes = QueueChanges(set(self._unopened), {})
        self._bounds: dict[TopicQueue, tuple[Position, Position]] = {}
        """Queue -> (start, end)."""
        self._offsets: dict[TopicQueue, Offset] = {}
        """Queue -> lowest offset in the commit log that it points at; below: lowest delay log."""
        self._delay_logs: dict[TopicQueue, int] = {}
        self._unsaved: set[TopicQueue] = set()
        """Queues that the last checkpoint does not have as they are, nor `_prepared`."""
        self._prepared: dict[TopicQueue, tuple[ConsumeQueue, list[Work]]] = {}
        """Queues as the next checkpoint would have them if they do not change any more."""
        self._ending: dict[TopicQueue, ConsumeQueue] = {}
        """Those whose part of the checkpoint that has ended is still to be ended."""
        self._removals: list[Work] = []
        """What that has left to be done."""
        self._dropped: dict[TopicQueue, References] = {}
        """Queues whose folders may go when a manifest is durable that does not name them."""
        self._pending: _Pending | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        identity: Identity,
        state: Iterable[state_pb2.QueueState],
        *,
        chunk_entries: int = CHUNK_ENTRIES,
        mapped_chunks_max: int = MAPPED_CHUNKS_MAX,
    ) -> "ConsumeQueues":
        """Take up the state of a checkpoint; `directory` is made where it does not exist."""
        disk.make_dir(directory)
        queues = cls(
            disk,
            directory,
            identity,
            state,
            chunk_entries=chunk_entries,
            mapped_chunks_max=mapped_chunks_max,
        )
        named = {folder_name(topic_queue) for topic_queue in queues._unopened}
        for name in disk.list(directory):
            if name not in named:
                queues._remove_folder(join(directory, name))
        return queues

    def look_again(self) -> None:
        """The clock was set back: what was visible may not be so any more."""
        for queue in self._queues.values():
            queue.look_again()

    def get(self, topic_queue: TopicQueue) -> ConsumeQueue:
        """A queue; a new one is empty.

        Raises:
            CorruptFile: see `ConsumeQueue.open`.
        """
        queue = self._queues.get(topic_queue)
        if queue is None:
            return self._open(topic_queue)
        return queue

    def _open(self, topic_queue: TopicQueue) -> ConsumeQueue:
        errors.invariant(
            topic_queue not in self._dropped, "a dropped queue is used", topic_queue=topic_queue
        )
        state = self._unopened.get(topic_queue) or state_pb2.QueueState(topic_queue=topic_queue)
        queue = ConsumeQueue.open(
            self._disk,
            self._path(topic_queue),
            self._identity,
            state,
            self._chunk_entries,
            self._budget,
            self._changes,
        )
        self._unopened.pop(topic_queue, None)
        self._queues[topic_queue] = queue
        self._note_priority(topic_queue)
        return queue

    def _path(self, topic_queue: TopicQueue) -> str:
        return join(self._directory, folder_name(topic_queue))

    def _note_priority(self, number: TopicQueue) -> None:
        known = self._of_priorities.get(topic_of(number), [])
        if is_priority_queue(number) and number not in known:
            self._of_priorities[topic_of(number)] = sorted([*known, number], reverse=True)
            self.priority_changes += 1

    def priority_queues_of(self, topic_id: TopicId) -> list[TopicQueue]:
        """The queues of priorities that a topic has, the highest first.

        Of a topic that has no room for priorities they are ordinary ones: see `Views.queues_of`.
        """
        return self._of_priorities.get(topic_id, _NONE)

    def bounds(self, topic_queue: TopicQueue) -> tuple[Position, Position]:
        """(start, end) of a queue's positions; it is not opened for that."""
        queue = self._queues.get(topic_queue)
        if queue is not None:
            return queue.start_position, queue.end_position
        state = self._unopened.get(topic_queue)
        if state is None:
            return FIRST_POSITION, FIRST_POSITION
        return Position(state.start_position), Position(state.end_position)

    def topic_queues(self) -> list[TopicQueue]:
        """All queues that had an entry once, ascending."""
        self.settle()
        return sorted(self._bounds)

    def all(self) -> list[ConsumeQueue]:
        """All queues that had an entry once, by topic_queue. Opens those that were not."""
        return [self.get(topic_queue) for topic_queue in self.topic_queues()]

    def settle(self, count_max: int | None = None) -> bool:
        """Look at queues that have changed, and prepare them for a checkpoint; whether that is all.

        A caller that needs something of all queues does this first, in small pieces.
        """
        changed, left = self._changes.changed, len(self._ending)
        for _ in range(left if count_max is None else min(count_max, left)):
            self._end_one()
        for _ in range(len(changed) if count_max is None else min(count_max, len(changed))):
            number = next(iter(changed))
            if number not in self._unopened:
                self._unsaved.add(number)
            queue = self.get(number)
            self._note_references(number, queue.references())
            if queue.end_position:
                self._bounds[number] = queue.start_position, queue.end_position
            changed.discard(number)
        if self._pending is not None or self._ending:  # a queue can be in one checkpoint only
            return not changed and not self._ending
        left = len(self._unsaved)
        for _ in range(left if count_max is None else min(count_max, left)):
            number = self._unsaved.pop()
            queue = self._queues[number]
            self._prepared[number] = queue, queue.begin_checkpoint()
        return not changed and not self._unsaved

    def _note_references(self, number: TopicQueue, found: References) -> None:
        offset, delay_log = found
        _note_lowest(self._offsets, number, offset)
        _note_lowest(self._delay_logs, number, delay_log)

    def _end_one(self) -> None:
        number, queue = self._ending.popitem()
        removals = queue.end_checkpoint()
        self._removals += removals
        if removals and self._queues.get(number) is queue:  # what they point at is needed no more
            self._changes.changed.add(number)

    def trimmable(self, retain_from: RetainFrom) -> list[TopicQueue]:
        """Queues that `ConsumeQueue.trim_position_for` would trim, ascending."""
        if self._unopened:
            self.all()
        full_ms, of = self._changes.full_ms, retain_from.of
        if not retain_from.of_topics:
            default_ms = retain_from.default_ms
            return sorted(number for number, at_ms in full_ms.items() if at_ms < default_ms)
        return sorted(number for number, at_ms in full_ms.items() if at_ms < of(number))

    def capture(self) -> Callable[[], list[state_pb2.QueueState]]:
        """The state as of now, to be sorted and encoded by another thread: for the manifest."""
        self.settle()
        bounds = self._bounds.copy()
        return lambda: [
            state_pb2.QueueState(topic_queue=number, start_position=start, end_position=end)
            for number, (start, end) in sorted(bounds.items())
        ]

    def state(self) -> list[state_pb2.QueueState]:
        """The state as of now, by topic_queue."""
        return self.capture()()

    def references(self) -> References:
        """What any queue points at; see `ConsumeQueue.references`."""
        self.settle()
        offsets = [offset for offset, _ in self._dropped.values() if offset is not None]
        delay_logs = [number for _, number in self._dropped.values() if number is not None]
        offset = min(chain(offsets, self._offsets.values()), default=None)
        return offset, min(chain(delay_logs, self._delay_logs.values()), default=None)

    def drop_topic(self, topic_id: TopicId, queue_count: int = QUEUE_COUNT_MAX) -> None:
        """Forget all queues of a deleted topic. Files go when a manifest no longer needs them."""
        first = topic_id << QUEUE_BITS
        for number in map(TopicQueue, range(first, first + queue_count)):
            if number in self._queues or number in self._unopened:
                queue = self.get(number)
                self._dropped[number] = queue.references()
                queue.close_mappings()
                del self._queues[number]
                self._bounds.pop(number, None)
                self._note_references(number, (None, None))
                self._unsaved.discard(number)
                self._prepared.pop(number, None)
                self._changes.changed.discard(number)
                self._changes.full_ms.pop(number, None)
        if self._of_priorities.pop(topic_id, None) is not None:
            self.priority_changes += 1

    def begin_checkpoint(self) -> list[Work]:
        """Capture what changed, as of now (`state`); see `ConsumeQueue.begin_checkpoint`."""
        if self._pending is not None:  # it failed
            self._unsaved |= self._pending.queues.keys() & self._queues.keys()
            self._pending = None
        self.settle()
        prepared, self._prepared = self._prepared, {}
        removals, self._removals = self._removals, []
        queues = dict(zip(prepared, map(itemgetter(0), prepared.values()), strict=True))
        self._pending = _Pending(queues, list(self._dropped))
        works = list(chain(removals, *map(itemgetter(1), prepared.values())))
        if works:  # some may be of folders that were made since
            works.append(partial(self._disk.sync_dir, self._directory))
        return works

    def end_checkpoint(self) -> list[Work]:
        """The manifest is durable; see `ConsumeQueue.end_checkpoint`.

        Of many queues the rest is ended by `settle`, and their files go with the next checkpoint.
        """
        if self._pending is None:
            return []
        self._ending, dropped = self._pending
        self._pending = None
        for _ in range(min(_ENDED_AT_ONCE, len(self._ending))):
            self._end_one()
        works, self._removals = self._removals, []
        for topic_queue in dropped:
            del self._dropped[topic_queue]
            works.append(partial(self._remove_folder, self._path(topic_queue)))
        return works

    def _remove_folder(self, path: str) -> None:
        if self._disk.exists(path):
            for name in self._disk.list(path):
                self._disk.remove(join(path, name))
            self._disk.remove(path)

    def close(self) -> None:
        """Unmap everything. Makes nothing durable."""
        for queue in self._queues.values():
            queue.close_mappings()

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content; reads all of it."""
        queues = self.all()
        feed_numbers(hasher, len(queues))
        for queue in queues:
            queue.digest_into(hasher)


class Touched(NamedTuple):
    """Queues of which some group may now be given more."""

    grown: set[TopicQueue]
    """They got entries."""
    freed: set[TopicQueue]
    """What was in them may now be given to somebody, or again: those who wait look."""

    @property
    def are_some(self) -> bool:
        """Whether there are any."""
        return bool(self.grown or self.freed)


def all_freed(queues: Iterable[TopicQueue]) -> Touched:
    """Those who wait for any of these look."""
    return Touched(set(), set(queues))


def _note_lowest(
    lowest: dict[TopicQueue, _Number], number: TopicQueue, value: _Number | None
) -> None:
    if value is None:
        lowest.pop(number, None)
    else:
        lowest[number] = value
