"""Checkpoints: what is durable of the views, as one manifest that names their files.

A checkpoint at applied offset A is: the memtable flushed into runs, the append-only files synced at
the lengths they had at A, all small state in the manifest, then the manifest put in place by
rename. Restart reads the manifest, ignores whatever files hold beyond it, and replays the log from
A. So its cost is what changed since A, never what is pending.
"""

from collections.abc import Callable
from dataclasses import dataclass

from hourwheel import errors
from hourwheel.internal.v1.state_pb2 import Checkpoint, DelayLogState, RunState
from hourwheel.types import Key, Offset, SequenceNumber, TopicId
from node.shard.views import Counters, Views, check_feature_level
from storage.files import atomic_file
from storage.files.disk import Disk
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
)
from storage.log.commit_log import CommitLog
from storage.queues.ack_state import AckStates
from storage.queues.consume_queues import ConsumeQueues
from storage.views.catalog import Catalog
from storage.views.dedup_keys import DedupKeys, pack_parts
from storage.views.key_index import KeyIndex, KeyState
from storage.views.moved import Moved, pack_rows
from storage.views.producer_state import ProducerStates
from storage.views.recurrences import Recurrences
from storage.views.sequence_index import SequenceIndex
from storage.views.tombstones import Tombstones, TombstoneState
from storage.views.transactions import Transactions
from timewheel.cursor import Cursor
from timewheel.flush import FlushJob, FlushSource, Place, WrittenRun
from timewheel.levels import day_of
from timewheel.run import Run, open_run
from timewheel.run_format import delay_log_path
from timewheel.wheel import Wheel, WheelConfig

MANIFEST = "checkpoint"


@dataclass(frozen=True)
class ShardPlace:
    """Where a shard's files are."""

    disk: Disk
    directory: str
    identity: Identity

    def under(self, name: str) -> str:
        """A directory of the shard's."""
        return f"{self.directory}/{name}"

    @property
    def wheel(self) -> Place:
        """Where jobs of the wheel write."""
        return Place(self.disk, self.under("wheel"), self.identity)


def load_views(place: ShardPlace, config: WheelConfig) -> tuple[Views, Checkpoint]:
    """The views of the newest checkpoint, or those of an empty log.

    Raises:
        CorruptFile: the manifest or a file that it needs fails its checksum. What the caller does
            about it is to rebuild from the log, while the log still starts at 0.
        IncompatibleFormat: it was made by a later version, and the log is of one.
    """
    manifest = read_manifest(place)
    views = _empty_views(place, config, manifest)
    views.queues.all()  # to find damage here, where it can be mended, and not when they are used
    for state in manifest.runs:
        views.wheel.runs.add(_open(place, state))
    return views, manifest


def read_manifest(place: ShardPlace) -> Checkpoint:
    """The manifest on disk; empty where there is none. Raises CorruptFile."""
    path = place.under(MANIFEST)
    if not place.disk.exists(path):
        return Checkpoint()
    found = atomic_file.read(place.disk, path, FileType.CHECKPOINT, place.identity)
    manifest = Checkpoint.FromString(found.payload)
    check_feature_level(manifest.feature_level, file=path)
    return manifest


def _empty_views(place: ShardPlace, config: WheelConfig, manifest: Checkpoint) -> Views:
    cursor = Cursor(manifest.cursor if manifest.HasField("cursor") else None)
    disk, identity = place.disk, place.identity
    return Views(
        wheel=Wheel(config, cursor.key),
        cursor=cursor,
        queues=ConsumeQueues.open(disk, place.under("queues"), identity, manifest.queues),
        sequences=SequenceIndex.open(
            disk, place.under("sequences"), identity, manifest.sequence_index_count
        ),
        tombstones=Tombstones.open(
            disk,
            place.under("tombstones"),
            identity,
            TombstoneState(manifest.tombstone_file, manifest.tombstone_bytes),
        ),
        moved=Moved(manifest.moved),
        keys=KeyIndex.open(disk, place.under("keys"), identity, _key_state(manifest)),
        dedup_keys=DedupKeys(manifest.dedup_keys),
        acks=AckStates(manifest.acks),
        producers=ProducerStates(manifest.producers),
        catalog=Catalog.from_manifest(manifest),
        transactions=Transactions(manifest.transactions, Offset(manifest.transactions_forgotten)),
        recurrences=Recurrences(manifest.recurrences),
        expiring_topics=set(map(TopicId, manifest.expiring_topics)),
        applied_offset=Offset(manifest.applied_offset),
        next_sequence=SequenceNumber(manifest.next_sequence),
        sequence_floor=SequenceNumber(manifest.sequence_floor),
        store_ms=manifest.store_ms,
        feature_level=manifest.feature_level,
        epochs=list(manifest.epochs),
        counters=Counters(
            pending=manifest.pending_count,
            cancelled=manifest.cancelled_count,
            discarded=manifest.discarded_count,
        ),
    )


