"""When a message that is to be published expires: as its metadata says it.

Two forms reach the node. An instant stays one. A length of time after the due time becomes an
instant, too, where the due time is one; else it is counted, as the delay is, from when the node
accepts the message: by the cluster's clock, and not by this process's.
"""

from typing import Final

from hourwheel import errors
from hourwheel.instants import check_instant
from hourwheel.types import DUE_MS_MAX

NEVER: Final = 0


def expires_of(
    due_ms: int | None, delay_ms: int | None, expires_ms: int | None, expire_after_ms: int | None
) -> int:
    """`MessageMeta.expires_ms` of a message; `NEVER` where it has no expiry.

    Args:
        due_ms: the instant at which it is due, or None.
        delay_ms: its delay, or None.
        expires_ms: the instant in epoch milliseconds after which no group gets it, or None.
        expire_after_ms: the same as milliseconds after the due time, or None.

    Raises:
        InvalidDueTime: both are given; one is no whole number or out of range; or the message
            would expire before it is due, or as it falls due.
    """
    if expires_ms is None and expire_after_ms is None:
        return NEVER
    if expires_ms is not None and expire_after_ms is not None:
        raise errors.InvalidDueTime("a message has both expires_ms and expire_after_ms")
    given = expires_ms if expire_after_ms is None else expire_after_ms
    if type(given) is not int or not 0 < given <= DUE_MS_MAX:
        raise errors.InvalidDueTime(
            f"an expiry is a positive whole number of milliseconds, not {given!r}"
        )
    if expire_after_ms is not None:
        if due_ms is not None:
            return _checked(due_ms + expire_after_ms)
        return -_checked((delay_ms or 0) + expire_after_ms)
    check_instant(given)
    if due_ms is not None and given <= due_ms:
        raise errors.InvalidDueTime(
            f"the message expires at {given} and is due at {due_ms}: no group would ever get it",
            expires_ms=given,
            due_ms=due_ms,
        )
    return given


def _checked(span_ms: int) -> int:
    if span_ms > DUE_MS_MAX:
        raise errors.InvalidDueTime("an expiry is out of range", due_ms_max=DUE_MS_MAX)
    return span_ms
