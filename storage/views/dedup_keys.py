"""Which pending message has a dedup key: of a topic and a key there is one at most.

A row is a topic, the hash of a key and the sequence of the message that took it last. It counts
while that message is pending (`Views.are_pending`), which it never is again once it is not. Rows
that do not count are left over: no answer and no digest has them, and a sweep lets go of them by
and by, or the next message with the key takes their place.

All rows are in memory, in 1,024 dicts by one byte and two bits of the hash, and in the manifest of
each checkpoint, as rows of 32 bytes; the node bounds how many there are where it takes calls in. A
dict that a checkpoint looks at is copied when it is changed.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from storage.views.digest import Hasher

U64 = NDArray[np.uint64]
ROW: Final = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("sequence", "<u8"), ("topic_id", "<u4"), ("zero", "<u4")]
)
ROW_BYTES: Final = 32
assert ROW.itemsize == ROW_BYTES
NAME: Final = np.dtype([("high", "<u8"), ("low", "<u8"), ("topic_id", "<u4")])
NAME_BYTES: Final = 20
assert NAME.itemsize == NAME_BYTES
"""What a row is found by."""
PARTS: Final = 1_024

ArePending = Callable[[U64], NDArray[np.bool_]]
"""bool[n]: which of n sequences are of pending messages."""


class DedupKeys:
    """See the top of this file."""

    def __init__(self, raw: bytes = b"") -> None:
        """From what a checkpoint has of it.

        Raises:
            CorruptFile: these are no rows.
        """
        self._parts: list[dict[bytes, int]] = [{} for _ in range(PARTS)]
        self._shared: set[int] = set()
        """Parts that a checkpoint may be looking at."""
        self.count = 0
        """Rows, those included that are left over."""
        rows = unpack_rows(raw)
        names = pack_names(rows["topic_id"], rows["high"], rows["low"])
        self.put(dict(zip(names, rows["sequence"].tolist(), strict=True)))
        if self.count != len(rows):
            raise errors.CorruptFile("a dedup key is there twice")

    def find(self, names: Iterable[bytes]) -> list[int | None]:
        """The sequence of each name's row; None: it has none."""
        parts = self._parts
        # `_part_of`, spelt out: a call for each name would cost as much as all the rest.
        return [parts[name[0] | (name[1] & 3) << 8].get(name) for name in names]

    def put(self, rows: dict[bytes, int]) -> None:
        """Set rows: name -> sequence."""
        parts, shared = self._parts, self._shared
        if shared:
            for number in shared.intersection(map(_part_of, rows)):
                parts[number] = parts[number].copy()
                shared.discard(number)
        count = 0
        for name, sequence in rows.items():
            part = parts[name[0] | (name[1] & 3) << 8]
            count += name not in part
            part[name] = sequence
        self.count += count

    def forget(self, number: int, are_pending: ArePending) -> None:
        """Let go of those rows of a part that are left over."""
        part = self._parts[number]
        if not part:
            return
        kept = are_pending(np.fromiter(part.values(), np.uint64, len(part)))
        if kept.all():
            return
        rows = zip(part.items(), kept.tolist(), strict=True)
        self._parts[number] = {name: sequence for (name, sequence), stays in rows if stays}
        self._shared.discard(number)
        self.count -= len(part) - len(self._parts[number])

    def capture(self) -> list[dict[bytes, int]]:
        """All rows as of now, for another thread: see `pack_parts`."""
        self._shared.update(range(PARTS))
        return list(self._parts)

    def sequences(self) -> U64:
        """uint64[n]: of all rows, in any order."""
        found = [sequence for part in self._parts for sequence in part.values()]
        return np.array(found, np.uint64)

    def digest_into(self, hasher: Hasher, are_pending: ArePending) -> None:
        """Feed the canonical content: the rows that count, by their names."""
        rows = unpack_rows(pack_parts(self._parts))
        hasher.update(rows[are_pending(np.ascontiguousarray(rows["sequence"]))].tobytes())


def _part_of(name: bytes) -> int:
    return name[0] | (name[1] & 3) << 8


def pack_names(topic_ids: NDArray[Any], high: U64, low: U64) -> list[bytes]:
    """What the rows of n keys are found by."""
    names = np.empty(len(high), NAME)
    names["high"], names["low"], names["topic_id"] = high, low, topic_ids
    raw = names.tobytes()
    return [raw[at : at + NAME_BYTES] for at in range(0, len(raw), NAME_BYTES)]


def pack_parts(parts: list[dict[bytes, int]]) -> bytes:
    """The rows of some parts, as a checkpoint has them: in the order of topic, high and low."""
    count = sum(map(len, parts))
    names = np.frombuffer(b"".join([name for part in parts for name in part]), NAME, count)
    rows = np.zeros(count, ROW)
    for field in NAME.names or ():
        rows[field] = names[field]
    rows["sequence"] = [sequence for part in parts for sequence in part.values()]
    return rows[np.lexsort((rows["low"], rows["high"], rows["topic_id"]))].tobytes()


def unpack_rows(raw: bytes) -> NDArray[Any]:
    """Structured array[n] of `ROW`.

    Raises:
        CorruptFile: these are no rows.
    """
    if len(raw) % ROW_BYTES:
        raise errors.CorruptFile(f"{len(raw)} bytes are no rows of dedup keys")
    return np.frombuffer(raw, ROW)