def _key_state(manifest: Checkpoint) -> KeyState:
    """Of an index that an earlier version did not have, that it is to be built."""
    return KeyState(
        tuple(manifest.key_run_ids),
        max(1, manifest.next_key_run_id),
        manifest.are_keys_complete or not manifest.applied_offset,
    )


def name_keys(manifest: Checkpoint, state: KeyState) -> None:
    """Put the state of the key index into a manifest."""
    manifest.key_run_ids[:] = state.run_ids
    manifest.next_key_run_id = state.next_run_id
    manifest.are_keys_complete = state.is_complete


def _open(place: ShardPlace, state: RunState) -> Run:
    run = open_run(
        place.disk, place.under("wheel"), place.identity, state.covers_first, state.run_id
    )
    if run.footer.unit_count != state.unit_count or run.footer.level != state.level:
        raise errors.CorruptFile("a run is not the one that the manifest names", file=run.path)
    run.cascaded_days.update(state.cascaded_days)
    return run


def check_delay_logs(place: ShardPlace, manifest: Checkpoint, *, demand_all: bool) -> None:
    """Look at the headers of the delay logs; their messages are verified when they are read.

    Args:
        place: of the shard.
        manifest: names them.
        demand_all: one that is damaged, missing or too short is an error; else its messages will
            turn out to be lost, one by one.

    Raises:
        CorruptFile: see `demand_all`.
        IncompatibleFormat, ForeignDirectory: one is not ours to read.
    """
    for state in manifest.delay_logs:
        try:
            _check_delay_log(place, state)
        except errors.CorruptFile:
            if demand_all:
                raise


def _check_delay_log(place: ShardPlace, state: DelayLogState) -> None:
    number = state.delay_log_id
    path = delay_log_path(place.under("wheel"), number)
    try:
        file = place.disk.open(path)
    except FileNotFoundError:
        raise errors.CorruptFile(f"{path} is missing", file=path) from None
    try:
        header, size = file.pread(FILE_HEADER_BYTES, 0), file.size()
    finally:
        file.close()
    check_file_header(header, path, FileType.DELAY_LOG, place.identity, number)
    if size < state.bytes:
        raise errors.CorruptFile(f"{path} has {size} bytes instead of {state.bytes}", file=path)


def run_state(run: Run) -> RunState:
    """What the manifest says of a run."""
    footer = run.footer
    return RunState(
        run_id=footer.run_id,
        covers_first=footer.covers_first,
        level=footer.level,
        unit_count=footer.unit_count,
        due_ms_min=footer.due_ms_min,
        due_ms_max=footer.due_ms_max,
        delay_log_first=footer.delay_log_first,
        delay_log_last=footer.delay_log_last,
        cascaded_days=sorted(run.cascaded_days),
    )


def small_state(views: Views) -> Checkpoint:
    """The manifest as of now, without runs, delay logs, and what there may be very much of."""
    manifest = Checkpoint(
        applied_offset=views.applied_offset,
        next_sequence=views.next_sequence,
        sequence_floor=views.sequence_floor,
        feature_level=views.feature_level,
        store_ms=views.store_ms,
        cursor=views.cursor.state(),
        epochs=views.epochs,
        sequence_index_count=views.sequences.count,
        cancelled_count=views.counters.cancelled,
        discarded_count=views.counters.discarded,
        pending_count=views.counters.pending,
        expiring_topics=sorted(views.expiring_topics),
    )
    views.catalog.write_counters(manifest)
    return manifest


