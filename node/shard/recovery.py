"""Open a shard: read the checkpoint, replay the log behind it. No threads, no clock."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hourwheel import errors
from hourwheel.types import FIRST_OFFSET, Offset, ShardId
from node.shard.checkpoint import MANIFEST, ShardPlace, check_delay_logs, load_views
from node.shard.dispatcher import DispatchConfig
from node.shard.job_planner import Maintenance, RetentionConfig
from node.shard.shard import Shard
from node.shard.snapshot_files import settle_lost_end
from storage.files.file_header import FileType
from storage.log.commit_log import CommitLog, LogConfig
from storage.log.epochs import EpochFile
from storage.log.flushed_mark import FlushedMark
from storage.log.recent_batches import RecentBatches
from timewheel.bodies import Bodies
from timewheel.wheel import WheelConfig

WATERMARK = "high_watermark"
_VIEW_DIRECTORIES = ("keys", "queues", "sequences", "tombstones", "wheel")
_RECENT_BYTES = 16 << 20
_EVERYTHING = Offset(1 << 62)


@dataclass(frozen=True)
class ShardConfig:
    """Settings of the parts of a shard."""

    log: LogConfig = field(default_factory=LogConfig)
    wheel: WheelConfig = field(default_factory=WheelConfig)
    dispatch: DispatchConfig = field(default_factory=DispatchConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    has_peers: bool = False
    """Other nodes have copies: applied only as far as is known to be committed. Without any, what
    is durable is committed."""


class NoWatermark:
    """In place of the high watermark's file, where there are no peers: the log itself tells it."""

    offset: Final = FIRST_OFFSET

    def store(self, offset: Offset) -> None:
        """Nothing: what is committed is durable in the log."""


@dataclass
class Opened:
    """An open shard, and what opening it found."""

    shard: Shard
    maintenance: Maintenance
    config: ShardConfig
    replayed_batches: int
    rebuilt_because: str
    """Why the views were rebuilt from the whole log; empty where they were not."""
    epochs: EpochFile
    watermark: FlushedMark | NoWatermark
    """The high watermark as it was last stored."""
    lost_end: Offset = FIRST_OFFSET
    """Up to here it once had a log, of which it has lost some."""

    @property
    def is_sound(self) -> bool:
        """Whether the log has all that it is known to have had: else it must not lead."""
        end = self.shard.log.end_offset
        return end >= max(self.watermark.offset, self.lost_end)


def open_shard(
    place: ShardPlace, config: ShardConfig, make_room: Callable[[], bool] | None = None
) -> Opened:
    """Bring the views up to the end of the durable log.

    Where there is no checkpoint, or a file of it turns out to be damaged, the views are built anew.

    Args:
        place: of the shard.
        config: how to open it.
        make_room: see `Applier.make_room`.

    Raises:
        DiskFull: there is no room for the views, also after `make_room`. It can be tried again.
        CorruptLog: the log fails its checksums below its durable end: naming file and offset.
        CorruptFile: a view is damaged and the log no longer reaches back to its beginning; or the
            file of the epochs is.
        IncompatibleFormat, ForeignDirectory: see storage.files.file_header.
    """
    for name in ("", *_VIEW_DIRECTORIES):
        place.disk.make_dir(place.under(name) if name else place.directory)
    epochs = EpochFile.open(place.disk, place.under("epochs"), place.identity)
    epochs.keep_room()
    file, why = place.under(MANIFEST), "no checkpoint"
    if place.disk.exists(file):
        try:
            return _open(place, config, epochs, make_room)
        except errors.CorruptFile as error:
            file = error.params.get("file", file)
            why = error.message if file in error.message else f"{file}: {error.message}"
    _remove_views(place, config.log, file, why)
    return _open(place, config, epochs, make_room, why)


def _open(
    place: ShardPlace,
    config: ShardConfig,
    epochs: EpochFile,
    make_room: Callable[[], bool] | None,
    rebuilt_because: str = "",
) -> Opened:
    log = CommitLog.open(place.disk, place.directory, config.log, place.identity)
    views, manifest = load_views(place, config.wheel)
    check_delay_logs(place, manifest, demand_all=log.start_offset == 0)
    bodies = Bodies(place.disk, place.under("wheel"), log)
    maintenance = Maintenance(place, views, log, bodies, manifest, config.retention)
    shard = Shard(
        log=log,
        views=views,
        bodies=bodies,
        cluster=int.from_bytes(place.identity.cluster_id[:4], "little"),
        shard_id=ShardId(place.identity.shard),
        committed_offset=_EVERYTHING,
    )
    shard.applier.make_room = make_room
    watermark: FlushedMark | NoWatermark = NoWatermark()
    if config.has_peers:
        watermark = FlushedMark.open(
            place.disk, place.under(WATERMARK), place.identity, FileType.HIGH_WATERMARK
        )
        shard.committed_offset = max(watermark.offset, views.applied_offset)
        shard.recent = RecentBatches(_RECENT_BYTES)
    count, lost_end = _replay(shard, maintenance), FIRST_OFFSET
    if config.has_peers:
        lost_end = settle_lost_end(place, log.end_offset)
        epochs.truncate(log.end_offset)  # one that was to begin where the log then was cut off
    else:
        shard.committed_offset = log.end_offset
    return Opened(
        shard=shard,
        maintenance=maintenance,
        config=config,
        replayed_batches=count,
        rebuilt_because=rebuilt_because if count else "",
        epochs=epochs,
        watermark=watermark,
        lost_end=lost_end,
    )


def _remove_views(place: ShardPlace, config: LogConfig, file: str, why: str) -> None:
    """Remove the manifest and what it names; queues remove by themselves what no manifest names.

    Raises:
        CorruptFile: the log does not reach back to its beginning, so nothing was removed.
    """
    log = CommitLog.open(place.disk, place.directory, config, place.identity)
    start_offset = log.start_offset
    log.close()
    if start_offset > 0:
        raise errors.CorruptFile(
            f"{why}; and the log begins at {start_offset}, so the views cannot be rebuilt",
            file=file,
            log_start_offset=start_offset,
        )
    if place.disk.exists(place.under(MANIFEST)):
        place.disk.remove(place.under(MANIFEST))
        place.disk.sync_dir(place.directory)
    for directory in ("keys", "sequences", "tombstones", "wheel"):
        for name in place.disk.list(place.under(directory)):
            place.disk.remove(place.under(f"{directory}/{name}"))


def _replay(shard: Shard, maintenance: Maintenance) -> int:
    """Apply the log behind the checkpoint, with checkpoints on the way where it is very long.

    So memory stays bounded even where the views are rebuilt from the whole log. What a node may
    have unsaved while it serves is no more here: no caller is served before the end of this, and
    the first job after it is a checkpoint.
    """
    count = 0
    for _ in shard.replay():
        count += 1
        if maintenance.is_far_behind:
            job = maintenance.plan(shard.views.store_ms)
            if job is not None:
                job.run(lambda: None)
                for remove in maintenance.finish(job, shard.views.store_ms):
                    remove()
    return count
