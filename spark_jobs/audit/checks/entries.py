"""Compare a stretch of a queue's entries with what the log says must stand there.

Almost always both are equal, which costs a look at each column. Where they are not, the two sets of
messages are compared: what is missing, what is too much, what stands in another order, which fields
are wrong. A lost or doubled entry moves all behind it, over the end of the stretch; so what is
missing in one stretch may be too much in the next one, and `settle` takes both away.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.ledger import BY_DISPATCH
from spark_jobs.audit.checks.releases import Slice
from spark_jobs.audit.facts.sums import hash_units
from spark_jobs.runtime.instants import exact_instant_text
from storage.views.unit import Units

Array = NDArray[Any]

_MOVED_MAX: Final = 100_000
"""So many missing and so many extra entries of one stretch are listed; more are only counted."""
_WRONG_MAX: Final = 100
_FIELDS: Final = (
    "due_ms",
    "store_ms",
    "topic_queue",
    "origin_topic",
    "attempt",
    "crc, lengths or tag gene",
    "place",
)
_FACTS, _PLACE = _FIELDS[-2:]
_ELSEWHERE: Final = (1 << 64) - 1
"""The place of an entry whose message lies in a delay log: `audit.bodies` looks there."""
_INSTANTS: Final = ("due_ms", "store_ms")
_STRAY: Final = "it is not in its place in the order of release; maybe not the only one"


class Place(NamedTuple):
    """Where entries are: one queue of one node."""

    node: str
    topic_queue: int


class Odd(NamedTuple):
    """An entry that is missing or too much."""

    sequence: int
    attempt: int
    position: int
    """Where it should be, or is."""
    offset: int
    """Of the record that released it; -1 for one too much."""
    due_ms: int
    file: str
    fields: tuple[int, ...] = ()
    """What it must say, or says: as `_FIELDS`."""


class Wrong(NamedTuple):
    """An entry whose message is right and something else is not."""

    check: str
    """`queue-fields`, `queue-order`, `body-lost` or `body-wrong`."""
    sequence: int
    position: int
    due_ms: int
    file: str
    detail: str


@dataclass
class EntryDiff:
    """How the entries of one queue of one node differ from the log."""

    compared: int = 0
    missing: list[Odd] = field(default_factory=list)
    extra: list[Odd] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)
    uncounted: int = 0
    """Missing or too much, beyond what is listed."""
    last: tuple[int, int] = (-1, -1)
    """Of the last entry whose message the same stretch must have: where it is, where it belongs."""

    @property
    def is_equal(self) -> bool:
        """Nothing differs."""
        return not (self.missing or self.extra or self.wrong or self.uncounted)

    def merge(self, other: "EntryDiff") -> None:
        """Take in what another stretch has."""
        self.compared += other.compared
        self.missing += other.missing
        self.extra += other.extra
        self.wrong += other.wrong
        self.uncounted += other.uncounted
        self.last = max(self.last, other.last)


class Piece(NamedTuple):
    """Neighbouring entries of one chunk; `units` None: they cannot be read."""

    first: int
    size: int
    """How many."""
    units: Units | None
    file: str


def compare(one: Slice, pieces: Iterable[Piece], log_start: int) -> EntryDiff:
    """Compare what must stand at the positions of a slice with what does.

    Args:
        one: what the log says.
        pieces: the entries of those positions, or of the first of them, in order.
        log_start: bytes of the log below it are gone.
    """
    diff = EntryDiff()
    odd: list[tuple[Slice, Piece]] = []
    for piece in pieces:
        low, high = piece.first - one.first, piece.first - one.first + piece.size
        part = _part(one, low, high)
        if piece.units is None:
            continue
        diff.compared += len(piece.units)
        _check_places(piece, log_start, diff)
        wanted, found = part.rows["sequence"], piece.units["sequence"]
        if (
            len(wanted) == len(found)
            and bool((wanted == found).all())
            and _tries_agree(part, piece)
        ):
            _check_fields(_fields(part), piece.units, partial(_at, piece), diff)
            if len(found):
                end = piece.first + len(found) - 1
                diff.last = max(diff.last, (end, end))
        else:
            odd.append((part, piece))
    if odd:
        _tell_apart(odd, diff)
    return diff


def _tries_agree(part: Slice, piece: Piece) -> bool:
    """A message may be in a queue of retries once for each attempt."""
    return part.attempts is None or bool((_units(piece)["attempt"] == part.attempts).all())


def _at(piece: Piece, inside: int) -> tuple[Piece, int]:
    return piece, inside


def _part(one: Slice, low: int, high: int) -> Slice:
    cut = slice(low, high)
    return Slice(
        one.topic_queue,
        one.first + low,
        one.rows[cut],
        None if one.attempts is None else one.attempts[cut],
        None if one.origins is None else one.origins[cut],
    )


def _check_places(piece: Piece, log_start: int, diff: EntryDiff) -> None:
    """What entries in the log's own bytes point at must still be there."""
    units = piece.units
    if not log_start or units is None:
        return
    lost = np.flatnonzero((units["dlog_id"] == 0) & (units["position"] < log_start))
    for at in lost[:_WRONG_MAX].tolist():
        detail = f"points to offset {int(units['position'][at])} of a log that begins later"
        diff.wrong.append(_wrong("body-lost", piece, at, detail))


