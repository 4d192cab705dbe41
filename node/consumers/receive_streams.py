"""Receive streams of one mastership: standing polls, whose answers are pushed as credits allow.

A stream takes part in the turns as a long poll does (node/consumers/polls.py), and stays among
those who wait behind its answers. It leaves them while it has no credits, or its client's
connection no room, and comes back as a poll that begins. Which of its last answers have not
arrived, as far as is known, is kept while it is open and for a while after: who opens the same
stream again gets those first. Only the principal that opened a stream opens it again. A
master that steps down in order leaves that to the next one with its leases.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.errors import HourwheelError
from node.consumers.polls import KEPT_MS_MAX, Polls
from node.consumers.waiters import Interest, Waiter
from node.contracts import broker
from node.contracts.receive_stream import UNCONFIRMED_MAX, Piece, Push, Unconfirmed
from node.delivery.deliveries import Delivery
from node.delivery.message_lease import Lease, PollMark

KEPT_MAX: Final = 1_024
"""Streams that have ended and may be opened again; up to 20 kilobytes each."""


class _Key(NamedTuple):
    interest: Interest
    owner: str
    """No other principal opens it again."""
    stream_id: int


class OpenStream:
    """One of them: what its waiter needs of it."""

    def __init__(
        self,
        key: _Key,
        push: Push[broker.Delivery],
        lost: Sequence[Piece],
        to_port: Callable[[Delivery], broker.Delivery],
    ) -> None:
        """`lost`: what it got before, in answers that have not arrived."""
        self.stream, self._send = push
        self.is_waiting = False
        self._key, self._repeats, self._to_port = key, deque(lost), to_port
        self._repeated: Piece | None = None
        """What the next answer is a part of."""

    @property
    def has_repeats(self) -> bool:
        """See `Standing`."""
        return bool(self._repeats)

    def take_repeat(self) -> Piece | None:
        """See `Standing`."""
        self._repeated = self._repeats.popleft() if self._repeats else None
        return self._repeated

    def put(self, delivery: Delivery) -> None:
        """See `Standing`."""
        lease, first, count = delivery.lease, delivery.first_ordinal, len(delivery.units)
        repeated, self._repeated = self._repeated, None
        if repeated is not None:
            end = lease.count if repeated.size is None else repeated.first + repeated.size
            left = end - first - count
            if left > 0:  # more than there are credits
                self._repeats.appendleft(repeated._replace(first=end - left, size=left))
        was_sent = repeated is not None and repeated.was_sent
        held = self.stream.put(Piece(lease.lease_id, first, count, was_sent), count)
        lease.poll = None  # of one that comes in parts the next master would not know which
        if self.stream.stream_id and count == lease.count:
            lease.poll = PollMark(
                self._key.interest.topic_id,
                self.stream.stream_id,
                self.stream.sent_count,
                delivery.receive_ms,
                stream_owner=self.stream.owner,
            )
        self._send(self._to_port(delivery), held)

    def unsent(self) -> list[Piece]:
        """What was leased for it and will not be sent, when it ends."""
        unsent = self.stream.unsent if self.stream.is_cut else ()
        return [*unsent, *(piece for piece in self._repeats if not piece.was_sent)]

    def left(self) -> list[Unconfirmed]:
        """Answers that have not arrived, as far as is known, when it ends."""
        again = [Unconfirmed(self.stream.sent_count + 1, piece) for piece in self._repeats]
        return [*self.stream.left(), *again]


class _Kept(NamedTuple):
    at_ms: int
    """When it ended."""
    left: list[Unconfirmed]
    """What had not arrived."""


class _KeptStreams:
    """Those that have ended and may be opened again.

    Invariant: at most `KEPT_MAX`. The owner of most of them has the oldest forgotten.
    """

    def __init__(self) -> None:
        self._of_owner: dict[str, OrderedDict[_Key, _Kept]] = {}
        self._count = 0

    def keep(self, key: _Key, kept: _Kept) -> None:
        """It ended last."""
        self.take(key)
        self._of_owner.setdefault(key.owner, OrderedDict())[key] = kept
        self._count += 1
        for some in list(self._of_owner.values()):
            while some:
                oldest, (at_ms, _) = next(iter(some.items()))
                if kept.at_ms <= at_ms + KEPT_MS_MAX:
                    break
                self.take(oldest)
        if self._count > KEPT_MAX:
            most = max(self._of_owner, key=lambda owner: len(self._of_owner[owner]))
            self.take(next(iter(self._of_owner[most])))

    def take(self, key: _Key) -> list[Unconfirmed]:
        """What had not arrived of it, if it is kept: not any more."""
        some = self._of_owner.get(key.owner)
        kept = None if some is None else some.pop(key, None)
        if some is None or kept is None:
            return []
        self._count -= 1
        if not some:
            del self._of_owner[key.owner]
        return kept.left

    def clear(self) -> None:
        """Forget all of them."""
        self._of_owner.clear()
        self._count = 0


class ReceiveStreams:
    """See the top of this file. Each method is a turn, or a part of one."""

    def __init__(
        self,
        polls: Polls,
        now_ms: Callable[[], int],
        may_act: Callable[[], bool],
        guarded: Callable[[Callable[[], None]], Callable[[], None]],
        to_port: Callable[[Delivery], broker.Delivery],
    ) -> None:
        """None is open.

        Args:
            polls: of the same mastership.
            now_ms: the clock.
            may_act: whether this node may hand out anything now.
            guarded: see `Serving`.
            to_port: a delivery as the API has it.
        """
        self._polls, self._now_ms, self._may_act = polls, now_ms, may_act
        self._guarded, self._to_port = guarded, to_port
        self._open: dict[Waiter, OpenStream] = {}
        self._by_key: dict[_Key, Waiter] = {}
        self._kept = _KeptStreams()

    def restore(self, leases: Iterable[Lease], now_ms: int) -> None:
        """A former master has pushed these, the oldest first: their answers may be lost."""
        left: dict[_Key, list[Unconfirmed]] = {}
        for lease in leases:
            mark = lease.poll
            if mark is not None and mark.stream_owner is not None:
                interest = Interest(lease.group_queue.group_id, mark.topic_id)
                key = _Key(interest, mark.stream_owner, mark.poller_id)
                # It has left the other node, or was put back there.
                piece = Piece(lease.lease_id, was_sent=True)
                left.setdefault(key, []).append(Unconfirmed(mark.number, piece))
        for key, some in left.items():
            self._kept.keep(key, _Kept(now_ms, sorted(some)[-UNCONFIRMED_MAX:]))

    def open(self, interest: Interest, waiter: Waiter, push: Push[broker.Delivery]) -> None:
        """A stream begins: push what there is. One of the same number that is still open ends."""
        stream = push.stream
        key = _Key(interest, stream.owner, stream.stream_id)
        known: list[Unconfirmed] = []
        if stream.stream_id:
            known = self._kept.take(key)
            former = self._by_key.get(key)
            if former is not None:
                known = self._open.pop(former).left()
                _end(former)
            self._by_key[key] = waiter
        standing = OpenStream(key, push, stream.lost(known), self._to_port)
        self._open[waiter] = waiter.standing = standing
        look = self._guarded(lambda: self._look(interest, waiter, standing))
        stream.on_ready = look
        look()

    def _look(self, interest: Interest, waiter: Waiter, standing: OpenStream) -> None:
        if waiter.future.done() or standing.is_waiting or not standing.stream.is_ready:
            return
        if not self._may_act():  # those that wait are served when it may again
            standing.is_waiting = True
            self._polls.wait(interest, waiter, self._now_ms())
            return
        try:
            self._polls.look(interest, waiter, standing, self._now_ms())
        except (errors.SubscriptionMismatch, errors.MemberReplaced) as mismatch:
            waiter.future.set_exception(mismatch)

    def end(self, interest: Interest, waiter: Waiter) -> list[Piece]:
        """It is over: gives what was leased for answers that will not be sent."""
        self._polls.discard(interest, waiter)
        standing = self._open.pop(waiter, None)
        if standing is None:
            return []  # it is open anew, and gets them
        stream = standing.stream
        if stream.stream_id:
            key = _Key(interest, stream.owner, stream.stream_id)
            del self._by_key[key]
            left = [] if stream.is_given_up else standing.left()
            if left:
                self._kept.keep(key, _Kept(self._now_ms(), left))
        return standing.unsent()

    def close(self, error: HourwheelError | None) -> None:
        """End all of them, with an error or without."""
        for waiter in self._open:
            _end(waiter, error)
        self._kept.clear()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)


def _end(waiter: Waiter, error: HourwheelError | None = None) -> None:
    future: asyncio.Future[Delivery | None] = waiter.future
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
