"""A node's directory as an auditor sees it: whose it is, what it has of each shard, what is wrong.

Plain values, small and picklable: Spark sends them to where partitions are read. They are made by
`spark_jobs.logs.discovery`, out of small files, names and sizes; `spark_jobs.logs.ranges` says what
to read.

    inventory = discover(["/var/lib/hourwheel", "s3://copies/node-2"])
    for replica, copy in inventory.copies(0):
        for one in plan_ranges(replica, copy): ...
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from hourwheel.internal.v1.state_pb2 import Checkpoint
from spark_jobs.runtime.paths import open_disk
from storage.files.disk import Disk, join
from storage.log.epochs import EpochEntry

ERROR: Final = "error"
"""The audit cannot say that all is well."""
WARNING: Final = "warning"
"""Odd, and no proof of loss."""
INFO: Final = "info"
"""To be expected now and then."""


class Problem(NamedTuple):
    """Something wrong with a directory or its files, found before any log was read."""

    check: str
    """Stable kebab-case name; all are listed in `PROBLEMS`."""
    severity: str
    """`ERROR`, `WARNING` or `INFO`."""
    node: str
    shard: int
    """-1: of no shard."""
    file: str
    """Path in the node's directory; empty: the directory itself."""
    offset: int
    """Offset of the log; -1: none is meant."""
    detail: str
    """For people."""


PROBLEMS: Final[dict[str, str]] = {
    "node-unreadable": "a path that was given holds no node's directory, or cannot be read",
    "node-missing": "a node that was expected is not among the directories",
    "node-twice": "two directories say that they are the same node's",
    "node-meta": "node.meta is missing or damaged; the node is called by its folder",
    "no-log": "a shard's folder has no segment",
    "file-unreadable": "a file is damaged, of a later version, or cannot be opened",
    "foreign-file": "a file belongs to another cluster or shard",
    "segment-missing": "bytes of the log between two segments are in no file",
    "segment-overlap": "two segments claim the same offsets",
    "log-short": "the log ends below what was durable: its end is lost",
    "log-behind": "the log ends below what its node knew to be committed: it was stopped, or looked"
    " at, before it had written that, or it lost it",
    "damaged-folder": "the node put a damaged copy of a shard aside",
    "snapshot-incoming": "the node was receiving a snapshot",
}
"""Every check of this module, and what it means."""


class SegmentFile(NamedTuple):
    """A file of the log."""

    path: str
    """In the node's directory."""
    start_offset: int
    """By its name: offset of its first batch."""
    end_offset: int
    """By its size when it was looked at; the last batch may be cut off or half written."""
    has_index: bool
    """There is a sparse index beside it."""
    fault: str = ""
    """Why nothing of it can be read (a later version, another cluster's); a `Problem` says so too.
    A damaged file header is no such reason: batches say by themselves where they belong."""


@dataclass(frozen=True, slots=True)
class ShardCopy:
    """What one node has of one shard."""

    shard: int
    folder: str
    """In the node's directory: `shard-0`."""
    segments: tuple[SegmentFile, ...] = ()
    """Ascending, with gaps where files are missing."""
    epochs: tuple[EpochEntry, ...] = ()
    """The epoch history; empty where there is none, or it is damaged."""
    flushed_offset: int = 0
    """The log was durable up to here, at least; 0 where the mark is missing or damaged."""
    high_watermark: int | None = None
    """Of a replica: committed up to here, at least. None: a node without peers."""
    manifest_raw: bytes = b""
    """The last checkpoint's `Checkpoint`, serialized; empty: none, or damaged. See `manifest`."""
    queues: tuple[int, ...] = ()
    """`topic_queue` of each consume queue that has a folder, ascending."""

    @property
    def start_offset(self) -> int:
        """First offset that is there; 0 in an empty log."""
        return self.segments[0].start_offset if self.segments else 0

    @property
    def end_offset(self) -> int:
        """Where the last file ends."""
        return self.segments[-1].end_offset if self.segments else 0

    @property
    def manifest(self) -> Checkpoint | None:
        """The last checkpoint; None without any that can be read."""
        return Checkpoint.FromString(self.manifest_raw) if self.manifest_raw else None

    @property
    def applied_offset(self) -> int:
        """The last checkpoint's; 0 without any."""
        manifest = self.manifest
        return manifest.applied_offset if manifest else 0

    @property
    def durable_offset(self) -> int:
        """Bad bytes below it are damage; above it they may be half written."""
        return max(self.flushed_offset, self.applied_offset)

    @property
    def committed_offset(self) -> int:
        """What lies below it can never change: a replica's high watermark, else what is durable."""
        if self.high_watermark is None:
            return self.durable_offset
        return max(self.high_watermark, self.applied_offset)

    def path(self, *names: str) -> str:
        """A path in the shard's folder, seen from the node's directory."""
        return join(self.folder, *names)


@dataclass(frozen=True, slots=True)
class Replica:
    """One node's directory, or a copy of it."""

    uri: str
    """Where: an absolute path, or a URI. See `spark_jobs.runtime.paths`."""
    node: str
    """Unique in an `Inventory`: the node's id; `<id>@2` for a second copy of the same node."""
    cluster_id: bytes
    """16 bytes of a UUID; empty: nothing in the directory says it."""
    shards: tuple[ShardCopy, ...]
    """Ascending by number."""
    problems: tuple[Problem, ...] = ()

    def open_disk(self) -> Disk:
        """The port through which the directory's files are read."""
        return open_disk(self.uri)

    def shard(self, number: int) -> ShardCopy | None:
        """What it has of a shard; None for nothing."""
        return next((one for one in self.shards if one.shard == number), None)


@dataclass(frozen=True, slots=True)
class Inventory:
    """All replicas that were found, of one cluster."""

    cluster_id: bytes
    """Empty where no directory says it."""
    replicas: tuple[Replica, ...]
    """By node."""
    own_problems: tuple[Problem, ...] = ()
    """Of no replica: paths without a node, nodes that are missing."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, of all replicas."""
        return (*self.own_problems, *(one for each in self.replicas for one in each.problems))

    @property
    def cluster(self) -> str:
        """The cluster's id as text: 32 hexadecimal digits."""
        return self.cluster_id.hex()

    @property
    def shards(self) -> tuple[int, ...]:
        """Numbers of all shards of which some replica has something."""
        return tuple(sorted({copy.shard for each in self.replicas for copy in each.shards}))

    def copies(self, shard: int) -> tuple[tuple[Replica, ShardCopy], ...]:
        """Who has what of a shard."""
        pairs = ((each, each.shard(shard)) for each in self.replicas)
        return tuple((each, copy) for each, copy in pairs if copy is not None)
