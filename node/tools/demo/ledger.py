"""The demo's books: what was scheduled, taken back and delivered, and what of that is wrong.

Each delivery is compared with what was scheduled: its id, its body, its due time. Pure; times come
in as milliseconds since the Unix epoch.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from hourwheel.outcomes import CancelOutcome
from hourwheel.types import NO_EPOCH, Epoch
from node.tools.demo.trace import Kind, Trace

_PROBLEMS_MAX: Final = 10
"""So many problems are shown in words."""


class Arrival(NamedTuple):
    """A message that a consumer got."""

    message_id: str
    body: bytes
    due_ms: int
    store_ms: int
    arrived_ms: float
    place: tuple[int, int] = (0, 0)
    """(topic queue, position): each release of a message has one of its own."""
    epoch: Epoch = NO_EPOCH
    """The epoch in which it was leased to the consumer."""


class Failover(NamedTuple):
    """A master was killed in the middle, and started again later."""

    killed: str
    successor: str
    epoch: Epoch
    """Of the successor."""
    gap_ms: float
    """The longest time without a delivery, from the kill on."""
    in_sync_ms: float
    """From starting the killed node again until it is in sync."""


class Lateness(NamedTuple):
    """Milliseconds from being due to being in the consumer's hands."""

    p50_ms: float
    p99_ms: float
    max_ms: float


class KindCount(NamedTuple):
    """What became of the timers of one kind."""

    label: str
    scheduled: int
    cancelled: int
    too_late: int
    """Taken back when they were released already: the node said so, and they came."""
    delivered: int


@dataclass(frozen=True)
class Summary:
    """The end of a demo. `problems` is empty if all is well."""

    orders: int
    kinds: list[KindCount]
    scheduled: int
    cancelled: int
    too_late: int
    delivered: int
    missing: int
    duplicated: int
    early: int
    wrong: int
    """Deliveries that are not what was scheduled, and answers that are not true."""
    lateness: Lateness | None
    due_at_once: int
    """Messages that reached the node when they were due already: they are late from then on."""
    problems: list[str]
    redelivered: int = 0
    """Released once and handed out again by a later master: the leases of the one before are
    lost with it. No fault: consumers get such a message more than once."""
    failover: Failover | None = None

    @property
    def is_good(self) -> bool:
        """Nothing is missing, duplicated, early or wrong."""
        return not (self.missing or self.duplicated or self.early or self.wrong or self.problems)


