"""The sweep: looks for what has expired where no consumer receives, so that no backlog counts it.

A group that receives comes upon what has expired by itself. One that does not would keep it for as
long as its topic does. So the sweep goes through the queues of all groups that read a topic with
messages that expire, a piece of a queue in each step, and what it finds goes the same way. Steps
are bounded in messages and bytes, and stand apart: a million expired messages take a minute, and
other calls come in between.

When messages expire never changes, so it is kept for the pieces looked at last: a backlog that
lives is not read again and again.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.types import topic_of
from node.delivery.expiry import are_expired, expiries_of
from node.delivery.receiver import Receiver
from node.shard.group_queue import GroupQueue
from node.shard.views import Views
from storage.queues.ack_state import WINDOW_POSITIONS
from storage.queues.consume_queue import ConsumeQueue
from storage.views.unit import Units
from timewheel.bodies import Bodies

PASS_MS: Final = 5_000
"""A pass begins so long after the one before."""
_STEP_MS: Final = 10
"""Between two steps of a pass."""
PIECE_MESSAGES: Final = 512
"""A piece ends where a multiple of this does, so that groups that stand elsewhere share it."""
_PIECE_BYTES: Final = 1 << 20
_QUEUES_AT_ONCE: Final = 64
_PIECES_AT_ONCE: Final = 16
"""Of those that are known, in one step; of others one is read."""
_PIECES_KEPT: Final = 4_096
"""Some 16 MiB."""


class _Piece(NamedTuple):
    end: int
    expires_ms: NDArray[np.int64] | None
    """When each of its messages expires; None: none does."""


class ExpirySweep:
    """The sweep of one mastership. Takes the time, and says when it wants to be called."""

    def __init__(self, views: Views, receiver: Receiver, bodies: Bodies) -> None:
        """What is found goes to `receiver.expired`."""
        self._views, self._receiver, self._bodies = views, receiver, bodies
        self._pieces: OrderedDict[tuple[int, int], _Piece] = OrderedDict()
        """(queue, first position) -> what is known of it."""
        self._pass: Iterator[GroupQueue] | None = None
        self._at: tuple[GroupQueue, int] | None = None
        """The queue that the pass is in, and the next position."""
        self._next_ms, self._began_ms = 0, 0

    def next_ms(self) -> int | None:
        """When to take a step, or None: no message ever expires."""
        return self._next_ms if self._views.expiring_topics else None

    def step(self, now_ms: int) -> bool:
        """Look at a piece, if it is time to. Returns whether it has found anything."""
        if not self._views.expiring_topics or now_ms < self._next_ms:
            return False
        if self._pass is None:
            self._pass, self._began_ms = self._queues(), now_ms
        self._next_ms = now_ms + _STEP_MS
        queues_left, pieces_left = _QUEUES_AT_ONCE, _PIECES_AT_ONCE
        while queues_left and pieces_left:
            if self._at is None:
                following = next(self._pass, None)
                if following is None:
                    self._pass, self._next_ms = None, self._began_ms + PASS_MS
                    self._next_ms = max(self._next_ms, now_ms + _STEP_MS)
                    return False
                self._at = following, 0
                queues_left -= 1
            found, has_read = self._look(now_ms)
            if has_read or found:
                return found
            pieces_left -= 1
        return False

    def _queues(self) -> Iterator[GroupQueue]:
        """All queues that have to be looked at; what changes meanwhile may be left out."""
        catalog = self._views.catalog
        for topic_id in sorted(self._views.expiring_topics):
            for one in catalog.subscriptions_to(topic_id):
                for number in self._receiver.queues_of(one.group_id, one.topic_id):
                    yield GroupQueue(one.group_id, number)

    def _look(self, now_ms: int) -> tuple[bool, bool]:
        """(whether anything has expired, whether messages were read) of the next piece."""
        group_queue, at = errors.required(self._at, "a sweep looks where it is")
        bounds = self._bounds(group_queue, at, now_ms)
        if bounds is None:
            self._at = None
            return False, False
        first, end = bounds
        number = int(group_queue.topic_queue)
        piece = self._pieces.get((number, first))
        has_read = piece is None or piece.end < min(end, _piece_end(first))
        if piece is None or has_read:
            piece = self._read(self._views.queues.get(group_queue.topic_queue), first, end)
            if piece is None:
                self._at = None  # damaged: a Receive will come upon it, and have it mended
                return False, True
            self._keep((number, first), piece)
        end = min(end, piece.end)
        self._at = group_queue, end
        if piece.expires_ms is None:
            return False, has_read
        gone = np.flatnonzero(are_expired(piece.expires_ms[: end - first], now_ms))
        if len(gone):
            self._at = self._give_up(group_queue, gone + first, (first, end), now_ms)
        return bool(len(gone)), has_read

    def _give_up(
        self,
        group_queue: GroupQueue,
        positions: NDArray[np.int64],
        bounds: tuple[int, int],
        now_ms: int,
    ) -> tuple[GroupQueue, int] | None:
        """Give up what has expired of [first, end), and say where to go on; None: elsewhere."""
        try:
            done = self._receiver.give_up_expired(group_queue, positions, now_ms)
        except errors.InvalidFilter:
            return None  # of a later version: what the group wants is unknown
        if done > int(positions[-1]):
            return group_queue, bounds[1]
        return None if done <= bounds[0] else (group_queue, done)

    def _bounds(self, group_queue: GroupQueue, at: int, now_ms: int) -> tuple[int, int] | None:
        """[first, end) of the next positions that are visible, and neither delivered nor done."""
        catalog = self._views.catalog
        if catalog.find_topic_by_id(topic_of(group_queue.topic_queue)) is None:
            return None  # deleted since the pass began
        if catalog.find_group_by_id(group_queue.group_id) is None:
            return None
        queue = self._views.queues.get(group_queue.topic_queue)
        window = self._views.acks.get(*group_queue)
        low = max(at, queue.start_position)
        visible_end = self._receiver.visible_end(group_queue.topic_queue, now_ms)
        leases = self._receiver.leases
        if leases.range_count(group_queue, window) >= WINDOW_POSITIONS // 2:
            return None  # scattered over a backlog that lives: the group's window has no room
        first, end = leases.find_undelivered(group_queue, window, (low, visible_end))
        return (first, end) if first < end else None

    def _read(self, queue: ConsumeQueue, first: int, end: int) -> _Piece | None:
        """What is to be known of the piece that begins at `first`; None: it cannot be read."""
        units = _cut(queue.read(first, min(end, _piece_end(first)) - first))
        blobs, bad = self._bodies.read_joined(units)
        if bad:
            return None
        expires_ms = expiries_of(units, blobs)
        return _Piece(first + len(units), expires_ms if expires_ms.any() else None)

    def _keep(self, key: tuple[int, int], piece: _Piece) -> None:
        self._pieces[key] = piece
        self._pieces.move_to_end(key)
        if len(self._pieces) > _PIECES_KEPT:
            self._pieces.popitem(last=False)


def _piece_end(first: int) -> int:
    return (first // PIECE_MESSAGES + 1) * PIECE_MESSAGES


def _cut(units: Units) -> Units:
    """The first ones whose bytes may be read together, and at least one."""
    sizes = (units["body_len"].astype(np.int64) + units["meta_len"]).cumsum()
    return units[: max(1, int(sizes.searchsorted(_PIECE_BYTES, "right")))]
