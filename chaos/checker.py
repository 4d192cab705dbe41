"""The checker: a history and what the directory holds in the end -> what was promised and not kept.

Pure: no node, no clock, no files. Each kind of violation has a name, for
tests/unit/chaos/test_checker.py to plant it and see that it is found. The invariants are those of
docs/ARCHITECTURE.md:

    I1  lost, misplaced, not delivered, missed by a member
    I2  early, expired, expired early
    I3  published twice, queued twice, phantom, uncaused delivery, attempt, delivered after ack,
        acknowledged twice, not given back, expired twice
    I6  cancel, reschedule, dedup key
    I10 order, priority, in flight, too fast, occurrence twice, occurrence lost,
        occurrence unwanted, reset, before its beginning, void receipt, not again,
        re-driven twice, not re-driven, while paused
    I11 let in

The history must have ended: nothing under way, every consumer drained. Of one that was cut off
it is unknown what was not delivered, or not given back.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise, starmap
from math import inf
from typing import Final, NamedTuple

from chaos.actors.broadcasts import check_members, check_pauses
from chaos.actors.expiry_checks import check_expiry
from chaos.actors.order_checks import check_limits, check_order
from chaos.actors.priority_checks import check_priorities
from chaos.actors.redrives import TOPICS_AGAIN, check_redrives
from chaos.actors.reschedules import check_moved
from chaos.actors.reset_checks import check_resets, ends_leases, last_life, life_of
from chaos.history import Cancel, Delivery, Finish, History, Move, Stored
from chaos.recurring.checks import recurring
from hourwheel.outcomes import CancelOutcome, DedupOutcome, RescheduleOutcome

_SHOWN_MAX: Final = 5
_REPLACED: Final = int(DedupOutcome.REPLACED)
_RETRY: Final = "%RETRY%"
_DEAD: Final = "%DLQ%"


class Violation(NamedTuple):
    """A promise that was not kept."""

    name: str
    text: str


class Bounds(NamedTuple):
    """How exactly two clocks can be compared."""

    lead_ms: int = 25
    """So long before its due time a message may already count as released."""
    clock_ms: float = 0.0
    """How far the node's clock may be from the harness's."""
    revoked_ms: float = 1_000.0
    """How long a grant that was taken away may still let calls through."""
    held_ms: float = 3_000.0
    """How long a consumer may be busy before it looks at what was handed out to it."""


def check(history: History, stored: Stored, bounds: Bounds | None = None) -> list[Violation]:
    """All violations, in no particular order."""
    bounds = bounds or Bounds()
    return [
        *_lost(history, stored),
        *_published_twice(history, stored),
        *_misplaced(stored),
        *_queued(history, stored),
        *_due_times(history, stored, bounds),
        *_cancels(history, stored, bounds),
        *_moves(history, stored),
        *_deals(history, stored),
        *_uniques(history, stored),
        *_phantoms(history),
        *_early(history, stored, bounds),
        *_not_delivered(history, stored),
        *_each_message(history, stored, bounds),
        *_let_in(history, bounds),
        *starmap(Violation, check_order(history, stored, bounds.clock_ms)),
        *starmap(Violation, check_priorities(history, stored, bounds.clock_ms)),
        *starmap(Violation, check_moved(history, stored.moved)),
        *starmap(Violation, check_limits(history, bounds.clock_ms)),
        *starmap(Violation, check_expiry(history, stored, bounds.clock_ms, bounds.held_ms)),
        *starmap(Violation, check_resets(history, stored, bounds.clock_ms)),
        *starmap(Violation, check_redrives(history, stored, bounds.clock_ms)),
        *starmap(Violation, check_members(history, stored, bounds.clock_ms)),
        *starmap(Violation, check_pauses(history, bounds.clock_ms)),
        *starmap(Violation, recurring(history, stored, bounds.clock_ms, bounds.lead_ms)),
    ]


def describe(violations: Iterable[Violation]) -> str:
    """For people: how many of each name, and the first few."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for name, text in violations:
        by_name[name].append(text)
    lines = []
    for name, texts in sorted(by_name.items()):
        lines.append(f"{name}: {len(texts)}")
        lines += [f"    {text}" for text in texts[:_SHOWN_MAX]]
    return "\n".join(lines)


# -- what was published ---------------------------------------------------------------------------


