"""Work that takes longer than one request: counting and cancelling all that matches a filter.

A cancel names a finished count by its number, and has the same filter: the operator who confirms it
has seen how many messages it is about. On the node's loop.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import Final, TypeAlias

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.pending import PendingCancelled
from hourwheel.errors import HourwheelError
from hourwheel.filter_language.text import FilterExpression
from node.telemetry import logs

RUNNING_COUNT_MAX: Final = 4
KEPT_COUNT_MAX: Final = 64
"""Operations remembered after their end; the oldest are forgotten."""
_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Query:
    """Which scheduled messages."""

    topic: str
    filter: FilterExpression
    from_ms: int
    """Due at or after this instant; 0: no bound."""
    to_ms: int
    """Due before this instant; 0: no bound."""


@dataclass(slots=True)
class _Operation:
    number: int
    kind: str
    query: Query
    state: str = "running"
    """Then "done", "failed" or "stopped"."""
    result: dict[str, int] = field(default_factory=dict)
    """So far; counts by name."""
    error: str = ""
    task: asyncio.Task[None] | None = None


_Work: TypeAlias = Callable[[_Operation], Coroutine[object, None, None]]


def _stop(one: _Operation) -> asyncio.Task[None] | None:
    """Stop one; what is left to wait for. None: it had ended."""
    if one.task is None:
        return None
    one.state = "stopped"
    one.task.cancel()
    return one.task


class Operations:
    """See the top of this file."""

    def __init__(self, admin: AsyncAdmin) -> None:
        """`admin`: of the cluster; the caller closes it."""
        self._admin = admin
        self._numbers = count(1)
        self._known: dict[int, _Operation] = {}

    async def close(self) -> None:
        """Stop what runs; what is cancelled stays so."""
        tasks = [task for one in self._known.values() if (task := _stop(one)) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def start_count(self, query: Query) -> dict[str, object]:
        """Begin to count. Raises Overloaded: too much runs already."""
        one = self._make("count", query)
        return self._start(one, self._count)

    def start_cancel(self, count_number: int) -> dict[str, object]:
        """Begin to cancel what was counted.

        Raises:
            FailedPrecondition: it was not counted to its end, or that was forgotten.
            Overloaded: too much runs already.
        """
        counted = self._known.get(count_number)
        if counted is None or (counted.kind, counted.state) != ("count", "done"):
            raise errors.FailedPrecondition("count first: there is no such count")
        one = self._make("cancel", counted.query)
        del self._known[count_number]  # what it counted is no longer true
        _log.warning(
            "console_bulk_cancel",
            topic=one.query.topic,
            filter=one.query.filter.text,
            from_ms=one.query.from_ms,
            to_ms=one.query.to_ms,
            counted=counted.result["matched_count"],
        )
        return self._start(one, self._cancel)

    def stop(self, number: int) -> dict[str, object]:
        """Stop one that runs; what is cancelled stays so. Raises NotFound."""
        _stop(self._get(number))
        return self.read(number)

    def read(self, number: int) -> dict[str, object]:
        """How one stands. Raises NotFound: there is none, or it was forgotten."""
        one = self._get(number)
        return {
            "number": one.number,
            "kind": one.kind,
            "state": one.state,
            "result": one.result,
            "error": one.error,
        }

    def _get(self, number: int) -> _Operation:
        found = self._known.get(number)
        if found is None:
            raise errors.NotFound("there is no such operation, or it ended long ago")
        return found

    def _make(self, kind: str, query: Query) -> _Operation:
        running = sum(one.state == "running" for one in self._known.values())
        if running >= RUNNING_COUNT_MAX:
            raise errors.Overloaded(f"{running} counts and cancels run already: wait for one")
        for number in [n for n, one in self._known.items() if one.state != "running"][
            : max(0, len(self._known) - KEPT_COUNT_MAX + 1)
        ]:
            del self._known[number]
        one = _Operation(next(self._numbers), kind, query)
        self._known[one.number] = one
        return one

    def _start(self, one: _Operation, work: _Work) -> dict[str, object]:
        one.task = asyncio.ensure_future(self._run(one, work))
        return self.read(one.number)

    async def _run(self, one: _Operation, work: _Work) -> None:
        try:
            await work(one)
        except HourwheelError as error:
            one.state, one.error = "failed", error.message
        else:
            one.state = "done"
        finally:
            one.task = None

    async def _count(self, one: _Operation) -> None:
        query = one.query
        found = await self._admin.count_pending(
            query.topic, query.filter, from_ms=query.from_ms, to_ms=query.to_ms
        )
        one.result = found._asdict()

    async def _cancel(self, one: _Operation) -> None:
        def tell(done: PendingCancelled) -> None:
            one.result = asdict(done)

        query = one.query
        tell(PendingCancelled())
        done = await self._admin.cancel_pending(
            query.topic,
            query.filter,
            from_ms=query.from_ms,
            to_ms=query.to_ms,
            on_progress=tell,
        )
        tell(done)
        _log.info("console_bulk_cancel_ended", topic=query.topic, **asdict(done))
