"""How many bytes of answers that no client has read yet a node may hold, and which calls hold them.

budget = AnswerBudget(128 << 20)
held = HeldAnswer(budget)       # of one call; ends with it, whatever becomes of the answer
if budget.has_room:             # asked before messages are leased
    held.take(size_bytes)       # at most `budget.room_bytes`
held.end()                      # the client has read the answer, or is gone
"""

from collections.abc import Callable
from typing import Final

from hourwheel import limits

MESSAGE_OVERHEAD_BYTES: Final = 400
"""What a message of an answer takes beside its own bytes, at most or nearly: its id, its receipt,
the name of its topic, its times."""
ROW_OVERHEAD_BYTES: Final = 80
"""The same in a delivery batch, which has columns for all that."""
ANSWER_BYTES_MIN: Final = (
    limits.MESSAGE_BODY_BYTES_MAX + limits.MESSAGE_META_BYTES_MAX + MESSAGE_OVERHEAD_BYTES
)
"""An answer has a message, however large it is: with less room than that there is none."""


class AnswerBudget:
    """See the top of this file.

    Invariant: what polls and reads hold is at most `bytes_max`, or one answer that is larger than
    that. Answers of writes come on top: they are counted, and never refused.
    """

    def __init__(self, bytes_max: int, *, answer_bytes_min: int = ANSWER_BYTES_MIN) -> None:
        """Nothing is held.

        Args:
            bytes_max: of all answers together.
            answer_bytes_min: how much room there must be for another answer.
        """
        self.bytes_max = bytes_max
        self._watchers: list[Callable[[], None]] = []
        self.held_bytes = 0
        self._answer_bytes_min = answer_bytes_min

    @property
    def room_bytes(self) -> int:
        """What is left."""
        return max(0, self.bytes_max - self.held_bytes)

    @property
    def has_room(self) -> bool:
        """Whether another answer may be given, of `room_bytes` at most or of one message."""
        return not self.held_bytes or self.room_bytes >= self._answer_bytes_min

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether an answer of that size may be given: if it is larger than all room, alone."""
        return not self.held_bytes or self.room_bytes >= size_bytes

    def share(self, count_max: int, overhead_bytes: int) -> tuple[int, int]:
        """(How many messages an answer may have, how many bytes of their own) to fit into the room.

        What messages take beside their bytes gets half of it at most. One message there is always,
        however large it is.

        Args:
            count_max: messages that are asked for.
            overhead_bytes: what each takes beside its bytes.
        """
        room_bytes = self.room_bytes
        if overhead_bytes:
            count_max = max(1, min(count_max, room_bytes // (2 * overhead_bytes)))
        return count_max, max(0, room_bytes - count_max * overhead_bytes)

    def watch(self, on_room: Callable[[], None]) -> None:
        """Have `on_room` called whenever something was let go and there is room."""
        self._watchers.append(on_room)

    def unwatch(self, on_room: Callable[[], None]) -> None:
        """Call it no more; nothing changes where it was not called."""
        self._watchers = [one for one in self._watchers if one != on_room]

    def take(self, size_bytes: int) -> None:
        """Hold so much more; `let_go` must follow."""
        self.held_bytes += size_bytes

    def let_go(self, size_bytes: int) -> None:
        """Hold so much less."""
        self.held_bytes -= size_bytes
        for on_room in self._watchers if self.has_room else ():
            on_room()


class AnswerPart:
    """A part of a budget, which counts in the whole: the rest of that is for others.

    Invariant: what is held is at most `bytes_max`, or one answer that is larger than that.
    """

    def __init__(self, whole: AnswerBudget, bytes_max: int) -> None:
        """Nothing is held."""
        self._whole, self.bytes_max = whole, bytes_max
        self.held_bytes = 0

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether an answer of that size may be given: if it is larger than all room, alone."""
        is_within = not self.held_bytes or self.held_bytes + size_bytes <= self.bytes_max
        return is_within and self._whole.has_room_for(size_bytes)

    def take(self, size_bytes: int) -> None:
        """Hold so much more; `let_go` must follow."""
        self.held_bytes += size_bytes
        self._whole.take(size_bytes)

    def let_go(self, size_bytes: int) -> None:
        """Hold so much less."""
        self.held_bytes -= size_bytes
        self._whole.let_go(size_bytes)


class HeldAnswer:
    """What one call holds of a budget, until its end."""

    def __init__(self, budget: AnswerBudget | AnswerPart) -> None:
        """It holds nothing yet."""
        self._budget, self._bytes, self._is_over = budget, 0, False

    def take(self, size_bytes: int) -> None:
        """The call gets an answer; where it is over already, no call holds it."""
        if not self._is_over:
            self._bytes += size_bytes
            self._budget.take(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """The call holds so much from now on, and no more what it held before."""
        before_bytes = self._bytes
        if self._is_over or size_bytes == before_bytes:
            return
        self._bytes = size_bytes
        if size_bytes > before_bytes:
            self._budget.take(size_bytes - before_bytes)
        else:
            self._budget.let_go(before_bytes - size_bytes)

    def end(self) -> None:
        """The call is over."""
        self._is_over = True
        size_bytes, self._bytes = self._bytes, 0
        if size_bytes:
            self._budget.let_go(size_bytes)
