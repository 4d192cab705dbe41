"""Pushers of all subscriptions; the subscriptions may change meanwhile.

One that is not wanted any more ends what it has begun. One that changes does so, too, and goes on
as changed then: its places are never used twice. The others notice nothing.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from hourwheel.clock import Clock
from hourwheel.transport.channel import Channel
from hourwheel.webhooks.metrics import PushCounts, SubscriptionHealth
from hourwheel.webhooks.prepared import Prepared
from hourwheel.webhooks.pusher import Pusher


@dataclass(slots=True, eq=False)
class _Seat:
    """Of a subscription's name."""

    wanted: Prepared | None
    """None: it is to end."""
    counts: PushCounts
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    pusher: Pusher | None = None
    task: asyncio.Task[None] | None = None


class Pushers:
    """Belongs to one event loop."""

    def __init__(self, channel: Channel, clock: Clock) -> None:
        """There is none: see `change`."""
        self._channel, self._clock = channel, clock
        self._seats: dict[str, _Seat] = {}
        self._counts: dict[str, PushCounts] = {}
        self._failed = asyncio.Event()
        self._is_stopping = False

    def health(self) -> list[SubscriptionHealth]:
        """Of each. Called in other threads, too."""
        return [
            seat.pusher.health()
            if seat.pusher is not None
            else SubscriptionHealth(name, False, 0, 0, seat.counts)
            for name, seat in list(self._seats.items())
        ]

    def change(self, wanted: Sequence[Prepared]) -> None:
        """Serve these and no others."""
        by_name = {one.subscription.name: one for one in wanted}
        for name, seat in self._seats.items():
            one = by_name.get(name)
            if seat.wanted != one:
                seat.wanted = one
                seat.changed.set()
        for name, one in by_name.items():
            if name not in self._seats:
                self._begin(name, one)

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set and what was begun has ended; cancelled, that comes again."""
        stop = asyncio.create_task(stopping.wait())
        failed = asyncio.create_task(self._failed.wait())
        try:
            await asyncio.wait({stop, failed}, return_when=asyncio.FIRST_COMPLETED)
            self._is_stopping = True
            for seat in self._seats.values():
                seat.changed.set()
            await asyncio.gather(*self._tasks())
        finally:
            self._is_stopping = True
            for task in (stop, failed, *self._tasks()):
                task.cancel()
            await asyncio.gather(stop, failed, *self._tasks(), return_exceptions=True)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [seat.task for seat in self._seats.values() if seat.task is not None]

    def _begin(self, name: str, one: Prepared) -> None:
        seat = _Seat(one, self._counts.setdefault(name, PushCounts()))
        seat.task = asyncio.create_task(self._serve(name, seat))
        self._seats[name] = seat

    async def _serve(self, name: str, seat: _Seat) -> None:
        try:
            while (one := seat.wanted) is not None and not self._is_stopping:
                seat.changed.clear()
                seat.pusher = Pusher(one, self._channel, self._clock, seat.counts)
                await seat.pusher.run(seat.changed)
            if seat.wanted is None:
                del self._seats[name]
        except BaseException:
            self._failed.set()
            raise
        finally:
            seat.pusher = None
