"""The cluster clock: the lower median of the nodes' clocks, as its master can tell them.

A follower's acknowledgement carries its clock and echoes when the heartbeat it answers was sent;
so the follower read its clock somewhere between then and now: the round trip bounds the error, and
of recent samples the one with the shortest counts. Within that bound a clock counts as equal to the
master's own: so the noise of the network does not become noise of the clock.

Of two clocks the lower median is the one behind: a message rather comes late by their difference
than early. Without fresh samples of a majority there is no cluster clock, and nothing is
dispatched.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from hourwheel.types import NodeId

_SAMPLES_KEPT: Final = 16


@dataclass(frozen=True)
class ClockConfig:
    """Bounds, in milliseconds."""

    fresh_ms: float = 2_000.0
    """Samples older than this say nothing,"""
    round_trip_ms_max: float = 250.0
    """and neither do those that took longer. A message is never earlier than by this, even if its
    master's own clock is wrong."""
    jump_ms: float = 1_000.0
    """An offset that changes by more needs to be seen again, `settle_ms` later."""
    settle_ms: float = 500.0


class _Sample(NamedTuple):
    taken_ms: float
    offset_ms: float
    """As if its clock had been read in the middle of the round trip."""
    round_trip_ms: float

    @property
    def least_offset_ms(self) -> float:
        """The offset nearest to none that the sample allows."""
        error_ms = self.round_trip_ms / 2
        return min(max(0.0, self.offset_ms - error_ms), self.offset_ms + error_ms)


class _Samples:
    """The last ones of one node. Time goes on: what was too old once is never asked for again."""

    def __init__(self, fresh_ms: float) -> None:
        self._fresh_ms = fresh_ms
        self._kept = deque[_Sample](maxlen=_SAMPLES_KEPT)
        self._best: _Sample | None = None
        """Of those that were fresh at the last look; None: look."""
        self._best_offset_ms = 0.0

    def add(self, sample: _Sample) -> None:
        best = self._best
        if best is not None and (
            best is self._kept[0] or sample.round_trip_ms < best.round_trip_ms
        ):
            self._best = None
        self._kept.append(sample)

    def find_offset_ms(self, monotonic_ms: float) -> float | None:
        """What the best of the fresh ones says; None: there is none."""
        best = self._best
        if best is None or monotonic_ms - best.taken_ms > self._fresh_ms:
            fresh = [one for one in self._kept if monotonic_ms - one.taken_ms <= self._fresh_ms]
            if not fresh:
                return None
            best = self._best = min(fresh, key=attrgetter("round_trip_ms"))
            self._best_offset_ms = best.least_offset_ms
        return self._best_offset_ms


class ClusterClock:
    """How far the cluster clock is from this node's own.

    `offset_ms` is to be added to the node's clock; None while a majority's clocks are unknown.
    """

    def __init__(self, config: ClockConfig, members: Collection[NodeId], me: NodeId) -> None:
        """`members` are the replica list; `me` is this one, whose own clock counts as one."""
        self._config, self._me = config, me
        self._samples: dict[NodeId, _Samples] = {}
        self.set_members(members)
        self._offset_ms: float | None = None
        self._jump: tuple[float, float] | None = None
        """(monotonic time, offset): a jump that was seen once."""

    def set_members(self, members: Collection[NodeId]) -> None:
        """These are the replica list from now on."""
        self._needed = len(members) // 2 + 1
        self._samples = {
            one: self._samples.get(one) or _Samples(self._config.fresh_ms)
            for one in members
            if one != self._me
        }

    def on_answer(
        self, node: NodeId, sent_ms: float, received_ms: float, own_ms: float, clock_ms: float
    ) -> None:
        """A node has answered a heartbeat with the time of its clock.

        Args:
            node: the one that answered.
            sent_ms: when the heartbeat that it answers was sent; monotonic, the node's own wait for
                the answer taken off.
            received_ms: now, monotonic.
            own_ms: now, by this node's own clock.
            clock_ms: its clock, somewhere in between.
        """
        round_trip_ms = received_ms - sent_ms
        if node in self._samples and 0 <= round_trip_ms <= self._config.round_trip_ms_max:
            middle_ms = own_ms - round_trip_ms / 2
            self._samples[node].add(_Sample(received_ms, clock_ms - middle_ms, round_trip_ms))

    def offsets(self, monotonic_ms: float) -> dict[NodeId, float]:
        """Each other node's clock minus this one's, in ms; those that are fresh."""
        found = {}
        for node, samples in self._samples.items():
            offset_ms = samples.find_offset_ms(monotonic_ms)
            if offset_ms is not None:
                found[node] = offset_ms
        return found

    def update(self, monotonic_ms: float) -> float | None:
        """The offset as of now, or None without a majority, or while a jump is not confirmed."""
        known = [0.0, *self.offsets(monotonic_ms).values()]
        if len(known) < self._needed:
            self._offset_ms = self._jump = None
            return None
        known.sort()
        median = known[(len(known) - 1) // 2]
        before = self._offset_ms
        if before is None or abs(median - before) <= self._config.jump_ms:
            self._offset_ms, self._jump = median, None
        elif self._jump is None or abs(median - self._jump[1]) > self._config.jump_ms:
            self._jump = (monotonic_ms, median)
            return None
        elif monotonic_ms - self._jump[0] >= self._config.settle_ms:
            self._offset_ms, self._jump = median, None
        else:
            return None
        return self._offset_ms