def _wrong(check: str, piece: Piece, at: int, detail: str) -> Wrong:
    unit = _units(piece)[at]
    due = int(unit["due_ms"])
    return Wrong(check, int(unit["sequence"]), piece.first + at, due, piece.file, detail)


def _fields(part: Slice) -> tuple[Array, ...]:
    """What entries must say, a column each: as `_FIELDS`."""
    rows = part.rows
    origins = rows["topic_queue"] >> QUEUE_BITS if part.origins is None else part.origins
    return (
        rows["due_ms"],
        rows["store_ms"],
        rows["topic_queue"],
        origins,
        _attempts(part),
        rows["facts"],
        rows["place"],
    )


def _fields_of(units: Units) -> tuple[Array, ...]:
    """What entries say."""
    facts = hash_units(units["tag_gene"], units["crc"], units["body_len"], units["meta_len"])
    place = np.where(units["dlog_id"] == 0, units["position"], np.uint64(_ELSEWHERE))
    return (*(units[name] for name in _FIELDS[:-2]), facts, place)


def _check_fields(
    wanted: tuple[Array, ...],
    units: Units,
    place: Callable[[int], tuple[Piece, int]],
    diff: EntryDiff,
) -> None:
    """Compare the fields of entries of the same messages; `place`: where each unit stands."""
    for name, mine, theirs in zip(_FIELDS, wanted, _fields_of(units), strict=True):
        if bool((mine == theirs).all()):
            continue
        differs = (mine != theirs) & ((theirs != _ELSEWHERE) if name == _PLACE else True)
        for at in np.flatnonzero(differs)[:_WRONG_MAX].tolist():
            detail = _difference(name, int(mine[at]), int(theirs[at]))
            diff.wrong.append(_wrong(_check_of(name), *place(at), detail))


def _check_of(name: str) -> str:
    return "body-wrong" if name == _PLACE else "queue-fields"


def _difference(name: str, mine: int, theirs: int) -> str:
    if name == _FACTS:
        return f"its {name} are not those of the message"
    if name in _INSTANTS:
        return f"its {name} is {exact_instant_text(theirs)} and not {exact_instant_text(mine)}"
    if name == _PLACE:
        return f"it points to offset {theirs} of the log, and its message lies at {mine}"
    return f"its {name} is {theirs} and not {mine}"