def _lost(history: History, stored: Stored) -> Iterator[Violation]:
    """I1: what was acknowledged is in the log, under the id that was answered."""
    for serial, (message_id, _) in history.accepted.items():
        kept = stored.messages.get(message_id.sequence)
        if kept is None or kept.serial != serial:
            yield Violation("lost", f"{serial} was acknowledged as {message_id}; there is {kept}")
        elif (kept.epoch, kept.due_ms) != (message_id.epoch, message_id.due_ms):
            yield Violation("lost", f"{serial} has another id than {message_id}: {kept}")


def _published_twice(history: History, stored: Stored) -> Iterator[Violation]:
    """I3: nothing is stored that was not sent, or was refused, or is stored already."""
    first: dict[int, int] = {}
    for sequence, kept in stored.messages.items():
        serial = kept.serial
        if sequence in stored.occurrences:
            continue
        if serial is None or serial not in history.sent:
            yield Violation("phantom", f"no client sent what is stored as sequence {sequence}")
        elif serial in history.refused:
            yield Violation("phantom", f"{serial} was refused and is stored as {sequence}")
        elif serial in first:
            yield Violation("published twice", f"{serial} as {first[serial]} and {sequence}")
        else:
            first[serial] = sequence


def _misplaced(stored: Stored) -> Iterator[Violation]:
    """I1: each message is released, or waits, or is cancelled: one of the three."""
    places: Counter[int] = Counter(stored.cancelled)
    for entry in (*stored.queued, *stored.pending):
        if not entry.topic.startswith((_RETRY, _DEAD)):
            places[entry.sequence] += 1
    for sequence in places.keys() | stored.messages.keys():
        if places[sequence] != 1 or sequence not in stored.messages:
            where = [
                name
                for name, entries in (("queued", stored.queued), ("pending", stored.pending))
                for entry in entries
                if entry.sequence == sequence
            ]
            where += ["cancelled"] * (sequence in stored.cancelled)
            yield Violation("misplaced", f"sequence {sequence} is {where or 'nowhere'}")


def _queued(history: History, stored: Stored) -> Iterator[Violation]:
    """I3: one entry for each release: the first in its own topic, retries with rising attempts."""
    counted = Counter(stored.queued)
    for entry, count in counted.items():
        if count > 1 and entry.topic not in TOPICS_AGAIN:
            yield Violation("queued twice", f"{entry} stands {count} times in its queues")
    for entry in (*counted, *stored.pending):
        kept = stored.messages.get(entry.sequence)
        serial = None if kept is None else kept.serial
        sent = None if serial is None else history.sent.get(serial)
        is_own = not entry.topic.startswith((_RETRY, _DEAD))
        if sent is not None and is_own and (entry.attempt != 1 or entry.topic != sent.topic):
            yield Violation("queued twice", f"{entry}, but it was published to {sent.topic}")


def _due_times(history: History, stored: Stored, bounds: Bounds) -> Iterator[Violation]:
    """I2: what is stored is due when it was asked for, or later where that was a delay."""
    for sequence, kept in stored.messages.items():
        sent = None if kept.serial is None else history.sent.get(kept.serial)
        if sent is not None and kept.due_ms < sent.due_ms - bounds.clock_ms:
            ahead = sent.due_ms - kept.due_ms
            yield Violation("early", f"sequence {sequence} is stored as due {ahead} ms too soon")


# -- cancels --------------------------------------------------------------------------------------


def _cancels(history: History, stored: Stored, bounds: Bounds) -> Iterator[Violation]:
    """I6: each answer is true, and nothing is cancelled without a request."""
    released = {one.sequence for one in stored.queued if not one.topic.startswith((_RETRY, _DEAD))}
    requested: set[int] = set()
    for cancel in history.cancels:
        message_id = history.accepted[cancel.serial].message_id
        requested.add(message_id.sequence)
        fault = _find_untruth(cancel, message_id.sequence, stored, released)
        if fault is None and cancel.outcome is CancelOutcome.ALREADY_RELEASED:
            due_ms = stored.moved.get(message_id.sequence, message_id.due_ms)
            ahead = due_ms - cancel.answered_ms - bounds.clock_ms
            if ahead > bounds.lead_ms:
                fault = f"was said to be released {ahead:.0f} ms before its due time"
        if fault is not None:
            yield Violation("cancel", f"{cancel.serial} ({message_id}) {fault}")
    requested |= {other for what, other in stored.deduped.values() if what == _REPLACED}
    requested |= stored.occurrences.keys()  # changes take them back
    for sequence in stored.cancelled - requested:
        yield Violation("cancel", f"sequence {sequence} is cancelled without a request")
    taken_back = {one.serial for one in history.cancels if one.outcome is CancelOutcome.CANCELLED}
    for delivery in history.deliveries:
        if delivery.serial in taken_back:
            yield Violation("cancel", f"{delivery.serial} was cancelled and delivered: {delivery}")


