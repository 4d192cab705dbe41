"""Answers that gRPC has taken and that their clients have not read: they count until they are.

Polls hold their room by themselves, before messages are leased. All other calls are here: a read
(its name says that it is one) for whose answer there is no room is refused, and nothing is lost by
that. A write has been done when its answer is there: that is counted, and always given.

Reads may hold a quarter of the room: who reads none of its lists keeps no consumer waiting. Where
that is taken, lists are refused before they are worked on, and other reads only when their answer
is there and large: clients find the master by small ones.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from hourwheel import errors
from node.contracts.answer_budget import AnswerBudget, AnswerPart, HeldAnswer

_READS: Final = ("Get", "List", "Describe")
_LISTS: Final = ("List", "GetHistory")
"""Reads whose answers are large, as a rule."""
_COUNTED_BYTES_MIN: Final = 64 * 1024
"""Smaller answers are not worth it: their calls are bounded in number."""
_SHARE_OF_READS: Final = 4


class _CallContext(Protocol):
    def add_done_callback(self, callback: Callable[[Any], None]) -> None: ...


def is_read(method: str) -> bool:
    """Whether a method (its name alone) changes nothing, so that it may be refused at its end."""
    return method.startswith(_READS)


def is_list(method: str) -> bool:
    """Whether a read (its name alone) is not worth its work where there is no room for lists."""
    return method.startswith(_LISTS)


class UnreadAnswers:
    """See the top of this file. Belongs to one event loop."""

    def __init__(self, budget: AnswerBudget) -> None:
        """Count in `budget`."""
        self._budget = budget
        self._of_reads = AnswerPart(budget, budget.bytes_max // _SHARE_OF_READS)

    def check_list(self) -> None:
        """Before a list is worked on. Raises Overloaded where there is room for no answer."""
        if not self._of_reads.has_room_for(_COUNTED_BYTES_MIN):
            raise _overloaded()

    def hold_read(self, size_bytes: int, context: _CallContext) -> None:
        """Count the answer of a read. Raises Overloaded: it is not to be given."""
        if size_bytes >= _COUNTED_BYTES_MIN:
            if not self._of_reads.has_room_for(size_bytes):
                raise _overloaded()
            _hold(self._of_reads, size_bytes, context)

    def hold_write(self, size_bytes: int, context: _CallContext) -> None:
        """Count the answer of a write."""
        if size_bytes >= _COUNTED_BYTES_MIN:
            _hold(self._budget, size_bytes, context)


def _hold(budget: AnswerBudget | AnswerPart, size_bytes: int, context: _CallContext) -> None:
    held = HeldAnswer(budget)
    held.take(size_bytes)
    context.add_done_callback(lambda _: held.end())


def _overloaded() -> errors.Overloaded:
    return errors.Overloaded("too many bytes of answers are not read", limit="limits.answer_bytes")
