"""The gaps without any dispatch, and the messages that were late because of them, in words.

Consecutive DISPATCH records that were late follow on one gap: they release what piled up in it. A
new gap begins where no master dispatched for longer than the tolerance.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.catalog import Timeline
from spark_jobs.audit.checks.dispatch import DispatchTable
from spark_jobs.audit.checks.retries import Scheduled
from spark_jobs.audit.facts.findings import Finding, FindingSet
from spark_jobs.audit.facts.lateness import LATE, OVERDUE, LateSums
from spark_jobs.audit.facts.scan import LogFacts
from spark_jobs.logs.replica import WARNING
from spark_jobs.runtime.instants import exact_instant_text, span_text

Array = NDArray[Any]
_EPOCHS_REPORTED: Final = 5


def late_retries(
    scheduled: Iterable[Scheduled],
    table: DispatchTable,
    line: Timeline,
    last_store_ms: int,
    tolerance: int,
) -> Array:
    """LATE[m] of retries; see `late_rows`. `last_store_ms`: of the log's end; -1: not known."""
    rows = []
    places = {int(offset): at for at, offset in enumerate(table.offset)}
    for one in scheduled:
        if line.deleted.get(one.topic_queue >> QUEUE_BITS, 1 << 62) < one.end < OVERDUE:
            continue  # it was discarded
        at = places.get(one.end, OVERDUE)
        if at == OVERDUE and one.end < OVERDUE:
            continue  # by no DISPATCH: when it was asked for
        visible = int(table.store_ms[at]) if at < OVERDUE else last_store_ms
        unit = one.unit
        if visible - unit.due_ms > tolerance:
            late = visible - unit.due_ms
            rows.append((unit.sequence, unit.due_ms, late, at, one.topic_queue, unit.attempt))
    return np.array(rows, LATE)


# --- in words -----------------------------------------------------------------------------------


def lateness_findings(
    late: LateSums,
    table: DispatchTable,
    facts: LogFacts,
    line: Timeline,
    shard: int,
    tolerance: int,
) -> FindingSet:
    """A finding for each gap, and the messages that were late because of it.

    Args:
        late: of the whole log.
        table: its DISPATCH records.
        facts: its epochs.
        line: its topics.
        shard: for the findings.
        tolerance: so many ms behind its due time a message still counts as on time.
    """
    found, teller = FindingSet(), _Teller(table, facts, line, shard, tolerance)
    is_overdue = late.sums["dispatch"] == OVERDUE
    groups = _gaps(late.sums[~is_overdue], table, tolerance)
    if is_overdue.any():
        groups.append(late.sums[is_overdue])
    for group in groups:
        numbers = late.kept["dispatch"]
        rows = late.kept[(numbers >= group["dispatch"][0]) & (numbers <= group["dispatch"][-1])]
        gap = teller.gap(group)
        found.add([gap])
        found.add(teller.message(row, gap) for row in np.sort(rows, order="sequence"))
        found.count_more(WARNING, "message-late", shard, int(group["count"].sum()) - len(rows))
    return found


def _gaps(sums: Array, table: DispatchTable, tolerance: int) -> list[Array]:
    """The rows that follow on one gap each."""
    if not len(sums):
        return []
    numbers = sums["dispatch"]
    stamps = table.store_ms[numbers]
    is_apart = (numbers[1:] != numbers[:-1] + 1) | (stamps[1:] - stamps[:-1] > tolerance)
    return np.split(sums, np.flatnonzero(is_apart) + 1)