@dataclass
class Ledger:
    """The books of one run. `start_ms` is when the trace begins."""

    trace: Trace
    start_ms: int
    early: int = 0
    duplicated: int = 0
    redelivered: int = 0
    wrong: int = 0
    due_at_once: int = 0
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open the books."""
        self.bodies = [self.trace.body(index) for index in range(len(self.trace))]
        self._index_of = {body: index for index, body in enumerate(self.bodies)}
        self.ids: dict[int, str] = {}
        """Timer -> id, of those whose publish was answered."""
        self._cancels: dict[int, CancelOutcome] = {}
        self._arrivals: dict[int, Arrival] = {}
        self._last_epochs: dict[int, int] = {}
        """Timer -> the epoch in which it was last handed out, if more than once."""
        self._arrival_times_ms: list[float] = []
        self._expected_cancels = int((self.trace.cancel_ms >= 0).sum())
        self.cancelled = 0
        self._lateness_ms: list[float] = []
        self.delivered_by_second: Counter[int] = Counter()
        """Second since the start -> how many arrived in it."""

    # --- what happened --------------------------------------------------------------------------

    def due_ms(self, index: int) -> int:
        """When a timer is due."""
        return self.start_ms + int(self.trace.due_ms[index])

    def note_published(self, index: int, message_id: str) -> None:
        """The node has taken the message of a timer."""
        self.ids[index] = message_id

    def note_cancelled(self, indexes: Iterable[int], outcomes: Iterable[CancelOutcome]) -> None:
        """The node's answers."""
        for index, outcome in zip(indexes, outcomes, strict=True):
            self._cancels[index] = outcome
            self.cancelled += outcome is CancelOutcome.CANCELLED
            if outcome is CancelOutcome.UNKNOWN:
                self._wrong(f"the node does not know message {self.ids.get(index)}")

    def note_arrived(self, arrivals: Sequence[Arrival]) -> None:
        """A consumer got these, at one moment."""
        if arrivals:
            self._arrival_times_ms.append(arrivals[0].arrived_ms)
        for one in arrivals:
            index = self._index_of.get(one.body)
            if index is None:
                self._wrong(f"message {one.message_id} has a body that was never sent")
            elif index in self._arrivals:
                self._note_again(index, one)
            else:
                self._arrivals[index] = one
                self._note_first(index, one)

    def _note_again(self, index: int, one: Arrival) -> None:
        """The same release from a later master is a lease that was lost; all else is a fault."""
        first = self._arrivals[index]
        if one.place == first.place and one.epoch > self._last_epochs.get(index, first.epoch):
            self.redelivered += 1
            self._last_epochs[index] = one.epoch
            return
        self.duplicated += 1
        if one.place != first.place:
            self._tell(f"message {one.message_id} was released again, at {one.place}")
        else:
            self._tell(f"message {one.message_id} came again in epoch {one.epoch}")

    def longest_gap_ms(self, from_ms: float) -> float:
        """The longest time between two deliveries, of which the second was after `from_ms`."""
        times = sorted(self._arrival_times_ms)
        gaps = [after - before for before, after in pairwise(times) if after > from_ms]
        return round(max(gaps, default=0.0), 1)

    def _note_first(self, index: int, one: Arrival) -> None:
        due_ms = self.due_ms(index)
        if one.due_ms != due_ms:
            self._wrong(f"message {one.message_id} says due {one.due_ms}, and was due {due_ms}")
        if one.arrived_ms < due_ms:
            self.early += 1
            self._tell(f"message {one.message_id} came {due_ms - one.arrived_ms:.3f} ms early")
        self.due_at_once += one.store_ms > due_ms
        self._lateness_ms.append(one.arrived_ms - max(due_ms, one.store_ms))
        self.delivered_by_second[int(one.arrived_ms - self.start_ms) // 1_000] += 1

    def _wrong(self, problem: str) -> None:
        self.wrong += 1
        self._tell(problem)

    def _tell(self, problem: str) -> None:
        if len(self.problems) < _PROBLEMS_MAX:
            self.problems.append(problem)

    # --- how it stands --------------------------------------------------------------------------

    @property
    def scheduled(self) -> int:
        """Messages that the node has taken."""
        return len(self.ids)

    @property
    def delivered(self) -> int:
        """Messages that arrived, each counted once."""
        return len(self._arrivals)

    @property
    def pending(self) -> int:
        """Messages that should still come, or be taken back."""
        return max(0, self.scheduled - self.cancelled - self.delivered)

    @property
    def is_complete(self) -> bool:
        """All was sent and answered, and as many came as should."""
        return (
            self.scheduled == len(self.trace)
            and len(self._cancels) == self._expected_cancels
            and self.scheduled == self.cancelled + self.delivered
        )

    def lateness(self) -> Lateness | None:
        """Of what arrived so far; None for nothing."""
        if not self._lateness_ms:
            return None
        found = np.percentile(np.array(self._lateness_ms), (50, 99, 100))
        return Lateness(*(round(float(value), 3) for value in found))

    def close(self) -> Summary:
        """Compare the two sides of the books, once, when no more will come."""
        for index, arrival in self._arrivals.items():
            if arrival.message_id != self.ids.get(index):
                self._wrong(f"message {arrival.message_id} was scheduled as {self.ids.get(index)}")
            if self._cancels.get(index) is CancelOutcome.CANCELLED:
                self._wrong(f"message {arrival.message_id} came although it was cancelled")
        missing = [
            index
            for index in self.ids
            if index not in self._arrivals
            and self._cancels.get(index) is not CancelOutcome.CANCELLED
        ]
        for index in missing:
            self._tell(f"message {self.ids[index]} never came")
        kinds = [self._count(kind) for kind in Kind]
        return Summary(
            orders=len(self.trace.orders.ids),
            kinds=kinds,
            scheduled=self.scheduled,
            cancelled=self.cancelled,
            too_late=sum(one.too_late for one in kinds),
            delivered=self.delivered,
            missing=len(missing),
            duplicated=self.duplicated,
            early=self.early,
            wrong=self.wrong,
            lateness=self.lateness(),
            due_at_once=self.due_at_once,
            problems=list(self.problems),
            redelivered=self.redelivered,
        )

    def _count(self, kind: Kind) -> KindCount:
        is_kind = (self.trace.kind == int(kind)).tolist()
        late = CancelOutcome.ALREADY_RELEASED
        return KindCount(
            kind.label,
            sum(is_kind[index] for index in self.ids),
            sum(
                is_kind[index] and outcome is CancelOutcome.CANCELLED
                for index, outcome in self._cancels.items()
            ),
            sum(is_kind[index] and outcome is late for index, outcome in self._cancels.items()),
            sum(is_kind[index] for index in self._arrivals),
        )
