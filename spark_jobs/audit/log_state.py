"""What a shard's log says became of its messages: the audit's reading of it, without the audit.

    for log in read_logs(runner, ["/var/lib/hourwheel"]):
        runner.map(partial(work, log.plan), log.ranges)      # `ledger.find_states` in `work`

One replica is read: the one whose log is the longest and the least troubled. Where several are
given, the parts that it lacks or has damaged come from the others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hourwheel import errors
from spark_jobs.audit.checks.ledger import LedgerPlan
from spark_jobs.audit.shard import AuditOptions, ShardState, make_ledger, scan_logs
from spark_jobs.logs.block_table import BlockTable
from spark_jobs.logs.discovery import discover
from spark_jobs.logs.ranges import SegmentRange
from spark_jobs.logs.segment_reader import read_blocks
from spark_jobs.runtime.runner import Runner, Shared
from spark_jobs.runtime.shuffle import Joiner, Spread, Spreader

T = TypeVar("T")
R = TypeVar("R")
_AREAS: Final = ("structure", "ledger")
"""Of the audit's checks those that are about what is read here."""
_DAMAGE: Final = ("log-corrupt", "log-missing", "log-hole", "log-chain", "sequence-gap")


@dataclass(frozen=True)
class ShardLog:
    """One shard's log, ready to be judged range by range."""

    cluster: str
    shard: int
    start_offset: int
    """Where it begins: 0, or later where it was trimmed."""
    end_offset: int
    """Committed; what lies behind is not looked at."""
    last_store_ms: int
    """Of its last batch; -1 in an empty log."""
    ranges: tuple[SegmentRange, ...]
    plan: LedgerPlan
    topics: dict[int, str]
    """Id -> name."""
    groups: dict[int, str]
    """The same of groups."""
    damaged_at: tuple[int, ...]
    """Offsets at which something of it is damaged or missing on every replica."""
    doubts: tuple[str, ...]
    """Why what the plan says of messages may be wrong or incomplete; empty: it is neither."""


def read_logs(
    runner: Runner,
    uris: Sequence[str],
    *,
    partition_bytes: int = 32 << 20,
    progress: Callable[[str], None] | None = None,
) -> list[ShardLog]:
    """Scan the logs of all shards in and below some places.

    Args:
        runner: runs the scan.
        uris: directories of nodes, or folders above them.
        partition_bytes: a task reads about so much.
        progress: receives each step that is done, in words.

    Raises:
        NoLogs: there is no log.
        MixedClusters: logs of several clusters.
        ConfigError: a place that cannot be opened.
    """
    inventory = discover(list(uris))
    found = []
    for shard in inventory.shards:
        if not any(copy.segments for _, copy in inventory.copies(shard)):
            continue
        state = ShardState(
            shard,
            inventory,
            _PlanRunner(runner),
            AuditOptions(partition_bytes=partition_bytes),
            progress or _silent,
        )
        scan_logs(state)
        make_ledger(state)
        plan = errors.required(state.plan, "a ledger has a plan")
        last = state.facts.last
        found.append(
            ShardLog(
                inventory.cluster,
                shard,
                state.start_offset,
                state.end_offset,
                last.store_ms if last else -1,
                tuple(state.ranges),
                plan,
                dict(state.line.names),
                dict(state.line.group_names),
                _damage_of(state),
                tuple(one.reason for one in state.checks if one.area in _AREAS and one.reason),
            )
        )
    return found


def whole_blocks(where: SegmentRange, *, verify: str) -> Iterator[BlockTable]:
    """The batches of a range that a scan has found whole. See `segment_reader.read_blocks`.

    Raises:
        CorruptLog: it is whole no more. A running node removes what its retention lets go of.
    """
    for table in read_blocks(where, verify=verify):
        if table.damages:
            one = table.damages[0]
            raise errors.CorruptLog(
                f"{one.node}: {one.file} was whole a moment ago, and at offset {one.offset} it is"
                f" not now: {one.detail}; run it again",
                file=one.file,
                offset=one.offset,
            )
        yield table


def _damage_of(state: ShardState) -> tuple[int, ...]:
    """Where the log that was chosen is damaged: what another replica has whole does not count."""
    found = set()
    for one in state.findings.kept:
        if one.check not in _DAMAGE:
            continue
        chosen = (
            where
            for where in state.ranges
            if where.node == one.node and where.from_offset <= one.offset < where.to_offset
        )
        if not one.node or next(chosen, None) is not None:
            found.add(one.offset)
    return tuple(sorted(found))


class _PlanRunner:
    """A runner for those who want the plan of a ledger, and not the ledger: it spreads nothing."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def share(self, value: T) -> Shared[T]:
        """See `Runner`."""
        return self._runner.share(value)

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """See `Runner`."""
        return self._runner.map(function, tasks)

    def spread(self, function: Spreader[T], tasks: Sequence[T], count: int) -> Spread:
        """See `Runner`: no results."""
        del function, tasks, count
        return _Nothing()


class _Nothing:
    """Of nothing."""

    def facts(self) -> list[Any]:
        """See `Spread`."""
        return []

    def join(self, joiner: Joiner[R]) -> list[R]:
        """See `Spread`."""
        del joiner
        return []

    def close(self) -> None:
        """See `Spread`."""


def _silent(_: str) -> None:
    """The default: progress is not reported."""
