"""Transactions: those that are open, and the outcomes of those that were decided last.

A transaction is named by the offset of its PREPARE record, which has its messages; here is what has
to be known of it without reading that. It is open until the first record that decides it: the
commit, which publishes its messages as a batch of its own, or a row that rolls it back. Of decided
ones the last `TRANSACTIONS_DECIDED_MAX` are known, so that who asks again gets the same answer.

Each is kept packed, as it lies in the manifest of a checkpoint, and unpacked when it is asked for:

    byte  size
       0     2  bytes of the row, these included          u16
       2     1  state: hourwheel.outcomes.TransactionState u8
       3     1  bytes of the producer group's name         u8
       4     4  epoch of the PREPARE                       u32
       8     8  offset of the PREPARE                      u64
      16    16  token of the PREPARE: what makes its repetition known
      32     8  store_ms of the PREPARE                    i64
      40     4  messages                                   u32
      44     4  bytes of the PREPARE                       u32
      48     4  check interval, ms                         u32
      52     2  checks at most                             u16
      54     2  checks that were made                      u16
      56     8  store_ms of the last check, or 0           i64
      64     8  age at most, ms                            u64
      72     8  store_ms of what decided it, or 0          i64
      80     8  sequence of the first message, committed   u64
      88     4  epoch of these                             u32
      92     4  zero
      96        name of the producer group, UTF-8
                numbers of its topics                      u32 each
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from hourwheel import errors
from hourwheel.limits import TRANSACTIONS_DECIDED_MAX
from hourwheel.outcomes import TransactionState
from hourwheel.types import (
    FIRST_OFFSET,
    FIRST_SEQUENCE,
    NO_EPOCH,
    Epoch,
    Offset,
    SequenceNumber,
    TopicId,
)
from storage.views.digest import Hasher, feed_numbers

_ROW: Final = Struct("<HBBIQ16sqIIIHHqQqQI4x")
_ROW_BYTES: Final = 96
assert _ROW.size == _ROW_BYTES
_SIZE: Final = Struct("<H")
_TOPIC_BYTES: Final = 4
TOKEN_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is known of one."""

    offset: Offset
    """Of its PREPARE record, in `epoch`."""
    epoch: Epoch
    token: bytes
    producer_group: str
    topic_ids: tuple[TopicId, ...]
    message_count: int
    size_bytes: int
    """Of the PREPARE record."""
    prepared_ms: int
    check_interval_ms: int
    checks_max: int
    age_max_ms: int
    state: TransactionState = TransactionState.OPEN
    checks: int = 0
    checked_ms: int = 0
    """When it was asked about last; 0: never."""
    decided_ms: int = 0
    base_sequence: SequenceNumber = FIRST_SEQUENCE
    """Of its first message, where it is committed; the others follow."""
    published_epoch: Epoch = NO_EPOCH

    @property
    def is_open(self) -> bool:
        """It has no outcome yet."""
        return self.state == TransactionState.OPEN

    def pack(self) -> bytes:
        """As it lies in the manifest."""
        name = self.producer_group.encode()
        topics = Struct(f"<{len(self.topic_ids)}I").pack(*self.topic_ids)
        head = _ROW.pack(
            _ROW_BYTES + len(name) + len(topics),
            self.state,
            len(name),
            self.epoch,
            self.offset,
            self.token,
            self.prepared_ms,
            self.message_count,
            self.size_bytes,
            self.check_interval_ms,
            self.checks_max,
            self.checks,
            self.checked_ms,
            self.age_max_ms,
            self.decided_ms,
            self.base_sequence,
            self.published_epoch,
        )
        return b"".join((head, name, topics))

    @classmethod
    def unpack(cls, raw: bytes) -> "Transaction":
        """Of the bytes that `pack` has made."""
        size, state, name_bytes, epoch, offset, token, *rest = _ROW.unpack_from(raw)
        prepared, count, size_bytes, interval, checks_max, checks, checked, age, *end = rest
        name_end = _ROW_BYTES + name_bytes
        topics = Struct(f"<{(size - name_end) // _TOPIC_BYTES}I").unpack_from(raw, name_end)
        return cls(
            offset,
            epoch,
            token,
            raw[_ROW_BYTES:name_end].decode(),
            topics,
            count,
            size_bytes,
            prepared,
            interval,
            checks_max,
            age,
            TransactionState(state),
            checks,
            checked,
            *end,
        )


