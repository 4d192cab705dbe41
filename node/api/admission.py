"""How much may be in flight at one time, and which calls are refused beyond that.

What a client can make the node hold is counted here before it is worked on: calls, bytes of
requests, waiting polls. What is over a limit is refused at once with `Overloaded` (the client backs
off); during a shutdown, with `ShuttingDown`. Answers that are not read yet have room of their
own, for which polls wait (node/contracts/answer_budget.py, node/api/unread_answers.py).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from hourwheel import errors
from hourwheel.clock import SystemClock
from node.access.control import LOGIN_ENDS_MS
from node.api.unread_answers import UnreadAnswers
from node.config.model import LimitsSection
from node.contracts.answer_budget import AnswerBudget
from node.telemetry.stats import ApiStats

_SECONDS: Final = 0.001
_SPARE_MS: Final = 1.0
"""A timer that fires early would find that there is a moment left."""
_TIMER_MS_MAX: Final = 1e11
"""Three years: no connection lasts so long."""
TURN_BYTES_MAX: Final = 2 << 20
"""Of large requests in a turn: some milliseconds of work. A larger one has a turn for itself."""
SMALL_BYTES: Final = 64 << 10
"""Smaller requests never wait: how many of them a turn may have is bounded for each stream."""


class TurnBudget:
    """How many bytes of large requests one turn of the event loop takes up: the rest waits.

    gRPC's asyncio server hands over one new call in a turn, however many have come. Where each turn
    takes up a batch of megabytes from each of many streams, turns last for a tenth of a second and
    more, and a caller who asks for the status waits behind all other new calls for as many turns.

    Belongs to one event loop. Those that wait are let in one after the other.
    """

    def __init__(self, bytes_max: int = TURN_BYTES_MAX) -> None:
        """Nothing is taken up; `bytes_max`: of a turn."""
        self._bytes_max = self._left = bytes_max
        self._waiting = deque[tuple[asyncio.Future[None], int]]()

    async def take(self, size_bytes: int) -> None:
        """Return in a turn that has room for a request of that size."""
        if size_bytes < SMALL_BYTES:
            return
        if self._waiting or self._left <= 0:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append((waiter, size_bytes))
            await waiter
        else:
            self._spend(size_bytes)

    def _spend(self, size_bytes: int) -> None:
        if self._left == self._bytes_max:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._left -= size_bytes

    def _begin_turn(self) -> None:
        self._left = self._bytes_max
        while self._waiting and self._left > 0:
            waiter, size_bytes = self._waiting.popleft()
            if not waiter.done():  # its reader was cancelled meanwhile
                waiter.set_result(None)
                self._spend(size_bytes)


class Admission:
    """The gate of the API. `stats` is where it counts; invariant: no count is ever negative."""

    def __init__(
        self,
        limits: LimitsSection,
        stats: ApiStats,
        answers: AnswerBudget | None = None,
        wall_ms: Callable[[], float] | None = None,
    ) -> None:
        """Open, with nothing in flight.

        Args:
            limits: how much there may be.
            stats: see above.
            answers: the room for them; by default one of its own.
            wall_ms: the clock that logins end by; by default the system's.
        """
        self._limits, self._wall_ms = limits, wall_ms or SystemClock().wall_ms
        self.stats = stats
        self.unread = UnreadAnswers(answers or AnswerBudget(limits.answer_bytes))
        self.turns = TurnBudget()
        self.is_draining = False
        self._interruptible: set[asyncio.Task[Any]] = set()

    def enter(self, size: int) -> None:
        """Take in a request of `size` bytes; `leave` must follow.

        Raises:
            Overloaded, ShuttingDown: refused; `leave` must not follow.
        """
        stats, limits = self.stats, self._limits
        stats.bytes_taken += size
        if (
            stats.requests_in_flight >= limits.requests_in_flight
            or stats.bytes_in_flight + size > limits.bytes_in_flight
            or self.is_draining
        ):
            self._refuse(size)
        stats.requests_in_flight += 1
        stats.bytes_in_flight += size

    def leave(self, size: int) -> None:
        """A request that entered has been answered."""
        self.stats.requests_in_flight -= 1
        self.stats.bytes_in_flight -= size

    def _refuse(self, size: int) -> None:
        stats, limits = self.stats, self._limits
        if self.is_draining:
            raise errors.ShuttingDown
        if stats.requests_in_flight >= limits.requests_in_flight:
            raise errors.Overloaded(
                "too many calls in flight",
                limit="limits.requests_in_flight",
                limit_value=limits.requests_in_flight,
            )
        raise errors.Overloaded(
            "too many bytes in flight",
            limit="limits.bytes_in_flight",
            limit_value=limits.bytes_in_flight,
            bytes=size,
        )

    def begin_stream(self) -> None:
        """A publish stream is opened; `end_stream` must follow.

        Raises:
            Overloaded: too many are open; `end_stream` must not follow.
            ShuttingDown: likewise.
        """
        if self.is_draining:
            raise errors.ShuttingDown
        if self.stats.streams >= self._limits.publish_streams:
            raise errors.Overloaded(
                "too many publish streams are open",
                limit="limits.publish_streams",
                limit_value=self._limits.publish_streams,
            )
        self.stats.streams += 1

    def end_stream(self) -> None:
        """It is closed."""
        self.stats.streams -= 1

    def begin_session(self) -> None:
        """A session is opened; `end_session` must follow.

        Raises:
            Overloaded: too many are open; `end_session` must not follow.
            ShuttingDown: likewise.
        """
        if self.is_draining:
            raise errors.ShuttingDown
        if self.stats.sessions >= self._limits.sessions:
            raise errors.Overloaded(
                "too many sessions are open",
                limit="limits.sessions",
                limit_value=self._limits.sessions,
            )
        self.stats.sessions += 1

    def end_session(self) -> None:
        """It is closed."""
        self.stats.sessions -= 1

    def begin_poll(self) -> None:
        """A request begins to wait for messages: it is none in flight until it has them.

        Raises:
            Overloaded: too many wait already; `end_poll` must not follow.
        """
        if self.stats.long_polls >= self._limits.long_polls:
            raise errors.Overloaded(
                "too many calls wait for messages",
                limit="limits.long_polls",
                limit_value=self._limits.long_polls,
            )
        self.stats.long_polls += 1
        self.stats.requests_in_flight -= 1

    def end_poll(self) -> None:
        """It does not wait any more, whatever the reason."""
        self.stats.long_polls -= 1
        self.stats.requests_in_flight += 1

    def login_left_ms(self) -> float | None:
        """For how long the caller may wait, or read a stream; None: while its login lasts."""
        ends_ms = LOGIN_ENDS_MS.get()
        return None if ends_ms is None else max(0.0, ends_ms - self._wall_ms())

    @contextmanager
    def until_drain(self, on_login_end: Callable[[], None] | None = None) -> Iterator[None]:
        """What is awaited inside is given up, quietly, when the node begins to shut down.

        Or when the caller's login ends: then `on_login_end` is called first.

        Raises:
            ShuttingDown: it has begun already.
        """
        task = asyncio.current_task()
        if self.is_draining or task is None:
            raise errors.ShuttingDown
        self._interruptible.add(task)
        timer, left_ms = None, self.login_left_ms()
        if left_ms is not None and left_ms < _TIMER_MS_MAX:
            delay_s = (left_ms + _SPARE_MS) * _SECONDS
            loop = asyncio.get_running_loop()
            timer = loop.call_later(delay_s, self._interrupt, task, on_login_end)
        try:
            yield
        except asyncio.CancelledError:
            if task in self._interruptible:  # it was not drain(), but the client that went away
                raise
            task.uncancel()
        finally:
            self._interruptible.discard(task)
            if timer is not None:
                timer.cancel()

    def _interrupt(
        self, task: "asyncio.Task[object]", on_login_end: Callable[[], None] | None
    ) -> None:
        if task in self._interruptible:
            self._interruptible.discard(task)
            if on_login_end is not None:
                on_login_end()
            task.cancel()

    def drain(self) -> None:
        """Refuse everything new from now on; end what waits in `until_drain`."""
        self.is_draining = True
        while self._interruptible:
            self._interruptible.pop().cancel()
