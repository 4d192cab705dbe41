"""Checks of ordering keys and limits, as consumers see them: no node, no clock.

Of one ordering key a group gets one message at a time, in the order of the queue; and no group
holds more messages, or gets them faster, than it may. Each function yields (name, text) of what was
promised and not kept: see chaos/checker.py.

The node's times are whole milliseconds, cut off: what a consumer asks for may have its effect in
the same one.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from math import floor, inf
from typing import Final

from chaos.history import Delivery, Finish, History, Stored

_BURST_PARTS: Final = 10
"""A group with a rate may get a tenth of a second's messages at once."""
_SECOND_MS: Final = 1_000


def check_order(
    history: History, stored: Stored, clock_ms: float = 0.0
) -> Iterator[tuple[str, str]]:
    """I10: a message of an ordered group comes when all before it, of its key, are done with.

    What comes before, says the log; what is done with, the consumers: a message that comes again
    was not, nor one that was not yet to be acknowledged, unless the lease of its last attempt had
    run out: then it is dead, and an acknowledgement that comes later is refused.
    """
    places = {one.sequence: at for at, one in enumerate(stored.queued) if one.topic[:1] != "%"}
    acked_ms: dict[tuple[str, int], float] = {}
    for finish in history.finishes:
        if finish.verb == "ack":
            key = finish.group, finish.serial
            acked_ms[key] = min(acked_ms.get(key, inf), floor(finish.requested_ms))
    lines: dict[tuple[str, str], dict[int, list[Delivery]]] = defaultdict(dict)
    for one in history.deliveries:
        name = history.keys.get(one.serial or 0, "")
        at = places.get(one.message_id.sequence)
        if one.group in history.ordered and name and at is not None:
            lines[one.group, name].setdefault(at, []).append(one)
    for (group, name), line in lines.items():
        latest, freed_ms = (0, 0), -inf
        for _, lives in sorted(line.items()):
            first = min(lives, key=_when)
            if _when(first) < latest:
                yield "order", f"{name!r} of {group}: an earlier one came after {first}"
            elif first.receive_ms < freed_ms - clock_ms:
                late_ms = freed_ms - first.receive_ms
                yield "order", f"{name!r} of {group}: {late_ms:.0f} ms before it was free: {first}"
            latest = max(latest, *map(_when, lives))
            done_ms = acked_ms.get((group, first.serial or 0), -inf)
            freed_ms = max(freed_ms, min(done_ms, _death_ms(lives, history.groups[group][1])))
    for sequence, before in stored.overtaken:
        yield "order", f"by the log, sequence {sequence} was done with before {before}"


def _death_ms(lives: list[Delivery], attempts_max: int) -> float:
    """When the lease of a message's last attempt ran out, at the earliest; inf: it has others."""
    last = [one for one in lives if one.attempt >= attempts_max]
    return max((float(one.receive_ms + one.invisible_ms) for one in last), default=inf)


def _when(one: Delivery) -> tuple[int, int]:
    return one.epoch, one.receive_ms


def check_limits(history: History, clock_ms: float = 0.0) -> Iterator[tuple[str, str]]:
    """I10: no more live leases at a time, and no more messages a second, than the group may have.

    Counted in each mastership alone: another one knows nothing of leases before it, unless it took
    over by plan.
    """
    ends: dict[tuple[str, int, int], list[Finish]] = defaultdict(list)
    for finish in history.finishes:
        ends[finish.group, finish.serial, finish.attempt].append(finish)
    for group, (in_flight_max, per_second_max) in history.limits.items():
        epochs: dict[int, list[Delivery]] = defaultdict(list)
        for one in history.deliveries:
            if one.group == group:
                epochs[one.epoch].append(one)
        for every in epochs.values():
            every.sort(key=_when)
            yield from _held(group, in_flight_max, every, ends, clock_ms)
            yield from _pace(group, per_second_max, every)


def _held(
    group: str,
    in_flight_max: int,
    every: list[Delivery],
    ends: dict[tuple[str, int, int], list[Finish]],
    clock_ms: float,
) -> Iterator[tuple[str, str]]:
    if not in_flight_max:
        return
    steps: list[tuple[float, int]] = []
    for one in every:
        done_ms = float(one.receive_ms + one.invisible_ms)
        for finish in ends.get((group, one.serial or 0, one.attempt), ()):
            if _may_end(finish, one, clock_ms):
                done_ms = min(done_ms, floor(finish.requested_ms))
        steps.append((float(one.receive_ms), 1))
        # Not before it began, however clocks differ.
        steps.append((max(float(one.receive_ms), done_ms - clock_ms), -1))
    held = 0
    for at_ms, step in sorted(steps):
        held += step
        if held > in_flight_max:
            yield "in flight", f"{group} holds {held} of {in_flight_max} at {at_ms:.0f}"
            return


def _may_end(finish: Finish, one: Delivery, clock_ms: float) -> bool:
    """Whether what a consumer asked for may have ended this lease of the message.

    Also where it was asked for with the receipt of a former master's lease: the new master may
    hand the message out again before that request comes to it, and then takes it. What was
    confirmed before this lease began has ended another one; when a request that failed had its
    effect, if ever, is unknown.
    """
    return not finish.is_ok or finish.answered_ms >= one.receive_ms - clock_ms


def _pace(group: str, per_second_max: int, every: list[Delivery]) -> Iterator[tuple[str, str]]:
    if not per_second_max:
        return
    most = per_second_max + max(1, per_second_max // _BURST_PARTS) + 1
    recent: deque[int] = deque()
    for one in every:
        while recent and recent[0] <= one.receive_ms - _SECOND_MS:
            recent.popleft()
        recent.append(one.receive_ms)
        if len(recent) > most:
            yield "too fast", f"{group} got {len(recent)} in a second, of {per_second_max}"
            return
