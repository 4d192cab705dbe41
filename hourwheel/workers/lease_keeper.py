"""Makes leases longer while messages are in work: the calls, and the waiting between them.

`leases.py` says which ones, and when.
"""

import asyncio
import logging
from typing import Final, Protocol

from hourwheel import errors
from hourwheel.client.message import ReceivedBatch
from hourwheel.clock import Clock
from hourwheel.workers.leases import Leases

_LOOK_MS: Final = 20_000.0
_log = logging.getLogger("hourwheel.worker")


class Extends(Protocol):
    """Has the leases, as `AsyncConsumer`."""

    async def change_invisible(self, batch: ReceivedBatch, ms: int, /) -> object:
        """See `AsyncConsumer.change_invisible`."""
        ...


class LeaseKeeper:
    """Holds the leases of one consumer. Belongs to one event loop."""

    def __init__(self, consumer: Extends, clock: Clock, name: str) -> None:
        """Nothing is leased yet. `name` stands in the log."""
        self._consumer, self._clock, self._name = consumer, clock, name
        self._leases = Leases()
        self._task: asyncio.Task[None] | None = None
        self._next_look_ms = float("inf")
        self._is_sooner = asyncio.Event()
        """There is a lease that ends before that."""

    @property
    def is_idle(self) -> bool:
        """No message is in work."""
        return not self._leases

    @property
    def lost_count(self) -> int:
        """Leases that ended while a message was in work."""
        return self._leases.lost_count

    def add(self, batch: ReceivedBatch) -> None:
        """A message of this answer is in work: from now on its lease is made longer."""
        if self._leases.add(batch, self._clock.monotonic_ms()) < self._next_look_ms:
            self._is_sooner.set()
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name="hourwheel-leases")

    def remove(self, batch: ReceivedBatch) -> None:
        """A message of it is done with."""
        self._leases.remove(batch)

    async def close(self) -> None:
        """Make no lease longer from now on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _keep(self) -> None:
        while True:
            now_ms = self._clock.monotonic_ms()
            due = self._leases.find_due(now_ms)
            if due:
                await asyncio.gather(*(self._extend(batch, ms) for batch, ms in due))
                continue
            self._is_sooner.clear()
            self._next_look_ms = min(self._leases.next_wakeup_ms(), now_ms + _LOOK_MS)
            try:
                async with asyncio.timeout((self._next_look_ms - now_ms) / 1_000):
                    await self._is_sooner.wait()
            except TimeoutError:
                continue

    async def _extend(self, batch: ReceivedBatch, ms: int) -> None:
        try:
            await self._consumer.change_invisible(batch, ms)
        except errors.HourwheelError as error:
            is_lost = isinstance(error, errors.StaleReceipt)
            self._leases.on_failed(batch, self._clock.monotonic_ms(), is_lost=is_lost)
            _log.warning(
                "%s: a lease could not be made longer, and its messages may come twice: %s",
                self._name,
                error,
            )
        else:
            self._leases.on_extended(batch, self._clock.monotonic_ms())