class _Teller:
    """Puts gaps and late messages into words."""

    def __init__(
        self, table: DispatchTable, facts: LogFacts, line: Timeline, shard: int, tolerance: int
    ) -> None:
        self._table, self._facts, self._line = table, facts, line
        self._shard, self._tolerance = shard, tolerance

    def gap(self, group: Array) -> Finding:
        """Of LATE_SUM rows with one cause."""
        first, last = int(group["dispatch"][0]), int(group["dispatch"][-1])
        count, late = int(group["count"].sum()), span_text(int(group["late"].max()))
        due_min, due_max = int(group["due_min"].min()), int(group["due_max"].max())
        which = "1 message" if count == 1 else f"{count:,} messages"
        which += f", due {exact_instant_text(due_min)}"
        if due_max > due_min:
            which += f" to {exact_instant_text(due_max)}"
        check, offset = "dispatch-late", -1
        if first == OVERDUE:
            check, end_ms = "dispatch-overdue", self._facts.last.store_ms if self._facts.last else 0
            why = f"pending when the log ends at {exact_instant_text(end_ms)}, {late} late by then:"
            why += f" {self._before(len(self._table))}"
        else:
            offset = int(self._table.offset[first])
            why = f"released up to {late} late: {self._pause(first, last, due_min)}"
        detail = f"{which}, {why}"
        return Finding(
            WARNING, check, self._shard, "", offset=offset, due_ms=due_min, detail=detail
        )

    def _pause(self, first: int, last: int, due_min: int) -> str:
        """The time in which no master dispatched, or in which dispatching was behind."""
        table, to_ms = self._table, int(self._table.store_ms[first])
        before_ms = int(table.store_ms[first - 1]) if first else self._facts.first_store_ms
        from_ms = min(max(before_ms, due_min), to_ms)
        if to_ms - from_ms <= self._tolerance:
            said = f"dispatching was behind from {exact_instant_text(due_min)} to"
            said += f" {exact_instant_text(int(table.store_ms[last]))}"
        else:
            said = f"no master dispatched from {exact_instant_text(from_ms)} to"
            said += f" {exact_instant_text(to_ms)} ({span_text(to_ms - from_ms)})"
        offset, low = int(table.offset[first]), int(table.offset[first - 1]) if first else 0
        said += f"; {self._before(first)}, the first one behind it of epoch {self._epoch(offset)}"
        begun = [one for one in self._facts.epoch_starts if low < one.offset < offset]
        if begun:
            when = [f"{one.epoch} at {exact_instant_text(one.store_ms)}" for one in begun]
            more = ", ..." if len(when) > _EPOCHS_REPORTED else ""
            said += f"; epochs that began meanwhile: {', '.join(when[:_EPOCHS_REPORTED])}{more}"
        return said

    def _before(self, at: int) -> str:
        """The DISPATCH in front of one, by its ordinal."""
        if not at:
            return "there is no DISPATCH before it"
        when = exact_instant_text(int(self._table.store_ms[at - 1]))
        epoch = self._epoch(int(self._table.offset[at - 1]))
        return f"the last DISPATCH before is of epoch {epoch}, {when}"

    def _epoch(self, offset: int) -> int:
        """That a record at an offset is of."""
        begun = [one.epoch for one in self._facts.epoch_starts if one.offset <= offset]
        return begun[-1] if begun else self._facts.first.epoch if self._facts.first else 0

    def message(self, row: Array, gap: Finding) -> Finding:
        """Of a row of `LATE`."""
        cause = f"{gap.check} at offset {gap.offset}" if gap.offset >= 0 else gap.check
        at, due_ms = int(row["dispatch"]), int(row["due_ms"])
        detail, offset = f"due {exact_instant_text(due_ms)}", -1
        if row["attempt"] > 1:
            detail += f", attempt {int(row['attempt'])}"
        if at == OVERDUE:
            detail += ", is pending"
        else:
            offset = int(self._table.offset[at])
            detail += f", was released {exact_instant_text(int(self._table.store_ms[at]))}"
        return Finding(
            WARNING,
            "message-late",
            self._shard,
            "",
            offset=offset,
            sequence=int(row["sequence"]),
            topic=self._line.name_of(int(row["topic_queue"]) >> QUEUE_BITS),
            due_ms=due_ms,
            detail=f"{detail}, {span_text(int(row['late_ms']))} late",
            cause=cause,
        )
