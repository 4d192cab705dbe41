"""The messages that a node has found damaged, and the groups that wait for them. Pure.

One entry for each group and queue position at which a message could not be read; one `DamagedBytes`
for the place in a file that they share. What the scrubber found before a group came by it has an
entry of no group (`NO_GROUP`). In memory only: damage is one node's own, and never in the log. The
next master finds out by itself what *it* cannot read.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.types import FIRST_POSITION, NO_GROUP, Position, SequenceNumber
from node.delivery.deliveries import Corrupt
from node.shard.group_queue import GroupQueue
from storage.views.unit import Units
from timewheel.bodies import Place, place_of

ENTRIES_MAX: Final = 4_096
"""So many are known one by one; more are withheld, and read again when there is room."""


class DamagedEntry(NamedTuple):
    """A message that a group should get, and that cannot be read here."""

    serial: int
    """Ascends in the order in which they were found."""
    group_queue: GroupQueue
    """Of the group `NO_GROUP` where no group waits for it yet; its position means nothing then."""
    position: Position
    unit: Units
    """Array[1] of UNIT."""
    found_ms: int


@dataclass(slots=True)
class DamagedBytes:
    """A place in a file that cannot be read, and the groups that wait for it."""

    unit: Units
    """Array[1] of UNIT that points there."""
    error: errors.DataLoss
    entries: dict[tuple[GroupQueue, Position], DamagedEntry] = field(default_factory=dict)
    """By group and queue, and position there; none where only a listing came by."""
    scrubbed: DamagedEntry | None = None
    """Of a message that the scrubber came by: it is repaired though no group waits for it."""
    tries: int = 0
    """How often good bytes were looked for in vain."""
    again_s: float = 0.0
    """When to look again."""

    @property
    def place(self) -> Place:
        """Where it is."""
        return place_of(self.unit)

    @property
    def is_kept(self) -> bool:
        """It is looked for until it is found."""
        return bool(self.entries) or self.scrubbed is not None

    @property
    def position(self) -> Position | None:
        """Where the unit stands in its queue, if that is known."""
        queue = int(self.unit["topic_queue"][0])
        here = (
            one.position for one in self.entries.values() if one.group_queue.topic_queue == queue
        )
        return next(here, None)


class DamagedMessages:
    """See the top of this file. Of one mastership.

    Invariant: `count` is the number of entries of all places.
    """

    def __init__(self) -> None:
        """Nothing is damaged."""
        self._bytes: dict[Place, DamagedBytes] = {}
        self._last_serial = 0
        self.count = 0
        self.found_count = 0
        """Places found so far, those that were mended included."""
        self.overflowed: set[GroupQueue] = set()
        """Groups and queues of which more is withheld than is known here."""

    def __len__(self) -> int:
        """Places that are damaged."""
        return len(self._bytes)

    @property
    def is_full(self) -> bool:
        """More than half of the entries are taken: what was left out stays so for now."""
        return self.count > ENTRIES_MAX // 2

    def note(self, corrupt: Corrupt, now_ms: int) -> DamagedBytes | None:
        """A group was to get this message. Returns its bytes where that place is news."""
        if self.count >= ENTRIES_MAX:
            self.overflowed.add(corrupt.group_queue)
            return None
        found, is_news = self._bytes_of(corrupt.unit, corrupt.error)
        key = corrupt.group_queue, corrupt.position
        if key not in found.entries:
            self._last_serial += 1
            self.count += 1
            found.entries[key] = DamagedEntry(self._last_serial, *key, corrupt.unit, now_ms)
        return found if is_news else None

    def note_listed(self, unit: Units, error: errors.DataLoss) -> DamagedBytes | None:
        """A listing came by this message, which is still pending. Returns as `note`."""
        if len(self._bytes) >= ENTRIES_MAX:
            return None
        found, is_news = self._bytes_of(unit, error)
        return found if is_news else None

    def note_scrubbed(
        self, unit: Units, error: errors.DataLoss, now_ms: int
    ) -> DamagedBytes | None:
        """The scrubber came by this message. Returns as `note`."""
        if len(self._bytes) >= ENTRIES_MAX:
            return None
        found, is_news = self._bytes_of(unit, error)
        if found.scrubbed is None:
            self._last_serial += 1
            group_queue = GroupQueue.of(NO_GROUP, int(unit["topic_queue"][0]))
            found.scrubbed = DamagedEntry(
                self._last_serial, group_queue, FIRST_POSITION, unit, now_ms
            )
        return found if is_news else None

    @property
    def scrubbed_count(self) -> int:
        """Places that the scrubber came by and no group waits for."""
        return sum(one.scrubbed is not None and not one.entries for one in self._bytes.values())

    def _bytes_of(self, unit: Units, error: errors.DataLoss) -> tuple[DamagedBytes, bool]:
        place = place_of(unit)
        found = self._bytes.get(place)
        if found is not None:
            return found, False
        found = self._bytes[place] = DamagedBytes(unit, error)
        self.found_count += 1
        return found, True

    def due(self, now_s: float, count_max: int) -> list[DamagedBytes]:
        """Places whose bytes are to be looked for now: so many of them, the longest waiting first.

        Those that no group waits for come last; where only a listing came by, they are forgotten
        after the first search in vain.
        """
        due = [one for one in self._bytes.values() if one.again_s <= now_s]
        due.sort(key=lambda one: (not one.entries, not one.is_kept, one.again_s))
        return due[:count_max]

    def next_s(self) -> float | None:
        """When to look for the next, or None."""
        return min((one.again_s for one in self._bytes.values()), default=None)

    def take(self, place: Place) -> list[DamagedEntry]:
        """Forget a place; the entries that waited for it."""
        found = self._bytes.pop(place, None)
        entries = [] if found is None else list(found.entries.values())
        self.count -= len(entries)
        return entries

    def drop(self, entry: DamagedEntry) -> None:
        """The group does not wait for this entry any more."""
        place = place_of(entry.unit)
        found = self._bytes.get(place)
        if (
            found is not None
            and found.entries.pop((entry.group_queue, entry.position), None) is not None
        ):
            self.count -= 1
            if not found.is_kept:
                del self._bytes[place]

    def entries(self, after_serial: int = 0) -> Iterator[tuple[DamagedBytes, DamagedEntry]]:
        """All entries behind one, in the order in which they were found.

        That of `NO_GROUP` only where no group waits.
        """
        found = [
            (one.serial, at, one)
            for at in self._bytes.values()
            for one in at.entries.values() or ((at.scrubbed,) if at.scrubbed else ())
            if one.serial > after_serial
        ]
        found.sort(key=lambda three: three[0])
        return ((at, one) for _, at, one in found)

    def positions(self, group_queue: GroupQueue) -> list[Position]:
        """Of a group and queue: the positions known here."""
        return [
            one.position
            for at in self._bytes.values()
            for one in at.entries.values()
            if one.group_queue == group_queue
        ]

    def has(self, sequence: SequenceNumber) -> bool:
        """Whether a message is among them."""
        return any(int(at.unit["sequence"][0]) == sequence for at in self._bytes.values())
