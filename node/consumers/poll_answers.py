"""The last answer of each poller, so that the master can repeat an answer that got lost.

A poller sends one poll after the other, each with a number. The same number again says that the
answer did not arrive: the poll gets the same lease. Kept is which lease that was, and no message.
Belongs to one mastership: the next master does not have it, and delivers what a lost answer has
leased when the lease ends.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from node.consumers.waiters import Answered, Interest, Waiter
from node.contracts.broker import Attempt

ANSWERS_MAX: Final = 16_384
"""Pollers whose last answer is kept; about 400 bytes each."""
KEPT_MS_MAX: Final = 120_000
"""A poll can be repeated for so long: longer than any client tries."""


@dataclass(slots=True)
class Answer:
    """The last poll of one poller."""

    number: int
    at_ms: int
    waiter: Waiter
    answered: Answered | None = None
    """The answer of this poll, or of the same one before; None: none yet."""


class Answers:
    """See the top of this file.

    Invariant: at most `ANSWERS_MAX`, in the order in which they were begun.
    """

    def __init__(self) -> None:
        """None yet."""
        self._last: OrderedDict[tuple[Interest, int], Answer] = OrderedDict()

    def begin(
        self, interest: Interest, attempt: Attempt, waiter: Waiter, now_ms: int
    ) -> Answer | None:
        """A poll begins. Returns the one with the same number, or a later one, if there was any.

        The caller looks at its number. A later one stays the last.
        """
        key = interest, attempt.poller_id
        known = self._last.get(key)
        if known is not None and known.number > attempt.number:
            return known
        begun = self._last[key] = Answer(attempt.number, now_ms, waiter)
        self._last.move_to_end(key)
        self._forget_old(now_ms)
        if known is None or known.number < attempt.number or known.at_ms + KEPT_MS_MAX < now_ms:
            return None
        begun.answered = known.answered
        return known

    def _forget_old(self, now_ms: int) -> None:
        while len(self._last) > ANSWERS_MAX:
            self._last.popitem(last=False)
        while self._last and next(iter(self._last.values())).at_ms + 2 * KEPT_MS_MAX < now_ms:
            self._last.popitem(last=False)

    def note(self, interest: Interest, attempt: Attempt, answered: Answered) -> None:
        """A poll that has begun gets this lease."""
        known = self._last.get((interest, attempt.poller_id))
        if known is not None and known.number == attempt.number:
            known.answered = answered

    def is_last(self, interest: Interest, attempt: Attempt, waiter: Waiter) -> bool:
        """Whether this poll is the last that its poller began, as far as is known."""
        known = self._last.get((interest, attempt.poller_id))
        return known is None or known.waiter is waiter

    def clear(self) -> None:
        """Forget all of them: their leases are over."""
        self._last.clear()

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._last)
