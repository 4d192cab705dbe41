"""How much may be in flight at one time, and which calls are refused beyond that.

What a client can make the node hold is counted here before it is worked on: calls, bytes of
requests, waiting polls. What is over a limit is refused at once with `Overloaded` (the client backs
off); during a shutdown, with `ShuttingDown`. Answers that nobody has read yet have room of their
own, for which polls wait (node/contracts/answer_budget.py, node/api/unread_answers.py).
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from hourwheel import errors
from node.api.unread_answers import UnreadAnswers
from node.config.model import LimitsSection
from node.contracts.answer_budget import AnswerBudget
from node.telemetry.stats import ApiStats

_SECONDS: Final = 0.001
_SPARE_MS: Final = 1.0
"""A timer that fires early would find that there is a moment left."""
_TIMER_MS_MAX: Final = 1e11
"""Three years: no connection lasts so long."""


class Admission:
    """The gate of the API. `stats` is where it counts; invariant: no count is ever negative."""

    def __init__(
        self, limits: LimitsSection, stats: ApiStats, answers: AnswerBudget | None = None
    ) -> None:
        """Open, with nothing in flight. `answers`: the room for them; by default one of its own."""
        self._limits = limits
        self.stats = stats
        self.unread = UnreadAnswers(answers or AnswerBudget(limits.answer_bytes))
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
        """
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

    @contextmanager
    def until_drain(self, within_ms: float | None = None) -> Iterator[None]:
        """What is awaited inside is given up, quietly, when the node begins to shut down.

        Args:
            within_ms: or when so much time has passed; None: only then.

        Raises:
            ShuttingDown: it has begun already.
        """
        task = asyncio.current_task()
        if self.is_draining or task is None:
            raise errors.ShuttingDown
        self._interruptible.add(task)
        timer = None
        if within_ms is not None and within_ms < _TIMER_MS_MAX:
            delay_s = (within_ms + _SPARE_MS) * _SECONDS
            timer = asyncio.get_running_loop().call_later(delay_s, self._interrupt, task)
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

    def _interrupt(self, task: "asyncio.Task[object]") -> None:
        if task in self._interruptible:
            self._interruptible.discard(task)
            task.cancel()

    def drain(self) -> None:
        """Refuse everything new from now on; end what waits in `until_drain`."""
        self.is_draining = True
        while self._interruptible:
            self._interruptible.pop().cancel()
