"""What a client does after a failure: the rules alone, no socket and no clock.

A failure is *definite* if nothing was done: a node said no, with a typed reason, or no node was
ever reached. Else the way was cut or time ran out, and the outcome is unknown. From that, from
the error's class and from whether the request may be carried out twice follows all else:

    error            definite   repeatable   then
    not retriable    any        any          give up
    retriable        any        yes          wait, send it again
    retriable        yes        no           wait, send it again: nothing had been done
    retriable        no         no           give up with `Timeout`: the outcome is unknown

Each failure in a row doubles the wait, up to a bound, with jitter so that the many clients of a
node that restarts do not come back in one moment. Where a quota is used up it is as long, at least,
as the node says. Nothing is sent again after its deadline. Where
there are several nodes, `hourwheel.transport.endpoints` says whether the next try has a better
place to go: then it goes at once, a few times in a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.transport.endpoints import Move

AT_ONCE_MAX: Final = 4
"""So many tries in a row go elsewhere at once; then one waits."""
SEARCH_MS_MAX: Final = 250.0
"""Longest wait while all endpoints are in trouble."""
SEARCH_SHARE: Final = 0.15
"""A wait of a search is this part of all its waits so far: so a new master is found soon, be it
there after a tenth of a second or after a whole one, and a long outage costs few tries."""
TRY_MS: Final = 2_000.0
"""How long the first try waits for its answer where another node may answer instead."""


class Failure(NamedTuple):
    """Why a call or a stream ended."""

    error: errors.HourwheelError
    is_definite: bool
    """Nothing was done."""


def is_undecided(error: errors.HourwheelError) -> bool:
    """Whether `error`, even where a node itself sent it, leaves open what was done."""
    return isinstance(error, errors.Timeout | errors.Cancelled | errors.Internal)


def may_retry(failure: Failure, *, is_repeatable: bool) -> bool:
    """Whether sending the same request again is safe and may help: the table above."""
    return failure.error.retriable and (is_repeatable or failure.is_definite)


def least_wait_ms(error: errors.HourwheelError) -> float:
    """To come back earlier is of no use, says the node; 0: it says nothing."""
    return error.retry_after_ms if isinstance(error, errors.QuotaExceeded) else 0.0


def final_error(failure: Failure, *, is_repeatable: bool) -> errors.HourwheelError:
    """What the user gets in the end: `Timeout` where the outcome is unknown."""
    error = failure.error
    if is_repeatable or failure.is_definite or not isinstance(error, errors.Unavailable):
        return error
    return errors.Timeout(f"the outcome is unknown: {error.message}")


@dataclass(slots=True)
class Doubt:
    """Of one call, for a caller that has to know that it was tried before."""

    is_there: bool = False
    """Some try may have been carried out and its answer lost."""

    def note(self, failure: Failure) -> None:
        """A try failed."""
        self.is_there |= not failure.is_definite or is_undecided(failure.error)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next try."""

    ms_min: float = 20.0
    """Wait after the first failure."""
    ms_max: float = 2_000.0
    """Longest wait."""

    def wait_ms(self, failures: int, fraction: float) -> float:
        """The wait after `failures` in a row (1 or more).

        Args:
            failures: how many tries in a row have failed.
            fraction: a random number in [0, 1); the wait is between half and all of its size.
        """
        doubled = self.ms_min * 2.0 ** min(failures - 1, 30)
        return min(self.ms_max, doubled) * (0.5 + fraction / 2)


class Pace:
    """How long one caller waits between its tries, from one success to the next."""

    def __init__(self, backoff: Backoff, random: Callable[[], float]) -> None:
        """`random` gives fractions in [0, 1)."""
        self._backoff = backoff
        self._search_ms_max = min(backoff.ms_max, SEARCH_MS_MAX)
        self._random = random
        self._failures = 0
        self._searched_ms = 0.0
        """All waits of this search."""
        self._at_once = 0
        self.wait_ms = 0.0
        """How long to wait now."""
        self.move = Move.STAY
        """Where the last failure sends the next try."""

    def on_failure(self, move: Move, least_ms: float = 0.0) -> float:
        """A try failed; gives `wait_ms`, which is `least_ms` at least."""
        self.move = move
        self.wait_ms = max(least_ms, self._next_ms(move))
        return self.wait_ms

    def _next_ms(self, move: Move) -> float:
        self._at_once += 1
        if move is Move.AT_ONCE and self._at_once <= AT_ONCE_MAX:
            return 0.0
        self._at_once = 0
        if move is Move.SEARCH:
            wait_ms = max(self._backoff.ms_min, self._searched_ms * SEARCH_SHARE)
            wait_ms = min(self._search_ms_max, wait_ms) * (0.5 + self._random() / 2)
            self._searched_ms += wait_ms
            return wait_ms
        self._failures += 1  # sent to and fro, it comes no nearer: those waits double
        wait_ms = self._backoff.wait_ms(self._failures, self._random())
        return wait_ms if move is Move.STAY else min(self._search_ms_max, wait_ms)

    def on_success(self) -> None:
        """A try succeeded."""
        self._failures = self._at_once = 0
        self.wait_ms = self._searched_ms = 0.0


class CallRetries:
    """The life of one unary call: how often, when and until when it is tried."""

    def __init__(
        self,
        *,
        is_repeatable: bool,
        now_ms: float,
        timeout_ms: float,
        backoff: Backoff,
        random: Callable[[], float],
    ) -> None:
        """Begin a call.

        Args:
            is_repeatable: whether carrying the request out twice equals carrying it out once.
            now_ms: now, by a monotonic clock; so are all times here.
            timeout_ms: when to give up, retries included.
            backoff: see there.
            random: gives fractions in [0, 1).
        """
        self._is_repeatable = is_repeatable
        self._until_ms = now_ms + timeout_ms
        self._pace = Pace(backoff, random)
        self._timeouts = 0

    def left_ms(self, now_ms: float) -> float:
        """How long there is for what is still to do."""
        return max(0.0, self._until_ms - now_ms)

    def try_ms(self, now_ms: float, *, is_alone: bool) -> float:
        """How long the next try may take.

        Args:
            now_ms: now.
            is_alone: there is one endpoint only. Else a request that may be repeated does not wait
                for one node until its time is up, but twice as long each time that none answered.
        """
        left_ms = self.left_ms(now_ms)
        if is_alone or not self._is_repeatable:
            return left_ms
        return min(left_ms, TRY_MS * 2.0 ** min(self._timeouts, 30))

    def find_wait_ms(self, now_ms: float, failure: Failure, move: Move = Move.STAY) -> float | None:
        """How long to wait before the next try; None to give up with this failure."""
        self._timeouts += isinstance(failure.error, errors.Timeout)
        wait_ms = self._pace.on_failure(move, least_wait_ms(failure.error))
        if not may_retry(failure, is_repeatable=self._is_repeatable):
            return None
        return wait_ms if now_ms + wait_ms < self._until_ms else None
