"""What is pending: the log's word against every replica's delay index and checkpoint."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.directories import ChainTask, broken_chains, plan_chains
from spark_jobs.audit.checks.ledger import NEVER, LedgerPlan, find_states
from spark_jobs.audit.checks.retries import Retries, Scheduled
from spark_jobs.audit.checks.wheel import (
    UNIT_KEY,
    UNIT_ROW,
    DelayLogs,
    WheelPart,
    WheelRange,
    delay_log_faults,
    keys_of_hours,
    not_in,
    plan_delay_logs,
    plan_wheel,
    sum_wheel,
    unit_keys,
)
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.audit.facts.sums import HOUR_MS, HourSums, times_ms, tries_of
from spark_jobs.audit.shard import ShardState, checkpoint_limit
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.replica import ERROR, ShardCopy
from spark_jobs.logs.segment_reader import HEADERS, read_blocks
from spark_jobs.runtime.instants import exact_instant_text
from spark_jobs.runtime.runner import Shared

if TYPE_CHECKING:
    from spark_jobs.audit.join import Joining

Array = NDArray[Any]
_REST: Final = "CRC, lengths, store_ms or tag gene"
_UNITS_REPORTED_MAX: Final = 1_000_000
"""Units of differing hours that are looked at one by one."""


def compare_wheels(state: ShardState, retries: Retries) -> dict[str, int]:
    """Compare every replica's delay index with what the log had pending at its checkpoint.

    Returns:
        Node -> pending units that were looked at.
    """
    began = state.now_ms()
    tasks: list[WheelRange] = []
    delay_logs: list[DelayLogs] = []
    chains: list[ChainTask] = []
    chosen: list[tuple[str, ShardCopy]] = []
    for replica, copy in state.copies:
        manifest = copy.manifest
        if manifest is None or not copy.applied_offset:
            reason = "no checkpoint says which of its runs count, and what they must hold"
            state.note("wheel", "checkpoint-missing", reason, replica.node)
        elif copy.applied_offset > state.end_offset:
            state.note("wheel", *checkpoint_limit(state, copy), node=replica.node)
        else:
            chosen.append((replica.node, copy))
            first = 0 if state.is_whole else state.first_sequence
            tasks += plan_wheel(replica, copy, manifest, first_sequence=first)
            delay_logs.append(plan_delay_logs(replica, copy, manifest))
            chains.append(plan_chains(replica, copy, manifest))
    parts = state.runner.map(sum_wheel, tasks)
    found: dict[str, WheelPart] = {node: WheelPart() for node, _ in chosen}
    for task, part in zip(tasks, parts, strict=True):
        found[task.node].merge(part)
    for one in found.values():
        one.settle_moved()
    faults = state.runner.map(delay_log_faults, delay_logs)
    broken = state.runner.map(broken_chains, chains)
    for (node, _), links in zip(chosen, broken, strict=True):
        for file, why in sorted({*found[node].misled, *links}):
            state.add(Finding(ERROR, "wheel-directory", state.shard, node, file, detail=why))
    for (node, copy), lost in zip(chosen, faults, strict=True):
        for file, why in lost:
            state.add(Finding(ERROR, "body-lost", state.shard, node, file, detail=why))
        mine = [task for task in tasks if task.node == node]
        _compare_wheel(state, node, copy, found[node], mine, retries)
    state.timed("wheel", began)
    return {node: part.units for node, part in found.items()}


def _compare_wheel(
    state: ShardState,
    node: str,
    copy: ShardCopy,
    part: WheelPart,
    tasks: list[WheelRange],
    retries: Retries,
) -> None:
    applied = copy.applied_offset
    for file, sequence, why in part.lost:
        state.add(
            Finding(ERROR, "body-lost", state.shard, node, file, sequence=sequence, detail=why)
        )
    if part.faults:
        for file, why in dict(part.faults).items():
            state.add(Finding(ERROR, "wheel-damaged", state.shard, node, file, detail=why))
        reason = f"{len(dict(part.faults))} files cannot be read"
        state.note("wheel", "file-unread", reason, node)
        return
    if state.is_whole:
        state.note("wheel", *checkpoint_limit(state, copy), node=node)
    else:
        reason = "only first attempts of messages that the log has"
        state.note("wheel", "log-trimmed", reason, node)
    wanted = state.ledger.wheels.get(applied, HourSums())
    waiting = [one for one in retries.scheduled if one.created < applied <= one.end]
    wanted = wanted.plus(_sums_of(waiting))
    differing = wanted.differing(part.sums)
    if not differing:
        return
    hours = [hour for hour, _, _ in differing]
    if sum(max(mine, theirs) for _, mine, theirs in differing) > _UNITS_REPORTED_MAX:
        for hour, mine, theirs in differing:
            detail = (
                f"{mine} messages were pending in this hour, and the delay index holds {theirs}"
            )
            check = "wheel-missing" if mine >= theirs else "wheel-extra"
            state.add(
                Finding(ERROR, check, state.shard, node, due_ms=hour * HOUR_MS, detail=detail)
            )
        return
    _tell_apart(state, node, applied, hours, tasks, waiting)


def _sums_of(waiting: list[Scheduled]) -> HourSums:
    if not waiting:
        return HourSums()
    return HourSums.of(
        np.array([one.unit.due_ms for one in waiting], np.int64),
        np.array([one.unit.sequence for one in waiting], np.uint64),
        np.array([one.unit.store_ms for one in waiting], np.int64),
        np.array([one.topic_queue for one in waiting], np.uint32),
        np.array([one.unit.facts for one in waiting], np.uint32),
        _tries_of(waiting),
    )


def _tries_of(waiting: list[Scheduled]) -> Array:
    return tries_of(
        np.array([one.unit.attempt for one in waiting], np.uint32),
        np.array([one.unit.origin_topic for one in waiting], np.uint32),
        np.array([one.topic_queue for one in waiting], np.uint32),
    )


def _tell_apart(
    state: ShardState,
    node: str,
    applied: int,
    hours: list[int],
    tasks: list[WheelRange],
    waiting: list[Scheduled],
) -> None:
    """Name the messages in which log and delay index differ."""
    parts = state.runner.map(partial(keys_of_hours, hours=hours), tasks)
    moved = np.unique(np.concatenate([np.empty(0, UNIT_ROW), *(rows for _, rows in parts)]))
    there = np.concatenate([np.empty(0, UNIT_ROW), *(rows for rows, _ in parts), moved])
    here = state.runner.map(
        partial(pending_keys, state.shared_plan, applied, tuple(hours)), state.ranges
    )
    retried = np.zeros(len(waiting), UNIT_ROW)
    for at, one in enumerate(waiting):
        unit = one.unit
        retried[at] = (unit.sequence, unit.due_ms, one.topic_queue, unit.store_ms, unit.facts, 0)
    retried["tries"] = _tries_of(waiting)
    retried = retried[np.isin(retried["due_ms"] // HOUR_MS, hours)]
    wanted = np.concatenate([retried, *here])
    mine, theirs = unit_keys(wanted), unit_keys(there)
    lost, extra = not_in(mine, theirs), not_in(theirs, mine)
    other = np.empty(0, UNIT_KEY)
    if not len(lost) and not len(extra):  # the same messages, and something else of them differs
        other = np.unique(unit_keys(not_in(there, wanted)))
    for check, rows, what in (
        ("wheel-missing", lost, "was pending, and is not in the delay index"),
        ("wheel-extra", extra, "is in the delay index, and was not pending"),
        ("wheel-extra", other, f"its {_REST} in the delay index are not those of its message"),
    ):
        for row in rows.tolist():
            sequence, due_ms, topic_queue = row
            topic = state.line.name_of(topic_queue >> QUEUE_BITS)
            detail = f"queue {topic_queue:08x}, due {exact_instant_text(due_ms)}: {what}"
            state.add(
                Finding(
                    ERROR,
                    check,
                    state.shard,
                    node,
                    sequence=sequence,
                    topic=topic,
                    due_ms=due_ms,
                    detail=detail,
                )
            )


def pending_keys(
    plan: Shared[LedgerPlan], applied: int, hours: tuple[int, ...], where: SegmentRange
) -> Array:
    """UNIT_ROW[n]: the messages of a range that were pending at an offset, due in some hours."""
    found = [np.empty(0, UNIT_ROW)]
    for table in read_blocks(where, verify=HEADERS):
        if not len(table.messages):
            continue
        messages = find_states(table, plan.value)
        due_ms = messages.due_at(applied)
        chosen = messages.were_pending(applied) & np.isin(due_ms // HOUR_MS, hours)
        rows = np.zeros(int(chosen.sum()), UNIT_ROW)
        for name in UNIT_ROW.names or ():
            if name != "tries":
                column = due_ms if name == "due_ms" else getattr(messages, name)
                rows[name] = column[chosen]
        tries = messages.tries_at(applied)
        if tries is not None:
            rows["tries"] = tries[chosen]
        found.append(rows)
    return np.concatenate(found)


def check_checkpoints(state: ShardState, joining: "Joining") -> None:
    """Cursor and sums of every checkpoint against those of the log."""
    if not state.is_whole:
        return
    sums = joining.part.sums
    for replica, copy in state.copies:
        manifest, applied = copy.manifest, copy.applied_offset
        if manifest is None or not 0 < applied <= state.end_offset:
            continue
        below = sums["offset"] < np.uint64(applied)
        count = int(sums["count"][below].sum(dtype=np.uint64))
        mix = int(sums["mix"][below].sum(dtype=np.uint64))
        wheel = state.ledger.wheels.get(applied, HourSums())
        waiting = [one for one in joining.retries.scheduled if one.created < applied <= one.end]
        cursor = manifest.cursor
        due_ms, sequence = state.dispatch.cursor_at(applied)
        facts = (
            ("cursor", (cursor.due_ms, cursor.sequence), (due_ms, sequence)),
            ("released messages", cursor.released_count, count),
            ("sum of released sequences", cursor.released_mix, mix),
            ("pending messages", manifest.pending_count, int(wheel.counts.sum()) + len(waiting)),
        )
        for name, theirs, mine in facts:
            if theirs != mine:
                detail = f"{name} of the checkpoint: {theirs}; by the log: {mine}"
                file = copy.path("checkpoint")
                state.add(
                    Finding(
                        ERROR,
                        "checkpoint",
                        state.shard,
                        replica.node,
                        file,
                        applied,
                        detail=detail,
                    )
                )


def pending_hours(state: ShardState, retries: Retries) -> tuple[Array, Array]:
    """(hour_ms, count) of what is pending when the log ends, retries included."""
    hours = state.ledger.pending_hours
    waiting = [one.unit.due_ms // HOUR_MS for one in retries.scheduled if one.end >= int(NEVER)]
    keys, counts = hours.keys, hours.counts[:, 0] if len(hours.keys) else np.empty(0, np.int64)
    keys = np.concatenate((keys, np.array(waiting, np.int64)))
    counts = np.concatenate((counts, np.ones(len(waiting), np.int64)))
    names, inverse = np.unique(keys, return_inverse=True)
    totals = np.bincount(inverse, counts, len(names)).astype(np.int64)
    return times_ms(names, HOUR_MS), totals
