"""What is left of a cluster whose processes have all ended: each node's log, views and words.

Pure: `chaos/autopsy.py` reads the files. The promises, by name:

    I4  two masters
    I5  log differs, log too short, views differ, views and log differ
    I8  damaged
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from chaos.checker import Bounds, Violation
from chaos.history import History


@dataclass(frozen=True)
class Copy:
    """One node's."""

    node: str
    log: bytes = field(repr=False)
    """From `start_offset` to where the nodes were when they were quiet, or as far as it goes."""
    start_offset: int = 0
    """First offset that it has: later ones begin with a snapshot of the views."""
    restored: str = ""
    """Digest of the views from its checkpoint and the log behind it."""
    rebuilt: str = ""
    """Digest of the views from its log alone; empty where its log begins later."""
    fault: str = ""
    """Why there are no digests."""
    counts: dict[str, int] = field(default_factory=dict)
    """Of its status, while it ran: what is pending, cancelled."""
    epochs: tuple[int, ...] = ()
    """Epochs in which it said to be the master."""


def check_copies(copies: Sequence[Copy], until_offset: int) -> Iterator[Violation]:
    """I5, I8: all logs are the same up to an offset, and so are all views.

    Args:
        copies: of all nodes.
        until_offset: the high watermark when the nodes were quiet.
    """
    first = min(copies, key=lambda one: (one.start_offset, -len(one.log)))
    for one in copies:
        start, end = one.start_offset, one.start_offset + len(one.log)
        if end < until_offset:
            yield Violation("log too short", f"{one.node} has {end} of {until_offset}")
        other = first.log[start - first.start_offset : until_offset - first.start_offset]
        at = _first_difference(one.log[: until_offset - start], other)
        if at is not None:
            yield Violation("log differs", f"{one.node} and {first.node}, from {start + at} on")
        if one.fault:
            yield Violation("damaged", f"{one.node}: {one.fault}")
        elif one.rebuilt and one.restored != one.rebuilt:
            yield Violation("views differ", f"{one.node}'s from what its own log says: {one}")
    for one in copies:
        if not one.fault and not first.fault and one.restored != first.restored:
            yield Violation("views differ", f"{one.node}'s from {first.node}'s")


def _first_difference(one: bytes, other: bytes) -> int | None:
    """Where two begin to differ; that one is longer is no difference."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return None
    return next(at for at in range(length) if one[at] != other[at])


def check_counts(copies: Iterable[Copy], expected: dict[str, int]) -> Iterator[Violation]:
    """I5: what the views counted while the nodes ran is what the log says."""
    for one in copies:
        for name, count in one.counts.items():
            if name in expected and count != expected[name]:
                text = f"{one.node} counts {count} {name}, and the log {expected[name]}"
                yield Violation("views and log differ", text)


def check_masterships(
    copies: Iterable[Copy], history: History, bounds: Bounds
) -> Iterator[Violation]:
    """I4: one master an epoch, and an old one hands out nothing once a new one does."""
    masters: dict[int, set[str]] = defaultdict(set)
    for one in copies:
        for epoch in one.epochs:
            masters[epoch].add(one.node)
    for epoch, nodes in masters.items():
        if len(nodes) > 1:
            yield Violation("two masters", f"in epoch {epoch}: {sorted(nodes)}")
    begun: dict[int, int] = {}
    for delivery in history.deliveries:
        epoch, at_ms = delivery.epoch, delivery.receive_ms
        begun[epoch] = min(begun.get(epoch, at_ms), at_ms)
    next_begun: dict[int, int] = {}
    earliest = None
    for epoch in sorted(begun, reverse=True):
        if earliest is not None:
            next_begun[epoch] = earliest
        earliest = begun[epoch] if earliest is None else min(earliest, begun[epoch])
    for delivery in history.deliveries:
        later = next_begun.get(delivery.epoch)
        if later is not None and delivery.receive_ms > later + bounds.clock_ms:
            yield Violation("two masters", f"another mastership served from {later} on: {delivery}")
