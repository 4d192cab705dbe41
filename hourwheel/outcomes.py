"""The status values of messages and receipts: one definition for client, node and log.

Each has the number that the protocol gives it (`hourwheel/v1`), so a value goes onto the wire as
it is; tests/unit/hourwheel/test_outcomes.py compares the two.
"""

from enum import IntEnum


class CancelOutcome(IntEnum):
    """What became of a message that was to be cancelled. Definite and true."""

    CANCELLED = 1
    """It will never be released: cancelled by this or an earlier call."""
    ALREADY_RELEASED = 2
    """Too late: it was released, or will be within the dispatch lead (some milliseconds)."""
    UNKNOWN = 3
    """No message has this id."""
    EXPIRED = 4
    """Not pending, and its history is gone: it was released or cancelled before its due time, long
    ago, or there never was such a message."""


class RescheduleOutcome(IntEnum):
    """What became of a message that was to be moved to another due time. Definite and true."""

    RESCHEDULED = 1
    """It is due at the new time, and at no other."""
    ALREADY_RELEASED = 2
    """Too late: it was released, or will be within the dispatch lead (some milliseconds)."""
    UNKNOWN = 3
    """No message has this id."""
    EXPIRED = 4
    """Not pending, and its history is gone: see `CancelOutcome.EXPIRED`."""
    CANCELLED = 5
    """Too late: it was cancelled."""


class TransactionState(IntEnum):
    """What has become of a transaction."""

    OPEN = 1
    """Prepared: its messages are not visible."""
    COMMITTED = 2
    """Its messages are published."""
    ROLLED_BACK = 3
    """They never were: its producer, or an operator, rolled it back."""
    EXPIRED = 4
    """They never were: no producer reported its outcome in time."""


class IfPending(IntEnum):
    """What becomes of a message whose dedup key a pending message of the topic has."""

    REJECT = 1
    """It is refused."""
    KEEP = 2
    """Nothing is stored; the pending one stands for it."""
    REPLACE = 3
    """The pending one is cancelled, and this one takes its place: the last one counts."""


class Missed(IntEnum):
    """What becomes of occurrences that fell into an outage: more than a minute late."""

    ALL = 1
    """All of them are published, late, one after the other."""
    LAST = 2
    """The last one."""
    NONE = 3


class DedupOutcome(IntEnum):
    """What became of a published message that has a dedup key. Definite and true."""

    PUBLISHED = 0
    """No message with the key was pending."""
    REJECTED = 1
    """One was: nothing was stored."""
    KEPT = 2
    """One was, and stands for it: nothing was stored."""
    REPLACED = 3
    """One was, and will never be released: this message has taken its place."""


class ReceiptOutcome(IntEnum):
    """What became of an attempt to finish or change a lease."""

    OK = 1
    """Done as asked."""
    STALE = 2
    """The lease was over (for a range: of some of its messages); they may be delivered again."""
    INVALID = 3
    """No such lease was ever given to this group."""


class MessageState(IntEnum):
    """Where a message is in its life."""

    PENDING = 1
    """Scheduled."""
    RELEASED = 2
    """Released to its topic."""
    CANCELLED = 3
    UNKNOWN = 4
    """No message has this id."""
    EXPIRED = 5
    """Not pending, and its history is gone: see `CancelOutcome.EXPIRED`."""


class DeadLetterReason(IntEnum):
    """Why a message became a dead letter, as far as that is known."""

    UNKNOWN = 0
    """It has fewer attempts than the group's settings allow now: a consumer rejected it, an
    operator gave it up, or the settings were changed since."""
    ATTEMPTS_USED_UP = 1
    """It has as many attempts as the group's settings allow, or more."""
    EXPIRED = 2
    """It expired before the group got it."""


class EventKind(IntEnum):
    """What happened to a message."""

    PUBLISHED = 1
    CANCELLED = 2
    RELEASED = 3
    """To its topic; or, where a group is named, to this group again."""
    ACKED = 4
    RETRIED = 5
    """Given back, or the lease ended: to be released to the group again."""
    DEAD = 6
    """It became a dead letter of the group."""
    FILTERED = 7
    """The group's filter did not match it."""
    REDRIVEN = 8
    """A dead letter that was given to its group again."""
    SKIPPED = 9
    """The group begins, or goes on, behind it: an operator's word."""
    RESCHEDULED = 10
    """It was moved to another due time."""
    REPLACED = 11
    """It was cancelled: a later message with its dedup key has taken its place."""
    HELD = 12
    """An ordered group gave it back, or the lease ended: it keeps its place, and waits there."""
    FREED = 13
    """An operator lets the ordered group have it again."""
    EXPIRED = 14
    """It expired before the group got it."""
    RESET = 15
    """The group began anew at it or before it: it gets it again."""
