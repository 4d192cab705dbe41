"""Acknowledging: many callers' messages in few calls, one call under way at a time.

What a caller waits for while a call is under way goes with the next one, which follows at once:
calls grow with the load. What no caller waits for is collected first.
"""

import asyncio
import copy
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Final

from hourwheel import errors
from hourwheel.client.prefetch_buffer import AckBuffer, Finishable, Selection, select
from hourwheel.limits import RECEIPT_COUNT_MAX
from hourwheel.outcomes import ReceiptOutcome
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import ACK, Method
from hourwheel.transport.retry import Doubt
from hourwheel.v1 import consumer_pb2

SOON_MESSAGES_MAX: Final = 4_096
"""So many messages wait for no timer."""
UNDECIDED: Final = -1
"""As an outcome: STALE, perhaps by an earlier try of the same."""
RETRY_MS: Final = 1_000.0
"""Pause after a call that failed in spite of its own retries."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A caller that waits for the outcome of its messages."""

    selections: list[Selection]
    future: "asyncio.Future[None]"


class AckBatcher:
    """Sends acknowledgements of one group. Belongs to one event loop."""

    def __init__(self, channel: Channel, group: str, *, linger_ms: float) -> None:
        """`linger_ms`: how long acknowledgements without a waiter may be collected."""
        self._channel = channel
        self._group = group
        self._linger_ms = linger_ms
        self._soon = AckBuffer()
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_error: errors.HourwheelError | None = None
        self.deferred: errors.HourwheelError | None = None
        """An error that no later call will mend and that no caller has got yet."""
        self.stale_count = 0
        """Messages of `add_soon` that were not acknowledged before their lease ended."""
        self.undecided_count = 0
        """The same of which that is not known: the answer to a call was lost."""

    async def ack(self, messages: Finishable) -> None:
        """Acknowledge and wait. Raises `StaleReceipt` and what the call raises."""
        self._channel.home.enter()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(select(messages), future))
        self._start()
        await future

    def add_soon(self, messages: Finishable) -> None:
        """Acknowledge within `linger_ms`, without waiting."""
        self._channel.home.enter()
        self._soon.add(messages)
        self._start_soon()

    def add_ranges_soon(self, selections: Iterable[Selection]) -> None:
        """As `add_soon`."""
        self._channel.home.enter()
        for chosen in selections:
            self._soon.add_range(*chosen)
        self._start_soon()

    def _start_soon(self) -> None:
        if self._task is not None or not self._soon:
            return
        if self._soon.count >= SOON_MESSAGES_MAX:
            self._start()
        elif self._timer is None:
            self._start_in(self._left_ms())

    def _left_ms(self) -> float:
        """Until the next multiple of `linger_ms` of the loop's time.

        The same instant for all consumers of the loop, whose acknowledgements so go together.
        """
        if not self._linger_ms:
            return 0.0
        return self._linger_ms - asyncio.get_running_loop().time() * 1_000 % self._linger_ms

    async def flush(self) -> None:
        """Wait until what was added is acknowledged or known to be stale.

        Raises:
            HourwheelError: a call failed; what the leases still allow is kept for the next one.
        """
        while self._soon or self._waiting or self._task is not None:
            self._last_error = None
            self._start()
            if self._task is not None:
                await asyncio.wait([self._task])
            self._raise_last_error()
        self.raise_deferred()

    def _raise_last_error(self) -> None:
        error, self._last_error = self._last_error, None
        if error is not None:
            self.deferred = None
            raise error

    def raise_deferred(self) -> None:
        """Raise `deferred`, once."""
        error, self.deferred = self.deferred, None
        if error is not None:
            raise error

    async def close(self) -> None:
        """Stop at once."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._fail_waiting(errors.Cancelled("the consumer was closed"))

    # --- the task -------------------------------------------------------------------------------

    def _start_in(self, wait_ms: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1_000, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None and (self._soon or self._waiting):
            self._task = asyncio.get_running_loop().create_task(self._run(), name="hourwheel-acks")
            self._task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        """A bug of ours must not leave anyone waiting."""
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self.deferred = errors.Internal(f"the acknowledging task failed: {error!r}")
            self._fail_waiting(self.deferred)
        elif self._waiting:
            self._start()
        elif self._soon:
            self._start_in(self._left_ms() if self._last_error is None else RETRY_MS)

    async def _run(self) -> None:
        is_due = True
        while is_due or self._waiting:
            waiting, self._waiting = self._waiting, []
            awaited = AckBuffer()
            for one in waiting:
                for chosen in one.selections:
                    awaited.add_range(*chosen)
            selections = awaited.take(len(awaited))
            soon = self._soon.take(RECEIPT_COUNT_MAX)
            try:
                outcomes = await self._call(selections + soon, is_urgent=bool(waiting))
            except errors.HourwheelError as error:
                _fail(waiting, error)
                self._on_failure(error, soon)
                if not self._waiting:
                    return
            except BaseException as error:  # close tells those who wait
                self._waiting = waiting + self._waiting
                if isinstance(error, asyncio.CancelledError):  # and acknowledges the rest
                    for chosen in soon:
                        self._soon.add_range(*chosen)
                raise
            else:
                self._last_error = None
                _tell(waiting, _worst_by_batch(selections, outcomes))
                self._count_stale(soon, outcomes[len(selections) :])
            # What came meanwhile without a waiter is collected for as long as at first: where
            # messages come in a steady flow, each call would else be followed by the next one.
            is_due = len(soon) == RECEIPT_COUNT_MAX or self._soon.count >= SOON_MESSAGES_MAX

    async def _call(self, selections: list[Selection], *, is_urgent: bool) -> list[int]:
        outcomes: list[int] = []
        for first in range(0, len(selections), RECEIPT_COUNT_MAX):
            some = selections[first : first + RECEIPT_COUNT_MAX]
            request = consumer_pb2.AckRequest(group=self._group, ranges=to_ranges(some))
            outcomes += await finish(self._channel, ACK, request, some, is_urgent=is_urgent)
        return outcomes

    def _count_stale(self, soon: list[Selection], outcomes: Seq[int]) -> None:
        for chosen, outcome in zip(soon, outcomes, strict=True):
            if outcome == ReceiptOutcome.STALE:
                self.stale_count += chosen.end - chosen.first
            elif outcome == UNDECIDED:
                self.undecided_count += chosen.end - chosen.first
            elif outcome != ReceiptOutcome.OK:
                self.deferred = find_error([outcome])

    def _on_failure(self, error: errors.HourwheelError, soon: list[Selection]) -> None:
        self._last_error = error
        now_ms = self._channel.clock.monotonic_ms()
        for chosen in soon:
            if error.retriable and chosen.batch.lease_until_ms > now_ms:
                self._soon.add_range(*chosen)
            elif chosen.batch.is_undecided(chosen.first, chosen.end):
                self.undecided_count += chosen.end - chosen.first
            else:
                self.stale_count += chosen.end - chosen.first
        if soon and not error.retriable:
            self.deferred = error

    def _fail_waiting(self, error: errors.HourwheelError) -> None:
        waiting, self._waiting = self._waiting, []
        _fail(waiting, error)


async def finish(
    channel: Channel,
    method: Method[Any, Any],
    request: Any,
    selections: Seq[Selection],
    *,
    is_urgent: bool = True,
) -> list[int]:
    """Have a call end the leases of `selections`, which are its ranges: what became of each.

    Where the answer to a try was lost, the next one hears that the lease is over, be it because
    that try has ended it or because the call came too late. That is `UNDECIDED`, also in a later
    call for the same messages.

    Raises:
        HourwheelError: what the call raises.
    """
    doubt = Doubt()
    try:
        answer = await channel.call(method, request, is_urgent=is_urgent, doubt=doubt)
    except asyncio.CancelledError:  # it may be on its way
        doubt.is_there = True
        raise
    finally:
        if doubt.is_there:
            for chosen in selections:
                chosen.batch.note_undecided(chosen.first, chosen.end)
    return checked(selections, answer.outcomes)


def checked(selections: Seq[Selection], outcomes: Seq[int]) -> list[int]:
    """`outcomes`, one of each selection, as far as they are true. Raises Internal."""
    if len(outcomes) != len(selections):
        raise errors.Internal("the node did not answer for each range")
    return [
        UNDECIDED
        if outcome == ReceiptOutcome.STALE and chosen.batch.is_undecided(chosen.first, chosen.end)
        else outcome
        for chosen, outcome in zip(selections, outcomes, strict=True)
    ]


def to_ranges(selections: Seq[Selection]) -> list[Any]:
    """Selections as they go over the wire."""
    return [
        consumer_pb2.ReceiptRange(
            receipt=chosen.batch.receipt, first=chosen.first, count=chosen.end - chosen.first
        )
        for chosen in selections
    ]


def find_error(outcomes: Iterable[int]) -> errors.HourwheelError | None:
    """The error for the worst of some outcomes, if they are not all well."""
    worst = max(outcomes, default=int(ReceiptOutcome.OK), key=_badness)
    if worst == ReceiptOutcome.OK:
        return None
    if worst == UNDECIDED:
        return errors.UndecidedReceipt(
            "the answer to an earlier try was lost, and the lease of some of the messages is over:"
            " either that try has ended it, or they come again"
        )
    if worst == ReceiptOutcome.STALE:
        return errors.StaleReceipt("the lease of some of the messages was over: they come again")
    return errors.InvalidReceipt("the node knows no such lease of this group")


def _badness(outcome: int) -> float:
    """What is certain is worse than what is undecided."""
    return ReceiptOutcome.OK + 0.5 if outcome == UNDECIDED else outcome


def raise_if_bad(outcomes: Iterable[int]) -> None:
    """Raise the error for the worst of some outcomes, if they are not all well."""
    error = find_error(outcomes)
    if error is not None:
        raise error


def _worst_by_batch(selections: Seq[Selection], outcomes: Seq[int]) -> dict[int, int]:
    """The worst outcome of each answer's ranges, by the identity of its batch."""
    worst: dict[int, int] = {}
    for chosen, outcome in zip(selections, outcomes, strict=False):
        key = id(chosen.batch)
        worst[key] = max(outcome, worst.get(key, 0), key=_badness)
    return worst


def _tell(waiting: list[_Waiting], outcomes: dict[int, int]) -> None:
    for one in waiting:
        if one.future.done():
            continue  # who asked has gone
        error = find_error(outcomes[id(chosen.batch)] for chosen in one.selections)
        if error is None:
            one.future.set_result(None)
        else:
            one.future.set_exception(error)


def _fail(waiting: list[_Waiting], error: errors.HourwheelError) -> None:
    for one in waiting:
        if not one.future.done():
            one.future.set_exception(copy.copy(error))
