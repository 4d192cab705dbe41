"""The dispatch table: which DISPATCH record releases a message, for millions at once.

Keys of DISPATCH records ascend, so the first record that reaches a key is found by bisection. Many
records may end in one millisecond (a hot second is released in pieces), and then the sequence
decides. What the chain of records gets wrong is a finding; from there on the table goes by the
highest key so far, as a replica that trusted the record would.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_jobs.audit.facts.findings import Finding
from spark_jobs.logs.replica import ERROR, INFO

Array = NDArray[Any]
I64 = NDArray[np.int64]
LEAD_MS_MAX: Final = 1_000
"""The longest lead that a node may be configured to."""
_FINDINGS_MAX: Final = 100
_TABLE_MIN: Final = 1_024
KEY_MIN: Final = (-1, 0)


def positions(ascending: I64, values: I64) -> I64:
    """int64[m]: `np.searchsorted(ascending, values, "left")`.

    By a table of all answers where values are many and close together, which takes a tenth of the
    time: values are due times of one stretch of the log, mostly.
    """
    if len(values) < _TABLE_MIN:
        return np.searchsorted(ascending, values, "left")
    low, high = int(values.min()), int(values.max())
    if high - low > len(values):
        return np.searchsorted(ascending, values, "left")
    table = np.searchsorted(ascending, np.arange(low, high + 1), "left")
    return table[values - low]


class DispatchTable(NamedTuple):
    """All DISPATCH records of a shard, in the order of the log."""

    offset: Array
    """uint64[n]."""
    store_ms: I64
    to_due_ms: I64
    """int64[n], never falling."""
    to_sequence: Array
    """uint64[n]; keys (to_due_ms, to_sequence) never fall."""

    def __len__(self) -> int:
        return len(self.offset)

    def before(self, offsets: Array) -> I64:
        """int64[m]: how many records lie before each offset."""
        return np.searchsorted(self.offset, offsets, "left")

    def reaching(self, due_ms: I64, sequences: Array) -> I64:
        """int64[m]: the first record whose key is >= each key; n where none reaches it."""
        found = positions(self.to_due_ms, due_ms)
        if not len(self):
            return found
        at = np.minimum(found, len(self) - 1)
        tied = np.flatnonzero((self.to_due_ms[at] == due_ms) & (self.to_sequence[at] < sequences))
        if len(tied):
            found[tied] = self._in_tie(due_ms[tied], sequences[tied])
        return found

    def _in_tie(self, due_ms: I64, sequences: Array) -> I64:
        """The same for keys whose millisecond several records end in."""
        order = np.argsort(due_ms, kind="stable")
        found = np.empty(len(due_ms), np.int64)
        due, wanted = due_ms[order], sequences[order]
        cuts = np.flatnonzero(np.concatenate(([True], due[1:] != due[:-1])))
        for low, high in zip(cuts, np.append(cuts[1:], len(due)), strict=True):
            first = int(np.searchsorted(self.to_due_ms, due[low], "left"))
            end = int(np.searchsorted(self.to_due_ms, due[low], "right"))
            at = np.searchsorted(self.to_sequence[first:end], wanted[low:high], "left")
            found[order[low:high]] = first + at
        return found

    def cursor_at(self, offset: int) -> tuple[int, int]:
        """The key up to which everything is released where a record at `offset` is applied."""
        count = int(np.searchsorted(self.offset, np.uint64(offset), "left"))
        if not count:
            return KEY_MIN
        return int(self.to_due_ms[count - 1]), int(self.to_sequence[count - 1])


def build_table(
    records: Array, shard: int, *, lead_ms_max: int = LEAD_MS_MAX, is_whole: bool = True
) -> tuple[DispatchTable, list[Finding]]:
    """The table, and what is wrong with the chain of DISPATCH records.

    Args:
        records: `audit_records.DISPATCH`[n], in the order of the log.
        shard: for the findings.
        lead_ms_max: a record may reach so far ahead of its store_ms.
        is_whole: the log begins at 0, and so does the chain; else with whatever comes first.
    """
    count = len(records)
    due = records["to_due_ms"].astype(np.int64)
    sequence = records["to_sequence"].astype(np.uint64)
    if not count:
        empty = np.empty(0, np.uint64)
        return DispatchTable(empty, due, due, empty), []
    before_due = np.concatenate(([KEY_MIN[0]], due[:-1]))
    before_sequence = np.concatenate((np.array([KEY_MIN[1]], np.uint64), sequence[:-1]))
    if not is_whole:
        before_due[0], before_sequence[0] = records["prev_due_ms"][0], records["prev_sequence"][0]
    breaks = (records["prev_due_ms"] != before_due) | (records["prev_sequence"] != before_sequence)
    falls = (due < before_due) | ((due == before_due) & (sequence < before_sequence))
    found: list[Finding] = []
    for at in np.flatnonzero(breaks | falls)[:_FINDINGS_MAX].tolist():
        row = records[at]
        prev = (int(row["prev_due_ms"]), int(row["prev_sequence"]))
        last = (int(before_due[at]), int(before_sequence[at]))
        if (prev, (int(due[at]), int(sequence[at]))) == (_prev(records, at - 1), last):
            detail = f"a second DISPATCH from {prev} to {last}: doubled"
        elif prev > last:
            detail = f"begins at key {prev}, and the one before ends at {last}: dropped in between"
        else:
            detail = f"begins at key {prev}, and the one before ends at {last}"
        if falls[at]:
            detail += "; it goes back"
        found.append(_finding("dispatch-chain", row, shard, detail))
    early = due - records["store_ms"] > lead_ms_max
    for at in np.flatnonzero(early)[:_FINDINGS_MAX].tolist():
        row = records[at]
        ahead = int(due[at]) - int(row["store_ms"])
        detail = f"released up to {int(due[at])}, {ahead} ms ahead of its store_ms"
        found.append(_finding("dispatch-early", row, shard, detail))
    if falls.any():
        due, sequence = _rising(due, sequence)
    offsets = records["offset"].astype(np.uint64)
    return DispatchTable(offsets, records["store_ms"].astype(np.int64), due, sequence), found


def begin_at(table: DispatchTable, cursor: tuple[int, int], offset: int) -> DispatchTable:
    """The table with one more record in front, for all that came before a log's first `offset`."""
    due_ms, sequence = cursor
    return DispatchTable(
        np.concatenate((np.array([max(offset - 1, 0)], np.uint64), table.offset)),
        np.concatenate((np.array([0], np.int64), table.store_ms)),
        np.concatenate((np.array([due_ms], np.int64), table.to_due_ms)),
        np.concatenate((np.array([sequence], np.uint64), table.to_sequence)),
    )


