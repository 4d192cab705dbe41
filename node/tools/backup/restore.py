"""A data directory of a backup: for a new cluster, in an epoch that no old receipt has.

    empty directory
    --> shard-0.restoring: each file verified, written with the new cluster's id, durable
    --> the log cut to the moment that is asked for
    --> opened as at any start: each batch behind the checkpoint is verified and applied
    --> EPOCH_START of an epoch far above the backup's; CANCEL of what is overdue and RECURRENCE
        of what recurs, or the pause by which it waits
    --> control-restored: users, grants and quotas, for the first start
        (node/cluster/restored_control.py)
    --> shard-0, then node.meta

No node starts on a directory that has a folder of a shard and no `node.meta`: one that was left
half restored is never served.

What it writes is a function of the backup and of `RestorePlan`. So the nodes of a new cluster may
be restored one by one, with the same plan but for their ids, and have the same log.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.errors import required
from hourwheel.formats.record_batch import (
    CANCEL_ROW,
    Kind,
    RecordBatch,
    Stamp,
    build_blob,
    build_rows,
    stamp,
)
from hourwheel.internal.v1.state_pb2 import ConfigChange, RecurrenceChange
from hourwheel.outcomes import CancelOutcome
from hourwheel.types import DISPATCH_TOPIC, FIRST_SHARD, SEQUENCE_MAX, Epoch, Key, NodeId, Offset
from node.cluster.restored_control import remove_restored, write_restored
from node.replica.mastership import opening_records
from node.shard.checkpoint import ShardPlace
from node.shard.job_planner import RetentionConfig
from node.shard.node_meta import CONTROL_RESTORED, NODE_META
from node.shard.recovery import Opened, ShardConfig, open_shard
from node.shard.shard import Shard
from node.shard.snapshot_files import remove_tree
from node.tools.backup.manifest import BackupFile, Manifest
from node.tools.backup.repository import Repository
from replication.control_state.access import AccessState
from replication.control_state.state import ControlState, decode_state
from storage.files import atomic_file
from storage.files.directory_lock import LOCK_NAME
from storage.files.disk import Disk, join, parent_of
from storage.files.file_header import (
    FILE_HEADER_BYTES,
    FileType,
    Identity,
    pack_file_header,
    with_identity,
)
from storage.log.commit_log import CommitLog, LogConfig
from storage.log.epochs import EPOCH_SEEN, EpochFile, EpochStore
from storage.views.catalog_items import Topic
from storage.views.unit import pick
from timewheel.range_scan import RangeScan

SHARD_FOLDER: Final = "shard-0"
RESTORING: Final = f"{SHARD_FOLDER}.restoring"
EPOCHS_SKIPPED: Final = 1_000
"""The cluster that was backed up may have gone on, and given so many epochs since."""
EPOCH_MAX: Final = 1 << 31
"""Of a backup. With one each second that takes 68 years; and there are twice as many."""
_RESTORED_TMP: Final = CONTROL_RESTORED + atomic_file.TMP_SUFFIX
_NOT_DATA: Final = frozenset({LOCK_NAME, "lost+found", RESTORING, CONTROL_RESTORED, _RESTORED_TMP})
"""May be in the directory: the last are of a restore that was killed, and is begun anew."""
_LOG_FOLDER: Final = "log/"
_EPOCHS: Final = "epochs"
_SCANNED_AT_ONCE: Final = 8_192
_CANCELLED_AT_ONCE: Final = 4_096
_APPLIED_AT_ONCE: Final = 64
_RESUMED_AT_ONCE: Final = 512
_FOR_EVER: Final = RetentionConfig(retention_ms=1 << 50)


class Overdue(StrEnum):
    """What becomes of messages that fell due before the restore, and were not released."""

    HOLD = "hold"
    """If there are any, nothing that is pending is released until an operator says so."""
    RELEASE = "release"
    """They are released when the node starts, late as they are."""
    DISCARD = "discard"
    """They are cancelled, and what recurs goes on behind the restore."""


@dataclass(frozen=True)
class RestorePlan:
    """What is to become of a backup."""

    cluster_id: bytes
    """Of the new cluster: 16 bytes."""
    node_id: NodeId
    now_ms: int
    """What is due up to here is overdue."""
    overdue: Overdue
    until_ms: int | None = None
    """What was stored later is left out; None: nothing is. Users and grants are as they were when
    the backup was taken, all the same."""
    has_access: bool = True
    """Users, grants and quotas of the backup come back."""
    manifest_digest: str | None = None
    """See `Repository.read`."""


@dataclass(frozen=True)
class Restored:
    """What there is now."""

    epoch: Epoch
    pending_count: int
    overdue_count: int
    """That fell due before, and are still pending."""
    discarded_count: int
    log_end_offset: Offset
    recurrence_count: int = 0
    """Recurrences of which what was missed is discarded."""
    user_count: int = 0
    grant_count: int = 0
    quota_count: int = 0


def choose_backup(repository: Repository, backup_id: str | None, until_ms: int | None) -> str:
    """The backup that is asked for; else the latest whose checkpoint is not too late.

    Where none has an early checkpoint, the latest one, whose log may do.

    Raises:
        NotFound: there is none.
        FailedPrecondition: there are backups of several clusters or nodes, and none is asked for.
        CorruptFile, IncompatibleFormat: see `Repository.read`.
    """
    if backup_id is not None:
        return backup_id
    found = {one: repository.read(one) for one in repository.ids()}
    if not found:
        raise errors.NotFound("there is no backup here")
    if len({(one.cluster_id, one.node_id) for one in found.values()}) > 1:
        raise errors.FailedPrecondition(
            "there are backups of several clusters or nodes: say which one"
        )
    early = [key for key, one in found.items() if until_ms is None or one.views_ms <= until_ms]
    return (early or list(found))[-1]


def restore(
    repository: Repository,
    backup_id: str,
    disk: Disk,
    plan: RestorePlan,
    private_disk: Disk | None = None,
) -> Restored:
    """Make a data directory; complete and durable when this returns.

    Args:
        repository: with the backup.
        backup_id: which.
        disk: whose root is the empty directory.
        plan: see there.
        private_disk: the same; what is made by it no other user can read.

    Raises:
        NotFound: there is no such backup.
        FailedPrecondition: the directory is not empty; or the log does not reach back to
            `until_ms`.
        DataLoss: the backup is torn or was altered, says what cannot be, or is another one than
            the plan expects.
        IncompatibleFormat: it is of a later version.
        DiskFull: there is no room.
        FsyncFailed, DiskFailed: see storage.files.disk.

    Whatever is raised, the directory is empty again as far as the disk lets it be.
    """
    found = set(disk.list("")) - _NOT_DATA
    if found:
        raise errors.FailedPrecondition(
            f"the directory to restore into is not empty: {min(found)} is in it"
        )
    remove_tree(disk, RESTORING)
    remove_restored(disk)
    manifest = repository.read(backup_id, plan.manifest_digest)
    control = find_control(repository, manifest)
    place = ShardPlace(disk, RESTORING, Identity(plan.cluster_id, FIRST_SHARD))
    try:
        _write_files(repository, _wanted(manifest, plan.until_ms), place)
        if plan.until_ms is not None:
            _cut(place, manifest, plan.until_ms)
        restored = _open_and_end(place, manifest.node_id, plan)
        _sync_folders(place)
        if control is not None and plan.has_access:
            write_restored(private_disk or disk, place.identity, control)
            restored = _counted(restored, control.access)
    except (errors.DiskFailed, errors.FsyncFailed):
        raise  # nothing more is to be done with this disk
    except (errors.HourwheelError, OSError, MemoryError, KeyboardInterrupt):
        _clean(disk)
        raise
    except Exception as error:
        _clean(disk)
        raise errors.DataLoss(f"the backup says what cannot be: {error!r}") from error
    disk.rename(RESTORING, SHARD_FOLDER)
    disk.sync_dir("")
    header = pack_file_header(FileType.NODE, place.identity)
    atomic_file.write(disk, NODE_META, header, plan.node_id.encode())
    return restored


def _clean(disk: Disk) -> None:
    remove_tree(disk, RESTORING)
    remove_restored(disk)


def find_control(repository: Repository, manifest: Manifest) -> ControlState | None:
    """The control state of a backup; None: it has none.

    Raises:
        CorruptFile: a piece of it is missing, torn or altered.
        IncompatibleFormat: its rules are not known to this code.
    """
    if not manifest.control:
        return None
    return decode_state(b"".join(repository.get(one) for one in manifest.control))


def _counted(restored: Restored, access: AccessState) -> Restored:
    return replace(
        restored,
        user_count=len(access.users),
        grant_count=len(access.grants),
        quota_count=len(access.quotas),
    )


# -- files ----------------------------------------------------------------------------------------


def _wanted(manifest: Manifest, until_ms: int | None) -> list[BackupFile]:
    """All files; without the views, where they are later than what is asked for."""
    if until_ms is None or manifest.views_ms <= until_ms:
        return list(manifest.files)
    if manifest.log_start_offset > 0:
        raise errors.FailedPrecondition(
            f"the log of this backup is trimmed: it can be restored from {manifest.views_ms} ms on",
            until_ms_min=manifest.views_ms,
        )
    return [
        one for one in manifest.files if one.name == _EPOCHS or one.name.startswith(_LOG_FOLDER)
    ]


def _write_files(repository: Repository, files: list[BackupFile], place: ShardPlace) -> None:
    disk = place.disk
    disk.make_dir(place.directory)
    for folder in sorted({parent_of(one.name) for one in files}):
        disk.make_dir(join(place.directory, folder))
    for one in files:
        with closing(disk.open(place.under(one.name), create=True)) as file:
            position = 0
            for piece in one.pieces:
                raw = repository.get(piece)
                if position == 0:
                    head = with_identity(raw, place.identity, place.under(one.name))
                    file.pwrite((head, memoryview(raw)[FILE_HEADER_BYTES:]), 0)
                else:
                    file.pwrite((raw,), position)
                position += piece.size_bytes
            if position < one.size_bytes:
                file.truncate(one.size_bytes)
            file.datasync()


def _sync_folders(place: ShardPlace) -> None:
    disk = place.disk
    for folder in (place.directory, place.under("log"), place.under("wheel")):
        disk.sync_dir(folder)
    for folder in ("keys", "sequences", "tombstones", "queues"):
        disk.sync_dir(place.under(folder))
    for name in disk.list(place.under("queues")):
        disk.sync_dir(place.under(f"queues/{name}"))


# -- the log --------------------------------------------------------------------------------------


def _cut(place: ShardPlace, manifest: Manifest, until_ms: int) -> None:
    """Cut the log in front of the first batch that was stored later."""
    log = CommitLog.open(place.disk, place.directory, LogConfig(), place.identity)
    from_ = manifest.applied_offset if manifest.views_ms <= until_ms else log.start_offset
    cut: Offset | None = None
    for batch in log.recover(from_):
        if cut is None and batch.header.store_ms > until_ms:
            cut = batch.header.offset
    if cut == 0:
        log.close()
        raise errors.FailedPrecondition("nothing was stored so early", until_ms=until_ms)
    if cut is not None:
        log.truncate(cut)
    log.close()


def _open_and_end(place: ShardPlace, master: str, plan: RestorePlan) -> Restored:
    """`master`: the node that was backed up; the log has it that it writes what is written here."""
    opened = open_shard(place, ShardConfig(retention=_FOR_EVER))
    try:
        epoch = _begin_epoch(opened, master)
        writer = _Writer(opened.shard, epoch, plan.now_ms)
        for one in opening_records(opened.shard.views, NodeId(master), plan.cluster_id.hex(), 0):
            writer.append(one)
        writer.settle()
        discarded = recurrence_count = 0
        if plan.overdue is Overdue.DISCARD:
            discarded, recurrence_count = writer.discard(), writer.advance_recurrences()
        overdue = writer.overdue_count()
        was_paused = opened.shard.views.catalog.is_dispatch_paused
        is_paused = plan.overdue is Overdue.HOLD and (overdue > 0 or was_paused)
        if is_paused != was_paused:
            writer.set_pause(is_paused=is_paused)
        views = opened.shard.views
        return Restored(
            epoch=epoch,
            pending_count=views.counters.pending,
            overdue_count=overdue,
            discarded_count=discarded,
            recurrence_count=recurrence_count,
            log_end_offset=opened.shard.log.end_offset,
        )
    finally:
        opened.shard.log.close()


def _begin_epoch(opened: Opened, master: str) -> Epoch:
    shard, place = opened.shard, opened.maintenance.place
    epochs: EpochFile = opened.epochs
    epochs.truncate(shard.log.end_offset)
    known = [one.epoch for one in shard.views.epochs] + [one.epoch for one in epochs.entries]
    latest = max(known, default=0)
    if latest > EPOCH_MAX:
        raise errors.DataLoss(
            f"the backup has epoch {latest}, and no cluster comes beyond {EPOCH_MAX}", epoch=latest
        )
    epoch = Epoch(latest + EPOCHS_SKIPPED)
    epochs.append(epoch, shard.log.end_offset, log_start_offset=shard.log.start_offset)
    seen = EpochStore.open(place.disk, place.under(EPOCH_SEEN), place.identity)
    seen.note(epoch, NodeId(master))
    return epoch


class _Writer:
    """Appends to the log, as a master without anybody else would."""

    def __init__(self, shard: Shard, epoch: Epoch, now_ms: int) -> None:
        self._shard, self._epoch = shard, epoch
        self._now_ms = now_ms
        self._store_ms = max(now_ms, shard.views.store_ms)

    def append(self, batch: RecordBatch) -> None:
        log = self._shard.log
        at = Stamp(
            offset=log.end_offset,
            base_sequence=self._shard.views.next_sequence,
            store_ms=self._store_ms,
            flushed_end_offset=log.durable_end_offset,
            epoch=self._epoch,
        )
        self._shard.append(RecordBatch.from_pieces(*stamp(batch, at)))

    def settle(self) -> list[object]:
        """Write and apply all of it. Returns the results."""
        shard, results = self._shard, list[object]()
        while (write := shard.take_write()) is not None:
            write.run(durable=True)
            shard.finish_write(write)
        shard.committed_offset = shard.log.end_offset
        while applied := shard.apply_some(_APPLIED_AT_ONCE):
            results += [one.result for one in applied]
        if shard.is_stalled:
            raise errors.DiskFull("no room for the views")
        return results

    def discard(self) -> int:
        """Cancel what is overdue; how many messages that were."""
        views = self._shard.views
        count = 0
        for found in self._overdue():
            for at in range(0, len(found), _CANCELLED_AT_ONCE):
                part = found[at : at + _CANCELLED_AT_ONCE]
                rows = np.zeros(len(part), CANCEL_ROW)
                sequences = np.ascontiguousarray(part["sequence"])
                rows["due_ms"] = views.sequences.read_many(sequences)[0]
                rows["sequence"], rows["epoch"] = sequences, views.epochs_of(sequences)
                self.append(RecordBatch(build_rows(Kind.CANCEL, rows)))
                (outcomes,) = self.settle()
                count += int(np.count_nonzero(outcomes == np.uint8(CancelOutcome.CANCELLED)))
        return count

    def advance_recurrences(self) -> int:
        """Have each that may have missed something go on behind now; how many these are.

        As `resume` does with one that was paused. It does not compute which ones have missed
        something: nodes with other time zones would write other logs. One whose next occurrence
        lies ahead has missed nothing; it stays in the wheel.
        """
        view, names = self._shard.views.recurrences, list[str]()
        for name in view.names_after(""):
            state = view.find(name)
            if state is not None and state.has_more and state.after_ms <= self._now_ms:
                names.append(name)
        for at in range(0, len(names), _RESUMED_AT_ONCE):
            part = names[at : at + _RESUMED_AT_ONCE]
            for name in part:
                version = required(view.find(name), "it was there").version
                change = RecurrenceChange(expected_version=version, resume_name=name)
                blob = change.SerializeToString(deterministic=True)
                none = np.zeros(0, CANCEL_ROW)
                self.append(RecordBatch(build_rows(Kind.RECURRENCE, none, blob)))
            errors.invariant(all(self.settle()), "what recurs goes on")
        return len(names)

    def overdue_count(self) -> int:
        """How many messages are overdue."""
        return sum(map(len, self._overdue()))

    def _overdue(self) -> Iterator[NDArray[np.void]]:
        """Units of messages that are overdue, some at a time."""
        views = self._shard.views
        scan = RangeScan(views.wheel, views.cursor.key, Key(self._now_ms, SEQUENCE_MAX))
        while not scan.is_done:
            for units in scan.step(_SCANNED_AT_ONCE):
                # What a group gave back was released before, and is the group's to acknowledge.
                first = (units["attempt"] <= 1) & views.are_live(units)
                yield pick(units, first)

    def set_pause(self, *, is_paused: bool) -> None:
        """Have all that is pending wait, or not."""
        catalog = self._shard.views.catalog
        found = catalog.find_topic(DISPATCH_TOPIC)
        topic = found or Topic(catalog.next_internal_id, DISPATCH_TOPIC, 1, internal=True)
        changed = replace(topic, is_paused=is_paused, version=self._shard.log.end_offset)
        change = ConfigChange(put_topic=changed.config())
        self.append(RecordBatch(build_blob(Kind.CONFIG, change.SerializeToString())))
        (is_made,) = self.settle()
        errors.invariant(bool(is_made), "the pause takes effect")