def _tell_apart(odd: list[tuple[Slice, Piece]], diff: EntryDiff) -> None:
    """Compare the sets of messages of pieces that are not the same, all of a stretch together."""
    wanted = np.concatenate([part.rows["sequence"] for part, _ in odd])
    attempts = np.concatenate(
        [
            np.ones(len(part.rows), np.uint32) if part.attempts is None else part.attempts
            for part, _ in odd
        ]
    )
    found = np.concatenate([_units(piece)["sequence"] for _, piece in odd])
    tries = np.concatenate([_tries(part, piece) for part, piece in odd])
    mine, theirs = _paired(_keys(wanted, attempts), _keys(found, tries))
    is_lost = np.ones(len(wanted), np.bool_)
    is_lost[mine] = False
    is_more = np.ones(len(found), np.bool_)
    is_more[theirs] = False
    lost, more = np.flatnonzero(is_lost), np.flatnonzero(is_more)
    diff.uncounted += max(0, len(lost) - _MOVED_MAX) + max(0, len(more) - _MOVED_MAX)
    columns = [
        np.concatenate(each) for each in zip(*(_fields(part) for part, _ in odd), strict=True)
    ]
    units = np.concatenate([_units(piece) for _, piece in odd])
    rows = np.concatenate([part.rows for part, _ in odd])
    positions = np.concatenate([part.first + np.arange(len(part.rows)) for part, _ in odd])
    for at in lost[:_MOVED_MAX].tolist():
        row = rows[at]
        offset = int(row["offset"] & ~BY_DISPATCH)
        diff.missing.append(
            Odd(
                int(row["sequence"]),
                int(attempts[at]),
                int(positions[at]),
                offset,
                int(row["due_ms"]),
                odd[0][1].file,
                tuple(int(column[at]) for column in columns),
            )
        )
    places = [(piece, at) for _, piece in odd for at in range(len(_units(piece)))]
    for at in more[:_MOVED_MAX].tolist():
        piece, inside = places[at]
        unit = _units(piece)[inside]
        diff.extra.append(
            Odd(
                int(unit["sequence"]),
                int(tries[at]),
                piece.first + inside,
                -1,
                int(unit["due_ms"]),
                piece.file,
                tuple(int(column[0]) for column in _fields_of(units[at : at + 1])),
            )
        )
    if len(theirs):
        at = int(np.argmax(theirs))
        piece, inside = places[int(theirs[at])]
        diff.last = max(diff.last, (piece.first + inside, int(positions[mine[at]])))
    ranks = np.argsort(np.argsort(mine[np.argsort(theirs, kind="stable")], kind="stable"))
    strays = np.flatnonzero(ranks != np.arange(len(ranks)))
    if len(strays):
        piece, inside = places[int(np.sort(theirs)[strays[0]])]
        diff.wrong.append(_wrong("queue-order", piece, inside, _STRAY))
    pairs = tuple(column[mine] for column in columns)
    _check_fields(pairs, units[theirs], lambda at: places[int(theirs[at])], diff)


def _attempts(part: Slice) -> Array:
    """What entries must say of it: of a message that was moved, 0 at its first release."""
    if part.attempts is None:
        return np.uint32(1) - part.rows["was_moved"]
    return part.attempts


def _tries(part: Slice, piece: Piece) -> Array:
    """The attempts that distinguish entries of one message: in a topic's own queue all are 1."""
    if part.attempts is None:
        return np.ones(len(_units(piece)), np.uint32)
    return _units(piece)["attempt"].astype(np.uint32)


def _units(piece: Piece) -> Units:
    return errors.required(piece.units, "a piece that is compared has units")


_KEY: Final = np.dtype([("sequence", "<u8"), ("attempt", "<u4"), ("copy", "<u4")])


def _keys(sequences: Array, attempts: Array) -> Array:
    """Keys that are unique: how often a message came before is a part of them."""
    keys = np.zeros(len(sequences), _KEY)
    keys["sequence"], keys["attempt"] = sequences, attempts
    order = np.lexsort((attempts, sequences))
    ordered = keys[order]
    same = (ordered["sequence"][1:] == ordered["sequence"][:-1]) & (
        ordered["attempt"][1:] == ordered["attempt"][:-1]
    )
    starts = np.flatnonzero(np.concatenate((np.ones(min(1, len(order)), np.bool_), ~same)))
    counts = np.diff(starts, append=len(order))
    keys["copy"][order] = np.arange(len(order)) - np.repeat(starts, counts)
    return keys