def _prev(records: Array, at: int) -> tuple[int, int]:
    return int(records["prev_due_ms"][at]), int(records["prev_sequence"][at])


def _rising(due: I64, sequence: Array) -> tuple[I64, Array]:
    keys, high = [], KEY_MIN
    for key in zip(due.tolist(), sequence.tolist(), strict=True):
        high = max(high, key)
        keys.append(high)
    return (
        np.array([one[0] for one in keys], np.int64),
        np.array([one[1] for one in keys], np.uint64),
    )


def _finding(check: str, row: Array, shard: int, detail: str) -> Finding:
    return Finding(
        ERROR,
        check,
        shard,
        "",
        offset=int(row["offset"]),
        due_ms=int(row["to_due_ms"]),
        detail=detail,
    )


# --- the lagged check of DISPATCH records -------------------------------------------------------

SUM: Final = np.dtype([("offset", "<u8"), ("count", "<u8"), ("mix", "<u8")])
"""How many units a record released, and the sum of their mixed sequences."""


def sums_by_record(offsets: Array, sequences: Array) -> Array:
    """SUM[m]: one row a releasing record, ascending.

    Args:
        offsets: uint64[n]: of the record that released each unit; ascending.
        sequences: uint64[n]: of the units.
    """
    if not len(offsets):
        return np.empty(0, SUM)
    firsts = np.flatnonzero(np.concatenate(([True], offsets[1:] != offsets[:-1])))
    found = np.zeros(len(firsts), SUM)
    found["offset"] = offsets[firsts]
    found["count"] = np.diff(firsts, append=len(offsets))
    found["mix"] = np.add.reduceat(mixed(sequences), firsts)
    return found


def mixed(sequences: Array) -> Array:
    """uint64[n]: what `timewheel.cursor.mix` sums."""
    z = sequences + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_: Array = z ^ (z >> np.uint64(31))
    return mixed_


def check_sums(records: Array, sums: Array, shard: int, *, is_whole: bool) -> list[Finding]:
    """Compare what the log releases with what each DISPATCH says was released before.

    Of a log that does not begin at 0 only differences between records are known, and what was
    published before it is missing in them: then nothing is compared.

    Args:
        records: `audit_records.DISPATCH`[n].
        sums: SUM[m] of all units, retries and dead letters included, in any order.
        shard: for the findings.
        is_whole: the log begins at 0.
    """
    if not len(records) or not is_whole:
        return []
    sums = sums[np.argsort(sums["offset"], kind="stable")]
    counts = np.concatenate((np.zeros(1, np.uint64), np.cumsum(sums["count"], dtype=np.uint64)))
    mixes = np.concatenate((np.zeros(1, np.uint64), np.cumsum(sums["mix"], dtype=np.uint64)))
    at = np.searchsorted(sums["offset"], records["check_offset"], "left")
    wrong = (counts[at] != records["check_count"]) | (mixes[at] != records["check_mix"])
    if not wrong.any():
        return []
    # One slip makes all that follow wrong by the same amount: tell where the difference changes.
    off_count = records["check_count"] - counts[at]
    off_mix = records["check_mix"] - mixes[at]
    changes = np.ones(len(records), np.bool_)
    changes[1:] = (off_count[1:] != off_count[:-1]) | (off_mix[1:] != off_mix[:-1])
    changes[0] = bool(wrong[0])
    found = []
    for one in np.flatnonzero(changes)[:_FINDINGS_MAX].tolist():
        row = records[one]
        below = int(row["check_offset"])
        reported, mine = int(row["check_count"]), int(counts[at[one]])
        same = " (other messages)" if reported == mine else ""
        detail = (
            f"says that {reported} were released below {below}, and the log released {mine}{same}"
        )
        if not wrong[one]:
            detail = f"from here on the sums of what was released below {below} agree again"
        finding = _finding("dispatch-check", row, shard, detail)
        found.append(finding if wrong[one] else finding._replace(severity=INFO))
    return found
