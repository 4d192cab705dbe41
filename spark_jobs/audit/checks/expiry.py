"""What is said to have expired, judged again; and what was acknowledged although it had.

A RESOLVE row with an outcome "expired" says so of its entries: each must have an expiry, and it
must not be later than the row's store_ms. What a group acknowledges it was given before it expired;
when that was, only leases tell, and they are not in the log. But an entry that was released after
its message had expired was given to a group too late in any case: so retries are judged, and
messages that were moved to a later time. (Others are refused where they are published.)

When a message expires is the first thing in its metadata, so only that is read of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.formats.expiry_field import EXPIRES_BYTES, expires_field, expiry_of
from hourwheel.formats.record_batch import Flag, Outcome
from hourwheel.types import QUEUE_BITS
from spark_jobs.audit.checks.catalog import Timeline
from spark_jobs.audit.checks.releases import EXPIRED
from spark_jobs.audit.checks.retries import Retries
from spark_jobs.audit.facts.findings import Finding
from spark_jobs.logs.block_table import BlockTable
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.replica import ERROR
from spark_jobs.logs.segment_reader import HEADERS, read_blocks
from spark_jobs.runtime.runner import Shared

Array = NDArray[Any]
ASK: Final = np.dtype(
    [
        ("sequence", "<u8"),
        ("at_ms", "<i8"),
        ("is_said", "u1"),
        ("index", "<u8"),
        ("position", "<u8"),
    ]
)
"""Has this message expired by `at_ms`? `is_said`: RESOLVE row `index` says so of the entry at
`position`; else it must not have."""


@dataclass(frozen=True)
class ExpiryPlan:
    """What is looked for in the log. Picklable."""

    asks: Array = field(default_factory=lambda: np.empty(0, ASK))
    """ASK[n], by sequence."""


def plan_expiry(passed: Array, retries: Retries, resolves: Array) -> ExpiryPlan:
    """What to look for.

    Args:
        passed: `checks.releases.PASSED`[n]: entries of topics' own queues.
        retries: entries of the other queues.
        resolves: `facts.records.RESOLVE` of the log.
    """
    outcomes = resolves["outcome"][passed["index"].astype(np.int64)]
    is_said = np.isin(outcomes, EXPIRED)
    mine = passed[is_said | (outcomes == Outcome.ACK)]
    is_said = is_said[is_said | (outcomes == Outcome.ACK)]
    own = np.zeros(len(mine), ASK)
    for name in ("sequence", "index", "position"):
        own[name] = mine[name]
    stored = resolves["store_ms"][mine["index"].astype(np.int64)]
    own["is_said"], own["at_ms"] = is_said, np.where(is_said, stored, mine["release_ms"])
    others = [
        (unit.sequence, int(resolves["store_ms"][index]), 1, index, position)
        for index, position, unit in retries.expired_units
    ] + [
        (unit.sequence, max(unit.due_ms, unit.store_ms), 0, index, position)
        for index, position, unit in retries.acked_units
    ]
    found = np.concatenate((own, np.array(others, ASK)))
    return ExpiryPlan(found[np.argsort(found["sequence"], kind="stable")])


def find_wrong(plan: Shared[ExpiryPlan], where: SegmentRange) -> Array:
    """ASK[n] of the plan that are in a range of the log, and not as they must be."""
    asks = plan.value.asks
    tables = read_blocks(where, verify=HEADERS)
    found = [_wrong_in(table, asks) for table in tables if len(table.messages)]
    return np.concatenate([np.empty(0, ASK), *found])


def _wrong_in(table: BlockTable, asks: Array) -> Array:
    messages = table.messages
    sequence = messages.column("sequence")
    low = np.searchsorted(asks["sequence"], sequence.min(), "left")
    high = np.searchsorted(asks["sequence"], sequence.max(), "right")
    asks = asks[low:high]
    if not len(asks):
        return asks
    order = np.argsort(sequence, kind="stable")
    at = order[np.minimum(np.searchsorted(sequence[order], asks["sequence"]), len(order) - 1)]
    is_here = sequence[at] == asks["sequence"]
    asks, at = asks[is_here], at[is_here]
    begins = messages.column("blob_at")[at]
    ends = begins + np.minimum(messages.column("meta_len")[at], EXPIRES_BYTES)
    may_expire = (messages.of_batch("flags")[at] & int(Flag.EXPIRY)) != 0
    expires = [
        expiry_of(expires_field(table.raw[low:high]), store_ms) if may else 0
        for low, high, store_ms, may in zip(
            begins.tolist(),
            ends.tolist(),
            messages.of_batch("store_ms")[at].tolist(),
            may_expire.tolist(),
            strict=True,
        )
    ]
    expires_ms = np.array(expires, np.int64)
    has_expired = (expires_ms != 0) & (expires_ms <= asks["at_ms"])
    wrong: Array = asks[has_expired != (asks["is_said"] != 0)]
    return wrong


def expiry_findings(
    wrong: Iterable[Array], resolves: Array, line: Timeline, shard: int
) -> Sequence[Finding]:
    """The findings that wrong answers are."""
    return [
        _finding(one, resolves[int(one["index"])], line, shard) for part in wrong for one in part
    ]


def _finding(one: Array, row: Array, line: Timeline, shard: int) -> Finding:
    group = line.group_names.get(int(row["group_id"]), f"#{int(row['group_id'])}")
    if one["is_said"]:
        check, what = (
            "expired-early",
            f"it had not expired for group {group} by then, or never does",
        )
    else:
        check, what = (
            "expired-delivered",
            f"group {group} acknowledged it, released after it expired",
        )
    return Finding(
        ERROR,
        check,
        shard,
        "",
        offset=int(row["offset"]),
        sequence=int(one["sequence"]),
        position=int(one["position"]),
        topic=line.name_of(int(row["topic_queue"]) >> QUEUE_BITS),
        detail=what,
    )