def _paired(mine: Array, theirs: Array) -> tuple[Array, Array]:
    """Ordinals of keys that both have."""
    _, first, second = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    return first, second


def settle(diff: EntryDiff, *, is_open: bool = False) -> EntryDiff:
    """Take away what is missing in one stretch and too much in another: it only moved.

    What moved by as many positions as were lost and added before it is in order; of what did not,
    and of what stretches have found out of order, the first one stays, as `queue-order`.
    """
    left = Counter((one.sequence, one.attempt) for one in diff.missing)
    extra, moved = list[Odd](), dict[tuple[int, int], list[Odd]]()
    for one in sorted(diff.extra, key=lambda each: each.position):
        key = (one.sequence, one.attempt)
        if left[key] > 0:
            left[key] -= 1
            moved.setdefault(key, []).append(one)
        else:
            extra.append(one)
    missing, pairs = list[Odd](), list[tuple[Odd, Odd]]()
    for one in sorted(diff.missing, key=lambda each: -each.position):
        key = (one.sequence, one.attempt)
        if left[key] > 0:
            left[key] -= 1
            missing.append(one)
        else:
            pairs.append((one, moved[key].pop()))
    missing.reverse()
    if is_open:
        missing, extra = _without_pushed(diff.last, pairs, missing, extra)
    fields = [wrong for pair in pairs for wrong in _wrong_fields(*pair)]
    strays = [] if diff.uncounted else _strays(pairs, missing, extra)
    strays += [one for one in diff.wrong if one.check == "queue-order"]
    wrong = [one for one in diff.wrong if one.check != "queue-order"]
    wrong += fields
    wrong += sorted(strays, key=lambda one: one.position)[:1]
    return EntryDiff(diff.compared, missing, extra, wrong, diff.uncounted, diff.last)


def _without_pushed(
    last: tuple[int, int], pairs: list[tuple[Odd, Odd]], missing: list[Odd], extra: list[Odd]
) -> tuple[list[Odd], list[Odd]]:
    """Without what was moved over the end of what was read, by as much as the last entry was."""
    stand, belong = max([last, *((there.position, mine.position) for mine, there in pairs)])
    pushed = [one for one in missing if one.position > belong]
    pushed = pushed[len(pushed) - min(len(pushed), max(0, stand - belong)) :]
    pulled = [one for one in extra if one.position > stand]
    pulled = pulled[len(pulled) - min(len(pulled), max(0, belong - stand)) :]
    return [one for one in missing if one not in pushed], [
        one for one in extra if one not in pulled
    ]


def _wrong_fields(mine: Odd, theirs: Odd) -> list[Wrong]:
    """How an entry that only moved differs from its message."""
    columns = zip(_FIELDS, mine.fields, theirs.fields, strict=True)
    return [
        Wrong(
            _check_of(name),
            theirs.sequence,
            theirs.position,
            theirs.due_ms,
            theirs.file,
            _difference(name, wanted, found),
        )
        for name, wanted, found in columns
        if wanted != found and not (name == _PLACE and found == _ELSEWHERE)
    ]


def _strays(pairs: list[tuple[Odd, Odd]], missing: list[Odd], extra: list[Odd]) -> list[Wrong]:
    """Of (where an entry belongs, where it is) those that others overtook."""
    lost = np.array([one.position for one in missing], np.int64)
    more = np.array([one.position for one in extra], np.int64)
    belong = np.array([one.position for one, _ in pairs], np.int64)
    stand = np.array([one.position for _, one in pairs], np.int64)
    shift = np.searchsorted(more, stand) - np.searchsorted(lost, belong)
    return [
        Wrong(
            "queue-order",
            pairs[at][1].sequence,
            pairs[at][1].position,
            pairs[at][1].due_ms,
            pairs[at][1].file,
            _STRAY,
        )
        for at in np.flatnonzero(stand - belong != shift).tolist()
    ]
