"""What became of a message in its handler, and the exceptions by which a handler says so."""

from dataclasses import dataclass
from enum import IntEnum

from hourwheel.instants import check_count
from hourwheel.workers.lengths import Length, length_to_ms

ERROR_CHARS_MAX = 2_000
"""Of an error's text, in logs and between processes."""


class Retry(Exception):
    """Raised by a handler: give the message to the group again.

    Any other exception does so, too, after the group's retry delay. This one may say a delay, and
    is no error in logs.
    """

    def __init__(self, reason: str = "", *, delay: Length | None = None) -> None:
        """`delay`: "30s" or a timedelta; None: the group's, which grows with attempts.

        Raises:
            InvalidArgument: the delay is nothing of that.
        """
        super().__init__(reason)
        self.delay_ms = None if delay is None else length_to_ms(delay, "delay")
        check_count(self.delay_ms or 0, "delay")


class Reject(Exception):
    """Raised by a handler: no attempt will be of any use. The message is a dead letter at once.

    `str` of it, up to 1,024 bytes, is what `hourwheel dead list` shows as the reason. In a group of
    order `block` the message blocks its key, until an operator decides.
    """


class ResultKind(IntEnum):
    """What goes to the broker."""

    DONE = 0
    """Acknowledge."""
    RETRY = 1
    """Give back, as the handler asked for."""
    FAILED = 2
    """Give back, and say so loudly."""
    REJECTED = 3
    """A dead letter, and say so loudly."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one message."""

    kind: ResultKind
    delay_ms: int | None = None
    """When it is to come again; None: after the group's retry delay."""
    error: str = ""
    """Why, in a line or with a traceback."""
    was_begun: bool = True
    """False: no line of the program has run for it, so it was no attempt."""


DONE = Result(ResultKind.DONE)
GIVEN_BACK = Result(ResultKind.RETRY, 0, "the worker ends")
"""Begun and not handled: the worker ends. It comes again at once."""
NOT_BEGUN = Result(ResultKind.RETRY, 0, "the worker ends", was_begun=False)
"""The same of one that no handler was called for, nor middleware."""


def failed(error: str) -> Result:
    """A message whose handler did not end well."""
    return Result(ResultKind.FAILED, None, error[-ERROR_CHARS_MAX:])


def rejected(reason: str) -> Result:
    """A message that no attempt would be of any use to."""
    return Result(ResultKind.REJECTED, None, reason[:ERROR_CHARS_MAX])


def result_of(error: BaseException, text: str) -> Result:
    """What an exception of a handler means; `text`: how to tell of it.

    A `Reject` or `Retry` of the program's own that cannot be sent or read is a failure.
    """
    if not isinstance(error, Reject | Retry):
        return failed(text)
    try:
        if isinstance(error, Reject):
            return rejected(str(error))
        return Result(ResultKind.RETRY, error.delay_ms, str(error)[:ERROR_CHARS_MAX])
    except Exception as another:  # noqa: BLE001 - a program's own `__str__`, or lack of `__init__`
        return failed(f"{type(error).__name__} cannot be sent: {type(another).__name__}")
