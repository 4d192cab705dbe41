"""Transactions whose messages are damaged on this node, so that no producer can be asked.

That none answered is no outcome: they are rolled back, at the earliest, one check interval after
this node can read them again.
"""

from collections.abc import Callable

from hourwheel.errors import HourwheelError
from hourwheel.types import Offset
from node.repair.record_mender import RecordMender
from storage.views.transactions import Transaction


class Withheld:
    """See the top of this file. Of one mastership."""

    def __init__(self, mender: RecordMender) -> None:
        """`mender` repairs them, where another replica has their bytes."""
        self._mender = mender
        self._readable_ms: dict[Offset, int | None] = {}
        """Offset -> since when it can be read again; None: it cannot."""

    def note(self, offset: Offset, error: HourwheelError | FileNotFoundError) -> None:
        """This one's PREPARE cannot be read."""
        self._readable_ms[offset] = None
        self._mender.note(offset, error)

    def look(self, now_ms: int, is_open: Callable[[Offset], bool]) -> list[Offset]:
        """Once a second: those that were repaired since; what has ended is forgotten."""
        repaired = []
        for offset, readable_ms in list(self._readable_ms.items()):
            if not is_open(offset):
                del self._readable_ms[offset]
            elif readable_ms is None and offset not in self._mender:
                self._readable_ms[offset] = now_ms
                repaired.append(offset)
        return repaired

    def is_damaged(self, offset: Offset) -> bool:
        """Whether it could not be read, and is not repaired yet."""
        return offset in self._mender

    def until_ms(self, one: Transaction, now_ms: int) -> int:
        """Not before then is it rolled back."""
        if one.offset not in self._readable_ms:
            return 0
        return (self._readable_ms[one.offset] or now_ms) + one.check_interval_ms