def _find_untruth(cancel: Cancel, sequence: int, stored: Stored, released: set[int]) -> str | None:
    if cancel.outcome is CancelOutcome.CANCELLED and sequence not in stored.cancelled:
        return "was said to be cancelled, and is not"
    if cancel.outcome is CancelOutcome.ALREADY_RELEASED and sequence not in released:
        return "was said to be released, and is not"
    if cancel.outcome is CancelOutcome.UNKNOWN:
        return "was acknowledged, and a cancel does not know it"
    is_past = sequence in released or sequence in stored.cancelled
    if cancel.outcome is CancelOutcome.EXPIRED and not is_past:
        return "was said to be past, and is neither released nor cancelled"
    return None


def _moves(history: History, stored: Stored) -> Iterator[Violation]:
    """I6: each answer is true, and nothing is moved without a request."""
    released = {one.sequence for one in stored.queued if not one.topic.startswith((_RETRY, _DEAD))}
    requested: set[int] = set()
    for move in history.moves:
        message_id = history.accepted[move.serial].message_id
        requested.add(message_id.sequence)
        fault = _find_false_move(move, message_id.sequence, stored, released)
        if fault is not None:
            yield Violation("reschedule", f"{move.serial} ({message_id}) {fault}")
    swept = [serial for sweep in history.sweeps for serial in sweep.serials]
    requested |= {history.accepted[serial].message_id.sequence for serial in swept}
    for sequence in stored.moved.keys() - requested:
        yield Violation("reschedule", f"sequence {sequence} was moved without a request")


def _find_false_move(move: Move, sequence: int, stored: Stored, released: set[int]) -> str | None:
    if move.outcome is RescheduleOutcome.RESCHEDULED:
        due_ms = stored.moved.get(sequence, -1)  # later where it was past: then it is "at once"
        return None if due_ms >= move.due_ms else f"was said to be moved, and is due at {due_ms}"
    if move.outcome is RescheduleOutcome.ALREADY_RELEASED and sequence not in released:
        return "was said to be released, and is not"
    if move.outcome is RescheduleOutcome.CANCELLED and sequence not in stored.cancelled:
        return "was said to be cancelled, and is not"
    if move.outcome is RescheduleOutcome.UNKNOWN:
        return "was acknowledged, and a reschedule does not know it"
    is_past = sequence in released or sequence in stored.cancelled
    if move.outcome is RescheduleOutcome.EXPIRED and not is_past:
        return "was said to be past, and is neither released nor cancelled"
    return None


def _uniques(history: History, stored: Stored) -> Iterator[Violation]:
    """Each answer about a dedup key is the log's; what was replaced is not delivered."""
    names = {one.serial: one.name for one in history.uniques}
    left = Counter(what for what in stored.deduped.values() if what[0] != _REPLACED)
    for one in history.uniques:
        pending = None if one.pending_id is None else one.pending_id.sequence
        answer = None if pending is None else (int(one.outcome), pending)
        accepted = history.accepted.get(one.serial)
        if accepted is not None:
            found = stored.deduped.get(accepted.message_id.sequence)
            if found != answer:
                yield Violation("dedup key", f"the answer was {one}, and the log says {found}")
            continue
        left[answer or (0, 0)] -= 1
        kept = None if pending is None else stored.messages.get(pending)
        if kept is None or left[answer or (0, 0)] < 0:
            yield Violation("dedup key", f"the answer was {one}, and the log has no such outcome")
        elif kept.serial is not None and names.get(kept.serial, one.name) != one.name:
            yield Violation("dedup key", f"{one}: that message has the key {names[kept.serial]}")
    gone = {other for what, other in stored.deduped.values() if what == _REPLACED}
    for delivery in history.deliveries:
        if delivery.message_id.sequence in gone:
            yield Violation("dedup key", f"was replaced and delivered: {delivery}")