class Transactions:
    """See the top of this file. Not for two threads at once."""

    def __init__(self, raw: bytes = b"", forgotten_offset: Offset = FIRST_OFFSET) -> None:
        """From what a checkpoint has of it.

        Raises:
            CorruptFile: these are no rows.
        """
        self._open: dict[Offset, bytes] = {}
        """Ascending by offset."""
        self._decided: dict[Offset, bytes] = {}
        """In the order of the log."""
        self._offsets: dict[bytes, Offset] = {}
        """Token -> offset, of all."""
        self._topics: Counter[int] = Counter()
        """Topic -> transactions that are open and have messages for it; not below 1."""
        self.open_bytes = 0
        """Of the PREPARE records of those that are open."""
        self.forgotten_offset = forgotten_offset
        """The latest PREPARE of those that were decided and are not known any more."""
        for row in _rows(raw):
            one = Transaction.unpack(row)
            (self._open if one.is_open else self._decided)[one.offset] = row
            self._offsets[one.token] = one.offset
            self.open_bytes += one.size_bytes if one.is_open else 0
            self._topics.update(one.topic_ids if one.is_open else ())

    @property
    def open_count(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def decided_count(self) -> int:
        """Of how many the outcome is known."""
        return len(self._decided)

    @property
    def floor_offset(self) -> Offset | None:
        """Of the oldest PREPARE whose messages may still be wanted; None: of none."""
        return next(iter(self._open), None)

    def find(self, offset: Offset) -> Transaction | None:
        """One that is open, or was decided not long ago."""
        row = self._open.get(offset) or self._decided.get(offset)
        return None if row is None else Transaction.unpack(row)

    def find_token(self, token: bytes) -> Transaction | None:
        """The same, by the token of its PREPARE."""
        offset = self._offsets.get(token)
        return None if offset is None else self.find(offset)

    def is_open(self, offset: Offset) -> bool:
        """Whether such a transaction is open."""
        return offset in self._open

    def has_open_of(self, topic_id: TopicId) -> bool:
        """Whether a transaction is open that has messages for this topic."""
        return topic_id in self._topics

    def offsets_after(self, after: Offset, *, is_open: bool) -> list[Offset]:
        """Those that are open, ascending, behind an offset; or decided, from the last one back.

        `after`: of decided ones the one before; 0: from the beginning. One that is not known any
        more has nothing behind it.
        """
        if is_open:
            found = list(self._open)
            return found[bisect_right(found, after) :] if after else found
        found = list(reversed(self._decided))
        if not after:
            return found
        return found[found.index(after) + 1 :] if after in self._decided else []

    def begin(self, one: Transaction) -> None:
        """Open one, whose token is not known. Its offset is above all others."""
        errors.invariant(one.token not in self._offsets, "a token names one transaction")
        self._open[one.offset] = one.pack()
        self._offsets[one.token] = one.offset
        self.open_bytes += one.size_bytes
        self._topics.update(one.topic_ids)

    def note_check(self, offset: Offset, store_ms: int) -> None:
        """Its producers are asked about one that is open."""
        one = Transaction.unpack(self._open[offset])
        self._open[offset] = replace(one, checks=one.checks + 1, checked_ms=store_ms).pack()

    def decide(
        self,
        offset: Offset,
        state: TransactionState,
        store_ms: int,
        *,
        base_sequence: SequenceNumber = FIRST_SEQUENCE,
        epoch: Epoch = NO_EPOCH,
    ) -> None:
        """Give one that is open its outcome; committed ones have a place in the log."""
        one = Transaction.unpack(self._open.pop(offset))
        self.open_bytes -= one.size_bytes
        self._topics.subtract(one.topic_ids)
        for topic_id in one.topic_ids:
            if not self._topics[topic_id]:
                del self._topics[topic_id]
        self._decided[offset] = replace(
            one,
            state=state,
            decided_ms=store_ms,
            base_sequence=base_sequence,
            published_epoch=epoch,
        ).pack()
        if len(self._decided) > TRANSACTIONS_DECIDED_MAX:
            oldest = next(iter(self._decided))
            gone = Transaction.unpack(self._decided.pop(oldest))
            del self._offsets[gone.token]
            self.forgotten_offset = max(self.forgotten_offset, oldest)

    def capture(self) -> Callable[[], bytes]:
        """All rows as of now, for another thread: those that were decided, then the others."""
        rows = [*self._decided.values(), *self._open.values()]
        return lambda: b"".join(rows)

    def digest_into(self, hasher: Hasher) -> None:
        """Feed the canonical content."""
        feed_numbers(hasher, self.forgotten_offset, len(self._decided), len(self._open))
        hasher.update(self.capture()())


def _rows(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        size = _SIZE.unpack_from(raw, at)[0] if at + _ROW_BYTES <= len(raw) else 0
        if not _ROW_BYTES <= size <= len(raw) - at:
            raise errors.CorruptFile("the rows of transactions contradict themselves")
        yield raw[at : at + size]
        at += size
