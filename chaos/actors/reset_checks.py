"""Checks of groups that were reset: what their consumers saw. No node, no clock.

A group's resets divide its deliveries into *lives*: a lease belongs to the life that the resets
have begun whose record names an earlier one. In each life the group gets messages as if there were
no other one; in the last it gets all that stands at its beginning or behind it. Each function
yields (name, text) of what was not kept: see chaos/checker.py.
"""

from bisect import bisect_left
from collections.abc import Iterator

from chaos.history import Begun, Delivery, Finish, History, Reset, Stored


def life_of(stored: Stored, one: Delivery | Finish) -> int:
    """How often the group was reset before the lease of a delivery, or of its end."""
    begun = stored.begun.get(one.group)
    if begun is None:
        return 0
    return bisect_left([reset.stale_up_to for reset in begun], (one.epoch, one.lease_id))


def last_life(stored: Stored, group: str) -> int:
    """How often the group was reset."""
    return len(stored.begun.get(group, ()))


def ends_leases(history: History, before: Delivery, after: Delivery, clock_ms: float) -> bool:
    """Whether a reset came between two deliveries for whose record the disk may have had no room.

    The master forgets the group's leases as it appends the record, and cannot take that back. The
    client tries again, so that a reset that was confirmed may have been refused before: what comes
    again by that, and not by the reset itself, comes while the call is under way.
    """
    under_way = any(
        one.group == before.group
        and one.requested_ms - clock_ms <= after.receive_ms <= one.answered_ms + clock_ms
        for one in history.resets
    )
    return under_way or any(
        one.group == before.group
        and one.answered_ms >= before.receive_ms - clock_ms
        and one.requested_ms <= after.receive_ms + clock_ms
        for one in history.unwritten_resets
    )


def check_resets(
    history: History, stored: Stored, clock_ms: float = 0.0
) -> Iterator[tuple[str, str]]:
    """I10: a group that was reset gets all from there on, and nothing of before."""
    reported = {reset.group for reset in history.resets}
    for group in sorted(reported | stored.begun.keys()):
        begun = stored.begun.get(group, [])
        requested = [one for one in history.resets if one.group == group]
        matched, left = _match(requested, begun, clock_ms)
        unanswered = sum(one.positions is None for one in requested)
        if left > unanswered:
            text = (
                f"{group}: the log has {left} resets that no answer confirmed, and only"
                f" {unanswered} requests got no answer"
            )
            yield "reset", text
        for reset in requested:
            if reset.positions is not None and reset not in matched:
                yield "reset", f"was confirmed, and the log has no such reset: {reset}"
        yield from _where(history, stored, group)
        yield from _stale(history, stored, matched, clock_ms)
        if begun and not history.is_cut_off:
            yield from _not_again(history, stored, group)


def _match(
    requested: list[Reset], begun: list[Begun], clock_ms: float
) -> tuple[dict[Reset, int], int]:
    """Reset that was confirmed -> the life that it began; and how many others there are."""
    done = [one for one in requested if one.positions is not None]
    matched: dict[Reset, int] = {}
    for life, one in enumerate(begun, 1):
        for reset in done[len(matched) :][:1]:
            count = len(reset.positions or ())
            is_then = reset.requested_ms - clock_ms - 1 <= one.store_ms
            is_then &= one.store_ms <= reset.answered_ms + clock_ms
            if is_then and tuple(one.positions.values())[:count] == reset.positions:
                matched[reset] = life
    return matched, len(begun) - len(matched)


def _where(history: History, stored: Stored, group: str) -> Iterator[tuple[str, str]]:
    """What is handed out stands at the beginning of its life, or behind it."""
    for one in history.deliveries:
        life = life_of(stored, one) if one.group == group else 0
        place = stored.places.get(one.message_id.sequence)
        if not life or place is None:
            continue
        first = stored.begun[group][life - 1].positions.get(place[0], 0)
        if place[1] < first:
            yield "before its beginning", f"at {place}, begun anew at {first}: {one}"


def _stale(
    history: History, stored: Stored, matched: dict[Reset, int], clock_ms: float
) -> Iterator[tuple[str, str]]:
    """Once a reset is confirmed, nothing of the lives before it counts or comes."""
    for reset, life in matched.items():
        for one in history.deliveries:
            is_later = one.group == reset.group and one.receive_ms > reset.answered_ms + clock_ms
            if is_later and life_of(stored, one) < life:
                yield "void receipt", f"{reset} was done, and then came {one}"
        for finish in history.finishes:
            is_later = finish.group == reset.group and finish.requested_ms > reset.answered_ms
            if is_later and finish.is_ok and life_of(stored, finish) < life:
                yield "void receipt", f"{reset} was done, and then counted {finish}"


def _not_again(history: History, stored: Stored, group: str) -> Iterator[tuple[str, str]]:
    """I1: in its last life a group gets all that stands at its beginning or behind it."""
    life, last = last_life(stored, group), stored.begun[group][-1]
    seen = {
        one.message_id.sequence
        for one in history.deliveries
        if one.group == group and life_of(stored, one) == life
    }
    topic = {queue >> 8 for queue in last.positions}
    for sequence, (queue, position) in stored.places.items():
        is_meant = queue >> 8 in topic and position >= last.positions.get(queue, 0)
        if is_meant and sequence not in seen:
            yield "not again", f"sequence {sequence} never came to {group} after {last}"
