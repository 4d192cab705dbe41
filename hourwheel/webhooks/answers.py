"""What a target's answer means for the message: done, or again, and when. Pure."""

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

_DONE: Final = range(200, 300)
_SECONDS_CHARS_MAX: Final = 9
_SECOND_MS: Final = 1_000


class Answer(NamedTuple):
    """Of a target."""

    status: int
    retry_after: str = ""
    """As it was sent; empty: not at all."""


class Decision(NamedTuple):
    """What becomes of the message."""

    is_done: bool
    delay_ms: int | None = None
    """Not done: after how long to try again; None: as the group has it."""


def decide(answer: Answer, now_ms: float, delay_ms_max: int) -> Decision:
    """Any 2xx is done; all else comes again, redirects too.

    Args:
        answer: of the target.
        now_ms: the time of day.
        delay_ms_max: what a target asks for beyond it is cut.
    """
    if answer.status in _DONE:
        return Decision(is_done=True)
    delay_ms = find_delay_ms(answer.retry_after, now_ms)
    return Decision(False, None if delay_ms is None else min(delay_ms, delay_ms_max))


def find_delay_ms(text: str, now_ms: float) -> int | None:
    """What Retry-After says, in seconds or as a date; None: nothing that can be understood."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return int(text[:_SECONDS_CHARS_MAX]) * _SECOND_MS
    try:
        instant = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return max(0, int(instant.timestamp() * _SECOND_MS - now_ms))
