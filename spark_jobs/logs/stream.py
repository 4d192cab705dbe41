"""Follow logs that are being written. The offset of a stream is a position in each log.

    {"node-1/0": 73400320}          behind the last batch of shard 0 that was read from node-1

A stream never reads what could still change or is half written: it ends at the replica's high
watermark, or at the durable end of a node without peers. Both are files that the node keeps beside
its log; a copy without them has nothing to follow. A position is always the end of a batch.

Where a log begins later than the stream's position, or a file goes while it is read, retention was
faster than the stream: that is an error, unless `fail_on_loss` is off. No Spark here.
"""

from collections.abc import Iterator, Mapping

from hourwheel import errors
from spark_jobs.logs.columns import QUEUE_ENTRIES
from spark_jobs.logs.options import LATEST, LogOptions
from spark_jobs.logs.replica import Inventory, Replica, ShardCopy
from spark_jobs.logs.scan import Part, Scan


class LogStream:
    """What a streaming query asks, over and over. Picklable."""

    def __init__(self, options: LogOptions) -> None:
        """Follow what `options` name.

        Raises:
            ConfigError: a table that is not read from the log.
        """
        if options.rows == QUEUE_ENTRIES:
            raise errors.ConfigError(f"rows {options.rows} cannot be followed; read them anew")
        self.scan = Scan(options, fails_on_gaps=options.fail_on_loss)

    def initial(self) -> dict[str, int]:
        """Where a new stream begins: of each log its first offset, or its end with `latest`."""
        is_latest = self.scan.options.starting == LATEST
        return {
            key: copy.committed_offset if is_latest else copy.start_offset
            for key, _, copy in self._copies(self.scan.look())
        }

    def latest(self, start: Mapping[str, int] | None = None) -> dict[str, int]:
        """Up to where all is committed now; never before `start`.

        A log that is not there now (its node's disk is away) stays where it was.
        """
        ends = dict(start or {})
        for key, _, copy in self._copies(self.scan.look()):
            ends[key] = max(ends.get(key, 0), _readable_end(copy))
        return ends

    def plan(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[Part]:
        """What lies between two offsets.

        Raises:
            CorruptLog: some of it was deleted before it was read, or the log is gone.
        """
        inventory = self.scan.look()
        copies = {key: (replica, copy) for key, replica, copy in self._copies(inventory)}
        spans = []
        for key, to in end.items():
            if key not in copies:
                if start.get(key, 0) < to:
                    self._lost(f"{key}: the log is not there any more")
                continue
            replica, copy = copies[key]
            begin = start.get(key, copy.start_offset)
            if begin < copy.start_offset and begin < to:
                self._lost(
                    f"{key}: the log begins at {copy.start_offset}, the stream is at {begin}"
                )
                begin = copy.start_offset
            if begin < to:
                spans.append((replica, copy, begin, to))
        return self.scan.plan_spans(inventory, spans)

    def _lost(self, why: str) -> None:
        if self.scan.options.fail_on_loss:
            raise errors.CorruptLog(f"{why}; to go on regardless, set option fail_on_loss=false")

    def _copies(self, inventory: Inventory) -> Iterator[tuple[str, Replica, ShardCopy]]:
        wanted = self.scan.options.nodes
        for replica in inventory.replicas:
            for copy in replica.shards:
                if not wanted or replica.node in wanted:
                    yield f"{replica.node}/{copy.shard}", replica, copy


def _readable_end(copy: ShardCopy) -> int:
    """The end of a batch up to which a log can be read for good.

    A follower may know of a high watermark that it has not written yet; then the end of its file is
    that of no batch, and what is durable counts.
    """
    marks = (copy.committed_offset, copy.durable_offset)
    return next((one for one in marks if one <= copy.end_offset), copy.start_offset)
