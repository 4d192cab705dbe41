"""Open a shard: read the checkpoint, replay the log behind it. No threads, no clock."""

from dataclasses import dataclass, field

from hourwheel import errors
from hourwheel.wire.state_pb2 import Checkpoint
from node.checkpoint import MANIFEST, ShardPlace, check_delay_logs, load_views
from node.dispatcher import DispatchConfig
from node.maintenance import Maintenance, RetentionConfig
from node.shard import Shard
from node.views import Views
from storage.commit_log import CommitLog, LogConfig
from storage.epoch_file import EpochFile
from timewheel.bodies import Bodies
from timewheel.wheel import WheelConfig

_VIEW_DIRECTORIES = ("queues", "sequences", "tombstones", "wheel")


@dataclass(frozen=True)
class ShardConfig:
    """What the parts of a shard are told."""

    log: LogConfig = field(default_factory=LogConfig)
    wheel: WheelConfig = field(default_factory=WheelConfig)
    dispatch: DispatchConfig = field(default_factory=DispatchConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)


@dataclass
class Opened:
    """An open shard, and what opening it found."""

    shard: Shard
    maintenance: Maintenance
    replayed_batches: int
    rebuilt_because: str
    """Why the views were rebuilt from the whole log; empty where they were not."""
    notes: list[str]
    """What an operator should know: a torn tail that was cut, with file and offset."""


def open_shard(place: ShardPlace, config: ShardConfig) -> Opened:
    """Bring the views up to the end of the durable log.

    Raises:
        CorruptLog: the log fails its checksums below its durable end: naming file and offset.
        CorruptFile: a view is damaged and the log no longer reaches back to its beginning.
        IncompatibleFormat, ForeignDirectory: see storage.file_header.
    """
    for name in ("", *_VIEW_DIRECTORIES):
        place.disk.make_dir(place.under(name) if name else place.directory)
    log = CommitLog.open(place.disk, place.directory, config.log, place.identity)
    views, manifest, reason = _load_or_reset(place, log, config.wheel)
    bodies = Bodies(place.disk, place.under("wheel"), log)
    epochs = EpochFile.open(place.disk, place.under("epochs"), place.identity)
    maintenance = Maintenance(place, views, log, bodies, manifest, config.retention)
    shard = Shard(
        log=log,
        views=views,
        bodies=bodies,
        epoch=0,
        dispatch=config.dispatch,
        cluster=int.from_bytes(place.identity.cluster_id[:4], "little"),
        shard_id=place.identity.shard,
    )
    count = _replay(shard, maintenance)
    last = max([0, *(one.epoch for one in views.epochs), *(one.epoch for one in epochs.entries)])
    shard.epoch = last + 1
    epochs.append(shard.epoch, log.end_offset)
    notes = [str(log.recovery_report)] if log.recovery_report else []
    return Opened(shard, maintenance, count, reason, notes)


def _load_or_reset(
    place: ShardPlace, log: CommitLog, config: WheelConfig
) -> tuple[Views, Checkpoint, str]:
    """The checkpoint's views; empty ones where it is missing or damaged and the log whole."""
    reason = ""
    if not place.disk.exists(place.under(MANIFEST)):
        reason = "no checkpoint" if log.end_offset else ""
    else:
        try:
            views, manifest = load_views(place, config)
            check_delay_logs(place, manifest, demand_all=log.start_offset == 0)
        except errors.CorruptFile as error:
            reason = error.message
        else:
            return views, manifest, ""
    if log.start_offset > 0:
        raise errors.CorruptFile(
            f"{reason}; and the log begins at {log.start_offset}, so the views cannot be rebuilt",
            log_start_offset=log.start_offset,
        )
    _remove_views(place)
    return *load_views(place, config), reason


def _remove_views(place: ShardPlace) -> None:
    """Remove every file of the views, the manifest first."""
    if place.disk.exists(place.under(MANIFEST)):
        place.disk.remove(place.under(MANIFEST))
        place.disk.sync_dir(place.directory)
    for name in _VIEW_DIRECTORIES:
        _remove_files(place, place.under(name))


def _remove_files(place: ShardPlace, directory: str) -> None:
    for name in place.disk.list(directory):
        path = f"{directory}/{name}"
        if name.startswith(("0", "tail")) and "." not in name and name != "tail":
            _remove_files(place, path)
        else:
            place.disk.remove(path)


def _replay(shard: Shard, maintenance: Maintenance) -> int:
    """Apply the log behind the checkpoint, with checkpoints on the way where it is long.

    So memory stays bounded even where the views are rebuilt from the whole log.
    """
    count = 0
    for _ in shard.replay():
        count += 1
        if maintenance.is_due:
            job = maintenance.plan(shard.views.store_ms)
            if job is not None:
                job.run(lambda: None)
                for remove in maintenance.finish(job, shard.views.store_ms):
                    remove()
    return count
