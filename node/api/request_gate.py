"""Which calls gRPC may take whole from the network, and for how long: half-sent ones cost memory.

Of a call that is not read gRPC holds the first `LOOKAHEAD_BYTES`; of one that is read, all that
its client says there is, however slowly it comes. So a call is read only when it has a place. Most
requests are there already, whole, and give their place back at once. One that is still on its way
after `_QUICK_S` gives way and goes on in one of the places for slow ones, if there is any left, for
`limits.request_wait_ms` at most. A client that sends many halves is in the way of slow and large
requests, and of others for moments.
"""

import asyncio
from typing import Final

from hourwheel import errors
from hourwheel.transport.reads import begin_read
from node.api.calls import Context

PLACES: Final = 32
"""Quick ones, and as many slow ones."""
WAITING_MAX: Final = 1_024
_QUICK_S: Final = 0.1
_SECONDS: Final = 0.001


class RequestGate:
    """Places for calls that are being read. Belongs to one event loop.

    Invariant: at most 2 x `places` calls are read at one time.
    """

    def __init__(
        self, wait_ms: int, *, places: int = PLACES, waiting_max: int = WAITING_MAX
    ) -> None:
        """No call is here.

        Args:
            wait_ms: how long a request may be on its way.
            places: for quick requests, and as many for slow ones.
            waiting_max: calls that may wait for a place; more are refused.
        """
        self.wait_ms = wait_ms
        self.places = places
        self.quick = asyncio.Semaphore(places)
        self.slow_count = 0
        self._waiting = 0
        self._waiting_max = waiting_max

    async def read(self, context: Context) -> bytes:
        """The call's request.

        Raises:
            Overloaded: too many are on their way, or this one is for too long.
            InvalidArgument: the client has sent none.
        """
        if self.quick.locked():
            await self._wait()
        else:
            await self.quick.acquire()
        reading = _Reading(self, context)
        try:
            raw = await reading.outcome
        finally:
            reading.end()
        if not isinstance(raw, bytes):  # grpc.aio.EOF
            raise errors.InvalidArgument("the call has no request")
        return raw

    async def _wait(self) -> None:
        if self._waiting >= self._waiting_max:
            raise errors.Overloaded("too many requests are on their way", places=self.places)
        self._waiting += 1
        try:
            await self.quick.acquire()
        finally:
            self._waiting -= 1


class _Reading:
    """One call in its place, first a quick one, then a slow one."""

    def __init__(self, gate: RequestGate, context: Context) -> None:
        """Has a quick place."""
        self._gate = gate
        self._loop = asyncio.get_running_loop()
        self._is_quick, self._is_slow = True, False
        self._timer = self._loop.call_later(_QUICK_S, self._give_way)
        self.outcome = begin_read(context)
        """The request, or why it was given up."""

    def end(self) -> None:
        """It is read, or will not be."""
        self._timer.cancel()
        if self._is_quick:
            self._gate.quick.release()
        if self._is_slow:
            self._gate.slow_count -= 1

    def _give_way(self) -> None:
        gate = self._gate
        self._is_quick = False
        gate.quick.release()
        if gate.slow_count >= gate.places:
            self._give_up("too many slow requests are on their way", places=gate.places)
        else:
            gate.slow_count += 1
            self._is_slow = True
            self._timer = self._loop.call_later(gate.wait_ms * _SECONDS, self._end_slow)

    def _end_slow(self) -> None:
        self._give_up(
            f"the request has not arrived whole for {self._gate.wait_ms} ms",
            limit="limits.request_wait_ms",
            limit_value=self._gate.wait_ms,
        )

    def _give_up(self, message: str, **params: object) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(errors.Overloaded(message, **params))
