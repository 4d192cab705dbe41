"""What was promised of recurrences, held against what clients saw and what the log has.

Each function yields (name, text) of what was not kept: see chaos/checker.py. All recurrences of a
load publish what an outage has delayed (`Missed.ALL`), and have one interval for all their life.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from chaos.history import History, Stored


def recurring(
    history: History, stored: Stored, clock_ms: float = 0.0, lead_ms: float = 0.0
) -> Iterator[tuple[str, str]]:
    """I10: each occurrence once, none left out, none while it is paused or gone.

    `lead_ms`: this long before its due time an occurrence may have been released in the log.
    """
    yield from _twice(history, stored)
    yield from _left_out(history, stored)
    yield from _unwanted(history, stored, clock_ms, lead_ms)
    if not history.is_cut_off:
        yield from _not_seen(history, stored)


def _twice(history: History, stored: Stored) -> Iterator[tuple[str, str]]:
    """No instant of a recurrence has two messages, and no message is an occurrence by itself."""
    seen: dict[tuple[str, int], int] = {}
    for one in history.occurrences:
        sequence = one.message_id.sequence
        known = stored.occurrences.get(sequence)
        if known is None or known.number != one.number:
            yield "occurrence twice", f"the log has {known} of what was delivered: {one}"
        if seen.setdefault((one.name, one.due_ms), sequence) != sequence:
            other = seen[one.name, one.due_ms]
            yield "occurrence twice", f"sequence {other} has the instant of {one}"
    for name, every in stored.recurred.items():
        kept = [due_ms for due_ms, sequence in every if sequence not in stored.cancelled]
        for before, after in pairwise(kept):
            if after <= before:
                yield "occurrence twice", f"{name!r} is due at {before}, and then at {after}"


def _left_out(history: History, stored: Stored) -> Iterator[tuple[str, str]]:
    """From one occurrence of a version to the next it is one interval, whatever came in between."""
    versions: dict[int, dict[int, int]] = defaultdict(dict)
    for one in stored.occurrences.values():
        versions[one.version][one.number] = one.due_ms
    for version, every in versions.items():
        for (index, due_ms), (following, next_ms) in pairwise(sorted(every.items())):
            step_ms = next_ms - due_ms
            if following != index + 1 or step_ms != history.every_ms:
                text = f"version {version}: number {index} is due at {due_ms}, {following} at"
                yield "occurrence lost", f"{text} {next_ms}"


def _unwanted(
    history: History, stored: Stored, clock_ms: float, lead_ms: float
) -> Iterator[tuple[str, str]]:
    """Once it is confirmed as paused or deleted, nothing falls due until it is to go on."""
    changes = defaultdict(list)
    for change in history.changes:
        changes[change.name].append(change)
    for name, every in changes.items():
        due = [
            due_ms
            for due_ms, sequence in stored.recurred.get(name, ())
            if sequence not in stored.cancelled
        ]
        for at, one in enumerate(every):
            if one.verb not in {"pause", "delete"} or one.answered_ms is None:
                continue
            end_ms = every[at + 1].requested_ms if at + 1 < len(every) else float(1 << 62)
            for due_ms in due:
                if one.answered_ms + clock_ms + lead_ms < due_ms < end_ms - clock_ms:
                    yield "occurrence unwanted", f"{name!r} is due at {due_ms}, after {one}"


def _not_seen(history: History, stored: Stored) -> Iterator[tuple[str, str]]:
    """I1: what was released has come out."""
    seen = {one.message_id.sequence for one in history.occurrences}
    for entry in stored.queued:
        is_own = entry.topic[:1] != "%"
        if is_own and entry.sequence in stored.occurrences and entry.sequence not in seen:
            yield "not delivered", f"occurrence {stored.occurrences[entry.sequence]} never came"
