"""Which pending messages of a topic match a filter: in two stages, a bounded slice at a time. Pure.

    units of the wheel --> topic, not cancelled --> gene says maybe --> metas read --> exact

What is pending here are messages as they were published. Those that groups gave back wait in the
wheel, too, but in topics of the groups' own; they were released, and cannot be cancelled any more.

A message's bytes are believed only after their checksum: a damaged one neither matches nor does not
match, and is counted.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hourwheel.types import QUEUE_BITS, SEQUENCE_MAX, Key, SequenceNumber, TopicId
from node.shard.views import Views
from storage.views.unit import NO_UNITS, Units, count_to, join, pick, sort_by_key
from timewheel.bodies import BadBlob, Bodies
from timewheel.range_scan import RangeScan

Mask = NDArray[np.bool_]
Ordinals = NDArray[np.int64]

_UNITS_FIRST: Final = 1_024
_UNITS_MOST: Final = 32_768
"""Units of one step: few at first, as a page may be full soon, then twice as many each time."""
READS_MOST: Final = 256
READ_BYTES_MOST: Final = 1 << 20
"""Messages and bytes that one step reads; or one message, whatever its size."""
_CHECKS_MOST: Final = 65_536
"""What their check may cost; see `BlockFilter.check_work`. One that costs more takes more steps."""


class Filter(Protocol):
    """What is needed of a compiled filter: `filters.compile.BlockFilter`."""

    @property
    def needs_metas(self) -> bool:
        """Whether the gene alone does not decide."""
        ...

    def check_work(self, meta_lengths: NDArray[np.int64], /) -> NDArray[np.int64]:
        """int64[n]: what `exact` costs for metas of so many bytes."""
        ...

    def maybe(self, genes: NDArray[np.uint64], /) -> Mask:
        """bool[n]: which of uint64[n] may match."""
        ...

    def exact(self, metas: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64], /) -> Mask:
        """bool[n]: which of the n encoded metas in `metas` match."""
        ...

    def begin_check(self, raw: bytes, /) -> "Check":
        """The same for one message whose `check_work` is too much for one step."""
        ...


class Check(Protocol):
    """What is needed of a check that takes several steps: `filters.long_check.LongCheck`."""

    def step(self, work: int, /) -> bool | None:
        """Whether the message matches, or None: not known yet."""
        ...


class Blob(NamedTuple):
    """What was read of a message."""

    meta: bytes
    body: bytes
    """Empty where bodies were not asked for."""
    is_corrupt: bool = False
    """Its bytes fail their checksum: the two above are empty."""


class Matches(NamedTuple):
    """Matching messages, in key order."""

    units: Units
    blobs: list[Blob]
    """One for each unit; none where neither filter nor caller asked for metas."""


NO_MATCHES: Final = Matches(NO_UNITS, [])


class PendingRange(NamedTuple):
    """Which messages of a topic a scan looks at."""

    topic_id: TopicId
    after: Key
    """Exclusive."""
    to: Key
    """Inclusive."""
    end_sequence: SequenceNumber = SEQUENCE_MAX
    """Messages from this one on do not exist: they came later than the listing."""


class PendingScan:
    """The pending messages of one topic with after < key <= to, in key order.

    Used from the thread that applies; between two steps anything may be applied and installed.
    Invariant: of what stays pending, everything with a key <= `after` was returned if it matches,
    once.
    """

    def __init__(
        self,
        views: Views,
        bodies: Bodies,
        range_: PendingRange,
        wanted: Filter,
        *,
        with_metas: bool = True,
        with_bodies: bool = False,
        on_damage: Callable[[Units, list[BadBlob]], None] = lambda *_: None,
    ) -> None:
        """Nothing is read yet.

        Args:
            views: of the shard.
            bodies: of the same thread.
            range_: which messages.
            wanted: the filter, compiled for the topic's genes.
            with_metas: whether `Matches.blobs` are wanted.
            with_bodies: whether bodies are wanted in them.
            on_damage: takes messages that cannot be read.
        """
        self._on_damage = on_damage
        self._views, self._bodies, self._wanted = views, bodies, wanted
        self._topic_id, self._end_sequence = range_.topic_id, range_.end_sequence
        self._reads = with_metas or wanted.needs_metas
        self._with_metas, self._with_bodies = with_metas, with_bodies
        self._range = RangeScan(views.wheel, max(range_.after, views.cursor.key), range_.to)
        self.after = self._range.after
        self._step_units = _UNITS_FIRST
        self._looked: list[tuple[Units, Mask]] = []
        """What the last slice looked at, which of it was pending, and"""
        self._waiting = NO_UNITS
        """what of it may match and is still to be judged: all above `after`."""
        self._long: tuple[int, Check] | None = None
        """Sequence of the first of them, and its check, where that takes several steps."""
        self._scanned = 0
        self.masked_count = 0
        """Units looked at, of any topic: the work done."""
        self.read_count = 0
        """Messages read."""
        self.corrupt_count = 0
        """Messages left out because their bytes are damaged."""

    @property
    def is_done(self) -> bool:
        """Nothing is left."""
        return self._range.is_done and not len(self._waiting)

    @property
    def scanned_count(self) -> int:
        """Pending messages of the topic with keys <= `after` that were looked at."""
        return self._scanned + self._count_looked()

    def _count_looked(self) -> int:
        return sum(
            int(were_pending[: count_to(units, *self.after)].sum())
            for units, were_pending in self._looked
        )

    def step(self, matches_max: int) -> Matches:
        """The next matches, at most so many; maybe none although more follow.

        Raises:
            CorruptFile: a run is damaged.
        """
        if len(self._waiting) and self._range.is_stale:
            self._leave_slice()
            self._range.rewind(self.after)  # files may be gone that they point into
        if not len(self._waiting):
            self._begin_slice()
            if not len(self._waiting):
                self.after = self._range.after
                return NO_MATCHES
        part = self._cut(matches_max)
        if not self._is_checked(part):
            return NO_MATCHES
        chosen, blobs, corrupt = self._pick_matching(part)
        done = len(part)
        if len(chosen) > matches_max:
            chosen, blobs = chosen[:matches_max], blobs[:matches_max]
            done = int(chosen[-1]) + 1
        self._waiting = self._waiting[done:]
        self.corrupt_count += int(np.searchsorted(corrupt, done))
        last = part[done - 1]
        is_more = len(self._waiting)
        self.after = (
            Key(int(last["due_ms"]), int(last["sequence"])) if is_more else self._range.after
        )
        return Matches(pick(part, chosen), blobs)

    # -- the first stage ----------------------------------------------------------------------

    def _begin_slice(self) -> None:
        """Look at the next units; those that may match wait to be judged."""
        self._leave_slice()
        pieces = self._range.step(self._step_units)
        self._step_units = min(_UNITS_MOST, 2 * self._step_units)
        found = []
        for units in pieces:
            self.masked_count += len(units)
            are_pending = self._are_pending(units)
            self._looked.append((units, are_pending))
            maybe = are_pending & self._wanted.maybe(units["tag_gene"])
            if maybe.any():
                found.append(pick(units, maybe))
        waiting = sort_by_key(join(found))
        self._waiting = pick(waiting, self._views.are_live(waiting))  # of equal entries the first

    def _leave_slice(self) -> None:
        self._scanned += self._count_looked()
        self._looked, self._waiting = [], NO_UNITS

    def _are_pending(self, units: Units) -> Mask:
        """bool[n]: of the topic, and neither released nor cancelled."""
        queues, cursor = units["topic_queue"], self._views.cursor.key
        found: Mask = queues >> QUEUE_BITS == self._topic_id
        if not found.any():
            return found
        sequences = units["sequence"]
        found &= sequences < np.uint64(self._end_sequence)
        if len(units) and int(units["due_ms"][0]) <= cursor.due_ms:
            found[: count_to(units, *cursor)] = False  # (stretches are in key order)
        found &= self._views.are_live(units)
        return found

    # -- the second stage ---------------------------------------------------------------------

    def _cut(self, matches_max: int) -> Units:
        """The first of those that wait: as many as one step may judge."""
        if not self._reads:
            return self._waiting[:matches_max]
        most = READS_MOST if self._wanted.needs_metas else min(READS_MOST, matches_max)
        part = self._waiting[:most]
        total = (part["body_len"].astype(np.int64) + part["meta_len"]).cumsum()
        most = int(total.searchsorted(READ_BYTES_MOST, "right"))
        if self._wanted.needs_metas:
            work = self._wanted.check_work(part["meta_len"].astype(np.int64)).cumsum()
            most = min(most, int(work.searchsorted(_CHECKS_MOST, "right")))
        return part[: max(1, most)]

    def _is_checked(self, part: Units) -> bool:
        """Whether this step can judge `part`: the check of a single message may take several."""
        metas = part["meta_len"][:1].astype(np.int64)
        if not self._wanted.needs_metas or int(self._wanted.check_work(metas)[0]) <= _CHECKS_MOST:
            return True
        sequence = int(part["sequence"][0])
        if self._long is None or self._long[0] != sequence:
            self._long = None
            blobs, is_bad = self._read(part)
            if is_bad[0]:
                return True
            self._long = sequence, self._wanted.begin_check(bytes(blobs[0][: int(metas[0])]))
        return self._long[1].step(_CHECKS_MOST) is not None

    def _pick_matching(self, part: Units) -> tuple[Ordinals, list[Blob], Ordinals]:
        """(ordinals of those that match, what was read of them, ordinals of damaged ones)."""
        chosen = self._are_pending(part)  # again: things happen between two steps
        corrupt = np.zeros(len(part), np.bool_)
        if not self._reads:
            return np.flatnonzero(chosen), [], np.flatnonzero(corrupt)
        blobs, is_bad = self._read(part)
        self.read_count += len(part)
        if self._wanted.needs_metas:
            corrupt = is_bad & chosen
            chosen &= ~is_bad & self._match(part, blobs)
        ordinals = np.flatnonzero(chosen)
        found = ordinals.tolist() if self._with_metas else []
        kept = [self._blob(part[one], blobs[one], is_bad[one]) for one in found]
        return ordinals, kept, np.flatnonzero(corrupt)

    def _read(self, part: Units) -> tuple[list[bytes | memoryview], Mask]:
        """The verified blobs of `part`, and which are bad; read in the order of their places."""
        blobs: list[bytes | memoryview] = [b""] * len(part)
        is_bad = np.zeros(len(part), np.bool_)
        order = np.lexsort((part["position"], part["dlog_id"]))
        in_log = int((part["dlog_id"] == 0).sum())
        for chosen in (order[:in_log], order[in_log:]):  # scattered; one behind the other
            if not len(chosen):
                continue
            requested = pick(part, chosen)
            read, bad = self._bodies.read(requested)
            if bad:
                self._on_damage(requested, bad)
            for ordinal, blob in zip(chosen.tolist(), read, strict=True):
                blobs[ordinal] = blob
            is_bad[chosen[[one.ordinal for one in bad]]] = True
        return blobs, is_bad

    def _match(self, part: Units, blobs: list[bytes | memoryview]) -> Mask:
        if self._long is not None and self._long[0] == int(part["sequence"][0]):
            return np.array([self._long[1].step(_CHECKS_MOST)], np.bool_)
        lengths = part["meta_len"].astype(np.int64)
        pairs = zip(blobs, lengths.tolist(), strict=True)
        metas = [blob[:length] for blob, length in pairs]
        lengths = np.fromiter(map(len, metas), np.int64, len(metas))
        return self._wanted.exact(b"".join(metas), np.cumsum(lengths) - lengths, lengths)

    def _blob(self, unit: Units, blob: bytes | memoryview, is_bad: np.bool_) -> Blob:
        if is_bad:
            return Blob(b"", b"", is_corrupt=True)
        cut = int(unit["meta_len"])  # copies: a view would keep all alive that was read with it
        return Blob(bytes(blob[:cut]), bytes(blob[cut:]) if self._with_bodies else b"")
