"""Checks of messages that expire: what consumers saw, and what the log says.

Each function yields (name, text) of what was not kept: see chaos/checker.py. When a message expires
follows from what its producer asked for, and not from the metadata that the node reads.
"""

from collections import Counter
from collections.abc import Iterator

from chaos.history import Delivery, History, Stored


def check_expiry(
    history: History, stored: Stored, clock_ms: float = 0.0, held_ms: float = 0.0
) -> Iterator[tuple[str, str]]:
    """I2, I3: handed out before it expires, or done with once when it has.

    `held_ms`: so long a consumer may be busy before it looks at what it got, in a calm.
    """
    yield from _too_late(history, clock_ms + held_ms)
    yield from _too_early(history, stored)
    yield from _twice(history, stored)


def _too_late(history: History, held_ms: float) -> Iterator[tuple[str, str]]:
    """By the node's word, and by the clock of who got it: no lease holds longer than it lasts."""
    for one in history.deliveries:
        life_ms = history.lives.get(one.serial or 0, 0)
        if not life_ms:
            continue
        expiry_ms = one.message_id.due_ms + life_ms
        late_ms = one.seen_ms - expiry_ms - one.invisible_ms
        if one.receive_ms >= expiry_ms:
            yield "expired", f"handed out {one.receive_ms - expiry_ms} ms too late: {one}"
        elif late_ms > held_ms and not _has_fault(history, one):
            yield "expired", f"seen {late_ms:.0f} ms after a lease could hold it: {one}"


def _has_fault(history: History, one: Delivery) -> bool:
    """Whether something stood still, perhaps, between node and consumer."""
    return any(
        fault.begun_ms < one.seen_ms and fault.healed_ms > one.receive_ms
        for fault in history.faults
    )


def _too_early(history: History, stored: Stored) -> Iterator[tuple[str, str]]:
    """What is done with as expired had expired, as its producer had asked for."""
    for text in stored.expiry_faults:
        yield "expired early" if text.endswith("early") else "expired", f"by the log, {text}"
    for one in stored.expired:
        kept = stored.messages[one.sequence]
        life_ms = history.lives.get(kept.serial or 0, 0)
        if not life_ms:
            yield "expired early", f"{kept} does not expire, and has for {one.group}"
        elif one.store_ms < kept.due_ms + life_ms:
            early_ms = kept.due_ms + life_ms - one.store_ms
            yield "expired early", f"{early_ms} ms too soon for {one.group}: {kept}"


def _twice(history: History, stored: Stored) -> Iterator[tuple[str, str]]:
    """A group is done with a message once."""
    counted = Counter((one.group, one.sequence) for one in stored.expired)
    for place, count in counted.items():
        if count > 1:
            yield "expired twice", f"{place} has expired {count} times"
    acked = {(one.group, one.serial) for one in history.finishes if one.verb == "ack" and one.is_ok}
    for group, sequence in counted:
        if (group, stored.messages[sequence].serial) in acked:
            yield "expired twice", f"{group} has acknowledged what expired for it: {sequence}"
