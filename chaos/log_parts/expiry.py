"""What expires, as the naive reading of a log (`chaos.log_model`) knows it."""

from dataclasses import dataclass, field
from typing import Final

from chaos.log_parts.entries import Entry
from hourwheel.formats.meta import decode
from hourwheel.formats.record_batch import Outcome

EXPIRED: Final = frozenset({Outcome.EXPIRED, Outcome.EXPIRED_LETTER})
LETTERS: Final = frozenset({Outcome.DEAD, Outcome.EXPIRED_LETTER})
"""Outcomes that make dead letters whatever the attempts."""


def expiry_ms(entry: Entry, meta: bytes) -> int:
    """When a message expires; 0: never."""
    stated = decode(meta).expires_ms
    return entry.store_ms - stated if stated < 0 else stated


def expiry_fault(outcome: int, topic: str, entry: Entry, meta: bytes, store_ms: int) -> str:
    """What is wrong with how a group is done with an entry, by a record of `store_ms`; or "".

    `topic`: the one that the group reads. Dead letters do not expire.
    """
    at_ms = expiry_ms(entry, meta)
    if outcome in EXPIRED and (not at_ms or at_ms > store_ms):
        return "expired-early"
    if topic.startswith("%DLQ%"):
        return ""
    if outcome == Outcome.ACK and 0 < at_ms <= entry.release_ms:
        return "expired-delivered"
    return ""


@dataclass
class Expiries:
    """What groups are done with as expired."""

    goes_on: bool = False
    """What is wrong is noted, and somebody else tells of it; else nothing may be."""
    faults: list[str] = field(default_factory=list)
    ended: list[tuple[int, int, int]] = field(default_factory=list)
    """(group, sequence, the record's time in milliseconds), in log order."""

    def see(self, group: int, outcome: int, entry: Entry, store_ms: int, fault: str) -> None:
        """A group is done with an entry, by a record of `store_ms`. `fault`: see `expiry_fault`."""
        if outcome in EXPIRED:
            self.ended.append((group, entry.sequence, store_ms))
        if fault:
            self.faults.append(f"message {entry.sequence}: {fault}")
            assert self.goes_on, self.faults[-1]
