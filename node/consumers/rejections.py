"""Why consumers rejected messages, as far as this master remembers.

The log says that a message became a dead letter, and has no field for the reason. So the master
keeps the reasons of the latest ones in memory, for listings; they end with the mastership.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from hourwheel.types import GroupId, SequenceNumber

REMEMBERED_MAX: Final = 4_096
"""Reasons, of `limits.NACK_REASON_BYTES_MAX` each."""


class Rejections:
    """Group and sequence -> reason, of the latest."""

    def __init__(self, count_max: int = REMEMBERED_MAX) -> None:
        """None yet; `count_max`: how many."""
        self._reasons: OrderedDict[tuple[GroupId, SequenceNumber], str] = OrderedDict()
        self._count_max = count_max

    def note(self, group_id: GroupId, sequences: Iterable[SequenceNumber], reason: str) -> None:
        """A group's consumer rejected these messages."""
        for sequence in sequences:
            self._reasons[group_id, sequence] = reason
            self._reasons.move_to_end((group_id, sequence))
            if len(self._reasons) > self._count_max:
                self._reasons.popitem(last=False)

    def forget(self, group_id: GroupId, sequences: Iterable[SequenceNumber]) -> None:
        """These are given to their group again."""
        for sequence in sequences:
            self._reasons.pop((group_id, sequence), None)

    def find(self, group_id: GroupId, sequence: SequenceNumber) -> str:
        """The reason; empty: there was none, or it is not known any more."""
        return self._reasons.get((group_id, sequence), "")
