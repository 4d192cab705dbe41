"""What expires, as the naive reading of a log (`chaos.log_model`) knows it."""

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
