"""Receive streams of one mastership: standing polls, whose answers are pushed as credits allow.

A stream takes part in the turns as a long poll does (node/consumers/polls.py), and stays among
those who wait behind its answers. It leaves them while it has no credits, or its client's
connection no room, and comes back as a poll that begins. Which of its last answers have not
arrived, as far as is known, is kept while it is open and for a while after: who opens the same
stream again gets those first.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final

from hourwheel import errors
from hourwheel.errors import HourwheelError
from node.consumers.polls import KEPT_MS_MAX, Polls
from node.consumers.waiters import Interest, Waiter
from node.contracts import broker
from node.contracts.receive_stream import Push, Unconfirmed
from node.delivery.receiver import Delivery

KEPT_MAX: Final = 1_024
"""Streams that have ended and may be opened again; up to 20 kilobytes each."""

_Key = tuple[Interest, int]


class OpenStream:
    """One of them: what its waiter needs of it."""

    def __init__(
        self,
        push: Push[broker.Delivery],
        lost: Sequence[int],
        to_port: Callable[[Delivery], broker.Delivery],
    ) -> None:
        """`lost`: leases that it got before, and whose answers have not arrived."""
        self.stream, self._send = push
        self.is_waiting = False
        self._repeats, self._to_port = deque(lost), to_port

    @property
    def is_ready(self) -> bool:
        """See `Standing`."""
        return self.stream.is_ready

    @property
    def credits_count(self) -> int:
        """See `Standing`."""
        return self.stream.credits_count

    @property
    def has_repeats(self) -> bool:
        """See `Standing`."""
        return bool(self._repeats)

    def take_repeat(self) -> int | None:
        """See `Standing`."""
        return self._repeats.popleft() if self._repeats else None

    def put(self, delivery: Delivery) -> None:
        """See `Standing`."""
        held = self.stream.put(delivery.lease.lease_id, len(delivery.units))
        self._send(self._to_port(delivery), held)

    def left(self) -> list[Unconfirmed]:
        """Answers that have not arrived, as far as is known, when it ends."""
        stream = self.stream
        again = [Unconfirmed(stream.sent_count + 1, lease_id) for lease_id in self._repeats]
        return [*stream.unconfirmed, *again]


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
        self._kept: OrderedDict[_Key, tuple[int, list[Unconfirmed]]] = OrderedDict()
        """(When it ended, what had not arrived) of those that may be opened again."""

    def open(self, interest: Interest, waiter: Waiter, push: Push[broker.Delivery]) -> None:
        """A stream begins: push what there is. One of the same number that is still open ends."""
        stream, key = push.stream, (interest, push.stream.stream_id)
        known: list[Unconfirmed] = []
        if stream.stream_id:
            known = self._kept.pop(key, (0, known))[1]
            former = self._by_key.get(key)
            if former is not None:
                known = self._open.pop(former).left()
                _end(former)
            self._by_key[key] = waiter
        standing = OpenStream(push, stream.lost(known), self._to_port)
        self._open[waiter] = waiter.standing = standing
        look = self._guarded(lambda: self._look(interest, waiter, standing))
        stream.look = look
        look()

    def _look(self, interest: Interest, waiter: Waiter, standing: OpenStream) -> None:
        if waiter.future.done() or standing.is_waiting or not standing.is_ready:
            return
        if not self._may_act():  # whoever waits is served when it may again
            standing.is_waiting = True
            self._polls.wait(interest, waiter, self._now_ms())
            return
        try:
            self._polls.look(interest, waiter, standing, self._now_ms())
        except (errors.SubscriptionMismatch, errors.MemberReplaced) as mismatch:
            waiter.future.set_exception(mismatch)

    def end(self, interest: Interest, waiter: Waiter) -> list[int]:
        """It is over: gives the leases of answers that nobody was sent."""
        self._polls.discard(interest, waiter)
        standing = self._open.pop(waiter, None)
        if standing is None:
            return []  # it is open anew, and gets them
        stream, key = standing.stream, (interest, standing.stream.stream_id)
        if stream.stream_id:
            del self._by_key[key]
            if not stream.is_given_up:
                self._keep(key, standing.left())
        return list(stream.unsent)

    def _keep(self, key: _Key, left: list[Unconfirmed]) -> None:
        now_ms = self._now_ms()
        if left:
            self._kept[key] = now_ms, left
        while self._kept:
            at_ms, _ = next(iter(self._kept.values()))
            if len(self._kept) <= KEPT_MAX and now_ms <= at_ms + KEPT_MS_MAX:
                return
            self._kept.popitem(last=False)

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
