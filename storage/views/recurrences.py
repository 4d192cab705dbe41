"""The recurrences of a shard: what each is, and how far its occurrences are in the log.

An occurrence is a message of a PUBLISH batch with the flag OCCURRENCES, which says of which version
of a recurrence it is, and which one of it (its *index*, from 0). It counts when it is the next one
of the current version and due later than the one of that version before; any other is no message,
as a refused publish is none. So each occurrence is in the log once, whichever master planned it.

Each change makes another version: the offset of its record. What was on its way for the version
before comes to nothing. The record also cancels the occurrence that waits in the wheel, if there is
one: it does not take place, and its index is not given again. What counts does not depend on that:
a reader of the log need not know which messages were released when.

All of it is in memory, and in the manifest of each checkpoint; the node bounds how many there are,
and their bytes, where it takes calls in. The state of each is packed, as in the manifest:

    byte  size
       0     8  version      u64  offset of the record of its last change
       8     8  next_index   u64  of the next occurrence since it was defined
      16     8  count        u64  how many of them were not taken back
      24     8  count_max    u64  how many there shall be; 0: any number
      32     8  after_ms     i64  the next one shall be due later: the last one's due time, or when
                                  the recurrence was changed
      40     8  last_due_ms  i64  of the last one of this version; -2^63: none
      48     8  sequence     u64  of the last one of this version, due at after_ms; 2^64 - 1: none
      56     4  definition   u32  bytes of the RecurrenceConfig that follows
      60     1  missed       u8   its policy
      61     1  is_paused    u8
      62     2  zero
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import RecurrenceChange, RecurrenceConfig
from hourwheel.types import Offset, SequenceNumber
from storage.views.digest import Hasher, feed_numbers, feed_text

_STATE: Final = Struct("<QQQQqqQIBB2x")
_STATE_BYTES: Final = 64
assert _STATE.size == _STATE_BYTES
NO_SEQUENCE: Final = SequenceNumber((1 << 64) - 1)
NEVER_MS: Final = -(1 << 63)


class State(NamedTuple):
    """Of a recurrence; the fields are explained at the top of this file."""

    version: int
    next_index: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not called
    count_max: int
    after_ms: int
    last_due_ms: int
    sequence: SequenceNumber
    definition_bytes: int
    missed: int
    is_paused: int

    @property
    def has_more(self) -> bool:
        """Whether occurrences of it are to be planned, as far as the calendar has some."""
        return not self.is_paused and (not self.count_max or self.count < self.count_max)

    def accepts(self, index: int, due_ms: int) -> bool:
        """Whether this is its next occurrence."""
        is_next = index == self.next_index and due_ms > self.last_due_ms
        return is_next and not self.is_paused


class Recurrences:
    """See the top of this file."""

    def __init__(self, raw: bytes = b"") -> None:
        """From what a checkpoint has of it.

        Raises:
            CorruptFile: these are no recurrences.
        """
        self._states: dict[str, bytes] = {}
        self._definitions: dict[str, bytes] = {}
        self._names: dict[int, str] = {}
        """Version -> name."""
        self.size_bytes = 0
        """Of all of them, as a checkpoint has them."""
        view, at = memoryview(raw), 0
        while at < len(raw):
            state = bytes(view[at : at + _STATE_BYTES])
            end = at + _STATE_BYTES
            if len(state) == _STATE_BYTES:
                end += _unpack(state).definition_bytes
            if len(state) < _STATE_BYTES or end > len(raw):
                raise errors.CorruptFile(f"{len(raw)} bytes are no recurrences")
            definition = bytes(view[at + _STATE_BYTES : end])
            self._put(RecurrenceConfig.FromString(definition).name, state, definition)
            at = end
        self._sorted = sorted(self._states)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._states)

    # -- questions --------------------------------------------------------------------------------

    def find(self, name: str) -> State | None:
        """The state of a recurrence."""
        packed = self._states.get(name)
        return None if packed is None else _unpack(packed)

    def find_name(self, version: int) -> str | None:
        """The name of the recurrence that has a version now."""
        return self._names.get(version)

    def definition(self, name: str) -> bytes:
        """The RecurrenceConfig of one that is there, encoded."""
        return self._definitions[name]

    def names_after(self, name: str) -> Iterator[str]:
        """The names behind a name, ascending. Nothing is changed meanwhile."""
        for at in range(bisect_right(self._sorted, name), len(self._sorted)):
            yield self._sorted[at]

    def has_any_of(self, topic: str) -> bool:
        """Whether there is one, in whatever state, that publishes to a topic of this name."""
        prefix = f"{topic}\n"
        return next(self.names_after(prefix), "").startswith(prefix)

    def versions(self) -> list[int]:
        """Of all of them, as they are now."""
        return list(self._names)

    # -- changes ----------------------------------------------------------------------------------

    def change(
        self, change: RecurrenceChange, offset: Offset, store_ms: int, taken_back: list[int]
    ) -> bool:
        """Carry out a RECURRENCE record. Returns whether it took effect.

        Args:
            change: what it says.
            offset: of the record.
            store_ms: of the record.
            taken_back: sequences of messages that its rows have cancelled.
        """
        name = _name_of(change)
        state = self.find(name)
        if (0 if state is None else state.version) != change.expected_version:
            return False
        if state is not None and state.sequence in taken_back:
            state = state._replace(count=state.count - 1, after_ms=store_ms)
        if change.HasField("put"):
            self._define(name, change.put, state, offset, store_ms)
            return True
        if state is None:
            return False
        if change.HasField("delete_name"):
            self._delete(name)
            return True
        is_paused = change.HasField("pause_name")
        if not is_paused:
            state = state._replace(after_ms=max(state.after_ms, store_ms))
        state = state._replace(
            version=offset,
            is_paused=int(is_paused),
            last_due_ms=NEVER_MS,
            sequence=NO_SEQUENCE,
        )
        self._put(name, _STATE.pack(*state), self._definitions[name])
        return True

    def _define(
        self,
        name: str,
        config: RecurrenceConfig,
        before: State | None,
        offset: Offset,
        store_ms: int,
    ) -> None:
        after_ms = store_ms if before is None else max(before.after_ms, store_ms)
        definition = config.SerializeToString(deterministic=True)
        state = State(
            offset,
            0,
            0,
            config.count_max,
            after_ms,
            NEVER_MS,
            NO_SEQUENCE,
            len(definition),
            config.missed,
            0,
        )
        if before is None:
            insort(self._sorted, name)
        self._put(name, _STATE.pack(*state), definition)

    def _put(self, name: str, state: bytes, definition: bytes) -> None:
        old = self._states.get(name)
        if old is not None:
            self._names.pop(_unpack(old).version, None)
            self.size_bytes -= _STATE_BYTES + len(self._definitions[name])
        self._states[name], self._definitions[name] = state, definition
        self._names[_unpack(state).version] = name
        self.size_bytes += _STATE_BYTES + len(definition)

    def _delete(self, name: str) -> None:
        self.size_bytes -= _STATE_BYTES + len(self._definitions[name])
        self._names.pop(_unpack(self._states[name]).version, None)
        del self._states[name], self._definitions[name]
        del self._sorted[bisect_right(self._sorted, name) - 1]

    def take(self, version: int, index: int, due_ms: int, sequence: SequenceNumber) -> bool:
        """Note an occurrence that is a message. Returns whether it counts: else it is none."""
        name = self._names.get(version)
        if name is None:
            return False
        state = _unpack(self._states[name])
        if not state.accepts(index, due_ms):
            return False
        state = state._replace(
            next_index=index + 1,
            count=state.count + 1,
            after_ms=due_ms,
            last_due_ms=due_ms,
            sequence=sequence,
        )
        self._states[name] = _STATE.pack(*state)
        return True

    # -- checkpoints ------------------------------------------------------------------------------

    def capture(self) -> Callable[[], bytes]:
        """All of it as of now, to be put together by another thread: for the manifest."""
        states, definitions = self._states.copy(), self._definitions.copy()
        return lambda: b"".join(
            chain.from_iterable((states[name], definitions[name]) for name in sorted(states))
        )

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        feed_numbers(hasher, len(self._states))
        for name in self._sorted:
            feed_text(hasher, name)
            hasher.update(self._states[name])
            hasher.update(self._definitions[name])


def _unpack(packed: bytes) -> State:
    return State._make(_STATE.unpack(packed))


def _name_of(change: RecurrenceChange) -> str:
    which = change.WhichOneof("change")
    if which is None:
        return ""
    found: str = change.put.name if which == "put" else getattr(change, which)
    return found
