"""Checks of priorities: what consumers saw of each burst. No node, no clock.

Messages of one burst are published at once, and fall due at once: so where one of them is visible,
the others are, but for those that are published or released a moment later. Of these a group must
not get a lower one while a higher one is there that it never got. What another mastership handed
out, and did not arrive, only that one knows: so each mastership is checked alone.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from chaos.history import Delivery, History, Stored

VISIBLE_MS: Final = 300.0
"""So long after a burst's last message is due and was acknowledged all of it is visible."""


def check_priorities(
    history: History, stored: Stored, clock_ms: float = 0.0
) -> Iterator[tuple[str, str]]:
    """I10: of what is visible to a group the highest priority comes first."""
    firsts: dict[tuple[str, int], Delivery] = {}
    for one in sorted(history.deliveries, key=lambda it: (it.epoch, it.receive_ms)):
        if one.serial in history.ranks:
            firsts.setdefault((one.group, one.serial), one)
    bursts: dict[tuple[str, int, int, float], list[Delivery]] = defaultdict(list)
    for (group, serial), one in firsts.items():
        sent = history.sent[serial]
        is_first = one.attempt == 1 and one.message_id.sequence not in stored.moved
        if is_first and serial in history.accepted:
            bursts[group, one.epoch, sent.due_ms, sent.requested_ms].append(one)
    for lives in bursts.values():
        yield from _overtaken(history, lives, clock_ms)


def _overtaken(
    history: History, lives: list[Delivery], clock_ms: float
) -> Iterator[tuple[str, str]]:
    """Lower ones that came before higher ones, of one burst, group and mastership."""
    higher: Delivery | None = None
    for one in sorted(lives, key=lambda it: it.receive_ms, reverse=True):
        rank = history.ranks[one.serial or 0]
        if higher is not None and rank < history.ranks[higher.serial or 0]:
            visible_ms = max(
                float(higher.message_id.due_ms),
                history.accepted[higher.serial or 0].answered_ms + clock_ms,
            )
            is_later = higher.receive_ms > one.receive_ms
            if is_later and one.receive_ms > visible_ms + VISIBLE_MS:
                yield "priority", f"{one} of rank {rank} before {higher}"
        if higher is None or rank > history.ranks[higher.serial or 0]:
            higher = one