# -- deliveries -----------------------------------------------------------------------------------


def _deals(history: History, stored: Stored) -> Iterator[Violation]:
    """I10: a transaction has one outcome: all of its messages are stored, or none."""
    for text in history.contradictions:
        yield Violation("two outcomes", text)
    kept = {one.serial for one in stored.messages.values()}
    for serials in history.deals:
        count = len(kept.intersection(serials))
        if count not in {0, len(serials)}:
            text = f"of messages {serials} of a transaction {count} are stored"
            yield Violation("half a transaction", text)


def _phantoms(history: History) -> Iterator[Violation]:
    """I3: what is delivered was published, comes whole, in its own topic and under its own id."""
    ids: dict[int, object] = {}
    for one in history.deliveries:
        sent = None if one.serial is None else history.sent.get(one.serial)
        if one.serial is None or sent is None:
            yield Violation("phantom", f"no client sent this: {one}")
        elif sent.topic != one.topic or history.groups[one.group][0] != one.topic:
            yield Violation("phantom", f"published to {sent.topic}: {one}")
        elif one.serial in history.refused:
            yield Violation("phantom", f"it was refused: {one}")
        else:
            accepted = history.accepted.get(one.serial)
            known = ids.setdefault(one.serial, accepted.message_id if accepted else one.message_id)
            if known != one.message_id:
                yield Violation("published twice", f"{one.serial} is {known}, and here: {one}")


def _early(history: History, stored: Stored, bounds: Bounds) -> Iterator[Violation]:
    """I2, by the harness's clock alone; of what was moved, by where it was moved to."""
    for one in history.deliveries:
        sent = None if one.serial is None else history.sent.get(one.serial)
        due_ms = one.message_id.due_ms if sent is None else sent.due_ms
        due_ms = stored.moved.get(one.message_id.sequence, due_ms)
        if one.seen_ms < due_ms - bounds.clock_ms:
            yield Violation("early", f"{due_ms - one.seen_ms:.1f} ms too soon: {one}")


def _not_delivered(history: History, stored: Stored) -> Iterator[Violation]:
    """I1: what was released has come to every group, or has died or expired on its way there.

    Deliveries may have been lost on their way, all of them: such a one may block its key, too. Of a
    group that was reset other rules tell: chaos/actors/reset_checks.py.
    """
    if history.is_cut_off:
        return
    seen = {(one.group, one.serial) for one in history.deliveries}
    over = _over(history, stored)
    for group, (topic, _) in history.groups.items():
        for entry in stored.queued if group not in stored.begun else ():
            kept = stored.messages.get(entry.sequence)
            if entry.topic != topic or kept is None or (group, entry.sequence) in over:
                continue
            if (group, kept.serial) not in seen:
                yield Violation("not delivered", f"{kept.serial} never came to {group}")


def _over(history: History, stored: Stored) -> set[tuple[str, int]]:
    """(group, sequence) of what a group needs to get no more, though it has not acknowledged it.

    One that blocked its key is only where somebody has asked to skip it, and the log says so. It
    may have come fewer times than there are attempts: a former master's receipt fails one.
    """
    return _dead_letters(stored) | _expired(stored) | (stored.skipped & history.skips)


def _dead_letters(stored: Stored) -> set[tuple[str, int]]:
    """(group, sequence) of each."""
    return {
        (entry.topic.removeprefix(_DEAD), entry.sequence)
        for entry in stored.queued
        if entry.topic.startswith(_DEAD)
    }


def _expired(stored: Stored) -> set[tuple[str, int]]:
    """(group, sequence) of each."""
    return {(one.group, one.sequence) for one in stored.expired}