class CheckpointJob:
    """Makes the views durable as of the moment it was built. `run` belongs on another thread."""

    def __init__(
        self,
        place: ShardPlace,
        views: Views,
        log: CommitLog,
        *,
        span_start: Offset,
        next_run_id: int,
        hour_level_end_day: int,
        delay_logs: list[DelayLogState],
    ) -> None:
        """Freeze the memtable and note every view's state.

        Args:
            place: the shard's files.
            views: as they stand now; they go on changing.
            log: to read bodies from.
            span_start: where the memtable's stretch of the log begins.
            next_run_id: two numbers from here on may be used.
            hour_level_end_day: days below are hours.
            delay_logs: those that exist already.
        """
        self._place = place
        self.manifest = small_state(views)
        self.manifest.next_run_id = next_run_id + 2
        self.manifest.hour_level_end_day = hour_level_end_day
        self.manifest.delay_logs.extend(delay_logs)
        self._catalog, self._queues = views.catalog.capture(), views.queues.capture()
        self._acks = views.acks.capture()
        self._producers = views.producers.capture()
        self._moved = views.moved.capture()
        self._transactions = views.transactions.capture()
        self.manifest.transactions_forgotten = views.transactions.forgotten_offset
        self._recurrences = views.recurrences.capture()
        self._dedup_keys = views.dedup_keys.capture()
        self._old_runs = [run_state(run) for run in views.wheel.runs.all()]
        self._syncs: list[Callable[[], None]] = [
            *views.queues.begin_checkpoint(),
            *views.sequences.begin_checkpoint(),
            *views.tombstones.begin_checkpoint(),
            *views.keys.begin_checkpoint(),
            *log.begin_checkpoint(),
        ]
        tombstones = views.tombstones.state
        self.manifest.tombstone_file = tombstones.file
        self.manifest.tombstone_bytes = tombstones.valid_bytes
        name_keys(self.manifest, views.keys.state)
        self._flush = FlushJob(
            place.wheel,
            FlushSource(
                views.wheel.freeze(),
                Key(*views.cursor.key),
                log=log,
                span=(span_start, views.applied_offset),
            ),
            run_ids=(next_run_id, next_run_id + 1),
            hour_level_end_day=hour_level_end_day,
            heads=views.wheel.runs.heads,
        )
        self.opened: list[Run] = []

    def run(self) -> None:
        """Write and sync everything, then the manifest. After DiskFull nothing has changed."""
        written = self._flush.run()
        for sync in self._syncs:
            sync()
        topics, groups, subscriptions = self._catalog()
        self.manifest.topics.extend(topics)
        self.manifest.groups.extend(groups)
        self.manifest.subscriptions.extend(subscriptions)
        self.manifest.queues.extend(self._queues())
        self.manifest.acks.extend(self._acks())
        self.manifest.producers.extend(self._producers())
        self.manifest.moved = pack_rows(self._moved)
        self.manifest.transactions = self._transactions()
        self.manifest.recurrences = self._recurrences()
        self.manifest.dedup_keys = pack_parts(self._dedup_keys)
        self._name(written)
        write_manifest(self._place, self.manifest)

    def _name(self, written: list[WrittenRun]) -> None:
        wheel = self._place.wheel
        for one in written:
            self.opened.append(
                open_run(
                    wheel.disk,
                    wheel.directory,
                    wheel.identity,
                    one.footer.covers_first,
                    one.footer.run_id,
                )
            )
            self.manifest.delay_logs.append(
                DelayLogState(
                    delay_log_id=one.delay_log_id,
                    bytes=one.delay_log_bytes,
                    due_ms_max=one.footer.due_ms_max,
                )
            )
        self.manifest.runs.extend([*self._old_runs, *map(run_state, self.opened)])


def write_manifest(place: ShardPlace, manifest: Checkpoint) -> None:
    """Put a manifest in place of the one before, durably."""
    raw = manifest.SerializeToString(deterministic=True)
    header = pack_file_header(FileType.CHECKPOINT, place.identity)
    atomic_file.write(place.disk, place.under(MANIFEST), header, raw)


def hour_level_end(now_ms: int, days: int) -> int:
    """First day that is held as a day, so many days after today."""
    return day_of(now_ms) + days
