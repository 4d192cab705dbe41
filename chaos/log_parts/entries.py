"""Messages and requests as the naive reading of a log (`chaos.log_model`) knows them."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from hourwheel.formats.record_batch import Outcome, RecordBatch

IN_PLACE: Final = frozenset({Outcome.HELD, Outcome.FREED})
"""Outcomes of RESOLVE that resolve nothing."""


class Log(Protocol):
    """What can be read batch by batch."""

    def scan(self, from_: Any, to: Any) -> Iterator[RecordBatch]:
        """The batches of a range of offsets."""
        ...


class Entry(NamedTuple):
    """A message on its way: in the wheel, or in a queue."""

    due_ms: int
    sequence: int
    attempt: int
    topic_queue: int
    store_ms: int

    @property
    def release_ms(self) -> int:
        """From when it may be seen, once it is in a queue."""
        return max(self.due_ms, self.store_ms)


class Sent(NamedTuple):
    """A batch that a producer is remembered by."""

    first: int
    message_count: int
    base_sequence: int
    store_ms: int

    @property
    def end(self) -> int:
        """The producer's number behind its last message."""
        return self.first + self.message_count


def place_of(entry: Entry) -> tuple[int, int]:
    """A message waits once in its own right, and once more for each group that tries again."""
    return entry.sequence, 0 if entry.attempt == 1 else entry.topic_queue


def hold(
    held: dict[tuple[int, int, int], tuple[int, int]],
    owner: tuple[int, int],
    positions: set[int],
    outcome: int,
    until_ms: int,
) -> int:
    """How many positions keep their place, and wait there; or wait no longer (FREED)."""
    places = [(*owner, at) for at in positions]
    if outcome == Outcome.FREED:
        return sum(held.pop(place, None) is not None for place in places)
    held.update({place: (held.get(place, (0, 0))[0] + 1, until_ms) for place in places})
    return len(places)


def letters_left(
    queues: dict[int, list[Entry]], redriven: set[tuple[int, int]], number: int
) -> list[int]:
    """Sequences of the dead letters in a queue that no group was given again."""
    letters = enumerate(queues.get(number, ()))
    return [one.sequence for at, one in letters if (number, at) not in redriven]