def _each_message(history: History, stored: Stored, bounds: Bounds) -> Iterator[Violation]:
    """I3: each message in each group: deliveries have causes, an ack is the end.

    Until the group begins anew: then all of that may happen again, and retries do not come.
    """
    deliveries: dict[tuple[str, int, int], list[Delivery]] = defaultdict(list)
    for one in history.deliveries:
        if one.serial is not None:
            deliveries[one.group, one.serial, life_of(stored, one)].append(one)
    finishes: dict[tuple[str, int, int], list[Finish]] = defaultdict(list)
    for finish in history.finishes:
        finishes[finish.group, finish.serial, life_of(stored, finish)].append(finish)
    over = _over(history, stored)
    for (group, serial, life), lives in deliveries.items():
        lives.sort(key=lambda one: (one.receive_ms, one.attempt, one.seen_ms))
        done = finishes[group, serial, life]
        let_go = {
            after
            for before, after in pairwise(lives)
            if ends_leases(history, before, after, bounds.clock_ms)
        }
        yield from _attempts(lives, history.groups[group][1], let_go)
        yield from _causes(lives, done, bounds, let_go)
        is_over = (group, lives[0].message_id.sequence) in over
        is_over |= life < last_life(stored, group)
        yield from _ends(lives, done, bounds, is_over=is_over, is_cut_off=history.is_cut_off)
    for key in finishes.keys() - deliveries.keys():
        yield Violation("phantom", f"{key} was finished without having come")


def _attempts(
    lives: list[Delivery], attempts_max: int, let_go: set[Delivery]
) -> Iterator[Violation]:
    """Attempts grow; the same number comes again from another mastership, and of what was let go.

    `let_go`: what came again because a reset has ended its lease that could not be written.
    """
    for before, after in pairwise(lives):
        least = before.attempt + (after.epoch == before.epoch and after not in let_go)
        if after.attempt < least or after.epoch < before.epoch:
            yield Violation("attempt", f"{before} and then {after}")
    if not 1 <= lives[-1].attempt <= attempts_max:
        yield Violation("attempt", f"of {attempts_max} at most: {lives[-1]}")


def _causes(
    lives: list[Delivery], done: list[Finish], bounds: Bounds, let_go: set[Delivery]
) -> Iterator[Violation]:
    """A message comes again after a lease has ended, was given back, or with another mastership."""
    for before, after in pairwise(lives):
        if after.epoch != before.epoch or after in let_go:
            continue
        is_over = after.receive_ms >= before.receive_ms + before.invisible_ms - 1
        is_given_back = any(
            one.verb == "nack"
            and one.attempt == before.attempt
            and after.seen_ms >= one.requested_ms + one.delay_ms - bounds.clock_ms
            for one in done
        )
        if not (is_over or is_given_back):
            yield Violation("uncaused delivery", f"{before} and then {after}")


def _ends(
    lives: list[Delivery], done: list[Finish], bounds: Bounds, *, is_over: bool, is_cut_off: bool
) -> Iterator[Violation]:
    confirmed = [one for one in done if one.is_ok]
    acks = [one for one in confirmed if one.verb == "ack"]
    if len(acks) > 1:
        yield Violation("acknowledged twice", f"{acks}")
    positions = Counter(one.attempt for one in confirmed)
    if any(count > 1 for count in positions.values()):
        yield Violation("acknowledged twice", f"one attempt, two ends: {confirmed}")
    for ack in acks:
        for one in lives:
            if one.receive_ms > ack.answered_ms + bounds.clock_ms:
                yield Violation("delivered after ack", f"{ack} and then {one}")
    for nack in confirmed:
        if nack.verb != "nack" or is_over:
            continue
        again = [one for one in lives if one.attempt > nack.attempt]
        if not again:
            if not is_cut_off:
                yield Violation("not given back", f"nothing came after {nack}")
        elif (
            min(one.seen_ms for one in again) < nack.requested_ms + nack.delay_ms - bounds.clock_ms
        ):
            yield Violation("early", f"{nack} and then {again[0]}")


# -- permissions ----------------------------------------------------------------------------------


def _let_in(history: History, bounds: Bounds) -> Iterator[Violation]:
    """I11: what is asked for when a grant is gone is refused, until there is another one."""
    changes = history.grant_changes
    for at, change in enumerate(changes):
        end_ms = changes[at + 1].requested_ms if at + 1 < len(changes) else inf
        if change.is_allowed or change.answered_ms is None:
            continue
        begin_ms = change.answered_ms + bounds.revoked_ms
        for call in history.guest_calls:
            if call.is_ok and begin_ms < call.requested_ms and call.answered_ms < end_ms:
                late_ms = call.requested_ms - change.answered_ms
                yield Violation("let in", f"{late_ms:.0f} ms after {change}: {call}")
